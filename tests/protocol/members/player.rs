//! One state with its wheel, clock and connections, driven by lines.

use nix::time::{ClockId, clock_gettime};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::meter;
use poolcounter_core::random::Random;
use poolcounter_core::record::{Reader, Unreadable, Writer};
use poolcounter_core::slices::PER_TICK;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Owner, Wheel};
use poolcounter_members::state::{
    Clock, DeclaredPool, Event, Limits, Notice, PoolReport, RestoredKept, State, Step, Timer, Utilization, Viewer, What,
};
use poolcounter_members::wire::{self, Line, Query};
use poolcounter_testkit::members_twin::answer_to;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Most members, starts and waiters of a player's service, unless a test says otherwise.
const MOST: usize = 60;

const OWNER: Owner = Owner(3);

/// Keys of the rows with the version and the highest number of a lease.
const NUMBERS: [&[u8]; 2] = [b"0", b"1"];

/// A state and its surroundings.
pub struct Player {
    state: State,
    limits: Limits,
    /// Budget of the background work of a tick.
    budget: u32,
    wheel: Wheel,
    now: Time,
    random: Random,
    /// Random choices of the test, besides those of the state.
    choices: Random,
    /// Unread output to each connection.
    told: BTreeMap<usize, VecDeque<String>>,
    /// Unanswered requests to providers and cleaners, by connection.
    asked: BTreeMap<usize, Vec<String>>,
    leases: Vec<(usize, u64)>,
    tokens: Vec<String>,
    notices: Vec<Notice>,
    is_traced: bool,
    /// True if tables are compared after each step.
    is_checked: bool,
    /// Time of day at the start of the process.
    wall: Span,
    /// Rows of the ledger, as the changes of each step leave them.
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Number of replies of each kind.
    pub tally: BTreeMap<String, u64>,
    /// Processor time of the longest step and of all steps since the last look, and their number.
    pub spent: (Duration, Duration, u64),
}

impl Player {
    /// Returns a player. `budget` is that of the background work of a tick: two for each member.
    pub fn new(seed: u64, budget: u32) -> Self {
        Player::with_most(MOST, seed, budget)
    }

    /// Returns a player whose service has at most `most` members, starts and waiters.
    pub fn with_most(most: usize, seed: u64, budget: u32) -> Self {
        let limits = Limits { most };
        Player {
            state: State::new(limits, 1),
            limits,
            budget,
            wheel: Wheel::with_budget(budget),
            now: Time::START,
            random: Random::from_seed(seed),
            choices: Random::from_seed(seed ^ 0x5eed),
            told: BTreeMap::new(),
            asked: BTreeMap::new(),
            leases: Vec::new(),
            tokens: vec!["0".repeat(32)],
            notices: Vec::new(),
            is_traced: std::env::var_os("SIM_TRACE").is_some(),
            is_checked: true,
            wall: Span::from_secs(1_700_000_000),
            rows: BTreeMap::new(),
            tally: BTreeMap::new(),
            spent: (Duration::ZERO, Duration::ZERO, 0),
        }
    }

    /// Returns a player for crowds, whose tables are not compared.
    pub fn for_crowds() -> Self {
        Player { is_checked: false, ..Player::with_most(3_000_000, 1, PER_TICK) }
    }

    /// Takes steps that are too many to compare all tables after each.
    pub fn without_checks(&mut self, act: impl FnOnce(&mut Player)) {
        self.is_checked = false;
        act(self);
        self.is_checked = true;
    }

    /// Compares all tables with each other.
    pub fn check(&self) {
        self.state.check();
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.choices.below(end)
    }

