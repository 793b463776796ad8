//! Naive model of the pools: one vector of claims, searched from end to end at every step. Written from the description
//! of the protocol, it shares no code with the daemon.

use super::Limits;
use std::collections::BTreeMap;

/// Replies with their clients, in order.
pub type Replies = Vec<(usize, String)>;

/// All locks and waiters.
#[derive(Default)]
pub struct Pools {
    limits: Limits,
    /// Locks and waiters in the order of their requests.
    claims: Vec<Claim>,
    armed: u64,
    /// Microseconds and counts, by the names of `STATS FULL`.
    totals: BTreeMap<&'static str, u64>,
    /// Counts of events by types of keys, in the order of `STATS TYPES`.
    types: BTreeMap<Vec<u8>, [u64; 9]>,
}

/// Count per type.
#[derive(Clone, Copy)]
enum OfType {
    Acquired,
    Done,
    Full,
    Timeouts,
    Lost,
    Expired,
    GivenUp,
    WaitedUs,
    HeldUs,
}

#[derive(Clone)]
struct Claim {
    client: usize,
    key: Vec<u8>,
    for_me: bool,
    /// True for a lock, false for a waiter.
    held: bool,
    /// Start of the hold, or else of the wait.
    since: u64,
    hold_us: Option<u64>,
    /// Least time for which it occupies its keys from the grant on.
    keep_us: u64,
    /// True for a lock whose client has ended.
    kept: bool,
    /// True if its client asked for a longer hold.
    is_lowered: bool,
    timer: Option<Timer>,
    /// Its keys with the number of locks that each allows.
    keys: Vec<(Vec<u8>, u64)>,
}

/// Wait in microseconds after which a waiter for several keys is first in the queue of each.
const AGED_US: u64 = 60_000_000;

/// Client of kept locks.
const NOBODY: usize = usize::MAX;

/// Timer that fires at the first whole millisecond at or after its deadline. Timers of the same millisecond fire as
/// they were armed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer {
    ms: u64,
    serial: u64,
}

impl Timer {
    /// Returns the time at which it fires, in microseconds.
    pub fn at(self) -> u64 {
        self.ms * 1_000
    }
}

/// Well-formed ACQ request.
#[derive(PartialEq, Eq, Debug)]
pub struct Wish {
    pub key: Vec<u8>,
    pub workers: u64,
    pub max_queue: u64,
    pub timeout_us: u64,
    pub hold_us: Option<u64>,
    pub keep_us: u64,
    /// Further keys with their numbers.
    pub also: Vec<(Vec<u8>, u64, u64)>,
}

