//! The members service and its model side by side: both get the same lines, and the replies to every client and the
//! state afterwards must be the same.

use super::model::members::{Hints, Kind, Members};
use super::world::World;
use poolcounter_core::time::{Span, Time};
use poolcounter_counters::CountersSettings;
use poolcounter_members::MembersSettings;
use poolcounter_service::container::AllSettings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of recent actions that a failure shows.
const SHOWN: usize = 60;

/// The service and its model.
pub struct MembersTwin {
    world: World,
    model: Members,
    /// Client that sends the queries of the comparisons.
    observer: usize,
    clients: Vec<usize>,
    /// Number on the wire of lease 1.
    first_lease: Option<u64>,
    tokens: Vec<String>,
    /// Unanswered requests to each client.
    pub asked: BTreeMap<usize, Vec<String>>,
    /// Leases in the order in which they were granted: the client, the number, and the token if there is one.
    pub leases: Vec<(usize, u64, Option<usize>)>,
    /// Number of replies of each kind.
    pub tally: BTreeMap<String, u64>,
    done: VecDeque<String>,
    /// True after two events were due at once in an unspecified order; the history ends there.
    pub is_tied: bool,
}

impl MembersTwin {
    /// Returns both without pools.
    pub fn new() -> Self {
        let members = MembersSettings { admin: Some(true), ..MembersSettings::default() };
        let counters = CountersSettings { buckets: 16, ..CountersSettings::default() };
        let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(members).with(counters));
        let observer = world.connect_to("members");
        MembersTwin {
            world,
            model: Members::new(),
            observer,
            clients: Vec::new(),
            first_lease: None,
            tokens: Vec::new(),
            asked: BTreeMap::new(),
            leases: Vec::new(),
            tally: BTreeMap::new(),
            done: VecDeque::new(),
            is_tied: false,
        }
    }

    fn note(&mut self, action: String) {
        if std::env::var_os("SIM_TRACE").is_some() {
            println!("{action}");
        }
        self.done.push_back(action);
        if self.done.len() > SHOWN {
            self.done.pop_front();
        }
    }

    /// Connects one more client, and returns its number.
    pub fn connect(&mut self) -> usize {
        let client = self.world.connect_to("members");
        self.clients.push(client);
        client
    }

    /// Sends a line of a client. Leases are numbered from 1 on, tokens are `$1`, `$2`.
    pub fn say(&mut self, client: usize, line: &str) {
        if self.is_tied {
            return;
        }
        self.note(format!("{client}> {line}"));
        let said = self.translated(line);
        self.world.send(client, format!("{said}\n").as_bytes());
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
        self.note(format!("{client}x"));
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
        self.note("upgrade".into());
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
            self.note(format!("+{}ms, up to {}ms", (target - self.now()) / 1_000, target / 1_000));
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
            self.is_tied = self.has_tie(next);
            if self.is_tied {
                return;
            }
            self.world.advance(Span::from_micros(next - self.now()));
            let told = self.collect();
            self.model.tick(next);
            self.compare(told);
            if next >= target && self.world.next_work().is_none_or(|at| at.since(Time::START).as_micros() > target) {
                return;
            }
        }
    }

    /// Returns whether several events are due that may happen in any order.
    fn has_tie(&self, now: u64) -> bool {
        let due: Vec<Kind> =
            self.model.deadlines().into_iter().filter(|(at, _)| *at <= now).map(|(_, kind)| kind).collect();
        let is_backing_off = self.model.backoffs().any(|(low, high)| (low..=high).contains(&now));
        due.len() > 1 || is_backing_off && due.iter().any(|kind| matches!(kind, Kind::Start | Kind::Stage))
    }

    fn now(&self) -> u64 {
        self.world.now().since(Time::START).as_micros()
    }

    /// Returns the output to the clients, with leases and tokens as in the model.
    fn collect(&mut self) -> Vec<(usize, String)> {
        let texts: Vec<(usize, String)> = (self.clients.iter())
            .map(|client| (*client, self.world.take_received(*client)))
            .map(|(client, bytes)| (client, String::from_utf8(bytes).expect("the names are text")))
            .collect();
        self.number_leases(&texts);
        let mut told = Vec::new();
        for (client, text) in texts {
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                let mut piece = self.understood(client, line);
                let more = line.strip_prefix("MEMBERS ").map_or(0, |count| count.parse().expect("a number"));
                for line in lines.by_ref().take(more) {
                    piece += "\n";
                    piece += &self.understood(client, line);
                }
                told.push((client, piece));
            }
        }
        let mut hints = Hints::default();
        for (client, piece) in &told {
            if std::env::var_os("SIM_TRACE").is_some() {
                println!("{client}< {piece}");
            }
            let words: Vec<&str> = piece.split([' ', '\n']).collect();
            match words[..] {
                ["!START", pool, number] => {
                    hints.starts.insert(number.parse().expect("a number"), (*client, pool.into()));
                }
                ["!CLEAN", pool, member] => {
                    hints.cleans.entry((pool.into(), member.into())).or_default().insert(*client);
                }
                ["MEMBER" | "MEMBERS", ..] => {
                    let lines = piece.lines().filter_map(|line| line.strip_prefix("MEMBER "));
                    for line in lines {
                        let words: Vec<&str> = line.split(' ').collect();
                        let token = words.iter().find_map(|word| word.strip_prefix("token=$"));
                        let [number, token] =
                            [Some(words[0]), token].map(|word| word.and_then(|word| word.parse().ok()));
                        let (pool, member) = (words[1].to_string(), words[2].to_string());
                        hints.served.entry(*client).or_default().push(pool.clone());
                        hints.leases.insert((*client, pool, member), (number.expect("a number"), token));
                    }
                }
                _ => {}
            }
            if matches!(words[0], "!START" | "!STOP" | "!CHECK" | "!CLEAN") {
                self.asked.entry(*client).or_default().push(piece.clone());
            }
            let key = match words[..] {
                ["!LOST", _, reason, ..] => format!("!LOST {reason}"),
                [word @ ("ERROR" | "NO_MEMBERS" | "MEMBERS"), more, ..] => format!("{word} {more}"),
                _ => words[0].into(),
            };
            *self.tally.entry(key).or_insert(0) += 1;
        }
        self.model.hints = hints;
        told
    }

    /// Numbers leases and tokens in the order in which they were granted, not in that of the clients.
    fn number_leases(&mut self, texts: &[(usize, String)]) {
        let lines = texts.iter().flat_map(|(_, text)| text.lines()).filter(|line| line.starts_with("MEMBER "));
        let mut leases: Vec<(u64, Option<&str>)> = lines
            .map(|line| {
                let number = line.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
                (number, line.rsplit(' ').next().and_then(|word| word.strip_prefix("token=")))
            })
            .collect();
        leases.sort_unstable();
        self.first_lease = self.first_lease.or(leases.first().map(|(number, _)| *number));
        self.tokens.extend(leases.into_iter().filter_map(|(_, token)| token).map(String::from));
    }

    /// Returns the number of a token, from 1 on.
    fn number_of(&self, token: &str) -> usize {
        1 + self.tokens.iter().position(|known| known == token).expect("it was numbered")
    }

    /// Returns a line of the daemon with leases and tokens as the model numbers them.
    fn understood(&mut self, client: usize, line: &str) -> String {
        let mut words: Vec<String> = line.split(' ').map(String::from).collect();
        match &words[0][..] {
            "MEMBER" => {
                let number: u64 = words[1].parse().expect("a number");
                let number = number + 1 - self.first_lease.expect("it was numbered");
                words[1] = number.to_string();
                let last = words.len() - 1;
                let token = words[last].strip_prefix("token=").map(|token| self.number_of(token));
                token.iter().for_each(|token| words[last] = format!("token=${token}"));
                self.leases.push((client, number, token));
            }
            "!LOST" => {
                let number: u64 = words[1].parse().expect("a number");
                words[1] = (number + 1 - self.first_lease.expect("it was told")).to_string();
            }
            "ERROR" => words.truncate(2),
            _ => {}
        }
        words.join(" ")
    }

    fn translated(&self, line: &str) -> String {
        let mut words: Vec<String> = line.split(' ').map(String::from).collect();
        if matches!(&words[0][..], "RETURN" | "TAKEBACK" | "RENEW") {
            words[1] = match words[1].strip_prefix('$') {
                Some(token) => {
                    let at: usize = token.parse().expect("a number");
                    self.tokens.get(at.wrapping_sub(1)).cloned().unwrap_or("0".repeat(32))
                }
                None => {
                    let number: u64 = words[1].parse().expect("a number");
                    (number + self.first_lease.unwrap_or(1) - 1).to_string()
                }
            };
        }
        words.join(" ")
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
        assert!(self.model.has_all_numbers(), "the daemon leaves out numbers of starts");
        let (there, should_be) = (self.picture(), self.model.picture());
        assert_eq!(there, should_be, "the daemon (left) has something else than the model (right)");
        if self.model.waits_for_groups() > 1 {
            *self.tally.entry("steps with several waits for a group".into()).or_insert(0) += 1;
        }
        if self.model.backoffs().next().is_some() {
            *self.tally.entry("steps with a backoff".into()).or_insert(0) += 1;
        }
    }

    fn picture(&mut self) -> Vec<String> {
        let mut pools = self.ask("POOLS\n");
        for pool in pools.clone() {
            let name = pool.split(' ').next().expect("a line has words");
            let members = self.ask(&format!("MEMBERS {name}\n"));
            pools.extend(members.iter().map(|line| {
                let mut words: Vec<String> = line.split(' ').map(String::from).collect();
                words.remove(4);
                let first = self.first_lease.unwrap_or_default();
                for word in &mut words {
                    let number = word.strip_prefix("lease=").map(|number| number.parse::<u64>().expect("a number"));
                    number.into_iter().for_each(|number| *word = format!("lease={}", number + 1 - first));
                }
                words.join(" ")
            }));
        }
        pools
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

/// Prints the last actions when a test fails, wherever it fails.
impl Drop for MembersTwin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last actions:");
            self.done.iter().for_each(|action| eprintln!("{action}"));
        }
    }
}
