//! Model of a database that several daemons share, with its tables alone, in virtual time. It loses requests and
//! answers, is slow, fails, and loses its last commits, as after a failover to a server that lacks them. Commits wait
//! for its replica: changes that others see are on the replica, unless that wait was interrupted.

use crate::kept_rows::KeptRows;
use crate::stored;
use poolcounter_core::time::{Span, Time};
use poolcounter_jobs::postgres::owner::{
    Answer, Cursor, Fence, Inbox, LEASE_SECONDS, NOBODY, Next, Order, Owner, OwnerRow, Reach, StoreRequest,
};
use poolcounter_jobs::postgres::{Backend, Ends, Postgres};
use poolcounter_jobs::state::{Body, Saved, Stored};
use poolcounter_jobs::store::HandedOver;
use poolcounter_jobs::store::batch::Batch;
use poolcounter_jobs::store::page::Page;
use poolcounter_testkit::random::Random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Number of jobs in a page.
const PAGE: usize = 7;
/// Time for which a daemon waits for an answer.
const PATIENCE: u64 = 10_000_000;
const LEASE: u64 = LEASE_SECONDS * 1_000_000;

/// Handle of the database and of the database threads of its daemons.
#[derive(Clone)]
pub struct Database(Arc<Mutex<Desk>>);

/// Take-over of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takeover {
    /// Number of the daemon.
    pub daemon: usize,
    /// True if the daemon reads the jobs; false if it goes on with those that it had.
    pub is_fresh: bool,
}

struct Desk {
    now: Arc<AtomicU64>,
    random: Random,
    row: OwnerRow,
    until: u64,
    next_id: u64,
    content: Vec<Arc<Batch>>,
    /// Owner of the row lock of a commit in progress.
    locked: Option<usize>,
    versions: Vec<Version>,
    /// Contents of the replica.
    replicated: Version,
    /// Time until which the replica receives nothing.
    hangs_until: u64,
    /// Further time of the answers to renewals, and the end of that.
    late_renewals: (u64, u64),
    requests: Vec<Request>,
    numbers: usize,
    askers: Vec<Asker>,
    is_calm: bool,
    down_until: u64,
    takeovers: Vec<Takeover>,
}

/// Contents at one time.
#[derive(Clone)]
struct Version {
    at: u64,
    row: OwnerRow,
    until: u64,
    next_id: u64,
    content: Vec<Arc<Batch>>,
}

/// Database thread of a daemon.
struct Asker {
    ends: Ends,
    owner: Owner,
    /// Speed of its clock, in thousandths of the true one.
    rate: u64,
    /// True while the daemon is suspended.
    is_stopped: bool,
    is_gone: bool,
    /// Number of the connection.
    connection: usize,
    rewrite: Vec<Arc<Batch>>,
    /// Number of the request whose answer it awaits, 0 for a lost connection, and the end of that wait.
    waits: Option<(usize, u64)>,
    /// Answer on its way to the daemon, with the time of its arrival.
    answer: Option<(u64, Answer)>,
}

/// Request of a daemon.
struct Request {
    number: usize,
    asker: usize,
    connection: usize,
    address: String,
    what: What,
    /// Time at which the request arrives, or ends if it has begun.
    at: u64,
    has_begun: bool,
    /// Early end of its wait for the replica.
    interrupted: Option<Interrupted>,
    until: u64,
    takes: u64,
    answers: bool,
    returns: u64,
}

/// Early end of a wait for the replica. Either way the commit exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interrupted {
    /// The answer has a warning.
    Cancelled,
    /// The connection ends without an answer.
    Terminated,
}

#[derive(Clone)]
enum What {
    Connect,
    TakeOver,
    GoOn(HandedOver),
    Retake(u64, u128),
    Look,
    ReadInbox,
    Renew(u64),
    Read(Cursor),
    Commit(Fence, Arc<Batch>),
    /// All slices so far, and the end behind the last.
    Write(Vec<Arc<Batch>>, Option<(Fence, Option<u64>)>),
}

