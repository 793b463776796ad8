//! Random clients of the jobs over a store with random commits, through the loop, beside the naive model of the jobs:
//! every reply equals that of the model, and comes right after the commit for which it waits.

use crate::jobs_store::Stage;
use crate::jobs_store::store::Happened;
use poolcounter_core::random::Random as Jitter;
use poolcounter_core::time::{Span, Time};
use poolcounter_testkit::bodies::jobs_model;
use poolcounter_testkit::jobs_text::take_text;
use poolcounter_testkit::jobs_twin::compare_reply;
use poolcounter_testkit::model::jobs::Jobs;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play};
use std::collections::VecDeque;

const SLOTS: usize = 5;
const SPANS: [u64; 8] = [0, 0, 1, 1, 2, 3, 5, 70];

#[test]
fn random_commits_find_service_and_model_agree() {
    check(&play("jobs-store", |history| Twin::play(history, false)));
}

/// New processes read the jobs from the store, and are replaced while they read.
#[test]
fn random_commits_and_upgrades_find_service_and_model_agree() {
    check(&play("jobs-store-upgrades", |history| Twin::play(history, true)));
}

/// Checks that the histories had commits, commits without room, and mostly a well-defined end.
fn check(twins: &[(u64, u64, bool)]) {
    let histories = twins.len() as u64;
    let commits: u64 = twins.iter().map(|twin| twin.0).sum();
    let rollbacks: u64 = twins.iter().map(|twin| twin.1).sum();
    let tied = twins.iter().filter(|twin| twin.2).count() as u64;
    let done = format!("{commits} commits, {rollbacks} without room, {tied} cut short");
    println!("{done}");
    assert!(histories < 75 || commits > 5 * histories && rollbacks > histories && tied < histories / 2, "{done}");
}

struct Twin {
    random: Random,
    stage: Stage,
    model: Jobs,
    /// Client of each slot, its output, and the last job reserved for it.
    clients: Vec<(usize, VecDeque<u8>, u64)>,
    /// Requests that wait for a job which their connection has put: its commit, the slot, and the line.
    held: Vec<(u64, usize, String)>,
    servers: u64,
    commits: u64,
    rollbacks: u64,
    /// True if nothing is served before another process has taken over.
    is_paused: bool,
    /// True if that process reads the jobs that are not reserved.
    reads: bool,
    done: Vec<String>,
}

impl Twin {
    fn new(seed: u64, reads: bool) -> Twin {
        let mut stage = if reads { Stage::reading_after_upgrades(3) } else { Stage::new() };
        let mut model = Jobs::new(stage.world.now().as_micros(), 0);
        (model.is_guided, model.is_in_order) = (false, true);
        let clients = (0..SLOTS).map(|_| (stage.connect(), VecDeque::new(), 1)).collect();
        let mut twin = Twin {
            random: Random::new(seed),
            stage,
            model,
            clients,
            held: Vec::new(),
            servers: 1,
            commits: 0,
            rollbacks: 0,
            is_paused: false,
            reads,
            done: Vec::new(),
        };
        (0..SLOTS).for_each(|slot| twin.say(slot, "list-tube-used"));
        twin
    }

    /// Plays a history, and returns the numbers of commits and of those without room, and whether it was cut short.
    fn play(History { seed, steps }: History, reads: bool) -> (u64, u64, bool) {
        let mut twin = Twin::new(seed, reads);
        (0..steps).for_each(|_| twin.step());
        (twin.commits, twin.rollbacks, twin.model.is_tied)
    }

    fn step(&mut self) {
        if self.model.is_tied {
            return;
        }
        let slot = self.random.below(SLOTS);
        match self.random.below(24) {
            0 => self.replace(slot, true),
            1 if !self.is_waiting(slot) => self.replace(slot, false),
            2..=4 => {
                let seconds = self.random.pick(&SPANS);
                self.pass(seconds);
            }
            5..=8 => self.commit(),
            9 => self.upgrade(),
            10 => self.roll_back(),
            _ if self.is_waiting(slot) => {}
            _ => {
                let bytes: Vec<u8> = (0..40).map(|_| self.random.below(256) as u8).collect();
                let line = jobs_model::any_line(&bytes, self.clients[slot].2);
                let words: Vec<&str> = line.split(' ').collect();
                // The order of turns cannot be observed from here, nor the service's own random numbers.
                let is_fair = words[0] == "watch" && (words[1].contains('*') || words.len() > 2);
                let is_clear = !matches!(words[0], "pause-all" | "limit" | "kick-all")
                    || !self.model.somebody_waits()
                    || self.model.matching(words[1]) <= 1;
                if !is_fair && is_clear && words[0] != "stats" {
                    self.say(slot, &line);
                }
            }
        }
    }

    fn say(&mut self, slot: usize, line: &str) {
        self.pass(0);
        self.done.push(format!("{slot}> {line:?}"));
        let client = self.clients[slot].0;
        self.model.open(slot);
        self.stage.world.send(client, format!("{line}\r\n").as_bytes());
        match self.model.commit_before(slot, line) {
            Some(put) => {
                self.held.push((put, slot, line.into()));
                self.follow(|_| {});
            }
            None => self.follow(|model| model.request(slot, line)),
        }
    }

    fn is_waiting(&self, slot: usize) -> bool {
        self.model.is_waiting(slot) || self.held.iter().any(|(_, held, _)| *held == slot)
    }

