//! Sequences of requests, by the jobs service and by the naive model of it.

use crate::jobs::Commits;
use crate::jobs_twin::JobsTwin;
use crate::random::Random;
use std::collections::BTreeMap;

const CONNS: usize = 5;
/// Bound of the steps of one input, for which a millisecond each is left.
const MOST_STEPS: usize = 150;
const TUBES: [&str; 6] = ["default", "a/x", "a/y", "b/x", "b/y/z", "c"];
const PATTERNS: [&str; 8] = ["*/*", "a/*", "*/x", "*", "a/x", "b/y/*", "c", "a/y"];
const SPANS: [u64; 10] = [0, 0, 1, 1, 2, 3, 5, 70, 1_000, 2_500_000];

/// Applies the input to the service and to the model.
pub fn run(data: &[u8]) {
    play(data);
}

/// Plays the input, and returns the number of replies of each kind.
pub fn play(data: &[u8]) -> BTreeMap<String, u64> {
    let mut choices = Random::of_choices(data);
    let commits = choices.pick(&[Commits::AtOnce, Commits::Later, Commits::Never]);
    // Some inputs have few kinds of requests, so that these occur together.
    let kinds = u64::from(choices.byte()) << 32 | choices.shifted();
    let mut twin = JobsTwin::new(CONNS, commits, u64::from(choices.byte()));
    for _ in 0..MOST_STEPS {
        if choices.is_used_up() || twin.is_tied() {
            break;
        }
        let conn = usize::from(choices.byte()) % CONNS;
        match choices.byte() % 40 {
            0 => twin.close(conn),
            1 => twin.hang_up(conn),
            2..=5 => twin.pass(choices.pick(&SPANS)),
            6..=9 => twin.take(),
            10..=14 => twin.commit(),
            15 => twin.hand_over(),
            _ if twin.is_waiting(conn) => {}
            _ => {
                let kind = choices.byte() % 40;
                if kinds >> kind & 1 == 0 || kind < 14 {
                    let line = line(&mut choices, kind, twin.held[conn]);
                    say(&mut twin, conn, &line);
                }
            }
        }
    }
    twin.end();
    let key = if twin.is_tied() { "cut short" } else { "played to the end" };
    *twin.tally.entry(key.into()).or_default() += 1;
    std::mem::take(&mut twin.tally)
}

/// Sends a request, unless it goes through several tubes in an unspecified order that waiting connections would reveal.
fn say(twin: &mut JobsTwin, conn: usize, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let is_ordered = match words[0] {
        "pause-all" | "limit" | "kick-all" => twin.is_ordered(words[1]),
        "move" | "cancel" => twin.is_ordered("*/*") && twin.is_ordered(words[1]),
        _ => true,
    };
    if is_ordered {
        twin.say(conn, line);
    }
}

/// Returns the request that the bytes choose, for a connection that was given the job `held` last.
#[allow(dead_code, reason = "the test of a slow store says such things")]
pub fn any_line(data: &[u8], held: u64) -> String {
    let mut choices = Random::of_choices(data);
    let kind = choices.byte() % 40;
    line(&mut choices, kind, held)
}