    fn step<T>(&mut self, is_admin: bool, take: impl FnOnce(&mut State, &mut Step<'_, '_>) -> T) -> T {
        let before = if self.is_checked { self.taken_places() } else { BTreeMap::new() };
        let mut events = Vec::new();
        self.state.set_wall(self.wall);
        let mut step = Step {
            now: self.now,
            timers: &mut self.wheel.of::<Timer>(OWNER),
            random: &mut self.random,
            events: &mut events,
            notices: &mut self.notices,
            is_admin,
            peer: &address,
        };
        let begun = cpu_time();
        meter::begin_step();
        let done = take(&mut self.state, &mut step);
        meter::end_step();
        let took = cpu_time() - begun;
        self.spent = (self.spent.0.max(took), self.spent.1 + took, self.spent.2 + 1);
        self.write_rows();
        if self.is_checked {
            self.state.check();
            self.wheel.check();
            for (pool, (places, max)) in self.taken_places() {
                let had = before.get(&pool).map_or(u32::MAX, |(places, _)| *places);
                assert!(places <= max.max(had), "{pool} grows beyond its max");
            }
        }
        events.iter().for_each(|event| self.hear(event));
        done
    }

    fn write_rows(&mut self) {
        let clock = Clock { timers: &self.wheel.of::<Timer>(OWNER), peer: &address };
        for change in self.state.take_changes(&clock) {
            match change.value {
                Some(value) => _ = self.rows.insert(change.key, value),
                None => {
                    let was_there = self.rows.remove(&change.key).is_some();
                    assert!(was_there || change.key[0] != b'4', "only tokens with rows are deleted");
                }
            }
        }
    }

    /// Checks that the changes so far make the rows of the state as it is.
    pub fn check_rows(&mut self) {
        let clock = Clock { timers: &self.wheel.of::<Timer>(OWNER), peer: &address };
        let all: BTreeMap<Vec<u8>, Vec<u8>> = self.state.all_rows(&clock).into_iter().collect();
        if self.state.has_background_work() {
            return;
        }
        // Numbers are reserved in steps.
        self.rows.extend(NUMBERS.map(|key| (key.to_vec(), all[key].clone())));
        let text = |(key, value): (&Vec<u8>, &Vec<u8>)| format!("{}={}", key.escape_ascii(), value.escape_ascii());
        let (all, rows): (Vec<_>, Vec<_>) = (all.iter().map(text).collect(), self.rows.iter().map(text).collect());
        let lacks: Vec<_> = all.iter().filter(|row| !rows.contains(row)).collect();
        let extra: Vec<_> = rows.iter().filter(|row| !all.contains(row)).collect();
        assert!(lacks.is_empty() && extra.is_empty(), "changes are not marked: {lacks:#?}, old: {extra:#?}");
    }

    /// Ends the process as a crash does, and starts another one with these pools of the configuration file.
    pub fn restart(&mut self, declared: Vec<DeclaredPool>) -> RestoredKept {
        self.check_rows();
        self.state = State::new(self.limits, 1);
        self.state.set_grace(Span::from_secs(60));
        self.wheel = Wheel::with_budget(self.budget);
        self.told.clear();
        self.asked.clear();
        let rows: Vec<_> = std::mem::take(&mut self.rows).into_iter().collect();
        self.step(true, |state, step| state.configure(declared, step));
        self.rows = rows.iter().cloned().collect();
        let restored = self.step(true, |state, step| state.restore_kept(&rows, step));
        let restored = restored.expect("the rows can be read");
        self.check_rows();
        restored
    }

    /// Returns the number of members, starts and stops of each pool, and its maximum.
    fn taken_places(&self) -> BTreeMap<String, (u32, u32)> {
        let pools = self.state.pools_after(None);
        let places =
            |row: &Utilization| row.in_use + row.free + row.starting + row.stopping + row.cleaning + row.quarantined;
        pools.map(|row| (String::from_utf8_lossy(row.name).into(), (places(&row.figures), row.figures.max))).collect()
    }

    /// Returns the replies to all queries.
    fn picture(&self) -> Vec<String> {
        let (mut bytes, viewer) = (Vec::new(), Viewer { now: self.now, peer: &address });
        for pool in self.state.pools_after(None) {
            wire::write_pool(&mut bytes, &pool);
            let members = self.state.members_after(pool.name, None, viewer).expect("the pool is listed");
            members.for_each(|member| wire::write_member(&mut bytes, &member));
        }
        String::from_utf8_lossy(&bytes).lines().map(String::from).collect()
    }

