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
use poolcounter_testkit::frames;
use poolcounter_testkit::rules;
use poolcounter_testkit::running::{Ended, run};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::world::World;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Address of the client in the rules of these tests, and of the operator, who has all rights.
const CLIENT: &str = "192.0.2.1";
const OPERATOR: &str = "192.0.2.2";

/// Rights that a request needs: one for the keys `mine*` is enough, or only one for all keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Mine,
    All,
    /// None: the request concerns only its own connection.
    Itself,
}
use About::{All, Itself, Mine};

/// Returns a request of each command, with the earlier requests that it depends on, which need no right.
fn request(service: &str, command: &str) -> (About, Vec<u8>) {
    let found = match service {
        "pools" => POOLS.iter().find(|(name, ..)| *name == command).map(text),
        "members" => MEMBERS.iter().find(|(name, ..)| *name == command).map(text),
        "jobs" => JOBS.iter().find(|(name, ..)| *name == command).map(text),
        "admin" => ADMIN.iter().find(|(name, ..)| *name == command).map(text),
        "http" => Some((Mine, format!("{command} /mine HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes())),
        "counters" => match command {
            "Noop" => Some((Itself, frames::frame(0, b""))),
            "Get" => Some((Mine, frames::get(b"mine"))),
            "Acquire" => Some((Mine, frames::acquire(1, 1, b"mine"))),
            "Release" => Some((Itself, frames::release(1, b"mine"))),
            "Stats" => Some((All, frames::stats())),
            "Dump" => Some((All, frames::dump())),
            _ => None,
        },
        _ => None,
    };
    found.unwrap_or_else(|| panic!("{service}: nothing here tries {command}"))
}

type Row = (&'static str, About, &'static str);

fn text((_, about, text): &Row) -> (About, Vec<u8>) {
    (*about, text.as_bytes().to_vec())
}

const POOLS: &[Row] = &[
    ("ACQ4ME", Mine, "ACQ4ME mine 1 1 0 also=mine2:1:1\n"),
    ("ACQ4ANY", Mine, "ACQ4ANY mine 1 1 0\n"),
    ("RELEASE", Itself, "RELEASE\n"),
    ("STATS", All, "STATS FULL\n"),
];

const MEMBERS: &[Row] = &[
    ("TAKE", Mine, "TAKE mine 0\n"),
    ("TAKEGROUP", All, "TAKEGROUP mine 0\n"),
    ("RETURN", Itself, "RETURN 1\n"),
    ("RENEW", Itself, "RENEW 00112233445566778899aabbccddeeff 1\n"),
    ("CANCEL", Itself, "CANCEL\n"),
    ("IDENTIFY", Itself, "IDENTIFY me\n"),
    ("BYE", Itself, "BYE\n"),
    ("PROVIDE", Mine, "PROVIDE mine\n"),
    ("CLEAN", Mine, "CLEAN mine\n"),
    ("STARTED", Itself, "STARTED 1 m\n"),
    ("FAILED", Itself, "FAILED 1\n"),
    ("STOPPED", Itself, "STOPPED m\n"),
    ("ALIVE", Itself, "ALIVE m\n"),
    ("DEAD", Itself, "DEAD m\n"),
    ("CLEANED", Itself, "CLEANED m\n"),
    ("CLEANING", Itself, "CLEANING m\n"),
    ("OFFER", Mine, "OFFER mine m\n"),
    ("WITHDRAW", Mine, "WITHDRAW mine m\n"),
    ("UTILIZATION", Mine, "UTILIZATION mine\n"),
    ("MEMBERS", Mine, "MEMBERS mine\n"),
    ("WAITERS", Mine, "WAITERS mine\n"),
    ("HISTORY", Mine, "HISTORY mine m\n"),
    ("POOLS", All, "POOLS\n"),
    ("POOL", Mine, "POOL mine 0 1\n"),
    ("RECONFIGURE", Mine, "RECONFIGURE mine max=2\n"),
    ("RMPOOL", Mine, "RMPOOL mine\n"),
    ("RMGROUP", All, "RMGROUP mine\n"),
    ("ADD", Mine, "ADD mine m\n"),
    ("DEL", Mine, "DEL mine m\n"),
    ("REPAIR", Mine, "REPAIR mine m\n"),
    ("HOLD", Mine, "HOLD mine m 1\n"),
    ("FREE", Mine, "FREE mine m\n"),
    ("TAKEBACK", All, "TAKEBACK 1\n"),
];

/// Commands without a reply, or with a later one.
const SILENT: [&str; 3] = ["reserve", "quit", "DRAIN"];

/// Requests of the jobs. The operator has put job 1 into `mine`.
const JOBS: &[Row] = &[
    ("use", Itself, "use other\r\n"),
    ("put", Mine, "use mine\r\nput 0 0 9 1\r\na\r\n"),
    ("put-job", Mine, "use mine\r\nput-job 0 0 9 1\r\na\r\n"),
    ("put-many", Mine, "use mine\r\nput-many 1\r\nput 0 0 9 1\r\na\r\n"),
    ("root", Mine, "root mine signature 1\r\n"),
    ("watch", Itself, "watch other\r\n"),
    ("ignore", Itself, "ignore other\r\n"),
    ("reserve", Mine, "watch mine/*\r\nignore default\r\nreserve\r\n"),
    ("reserve-with-timeout", Mine, "watch mine\r\nignore default\r\nreserve-with-timeout 0\r\n"),
    ("reserve-many", Mine, "watch mine\r\nignore default\r\nreserve-many 1 0\r\n"),
    ("reserve-job", Mine, "reserve-job 1\r\n"),
    ("dropped", Mine, "dropped mine\r\n"),
    ("delete", Mine, "delete 1\r\n"),
    ("release", Itself, "release 1 0 0\r\n"),
    ("bury", Itself, "bury 1 0\r\n"),
    ("fail", Itself, "fail 1 0 0 1\r\na\r\n"),
    ("touch", Itself, "touch 1\r\n"),
    ("begin", Itself, "begin 1\r\n"),
    ("peek", Mine, "peek 1\r\n"),
    ("peek-ready", Mine, "use mine\r\npeek-ready\r\n"),
    ("peek-delayed", Mine, "use mine\r\npeek-delayed\r\n"),
    ("peek-buried", Mine, "use mine\r\npeek-buried\r\n"),
    ("stats", All, "stats\r\n"),
    ("stats-job", Mine, "stats-job 1\r\n"),
    ("stats-tube", Mine, "stats-tube mine\r\n"),
    ("list-tubes", All, "list-tubes\r\n"),
    ("list-tube-used", Itself, "list-tube-used\r\n"),
    ("list-tubes-watched", Itself, "list-tubes-watched\r\n"),
    ("list-jobs", Mine, "list-jobs mine ready 1\r\n"),
    ("summary", All, "summary\r\n"),
    ("list-settings", Mine, "list-settings mine\r\n"),
    ("schedule-put", Mine, "schedule-put n 0 9 1 tube=mine every=9\r\na\r\n"),
    ("schedule-delete", Mine, "schedule-delete s\r\n"),
    ("list-schedules", All, "list-schedules\r\n"),
    ("kick", Mine, "use mine\r\nkick 1\r\n"),
    ("kick-job", Mine, "kick-job 1\r\n"),
    ("kick-all", Mine, "kick-all mine/*\r\n"),
    ("pause-tube", Mine, "pause-tube mine 1\r\n"),
    ("pause-all", Mine, "pause-all mine/* 1\r\n"),
    ("limit", Mine, "limit mine 1\r\n"),
    ("retry", Mine, "retry mine 1 1 1 1\r\n"),
    ("dead-letter", Mine, "dead-letter mine mine2\r\n"),
    ("move", Mine, "move mine mine2\r\n"),
    ("set-job", Mine, "set-job 1 pri=1\r\n"),
    ("cancel", Mine, "cancel mine\r\n"),
    ("clear", Mine, "clear mine\r\n"),
    ("drain", All, "drain\r\n"),
    ("undrain", All, "undrain\r\n"),
    ("store-copy", All, "store-copy copy\r\n"),
    ("identify", Itself, "identify me\r\n"),
    ("extensions", Itself, "extensions\r\n"),
    ("quit", Itself, "quit\r\n"),
];

const ADMIN: &[Row] = &[
    ("RELEASE-LOCK", Mine, "RELEASE-LOCK k client:0\n"),
    ("CEILING", Mine, "CEILING k none\n"),
    ("RELOAD", Mine, "RELOAD\n"),
    ("DRAIN", Mine, "DRAIN\n"),
    ("UNDRAIN", Mine, "UNDRAIN\n"),
    ("LOG", Mine, "LOG default\n"),
];

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
        "admin" => text.ends_with("ERROR access: right\n"),
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

/// Returns requests with options that name keys, and the rights for exactly the keys that each uses; it needs all of
/// them.
fn touched() -> Vec<(&'static str, Vec<u8>, &'static [&'static str])> {
    type Named = (&'static str, &'static str, &'static [&'static str]);
    const LINES: &[Named] = &[
        ("pools", "ACQ4ME a 1 1 0\n", &["acquire:a"]),
        ("pools", "ACQ4ANY a 1 1 0 hold=1 who=b\n", &["acquire:a"]),
        ("pools", "ACQ4ME a 1 1 0 also=b:1:1\n", &["acquire:a", "acquire:b"]),
        ("pools", "ACQ4ME a 1 1 0 also=b:1:1 also=c:1:1\n", &["acquire:a", "acquire:b", "acquire:c"]),
        ("pools", "STATS HOLDERS a\n", &["stats:a"]),
        ("members", "TAKE a 0\n", &["take:a"]),
        ("members", "TAKE a 0 member=b lease=9 n=1 x=c\n", &["take:a"]),
        ("members", "TAKEGROUP a 0\n", &["take:group:a"]),
        ("members", "PROVIDE a 1\n", &["provide:a"]),
        ("members", "CLEAN a\n", &["provide:a"]),
        ("members", "OFFER a b x=c\n", &["provide:a"]),
        ("members", "WITHDRAW a b\n", &["provide:a"]),
        ("members", "UTILIZATION a\n", &["read:a"]),
        ("members", "MEMBERS a after=b\n", &["read:a"]),
        ("members", "WAITERS a limit=1\n", &["read:a"]),
        ("members", "POOL a 0 1\n", &["admin:a"]),
        ("members", "POOL a 0 1 queue=2 group=b\n", &["admin:a", "admin:group:b"]),
        ("members", "RECONFIGURE a group=b\n", &["admin:a", "admin:group:b"]),
        ("members", "RECONFIGURE a group=\n", &["admin:a"]),
        ("members", "RMPOOL a\n", &["admin:a"]),
        ("members", "RMGROUP a GRACEFUL\n", &["admin:group:a"]),
        ("members", "ADD a b\n", &["admin:a"]),
        ("members", "DEL a b\n", &["admin:a"]),
        ("members", "HOLD a b 1 c\n", &["admin:a"]),
        ("jobs", "put 0 0 9 1\r\na\r\n", &["put:default"]),
        ("jobs", "use a\r\nput 0 0 9 1\r\na\r\n", &["put:a"]),
        ("jobs", "put-job 0 0 9 1 tube=a\r\na\r\n", &["put:a"]),
        ("jobs", "use b\r\nput-job 0 0 9 1 tube=a key=b\r\na\r\n", &["put:a"]),
        ("jobs", "use a\r\nput-job 0 0 9 1 key=b\r\na\r\n", &["put:a"]),
        ("jobs", "use b\r\nput-job 0 0 9 1 tube=a root=c root-ts=9\r\na\r\n", &["put:a"]),
        ("jobs", "use a\r\nput-job 0 0 9 1 root=c root-ts=9\r\na\r\n", &["put:a"]),
        ("jobs", "put-job 0 0 9 1 group=b tube=a\r\na\r\n", &["put:a", "put:group:b"]),
        ("jobs", "use a\r\nput-job 0 0 9 1 group=b\r\na\r\n", &["put:a", "put:group:b"]),
        ("jobs", "use a\r\nput-many 1\r\nput 0 0 9 1\r\na\r\n", &["put:a"]),
        ("jobs", "use b\r\nput-many 1\r\nput-job 0 0 9 1 tube=a\r\na\r\n", &["put:a"]),
        (
            "jobs",
            "use a\r\nput-many 3\r\nput 0 0 9 1\r\na\r\nput-job 0 0 9 1 tube=b\r\nb\r\nput-job 0 0 9 1 tube=a group=c\r\nc\r\n",
            &["put:a", "put:b", "put:group:c"],
        ),
        ("jobs", "use b\r\nroot a c 9\r\n", &["put:a"]),
        ("jobs", "watch a\r\nignore default\r\nreserve-with-timeout 0\r\n", &["reserve:a"]),
        ("jobs", "use b\r\nwatch a\r\nreserve-many 2 0\r\n", &["reserve:a", "reserve:default"]),
        (
            "jobs",
            "use b\r\nwatch b/*\r\nwatch a 9\r\nignore default\r\nreserve-many 2 0\r\n",
            &["reserve:a", "reserve:b/*"],
        ),
        ("jobs", "use b\r\nwatch b\r\nreserve-job 1\r\n", &["reserve:mine"]),
        ("jobs", "use b\r\ndelete 1\r\n", &["reserve:mine"]),
        ("jobs", "use b\r\npeek 1\r\n", &["read:mine"]),
        ("jobs", "use a\r\npeek-ready\r\n", &["read:a"]),
        ("jobs", "use b\r\nstats-tube a\r\n", &["read:a"]),
        ("jobs", "use b\r\nlist-jobs a ready 1 after=1\r\n", &["read:a"]),
        ("jobs", "use a\r\nkick 1\r\n", &["manage:a"]),
        ("jobs", "use b\r\nkick-job 1\r\n", &["manage:mine"]),
        ("jobs", "use b\r\nkick-all a/*\r\n", &["manage:a/*"]),
        ("jobs", "use b\r\npause-tube a 1\r\n", &["manage:a"]),
        ("jobs", "use b\r\nlimit a 1\r\n", &["manage:a"]),
        ("jobs", "use b\r\nlimit a/* 1 all\r\n", &["manage:a/*"]),
        ("jobs", "use b\r\nlimit a/* 1 per 9 all\r\n", &["manage:a/*"]),
        ("jobs", "use b\r\nlimit group:a 1\r\n", &["manage:group:a"]),
        ("jobs", "use b\r\nlimit group:* 1\r\n", &["manage:group:*"]),
        ("jobs", "use b\r\nretry a 1 1 1 1\r\n", &["manage:a"]),
        ("jobs", "use b\r\ndead-letter a\r\n", &["manage:a"]),
        ("jobs", "use b\r\ndead-letter a c\r\n", &["manage:a", "manage:c"]),
        ("jobs", "use b\r\nmove a c buried\r\n", &["manage:a", "manage:c"]),
        ("jobs", "use b\r\nmove 1 c\r\n", &["manage:mine", "manage:c"]),
        ("jobs", "use b\r\nset-job 1 pri=1 delay=1 ttr=1\r\n", &["manage:mine"]),
        ("jobs", "use b\r\ncancel 1\r\n", &["manage:mine"]),
        ("jobs", "use b\r\ncancel a/*\r\n", &["manage:a/*"]),
        ("jobs", "use b\r\nschedule-put n 0 9 1 tube=a key=c every=9\r\na\r\n", &["manage:a"]),
        ("jobs", "use b\r\nschedule-delete s\r\n", &["manage:mine"]),
        ("jobs", "use b\r\nclear a ready\r\n", &["admin:a"]),
        ("http", "GET /a?range=hour HTTP/1.1\r\nHost: localhost\r\n\r\n", &["read:/a"]),
        (
            "http",
            "POST /pools/a/b HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n",
            &["act:/pools/a/b"],
        ),
        ("admin", "RELEASE-LOCK a client:0\n", &["command:RELEASE-LOCK"]),
        ("admin", "CEILING a none\n", &["command:CEILING"]),
    ];
    let frames: [(&str, Vec<u8>, &[&str]); 2] =
        [("counters", frames::get(b"a"), &["read:a"]), ("counters", frames::acquire(1, 1, b"a"), &["acquire:a"])];
    LINES.iter().map(|(service, line, needs)| (*service, line.as_bytes().to_vec(), *needs)).chain(frames).collect()
}

/// A request is allowed with a right for each key that it uses. It is denied without one of them, even with all other
/// verbs, and with the same verb for the other names in the request.
#[test]
fn each_touched_key_needs_a_right() {
    for (service, request, needs) in touched() {
        let info = SERVICES.iter().find(|info| info.name == service).expect("is in the registry");
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
        assert!(is_denied(info.name, info.refusal) || info.name == "admin", "{}", info.name);
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

/// The holders of a key need a right for that key; the fields that a server knows need none.
#[test]
fn some_statistics_are_of_a_key() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(&["pools:mine*".into()]));
    let client = world.connect_from(CLIENT, "pools");
    assert!(!is_denied("pools", &world.ask(client, b"STATS HOLDERS mine\n")));
    assert!(is_denied("pools", &world.ask(client, b"STATS HOLDERS yours\n")));
    assert!(is_denied("pools", &world.ask(client, b"STATS KEYS\n")));
    assert!(is_denied("pools", &world.ask(client, b"STATS REPORT\n")));
    assert!(!is_denied("pools", &world.ask(client, b"STATS FIELDS\n")));
    assert!(is_denied("pools", &world.ask(client, b"ACQ4ME mine 1 1 0 also=yours:1:1\n")));
    let group = may(&["members:take:group:mine".into()]);
    world.guard(group);
    let client = world.connect_from(CLIENT, "members");
    assert!(!is_denied("members", &world.ask(client, b"TAKEGROUP mine 0\n")));
    assert!(is_denied("members", &world.ask(client, b"TAKE mine 0\n")));
}

/// A connection gets no job of a tube without a right to reserve from it, whatever it watches; and it can finish the
/// jobs that it has.
#[test]
fn worker_gets_only_jobs_that_it_may_reserve() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(&["jobs:reserve:mine*".into()]));
    let operator = world.connect_from(OPERATOR, "jobs");
    world.ask(operator, b"put 0 0 9 1\r\nd\r\nuse mine\r\nput 0 0 9 1\r\na\r\nput 0 0 9 1\r\nb\r\n");
    let worker = world.connect_from(CLIENT, "jobs");
    assert!(is_denied("jobs", &world.ask(worker, b"reserve-with-timeout 0\r\n")), "it watches default");
    assert!(is_denied("jobs", &world.ask(worker, b"watch mine\r\nreserve-with-timeout 0\r\n")));
    assert!(is_denied("jobs", &world.ask(worker, b"watch *\r\nignore default\r\nreserve-with-timeout 0\r\n")));
    let reserved = world.ask(worker, b"ignore *\r\nreserve-with-timeout 0\r\n");
    assert!(reserved.ends_with(b"RESERVED 2 1\r\na\r\n"), "{}", reserved.escape_ascii());
    assert!(is_denied("jobs", &world.ask(worker, b"delete 1\r\n")));
    assert!(is_denied("jobs", &world.ask(worker, b"peek 2\r\n")));
    assert!(world.ask(worker, b"stats-job 2\r\n").starts_with(b"OK "), "it has it");
    assert!(is_denied("jobs", &world.ask(worker, b"stats-job 3\r\n")));
    assert_eq!(world.ask(worker, b"delete 99\r\n"), b"NOT_FOUND\r\n");
    world.guard(may(&["jobs:put".into()]));
    assert_eq!(world.ask(worker, b"delete 2\r\n"), b"DELETED\r\n", "it has it");
    assert!(is_denied("jobs", &world.ask(worker, b"delete 3\r\n")));
}

/// Returns a world with a rule for the clients with all rights, and a limit.
fn limited(limit: &str) -> World {
    let all: Vec<String> = SERVICES.iter().map(|service| format!("\"{}\"", service.name)).collect();
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(rules(&format!("[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [{}]\n{limit}\n", all.join(", "))));
    world
}

#[test]
fn connections_are_limited() {
    let mut world = limited("max_connections = 2");
    let first = world.connect_from(CLIENT, "pools");
    let second = world.connect_from(CLIENT, "jobs");
    let third = world.connect_from(CLIENT, "pools");
    world.settle();
    assert_eq!(world.take_received(third), b"ERROR DENIED\n");
    assert!(world.is_ended(third) && !world.is_ended(first) && !world.is_ended(second));
    world.finish(second);
    world.settle();
    let fourth = world.connect_from(CLIENT, "pools");
    world.upgrade();
    let fifth = world.connect_from(CLIENT, "pools");
    world.settle();
    assert!(!world.is_ended(fourth) && world.is_ended(fifth), "after an upgrade it counts those that were there");
}

/// A process that takes over and cannot read the rules denies everything except releases; without rules before,
/// everything continues.
#[test]
fn rules_that_cannot_be_read_allow_nothing() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(&["pools".into()]));
    let client = world.connect_from(CLIENT, "pools");
    let waiter = world.connect_from(CLIENT, "pools");
    assert_eq!(world.ask(client, b"ACQ4ME k 1 2 0\n"), b"LOCKED\n");
    assert_eq!(world.ask(waiter, b"ACQ4ME k 1 2 90\n"), b"");
    world.lose_rules();
    world.upgrade();
    assert_eq!(world.ask(client, b"ACQ4ME l 1 1 0\n"), b"ERROR DENIED\n");
    assert_eq!(world.take_received(waiter), b"", "a wait goes on");
    assert_eq!(world.ask(client, b"RELEASE\n"), b"RELEASED\n");
    assert_eq!(world.take_received(waiter), b"LOCKED\n");
    let operator = world.connect_from(OPERATOR, "pools");
    world.settle();
    assert_eq!(world.take_received(operator), b"ERROR DENIED\n");
    world.upgrade();
    assert_eq!(world.ask(client, b"ACQ4ME l 1 1 0\n"), b"ERROR DENIED\n", "the next process, too");

    let mut open = World::with(AllSettings::defaults(SERVICES));
    open.lose_rules();
    open.upgrade();
    let client = open.connect();
    assert_eq!(open.ask(client, b"ACQ4ME k 1 1 0\n"), b"LOCKED\n");
}

