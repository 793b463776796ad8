//! The conversations of `tests/conversations`, played in virtual time, against the program over sockets, and against the C
//! daemon where it is installed.

mod support;

use socket2::SockAddr;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use support::daemon::{Daemon, PATIENCE};
use support::original::Original;
use support::place::Place;
use support::player::play;
use support::script::{Scenario, Script};
use support::sockets::Sockets;
use support::stage::{Twist, VirtualStage};

/// Scenarios that are played at a time where they sleep for real.
const AT_A_TIME: usize = 16;
/// How long the C daemon may take to answer before it counts as silent. Several scenarios are about its silence.
const IMPATIENCE: Duration = Duration::from_millis(700);

fn pools() -> Script {
    Script::parse("tests/conversations/pools.txt", include_str!("conversations/pools.txt"))
        .unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn play_in_virtual_time(twist: Twist) {
    let script = pools();
    let play_one = |scenario: &Scenario| play(&script, scenario, &mut VirtualStage::new(scenario, twist)).err();
    report(&script.scenarios.iter().filter_map(play_one).collect::<Vec<String>>());
}

#[test]
fn in_virtual_time() {
    play_in_virtual_time(Twist::None);
}

#[test]
fn in_virtual_time_byte_by_byte() {
    play_in_virtual_time(Twist::ByteByByte);
}

#[test]
fn in_virtual_time_with_an_upgrade_after_every_step() {
    play_in_virtual_time(Twist::Upgrades);
}

#[test]
fn over_tcp() {
    let script = pools();
    let start = |scenario: &Scenario| {
        let options: Vec<&str> = scenario.options.iter().map(String::as_str).collect();
        Daemon::start(&options)
    };
    let failures = in_parallel(&in_real_time(&script), start, |scenario, daemon| {
        play(&script, scenario, &mut Sockets::new(daemon.address, PATIENCE)).err()
    });
    report(&failures);
}

#[test]
fn over_a_local_socket() {
    let script = pools();
    let quick: Vec<&Scenario> = in_real_time(&script).into_iter().filter(|scenario| !scenario.sleeps()).collect();
    let place = Place::new();
    let path_of = |scenario: &Scenario| place.file(&scenario.steps[0].line.to_string());
    let start = |scenario: &Scenario| {
        let listen = format!("unix:{}", path_of(scenario).display());
        Daemon::run(Command::new(Daemon::PROGRAM).args(["-l", &listen]).args(&scenario.options))
    };
    let failures = in_parallel(&quick, start, |scenario, _daemon| {
        let address = SockAddr::unix(path_of(scenario)).expect("a short path");
        play(&script, scenario, &mut Sockets::new(address, PATIENCE)).err()
    });
    report(&failures);
}

/// The C daemon passes every scenario but those that say how it differs, and fails these.
#[test]
fn against_the_c_daemon() {
    let Some(program) = Original::program() else {
        println!("skipped: poolcounterd is not installed");
        return;
    };
    let script = pools();
    let shared: Vec<&Scenario> = in_real_time(&script).into_iter().filter(|scenario| scenario.ours.is_none()).collect();
    let start = |_: &Scenario| Original::start(&program);
    let failures = in_parallel(&shared, start, |scenario, original| {
        let patience = if scenario.differs.is_some() { IMPATIENCE } else { PATIENCE };
        let failure = play(&script, scenario, &mut Sockets::new(original.address, patience)).err();
        match &scenario.differs {
            None => failure,
            Some(why) if failure.is_none() => {
                Some(format!("\"{}\": the C daemon passes, though it is said to differ: {why}", scenario.title))
            }
            Some(_) => None,
        }
    });
    println!("Where the C daemon differs:");
    for (scenario, why) in shared.iter().filter_map(|scenario| Some((scenario, scenario.differs.as_ref()?))) {
        println!("- {}: {why}", scenario.title);
    }
    report(&failures);
}

fn in_real_time(script: &Script) -> Vec<&Scenario> {
    script.scenarios.iter().filter(|scenario| scenario.virtual_only.is_none()).collect()
}

/// Plays scenarios in several threads, each with a server of its own, and collects what went wrong.
fn in_parallel<S: Send>(
    scenarios: &[&Scenario],
    start: impl Fn(&Scenario) -> S,
    play_one: impl Fn(&Scenario, &mut S) -> Option<String> + Sync,
) -> Vec<String> {
    /// No server is started while conversations are played, not by another test either: see [`Sockets`].
    static PLAYING: Mutex<()> = Mutex::new(());
    let _guard = PLAYING.lock();
    // Whoever sleeps begins first.
    let (mut scenarios, quick): (Vec<&Scenario>, Vec<&Scenario>) =
        scenarios.iter().partition(|scenario| scenario.sleeps());
    scenarios.extend(quick);
    let waiting: Vec<(&Scenario, S)> = scenarios.into_iter().map(|scenario| (scenario, start(scenario))).collect();
    let (waiting, failures) = (Mutex::new(waiting.into_iter()), Mutex::new(Vec::new()));
    let next = || waiting.lock().expect("no thread panics here").next();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some((scenario, mut server)) = next() {
                    let failure = play_one(scenario, &mut server);
                    failures.lock().expect("no thread panics here").extend(failure);
                }
            });
        }
    });
    failures.into_inner().expect("no thread panics here")
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} conversations went another way:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_makes_no_sense_is_named_by_its_line() {
    for (text, wrong) in [
        ("1> STATS\n", "x:1: a scenario begins with"),
        ("## a\n1> STATS\n## b\n", "x: nothing happens in \"b\""),
        ("## a\n\n# prose\n1? STATS\n", "x:4: \"?\" is nothing that a client does"),
        ("## a\n>1 STATS\n", "x:2: a step begins with the number of a client"),
        ("## a\n1x now\n", "x:2: \"x\" is nothing"),
        ("## a\n+3 s\n", "x:2: \" s\" is no unit"),
        ("## a\n+s\n", "x:2: \"s\" is no time"),
        ("## a\n1> \\q\n", "x:2: \"\\q\" is no escape"),
        ("## a\n1> \\x1\n", "x:2: \"\\x\" is no escape"),
        ("## a\n1> {k*many}\n", "x:2: repeated text"),
        ("## a\n1> STATS\nours: late\n", "x:3: \"ours\" comes before the first step"),
        ("## a\nhers: no\n", "x:2: \"hers\" is no property"),
        ("## a\nours\n", "x:2: a property is"),
    ] {
        let error = Script::parse("x", text).expect_err(text);
        assert!(error.starts_with(wrong), "{text:?}: {error}");
    }
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, line, matches) in [
        ("uptime: *", "uptime: 0 days", true),
        ("uptime: *", "up", false),
        ("LOCKED", "LOCKED", true),
        ("LOCKED", "LOCKED ", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c", false),
        ("", "", true),
    ] {
        assert_eq!(support::script::Pattern(pattern.into()).matches(line.as_bytes()), matches, "{pattern} {line}");
    }
}
