//! Naive model of the job queue, written from its protocol: plain maps, every question answered by looking at
//! everything. It shares no code with the daemon but the source of its jitter. Requests are whole, valid lines.
//!
//! The protocol does not define which of several tubes is first in the rotation, only that no tube has two turns before
//! each other tube has one. So the model takes the daemon's choice as a hint, and checks that it is allowed.

mod commands;
mod manage;
mod queries;
mod reserve;

use poolcounter_core::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub const SECOND: u64 = 1_000_000;
const ROOT_KEPT: u64 = 28 * 24 * 3600 * SECOND;
const TUBE_KEPT: u64 = 15 * 60 * SECOND;
/// Span within which due events may happen in either order, in microseconds.
const TIE: u64 = 2_500;

#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum Place {
    /// Put, and not committed; with the number of the commit.
    Pending(u64),
    #[default]
    Ready,
    Delayed(u64),
    /// Connection, and the end of its reservation.
    Reserved(usize, u64),
    /// Order of the burials; the lowest was first.
    Buried(u64),
}

#[derive(Clone, Default, Debug)]
pub struct Job {
    id: u64,
    tube: String,
    body: String,
    pri: u64,
    delay: u64,
    ttr: u64,
    created: u64,
    since: u64,
    place: Place,
    /// Number of its last reservation.
    reservation: u64,
    reserved_at: u64,
    is_begun: bool,
    reserves: u64,
    timeouts: u64,
    releases: u64,
    buries: u64,
    kicks: u64,
    attempts: u64,
    key: String,
    until_deleted: bool,
    /// Time for which its key is kept from its put on.
    keep: u64,
    root: Option<(String, u64)>,
    group: String,
    error: String,
    /// Tube from which a dead letter comes, its attempts there, and the time of the last one.
    origin: Option<(String, u64, u64)>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Tube {
    total: u64,
    deletes: u64,
    pauses: u64,
    duplicates: u64,
    superseded: u64,
    /// Time since which the tube does not exist.
    hidden: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    ticket: u64,
    until: Option<u64>,
    many: Option<u64>,
}

#[derive(Default, Debug)]
struct Conn {
    used: String,
    /// Patterns with the weights given.
    watches: Vec<(String, Option<u64>)>,
    wait: Option<Wait>,
    /// Replies.
    told: VecDeque<Told>,
    /// Commit of the last job that it has put.
    put: u64,
    last_reserved: u64,
    name: String,
    produces: bool,
    works: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct Told {
    /// Commit that it waits for.
    after: Option<u64>,
    /// True if it is one more reply to the same put-many.
    follows: bool,
    text: String,
}

impl Told {
    /// Returns the job that it promises.
    fn job(&self) -> Option<u64> {
        let promised = ["INSERTED ", "DUPLICATE "].iter().find_map(|word| self.text.strip_prefix(word));
        promised.map(|id| id.trim_end_matches(" buried").parse().expect("a number"))
    }
}

/// Periodic job with `every`.
#[derive(Clone, Debug)]
struct Schedule {
    /// Line of its request.
    line: String,
    body: String,
    tube: String,
    key: String,
    every: u64,
    /// Times up to this one are over.
    from: u64,
    last: Option<u64>,
    skipped: u64,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    attempts: u64,
    first: f64,
    factor: f64,
    max: f64,
}

/// Default retry of failing jobs and of identified runners.
const USUAL: Backoff = Backoff { attempts: 10, first: 10.0, factor: 2.0, max: 3600.0 };

impl Conn {
    fn default_backoff(&self) -> Backoff {
        if self.name.is_empty() { Backoff { attempts: 0, first: 0.0, factor: 1.0, max: 0.0 } } else { USUAL }
    }
}

/// Event that is due by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    Conn(usize),
    Delay(String),
    Pause(String),
    Schedule(String),
    Rate,
}

/// Tubes that had a turn, by a job that waits for its turn.
type Turns = BTreeMap<u64, BTreeSet<String>>;

/// All jobs.
#[derive(Default)]
pub struct Jobs {
    pub now: u64,
    jobs: BTreeMap<u64, Job>,
    next_id: u64,
    tubes: BTreeMap<String, Tube>,
    conns: BTreeMap<usize, Conn>,
    limits: BTreeMap<String, (u64, bool)>,
    /// Number, and whether the jobs of the group run in order.
    group_limits: BTreeMap<String, (u64, bool)>,
    /// Starts, seconds, and whether they are of all tubes together.
    rates: BTreeMap<String, (u64, u64, bool)>,
    group_rates: BTreeMap<String, (u64, u64)>,
    /// Ends of the starts that count, of a tube, a pattern or a group.
    starts: BTreeMap<(&'static str, String), VecDeque<u64>>,
    backoffs: BTreeMap<String, Backoff>,
    dead_letters: BTreeMap<String, String>,
    pauses: BTreeMap<String, (u64, u64)>,
    schedules: BTreeMap<String, Schedule>,
    /// Tubes whose pauses end with them.
    tube_pauses: BTreeSet<String>,
    /// Newest timestamp, the time of its change, and the commit that has it.
    roots: BTreeMap<(String, String), (u64, u64, u64)>,
    /// Job, end and commit of the keys that are kept, by tube.
    kept_keys: BTreeMap<(String, String), (u64, u64, u64)>,
    /// Duplicates and superseded jobs of wikis and types, as long as one of their tubes is known.
    sums: BTreeMap<(&'static str, String), (u64, u64)>,
    is_draining: bool,
    /// True while the store has no room, and puts are refused.
    is_full: bool,
    /// Source of the jitter, as that of the daemon.
    pub jitter: Option<Random>,
    /// True if the daemon's choices are passed in as hints; without them, no tubes may take turns.
    pub is_guided: bool,
    next_ticket: u64,
    next_burial: u64,
    next_reservation: u64,
    /// Number of the batch that is collected, whether a reply waits for it, and the last commit.
    commit: u64,
    is_awaited: bool,
    done: u64,
    /// True if no reply leaves before one that waited earlier on any connection, as in the loop.
    pub is_in_order: bool,
    /// Last commit that a reply waits for.
    awaited: u64,
    /// Jobs that the daemon gave to each connection in this step.
    hints: BTreeMap<usize, VecDeque<u64>>,
    /// Superseded jobs that the daemon may have met, and dropped, on its way to another.
    passed: BTreeSet<u64>,
    turns: Turns,
    /// Names of the clients that have cancelled jobs, by job.
    cancelled: BTreeMap<u64, String>,
    timeouts: u64,
    lost: u64,
    dead: u64,
    total: u64,
    /// True after events were due together in an unspecified order: the rest cannot be compared.
    pub is_tied: bool,
}

impl Jobs {
    pub fn new(now: u64, seed: u64) -> Jobs {
        let (jitter, is_guided, commit) = (Some(Random::from_seed(seed)), true, 1);
        let (next_id, next_ticket, next_burial, next_reservation) = (1, 1, 1, 1);
        Jobs { now, jitter, is_guided, commit, next_id, next_ticket, next_burial, next_reservation, ..Jobs::default() }
    }

    pub fn open(&mut self, id: usize) {
        let watches = vec![("default".into(), None)];
        self.conns.entry(id).or_insert_with(|| Conn { used: "default".into(), watches, ..Conn::default() });
        self.see_to_tubes();
    }

    /// Closes a connection. Its reserved jobs are ready at once, unless their backoff says otherwise.
    pub fn close(&mut self, id: usize) {
        self.turns.clear();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        (conn.wait, conn.watches) = (None, Vec::new());
        while let Some((_, job)) = self.held_by(id).into_iter().min_by_key(|(_, job)| self.jobs[job].reservation) {
            self.lost += 1;
            let seconds = (self.now - self.jobs[&job].reserved_at) as f64 / 1e6;
            let name = self.conns[&id].name.clone() + " ";
            let reason = format!("the runner {}at client-{id} was lost after {seconds:.1} s", name.trim_start());
            self.end_unheard(id, job, &reason);
            self.serve();
        }
        self.conns.remove(&id);
        self.see_to_tubes();
    }

    /// Hands over to another process, which does not know the last turns.
    pub fn hand_over(&mut self) {
        self.turns.clear();
        self.cancelled.clear();
    }

    /// Hands over to another process that reads the jobs that are not reserved from the store: buried ones come back in
    /// the order of their numbers, and ready ones count as ready since their put, or since the first of their tube.
    pub fn read_back(&mut self) {
        self.hand_over();
        let mut first: BTreeMap<String, u64> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| job.place == Place::Ready) {
            let since = first.entry(job.tube.clone()).or_insert(job.since);
            *since = job.since.min(*since);
        }
        for job in self.jobs.values_mut() {
            match job.place {
                Place::Buried(_) => {
                    job.place = Place::Buried(self.next_burial);
                    self.next_burial += 1;
                }
                Place::Ready => {
                    job.since = job.created.max(first[&job.tube]);
                    first.insert(job.tube.clone(), job.since);
                }
                _ => {}
            }
        }
    }

    /// Ends the wait of a peer that sends no more.
    pub fn hang_up(&mut self, id: usize) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.wait.take().is_some()
        {
            self.tell(id, None, "TIMED_OUT");
        }
    }