#[test]
fn locks_are_limited_over_all_services_and_connections() {
    let mut world = limited("max_locks = 3");
    let pools = world.connect_from(CLIENT, "pools");
    let others = world.connect_from(CLIENT, "pools");
    let counters = world.connect_from(CLIENT, "counters");
    assert_eq!(world.ask(pools, b"ACQ4ME a 1 1 0\nACQ4ME b 1 1 0\n"), b"LOCKED\nLOCKED\n");
    assert_eq!(world.ask(counters, &frames::acquire(5, 9, b"c"))[2], 0);
    assert_eq!(world.ask(others, b"ACQ4ME d 1 1 0\n"), b"QUEUE_FULL\n");
    assert_eq!(world.ask(counters, &frames::acquire(1, 9, b"d"))[2], 0x21);
    assert_eq!(world.ask(pools, b"RELEASE\n"), b"RELEASED\n");
    assert_eq!(world.ask(others, b"ACQ4ME d 1 1 0\n"), b"LOCKED\n");
    world.upgrade();
    assert_eq!(world.ask(others, b"ACQ4ME e 1 1 0\n"), b"QUEUE_FULL\n", "an upgrade forgets nothing");
    world.finish(pools);
    world.settle();
    assert_eq!(world.ask(others, b"ACQ4ME e 1 1 0\n"), b"LOCKED\n");
    assert_eq!(world.ask(others, b"ACQ4ME f 1 1 0\n"), b"QUEUE_FULL\n");
    let operator = world.connect_from(OPERATOR, "pools");
    assert_eq!(world.ask(operator, b"ACQ4ME f 1 1 0\n"), b"LOCKED\n", "others are not concerned");
}

