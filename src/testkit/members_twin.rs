//! The members service and its model side by side: both get the same lines, and the replies to every client and the
//! state afterwards must be the same.

use super::lately::Lately;
use super::model::members::{Hints, Members};
use super::world::World;
use poolcounter_core::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the answer of a provider or a cleaner to a request. `member` is the name of a started one.
pub fn answer_to(request: &str, is_good: bool, member: &str) -> String {
    let words: Vec<&str> = request.split(' ').collect();
    let what = words[2];
    match (words[0], is_good) {
        ("!START", true) => format!("STARTED {what} {member}"),
        ("!START", false) => format!("FAILED {what}"),
        ("!STOP", _) => format!("STOPPED {what}"),
        ("!CHECK", true) => format!("ALIVE {what}"),
        ("!CLEAN", true) => format!("CLEANED {what}"),
        _ => format!("DEAD {what}"),
    }
}

/// The service and its model.
pub struct MembersTwin {
    world: World,
    model: Members,
    /// Client that sends the queries of the comparisons.
    observer: usize,
    clients: Vec<usize>,
    /// Highest number of a lease.
    highest: u64,
    /// Unanswered requests to each client.
    pub asked: BTreeMap<usize, Vec<String>>,
    /// Leases in the order in which they were granted: the client and the number.
    pub leases: Vec<(usize, u64)>,
    done: Lately<String>,
    /// True after two events were due at once in an unspecified order; the history ends there.
    pub is_tied: bool,
}

impl MembersTwin {
    /// Returns both without pools.
    pub fn new() -> Self {
        let mut world = World::of_administrators();
        let observer = world.connect_to("members");
        MembersTwin {
            world,
            model: Members::default(),
            observer,
            clients: Vec::new(),
            highest: 0,
            asked: BTreeMap::new(),
            leases: Vec::new(),
            done: Lately::default(),
            is_tied: false,
        }
    }

    /// Connects one more client, and returns its number.
    pub fn connect(&mut self) -> usize {
        let client = self.world.connect_to("members");
        self.clients.push(client);
        client
    }

    /// Sends a line of a client.
    pub fn say(&mut self, client: usize, line: &str) {
        if self.is_tied {
            return;
        }
        self.done.note(format!("{client}> {line}"));
        self.world.send(client, format!("{line}\n").as_bytes());
        self.world.settle();
        let told = self.collect();
        self.model.say(client, line);
        let replaced = std::mem::take(&mut self.model.replaced);
        assert!(replaced.iter().all(|client| self.world.is_ended(*client)), "a connection that is replaced is closed");
        for client in replaced.into_iter().chain((line == "BYE").then_some(client)) {
            self.world.finish(client);
            self.world.settle();
            self.forget(client);
        }
        self.compare(told);
    }

    /// Returns a client whose connection is there, else a new client in its place.
    pub fn connected(&mut self, client: usize) -> usize {
        if self.clients.contains(&client) { client } else { self.connect() }
    }

    /// Disconnects a client.
    pub fn close(&mut self, client: usize) {
        if self.is_tied {
            return;
        }
        self.done.note(format!("{client}x"));
        self.world.finish(client);
        self.world.settle();
        let told = self.collect();
        self.model.close(client);
        self.forget(client);
        self.compare(told);
    }

    fn forget(&mut self, client: usize) {
        self.clients.retain(|other| *other != client);
        self.asked.remove(&client);
    }

    /// Replaces the process by another that takes over.
    pub fn upgrade(&mut self) {
        if self.is_tied {
            return;
        }
        self.done.note("upgrade".into());
        self.world.settle();
        self.world.upgrade();
        self.world.settle();
        let told = self.collect();
        self.model.upgrade();
        self.compare(told);
    }

    /// Lets time pass: at least as long as asked, and on to the end of any backoff that would be under way then.
    pub fn pass(&mut self, ms: u64) {
        let mut target = self.now() + ms * 1_000;
        while !self.is_tied {
            self.done.note(format!("+{}ms, up to {}ms", (target - self.now()) / 1_000, target / 1_000));
            self.pass_to(target);
            let now = self.now();
            let inside =
                self.model.backoffs().filter(|(low, high)| (*low..*high).contains(&now)).map(|(_, high)| high).max();
            match inside {
                Some(high) => target = high.next_multiple_of(1_000),
                None => return,
            }
        }
    }

    fn pass_to(&mut self, target: u64) {
        while !self.is_tied {
            let next = self.world.next_work().map_or(target, |at| at.since(Time::START).as_micros().min(target));
            let next = next.max(self.now());
            self.world.advance(Span::from_micros(next - self.now()));
            let told = self.collect();
            self.is_tied = self.model.is_tied(next);
            if self.is_tied {
                return;
            }
            self.model.tick(next);
            self.compare(told);
            if next >= target && self.world.next_work().is_none_or(|at| at.since(Time::START).as_micros() > target) {
                return;
            }
        }
    }

