//! Fleet of daemons whose pages are shown as one: questions, and the last answer of each daemon. It has no sockets: a
//! thread for each daemon asks one question after the other, so a slow daemon delays only itself.
//!
//! A page that someone views is fetched repeatedly for as long as it is viewed, and the first page always. So a daemon
//! gets a bounded number of requests, however many viewers there are, and the page is answered at once.

pub mod fetch;

use super::INFO;
use fetch::Answer;
use log::{info, warn};
use poolcounter_core::id::ConnId;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, timer_keys};
use poolcounter_service::access;
use poolcounter_service::contract::{Context, Wake};
use poolcounter_service::report::snapshot::Snapshot;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Table};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Target that is always fetched: the contents of the first page.
pub const FIRST_TARGET: &str = "/status.json?range=1m&times=all";
/// Interval at which a daemon is asked the same question.
const INTERVAL: Span = Span::from_secs(2);
/// Interval at which the fleet checks for due questions.
const LOOK_INTERVAL: Span = Span::from_millis(500);
/// Time limit of a request that waits for the answers to a new question.
const PATIENCE: Span = Span::from_secs(1);
/// Time without an answer after which a daemon counts as silent.
const SLOW: Span = Span::from_secs(3);
/// Time for which an answer is shown, and for which a target is fetched after its last view.
const KEPT_FOR: Span = Span::from_secs(10);
/// Limit of targets at a time: enough for a few viewers.
const MOST_TARGETS: usize = 16;

fn servers_table() -> Table {
    Table::new("servers", "Servers", vec![
        Column::linked("server", "server", "http://", "Link to the server's own page."),
        Column::new("state", "state", ColumnUnit::Text, "Answers, or not."),
        Column::new("silent", "silent for", ColumnUnit::Seconds, "Time for which the server has not answered.").marked(Emphasis::Alarm),
        Column::new("up", "up", ColumnUnit::Seconds, "Time since its start."),
        Column::new("clients", "clients", ColumnUnit::Number, "Connections of clients."),
        Column::new("memory", "memory", ColumnUnit::Bytes, "Resident memory of the server."),
        Column::new("version", "version", ColumnUnit::Text, "Its version."),
    ]).help("The last report of a server that does not answer is shown for ten seconds. After that it is left out of all sums and tables until it answers again.").empty("No servers.")
}

timer_keys! {
    /// Timers of the fleet.
    pub enum FleetTimer {
        /// Check for due questions.
        Look,
    }
}

/// Fleet of daemons, with the requests that wait for them.
#[derive(Default)]
pub struct Fleet {
    servers: Vec<Watched>,
    /// Services that are shown.
    services: Vec<&'static str>,
    /// Questions: the time of the first request of each, and that of its last view.
    targets: BTreeMap<String, (Time, Time)>,
    /// Connections whose requests wait for answers.
    waiting: Vec<ConnId>,
    /// Answers of the threads; None before they are started.
    answers: Option<Receiver<Answer>>,
    /// Timer of the next check for due questions; None before the threads are started.
    pub timer: Option<TimerId>,
}

/// Daemon of the fleet.
struct Watched {
    /// Its host and port.
    name: String,
    /// Questions to its thread; None before that is started.
    asks: Option<Sender<String>>,
    /// Time at which the question in progress was sent.
    asked: Option<Time>,
    /// Time of its last answer, or of the start.
    heard: Time,
    /// Failure of the last question.
    failure: Option<String>,
    /// By target, the time of the last question, and the last answer with its time: None if the daemon does not know
    /// the thing.
    told: BTreeMap<String, (Time, Option<TimedAnswer>)>,
}

/// Time of an answer, and its content.
type TimedAnswer = (Time, Option<Snapshot>);

/// Readiness of a request's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// The answers are available.
    Ready,
    /// The answers are awaited.
    Waits,
    /// The limit of targets is reached.
    TooMany,
}

