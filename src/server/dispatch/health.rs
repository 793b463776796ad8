//! Conditions of the daemon itself: its one thread, its descriptors, refused connections, reloads, a drain.

use super::Dispatch;
use poolcounter_core::{Count, Span, Time};
use poolcounter_service::contract::{Peers, Traffic};
use poolcounter_service::health::{Board, Growth, grouped, in_words, rate};
use poolcounter_service::report::{Condition, Look, conditions};

/// Title of the daemon's line.
pub const TITLE: &str = "Daemon";
/// Page of its conditions.
const PATH: &str = "/daemon";
/// Time for which connections are said to wait after the system could not give one.
const ACCEPT_FAILS: Span = Span::from_secs(2);
/// Share of the descriptors, in percent, from which they are about to run out.
const DESCRIPTORS: u64 = 80;

conditions! {
    /// Conditions of the daemon itself.
    pub static CONDITIONS;
    BUSY = critical "busy", "The daemon's thread was busy for a larger share of the last minute than status.busy.";
    OUT_OF_DESCRIPTORS = warning "descriptors",
        "Connections use more than 80 % of the descriptors that the process may have, or wait because the system has none.";
    TURNS_AWAY = warning "turns away", "Connections were refused, or could not be served, in the last minute.";
    RELOAD_FAILED = warning "reload failed",
        "The last reload or upgrade failed: the daemon runs with its previous settings or program.";
    DRAINS = warning "drains", "New requests are refused, because an operator has begun a drain.";
}

/// Health of all services, and the state for that of the daemon.
#[derive(Default)]
pub(crate) struct Health {
    pub board: Board,
    /// Growth of the microseconds of work, and of the refused connections.
    minute: Growth<2>,
    /// Time since which new requests are refused; None while they are accepted.
    pub refuses_since: Option<Time>,
    /// Last time at which the system could not give a connection to the process, with its reason.
    pub accept_failure: Option<(Time, String)>,
}

impl Dispatch {
    /// Looks at the health of all services, if it is time for that and each has read its state.
    #[inline]
    pub fn look_if_due(&mut self, now: Time, peers: &dyn Peers) {
        if !self.health.board.is_due(now) {
            self.health.board.look_later();
        } else if self.services.are_restored() {
            self.look(now, peers);
        }
    }

    #[cold]
    fn look(&mut self, now: Time, peers: &dyn Peers) {
        self.health.board.begin(now);
        for id in self.services.ids() {
            let entry = &mut self.services[id];
            if entry.is_enabled && !entry.info.title.is_empty() {
                let mut look = Look::new(now, peers, &entry.traffic);
                poolcounter_core::meter::begin_step();
                entry.service.look(&mut look);
                poolcounter_core::meter::end_step();
                self.health.board.take(entry.info.title, look);
            }
        }
        let traffic = Traffic::default();
        let mut look = Look::new(now, peers, &traffic);
        self.note_own_conditions(&mut look);
        self.health.board.take(TITLE, look);
    }

    fn note_own_conditions(&mut self, look: &mut Look<'_>) {
        let now = look.now;
        let errors = self.services.ids().map(|id| self.services[id].traffic.connect_errors).sum::<Count>().get();
        let busy = self.loop_stats.busy().as_micros();
        let ([busy, errors], within) = self.health.minute.growth(now, [busy, errors]);
        // Percent: a microsecond of work in a second is a millionth.
        let share = (rate(busy, within) / 1e4) as u64;
        let limit = self.health.board.settings.busy;
        if share > limit && within >= Span::from_secs(30) {
            let sentence = format!("busy {share} % of the time: start another daemon");
            look.note(Condition::of_service(&BUSY, PATH, sentence).measured(share as f64, limit as f64));
        }
        let mut note = |info, sentence| look.note(Condition::of_service(info, PATH, sentence));
        let (open, most) = (self.services.open(), self.process.max_fds());
        let failure = self.health.accept_failure.as_ref().filter(|(at, _)| now.since(*at) < ACCEPT_FAILS);
        if let Some((_, reason)) = failure {
            note(&OUT_OF_DESCRIPTORS, format!("new connections wait: {reason}: raise the limit of open files"));
        } else if most > 0 && open.saturating_mul(100) > most.saturating_mul(DESCRIPTORS) {
            let (open, most) = (grouped(open), grouped(most));
            let sentence = format!("{open} of {most} descriptors are used: raise the limit of open files");
            note(&OUT_OF_DESCRIPTORS, sentence);
        }
        if errors > 0 {
            let (errors, within) = (grouped(errors), in_words(within));
            note(&TURNS_AWAY, format!("{errors} connections could not be served in the last {within}"));
        }
        if let Some(reload) = self.loop_stats.reload.filter(|reload| !reload.has_worked) {
            let age = in_words(now.since(reload.at));
            note(&RELOAD_FAILED, format!("the reload {age} ago failed: the log has the reason"));
        }
        if let Some(since) = self.health.refuses_since {
            let at_risk = self.services.ids().map(|id| Count::from(self.services[id].at_risk())).sum::<Count>().get();
            let (span, held) = (in_words(now.since(since)), grouped(at_risk));
            note(&DRAINS, format!("draining for {span}: {held} locks, members, units and jobs are still held"));
        }
        let (open, up) = (grouped(open), in_words(now.since(self.started)));
        look.standing = format!("busy {share} %, {open} connections, up {up}, version {}", env!("CARGO_PKG_VERSION"));
    }
}