    fn now(&self) -> u64 {
        self.world.now().since(Time::START).as_micros()
    }

    /// Returns the output to the clients, in pieces.
    fn collect(&mut self) -> Vec<(usize, String)> {
        let mut told = Vec::new();
        for client in self.clients.iter().copied() {
            let text = String::from_utf8(self.world.take_received(client)).expect("the names are text");
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                let more = line.strip_prefix("MEMBERS ").map_or(0, |count| count.parse().expect("a number"));
                let mut members: Vec<&str> = lines.by_ref().take(more).collect();
                members.sort_unstable();
                // The text of an error is not compared.
                let code = line.strip_prefix("ERROR ").and_then(|error| error.split(' ').next());
                let head = code.map_or(line.into(), |code| format!("ERROR {code}"));
                told.push((client, [&[&*head], &members[..]].concat().join("\n")));
            }
        }
        let mut hints = Hints::default();
        told.iter().for_each(|(client, piece)| self.hear(*client, piece, &mut hints));
        let numbers = hints.leases.values().copied();
        assert!(numbers.clone().all(|number| number > self.highest), "the numbers of leases go up");
        self.highest = numbers.max().unwrap_or(self.highest);
        self.model.hints = hints;
        told
    }

    /// Notes what a client is told, and the choices that the daemon has made.
    fn hear(&mut self, client: usize, piece: &str, hints: &mut Hints) {
        if std::env::var_os("SIM_TRACE").is_some() {
            println!("{client}< {piece}");
        }
        let words: Vec<&str> = piece.split([' ', '\n']).collect();
        match words[..] {
            ["!START", pool, number] => {
                hints.starts.insert(number.parse().expect("a number"), (client, pool.into()));
            }
            ["!STOP", pool, member] => _ = hints.stops.insert((pool.into(), member.into())),
            ["MEMBER" | "MEMBERS", ..] => {
                for line in piece.lines().filter_map(|line| line.strip_prefix("MEMBER ")) {
                    let words: Vec<&str> = line.split(' ').collect();
                    let number = words[0].parse().expect("a number");
                    hints.leases.insert((client, (words[1].into(), words[2].into())), number);
                    self.leases.push((client, number));
                }
            }
            _ => {}
        }
        if matches!(words[0], "!START" | "!STOP" | "!CHECK") {
            self.asked.entry(client).or_default().push(piece.into());
        }
    }

    fn compare(&mut self, told: Vec<(usize, String)>) {
        if self.is_tied {
            return;
        }
        let (mut told, mut predicted) = (told, std::mem::take(&mut self.model.out));
        let known: BTreeSet<usize> = self.clients.iter().copied().collect();
        told.retain(|(client, _)| known.contains(client));
        predicted.retain(|(client, _)| known.contains(client));
        told.sort();
        predicted.sort();
        assert_eq!(told, predicted, "the daemon (left) tells something else than the model (right)");
        let (there, should_be) = (self.picture(), self.model.picture());
        assert_eq!(there, should_be, "the daemon (left) has something else than the model (right)");
    }

    /// Returns the state as the model shows it.
    fn picture(&mut self) -> Vec<String> {
        let (mut queues, mut rows) = (Vec::new(), Vec::new());
        for pool in self.ask("POOLS\n") {
            let words: Vec<&str> = pool.split(' ').collect();
            let figure = |name| words.iter().skip_while(|word| **word != name).nth(1).expect("it is shown");
            queues.push(format!("{} starting {} queued {}", words[0], figure("starting"), figure("queued")));
            rows.extend(self.ask(&format!("MEMBERS {}\n", words[0])).iter().map(|line| {
                let mut words: Vec<&str> = line.split(' ').collect();
                words.remove(4);
                words.retain(|word| !["why=", "by=", "since="].iter().any(|reason| word.starts_with(reason)));
                words.join(" ")
            }));
        }
        queues.extend(rows);
        queues
    }

    fn ask(&mut self, line: &str) -> Vec<String> {
        self.world.send(self.observer, line.as_bytes());
        self.world.settle();
        let text = String::from_utf8(self.world.take_received(self.observer)).expect("the names are text");
        let list = text.strip_suffix("\n\n").or(text.strip_suffix('\n')).expect("a list ends with an empty line");
        list.lines().map(String::from).collect()
    }

    /// Disconnects all clients, and checks that nothing is left.
    pub fn end(&mut self) {
        for client in self.clients.clone() {
            self.close(client);
        }
        if !self.is_tied {
            self.world.finish(self.observer);
            self.world.settle();
            assert!(self.world.is_empty(), "something is left of somebody");
        }
    }
}
