//! A jobs service without sockets: the test passes in bytes of connections, time and commits, and reads the output.

use super::jobs_text::take_text;
use poolcounter_core::{ConnId, Id, Owner, Random, Span, Time, Wheel};
use poolcounter_jobs::request::SummaryBy;
use poolcounter_jobs::state::{
    Bounds, Commit, Event, Handed, History, Listing, Record, Reply, Saved, Setting, SettingKind, State, Step, Stored,
    SumBy, Summaries, Timer, TubeName, Value, Watchers,
};
use poolcounter_jobs::stats::Jobs as Stat;
use poolcounter_jobs::wire::yaml::{self, ServerStats};
use poolcounter_protocol::jobs::wire::schedule::is_schedule;
use poolcounter_protocol::jobs::wire::stream::{Cut, Item, Stream};
use poolcounter_protocol::jobs::wire::{Request, replies};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

const OWNER: Owner = Owner(1);
/// Number of slots that one slice of a list looks at, small so that longer lists go through the table of all jobs.
const PLACES: usize = 3;

/// Time at which batches are committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commits {
    /// Without a store: no changes are collected, as with a store in memory.
    Never,
    /// After each request.
    AtOnce,
    /// On calls of `commit`.
    Later,
}

/// Event in the service, for comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// A connection was given a job.
    Reserved(usize, u64),
    /// A batch was handed to the store.
    Taken(u64),
    /// The store has committed a batch.
    Committed(u64),
}

#[derive(Default)]
struct Peer {
    stream: Stream,
    input: Vec<u8>,
    held: VecDeque<(Option<Commit>, Vec<u8>)>,
    output: Vec<u8>,
}

/// The service.
pub struct Service {
    pub state: State,
    pub wheel: Wheel,
    pub now: Time,
    random: Random,
    commits: Commits,
    /// Number of steps without a store, each of which counts as a commit.
    steps: u64,
    taken: VecDeque<Commit>,
    peers: BTreeMap<usize, Peer>,
    /// Connections with replies that wait for their commit.
    busy: BTreeSet<usize>,
    store: Store,
    wall: Span,
    /// Events so far, if they are recorded.
    pub happened: Option<Vec<Happened>>,
}

/// Contents of a store that was given every batch.
#[derive(Default)]
struct Store {
    jobs: BTreeMap<u64, Vec<u8>>,
    roots: BTreeMap<(Vec<u8>, Vec<u8>), u64>,
    settings: BTreeMap<(SettingKind, Box<[u8]>), Value>,
    next_id: u64,
}

/// Returns the part of a job that must survive a restart.
fn lasting(record: &Record<'_>, body: &[u8], now: Time) -> Vec<u8> {
    let lasting = Record {
        reserves: 0.into(),
        history: History { attempts: record.history.attempts, ..History::default() },
        delayed: record.delayed.filter(|until| *until > now),
        ..*record
    };
    postcard::to_allocvec(&(lasting, body)).expect("a vector takes every byte")
}