impl Database {
    /// Returns an empty database, which services that are made on this thread from now on share.
    pub fn install(seed: u64) -> Database {
        let row = OwnerRow { queue: 5, epoch: 7 << 20, next_id: 1, address: NOBODY.into(), ..OwnerRow::default() };
        let replicated = Version { at: 0, row: row.clone(), until: 0, next_id: 1, content: Vec::new() };
        let database = Database(Arc::new(Mutex::new(Desk {
            now: Arc::new(AtomicU64::new(1_000_000)),
            random: Random::new(seed),
            row,
            until: 0,
            next_id: 1,
            content: Vec::new(),
            locked: None,
            versions: Vec::new(),
            replicated,
            hangs_until: 0,
            late_renewals: (0, 0),
            requests: Vec::new(),
            numbers: 0,
            askers: Vec::new(),
            is_calm: true,
            down_until: 0,
            takeovers: Vec::new(),
        })));
        let handle = database.clone();
        stored::install(move || Box::new(handle.store()));
        database
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no holder of the lock panics")
    }

    fn store(&self) -> Postgres {
        let (database, now) = (self.clone(), self.desk().now.clone());
        let rate = {
            let mut desk = self.desk();
            950 + desk.random.below(101) as u64
        };
        let clock = Arc::new(move || Time::from_micros(now.load(Ordering::Relaxed) * rate / 1000));
        let own = clock.clone();
        let start = Box::new(move |handed_over, ends| {
            let mut desk = database.desk();
            let address = format!("daemon {}", desk.askers.len());
            let owner = match handed_over {
                Some(handed_over) => Owner::going_on(address, handed_over, own()),
                None => Owner::new(address, own()),
            };
            desk.askers.push(Asker {
                ends,
                owner,
                rate,
                is_stopped: false,
                is_gone: false,
                connection: 0,
                rewrite: Vec::new(),
                waits: None,
                answer: None,
            });
            Ok(None)
        });
        Postgres::with("a test".into(), Backend { clock, start, patience: Duration::ZERO })
    }

    /// Returns the number of daemons since the start. The newest has the highest number.
    pub fn daemons(&self) -> usize {
        self.desk().askers.len()
    }

    /// Returns the true time, in microseconds.
    pub fn now(&self) -> u64 {
        self.desk().now.load(Ordering::Relaxed)
    }

    /// Ends or allows random faults.
    pub fn set_calm(&self, is_calm: bool) {
        self.desk().is_calm = is_calm;
    }

    /// Ends all connections, and accepts none for `micros`.
    pub fn go_down(&self, micros: u64) {
        let mut desk = self.desk();
        desk.down_until = desk.now() + micros;
        desk.break_all();
    }

    /// Replaces the database by its state of `lost_micros` ago: later commits are lost.
    pub fn fail_over(&self, lost_micros: u64) {
        let mut desk = self.desk();
        let at = desk.now().saturating_sub(lost_micros);
        let Some(place) = desk.versions.iter().rposition(|version| version.at <= at) else { return };
        desk.break_all();
        desk.requests.clear();
        desk.locked = None;
        desk.versions.truncate(place + 1);
        let Some(version) = desk.versions.pop() else { return };
        desk.set_to(version);
    }

    /// Stops the replica for `micros`, during which commits wait.
    pub fn hang(&self, micros: u64) {
        let mut desk = self.desk();
        desk.hangs_until = desk.now() + micros;
    }

    /// Delays the answers to renewals by `late` for `micros`.
    pub fn delay_renewals(&self, late: u64, micros: u64) {
        let mut desk = self.desk();
        desk.late_renewals = (late, desk.now() + micros);
    }

    /// Ends the wait for the replica that is under way, if there is one.
    pub fn interrupt(&self, how: Interrupted) {
        let mut desk = self.desk();
        let Some(place) = desk.requests.iter().position(|request| Some(request.number) == desk.locked) else { return };
        let (now, asker) = (desk.now(), desk.requests[place].asker);
        let request = &mut desk.requests[place];
        (request.interrupted, request.at) = (Some(how), now);
        if how == Interrupted::Terminated {
            request.answers = false;
            desk.break_one(asker);
        }
    }

