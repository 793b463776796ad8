//! Jobs: the adapter between the loop and the job queue, which speaks the beanstalkd protocol and its extensions. It turns
//! bytes into requests and replies into bytes, hands changes to the store, and decides nothing itself.

mod asking;
mod keeping;
mod loading;
pub mod options;
pub mod postgres;
mod process;
mod report;
mod rights;
mod saving;
mod serving;
mod sessions;
pub mod sqlite;
mod standby;
pub mod state;
pub mod stats;
pub mod store;
mod tables;
mod telling;
mod views;

pub use options::{JobsSettings, StoreKind};
pub use poolcounter_protocol::jobs::{commands, name, request, values};

/// The protocol: lines to requests, replies and lists to bytes.
pub mod wire {
    pub use poolcounter_protocol::jobs::wire::*;
    pub mod yaml;
}

use commands::JobCommand;
use keeping::Keeping;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::Time;
use poolcounter_core::wheel::Due;
use poolcounter_service::access::Holds;
use poolcounter_service::contract::{
    Act, Acted, Caps, Context, Info, Input, Peers, REQUESTS_PER_TURN, Served, Service, Then, Traffic, Unreadable, Wake,
};
use poolcounter_service::options::Opt;
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::report::{Counted, Report, Series, View};
use poolcounter_service::settings::{self, Configure};
use process::Machine;
use sessions::{Session, session_of};
use state::{Commit, Event, Reply, State, Step, Timer};
use std::io;
use store::{Standing, Store};
use wire::MAX_EXTENSION_LINE;
use wire::stream::Cut;

/// The line of the registry.
pub const INFO: Info = Info {
    name: "jobs",
    port: 11300,
    is_enabled: false,
    max_connections: u64::MAX,
    has_store: true,
    announcement: "the jobs are at",
    listening: options::LISTENING,
    is_private: false,
    verbs: commands::VERBS,
    commands: JobCommand::ROWS,
    refusal: b"NOT_ALLOWED\r\n",
    settings: settings::defaults::<JobsSettings>,
};

impl Configure for JobsSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

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
    store: Box<dyn Store>,
    keeping: Keeping,
    sessions: Vec<Session>,
    /// Bytes that are kept of requests of which not all is there.
    kept_bytes: usize,
    /// Whether clients on other machines may administer it.
    is_open_to_admins: bool,
    /// The last commit that a reply was told to wait for.
    awaited: Commit,
    /// Connections that wait and whose peers send no more, and the commit that may bring what they wait for.
    hung_up: Vec<(Commit, ConnId)>,
    /// What `stats` calls this server; made when it is first needed.
    name: Option<u64>,
    machine: Machine,
    /// Jobs that are kept elsewhere are not given out: the daemon is to end once those that were come back.
    keeps_jobs: bool,
    /// What the present step has to say; empty between steps.
    events: Vec<Event>,
}

impl JobQueue {
    /// A service without jobs.
    pub fn new(settings: &JobsSettings) -> Self {
        JobQueue::with_store(settings, keeping::store_of(settings))
    }

    /// A service without jobs, whose changes go to this store.
    pub fn with_store(settings: &JobsSettings, store: Box<dyn Store>) -> Self {
        let mut state = keeping::state_of(settings);
        if store.is_immediate() {
            state.keep_no_changes();
        }
        JobQueue {
            state,
            store,
            keeping: Keeping::new(settings),
            sessions: Vec::new(),
            kept_bytes: 0,
            is_open_to_admins: settings.admin,
            awaited: Commit(0),
            hung_up: Vec::new(),
            name: None,
            machine: Machine::this(),
            keeps_jobs: false,
            events: Vec::new(),
        }
    }

    /// Has the state take one step, and passes on what it says.
    fn step(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let mut events = std::mem::take(&mut self.events);
        let Context { now, timers, random, .. } = context;
        let mut step = Step { now: *now, timers: &mut timers.typed(), random, events: &mut events };
        self.state.set_shut(self.keeps_jobs || self.store.standing() != Standing::Owns, &mut step);
        self.state.note_time(*now);
        take(&mut self.state, &mut step);
        self.state.commit_at_once(&mut step);
        events.drain(..).for_each(|event| self.tell(&event, context));
        self.events = events;
    }
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        self.end_store();
    }
}

