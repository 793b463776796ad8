//! Scenarios of groups on the real program and on Erlang's pooler, with the same outcomes. The environment variable
//! `POOLER_EBIN` names the directory of pooler's compiled modules.

use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::Running;
use poolcounter_testkit::skipped;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable with the directory of pooler's compiled modules.
const COMPILED: &str = "POOLER_EBIN";
/// Script that plays requests on pooler; it says what they mean.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/pooler_groups.escript");
/// Number of random histories, and of the steps of each.
const HISTORIES: u64 = 20;
const STEPS: usize = 40;

/// The daemon, spoken to in the requests of the script.
struct Ours {
    daemon: Daemon,
    operator: Client,
    holders: BTreeMap<String, Holder>,
    /// Connection of the provider of each pool.
    providers: BTreeMap<String, TcpStream>,
    /// Names of the members that were ever returned in good state. Others that die are replaced only after a backoff,
    /// which pooler does not know.
    proven: BTreeSet<String>,
}

/// A consumer, and its members: lease, pool and name.
struct Holder {
    client: Client,
    members: Vec<[String; 3]>,
}

impl Holder {
    /// Sends a request, and returns its reply.
    fn ask(&mut self, request: &str) -> String {
        self.client.send(format!("{request}\n").as_bytes());
        loop {
            let line = self.client.line();
            if !line.starts_with('!') {
                return line;
            }
        }
    }
}

impl Ours {
    fn start() -> Ours {
        let daemon = Daemon::start_with_members(&[]);
        let operator = Client::to(daemon.members());
        Ours { daemon, operator, holders: BTreeMap::new(), providers: BTreeMap::new(), proven: BTreeSet::new() }
    }

    fn play(&mut self, request: &str) -> String {
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["reset"] => *self = Ours::start(),
            ["pool", name, group, init, max, kind] => {
                assert_eq!(self.operator.ask(&format!("POOL {name} {init} {max} group={group}")), "OK");
                self.providers.insert(name.into(), provide(self.daemon.members(), name, kind));
            }
            ["regroup", name, group, ..] => {
                assert_eq!(self.operator.ask(&format!("RECONFIGURE {name} group={group}")), "OK");
            }
            ["rmpool", name] => assert_eq!(self.operator.ask(&format!("RMPOOL {name}")), "OK"),
            // Pooler does not say that there is no such group.
            ["rmgroup", group] => _ = self.operator.ask(&format!("RMGROUP {group}")),
            ["take", holder, group] => return self.take(holder, &format!("TAKEGROUP {group} 0")),
            ["takeof", holder, name] => return self.take(holder, &format!("TAKE {name} 0")),
            ["return", holder, condition] => {
                let holder = self.holders.get_mut(holder).expect("it has taken a member");
                let [lease, _, member] = holder.members.remove(0);
                if condition == "ok" {
                    self.proven.insert(member);
                }
                assert_eq!(holder.ask(&format!("RETURN {lease} {}", condition.to_uppercase())), "RETURNED");
            }
            ["lose", holder] => _ = self.holders.remove(holder).expect("it has taken a member"),
            ["kill", holder] => {
                let holder = self.holders.get_mut(holder).expect("it has taken a member");
                let [lease, pool, member] = holder.members.remove(0);
                let provider = self.providers.get_mut(&pool).expect("each pool has one");
                provider.write_all(format!("DEAD {member}\n").as_bytes()).expect("the daemon reads");
                assert_eq!(holder.client.line(), format!("!LOST {lease} died"));
            }
            ["holds", holder] => {
                let members = &self.holders[holder].members;
                let is_held = |operator: &mut Client, [lease, pool, _]: &[String; 3]| {
                    let rows = list(operator, &format!("MEMBERS {pool}"));
                    rows.iter().any(|row| row.ends_with(&format!(" lease={lease}")))
                };
                return members.iter().filter(|member| is_held(&mut self.operator, member)).count().to_string();
            }
            ["figures", group] => return self.figures(group),
            _ => panic!("{request}"),
        }
        "ok".into()
    }

    /// Returns whether a holder's oldest member was ever returned in good state.
    fn is_proven(&self, holder: &str) -> bool {
        self.proven.contains(&self.holders[holder].members[0][2])
    }

    fn take(&mut self, holder: &str, request: &str) -> String {
        let connect = || Holder { client: Client::to(self.daemon.members()), members: Vec::new() };
        let holder = self.holders.entry(holder.into()).or_insert_with(connect);
        let reply = holder.ask(request);
        let words: Vec<String> = reply.split(' ').map(String::from).collect();
        match words.as_slice() {
            [word, lease, pool, member] if word == "MEMBER" => {
                holder.members.push([lease.clone(), pool.clone(), member.clone()]);
                pool.clone()
            }
            _ => "none".into(),
        }
    }

    fn figures(&mut self, group: &str) -> String {
        let mut sums = [0; 4];
        for row in list(&mut self.operator, "POOLS") {
            let words: Vec<&str> = row.split(' ').collect();
            if words[1] == group {
                let figure = |name: &str| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
                for (sum, name) in sums.iter_mut().zip(["in_use", "free", "starting", "stopping"]) {
                    *sum += figure(name).expect("it is there").parse::<u64>().expect("is a number");
                }
            }
        }
        sums.map(|sum| sum.to_string()).join(" ")
    }
}