/// A lock that is granted to a waiter counts for its rule from then on.
#[test]
fn waiters_lock_counts_for_its_rule() {
    let mut world = limited("max_locks = 1");
    let operator = world.connect_from(OPERATOR, "pools");
    assert_eq!(world.ask(operator, b"ACQ4ME k 1 9 0\n"), b"LOCKED\n");
    let waiter = world.connect_from(CLIENT, "pools");
    let other = world.connect_from(CLIENT, "pools");
    assert_eq!(world.ask(waiter, b"ACQ4ME k 1 9 9\n"), b"");
    assert_eq!(world.ask(operator, b"RELEASE\n"), b"RELEASED\n");
    assert_eq!(world.take_received(waiter), b"LOCKED\n");
    assert_eq!(world.ask(other, b"ACQ4ME l 1 9 9\n"), b"QUEUE_FULL\n");
}

/// Makes a pool of twenty members, `a` to `t`, of the group `all`, and returns the operator.
fn stock(world: &mut World) -> usize {
    let operator = world.connect_from(OPERATOR, "members");
    let adds: String = ('a'..='t').map(|member| format!("ADD phones {member}\n")).collect();
    let answer = world.ask(operator, format!("POOL phones 0 20 group=all\n{adds}").as_bytes());
    assert_eq!(answer, b"OK\n".repeat(21));
    operator
}

