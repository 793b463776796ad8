//! The conversations of `tests/conversations`, played in virtual time, against the program over sockets, and against
//! the original daemons if they are installed.

use poolcounter_testkit::beanstalkd::Beanstalkd;
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use poolcounter_testkit::original::Original;
use poolcounter_testkit::player::play;
use poolcounter_testkit::protocol::Protocol;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::script::{Scenario, Script};
use poolcounter_testkit::sockets::Sockets;
use poolcounter_testkit::virtual_target::{Variation, VirtualTarget};
use poolcounter_testkit::yrmcds::Yrmcds;
use socket2::SockAddr;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Number of scenarios with real sleeps that are played at a time.
const AT_A_TIME: usize = 16;
/// Time after which an original daemon counts as silent. Several scenarios are about its silence.
const IMPATIENCE: Duration = Duration::from_millis(700);
/// Time for the threads of yrmcds to finish earlier requests. Scenarios that fail with the first pause are played again
/// with the second: on a busy machine its threads may lag behind.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// Language of the blocks that are conversations in documents.
const CONVERSATION: &str = "conversation";

/// Returns the conversations of a protocol.
fn script_of(protocol: Protocol) -> Script {
    let name = format!("tests/conversations/{}.txt", protocol.kind());
    let text = fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).expect("the script is there");
    Script::parse(&name, protocol, &text).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// Returns the conversations of a page of docs/protocols: its blocks of that language, each under the heading above it.
fn page_of(protocol: Protocol) -> Script {
    let name = format!("docs/protocols/{}.md", protocol.kind());
    let page = fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).expect("the page is there");
    let (mut heading, mut language, mut text) = ("", None, String::new());
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(named), None) => {
                language = Some(named);
                text += &if named == CONVERSATION { format!("## {heading}") } else { String::new() };
            }
            (Some(_), Some(_)) => language = None,
            (None, Some(CONVERSATION)) => text += line,
            (None, None) if line.starts_with('#') => heading = line.trim_matches(['#', ' ']),
            (None, _) => {}
        }
        text.push('\n');
    }
    Script::parse(&name, protocol, &text).unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn of_the_documents_in_virtual_time() {
    let mut failures = Vec::new();
    for script in Protocol::ALL.map(page_of) {
        assert!(!script.scenarios.is_empty(), "{}", script.name);
        let play_one = |scenario: &Scenario| {
            play(&script, scenario, &mut VirtualTarget::new(script.protocol, scenario, Variation::None)).err()
        };
        failures.extend(script.scenarios.iter().filter_map(play_one));
    }
    report(&failures);
}

#[test]
fn of_the_documents_over_tcp() {
    Protocol::ALL.map(page_of).iter().for_each(play_over_tcp);
}

fn play_over_tcp(script: &Script) {
    let protocol = script.protocol;
    let start = |scenario: &Scenario| Daemon::speaking(protocol, &options_of(scenario));
    let failures = in_parallel(&in_real_time(script), start, |scenario, daemon| {
        play(script, scenario, &mut Sockets::new(protocol, daemon.address_of(protocol), PATIENCE)).err()
    });
    report(&failures);
}

fn play_in_virtual_time(variation: Variation) {
    for script in Protocol::ALL.map(script_of) {
        let play_one = |scenario: &Scenario| {
            play(&script, scenario, &mut VirtualTarget::new(script.protocol, scenario, variation)).err()
        };
        report(&script.scenarios.iter().filter_map(play_one).collect::<Vec<String>>());
    }
}

#[test]
fn in_virtual_time() {
    play_in_virtual_time(Variation::None);
}

#[test]
fn in_virtual_time_byte_by_byte() {
    play_in_virtual_time(Variation::ByteByByte);
}

#[test]
fn virtual_time_with_an_upgrade_after_every_step() {
    play_in_virtual_time(Variation::Upgrades);
}

#[test]
fn over_tcp() {
    play_over_tcp(&script_of(Protocol::Pools));
}

#[test]
fn counters_over_tcp() {
    play_over_tcp(&script_of(Protocol::Counters));
}

