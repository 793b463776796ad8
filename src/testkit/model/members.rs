//! Naive model of the members service, line by line: plain vectors, every question answered by looking at everything.
//! It was written from the protocol's page and shares no code with the daemon.
//!
//! The page leaves some choices open: which of several equal providers is asked, which of several equal pools of a
//! group serves, when exactly a backoff ends, and in which order several waiters are served at once. The model takes these
//! from the daemon's behaviour, if they are allowed. Lines that one step sends to one client have no order, except within
//! a reply of several lines, which is one piece here.

use std::collections::{BTreeMap, BTreeSet};

const SECOND: u64 = 1_000_000;
const FIRST_BACKOFF: u64 = SECOND;
const LONGEST_BACKOFF: u64 = 60 * SECOND;
/// Time since the failure before, after which a failure is a first one.
const CALM: u64 = 300 * SECOND;
/// Age from which the death of a member is no failure of its provider.
const PROVEN_AGE: u64 = 10 * SECOND;
/// Wait after which a waiter counts as one of the most urgent.
const AGED: u64 = 60 * SECOND;

/// Observed choices of the daemon in the step that the model takes next.
#[derive(Default)]
pub struct Hints {
    /// Provider and pool of each start, by its number.
    pub starts: BTreeMap<u64, (usize, String)>,
    /// Cleaners that were asked, by pool and member.
    pub cleans: BTreeMap<(String, String), BTreeSet<usize>>,
    /// Pools of the members that each client got.
    pub served: BTreeMap<usize, Vec<String>>,
    /// Number and token of each lease, by client, pool and member.
    pub leases: BTreeMap<(usize, String, String), (u64, Option<u64>)>,
}

/// The service.
#[derive(Default)]
pub struct Members {
    pub now: u64,
    pools: Vec<Pool>,
    conns: BTreeMap<usize, Conn>,
    waiters: Vec<Waiter>,
    leases: Vec<Lease>,
    starts: Vec<Start>,
    /// Numbers of all starts so far.
    numbers: BTreeSet<u64>,
    /// Numbers of all leases and of all tokens so far.
    leased: BTreeSet<u64>,
    tokens: BTreeSet<u64>,
    arrivals: u64,
    /// Counter for the order in which members came free.
    frees: u64,
    /// Sessions of providers that are lost and in their grace, by the names of the pool and of the session.
    lost: BTreeMap<(String, String), Lost>,
    /// Connections that were replaced by other connections of the same session.
    pub replaced: Vec<usize>,
    pub hints: Hints,
    /// Replies, by client.
    pub out: Vec<(usize, String)>,
}

#[derive(Clone, PartialEq)]
struct Settings {
    init: u64,
    max: u64,
    group: String,
    is_fifo: bool,
    queue: u64,
    start_timeout: u64,
    stop_timeout: u64,
    max_age: u64,
    cull_interval: u64,
    max_lifetime: u64,
    max_uses: u64,
    grow_at: Option<u64>,
    min_free: u64,
    max_hold: u64,
    per_client: u64,
    is_loss_ok: bool,
    loss_delay: u64,
    check_interval: u64,
    check_timeout: u64,
    clean_timeout: u64,
    clean_parallel: u64,
    clean_attempts: u64,
    provider_grace: u64,
    repair_after: u64,
}

struct Pool {
    name: String,
    settings: Settings,
    members: Vec<Member>,
    is_leaving: bool,
    owed: u64,
    /// Number of additional starts, for this step only.
    growth: u64,
    cull_at: Option<u64>,
}

#[derive(Clone, PartialEq)]
enum Owner {
    Fixed,
    Provider(usize),
    /// Member of a lost provider, with the end of its grace and the session that has it again before.
    Orphan(u64, Option<String>),
}

#[derive(Clone, PartialEq)]
enum State {
    Free,
    Checking(u64),
    InUse,
    Stopping(u64),
    Unclean,
    /// Cleaner, and the end of its time; None after that.
    Cleaning(usize, Option<u64>),
    /// Cleaned again at this time.
    CleanLater(u64),
    Quarantined(Option<u64>),
    Held(u64),
    Delayed(u64),
    Orphaned,
}

struct Member {
    name: String,
    owner: Owner,
    state: State,
    born: u64,
    /// Time since which it is idle.
    since: u64,
    /// Time at which it was last known to be alive.
    proved: u64,
    uses: u64,
    freed: u64,
    is_leaving: bool,
    /// Hold that begins when it is free or returned: its length, the time of the request, and the reason.
    hold: Option<(u64, u64, Out)>,
    /// Number of cleanings that have failed since its last use, and the cleaner of the last one.
    failures: (u64, Option<usize>),
    /// Start and reason of the time in which it is kept out.
    out: Option<(u64, Out)>,
    /// Time at which its provider was lost, and that provider's address.
    lost: (u64, String),
}

/// Reason for which a member is kept out, and the client that caused it.
type Out = (String, String);

/// Pause of the starts of a provider after one has failed.
#[derive(Default)]
struct Backoff {
    /// Earliest and latest end.
    ends: Option<(u64, u64)>,
    /// Number of failures that have each followed another before long.
    doubled: u32,
    /// Time of the last of these failures.
    failed: u64,
}

/// Rest of a provider in its grace.
struct Lost {
    cleans: bool,
    backoff: Backoff,
}

#[derive(Default)]
struct Conn {
    backoff: Backoff,
    session: Option<String>,
    name: Option<String>,
    pool: Option<String>,
    provides: bool,
    cleans: bool,
    capacity: Option<u64>,
    /// Pool for which it works or has worked last.
    last_pool: Option<String>,
}

/// A pool or a group, by its name.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    Pool(String),
    Group(String),
}

struct Waiter {
    conn: usize,
    place: Place,
    asked: Asked,
    /// Number of starts that it may cause.
    want: u64,
    priority: u64,
    arrival: u64,
    since: u64,
    until: u64,
}

struct Lease {
    number: u64,
    conn: Option<usize>,
    pool: String,
    member: String,
    since: u64,
    holder: String,
    /// Number, length, and end of the lease by token.
    token: Option<(u64, u64, u64)>,
}

struct Start {
    number: u64,
    conn: usize,
    pool: String,
    until: u64,
}

/// Event that happens by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Wait,
    Aged,
    Start,
    Stage,
    Life,
    Lease,
    Grace,
    Cull,
}

fn seconds(text: &str) -> u64 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    whole.parse::<u64>().expect("a number") * SECOND + format!("{decimals:0<6}").parse::<u64>().expect("a number")
}

/// Counts one more thing, and returns its number: the one that was seen, or the next.
fn next(given: &mut BTreeSet<u64>, seen: Option<u64>) -> u64 {
    let number = seen.unwrap_or(given.last().map_or(1, |last| last + 1));
    assert!(given.insert(number), "number {number} is given once");
    number
}

