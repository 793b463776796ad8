//! Survey of the state of a server by a client: jobs by lists, settings by their effects.

use super::Response;
use super::history::{Fixed, Found, FoundJob};
use super::shape::{Place, Shape};
use std::collections::BTreeMap;

/// Sends a request, with its body if it has one, and returns the reply.
pub type Ask<'a> = dyn FnMut(&str) -> Response + 'a;

/// Highest limit, or number of attempts, that is tried; a higher number counts as unlimited.
const MOST: u32 = 3;
/// Number of entries of one list.
const PAGE: usize = 1000;

/// Returns all jobs, and the settings of this number of clients. `now` is in milliseconds.
pub fn survey(ask: &mut Ask<'_>, clients: usize, mut now: impl FnMut() -> u64) -> Found {
    let mut found = Found::default();
    let tubes: Vec<String> =
        lines(&ask("list-tubes")).iter().map(|line| line.trim_start_matches("- ").into()).collect();
    for tube in &tubes {
        // Delayed jobs come first, because they may become ready in the next moment.
        for state in ["delayed", "ready", "buried"] {
            list(ask, tube, state, &mut now, &mut found.jobs);
        }
        let held = ask(&format!("list-jobs {tube} reserved {PAGE}"));
        assert_eq!(lines(&held), [""; 0], "a job of {tube} is reserved, and there is nobody");
    }
    for client in 0..clients {
        probe(ask, client, &mut found);
    }
    found
}

/// Adds the jobs of a tube in one state.
fn list(ask: &mut Ask<'_>, tube: &str, state: &str, now: &mut impl FnMut() -> u64, jobs: &mut Vec<FoundJob>) {
    let mut after = 0;
    loop {
        let entries = lines(&ask(&format!("list-jobs {tube} {state} {PAGE} after={after}")));
        let mut entry = BTreeMap::new();
        for line in entries.iter().map(String::as_str).chain(["- "]) {
            if line.starts_with("- ") && !entry.is_empty() {
                let job = look_at(ask, state, &std::mem::take(&mut entry), now);
                after = job.id;
                if !jobs.iter().any(|other| other.id == after && other.shape.tube == tube && state == "ready") {
                    jobs.push(job);
                }
            }
            if let Some((name, value)) = line[2.min(line.len())..].split_once(": ") {
                entry.insert(name.to_string(), value.trim_matches('"').to_string());
            }
        }
        if entries.iter().filter(|line| line.starts_with("- ")).count() < PAGE {
            return;
        }
    }
}

fn look_at(
    ask: &mut Ask<'_>,
    state: &str,
    entry: &BTreeMap<String, String>,
    now: &mut impl FnMut() -> u64,
) -> FoundJob {
    let id: u64 = entry["id"].parse().expect("a number");
    let stats = lines(&ask(&format!("stats-job {id}")));
    let stat = |name: &str| {
        let value = stats.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} is not in {stats:?}")).trim_matches('"').to_string()
    };
    let number = |name: &str| stat(name).parse::<u32>().unwrap_or_else(|_| panic!("{name} of {stats:?}"));
    let now = now();
    let place = match stat("state").as_str() {
        "ready" => Place::Ready,
        "buried" => Place::Buried,
        // The job is ready within the second, or already: a server that starts with many such jobs works through them
        // in slices.
        _ if number("time-left") == 0 => Place::Ready,
        _ => {
            // Whole seconds, and the request took a moment.
            let due = now + u64::from(number("time-left")) * 1000;
            Place::Delayed(due.saturating_sub(1000), due + 1000)
        }
    };
    let body = ask(&format!("peek {id}"));
    assert!(body.line.starts_with(&format!("FOUND {id} ")), "{id} was {state}, and {} now", body.line);
    let attempts = entry["attempts"].parse().expect("a number");
    // The server writes a line of its own before what a runner has told.
    let is_own = |line: &&str| line.starts_with("the runner ") || line.starts_with("the time to run of ");
    let told: Vec<&str> = entry["error"].split("\\n").filter(|line| !is_own(line)).collect();
    let (tube, error) = (stat("tube"), told.join("\\n"));
    let origin = entry.get("origin").cloned().unwrap_or_default();
    let shape = Shape { tube, pri: number("pri"), delay: number("delay"), attempts, error, origin, place };
    let (key, group) = (entry["key"].clone(), entry["group"].clone());
    FoundJob { id, shape, fixed: Fixed { body: body.body, ttr: number("ttr"), key, group } }
}

