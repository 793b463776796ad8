//! Calls the services with what they share: the wheel, the output, random numbers. It knows no connections, only their ids.

use poolcounter_core::id::ConnId;
use poolcounter_core::random::Random;
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::Wheel;
use poolcounter_service::access::Access;
use poolcounter_service::container::{Entry, ServiceId, Services};
use poolcounter_service::contract::{
    Act, Acted, Asker, Context, NoProcessInfo, NoPeers, NotDone, DaemonCommands, Peers, Process, Service, Traffic, Unreadable,
};
use poolcounter_service::loop_stats::LoopStats;
use poolcounter_service::output::Output;
use serde::{Deserialize, Serialize};
use std::io;

/// Everything of the loop but the connections.
pub struct Dispatch {
    pub services: Services,
    pub wheel: Wheel,
    pub output: Output,
    pub loop_stats: LoopStats,
    pub process: Box<dyn Process>,
    /// Connections whose wait has ended, to be served again.
    pub resumed: Vec<ConnId>,
    /// Connections that their services end.
    pub ended: Vec<ConnId>,
    /// A service has asked that the daemon ends.
    pub is_end_asked: bool,
    /// Who may ask for what.
    pub access: Access,
    /// What a service has asked to be done in others; empty between calls.
    acts: Vec<Act>,
    /// Results of acts that services have for others; empty between calls.
    results: Vec<(Asker, Acted)>,
    random: Random,
    /// The time of day at [`Time::START`].
    epoch: Span,
    /// When some service wants to look at the others again.
    observe_at: Time,
    /// Time of the last call. Queues are in the order of time, so it never goes back.
    called_at: Time,
    /// The services with a store.
    stores: Vec<ServiceId>,
    /// One of them was called since the last commit: nothing else gives them something to commit.
    pub is_commit_due: bool,
}

/// The record before those of a service.
#[derive(Serialize, Deserialize)]
pub struct SavedService {
    pub name: String,
    /// The version of what the service writes.
    pub version: u16,
    pub traffic: Traffic,
}

