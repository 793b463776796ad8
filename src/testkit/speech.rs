//! Requests of clients of every service, right and wrong, over a few names that they share.

use super::frames;
use super::random::Random;

/// Every service with connections.
pub const SPOKEN: [&str; 6] = ["pools", "counters", "members", "jobs", "http", "admin"];

const POOLS: [&str; 10] = [
    "ACQ4ME KEY 2 4 9 keep=2",
    "ACQ4ME KEY 2 4 9 hold=1",
    "ACQ4ME KEY 1 2 0.05",
    "ACQ4ANY KEY 1 9 9",
    "ACQ4ME KEY 2 9 9",
    "RELEASE",
    "RELEASE KEY",
    "STATS FULL",
    "STATS HOLDERS KEY",
    "ACQ4ME KEY",
];
const MEMBERS: [&str; 22] = [
    "POOL KEY 0 3 queue=4 per_client=2",
    "POOL KEY 0 9 group=g provider_grace=1 loss_delay=1 on_loss=ok",
    "RECONFIGURE KEY max=1 queue=1",
    "RECONFIGURE KEY max=9 queue=50",
    "ADD KEY mID a=b",
    "DEL KEY mID",
    "REPAIR KEY mID",
    "RMPOOL KEY GRACEFUL",
    "PROVIDE KEY 3 session=sID",
    "STARTED ID mID",
    "STARTED ID mID",
    "STOPPED mID",
    "OFFER KEY oID",
    "TAKE KEY 5",
    "TAKE KEY 5 n=2",
    "TAKE KEY 0 lease=1",
    "TAKEGROUP g 1",
    "RETURN ID FAIL",
    "CANCEL",
    "MEMBERS KEY",
    "POOLS",
    "BYE",
];
const JOBS: [&str; 31] = [
    "put 1 0 1 2\r\nxx",
    "put 1 0 60 2\r\nxx",
    "put 5000 1 1 2\r\nxx",
    "put-job 1 0 60 2 tube=KEY key=kID\r\nxx",
    "put-job 1 0 60 2 tube=KEY root=rID root-ts=ID group=g\r\nxx",
    "put-many 2\r\nput 1 0 1 1\r\na\r\nput 2 0 1 1\r\nb",
    "root KEY rID ID",
    "use KEY",
    "watch KEY",
    "watch */* 3",
    "watch a/KEY",
    "ignore default",
    "reserve",
    "reserve-with-timeout 1",
    "reserve-many 5 1",
    "reserve-job ID",
    "delete ID",
    "release ID 1 1",
    "bury ID 1",
    "touch ID",
    "begin ID",
    "kick 3",
    "limit KEY 1",
    "limit group:g 1 all",
    "retry KEY 2 1 1 1",
    "dead-letter KEY dead",
    "pause-tube KEY 1",
    "clear KEY",
    "stats",
    "list-tubes",
    "quit",
];
const HTTP: [&str; 7] = [
    "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /healthz HTTP/1.0\r\n\r\n",
    "GET /status.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nnot that",
    "BREW",
];
const ADMIN: [&str; 8] =
    ["CEILING KEY workers=2", "RELEASE-LOCK KEY gone", "LOG info", "RELOAD", "DRAIN", "UNDRAIN", "UNDRAIN", "NOTHING"];

/// Returns bytes that a client of a service sends: mostly a request, at times less or anything.
pub fn speech(service: &str, random: &mut Random) -> Vec<u8> {
    let mut words = match service {
        "counters" => return frame(random),
        "pools" => [random.pick(&POOLS), "\n"].concat(),
        "members" => [random.pick(&MEMBERS), "\n"].concat(),
        "jobs" => [random.pick(&JOBS), "\r\n"].concat(),
        "http" => random.pick(&HTTP).to_string(),
        "admin" => [random.pick(&ADMIN), "\n"].concat(),
        other => panic!("nobody speaks to {other}"),
    };
    for (blank, most) in [("KEY", 6), ("ID", 9)] {
        words = words.replace(blank, &format!("{}{}", if blank == "KEY" { "k" } else { "" }, random.below(most)));
    }
    let mut bytes = words.into_bytes();
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
