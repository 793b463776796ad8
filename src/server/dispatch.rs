//! Calls of the services with their shared resources (timers, output, random numbers), and their effects. This module
//! knows no connections, only their ids.

mod acts;
pub mod health;

use acts::Acts;
use health::Health;
use poolcounter_core::{ConnId, Owner, Random, Reader, Span, Time, Wheel, Writer, meter};
use poolcounter_service::access::Access;
use poolcounter_service::container::{Entry, ServiceId, Services};
use poolcounter_service::contract::{
    CallTime, Called, Conns, Context, Effect, NoPeers, NoProcessInfo, OperationRequest, Peers, Process, Requester,
    Service, Shown, Traffic, Unreadable, Wanted,
};
use poolcounter_service::output::Output;
use poolcounter_service::report::{LoopStats, Moment, Overview};
use serde::{Deserialize, Serialize};
use std::io;

/// Shortest time between two comparisons with the clock of the time of day.
const CLOCK_LOOK: Span = Span::from_secs(1);
/// Largest difference that counts as none.
pub(super) const CLOCK_STEP: Span = Span::from_secs(1);

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
    /// True once a service has asked for the end of the process.
    pub is_end_asked: bool,
    /// True once a service has asked for a reload, until that begins.
    pub is_reload_asked: bool,
    /// Services whose listeners must be opened or closed.
    pub listening: Vec<(ServiceId, bool)>,
    /// Rules of access.
    pub access: Access,
    /// Effects that are not carried out yet; empty between calls.
    effects: Vec<Effect>,
    random: Random,
    /// Time at which the server was started.
    pub started: Time,
    /// Time of day at [`Time::START`].
    epoch: Span,
    /// Time of day at [`Time::START`], by the clock as it is set now.
    pub wall: Span,
    /// Time of the next comparison with that clock.
    wall_at: Time,
    /// Time of the next sample of the figures by some service.
    watch_at: Time,
    /// Time of the last call. Queues are in the order of time, so it never goes back.
    called_at: Time,
    /// Health of the services.
    pub health: Health,
    acts: Acts,
    /// One bit for each service with a store that was called since the last commit: without a call there is nothing to
    /// commit.
    pub uncommitted: u32,
    /// Reason for which a service cannot read what the process before has saved.
    pub unreadable: Option<Unreadable>,
}

/// Record before the records of a service.
#[derive(Serialize, Deserialize)]
pub struct SavedService {
    pub name: String,
    pub traffic: Traffic,
}

