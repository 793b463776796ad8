//! Rights and limits: every command of every service as a client with the right and as a client without it; the limits
//! of a rule; and the real program with users of this machine, names of certificates, and a reload.

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use poolcounter::SERVICES;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::meter;
use poolcounter_core::proxy::{Header, Tls};
use poolcounter_core::stats::Stat as _;
use poolcounter_core::time::Span;
use poolcounter_http::HttpSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_protocol::counters::commands::Opcode;
use poolcounter_service::access::{Access, Rule, Verb};
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_service::operations::Operations;
use poolcounter_testkit::daemon::{Daemon, PATIENCE, install_program};
use poolcounter_testkit::player::play_file;
use poolcounter_testkit::protocol::Protocol;
use poolcounter_testkit::rules;
use poolcounter_testkit::running::{Ended, run};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::script::Scenario;
use poolcounter_testkit::virtual_target::{GUEST as CLIENT, OPERATOR, VirtualTarget};
use poolcounter_testkit::world::World;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Rights that a request needs: one for the keys `mine*` is enough, or only one for all keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Mine,
    All,
    /// None: the request concerns only its own connection.
    Itself,
}
use About::{All, Itself, Mine};

/// Returns the rows of a table in text: the words of each, and its request, behind " | ".
fn rows(table: &'static str) -> impl Iterator<Item = (Vec<&'static str>, Vec<u8>)> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (words, request) = line.split_once(" | ").expect("a row has a request");
        let protocol = if line.starts_with("counters ") { Protocol::Counters } else { Protocol::Pools };
        (words.split(' ').collect(), protocol.bytes(request).unwrap_or_else(|wrong| panic!("{line}: {wrong}")))
    })
}

