//! Jobs: the adapter between the loop and the job queue, which speaks the beanstalkd protocol and its extensions. It
//! turns bytes into requests and replies into bytes, hands changes to the store, and makes no decisions.

mod buried_groups;
mod contract;
mod health;
mod loading;
mod operations;
pub mod options;
mod pages;
#[cfg(feature = "postgres")]
pub mod postgres;
mod process;
mod queries;
mod replies;
mod rights;
mod saving;
mod serving;
mod sessions;
mod slack;
pub mod sqlite;
mod standby;
pub mod state;
pub mod stats;
pub mod store;
mod store_driver;
pub mod timetable;

pub use options::{JobsSettings, StoreKind};
pub use options::{store_of, store_of_copy};
pub use poolcounter_protocol::jobs::{commands, name, request, values};

/// The protocol: lines to requests, replies and lists to bytes.
pub mod wire {
    pub use poolcounter_protocol::jobs::wire::*;
    pub mod yaml;
}

use commands::JobCommand;
use health::Watcher;
use pages::gone_runners::GoneRunners;
use poolcounter_core::{ConnId, Due, Id};
use poolcounter_service::access::Holds;
use poolcounter_service::contract::{Caps, Context, Info, Input, REQUESTS_PER_TURN, Served, Service, Then};
use poolcounter_service::options::{Opt, TableOpt};
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::settings::{self, Configure};
use sessions::{Slot, session_of};
use slack::Slack;
use state::{Commit, Event, MOST_IN_A_TURN, State, Step, Timer};
use store::{Jobs, Ownership, Store};
use store_driver::StoreDriver;
use wire::MAX_EXTENSION_LINE;

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "jobs",
    port: poolcounter_protocol::jobs::DEFAULT_PORT,
    is_enabled: false,
    max_connections: u64::MAX,
    has_store: true,
    title: "Jobs",
    conditions: health::CONDITIONS,
    announcement: "the jobs are at",
    listening: options::LISTENING,
    is_private: false,
    verbs: commands::VERBS,
    commands: JobCommand::ROWS,
    refusal: b"NOT_ALLOWED\r\n",
    settings: settings::defaults::<JobsSettings>,
    operations: operations::OPERATIONS,
};

impl Configure for JobsSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;
    const TABLES: &'static [TableOpt<Self>] = options::TABLES;

    fn open(&self) -> Box<dyn Service> {
        Box::new(JobQueue::new(self))
    }

    fn keep_in_memory(&mut self) {
        self.store = StoreKind::Memory;
    }
}

/// The jobs service.
pub struct JobQueue {
    state: State,
    store: Box<dyn Store<Jobs>>,
    driver: StoreDriver,
    settings: JobsSettings,
    sessions: Vec<Slot>,
    /// Last commit that a reply waits for.
    awaited: Commit,
    /// Waiting connections whose peers have closed their sending side, each with the commit that may bring its reply.
    hung_up: Vec<(Commit, ConnId)>,
    /// Name of this server in `stats`; made at its first use.
    name: Option<u64>,
    /// Host name, system and processor.
    machine: [String; 3],
    slack: Slack,
    watcher: Watcher,
    gone_runners: GoneRunners,
    /// True while jobs that are kept in a store are not given out, because the daemon ends once the reserved ones are
    /// back.
    keeps_jobs: bool,
    /// True if the configuration file could be read.
    has_file: bool,
    /// Events of the present step; empty between steps.
    events: Vec<Event>,
}

impl JobQueue {
    /// Returns a service without jobs.
    pub fn new(settings: &JobsSettings) -> Self {
        JobQueue::with_store(settings, store_of(settings))
    }

    /// Returns a service without jobs, whose changes go to this store.
    pub fn with_store(settings: &JobsSettings, store: Box<dyn Store<Jobs>>) -> Self {
        let mut state = State::new(settings.bounds());
        if store.is_immediate() {
            state.keep_no_changes();
        }
        JobQueue {
            state,
            store,
            driver: StoreDriver::default(),
            settings: settings.clone(),
            sessions: Vec::new(),
            awaited: Commit(0),
            hung_up: Vec::new(),
            name: None,
            machine: process::machine(),
            slack: Slack::default(),
            watcher: Watcher::with(settings.warnings),
            gone_runners: GoneRunners::default(),
            keeps_jobs: false,
            has_file: false,
            events: Vec::new(),
        }
    }