    pub fn is_waiting(&self, id: usize) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.wait.is_some())
    }

    pub fn somebody_waits(&self) -> bool {
        self.conns.values().any(|conn| conn.wait.is_some())
    }

    /// Returns the number of tubes that a pattern matches.
    pub fn matching(&self, pattern: &str) -> usize {
        self.tubes.keys().filter(|name| matches(pattern, name)).count()
    }

    /// Sets the jobs that the daemon gave to connections in this step.
    pub fn hint(&mut self, reserved: &[(usize, u64)]) {
        self.hints.clear();
        reserved.iter().for_each(|(conn, job)| self.hints.entry(*conn).or_default().push_back(*job));
    }

    /// Drops the passed superseded jobs that the daemon no longer has.
    pub fn settle_passed(&mut self, is_there: impl Fn(u64) -> bool) {
        for job in std::mem::take(&mut self.passed) {
            if self.jobs.contains_key(&job) && !is_there(job) {
                self.drop_superseded(job);
            }
        }
        assert!(self.hints.values().all(VecDeque::is_empty), "jobs were given that nobody may have: {:?}", self.hints);
        self.see_to_tubes();
    }

    /// Notes that the batch of this number was handed to the store; without one, nothing was to be committed.
    pub fn take(&mut self, commit: Option<u64>) {
        assert!(commit.is_some() || !self.is_awaited, "a reply waits for a batch that there is not");
        if let Some(commit) = commit {
            assert_eq!(commit, self.commit, "batches are numbered");
            self.commit += 1;
            self.is_awaited = false;
        }
    }

    /// Notes that the store has committed this batch.
    pub fn committed(&mut self, commit: u64) {
        (self.done, self.is_full) = (commit, false);
        let is_due = |job: &&Job| matches!(job.place, Place::Pending(waits_for) if waits_for <= commit);
        let due: Vec<u64> = self.jobs.values().filter(is_due).map(|job| job.id).collect();
        for id in due {
            let job = &self.jobs[&id];
            let until = job.created + job.delay * SECOND;
            if job.delay > 0 && until > self.now {
                self.delay_job(id, until);
            } else {
                self.ready(id);
            }
            self.serve();
        }
        self.see_to_tubes();
    }

    /// Notes that the store has no room: all puts that are not committed are refused, and their jobs were never there.
    pub fn roll_back(&mut self) {
        self.is_full = true;
        let is_pending = |job: &Job| matches!(job.place, Place::Pending(_));
        let pending: BTreeSet<u64> = self.jobs.values().filter(|job| is_pending(job)).map(|job| job.id).collect();
        self.jobs.retain(|id, _| !pending.contains(id));
        self.kept_keys.retain(|_, (id, ..)| !pending.contains(id));
        for conn in self.conns.values_mut() {
            conn.put = 0;
            let told = Vec::from(std::mem::take(&mut conn.told));
            for of_request in told.chunk_by(|_, next| next.follows) {
                if of_request.iter().any(|told| told.job().is_some_and(|id| pending.contains(&id))) {
                    conn.told.push_back(Told { after: None, follows: false, text: "OUT_OF_MEMORY".into() });
                } else {
                    conn.told.extend(of_request.iter().cloned());
                }
            }
        }
        self.see_to_tubes();
    }

    /// Returns the commit for which a request waits, as it is about jobs and behind a put of its connection.
    pub fn commit_before(&self, id: usize, line: &str) -> Option<u64> {
        let put = self.conns.get(&id).map(|conn| conn.put).filter(|put| *put > self.done)?;
        let word = line.split(' ').next()?;
        let is_own = matches!(word, "use" | "watch" | "ignore" | "identify" | "list-tube-used" | "list-tubes-watched");
        (!is_own && !word.starts_with("put")).then_some(put)
    }

    /// Returns the next reply that a connection may get by now.
    pub fn next(&mut self, id: usize) -> Option<String> {
        let done = self.done;
        let told = &mut self.conns.get_mut(&id)?.told;
        let after = told.front()?.after;
        if after.is_some_and(|after| after > done) { None } else { told.pop_front().map(|told| told.text) }
    }

    /// Returns the time of the next due event, rounded up to whole milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.all_due().into_iter().map(|(at, _)| at.div_ceil(1_000) * 1_000).min()
    }

    /// Handles the event that is due now.
    pub fn expire(&mut self) {
        let due: Vec<(u64, Due)> = self.all_due().into_iter().filter(|(at, _)| *at <= self.now + TIE).collect();
        let (first, later) = due.split_first().expect("something is due");
        // The order decides the jitter.
        let has_jitter = !self.backoffs.is_empty() || self.conns.values().any(|conn| !conn.name.is_empty());
        let matters = self.somebody_waits() || has_jitter;
        let is_unclear = |what: &Due| matches!(what, Due::Pause(pattern) if self.matching(pattern) > 1);
        self.is_tied |= matters && later.iter().any(|(_, other)| *other != first.1)
            || later.iter().any(|(at, _)| *at != first.0)
            || self.somebody_waits() && due.iter().any(|(_, what)| is_unclear(what));
        if self.is_tied {
            return;
        }
        self.turns.clear();
        let mut done = BTreeSet::new();
        for (at, what) in due {
            if at <= self.now && done.insert(what.clone()) {
                self.do_due(&what);
            }
        }
        self.see_to_tubes();
    }

    fn all_due(&self) -> Vec<(u64, Due)> {
        let mut all = Vec::new();
        for job in self.jobs.values() {
            match job.place {
                Place::Delayed(until) => all.push((until, Due::Delay(job.tube.clone()))),
                Place::Reserved(conn, until) => {
                    all.push((until, Due::Conn(conn)));
                    if self.is_waiting(conn) {
                        all.push((until.saturating_sub(SECOND), Due::Conn(conn)));
                    }
                }
                _ => {}
            }
        }
        let waits = self.conns.iter().filter_map(|(id, conn)| Some((conn.wait?.until?, Due::Conn(*id))));
        all.extend(waits);
        all.extend(self.pauses.iter().map(|(pattern, (until, _))| (*until, Due::Pause(pattern.clone()))));
        all.extend(self.starts.values().filter_map(|starts| Some((*starts.front()?, Due::Rate))));
        let schedules = self.schedules.iter();
        all.extend(schedules.map(|(name, schedule)| (schedule.from + schedule.every, Due::Schedule(name.clone()))));
        all.sort_unstable();
        all
    }

    fn do_due(&mut self, what: &Due) {
        match what {
            Due::Conn(id) => self.expire_conn(*id),
            Due::Delay(tube) => {
                let is_due = |job: &&Job| matches!(job.place, Place::Delayed(until) if until <= self.now);
                let due = self.jobs.values().filter(is_due).filter(|job| job.tube == *tube);
                let mut due: Vec<(u64, u64)> = due.map(|job| (job.at(), job.id)).collect();
                due.sort_unstable();
                for (_, id) in due {
                    self.ready(id);
                    self.serve();
                }
            }
            Due::Pause(pattern) => {
                self.pauses.remove(pattern);
                self.serve();
            }
            Due::Schedule(name) => self.put_periodic(name),
            Due::Rate => {
                for starts in self.starts.values_mut() {
                    while starts.front().is_some_and(|end| *end <= self.now) {
                        starts.pop_front();
                    }
                }
                self.serve();
            }
        }
    }

    fn expire_conn(&mut self, id: usize) {
        if let Some(wait) = self.conns[&id].wait {
            let ends = wait.until.is_some_and(|until| until <= self.now);
            let reply = if self.is_deadline_soon(id) { "DEADLINE_SOON" } else { "TIMED_OUT" };
            if ends || reply == "DEADLINE_SOON" {
                self.conn(id).wait = None;
                self.tell(id, None, reply);
            }
        }
        while let Some((until, job)) = self.held_by(id).first().copied()
            && until <= self.now
        {
            self.timeouts += 1;
            self.job(job).timeouts += 1;
            let (ttr, name) = (self.jobs[&job].ttr, &self.conns[&id].name);
            let runner = if name.is_empty() { format!("client-{id}") } else { name.clone() };
            self.end_unheard(id, job, &format!("the time to run of {ttr} s was over at {runner}"));
            self.serve();
        }
    }

    /// Ends a reservation about which its runner told nothing: no attempt is counted if the job was not begun.
    fn end_unheard(&mut self, id: usize, job: u64, reason: &str) {
        if self.jobs[&job].is_begun {
            self.tell_reason(job, reason);
            self.end_attempt(job, self.conns[&id].default_backoff(), 0);
        } else {
            self.ready(job);
        }
    }

    /// Sets the error of a job whose runner told none. What it told of an earlier attempt stays behind it.
    fn tell_reason(&mut self, job: u64, reason: &str) {
        let job = self.job(job);
        let own = [job.error.starts_with("the runner "), job.error.starts_with("the time to run ")].contains(&true);
        let told = if own { job.error.split_once('\n').map_or("", |(_, rest)| rest) } else { &job.error };
        job.error = format!("{reason}\n{told}").trim_end().into();
    }

    fn conn(&mut self, id: usize) -> &mut Conn {
        self.conns.get_mut(&id).expect("is open")
    }

    fn job(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("is there")
    }

    fn tell(&mut self, id: usize, after: Option<u64>, text: &str) {
        let mut after = after.filter(|after| *after > self.done);
        if let Some(after) = &mut after {
            self.awaited = self.awaited.max(*after);
            *after = if self.is_in_order { self.awaited } else { *after };
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.told.push_back(Told { after, follows: false, text: text.into() });
        }
    }

    /// Lets all replies to a put-many from `first` on wait for the last of their commits, if one promises a job.
    fn hold_together(&mut self, id: usize, first: usize) {
        let (jobs, conn) = (&self.jobs, self.conns.get_mut(&id).expect("is open"));
        let is_pending = |id| jobs.get(&id).is_some_and(|job| matches!(job.place, Place::Pending(_)));
        let replies = conn.told.range(first..);
        if !replies.clone().any(|told| told.after.is_some() && told.job().is_some_and(is_pending)) {
            return;
        }
        let last = replies.filter_map(|told| told.after).max();
        conn.put = conn.put.max(last.unwrap_or(0));
        for (index, told) in conn.told.range_mut(first..).enumerate() {
            (told.after, told.follows) = (last, index > 0);
        }
    }

    /// Sends a reply that waits for the commit of the present changes.
    fn promise(&mut self, id: usize, text: &str) {
        self.is_awaited = true;
        let commit = self.commit;
        self.tell(id, Some(commit), text);
    }

    /// Returns the jobs that a connection has reserved, by their deadlines.
    fn held_by(&self, id: usize) -> Vec<(u64, u64)> {
        let of = |job: &Job| match job.place {
            Place::Reserved(conn, until) if conn == id => Some((until, job.id)),
            _ => None,
        };
        let mut held: Vec<(u64, u64)> = self.jobs.values().filter_map(of).collect();
        held.sort_unstable();
        held
    }

    fn is_deadline_soon(&self, id: usize) -> bool {
        self.held_by(id).first().is_some_and(|(until, _)| *until <= self.now + SECOND)
    }

    /// Removes tubes that have no users, watchers or jobs; their counts are kept for a while.
    fn see_to_tubes(&mut self) {
        let mut there: BTreeSet<String> = self.jobs.values().map(|job| job.tube.clone()).collect();
        there.extend(self.conns.values().map(|conn| conn.used.clone()));
        there.extend(self.conns.values().flat_map(|conn| conn.watches.iter().map(|(pattern, _)| pattern.clone())));
        there.retain(|name| !name.contains('*'));
        for name in &there {
            let tube = self.tubes.entry(name.clone()).or_default();
            if tube.hidden.take().is_some() {
                (tube.total, tube.deletes, tube.pauses) = (0, 0, 0);
            }
        }
        let now = self.now;
        for (name, tube) in &mut self.tubes {
            if !there.contains(name) && name != "default" {
                tube.hidden.get_or_insert(now);
                if self.tube_pauses.remove(name) {
                    self.pauses.remove(name);
                }
            }
        }
        self.tubes.retain(|_, tube| tube.hidden.is_none_or(|since| since + TUBE_KEPT > now));
        self.roots.retain(|_, (_, changed, _)| *changed + ROOT_KEPT > now);
        self.kept_keys.retain(|_, (_, until, _)| *until > now);
        let tubes = &self.tubes;
        self.sums.retain(|(by, name), _| tubes.keys().any(|tube| part_of(tube, by) == *name));
    }

    /// Counts a put refused as a duplicate, or a leaf refused or dropped.
    fn note(&mut self, tube: &str, duplicates: u64, superseded: u64) {
        let own = self.tubes.entry(tube.into()).or_default();
        own.duplicates += duplicates;
        own.superseded += superseded;
        for by in ["wiki", "type"] {
            let sum = self.sums.entry((by, part_of(tube, by).into())).or_default();
            *sum = (sum.0 + duplicates, sum.1 + superseded);
        }
    }
}

