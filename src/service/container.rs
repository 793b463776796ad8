//! List of services with their settings, connections and caps. The loop and the pages reach services through it.

use crate::contract::effects::Telemetry;
use crate::contract::operations::Operations;
use crate::contract::settings::{Configure, ServiceSettings};
use crate::contract::{Caps, Info, Peers, Service, Traffic, Wake};
use crate::report::{Overview, Report, ServiceReport, View};
use poolcounter_core::{ConnId, Time};
use std::any::Any;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

pub use crate::id::ServiceId;

/// One value for each service of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerService<T>(Vec<T>);

/// Settings of every service of a list.
pub type AllSettings = PerService<Box<dyn ServiceSettings>>;

/// Services of a server.
pub type Services = PerService<Entry>;

/// Service, with the loop's data about it.
pub struct Entry {
    /// Its static description.
    pub info: &'static Info,
    /// The service itself.
    pub service: Box<dyn Service>,
    /// Bounds on its connections, returned once by the service.
    pub caps: Caps,
    /// Counts of its connections.
    pub traffic: Traffic,
    /// True when clients can connect to it.
    pub is_enabled: bool,
    /// True while it has not read all that another process has saved.
    pub is_restoring: bool,
}

impl ServiceId {
    /// Returns the service of that name in a list, such as `pools`.
    pub fn named(list: &[&Info], name: &str) -> Option<ServiceId> {
        ServiceId::all(list).find(|id| list[id.index()].name == name)
    }