#[test]
fn members_over_tcp() {
    play_over_tcp(&script_of(Protocol::Members));
}

#[test]
fn jobs_over_tcp() {
    play_over_tcp(&script_of(Protocol::Jobs));
}

/// Each change waits for its commit, which no client sees.
#[test]
fn jobs_in_a_file_over_tcp() {
    let script = script_of(Protocol::Jobs);
    let has = |scenario: &Scenario, word: &str| scenario.steps.iter().any(|step| step.action.says(word.as_bytes()));
    let is_meant = |scenario: &&Scenario| !scenario.sleeps() && !has(scenario, "store-copy");
    let quick: Vec<&Scenario> = in_real_time(&script).into_iter().filter(is_meant).collect();
    assert!(quick.len() > 20, "{} scenarios", quick.len());
    let scratch = Scratch::new();
    let start = |scenario: &Scenario| {
        let store = format!("sqlite:{}", scratch.file(&scenario.steps[0].line.to_string()).display());
        Daemon::start_with_jobs(&[&["--jobs-store", &store], &options_of(scenario)[..]].concat())
    };
    let failures = in_parallel(&quick, start, |scenario, daemon| {
        play(&script, scenario, &mut Sockets::new(Protocol::Jobs, daemon.jobs(), PATIENCE)).err()
    });
    report(&failures);
}

#[test]
fn over_a_local_socket() {
    let script = script_of(Protocol::Pools);
    let quick: Vec<&Scenario> = in_real_time(&script).into_iter().filter(|scenario| !scenario.sleeps()).collect();
    let scratch = Scratch::new();
    let path_of = |scenario: &Scenario| scratch.file(&scenario.steps[0].line.to_string());
    let start = |scenario: &Scenario| {
        let listen = format!("unix:{}", path_of(scenario).display());
        Daemon::run(Command::new(Daemon::program()).args(["-l", &listen]).args(&scenario.options))
    };
    let failures = in_parallel(&quick, start, |scenario, _daemon| {
        let address = SockAddr::unix(path_of(scenario)).expect("a short path");
        play(&script, scenario, &mut Sockets::new(Protocol::Pools, address, PATIENCE)).err()
    });
    report(&failures);
}

#[test]
fn against_the_c_daemon() {
    let Some(program) = Original::program() else {
        return poolcounter_testkit::skipped("conversations with the C daemon, because it is not installed");
    };
    let start = || Original::start(&program);
    against("the C daemon", &script_of(Protocol::Pools), &[Duration::ZERO], start);
}

#[test]
fn against_yrmcds() {
    let Some(program) = Yrmcds::program() else {
        return poolcounter_testkit::skipped("conversations with yrmcds, because it is not installed");
    };
    let start = || Yrmcds::start(&program);
    against("yrmcds", &script_of(Protocol::Counters), &PAUSES, start);
}

#[test]
fn against_beanstalkd() {
    let Some(program) = Beanstalkd::program() else {
        return poolcounter_testkit::skipped("conversations with beanstalkd, because it is not installed");
    };
    let start = || Beanstalkd::start(&program);
    against("beanstalkd", &script_of(Protocol::Jobs), &[Duration::ZERO], start);
}

/// Checks that an original daemon passes every scenario except the scenarios that say how it differs, and fails these.
fn against(name: &str, script: &Script, pauses: &[Duration], start: impl Fn() -> Original) {
    let shared: Vec<&Scenario> = in_real_time(script).into_iter().filter(|scenario| scenario.ours.is_none()).collect();
    let mut left = shared.clone();
    let mut failures = Vec::new();
    for pause in pauses {
        let wrong = Mutex::new(Vec::new());
        failures = in_parallel(
            &left,
            |_| start(),
            |scenario, original| {
                let patience = if scenario.differs.is_some() { IMPATIENCE } else { PATIENCE };
                let mut sockets = Sockets::new(script.protocol, original.address, patience).of_an_original(*pause);
                let failure = match (&scenario.differs, play(script, scenario, &mut sockets)) {
                    (None, Ok(())) | (Some(_), Err(_)) => return None,
                    (None, Err(failure)) => failure,
                    (Some(why), Ok(())) => {
                        format!("\"{}\": {name} passes, though it is said to differ: {why}", scenario.title)
                    }
                };
                wrong.lock().expect("no thread panics here").push(scenario.steps[0].line);
                Some(failure)
            },
        );
        let wrong = wrong.into_inner().expect("no thread panics here");
        left.retain(|scenario| wrong.contains(&scenario.steps[0].line));
    }
    println!("Where {name} differs:");
    for (scenario, why) in shared.iter().filter_map(|scenario| Some((scenario, scenario.differs.as_ref()?))) {
        println!("- {}: {why}", scenario.title);
    }
    report(&failures);
}