impl Fleet {
    /// Returns the fleet of the daemons with these hosts and ports, showing these services; questions start with
    /// [`Fleet::begin`].
    pub fn of(servers: &[String], services: &[&'static str]) -> Fleet {
        let watched = |name: &String| Watched {
            name: name.clone(),
            asks: None,
            asked: None,
            heard: Time::START,
            failure: None,
            told: BTreeMap::new(),
        };
        Fleet { servers: servers.iter().map(watched).collect(), services: services.into(), ..Fleet::default() }
    }

    /// Starts to ask, in threads that end with the fleet.
    pub fn begin(&mut self, wake: &Wake, context: &mut Context<'_>) {
        let services = self.services.clone();
        self.begin_with(context.time.now, |place, server, questions, answers| {
            fetch::spawn(place, (server.into(), services.clone()), questions, answers, wake.clone());
        });
        self.look_due(context);
    }

    fn begin_with(&mut self, now: Time, start: impl Fn(usize, &str, Receiver<String>, Sender<Answer>)) {
        let (sender, receiver) = channel();
        self.answers = Some(receiver);
        for (place, watched) in self.servers.iter_mut().enumerate() {
            let (asks, questions) = channel();
            start(place, &watched.name, questions, sender.clone());
            (watched.asks, watched.heard) = (Some(asks), now);
        }
        self.targets.insert(FIRST_TARGET.into(), (now, now));
        self.ask(now);
    }

    /// Returns the readiness of the answer to a request for this target. The request waits unless it is ready.
    pub fn readiness(&mut self, target: &str, conn: ConnId, now: Time) -> Readiness {
        if !self.targets.contains_key(target) && self.targets.len() == MOST_TARGETS {
            return Readiness::TooMany;
        }
        let (since, wanted) = self.targets.entry(target.into()).or_insert((now, now));
        *wanted = now;
        let is_over = now.since(*since) >= PATIENCE;
        self.ask(now);
        let is_known = |server: &Watched| {
            server.told.get(target).is_some_and(|(_, told)| told.is_some()) || server.silence(now).is_some()
        };
        if is_over || self.servers.iter().all(is_known) {
            return Readiness::Ready;
        }
        self.waiting.push(conn);
        Readiness::Waits
    }

    /// Receives the answers of the threads, and returns the connections whose requests may be ready now.
    pub fn take_answers(&mut self, now: Time) -> Vec<ConnId> {
        // A thread sends one answer to each question, so there are at most as many answers as servers.
        while let Some(answer) = self.answers.as_ref().and_then(|answers| answers.try_recv().ok()) {
            self.servers[answer.place].note(&answer.target, answer.told, now);
        }
        self.look(now)
    }

    /// Drops targets without views, sends due questions, and returns the connections whose requests may be ready now.
    fn look(&mut self, now: Time) -> Vec<ConnId> {
        let targets = &mut self.targets;
        targets.retain(|target, (_, wanted)| target == FIRST_TARGET || now.since(*wanted) < KEPT_FOR);
        self.servers.iter_mut().for_each(|watched| watched.told.retain(|target, _| targets.contains_key(target)));
        self.ask(now);
        std::mem::take(&mut self.waiting)
    }

    /// Sends due questions, resumes the connections whose requests may be ready now, and arms the timer again.
    pub fn look_due(&mut self, context: &mut Context<'_>) {
        self.look(context.time.now).into_iter().for_each(|conn| context.resume(conn));
        let next = context.timers.typed().arm(context.time.now + LOOK_INTERVAL, FleetTimer::Look);
        self.timer.replace(next).into_iter().for_each(TimerId::fired);
    }

    /// Removes a connection from the waiting ones.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|other| *other != conn);
    }

