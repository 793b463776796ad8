//! Replies of a hostile daemon among replies that are merged into one page.

use super::begin;
use crate::random::Random;
use crate::world::World;
use poolcounter::SERVICES;
use poolcounter_core::Span;
use poolcounter_http::page;
use poolcounter_service::container::AllSettings;
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::report::room::Room;
use poolcounter_service::report::snapshot::Snapshot;
use std::cell::OnceCell;

/// Paths that are requested from the daemons.
const PATHS: [&str; 4] = [
    "/status.json?range=1m",
    "/pools/key/k.json?range=1m",
    "/jobs/matrix.json?range=1m",
    "/pools/key/none.json?range=1m",
];
/// Values that replace values of a reply, besides parts of the input.
const VALUES: [&str; 16] = [
    "null",
    "true",
    "0",
    "-1",
    "18446744073709551615",
    "9007199254740993",
    "1e308",
    "-1e-308",
    "[]",
    "{}",
    "[[1,2],[3]]",
    "\"\"",
    "\"<script>\\u202e\\u0000\"",
    "\"server\"",
    "\"seconds\"",
    "\"\\\"'&\\n\"",
];
/// Characters that no page may contain unescaped.
const HIDDEN: [char; 6] = ['\u{0}', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{200b}'];

thread_local! {
    /// Replies of a daemon with clients of every service.
    static SOUND: OnceCell<[Vec<u8>; PATHS.len()]> = const { OnceCell::new() };
}

/// Returns the page of a path and its JSON for these answers of daemons.
fn shown(answers: &[&[u8]]) -> [String; 2] {
    let services: Vec<&str> = SERVICES.iter().map(|info| info.name).filter(|name| *name != "http").collect();
    let mut merged = Snapshot::default();
    for (n, answer) in answers.iter().enumerate() {
        if let Ok(told) = Snapshot::read(answer, &services) {
            merged.add(&format!("server{n}"), n, told);
        }
    }
    let merged = merged.cut(Room { rows: 20, bytes: 780_000 });
    [page::render(&merged), merged.to_json()]
}

/// Shows the pages of three daemons; the input changes the reply of the second.
pub fn run(data: &[u8]) {
    SOUND.with(|sound| {
        let sound = sound.get_or_init(answers);
        begin(data);
        let mut choices = Random::of_choices(data);
        let which = usize::from(choices.byte()) % PATHS.len();
        let good = &sound[which][..];
        let hostile = match choices.byte() % 4 {
            0 => choices.bytes(usize::MAX),
            _ => changed(good, &mut choices),
        };
        for answers in [&[good, &hostile, good][..], &[&hostile], &[&hostile, &hostile]] {
            check(&shown(answers));
        }
    });
}

fn check([page, json]: &[String; 2]) {
    for text in [page, json] {
        assert!(text.len() < MAX_BYTES, "{} bytes", text.len());
        assert!(!text.contains(HIDDEN), "something can be shown that is not seen");
    }
    assert_eq!(page.matches("<script").count(), 2, "the page's own");
    assert!(!page.contains("javascript:") || !page.contains("href=\"javascript:"), "a link leads elsewhere");
    assert_eq!(shown(&[json.as_bytes()]).len(), 2, "what is shown can be read");
}

/// Puts other values in some places of a reply, or bytes of the input anywhere.
fn changed(good: &[u8], choices: &mut Random) -> Vec<u8> {
    let mut answer = good.to_vec();
    while !choices.is_used_up() {
        let kind = choices.byte();
        let at = usize::from(choices.byte()) << 8 | usize::from(choices.byte());
        let at = at % answer.len().max(1);
        if kind.is_multiple_of(4) {
            let (cut, len) = (usize::from(choices.byte()), usize::from(choices.byte()));
            let end = (at + cut).min(answer.len());
            answer.splice(at..end, choices.bytes(len));
            continue;
        }
        let Some(begin) = answer[at..].iter().position(|byte| *byte == b':').map(|colon| at + colon + 1) else {
            continue;
        };
        let end = answer[begin..].iter().position(|byte| b",}]".contains(byte)).map_or(answer.len(), |len| begin + len);
        let value = choices.pick(&VALUES).as_bytes();
        answer.splice(begin..end, value.iter().copied());
        if answer.len() > MAX_BYTES {
            return answer;
        }
    }
    answer
}

/// Returns the replies of a daemon with some clients of every service, one per path.
fn answers() -> [Vec<u8>; PATHS.len()] {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    world.begin().expect("nothing is kept anywhere");
    for (service, words) in [
        ("pools", &b"ACQ4ME k 1 9 9\n"[..]),
        ("pools", b"ACQ4ME k 1 9 9\n"),
        ("pools", b"ACQ4ME k 1 1 9\n"),
        ("counters", b"\x90\x02\0\0\0\0\0\x0bwhat\0\0\0\x01\0\0\0\x09\0\x01c"),
        ("members", b"POOL p 0 3\nOFFER p m\nTAKE p 1\n"),
        (
            "jobs",
            b"use a/t\r\nput 1 0 60 1\r\nx\r\nput 1 0 60 1\r\ny\r\nwatch a/t\r\nreserve\r\nbury 1 0\r\nreserve\r\n",
        ),
    ] {
        let client = world.connect_to(service);
        world.send(client, words);
        world.settle();
    }
    world.advance(Span::from_secs(9));
    PATHS.map(|target| {
        let client = world.connect_to("http");
        world.send(client, format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
        world.settle();
        let answer = world.take_received(client);
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| end + 4);
        answer[head..].to_vec()
    })
}
