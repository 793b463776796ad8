//! Several daemons whose pages are shown as one: what they were asked, and what each has told last. It knows no sockets: a thread for
//! each daemon asks one question after the other, and a slow daemon delays nobody but itself.
//!
//! What somebody looks at is asked again and again, for as long as somebody does, and the page itself always. So a daemon is asked
//! for few things every few seconds, however many look, and the page has an answer at once.

pub mod fetch;

use crate::id::ConnId;
use crate::report::merge::Merged;
use crate::report::snapshot::Snapshot;
use crate::report::{Cell, Column, ColumnUnit, Emphasis, Table, TableInfo};
use crate::service::{Context, Wake};
use crate::time::{Span, Time};
use crate::wheel::{TimerId, timer_keys};
use fetch::{Answer, HttpServer};
use log::{info, warn};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What is always asked: what the page shows first.
pub const FIRST_TARGET: &str = "/status.json?range=1m&times=all";
/// How often a daemon is asked the same again.
const INTERVAL: Span = Span::from_secs(2);
/// How often the fleet looks what is due.
const LOOK_INTERVAL: Span = Span::from_millis(500);
/// For how long a request waits for what no daemon was asked before.
const PATIENCE: Span = Span::from_secs(1);
/// After how long without the answer to a question a daemon counts as silent.
const SLOW: Span = Span::from_secs(3);
/// For how long what a daemon has told last is shown, if it tells nothing more.
const KEPT_FOR: Span = Span::from_secs(10);
/// For how long something is asked again after somebody has looked at it.
const WANTED_FOR: Span = Span::from_secs(10);
/// How many things are asked at a time: what a few people look at.
const MOST_TARGETS: usize = 16;

static SERVERS: TableInfo = TableInfo {
    name: "servers",
    title: "Servers",
    help: "What a server has told last is shown for ten seconds; then it is left out of all sums and tables until it answers again.",
    empty: "There is none.",
    is_of_kinds: false,
    columns: &[
        Column {
            name: "server",
            title: "server",
            unit: ColumnUnit::Linked("http://"),
            help: "Where its own page is.",
            ..Column::BLANK
        },
        Column { name: "state", title: "state", unit: ColumnUnit::Text, help: "Whether it answers.", ..Column::BLANK },
        Column {
            name: "silent",
            title: "silent for",
            unit: ColumnUnit::Age,
            help: "For how long a server that does not answer has not.",
            emphasis: Emphasis::Alarm,
            ..Column::BLANK
        },
        Column {
            name: "age",
            title: "last answer",
            unit: ColumnUnit::Age,
            help: "How long ago it has answered.",
            ..Column::BLANK
        },
        Column { name: "up", title: "up", unit: ColumnUnit::Age, help: "How long it has been up.", ..Column::BLANK },
        Column {
            name: "clients",
            title: "clients",
            unit: ColumnUnit::Level,
            help: "Connections of clients.",
            emphasis: Emphasis::Work,
            ..Column::BLANK
        },
        Column {
            name: "memory",
            title: "memory",
            unit: ColumnUnit::Bytes,
            help: "Its memory that is resident.",
            ..Column::BLANK
        },
        Column { name: "version", title: "version", unit: ColumnUnit::Text, help: "Its release.", ..Column::BLANK },
    ],
};

timer_keys! {
    /// What the timer is for.
    pub enum FleetTimer {
        Look,
    }
}

/// The daemons, and who looks.
pub struct Fleet {
    servers: Vec<Watched>,
    targets: Vec<Target>,
    /// Connections whose request waits for answers.
    waiting: Vec<ConnId>,
    /// What the threads send; None before these are there.
    answers: Option<Receiver<Answer>>,
    /// Fires when it is to look what is due; None before the threads are there.
    pub timer: Option<TimerId>,
}

/// Something that the daemons are asked.
struct Target {
    /// A path with a query.
    text: String,
    /// Since when it is asked.
    since: Time,
    /// When somebody looked at it last.
    wanted: Time,
}

/// A daemon.
struct Watched {
    server: HttpServer,
    /// Where its thread takes questions from; None before that is there.
    asks: Option<Sender<String>>,
    /// Since when a question is under way.
    asked: Option<Time>,
    /// When it has answered last, or the beginning.
    heard: Time,
    has_answered: bool,
    /// Why it has not answered the last question.
    failure: Option<String>,
    told: BTreeMap<String, Told>,
}