    /// Returns true if no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends each idle daemon the question that has been due for longest.
    fn ask(&mut self, now: Time) {
        for watched in self.servers.iter_mut().filter(|watched| watched.asked.is_none()) {
            let asked_at = |target: &&String| watched.told.get(*target).map(|(asked, _)| *asked);
            let due = self.targets.keys().filter(|target| asked_at(target).is_none_or(|at| at + INTERVAL <= now));
            let Some((target, asks)) = due.min_by_key(asked_at).zip(watched.asks.as_ref()) else { continue };
            // The thread lives as long as the sender.
            if asks.send(target.clone()).is_ok() {
                watched.asked = Some(now);
                watched.told.entry(target.clone()).or_insert((now, None)).0 = now;
            }
        }
    }

    /// Returns the table of the daemons.
    pub fn table(&self, now: Time) -> Table {
        let row = |watched: &Watched| {
            let silence = watched.silence(now);
            let state = match (silence, &watched.failure) {
                (None, _) => "answers",
                (Some(_), Some(failure)) => failure,
                (Some(_), None) => "does not answer",
            };
            let status = watched.told(FIRST_TARGET, now);
            let of_status = |cell: &dyn Fn(&Snapshot) -> Cell| status.map_or(Cell::Nothing, cell);
            vec![
                Cell::text(watched.name.clone()),
                Cell::text(state),
                silence.map_or(Cell::Nothing, Cell::time),
                of_status(&|status| Cell::time(Span::from_secs(status.uptime.clamp(0.0, 1e12) as u64))),
                of_status(&|status| Cell::Number(clients_of(status))),
                of_status(&|status| Cell::Number(status.process.resident_bytes)),
                of_status(&|status| Cell::text(status.version.clone().into_owned())),
            ]
        };
        let silent = self.servers.iter().filter(|watched| watched.silence(now).is_some()).count();
        let note = (silent > 0).then(|| format!("{silent} of {} servers do not answer.", self.servers.len()));
        Table { note, ..servers_table().rows(self.servers.iter().map(row)) }
    }

    /// Returns the daemons' answers for this target merged with `own`; None if none of them knows it.
    pub fn merged(&self, target: &str, own: Snapshot, now: Time) -> Option<Snapshot> {
        let is_unknown = |watched: &Watched| matches!(watched.told.get(target), Some((_, Some((_, None)))));
        if self.servers.iter().all(is_unknown) {
            return None;
        }
        let mut merged = own;
        let told = self.servers.iter().filter_map(|watched| Some((watched, watched.told(target, now)?)));
        told.enumerate().for_each(|(n, (watched, told))| merged.add(&watched.name, n, told.clone()));
        let is_view = !target.starts_with("/status.json");
        if is_view && merged.title.is_none() {
            merged.title = Some("No server that answers has such an entry.".into());
        }
        let has_servers = !is_view || self.servers.iter().any(|watched| watched.silence(now).is_some());
        leave_unused(&mut merged, has_servers);
        Some(merged)
    }
}

/// Removes unused services, and the rows about servers unless they are wanted.
fn leave_unused(merged: &mut Snapshot, has_servers: bool) {
    let Snapshot { services, history, .. } = merged;
    services.retain(|service| {
        service.connections_opened > 0 || [INFO.name, access::report::NAME].contains(&&*service.name)
    });
    history.series.retain(|series| services.iter().any(|service| service.name == series.service));
    let own = services.iter_mut().filter(|service| service.name == INFO.name && !has_servers);
    own.for_each(|service| service.tables.clear());
}

impl Watched {
    /// Records an answer of the thread.
    fn note(&mut self, target: &str, told: Result<Option<Snapshot>, String>, now: Time) {
        self.asked = None;
        let (was_silent, name) = (self.failure.is_some(), &self.name);
        match &told {
            Err(failure) if !was_silent => warn!("{name} does not answer: {failure}"),
            Ok(_) if was_silent => info!("{name} answers again"),
            _ => {}
        }
        self.failure = told.as_ref().err().cloned();
        if let Ok(snapshot) = told {
            self.heard = now;
            // The target may have been dropped meanwhile.
            self.told.get_mut(target).into_iter().for_each(|(_, told)| *told = Some((now, snapshot.clone())));
        }
    }

