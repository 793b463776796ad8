//! Cost of the members without sockets: nanoseconds for each member, take or wait, by their number.

use super::{Random, id, pick, steady, whole};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Owner, Wheel};
use poolcounter_members::state::{
    Condition, Event, From, LeaseName, Limits, Notice, Request, State, Step, Take, Timer, Utilization, What,
};
use poolcounter_protocol::members::wire::{Line, parse};
use std::time::Duration;

const OWNER: Owner = Owner(0);
/// Connections that are not consumers.
const OPERATOR: usize = 0;
const PROVIDER: usize = 1;
/// First consumer.
const FIRST: usize = 2;

/// Lines of the table.
pub const LINES: [super::Line; 13] = [
    ("take and return, all are free", take_among_free),
    ("take and return, the others are held", take_the_last),
    ("hand over, and wait again", hand_over),
    ("time out one take of all", time_out),
    ("start one of all", grow),
    ("cull one of all", cull),
    ("replace one of all that have failed", replace),
    ("return one of all at a disconnect", lose_holder),
    ("drop one of all of a lost provider", lose_provider),
    ("take one of two by an attribute", take_every_second),
    ("take the only one by an attribute", take_the_only),
    ("hand over one of all at an upgrade", save),
    ("take over one of all at an upgrade", restore),
];

fn take_among_free(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_members(size, "");
    steady(time, || {
        let lease = rig.take(FIRST);
        rig.give_back(FIRST, lease);
    })
}

fn take_the_last(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_members(size, "");
    (1..size).for_each(|n| _ = rig.take(FIRST + n));
    steady(time, || {
        let lease = rig.take(FIRST);
        rig.give_back(FIRST, lease);
    })
}

/// Passes one member from waiter to waiter.
fn hand_over(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_members(1, "");
    let (mut holder, mut lease) = (0, rig.take(FIRST));
    (1..=size).for_each(|n| rig.wait(FIRST + n));
    steady(time, || {
        rig.give_back(FIRST + holder, lease);
        rig.wait(FIRST + holder);
        holder = (holder + 1) % (size + 1);
        lease = rig.newest;
    })
}

fn time_out(size: usize, time: Duration) -> f64 {
    let everyone = || {
        let mut rig = Rig::with_members(1, "");
        rig.take(FIRST);
        (1..=size).for_each(|n| rig.wait(FIRST + n));
        rig
    };
    whole(time, size, everyone, |mut rig| {
        rig.pass(Span::from_secs(61));
        assert_eq!(rig.figure(|figures| figures.queued), 0, "everyone is told");
    })
}

fn grow(size: usize, time: Duration) -> f64 {
    let empty = || {
        let mut rig = Rig::new(size, "");
        rig.say(PROVIDER, "PROVIDE p");
        rig
    };
    whole(time, size, empty, |mut rig| {
        (0..size).for_each(|n| rig.wait(FIRST + n));
        rig.pass_until(|figures| figures.in_use == size as u32);
    })
}

fn cull(size: usize, time: Duration) -> f64 {
    let idle = || Rig::with_started(size, "max_age=1 cull_interval=2");
    whole(time, size, idle, |mut rig| {
        while rig.figure(|figures| figures.free) > 0 {
            rig.pass(Span::from_secs(3));
            rig.answer_all();
        }
        assert_eq!(rig.figure(|figures| figures.stopping), 0, "all are stopped");
    })
}

fn replace(size: usize, time: Duration) -> f64 {
    let held = || {
        let mut rig = Rig::with_started(size, "cull_interval=0");
        rig.say(OPERATOR, &format!("RECONFIGURE p init={size}"));
        let leases: Vec<u64> = (0..size).map(|n| rig.take(FIRST + n)).collect();
        (rig, leases)
    };
    whole(time, size, held, |(mut rig, leases)| {
        for (n, lease) in leases.into_iter().enumerate() {
            rig.step(FIRST + n, Request::Return { lease: LeaseName::Number(lease), condition: Condition::Fail });
        }
        rig.answer_all();
        rig.pass_until(|figures| figures.free == size as u32);
    })
}