impl Store {
    fn apply(&mut self, stored: Stored<'_>) {
        match stored {
            Stored::Put(record, body) => {
                let old = self.jobs.insert(record.id.0, lasting(&record, body.share().as_ref(), Time::START));
                assert!(old.is_none(), "a job is put once");
            }
            Stored::Update(record) => {
                let old = self.jobs.remove(&record.id.0).expect("a job is put before it changes");
                let (_, body): (Record<'_>, &[u8]) = postcard::from_bytes(&old).expect("it was written here");
                self.jobs.insert(record.id.0, lasting(&record, body, Time::START));
            }
            Stored::Delete(id) => drop(self.jobs.remove(&id.0).expect("a job that is deleted was put")),
            Stored::Root(tube, signature, newest, _) => {
                self.roots.insert((tube.to_vec(), signature.to_vec()), newest);
            }
            Stored::RootGone(tube, signature) => drop(self.roots.remove(&(tube.to_vec(), signature.to_vec()))),
            Stored::Setting(setting) => self.set(setting),
            Stored::NextId(next_id) => {
                assert!(next_id > self.next_id, "numbers only grow");
                self.next_id = next_id;
            }
            Stored::Taken(..) => {}
            Stored::Unfinished(_) => unreachable!("a daemon copies no store"),
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting.value {
            Some(value) => drop(self.settings.insert((setting.kind, setting.of), value)),
            None => drop(self.settings.remove(&(setting.kind, setting.of))),
        }
    }

    /// Compares the contents of the store with the contents of the service, once all is committed.
    fn check(&self, state: &State, now: Time) {
        let mut other = Store::default();
        state.save(false, &mut |saved| match saved {
            Saved::Job(record, body, ..) => drop(other.jobs.insert(record.id.0, lasting(&record, body, now))),
            Saved::Root(tube, signature, newest, _) => {
                other.roots.insert((tube.to_vec(), signature.to_vec()), newest);
            }
            Saved::Setting(setting) => other.set(setting),
            Saved::Meta { next_id, .. } => {
                assert!(next_id == 1 || next_id == self.next_id, "the next number is stored");
            }
            _ => {}
        });
        let ready: BTreeMap<u64, Vec<u8>> = self.jobs.iter().map(|(id, bytes)| (*id, due(bytes, now))).collect();
        assert_eq!(ready, other.jobs, "the store has every job as it is");
        assert_eq!(self.roots, other.roots, "the store has every root job");
        assert_eq!(self.settings, other.settings, "the store has every setting");
    }
}

/// Returns a stored job, without its delay if that is over.
fn due(bytes: &[u8], now: Time) -> Vec<u8> {
    let (record, body): (Record<'_>, &[u8]) = postcard::from_bytes(bytes).expect("it was written here");
    lasting(&record, body, now)
}

/// Returns the records that a state hands over.
fn saved(state: &State) -> Vec<Vec<u8>> {
    let mut saved = Vec::new();
    state.save(false, &mut |record| saved.push(postcard::to_allocvec(&record).expect("a vector takes every byte")));
    saved
}

fn new_state(bounds: Bounds, commits: Commits) -> State {
    let mut state = State::new(bounds);
    if commits == Commits::Never {
        state.keep_no_changes();
    }
    state
}

impl Service {
    pub fn new(bounds: Bounds, commits: Commits, seed: u64) -> Self {
        Service {
            state: new_state(bounds, commits),
            wheel: Wheel::default(),
            now: Time::from_micros(1_000_000_000),
            random: Random::from_seed(seed),
            commits,
            steps: 0,
            taken: VecDeque::new(),
            peers: BTreeMap::new(),
            busy: BTreeSet::new(),
            store: Store::default(),
            wall: Span::ZERO,
            happened: None,
        }
    }

    /// Returns whether the store was given all changes that are to be committed.
    pub fn is_all_taken(&self) -> bool {
        self.taken.is_empty() && self.state.last_uncommitted().is_none()
    }

    /// Returns a service that collects nothing for a store.
    pub fn without_store(bounds: Bounds) -> Self {
        Service::new(bounds, Commits::Never, 1)
    }

    /// Adds bytes of a connection, and serves the whole requests.
    pub fn send(&mut self, conn: usize, bytes: &[u8]) {
        self.peers.entry(conn).or_default().input.extend_from_slice(bytes);
        self.step(|state, _| state.open(ConnId::from_index(conn)));
        self.serve(conn);
    }

    /// Sends bytes of a connection, and returns the output since the last call, as text.
    pub fn ask(&mut self, conn: usize, text: &str) -> String {
        self.send(conn, text.as_bytes());
        String::from_utf8(self.output(conn)).expect("is text")
    }

    /// Sends a line for each number as connection 1, in parts as they come over a socket.
    pub fn put_many(&mut self, numbers: Range<usize>, line: impl Fn(usize) -> String) {
        let end = numbers.end;
        for first in numbers.step_by(32) {
            self.ask(1, &(first..end.min(first + 32)).map(&line).collect::<String>());
        }
    }

    fn serve(&mut self, conn: usize) {
        let id = ConnId::from_index(conn);
        while !self.state.is_waiting(id) {
            let Some(peer) = self.peers.get_mut(&conn) else { return };
            let mut input = std::mem::take(&mut peer.input);
            let mut stream = std::mem::take(&mut peer.stream);
            let Cut { consumed, item } = stream.cut(&input, self.state.bounds.max_size);
            let is_over = item.is_none() && consumed == 0;
            let is_closed = matches!(item, Some(Item::Request(_, Request::Quit)));
            if let Some(item) = item {
                self.handle(id, item);
            }
            input.drain(..consumed);
            if is_closed {
                return self.close(conn);
            }
            let peer = self.peers.entry(conn).or_default();
            peer.stream = stream;
            peer.input.splice(0..0, input);
            if is_over {
                return;
            }
        }
    }

    /// Applies the settings of a configuration file.
    pub fn set_from_file(&mut self, file: &[Setting]) {
        self.step(|state, step| state.set_from_file(file, step));
    }

    /// Ends a connection.
    pub fn close(&mut self, conn: usize) {
        self.peers.remove(&conn);
        self.step(|state, step| state.close(ConnId::from_index(conn), step));
    }

    /// Notes that a peer sends no more.
    pub fn hang_up(&mut self, conn: usize) {
        self.step(|state, step| state.hang_up(ConnId::from_index(conn), step));
    }

    /// Lets time pass, and fires the due timers in their order.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            match self.wheel.next() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => self.now = end,
            }
            self.fire();
            if self.now == end && self.wheel.next().is_none_or(|next| next > end) {
                return;
            }
        }
    }

