//! Naive model of pools whose members have providers, line by line: plain tables, every question answered by looking at
//! everything. It was written from the protocol's page and shares no code with the daemon.
//!
//! It does not know fixed members, cleanings, holds and tokens: random histories against the promises about them are in
//! `tests/protocol/members/promises.rs`. Settings and requests that only add a reason for a start or a stop are proved by
//! conversations.
//!
//! The page leaves some choices open: which of several equal providers is asked, which of several equal pools of a
//! group serves, which of the members that came free in one step is first, when exactly a backoff ends, and in which
//! order several waiters are served at once. The model takes these from the daemon's behaviour, if they are allowed.
//! Lines that one step sends to one client have no order, except within a reply of several lines, which is one piece here.

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

/// Names of a pool and of a member or a session.
pub type Key = (String, String);

/// Observed choices of the daemon in the step that the model takes next.
#[derive(Default)]
pub struct Hints {
    /// Provider and pool of each start, by its number.
    pub starts: BTreeMap<u64, (usize, String)>,
    /// Number of each lease, by client and member.
    pub leases: BTreeMap<(usize, Key), u64>,
    /// Members whose providers were asked to stop them.
    pub stops: BTreeSet<Key>,
}

/// The service.
#[derive(Default)]
pub struct Members {
    pub now: u64,
    pools: BTreeMap<String, Pool>,
    members: BTreeMap<Key, Member>,
    conns: BTreeMap<usize, Conn>,
    waiters: Vec<Waiter>,
    leases: BTreeMap<u64, Lease>,
    starts: BTreeMap<u64, Start>,
    /// Numbers of all starts so far.
    numbers: BTreeSet<u64>,
    arrivals: u64,
    /// Number of steps so far, for the order in which members came free.
    steps: u64,
    /// Backoffs of the sessions of providers that are lost and in their grace.
    lost: BTreeMap<Key, Backoff>,
    /// Connections that were replaced by other connections of the same session.
    pub replaced: Vec<usize>,
    pub hints: Hints,
    /// Replies, by client.
    pub out: Vec<(usize, String)>,
}

#[derive(Clone, PartialEq)]
struct Settings {
    /// Numbers in millionths, and spans in microseconds, by their names.
    values: BTreeMap<String, u64>,
    group: String,
    is_fifo: bool,
    is_loss_ok: bool,
}

/// Settings of a pool for which none are given.
const USUAL: &str = "queue=1000 start_timeout=60 stop_timeout=10 max_age=30 cull_interval=60 \
                     min_free=0 loss_delay=0 check_interval=0 check_timeout=5 provider_grace=15";

struct Pool {
    settings: Settings,
    is_leaving: bool,
    owed: u64,
    cull_at: u64,
}

#[derive(Clone, PartialEq)]
enum Owner {
    Provider(usize),
    /// Member of a lost provider, with the end of its grace and the session that has it again before.
    Orphan(u64, Option<String>),
}

/// State of a member, with the time of its end if it has one.
#[derive(Clone, PartialEq)]
enum State {
    Free,
    Checking(u64),
    InUse,
    Stopping(u64),
    Delayed(u64),
    Orphaned,
}

struct Member {
    owner: Owner,
    state: State,
    born: u64,
    /// Time since which it is idle.
    since: u64,
    /// Time at which it was last known to be alive.
    proved: u64,
    uses: u64,
    /// Step in which it came free.
    freed: u64,
}

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

#[derive(Default)]
struct Conn {
    backoff: Backoff,
    session: Option<String>,
    /// Pool for which it provides.
    pool: Option<String>,
    capacity: Option<u64>,
    /// Pool for which it provides or has provided last.
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
    arrival: u64,
    since: u64,
}

struct Lease {
    conn: usize,
    key: Key,
    since: u64,
}

struct Start {
    conn: usize,
    pool: String,
    until: u64,
}

/// Options of a take.
#[derive(Clone)]
struct Asked {
    timeout: u64,
    members: u64,
    counted: bool,
    named: Option<String>,
    priority: u64,
}

/// Event that happens by itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    Wait(usize),
    Start(u64),
    Stage(Key),
    /// End of the grace of the members of lost providers, at this time.
    Grace(u64),
    Cull(String),
}

/// Failure of a start, death of a checked member or end of a stop, with its pool and its provider.
type Kind<'a> = Option<(&'static str, &'a str, usize)>;

/// Position of a waiter in the order: lower comes first.
type Rank = (u64, u64);

/// Nothing, a reply, or the code of an error.
type Answer = Result<&'static str, &'static str>;

fn seconds(text: &str) -> u64 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    whole.parse::<u64>().expect("a number") * SECOND + format!("{decimals:0<6}").parse::<u64>().expect("a number")
}

impl Settings {
    fn usual() -> Settings {
        let mut settings =
            Settings { values: BTreeMap::new(), group: String::new(), is_fifo: false, is_loss_ok: false };
        USUAL.split_whitespace().for_each(|pair| settings.set(pair));
        settings
    }

    fn set(&mut self, pair: &str) {
        let (key, value) = pair.split_once('=').expect("it is known");
        match key {
            "group" => self.group = value.into(),
            "order" => self.is_fifo = value == "fifo",
            "on_loss" => self.is_loss_ok = value == "ok",
            _ => _ = self.values.insert(key.into(), seconds(value)),
        }
    }

    fn span(&self, key: &str) -> u64 {
        self.values[key]
    }

    fn number(&self, key: &str) -> u64 {
        self.span(key) / SECOND
    }

    fn is_possible(&self) -> bool {
        self.number("init") <= self.number("max") && self.number("max") >= 1
    }
}

