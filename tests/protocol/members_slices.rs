//! Large work is done in slices: a million members that are stopped, lost or returned do not keep others waiting. The
//! state machine in virtual time, with a clock beside it.

use nix::time::{ClockId, clock_gettime};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::meter;
use poolcounter_core::random::Random;
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Owner, Wheel};
use poolcounter_members::state::{Event, Limits, State, Step, Timer, Viewer};
use poolcounter_protocol::members::wire::{self, Line};
use std::time::Duration;

const OWNER: Owner = Owner(3);
const OPERATOR: usize = 0;
const PROVIDER: usize = 1;
const CONSUMER: usize = 2;

/// A state with its wheel, which times its steps and counts the entries that they look at.
pub struct Timed {
    state: State,
    wheel: Wheel,
    random: Random,
    now: Time,
    /// Time of the longest step and of all steps since the last call of `look`, and their number.
    longest: Duration,
    all: Duration,
    pub steps: u64,
    /// Events since the last call of `look`.
    pub events: Vec<Event>,
}

impl Timed {
    pub fn new() -> Self {
        Timed {
            state: State::new(Limits { most: 3_000_000 }, 1),
            wheel: Wheel::default(),
            random: Random::from_seed(1),
            now: Time::START,
            longest: Duration::ZERO,
            all: Duration::ZERO,
            steps: 0,
            events: Vec::new(),
        }
    }

    fn step(&mut self, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let mut notices = Vec::new();
        let begun = cpu_time();
        let timers = &mut self.wheel.of::<Timer>(OWNER);
        let (events, random) = (&mut self.events, &mut self.random);
        let peer = &|conn: ConnId| format!("peer:{}", conn.index());
        let mut step = Step { now: self.now, timers, random, events, notices: &mut notices, is_admin: true, peer };
        meter::begin_step();
        take(&mut self.state, &mut step);
        meter::end_step();
        let took = cpu_time() - begun;
        self.longest = self.longest.max(took);
        self.all += took;
        self.steps += 1;
    }

    pub fn say(&mut self, conn: usize, line: &str) {
        let Ok(Line::Request(request)) = wire::parse(line.as_bytes()) else { panic!("{line} is no request") };
        self.step(|state, step| state.serve(ConnId::from_index(conn), request, step));
    }

    pub fn close(&mut self, conn: usize) {
        self.step(|state, step| state.close(ConnId::from_index(conn), step));
    }

    /// Lets time pass, in which timers fire.
    pub fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(next) = self.wheel.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            while let Some(due) = self.wheel.expire(self.now) {
                self.step(|state, step| state.expire(due.key(), step));
            }
        }
        self.now = end;
        self.wheel.end_tick();
    }

    /// Returns the members of the pool `p`, as text.
    fn rows(&self) -> Vec<String> {
        let peer = &|conn: ConnId| format!("peer:{}", conn.index());
        let rows = self.state.members_after(b"p", None, Viewer { now: self.now, peer });
        rows.expect("it exists").map(|row| format!("{row:?}")).collect()
    }

    /// Returns the time of the longest step since the last call, and the number of events.
    pub fn look(&mut self) -> (Duration, usize) {
        (self.steps, self.all) = (0, Duration::ZERO);
        (std::mem::take(&mut self.longest), std::mem::take(&mut self.events).len())
    }
}

/// Returns the processor time of the thread, which excludes that of other processes.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the system has this clock").into()
}

/// Returns a pool whose members one provider has offered.
fn crowd(members: usize, settings: &str) -> Timed {
    let mut timed = Timed::new();
    timed.say(OPERATOR, &format!("POOL p 0 {members} cull_interval=0{settings}"));
    timed.say(PROVIDER, "PROVIDE p");
    (0..members).for_each(|n| timed.say(PROVIDER, &format!("OFFER p member-{n}")));
    timed.look();
    timed
}

/// Returns such a pool, all of whose members one consumer has taken.
fn taken(members: usize, settings: &str) -> Timed {
    let mut timed = crowd(members, settings);
    (0..members).for_each(|_| timed.say(CONSUMER, "TAKE p"));
    timed.look();
    timed
}

/// Returns fixed members that wait to be cleaned.
fn unclean(members: usize) -> Timed {
    let mut timed = Timed::new();
    timed.say(OPERATOR, &format!("POOL p 0 {members} cull_interval=0 clean_timeout=900"));
    (0..members).for_each(|n| timed.say(OPERATOR, &format!("ADD p member-{n}")));
    for _ in 0..members {
        timed.say(CONSUMER, "TAKE p");
    }
    timed.say(CONSUMER, "BYE");
    timed.pass(Span::from_secs(1));
    timed.look();
    timed
}

/// Returns such members, ten of which are being cleaned.
fn cleaned(members: usize) -> Timed {
    let mut timed = unclean(members);
    timed.say(PROVIDER, "CLEAN p");
    timed.look();
    timed
}