    /// Lets a millisecond pass, in which background work has one slice.
    pub fn tick(&mut self) {
        self.now = self.now + Span::from_millis(1);
        self.fire();
    }

    fn fire(&mut self) {
        while let Some(due) = self.wheel.expire(self.now) {
            self.step(|state, step| state.expire(due.key::<Timer>(), step));
        }
    }

    /// Hands the present batch to the store, which has not committed it yet.
    pub fn take(&mut self) {
        let Service { state, store, taken, .. } = self;
        if let Handed::Batch(commit) = state.take_batch(usize::MAX, &mut |stored| store.apply(stored)) {
            taken.push_back(commit);
            self.note(Happened::Taken(commit.0));
        }
    }

    /// Commits the oldest batch that the store was given.
    pub fn commit(&mut self) {
        if let Some(commit) = self.taken.pop_front() {
            self.note(Happened::Committed(commit.0));
            self.step(|state, step| state.committed(commit, step));
        }
    }

    /// Shows some jobs of the batch that was taken first, and returns whether there were more than few.
    pub fn show_some(&mut self) -> bool {
        let commit = *self.taken.front().expect("a batch was taken");
        let mut are_many = false;
        self.step(|state, step| are_many = state.show_some(commit, step));
        are_many
    }

    fn note(&mut self, what: Happened) {
        self.happened.iter_mut().for_each(|happened| happened.push(what));
    }

    /// Commits all changes.
    pub fn commit_all(&mut self) {
        loop {
            self.take();
            if self.taken.is_empty() && self.commits == Commits::Never {
                return;
            } else if self.taken.is_empty() {
                return self.store.check(&self.state, self.now);
            }
            self.commit();
        }
    }

    /// Returns the output of a connection since the last call.
    pub fn output(&mut self, conn: usize) -> Vec<u8> {
        self.peers.get_mut(&conn).map(|peer| std::mem::take(&mut peer.output)).unwrap_or_default()
    }

    /// Returns the next line of a connection's output, or all of a reply with a body.
    pub fn next(&mut self, conn: usize) -> Option<String> {
        let output = &mut self.peers.get_mut(&conn)?.output;
        let mut received = VecDeque::from(std::mem::take(output));
        let reply = take_text(&mut received);
        *output = received.into();
        reply
    }

    /// Sets the time of day at [`Time::START`].
    pub fn set_wall(&mut self, wall: Span) {
        self.wall = wall;
        self.step(|state, step| {
            if state.set_wall(wall) {
                state.reckon_schedules(step);
            }
        });
    }

    /// Replaces the service by another that is restored from its saved state.
    pub fn hand_over(&mut self) {
        self.hand_over_to(self.state.bounds);
    }