impl Asked {
    fn read(words: &[&str]) -> Asked {
        let mut asked = Asked { timeout: 0, members: 1, counted: false, named: None, priority: 5 };
        for word in words {
            match word.split_once('=') {
                None => asked.timeout = seconds(word),
                Some(("n", n)) => (asked.members, asked.counted) = (n.parse().expect("a number"), true),
                Some(("member", name)) => asked.named = Some(name.into()),
                Some(("pri", pri)) => asked.priority = pri.parse().expect("a number"),
                Some(_) => panic!("{word}"),
            }
        }
        asked
    }

    /// Returns the number of starts that it may cause.
    fn want(&self) -> u64 {
        if self.named.is_some() { 0 } else { self.members }
    }
}

impl Members {
    /// Handles one line of a client.
    pub fn say(&mut self, conn: usize, line: &str) {
        self.steps += 1;
        self.conns.entry(conn).or_default();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse().expect("a number");
        let answer = match words[0] {
            "POOL" => self.declare(words[1], &words[2..]),
            "RECONFIGURE" => self.reconfigure(words[1], &words[2..]),
            "RMPOOL" => self.remove_pool(words[1], words.len() > 2),
            "PROVIDE" => self.provide(conn, words[1], &words[2..]),
            "STARTED" => self.started(conn, number(words[1]), words[2]),
            "FAILED" => self.failed(conn, number(words[1])),
            "STOPPED" => self.stopped(conn, words[1]),
            "ALIVE" => self.alive(conn, words[1]),
            "DEAD" => self.dead(conn, words[1]),
            "OFFER" => self.offer(conn, words[1], words[2]),
            "TAKE" => self.take(conn, Place::Pool(words[1].into()), &words[2..]),
            "TAKEGROUP" => self.take(conn, Place::Group(words[1].into()), &words[2..]),
            "RETURN" => self.give_back(conn, number(words[1]), words.get(2) == Some(&"FAIL")),
            "CANCEL" => match self.waiters.iter().position(|waiter| waiter.conn == conn) {
                Some(at) => {
                    self.waiters.remove(at);
                    Ok("NO_MEMBERS cancelled")
                }
                None => Err("NOT_WAITING"),
            },
            "BYE" => {
                self.leave_wait(conn);
                for number in self.held_by(conn) {
                    let key = self.end_lease(number);
                    self.release(&key);
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

    fn tell(&mut self, conn: usize, text: impl Into<String>) {
        self.out.push((conn, text.into()));
    }

    fn settings(&self, pool: &str) -> &Settings {
        &self.pools[pool].settings
    }

    fn members_of(&self, pool: &str) -> impl Iterator<Item = (&Key, &Member)> {
        self.members.iter().filter(move |(key, _)| key.0 == pool)
    }

    fn keys_of(&self, pool: &str) -> Vec<Key> {
        self.members_of(pool).map(|(key, _)| key.clone()).collect()
    }

    fn member(&mut self, key: &Key) -> &mut Member {
        self.members.get_mut(key).expect("it is there")
    }

    fn count(&self, pool: &str, is_meant: impl Fn(&State) -> bool) -> u64 {
        self.members_of(pool).filter(|(_, member)| is_meant(&member.state)).count() as u64
    }

    fn live(&self, pool: &str) -> u64 {
        self.count(pool, |state| !matches!(state, State::Stopping(_)))
    }

    fn free(&self, pool: &str) -> u64 {
        self.count(pool, |state| *state == State::Free)
    }

    fn checking(&self, pool: &str) -> u64 {
        self.count(pool, |state| matches!(state, State::Checking(_)))
    }

    fn starts_in(&self, pool: &str) -> u64 {
        self.starts.values().filter(|start| start.pool == pool).count() as u64
    }

    /// Returns the number of members and starts, which is at most `max`.
    fn slots(&self, pool: &str) -> u64 {
        self.count(pool, |_| true) + self.starts_in(pool)
    }

    /// Returns the number of starts that the waiters of a place may cause.
    fn want(&self, place: &Place) -> u64 {
        self.waiters.iter().filter(|waiter| waiter.place == *place).map(|waiter| waiter.asked.want()).sum()
    }

    /// Returns the number of starts and checks that the waiters for a pool alone need.
    fn need(&self, pool: &str) -> u64 {
        let own = Place::Pool(pool.into());
        self.want(&own).saturating_sub(self.kept(pool, &own))
    }

    /// Returns the number of free members of a pool that are kept for the first waiter for several, if it waits for
    /// this place.
    fn kept(&self, pool: &str, place: &Place) -> u64 {
        let first = self.reserving_waiter(pool).filter(|first| first.place == *place);
        first.map_or(0, |first| first.asked.want().min(self.free(pool)))
    }

    /// Returns the number of starts and checks under way in a pool that no waiter for it alone needs.
    fn spare(&self, pool: &str) -> u64 {
        (self.starts_in(pool) + self.checking(pool)).saturating_sub(self.need(pool))
    }

    fn spare_of(&self, group: &Place) -> u64 {
        self.pools_of(group).iter().map(|pool| self.spare(pool)).sum()
    }

    /// Returns whether the waiters of a group lack starts.
    fn lacks_for(&self, group: &Place) -> bool {
        let kept: u64 = self.pools_of(group).iter().map(|pool| self.kept(pool, group)).sum();
        let several = self.waiters.iter().filter(|waiter| waiter.place == *group && waiter.asked.members > 1);
        let first = several.min_by_key(|waiter| self.rank(waiter)).map_or(0, |first| first.asked.want());
        self.want(group) > kept.min(first) + self.spare_of(group)
    }

    /// Returns whether waiters need all starts and checks under way in a pool.
    fn are_needed(&self, pool: &str) -> bool {
        let group = Place::Group(self.settings(pool).group.clone());
        self.spare(pool) == 0 || self.spare_of(&group) <= self.want(&group)
    }

    fn covers(&self, place: &Place, pool: &str) -> bool {
        match place {
            Place::Pool(name) => name == pool,
            Place::Group(group) => self.settings(pool).group == *group,
        }
    }

    /// Returns the pools of a place that are not being removed.
    fn pools_of(&self, place: &Place) -> Vec<String> {
        let is_none = matches!(place, Place::Group(group) if group.is_empty());
        let is_meant = |(name, pool): &(&String, &Pool)| !is_none && !pool.is_leaving && self.covers(place, name);
        self.pools.iter().filter(is_meant).map(|(name, _)| name.clone()).collect()
    }

    fn providers(&self, pool: &str) -> Vec<usize> {
        self.conns.iter().filter(|(_, conn)| conn.pool.as_deref() == Some(pool)).map(|(id, _)| *id).collect()
    }

    fn declare(&mut self, name: &str, words: &[&str]) -> Answer {
        let mut settings = Settings::usual();
        settings.set(&format!("init={}", words[0]));
        settings.set(&format!("max={}", words[1]));
        words[2..].iter().for_each(|pair| settings.set(pair));
        if !settings.is_possible() {
            return Err("BAD_SYNTAX");
        }
        if let Some(known) = self.pools.get(name) {
            let is_same = known.settings == settings && !known.is_leaving;
            return if is_same { Ok("OK") } else { Err("POOL_DIFFERS") };
        }
        let cull_at = self.now + settings.span("cull_interval");
        self.pools.insert(name.into(), Pool { settings, is_leaving: false, owed: 0, cull_at });
        Ok("OK")
    }

    fn reconfigure(&mut self, name: &str, words: &[&str]) -> Answer {
        let mut settings = self.pools.get(name).ok_or("NO_POOL")?.settings.clone();
        words.iter().for_each(|pair| settings.set(pair));
        if !settings.is_possible() {
            return Err("BAD_SYNTAX");
        }
        let excess = self.queued(name).saturating_sub(settings.number("queue")) as usize;
        self.pools.get_mut(name).expect("it was found").settings = settings;
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

    fn remove_pool(&mut self, name: &str, graceful: bool) -> Answer {
        self.pools.get_mut(name).ok_or("NO_POOL")?.is_leaving = true;
        let pools = &self.pools;
        let is_over = |waiter: &mut Waiter| match &waiter.place {
            Place::Group(group) => !pools.values().any(|pool| !pool.is_leaving && pool.settings.group == *group),
            Place::Pool(pool) => pool == name,
        };
        for waiter in self.waiters.extract_if(.., is_over).collect::<Vec<_>>() {
            self.tell(waiter.conn, "NO_MEMBERS removed");
        }
        self.starts.retain(|_, start| start.pool != name);
        for key in self.keys_of(name) {
            if graceful && self.members[&key].state == State::InUse {
                continue;
            }
            self.lose(&key, "removed");
            self.stop(&key, false);
            if !graceful {
                self.members.remove(&key);
            }
        }
        Ok("OK")
    }

    fn provide(&mut self, conn: usize, name: &str, words: &[&str]) -> Answer {
        let capacity = words.iter().find_map(|word| word.parse().ok());
        let session = words.iter().find_map(|word| word.strip_prefix("session="));
        let known = &self.conns[&conn];
        let is_another = |pool: &String| pool != name || session.is_some() && session != known.session.as_deref();
        if known.pool.as_ref().is_some_and(is_another) {
            return Err("BAD_SYNTAX");
        }
        self.pools.get(name).filter(|pool| !pool.is_leaving).ok_or("NO_POOL")?;
        if let Some(session) = session.filter(|session| known.session.as_deref() != Some(session)) {
            self.resume(name, conn, session);
        }
        let conn = self.conns.get_mut(&conn).expect("it is known");
        conn.session = session.map(String::from).or(conn.session.take());
        (conn.pool, conn.last_pool, conn.capacity) = (Some(name.into()), Some(name.into()), capacity);
        Ok("OK")
    }

    /// Gives a connection the members of an earlier one of its session, if there is one.
    fn resume(&mut self, pool: &str, conn: usize, session: &str) {
        let has_it = |of: &Conn| of.session.as_deref() == Some(session) && of.pool.as_deref() == Some(pool);
        let before = self.conns.iter().find(|(_, of)| has_it(of)).map(|(id, _)| *id);
        let lost = self.lost.remove(&(pool.into(), session.into()));
        if let Some(before) = before {
            self.leave_wait(before);
            self.end_leases(before);
            self.starts.retain(|_, start| start.conn != before);
        }
        let old = before.and_then(|before| self.conns.remove(&before));
        self.replaced.extend(before);
        let Some(backoff) = old.map(|old| old.backoff).or(lost) else { return };
        self.conns.get_mut(&conn).expect("it is known").backoff = backoff;
        // The members come free in one step: first the members above max, which were seen to be stopped, then the members
        // that waiters were seen to get.
        let number =
            |key: &Key| self.hints.leases.iter().find(|((_, of), _)| of == key).map_or(u64::MAX, |(_, at)| *at);
        let mut keys = self.keys_of(pool);
        keys.sort_by_key(|key| (!self.hints.stops.contains(key), number(key)));
        for key in keys {
            let member = self.member(&key);
            let is_its = match &member.owner {
                Owner::Provider(owner) => Some(*owner) == before,
                Owner::Orphan(_, of) => of.as_deref() == Some(session),
            };
            if is_its {
                member.owner = Owner::Provider(conn);
                self.resume_member(&key, conn);
            }
        }
    }

    /// Asks a provider anew for what its connection before had not done.
    fn resume_member(&mut self, key: &Key, conn: usize) {
        let of = |setting: &str| self.now + self.settings(&key.0).span(setting);
        let (stopped, checked) = (of("stop_timeout"), of("check_timeout"));
        let member = self.member(key);
        let word = match member.state {
            State::Orphaned => return self.release(key),
            State::Stopping(_) => {
                member.state = State::Stopping(stopped);
                "!STOP"
            }
            State::Checking(_) => {
                member.state = State::Checking(checked);
                "!CHECK"
            }
            _ => return,
        };
        self.tell(conn, format!("{word} {} {}", key.0, key.1));
    }

    /// Returns whether a start has ended, as far as a provider can know.
    fn is_late(&self, conn: usize, number: u64) -> bool {
        let has_ended = self.numbers.contains(&number) && !self.starts.contains_key(&number);
        has_ended && self.conns[&conn].last_pool.is_some()
    }

    /// Returns the name of a member in the pool of a provider, if it is that provider's.
    fn own(&self, conn: usize, member: &str) -> Option<Key> {
        let key = (self.conns[&conn].pool.clone()?, member.to_string());
        self.members.get(&key).is_some_and(|member| member.owner == Owner::Provider(conn)).then_some(key)
    }

    fn started(&mut self, conn: usize, number: u64, member: &str) -> Answer {
        if self.is_late(conn, number) {
            if self.own(conn, member).is_some() {
                return Err("BAD_START");
            }
            let pool = self.conns[&conn].last_pool.clone().expect("it has provided");
            self.tell(conn, format!("!STOP {pool} {member}"));
            return Err("TOO_LATE");
        }
        let start = self.starts.get(&number).filter(|start| start.conn == conn).ok_or("BAD_START")?;
        let key = (start.pool.clone(), member.to_string());
        self.starts.remove(&number);
        if self.members.contains_key(&key) {
            self.back_off(&key.0, &Owner::Provider(conn));
            return Err("MEMBER_EXISTS");
        }
        self.enter(&key, conn);
        Ok("OK")
    }

    fn failed(&mut self, conn: usize, number: u64) -> Answer {
        if self.is_late(conn, number) {
            return Ok("OK");
        }
        self.starts.get(&number).filter(|start| start.conn == conn).ok_or("BAD_START")?;
        self.fail_start(number);
        Ok("OK")
    }

    fn fail_start(&mut self, number: u64) {
        let start = self.starts.remove(&number).expect("it is under way");
        self.back_off(&start.pool, &Owner::Provider(start.conn));
    }

    fn backoff_of(&mut self, pool: &str, owner: &Owner) -> Option<&mut Backoff> {
        match owner {
            Owner::Provider(conn) => self.conns.get_mut(conn).map(|conn| &mut conn.backoff),
            Owner::Orphan(_, session) => self.lost.get_mut(&(pool.into(), session.clone()?)),
        }
    }

    fn back_off(&mut self, pool: &str, owner: &Owner) {
        let now = self.now;
        let Some(backoff) = self.backoff_of(pool, owner).filter(|backoff| backoff.ends.is_none()) else { return };
        if now - backoff.failed >= CALM {
            backoff.doubled = 0;
        }
        let span = LONGEST_BACKOFF.min(FIRST_BACKOFF << backoff.doubled);
        // Wheels turn by the millisecond, so it may take a little longer.
        backoff.ends = Some((now + span * 3 / 4, now + span * 5 / 4 + 1_000));
        (backoff.doubled, backoff.failed) = (6.min(backoff.doubled + 1), now);
    }

    /// Removes a dead member: a member that dies young counts as a failed start.
    fn die(&mut self, key: &Key) {
        self.lose(key, "died");
        let member = self.members.remove(key).expect("it is there");
        if self.now - member.born < PROVEN_AGE {
            self.back_off(&key.0, &member.owner);
        }
        self.owe(&key.0);
    }

    fn enter(&mut self, key: &Key, conn: usize) {
        let (now, owner, state) = (self.now, Owner::Provider(conn), State::Orphaned);
        let member = Member { owner, state, born: now, since: now, proved: now, uses: 0, freed: 0 };
        self.members.insert(key.clone(), member);
        self.release(key);
    }

    fn stopped(&mut self, conn: usize, member: &str) -> Answer {
        if self.conns[&conn].last_pool.is_none() {
            return Err("NO_SUCH_MEMBER");
        }
        if let Some(key) = self.own(conn, member) {
            // If the stop was not requested, the member has stopped by itself, and so is dead.
            return self.dead(conn, &key.1);
        }
        Ok("OK")
    }

    fn alive(&mut self, conn: usize, member: &str) -> Answer {
        let key = self.own(conn, member).ok_or("NO_SUCH_MEMBER")?;
        let now = self.now;
        let member = self.member(&key);
        if matches!(member.state, State::Checking(_)) {
            (member.state, member.proved) = (State::Free, now);
        }
        Ok("OK")
    }

    fn dead(&mut self, conn: usize, member: &str) -> Answer {
        let key = self.own(conn, member).ok_or("NO_SUCH_MEMBER")?;
        if matches!(self.members[&key].state, State::Stopping(_)) {
            self.members.remove(&key);
        } else {
            self.die(&key);
        }
        Ok("OK")
    }

    fn offer(&mut self, conn: usize, pool: &str, member: &str) -> Answer {
        self.pools.get(pool).filter(|pool| !pool.is_leaving).ok_or("NO_POOL")?;
        if self.conns[&conn].pool.as_deref() != Some(pool) {
            return Err("NOT_PROVIDER");
        }
        let key = (pool.to_string(), member.to_string());
        if let Some(member) = self.members.get_mut(&key)
            && matches!(member.owner, Owner::Orphan(..))
        {
            member.owner = Owner::Provider(conn);
            if member.state == State::Orphaned {
                self.release(&key);
            }
            return Ok("OK");
        }
        if self.slots(pool) >= self.settings(pool).number("max") {
            return Err("POOL_FULL");
        }
        if self.members.contains_key(&key) {
            return Err("MEMBER_EXISTS");
        }
        self.enter(&key, conn);
        Ok("OK")
    }

    fn reason(&self, pool: &str) -> &'static str {
        let is_possible = self.slots(pool) < self.settings(pool).number("max");
        let is_backing_off = |conn: &usize| self.conns[conn].backoff.ends.is_some() && self.room_of(pool, *conn).0 > 0;
        let waits = is_possible && self.providers(pool).iter().any(is_backing_off);
        if self.starts_in(pool) + self.checking(pool) > 0 || waits {
            "NO_MEMBERS starting"
        } else if is_possible && self.providers(pool).is_empty() {
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
        if !self.pools.keys().any(|pool| self.covers(&place, pool)) {
            return Err("NO_POOL");
        }
        let pools = self.pools_of(&place);
        if pools.is_empty() {
            return Ok("NO_MEMBERS removed");
        }
        if asked.members > pools.iter().map(|pool| self.settings(pool).number("max")).sum() {
            return Err("TOO_MANY");
        }
        let has = |pool: &String, named: &String| self.members.contains_key(&(pool.clone(), named.clone()));
        if asked.named.as_ref().is_some_and(|named| !pools.iter().any(|pool| has(pool, named))) {
            return Err("NO_SUCH_MEMBER");
        }
        if let Some(found) = self.find_free(conn, &place, &asked, (asked.priority, u64::MAX), true) {
            self.serve(conn, &asked, &found);
            return Ok("");
        }
        if asked.timeout == 0 {
            self.ask(&place, &asked);
            let reasons: Vec<&str> = pools.iter().map(|pool| self.reason(pool)).collect();
            let best = ["NO_MEMBERS starting", "NO_MEMBERS at_capacity", "NO_MEMBERS no_provider"];
            return Ok(best.into_iter().find(|reason| reasons.contains(reason)).expect("it is known"));
        }
        if pools.iter().all(|pool| self.queued(pool) >= self.settings(pool).number("queue")) {
            return Ok("QUEUE_FULL");
        }
        self.arrivals += 1;
        self.waiters.push(Waiter { conn, place, arrival: self.arrivals, since: self.now, asked });
        Ok("")
    }

    fn queued(&self, pool: &str) -> u64 {
        self.waiters.iter().filter(|waiter| self.covers(&waiter.place, pool)).count() as u64
    }

    /// Requests a start, unless one is under way that no waiter needs.
    fn ask(&mut self, place: &Place, asked: &Asked) {
        let is_needed = match place {
            Place::Pool(pool) => self.are_needed(pool),
            Place::Group(_) => self.spare_of(place) <= self.want(place),
        };
        if asked.named.is_none() && is_needed {
            self.launch(place);
        }
    }

    fn rank(&self, waiter: &Waiter) -> Rank {
        (if self.now >= waiter.since + AGED { 0 } else { waiter.asked.priority }, waiter.arrival)
    }

    /// Returns the first waiter for several: it keeps what is free.
    fn reserving_waiter(&self, pool: &str) -> Option<&Waiter> {
        let is_its = |waiter: &&Waiter| waiter.asked.members > 1 && self.covers(&waiter.place, pool);
        self.waiters.iter().filter(is_its).min_by_key(|waiter| self.rank(waiter))
    }

    /// Returns free members for a take or a waiter of this rank, if there are as many as it asks for that are not kept
    /// for a waiter before it. A take has them from the pools with most.
    fn find_free(&self, conn: usize, place: &Place, asked: &Asked, rank: Rank, is_take: bool) -> Option<Vec<Key>> {
        let is_kept = |pool: &str| self.reserving_waiter(pool).is_some_and(|first| self.rank(first) < rank);
        let is_seen = |key: &Key| self.hints.leases.contains_key(&(conn, key.clone()));
        let mut pools = self.pools_of(place);
        pools.retain(|pool| !is_kept(pool));
        pools.sort_by_key(|pool| {
            let free = if is_take || asked.members > 1 { self.free(pool) } else { 0 };
            let seen = self.members_of(pool).filter(|(key, _)| is_seen(key)).count();
            (u64::MAX - free, usize::MAX - seen)
        });
        let mut found = Vec::new();
        for pool in pools {
            let is_meant = |(key, member): &(&Key, &Member)| {
                member.state == State::Free && asked.named.as_ref().is_none_or(|named| *named == key.1)
            };
            let mut free: Vec<(&Key, &Member)> = self.members_of(&pool).filter(is_meant).collect();
            let is_fifo = self.settings(&pool).is_fifo;
            free.sort_by_key(|(key, member)| {
                (if is_fifo { member.freed } else { u64::MAX - member.freed }, !is_seen(key))
            });
            found.extend(free.into_iter().map(|(key, _)| key.clone()));
        }
        found.truncate(asked.members as usize);
        (found.len() as u64 == asked.members).then_some(found)
    }

    fn serve(&mut self, conn: usize, asked: &Asked, found: &[Key]) {
        let mut lines = Vec::new();
        for key in found {
            let member = self.member(key);
            member.state = State::InUse;
            member.uses += 1;
            // A member that the daemon has not given has no number.
            let number = self.hints.leases.remove(&(conn, key.clone())).unwrap_or(0);
            lines.push(format!("MEMBER {number} {} {}", key.0, key.1));
            self.leases.insert(number, Lease { conn, key: key.clone(), since: self.now });
        }
        // Members of one reply have no order, either.
        lines.sort();
        if asked.counted {
            lines.insert(0, format!("MEMBERS {}", asked.members));
        }
        self.tell(conn, lines.join("\n"));
    }

    fn give_back(&mut self, conn: usize, number: u64, is_failed: bool) -> Answer {
        if self.leases.get(&number).is_none_or(|lease| lease.conn != conn) {
            return Ok("NOT_TAKEN");
        }
        let key = self.end_lease(number);
        if is_failed {
            self.stop(&key, true);
        } else {
            self.release(&key);
        }
        Ok("RETURNED")
    }

    fn held_by(&self, conn: usize) -> Vec<u64> {
        self.leases.iter().filter(|(_, lease)| lease.conn == conn).map(|(number, _)| *number).collect()
    }

    fn end_lease(&mut self, number: u64) -> Key {
        let (lease, now) = (self.leases.remove(&number).expect("it was found"), self.now);
        let member = self.member(&lease.key);
        (member.since, member.proved) = (now, now);
        lease.key
    }

    /// Stops a member that may not stay. Returns whether it stays.
    fn check_usable(&mut self, key: &Key) -> bool {
        let pool = &self.pools[&key.0];
        let is_surplus = pool.is_leaving || self.live(&key.0) > pool.settings.number("max");
        if is_surplus {
            self.stop(key, false);
        }
        !is_surplus
    }

    /// Makes a member free, if it may be.
    fn release(&mut self, key: &Key) {
        if !self.check_usable(key) {
            return;
        }
        let (now, steps) = (self.now, self.steps);
        let member = self.member(key);
        if matches!(member.owner, Owner::Orphan(..)) {
            member.state = State::Orphaned;
            return;
        }
        member.state = State::Free;
        (member.freed, member.since, member.proved) = (steps, now, now);
        self.serve_waiters();
    }

    fn lose_consumer(&mut self, number: u64) {
        let key = self.end_lease(number);
        let Settings { is_loss_ok, .. } = *self.settings(&key.0);
        let delay = self.settings(&key.0).span("loss_delay");
        if !is_loss_ok || matches!(self.members[&key].owner, Owner::Orphan(..)) {
            self.stop(&key, true);
        } else if delay == 0 {
            self.release(&key);
        } else if self.check_usable(&key) {
            self.member(&key).state = State::Delayed(self.now + delay);
        }
    }

    /// Ends the lease of a member, if there is one, and notifies its holder.
    fn lose(&mut self, key: &Key, reason: &str) {
        let Some(number) = self.leases.iter().find(|(_, lease)| lease.key == *key).map(|(number, _)| *number) else {
            return;
        };
        let conn = self.leases[&number].conn;
        self.tell(conn, format!("!LOST {number} {reason}"));
        self.end_lease(number);
    }

    /// Stops a member, or removes it if it has no provider.
    fn stop(&mut self, key: &Key, is_replaced: bool) {
        let until = self.now + self.settings(&key.0).span("stop_timeout");
        let member = self.member(key);
        if matches!(member.state, State::Stopping(_)) {
            return;
        }
        if let Owner::Provider(conn) = member.owner {
            member.state = State::Stopping(until);
            self.tell(conn, format!("!STOP {} {}", key.0, key.1));
        } else {
            self.members.remove(key);
        }
        if is_replaced {
            self.owe(&key.0);
        }
    }

    /// Counts a member to be replaced, unless there are too many at this moment.
    fn owe(&mut self, pool: &str) {
        let has_room = self.slots(pool) <= self.settings(pool).number("max");
        self.pools.get_mut(pool).expect("it is there").owed += u64::from(has_room);
    }

    /// Ends a wait. Members kept for it go to other waiters before those that the client held come back.
    fn leave_wait(&mut self, conn: usize) {
        self.waiters.retain(|waiter| waiter.conn != conn);
        self.serve_waiters();
    }

    /// Handles the end of a connection.
    pub fn close(&mut self, conn: usize) {
        self.steps += 1;
        if !self.conns.contains_key(&conn) {
            return;
        }
        self.leave_wait(conn);
        self.end_leases(conn);
        self.lose_provider(conn);
        self.out.retain(|(told, _)| *told != conn);
        self.conns.remove(&conn);
        self.settle();
    }

    fn end_leases(&mut self, conn: usize) {
        self.held_by(conn).into_iter().for_each(|number| self.lose_consumer(number));
    }

    fn lose_provider(&mut self, conn: usize) {
        let Conn { session, backoff, pool, .. } = std::mem::take(self.conns.get_mut(&conn).expect("it is known"));
        self.starts.retain(|_, start| start.conn != conn);
        let Some(pool) = pool.filter(|pool| self.pools.contains_key(pool)) else { return };
        if let Some(session) = &session {
            // It goes with the last of its members.
            self.lost.insert((pool.clone(), session.clone()), backoff);
        }
        let grace = self.settings(&pool).span("provider_grace");
        let (until, has_grace) = (self.now + grace, grace > 0 && !self.pools[&pool].is_leaving);
        for key in self.keys_of(&pool) {
            let member = self.member(&key);
            if member.owner != Owner::Provider(conn) {
                continue;
            }
            if has_grace && !matches!(member.state, State::Stopping(_)) {
                member.owner = Owner::Orphan(until, session.clone());
                if matches!(member.state, State::Free | State::Checking(_)) {
                    member.state = State::Orphaned;
                }
            } else {
                self.lose(&key, "provider_lost");
                self.members.remove(&key);
            }
        }
    }

    /// Returns the due events, with their times.
    pub fn deadlines(&self) -> Vec<(u64, Due)> {
        let mut all = BTreeSet::new();
        for waiter in &self.waiters {
            all.insert((waiter.since + waiter.asked.timeout, Due::Wait(waiter.conn)));
        }
        all.extend(self.starts.iter().map(|(number, start)| (start.until, Due::Start(*number))));
        all.extend(self.pools.iter().map(|(name, pool)| (pool.cull_at, Due::Cull(name.clone()))));
        for (key, member) in &self.members {
            let interval = self.settings(&key.0).span("check_interval");
            let stage = match member.state {
                State::Free => (interval > 0).then_some(member.proved + interval),
                State::Checking(at) | State::Stopping(at) | State::Delayed(at) => Some(at),
                State::InUse | State::Orphaned => None,
            };
            all.extend(stage.map(|at| (at, Due::Stage(key.clone()))));
            if let Owner::Orphan(until, _) = member.owner {
                all.insert((until, Due::Grace(until)));
            }
        }
        all.into_iter().collect()
    }

    /// Returns the earliest and latest end of each backoff.
    pub fn backoffs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.conns.values().map(|conn| &conn.backoff).chain(self.lost.values()).filter_map(|backoff| backoff.ends)
    }

    /// Returns whether the order of due events matters, or that of a due event and the end of a backoff.
    pub fn is_tied(&self, now: u64) -> bool {
        let due = self.deadlines().into_iter().filter(|(at, _)| *at <= now);
        let kinds: Vec<Kind<'_>> = due.map(|(_, due)| self.kind(&due)).collect();
        let is_ending = |conn: usize| {
            let ends = self.conns.get(&conn).and_then(|conn| conn.backoff.ends);
            ends.is_some_and(|(low, high)| (low..=high).contains(&now))
        };
        let is_seen = !kinds.is_empty() && self.hints.starts.values().any(|(conn, _)| is_ending(*conn));
        let mut failures = kinds.iter().flatten().filter(|(what, ..)| *what != "stops");
        // Starts of one provider that fail together, or members that it has stopped, may change places.
        let is_alike = kinds.iter().all(|kind| kind.is_some_and(|(what, ..)| what != "dies") && *kind == kinds[0]);
        kinds.len() > 1 && !is_alike || is_seen || failures.any(|(.., conn)| is_ending(*conn))
    }

    fn kind(&self, due: &Due) -> Kind<'_> {
        match due {
            Due::Start(number) => self.starts.get(number).map(|start| ("fails", &*start.pool, start.conn)),
            Due::Stage(key) => {
                let (key, Member { owner, state, .. }) = self.members.get_key_value(key)?;
                match (state, owner) {
                    (State::Checking(_), Owner::Provider(conn)) => Some(("dies", &key.0, *conn)),
                    (State::Stopping(_), Owner::Provider(conn)) => Some(("stops", &key.0, *conn)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Passes over to another process.
    pub fn upgrade(&mut self) {
        self.steps += 1;
        self.settle();
    }

    /// Advances to a time, and handles all due events.
    pub fn tick(&mut self, now: u64) {
        self.steps += 1;
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
            lost.ends = lost.ends.filter(|(_, high)| now < *high);
        }
        while let Some((_, due)) = self.deadlines().into_iter().find(|(at, _)| *at <= now) {
            if std::env::var_os("SIM_TRACE").is_some() {
                println!("at {}ms: {due:?}", now / 1_000);
            }
            self.fire(due);
            self.settle();
        }
        self.settle();
    }

    fn fire(&mut self, due: Due) {
        match due {
            Due::Wait(conn) => {
                self.waiters.retain(|waiter| waiter.conn != conn);
                self.tell(conn, "NO_MEMBERS timeout");
            }
            Due::Start(number) => self.fail_start(number),
            Due::Stage(key) => self.end_stage(&key),
            Due::Grace(at) => {
                let is_over = |member: &Member| matches!(member.owner, Owner::Orphan(until, _) if until == at);
                let over: Vec<Key> =
                    self.members.iter().filter(|(_, member)| is_over(member)).map(|(key, _)| key.clone()).collect();
                for key in over {
                    self.lose(&key, "provider_lost");
                    self.members.remove(&key);
                }
            }
            Due::Cull(pool) => self.cull(&pool),
        }
    }

    fn end_stage(&mut self, key: &Key) {
        let until = self.now + self.settings(&key.0).span("check_timeout");
        let member = self.member(key);
        match (&member.state, &member.owner) {
            (State::Free, Owner::Provider(conn)) => {
                let conn = *conn;
                member.state = State::Checking(until);
                self.tell(conn, format!("!CHECK {} {}", key.0, key.1));
            }
            (State::Checking(_), _) => self.die(key),
            (State::Stopping(_), _) => _ = self.members.remove(key),
            (State::Delayed(_), _) => self.release(key),
            _ => panic!("nothing is due"),
        }
    }

    fn cull(&mut self, name: &str) {
        let pool = self.pools.get_mut(name).expect("it is there");
        pool.cull_at = self.now + pool.settings.span("cull_interval");
        loop {
            let settings = self.settings(name);
            let is_few = self.live(name) <= settings.number("init")
                || self.free(name) + self.checking(name) <= settings.number("min_free");
            if is_few || !self.stop_oldest(name, Some(settings.span("max_age"))) {
                return;
            }
        }
    }

    /// Stops the member that is free for longest, if it is idle for longer than this time.
    fn stop_oldest(&mut self, pool: &str, age: Option<u64>) -> bool {
        let is_old = |member: &Member| age.is_none_or(|age| self.now - member.since > age);
        let free = self.members_of(pool).filter(|(_, member)| member.state == State::Free);
        let old = free.filter(|(_, member)| is_old(member));
        let oldest = old.min_by_key(|(key, member)| (member.freed, !self.hints.stops.contains(*key)));
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
        self.stop(&key, false);
        true
    }

    /// Handles all immediate consequences.
    fn settle(&mut self) {
        let pools: Vec<String> = self.pools.keys().cloned().collect();
        for pool in &pools {
            while self.live(pool) > self.settings(pool).number("max") && self.stop_oldest(pool, None) {}
        }
        for pool in pools {
            self.serve_waiters();
            self.meet_demand(&pool);
        }
        let groups: BTreeSet<String> = self.pools.values().map(|pool| pool.settings.group.clone()).collect();
        groups.into_iter().map(Place::Group).for_each(|group| while self.lacks_for(&group) && self.launch(&group) {});
        let members = &self.members;
        self.pools.retain(|name, pool| !pool.is_leaving || members.keys().any(|key| key.0 == *name));
        for conn in self.conns.values_mut() {
            if conn.pool.as_ref().is_some_and(|pool| !self.pools.contains_key(pool)) {
                (conn.pool, conn.backoff, conn.session) = (None, Backoff::default(), None);
            }
        }
        self.lost.retain(|(pool, session), _| {
            let is_its = |owner: &Owner| matches!(owner, Owner::Orphan(_, of) if of.as_ref() == Some(session));
            members.iter().any(|(key, member)| key.0 == *pool && is_its(&member.owner))
        });
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

    fn meet_demand(&mut self, name: &str) {
        let pool = self.pools.get_mut(name).expect("it is there");
        if pool.is_leaving {
            pool.owed = 0;
            return;
        }
        loop {
            let max = self.settings(name).number("max");
            let most = if self.slots(name) > max { 0 } else { max.saturating_sub(self.live(name)) };
            let pool = self.pools.get_mut(name).expect("it is there");
            pool.owed = pool.owed.min(most);
            if self.lacks(name) == 0 || !self.launch(&Place::Pool(name.into())) {
                return;
            }
        }
    }

    /// Returns the number of starts that are missing.
    fn lacks(&self, pool: &str) -> u64 {
        let (settings, starts, checking) = (self.settings(pool), self.starts_in(pool), self.checking(pool));
        let lacks = [
            settings.number("init").saturating_sub(self.live(pool) + starts),
            self.need(pool).saturating_sub(checking + starts),
            settings.number("min_free").saturating_sub(self.free(pool) + checking + starts),
            self.pools[pool].owed,
        ];
        lacks.into_iter().max().unwrap_or(0)
    }

    /// Starts one member in a pool, or in a pool of a group, if that is possible.
    fn launch(&mut self, place: &Place) -> bool {
        let mut able: Vec<(String, usize)> = Vec::new();
        for pool in self.pools_of(place) {
            let has_room = self.slots(&pool) < self.settings(&pool).number("max");
            let is_able =
                |conn: &usize| has_room && self.room_of(&pool, *conn).0 > 0 && self.conns[conn].backoff.ends.is_none();
            able.extend(self.providers(&pool).into_iter().filter(is_able).map(|conn| (pool.clone(), conn)));
        }
        let is_best = |(pool, conn): &&(String, usize)| {
            let (room, capacity) = self.room_of(pool, *conn);
            able.iter().all(|(pool, other)| {
                let (other_room, other_capacity) = self.room_of(pool, *other);
                room * other_capacity >= other_room * capacity
            })
        };
        let best: Vec<&(String, usize)> = able.iter().filter(is_best).collect();
        // Pools that start in one step do so in any order.
        let is_allowed = |(number, (conn, pool)): &(&u64, &(usize, String))| {
            !self.numbers.contains(number) && best.iter().any(|best| best.0 == *pool && best.1 == *conn)
        };
        let seen = self.hints.starts.iter().find(is_allowed).map(|(number, (conn, pool))| (*number, pool, *conn));
        // A start that the daemon has not made has no number.
        let first = best.first().map(|(pool, conn)| (0, pool, *conn));
        let Some((number, pool, conn)) = seen.or(first) else { return false };
        let until = self.now + self.settings(pool).span("start_timeout");
        let pool = pool.clone();
        self.numbers.insert(number);
        self.tell(conn, format!("!START {pool} {number}"));
        let owed = &mut self.pools.get_mut(&pool).expect("it is there").owed;
        *owed = owed.saturating_sub(1);
        self.starts.insert(number, Start { conn, pool, until });
        true
    }

    /// Returns the number of members that a provider may still be asked to start, and its capacity.
    fn room_of(&self, pool: &str, conn: usize) -> (u64, u64) {
        let capacity = self.conns[&conn].capacity.unwrap_or(self.settings(pool).number("max"));
        let own = self.members_of(pool).filter(|(_, member)| member.owner == Owner::Provider(conn)).count();
        let starts = self.starts.values().filter(|start| start.conn == conn).count();
        (capacity.saturating_sub((own + starts) as u64), capacity)
    }

    /// Returns the state: of each pool the starts and the waiters, and the members as in the reply to `MEMBERS`, without
    /// times of idleness and reasons.
    pub fn picture(&self) -> Vec<String> {
        let queues = |name: &String| format!("{name} starting {} queued {}", self.starts_in(name), self.queued(name));
        let rows = self.members.iter().map(|(key, member)| self.row(key, member));
        self.pools.keys().map(queues).chain(rows).collect()
    }

    fn row(&self, key: &Key, member: &Member) -> String {
        let state = match member.state {
            State::Free => "free",
            State::Checking(_) => "checking",
            State::InUse => "in_use",
            State::Stopping(_) => "stopping",
            State::Delayed(_) => "delayed",
            State::Orphaned => "orphaned",
        };
        let lease = self.leases.iter().find(|(_, lease)| lease.key == *key);
        let since = |at: u64| format!("{}.{:03}", (self.now - at) / SECOND, (self.now - at) % SECOND / 1_000);
        let holder = lease.map_or("-".into(), |(_, lease)| format!("client:{}", lease.conn));
        let held = lease.map(|(number, lease)| format!(" held={} lease={number}", since(lease.since)));
        let (age, uses) = (since(member.born), member.uses);
        format!("{} {state} {holder} {age} {uses}{}", key.1, held.unwrap_or_default())
    }
}