fn lose_holder(size: usize, time: Duration) -> f64 {
    let held = || {
        let mut rig = Rig::with_members(size, "on_loss=ok");
        (0..size).for_each(|_| _ = rig.take(FIRST));
        rig
    };
    whole(time, size, held, |mut rig| {
        rig.close(FIRST);
        rig.pass_until(|figures| figures.free == size as u32);
    })
}

fn lose_provider(size: usize, time: Duration) -> f64 {
    let held = || {
        let mut rig = Rig::with_started(size, "cull_interval=0");
        (0..size).for_each(|n| _ = rig.take(FIRST + n));
        rig
    };
    whole(time, size, held, |mut rig| {
        rig.close(PROVIDER);
        rig.pass_until(|figures| figures.in_use == 0);
    })
}

fn take_every_second(size: usize, time: Duration) -> f64 {
    by_attribute(size, time, |n| n % 2, |_, _| 1)
}

fn take_the_only(size: usize, time: Duration) -> f64 {
    by_attribute(size, time, |n| n, pick)
}

/// Measures takes by attribute: each member has a number as its attribute, and each take wants one of these.
fn by_attribute(
    size: usize,
    time: Duration,
    number: impl Fn(usize) -> usize,
    wanted: impl Fn(&mut Random, usize) -> usize,
) -> f64 {
    let mut rig = Rig::new(size, "");
    (0..size).for_each(|n| rig.say(OPERATOR, &format!("ADD p m{n} rack={}", number(n))));
    let mut random = Random::new(1);
    let lines: Vec<String> = (0..size).map(|n| format!("TAKE p 0 rack={n}")).collect();
    steady(time, || {
        rig.say(FIRST, &lines[wanted(&mut random, size).min(size - 1)]);
        let lease = rig.newest;
        rig.give_back(FIRST, lease);
    })
}

fn save(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_started(size, "");
    whole(time, size, || (), |()| drop(rig.saved()))
}

fn restore(size: usize, time: Duration) -> f64 {
    let saved = Rig::with_started(size, "").saved();
    // The tables of a successor are in memory that is new, and end with its process.
    let mut ended = Vec::new();
    whole(time, size, Rig::empty, |mut rig| {
        let mut saved = &saved[..];
        let mut saved = Reader::new(&mut saved);
        rig.run(|state, step| {
            state.restore(&mut saved).expect("it was saved");
            while !state.restore_more(step).expect("it was saved") {}
        });
        ended.push(rig);
    })
}

/// The members service, with the parts of the loop that it needs.
struct Rig {
    state: State,
    wheel: Wheel,
    random: poolcounter_core::random::Random,
    events: Vec<Event>,
    notices: Vec<Notice>,
    now: Time,
    /// Number of the last lease.
    newest: u64,
    /// Unanswered requests to the provider.
    asked: Vec<What>,
}

impl Rig {
    /// Returns a service with a pool `p` of at most `max` members.
    fn new(max: usize, settings: &str) -> Rig {
        let mut rig = Rig::empty();
        rig.say(OPERATOR, &format!("POOL p 0 {max} queue=4000000000 {settings}"));
        rig
    }

    fn empty() -> Rig {
        Rig {
            state: State::new(Limits { most: usize::MAX }, 1),
            wheel: Wheel::default(),
            random: poolcounter_core::random::Random::from_seed(1),
            events: Vec::new(),
            notices: Vec::new(),
            now: Time::START,
            newest: 0,
            asked: Vec::new(),
        }
    }

    /// Returns the handover of its state.
    fn saved(&mut self) -> Vec<u8> {
        let mut saved = Vec::new();
        let written = self.state.save(&mut Writer::new(&mut saved), &self.wheel.of(OWNER));
        written.expect("memory takes all");
        saved
    }

