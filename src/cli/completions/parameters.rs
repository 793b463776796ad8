//! Values and parameters that shells complete, from the hints of options and the usages of commands, and names that
//! servers have: keys, pools, members and tubes.

use crate::command::Command;
use crate::servers::{Servers, rows_of};
use poolcounter_client::{Client, Members, Producer, SummaryBy, Timeouts};
use poolcounter_service::health::quoted;
use poolcounter_service::options::Opt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Hint of options whose value is a file.
const FILE: &str = "FILE";

/// Placeholders in usages, and the names that they stand for.
const KINDS: [(&str, Kind); 6] = [
    ("KEY", Kind::Keys),
    ("key", Kind::Keys),
    ("POOL", Kind::Pools),
    ("MEMBER", Kind::Members),
    ("TUBE", Kind::Tubes),
    ("PATTERN", Kind::Tubes),
];

/// States of jobs.
const STATES: &str = "ready reserved delayed buried";

/// Possible values of an option.
pub enum Completed {
    File,
    /// One of these, separated by spaces.
    OneOf(String),
    /// Name of this kind, which is fetched from a server.
    Names(Kind),
    Anything,
}

impl Completed {
    /// Returns the values of an option.
    pub fn of(option: &Opt<()>) -> Completed {
        match option.hint {
            FILE => Completed::File,
            hint => Completed::of_hint(hint),
        }
    }

    /// Parses `warn|kill`, or a placeholder such as `KEY` or `ID|TUBE`.
    fn of_hint(hint: &str) -> Completed {
        let alternatives: Vec<&str> = hint.split('|').collect();
        let is_word = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
        if alternatives.len() > 1 && alternatives.iter().all(is_word) {
            return Completed::OneOf(alternatives.join(" "));
        }
        let kind = KINDS.iter().find(|(placeholder, _)| alternatives.contains(placeholder));
        match kind {
            Some(&(_, kind)) => Completed::Names(kind),
            None if alternatives.contains(&"STATE") => Completed::OneOf(STATES.into()),
            None => Completed::Anything,
        }
    }
}

/// Returns the values of the word behind these words that are no options, from the usage of a command and its requests.
pub fn completed_behind(command: &Command, words: &[&str]) -> Vec<Completed> {
    let is_meant = |word: &str| words.first().is_some_and(|first| word.eq_ignore_ascii_case(first));
    let list = (command.list)();
    let requests = list.iter().map(|(usage, _)| usage.split_once(' ').unwrap_or((usage, "")));
    let requests = requests.chain((command.name == "stats").then_some(("HOLDERS", "KEY")));
    let requests = requests.filter(|(word, _)| is_meant(word)).map(|(_, usage)| (1, usage));
    let own = command.usage.lines().next().unwrap_or_default();
    let completed = [(0, own)].into_iter().chain(requests).filter_map(|(before, usage)| {
        let hint = positional(usage.replace(" | ", "|").split(' ')).into_iter().nth(words.len() - before)?;
        // The first words of a command are known.
        Some(Completed::of_hint(&hint)).filter(|completed| before > 0 || !matches!(completed, Completed::OneOf(_)))
    });
    completed.collect()
}

/// Returns the placeholders of a usage that are no options, up to the placeholders of another command.
fn positional<'a>(mut words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut placeholders = Vec::new();
    while let Some(word) = words.next() {
        let inner = word.trim_start_matches('[');
        match inner.split(['[', ']']).next().unwrap_or_default() {
            "--" | "..." => break,
            "options" => {}
            // The value of an option.
            option if option.starts_with("--") => _ = words.next(),
            placeholder => placeholders.push(placeholder.to_string()),
        }
    }
    placeholders
}

/// Kind of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Keys,
    Pools,
    Members,
    Tubes,
}

/// Time within which servers are to tell names: a shell waits for them.
const PATIENCE: Duration = Duration::from_millis(300);
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: Duration::ZERO };

/// Most keys that are offered.
const MOST_KEYS: usize = 200;

/// Returns the names of a kind that servers tell in time; none without an answer. Names that a shell would change are
/// left out. `pool` is the pool of members.
pub fn names_at(servers: &Servers, kind: Kind, pool: Option<&str>) -> Vec<String> {
    let (sender, names) = mpsc::channel();
    let (servers, pool) = (servers.clone(), pool.unwrap_or_default().to_string());
    thread::spawn(move || sender.send(ask(&servers, kind, &pool)));
    let names = names.recv_timeout(PATIENCE).unwrap_or_default();
    let is_plain = |name: &Vec<u8>| quoted(name).is_some_and(|quoted| quoted.as_bytes() == name);
    names.into_iter().filter(is_plain).map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

fn ask(servers: &Servers, kind: Kind, pool: &str) -> Vec<Vec<u8>> {
    match kind {
        Kind::Keys => {
            let key = |line: Vec<u8>| line.split(|byte| *byte == b' ').next()?.strip_suffix(b":").map(<[u8]>::to_vec);
            let lines = Client::with(servers.placement(), TIMEOUTS).query(format!("KEYS {MOST_KEYS}"));
            rows_of(lines).filter_map(key).collect()
        }
        Kind::Pools => rows_of(Members::with(servers.placement(), TIMEOUTS).pools()).map(|pool| pool.name).collect(),
        Kind::Members => {
            let members = Members::with(servers.placement(), TIMEOUTS).members(pool).unwrap_or_default();
            rows_of(members).map(|member| member.name).collect()
        }
        Kind::Tubes => {
            let rows = Producer::new(servers.list(), TIMEOUTS).summary(SummaryBy::Tube).unwrap_or_default();
            rows.into_iter().map(|row| row.name.into_bytes()).collect()
        }
    }
}
