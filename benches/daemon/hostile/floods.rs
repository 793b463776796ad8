//! Floods: ways in which clients could fill the memory. Each case has the growth of the resident memory, and the part
//! of it that is left after the clients have closed.

use super::{AFTERWARDS, AtMost, Case, Daemon, Line, Nothing, Settings, figure, hostile, size};
use crate::million;
use socket2::SockRef;
use std::io;
use std::thread;
use std::time::Duration;

/// Way to fill the memory: its name, the bound in MiB, the preparation, and the attack; both return their connections.
pub type Flood = (
    &'static str,
    usize,
    fn(&Daemon, &Settings) -> io::Result<Vec<Line>>,
    fn(&Daemon, &Settings) -> io::Result<Vec<Line>>,
);

pub const FLOODS: [Flood; 4] = [
    ("600 unfinished put-many", 16, |_, _| Ok(Vec::new()), unfinished_puts),
    ("100 do not read list-tubes", 16, many_tubes, unread_lists),
    ("60 weights on */*", 512, many_patterned, weighted_patterns),
    ("100000 tubes of one", 64, |_, _| Ok(Vec::new()), many_patterned),
];

fn unfinished_puts(daemon: &Daemon, settings: &Settings) -> io::Result<Vec<Line>> {
    let (tube, key, group) = ("a".repeat(190), "k".repeat(200), "g".repeat(60));
    let line =
        format!("put-job 1 0 60 0 tube={tube} key={key} group={group} root={} root-ts=1\r\n\r\n", "1".repeat(200));
    let text = format!("put-many 1000\r\n{}", line.repeat(size(999, settings)));
    let each = |_| {
        let mut client = Line::connect(daemon.jobs)?;
        client.send(&text).map(|()| client)
    };
    (0..settings.connections(600)).map(each).collect()
}

fn many_tubes(daemon: &Daemon, settings: &Settings) -> io::Result<Vec<Line>> {
    let name = "x".repeat(180);
    let each = |n| {
        let mut client = Line::connect(daemon.jobs)?;
        client.ask_many(size(1_000, settings), 1, |m| format!("watch {name}/{n}/{m}\r\n"))?;
        Ok(client)
    };
    (0..30).map(each).collect()
}

fn unread_lists(daemon: &Daemon, settings: &Settings) -> io::Result<Vec<Line>> {
    let each = |_| {
        let mut client = Line::connect(daemon.jobs)?;
        SockRef::from(client.0.get_ref()).set_recv_buffer_size(4096)?;
        client.send("list-tubes\r\n").map(|()| client)
    };
    (0..settings.connections(100)).map(each).collect()
}

fn many_patterned(daemon: &Daemon, settings: &Settings) -> io::Result<Vec<Line>> {
    let mut producer = Line::connect(daemon.jobs)?;
    producer.ask_many(size(100_000, settings), 1, |n| format!("put-job 1 0 600 1 tube=w{n}/t\r\na\r\n"))?;
    Ok(vec![producer])
}

fn weighted_patterns(daemon: &Daemon, settings: &Settings) -> io::Result<Vec<Line>> {
    let each = |n| {
        let mut client = Line::connect(daemon.jobs)?;
        client.send(&format!("watch */* {n}\r\nignore default\r\nreserve-many 1 0\r\n")).map(|()| client)
    };
    (1..=settings.connections(60)).map(each).collect()
}

/// Measures the growth of the resident memory, and the part of it that is left after the clients have closed.
pub fn memory<'a>((name, bound, before, flood): &'a Flood, settings: &'a Settings) -> Case<'a> {
    let figures = vec![figure("MiB more", AtMost(*bound as f64 + 64.0)), figure("MiB left, of these", Nothing)];
    hostile((*name).into(), figures, move || {
        let daemon = Daemon::start("memory", &["--jobs-max-memory", &bound.to_string()], settings)?;
        let _kept = before(&daemon, settings)?;
        let empty = daemon.resident_mib()?;
        let clients = flood(&daemon, settings)?;
        thread::sleep(Duration::from_secs(if settings.is_rehearsal { 0 } else { 4 }));
        let full = daemon.resident_mib()?;
        drop(clients);
        thread::sleep(if settings.is_rehearsal { Duration::ZERO } else { 3 * AFTERWARDS });
        Ok(vec![full - empty, daemon.resident_mib()? - empty])
    })
}

/// Measures the growth of the memory while counters are used once, far more than have room, and the cost of each.
pub fn unheld_counters(settings: &Settings) -> Case<'_> {
    let count = size(3_000_000, settings);
    let figures = vec![figure("MiB more", AtMost(128.0)), figure("CPU us/counter", AtMost(20.0))];
    hostile(format!("{count} counters of nobody, bound 64"), figures, move || {
        let daemon = Daemon::start("memory", &["--counter-max-memory", "64"], settings)?;
        Line::connect(daemon.counters)?;
        let empty = daemon.resident_mib()?;
        let cost = daemon.cost(count, || million::use_each_once(daemon.counters, count))?;
        Ok(vec![daemon.resident_mib()? - empty, cost])
    })
}