    /// Prints histories as conversations if `SIM_TRACE` is set.
    fn trace(&self, line: &str) {
        if self.is_traced {
            println!("{line}");
        }
    }

    fn hear(&mut self, event: &Event) {
        let conn = event.conn.index();
        let mut bytes = Vec::new();
        wire::write_event(&mut bytes, event);
        let text = String::from_utf8(bytes).expect("the names are text");
        let mut words = text.split_whitespace();
        let key = match (words.next().unwrap_or_default(), words.next(), words.next()) {
            ("!LOST", _, Some(reason)) => format!("!LOST {reason}"),
            (word @ ("ERROR" | "NO_MEMBERS" | "MEMBERS"), Some(more), _) => format!("{word} {more}"),
            (word, ..) => word.into(),
        };
        *self.tally.entry(key).or_insert(0) += 1;
        match &event.what {
            What::Member(taken) => self.leases.push((conn, taken.lease)),
            What::Members(taken) => self.leases.extend(taken.iter().map(|taken| (conn, taken.lease))),
            What::Start { .. } | What::Stop { .. } | What::Check { .. } | What::Clean { .. } => {
                self.asked.entry(conn).or_default().push(text.trim_end().into());
            }
            _ => {}
        }
        for line in text.lines() {
            self.trace(&format!("{conn}< {line}"));
            if let Some((_, token)) = line.split_once("token=") {
                self.tokens.push(token.into());
            }
            self.told.entry(conn).or_default().push_back(line.into());
        }
    }

    /// Sends a line of a connection.
    pub fn say(&mut self, conn: usize, line: &str, is_admin: bool) {
        self.trace(&format!("{conn}> {line}"));
        let id = ConnId::from_index(conn);
        match wire::parse(line.as_bytes()) {
            Ok(Line::Request(request)) => {
                let is_bye = line == "BYE";
                self.step(is_admin, |state, step| state.serve(id, request, step));
                if is_bye {
                    self.close(conn);
                }
                std::mem::take(&mut self.state.replaced).into_iter().for_each(|conn| self.close(conn.index()));
            }
            Ok(Line::Query(query)) => self.query(conn, query),
            Err(refusal) => self.hear(&Event { conn: id, what: What::Error(refusal) }),
        }
    }

    fn query(&mut self, conn: usize, query: Query<'_>) {
        let mut bytes = Vec::new();
        let refusal = match query {
            Query::Utilization { pool } => {
                let written = |report: PoolReport<'_>| wire::write_utilization(&mut bytes, &report.row.figures);
                self.state.report_of_name(pool).map(written).err()
            }
            Query::Members { pool, after, limit } => {
                let rows = self.state.members_after(pool, after, Viewer { now: self.now, peer: &address });
                let most = limit.map_or(usize::MAX, |limit| limit as usize);
                rows.map(|rows| rows.take(most).for_each(|row| wire::write_member(&mut bytes, &row)))
                    .map(|()| bytes.push(b'\n'))
                    .err()
            }
            Query::Waiters { pool, limit } => {
                let most = limit.map_or(usize::MAX, |limit| limit as usize);
                let rows = self.state.waiters_after(pool, None, Viewer { now: self.now, peer: &address });
                rows.map(|rows| {
                    let rows: Vec<_> = rows.take(most).collect();
                    assert!(rows.is_sorted_by_key(|(rank, _)| *rank), "waiters are listed in their order");
                    (1..).zip(rows).for_each(|(place, (_, row))| wire::write_waiter(&mut bytes, place, &row));
                    bytes.push(b'\n');
                })
                .err()
            }
            Query::History { named } => {
                let (past, now) = (self.state.history(named), self.state.moment(self.now));
                past.map(|past| past.for_each(|past| wire::write_past_lease(&mut bytes, past, now)))
                    .map(|()| bytes.push(b'\n'))
                    .err()
            }
            Query::Pools => {
                self.state.pools_after(None).for_each(|row| wire::write_pool(&mut bytes, &row));
                bytes.push(b'\n');
                None
            }
        };
        if let Some(refusal) = refusal {
            wire::write_event(&mut bytes, &Event { conn: ConnId::from_index(conn), what: What::Error(refusal) });
        }
        let text = String::from_utf8(bytes).expect("the names are text");
        self.told.entry(conn).or_default().extend(text.lines().map(String::from));
    }