/// Determines the settings of a client by their effects, with jobs that are deleted afterwards.
fn probe(ask: &mut Ask<'_>, client: usize, found: &mut Found) {
    let mut note = |name: String, value: String| found.registers.insert(name, value);
    let tube = format!("set/{client}");
    let mut put = |ask: &mut Ask<'_>, tube: &str| {
        let told = ask(&format!("put-job 0 0 99 0 tube={tube}\r\n"));
        let id = told.number("INSERTED").unwrap_or_else(|| panic!("a probe is answered with {}", told.line));
        found.highest = found.highest.max(id);
        id
    };
    let ids: Vec<u64> = (0..=MOST).map(|_| put(ask, &tube)).collect();
    let given = ids.iter().filter(|id| ask(&format!("reserve-job {id}")).line.starts_with("RESERVED")).count();
    note(format!("limit {tube}"), if given > MOST as usize { 0 } else { given }.to_string());
    ids.iter().for_each(|id| delete(ask, *id));

    let id = put(ask, &tube);
    let attempts = attempts_of(ask, id);
    if attempts == 0 {
        // A temporary setting, for the query of the dead-letter tube.
        ask(&format!("retry {tube} 1 0 1 0"));
        attempts_of(ask, id);
        ask(&format!("retry {tube} 0 0 1 0"));
    }
    note(format!("retry {tube}"), format!("{attempts} 0 1 0"));
    let where_to = lines(&ask(&format!("stats-job {id}"))).into_iter().find_map(|line| {
        let tube = line.strip_prefix("tube: ")?;
        Some(tube.trim_matches('"').to_string())
    });
    note(format!("dead-letter {tube}"), where_to.filter(|to| *to != tube).unwrap_or_default());
    delete(ask, id);

    let tube = format!("pause/{client}");
    let id = put(ask, &tube);
    let pause = lines(&ask(&format!("stats-tube {tube}"))).into_iter().find_map(|line| {
        let pause = line.strip_prefix("pause: ")?;
        Some(pause.to_string())
    });
    note(format!("pause-all {tube}"), pause.expect("stats-tube has it"));
    delete(ask, id);

    let root = format!("root work/a S{client}");
    let newest = ask(&format!("{root} 0")).number("ROOT").expect("it is told");
    note(root, newest.to_string());
}

/// Fails a job until it is buried or moved, and returns the number of attempts; 0 if there is no limit.
fn attempts_of(ask: &mut Ask<'_>, id: u64) -> u32 {
    for attempt in 1..=MOST {
        let given = ask(&format!("reserve-job {id}"));
        assert!(given.line.starts_with("RESERVED"), "a probe is {}", given.line);
        let told = ask(&format!("fail {id} 0 0 0\r\n"));
        match told.line.as_str() {
            "BURIED" => return attempt,
            "RELEASED" => {}
            other => panic!("a probe fails with {other}"),
        }
    }
    0
}

fn delete(ask: &mut Ask<'_>, id: u64) {
    assert_eq!(ask(&format!("delete {id}")).line, "DELETED", "a probe is deleted");
}

/// Returns the lines of a text behind its head.
fn lines(told: &Response) -> Vec<String> {
    assert!(told.line.starts_with("OK "), "{}", told.line);
    String::from_utf8_lossy(&told.body).lines().skip(1).map(str::to_string).collect()
}
