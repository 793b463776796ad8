//! Drain: refuses new requests, and ends the daemon once no locks, members or jobs are held or waited for.

use super::stats::AdminStat as Stat;
use super::{Admin, AdminTimer, end_waits, who_is, wire};
use log::warn;
use poolcounter_core::{ConnId, Id, Span};
use poolcounter_service::contract::{
    Context, Effect, OperationError, OperationRequest, OperationResult, Requester, Telemetry, Wanted,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::mem::take;

/// Time between two counts of the remaining things.
const LOOK_INTERVAL: Span = Span::from_millis(100);
/// Number of counts per progress line to the connections that wait for a drain: one line per second.
const LOOKS_PER_LINE: u64 = 10;
/// Number of counts per line of the log.
const LOOKS_PER_LOG_LINE: u64 = 100;

/// Request number of a count whose result is for the requesting connection.
const FOR_CONNECTION: u64 = 1;

/// Drain in progress.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Drain {
    /// Operator who started it.
    by: String,
    /// Number of counts so far.
    looks: u64,
}

/// Number of remaining things, by service.
struct Left(Vec<(&'static str, u64)>);

impl Left {
    fn total(&self) -> u64 {
        self.0.iter().fold(0, |total, (_, held)| total.saturating_add(*held))
    }
}

/// Formats the total and the services: `3 (pools 2, jobs 1)`.
impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, held)| format!("{name} {held}")).collect();
        match parts.is_empty() {
            true => f.write_str("0"),
            false => write!(f, "{} ({})", self.total(), parts.join(", ")),
        }
    }
}

/// Requests a count of the remaining things: for a connection, or for the drain itself.
pub(super) fn look(conn: Option<ConnId>, context: &mut Context<'_>) {
    let number = conn.map_or(0, |_| FOR_CONNECTION);
    let conn = conn.unwrap_or(ConnId::from_index(0));
    let from = Requester { service: context.called.id, conn, number };
    context.effects.push(Effect::Show(from, Wanted::Telemetry));
}

impl Admin {
    /// Handles `DRAIN`: starts a drain unless one is in progress, and reports its progress to the connection.
    pub(super) fn drain_for(&mut self, asked: &OperationRequest, context: &mut Context<'_>) -> Option<OperationResult> {
        let from = asked.from;
        self.end_pending(from);
        if self.drain.is_none() {
            self.drain = Some(Drain { by: who_is(from.conn, context), looks: 0 });
            self.go_on_draining(context);
        }
        self.watchers.push(from.conn);
        look(Some(from.conn), context);
        None
    }

    /// Refuses new requests in all services, and schedules the counts.
    pub(super) fn go_on_draining(&mut self, context: &mut Context<'_>) {
        context.effects.push(Effect::RefuseNew(true));
        self.arm_look(context);
    }

    fn arm_look(&mut self, context: &mut Context<'_>) {
        self.look_timer = Some(context.timers.typed().arm(context.time.now + LOOK_INTERVAL, AdminTimer::Look));
    }

    /// Handles a count: ends the daemon at zero, else reports the number if a line is due.
    pub(super) fn note_left(&mut self, from: Requester, telemetry: &Telemetry<'_>, context: &mut Context<'_>) {
        let left = Left((telemetry.at_risk)().into_iter().filter(|(_, count)| *count > 0).collect());
        if from.number == FOR_CONNECTION {
            return context.output.reply_lines(from.conn, |bytes| wire::write_line(bytes, wire::LEFT, &left));
        }
        let Some(drain) = &mut self.drain else { return };
        self.figures.set(Stat::Left, left.total());
        if left.total() == 0 {
            warn!("nothing is left, and the daemon ends, as {} has asked", drain.by);
            context.effects.push(Effect::EndProcess);
            let watchers = take(&mut self.watchers);
            return end_waits(watchers, &Ok("nothing is left, and the daemon ends".into()), context);
        }
        drain.looks += 1;
        if drain.looks % LOOKS_PER_LOG_LINE == 0 {
            warn!("draining: clients still hold or wait for {left}");
        }
        if drain.looks % LOOKS_PER_LINE == 0 {
            // A connection with unsent output gets its next line once that is sent.
            for conn in self.watchers.iter().copied() {
                if context.output.len(conn) == 0 {
                    context.output.reply_lines(conn, |bytes| wire::write_line(bytes, wire::LEFT, &left));
                }
            }
        }
        self.arm_look(context);
    }

    /// Handles `UNDRAIN`: ends the drain.
    pub(super) fn undrain(&mut self, context: &mut Context<'_>) -> OperationResult {
        // A signal, or a service's own command, may have begun a drain of which this service does not know.
        context.effects.push(Effect::RefuseNew(false));
        let Some(timer) = self.look_timer.take() else { return Ok("new requests are granted".into()) };
        context.timers.typed::<AdminTimer>().cancel(timer);
        self.drain = None;
        self.figures.set(Stat::Left, 0);
        let ended = Err(OperationError::Refused("the drain was ended by UNDRAIN".into()));
        end_waits(take(&mut self.watchers), &ended, context);
        Ok("new requests are granted again".into())
    }
}
