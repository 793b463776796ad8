//! The services and what they share: the wheel and the output. It knows no connections, only their ids.

use crate::output::Output;
use crate::pulse::Pulse;
use crate::record::{Reader, Unreadable, Writer};
use crate::service::{Context, Nobody, Peers, Service, Traffic};
use crate::services::{Kind, Services};
use crate::time::{Span, Time};
use crate::wheel::Wheel;
use serde::{Deserialize, Serialize};
use std::io;

/// Everything of the loop but the connections.
pub struct Core {
    pub services: Services,
    pub wheel: Wheel,
    pub output: Output,
    pub pulse: Pulse,
    /// The time of day at [`Time::START`].
    epoch: Span,
}

/// What is before each service's own part of a handover.
#[derive(Serialize, Deserialize)]
pub struct SavedService {
    pub kind: Kind,
    /// Of the part that follows.
    pub version: u16,
    pub traffic: Traffic,
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
        let timers = wheel.of(kind.owner());
        services.with(kind, |service, traffic| {
            call(service, &mut Context { now, epoch: *epoch, timers, output, traffic, peers, pulse })
        })
    }

    /// Writes what the services know, for a process that takes over.
    pub fn save(&mut self, out: &mut Writer<'_>, now: Time) -> io::Result<()> {
        out.put(&Kind::ALL.len())?;
        for kind in Kind::ALL {
            let version = self.services.with(kind, |service, _| service.saved_version());
            out.put(&SavedService { kind, version, traffic: *self.services.traffic(kind) })?;
            self.call(kind, now, &Nobody, |service, context| service.save(out, context))?;
        }
        Ok(())
    }

    /// Goes on from what another process saved, or only fails wherever that would.
    pub fn restore(&mut self, saved: &mut Reader<'_>, now: Time, is_rehearsal: bool) -> Result<(), Unreadable> {
        // Turns the wheel to the present, so that the timers find their slots.
        while self.wheel.expire(now).is_some() {}
        for _ in 0..saved.take::<usize>()? {
            let SavedService { kind, version, traffic } = saved.take()?;
            *self.services.traffic(kind) = traffic;
            self.call(kind, now, &Nobody, |service, context| match is_rehearsal {
                true => service.rehearse(version, saved, context),
                false => service.restore(version, saved, context),
            })?;
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