/// Returns a span in seconds, as people write it.
fn said(span: u64) -> String {
    let text = format!("{}.{:06}", span / SECOND, span % SECOND);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

impl Settings {
    fn usual() -> Settings {
        Settings {
            init: 0,
            max: 1,
            group: String::new(),
            is_fifo: false,
            queue: 1000,
            start_timeout: 60 * SECOND,
            stop_timeout: 10 * SECOND,
            max_age: 30 * SECOND,
            cull_interval: 60 * SECOND,
            max_lifetime: 0,
            max_uses: 0,
            grow_at: None,
            min_free: 0,
            max_hold: 0,
            per_client: 0,
            is_loss_ok: false,
            loss_delay: 0,
            check_interval: 0,
            check_timeout: 5 * SECOND,
            clean_timeout: 0,
            clean_parallel: 10,
            clean_attempts: 3,
            provider_grace: 15 * SECOND,
            repair_after: 0,
        }
    }

    fn set(&mut self, pair: &str) {
        let (key, value) = pair.split_once('=').expect("it is known");
        let number = || value.parse::<u64>().expect("a number");
        match key {
            "init" => self.init = number(),
            "max" => self.max = number(),
            "group" => self.group = value.into(),
            "order" => self.is_fifo = value == "fifo",
            "queue" => self.queue = number(),
            "start_timeout" => self.start_timeout = seconds(value),
            "stop_timeout" => self.stop_timeout = seconds(value),
            "max_age" => self.max_age = seconds(value),
            "cull_interval" => self.cull_interval = seconds(value),
            "max_lifetime" => self.max_lifetime = seconds(value),
            "max_uses" => self.max_uses = number(),
            "grow_at" => self.grow_at = value.parse().ok(),
            "min_free" => self.min_free = number(),
            "max_hold" => self.max_hold = seconds(value),
            "per_client" => self.per_client = number(),
            "on_loss" => self.is_loss_ok = value == "ok",
            "loss_delay" => self.loss_delay = seconds(value),
            "check_interval" => self.check_interval = seconds(value),
            "check_timeout" => self.check_timeout = seconds(value),
            "clean_timeout" => self.clean_timeout = seconds(value),
            "clean_parallel" => self.clean_parallel = number(),
            "clean_attempts" => self.clean_attempts = number(),
            "provider_grace" => self.provider_grace = seconds(value),
            "repair_after" => self.repair_after = seconds(value),
            _ => panic!("{pair}"),
        }
    }

    fn is_possible(&self) -> bool {
        self.init <= self.max && self.max >= 1 && self.clean_parallel >= 1
    }
}

impl Pool {
    fn count(&self, is_meant: impl Fn(&Member) -> bool) -> u64 {
        self.members.iter().filter(|member| is_meant(member)).count() as u64
    }

    fn live(&self) -> u64 {
        self.count(|member| !matches!(member.state, State::Stopping(_)))
    }

    fn free(&self) -> u64 {
        self.count(|member| member.state == State::Free)
    }

    fn checking(&self) -> u64 {
        self.count(|member| matches!(member.state, State::Checking(_)))
    }

    fn has_fixed(&self) -> bool {
        self.members.iter().any(|member| member.owner == Owner::Fixed)
    }

    fn at(&self, member: &str) -> Option<usize> {
        self.members.iter().position(|known| known.name == member)
    }
}

impl Members {
    pub fn new() -> Self {
        Members::default()
    }

    fn tell(&mut self, conn: usize, text: impl Into<String>) {
        self.out.push((conn, text.into()));
    }

    fn pool(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    fn starts_in(&self, pool: usize) -> u64 {
        self.starts.iter().filter(|start| start.pool == self.pools[pool].name).count() as u64
    }

    /// Returns the number of starts that the waiters of a place may cause.
    fn want(&self, place: &Place) -> u64 {
        self.waiters.iter().filter(|waiter| waiter.place == *place).map(|waiter| waiter.want).sum()
    }

    /// Returns the number of starts and checks that the waiters for a pool alone need.
    fn need(&self, p: usize) -> u64 {
        let own = Place::Pool(self.pools[p].name.clone());
        self.want(&own).saturating_sub(self.kept(p, &own))
    }

    /// Returns the number of free members of a pool that are kept for the first waiter for several, if it waits for
    /// this place.
    fn kept(&self, p: usize, place: &Place) -> u64 {
        let first = self.reserving_waiter(p).filter(|first| first.place == *place);
        first.map_or(0, |first| first.want.min(self.pools[p].free()))
    }

    /// Returns the number of starts and checks under way in a pool that no waiter for it alone needs.
    fn spare(&self, p: usize) -> u64 {
        (self.starts_in(p) + self.pools[p].checking()).saturating_sub(self.need(p))
    }

    /// Returns whether the waiters of a group lack starts.
    fn lacks_for(&self, group: &Place) -> bool {
        let pools = self.pools_of(group);
        let kept: u64 = pools.iter().map(|p| self.kept(*p, group)).sum();
        let several = self.waiters.iter().filter(|waiter| waiter.place == *group && waiter.asked.members > 1);
        let first = several.min_by_key(|waiter| self.rank(waiter)).map_or(0, |first| first.want);
        let spare: u64 = pools.iter().map(|p| self.spare(*p)).sum();
        self.want(group) > kept.min(first) + spare
    }

    /// Returns the place whose waiters need the starts and checks under way in a pool; None if they do not need all.
    fn needed_by(&self, p: usize) -> Option<Place> {
        if self.spare(p) == 0 {
            return Some(Place::Pool(self.pools[p].name.clone()));
        }
        let group = Place::Group(self.pools[p].settings.group.clone());
        let spare: u64 = self.pools_of(&group).into_iter().map(|p| self.spare(p)).sum();
        (spare <= self.want(&group)).then_some(group)
    }

    /// Returns the pools of a place that are not being removed.
    fn pools_of(&self, place: &Place) -> Vec<usize> {
        let is_meant = |pool: &Pool| match place {
            Place::Pool(name) => pool.name == *name,
            Place::Group(group) => !group.is_empty() && pool.settings.group == *group,
        };
        (0..self.pools.len()).filter(|p| is_meant(&self.pools[*p]) && !self.pools[*p].is_leaving).collect()
    }

    fn providers(&self, pool: usize) -> Vec<usize> {
        let name = &self.pools[pool].name;
        let provides = |conn: &&(&usize, &Conn)| conn.1.provides && conn.1.pool.as_ref() == Some(name);
        let conns: Vec<(&usize, &Conn)> = self.conns.iter().collect();
        conns.iter().filter(provides).map(|(id, _)| **id).collect()
    }

    fn has_agent(&self, pool: usize) -> bool {
        let name = &self.pools[pool].name;
        self.conns.values().any(|conn| (conn.provides || conn.cleans) && conn.pool.as_ref() == Some(name))
    }

    /// Handles one line of a client.
    pub fn say(&mut self, conn: usize, line: &str) {
        self.conns.entry(conn).or_default();
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[0] {
            "POOL" => self.declare(words[1], &words[2..]),
            "RECONFIGURE" => self.reconfigure(words[1], &words[2..]),
            "RMPOOL" => self.remove_pool(conn, words[1], words.len() > 2),
            "RMGROUP" => self.remove_group(conn, words[1], words.len() > 2),
            "PROVIDE" => {
                let capacity = words[2..].iter().find_map(|word| word.parse().ok());
                let session = words[2..].iter().find_map(|word| word.strip_prefix("session="));
                self.work(conn, words[1], true, capacity, session)
            }
            "CLEAN" => self.work(conn, words[1], false, None, None),
            "STARTED" => self.started(conn, words[1].parse().expect("a number"), words[2]),
            "FAILED" => self.failed(conn, words[1].parse().expect("a number")),
            "STOPPED" => self.stopped(conn, words[1]),
            "ALIVE" => self.alive(conn, words[1]),
            "DEAD" => self.dead(conn, words[1], words.get(2)),
            "CLEANED" => self.cleaned(conn, words[1]),
            "CLEANING" => self.cleaning(conn, words[1]),
            "OFFER" => self.offer(conn, words[1], words[2]),
            "WITHDRAW" => self.withdraw(conn, words[1], words[2], words.len() > 3),
            "ADD" => self.add(words[1], words[2]),
            "DEL" => self.delete(words[1], words[2], words.len() > 3),
            "REPAIR" => self.repair(words[1], words[2], words.len() > 3),
            "HOLD" => self.hold(conn, words[1], words[2], seconds(words[3])),
            "FREE" => self.unhold(words[1], words[2]),
            "TAKEBACK" => self.take_back(conn, words[1].parse().expect("a number")),
            "TAKE" => self.take(conn, Place::Pool(words[1].into()), &words[2..]),
            "TAKEGROUP" => self.take(conn, Place::Group(words[1].into()), &words[2..]),
            "RETURN" => self.give_back(conn, words[1], words.get(2) == Some(&"FAIL")),
            "RENEW" => self.renew(conn, words[1], words.get(2).map(|span| seconds(span))),
            "CANCEL" => match self.waiters.iter().position(|waiter| waiter.conn == conn) {
                Some(at) => {
                    self.waiters.remove(at);
                    Ok("NO_MEMBERS cancelled")
                }
                None => Err("NOT_WAITING"),
            },
            "IDENTIFY" => {
                self.conns.get_mut(&conn).expect("it is known").name = Some(words[1].into());
                Ok("OK")
            }
            "BYE" => {
                self.leave_wait(conn);
                for number in self.held_by(conn, false) {
                    self.come_back_ok(number);
                }
                Ok("BYE")
            }
            _ => panic!("{line}"),
        };
        match answer {
            Ok("") => {}
            Ok(reply) => self.tell(conn, reply),
            Err(code) => self.tell(conn, format!("ERROR {code}")),
        }
        self.settle();
        if line == "BYE" {
            self.close(conn);
        }
    }

    fn declare(&mut self, name: &str, words: &[&str]) -> Answer {
        let mut settings = Settings::usual();
        settings.set(&format!("init={}", words[0]));
        settings.set(&format!("max={}", words[1]));
        words[2..].iter().for_each(|pair| settings.set(pair));
        if !settings.is_possible() {
            return Err("BAD_SYNTAX");
        }
        if let Some(known) = self.pool(name) {
            let is_same = self.pools[known].settings == settings && !self.pools[known].is_leaving;
            return if is_same { Ok("OK") } else { Err("POOL_DIFFERS") };
        }
        let cull_at = (settings.cull_interval > 0).then_some(self.now + settings.cull_interval);
        self.pools.push(Pool {
            name: name.into(),
            settings,
            members: Vec::new(),
            is_leaving: false,
            owed: 0,
            growth: 0,
            cull_at,
        });
        Ok("OK")
    }

    fn reconfigure(&mut self, name: &str, words: &[&str]) -> Answer {
        let p = self.pool(name).ok_or("NO_POOL")?;
        let mut settings = self.pools[p].settings.clone();
        words.iter().for_each(|pair| settings.set(pair));
        if !settings.is_possible() {
            return Err("BAD_SYNTAX");
        }
        self.pools[p].settings = settings;
        let excess = self.queued(p).saturating_sub(self.pools[p].settings.queue) as usize;
        let is_its = |waiter: &&Waiter| waiter.place == Place::Pool(name.into());
        let mut waiting: Vec<(u64, usize)> =
            self.waiters.iter().filter(is_its).map(|waiter| (waiter.arrival, waiter.conn)).collect();
        waiting.sort_unstable();
        for (_, conn) in waiting.into_iter().rev().take(excess) {
            self.waiters.retain(|waiter| waiter.conn != conn);
            self.tell(conn, "QUEUE_FULL");
        }
        Ok("OK")
    }

    fn remove_pool(&mut self, conn: usize, name: &str, graceful: bool) -> Answer {
        let p = self.pool(name).ok_or("NO_POOL")?;
        self.tell(conn, "OK");
        self.pools[p].is_leaving = true;
        let lasting: BTreeSet<String> =
            self.pools.iter().filter(|pool| !pool.is_leaving).map(|pool| pool.settings.group.clone()).collect();
        let is_over = |waiter: &mut Waiter| match &waiter.place {
            Place::Group(group) => !lasting.contains(group),
            Place::Pool(pool) => pool == name,
        };
        for waiter in self.waiters.extract_if(.., is_over).collect::<Vec<_>>() {
            self.tell(waiter.conn, "NO_MEMBERS removed");
        }
        self.starts.retain(|start| start.pool != name);
        for member in self.names_in(p) {
            let m = self.pools[p].at(&member).expect("it is known");
            if self.pools[p].members[m].state == State::InUse {
                if graceful {
                    continue;
                }
                self.lose(p, m, "removed");
            }
            self.stop(p, &member, false);
        }
        if !graceful {
            for member in self.names_in(p) {
                let m = self.pools[p].at(&member).expect("it is known");
                self.pools[p].members.remove(m);
            }
        }
        Ok("")
    }

    fn remove_group(&mut self, conn: usize, group: &str, graceful: bool) -> Answer {
        let of = |pool: &&Pool| pool.settings.group == group;
        let names: Vec<String> = self.pools.iter().filter(of).map(|pool| pool.name.clone()).collect();
        if names.is_empty() {
            return Err("NO_POOL");
        }
        self.tell(conn, "OK");
        for name in names {
            let told = self.out.len();
            _ = self.remove_pool(conn, &name, graceful);
            self.out.remove(told);
        }
        Ok("")
    }

    fn names_in(&self, p: usize) -> Vec<String> {
        self.pools[p].members.iter().map(|member| member.name.clone()).collect()
    }

    fn work(
        &mut self,
        conn: usize,
        name: &str,
        provides: bool,
        capacity: Option<u64>,
        session: Option<&str>,
    ) -> Answer {
        let known = &self.conns[&conn];
        let has_another = known.provides && session.is_some() && session != known.session.as_deref();
        if known.pool.as_ref().is_some_and(|pool| pool != name) || has_another {
            return Err("BAD_SYNTAX");
        }
        let is_known = known.pool.is_some();
        let p = self.pool(name).filter(|p| is_known && !provides || !self.pools[*p].is_leaving).ok_or("NO_POOL")?;
        if provides && self.pools[p].has_fixed() {
            return Err("BAD_SYNTAX");
        }
        let name = self.pools[p].name.clone();
        if let Some(session) = session.filter(|session| self.conns[&conn].session.as_deref() != Some(session)) {
            self.resume(p, conn, session);
        }
        let conn = self.conns.get_mut(&conn).expect("it is known");
        conn.session = session.map(String::from).or(conn.session.take());
        (conn.pool, conn.last_pool) = (Some(name.clone()), Some(name));
        conn.cleans |= !provides;
        if provides {
            (conn.provides, conn.capacity) = (true, capacity);
        }
        Ok("OK")
    }

    /// Gives a connection the members of an earlier one of its session, if there is one.
    fn resume(&mut self, p: usize, conn: usize, session: &str) {
        let name = self.pools[p].name.clone();
        let has_it = |of: &Conn| of.session.as_deref() == Some(session) && of.pool.as_ref() == Some(&name);
        let before = self.conns.iter().find(|(_, of)| has_it(of)).map(|(id, _)| *id);
        let lost = self.lost.remove(&(name.clone(), session.into()));
        if let Some(before) = before {
            self.leave_wait(before);
            self.end_leases(before);
            self.starts.retain(|start| start.conn != before);
        } else if lost.is_none() {
            return;
        }
        before.into_iter().chain([conn]).for_each(|by| self.lose_cleanings(p, by));
        for member in &mut self.pools[p].members {
            let is_its = match &member.owner {
                Owner::Provider(owner) => Some(*owner) == before,
                Owner::Orphan(_, of) => of.as_deref() == Some(session),
                Owner::Fixed => false,
            };
            if is_its {
                member.owner = Owner::Provider(conn);
            }
        }
        let old = before.and_then(|before| self.conns.remove(&before));
        self.replaced.extend(before);
        let new = self.conns.get_mut(&conn).expect("it is known");
        if let Some(old) = old {
            (new.cleans, new.backoff) = (new.cleans || old.cleans, old.backoff);
        }
        if let Some(lost) = lost {
            (new.cleans, new.backoff) = (new.cleans || lost.cleans, lost.backoff);
        }
        for member in self.names_in(p) {
            let m = self.pools[p].at(&member).expect("it is there");
            if self.pools[p].members[m].owner == Owner::Provider(conn) {
                self.resume_member(p, m);
            }
        }
    }

    fn resume_member(&mut self, p: usize, m: usize) {
        let Settings { stop_timeout, check_timeout, .. } = self.pools[p].settings;
        let (now, pool) = (self.now, self.pools[p].name.clone());
        let member = &mut self.pools[p].members[m];
        let Owner::Provider(conn) = member.owner else { return };
        let name = member.name.clone();
        match member.state {
            State::Orphaned => self.release_member(p, m),
            State::Stopping(_) => {
                member.state = State::Stopping(now + stop_timeout);
                self.tell(conn, format!("!STOP {pool} {name}"));
            }
            State::Checking(_) => {
                member.state = State::Checking(now + check_timeout);
                self.tell(conn, format!("!CHECK {pool} {name}"));
            }
            _ => {}
        }
    }

    /// Returns whether a start has ended, as far as a provider can know.
    fn is_late(&self, conn: usize, number: u64) -> bool {
        let has_ended = self.numbers.contains(&number) && self.starts.iter().all(|start| start.number != number);
        has_ended && self.conns[&conn].last_pool.is_some()
    }

    fn owns(&self, p: usize, conn: usize, member: &str) -> bool {
        self.pools[p].at(member).is_some_and(|m| self.pools[p].members[m].owner == Owner::Provider(conn))
    }

    fn started(&mut self, conn: usize, number: u64, member: &str) -> Answer {
        if self.is_late(conn, number) {
            if self.own_pool(conn).is_some_and(|p| self.owns(p, conn, member)) {
                return Err("BAD_START");
            }
            let pool = self.conns[&conn].last_pool.clone().expect("it has worked");
            self.tell(conn, format!("!STOP {pool} {member}"));
            return Err("TOO_LATE");
        }
        let at =
            self.starts.iter().position(|start| start.number == number && start.conn == conn).ok_or("BAD_START")?;
        let p = self.pool(&self.starts[at].pool).expect("it is known");
        let needed_by = self.needed_by(p);
        self.starts.remove(at);
        if self.pools[p].at(member).is_some() {
            self.back_off(p, &Owner::Provider(conn));
            return Err("MEMBER_EXISTS");
        }
        self.enter(p, member, Owner::Provider(conn));
        let is_free = self.pools[p].at(member).is_some_and(|m| self.pools[p].members[m].state == State::Free);
        if is_free && self.reserving_waiter(p).is_none() {
            // No waiter gets it.
            let is_its = |waiter: &&mut Waiter| Some(&waiter.place) == needed_by.as_ref() && waiter.want > 0;
            self.waiters.iter_mut().find(is_its).into_iter().for_each(|waiter| waiter.want -= 1);
        }
        Ok("OK")
    }

    fn failed(&mut self, conn: usize, number: u64) -> Answer {
        if self.is_late(conn, number) {
            return Ok("OK");
        }
        let at =
            self.starts.iter().position(|start| start.number == number && start.conn == conn).ok_or("BAD_START")?;
        let pool = self.starts.remove(at).pool;
        self.back_off(self.pool(&pool).expect("it is known"), &Owner::Provider(conn));
        Ok("OK")
    }

    fn backoff_of(&mut self, p: usize, owner: &Owner) -> Option<&mut Backoff> {
        match owner {
            Owner::Provider(conn) => Some(&mut self.conns.get_mut(conn).expect("it is known").backoff),
            Owner::Orphan(_, Some(session)) => {
                self.lost.get_mut(&(self.pools[p].name.clone(), session.clone())).map(|lost| &mut lost.backoff)
            }
            Owner::Orphan(_, None) | Owner::Fixed => None,
        }
    }

    fn back_off(&mut self, p: usize, owner: &Owner) {
        let now = self.now;
        let Some(backoff) = self.backoff_of(p, owner) else { return };
        if backoff.ends.is_some() {
            return;
        }
        if now - backoff.failed >= CALM {
            backoff.doubled = 0;
        }
        let span = LONGEST_BACKOFF.min(FIRST_BACKOFF << backoff.doubled);
        // Wheels turn by the millisecond, so it may take a little longer.
        backoff.ends = Some((now + span * 3 / 4, now + span * 5 / 4 + 1_000));
        (backoff.doubled, backoff.failed) = (6.min(backoff.doubled + 1), now);
    }

    /// Removes a dead member: a member that dies young counts as a failed start.
    fn die(&mut self, p: usize, m: usize) {
        let member = self.pools[p].members.remove(m);
        let is_young = !member.is_leaving && self.now - member.born < PROVEN_AGE;
        if is_young {
            self.back_off(p, &member.owner);
        }
        if !member.is_leaving {
            self.owe(p);
        }
    }

    fn enter(&mut self, p: usize, name: &str, owner: Owner) {
        let now = self.now;
        let (name, state) = (name.into(), State::Orphaned);
        let (uses, freed, is_leaving, hold, failures) = (0, 0, false, None, (0, None));
        let (born, since, proved) = (now, now, now);
        let (out, lost) = (None, (now, "-".into()));
        self.pools[p].members.push(Member {
            name,
            owner,
            state,
            born,
            since,
            proved,
            uses,
            freed,
            is_leaving,
            hold,
            failures,
            out,
            lost,
        });
        let m = self.pools[p].members.len() - 1;
        self.release_member(p, m);
    }

    fn free(&mut self, p: usize, m: usize) {
        self.frees += 1;
        let now = self.now;
        let member = &mut self.pools[p].members[m];
        member.state = State::Free;
        (member.freed, member.since, member.proved) = (self.frees, now, now);
        self.serve_waiters();
    }

    fn own_pool(&self, conn: usize) -> Option<usize> {
        self.conns[&conn].pool.as_ref().and_then(|pool| self.pool(pool))
    }

    fn stopped(&mut self, conn: usize, member: &str) -> Answer {
        if self.conns[&conn].last_pool.is_none() {
            return Err("NO_SUCH_MEMBER");
        }
        if let Some(p) = self.own_pool(conn).filter(|p| self.owns(*p, conn, member)) {
            let m = self.pools[p].at(member).expect("it is there");
            if !matches!(self.pools[p].members[m].state, State::Stopping(_)) {
                // The stop was not requested: the member has stopped by itself, and so is dead.
                return self.dead(conn, member, None);
            }
            self.pools[p].members.remove(m);
        }
        Ok("OK")
    }

    fn alive(&mut self, conn: usize, member: &str) -> Answer {
        let now = self.now;
        let p = self.own_pool(conn).ok_or("NO_SUCH_MEMBER")?;
        let known = self.pools[p].members.iter_mut().find(|known| known.name == member).ok_or("NO_SUCH_MEMBER")?;
        if known.owner != Owner::Provider(conn) {
            return Err("NO_SUCH_MEMBER");
        }
        if matches!(known.state, State::Checking(_)) {
            (known.state, known.proved) = (State::Free, now);
            if known.hold.is_some() {
                let m = self.pools[p].at(member).expect("it is there");
                self.release_member(p, m);
            }
        }
        Ok("OK")
    }

    fn who(&self, conn: usize) -> String {
        self.conns[&conn].name.clone().unwrap_or(format!("client:{conn}"))
    }

    fn dead(&mut self, conn: usize, member: &str, text: Option<&&str>) -> Answer {
        let p = self.own_pool(conn).ok_or("NO_SUCH_MEMBER")?;
        let m = self.pools[p].at(member).ok_or("NO_SUCH_MEMBER")?;
        let known = &self.pools[p].members[m];
        let is_asked = matches!(known.state, State::Cleaning(by, _) if by == conn);
        let is_own = known.owner == Owner::Provider(conn);
        if !is_own && !is_asked && !self.conns[&conn].cleans {
            return Err("NO_SUCH_MEMBER");
        }
        let text = text.map_or(String::new(), |text| format!(": {text}"));
        match known.state {
            _ if is_asked && !is_own => self.cleaning_failed(p, m, conn, &text),
            State::Stopping(_) => {
                self.pools[p].members.remove(m);
            }
            State::Quarantined(_) => {}
            _ if known.owner == Owner::Fixed => {
                if let (State::Held(until), Some((since, out))) = (&known.state, &known.out) {
                    let rest = (until.saturating_sub(self.now), *since, out.clone());
                    self.pools[p].members[m].hold = Some(rest);
                }
                self.lose(p, m, "died");
                self.fail(p, m, (format!("dead{text}"), self.who(conn)));
            }
            _ => {
                self.lose(p, m, "died");
                self.die(p, m);
            }
        }
        Ok("OK")
    }

    fn cleaned(&mut self, conn: usize, member: &str) -> Answer {
        let c = &self.conns[&conn];
        if !c.provides && !c.cleans {
            return Err("NOT_PROVIDER");
        }
        let p = self.own_pool(conn).ok_or("NOT_PROVIDER")?;
        let m = self.pools[p].at(member).ok_or("NO_SUCH_MEMBER")?;
        if matches!(self.pools[p].members[m].state, State::Cleaning(by, _) if by == conn) {
            let now = self.now;
            self.pools[p].members[m].proved = now;
            self.release_member(p, m);
        }
        Ok("OK")
    }

    fn cleaning_failed(&mut self, p: usize, m: usize, conn: usize, text: &str) {
        let (now, by, limit) = (self.now, self.who(conn), self.pools[p].settings.clean_attempts);
        let member = &mut self.pools[p].members[m];
        let times = member.failures.0 + 1;
        member.failures = (times, Some(conn));
        if limit > 0 && times >= limit {
            return self.fail(p, m, (format!("cleaning failed{text}"), by));
        }
        let of = if limit > 0 { format!(" of {limit}") } else { String::new() };
        member.out = Some((now, (format!("cleaning failed ({times}{of}){text}"), by)));
        let after = match times {
            1 => 10,
            2 => 60,
            _ => 300,
        };
        member.state = State::CleanLater(now + after * SECOND);
    }

    /// Puts off the cleanings of a client that is lost.
    fn lose_cleanings(&mut self, p: usize, conn: usize) {
        let (until, by) = (self.now + 10 * SECOND, self.who(conn));
        let now = self.now;
        for member in &mut self.pools[p].members {
            if matches!(member.state, State::Cleaning(by, _) if by == conn) {
                let why = "its cleaner is lost; it is cleaned again".into();
                (member.state, member.out) = (State::CleanLater(until), Some((now, (why, by.clone()))));
            }
        }
    }

    fn cleaning(&mut self, conn: usize, member: &str) -> Answer {
        let c = &self.conns[&conn];
        if !c.provides && !c.cleans {
            return Err("NOT_PROVIDER");
        }
        let p = self.own_pool(conn).ok_or("NOT_PROVIDER")?;
        let m = self.pools[p].at(member).ok_or("NO_SUCH_MEMBER")?;
        let (now, clean_timeout) = (self.now, self.pools[p].settings.clean_timeout);
        let member = &mut self.pools[p].members[m];
        match member.state {
            State::Cleaning(by, _) if by == conn => Ok("OK"),
            State::Free | State::Unclean | State::CleanLater(_) if clean_timeout > 0 => {
                member.state = State::Cleaning(conn, Some(now + clean_timeout));
                Ok("OK")
            }
            _ => Ok("NOT_TAKEN"),
        }
    }

    fn offer(&mut self, conn: usize, name: &str, member: &str) -> Answer {
        let p = self.pool(name).filter(|p| !self.pools[*p].is_leaving).ok_or("NO_POOL")?;
        let c = &self.conns[&conn];
        if !c.provides || c.pool.as_deref() != Some(name) {
            return Err("NOT_PROVIDER");
        }
        let is_orphan = |m: &usize| matches!(self.pools[p].members[*m].owner, Owner::Orphan(..));
        if let Some(m) = self.pools[p].at(member).filter(is_orphan) {
            // It is the last one that the provider came by.
            let adopted = self.pools[p].members.remove(m);
            self.pools[p].members.push(Member { owner: Owner::Provider(conn), ..adopted });
            let m = self.pools[p].members.len() - 1;
            if self.pools[p].members[m].state == State::Orphaned {
                self.release_member(p, m);
            }
            return Ok("OK");
        }
        if self.pools[p].members.len() as u64 + self.starts_in(p) >= self.pools[p].settings.max {
            return Err("POOL_FULL");
        }
        if self.pools[p].at(member).is_some() {
            return Err("MEMBER_EXISTS");
        }
        self.enter(p, member, Owner::Provider(conn));
        Ok("OK")
    }

    fn add(&mut self, name: &str, member: &str) -> Answer {
        let p = self.pool(name).filter(|p| !self.pools[*p].is_leaving).ok_or("NO_POOL")?;
        if !self.providers(p).is_empty() || self.pools[p].members.iter().any(|member| member.owner != Owner::Fixed) {
            return Err("BAD_SYNTAX");
        }
        if self.pools[p].settings.check_interval > 0 {
            return Err("BAD_SYNTAX");
        }
        if self.pools[p].members.len() as u64 + self.starts_in(p) >= self.pools[p].settings.max {
            return Err("POOL_FULL");
        }
        if self.pools.iter().flat_map(|pool| &pool.members).any(|of| of.owner == Owner::Fixed && of.name == member) {
            return Err("MEMBER_EXISTS");
        }
        self.enter(p, member, Owner::Fixed);
        Ok("OK")
    }

    fn find(&self, pool: &str, member: &str) -> Result<(usize, usize), &'static str> {
        let p = self.pool(pool).ok_or("NO_POOL")?;
        Ok((p, self.pools[p].at(member).ok_or("NO_SUCH_MEMBER")?))
    }

    fn withdraw(&mut self, conn: usize, pool: &str, member: &str, now: bool) -> Answer {
        let (p, m) = self.find(pool, member)?;
        if self.pools[p].members[m].owner != Owner::Provider(conn) {
            return Err("NO_SUCH_MEMBER");
        }
        self.leave(p, m, now);
        Ok("OK")
    }

    fn delete(&mut self, pool: &str, member: &str, now: bool) -> Answer {
        let (p, m) = self.find(pool, member)?;
        if self.pools[p].members[m].owner != Owner::Fixed {
            return Err("NO_SUCH_MEMBER");
        }
        self.leave(p, m, now);
        Ok("OK")
    }

    fn leave(&mut self, p: usize, m: usize, now: bool) {
        if self.pools[p].members[m].state == State::InUse && !now {
            self.pools[p].members[m].is_leaving = true;
            return;
        }
        self.lose(p, m, "withdrawn");
        self.pools[p].members.remove(m);
    }

    fn repair(&mut self, pool: &str, member: &str, as_is: bool) -> Answer {
        let (p, m) = self.find(pool, member)?;
        match self.pools[p].members[m].state {
            State::Quarantined(_) | State::Unclean | State::CleanLater(_) if as_is => self.release_member(p, m),
            State::Quarantined(_) => self.come_back(p, m),
            _ => {}
        }
        Ok("OK")
    }

    fn hold(&mut self, conn: usize, pool: &str, member: &str, span: u64) -> Answer {
        let (p, m) = self.find(pool, member)?;
        let until = self.now + span;
        let (now, out) = (self.now, ("an operator holds it".into(), self.who(conn)));
        let known = &mut self.pools[p].members[m];
        match known.state {
            State::Free | State::Held(_) | State::Unclean | State::CleanLater(_) => {
                (known.state, known.out) = (State::Held(until), Some((now, out)));
            }
            State::Stopping(_) => {}
            _ => known.hold = Some((span, now, out)),
        }
        Ok("OK")
    }

    fn unhold(&mut self, pool: &str, member: &str) -> Answer {
        let (p, m) = self.find(pool, member)?;
        if matches!(self.pools[p].members[m].state, State::Held(_)) {
            self.come_back(p, m);
        }
        Ok("OK")
    }

    fn take_back(&mut self, conn: usize, number: u64) -> Answer {
        let Some(l) = self.leases.iter().position(|lease| lease.number == number) else { return Ok("NOT_TAKEN") };
        self.end_by(l, &format!("taken_back by={}", self.who(conn)), "an operator took it back");
        Ok("OK")
    }

    /// Ends a lease like the loss of a consumer, and notifies its holder.
    fn end_by(&mut self, l: usize, reason: &str, why: &'static str) {
        let (number, conn) = (self.leases[l].number, self.leases[l].conn);
        if let Some(conn) = conn {
            self.tell(conn, format!("!LOST {number} {reason}"));
        }
        self.lose_consumer(number, why);
    }

    fn reason(&self, p: usize) -> &'static str {
        let pool = &self.pools[p];
        let is_possible = (pool.members.len() as u64 + self.starts_in(p)) < pool.settings.max;
        let is_backing_off = |conn: &usize| self.conns[conn].backoff.ends.is_some() && self.room_of(p, *conn).0 > 0;
        let waits = is_possible && self.providers(p).iter().any(is_backing_off);
        if self.starts_in(p) + pool.checking() > 0 || waits {
            "NO_MEMBERS starting"
        } else if is_possible && self.providers(p).is_empty() && !pool.has_fixed() {
            "NO_MEMBERS no_provider"
        } else {
            "NO_MEMBERS at_capacity"
        }
    }

    fn take(&mut self, conn: usize, place: Place, words: &[&str]) -> Answer {
        let asked = Asked::read(words);
        if self.waiters.iter().any(|waiter| waiter.conn == conn) {
            return Err("WAITING");
        }
        let is_known = |pool: &Pool| match &place {
            Place::Pool(name) => pool.name == *name,
            Place::Group(group) => pool.settings.group == *group,
        };
        if !self.pools.iter().any(is_known) {
            return Err("NO_POOL");
        }
        let pools = self.pools_of(&place);
        if pools.is_empty() {
            return Ok("NO_MEMBERS removed");
        }
        if asked.members > pools.iter().map(|p| self.pools[*p].settings.max).sum() {
            return Err("TOO_MANY");
        }
        if asked.named.as_ref().is_some_and(|named| pools.iter().all(|p| self.pools[*p].at(named).is_none())) {
            return Err("NO_SUCH_MEMBER");
        }
        if self.is_limited(conn, &place, asked.members) {
            return Ok("LIMIT");
        }
        if let Some(found) = self.find_free(conn, &place, &asked, (asked.priority, u64::MAX), true) {
            self.serve(conn, &asked, &found);
            return Ok("");
        }
        if asked.timeout == 0 {
            self.ask(&place, &asked);
            let reasons: Vec<&str> = pools.iter().map(|p| self.reason(*p)).collect();
            let best = ["NO_MEMBERS starting", "NO_MEMBERS at_capacity", "NO_MEMBERS no_provider"];
            return Ok(best.into_iter().find(|reason| reasons.contains(reason)).expect("it is known"));
        }
        if pools.iter().all(|p| self.queued(*p) >= self.pools[*p].settings.queue) {
            return Ok("QUEUE_FULL");
        }
        self.wait(conn, place, asked);
        Ok("")
    }

    fn wait(&mut self, conn: usize, place: Place, asked: Asked) {
        self.arrivals += 1;
        self.waiters.push(Waiter {
            conn,
            place,
            want: if asked.named.is_some() { 0 } else { asked.members },
            priority: asked.priority,
            arrival: self.arrivals,
            since: self.now,
            until: self.now + asked.timeout,
            asked,
        });
    }

    fn queued(&self, p: usize) -> u64 {
        self.waiters.iter().filter(|waiter| self.waits_for(waiter, p)).count() as u64
    }

    fn waits_for(&self, waiter: &Waiter, p: usize) -> bool {
        match &waiter.place {
            Place::Group(group) => self.pools[p].settings.group == *group,
            Place::Pool(pool) => *pool == self.pools[p].name,
        }
    }

    /// Requests a start, unless one is under way that no waiter needs.
    fn ask(&mut self, place: &Place, asked: &Asked) {
        let pools = self.pools_of(place);
        let is_needed = match place {
            Place::Pool(_) => self.needed_by(pools[0]).is_some(),
            Place::Group(_) => pools.iter().map(|p| self.spare(*p)).sum::<u64>() <= self.want(place),
        };
        if asked.named.is_none() && is_needed {
            self.launch(place);
        }
    }

    fn is_limited(&self, conn: usize, place: &Place, members: u64) -> bool {
        let is_its = |pool: &&Pool| match place {
            Place::Pool(name) => pool.name == *name,
            Place::Group(group) => pool.settings.group == *group,
        };
        let pools: Vec<&Pool> = self.pools.iter().filter(is_its).collect();
        let limit = pools.iter().map(|pool| pool.settings.per_client).filter(|limit| *limit > 0).min();
        let is_held = |lease: &&Lease| lease.conn == Some(conn) && pools.iter().any(|pool| pool.name == lease.pool);
        let held = self.leases.iter().filter(is_held).count() as u64;
        limit.is_some_and(|limit| held + members > limit)
    }

    fn rank(&self, waiter: &Waiter) -> Rank {
        (if self.now >= waiter.since + AGED { 0 } else { waiter.priority }, waiter.arrival)
    }

    /// Returns the first waiter for several: it keeps what is free.
    fn reserving_waiter(&self, p: usize) -> Option<&Waiter> {
        let several = self.waiters.iter().filter(|waiter| waiter.asked.members > 1 && self.waits_for(waiter, p));
        several.min_by_key(|waiter| self.rank(waiter))
    }

    /// Returns free members for a take or a waiter of this rank, as pool and member, if there are as many as it asks for
    /// that are not kept for a waiter before it. A take has them from the pools with most.
    fn find_free(
        &self,
        conn: usize,
        place: &Place,
        asked: &Asked,
        rank: Rank,
        is_take: bool,
    ) -> Option<Vec<(usize, usize)>> {
        let is_kept = |p: usize| self.reserving_waiter(p).is_some_and(|first| self.rank(first) < rank);
        let served = self.hints.served.get(&conn);
        let seen = |p: usize| served.and_then(|pools| pools.iter().position(|pool| *pool == self.pools[p].name));
        let mut pools = self.pools_of(place);
        pools.sort_by_key(|p| {
            let free = if is_take || asked.members > 1 { self.pools[*p].free() } else { 0 };
            (u64::MAX - free, seen(*p).unwrap_or(usize::MAX))
        });
        let mut found = Vec::new();
        for p in pools.into_iter().filter(|p| !is_kept(*p)) {
            let Pool { members, settings, .. } = &self.pools[p];
            let is_meant = |m: &usize| {
                members[*m].state == State::Free && asked.named.as_ref().is_none_or(|named| *named == members[*m].name)
            };
            let mut free: Vec<usize> = (0..members.len()).filter(is_meant).collect();
            free.sort_by_key(|m| if settings.is_fifo { members[*m].freed } else { u64::MAX - members[*m].freed });
            found.extend(free.into_iter().map(|m| (p, m)));
        }
        found.truncate(asked.members as usize);
        (found.len() as u64 == asked.members).then_some(found)
    }

    fn serve(&mut self, conn: usize, asked: &Asked, found: &[(usize, usize)]) {
        let mut lines = Vec::new();
        for (p, m) in found.iter().copied() {
            self.pools[p].members[m].state = State::InUse;
            self.pools[p].members[m].uses += 1;
            let (name, member) = (self.pools[p].name.clone(), self.pools[p].members[m].name.clone());
            let seen = self.hints.leases.remove(&(conn, name.clone(), member.clone()));
            let number = next(&mut self.leased, seen.map(|(number, _)| number));
            let mut line = format!("MEMBER {number} {name} {member}");
            let token = asked.lease.map(|span| {
                let token = next(&mut self.tokens, seen.and_then(|(_, token)| token));
                line += &format!(" token=${token}");
                (token, span, self.now + span)
            });
            lines.push(line);
            let holder = self.conns[&conn].name.clone().unwrap_or(format!("client:{conn}"));
            self.leases.push(Lease { number, conn: Some(conn), pool: name, member, since: self.now, holder, token });
            let pool = &mut self.pools[p];
            if pool.settings.grow_at.is_some_and(|grow_at| pool.free() + pool.checking() <= grow_at) {
                pool.growth = pool.settings.init.max(1);
            }
        }
        if asked.counted {
            lines.insert(0, format!("MEMBERS {}", asked.members));
        }
        self.tell(conn, lines.join("\n"));
    }

    fn give_back(&mut self, conn: usize, lease: &str, is_failed: bool) -> Answer {
        let found = match lease.strip_prefix('$') {
            Some(token) => {
                let token: u64 = token.parse().expect("a number");
                self.leases.iter().find(|lease| lease.token.is_some_and(|(known, ..)| known == token))
            }
            None => {
                let number: u64 = lease.parse().expect("a number");
                self.leases.iter().find(|lease| lease.number == number && lease.conn == Some(conn))
            }
        };
        let Some(number) = found.map(|lease| lease.number) else { return Ok("NOT_TAKEN") };
        if is_failed {
            let (p, m, holder) = self.end_lease(number);
            self.fail(p, m, ("returned as failed".into(), holder));
        } else {
            self.come_back_ok(number);
        }
        Ok("RETURNED")
    }

    fn renew(&mut self, conn: usize, token: &str, span: Option<u64>) -> Answer {
        let token: u64 = token[1..].parse().expect("a number");
        let is_named = |lease: &Lease| !lease.holder.starts_with("client:");
        for lease in &mut self.leases {
            if let Some((known, usual, until)) = &mut lease.token
                && *known == token
            {
                *until = self.now + span.unwrap_or(*usual);
                if !is_named(lease) {
                    lease.holder = format!("client:{conn}");
                }
                lease.conn = Some(conn);
                return Ok("RENEWED");
            }
        }
        Ok("NOT_TAKEN")
    }

    fn held_by(&self, conn: usize, with_token: bool) -> Vec<u64> {
        let mine = self.leases.iter().filter(|lease| lease.conn == Some(conn) && (with_token || lease.token.is_none()));
        mine.map(|lease| lease.number).collect()
    }

    fn end_lease(&mut self, number: u64) -> (usize, usize, String) {
        let at = self.leases.iter().position(|lease| lease.number == number).expect("it was found");
        let lease = self.leases.remove(at);
        let p = self.pool(&lease.pool).expect("a lease is of a pool");
        let m = self.pools[p].at(&lease.member).expect("and of a member");
        self.pools[p].members[m].since = self.now;
        self.pools[p].members[m].proved = self.now;
        (p, m, lease.holder)
    }

    fn come_back_ok(&mut self, number: u64) {
        let (p, m, _) = self.end_lease(number);
        self.come_back(p, m);
    }

    /// Returns a member to its pool as it was.
    fn come_back(&mut self, p: usize, m: usize) {
        let Some(m) = self.check_usable(p, m) else { return };
        if self.pools[p].settings.clean_timeout > 0 {
            let now = self.now;
            let member = &mut self.pools[p].members[m];
            if let Some((span, _, out)) = member.hold.take() {
                (member.state, member.out) = (State::Held(now + span), Some((now, out)));
            } else {
                (member.state, member.since, member.failures) = (State::Unclean, now, (0, None));
            }
            return;
        }
        self.release_member(p, m);
    }

    /// Returns the member if it may stay; otherwise it is stopped or removed.
    fn check_usable(&mut self, p: usize, m: usize) -> Option<usize> {
        let pool = &self.pools[p];
        let member = &pool.members[m];
        let name = member.name.clone();
        if member.is_leaving {
            self.pools[p].members.remove(m);
            return None;
        }
        if pool.is_leaving {
            self.stop(p, &name, false);
            return None;
        }
        if member.owner == Owner::Fixed {
            return Some(m);
        }
        if pool.live() > pool.settings.max {
            self.stop(p, &name, false);
            return None;
        }
        let settings = &pool.settings;
        let is_old = settings.max_lifetime > 0 && self.now >= member.born + settings.max_lifetime;
        let is_used = settings.max_uses > 0 && member.uses >= settings.max_uses;
        if is_old || is_used {
            self.stop(p, &name, true);
            return None;
        }
        Some(m)
    }

    fn release_member(&mut self, p: usize, m: usize) {
        let Some(m) = self.check_usable(p, m) else { return };
        let now = self.now;
        let member = &mut self.pools[p].members[m];
        if matches!(member.owner, Owner::Orphan(..)) {
            member.state = State::Orphaned;
        } else if let Some((span, _, out)) = member.hold.take() {
            (member.state, member.out) = (State::Held(now + span), Some((now, out)));
        } else {
            self.free(p, m);
        }
    }

    fn fail(&mut self, p: usize, m: usize, out: Out) {
        let member = &self.pools[p].members[m];
        let name = member.name.clone();
        if member.is_leaving {
            self.pools[p].members.remove(m);
        } else if member.owner == Owner::Fixed && !self.pools[p].is_leaving {
            self.quarantine(p, m, out);
        } else {
            self.stop(p, &name, true);
        }
    }

    fn quarantine(&mut self, p: usize, m: usize, out: Out) {
        let after = self.pools[p].settings.repair_after;
        let until = (after > 0).then_some(self.now + after);
        let member = &mut self.pools[p].members[m];
        (member.state, member.out) = (State::Quarantined(until), Some((self.now, out)));
    }

    fn lose_consumer(&mut self, number: u64, why: &'static str) {
        let (p, m, holder) = self.end_lease(number);
        let is_orphan = matches!(self.pools[p].members[m].owner, Owner::Orphan(..));
        if !self.pools[p].settings.is_loss_ok || is_orphan {
            return self.fail(p, m, (why.into(), holder));
        }
        if self.pools[p].settings.loss_delay == 0 {
            return self.come_back(p, m);
        }
        let Some(m) = self.check_usable(p, m) else { return };
        let until = self.now + self.pools[p].settings.loss_delay;
        let member = &mut self.pools[p].members[m];
        (member.state, member.out) = (State::Delayed(until), Some((self.now, (why.into(), holder))));
    }

    /// Ends the lease of a member, if there is one, and notifies its holder. Returns the name of the holder.
    fn lose(&mut self, p: usize, m: usize, reason: &str) -> String {
        let (pool, member) = (self.pools[p].name.clone(), self.pools[p].members[m].name.clone());
        let at = self.leases.iter().position(|lease| lease.pool == pool && lease.member == member);
        if let Some(lease) = at.map(|at| self.leases.remove(at)) {
            if let Some(conn) = lease.conn {
                self.tell(conn, format!("!LOST {} {reason}", lease.number));
            }
            self.pools[p].members[m].since = self.now;
            return lease.holder;
        }
        String::new()
    }

    /// Stops a member, or removes it if it has no provider.
    fn stop(&mut self, p: usize, member: &str, is_replaced: bool) {
        let m = self.pools[p].at(member).expect("it is there");
        let until = self.now + self.pools[p].settings.stop_timeout;
        let pool = &mut self.pools[p];
        if matches!(pool.members[m].state, State::Stopping(_)) {
            return;
        }
        match pool.members[m].owner.clone() {
            Owner::Provider(conn) => {
                pool.members[m].state = State::Stopping(until);
                let line = format!("!STOP {} {member}", pool.name);
                self.tell(conn, line);
            }
            _ => {
                pool.members.remove(m);
            }
        }
        if is_replaced {
            self.owe(p);
        }
    }

    /// Counts a member to be replaced, unless there are too many at this moment.
    fn owe(&mut self, p: usize) {
        let slots = self.pools[p].members.len() as u64 + self.starts_in(p);
        self.pools[p].owed += u64::from(slots <= self.pools[p].settings.max);
    }

    /// Ends a wait. Members kept for it go to other waiters before those that the client held come back.
    fn leave_wait(&mut self, conn: usize) {
        self.waiters.retain(|waiter| waiter.conn != conn);
        self.serve_waiters();
    }

    /// Handles the end of a connection.
    pub fn close(&mut self, conn: usize) {
        if !self.conns.contains_key(&conn) {
            return;
        }
        self.leave_wait(conn);
        self.end_leases(conn);
        if let Some(p) = self.own_pool(conn) {
            self.lose_agent(p, conn);
        }
        self.starts.retain(|start| start.conn != conn);
        self.out.retain(|(told, _)| *told != conn);
        self.conns.remove(&conn);
        self.settle();
    }

    /// Ends the leases of a closed connection. Leases with a token outlive it.
    fn end_leases(&mut self, conn: usize) {
        for number in self.held_by(conn, true) {
            let lease = self.leases.iter_mut().find(|lease| lease.number == number).expect("it is held");
            if lease.token.is_some() {
                lease.conn = None;
            } else {
                self.lose_consumer(number, "lost");
            }
        }
    }

    fn lose_agent(&mut self, p: usize, conn: usize) {
        self.lose_cleanings(p, conn);
        let Conn { session, cleans, backoff, .. } = std::mem::take(self.conns.get_mut(&conn).expect("it is known"));
        if let Some(session) = &session {
            // It goes with the last of its members.
            self.lost.insert((self.pools[p].name.clone(), session.clone()), Lost { cleans, backoff });
        }
        self.starts.retain(|start| start.conn != conn);
        let grace = self.pools[p].settings.provider_grace;
        for name in self.names_in(p) {
            let m = self.pools[p].at(&name).expect("it is there");
            let member = &mut self.pools[p].members[m];
            if member.owner != Owner::Provider(conn) {
                continue;
            }
            if grace > 0 && !matches!(member.state, State::Stopping(_)) && !self.pools[p].is_leaving {
                let member = &mut self.pools[p].members[m];
                member.owner = Owner::Orphan(self.now + grace, session.clone());
                member.lost = (self.now, format!("client:{conn}"));
                if matches!(member.state, State::Free | State::Checking(_)) {
                    member.state = State::Orphaned;
                }
            } else {
                self.lose(p, m, "provider_lost");
                self.pools[p].members.remove(m);
            }
        }
    }

    /// Returns the due events, with their times.
    pub fn deadlines(&self) -> Vec<(u64, Kind)> {
        let (mut all, mut graces) = (Vec::new(), BTreeSet::new());
        for waiter in &self.waiters {
            all.push((waiter.until, Kind::Wait));
            if waiter.priority > 0 && waiter.since + AGED > self.now {
                all.push((waiter.since + AGED, Kind::Aged));
            }
        }
        all.extend(self.starts.iter().map(|start| (start.until, Kind::Start)));
        for pool in &self.pools {
            all.extend(pool.cull_at.map(|at| (at, Kind::Cull)));
            for member in &pool.members {
                all.extend(self.end_of_stage(pool, member).map(|at| (at, Kind::Stage)));
                let is_watched = pool.settings.max_lifetime > 0 && member.owner != Owner::Fixed;
                if is_watched && member.state == State::Free {
                    all.push((member.born + pool.settings.max_lifetime, Kind::Life));
                }
                // A provider's members have one grace.
                if let Owner::Orphan(until, _) = member.owner {
                    graces.insert(until);
                }
            }
        }
        all.extend(graces.into_iter().map(|until| (until, Kind::Grace)));
        all.extend(self.leases.iter().filter_map(|lease| self.end_of(lease)).map(|(at, _)| (at, Kind::Lease)));
        all
    }

    fn end_of(&self, lease: &Lease) -> Option<(u64, &'static str)> {
        let p = self.pool(&lease.pool)?;
        let max_hold = self.pools[p].settings.max_hold;
        let held = (max_hold > 0).then_some((lease.since + max_hold, "held_too_long"));
        let token = lease.token.map(|(_, _, until)| (until, "expired"));
        held.into_iter().chain(token).min()
    }

    fn end_of_stage(&self, pool: &Pool, member: &Member) -> Option<u64> {
        let settings = &pool.settings;
        let is_checked = settings.check_interval > 0 && member.owner != Owner::Fixed;
        match member.state {
            State::Free => is_checked.then_some(member.proved + settings.check_interval),
            State::Checking(at)
            | State::Stopping(at)
            | State::CleanLater(at)
            | State::Held(at)
            | State::Delayed(at) => Some(at),
            State::Quarantined(at) | State::Cleaning(_, at) => at,
            State::InUse | State::Unclean | State::Orphaned => None,
        }
    }

    /// Returns the earliest and latest end of each backoff.
    pub fn backoffs(&self) -> impl Iterator<Item = (u64, u64)> {
        let lost = self.lost.values().map(|lost| &lost.backoff);
        self.conns.values().map(|conn| &conn.backoff).chain(lost).filter_map(|backoff| backoff.ends)
    }

    /// Passes over to another process, which has the members by name, and resumes those of a provider in this order.
    pub fn upgrade(&mut self) {
        for pool in &mut self.pools {
            pool.members.sort_by(|one, other| one.name.cmp(&other.name));
        }
        self.settle();
    }

    /// Advances to a time, and handles all due events.
    pub fn tick(&mut self, now: u64) {
        self.now = now;
        // Backoffs that end at once do so one after another, in the order of the starts that follow.
        let mut over: Vec<(u64, usize)> = Vec::new();
        for (id, conn) in &self.conns {
            let Some((low, high)) = conn.backoff.ends else { continue };
            let first = self.hints.starts.iter().find(|(_, (asked, _))| asked == id).map(|(number, _)| *number);
            over.extend((now >= high || first.is_some() && now >= low).then_some((first.unwrap_or(u64::MAX), *id)));
        }
        over.sort_unstable();
        for (_, id) in over {
            self.conns.get_mut(&id).expect("it is known").backoff.ends = None;
            self.settle();
        }
        for lost in self.lost.values_mut() {
            lost.backoff.ends = lost.backoff.ends.filter(|(_, high)| now < *high);
        }
        while let Some((_, kind)) = self.deadlines().into_iter().filter(|(at, _)| *at <= now).min() {
            if std::env::var_os("SIM_TRACE").is_some() {
                println!("at {}ms: {kind:?}", now / 1_000);
            }
            self.fire(kind);
            self.settle();
        }
        self.settle();
    }

    fn fire(&mut self, kind: Kind) {
        let now = self.now;
        match kind {
            Kind::Wait => {
                let at = self.waiters.iter().position(|waiter| waiter.until <= now).expect("one is due");
                let waiter = self.waiters.remove(at);
                self.tell(waiter.conn, "NO_MEMBERS timeout");
            }
            Kind::Aged => {
                let is_due = |waiter: &&mut Waiter| waiter.priority > 0 && waiter.since + AGED <= now;
                self.waiters.iter_mut().filter(is_due).for_each(|waiter| waiter.priority = 0);
            }
            Kind::Start => {
                let at = self.starts.iter().position(|start| start.until <= now).expect("one is due");
                let start = self.starts.remove(at);
                let p = self.pool(&start.pool).expect("it is known");
                self.back_off(p, &Owner::Provider(start.conn));
            }
            Kind::Stage => self.end_stage(),
            Kind::Life => {
                let is_due = |pool: &Pool, member: &Member| {
                    pool.settings.max_lifetime > 0
                        && member.owner != Owner::Fixed
                        && member.state == State::Free
                        && member.born + pool.settings.max_lifetime <= now
                };
                let (p, m) = self.first(is_due);
                let name = self.pools[p].members[m].name.clone();
                self.stop(p, &name, true);
            }
            Kind::Lease => {
                let due = |lease: &Lease| self.end_of(lease).is_some_and(|(at, _)| at <= now);
                let l = self.leases.iter().position(due).expect("one is due");
                let (_, reason) = self.end_of(&self.leases[l]).expect("it is due");
                if reason == "expired" {
                    return self.end_by(l, reason, "its lease ran out");
                }
                let (p, m) = self.place_of(l);
                let holder = self.lose(p, m, reason);
                self.fail(p, m, ("held for longer than max_hold".into(), holder));
            }
            Kind::Grace => {
                let (p, m) = self.first(|_, member| matches!(member.owner, Owner::Orphan(until, _) if until <= now));
                self.lose(p, m, "provider_lost");
                self.pools[p].members.remove(m);
            }
            Kind::Cull => self.cull(),
        }
    }

    fn place_of(&self, l: usize) -> (usize, usize) {
        let p = self.pool(&self.leases[l].pool).expect("a lease is of a pool");
        (p, self.pools[p].at(&self.leases[l].member).expect("and of a member"))
    }

    fn first(&self, is_meant: impl Fn(&Pool, &Member) -> bool) -> (usize, usize) {
        let places = (0..self.pools.len()).flat_map(|p| (0..self.pools[p].members.len()).map(move |m| (p, m)));
        let mut due = places.filter(|(p, m)| is_meant(&self.pools[*p], &self.pools[*p].members[*m]));
        due.next().expect("one is due")
    }

    fn end_stage(&mut self) {
        let now = self.now;
        let (p, m) = self.first(|pool, member| self.end_of_stage(pool, member).is_some_and(|at| at <= now));
        let pool = self.pools[p].name.clone();
        let check_timeout = self.pools[p].settings.check_timeout;
        let member = &mut self.pools[p].members[m];
        let name = member.name.clone();
        match member.state {
            State::Free => {
                let Owner::Provider(conn) = member.owner else { panic!("only a provider is asked") };
                member.state = State::Checking(now + check_timeout);
                self.tell(conn, format!("!CHECK {pool} {name}"));
            }
            State::Checking(_) => self.die(p, m),
            State::Stopping(_) => _ = self.pools[p].members.remove(m),
            State::Cleaning(by, _) => {
                member.state = State::Cleaning(by, None);
                let (who, span) = (self.who(by), said(self.pools[p].settings.clean_timeout));
                let why = format!("cleaning takes longer than {span} s; {who} is still at it");
                self.pools[p].members[m].out = Some((now, (why, who)));
            }
            State::CleanLater(_) => {
                if let Some(m) = self.check_usable(p, m) {
                    self.pools[p].members[m].state = State::Unclean;
                }
            }
            State::Delayed(_) | State::Quarantined(_) | State::Held(_) => self.come_back(p, m),
            State::InUse | State::Unclean | State::Orphaned => unreachable!("they have no end"),
        }
    }

    fn cull(&mut self) {
        let now = self.now;
        let p = self.pools.iter().position(|pool| pool.cull_at.is_some_and(|at| at <= now)).expect("one is due");
        self.pools[p].cull_at = Some(now + self.pools[p].settings.cull_interval);
        loop {
            let pool = &self.pools[p];
            let total = pool.live();
            let free = pool.free() + pool.checking();
            if total <= pool.settings.init || free <= pool.settings.min_free {
                return;
            }
            let is_old = |member: &&Member| {
                member.state == State::Free
                    && member.owner != Owner::Fixed
                    && now - member.since > pool.settings.max_age
            };
            let Some(oldest) = pool.members.iter().filter(is_old).min_by_key(|member| member.freed) else { return };
            let name = oldest.name.clone();
            self.stop(p, &name, false);
        }
    }

    /// Handles all immediate consequences.
    fn settle(&mut self) {
        for p in 0..self.pools.len() {
            self.stop_surplus(p);
            self.serve_waiters();
            self.clean_next(p);
            self.meet_demand(p);
        }
        let groups: BTreeSet<String> = self.pools.iter().map(|pool| pool.settings.group.clone()).collect();
        groups.into_iter().map(Place::Group).for_each(|group| while self.lacks_for(&group) && self.launch(&group) {});
        let gone: Vec<String> = (self.pools.iter())
            .filter(|pool| pool.is_leaving && pool.members.is_empty())
            .map(|pool| pool.name.clone())
            .collect();
        for conn in self.conns.values_mut().filter(|conn| conn.pool.as_ref().is_some_and(|pool| gone.contains(pool))) {
            (conn.pool, conn.provides, conn.cleans) = (None, false, false);
            (conn.backoff, conn.session) = (Backoff::default(), None);
        }
        self.pools.retain(|pool| !gone.contains(&pool.name));
        let pools = &self.pools;
        self.lost.retain(|(pool, session), _| {
            let members = pools.iter().filter(|of| of.name == *pool).flat_map(|of| &of.members);
            let is_its =
                |member: &Member| matches!(&member.owner, Owner::Orphan(_, of) if of.as_ref() == Some(session));
            members.into_iter().any(is_its)
        });
    }

    fn stop_surplus(&mut self, p: usize) {
        loop {
            let pool = &self.pools[p];
            if pool.live() <= pool.settings.max {
                return;
            }
            let free = pool.members.iter().filter(|member| member.state == State::Free && member.owner != Owner::Fixed);
            let Some(oldest) = free.min_by_key(|member| member.freed) else { return };
            let name = oldest.name.clone();
            self.stop(p, &name, false);
        }
    }

    /// Gives free members to waiters, first come first.
    fn serve_waiters(&mut self) {
        let mut order: Vec<Rank> = self.waiters.iter().map(|waiter| self.rank(waiter)).collect();
        order.sort_unstable();
        for rank in order {
            let w = self.waiters.iter().position(|waiter| self.rank(waiter) == rank).expect("it waits");
            let Waiter { conn, place, asked, .. } = &self.waiters[w];
            if let Some(found) = self.find_free(*conn, place, asked, rank, false) {
                let Waiter { conn, asked, .. } = self.waiters.remove(w);
                self.serve(conn, &asked, &found);
            }
        }
    }

    fn clean_next(&mut self, p: usize) {
        loop {
            let pool = &self.pools[p];
            let busy = pool.count(|member| matches!(member.state, State::Cleaning(..)));
            let unclean = (0..pool.members.len()).filter(|m| pool.members[*m].state == State::Unclean);
            // Any of the members that came back at once, as those of a lost consumer do, may be the first.
            let is_seen = |m: usize| self.hints.cleans.contains_key(&(pool.name.clone(), pool.members[m].name.clone()));
            let Some(m) = unclean.min_by_key(|m| (pool.members[*m].since, !is_seen(*m))) else { return };
            if busy >= pool.settings.clean_parallel && pool.settings.clean_timeout > 0 {
                return;
            }
            let here = |conn: &&(usize, bool)| conn.1;
            let name = pool.name.clone();
            let of_pool: Vec<(usize, bool)> = self
                .conns
                .iter()
                .filter(|(_, conn)| conn.pool.as_ref() == Some(&name))
                .map(|(id, conn)| (*id, conn.cleans))
                .collect();
            let owner = match pool.members[m].owner {
                Owner::Provider(conn) => of_pool.iter().map(|(id, _)| *id).find(|id| *id == conn),
                _ => None,
            };
            let cleaners: Vec<usize> = of_pool.iter().filter(here).map(|(id, _)| *id).collect();
            // The cleaner that has failed last is asked only if there is no other.
            let failed = pool.members[m].failures.1;
            let cleaners = if cleaners.len() > 1 {
                cleaners.into_iter().filter(|by| Some(*by) != failed).collect()
            } else {
                cleaners
            };
            let able = match (cleaners.is_empty(), owner) {
                (false, _) => cleaners,
                (true, Some(owner)) => vec![owner],
                (true, None) => of_pool.iter().map(|(id, _)| *id).collect(),
            };
            let key = (name.clone(), pool.members[m].name.clone());
            let asked = self.hints.cleans.get(&key);
            let seen = able.iter().copied().find(|by| asked.is_some_and(|asked| asked.contains(by)));
            let Some(by) = seen.or(able.first().copied()) else { return };
            let until = self.now + pool.settings.clean_timeout;
            let member = &mut self.pools[p].members[m];
            member.state = State::Cleaning(by, Some(until));
            let line = format!("!CLEAN {name} {}", member.name);
            self.tell(by, line);
        }
    }

    fn meet_demand(&mut self, p: usize) {
        let growth = std::mem::take(&mut self.pools[p].growth);
        if self.pools[p].is_leaving {
            self.pools[p].owed = 0;
            return;
        }
        loop {
            let (starts, pool) = (self.starts_in(p), &mut self.pools[p]);
            let max = pool.settings.max;
            let is_crowded = pool.members.len() as u64 + starts > max;
            pool.owed = if is_crowded { 0 } else { pool.owed.min(max.saturating_sub(pool.live())) };
            if self.lacks(p, growth) == 0 || !self.launch(&Place::Pool(self.pools[p].name.clone())) {
                return;
            }
        }
    }

    /// Returns the number of starts that are missing.
    fn lacks(&self, p: usize, growth: u64) -> u64 {
        let (pool, starts) = (&self.pools[p], self.starts_in(p));
        let lacks = [
            pool.settings.init.saturating_sub(pool.live() + starts),
            self.need(p).saturating_sub(pool.checking() + starts),
            pool.settings.min_free.saturating_sub(pool.free() + pool.checking() + starts),
            growth.saturating_sub(starts),
            pool.owed,
        ];
        lacks.into_iter().max().unwrap_or(0)
    }

    /// Starts one member in a pool, or in a pool of a group, if that is possible.
    fn launch(&mut self, place: &Place) -> bool {
        let slots = |p: usize| self.pools[p].members.len() as u64 + self.starts_in(p);
        let open = self.pools_of(place).into_iter().filter(|p| slots(*p) < self.pools[*p].settings.max);
        let all = open.flat_map(|p| self.providers(p).into_iter().map(move |conn| (p, conn)));
        let is_able =
            |(p, conn): &(usize, usize)| self.room_of(*p, *conn).0 > 0 && self.conns[conn].backoff.ends.is_none();
        let able: Vec<(usize, usize)> = all.filter(is_able).collect();
        let is_best = |(p, conn): &(usize, usize)| {
            let (room, capacity) = self.room_of(*p, *conn);
            able.iter().all(|(p, other)| {
                let (other_room, other_capacity) = self.room_of(*p, *other);
                room * other_capacity >= other_room * capacity
            })
        };
        let best: Vec<(usize, usize)> = able.iter().copied().filter(is_best).collect();
        // Pools that start in one step do so in any order.
        let is_new = |(number, _): &(&u64, &(usize, String))| !self.numbers.contains(number);
        let is_allowed =
            |(conn, name): &(usize, String)| best.contains(&(self.pool(name).expect("it is known"), *conn));
        let hinted = self.hints.starts.iter().filter(is_new).find(|(_, start)| is_allowed(start));
        let seen = hinted.map(|(number, (conn, name))| (*number, (self.pool(name).expect("it is known"), *conn)));
        let next = self.numbers.len() as u64 + 1;
        let Some((number, (p, conn))) = seen.or(best.first().map(|first| (next, *first))) else { return false };
        let name = self.pools[p].name.clone();
        let until = self.now + self.pools[p].settings.start_timeout;
        self.numbers.insert(number);
        self.tell(conn, format!("!START {name} {number}"));
        self.starts.push(Start { number, conn, pool: name, until });
        self.pools[p].owed = self.pools[p].owed.saturating_sub(1);
        true
    }

    /// Returns the number of members that a provider may still be asked to start, and its capacity.
    fn room_of(&self, p: usize, conn: usize) -> (u64, u64) {
        let pool = &self.pools[p];
        let capacity = self.conns[&conn].capacity.unwrap_or(pool.settings.max);
        let own = pool.count(|member| member.owner == Owner::Provider(conn));
        let starts = self.starts.iter().filter(|start| start.conn == conn).count() as u64;
        (capacity.saturating_sub(own + starts), capacity)
    }

    /// Returns the number of takes that wait for a group.
    pub fn waits_for_groups(&self) -> usize {
        self.waiters.iter().filter(|waiter| matches!(waiter.place, Place::Group(_))).count()
    }

    /// Returns whether starts, leases and tokens were numbered from 1 on, without a gap.
    pub fn has_all_numbers(&self) -> bool {
        let is_whole = |given: &BTreeSet<u64>| given.last().is_none_or(|last| *last == given.len() as u64);
        [&self.numbers, &self.leased, &self.tokens].into_iter().all(is_whole)
    }

    /// Returns the state as in the replies to `POOLS` and `MEMBERS`, without times of idleness.
    pub fn picture(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut pools: Vec<&Pool> = self.pools.iter().collect();
        pools.sort_by_key(|pool| pool.name.clone());
        for pool in pools {
            let p = self.pool(&pool.name).expect("it is one of them");
            let group = if pool.settings.group.is_empty() { "-" } else { &pool.settings.group };
            let quarantined = |member: &Member| {
                matches!(member.state, State::Quarantined(_) | State::Held(_) | State::Delayed(_) | State::Orphaned)
            };
            let queued = self.queued(p);
            lines.push(format!(
                "{} {group} max {} in_use {} free {} starting {} stopping {} cleaning {} quarantined {} queued {queued} queue_max {}{}",
                pool.name,
                pool.settings.max,
                pool.count(|member| member.state == State::InUse),
                pool.free() + pool.checking(),
                self.starts_in(p),
                pool.count(|member| matches!(member.state, State::Stopping(_))),
                pool.count(|member| matches!(member.state, State::Unclean | State::Cleaning(..) | State::CleanLater(_))),
                pool.count(quarantined),
                pool.settings.queue,
                if pool.is_leaving { " removing 1" } else { "" },
            ));
        }
        let mut pools: Vec<&Pool> = self.pools.iter().collect();
        pools.sort_by_key(|pool| pool.name.clone());
        for pool in pools {
            let mut members: Vec<&Member> = pool.members.iter().collect();
            members.sort_by_key(|member| member.name.clone());
            lines.extend(members.iter().map(|member| self.row(pool, member)));
        }
        lines
    }

    fn row(&self, pool: &Pool, member: &Member) -> String {
        let state = match member.state {
            State::Free => "free",
            State::Checking(_) => "checking",
            State::InUse => "in_use",
            State::Stopping(_) => "stopping",
            State::Unclean | State::Cleaning(..) | State::CleanLater(_) => "cleaning",
            State::Quarantined(_) => "quarantined",
            State::Held(_) => "held",
            State::Delayed(_) => "delayed",
            State::Orphaned => "orphaned",
        };
        let lease = self.leases.iter().find(|lease| lease.pool == pool.name && lease.member == member.name);
        let since = |at: u64| {
            let ms = (self.now - at) / 1_000;
            format!("{}.{:03}", ms / 1_000, ms % 1_000)
        };
        let lost = || (member.lost.0.max(member.since), ("its provider is lost".into(), member.lost.1.clone()));
        let has_cleaner = self.pool(&pool.name).is_some_and(|p| self.has_agent(p));
        let out: Option<(u64, Out)> = match member.state {
            State::Quarantined(_)
            | State::Held(_)
            | State::Delayed(_)
            | State::Cleaning(_, None)
            | State::CleanLater(_) => member.out.clone(),
            State::InUse => member.hold.clone().map(|(_, since, out)| (since, out)),
            State::Unclean if !has_cleaner => {
                Some((member.since, ("waits for a cleaner; none is connected".into(), "-".into())))
            }
            State::Orphaned => Some(lost()),
            _ => None,
        };
        let mut more =
            lease.map_or(String::new(), |lease| format!(" held={} lease={}", since(lease.since), lease.number));
        if let Some((_, _, until)) = lease.and_then(|lease| lease.token) {
            let ms = (until - self.now) / 1_000;
            more += &format!(" expires={}.{:03}", ms / 1_000, ms % 1_000);
        }
        if let Some((at, (why, by))) = out {
            more += &format!(" why={} by={by} since={}", why.replace(' ', "%20"), since(at));
        }
        let holder = lease.map_or("-", |lease| &lease.holder);
        format!("{} {state} {holder} {} {}{more}", member.name, since(member.born), member.uses)
    }
}

/// Position of a waiter in the order: lower comes first.
type Rank = (u64, u64);

/// Nothing, a reply, or the code of an error.
type Answer = Result<&'static str, &'static str>;

/// Options of a take.
#[derive(Clone)]
struct Asked {
    timeout: u64,
    members: u64,
    counted: bool,
    named: Option<String>,
    priority: u64,
    lease: Option<u64>,
}

impl Asked {
    fn read(words: &[&str]) -> Asked {
        let mut asked = Asked { timeout: 0, members: 1, counted: false, named: None, priority: 5, lease: None };
        for word in words {
            match word.split_once('=') {
                None => asked.timeout = seconds(word),
                Some(("n", n)) => (asked.members, asked.counted) = (n.parse().expect("a number"), true),
                Some(("member", name)) => asked.named = Some(name.into()),
                Some(("pri", pri)) => asked.priority = pri.parse().expect("a number"),
                Some(("lease", span)) => asked.lease = Some(seconds(span)),
                Some(_) => panic!("{word}"),
            }
        }
        asked
    }
}
