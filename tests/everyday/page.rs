//! Readers of the status page and of the metrics: one with an open connection, and one that comes later.

use super::events::{EVENTS, Event};
use super::parties::{CUT_OFF, NO_SERVER, connect};
use super::services::Store;
use super::stage::{SOON, Stage};
use super::{Cells, Scene};
use poolcounter_testkit::daemon::Client;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

const HEADING: &str = "The status page";

/// Returns a scene for each event that meets the daemon.
pub fn scenes() -> Vec<Scene> {
    let scene = |event: &'static Event| Scene {
        rows: vec![(HEADING, event.name)],
        play: Box::new(move |wanted| vec![play(event, &wanted[0])]),
        is_slow: false,
    };
    EVENTS.iter().filter(|event| event.meets_the_daemon() && event.meets(Store::File)).map(scene).collect()
}

fn play(event: &Event, wanted: &[String]) -> Cells {
    let Some(mut stage) = Stage::with(SOON, Store::File, event.harms_the_store()) else { return wanted.to_vec() };
    let mut open = connect(stage.page().expect("it runs")).expect("connects");
    assert_eq!(read(&mut open, true), "is served");
    stage.holders.push(open.try_clone().expect("a second handle"));
    // A drain lasts while something is held.
    let mut keeper = Client::to(stage.daemon().address);
    assert_eq!(keeper.ask("ACQ4ME keep 1 1 0"), "LOCKED");
    (event.act)(&mut stage);
    // Bytes that are not acknowledged would delay the end that keepalive finds.
    let is_to_ask = wanted.first().is_none_or(|cell| cell != CUT_OFF);
    let seen = if stage.are_holders_gone { "-".into() } else { read(&mut open, is_to_ask) };
    let newcomer = stage.page().and_then(|address| connect(address).ok());
    vec![seen, newcomer.map_or(NO_SERVER.into(), |mut stream| read(&mut stream, true))]
}

/// Returns what a reader of the metrics sees, or one that has nothing to ask.
fn read(stream: &mut TcpStream, is_to_ask: bool) -> String {
    if is_to_ask {
        // A connection that has ended is seen by the read.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1..) => head.extend(byte),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return "hears nothing".into(),
            Ok(_) | Err(_) => return CUT_OFF.into(),
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    let Some(length) = length else { return CUT_OFF.into() };
    let mut body = vec![0; length];
    match stream.read_exact(&mut body) {
        Ok(()) if head.starts_with("http/1.1 200 ") => "is served".into(),
        Ok(()) => format!("reads {}", head.lines().next().unwrap_or_default()),
        Err(_) => CUT_OFF.into(),
    }
}