    /// Replaces the database by its replica.
    pub fn promote(&self) {
        let mut desk = self.desk();
        desk.break_all();
        desk.requests.clear();
        (desk.locked, desk.hangs_until) = (None, 0);
        desk.versions.clear();
        let version = desk.replicated.clone();
        desk.set_to(version);
    }

    /// Suspends a daemon, or resumes it.
    pub fn stop(&self, daemon: usize, is_stopped: bool) {
        self.desk().askers[daemon].is_stopped = is_stopped;
    }

    /// Ends a daemon.
    pub fn kill(&self, daemon: usize) {
        let mut desk = self.desk();
        desk.askers[daemon].is_gone = true;
    }

    /// Returns the state of a daemon, for messages.
    pub fn describe(&self, daemon: usize) -> String {
        let desk = self.desk();
        let asker = &desk.askers[daemon];
        let clock = desk.now() * asker.rate / 1000;
        let waits = (asker.is_stopped, asker.connection, asker.waits, &asker.answer, asker.owner.is_committing());
        format!(
            "{waits:?}: {:?}, trusts until {:?}, and it is {clock}; {:?}",
            asker.owner,
            asker.owner.trusted_until(),
            desk.row
        )
    }

    /// Returns the daemon that is the owner by the row of the database.
    pub fn owner(&self) -> Option<usize> {
        let desk = self.desk();
        let name = |asker: &Asker| asker.owner.address() == desk.row.address;
        desk.askers.iter().position(name)
    }

    /// Returns the take-overs since the last call.
    pub fn take_takeovers(&self) -> Vec<Takeover> {
        std::mem::take(&mut self.desk().takeovers)
    }

    /// Advances the time, and performs everything that becomes due.
    pub fn advance(&self, micros: u64) {
        let mut desk = self.desk();
        let end = desk.now() + micros;
        loop {
            desk.pump();
            let due = desk.requests.iter().map(|request| request.at).min();
            let answers = desk.askers.iter().filter(|asker| asker.is_alive()).filter_map(|asker| {
                let answered = asker.answer.as_ref().map(|(at, _)| *at);
                answered.or(asker.waits.map(|(_, until)| until))
            });
            let next = answers.chain(due).filter(|at| *at <= end).min();
            let now = desk.now();
            let Some(next) = next.filter(|next| *next > now || desk.has_work(now)) else { break };
            desk.now.store(next.max(now), Ordering::Relaxed);
            desk.work();
        }
        desk.now.store(end, Ordering::Relaxed);
        desk.pump();
    }
}

impl Desk {
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn has_work(&self, now: u64) -> bool {
        let answers = |asker: &Asker| asker.is_alive() && asker.answer.as_ref().is_some_and(|(at, _)| *at <= now);
        self.requests.iter().any(|request| request.at <= now) || self.askers.iter().any(answers)
    }

    fn set_to(&mut self, version: Version) {
        self.replicated = version.clone();
        let Version { row, until, next_id, content, .. } = version;
        (self.row, self.until, self.next_id, self.content) = (row, until, next_id, content);
    }

    /// Ends every connection. Its requests are not answered.
    fn break_all(&mut self) {
        (0..self.askers.len()).for_each(|index| self.break_one(index));
    }

    fn break_one(&mut self, index: usize) {
        let now = self.now();
        let asker = &mut self.askers[index];
        if asker.waits.take().is_some() || asker.answer.is_some() {
            let lost = Answer::Failed { sentence: "the connection is lost".into(), is_connected: false };
            asker.answer = Some((now + 1000, lost));
        }
        // A request fails on a connection that was lost while it was idle.
        asker.connection = 0;
    }

