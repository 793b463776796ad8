//! Conditions of the daemon itself: its one thread, its descriptors, refused connections, reloads, a drain.

use super::dispatch::Dispatch;
use poolcounter_core::count::Count;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::{Peers, Traffic};
use poolcounter_service::health::{Board, Condition, ConditionInfo, Growth, Level, Look, grouped, in_words, rate};

/// Title of the daemon's line.
pub const TITLE: &str = "Daemon";
/// Share of the descriptors, in percent, from which on they run out.
const DESCRIPTORS: u64 = 80;
/// Time from one look at the limit of descriptors to the next: the system is asked.
const USAGE_INTERVAL: Span = Span::from_secs(60);

/// Conditions of the daemon itself.
pub static CONDITIONS: [ConditionInfo; 5] = [
    ConditionInfo {
        name: "busy",
        level: Level::Critical,
        meaning: "The daemon's one thread was busy for a larger share of the last minute than status.busy.",
        has_label: false,
    },
    ConditionInfo {
        name: "descriptors",
        level: Level::Warning,
        meaning: "Connections take more than 80 % of the descriptors that the process may have.",
        has_label: false,
    },
    ConditionInfo {
        name: "turns away",
        level: Level::Warning,
        meaning: "Connections were refused, or could not be served, in the last minute.",
        has_label: false,
    },
    ConditionInfo {
        name: "reload failed",
        level: Level::Warning,
        meaning: "The last reload has not worked: the daemon runs with the settings or the program of before.",
        has_label: false,
    },
    ConditionInfo {
        name: "drains",
        level: Level::Warning,
        meaning: "New requests are refused, because an operator has begun a drain.",
        has_label: false,
    },
];

/// Health of all services, and what is known for that of the daemon.
#[derive(Default)]
pub(super) struct Health {
    pub board: Board,
    /// Microseconds of work, and connections that were refused.
    minute: Growth<2>,
    /// The limit of descriptors, and when it was asked for.
    max_fds: Option<(Time, u64)>,
    /// Time since which new requests are refused.
    pub refuses_since: Option<Time>,
}

impl Dispatch {
    /// Looks at all services, if it is time for that.
    #[inline]
    pub fn look_if_due(&mut self, now: Time, peers: &dyn Peers) {
        if self.health.board.is_due(now) {
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
        let mut note = |name: &str, sentence: String| {
            let info = CONDITIONS.iter().find(|info| info.name == name).expect("is one of these");
            let (subject, link, command) = (Vec::new(), "/".into(), String::new());
            look.note(Condition { info, subject, sentence, link, command, waiting: 0 });
        };
        if share > self.health.board.settings.busy && within >= Span::from_secs(30) {
            note("busy", format!("busy {share} % of the time: start another daemon"));
        }
        let open = self.services.open();
        if self.health.max_fds.is_none_or(|(asked, _)| now.since(asked) >= USAGE_INTERVAL) {
            self.health.max_fds = Some((now, self.process.usage().max_fds));
        }
        let most = self.health.max_fds.map_or(0, |(_, most)| most);
        if most > 0 && open.saturating_mul(100) > most.saturating_mul(DESCRIPTORS) {
            let (open, most) = (grouped(open), grouped(most));
            note("descriptors", format!("{open} of {most} descriptors are used: raise the limit of open files"));
        }
        if errors > 0 {
            note("turns away", format!("{} connections could not be served in the last minute", grouped(errors)));
        }
        if let Some(reload) = self.loop_stats.reload.filter(|reload| !reload.has_worked) {
            note(
                "reload failed",
                format!("the reload {} ago has not worked: the log says why", in_words(now.since(reload.at))),
            );
        }
        if let Some(since) = self.health.refuses_since {
            let at_risk =
                self.services.ids().map(|id| Count::from(self.services[id].service.at_risk())).sum::<Count>().get();
            let span = in_words(now.since(since));
            note(
                "drains",
                format!("draining for {span}: {} locks, members, units and jobs are still held", grouped(at_risk)),
            );
        }
        look.standing = format!(
            "busy {} %, {} connections, up {}, version {}",
            share,
            grouped(open),
            in_words(now.since(Time::START)),
            env!("CARGO_PKG_VERSION")
        );
    }
}