    /// Replaces the service by another with these bounds.
    pub fn hand_over_to(&mut self, bounds: Bounds) {
        self.step(State::finish_commands);
        self.commit_all();
        self.step(State::finish_commands);
        self.commit_all();
        let mut saved = saved(&self.state);
        (self.state, self.wheel) = (new_state(bounds, self.commits), Wheel::default());
        self.wheel.expire(self.now);
        self.set_wall(self.wall);
        for record in &saved {
            let record = postcard::from_bytes(record).expect("what was saved can be read");
            self.step(|state, step| state.restore(record, step).expect("what was saved makes sense"));
        }
        self.state.check();
        let mut again = self::saved(&self.state);
        saved.sort_unstable();
        again.sort_unstable();
        assert_eq!(saved, again, "what is saved again is the same");
    }

    /// Adds a saved or stored record.
    pub fn restore(&mut self, saved: Saved<'_>) {
        self.step(|state, step| state.restore(saved, step).expect("it makes sense"));
    }

    /// Adds records of a store, as a service that was handed over without its jobs does.
    pub fn read<'a>(&mut self, stored: impl IntoIterator<Item = Saved<'a>>) {
        self.state.begin_reading();
        stored.into_iter().for_each(|saved| self.read_on(saved));
        self.end_reading();
    }

    /// Adds a record of a store, as a service that starts does.
    pub fn read_on(&mut self, stored: Saved<'_>) {
        self.step(|state, step| state.read(stored, step).expect("it makes sense"));
    }

    /// Ends the reading of a store.
    pub fn end_reading(&mut self) {
        self.step(|state, step| while !state.end_reading(step).0 {});
    }

    /// Takes one step, and handles its events.
    fn step(&mut self, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let mut events = Vec::new();
        let mut timers = self.wheel.of(OWNER);
        let (now, random, peer) = (self.now, &mut self.random, &|conn: ConnId| format!("client-{}", conn.index()));
        let mut step = Step { now, timers: &mut timers, random, events: &mut events, peer };
        take(&mut self.state, &mut step);
        if self.commits == Commits::Never {
            self.state.commit_at_once(&mut step);
            self.steps += 1;
            self.note(Happened::Taken(self.steps));
            self.note(Happened::Committed(self.steps));
        } else if self.commits == Commits::AtOnce
            && let Handed::Batch(commit) = self.state.take_batch(usize::MAX, &mut |stored| self.store.apply(stored))
        {
            self.state.committed(commit, &mut step);
            self.note(Happened::Taken(commit.0));
            self.note(Happened::Committed(commit.0));
        }
        let mut told = Vec::new();
        for Event { conn, reply, after, .. } in events {
            if let Reply::Reserved(job) = reply {
                self.note(Happened::Reserved(conn.index(), job.0));
            }
            let mut bytes = Vec::new();
            self.write(conn, &reply, &mut bytes);
            if let Some(peer) = self.peers.get_mut(&conn.index()) {
                peer.held.push_back((after, bytes));
                self.busy.insert(conn.index());
                told.push(conn.index());
            }
        }
        self.release();
        told.sort_unstable();
        told.dedup();
        told.into_iter().for_each(|conn| self.serve_if_idle(conn));
    }

    fn serve_if_idle(&mut self, conn: usize) {
        if self.peers.get(&conn).is_some_and(|peer| !peer.input.is_empty()) {
            self.serve(conn);
        }
    }

    /// Releases the replies whose commit is done; replies behind an unfinished one wait with it.
    fn release(&mut self) {
        let done = self.state.last_committed();
        let Service { peers, busy, .. } = self;
        busy.retain(|conn| {
            let Some(peer) = peers.get_mut(conn) else { return false };
            while peer.held.front().is_some_and(|(after, _)| after.is_none_or(|after| after <= done)) {
                let (_, bytes) = peer.held.pop_front().expect("it was just seen");
                peer.output.extend_from_slice(&bytes);
            }
            !peer.held.is_empty()
        });
    }

    fn write(&self, conn: ConnId, reply: &Reply, bytes: &mut Vec<u8>) {
        let body = |id| self.state.body(id).expect("a job that was told of is there");
        let body = if let Reply::Reserved(id) = reply { Some(body(*id)) } else { None };
        let used = if *reply == Reply::Using { self.state.used_tube(conn) } else { b"" };
        replies::write(bytes, reply, used, body.map_or(0, <[u8]>::len));
        if let Some(body) = body {
            bytes.extend_from_slice(body);
            bytes.extend_from_slice(b"\r\n");
        }
    }

    fn handle(&mut self, conn: ConnId, item: Item<'_>) {
        match item {
            Item::Put(put, body) if is_schedule(&put) => {
                self.step(|state, step| state.schedule_put(conn, &put, &body, step));
            }
            Item::Put(put, body) => self.step(|state, step| state.put(conn, &put, body, step)),
            Item::PutMany(entries) => self.step(|state, step| state.put_many(conn, entries, step)),
            Item::Fail(failure, text) => self.step(|state, step| state.fail(conn, failure, &text, step)),
            Item::Refused(refusal) => {
                self.tell(conn, |_, bytes| replies::write(bytes, &Reply::Refused(refusal), b"", 0));
            }
            Item::Request(_, Request::Quit | Request::StoreCopy(_)) => {}
            Item::Request(command, request) if command.only_asks() => self.query(conn, request),
            Item::Request(_, request) => self.step(|state, step| state.serve(conn, request, step)),
        }
    }

    fn query(&mut self, conn: ConnId, request: Request<'_>) {
        let now = self.now;
        self.tell(conn, |state, bytes| match request {
            Request::Peek(id) => {
                let found = state.peek(id);
                write_found(state, found, bytes);
            }
            Request::PeekFirst(which) => {
                let found = state.peek_first(conn, which);
                write_found(state, found, bytes);
            }
            Request::Stats => write_text(bytes, |bytes| {
                yaml::write_stats(bytes, &state.figures(), &ServerStats::default());
            }),
            Request::StatsJob(id) => match state.job_stats(id, now) {
                Some(job) => write_text(bytes, |bytes| yaml::write_job(bytes, &job)),
                None => not_found(bytes),
            },
            Request::StatsTube(name) => {
                let watchers = watchers_of(state, name);
                match state.tube_stats(&watchers, now) {
                    Some(tube) => write_text(bytes, |bytes| yaml::write_tube(bytes, tube)),
                    None => not_found(bytes),
                }
            }
            Request::ListTubes => write_text(bytes, |bytes| yaml::write_names(bytes, state.tubes())),
            Request::ListTubeUsed => {
                state.count(Stat::ListTubeUsed);
                let used = state.used_tube(conn).to_vec();
                replies::write(bytes, &Reply::Using, &used, 0);
            }
            Request::ListTubesWatched => write_text(bytes, |bytes| {
                yaml::write_names(bytes, state.watches_in_order(conn).map(|watch| &*watch.pattern));
            }),
            Request::Extensions => write_text(bytes, yaml::write_extensions),
            Request::ListJobs(tube, which, limit, after) => match state.has_tube(tube.bytes()) {
                true => write_text(bytes, |bytes| {
                    let mut listing = Listing::new(tube, which, limit, after);
                    let mut next = Some(0);
                    while let Some(first) = next {
                        next = state.list_more(&mut listing, first, PLACES);
                    }
                    let jobs = listing.take().into_iter().filter_map(|id| state.job_stats(id, now));
                    jobs.for_each(|job| yaml::write_listed(bytes, &job));
                }),
                false => not_found(bytes),
            },
            Request::ListSchedules => write_text(bytes, |bytes| {
                state.schedules(now).for_each(|schedule| yaml::write_schedule(bytes, &schedule));
            }),
            Request::ListSettings(of) => write_text(bytes, |bytes| {
                let mut next = Some(0);
                while let Some(first) = next {
                    let (settings, rest) = state.settings_from(of, first, PLACES, now);
                    settings.iter().for_each(|setting| yaml::write_setting(bytes, setting));
                    next = rest;
                }
            }),
            Request::Summary(by) => write_text(bytes, |bytes| {
                for (name, summary) in summary(state, by, now) {
                    yaml::write_summary(bytes, &name, &summary, by == SummaryBy::Runner, now);
                }
            }),
            other => unreachable!("{other:?} is no query"),
        });
    }

    /// Writes a reply behind the replies that wait.
    fn tell(&mut self, conn: ConnId, write: impl FnOnce(&mut State, &mut Vec<u8>)) {
        let mut bytes = Vec::new();
        write(&mut self.state, &mut bytes);
        if let Some(peer) = self.peers.get_mut(&conn.index()) {
            peer.held.push_back((None, bytes));
            self.busy.insert(conn.index());
        }
        self.release();
    }
}