    /// Starts the next request of every daemon.
    fn pump(&mut self) {
        let now = self.now();
        for index in 0..self.askers.len() {
            loop {
                let asker = &mut self.askers[index];
                if !asker.is_alive() {
                    break;
                }
                let clock = Time::from_micros(now * asker.rate / 1000);
                asker.take_orders(clock);
                if let Some((at, _)) = &asker.answer
                    && *at <= now
                {
                    let (_, answer) = asker.answer.take().expect("it is there");
                    asker.owner.answer(answer, clock);
                } else if let Some((_, until)) = asker.waits
                    && until <= now
                {
                    asker.waits = None;
                    asker.connection = 0;
                    asker.owner.answer(Answer::Silent, clock);
                }
                asker.tell();
                if asker.waits.is_some() || asker.answer.is_some() {
                    break;
                }
                let what = match asker.owner.next(clock) {
                    Next::Wait(_) => break,
                    Next::Ask(ask) => What::of(&ask, &mut asker.rewrite),
                };
                self.ask(index, what);
            }
        }
    }

    /// Sends a request, and draws its faults.
    fn ask(&mut self, index: usize, what: What) {
        let now = self.now();
        self.numbers += 1;
        let number = self.numbers;
        let is_calm = self.is_calm;
        let mut some = |times: usize| !is_calm && self.random.once_in(times);
        let (is_lost, is_unanswered, is_slow, is_wrong) = (some(60), some(40), some(40), some(40));
        let [mut to, mut takes, mut back] = [200, 300, 200].map(|most| 50 + self.random.below(most) as u64);
        if is_slow {
            let which = self.random.below(3);
            let slow = self.random.pick(&[300_000, 2_000_000, 6_000_000, 15_000_000]);
            [&mut to, &mut takes, &mut back].into_iter().nth(which).into_iter().for_each(|part| *part += slow);
        }
        let (late, until) = self.late_renewals;
        if matches!(what, What::Renew(_)) && now < until {
            back += late;
        }
        let is_down = now < self.down_until;
        let asker = &mut self.askers[index];
        if let What::Connect = what {
            asker.connection = number;
        }
        let refused = || Answer::Failed { sentence: "it cannot".into(), is_connected: !is_down };
        if is_down || asker.connection == 0 {
            asker.answer = Some((now + back, Answer::Failed { sentence: "it is gone".into(), is_connected: false }));
            return;
        }
        if is_wrong && !matches!(what, What::Write(..)) {
            asker.answer = Some((now + to + back, refused()));
            return;
        }
        if is_lost {
            // The daemon finds its connection lost at once, or waits for its whole patience.
            let until = now + self.random.pick(&[1000, PATIENCE]);
            asker.waits = Some((0, until));
            return;
        }
        asker.waits = Some((number, now + if is_unanswered { self.random.pick(&[2000, PATIENCE]) } else { PATIENCE }));
        let (connection, address) = (asker.connection, asker.owner.address().to_string());
        self.requests.push(Request {
            number,
            asker: index,
            connection,
            address,
            what,
            at: now + to,
            has_begun: false,
            interrupted: None,
            until: 0,
            takes,
            answers: !is_unanswered,
            returns: back,
        });
    }

    /// Performs the due work of the database.
    fn work(&mut self) {
        let now = self.now();
        while let Some(place) = self.requests.iter().position(|request| request.at <= now) {
            let mut request = self.requests.swap_remove(place);
            match self.serve(&mut request) {
                // It waits for the row lock, or for its own end.
                None => self.requests.push(request),
                Some(answer) => {
                    let asker = &mut self.askers[request.asker];
                    let is_heard = asker.connection == request.connection && request.answers;
                    if is_heard && asker.waits.is_some_and(|(number, _)| number == request.number) {
                        asker.waits = None;
                        asker.answer = Some((now + request.returns, answer));
                    }
                }
            }
        }
    }