/// Returns a request of each command, with the earlier requests that it depends on, which need no right.
fn request(service: &str, command: &str) -> (About, Vec<u8>) {
    if service == "http" {
        return (Mine, format!("{command} /mine HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes());
    }
    let row = rows(include_str!("requests.txt")).find(|(words, _)| words[..2] == [service, command]);
    let (words, request) = row.unwrap_or_else(|| panic!("{service}: no row of requests.txt tries {command}"));
    let about = [("mine", Mine), ("all", All), ("itself", Itself)].into_iter().find(|(word, _)| *word == words[2]);
    (about.unwrap_or_else(|| panic!("{words:?} has no such right")).1, request)
}

/// Commands without a reply, or with a later one.
const SILENT: [&str; 3] = ["reserve", "quit", "DRAIN"];

/// Returns the keys that `mine*` stands for: of the pages paths, of the administration its commands.
fn mine(service: &str, command: &str) -> String {
    match service {
        "http" => "/mine*".into(),
        "admin" => format!("{command}*"),
        _ => "mine*".into(),
    }
}

/// Reads rules as the configuration file has them, with one more for the operator.
fn rules(text: &str) -> Vec<Rule> {
    let all: Vec<String> = SERVICES.iter().map(|service| format!("\"{}\"", service.name)).collect();
    let operator = format!("[[access]]\nwho = [\"net:{OPERATOR}\"]\nmay = [{}]\n", all.join(", "));
    rules::read(&format!("{text}\n{operator}"))
}

/// Returns the rule of the clients of these tests, with these rights.
fn may(rights: &[String]) -> Vec<Rule> {
    let rights: Vec<String> = rights.iter().map(|right| format!("{right:?}")).collect();
    rules(&format!("[[access]]\nname = \"clients\"\nwho = [\"net:{CLIENT}\"]\nmay = [{}]\n", rights.join(", ")))
}

/// Returns whether the last of some replies is a denial.
fn is_denied(service: &str, answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    match service {
        "pools" | "members" => text.ends_with("ERROR DENIED\n"),
        "jobs" => text.ends_with("NOT_ALLOWED\r\n"),
        "http" => text.starts_with("HTTP/1.1 403 "),
        "admin" => text.contains("ERROR no rule of access allows this"),
        "counters" => answer.len() > 2 && answer[2] == 0x20,
        other => panic!("{other} has no word for it"),
    }
}

/// Sends a command of a client with these rights, and returns whether it is denied.
fn denies(service: &str, command: &str, rights: &[String]) -> bool {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(rights));
    if service == "jobs" {
        let operator = world.connect_from(OPERATOR, "jobs");
        let setup = b"use mine\r\nput 0 0 9 1\r\na\r\nschedule-put s 0 9 1 tube=mine every=9\r\na\r\n";
        assert_eq!(world.ask(operator, setup), b"USING mine\r\nINSERTED 1\r\nSCHEDULED\r\n");
    }
    let client = world.connect_from(CLIENT, service);
    let answer = world.ask(client, &request(service, command).1);
    assert!(SILENT.contains(&command) || !answer.is_empty(), "{service} {command}: no answer");
    is_denied(service, &answer)
}

/// Returns the words of the commands of a service, with the right that each needs. The administration's commands are
/// the operations of all services.
fn commands_of(info: &Info) -> Vec<(&'static str, Option<Verb>)> {
    match info.name {
        "admin" => Operations::of(SERVICES).commands().map(|(word, _)| (word, Some(Verb(0)))).collect(),
        _ => info.commands.iter().map(|row| (row.word, row.verb)).collect(),
    }
}

fn each_command(mut look: impl FnMut(&'static Info, &'static str, Option<Verb>)) {
    for info in SERVICES {
        let commands = commands_of(info);
        assert!(!commands.is_empty(), "{} has commands", info.name);
        commands.into_iter().for_each(|(word, verb)| look(info, word, verb));
    }
}

#[test]
fn each_command_needs_its_right() {
    each_command(|info, command, verb| {
        let (service, case) = (info.name, format!("{} {command}", info.name));
        let Some(verb) = verb else {
            assert_eq!(request(service, command).0, Itself, "{case}");
            let nothing = vec![format!("{service}:{}:nothing", info.verbs[0])];
            return assert!(!denies(service, command, &nothing), "{case} is free");
        };
        let verb = info.verbs[usize::from(verb.0)];
        let others = info.verbs.iter().filter(|other| **other != verb).map(|other| format!("{service}:{other}"));
        let others: Vec<String> = others.chain([format!("{service}:{verb}:nothing")]).collect();
        assert!(denies(service, command, &others), "{case} without {verb}");
        assert!(!denies(service, command, &[format!("{service}:{verb}")]), "{case} with {verb}");
        assert!(!denies(service, command, &[service.into()]), "{case} with everything");
        let pattern = mine(service, command);
        let is_denied = denies(service, command, &[format!("{service}:{verb}:{pattern}")]);
        assert_eq!(is_denied, request(service, command).0 == All, "{case} with {verb} for {pattern}");
    });
}

/// A request is allowed with a right for each key that it uses. It is denied without one of them, even with all other
/// verbs, and with the same verb for the other names in the request.
#[test]
fn each_touched_key_needs_a_right() {
    for (words, request) in rows(include_str!("touched.txt")) {
        let [service, needs @ ..] = &words[..] else { panic!("a row has words") };
        let info = SERVICES.iter().find(|info| info.name == *service).expect("is in the registry");
        let all: Vec<String> = needs.iter().map(|need| format!("{service}:{need}")).collect();
        let case = format!("{service} {}", request.escape_ascii());
        assert!(!tries(service, &request, &all), "{case} with {all:?}");
        for lacking in needs {
            let (verb, key) = lacking.split_once(':').expect("a verb and a key");
            let mut rights: Vec<String> = all.iter().filter(|right| !right.ends_with(lacking)).cloned().collect();
            let others = info.verbs.iter().filter(|other| **other != verb);
            rights.extend(others.map(|other| format!("{service}:{other}")));
            let names =
                ["b", "c", "default", "other", "group:a", "group:b", "group:c"].iter().filter(|name| **name != key);
            // A name with another role in the request does not allow it.
            let names = names.filter(|name| !needs.contains(&&*format!("{verb}:{name}")));
            rights.extend(names.map(|name| format!("{service}:{verb}:{name}")));
            assert!(tries(service, &request, &rights), "{case} without {lacking}: {rights:?}");
        }
    }
}

/// Sends a request of a client with these rights, and returns whether it is denied. Then nothing must have been done.
fn tries(service: &str, request: &[u8], rights: &[String]) -> bool {
    let http = HttpSettings { is_admin: true, ..HttpSettings::default() };
    let mut world = World::with(AllSettings::defaults(SERVICES).with(http));
    world.guard(may(rights));
    let operator = world.connect_from(OPERATOR, "jobs");
    let setup = b"use mine\r\nput 0 0 9 1\r\na\r\nschedule-put s 0 9 1 tube=mine every=9\r\na\r\n";
    assert_eq!(world.ask(operator, setup), b"USING mine\r\nINSERTED 1\r\nSCHEDULED\r\n");
    let providing = world.connect_from(OPERATOR, "members");
    assert_eq!(world.ask(providing, b"POOL mine 0 1\n"), b"OK\n");
    let looks = |world: &mut World| {
        let summary =
            [&b"stats-job 1\r\nlist-tubes\r\nlist-schedules\r\nsummary tube\r\nroot mine c 1\r\nroot a c 1\r\n"[..]]
                .concat();
        (world.ask(operator, &summary), world.ask(providing, b"POOLS\nMEMBERS mine\n"))
    };
    let before = looks(&mut world);
    let client = world.connect_from(CLIENT, service);
    let answer = world.ask(client, request);
    let is_denied = is_denied(service, &answer);
    if is_denied {
        assert_eq!(String::from_utf8_lossy(&answer).matches("NOT_ALLOWED").count(), usize::from(service == "jobs"));
        world.finish(client);
        world.settle();
        let after = looks(&mut world);
        let text = |(jobs, members): &(Vec<u8>, Vec<u8>)| format!("{}{}", jobs.escape_ascii(), members.escape_ascii());
        assert_eq!(text(&before), text(&after), "{service} {}", request.escape_ascii());
    }
    is_denied
}

/// A pool with a name like a group's is not confused with that group, nor the group with it.
#[test]
fn pool_is_not_named_like_a_group() {
    let group = ["members:admin:group:phones".into(), "members:take:group:phones".into()];
    for line in ["POOL group:phones 0 1\n", "TAKE group:phones 0\n", "POOL group:phones 0 1 group=phones\n"] {
        assert!(tries("members", line.as_bytes(), &group), "{line}");
        assert!(!tries("members", line.as_bytes(), &["members".into()]), "{line}");
    }
}

/// Every command that a service counts, or has a number for, stands in its table.
#[test]
fn every_command_has_a_row() {
    let rows = |service: &str| {
        let info = SERVICES.iter().find(|info| info.name == service).expect("is in the registry");
        info.commands.iter().map(|row| row.word.to_string()).collect::<Vec<_>>()
    };
    let counted = poolcounter_jobs::stats::Jobs::ALL.iter().filter_map(|stat| stat.row().name.strip_prefix("cmd-"));
    let counted: Vec<&str> = counted.collect();
    assert!(counted.len() > 20, "{counted:?}");
    let missing: Vec<&&str> = counted.iter().filter(|name| !rows("jobs").contains(&name.to_string())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let opcodes = (0..=u8::MAX).filter_map(Opcode::of).map(|opcode| format!("{opcode:?}"));
    assert_eq!(opcodes.collect::<Vec<_>>(), rows("counters"));
}

/// The document of the rules lists the commands of each verb.
#[test]
fn document_has_the_tables() {
    let document = include_str!("../../docs/access.md");
    for info in SERVICES {
        for (at, verb) in info.verbs.iter().enumerate() {
            let needs_it = |(_, of): &(&str, Option<Verb>)| of.is_some_and(|of| usize::from(of.0) == at);
            let commands: Vec<&str> = commands_of(info).into_iter().filter(needs_it).map(|(word, _)| word).collect();
            let row = format!("\n| `{}:{verb}` | `{}` |", info.name, commands.join("`, `"));
            assert!(document.contains(&row), "{row}");
        }
    }
}

#[test]
fn connections_without_rights_are_not_admitted() {
    for info in SERVICES {
        let mut world = World::with(AllSettings::defaults(SERVICES));
        world.guard(may(&["pools:acquire:nothing".into()]));
        let stranger = world.connect_from("198.51.100.1", info.name);
        world.settle();
        assert_eq!(world.take_received(stranger), info.refusal, "{}", info.name);
        assert!(is_denied(info.name, info.refusal), "{}", info.name);
        assert!(world.is_ended(stranger));
        let client = world.connect_from(CLIENT, info.name);
        world.settle();
        assert_eq!(world.is_ended(client), info.name != "pools", "{}", info.name);
        world.finish(stranger);
        world.finish(client);
        world.settle();
        assert!(world.is_empty());
    }
}

/// Returns a world with a rule for the clients with all rights, and a limit.
fn limited(limit: &str) -> World {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(rules(&all_rights(limit)));
    world
}

fn all_rights(limit: &str) -> String {
    let all: Vec<String> = SERVICES.iter().map(|service| format!("\"{}\"", service.name)).collect();
    format!("[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [{}]\n{limit}\n", all.join(", "))
}

#[test]
fn rights_and_limits_are_as_the_script_says() {
    play_file("tests/conversations/access.txt", Protocol::Pools, |Scenario { options, clients, .. }| {
        let limit = options.join(" ");
        let world = limited(&limit);
        let happen = move |world: &mut World, words: &str| happen(world, words, &limit);
        VirtualTarget::of(Protocol::Pools, world, Box::new(happen)).for_clients(clients)
    });
}

/// Lets something happen to the rules, or replaces the process.
fn happen(world: &mut World, words: &str, limit: &str) -> Result<bool, String> {
    let other = "[[access]]\nname = \"new\"\nwho = [\"net:203.0.113.1\"]\nmay = [\"pools\"]\n";
    match words.split_once(' ').unwrap_or((words, "")) {
        ("may", rights) => world.guard(may(&rights.split(' ').map(String::from).collect::<Vec<_>>())),
        ("another", _) => world.guard(rules(&format!("{other}{}", all_rights(limit)))),
        ("no", _) => world.guard(Vec::new()),
        ("lost", _) => world.lose_rules(),
        ("upgrade", _) => world.upgrade(),
        ("end", _) => {}
        _ => return Err(format!("\"{words}\" is nothing that happens to rules")),
    }
    Ok(false)
}

/// Changes the rights of the clients by a reload: another process takes over with them.
fn reload(world: &mut World, rights: &[&str]) {
    let rights: Vec<String> = rights.iter().map(ToString::to_string).collect();
    world.guard(may(&rights));
    world.upgrade();
    world.settle();
}

#[test]
fn requests_are_limited_by_the_second() {
    let mut world = limited("max_requests = 10");
    let clients = [(); 2].map(|()| world.connect_from(CLIENT, "pools"));
    let mut served = 0;
    let mut burst = |world: &mut World| {
        let answers = clients.map(|client| world.ask(client, &b"STATS UPTIME\n".repeat(20)));
        let answers = answers.concat();
        let text = String::from_utf8_lossy(&answers).into_owned();
        served = text.matches("uptime").count();
        assert_eq!(served + text.matches("ERROR LIMITED\n").count(), 40, "{text}");
        served
    };
    assert!((10..=11).contains(&burst(&mut world)));
    assert_eq!(burst(&mut world), 0);
    world.advance(Span::from_millis(500));
    assert!((5..=6).contains(&burst(&mut world)));
    assert_eq!(world.ask(clients[0], b"RELEASE\n"), b"NOT_LOCKED\n", "what gives back is not limited");
    let job = world.connect_from(CLIENT, "jobs");
    assert_eq!(world.ask(job, b"stats-tube default\r\n"), b"OUT_OF_MEMORY\r\n", "all services count");
}

#[test]
fn each_request_counts_for_the_rate() {
    let is_at_the_limit_after = |service: &'static str, request: &[u8], case: &str| {
        let mut world = limited("max_requests = 10");
        for _ in 0..12 {
            let client = world.connect_from(CLIENT, service);
            world.ask(client, request);
        }
        let client = world.connect_from(CLIENT, "pools");
        assert_eq!(world.ask(client, b"STATS UPTIME\n"), b"ERROR LIMITED\n", "{case}");
    };
    each_command(|info, command, _| {
        is_at_the_limit_after(info.name, &request(info.name, command).1, &format!("{} {command}", info.name));
    });
    for (service, line) in [
        ("pools", "STATS FIELDS\n"),
        ("pools", "ACQ4ME k\n"),
        ("pools", "NONSENSE\n"),
        ("members", "NONSENSE\n"),
        ("members", "TAKE\n"),
        ("jobs", "nonsense\r\n"),
        ("jobs", "delete 99\r\n"),
        ("jobs", "put-many 1\r\nput x\r\n"),
        ("admin", "NONSENSE\n"),
        ("http", "GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n"),
    ] {
        is_at_the_limit_after(service, line.as_bytes(), &format!("{service} {line}"));
    }
    let mut world = limited("max_requests = 10");
    let client = world.connect_from(CLIENT, "jobs");
    let told = world.ask(client, &b"use mine\r\n".repeat(12));
    assert!(told.ends_with(b"OUT_OF_MEMORY\r\n"), "{}", told.escape_ascii());
    assert_eq!(world.ask(client, b"touch 1\r\n"), b"NOT_FOUND\r\n", "what gives back is answered");
}

/// A list of keys is searched for in several turns, and one list at a time.
#[test]
fn list_of_keys_is_one_request() {
    let pools = PoolsSettings { max_locks: u32::MAX, ..PoolsSettings::default() };
    let mut world = World::with(AllSettings::defaults(SERVICES).with(pools));
    world.guard(rules(&format!("[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [\"pools\"]\nmax_requests = 2\n")));
    let operator = world.connect_from(OPERATOR, "pools");
    let lines: String = (0..9_000).map(|n| format!("ACQ4ME key:{n} 1 9 0\n")).collect();
    assert_eq!(world.ask(operator, lines.as_bytes()), b"LOCKED\n".repeat(9_000));
    let clients = [(); 2].map(|()| world.connect_from(CLIENT, "pools"));
    clients.iter().for_each(|client| world.send(*client, b"STATS KEYS 1\n"));
    world.tick();
    assert!(clients.iter().all(|client| world.take_received(*client).is_empty()), "the search has several slices");
    world.settle();
    for client in clients {
        let told = world.take_received(client);
        assert!(told.starts_with(b"key:0: 1 working"), "{}", told.escape_ascii());
    }
    assert_eq!(world.ask(clients[0], b"STATS KEYS 1\n"), b"ERROR LIMITED\n");

    // After a reload that takes the right away, no search is left.
    world.advance(Span::from_secs(9));
    clients.iter().for_each(|client| world.send(*client, b"STATS KEYS 1\n"));
    world.tick();
    reload(&mut world, &["pools:acquire"]);
    assert_eq!(clients.map(|client| world.take_received(client)), [(); 2].map(|()| b"ERROR DENIED\n".to_vec()));
    assert!(world.ask(operator, b"STATS KEYS 1\n").starts_with(b"key:0: 1 working"));
}

#[test]
fn memory_is_limited() {
    let mut world = limited("max_memory = 10000");
    let clients = [(); 3].map(|()| world.connect_from(CLIENT, "pools"));
    for client in clients {
        world.set_room(client, 0);
    }
    let line = [&b"ACQ4ME "[..], &b"k".repeat(6000)].concat();
    world.ask(clients[0], &line);
    assert!(!world.is_ended(clients[0]));
    world.ask(clients[1], &line);
    assert!(world.is_ended(clients[1]) && !world.is_ended(clients[0]), "it would be more than that together");
    world.reset(clients[0]);
    world.settle();
    world.ask(clients[2], &line);
    assert!(!world.is_ended(clients[2]));
    let reader = world.connect_from(CLIENT, "pools");
    world.set_room(reader, 0);
    world.ask(reader, &b"STATS FULL\n".repeat(10));
    assert!(world.is_ended(clients[2]) && !world.is_ended(reader), "what is not read counts, and who has most ends");
    world.ask(reader, &b"STATS FULL\n".repeat(30));
    assert!(world.is_ended(reader), "nobody else has anything");
    let reader = world.connect_from(CLIENT, "pools");
    let replies = world.ask(reader, &b"STATS FULL\n".repeat(30));
    assert!(replies.len() > 10_000 && !world.is_ended(reader), "what is sent at once does not count");
}

#[test]
fn largest_connection_is_found_without_a_search() {
    let mut access =
        Access::new(rules(&format!("[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [\"pools\"]\nmax_memory = 1000000\n")));
    let conns = || (0..12_000).map(ConnId::from_index);
    for conn in conns() {
        access.enter(conn, Some(0));
        access.note_bytes(conn, 50);
        access.note_bytes(conn, 100 + (conn.index() as u64 % 7));
    }
    access.check_counts(&[]);
    let mut ended = Vec::new();
    meter::begin_step();
    while let Some((conn, bytes)) = access.largest_beyond(0) {
        access.leave(conn);
        ended.push(bytes);
    }
    assert_eq!(meter::begin_step(), ended.len() as u64, "each is found at once");
    assert!(ended.len() > 2000 && ended.is_sorted_by(|one, next| one >= next), "{}", ended.len());
    access.check_counts(&[]);
    conns().for_each(|conn| access.leave(conn));
    access.check_counts(&[]);
    assert!(access.is_empty());
}

/// Watches and the tubes that exist for them count, too.
#[test]
fn memory_of_watches_is_limited() {
    let mut world = limited("max_memory = 100000");
    let clients = [(); 2].map(|()| world.connect_from(CLIENT, "jobs"));
    let watch = |from: usize, to: usize| (from..to).map(|n| format!("watch tube{n}\r\n")).collect::<String>();
    world.ask(clients[0], watch(0, 20).as_bytes());
    world.ask(clients[1], watch(20, 40).as_bytes());
    assert!(!clients.iter().any(|client| world.is_ended(*client)));
    world.ask(clients[1], watch(40, 200).as_bytes());
    assert!(world.is_ended(clients[1]) && !world.is_ended(clients[0]), "the connection with most watches ends");
}

/// A program with a configuration, and its files.
struct Stage {
    scratch: Scratch,
    daemon: Daemon,
}

impl Stage {
    fn start(rules: &str) -> Stage {
        let scratch = Scratch::new();
        install_program(&scratch.file("poolcounter"));
        Stage::write(&scratch, rules);
        let (program, config) = (scratch.file("poolcounter"), scratch.file("toml"));
        Stage { daemon: Daemon::run(Command::new(program).arg("-c").arg(config)), scratch }
    }

    fn write(scratch: &Scratch, rules: &str) {
        let (unix, proxies) = (scratch.file("unix"), scratch.file("proxies"));
        let listen = format!("[\"127.0.0.1:0\", \"unix:{}\", \"proxy:unix:{}\"]", unix.display(), proxies.display());
        let http = "http = [\"127.0.0.1:0\"]\n";
        fs::write(scratch.file("toml"), format!("listen = {listen}\n{http}{rules}")).expect("can be written");
    }

    fn ask(&self, socket: &str, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.scratch.file(socket)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        // The connection may have been closed already.
        let _ = stream.write_all(bytes);
        let mut answer = [0; 100];
        let len = stream.read(&mut answer).expect("there is an answer");
        String::from_utf8_lossy(&answer[..len]).into_owned()
    }

    fn ask_as(&self, common_name: Option<&str>, line: &str) -> String {
        self.ask("proxies", &[&proxied(common_name), line.as_bytes()].concat())
    }
}

/// Returns the header of a proxy whose client has a certificate of that name, or none.
fn proxied(common_name: Option<&str>) -> Vec<u8> {
    let address = |text: &str| Some(text.parse().expect("an address"));
    let tls = Tls { version: "TLSv1.3".into(), common_name: common_name.map(String::from) };
    let header = Header { source: address("192.0.2.7:1"), destination: address("192.0.2.8:2"), tls: Some(tls) };
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes
}

#[test]
fn users_and_names_in_certificates_are_distinguished() {
    let user = User::from_uid(Uid::effective()).ok().flatten().map_or("0".into(), |user| user.name);
    let mut stage = Stage::start(&format!(
        "[[access]]\nwho = [\"cn:web*.example.org\"]\nmay = [\"pools:acquire\"]\n\
         [[access]]\nname = \"this user\"\nwho = [\"user:{user}\"]\nmay = [\"pools:stats\"]\n\
         [[access]]\nname = \"pages\"\nwho = [\"net:127.0.0.0/8\"]\nmay = [\"http\"]\n"
    ));
    assert_eq!(stage.ask("unix", b"ACQ4ME k 1 1 0\n"), "ERROR DENIED\n");
    let line = stage.daemon.wait_for_log("is refused");
    assert!(line.contains("(rule this user) is refused pools:acquire of k (right)"), "{line}");
    assert!(stage.ask("unix", b"STATS UPTIME\n").starts_with("uptime: "));
    assert_eq!(stage.ask_as(Some("web1.example.org"), "ACQ4ME k 1 1 0\n"), "LOCKED\n");
    assert_eq!(stage.ask_as(Some("db.example.org"), "ACQ4ME k 1 1 0\n"), "ERROR DENIED\n");
    assert_eq!(stage.ask_as(None, "ACQ4ME k 1 1 0\n"), "ERROR DENIED\n");
    assert_eq!(stage.daemon.connect().line(), "ERROR DENIED", "this address may only see the pages");
    let line = stage.daemon.wait_for_log("is refused by the pools");
    assert!(line.contains("is refused by the pools (stranger)"), "{line}");

    // The user has no rights now, and another client has some.
    Stage::write(&stage.scratch, "[[access]]\nwho = [\"cn:db.example.org\"]\nmay = [\"pools\"]\n");
    stage.daemon.upgrade();
    assert_eq!(stage.ask("unix", b"STATS UPTIME\n"), "ERROR DENIED\n");
    assert_eq!(stage.ask_as(Some("db.example.org"), "ACQ4ME k 1 1 0\n"), "LOCKED\n");
    assert_eq!(stage.ask_as(Some("web1.example.org"), "ACQ4ME k 1 1 0\n"), "ERROR DENIED\n");
}

#[test]
fn unreadable_file_leaves_the_rules_at_a_reload() {
    let mut stage = Stage::start("[[access]]\nwho = [\"cn:web*\"]\nmay = [\"pools:acquire\"]\n");
    Stage::write(&stage.scratch, "[[access]]\nwho = \"nobody knows\"\n");
    stage.daemon.signal(Signal::SIGUSR1);
    stage.daemon.wait_for_log("no upgrade: ");
    assert_eq!(stage.ask_as(Some("web1"), "ACQ4ME k 1 1 0\n"), "LOCKED\n");
    assert_eq!(stage.ask_as(Some("other"), "ACQ4ME k 1 1 0\n"), "ERROR DENIED\n");
}

/// The client's address is known once its proxy has sent the header, whichever process has read it.
#[test]
fn header_may_be_split_by_an_upgrade() {
    let mut stage = Stage::start(
        "[[access]]\nname = \"one\"\nwho = [\"net:192.0.2.0/24\"]\nmay = [\"pools\"]\nmax_connections = 1\n\
         [[access]]\nname = \"rest\"\nwho = [\"all\"]\nmay = [\"pools\", \"http\"]\nmax_connections = 2\nmax_memory = 1000\n",
    );
    let mut stream = UnixStream::connect(stage.scratch.file("proxies")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    let header = proxied(None);
    let (first, last) = header.split_at(20);
    stream.write_all(first).expect("is sent");
    stage.daemon.upgrade();
    stream.write_all(&[last, b"ACQ4ME k 1 1 0\n"].concat()).expect("is sent");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("there is an answer");
    assert_eq!(&answer, b"LOCKED\n");
    assert_eq!(stage.ask_as(None, "ACQ4ME k 1 1 0\n"), "ERROR DENIED\n", "it is one connection of its rule");
    let line = stage.daemon.wait_for_log("is refused by the pools");
    assert!(line.contains("(rule one) is refused by the pools (connections, 1 allowed)"), "{line}");
    drop(stream);
    let both = [(); 2].map(|()| stage.daemon.connect().ask("STATS UPTIME"));
    assert!(both.iter().all(|answer| answer.starts_with("uptime")), "it was never one of the others: {both:?}");
    let mut client = stage.daemon.connect();
    client.send(&[b'x'; 2000]);
    let line = stage.daemon.wait_for_log("of its own");
    assert!(line.contains("(rule rest) ends with 2000 bytes of its own (memory, 1000 allowed)"), "{line}");
}

#[test]
fn refusals_are_counted_and_shown() {
    let mut stage = Stage::start(
        "[[access]]\nname = \"web\"\nwho = [\"net:127.0.0.0/8\"]\nmay = [\"pools:acquire:a*\", \"http:read\"]\nmax_locks = 1\n",
    );
    let mut client = stage.daemon.connect();
    assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME b 1 1 0"), "ERROR DENIED");
    assert_eq!(client.ask("ACQ4ME a2 1 1 0"), "QUEUE_FULL");
    let start = stage.daemon.lines.iter().find_map(|line| line.split_once("metrics and the status page are at "));
    let address = start.expect("it has pages").1.to_string();
    let address: SocketAddr = address.parse().expect("an address");
    let look = |path: &str| poolcounter_testkit::web::fetch(address, path).text().to_string();
    let metrics = look("/metrics");
    for line in [
        "poolcounter_access_rule_locks{rule=\"web\"} 1\n",
        "poolcounter_access_denied_rights_total{rule=\"web\"} 1\n",
        "poolcounter_access_denied_locks_total{rule=\"web\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert!(look("/daemon").contains("Access"));
    assert!(look("/status.json").contains("\"denied_rights\":1"));
    stage.daemon.upgrade();
    assert!(look("/metrics").contains("poolcounter_access_denied_rights_total{rule=\"web\"} 1\n"), "it is counted on");
}

#[test]
fn rule_that_is_wrong_is_named() {
    let scratch = Scratch::new();
    let config = scratch.file("toml");
    fs::write(&config, "port = 0\n[[access]]\nwho = [\"all\"]\nmay = [\"pols\"]\n").expect("can be written");
    let Ended { status, stderr: text, .. } = run(&["--check", "-c", config.to_str().expect("is text")]);
    assert_eq!(status, Some(1));
    assert!(text.contains(":4: access: may: \"pols\" does not begin with a service: pools, counters"), "{text}");
}
