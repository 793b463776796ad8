//! Requests of clients of every service, right and wrong, over a few names that they share.

use super::frames;
use super::lines::unescape;
use super::random::Random;

/// Every service with connections.
pub const SPOKEN: [&str; 6] = ["pools", "counters", "members", "jobs", "http", "admin"];

/// Requests of each service but the counters.
const REQUESTS: &str = include_str!("speech.txt");

/// Returns bytes that a client of a service sends: mostly a request, at times less or anything.
pub fn speech(service: &str, random: &mut Random) -> Vec<u8> {
    if service == "counters" {
        return frame(random);
    }
    let own = REQUESTS.lines().filter_map(|line| line.strip_prefix(service)?.strip_prefix(' '));
    let mut words = random.pick(&own.collect::<Vec<_>>()).to_string();
    for (blank, most) in [("KEY", 6), ("ID", 9)] {
        words = words.replace(blank, &format!("{}{}", if blank == "KEY" { "k" } else { "" }, random.below(most)));
    }
    let mut bytes = unescape(&words).expect("the file is well-formed");
    match random.below(40) {
        0 => bytes.truncate(random.below(bytes.len())),
        1 => bytes.extend(vec![b'x'; random.pick(&[3, 9_000, 70_000])]),
        2 => {
            let at = random.below(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        _ => {}
    }
    bytes
}

fn frame(random: &mut Random) -> Vec<u8> {
    let name = format!("c{}", random.below(6)).into_bytes();
    match random.below(12) {
        0..=4 => frames::acquire(1, 4, &name),
        5..=7 => frames::release(1, &name),
        8 => frames::get(&name),
        9 => frames::dump(),
        10 => frames::stats(),
        _ => frames::frame(random.below(20) as u8, &name)[..random.pick(&[3, 12, 14])].to_vec(),
    }
}