    fn serve(&mut self, request: &mut Request) -> Option<Answer> {
        let now = self.now();
        let changes = !matches!(request.what, What::Connect | What::Look | What::Read(_) | What::Write(_, None));
        if changes && self.locked.is_some_and(|holder| holder != request.number) {
            request.at = now + 500;
            return None;
        }
        let is_mine = self.row.address == request.address;
        Some(match &request.what {
            What::Connect | What::Write(_, None) => Answer::Done,
            What::TakeOver => return self.take(request, self.until < now, self.row.epoch + 1),
            What::GoOn(HandedOver { mark, queue, address, .. }) => {
                let is_same = self.row.epoch == mark.opening && Some(self.row.queue) == *queue;
                let is_same = is_same && Some(&self.row.address) == address.as_ref();
                return self.take(request, is_same, self.row.epoch + 1);
            }
            What::Retake(epoch, queue) => {
                let may = self.row.epoch < *epoch && self.until < now && self.row.queue == *queue;
                let epoch = *epoch + 1;
                return self.take(request, may, epoch);
            }
            What::Look => Answer::Seen(self.seen()),
            What::ReadInbox => Answer::Inbox(Inbox::default()),
            What::Renew(epoch) if *epoch == self.row.epoch && is_mine => {
                let reach = self.commit_when_kept(request)?;
                self.until = request.until;
                self.note(&reach);
                Answer::Renewed(Some(self.row.batch), reach)
            }
            What::Renew(_) => Answer::Renewed(None, Reach::Kept),
            What::Read(cursor) => self.page(*cursor),
            What::Commit(fence, batch) => {
                let content = std::iter::once(batch.clone());
                let (fence, next_id, content) = (*fence, batch.next_id(), content.collect::<Vec<_>>());
                return self.commit(request, fence, next_id, content, false);
            }
            What::Write(slices, Some((fence, next_id))) => {
                let (fence, next_id, slices) = (*fence, *next_id, slices.clone());
                return self.commit(request, fence, next_id, slices, true);
            }
        })
    }

    fn take(&mut self, request: &mut Request, may: bool, epoch: u64) -> Option<Answer> {
        // A daemon that may not take over only reads the row.
        if !may && !request.has_begun {
            return Some(Answer::Seen(self.seen()));
        }
        let reach = self.commit_when_kept(request)?;
        (self.row.epoch, self.row.address, self.until) = (epoch, request.address.clone(), request.until);
        let is_fresh = matches!(request.what, What::TakeOver);
        self.takeovers.push(Takeover { daemon: request.asker, is_fresh });
        self.note(&reach);
        Some(Answer::Took(self.seen(), reach))
    }

    /// Keeps the row locked until the replica has the change. Returns its durability, or None while it waits.
    fn commit_when_kept(&mut self, request: &mut Request) -> Option<Reach> {
        let now = self.now();
        if !request.has_begun {
            (request.has_begun, request.until) = (true, now + LEASE);
        }
        if request.interrupted.is_none() && now < self.hangs_until {
            self.locked = Some(request.number);
            request.at = now + 500;
            return None;
        }
        self.locked = None;
        let warning = || Reach::Warned("it may not be replicated".into());
        Some(request.interrupted.map_or(Reach::Kept, |_| warning()))
    }

    /// Begins a commit, which locks the row, or ends it.
    fn commit(
        &mut self,
        request: &mut Request,
        fence: Fence,
        next_id: Option<u64>,
        batches: Vec<Arc<Batch>>,
        is_all: bool,
    ) -> Option<Answer> {
        let now = self.now();
        if !request.has_begun {
            let row = &self.row;
            if row.epoch != fence.epoch || row.batch != fence.from || row.address != request.address {
                return Some(Answer::Committed(false, Reach::Kept));
            }
            self.locked = Some(request.number);
            (request.has_begun, request.until, request.at) = (true, now + LEASE, now + request.takes);
            return None;
        }
        let reach = self.commit_when_kept(request)?;
        (self.row.batch, self.row.attempt, self.until) = (fence.to, fence.attempt, request.until);
        self.next_id = next_id.unwrap_or(self.next_id);
        if is_all {
            self.content.clear();
        }
        self.content.extend(batches);
        self.note(&reach);
        Some(Answer::Committed(true, reach))
    }

