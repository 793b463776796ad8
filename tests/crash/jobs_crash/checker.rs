//! Tests of the check of histories: it accepts everything possible, and rejects each kind of loss.

use poolcounter_testkit::crash::Response;
use poolcounter_testkit::crash::history::{Fixed, Found, FoundJob, History};
use poolcounter_testkit::crash::shape::{Place, Retry, Shape};
use std::collections::BTreeMap;

/// Time between two steps, in milliseconds.
const STEP_MS: u64 = 10;

/// Requests, the state found, and the expected error: the head of the file has the notation.
const HISTORIES: &str = include_str!("histories.txt");

#[test]
fn possible_outcomes_are_distinguished_from_impossible_ones() {
    for row in HISTORIES.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [said, found, wrong] = columns[..] else { panic!("{row:?} has three columns") };
        let mut told = Talk::new();
        told.say(said);
        let verdict = told.history.crashed(found_of(found, told.now), told.now);
        let is_right = match &verdict {
            Ok(()) => wrong.is_empty(),
            Err(error) => !wrong.is_empty() && error.contains(wrong),
        };
        assert!(is_right, "{said}\n{found}\n{verdict:?} instead of {wrong:?}");
    }
}

#[test]
fn a_history_goes_on_after_a_crash() {
    let begin = || {
        let mut talk = Talk::new();
        talk.say("put 3 0 9 1:a = INSERTED 1; put 3 0 9 1:b; put 3 0 9 1:c = INSERTED 3; delete 3; limit t 1");
        let found = found_of("1 a default 3 ready 0; 3 c default 3 ready 0; limit t is 1", talk.now);
        talk.history.crashed(found, talk.now).expect("can be");
        talk
    };
    let verdict = |said: &str, found: &str| {
        let mut talk = begin();
        talk.say(said);
        talk.history.crashed(found_of(found, talk.now), talk.now).err().unwrap_or_default()
    };
    let both = "1 a default 3 ready 0; 3 c default 3 ready 0; limit t is 1";
    assert_eq!(verdict("", both), "");
    assert!(verdict("", "1 a default 3 ready 0; limit t is 1").contains("job 3 is lost"), "it was there once");
    assert!(verdict("", &format!("{both}; 2 b default 3 ready 0")).contains("was not put"), "it was not there");
    assert!(verdict("put 3 0 9 1:d = INSERTED 2", both).contains("the number 2 comes again"));
    assert!(verdict("put 3 0 9 1:d", &format!("{both}; 2 d default 3 ready 0")).contains("the number 2 comes again"));
    assert_eq!(verdict("put 3 0 9 1:d", &format!("{both}; 4 d default 3 ready 0")), "");
    assert!(verdict("", "1 a default 3 ready 0; 3 c default 3 ready 0; limit t is 2").contains("cannot be"));
}

/// Requests of clients to an imaginary server.
struct Talk {
    history: History,
    now: u64,
}

impl Talk {
    fn new() -> Talk {
        let dies = Retry { attempts: 1, seconds: 1, dead_letter: Some("dead".into()) };
        Talk { history: History::new(Found::default(), BTreeMap::from([("dies".into(), dies)])), now: 0 }
    }

    fn say(&mut self, text: &str) {
        for part in text.split("; ").filter(|part| !part.is_empty()) {
            self.now += STEP_MS;
            let (client, part) = part.split_once("> ").map_or((1, part), |(client, rest)| (number(client), rest));
            let (many, part) = part.split_once("* ").map_or((None, part), |(many, rest)| (Some(number(many)), rest));
            if part == "!" {
                self.history.lost(client as usize);
                continue;
            }
            let (request, reply) =
                part.split_once(" = ").map_or((part, None), |(request, reply)| (request, Some(reply)));
            let (line, body) = request.split_once(':').unwrap_or((request, ""));
            let asked = self.history.begin(client as usize, line, body.as_bytes(), many, self.now);
            if let Some(reply) = reply {
                let (line, body) = reply.split_once(':').unwrap_or((reply, ""));
                self.history.told(asked, Response { line: line.into(), body: body.into() }, self.now);
            }
        }
    }
}

fn found_of(text: &str, now: u64) -> Found {
    let mut found = Found::default();
    for part in text.split("; ").filter(|part| !part.is_empty()) {
        if let Some((name, value)) = part.split_once(" is ") {
            found.registers.insert(name.into(), value.into());
            continue;
        }
        let words: Vec<&str> = part.split(' ').collect();
        let text = |n: usize| words.get(n).filter(|word| **word != "-").copied().unwrap_or_default().to_string();
        let (place, delay) = words[4].split_once('/').unwrap_or((words[4], words[4]));
        let delay = delay.parse().unwrap_or(0);
        let place = match place {
            "ready" => Place::Ready,
            "buried" => Place::Buried,
            seconds => Place::after(number(seconds) as u32, now, now),
        };
        let shape = Shape {
            tube: text(2),
            pri: number(words[3]) as u32,
            delay,
            attempts: number(words[5]) as u32,
            error: text(8),
            origin: text(9),
            place,
        };
        let fixed = Fixed { body: words[1].into(), ttr: 9, key: text(6), group: text(7) };
        found.jobs.push(FoundJob { id: number(words[0]), shape, fixed });
    }
    found
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}