impl Job {
    /// Returns the time at which it is due, or became ready; of a buried job, its order.
    fn at(&self) -> u64 {
        match self.place {
            Place::Delayed(until) | Place::Reserved(_, until) => until,
            Place::Buried(order) => order,
            Place::Ready | Place::Pending(_) => self.since,
        }
    }
}

/// Returns the part of a tube's name that is its wiki, or its type.
fn part_of<'a>(tube: &'a str, by: &str) -> &'a str {
    let mut parts = tube.split('/');
    if by == "wiki" { parts.next().unwrap_or_default() } else { parts.next_back().unwrap_or_default() }
}

/// Returns whether a pattern matches a name: `*` stands for one whole part that is not empty.
fn matches(pattern: &str, name: &str) -> bool {
    let (own, other): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), name.split('/').collect());
    let part = |(own, other): (&&str, &&str)| own == other || *own == "*" && !other.is_empty();
    own.len() == other.len() && own.iter().zip(&other).all(part)
}

/// Returns the patterns that match a name, the most literal first; of those, the one with the earlier literal part.
fn by_literalness<'a>(patterns: impl Iterator<Item = &'a String>, name: &str) -> Vec<&'a String> {
    let mut matching: Vec<&String> = patterns.filter(|pattern| matches(pattern, name)).collect();
    matching.sort_by_key(|pattern| {
        let stars: Vec<bool> = pattern.split('/').map(|part| part == "*").collect();
        (stars.iter().filter(|star| **star).count(), stars)
    });
    matching
}