    /// Notes the present version. A change on the replica brings all earlier ones there.
    fn note(&mut self, reach: &Reach) {
        let (row, content) = (self.row.clone(), self.content.clone());
        let version = Version { at: self.now(), row, until: self.until, next_id: self.next_id, content };
        if *reach == Reach::Kept {
            self.replicated = version.clone();
        }
        self.versions.push(version);
        let oldest = self.now().saturating_sub(3_000_000);
        let old = self.versions.partition_point(|version| version.at < oldest);
        self.versions.drain(..old.saturating_sub(1));
    }

    fn seen(&self) -> OwnerRow {
        let rest = Span::from_micros(self.until.saturating_sub(self.now()));
        OwnerRow { next_id: self.next_id, rest, ..self.row.clone() }
    }

    fn page(&self, cursor: Cursor) -> Answer {
        let mut page = Page::default();
        let kept = KeptRows::of(&self.content);
        let after = match cursor {
            Cursor::Start => 0,
            Cursor::After(id) => id,
        };
        let mut last = after;
        let mut count = 0;
        let visited = kept.visit(Span::ZERO, &mut |saved| {
            match saved {
                Saved::Setting(setting) if cursor == Cursor::Start => {
                    page.rows.add(Stored::Setting(setting), Span::ZERO);
                }
                Saved::Root(tube, signature, newest, changed) if cursor == Cursor::Start => {
                    page.rows.add(Stored::Root(tube, signature, newest, changed), Span::ZERO);
                }
                Saved::Job(record, body, ..) if cursor != Cursor::Start && record.id.0 > after && count < PAGE => {
                    (last, count) = (record.id.0, count + 1);
                    page.rows.add(Stored::Put(record, &mut Body::Own(body.into())), Span::ZERO);
                }
                _ => {}
            }
            Ok(())
        });
        visited.expect("it has only what it was given");
        if cursor == Cursor::Start {
            page.rows.add(Stored::NextId(self.next_id), Span::ZERO);
        }
        page.is_last = cursor != Cursor::Start && count < PAGE;
        Answer::Page(page, Cursor::After(last))
    }
}

impl Asker {
    fn is_alive(&self) -> bool {
        !self.is_stopped && !self.is_gone
    }

    fn take_orders(&mut self, clock: Time) {
        while let Ok(Order { term, wish }) = self.ends.orders.try_recv() {
            self.owner.order(Order { term, wish }, clock);
        }
    }

    fn tell(&mut self) {
        self.ends.trusted_until.store(self.owner.trusted_until().as_micros(), Ordering::Relaxed);
        while let Some(event) = self.owner.next_event() {
            if self.ends.events.send(event).is_err() {
                self.is_gone = true;
            }
            self.ends.wake.wake();
        }
    }
}

impl What {
    /// Returns a request. A slice is added to the earlier ones of its transaction.
    fn of(ask: &StoreRequest<'_>, rewrite: &mut Vec<Arc<Batch>>) -> What {
        let shared = |batch: &Batch| Arc::new(batch.clone());
        match ask {
            StoreRequest::Connect => What::Connect,
            StoreRequest::TakeOver => What::TakeOver,
            StoreRequest::GoOn(handed_over) => What::GoOn((*handed_over).clone()),
            StoreRequest::Retake(epoch, queue) => What::Retake(*epoch, *queue),
            StoreRequest::Look => What::Look,
            StoreRequest::ReadInbox => What::ReadInbox,
            StoreRequest::Renew(epoch) => What::Renew(*epoch),
            StoreRequest::Read(cursor) => What::Read(*cursor),
            StoreRequest::Commit(fence, batch) => What::Commit(*fence, shared(batch)),
            StoreRequest::WriteAnew { is_first, slice, end } => {
                if *is_first {
                    rewrite.clear();
                }
                rewrite.push(shared(slice));
                What::Write(rewrite.clone(), end.map(|end| (end.fence, end.next_id)))
            }
        }
    }
}