    /// Takes one step of the state machine, and passes on its events.
    fn step<T>(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>) -> T) -> T {
        self.step_in_turn(true, context, take)
    }

    /// Takes one step of the state machine. `is_first` is false after another step of the same turn, with nothing but
    /// queries between them, and for a record of a handover, which no store is asked about.
    #[inline]
    fn step_in_turn<T>(
        &mut self,
        is_first: bool,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut State, &mut Step<'_, '_>) -> T,
    ) -> T {
        let mut events = std::mem::take(&mut self.events);
        let Context { time, timers, random, conns, .. } = context;
        let (now, timers, peer) = (time.now, &mut timers.typed(), &|conn| conns.peers.peer(conn));
        let mut step = Step { now, timers, random, events: &mut events, peer };
        if is_first {
            let ownership = self.store.ownership();
            self.state.ends_connections = ownership == Ownership::Expired;
            self.state.set_shut(self.keeps_jobs || ownership != Ownership::Owns, &mut step);
            self.state.note_time(time.now);
            if self.state.set_wall(time.wall) {
                self.state.reckon_schedules(&mut step);
            }
        }
        let taken = take(&mut self.state, &mut step);
        self.state.commit_at_once(&mut step);
        events.iter().for_each(|event| self.send(event, context));
        events.clear();
        self.events = events;
        taken
    }
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        // The store asks for all jobs if it has lost them.
        while let Some(verdict) = self.store.end() {
            self.hand_over_asked(&verdict);
        }
    }
}

impl Service for JobQueue {
    fn caps(&self) -> Caps {
        Caps { request_bytes: MAX_EXTENSION_LINE, output_bytes: MAX_BYTES, idle: None }
    }

    fn open(&mut self, conn: ConnId, _: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        if !self.store.ownership().turns_away() && !session.is_lost && !std::mem::replace(&mut session.is_open, true) {
            self.state.open(conn);
        }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        let ownership = self.store.ownership();
        if ownership == Ownership::Expired {
            self.send_away(conn, context);
        }
        let slot = session_of(&mut self.sessions, conn);
        let (is_lost, is_open) = (slot.begun().is_some_and(|session| session.is_lost), slot.is_open);
        if is_lost || ownership.turns_away() {
            return self.turn_away(conn, input.bytes, context);
        }
        if !is_open {
            // It came while another daemon had the jobs.
            self.open(conn, context);
        }
        if self.sessions[conn.index()].query.is_some() {
            self.go_on_with_query(conn, context);
            return Served { consumed: 0, then: Then::Serve };
        }
        let (mut consumed, mut has_stepped) = (0, false);
        self.state.visited = 0;
        let may_hold = self.may_hold_back();
        let is_usual = !may_hold && !context.has_rules();
        for _ in 0..REQUESTS_PER_TURN {
            let is_plain = is_usual && self.sessions[conn.index()].is_plain();
            if is_plain && consumed > 0 && consumed == input.bytes.len() {
                return Served { consumed, then: Then::Read };
            }
            if is_plain
                && !context.output.is_full(conn)
                && let Some(served) = self.serve_usual(conn, &input.bytes[consumed..], !has_stepped, context)
            {
                has_stepped = true;
                consumed += served;
            } else if !self.write_unsent(conn, context) || context.output.is_full(conn) {
                break;
            } else if may_hold && self.hold_back(conn, &input.bytes[consumed..], context.time.now) {
                return Served { consumed, then: Then::Wait };
            } else {
                let (served, then) = self.serve_any(conn, &input.bytes[consumed..], may_hold, context);
                consumed += served;
                if let Some(then) = then {
                    return Served { consumed, then };
                }
            }
            if self.state.is_waiting(conn) {
                session_of(&mut self.sessions, conn).waits = true;
                return Served { consumed, then: Then::Wait };
            }
            if self.state.visited >= MOST_IN_A_TURN {
                break;
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn hangup(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if !session_of(&mut self.sessions, conn).waits {
            // The connection waits for the store, which answers it whether or not its peer still sends.
            return;
        }
        match self.state.last_uncommitted() {
            // The job that it waits for may be in that commit.
            Some(commit) => self.hung_up.push((commit, conn)),
            None => self.step(context, |state, step| state.hang_up(conn, step)),
        }
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        match due.key() {
            Timer::Store => self.look_after_store(context),
            Timer::Lease => self.look_after_lease(context),
            Timer::Memory => self.return_memory(),
            Timer::Periodic => {
                let can_put = !self.is_store_failing(context.time.now);
                self.step(context, |state, step| state.put_periodic(can_put, step));
            }
            timer => {
                let was_crowded = self.state.is_crowded();
                self.step(context, |state, step| state.expire(timer, step));
                if was_crowded && !self.state.is_crowded() {
                    self.resume_due(false, context);
                }
            }
        }
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if let Some(session) = self.sessions.get_mut(conn.index()) {
            self.state.kept_bytes -= session.charged;
            *session = Slot::default();
        }
        self.hung_up.retain(|(_, other)| *other != conn);
        self.driver.forget(conn);
        if let Some(name) = self.state.runner_of(conn) {
            self.gone_runners.note(name, context.conns.peers.peer(conn), context.time.now);
        }
        self.step(context, |state, step| state.close(conn, step));
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        self.commit_batch(context);
        self.note_memory(context);
    }

    fn completed(&mut self, context: &mut Context<'_>) {
        self.complete(context);
    }

    fn usage_of(&self, conn: ConnId) -> Holds {
        self.state.holds(conn)
    }

    fn kept_bytes(&self, conn: ConnId) -> usize {
        self.sessions.get(conn.index()).map_or(0, |session| session.bytes()) + self.state.watch_bytes_of(conn)
    }
}