    /// Returns such a service with `count` fixed members.
    fn with_members(count: usize, settings: &str) -> Rig {
        let mut rig = Rig::new(count, settings);
        (0..count).for_each(|n| rig.say(OPERATOR, &format!("ADD p m{n}")));
        rig
    }

    /// Returns such a service with `count` members of a provider.
    fn with_started(count: usize, settings: &str) -> Rig {
        let mut rig = Rig::new(count, settings);
        rig.say(PROVIDER, "PROVIDE p");
        (0..count).for_each(|n| rig.say(PROVIDER, &format!("OFFER p m{n}")));
        rig
    }

    fn say(&mut self, conn: usize, line: &str) {
        match parse(line.as_bytes()) {
            Ok(Line::Request(request)) => self.step(conn, request),
            other => panic!("{line} is no request: {other:?}"),
        }
    }

    fn take(&mut self, conn: usize) -> u64 {
        let before = self.newest;
        self.ask(conn, Span::ZERO);
        assert!(self.newest > before, "there is a free one");
        self.newest
    }

    fn wait(&mut self, conn: usize) {
        self.ask(conn, Span::from_secs(60));
    }

    fn ask(&mut self, conn: usize, timeout: Span) {
        let from = From::Pool(b"p");
        self.step(conn, Request::Take(Take { from, timeout, filter: None, count: None, priority: 5, lease: None }));
    }

    fn give_back(&mut self, conn: usize, lease: u64) {
        self.step(conn, Request::Return { lease: LeaseName::Number(lease), condition: Condition::Ok });
    }

    fn close(&mut self, conn: usize) {
        self.run(|state, step| state.close(id(conn), step));
    }

    fn step(&mut self, conn: usize, request: Request<'_>) {
        self.now = self.now + Span::from_micros(1);
        self.run(|state, step| state.serve(id(conn), request, step));
    }

    /// Lets time pass, and fires the due timers.
    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        // Very many due timers fire in parts, as many as one turn of the loop takes.
        while self.wheel.next().is_some_and(|next| next <= self.now) {
            while let Some(due) = self.wheel.expire(self.now) {
                let timer: Timer = due.key();
                self.run(|state, step| state.expire(timer, step));
            }
        }
    }

    /// Lets time pass, with all background work, until the condition is true.
    fn pass_until(&mut self, is_so: impl Fn(&Utilization) -> bool) {
        for _ in 0..1_000_000 {
            if is_so(&self.utilization()) {
                return;
            }
            self.pass(Span::from_millis(1));
            self.answer_all();
        }
        panic!("it does not come true");
    }

    /// Answers all requests to the provider, and all requests that follow from the answers.
    fn answer_all(&mut self) {
        while !self.asked.is_empty() {
            for what in std::mem::take(&mut self.asked) {
                match what {
                    What::Start { start, .. } => {
                        let (name, attributes) = (format!("s{start}"), Vec::new());
                        self.step(PROVIDER, Request::Started { start, named: Ok((name.as_bytes(), attributes)) });
                    }
                    What::Stop { member, .. } => self.step(PROVIDER, Request::Stopped { member: &member }),
                    _ => {}
                }
            }
        }
    }

    fn run(&mut self, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let mut step = Step {
            now: self.now,
            timers: &mut self.wheel.of(OWNER),
            random: &mut self.random,
            events: &mut self.events,
            notices: &mut self.notices,
            is_admin: true,
            peer: &|_| String::new(),
        };
        take(&mut self.state, &mut step);
        for event in self.events.drain(..) {
            match event.what {
                What::Member(taken) => self.newest = taken.lease,
                what @ (What::Start { .. } | What::Stop { .. }) => self.asked.push(what),
                _ => {}
            }
        }
    }

    fn figure(&self, of: impl Fn(&Utilization) -> u32) -> u32 {
        of(&self.utilization())
    }

    fn utilization(&self) -> Utilization {
        self.state.report_of_name(b"p").expect("there is such a pool").row.figures
    }
}
