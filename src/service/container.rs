//! A list of services, and what belongs to each: settings, connections, caps. The loop and the pages reach services through it.

use crate::contract::{Caps, Info, Peers, Service, Traffic, Wake};
use crate::report::{Counted, Overview, Report, Series, ServiceReport, View};
use crate::settings::{Configure, ServiceSettings};
use poolcounter_core::time::Time;
use poolcounter_core::wheel::Owner;
use std::any::Any;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// The place of a service in the list that the server was made with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServiceId(u8);

/// Something that each service of a list has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PerService<T>(Vec<T>);

/// What each service of a list is told by its operator.
pub type AllSettings = PerService<Box<dyn ServiceSettings>>;

/// The services of a server.
pub struct Services(Vec<Entry>);

/// A service with what the loop keeps for it.
pub struct Entry {
    /// Its line in the registry.
    pub info: &'static Info,
    /// The service itself.
    pub service: Box<dyn Service>,
    /// Asked of the service once, so that no turn asks for it.
    pub caps: Caps,
    /// What happened to its connections.
    pub traffic: Traffic,
    /// Whether clients can connect to it.
    pub is_enabled: bool,
}

/// All services but the one that is being called.
pub struct Others<'a> {
    before: &'a [Entry],
    /// What is known of the one that is called without asking it.
    called: (&'static Info, &'a Traffic),
    after: &'a [Entry],
}

impl ServiceId {
    /// Returns the service of that name in a list, such as `pools`.
    pub fn named(list: &[&Info], name: &str) -> Option<ServiceId> {
        ServiceId::all(list).find(|id| list[id.index()].name == name)
    }

    /// Returns its index in the list.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns its line in the list.
    pub fn info(self, list: &[&'static Info]) -> &'static Info {
        list[self.index()]
    }

    /// Returns every place in a list of services.
    pub fn all(list: &[&Info]) -> impl DoubleEndedIterator<Item = ServiceId> + use<> {
        (0..u8::try_from(list.len()).expect("a list of services is written by hand")).map(ServiceId)
    }

    /// Returns the number under which the service arms its timers.
    pub fn owner(self) -> Owner {
        Owner(self.0)
    }

    /// Returns the service that armed a timer.
    pub fn of(owner: Owner) -> ServiceId {
        ServiceId(owner.0)
    }
}

impl<T> PerService<T> {
    /// Returns what `of` has for each service of a list.
    pub fn of(list: &[&'static Info], of: impl FnMut(&'static Info) -> T) -> Self {
        PerService(list.iter().copied().map(of).collect())
    }

    /// Returns what `of` makes of what each service has.
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> PerService<U> {
        PerService(self.0.iter().map(of).collect())
    }
}

impl AllSettings {
    /// Returns the defaults of each service of a list.
    pub fn defaults(list: &[&'static Info]) -> Self {
        PerService::of(list, |info| (info.settings)())
    }

    /// Returns the same with other settings for one service.
    ///
    /// # Panics
    ///
    /// When no service of the list has such settings.
    pub fn with<S: Configure>(mut self, settings: S) -> Self {
        *self.get_mut().expect("some service of the list has such settings") = settings;
        self
    }

    /// Returns the same, with every service keeping nothing in files.
    pub fn in_memory(mut self) -> Self {
        self.0.iter_mut().for_each(|settings| settings.keep_in_memory());
        self
    }

    /// Returns the settings of the service that has such ones.
    pub fn get<S: Configure>(&self) -> Option<&S> {
        self.0.iter().find_map(|settings| (&**settings as &dyn Any).downcast_ref())
    }

    /// Returns the settings of the service that has such ones, to be changed.
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
    /// Makes the services of a list, for which the settings are, without connections.
    pub fn of(list: &[&'static Info], settings: &AllSettings) -> Self {
        let entries = list.iter().zip(&settings.0).map(|(info, settings)| {
            let service = settings.open();
            Entry { info, caps: service.caps(), service, traffic: Traffic::default(), is_enabled: true }
        });
        Services(entries.collect())
    }

    /// Returns every service's place.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = ServiceId> + use<> {
        // Lossless: made from a list, which is as short.
        (0..self.0.len() as u8).map(ServiceId)
    }

    /// Returns the service of that name.
    pub fn named(&self, name: &str) -> Option<ServiceId> {
        self.ids().find(|id| self[*id].info.name == name)
    }

    /// Returns a service that is to be called, what happened to its connections, and all others for it to look at.
    pub fn split(&mut self, id: ServiceId) -> (&mut dyn Service, &Traffic, Others<'_>) {
        let (before, rest) = self.0.split_at_mut(id.index());
        let (entry, after) = rest.split_first_mut().expect("an id is the place of a service");
        let Entry { info, service, traffic, .. } = entry;
        (&mut **service, traffic, Others { before, called: (info, traffic), after })
    }

    /// Returns how many connections there are.
    pub fn open(&self) -> u64 {
        self.0.iter().map(|entry| entry.traffic.open).sum()
    }

    /// Returns the longest request that some service takes, in bytes.
    pub fn longest_request(&self) -> usize {
        self.0.iter().map(|entry| entry.caps.request_bytes).max().unwrap_or(0)
    }

    /// Tells each service how its store wakes the loop.
    pub fn attach(&mut self, wake: impl Fn(ServiceId) -> Wake) {
        for id in self.ids() {
            self[id].service.attach(wake(id));
        }
    }

    /// Returns whether no service has something under way that an upgrade must wait for.
    pub fn is_quiet(&self) -> bool {
        self.0.iter().all(|entry| entry.service.is_quiet())
    }

    /// Returns what counts for rules of access without a connection, as [`Service::leases_of_rules`] does.
    pub fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        self.0.iter().flat_map(|entry| entry.service.leases_of_rules()).collect()
    }

    /// Has every service compare its tables.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.0.iter().for_each(|entry| entry.service.check());
    }

    /// Returns whether no service remembers any connection.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.service.is_empty())
    }