    /// Returns the duration of a daemon's silence; None if it answers.
    fn silence(&self, now: Time) -> Option<Span> {
        let is_slow = self.asked.is_some_and(|asked| now.since(asked) >= SLOW);
        (self.failure.is_some() || is_slow).then(|| now.since(self.heard))
    }

    /// Returns its answer for a target, if recent.
    fn told(&self, target: &str, now: Time) -> Option<&Snapshot> {
        let (at, snapshot) = self.told.get(target)?.1.as_ref()?;
        snapshot.as_ref().filter(|_| now.since(*at) < KEPT_FOR)
    }
}

/// Returns the number of connections of clients, without those of viewers.
fn clients_of(status: &Snapshot) -> u64 {
    let clients = status.services.iter().filter(|service| service.name != INFO.name);
    clients.map(|service| service.connections).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overviews::{of_overview, overview};
    use poolcounter_core::id::Id;
    use poolcounter_service::loop_stats::LoopStats;
    use poolcounter_service::report::room::{MOST_ROWS, Room};
    use poolcounter_service::report::snapshot::Remembered;
    use std::cell::RefCell;

    fn conn() -> ConnId {
        ConnId::from_index(7)
    }

    /// Two daemons whose threads the test simulates.
    struct Played {
        fleet: Fleet,
        threads: Vec<(Receiver<String>, Sender<Answer>)>,
    }

    fn at(ms: u64) -> Time {
        Time::START + Span::from_millis(ms)
    }

    fn snapshot() -> Snapshot {
        let room = Room { rows: MOST_ROWS, bytes: usize::MAX, has_all_times: true };
        let mut overview = overview(2, |n| format!("kind{n}").into_bytes());
        overview.services.iter_mut().for_each(|service| service.traffic.opened.bump());
        Snapshot::of(&of_overview(overview, &LoopStats::default()), room, &Remembered::NOTHING)
    }

    impl Played {
        fn new() -> Played {
            let mut fleet = Fleet::of(&["a", "b"].map(String::from), &[]);
            let threads = RefCell::new(Vec::new());
            fleet.begin_with(at(0), |_, _, questions, answers| threads.borrow_mut().push((questions, answers)));
            Played { fleet, threads: threads.into_inner() }
        }

        fn asked(&self, place: usize) -> Option<String> {
            self.threads[place].0.try_recv().ok()
        }

        fn tell(
            &mut self,
            place: usize,
            target: &str,
            told: Result<Option<Snapshot>, String>,
            now: Time,
        ) -> Vec<ConnId> {
            self.threads[place].1.send(Answer { place, target: target.into(), told }).expect("the fleet is there");
            self.fleet.take_answers(now)
        }

        /// Returns the number in the third column of the first row of the merged pools, and the note about the servers.
        fn shown(&self, now: Time) -> (Option<u64>, Option<String>) {
            let own = Snapshot { services: Vec::new(), ..snapshot() };
            let merged = self.fleet.merged(FIRST_TARGET, own, now).expect("some know it");
            let pools = merged.services.iter().find(|service| service.name == "pools");
            let number = pools.map(|pools| match pools.tables[0].rows[0][2] {
                Cell::Number(number) => number,
                _ => 0,
            });
            (number, self.fleet.table(now).note)
        }
    }

    #[test]
    fn each_is_asked_one_thing_at_a_time_and_not_too_often() {
        let mut played = Played::new();
        assert_eq!(played.asked(0).as_deref(), Some(FIRST_TARGET));
        assert_eq!(played.fleet.readiness("/x", conn(), at(10)), Readiness::Waits);
        assert_eq!(played.asked(0), None, "it has not answered yet");
        assert_eq!(played.tell(0, FIRST_TARGET, Ok(Some(snapshot())), at(20)), [conn()]);
        assert_eq!(played.asked(0).as_deref(), Some("/x"), "a new question comes first");
        played.tell(0, "/x", Ok(None), at(30));
        assert_eq!(played.fleet.look(at(1_900)).len() + usize::from(played.asked(0).is_some()), 0);
        played.fleet.look(at(2_000));
        assert_eq!(played.asked(0).as_deref(), Some(FIRST_TARGET));
        assert_eq!((played.asked(1).is_some(), played.asked(1)), (true, None), "the other still thinks");
    }

    #[test]
    fn a_request_waits_for_a_while() {
        let mut played = Played::new();
        assert_eq!(played.fleet.readiness(FIRST_TARGET, conn(), at(10)), Readiness::Waits);
        assert!(!played.fleet.is_empty());
        assert_eq!(played.tell(0, FIRST_TARGET, Ok(Some(snapshot())), at(20)), [conn()]);
        assert_eq!(played.fleet.readiness(FIRST_TARGET, conn(), at(20)), Readiness::Waits, "for the other");
        played.fleet.forget(conn());
        assert!(played.fleet.is_empty());
        assert_eq!(played.fleet.readiness(FIRST_TARGET, conn(), at(1_000)), Readiness::Ready, "long enough");
        assert_eq!(played.fleet.readiness("/x", conn(), at(4_000)), Readiness::Waits, "the first has not said it yet");
        played.tell(0, "/x", Ok(None), at(4_010));
        assert_eq!(played.fleet.readiness("/x", conn(), at(4_020)), Readiness::Ready, "the other is silent");
        let more = (0..100).map(|n| played.fleet.readiness(&format!("/{n}"), conn(), at(4_030)));
        assert_eq!(more.filter(|it| *it == Readiness::TooMany).count(), 100 + 2 - MOST_TARGETS);
        played.fleet.look(at(60_000));
        assert_eq!(played.fleet.targets.len(), 1, "nobody looks at the others any more");
        assert!(played.fleet.servers.iter().all(|watched| watched.told.len() <= 1));
    }

    #[test]
    fn the_last_answer_of_a_silent_daemon_is_shown_for_a_while() {
        let mut played = Played::new();
        let one = snapshot();
        played.tell(0, FIRST_TARGET, Ok(Some(one.clone())), at(20));
        let (only, note) = played.shown(at(20));
        assert_eq!((only.is_some(), note), (true, None), "no one is silent yet");
        played.tell(1, FIRST_TARGET, Ok(Some(one)), at(30));
        played.fleet.look(at(2_020));
        played.tell(1, FIRST_TARGET, Err("gone".into()), at(2_030));
        played.tell(0, FIRST_TARGET, Ok(Some(snapshot())), at(2_040));
        let both = played.shown(at(2_050));
        assert_eq!(both.1.as_deref(), Some("1 of 2 servers do not answer."));
        assert_eq!(played.fleet.servers[1].silence(at(2_050)), Some(Span::from_millis(2_020)));
        played.fleet.look(at(9_000));
        played.tell(0, FIRST_TARGET, Ok(Some(snapshot())), at(9_010));
        let alone = played.shown(at(10_031)).0;
        assert_eq!((alone, both.0 > alone), (only, false), "numbers as large as can be do not grow");
        assert!(played.fleet.servers[1].told(FIRST_TARGET, at(10_029)).is_some());
        assert!(played.fleet.servers[1].told(FIRST_TARGET, at(10_031)).is_none(), "too old");
        played.tell(1, FIRST_TARGET, Ok(Some(snapshot())), at(10_040));
        assert_eq!(played.shown(at(10_050)).1, None, "it is back");
    }

    #[test]
    fn things_that_no_daemon_knows_are_not_found() {
        let mut played = Played::new();
        played.tell(0, "/x", Ok(None), at(10));
        assert_eq!(played.fleet.readiness("/x", conn(), at(20)), Readiness::Waits);
        assert!(played.fleet.merged("/x", snapshot(), at(20)).is_some(), "one has not said so");
        for place in [0, 1] {
            played.tell(place, FIRST_TARGET, Ok(Some(snapshot())), at(30));
            played.tell(place, "/x", Ok(None), at(40));
        }
        assert!(played.fleet.merged("/x", snapshot(), at(50)).is_none());
    }
}