    /// Applies the requests whose wait is over to the model, in the order in which connections are served.
    fn release(&mut self, commit: u64) {
        let mut due: Vec<_> = self.held.extract_if(.., |(put, ..)| *put <= commit).collect();
        if self.is_paused {
            due.sort_by_key(|(_, slot, _)| self.stage.world.id_of(self.clients[*slot].0));
        }
        due.iter().for_each(|(_, slot, line)| self.model.request(*slot, line));
    }

    /// Resets or half-closes a client; another replaces it once it is closed.
    fn replace(&mut self, slot: usize, is_lost: bool) {
        self.pass(0);
        self.done.push(format!("{slot}{}", if is_lost { "!" } else { "x" }));
        let client = self.clients[slot].0;
        if is_lost {
            self.held.retain(|(_, held, _)| *held != slot);
            self.stage.world.reset(client);
            self.follow(|model| model.close(slot));
        } else {
            self.stage.world.finish(client);
            self.see_off(slot, client);
        }
        self.clients[slot] = (self.stage.connect(), VecDeque::new(), 1);
        self.say(slot, "list-tube-used");
    }

    /// Waits until a client that sends no more has its replies, and is closed.
    fn see_off(&mut self, slot: usize, client: usize) {
        while !self.model.is_tied {
            self.stage.world.settle();
            self.hear_of_batches();
            if self.stage.world.is_closed(client) {
                // Replies to others at this time follow from its end.
                self.compare(slot);
                return self.follow(|model| model.close(slot));
            }
            self.follow(|_| {});
            assert!(self.stage.store.commit_one(), "what is {slot} owed?");
        }
    }

    fn hear_of_batches(&mut self) {
        for happened in self.stage.store.take_happened() {
            match happened {
                Happened::Taken(commit) => self.model.take(Some(commit)),
                Happened::Committed(commit) => {
                    self.model.committed(commit);
                    if !self.is_paused {
                        self.release(commit);
                    }
                }
            }
        }
    }

    fn commit(&mut self) {
        self.pass(0);
        self.done.push("commit".into());
        self.commits += u64::from(self.stage.store.commit_one());
        self.follow(|_| {});
    }

    /// Leaves no room for the batch that is under way.
    fn roll_back(&mut self) {
        self.pass(0);
        self.done.push("full".into());
        if self.model.is_tied || !self.stage.store.roll_back() {
            return;
        }
        self.stage.world.settle();
        self.model.roll_back();
        self.release(u64::MAX);
        self.follow(|_| {});
        self.rollbacks += 1;
    }

    /// Hands over to another process once everything is quiet. Nothing is served until then.
    fn upgrade(&mut self) {
        self.pass(0);
        self.done.push("upgrade".into());
        self.stage.world.connections.pause(true);
        self.is_paused = true;
        while !self.stage.world.connections.is_quiet() && !self.model.is_tied {
            assert!(self.stage.store.commit_one(), "what is an upgrade waiting for?");
            self.follow(|_| {});
        }
        match self.reads {
            true => {
                self.replace_server();
                while self.stage.store.has_pages() {
                    match self.random.once_in(8) {
                        true => self.replace_server(),
                        false => self.stage.store.read_one(),
                    }
                    self.stage.world.settle();
                }
                self.model.read_back();
            }
            false => {
                self.stage.world.upgrade();
                self.servers += 1;
                self.stage.world.settle();
                self.model.hand_over();
            }
        }
        self.model.jitter = Some(Jitter::from_seed(self.servers));
        // Everything is committed.
        self.release(u64::MAX);
        self.is_paused = false;
        self.follow(|_| {});
    }

    fn replace_server(&mut self) {
        self.servers += 1;
        self.stage.upgrade();
    }

    fn pass(&mut self, seconds: u64) {
        let end = self.model.now + seconds * 1_000_000 + 3_000;
        while !self.model.is_tied {
            let next = self.model.next_due().filter(|next| *next <= end);
            self.model.now = next.unwrap_or(end);
            self.done.push(format!("at {}", self.model.now));
            let span = Time::from_micros(self.model.now).since(self.stage.world.now());
            self.stage.world.advance(Span::from_micros(span.as_micros()));
            self.follow(|model| {
                if next.is_some() {
                    model.expire();
                }
            });
            if next.is_none() {
                return;
            }
        }
    }

    /// Applies pending work to the service, then to the model; both must send the same replies to all.
    fn follow(&mut self, follow: impl FnOnce(&mut Jobs)) {
        if self.model.is_tied {
            return;
        }
        self.stage.world.settle();
        follow(&mut self.model);
        if self.model.is_tied {
            return;
        }
        self.hear_of_batches();
        (0..SLOTS).for_each(|slot| self.compare(slot));
    }

    fn compare(&mut self, slot: usize) {
        let (client, received, held) = &mut self.clients[slot];
        received.extend(self.stage.world.take_received(*client));
        while let Some(told) = take_text(received) {
            let predicted = self.model.next(slot).unwrap_or_else(|| panic!("{slot} is told {told}, too early"));
            compare_reply(&told, &predicted, slot);
            if let Some(job) = told.strip_prefix("RESERVED ") {
                *held = job.split(' ').next().and_then(|job| job.parse().ok()).expect("a number");
            }
        }
        assert_eq!(self.model.next(slot), None, "{slot} is not told");
    }
}

/// Prints the actions when a test fails, wherever it fails.
impl Drop for Twin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.done.join("\n"));
        }
    }
}