/// Case: its name, the crowd, the action, and the number of events besides its first one.
type Case = (&'static str, fn(usize) -> Timed, fn(&mut Timed), fn(usize) -> usize);

const CASES: [Case; 12] = [
    ("RMPOOL", |n| crowd(n, ""), |timed| timed.say(OPERATOR, "RMPOOL p"), |n| n + 1),
    ("RMPOOL of what is held", |n| taken(n, ""), |timed| timed.say(OPERATOR, "RMPOOL p"), |n| 2 * n + 1),
    ("RMPOOL GRACEFUL", |n| crowd(n, ""), |timed| timed.say(OPERATOR, "RMPOOL p GRACEFUL"), |n| n + 1),
    ("RECONFIGURE max", |n| crowd(n, ""), |timed| timed.say(OPERATOR, "RECONFIGURE p max=1"), |n| n),
    (
        "RECONFIGURE max_lifetime",
        |n| crowd(n, ""),
        |timed| timed.say(OPERATOR, "RECONFIGURE p max_lifetime=900"),
        |_| 1,
    ),
    ("provider lost", |n| crowd(n, " provider_grace=0"), |timed| timed.close(PROVIDER), |_| 0),
    ("provider lost, all held", |n| taken(n, " provider_grace=0"), |timed| timed.close(PROVIDER), |n| n),
    ("provider lost, with grace", |n| crowd(n, " provider_grace=9"), |timed| timed.close(PROVIDER), |_| 0),
    ("consumer lost", |n| taken(n, ""), |timed| timed.close(CONSUMER), |n| n),
    ("BYE", |n| taken(n, ""), |timed| timed.say(CONSUMER, "BYE"), |_| 1),
    ("a cleaner comes", unclean, |timed| timed.say(PROVIDER, "CLEAN p"), |_| 1 + 10),
    ("a cleaner is lost", cleaned, |timed| timed.close(PROVIDER), |_| 0),
];

/// Plays every case with this number of members, and returns the longest step of each.
fn play(members: usize) -> Vec<(&'static str, Duration, Duration, u64)> {
    let play_one = |(name, crowd, act, events): &Case| {
        let mut timed = crowd(members);
        act(&mut timed);
        timed.pass(Span::from_secs(5));
        let (all, steps) = (timed.all, timed.steps);
        let (longest, told) = timed.look();
        assert_eq!(told, events(members), "{name}");
        (*name, longest, all, steps)
    };
    CASES.iter().map(play_one).collect()
}

/// One record a member takes four times as long, while everybody waits.
#[test]
fn members_of_a_provider_are_handed_over_in_blocks() {
    const MANY: usize = 3_000;
    let mut timed = crowd(MANY, " queue=5");
    timed.pass(Span::from_secs(3));
    timed.say(CONSUMER, "TAKE p");
    timed.say(CONSUMER, "BYE");
    timed.say(CONSUMER, "TAKE p n=2");
    timed.say(OPERATOR, "HOLD p member-7 9 broken");
    timed.pass(Span::from_secs(2));
    let bytes = save(&mut timed);
    let (mut input, mut records) = (&bytes[..], 0);
    let mut saved = Reader::new(&mut input);
    while saved.take_bytes().is_ok() {
        records += 1;
    }
    assert!(records < 50 && bytes.len() < 60 * MANY, "{records} records, {} bytes", bytes.len());

    let before = timed.rows();
    assert_eq!(before.len(), MANY);
    assert_eq!(before, handed_over(&mut timed).rows());
}

/// Returns what the state hands over to another process.
fn save(timed: &mut Timed) -> Vec<u8> {
    let mut bytes = Vec::new();
    timed.state.save(&mut Writer::new(&mut bytes), &timed.wheel.of(OWNER)).expect("memory takes all");
    bytes
}

/// Returns a process that has taken over from another one.
fn handed_over(timed: &mut Timed) -> Timed {
    let mut successor = Timed { now: timed.now, wheel: Wheel::default(), ..Timed::new() };
    successor.state.restore(&mut Reader::new(&mut &save(timed)[..])).expect("its end is there");
    let mut is_over = false;
    while !is_over {
        successor.step(|state, step| is_over = state.restore_more(step).expect("nothing contradicts it"));
    }
    successor.state.check();
    successor
}

#[test]
fn failed_cleanings_are_handed_over() {
    const CLEANER: usize = 3;
    let fail = |timed: &mut Timed| {
        timed.say(CLEANER, "CLEANING one");
        timed.say(CLEANER, "DEAD one");
        timed.rows().concat()
    };
    let mut timed = Timed::new();
    timed.say(OPERATOR, "POOL p 0 1 clean_timeout=60 clean_attempts=2");
    timed.say(PROVIDER, "PROVIDE p");
    timed.say(PROVIDER, "OFFER p one");
    timed.say(CLEANER, "CLEAN p");
    let row = fail(&mut timed);
    assert!(row.contains("state: \"cleaning\""), "it is cleaned again after one: {row}");
    timed.say(OPERATOR, "REPAIR p one as_is");
    for timed in [&mut handed_over(&mut timed), &mut timed] {
        let row = fail(timed);
        assert!(row.contains("state: \"stopping\""), "it is given up after two: {row}");
    }
}

#[test]
fn pool_that_is_removed_offers_nothing() {
    let mut timed = taken(20_000, "");
    // Uses the budget of the tick.
    timed.close(CONSUMER);
    ["POOL q 0 1", "RECONFIGURE q max=2", "RMPOOL q"].into_iter().for_each(|line| timed.say(OPERATOR, line));
    timed.state.check();
}

#[test]
fn long_work_is_done_whole() {
    play(20_000);
}

/// Prints the figures. `MEMBERS` is the number of members.
#[test]
#[ignore = "it measures: cargo test --release --test members_slices -- --ignored --nocapture"]
fn the_longest_step_with_a_million_members() {
    let members = std::env::var("MEMBERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    for (name, longest, all, steps) in play(members) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{name}: longest step {:.2} ms, all {:.0} ms in {steps} steps", ms(longest), ms(all));
    }
}