/// What a daemon tells of one thing.
struct Told {
    asked: Time,
    at: Time,
    /// None before there is an answer; and None in it if there is no such thing there.
    snapshot: Option<Option<Arc<Snapshot>>>,
}

/// Whether a request can be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    Ready,
    /// Not yet.
    Waits,
    /// Too much else is being looked at.
    TooMany,
}

impl Fleet {
    /// Returns the fleet of these daemons, which are not asked before [`Fleet::begin`].
    pub fn of(servers: &[HttpServer]) -> Fleet {
        let watched = |server: &HttpServer| Watched {
            server: server.clone(),
            asks: None,
            asked: None,
            heard: Time::START,
            has_answered: false,
            failure: None,
            told: BTreeMap::new(),
        };
        Fleet { servers: servers.iter().map(watched).collect(), targets: Vec::new(), waiting: Vec::new(), answers: None, timer: None }
    }

    /// Begins to ask, in threads that end with the fleet.
    pub fn begin(&mut self, wake: &Wake, now: Time) {
        let (sender, receiver) = channel();
        self.answers = Some(receiver);
        for (place, watched) in self.servers.iter_mut().enumerate() {
            let (asks, questions) = channel();
            fetch::spawn(place, watched.server.clone(), questions, sender.clone(), wake.clone());
            (watched.asks, watched.heard) = (Some(asks), now);
        }
        self.targets.push(Target { text: FIRST_TARGET.into(), since: now, wanted: now });
        self.ask(now);
    }

    /// Returns whether a request for this target of the connection can be answered. If not, it waits.
    pub fn readiness(&mut self, target: &str, conn: ConnId, now: Time) -> Readiness {
        if let Some(known) = self.targets.iter_mut().find(|it| it.text == target) {
            known.wanted = now;
        } else if self.targets.len() < MOST_TARGETS {
            self.targets.push(Target { text: target.into(), since: now, wanted: now });
            self.ask(now);
        } else {
            return Readiness::TooMany;
        }
        let since = self.targets.iter().find(|it| it.text == target).map_or(now, |known| known.since);
        let is_known = |server: &Watched| {
            server.told.get(target).is_some_and(|told| told.snapshot.is_some()) || server.silence(now).is_some()
        };
        if now.since(since) >= PATIENCE || self.servers.iter().all(is_known) {
            return Readiness::Ready;
        }
        self.waiting.push(conn);
        Readiness::Waits
    }

    /// Takes what the threads have told, and returns the connections whose requests may be answered now.
    pub fn take_answers(&mut self, now: Time) -> Vec<ConnId> {
        // A thread sends one answer to each question, so there are no more than servers.
        while let Some(Answer { place, target, told }) = self.answers.as_ref().and_then(|answers| answers.try_recv().ok()) {
            self.servers[place].note(target, told, now);
        }
        self.ask(now);
        std::mem::take(&mut self.waiting)
    }

    /// Forgets what nobody looks at, asks what is due, and returns the connections whose requests may be answered now.
    pub fn look(&mut self, now: Time) -> Vec<ConnId> {
        let targets = &mut self.targets;
        targets.retain(|target| target.text == FIRST_TARGET || now.since(target.wanted) < WANTED_FOR);
        for watched in &mut self.servers {
            watched.told.retain(|text, _| targets.iter().any(|target| target.text == *text));
        }
        self.ask(now);
        std::mem::take(&mut self.waiting)
    }

    /// Arms the timer again.
    pub fn look_again(&mut self, context: &mut Context<'_>) {
        let next = context.timers.typed().arm(context.now + LOOK_INTERVAL, FleetTimer::Look);
        self.timer.replace(next).into_iter().for_each(TimerId::fired);
    }