    /// Returns its static description.
    pub fn info(self, list: &[&'static Info]) -> &'static Info {
        list[self.index()]
    }

    /// Returns the ids of all services of a list.
    pub fn all(list: &[&Info]) -> impl DoubleEndedIterator<Item = ServiceId> + use<> {
        ServiceId::first(list.len())
    }
}

impl<T> PerService<T> {
    /// Returns the value of `of` for each service of a list.
    pub fn each(list: &[&'static Info], of: impl FnMut(&'static Info) -> T) -> Self {
        PerService(list.iter().copied().map(of).collect())
    }

    /// Returns the value of `of` for each value.
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> PerService<U> {
        PerService(self.0.iter().map(of).collect())
    }
}

impl AllSettings {
    /// Returns the defaults of each service of a list.
    pub fn defaults(list: &[&'static Info]) -> Self {
        PerService::each(list, |info| (info.settings)())
    }

    /// Returns the same with other settings for one service.
    ///
    /// # Panics
    ///
    /// Panics if no service of the list has such settings.
    pub fn with<S: Configure>(mut self, settings: S) -> Self {
        *self.get_mut().expect("some service of the list has such settings") = settings;
        self
    }

    /// Returns the same, with no service keeping anything in files.
    pub fn in_memory(mut self) -> Self {
        self.0.iter_mut().for_each(|settings| settings.keep_in_memory());
        self
    }

    /// Returns the settings of this type.
    pub fn get<S: Configure>(&self) -> Option<&S> {
        self.0.iter().find_map(|settings| (&**settings as &dyn Any).downcast_ref())
    }

    /// Returns the settings of this type, to be changed.
    pub fn get_mut<S: Configure>(&mut self) -> Option<&mut S> {
        self.0.iter_mut().find_map(|settings| (&mut **settings as &mut dyn Any).downcast_mut())
    }
}

impl<T> Index<ServiceId> for PerService<T> {
    type Output = T;

    fn index(&self, id: ServiceId) -> &T {
        &self.0[id.index()]
    }
}

impl<T> IndexMut<ServiceId> for PerService<T> {
    fn index_mut(&mut self, id: ServiceId) -> &mut T {
        &mut self.0[id.index()]
    }
}

impl Services {
    /// Makes the services of a list with their settings, without connections.
    pub fn of(list: &[&'static Info], settings: &AllSettings) -> Self {
        let operations = Operations::of(list);
        let entries = list.iter().zip(&settings.0).map(|(info, settings)| {
            let mut service = settings.open();
            service.know_operations(&operations);
            let (caps, traffic) = (service.caps(), Traffic::default());
            Entry { info, caps, service, traffic, is_enabled: true, is_restoring: false }
        });
        PerService(entries.collect())
    }

    /// Returns the ids of all services.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = ServiceId> + use<> {
        ServiceId::first(self.0.len())
    }

    /// Returns this value for each service.
    pub fn for_each<T: Clone>(&self, value: T) -> PerService<T> {
        PerService(vec![value; self.0.len()])
    }

    /// Returns the service of that name.
    pub fn named(&self, name: &str) -> Option<ServiceId> {
        self.ids().find(|id| self[*id].info.name == name)
    }

    /// Calls `call` with a service and the figures of all other services.
    pub fn with_telemetry<R>(&mut self, id: ServiceId, call: impl FnOnce(&mut Entry, &Telemetry<'_>) -> R) -> R {
        let (before, rest) = self.0.split_at_mut(id.index());
        let (entry, after) = rest.split_first_mut().expect("an id is the place of a service");
        let (before, after) = (&*before, &*after);
        let others = || before.iter().chain(after);
        let telemetry = Telemetry {
            unhealthy_reason: others().find_map(|entry| entry.service.unhealthy_reason()),
            health_of: &|name| {
                let of = others().find(|entry| entry.info.name == name)?;
                // A service without clients, such as the administration, reports for all services.
                let counts = |entry: &&Entry| entry.info.name == name || entry.info.title.is_empty();
                let reason = || others().filter(counts).find_map(|entry| entry.service.unhealthy_reason());
                Some(if of.is_enabled { reason() } else { Some("it is off") })
            },
            at_risk: &|| others().map(|entry| (entry.info.name, entry.at_risk())).collect(),
            sample: &|note| {
                others().for_each(|entry| entry.service.sample(&mut |series| note(entry.info.name, series)));
            },
            sample_things: &|now, note| {
                let mut of = Vec::new();
                for Entry { info, service, .. } in others() {
                    service.sample_things(now, &mut |path, series| {
                        of.clear();
                        of.extend([info.name.as_bytes(), b"/", path].into_iter().flatten());
                        note(&of, series);
                    });
                }
            },
            tally: &|note| {
                others().for_each(|entry| entry.service.tally(&mut |counted| note(entry.info.name, counted)));
            },
        };
        call(entry, &telemetry)
    }

    /// Returns the reports of all services at the time `now`, in the order of the list.
    pub fn overview(&self, now: Time, peers: &dyn Peers) -> Overview {
        let report = |entry: &Entry| {
            let mut report = entry.service.report(now, &entry.traffic, peers);
            entry.service.sample(&mut |series| report.series.push(series));
            entry.with_report(report)
        };
        Overview { services: self.0.iter().map(report).collect() }
    }

    /// Returns the page of a service about one thing, and its report; `None` if there is no such service or thing.
    pub fn view(&self, name: &str, path: &[u8], now: Time, peers: &dyn Peers) -> Option<(ServiceReport, View)> {
        let entry = self.0.iter().find(|entry| entry.info.name == name)?;
        let mut view = entry.service.view(path, now, peers)?;
        view.of = [entry.info.name.as_bytes(), b"/", path].concat();
        Some((entry.with_report(std::mem::take(&mut view.report)), view))
    }

    /// Returns the things with this text in their names, of each service that can be searched.
    pub fn find(&self, text: &[u8], now: Time, peers: &dyn Peers) -> Vec<(ServiceReport, View)> {
        let path = [b"find/", text].concat();
        self.0.iter().filter_map(|entry| self.view(entry.info.name, &path, now, peers)).collect()
    }

    /// Returns the number of connections.
    pub fn open(&self) -> u64 {
        self.0.iter().map(|entry| entry.traffic.open).sum()
    }

    /// Returns the length of the longest request of any service, in bytes.
    pub fn longest_request(&self) -> usize {
        self.0.iter().map(|entry| entry.caps.request_bytes).max().unwrap_or(0)
    }

    /// Gives each service the handle with which its store wakes the loop.
    pub fn attach(&mut self, wake: impl Fn(ServiceId) -> Wake) {
        for id in self.ids() {
            self[id].service.attach(wake(id));
        }
    }

    /// Returns true if every service has read all that another process has saved.
    pub fn are_restored(&self) -> bool {
        !self.0.iter().any(|entry| entry.is_restoring)
    }

    /// Returns true if no service has long work in progress.
    pub fn is_settled(&self) -> bool {
        self.are_restored() && self.0.iter().all(|entry| entry.service.is_settled())
    }

    /// Returns true if no service has work in progress that the end of the daemon waits for.
    pub fn is_finished(&self) -> bool {
        self.0.iter().all(|entry| entry.service.is_finished())
    }

    /// Returns true if no service has work in progress that an upgrade must wait for.
    pub fn is_quiet(&self) -> bool {
        self.are_restored() && self.0.iter().all(|entry| entry.service.is_quiet())
    }

    /// Returns the leases that count for access rules, as
    /// [`Lifecycle::leases_of_rules`](crate::contract::Lifecycle::leases_of_rules) does.
    pub fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        self.0.iter().flat_map(|entry| entry.service.leases_of_rules()).collect()
    }

    /// Compares the tables of every service.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        self.0.iter().for_each(|entry| entry.service.check());
    }

    /// Returns true when no service remembers any connection.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.service.is_empty())
    }

    /// Returns the number of armed timers that belong to no connection.
    pub fn background_timers(&self) -> usize {
        self.0.iter().map(|entry| entry.service.background_timers()).sum()
    }
}

impl Entry {
    /// Returns the number of things that would be lost if the daemon ended now. What is not read yet counts as one.
    pub fn at_risk(&self) -> u64 {
        if self.is_restoring { 1 } else { self.service.at_risk() }
    }