fn watchers_of(state: &mut State, tube: TubeName<'_>) -> Watchers {
    let mut watchers = Watchers::new(tube);
    let mut next = Some(0);
    while let Some(first) = next {
        next = state.count_watchers(&mut watchers, first, PLACES);
    }
    watchers
}

fn write_found(state: &State, found: Option<poolcounter_jobs::state::JobId>, bytes: &mut Vec<u8>) {
    let Some(id) = found else { return not_found(bytes) };
    let body = state.body(id).expect("a job that was found is there");
    replies::write_found(bytes, id, body.len());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"\r\n");
}

fn write_text(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut text = yaml::begin();
    write(&mut text);
    replies::write_ok(bytes, text.len());
    bytes.extend_from_slice(&text);
    bytes.extend_from_slice(b"\r\n");
}

fn not_found(bytes: &mut Vec<u8>) {
    replies::write(bytes, &Reply::NotFound, b"", 0);
}

/// Plays a conversation with a service: `1> line` sends, `1< reply` is the next reply (with its body after a space),
/// `1<~ a; b` is a reply that contains these lines, `1<` no reply, `1x` closes, `+3s` or `+5ms` lets time pass, `restart`
/// hands over to another process.
pub fn play_with(service: &mut Service, script: &str) {
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        play_line(service, line);
        service.state.check();
    }
    let conns: Vec<usize> = service.peers.keys().copied().collect();
    for conn in conns {
        assert_eq!(service.next(conn), None, "connection {conn} was told more than the script says");
    }
}