/// Returns the token of a lease in the reply to a take.
fn token_of(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let token = text.split_whitespace().find_map(|word| word.strip_prefix("token="));
    token.unwrap_or_else(|| panic!("no token in {text}")).into()
}

#[test]
fn lease_with_a_token_counts_until_it_ends() {
    let mut world = limited("max_locks = 2");
    stock(&mut world);
    let first = world.connect_from(CLIENT, "members");
    let token = token_of(&world.ask(first, b"TAKE phones 0 lease=604800\n"));
    world.finish(first);
    world.settle();
    let second = world.connect_from(CLIENT, "members");
    let other = token_of(&world.ask(second, b"TAKEGROUP all 0 lease=100\n"));
    assert_eq!(world.ask(second, b"TAKE phones 0 lease=100\n"), b"LIMIT\n", "the first counts still");
    world.reset(second);
    world.settle();
    let client = world.connect_from(CLIENT, "members");
    let pools = world.connect_from(CLIENT, "pools");
    assert_eq!(world.ask(pools, b"ACQ4ME k 1 1 0\n"), b"QUEUE_FULL\n", "in all services");
    world.upgrade();
    assert_eq!(world.ask(client, b"TAKE phones 0\n"), b"LIMIT\n", "after an upgrade, too");
    let more = format!(
        "[[access]]\nname = \"new\"\nwho = [\"net:203.0.113.1\"]\nmay = [\"pools\"]\n[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [\"members\", \"pools\"]\nmax_locks = 2\n"
    );
    world.guard(rules(&more));
    world.upgrade();
    assert_eq!(world.ask(client, b"TAKE phones 0\n"), b"LIMIT\n", "by the name of its rule");
    let operator = world.connect_from(OPERATOR, "members");
    assert_eq!(world.ask(operator, format!("RENEW {other} 300\n").as_bytes()), b"RENEWED\n");
    assert_eq!(world.ask(operator, format!("RETURN {token}\n").as_bytes()), b"RETURNED\n");
    assert!(world.ask(client, b"TAKE phones 0\n").starts_with(b"MEMBER "), "whoever returns it");
    assert_eq!(world.ask(client, b"TAKE phones 0\n"), b"LIMIT\n");
    world.advance(Span::from_secs(301));
    assert!(world.ask(client, b"TAKE phones 0\n").starts_with(b"MEMBER "), "it has run out");
    assert_eq!(world.ask(pools, b"ACQ4ME k 1 1 0\n"), b"QUEUE_FULL\n");
}

