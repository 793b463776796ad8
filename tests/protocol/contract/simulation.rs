//! Many clients of the toy in random order, with commits and crashes whenever the seed says so, against a naive model.
//! The two must agree about every byte and every end of a connection after every step.

use crate::contract::Stage;
use crate::contract::toy::model::Model;
use poolcounter_core::id::Id;
use poolcounter_core::time::Span;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play, sum};
use std::collections::BTreeMap;

/// Number of histories that contain every reply.
const ENOUGH: usize = 100;

/// Bound of the bytes sent and not served; the model does not know that the loop reads no more than a request ahead.
const BACKLOG: usize = 2_000;

/// Number of recent actions that a failure shows.
const SHOWN: usize = 40;

const REPLIES: [&str; 11] =
    ["STORED", "TEXT", "NONE", "LATE", "GONE", "OK", "BYE", "ERROR", "LOST", "LEFT", "LOST\nLOST"];

#[derive(Clone, Copy, Debug)]
enum Move {
    Speak,
    Connect,
    Pass,
    Commit,
    Crash,
    Finish,
    Reset,
    Pause,
    Resume,
    Upgrade,
}

const MOVES: [(Move, usize); 10] = [
    (Move::Speak, 40),
    (Move::Connect, 6),
    (Move::Pass, 8),
    (Move::Commit, 12),
    (Move::Crash, 2),
    (Move::Finish, 3),
    (Move::Reset, 2),
    (Move::Pause, 2),
    (Move::Resume, 1),
    (Move::Upgrade, 3),
];

struct Simulation {
    random: Random,
    stage: Stage,
    model: Model,
    moves: Vec<(Move, usize)>,
    most_clients: usize,
    /// Clients that may still send something.
    speakers: Vec<usize>,
    /// Rest of the started line of each client.
    pending: Vec<String>,
    /// Output to each client, and whether it was reset: then its output is unknown.
    received: Vec<(String, bool)>,
    is_paused: bool,
    /// Recent actions, for the search of the fault.
    done: Vec<String>,
    tally: Tally,
}

/// Number of each reply, and of upgrades.
type Tally = BTreeMap<&'static str, u64>;

#[test]
fn random_clients_find_toy_and_model_agree() {
    let tallies = play("toy", simulate);
    let (histories, tally) = (tallies.len(), sum(tallies));
    println!("seen: {tally:?}");
    if histories >= ENOUGH {
        assert_eq!(REPLIES.iter().find(|reply| !tally.contains_key(*reply)), None, "was never seen");
        assert!(tally["upgrades"] > 0 && tally["upgrades given up"] > 0);
    }
}