impl Service for JobQueue {
    fn caps(&self) -> Caps {
        Caps { request_bytes: MAX_EXTENSION_LINE, output_bytes: MAX_BYTES, idle: None }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        if session_of(&mut self.sessions, conn).is_lost || self.store.standing() == Standing::StandsBy {
            return self.turn_away(conn, input.bytes, context);
        }
        if !std::mem::replace(&mut session_of(&mut self.sessions, conn).is_open, true) {
            self.step(context, |state, _| state.open(conn));
        }
        if session_of(&mut self.sessions, conn).query.is_some() {
            self.go_on_with_query(conn, context);
            return Served { consumed: 0, then: Then::Serve };
        }
        let mut consumed = 0;
        let max_size = self.state.bounds().max_size;
        for _ in 0..REQUESTS_PER_TURN {
            if !self.write_unsent(conn, context) || context.output.is_full(conn) {
                break;
            }
            if self.hold_back(conn, &input.bytes[consumed..], context.now) {
                return Served { consumed, then: Then::Wait };
            }
            let was_held = session_of(&mut self.sessions, conn).held_since.is_some();
            let may_change = was_held && commands::may_change(&input.bytes[consumed..]);
            let Cut { consumed: cut, item } = self.cut(conn, &input.bytes[consumed..], max_size);
            consumed += cut;
            let then = match item {
                Some(item) if self.is_given_up(conn, may_change, &item, context.now) => {
                    self.tell(&Event { conn, reply: Reply::InternalError, after: None, about: None }, context);
                    None
                }
                Some(item) => self.handle(conn, item, context),
                None if cut == 0 => Some(Then::Read),
                None => None,
            };
            if let Some(then) = then {
                return Served { consumed, then };
            }
            if self.state.is_waiting(conn) {
                session_of(&mut self.sessions, conn).waits = true;
                return Served { consumed, then: Then::Wait };
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn hangup(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if !session_of(&mut self.sessions, conn).waits {
            // It waits for the store, which has an answer for it whatever it sends.
            return;
        }
        match self.state.last_uncommitted() {
            // The job that it waits for may be its own.
            Some(commit) => self.hung_up.push((commit, conn)),
            None => self.step(context, |state, step| state.hang_up(conn, step)),
        }
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        match due.key() {
            Timer::Store => self.look_after_store(context),
            timer => self.step(context, |state, step| state.expire(timer, step)),
        }
    }

    fn act(&mut self, act: &Act, context: &mut Context<'_>) -> Option<Acted> {
        self.act_on(act, context)
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if let Some(session) = self.sessions.get_mut(conn.index()) {
            self.kept_bytes -= session.kept_bytes;
            *session = Session::default();
        }
        self.hung_up.retain(|(_, other)| *other != conn);
        self.keeping.forget(conn);
        self.step(context, |state, step| state.close(conn, step));
    }

    fn attach(&mut self, wake: Wake) {
        self.store.attach(wake);
    }

    fn begin(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        self.begin_store(listens, context)
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        self.commit_batch(context);
    }

    fn completed(&mut self, context: &mut Context<'_>) {
        self.complete(context);
    }

    fn quiesce(&mut self, context: &mut Context<'_>) {
        self.finish_queries(context);
        self.step(context, State::finish_commands);
        self.give_up_waiting(context);
    }

    fn drain(&mut self, _: &mut Context<'_>) {
        self.state.set_draining(true);
    }

    /// Jobs that are kept nowhere else would be lost, so they are given out until none is left.
    fn refuse_new(&mut self, refuses: bool, context: &mut Context<'_>) {
        self.state.set_draining(refuses);
        self.keeps_jobs = refuses && !self.store.is_immediate();
        if !refuses {
            self.step(context, |_, _| {});
        }
    }

    fn usage_of(&self, conn: ConnId) -> Holds {
        self.state.holds(conn)
    }

    fn kept_bytes(&self, conn: ConnId) -> usize {
        self.sessions.get(conn.index()).map_or(0, Session::bytes)
    }

    fn recheck(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.drop_denied(conn, context);
    }

    fn at_risk(&self) -> u64 {
        self.jobs_at_risk()
    }

    fn unhealthy_reason(&self) -> Option<&'static str> {
        (self.keeping.has_begun() && self.store.standing() == Standing::StandsBy).then_some("the jobs stand by")
    }

    fn is_quiet(&self) -> bool {
        self.is_kept() && self.keeping.is_quiet() && self.state.is_settled()
    }

    fn report(&self, now: Time, _: &Traffic, _: &dyn Peers) -> Report {
        self.report_at(now)
    }

    fn view(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, now, peers)
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        self.series().into_iter().for_each(note);
    }

    fn tally(&self, note: &mut dyn FnMut(Counted<'_>)) {
        self.tally_sums(note);
    }

    fn saved_version(&self) -> u16 {
        saving::VERSION
    }

    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        self.save_all(out)
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_all(version, saved, true, context)
    }

    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_all(version, saved, false, context)
    }

    fn check(&self) {
        self.state.check();
        self.check_keeping();
        let kept: usize = self.sessions.iter().map(|session| session.stream.kept_bytes()).sum();
        assert_eq!(self.kept_bytes, kept, "what is kept of requests is counted");
        for (index, session) in self.sessions.iter().enumerate() {
            let conn = ConnId::from_index(index);
            assert!(session.is_open || session.is_idle(), "{conn} is not open, and something is known of it");
            assert!(!session.waits || session.is_open && self.state.is_waiting(conn), "{conn} waits for nothing");
        }
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && self.sessions.iter().all(|session| !session.is_open)
    }

    fn background_timers(&self) -> usize {
        self.state.own_timers() + self.keeping.timers()
    }
}