/// A member that is granted to a waiter counts for its rule as well, and a lease that its own connection returns for
/// none.
#[test]
fn waiters_lease_counts_for_its_rule() {
    let mut world = limited("max_locks = 1");
    let operator = stock(&mut world);
    assert!(world.ask(operator, b"TAKE phones 0 n=20\n").starts_with(b"MEMBERS 20"));
    let waiter = world.connect_from(CLIENT, "members");
    assert_eq!(world.ask(waiter, b"TAKE phones 90 lease=300\n"), b"");
    world.upgrade();
    world.finish(operator);
    world.settle();
    world.advance(Span::from_secs(1));
    let operator = world.connect_from(OPERATOR, "members");
    let repairs: String = ('a'..='t').map(|member| format!("REPAIR phones {member}\n")).collect();
    world.ask(operator, repairs.as_bytes());
    let token = token_of(&world.take_received(waiter));
    let other = world.connect_from(CLIENT, "members");
    assert_eq!(world.ask(other, b"TAKE phones 0\n"), b"LIMIT\n");
    assert_eq!(world.ask(waiter, format!("RETURN {token}\n").as_bytes()), b"RETURNED\n");
    assert!(world.ask(other, b"TAKE phones 0\n").starts_with(b"MEMBER "));
}

#[test]
fn one_take_cannot_exceed_the_rules_limit() {
    let mut world = limited("max_locks = 3");
    stock(&mut world);
    let client = world.connect_from(CLIENT, "members");
    for line in ["TAKE phones 0 n=4\n", "TAKE phones 9 n=4\n", "TAKEGROUP all 0 n=12\n"] {
        assert_eq!(world.ask(client, line.as_bytes()), b"LIMIT\n", "{line}");
    }
    assert!(world.ask(client, b"TAKE phones 0 n=3\n").starts_with(b"MEMBERS 3"));
    assert_eq!(world.ask(client, b"TAKE phones 0 n=1\n"), b"LIMIT\n");
}

