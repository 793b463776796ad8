//! Conditions of the daemon itself: its one thread, its descriptors, refused connections, reloads, a drain.

use super::Dispatch;
use poolcounter_core::{Count, Span, Time};
use poolcounter_service::contract::{Peers, Traffic};
use poolcounter_service::health::{Board, Growth, grouped, in_words, rate};
use poolcounter_service::report::{Condition, ConditionInfo, Look};

/// Title of the daemon's line.
pub const TITLE: &str = "Daemon";
/// Time for which connections are said to wait after the system could not give one.
const ACCEPT_FAILS: Span = Span::from_secs(2);
/// Share of the descriptors, in percent, from which they are about to run out.
const DESCRIPTORS: u64 = 80;

static BUSY: ConditionInfo = ConditionInfo::critical(
    "busy",
    "The daemon's thread was busy for a larger share of the last minute than status.busy.",
);
static OUT_OF_DESCRIPTORS: ConditionInfo = ConditionInfo::warning(
    "descriptors",
    "Connections use more than 80 % of the descriptors that the process may have, or wait because the system has none.",
);
static TURNS_AWAY: ConditionInfo =
    ConditionInfo::warning("turns away", "Connections were refused, or could not be served, in the last minute.");
static RELOAD_FAILED: ConditionInfo = ConditionInfo::warning(
    "reload failed",
    "The last reload or upgrade failed: the daemon runs with its previous settings or program.",
);
static DRAINS: ConditionInfo =
    ConditionInfo::warning("drains", "New requests are refused, because an operator has begun a drain.");

/// Conditions of the daemon itself.
pub static CONDITIONS: &[&ConditionInfo] = &[&BUSY, &OUT_OF_DESCRIPTORS, &TURNS_AWAY, &RELOAD_FAILED, &DRAINS];

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
        let mut note = |info, sentence: String, [value, limit]: [f64; 2]| {
            look.note(Condition::of_service(info, "/daemon", sentence).measured(value, limit));
        };
        const NO_LIMIT: [f64; 2] = [1.0; 2];
        if share > self.health.board.settings.busy && within >= Span::from_secs(30) {
            let limit = self.health.board.settings.busy;
            note(
                &BUSY,
                format!("busy {share} % of the time: start another daemon"),
                [share, limit].map(|it| it as f64),
            );
        }
        let (open, most) = (self.services.open(), self.process.max_fds());
        let failure = self.health.accept_failure.as_ref().filter(|(at, _)| now.since(*at) < ACCEPT_FAILS);
        if let Some((_, reason)) = failure {
            let sentence = format!("new connections wait: {reason}: raise the limit of open files");
            note(&OUT_OF_DESCRIPTORS, sentence, NO_LIMIT);
        } else if most > 0 && open.saturating_mul(100) > most.saturating_mul(DESCRIPTORS) {
            let (open, most) = (grouped(open), grouped(most));
            let sentence = format!("{open} of {most} descriptors are used: raise the limit of open files");
            note(&OUT_OF_DESCRIPTORS, sentence, NO_LIMIT);
        }
        if errors > 0 {
            let within = in_words(within);
            let sentence = format!("{} connections could not be served in the last {within}", grouped(errors));
            note(&TURNS_AWAY, sentence, NO_LIMIT);
        }
        if let Some(reload) = self.loop_stats.reload.filter(|reload| !reload.has_worked) {
            note(
                &RELOAD_FAILED,
                format!("the reload {} ago failed: the log has the reason", in_words(now.since(reload.at))),
                NO_LIMIT,
            );
        }
        if let Some(since) = self.health.refuses_since {
            let at_risk = self.services.ids().map(|id| Count::from(self.services[id].at_risk())).sum::<Count>().get();
            let span = in_words(now.since(since));
            note(
                &DRAINS,
                format!("draining for {span}: {} locks, members, units and jobs are still held", grouped(at_risk)),
                NO_LIMIT,
            );
        }
        look.standing = format!(
            "busy {} %, {} connections, up {}, version {}",
            share,
            grouped(open),
            in_words(now.since(self.started)),
            env!("CARGO_PKG_VERSION")
        );
    }
}
