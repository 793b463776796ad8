//! Tests of the check of histories: it accepts everything possible, and rejects each kind of loss.

use poolcounter_testkit::crash::Response;
use poolcounter_testkit::crash::history::{Fixed, Found, FoundJob, History};
use poolcounter_testkit::crash::shape::{Place, Retry, Shape};
use std::collections::BTreeMap;

/// Time between two steps, in milliseconds.
const STEP_MS: u64 = 10;

/// Requests, the state found, and the expected error; empty if all is right. Requests have their body behind a colon
/// and their reply behind an equals sign; without one, they have none. `!` is the loss of the connection, `N>` another
/// client. A job found is its number, body, tube, priority, place and attempts, then its key, group, error and origin. Its
/// place is a word or the seconds until it is ready; the delay of its put is behind a slash, if it differs.
const HISTORIES: &[(&str, &str, &str)] = &[
    ("", "", ""),
    // Puts.
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INSERTED 1", "", "job 1 is lost"),
    ("put 3 0 9 1:a", "", ""),
    ("put 3 0 9 1:a", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INTERNAL_ERROR", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = OUT_OF_MEMORY", "", ""),
    ("put 3 0 9 1:a = OUT_OF_MEMORY", "1 a default 3 ready 0", "its put was answered with"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 4 ready 0", "none of"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a other 3 ready 0", "none of"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 ready 1", "none of"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 buried 0", "none of"),
    ("put 3 0 9 1:a = INSERTED 1", "1 b default 3 ready 0", "job 1 is both a and b"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 ready 0; 2 a default 3 ready 0", "is both job"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 ready 0; 1 a default 3 ready 0", "there twice"),
    ("put 3 0 9 1:a = INSERTED 1", "1 a default 3 ready 0; 2 b default 3 ready 0", "was not put"),
    ("put 3 60 9 1:a = INSERTED 1", "1 a default 3 60 0", ""),
    ("put 3 60 9 1:a = INSERTED 1", "1 a default 3 50/60 0", "none of"),
    ("put 3 60 9 1:a = INSERTED 1", "1 a default 3 ready/60 0", "none of"),
    ("put 3 1 9 1:a = INSERTED 1", "1 a default 3 ready/1 0", ""),
    ("put-job 3 0 9 1 tube=t key=k group=g:a = INSERTED 1", "1 a t 3 ready 0 k g", ""),
    ("put-job 3 0 9 1 tube=t key=k group=g:a = INSERTED 1", "1 a t 3 ready 0 - g", "instead of"),
    ("put-job 3 0 9 1 tube=t key=k group=g:a = INSERTED 1", "1 a t 3 ready 0 k -", "instead of"),
    // Duplicates.
    ("put-job 3 0 9 1 key=k:a; 2> put-job 3 0 9 1 key=k:b = DUPLICATE 1", "1 a default 3 ready 0 k -", ""),
    ("put-job 3 0 9 1 key=k:a; 2> put-job 3 0 9 1 key=k:b = DUPLICATE 1", "", "keeps another out, and nobody put it"),
    (
        "put-job 3 0 9 1 key=k:a = INSERTED 1; put-job 3 0 9 1 key=l:b = DUPLICATE 1",
        "1 a default 3 ready 0 k -",
        "keeps l out",
    ),
    // Ends.
    ("put 3 0 9 1:a = INSERTED 1; delete 1 = DELETED", "", ""),
    ("put 3 0 9 1:a = INSERTED 1; delete 1 = DELETED", "1 a default 3 ready 0", "none of"),
    ("put 3 0 9 1:a = INSERTED 1; delete 1 = NOT_FOUND", "", "job 1 is lost"),
    ("put 3 0 9 1:a = INSERTED 1; delete 1", "", ""),
    ("put 3 0 9 1:a = INSERTED 1; delete 1", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; delete 1 = DELETED; reserve = RESERVED 1 1:a", "", "given away"),
    ("put 3 0 9 1:a = INSERTED 1; clear default = CLEARED 1", "", ""),
    ("put 3 0 9 1:a = INSERTED 1; clear default = CLEARED 1", "1 a default 3 ready 0", "none of"),
    ("put 3 0 9 1:a = INSERTED 1; clear default buried = CLEARED 0", "", "lost"),
    // The cleared job may be one with an unknown number.
    ("put 3 0 9 1:b; put 3 0 9 1:a = INSERTED 1; clear default = CLEARED 1", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; clear default", "", ""),
    ("put 3 0 9 1:a = INSERTED 1; clear default", "1 a default 3 ready 0", ""),
    // A clear without a reply may follow the later request of another client.
    ("put 3 60 9 1:a = INSERTED 1; clear default ready; 2> kick-all default = KICKED 1", "", ""),
    (
        "put 3 60 9 1:a = INSERTED 1; clear default ready = CLEARED 0; 2> kick-all default = KICKED 1",
        "",
        "job 1 is lost",
    ),
    ("clear default ready; put 3 0 9 1:a = INSERTED 1", "", "job 1 is lost"),
    // A job that was reserved for another client was committed, whatever reply the producer got.
    ("put 3 0 9 1:a; 2> reserve = RESERVED 1 1:a", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a; 2> reserve = RESERVED 1 1:a", "", "job 1 is lost"),
    // Changes, the last of which may be missing.
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; release 1 4 0 = RELEASED", "1 a default 4 ready 0", ""),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; release 1 4 0 = RELEASED",
        "1 a default 3 ready 0",
        "none of",
    ),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; release 1 4 0", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; release 1 4 60 = RELEASED", "1 a default 4 60 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; bury 1 4 = BURIED", "1 a default 4 buried 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; bury 1 4 = BURIED", "1 a default 4 ready 0", "none of"),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; bury 1 4 = BURIED; kick-job 1 = KICKED",
        "1 a default 4 buried 0",
        "none of",
    ),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; bury 1 4 = BURIED; kick-job 1",
        "1 a default 4 buried 0",
        "",
    ),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; bury 1 4 = BURIED; kick-all default = KICKED 1",
        "1 a default 4 buried 0",
        "none of",
    ),
    ("put 3 60 9 1:a = INSERTED 1; reserve-job 1 = RESERVED 1 1:a", "1 a default 3 ready/60 0", ""),
    // Attempts.
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; fail 1 4 0 1:x = RELEASED",
        "1 a default 4 ready 1 - - x",
        "",
    ),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; fail 1 4 0 1:x = RELEASED",
        "1 a default 4 ready 0 - - x",
        "none of",
    ),
    (
        "put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; fail 1 4 0 1:x = RELEASED",
        "1 a default 4 ready 1 - - y",
        "none of",
    ),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; !", "1 a default 3 ready 1", ""),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a; !", "1 a default 3 ready 0", ""),
    ("put 3 0 9 1:a = INSERTED 1; reserve = RESERVED 1 1:a", "1 a default 3 ready 1", "none of"),
    (
        "put-job 3 0 9 1 tube=dies:a = INSERTED 1; reserve = RESERVED 1 1:a; fail 1 4 0 1:x = BURIED",
        "1 a dead 4 ready 0 - - x dies",
        "",
    ),
    (
        "put-job 3 0 9 1 tube=dies:a = INSERTED 1; reserve = RESERVED 1 1:a; fail 1 4 0 1:x = BURIED",
        "1 a dies 4 ready 1 - - x",
        "none of",
    ),
    // All of a put-many or none.
    ("2* put 3 0 9 1:a; 2* put 3 0 9 1:b", "", ""),
    ("2* put 3 0 9 1:a; 2* put 3 0 9 1:b", "1 a default 3 ready 0; 2 b default 3 ready 0", ""),
    ("2* put 3 0 9 1:a; 2* put 3 0 9 1:b", "1 a default 3 ready 0", "of a put-many"),
    // Root jobs and their leaves.
    ("root t S 5 = ROOT 5", "root t S is 5", ""),
    ("root t S 5 = ROOT 5", "root t S is 4", "which it cannot be"),
    ("root t S 5 = ROOT 5", "root t S is 6", "which it cannot be"),
    ("root t S 5 = ROOT 5; root t S 7", "root t S is 7", ""),
    ("root t S 5 = ROOT 5; root t S 7", "root t S is 5", ""),
    ("put-job 3 0 9 1 tube=t root=S root-ts=5:a = INSERTED 1", "1 a t 3 ready 0; root t S is 0", "which it cannot be"),
    ("put-job 3 0 9 1 tube=t root=S root-ts=5:a = INSERTED 1; root t S 6", "root t S is 6", ""),
    ("put-job 3 0 9 1 tube=t root=S root-ts=5:a = INSERTED 1; root t S 5 = ROOT 5", "root t S is 5", "lost"),
    // Settings.
    ("limit t 1 = LIMIT 1", "limit t is 1", ""),
    ("limit t 1 = LIMIT 1", "limit t is 0", "which it cannot be"),
    ("limit t 1 = LIMIT 1; limit t 2", "limit t is 1", ""),
    ("limit t 1 = LIMIT 1; limit t 2", "limit t is 2", ""),
    ("limit t 1; limit t 2 = LIMIT 2", "limit t is 1", "which it cannot be"),
    ("limit t 1; 2> limit t 2 = LIMIT 2", "limit t is 1", ""),
    ("pause-all t 9 = NOT_FOUND; pause-all t 8 = PAUSED", "pause-all t is 9", "which it cannot be"),
];

#[test]
fn possible_outcomes_are_distinguished_from_impossible_ones() {
    for (said, found, wrong) in HISTORIES {
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