fn options_of(scenario: &Scenario) -> Vec<&str> {
    scenario.options.iter().map(String::as_str).collect()
}

fn in_real_time(script: &Script) -> Vec<&Scenario> {
    script.scenarios.iter().filter(|scenario| scenario.virtual_only.is_none()).collect()
}

/// Plays scenarios in several threads, each with a server of its own, and collects the failures.
fn in_parallel<S: Send>(
    scenarios: &[&Scenario],
    start: impl Fn(&Scenario) -> S,
    play_one: impl Fn(&Scenario, &mut S) -> Option<String> + Sync,
) -> Vec<String> {
    /// No server is started while conversations are played, not by another test either: see [`Sockets`].
    static PLAYING: Mutex<()> = Mutex::new(());
    let _guard = PLAYING.lock();
    // Scenarios with sleeps begin first.
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
fn faults_of_a_script_name_their_line() {
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
        ("## a\noperators: we\n", "x:2: \"we\" is no number of a client"),
        ("## a\nours\n", "x:2: a property is"),
    ] {
        let error = Script::parse("x", Protocol::Pools, text).expect_err(text);
        assert!(error.starts_with(wrong), "{text:?}: {error}");
    }
}

#[test]
fn malformed_frames_are_named_by_their_line() {
    for (text, wrong) in [
        ("## a\n1> nonsense\n", "x:2: \"nonsense\" is neither hexadecimal nor quoted"),
        ("## a\n1> 900\n", "x:2: \"900\" is neither"),
        ("## a\n1> get \"foo\n", "x:2: a quote does not end"),
        ("## a\n1> {00*x}\n", "x:2: \"x\" is no number"),
        ("## a\n1> acquire 3 of many \"foo\"\n", "x:2: \"many\" is no number of 32 bits"),
        ("## a\n1< release: 3\n", "x:2: \"3\" is no such reply"),
        ("## a\n1< stats: objects\n", "x:2: \"objects\" is no name=value"),
    ] {
        let error = Script::parse("x", Protocol::Counters, text).expect_err(text);
        assert!(error.starts_with(wrong), "{text:?}: {error}");
    }
}

#[test]
fn star_stands_for_any_bytes() {
    for (pattern, line, matches) in [
        ("uptime: *", "uptime: 0 days", true),
        ("uptime: *", "up", false),
        ("LOCKED", "LOCKED", true),
        ("LOCKED", "LOCKED ", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c", false),
        ("", "", true),
    ] {
        let read = Protocol::Pools.reply(pattern).expect("is a pattern");
        assert_eq!(read.matches(line.as_bytes()), matches, "{pattern} {line}");
    }
    for (pattern, frame, matches) in [
        ("91000000 * 2a", "91000000 00000000 2a", true),
        ("91000000 * 2a", "91000000 00000000 2b", false),
        ("stats: a=* b=7", "91100000 00000010 deadbeef 0001 0002 \"a42\" 0001 0001 \"b7\"", true),
        ("stats: a=* b=7", "91100000 00000010 deadbeef 0001 0002 \"a42\" 0001 0001 \"b8\"", false),
        ("stats: a=4", "91100000 00000006 deadbeef 0001 0001 \"a4\"", true),
    ] {
        let read = Protocol::Counters.reply(pattern).expect("is a pattern");
        assert_eq!(read.matches(&Protocol::Counters.bytes(frame).expect("is bytes")), matches, "{pattern} {frame}");
    }
}