    /// Returns how many timers are armed on no connection's behalf.
    pub fn background_timers(&self) -> usize {
        self.0.iter().map(|entry| entry.service.background_timers()).sum()
    }
}

impl Index<ServiceId> for Services {
    type Output = Entry;

    fn index(&self, id: ServiceId) -> &Entry {
        &self.0[id.index()]
    }
}

impl IndexMut<ServiceId> for Services {
    fn index_mut(&mut self, id: ServiceId) -> &mut Entry {
        &mut self.0[id.index()]
    }
}

impl Others<'_> {
    /// Returns what every service reports at the time `now`, in the order of the list. `own` is the report of the one that is called.
    pub fn overview(&self, now: Time, peers: &dyn Peers, own: Report) -> Overview {
        let report = |entry: &Entry| {
            let mut report = entry.service.report(now, &entry.traffic, peers);
            entry.service.sample(&mut |series| report.series.push(series));
            let (name, traffic, is_enabled) = (entry.info.name, entry.traffic, entry.is_enabled);
            ServiceReport { name, traffic, is_enabled, report }
        };
        let (info, traffic) = self.called;
        let called = ServiceReport { name: info.name, traffic: *traffic, is_enabled: true, report: own };
        let before = self.before.iter().map(report);
        Overview { services: before.chain([called]).chain(self.after.iter().map(report)).collect() }
    }

    /// Returns the line of the service that is called.
    pub fn called(&self) -> &'static Info {
        self.called.0
    }

    /// Returns why clients of another service should be sent elsewhere, of the first that says so.
    pub fn unhealthy_reason(&self) -> Option<&'static str> {
        self.before.iter().chain(self.after).find_map(|entry| entry.service.unhealthy_reason())
    }

    /// Returns how much clients hold or wait for in each other service, by its name.
    pub fn at_risk(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.before.iter().chain(self.after).map(|entry| (entry.info.name, entry.service.at_risk()))
    }

    /// Returns whether there is a service of that name.
    pub fn include(&self, name: &str) -> bool {
        self.before.iter().chain(self.after).any(|entry| entry.info.name == name)
    }

    /// Returns what the service of that name has to tell of one thing, as a report of it.
    pub fn view(&self, name: &str, path: &[u8], now: Time, peers: &dyn Peers) -> Option<(ServiceReport, View)> {
        let entry = self.before.iter().chain(self.after).find(|entry| entry.info.name == name)?;
        let mut view = entry.service.view(path, now, peers)?;
        let report = std::mem::take(&mut view.report);
        let (name, traffic, is_enabled) = (entry.info.name, entry.traffic, entry.is_enabled);
        Some((ServiceReport { name, traffic, is_enabled, report }, view))
    }

    /// Returns what each service that can be searched finds of a text, as reports of it.
    pub fn find(&self, text: &[u8], now: Time, peers: &dyn Peers) -> Vec<(ServiceReport, View)> {
        let path = [b"find/", text].concat();
        let names = self.before.iter().chain(self.after).map(|entry| entry.info.name);
        names.filter_map(|name| self.view(name, &path, now, peers)).collect()
    }

    /// Notes every value that is remembered for a curve, with the name of its service, in the order of the list.
    pub fn sample(&self, note: &mut dyn FnMut(&'static str, Series)) {
        for entry in self.before.iter().chain(self.after) {
            entry.service.sample(&mut |series| note(entry.info.name, series));
        }
    }

    /// Notes what every service has counted of the rows of its tables, with the name of the service.
    pub fn tally(&self, note: &mut dyn FnMut(&'static str, Counted<'_>)) {
        for entry in self.before.iter().chain(self.after) {
            entry.service.tally(&mut |counted| note(entry.info.name, counted));
        }
    }
}