    pub fn close(&mut self, conn: usize) {
        self.trace(&format!("{conn}x"));
        let id = ConnId::from_index(conn);
        self.step(true, |state, step| state.close(id, step));
        assert!(!self.state.knows(id), "a connection that is closed is forgotten");
        self.asked.remove(&conn);
    }

    /// Lets time pass; timers fire when they are due.
    pub fn advance(&mut self, span: Duration) {
        self.trace(&format!("+{}s", span.as_secs_f64()));
        let end = self.now + Span::from(span);
        let mut ticks_at_once = 0;
        while let Some(next) = self.wheel.next().filter(|next| *next <= end) {
            ticks_at_once = if next > self.now { 0 } else { ticks_at_once + 1 };
            assert!(ticks_at_once < 10_000, "background work comes to its end");
            self.now = self.now.max(next);
            self.fire();
        }
        self.now = end;
        self.wheel.end_tick();
        if self.is_checked {
            self.state.check_waits(self.now);
        }
    }

    /// Plays one tick, without a lapse of time.
    pub fn tick(&mut self) {
        self.fire();
        self.wheel.end_tick();
    }

    /// Fires the due timers; background work has one slice.
    fn fire(&mut self) {
        while let Some(due) = self.wheel.expire(self.now) {
            let timer: Timer = due.key();
            self.step(true, |state, step| state.expire(timer, step));
        }
    }

    /// Returns what the state hands over to another process.
    pub fn save(&mut self) -> Vec<u8> {
        let mut saved = Vec::new();
        let timers = self.wheel.of::<Timer>(OWNER);
        self.state.save(&mut Writer::new(&mut saved), &timers).expect("a vector takes every byte");
        saved
    }

    /// Saves everything, and restores it in another state with another wheel.
    pub fn upgrade(&mut self) {
        self.fire();
        self.check_rows();
        let (picture, armed) = (self.picture(), self.wheel.len());
        let saved = self.save();
        self.state = State::new(self.limits, 1);
        self.wheel = Wheel::with_budget(self.budget);
        let told: usize = self.told.values().map(VecDeque::len).sum();
        self.restore_damaged(saved.clone());
        let mut saved = &saved[..];
        let mut saved = Reader::new(&mut saved);
        self.state.restore(&mut saved).expect("its end is there");
        while !self.step(true, State::restore_more).expect("what was saved agrees with itself") {}
        self.state.check();
        self.wheel.end_tick();
        let clock = Clock { timers: &self.wheel.of::<Timer>(OWNER), peer: &address };
        self.rows = self.state.all_rows(&clock).into_iter().collect();
        assert_eq!(told, self.told.values().map(VecDeque::len).sum::<usize>(), "an upgrade tells nobody anything");
        assert_eq!(picture, self.picture(), "an upgrade changes nothing");
        // Timers that are armed anew in slices may be so at once.
        let is_whole = self.budget == PER_TICK;
        assert!(!is_whole || armed == self.wheel.len(), "an upgrade keeps every timer");
    }

    /// Restores a handover with a wrong byte in another state, which refuses it or goes on.
    fn restore_damaged(&mut self, mut saved: Vec<u8>) {
        let at = self.choices.below(saved.len() as u64) as usize;
        saved[at] ^= 1 << self.choices.below(8);
        let (mut saved, mut wheel) = (&saved[..], Wheel::default());
        let mut step = Step {
            now: self.now,
            timers: &mut wheel.of::<Timer>(OWNER),
            random: &mut Random::from_seed(1),
            events: &mut Vec::new(),
            notices: &mut Vec::new(),
            is_admin: true,
            peer: &address,
        };
        // Either result is right, and a panic is not.
        let _ = restore(&mut State::new(self.limits, 1), &mut Reader::new(&mut saved), &mut step);
    }