fn simulate(history: History) -> Tally {
    let mut simulation = Simulation::new(history.seed);
    for _ in 0..history.steps {
        simulation.step();
    }
    simulation.end()
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Simulation {
            stage: Stage::new(),
            model: Model::new(),
            moves: random.swarm(&MOVES),
            most_clients: 2 + random.below(10),
            speakers: Vec::new(),
            pending: Vec::new(),
            received: Vec::new(),
            is_paused: false,
            done: Vec::new(),
            tally: Tally::new(),
            random,
        }
    }

    /// Takes several actions at once, without a comparison in between.
    fn step(&mut self) {
        for _ in 0..self.random.pick(&[1, 1, 2, 5]) {
            if self.speakers.is_empty() {
                self.connect();
            }
            let next = self.random.weigh(&self.moves);
            self.done.push(format!("{next:?}"));
            self.play(next);
        }
        self.settle();
        self.done.push("settle".into());
    }

    fn play(&mut self, next: Move) {
        match next {
            Move::Speak => self.speak(),
            Move::Connect if self.speakers.len() < self.most_clients => self.connect(),
            Move::Pass => self.pass(),
            Move::Commit => self.commit(),
            Move::Crash => {
                self.stage.store.crash();
                self.model.crash();
            }
            Move::Finish | Move::Reset => self.fall_silent(matches!(next, Move::Reset)),
            Move::Pause => self.pause(true),
            Move::Resume if self.is_paused => {
                *self.tally.entry("upgrades given up").or_default() += 1;
                self.pause(false);
            }
            Move::Connect | Move::Resume => {}
            Move::Upgrade => self.upgrade(),
        }
    }

    fn connect(&mut self) {
        let client = self.stage.connect();
        self.model.connect(self.stage.world.id_of(client).index());
        self.speakers.push(client);
        self.pending.push(String::new());
        self.received.push((String::new(), false));
    }

    fn speak(&mut self) {
        let client = self.random.pick(&self.speakers);
        if self.model.backlog(client) > BACKLOG {
            return;
        }
        let mut words = std::mem::take(&mut self.pending[client]);
        for _ in 0..self.random.pick(&[1, 1, 2, 4]) {
            words += &self.line();
        }
        // Some clients stop in the middle of a line, and continue later.
        if self.random.once_in(4) {
            self.pending[client] = words.split_off(self.random.below(words.len()));
        }
        self.done.push(format!("{client}> {words:?}"));
        self.stage.world.send(client, words.as_bytes());
        self.model.send(client, &words);
    }

    fn line(&mut self) -> String {
        let random = &mut self.random;
        // About as many as there are, so that some are missing.
        let there = self.model.texts().len();
        let number = (there + random.below(5)).saturating_sub(2);
        let ms = random.pick(&[0, 1, 5, 1_000, 60_000]);
        match random.below(16) {
            0..4 => format!("PUT {:x}\n", random.below(100_000)),
            4..8 => format!("GET {number}\n"),
            8..11 => format!("WAIT {number} {ms}\n"),
            11..13 => format!("STAY {number} {ms}\n"),
            13 => format!("LATER {ms} {:x}\n", random.below(100)),
            14 => random.pick(&["FILL 100\n", "\n", "WHAT\n", "WAIT 0 5000\n"]).into(),
            _ => random.pick(&["QUIT\n", "GET 1\n", "GET 0\n"]).into(),
        }
    }

    fn pass(&mut self) {
        let any = self.random.pick(&[1, 5, 100, 1_000, 100_000]);
        let ms = if self.random.once_in(2) { self.model.ahead_ms().unwrap_or(any) } else { any };
        self.done.push(format!("+{ms} ms"));
        self.stage.world.advance(Span::from_millis(ms));
        self.model.pass(ms);
    }

    fn commit(&mut self) {
        if self.stage.store.commit_one() {
            self.model.commit_one();
        }
    }

    fn fall_silent(&mut self, reset: bool) {
        let n = self.random.below(self.speakers.len());
        let client = self.speakers.swap_remove(n);
        self.done.push(format!("{client}"));
        if reset {
            self.stage.world.reset(client);
            self.model.reset(client);
            self.received[client].1 = true;
        } else {
            self.stage.world.finish(client);
            self.model.finish(client);
        }
        if self.speakers.is_empty() {
            self.connect();
        }
    }

    fn pause(&mut self, is_paused: bool) {
        self.done.push(format!("paused {is_paused}"));
        self.is_paused = is_paused;
        self.stage.world.pause(is_paused);
        self.model.pause(is_paused);
    }

    /// Hands over to another process as soon as everything is quiet; nothing more is served until then.
    fn upgrade(&mut self) {
        self.settle();
        self.pause(true);
        self.settle();
        assert_eq!(self.stage.world.is_quiet(), self.model.is_quiet());
        if self.model.is_quiet() {
            self.stage.world.upgrade();
            self.model.upgrade();
            self.is_paused = false;
            *self.tally.entry("upgrades").or_default() += 1;
        } else {
            self.commit();
        }
    }

    fn settle(&mut self) {
        self.stage.settle();
        self.model.settle();
        let Simulation { stage, model, received, .. } = self;
        for (client, (received, is_reset)) in received.iter_mut().enumerate() {
            if *is_reset {
                continue;
            }
            let (heard, predicted) = (stage.heard(client), model.take_received(client));
            assert_eq!(heard, predicted, "client {client}");
            assert_eq!(stage.world.is_ended(client), model.is_ended(client), "the end of client {client}");
            received.push_str(&heard);
        }
        assert_eq!(stage.store.queued(), model.queued());
        if model.is_quiet() {
            assert_eq!(stage.store.texts(), model.texts());
        }
        self.speakers.retain(|client| !self.stage.world.is_ended(*client));
        if self.speakers.is_empty() {
            self.connect();
        }
    }

    /// Closes all connections in some way, and lets the store finish its work.
    fn end(&mut self) -> Tally {
        self.pause(false);
        self.settle();
        for client in 0..self.received.len() {
            if self.speakers.contains(&client) && self.random.once_in(2) {
                self.stage.world.finish(client);
                self.model.finish(client);
            }
        }
        // Each wait and each later text has a time, and there are not very many.
        loop {
            while self.stage.store.queued() > 0 {
                self.commit();
                self.settle();
            }
            let Some(ms) = self.model.ahead_ms() else { break };
            self.stage.world.advance(Span::from_millis(ms));
            self.model.pass(ms);
        }
        for (received, _) in &self.received {
            for reply in REPLIES {
                *self.tally.entry(reply).or_default() += received.matches(reply).count() as u64;
            }
        }
        self.tally.retain(|_, count| *count > 0);
        self.stage.end(self.received.len());
        std::mem::take(&mut self.tally)
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let first = self.done.len().saturating_sub(SHOWN);
            println!("the last actions:\n{}", self.done[first..].join("\n"));
        }
    }
}