#[test]
fn reserve_many_gives_what_is_left() {
    let mut world = limited("max_locks = 3");
    let operator = world.connect_from(OPERATOR, "jobs");
    world.ask(operator, &b"put 0 0 9 1\r\na\r\n".repeat(20));
    let worker = world.connect_from(CLIENT, "jobs");
    assert!(world.ask(worker, b"reserve\r\n").starts_with(b"RESERVED 1 "));
    let answer = world.ask(worker, b"reserve-many 1000 0\r\n");
    assert_eq!(answer, b"RESERVED 2 1\r\na\r\nRESERVED 3 1\r\na\r\nEND\r\n", "{}", answer.escape_ascii());
    assert_eq!(world.ask(worker, b"reserve-many 1000 0\r\n"), b"OUT_OF_MEMORY\r\n");
    assert_eq!(world.ask(worker, b"reserve-many 1000 9\r\n"), b"OUT_OF_MEMORY\r\n");
    assert_eq!(world.ask(worker, b"delete 2\r\nreserve-many 1000 9\r\n"), b"DELETED\r\nRESERVED 4 1\r\na\r\nEND\r\n");
}

#[test]
fn lock_counts_for_each_of_its_keys() {
    let mut world = limited("max_locks = 4");
    let client = world.connect_from(CLIENT, "pools");
    assert_eq!(world.ask(client, b"ACQ4ME a 1 1 0 also=b:1:1 also=c:1:1 also=d:1:1 also=e:1:1\n"), b"QUEUE_FULL\n");
    assert_eq!(world.ask(client, b"ACQ4ME a 1 1 0 also=b:1:1 also=c:1:1\n"), b"LOCKED\n");
    assert_eq!(world.ask(client, b"ACQ4ME d 1 1 0 also=e:1:1\n"), b"QUEUE_FULL\n");
    world.upgrade();
    assert_eq!(world.ask(client, b"ACQ4ME d 1 1 0 also=e:1:1\n"), b"QUEUE_FULL\n");
    assert_eq!(world.ask(client, b"ACQ4ME d 1 1 0\n"), b"LOCKED\n");
    assert_eq!(world.ask(client, b"RELEASE a\nACQ4ME a 1 1 0 also=b:1:1 also=c:1:1\n"), b"RELEASED\nLOCKED\n");
}