impl Dispatch {
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        Dispatch {
            uncommitted: 0,
            unreadable: None,
            services,
            wheel: Wheel::default(),
            output: Output::default(),
            loop_stats: LoopStats::default(),
            process: Box::new(NoProcessInfo),
            resumed: Vec::new(),
            ended: Vec::new(),
            is_end_asked: false,
            is_reload_asked: false,
            listening: Vec::new(),
            access: Access::default(),
            effects: Vec::new(),
            random,
            started: Time::START,
            epoch,
            wall: epoch,
            wall_at: Time::START,
            watch_at: Time::START,
            called_at: Time::START,
            health: Health::default(),
            acts: Acts::default(),
        }
    }

    /// Calls a service at the time `now`, carries out its effects, and returns its result. Before that, services that
    /// take samples do so if their time has come. The loop does not wake up for samples: without a call nothing has
    /// changed.
    pub fn call<R>(
        &mut self,
        id: ServiceId,
        now: Time,
        peers: &dyn Peers,
        call: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> R,
    ) -> R {
        debug_assert!(now >= self.called_at, "services are called at {now:?}, after {:?}", self.called_at);
        self.called_at = now;
        if now >= self.watch_at && self.services.are_restored() {
            self.watch(now);
        }
        let Dispatch { services, wheel, output, effects, random, started, epoch, wall, access, .. } = self;
        let Entry { info, service, traffic, .. } = &mut services[id];
        self.uncommitted |= u32::from(info.has_store) << id.index();
        let mut context = Context {
            time: CallTime { now, started: *started, epoch: *epoch, wall: *wall },
            called: Called { id, info },
            timers: wheel.own(id.owner()),
            random,
            output,
            access,
            effects,
            conns: Conns { peers, traffic },
        };
        meter::begin_step();
        let result = call(&mut **service, &mut context);
        meter::end_step();
        if !self.effects.is_empty() {
            self.carry_out(now, peers);
        }
        result
    }

    /// Carries out the effects of a call, in their order.
    #[inline(never)]
    fn carry_out(&mut self, now: Time, peers: &dyn Peers) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Resume(conn) => self.resumed.push(conn),
                Effect::End(conn) => self.ended.push(conn),
                Effect::RefuseNew(refuses) => {
                    self.health.refuses_since = refuses.then_some(self.health.refuses_since.unwrap_or(now));
                    for id in self.services.ids() {
                        self.call(id, now, peers, |service, context| service.refuse_new(refuses, context));
                    }
                }
                Effect::Listen(service, is_wanted) => self.listening.push((service, is_wanted)),
                Effect::EndProcess => self.is_end_asked = true,
                Effect::Reload => self.is_reload_asked = true,
                Effect::SetLogLevel(level) => self.process.set_log_level(level),
                Effect::Acted(act) => self.acts.note(act, now),
                Effect::Operate(request) => self.operate(&request, now, peers),
                Effect::Done(from, result) => {
                    self.call(from.service, now, peers, |service, context| {
                        service.operation_done(from, &result, context);
                    });
                }
                Effect::Show(from, wanted) => self.show(from, &wanted, now, peers),
            }
        }
        // The vector keeps its capacity.
        self.effects = effects;
    }

    /// Runs an operation, and passes on its result if that is known at once.
    fn operate(&mut self, request: &OperationRequest, now: Time, peers: &dyn Peers) {
        self.restore_rest(request.service, now, peers);
        let result = self.call(request.service, now, peers, |service, context| service.operate(request, context));
        if let Some(result) = result {
            let from = request.from;
            self.call(from.service, now, peers, |service, context| service.operation_done(from, &result, context));
        }
    }

    /// Takes a snapshot of all services, and passes it to the requester.
    fn show(&mut self, from: Requester, wanted: &Wanted, now: Time, peers: &dyn Peers) {
        // A snapshot has all that was handed over.
        if *wanted != Wanted::Telemetry {
            self.services.ids().for_each(|id| self.restore_rest(id, now, peers));
        }
        let (mut overview, mut views) = (Overview::default(), Vec::new());
        match wanted {
            Wanted::Telemetry => {}
            Wanted::Reports => {
                overview = self.services.overview(now, peers);
                let name = self.services[from.service].info.name;
                let asking = overview.services.iter_mut().find(|service| service.name == name);
                asking.into_iter().for_each(|asking| asking.report.tables.extend(self.acts.table(now)));
            }
            Wanted::View { service, path } => {
                let found = self.services.view(service, path, now, peers);
                (overview.services, views) = found.into_iter().unzip();
            }
            Wanted::Search(text) => {
                (overview.services, views) = self.services.find(text, now, peers).into_iter().unzip();
            }
        }
        if *wanted != Wanted::Telemetry {
            overview.services.extend(self.access.report());
        }
        let Dispatch { started, epoch, wall, .. } = *self;
        let Dispatch { services, wheel, output, effects, random, access, loop_stats, process, health, .. } = self;
        services.with_telemetry(from.service, |entry, telemetry| {
            let timers = wheel.len();
            let (health, past) = (health.board.lines(), health.board.past());
            let moment =
                || Moment { now, started, epoch, overview, loop_stats, health, past, usage: process.usage(), timers };
            let shown = match wanted {
                Wanted::Telemetry => Shown::Telemetry(telemetry),
                Wanted::Reports => Shown::Reports(moment(), telemetry),
                Wanted::View { .. } | Wanted::Search(_) => Shown::Views(moment(), views, telemetry),
            };
            let mut context = Context {
                time: CallTime { now, started, epoch, wall },
                called: Called { id: from.service, info: entry.info },
                timers: wheel.own(from.service.owner()),
                random,
                output,
                access,
                effects,
                conns: Conns { peers, traffic: &entry.traffic },
            };
            entry.service.shown(from, shown, &mut context);
        });
        self.carry_out(now, peers);
    }

    /// Reads the clock of the time of day, at most once a second, for stored times.
    pub fn look_at_clock(&mut self, now: Time, wall: impl FnOnce() -> Option<Span>) {
        if now >= self.wall_at {
            self.wall_at = now + CLOCK_LOOK;
            if let Some(wall) = wall() {
                self.apply_clock_step(wall);
            }
        }
    }

    /// Adopts this time of day at [`Time::START`], if the clock was set since the last comparison.
    fn apply_clock_step(&mut self, wall: Span) {
        let step = wall.as_micros().abs_diff(self.wall.as_micros());
        if step > CLOCK_STEP.as_micros() {
            let how = if wall > self.wall { "forward" } else { "back" };
            log::warn!("the clock was set {how} by {:.1} s", step as f64 / 1e6);
            self.wall = wall;
        }
    }

    /// Calls `commit` of every service with a store that was called since the last commit, in the order of the registry.
    pub fn commit(&mut self, now: Time, peers: &dyn Peers) {
        while self.uncommitted != 0 {
            // Lossless: it has 32 bits.
            let id = ServiceId::of(Owner(self.uncommitted.trailing_zeros() as u8));
            self.call(id, now, peers, |service, context| service.commit(context));
            self.uncommitted &= !(1 << id.index());
        }
    }

    fn watch(&mut self, now: Time) {
        self.watch_at = Time::NEVER;
        for id in self.services.ids() {
            let next = self.services.with_telemetry(id, |entry, telemetry| entry.service.watch(telemetry, now));
            self.watch_at = self.watch_at.min(next);
        }
    }

    /// Writes the state of the services, for a successor.
    pub fn save(&mut self, out: &mut Writer<'_>, now: Time) -> io::Result<()> {
        out.put(&self.services.ids().len())?;
        for id in self.services.ids() {
            let Entry { info, traffic, .. } = &self.services[id];
            out.put(&SavedService { name: info.name.into(), traffic: *traffic })?;
            self.call(id, now, &NoPeers, |service, context| meter::exempt(|| service.save(out, context)))?;
        }
        Ok(())
    }

    /// Restores the services of a handover; in a rehearsal it only fails exactly if that would. Returns the services in
    /// the saved order.
    pub fn restore(&mut self, saved: &mut Reader<'_>, now: Time, is_trial: bool) -> Result<Vec<ServiceId>, Unreadable> {
        // Turns the wheel to the present, so that the timers find their slots.
        while self.wheel.expire(now).is_some() {}
        let mut restored = Vec::new();
        for _ in 0..saved.take::<usize>()? {
            let SavedService { name, traffic } = saved.take()?;
            let id = self.services.named(&name).ok_or_else(|| Unreadable(format!("there is no service {name}")))?;
            self.services[id].traffic = traffic;
            self.call(id, now, &NoPeers, |service, context| {
                meter::exempt(|| match is_trial {
                    true => service.rehearse(saved, context),
                    false => service.restore(saved, context),
                })
            })?;
            self.services[id].is_restoring = true;
            self.restore_more(id, now, &NoPeers);
            if is_trial {
                self.restore_rest(id, now, &NoPeers);
            }
            self.unreadable.take().map_or(Ok(()), Err)?;
            restored.push(id);
        }
        // Background work that was under way goes on in the first tick.
        self.wheel.end_tick();
        Ok(restored)
    }

    /// Calls a service to read a slice of what the process before has saved.
    pub fn restore_more(&mut self, id: ServiceId, now: Time, peers: &dyn Peers) {
        let is_over = self.call(id, now, peers, |service, context| service.restore_more(context));
        self.services[id].is_restoring = is_over == Ok(false);
        self.unreadable = self.unreadable.take().or(is_over.err());
    }

    /// Calls it until it has read all of that.
    pub fn restore_rest(&mut self, id: ServiceId, now: Time, peers: &dyn Peers) {
        while self.services[id].is_restoring {
            self.wheel.end_tick();
            self.restore_more(id, now, peers);
        }
    }

    /// Compares every table with every other.
    pub fn check(&self) {
        self.services.check();
        self.wheel.check();
        self.output.check();
        if self.services.are_restored() {
            self.access.check_counts(&self.services.leases_of_rules());
        }
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
