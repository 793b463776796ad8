//! Five accounts for CI in five states: leased by a token, in use, in quarantine, held with a note, and being cleaned.

use super::events::{EVENTS, Event};
use super::services::Store;
use super::stage::{SOON, Stage, patience};
use super::{Cells, Scene};
use poolcounter_testkit::daemon::{Client, Daemon};
use std::thread;
use std::time::{Duration, Instant};

const HEADING: &str = "Accounts";
/// Members of the pool, and the beginning of the rest of their lines. They are the columns of the table.
const STATES: [(&str, &str); 5] =
    [("leased", "in_use"), ("in-use", "in_use"), ("failed", "quarantined"), ("held", "held"), ("dirty", "cleaning")];

/// Returns a scene for each event after which a daemon runs that has the store.
pub fn scenes() -> Vec<Scene> {
    let is_own = |event: &&Event| {
        let is_over = event.name == "the daemon is stopped" || event.name == "the daemon is killed";
        event.meets_the_daemon() && event.meets(Store::File) && !is_over
    };
    let scene = |event: &'static Event| Scene {
        rows: vec![(HEADING, event.name)],
        play: Box::new(move |wanted| vec![play(event, &wanted[0])]),
        is_slow: false,
    };
    EVENTS.iter().filter(is_own).map(scene).collect()
}

fn play(event: &Event, wanted: &[String]) -> Cells {
    let Some(mut stage) = Stage::with(SOON, Store::File, event.harms_the_store()) else { return wanted.to_vec() };
    let [mut job, mut other, mut cleaner] = [(); 3].map(|()| connect(&stage));
    assert_eq!(cleaner.ask("CLEAN accounts"), "OK");
    let leased = token_of(&other.ask("TAKE accounts member=leased lease=600"));
    assert_eq!(job.ask("IDENTIFY build-17"), "OK");
    let resumed = token_of(&job.ask("TAKE accounts member=in-use resume"));
    let lease = word(&other.ask("TAKE accounts member=failed"), 1);
    assert_eq!(other.ask(&format!("RETURN {lease} FAIL")), "RETURNED");
    assert_eq!(other.ask("HOLD accounts held 3600 post-mortem"), "OK");
    let lease = word(&other.ask("TAKE accounts member=dirty"), 1);
    assert_eq!(other.ask(&format!("RETURN {lease}")), "RETURNED");
    assert_eq!(cleaner.line(), "!CLEAN accounts dirty");
    stage.holders.extend([&job, &other, &cleaner].map(|client| client.stream().try_clone().expect("a second handle")));
    (event.act)(&mut stage);
    let mut client = connect(&stage);
    let taken = client.ask("TAKE accounts");
    let is_refused = ["NO_MEMBERS ", "ERROR NOT_KEPT "].iter().any(|word| taken.starts_with(word));
    assert!(is_refused, "nobody gets an account of another: {taken}");
    let see = |column: usize| {
        let token = [&leased, &resumed].get(column).copied();
        if token.is_some_and(|token| client.ask(&format!("RENEW {token}")) != "RENEWED") {
            return "is lost".into();
        }
        let wanted = wanted.get(column).map_or("", String::as_str);
        let deadline = Instant::now() + patience(wanted);
        let mut seen = look(&mut client, column);
        while seen != wanted && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            seen = look(&mut client, column);
        }
        seen
    };
    (0..STATES.len()).map(see).collect()
}

/// Returns what a member is: what it was, or its line.
fn look(client: &mut Client, column: usize) -> String {
    client.send(b"MEMBERS accounts\n");
    let lines: Vec<String> = std::iter::repeat_with(|| client.line()).take_while(|line| !line.is_empty()).collect();
    let (name, state) = STATES[column];
    let line = lines.iter().find(|line| word(line, 0) == name).cloned().unwrap_or_default();
    let is_known = match name {
        "in-use" => line.contains(" build-17 "),
        "held" => line.contains(" why=post-mortem "),
        _ => true,
    };
    if line.starts_with(&format!("{name} {state} ")) && is_known { "is kept".into() } else { format!("is {line}") }
}

fn connect(stage: &Stage) -> Client {
    Client::to(stage.address_of(Daemon::members).expect("it runs"))
}

fn word(line: &str, n: usize) -> String {
    line.split(' ').nth(n).unwrap_or_else(|| panic!("{line:?} has no word {n}")).into()
}

fn token_of(line: &str) -> String {
    line.split_once("token=").unwrap_or_else(|| panic!("{line:?} has no token")).1.into()
}