#[test]
fn units_of_one_counter_count_once() {
    let mut world = limited("max_locks = 1");
    let client = world.connect_from(CLIENT, "counters");
    assert_eq!(world.ask(client, &frames::acquire(5, 9, b"c"))[2], 0);
    assert_eq!(world.ask(client, &frames::acquire(4, 9, b"c"))[2], 0, "it has some of it already");
    assert_eq!(world.ask(client, &frames::acquire(1, 9, b"d"))[2], 0x21);
    let other = world.connect_from(CLIENT, "counters");
    assert_eq!(world.ask(other, &frames::acquire(1, 10, b"c"))[2], 0x21, "another connection has none of it");
}

/// Changes the rights of the clients by a reload: another process takes over with them.
fn reload(world: &mut World, rights: &[&str]) {
    let rights: Vec<String> = rights.iter().map(ToString::to_string).collect();
    world.guard(may(&rights));
    world.upgrade();
    world.settle();
}

#[test]
fn reload_denies_waits_without_a_right() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(&["pools".into(), "members".into(), "jobs".into()]));
    let operator = world.connect_from(OPERATOR, "pools");
    assert_eq!(world.ask(operator, b"ACQ4ME yours 1 9 0\nACQ4ME mine 1 9 0\n"), b"LOCKED\nLOCKED\n");
    let keys = ["yours 1 9 90", "mine 1 9 90", "mine 1 9 90 also=yours:9:9", "mine 1 9 90"];
    let pools = keys.map(|words| {
        let client = world.connect_from(CLIENT, "pools");
        assert_eq!(world.ask(client, b"ACQ4ME own 9 9 0\n"), b"LOCKED\n");
        assert_eq!(world.ask(client, format!("ACQ4ME {words}\n").as_bytes()), b"");
        client
    });
    let holder = world.connect_from(OPERATOR, "members");
    let made = world
        .ask(holder, b"POOL yours 0 1 group=g\nADD yours a\nPOOL mine 0 1\nADD mine b\nTAKE yours 0\nTAKE mine 0\n");
    assert_eq!(String::from_utf8_lossy(&made).matches("MEMBER ").count(), 2);
    let takes = ["TAKE yours 90\n", "TAKEGROUP g 90\n", "TAKE mine 90\n"].map(|line| {
        let client = world.connect_from(CLIENT, "members");
        assert_eq!(world.ask(client, line.as_bytes()), b"", "{line}");
        client
    });
    let workers = ["watch mine\r\n", "watch mine\r\nignore default\r\n"].map(|line| {
        let client = world.connect_from(CLIENT, "jobs");
        world.ask(client, format!("{line}reserve-with-timeout 90\r\n").as_bytes());
        client
    });
    reload(&mut world, &["pools:mine*", "members:take:mine", "jobs:reserve:mine"]);
    let pools_told = pools.map(|client| world.take_received(client));
    let denied = &b"ERROR DENIED\n"[..];
    assert_eq!(pools_told.each_ref().map(|told| &told[..]), [denied, b"", denied, b""]);
    let takes_told = takes.map(|client| world.take_received(client));
    assert_eq!(takes_told.each_ref().map(|told| &told[..]), [denied, denied, b""]);
    let workers_told = workers.map(|client| world.take_received(client));
    assert_eq!(workers_told.each_ref().map(|told| &told[..]), [&b"NOT_ALLOWED\r\n"[..], b""]);
    assert_eq!(world.ask(pools[0], b"RELEASE\n"), b"RELEASED\n", "what is held can be given back");
    assert_eq!(world.ask(workers[0], b"ignore default\r\nlist-tube-used\r\n"), b"WATCHING 1\r\nUSING default\r\n");
    assert_eq!(world.ask(operator, b"RELEASE mine\n"), b"RELEASED\n");
    assert_eq!(
        (world.take_received(pools[1]), world.take_received(pools[3])),
        (b"LOCKED\n".to_vec(), Vec::new()),
        "in their order"
    );
    let putter = world.connect_from(OPERATOR, "jobs");
    world.ask(putter, b"put 0 0 9 1\r\na\r\nuse mine\r\nput 0 0 9 1\r\nb\r\n");
    assert_eq!(world.take_received(workers[0]), b"");
    assert_eq!(world.take_received(workers[1]), b"RESERVED 2 1\r\nb\r\n");
}