impl Pools {
    pub fn new(limits: Limits) -> Self {
        Pools { limits, ..Pools::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Answers one line without its end.
    pub fn answer(&mut self, client: usize, line: &[u8], now: u64, failed_sends: u64) -> Replies {
        let (command, rest) = match line.iter().position(|byte| *byte == b' ') {
            Some(space) => line.split_at(space),
            None => (line, &[][..]),
        };
        let parameters: Vec<&[u8]> = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        match command {
            b"ACQ4ME" => self.acquire(client, true, &parameters, now),
            b"ACQ4ANY" => self.acquire(client, false, &parameters, now),
            b"RELEASE" => self.release(client, parameters.first().copied(), now),
            b"STATS" => vec![(client, self.stats(&parameters, now, failed_sends))],
            _ => say(client, "ERROR BAD_COMMAND"),
        }
    }

    /// Disconnects a client: its claims are released, newest first.
    pub fn leave(&mut self, client: usize, now: u64) -> Replies {
        let mut replies = Vec::new();
        while let Some(newest) = self.claims.iter().rposition(|claim| claim.client == client) {
            let (before, reserved) = (self.held_by_key(), self.reserved_by(newest, now));
            let claim = self.give_back(newest, now);
            self.count(&claim.key, if claim.held { OfType::Lost } else { OfType::GivenUp }, 1);
            self.grant_freed(&claim, &before, now, &mut replies);
            self.grant_reserved(reserved, now, &mut replies);
        }
        replies
    }

    /// Returns the next timer of a claim.
    pub fn next_timer(&self) -> Option<Timer> {
        self.claims.iter().filter_map(|claim| claim.timer).min()
    }

    /// Fires the next timer of a claim. Returns the client whose connection ends, too.
    pub fn fire(&mut self, timer: Timer, now: u64) -> (Replies, Option<usize>) {
        let mut replies = Vec::new();
        let claim = self.claims.iter().position(|claim| claim.timer == Some(timer)).expect("it is armed");
        if let Claim { client, held: true, is_lowered: true, .. } = self.claims[claim] {
            replies.extend(say(client, "NOT_LOCKED"));
            let before = self.held_by_key();
            let claim = self.give_back(claim, now);
            self.count(&claim.key, OfType::Expired, 1);
            self.grant_freed(&claim, &before, now, &mut replies);
            replies.extend(self.leave(client, now));
            return (replies, Some(client));
        }
        let (before, reserved) = (self.held_by_key(), self.reserved_by(claim, now));
        let claim = self.give_back(claim, now);
        if claim.held || claim.kept {
            if claim.held {
                self.count(&claim.key, OfType::Expired, 1);
            }
            self.grant_freed(&claim, &before, now, &mut replies);
        } else {
            self.add("wasted timeout time", now - claim.since);
            self.count(&claim.key, OfType::Timeouts, 1);
            replies.extend(say(claim.client, "TIMEOUT"));
            self.grant_reserved(reserved, now, &mut replies);
        }
        (replies, None)
    }

    /// Returns whether two timers of different keys fire in one millisecond. Their order in another process is
    /// unspecified, and matters to a client that wants both keys.
    pub fn is_order_lost(&self) -> bool {
        let armed: Vec<&Claim> = self.claims.iter().filter(|claim| claim.timer.is_some()).collect();
        let ms = |claim: &Claim| claim.timer.map(|timer| timer.ms);
        let is_pair = |one: &Claim, other: &Claim| ms(one) == ms(other) && one.key != other.key;
        let several: Vec<u64> =
            self.claims.iter().filter(|claim| claim.waits() && claim.keys.len() > 1).map(|claim| claim.since).collect();
        !several.is_sorted_by(|one, next| one < next)
            || armed.iter().any(|one| armed.iter().any(|other| is_pair(one, other)))
    }

    /// Hands over to another process, which arms the timers of a key anew: of the holders, of ACQ4ME, of ACQ4ANY.
    pub fn rearm(&mut self) {
        for rank in 0..3 {
            for claim in &mut self.claims {
                if rank_of(claim) == rank
                    && let Some(timer) = &mut claim.timer
                {
                    self.armed += 1;
                    timer.serial = self.armed;
                }
            }
        }
    }

    fn acquire(&mut self, client: usize, for_me: bool, parameters: &[&[u8]], now: u64) -> Replies {
        let own: Vec<&Claim> = self.claims.iter().filter(|claim| claim.client == client).collect();
        if own.len() >= self.limits.max_locks {
            return self.refuse(client, "LOCK_HELD", "lock_mismatch");
        }
        if own.iter().any(|claim| !claim.held) {
            return self.refuse(client, "ERROR WAIT_FOR_RESPONSE", "lock_while_waiting");
        }
        let Some(Wish { key, workers, max_queue, timeout_us, hold_us, keep_us, also }) = read_wish(parameters) else {
            return say(client, "ERROR BAD_SYNTAX");
        };
        let most_us = hold_us.into_iter().chain(self.limits.max_hold_us).min();
        if most_us.is_some_and(|most| keep_us > most) {
            return say(client, "ERROR KEEP_OVER_HOLD");
        }
        let all: Vec<(Vec<u8>, u64, u64)> = [(key.clone(), workers, max_queue)].into_iter().chain(also).collect();
        if all.iter().any(|(key, _, max_queue)| self.on(key).count() as u64 >= *max_queue) {
            self.count(&key, OfType::Full, 1);
            return self.refuse(client, "QUEUE_FULL", "full_queues");
        }
        let keys: Vec<(Vec<u8>, u64)> = all.into_iter().map(|(key, workers, _)| (key, workers)).collect();
        let is_free =
            keys.iter().all(|(key, workers)| self.held_on(key) < *workers && !self.is_reserved(key, None, now));
        if !is_free && timeout_us == 0 {
            self.count(&key, OfType::Timeouts, 1);
            return say(client, "TIMEOUT");
        }
        let is_lowered = self.limits.max_hold_us.is_some_and(|most| hold_us.is_none_or(|asked| most < asked));
        let timer = if is_free { None } else { Some(self.arm(now + timeout_us)) };
        // A waiter for another key may be the first of its type.
        self.types.entry(type_of(&key)).or_default();
        let (hold_us, since, held, kept) = (most_us, now, false, false);
        let claim = Claim { client, key, for_me, held, since, hold_us, keep_us, kept, is_lowered, timer, keys };
        self.claims.push(claim);
        if is_free { self.grant(self.claims.len() - 1, now) } else { Vec::new() }
    }

    fn release(&mut self, client: usize, key: Option<&[u8]>, now: u64) -> Replies {
        let is_meant = |claim: &Claim| claim.client == client && key.is_none_or(|key| claim.key == key);
        let Some(newest) = self.claims.iter().rposition(is_meant) else {
            return self.refuse(client, "NOT_LOCKED", "release_mismatch");
        };
        let mut replies = Vec::new();
        let (before, reserved) = (self.held_by_key(), self.reserved_by(newest, now));
        let own = self.give_back(newest, now);
        if own.held {
            let saved = |claim: &Claim| claim.key == own.key && claim.waits() && !claim.for_me;
            while let Some(waiter) = self.claims.iter().position(saved) {
                let mut reserved = self.reserved_by(waiter, now);
                reserved.retain(|(key, _)| *key != own.key);
                let waiter = self.give_back(waiter, now);
                self.count(&own.key, OfType::Done, 1);
                self.add("gained time", now - own.since);
                self.add("waiting time for good", now - waiter.since);
                replies.extend(say(waiter.client, "DONE"));
                self.grant_reserved(reserved, now, &mut replies);
            }
            self.grant_freed(&own, &before, now, &mut replies);
        } else {
            self.count(&own.key, OfType::GivenUp, 1);
        }
        self.grant_reserved(reserved, now, &mut replies);
        self.add("total_releases", 1);
        replies.extend(say(client, "RELEASED"));
        replies
    }

    /// Returns the claims with this key, as their first or another.
    fn on<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Claim> {
        self.claims.iter().filter(move |claim| claim.keys.iter().any(|(own, _)| own == key))
    }

    fn held_on(&self, key: &[u8]) -> u64 {
        self.on(key).filter(|claim| !claim.waits()).count() as u64
    }

    fn held_by_key(&self) -> BTreeMap<Vec<u8>, u64> {
        let keys = self.claims.iter().flat_map(|claim| &claim.keys);
        keys.map(|(key, _)| (key.clone(), self.held_on(key))).collect()
    }

    /// Grants the slots of a released claim to the next waiters of each of its keys.
    fn grant_freed(&mut self, gone: &Claim, before: &BTreeMap<Vec<u8>, u64>, now: u64, replies: &mut Replies) {
        for (key, _) in &gone.keys {
            if self.held_on(key) < before[key] {
                self.grant_next(key, now, replies);
            }
        }
    }

    /// Returns whether the claim at a place could have a free slot: with all its other keys, if it wants several, and
    /// without the slots that are reserved for others.
    fn could_have_all(&self, place: usize, now: u64) -> bool {
        let keys = &self.claims[place].keys;
        (keys.len() == 1 || keys.iter().all(|(key, workers)| self.held_on(key) < *workers))
            && !keys.iter().any(|(key, _)| self.is_reserved(key, Some(place), now))
    }

    /// Returns the place of the oldest waiter for this and other keys, if it has waited for long, and the number of
    /// locks of the key that it allows.
    fn reserver(&self, key: &[u8], now: u64) -> Option<(usize, u64)> {
        let workers = |claim: &Claim| claim.keys.iter().find(|(own, _)| own == key).map(|(_, workers)| *workers);
        let waits = |claim: &Claim| claim.waits() && claim.keys.len() > 1 && workers(claim).is_some();
        let place = self.claims.iter().position(waits)?;
        let claim = &self.claims[place];
        (now - claim.since >= AGED_US).then(|| Some((place, workers(claim)?)))?
    }

    fn is_reserved(&self, key: &[u8], from: Option<usize>, now: u64) -> bool {
        let reserver = self.reserver(key, now).filter(|(place, _)| from != Some(*place));
        reserver.is_some_and(|(_, workers)| self.held_on(key) + 1 >= workers)
    }

    /// Returns the keys with one slot left, which is reserved for the waiter at a place, and their numbers of locks.
    fn reserved_by(&self, place: usize, now: u64) -> Vec<(Vec<u8>, u64)> {
        let keys = self.claims[place].keys.iter().map(|(key, _)| (key.clone(), self.held_on(key)));
        keys.filter(|(key, held)| self.reserver(key, now) == Some((place, held + 1))).collect()
    }

    /// Grants the slots that were reserved for a waiter that has gone.
    fn grant_reserved(&mut self, reserved: Vec<(Vec<u8>, u64)>, now: u64, replies: &mut Replies) {
        for (key, held) in reserved {
            if self.held_on(&key) <= held {
                self.grant_next(&key, now, replies);
            }
        }
    }

    /// Grants a free slot of the key. A waiter with the key as a further one has the rank of ACQ4ME.
    fn grant_next(&mut self, key: &[u8], now: u64, replies: &mut Replies) {
        let waits = |place: usize| self.claims[place].waits() && self.could_have_all(place, now);
        let is_first = |claim: &Claim| claim.key == key;
        let is_on = |claim: &Claim| claim.keys.iter().any(|(own, _)| own == key);
        let position = |of: &dyn Fn(&Claim) -> bool| (0..self.claims.len()).find(|n| of(&self.claims[*n]) && waits(*n));
        let for_me = position(&|claim| is_on(claim) && (claim.for_me || !is_first(claim)));
        let aged = self.reserver(key, now).map(|(place, _)| place).filter(|place| waits(*place));
        let Some(next) = aged.or(for_me).or_else(|| position(&|claim| is_first(claim))) else { return };
        let (waited, for_me) = (now - self.claims[next].since, self.claims[next].for_me);
        let own_key = self.claims[next].key.clone();
        self.add("waiting time", waited);
        self.count(&own_key, OfType::WaitedUs, waited);
        self.add(if for_me { "waiting time for me" } else { "waiting time for anyone" }, waited);
        replies.extend(self.grant(next, now));
    }

    fn grant(&mut self, claim: usize, now: u64) -> Replies {
        let timer = self.claims[claim].hold_us.map(|hold_us| self.arm(now + hold_us));
        let claim = &mut self.claims[claim];
        claim.held = true;
        claim.since = now;
        claim.timer = timer;
        let (client, key) = (claim.client, claim.key.clone());
        self.count(&key, OfType::Acquired, 1);
        self.add("total_acquired", 1);
        say(client, "LOCKED")
    }

    /// Removes a claim, or keeps its lock for the rest of its least time.
    fn give_back(&mut self, place: usize, now: u64) -> Claim {
        let claim = self.claims[place].clone();
        if claim.held && now < claim.since + claim.keep_us {
            let timer = Some(self.arm(claim.since + claim.keep_us));
            self.claims[place] = Claim { client: NOBODY, held: false, kept: true, timer, ..claim.clone() };
        } else {
            self.claims.remove(place);
        }
        if claim.kept {
            return claim;
        }
        if claim.held {
            self.add("processed_count", 1);
            self.add("total processing time", now - claim.since);
        }
        let what = if claim.held { OfType::HeldUs } else { OfType::WaitedUs };
        self.count(&claim.key, what, now - claim.since);
        claim
    }

    /// Arms a timer, of a claim or of a connection: they fire in one order.
    pub fn arm(&mut self, at: u64) -> Timer {
        self.armed += 1;
        Timer { ms: at.div_ceil(1_000), serial: self.armed }
    }

    fn refuse(&mut self, client: usize, text: &str, counter: &'static str) -> Replies {
        self.add(counter, 1);
        say(client, text)
    }

    fn add(&mut self, name: &'static str, more: u64) {
        *self.totals.entry(name).or_default() += more;
    }

    fn count(&mut self, key: &[u8], what: OfType, more: u64) {
        self.types.entry(type_of(key)).or_default()[what as usize] += more;
    }

    /// Returns the lines of `STATS TYPES`.
    fn types(&self) -> String {
        let mut types: Vec<_> = self.types.iter().collect();
        // Types with the same number stay in the order of their names.
        types.sort_by_key(|(_, counts)| std::cmp::Reverse(counts[OfType::Acquired as usize]));
        let line = |(name, counts): &(&Vec<u8>, &[u64; 9])| {
            let [acquired, done, full, timeouts, lost, expired, given_up, waited, held] = **counts;
            let working = self.claims.iter().filter(|claim| claim.held && type_of(&claim.key) == **name).count();
            let waiting = self.claims.iter().filter(|claim| claim.waits() && type_of(&claim.key) == **name).count();
            let levels = format!("{working} working, {waiting} waiting, {acquired} acquired");
            let ends = format!("{done} done, {full} full, {timeouts} timeouts, {lost} lost, {expired} expired");
            let ends = format!("{ends}, {given_up} given up");
            let name = String::from_utf8_lossy(name);
            format!("{name}: {levels}, {ends}, waited {}, held {}\n", seconds(waited), seconds(held))
        };
        types.iter().map(line).collect::<String>() + "\n"
    }

    fn stats(&self, parameters: &[&[u8]], now: u64, failed_sends: u64) -> String {
        let figures = self.figures(now, failed_sends);
        let wanted = match parameters {
            [] => "full".to_string(),
            [name] => String::from_utf8_lossy(name).to_ascii_lowercase(),
            _ => return "ERROR WRONG_STAT\n".into(),
        };
        if wanted == "types" {
            return self.types();
        }
        if wanted == "full" {
            return figures.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>() + "\n";
        }
        match figures.iter().find(|(name, _)| *name == wanted) {
            Some((name, value)) => format!("{name}: {value}\n"),
            None => "ERROR WRONG_STAT\n".into(),
        }
    }

    /// Returns the lines of `STATS FULL`.
    fn figures(&self, now: u64, failed_sends: u64) -> Vec<(&'static str, String)> {
        let total = |name| self.totals.get(name).copied().unwrap_or(0);
        let span = |name| (name, duration(total(name)));
        let count = |name| (name, total(name).to_string());
        let average = total("total processing time").checked_div(total("processed_count")).unwrap_or(0);
        let mut keys: Vec<&[u8]> = self.claims.iter().flat_map(|claim| &claim.keys).map(|(key, _)| &key[..]).collect();
        keys.sort_unstable();
        keys.dedup();
        let working = self.claims.iter().filter(|claim| claim.held).count();
        vec![
            ("uptime", uptime(now)),
            span("total processing time"),
            ("average processing time", duration(average)),
            span("gained time"),
            span("waiting time"),
            span("waiting time for me"),
            span("waiting time for anyone"),
            span("waiting time for good"),
            span("wasted timeout time"),
            count("total_acquired"),
            count("total_releases"),
            ("hashtable_entries", keys.len().to_string()),
            ("processing_workers", working.to_string()),
            ("waiting_workers", self.claims.iter().filter(|claim| claim.waits()).count().to_string()),
            // No connection errors can happen here.
            ("connect_errors", "0".to_string()),
            ("failed_sends", failed_sends.to_string()),
            count("full_queues"),
            count("lock_mismatch"),
            count("lock_while_waiting"),
            count("release_mismatch"),
            count("processed_count"),
        ]
    }
}

impl Claim {
    fn waits(&self) -> bool {
        !self.held && !self.kept
    }
}

fn rank_of(claim: &Claim) -> u32 {
    match (!claim.waits(), claim.for_me) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => 2,
    }
}

fn say(client: usize, line: &str) -> Replies {
    vec![(client, format!("{line}\n"))]
}

/// Reads the words behind an ACQ command.
pub fn read_wish(parameters: &[&[u8]]) -> Option<Wish> {
    let word = |n: usize| parameters.get(n).copied();
    let key = word(0).filter(|key| !key.contains(&0))?.to_vec();
    let workers = word(1).and_then(number).filter(|n| *n > 0)?;
    let max_queue = word(2).and_then(number).filter(|n| *n > 0)?;
    let timeout_us = word(3).and_then(microseconds).unwrap_or(0);
    let fields = |name: &'static [u8]| parameters.iter().skip(4).filter_map(move |word| word.strip_prefix(name));
    let holds: Vec<u64> = fields(b"hold=").map(microseconds).collect::<Option<_>>()?;
    if fields(b"who=").any(|who| who.len() > 64 || who.contains(&0)) {
        return None;
    }
    let keeps: Vec<u64> = fields(b"keep=").map(microseconds).collect::<Option<_>>()?;
    let keep_us = keeps.last().copied().unwrap_or(0);
    // A hold of 0 is one without limit.
    let hold_us = holds.last().copied().filter(|us| *us > 0);
    let also: Vec<(Vec<u8>, u64, u64)> = fields(b"also=").map(read_also).collect::<Option<_>>()?;
    let mut names: Vec<&[u8]> = also.iter().map(|(key, ..)| &key[..]).chain([&key[..]]).collect();
    names.sort_unstable();
    names.dedup();
    let is_fine = also.len() <= 4 && names.len() == also.len() + 1 && (keep_us == 0 || also.is_empty());
    is_fine.then_some(Wish { key, workers, max_queue, timeout_us, hold_us, keep_us, also })
}

/// Reads a key, a colon, and two numbers that are not zero with another colon between them.
fn read_also(word: &[u8]) -> Option<(Vec<u8>, u64, u64)> {
    let pieces: Vec<&[u8]> = word.split(|byte| *byte == b':').collect();
    let [key @ .., workers, max_queue] = &pieces[..] else { return None };
    let (key, workers, max_queue) = (key.join(&b':'), number(workers)?, number(max_queue)?);
    let is_fine = !key.is_empty() && !key.contains(&0) && workers > 0 && max_queue > 0;
    is_fine.then_some((key, workers, max_queue))
}

pub fn number(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?;
    let most = u64::from(u32::MAX);
    match digits.trim_start_matches('0') {
        "" => (!digits.is_empty()).then_some(0),
        digits if digits.len() > 10 => Some(most),
        digits => digits.parse().ok().map(|n: u64| n.min(most)),
    }
}

/// Reads seconds, perhaps with decimals: decimals beyond the third count as one more millisecond unless they are zeros.
pub fn microseconds(word: &[u8]) -> Option<u64> {
    let word = std::str::from_utf8(word).ok()?;
    let (seconds, decimals) = word.split_once('.').unwrap_or((word, ""));
    if word.is_empty() || word == "." || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = if seconds.is_empty() { 0 } else { number(seconds.as_bytes())? };
    let ms: u64 = format!("{decimals}000")[..3].parse().ok()?;
    let is_finer = decimals.bytes().skip(3).any(|digit| digit != b'0');
    Some(seconds * 1_000_000 + (ms + u64::from(is_finer)) * 1_000)
}

fn type_of(key: &[u8]) -> Vec<u8> {
    match key.iter().take(65).position(|byte| *byte == b':') {
        Some(end) if end > 0 => key[..end].to_vec(),
        _ => b"-".to_vec(),
    }
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}s", us / 1_000_000, us % 1_000_000)
}

fn uptime(us: u64) -> String {
    let seconds = us / 1_000_000;
    format!("{} days, {}h {}m {}s", seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

fn duration(us: u64) -> String {
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let parts = [(seconds / 86_400, " days "), (seconds / 3_600 % 24, "h "), (seconds / 60 % 60, "m ")];
    let leading: String = parts.iter().skip_while(|(n, _)| *n == 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    format!("{leading}{}.{us:06}s", seconds % 60)
}