/// Returns the lines of a list: none if the pool is gone.
fn list(operator: &mut Client, request: &str) -> Vec<String> {
    let first = operator.ask(request);
    let mut rows = Vec::new();
    let mut row = first;
    while !row.is_empty() && !row.starts_with("ERROR ") {
        rows.push(row);
        row = operator.line();
    }
    rows
}

/// Connects a provider of a pool, which starts members as its kind says until it is closed.
fn provide(server: SocketAddr, pool: &str, kind: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).expect("the daemon listens");
    stream.write_all(format!("PROVIDE {pool}\n").as_bytes()).expect("the daemon reads");
    let mut provider = stream.try_clone().expect("there are descriptors");
    let mut lines = BufReader::new(stream.try_clone().expect("there are descriptors")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("OK"));
    let kind = kind.to_string();
    thread::spawn(move || {
        for line in lines {
            let answer = match (&line.split(' ').collect::<Vec<_>>()[..], &*kind) {
                (["!START", _, id], "broken") => format!("FAILED {id}\n"),
                (["!START", pool, id], kind) => {
                    kind.parse().into_iter().map(Duration::from_millis).for_each(thread::sleep);
                    format!("STARTED {id} {pool}{id}\n")
                }
                (["!STOP", _, member], _) => format!("STOPPED {member}\n"),
                _ => continue,
            };
            if provider.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    stream
}

/// Pooler and the daemon, side by side.
struct Pair {
    ours: Ours,
    pooler: Running,
}

/// Result of a take: the pools from which ours and pooler gave a member.
type Taken = Option<[String; 2]>;

impl Pair {
    /// Starts both, unless pooler is missing.
    fn start() -> Option<Pair> {
        let Some(compiled) = std::env::var_os(COMPILED) else {
            skipped(&format!("groups beside Erlang's pooler, because {COMPILED} does not name its compiled modules"));
            return None;
        };
        if Command::new("escript").output().is_err() {
            skipped("groups beside Erlang's pooler, because Erlang is not installed");
            return None;
        }
        let pooler = Running::start(Command::new("escript").arg(SCRIPT).arg(compiled));
        let mut pair = Pair { ours: Ours::start(), pooler };
        pair.do_all(&["reset"]);
        Some(pair)
    }

    /// Sends a request to both, and returns both answers.
    fn ask(&mut self, request: &str) -> [String; 2] {
        let input = self.pooler.child.stdin.as_mut().expect("is piped");
        input.write_all(format!("{request}\n").as_bytes()).expect("the script reads");
        let ours = self.ours.play(request);
        let theirs = self.pooler.line();
        assert_ne!(theirs, "", "the script has ended at {request:?}");
        [ours, theirs]
    }

    /// Sends requests to both that have the same answers.
    fn do_all(&mut self, requests: &[&str]) {
        for request in requests {
            let [ours, theirs] = self.ask(request);
            assert_eq!(ours, theirs, "ours (left) and pooler (right): {request}");
        }
    }

    /// Starts both anew, with these pools, and waits for their members.
    fn begin(&mut self, pools: &[&str]) {
        self.do_all(&["reset"]);
        pools.iter().for_each(|pool| self.do_all(&[&format!("pool {pool}")]));
        self.settle();
    }

    /// Waits until no pool of the group `g` starts or stops a member.
    fn settle(&mut self) -> [String; 2] {
        let deadline = Instant::now() + PATIENCE;
        let mut last = self.ask("figures g");
        loop {
            thread::sleep(Duration::from_millis(10));
            let figures = self.ask("figures g");
            if figures == last && figures.iter().all(|figures| figures.ends_with(" 0 0")) {
                return figures;
            }
            assert!(Instant::now() < deadline, "there is no end of starts: {figures:?}");
            last = figures;
        }
    }

    /// Waits as [`Pair::settle`], and asserts that both have these members in use and free.
    fn settle_with(&mut self, in_use: usize, free: usize) {
        let figures = format!("{in_use} {free} 0 0");
        assert_eq!(self.settle(), [figures.clone(), figures]);
    }

    /// Takes a member of both, or of neither.
    fn take(&mut self, holder: &str) -> Taken {
        let taken = self.ask(&format!("take {holder} g"));
        let is_served = taken.each_ref().map(|pool| pool != "none");
        assert_eq!(is_served[0], is_served[1], "ours (left) has a member for {holder}, and pooler (right)");
        is_served[0].then_some(taken)
    }

    /// Takes members until both have given as many, and returns the number of takes of each that were needed. Each
    /// take may cause a start for those that follow.
    fn takes_for(&mut self, members: usize) -> [usize; 2] {
        let (mut needed, mut given) = ([0; 2], [0; 2]);
        for takes in 1..=members * 4 {
            for (at, pool) in self.ask("take A g").into_iter().enumerate() {
                given[at] += usize::from(pool != "none");
                if given[at] == members && needed[at] == 0 {
                    needed[at] = takes;
                }
            }
            self.settle();
        }
        assert_eq!(given, [members; 2], "ours (left) and pooler (right) have given as many members as there can be");
        needed
    }
}

#[test]
fn groups_are_served_as_by_pooler() {
    let Some(mut pair) = Pair::start() else { return };
    members_come_from_both_pools(&mut pair);
    an_unknown_group_has_no_members(&mut pair);
    an_empty_pool_leaves_the_take_to_another(&mut pair);
    empty_pools_start_members_for_later_takes(&mut pair);
    a_slow_start_serves_a_later_take(&mut pair);
    a_failing_pool_leaves_the_take_to_another(&mut pair);
    a_pool_in_use_leaves_the_take_to_another(&mut pair);
    an_exhausted_group_gives_what_comes_back(&mut pair);
    members_that_end_are_replaced_by_one(&mut pair);
    pools_change_their_group(&mut pair);
    groups_are_removed(&mut pair);
    random_histories(&mut pair);
}

fn members_come_from_both_pools(pair: &mut Pair) {
    pair.begin(&["a g 2 3 well", "b g 2 3 well", "c other 2 3 well"]);
    let mut pools = [BTreeSet::new(), BTreeSet::new()];
    for _ in 0..50 {
        let taken = pair.take("A").expect("there are free members");
        pools.iter_mut().zip(taken).for_each(|(pools, pool)| _ = pools.insert(pool));
        pair.do_all(&["return A ok"]);
    }
    let both = BTreeSet::from(["a", "b"].map(String::from));
    assert_eq!(pools, [both.clone(), both]);
    pair.settle_with(0, 4);
}

fn an_unknown_group_has_no_members(pair: &mut Pair) {
    pair.begin(&["a g 1 1 well"]);
    pair.do_all(&["take A nowhere", "rmgroup nowhere", "figures nowhere"]);
    pair.settle_with(0, 1);
}

fn an_empty_pool_leaves_the_take_to_another(pair: &mut Pair) {
    for _ in 0..8 {
        pair.begin(&["a g 0 1 well", "b g 1 1 well"]);
        pair.do_all(&["take A g", "holds A"]);
    }
}

fn empty_pools_start_members_for_later_takes(pair: &mut Pair) {
    pair.begin(&["a g 0 1 well", "b g 0 2 well"]);
    assert_eq!(pair.take("A"), None);
    pair.settle();
    assert!(pair.take("A").is_some(), "the first take has caused a start");
    pair.begin(&["a g 0 1 well", "b g 0 2 well"]);
    let takes = pair.takes_for(3);
    println!("takes for 3 members that are started on demand, ours and pooler's: {takes:?}");
    pair.settle_with(3, 0);
    assert_eq!(pair.take("A"), None);
}

fn a_slow_start_serves_a_later_take(pair: &mut Pair) {
    pair.begin(&["a g 0 1 300", "b g 0 1 300"]);
    assert_eq!([pair.take("A"), pair.take("B")], [None, None]);
    pair.settle();
    assert!(pair.take("A").is_some());
}

fn a_failing_pool_leaves_the_take_to_another(pair: &mut Pair) {
    // Ours prefers the pool that could start the most members.
    pair.begin(&["a g 0 4 broken", "b g 0 2 well"]);
    let takes = pair.takes_for(2);
    println!("takes for 2 members beside a failing pool, ours and pooler's: {takes:?}");
    pair.settle_with(2, 0);
    assert_eq!(pair.take("B"), None);
    pair.do_all(&["return A ok", "take B g", "holds B"]);
    pair.begin(&["a g 0 4 broken"]);
    assert_eq!([pair.take("A"), pair.take("A")], [None, None]);
    pair.settle_with(0, 0);
}

fn a_pool_in_use_leaves_the_take_to_another(pair: &mut Pair) {
    pair.begin(&["a g 1 1 well", "b g 1 1 well"]);
    pair.do_all(&["takeof A a", "take B g", "take B g"]);
    pair.settle_with(2, 0);
    pair.do_all(&["return A ok", "take B g", "holds B"]);
}

fn an_exhausted_group_gives_what_comes_back(pair: &mut Pair) {
    pair.begin(&["a g 3 3 well", "b g 3 3 well"]);
    for _ in 0..6 {
        assert!(pair.take("A").is_some());
    }
    for _ in 0..3 {
        assert_eq!(pair.take("B"), None);
    }
    pair.do_all(&["return A ok", "holds A"]);
    assert!(pair.take("B").is_some());
    pair.do_all(&["holds B"]);
    pair.settle_with(6, 0);
}

fn members_that_end_are_replaced_by_one(pair: &mut Pair) {
    pair.begin(&["a g 1 1 well", "b g 1 1 well"]);
    for ending in ["return A fail", "kill A", "lose A"] {
        assert!(pair.take("A").is_some() && pair.take("A").is_some());
        pair.do_all(&["return A ok", "return A ok"]);
        assert!(pair.take("A").is_some());
        pair.do_all(&[ending]);
        pair.settle_with(0, 2);
    }
}

fn pools_change_their_group(pair: &mut Pair) {
    pair.begin(&["a g 1 1 well", "b g 1 1 well"]);
    pair.do_all(&["regroup a h 1 1 well", "take A h", "take A g", "take A g", "take A h"]);
    pair.do_all(&["return A ok", "regroup a g 1 1 well", "take B g", "take B h", "figures h"]);
    pair.settle_with(2, 0);
}

fn groups_are_removed(pair: &mut Pair) {
    pair.begin(&["a g 2 2 well", "b g 2 2 well", "c h 1 1 well"]);
    pair.do_all(&["takeof A a", "takeof B b", "takeof C c", "rmgroup g"]);
    pair.settle_with(0, 0);
    pair.do_all(&["take A g", "holds A", "holds B", "holds C", "figures h", "rmgroup g"]);
    pair.begin(&["a g 1 1 well", "b g 1 1 well"]);
    pair.do_all(&["rmpool a"]);
    pair.settle_with(0, 1);
    pair.do_all(&["take A g", "take A g", "rmpool b"]);
    pair.settle_with(0, 0);
    pair.do_all(&["take A g", "holds A"]);
}

/// Plays random histories with pools that start all their members at once: then both serve the same takes.
fn random_histories(pair: &mut Pair) {
    let mut served = 0;
    for seed in 1..=HISTORIES {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let sizes = [1 + random.below(3), 1 + random.below(3)];
        let [a, b] = sizes;
        pair.begin(&[&format!("a g {a} {a} well"), &format!("b g {b} {b} well")]);
        let mut held = BTreeMap::from([("A", 0), ("B", 0), ("C", 0)]);
        for _ in 0..STEPS {
            let holder = random.pick(&["A", "B", "C"]);
            let count = held.get_mut(holder).expect("is one of them");
            match random.below(8) {
                0..4 => {
                    let is_served = usize::from(pair.take(holder).is_some());
                    (*count, served) = (*count + is_served, served + is_served);
                }
                _ if *count == 0 => continue,
                4 => {
                    pair.do_all(&[&format!("lose {holder}")]);
                    *count = 0;
                }
                5 if pair.ours.is_proven(holder) => {
                    pair.do_all(&[&format!("kill {holder}")]);
                    *count -= 1;
                }
                way => {
                    pair.do_all(&[&format!("return {holder} {}", ["ok", "fail"][way % 2])]);
                    *count -= 1;
                }
            }
            let in_use = held.values().sum();
            pair.settle_with(in_use, a + b - in_use);
        }
    }
    assert!(served > 0, "no take is served");
}
