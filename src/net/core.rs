//! The services and what they share: the wheel and the output. It knows no connections, only their ids.

use crate::output::Output;
use crate::pulse::Pulse;
use crate::service::{Context, Nobody, Peers, Service, Traffic, Unreadable};
use crate::services::{Kind, Services};
use crate::time::{Span, Time};
use crate::wheel::Wheel;
use serde::{Deserialize, Serialize};

/// Everything of the loop but the connections.
pub struct Core {
    pub services: Services,
    pub wheel: Wheel,
    pub output: Output,
    pub pulse: Pulse,
    /// The time of day at [`Time::START`].
    epoch: Span,
}

/// What a service leaves to the process that takes over.
#[derive(Serialize, Deserialize)]
pub struct SavedService {
    kind: Kind,
    traffic: Traffic,
    state: Vec<u8>,
}

impl Core {
    pub fn new(services: Services, epoch: Span) -> Self {
        Core { services, wheel: Wheel::default(), output: Output::default(), pulse: Pulse::default(), epoch }
    }

    /// Calls a service, at the time `now`. How things stood before is noted now and then, for those who look back. Nobody wakes
    /// up for it: what no call has changed is as it was.
    pub fn call<R>(
        &mut self,
        kind: Kind,
        now: Time,
        peers: &dyn Peers,
        call: impl FnOnce(&mut dyn Service, &mut Context<'_>) -> R,
    ) -> R {
        let Core { services, wheel, output, pulse, epoch } = self;
        if services.wants_sample(now) {
            services.sample(now);
        }
        let timers = wheel.own(kind.owner());
        services.with(kind, |service, traffic| {
            call(service, &mut Context { now, epoch: *epoch, timers, output, traffic, peers, pulse })
        })
    }

    /// What the services know, for a process that takes over.
    pub fn save(&mut self, now: Time) -> Vec<SavedService> {
        let mut save = |kind| {
            let state = self.call(kind, now, &Nobody, |service, context| service.save(context));
            SavedService { kind, traffic: *self.services.traffic(kind), state }
        };
        Kind::ALL.into_iter().map(&mut save).collect()
    }

    /// Goes on from what another process saved.
    pub fn restore(&mut self, saved: &[SavedService], now: Time) -> Result<(), Unreadable> {
        // Turns the wheel to the present, so that the timers find their slots.
        while self.wheel.expire(now).is_some() {}
        for SavedService { kind, traffic, state } in saved {
            *self.services.traffic(*kind) = *traffic;
            self.call(*kind, now, &Nobody, |service, context| service.restore(state, context))?;
        }
        Ok(())
    }

    /// Compares every table with every other.
    pub fn check(&self) {
        self.services.check();
        self.wheel.check();
        self.output.check();
    }

    pub fn is_empty(&self) -> bool {
        let has_own_timers_only = self.wheel.len() == self.services.own_timers();
        self.services.is_empty() && has_own_timers_only && self.output.is_empty()
    }
}