fn play_line(service: &mut Service, line: &str) {
    let digits = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len());
    let conn = line[..digits].parse().unwrap_or(0);
    let rest = &line[digits..];
    if let Some(text) = rest.strip_prefix("> ") {
        service.send(conn, format!("{}\r\n", text.replace("\\r\\n", "\r\n")).as_bytes());
    } else if let Some(lines) = rest.strip_prefix("<~ ") {
        let got = service.next(conn).unwrap_or_else(|| panic!("{line}: there is no reply"));
        for wanted in lines.split(';').map(str::trim) {
            assert!(got.lines().any(|one| one.trim() == wanted), "{line}: {wanted:?} is not in\n{got}");
        }
    } else if let Some(wanted) = rest.strip_prefix('<') {
        let wanted = Some(wanted.trim()).filter(|wanted| !wanted.is_empty());
        assert_eq!(service.next(conn).as_deref(), wanted, "{line}");
    } else if rest == "x" {
        service.close(conn);
    } else if let Some(span) = rest.strip_prefix('+') {
        let (number, unit) = span.split_at(span.find(char::is_alphabetic).expect("a span has a unit"));
        let number: u64 = number.parse().expect("a span has a number");
        service.pass(if unit == "ms" { Span::from_millis(number) } else { Span::from_secs(number) });
    } else {
        assert_eq!(rest, "restart", "{line} is no line of a conversation");
        service.hand_over();
    }
}

/// Returns a summary, all at once.
fn summary(state: &State, by: SummaryBy, now: Time) -> Summaries {
    match by {
        SummaryBy::Wiki => state.summary_of_sums(SumBy::FirstPart, 0, usize::MAX, now).0,
        SummaryBy::Type => state.summary_of_sums(SumBy::LastPart, 0, usize::MAX, now).0,
        SummaryBy::Tube => state.summary_of_tubes(0, usize::MAX, now).0,
        SummaryBy::Runner => {
            let mut runners = BTreeMap::new();
            assert_eq!(state.add_runners(&mut runners, 0, usize::MAX, now), None, "these are all");
            runners.into_iter().collect()
        }
    }
}