/// What tests of services share.
#[cfg(any(test, feature = "testing"))]
pub mod tests {
    use super::*;
    use crate::access::Access;
    use crate::contract::{Context, Input, NoProcessInfo, DaemonCommands, Peers, Traffic};
    use crate::loop_stats::LoopStats;
    use crate::output::Output;
    use crate::report::Report;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::random::Random;
    use poolcounter_core::time::{Span, Time};
    use poolcounter_core::wheel::Wheel;

    /// Connections whose peers have their numbers in their addresses.
    pub struct Numbered;

    impl Peers for Numbered {
        fn peer(&self, conn: ConnId) -> String {
            format!("10.0.0.{}:7", conn.index())
        }
    }

    /// Has connections of a service say a line each, at these times, and returns its report at `now`.
    pub fn report_after_lines(
        service: &'static Info,
        lines: impl Iterator<Item = (Time, usize, String)>,
        now: Time,
        traffic: &Traffic,
        peers: &dyn Peers,
    ) -> Report {
        let (mut wheel, mut output, mut random) = (Wheel::default(), Output::default(), Random::from_seed(0));
        let list = [service];
        let mut services = Services::of(&list, &AllSettings::defaults(&list));
        let id = services.named(service.name).expect("is in the list");
        let (service, _, others) = services.split(id);
        for (now, conn, line) in lines {
            let mut context = Context {
                now,
                epoch: Span::ZERO,
                id,
                timers: wheel.own(id.owner()),
                random: &mut random,
                output: &mut output,
                resumed: &mut Vec::new(),
                ended: &mut Vec::new(),
                acts: &mut Vec::new(),
                results: &mut Vec::new(),
                orders: &mut DaemonCommands::default(),
                traffic,
                peers,
                process: &NoProcessInfo,
                loop_stats: &LoopStats::default(),
                others: &others,
                access: &mut Access::default(),
            };
            service.serve(ConnId::from_index(conn), Input { bytes: line.as_bytes(), seen: 0 }, &mut context);
        }
        service.report(now, traffic, peers)
    }
}