    /// Returns whether nothing is left of a connection that was closed.
    pub fn has_forgotten(&self, conn: ConnId) -> bool {
        !self.is_restoring && self.service.has_forgotten(conn)
    }

    fn with_report(&self, report: Report) -> ServiceReport {
        let Entry { info, traffic, is_enabled, .. } = *self;
        let option = info.listening.first().map_or("", |option| option.long);
        ServiceReport { name: info.name, title: info.title, option, traffic, is_enabled, report }
    }
}

/// Helpers of tests of services.
#[cfg(any(test, feature = "testing"))]
pub mod tests {
    use super::*;
    use crate::access::Access;
    use crate::contract::{CallTime, Called, Conns, Context, Input};
    use crate::output::Output;
    use poolcounter_core::{Id, Random, Span, Wheel};

    /// Connections whose peers have their numbers in their addresses.
    pub struct Numbered;

    impl Peers for Numbered {
        fn peer(&self, conn: ConnId) -> String {
            format!("10.0.0.{}:7", conn.index())
        }
    }

    /// Serves each line on its connection at its time, and returns the report of the service at `now`.
    pub fn report_after_lines(
        info: &'static Info,
        lines: impl Iterator<Item = (Time, usize, String)>,
        now: Time,
        traffic: &Traffic,
        peers: &dyn Peers,
    ) -> Report {
        let (mut wheel, mut output, mut random) = (Wheel::default(), Output::default(), Random::from_seed(0));
        let list = [info];
        let mut services = Services::of(&list, &AllSettings::defaults(&list));
        let id = services.named(info.name).expect("is in the list");
        let service = &mut services[id].service;
        for (now, conn, line) in lines {
            let mut context = Context {
                time: CallTime { now, started: Time::START, epoch: Span::ZERO, wall: Span::ZERO },
                called: Called { id, info },
                timers: wheel.own(id.owner()),
                random: &mut random,
                output: &mut output,
                access: &mut Access::default(),
                effects: &mut Vec::new(),
                conns: Conns { peers, traffic },
            };
            let input = Input { bytes: line.as_bytes(), seen: 0, may_show: true };
            service.serve(ConnId::from_index(conn), input, &mut context);
        }
        service.report(now, traffic, peers)
    }
}