fn line(choices: &mut Random, kind: u8, held: u64) -> String {
    let (tube, pattern) = (choices.pick(&TUBES), choices.pick(&PATTERNS));
    let id = if choices.byte().is_multiple_of(3) { 1 + u64::from(choices.byte() % 40) } else { held };
    let (pri, delay) = (choices.pick(&[0, 1, 2, 5_000]), choices.pick(&[0, 0, 0, 1, 5]));
    let few = choices.byte() % 4;
    match kind {
        0..=2 => format!("put {pri} {delay} {} 1\r\na", choices.pick(&[0, 1, 2, 60])),
        3..=8 => put_job(choices, tube),
        9..=11 => format!("reserve-with-timeout {few}"),
        12 => "reserve".into(),
        13 => format!("reserve-many {} {few}", 1 + few),
        14 => {
            let puts: Vec<String> = (0..3).map(|_| put_job(choices, tube).replace(" 2 0 ", " 0 0 ")).collect();
            format!("put-many 3\r\n{}", puts.join("\r\n"))
        }
        15 => format!("reserve-job {id}"),
        16 | 17 => format!("delete {id}"),
        18 => format!("release {id} {pri} {delay}"),
        19 => format!("bury {id} {pri}"),
        20 => format!("{} {id}", choices.pick(&["touch", "begin"])),
        21 => format!("fail {id} {pri} {delay} 2\r\nno"),
        22 => format!("use {tube}"),
        23 => format!("watch {pattern}"),
        24 => format!("watch {pattern} {}", 1 + few),
        25 => format!("ignore {}", choices.pick(&[pattern, "default"])),
        26 => format!("kick {few}"),
        27 => format!("kick-job {id}"),
        28 if few.is_multiple_of(2) => format!("pause-tube {tube} {}", choices.byte() % 4),
        28 => format!("pause-all {pattern} {}", choices.byte() % 4),
        29 => format!(
            "limit {pattern} {few} {}",
            choices.pick(&["each", "all", "per 2 each", "per 3 all", "per 70 each"])
        ),
        30 => format!(
            "limit group:{} {few}{}",
            choices.pick(&["*", "g1", "g2"]),
            choices.pick(&["", " per 2", " per 70", " ordered"])
        ),
        31 => format!("retry {pattern} {few} {}", choices.pick(&["0 1 0", "1.5 2 5", "2 3 100"])),
        32 => format!("dead-letter {pattern} {tube}"),
        33 => choices.pick(&["dead-letter a/*", "identify me", "identify you", "undrain", "undrain", "drain"]).into(),
        34 => format!("root {tube} S {few}"),
        35 => format!("clear {pattern}{}", choices.pick(&["", " ready", " delayed", " buried"])),
        36 if few == 0 => {
            let what = if choices.byte().is_multiple_of(2) { id.to_string() } else { pattern.into() };
            format!("move {what} {tube}{}", choices.pick(&["", "", " ready", " delayed", " buried"]))
        }
        36 if few == 1 => {
            let values = ["pri=0", "pri=7 ttr=2", "delay=0", "delay=2 pri=1", "ttr=0"];
            format!("set-job {id} {}", choices.pick(&values))
        }
        36 if few == 2 => {
            let what = if choices.byte().is_multiple_of(2) { id.to_string() } else { pattern.into() };
            format!("cancel {what}")
        }
        36 => format!("kick-all {pattern}{}", choices.pick(&["", " delayed", " buried"])),
        _ => query(choices, tube, id),
    }
}

fn query(choices: &mut Random, tube: &str, id: u64) -> String {
    match choices.byte() % 18 {
        0 => format!("peek {id}"),
        1 => "peek-ready".into(),
        2 => "peek-delayed".into(),
        3 => "peek-buried".into(),
        4 => "stats".into(),
        5 => format!("stats-job {id}"),
        6 => format!("stats-tube {tube}"),
        7 => "list-tubes".into(),
        8 => "list-tube-used".into(),
        9 => "list-tubes-watched".into(),
        10 | 11 => {
            let after = choices.pick(&["", " after=3"]);
            let state = choices.pick(&["ready", "reserved", "delayed", "buried"]);
            format!("list-jobs {tube} {state} 5{after}")
        }
        12 => "list-settings".into(),
        13 => format!("list-settings {tube}"),
        14 => "list-schedules".into(),
        15 if id.is_multiple_of(4) => format!("schedule-delete s{}", id % 8),
        15 => {
            let (name, key) = (choices.byte() % 2, choices.pick(&["", " key=k0", " key=k1"]));
            format!("schedule-put s{name} 1 60 1 tube={tube}{key} every={}\r\np", choices.pick(&[600_000, 1_000_000]))
        }
        _ => format!("summary {}", choices.pick(&["wiki", "type", "tube", "runner"])),
    }
}

fn put_job(choices: &mut Random, tube: &str) -> String {
    let (pri, delay) = (choices.byte() % 3, choices.pick(&[0, 0, 0, 2]));
    let mut line = format!("put-job {pri} {delay} {} 2 tube={tube}", choices.pick(&[1, 2, 60]));
    if choices.byte().is_multiple_of(2) {
        let until = ["until=reserved", "until=deleted", "for=3", "until=deleted for=2"];
        line += &format!(" key=k{} {}", choices.byte() % 3, choices.pick(&until));
    }
    if choices.byte().is_multiple_of(3) && !line.contains(" for=") {
        line += &format!(" root=S root-ts={}", choices.byte() % 4);
    }
    if choices.byte().is_multiple_of(2) {
        line += &format!(" group=g{}", choices.byte() % 3);
    }
    line + "\r\nab"
}