impl Dispatch {
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        let stores = services.ids().filter(|id| services[*id].info.has_store).collect();
        Dispatch {
            stores,
            is_commit_due: true,
            services,
            wheel: Wheel::default(),
            output: Output::default(),
            loop_stats: LoopStats::default(),
            process: Box::new(NoProcessInfo),
            resumed: Vec::new(),
            ended: Vec::new(),
            is_end_asked: false,
            access: Access::default(),
            acts: Vec::new(),
            results: Vec::new(),
            random,
            epoch,
            observe_at: Time::START,
            called_at: Time::START,
        }
    }

    /// Calls a service, at the time `now`, and returns what it returns. Before that, services that sample the others do so if
    /// their time has come. The loop does not wake up for it: what no call has changed is as it was. After it, what the service has
    /// asked of others is done.
    pub fn call<R>(
        &mut self,
        id: ServiceId,
        now: Time,
        peers: &dyn Peers,
        call: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> R,
    ) -> R {
        debug_assert!(now >= self.called_at, "services are called at {now:?}, after {:?}", self.called_at);
        self.called_at = now;
        if now >= self.observe_at {
            self.observe(now);
        }
        self.is_commit_due |= self.services[id].info.has_store;
        let Dispatch {
            services,
            wheel,
            output,
            loop_stats,
            process,
            resumed,
            ended,
            acts,
            results,
            random,
            epoch,
            access,
            ..
        } = self;
        let mut orders = DaemonCommands::default();
        let (service, traffic, others) = services.split(id);
        let (timers, process, others) = (wheel.own(id.owner()), &**process, &others);
        let mut context = Context {
            now,
            epoch: *epoch,
            id,
            timers,
            random,
            output,
            resumed,
            ended,
            acts,
            results,
            orders: &mut orders,
            traffic,
            peers,
            process,
            loop_stats,
            others,
            access,
        };
        let result = call(service, &mut context);
        if !self.acts.is_empty() || !self.results.is_empty() {
            self.do_acts(now, peers);
        }
        if orders != DaemonCommands::default() {
            self.run_commands(orders, now, peers);
        }
        result
    }

    /// Does what a service has asked of the whole daemon.
    fn run_commands(&mut self, DaemonCommands { refuse_new, end }: DaemonCommands, now: Time, peers: &dyn Peers) {
        self.is_end_asked |= end;
        if let Some(refuses) = refuse_new {
            for id in self.services.ids() {
                self.call(id, now, peers, |service, context| service.refuse_new(refuses, context));
            }
        }
    }

    /// Does what a service has asked to be done in others, and hands over the results that there are.
    fn do_acts(&mut self, now: Time, peers: &dyn Peers) {
        while let Some(act) = self.acts.pop() {
            let acted = match self.services.named(&act.service) {
                Some(id) => self.call(id, now, peers, |service, context| service.act(&act, context)),
                None => Some(Err(NotDone::NotFound(format!("there is no service {}", act.service)))),
            };
            self.results.extend(acted.map(|acted| (act.asker, acted)));
        }
        while let Some((asker, acted)) = self.results.pop() {
            self.call(asker.service, now, peers, |service, context| service.acted(asker, &acted, context));
        }
    }

    /// Calls `commit` of every service that has a store, in the order of the registry.
    pub fn commit(&mut self, now: Time, peers: &dyn Peers) {
        for n in 0..self.stores.len() {
            self.call(self.stores[n], now, peers, |service, context| service.commit(context));
        }
        self.is_commit_due = false;
    }

    fn observe(&mut self, now: Time) {
        self.observe_at = Time::NEVER;
        for id in self.services.ids() {
            let (service, _, others) = self.services.split(id);
            self.observe_at = self.observe_at.min(service.observe(&others, now));
        }
    }

    /// Writes what the services know, for a process that takes over.
    pub fn save(&mut self, out: &mut Writer<'_>, now: Time) -> io::Result<()> {
        out.put(&self.services.ids().len())?;
        for id in self.services.ids() {
            let Entry { info, service, traffic, .. } = &self.services[id];
            out.put(&SavedService { name: info.name.into(), version: service.saved_version(), traffic: *traffic })?;
            self.call(id, now, &NoPeers, |service, context| service.save(out, context))?;
        }
        Ok(())
    }

    /// Restores what another process saved, or in a rehearsal only fails wherever that would. Returns the services in the saved
    /// order.
    pub fn restore(
        &mut self,
        saved: &mut Reader<'_>,
        now: Time,
        is_rehearsal: bool,
    ) -> Result<Vec<ServiceId>, Unreadable> {
        // Turns the wheel to the present, so that the timers find their slots.
        while self.wheel.expire(now).is_some() {}
        let mut restored = Vec::new();
        for _ in 0..saved.take::<usize>()? {
            let SavedService { name, version, traffic } = saved.take()?;
            let id = self.services.named(&name).ok_or_else(|| Unreadable(format!("there is no service {name}")))?;
            self.services[id].traffic = traffic;
            self.call(id, now, &NoPeers, |service, context| match is_rehearsal {
                true => service.rehearse(version, saved, context),
                false => service.restore(version, saved, context),
            })?;
            restored.push(id);
        }
        Ok(restored)
    }

    /// Compares every table with every other.
    pub fn check(&self) {
        self.services.check();
        self.wheel.check();
        self.output.check();
        self.access.check_counts(&self.services.leases_of_rules());
    }

    pub fn is_empty(&self) -> bool {
        let has_background_timers_only = self.wheel.len() == self.services.background_timers();
        self.services.is_empty()
            && has_background_timers_only
            && self.output.is_empty()
            && self.access.is_empty()
            && self.resumed.is_empty()
            && self.ended.is_empty()
    }
}