#[test]
fn reload_drops_a_provider_without_a_right() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.guard(may(&["members".into()]));
    let operator = world.connect_from(OPERATOR, "members");
    assert_eq!(world.ask(operator, b"POOL pl 0 5 provider_grace=15\nPOOL mine 0 5\n"), b"OK\nOK\n");
    let provider = world.connect_from(CLIENT, "members");
    let other = world.connect_from(CLIENT, "members");
    assert_eq!(world.ask(provider, b"PROVIDE pl 5\nOFFER pl m1\n"), b"OK\nOK\n");
    assert_eq!(world.ask(other, b"PROVIDE mine 5\n"), b"OK\n");
    let waiter = world.connect_from(OPERATOR, "members");
    assert!(world.ask(waiter, b"TAKE pl 0\n").ends_with(b" pl m1\n"));
    assert_eq!(world.ask(waiter, b"TAKE pl 90\n"), b"");
    let told = world.take_received(provider);
    assert!(told.starts_with(b"!START pl 1"), "{}", told.escape_ascii());
    reload(&mut world, &["members:provide:mine"]);
    assert!(is_denied("members", &world.ask(provider, b"PROVIDE pl 5\n")));
    assert_eq!(world.ask(provider, b"FAILED 1\n"), b"OK\n", "its start has failed");
    assert!(world.ask(provider, b"DEAD m1\n").starts_with(b"ERROR NO_SUCH_MEMBER"), "no member is its own");
    assert_eq!(world.take_received(waiter), b"", "what is taken is kept for the grace, and a wait goes on");
    assert_eq!(world.ask(operator, b"TAKE mine 0\n"), b"NO_MEMBERS starting\n");
    assert!(world.take_received(other).starts_with(b"!START mine "), "who may still provides");
    world.advance(Span::from_secs(80));
    let told = world.take_received(waiter);
    assert!(told.ends_with(b" provider_lost\n"), "{}", told.escape_ascii());
    world.advance(Span::from_secs(20));
    assert_eq!(world.take_received(waiter), b"NO_MEMBERS timeout\n");
    assert_eq!(world.take_received(provider), b"", "it is asked for nothing");
}

#[test]
fn waits_are_limited() {
    let mut world = limited("max_waits = 1");
    let operator = world.connect_from(OPERATOR, "pools");
    assert_eq!(world.ask(operator, b"ACQ4ME k 1 9 0\n"), b"LOCKED\n");
    let waiters = [(); 2].map(|()| world.connect_from(CLIENT, "pools"));
    assert_eq!(world.ask(waiters[0], b"ACQ4ME k 1 9 9\n"), b"");
    assert_eq!(world.ask(waiters[1], b"ACQ4ME k 1 9 9\n"), b"QUEUE_FULL\n");
    assert_eq!(world.ask(waiters[1], b"ACQ4ME k 1 9 0\n"), b"TIMEOUT\n", "it never waits");
    let counters = world.connect_from(CLIENT, "counters");
    assert_eq!(world.ask(counters, &frames::acquire(1, 9, b"c"))[2], 0, "it never waits");
    let jobs = world.connect_from(CLIENT, "jobs");
    assert_eq!(world.ask(jobs, b"reserve-with-timeout 0\r\nreserve-job 1\r\n"), b"TIMED_OUT\r\nNOT_FOUND\r\n");
    assert_eq!(world.ask(jobs, b"reserve-with-timeout 1\r\n"), b"OUT_OF_MEMORY\r\n");
    world.advance(Span::from_secs(9));
    assert_eq!(world.take_received(waiters[0]), b"TIMEOUT\n");
    assert_eq!(world.ask(waiters[1], b"ACQ4ME k 1 9 9\n"), b"");
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
