//! Jobs: the adapter between the loop and the job queue, which speaks the beanstalkd protocol and its extensions. It turns
//! bytes into requests and replies into bytes, hands changes to the store, and decides nothing itself.

mod asking;
mod keeping;
mod loading;
pub mod options;
pub mod postgres;
mod process;
mod report;
pub mod request;
mod rights;
mod saving;
mod sessions;
pub mod sqlite;
mod standby;
pub mod state;
pub mod stats;
pub mod store;
mod tables;
mod telling;
mod views;
pub mod wire;

pub use options::{JobsSettings, StoreKind};

use crate::access::Holds;
use crate::id::{ConnId, Id};
use crate::options::Opt;
use crate::output::MAX_BYTES;
use crate::record::{Reader, Writer};
use crate::report::{Counted, Report, Series, View};
use crate::service::{
    Acted, Caps, Context, Info, Input, Peers, REQUESTS_PER_TURN, Served, Service, Then, Traffic, Unreadable, Wake,
};
use crate::settings::{self, Configure};
use crate::time::Time;
use crate::wheel::Due;
use keeping::Keeping;
use process::Machine;
use sessions::{Session, session_of};
use state::{Commit, Event, Refusal, Reply, State, Step, Timer};
use stats::Jobs as Stat;
use std::io;
use store::{Standing, Store};
use wire::stream::{Cut, Item};
use wire::{MAX_EXTENSION_LINE, Request};

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
    verbs: rights::VERBS,
    commands: rights::COMMANDS,
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

    /// Reads the next request of a connection. What is kept of those that are not all there counts as jobs do.
    fn cut<'a>(&mut self, conn: ConnId, input: &'a [u8], max_size: u32) -> Cut<'a> {
        let session = session_of(&mut self.sessions, conn);
        if input.is_empty() {
            return Cut { consumed: 0, item: None };
        }
        let cut = session.stream.cut(input, max_size);
        if cut.item.is_none() && cut.consumed > 0 || session.kept_bytes > 0 {
            let most = self.state.bounds().max_memory.saturating_sub(self.state.used_memory());
            session.note_kept(&mut self.kept_bytes);
            if self.kept_bytes > most && session.kept_bytes > 0 {
                session.stream.give_up();
                session.note_kept(&mut self.kept_bytes);
            }
        }
        cut
    }

    /// Serves one request. Returns what to do next if the connection's turn ends with it.
    fn handle(&mut self, conn: ConnId, item: Item<'_>, context: &mut Context<'_>) -> Option<Then> {
        if self.refuses(conn, &item, context) {
            return None;
        }
        match item {
            Item::Put(..) | Item::PutMany(_) if self.is_store_failing(context.now) => self.refuse_put(conn, context),
            Item::Put(put, body) => self.step(context, |state, step| state.put(conn, &put, body, step)),
            Item::PutMany(entries) => self.step(context, |state, step| state.put_many(conn, entries, step)),
            Item::Fail(id, pri, delay, text) => {
                self.step(context, |state, step| state.fail(conn, id, pri, delay, &text, step));
            }
            Item::Refused(refusal) => {
                if let Refusal::JobTooBig | Refusal::ExpectedCrlf | Refusal::OutOfMemory = refusal {
                    self.state.count(Stat::Put);
                }
                self.tell(&Event { conn, reply: Reply::Refused(refusal), after: None }, context);
            }
            Item::Request(Request::Quit) => return Some(Then::Close),
            Item::Request(request) => return self.request(conn, request, context),
        }
        None
    }

    /// Serves one request that has no body.
    fn request(&mut self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) -> Option<Then> {
        let mut step = |take: &mut dyn FnMut(&mut State, &mut Step<'_, '_>)| self.step(context, take);
        match request {
            Request::Use(name) => step(&mut |state, step| state.use_tube(conn, name, step)),
            Request::Reserve(reserve) => step(&mut |state, step| state.reserve(conn, reserve, step)),
            Request::ReserveJob(id) => step(&mut |state, step| state.reserve_this(conn, id, step)),
            Request::Delete(id) => step(&mut |state, step| state.delete(conn, id, step)),
            Request::Release(id, pri, delay) => step(&mut |state, step| state.release(conn, id, pri, delay, step)),
            Request::Bury(id, pri) => step(&mut |state, step| state.bury(conn, id, pri, step)),
            Request::Touch(id) => step(&mut |state, step| state.touch(conn, id, step)),
            Request::Watch(pattern, weight) => step(&mut |state, step| state.watch(conn, pattern, weight, step)),
            Request::Ignore(pattern) => step(&mut |state, step| state.ignore(conn, pattern, step)),
            Request::Kick(bound) => step(&mut |state, step| state.kick(conn, bound, step)),
            Request::KickJob(id) => step(&mut |state, step| state.kick_job(conn, id, step)),
            Request::PauseTube(pattern, seconds) => step(&mut |state, step| state.pause(conn, pattern, seconds, step)),
            Request::Root(tube, signature, at) => step(&mut |state, step| state.root(conn, tube, signature, at, step)),
            Request::Identify(name) => step(&mut |state, step| state.identify(conn, name, step)),
            Request::Limit(of, most) => step(&mut |state, step| state.limit(conn, of, most, step)),
            Request::Retry(pattern, backoff) => step(&mut |state, step| state.retry(conn, pattern, backoff, step)),
            Request::DeadLetter(pattern, tube) => {
                step(&mut |state, step| state.dead_letter(conn, pattern, tube, step));
            }
            Request::Clear(pattern, which) => step(&mut |state, step| state.clear(conn, pattern, which, step)),
            Request::KickAll(pattern) => step(&mut |state, step| state.kick_all(conn, pattern, step)),
            Request::Drain => step(&mut |state, step| state.drain(conn, true, step)),
            Request::Undrain => step(&mut |state, step| state.drain(conn, false, step)),
            other => return self.ask(conn, other, context),
        }
        None
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
            self.step(context, |state, step| state.open(conn, step));
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
            let Cut { consumed: cut, item } = self.cut(conn, &input.bytes[consumed..], max_size);
            consumed += cut;
            let then = match item {
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

    fn act(&mut self, action: &str, key: &[u8], context: &mut Context<'_>) -> Acted {
        self.act_on(action, key, context)
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

    fn holds(&self, conn: ConnId) -> Holds {
        self.state.holds(conn)
    }

    fn held(&self) -> u64 {
        self.jobs_at_risk()
    }

    fn ailment(&self) -> Option<&'static str> {
        (self.keeping.has_begun() && self.store.standing() == Standing::StandsBy).then_some("the jobs stand by")
    }

    fn is_quiet(&self) -> bool {
        !self.store.is_busy() && self.keeping.is_quiet() && self.state.is_settled()
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

    fn own_timers(&self) -> usize {
        self.state.own_timers() + self.keeping.timers()
    }
}