    /// Returns the output to a connection since the last call, with leases as the state numbers them.
    pub fn heard(&mut self, conn: usize) -> Vec<String> {
        self.told.remove(&conn).map(Vec::from).unwrap_or_default()
    }

    /// Returns whether a connection has unread output with this line.
    pub fn has_heard(&self, conn: usize, line: &str) -> bool {
        self.told.get(&conn).is_some_and(|told| told.iter().any(|told| told == line))
    }

    /// Returns the unread output to a connection.
    pub fn told(&self, conn: usize) -> String {
        self.told.get(&conn).map(|told| Vec::from(told.clone()).join("\n")).unwrap_or_default()
    }

    /// Returns the number of unread lines to each connection from this one on that has some.
    pub fn lines_from(&self, conn: usize) -> Vec<usize> {
        self.told.range(conn..).map(|(_, told)| told.len()).collect()
    }

    pub fn drop_output(&mut self) {
        self.told.clear();
    }

    /// Returns the number of a lease, mostly one of the connection.
    pub fn some_lease(&mut self, conn: usize) -> u64 {
        let is_own = self.choices.below(8) > 0;
        let known: Vec<u64> = self
            .leases
            .iter()
            .rev()
            .filter(|(of, _)| !is_own || *of == conn)
            .map(|(_, lease)| *lease)
            .take(4)
            .collect();
        if known.is_empty() { 0 } else { known[self.choices.below(known.len() as u64) as usize] }
    }

    pub fn some_token(&mut self) -> String {
        let back = self.choices.below(self.tokens.len().min(3) as u64) as usize;
        self.tokens[self.tokens.len() - 1 - back].clone()
    }

    /// Returns an answer, mostly to a request that the connection got.
    pub fn some_answer(&mut self, conn: usize, member: &str, attributes: &str) -> Option<String> {
        if self.choices.below(4) == 0 {
            return None;
        }
        let chance = self.choices.below(10);
        let asked = self.asked.get_mut(&conn).filter(|asked| !asked.is_empty())?;
        let line = asked.swap_remove(self.choices.below(asked.len() as u64) as usize);
        Some(answer_to(&line, chance <= 6, &format!("{member}{attributes}")))
    }

    /// Returns what a provider answers to its oldest request: that it has been done.
    pub fn next_answer(&mut self, conn: usize) -> Option<String> {
        let asked = self.asked.get_mut(&conn).filter(|asked| !asked.is_empty())?;
        let line = asked.remove(0);
        let started = format!("m{}", line.split(' ').nth(2).unwrap_or_default());
        Some(answer_to(&line, true, &started))
    }

    /// Closes everything, removes every pool, and checks that nothing is left.
    pub fn end(mut self) {
        for conn in 0..=9 {
            self.close(conn);
        }
        let pools: Vec<String> = {
            let names = self.state.pools_after(None);
            names.map(|row| String::from_utf8_lossy(row.name).into_owned()).collect()
        };
        for pool in pools {
            self.say(0, &format!("RMPOOL {pool}"), true);
        }
        self.advance(Duration::from_secs(1));
        assert!(self.state.is_empty(), "something is left");
        assert!(self.wheel.is_empty(), "a timer is left");
    }
}

/// Returns the processor time of the thread, which excludes that of other processes.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the system has this clock").into()
}

fn address(conn: ConnId) -> String {
    format!("10.0.0.{}:5", conn.index())
}

/// Restores a state with all slices.
fn restore(state: &mut State, saved: &mut Reader<'_>, step: &mut Step<'_, '_>) -> Result<(), Unreadable> {
    state.restore(saved)?;
    while !state.restore_more(step)? {}
    Ok(())
}