    /// The connection waits no more.
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|other| *other != conn);
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Has each daemon of which no question is under way asked what is due for longest.
    fn ask(&mut self, now: Time) {
        for watched in self.servers.iter_mut().filter(|watched| watched.asked.is_none()) {
            let asked_at = |target: &&Target| watched.told.get(&target.text).map(|told| told.asked);
            let due = self.targets.iter().filter(|target| asked_at(target).is_none_or(|at| at + INTERVAL <= now));
            let Some((target, asks)) = due.min_by_key(asked_at).zip(watched.asks.as_ref()) else { continue };
            // The thread lives as long as the sender.
            if asks.send(target.text.clone()).is_ok() {
                watched.asked = Some(now);
                let told = Told { asked: now, at: now, snapshot: None };
                watched.told.entry(target.text.clone()).or_insert(told).asked = now;
            }
        }
    }

    /// Returns the table of the daemons.
    pub fn table(&self, now: Time) -> Table {
        let row = |watched: &Watched| {
            let silence = watched.silence(now);
            let state = match (&silence, &watched.failure) {
                (None, _) if watched.has_answered => "answers",
                (None, _) => "is being asked",
                (Some(_), Some(failure)) => failure,
                (Some(_), None) => "does not answer",
            };
            let status = watched.told(FIRST_TARGET, now);
            let of_status = |cell: &dyn Fn(&Snapshot) -> Cell| status.map_or(Cell::Nothing, cell);
            vec![
                Cell::Name(watched.server.name().into()),
                Cell::Text(state.into()),
                silence.map_or(Cell::Nothing, Cell::Time),
                if watched.has_answered { Cell::Time(now.since(watched.heard)) } else { Cell::Nothing },
                of_status(&|status| Cell::Time(Span::from_secs(status.uptime.clamp(0.0, 1e12) as u64))),
                of_status(&|status| Cell::Number(status.clients())),
                of_status(&|status| Cell::Number(status.process.resident_bytes)),
                of_status(&|status| Cell::Text(status.version.clone().into_owned())),
            ]
        };
        let silent = self.servers.iter().filter(|watched| watched.silence(now).is_some()).count();
        let note = (silent > 0).then(|| format!("{silent} of {} servers do not answer.", self.servers.len()));
        Table { info: &SERVERS, rows: self.servers.iter().map(row).collect(), note }
    }

    /// Returns whether some daemon does not answer.
    pub fn is_any_silent(&self, now: Time) -> bool {
        self.servers.iter().any(|watched| watched.silence(now).is_some())
    }

    /// Returns what the daemons tell of this target beside `own`; None if every one says that there is no such thing.
    pub fn merged(&self, target: &str, own: Snapshot, now: Time) -> Option<Snapshot> {
        let is_unknown = |watched: &Watched| watched.told.get(target).is_some_and(|told| matches!(told.snapshot, Some(None)));
        if self.servers.iter().all(is_unknown) {
            return None;
        }
        let mut merged = Merged::with(own);
        for watched in &self.servers {
            if let Some(told) = watched.told(target, now) {
                merged.add(watched.server.name(), told.clone());
            }
        }
        Some(merged.finish())
    }
}

impl Watched {
    /// Notes what the thread tells.
    fn note(&mut self, target: String, told: Result<Option<Snapshot>, String>, now: Time) {
        self.asked = None;
        let name = self.server.name();
        let told = match told {
            Ok(None) if target == FIRST_TARGET => Err("it has no status".into()),
            told => told,
        };
        match told {
            Ok(snapshot) => {
                if self.failure.take().is_some() {
                    info!("{name} answers again");
                }
                (self.heard, self.has_answered) = (now, true);
                // It may not be wanted any more.
                if let Some(told) = self.told.get_mut(&target) {
                    (told.at, told.snapshot) = (now, Some(snapshot.map(Arc::new)));
                }
            }
            Err(failure) => {
                if self.failure.is_none() {
                    warn!("{name} does not answer: {failure}");
                }
                self.failure = Some(failure);
            }
        }
    }

    /// Returns for how long a daemon that does not answer has not; None if it does.
    fn silence(&self, now: Time) -> Option<Span> {
        let is_slow = self.asked.is_some_and(|asked| now.since(asked) >= SLOW);
        (self.failure.is_some() || is_slow).then(|| now.since(self.heard))
    }

    /// Returns what it has told of a target lately.
    fn told(&self, target: &str, now: Time) -> Option<&Snapshot> {
        let told = self.told.get(target).filter(|told| now.since(told.at) < KEPT_FOR)?;
        told.snapshot.as_ref()?.as_deref()
    }
}

impl Snapshot {
    /// Returns how many connections of clients there are: those who look at pages are none.
    fn clients(&self) -> u64 {
        let clients = self.services.iter().filter(|service| service.name != "http");
        clients.map(|service| service.connections).fold(0, u64::saturating_add)
    }
}
