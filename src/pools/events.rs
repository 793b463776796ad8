//! The pools' events as lines of the log. Keys are escaped, so that an event is one line whatever a client sent.

use super::PoolsService;
use super::state::{PoolEvent, WINDOW};
use super::wire::listing::ListedSeconds;
use log::{Level, log};
use poolcounter_core::id::ConnId;
use poolcounter_core::text::escaped;
use poolcounter_service::contract::{Context, Peers};
use std::fmt::Write;

impl PoolsService {
    /// Logs the events of a step, and ends the connections whose locks were taken back.
    #[cold]
    pub(super) fn handle_events(&mut self, context: &mut Context<'_>) {
        for event in self.events.drain(..) {
            let mut more = Some(String::new());
            if let PoolEvent::TakenBack { conn, .. } = event {
                context.end(conn);
                more = self.taken_back_log.due(context.time.now);
            }
            if let Some(more) = more {
                let (level, text) = describe(&event, context.conns.peers);
                log!(level, "{text}{more}");
            }
        }
    }
}

/// Returns the level and the text of an event's line.
fn describe(event: &PoolEvent, peers: &dyn Peers) -> (Level, String) {
    let minute = WINDOW.as_micros() / 1_000_000;
    match event {
        PoolEvent::Overdue { key, conn, who, age, overdue } => {
            let (client, key, age) = (name_of(*conn, who, peers), escaped(key), ListedSeconds(*age));
            let others = if *overdue > 1 { format!("; {overdue} locks are overdue") } else { String::new() };
            (Level::Warn, format!("a lock is overdue: {client} has held {key} for {age}{others}"))
        }
        PoolEvent::TakenBack { key, conn, who, held } => {
            let (client, key, held) = (name_of(*conn, who, peers), escaped(key), ListedSeconds(*held));
            (Level::Warn, format!("a lock is taken back: {client} has held {key} for {held}, which is the limit"))
        }
        PoolEvent::Refusing { key, refusals, within } => {
            let (key, within) = (escaped(key), ListedSeconds(*within));
            (Level::Warn, format!("a key refuses many: {key} has refused {refusals} requests in {within}"))
        }
        PoolEvent::Refused { full, timeouts, most, floods } => {
            let all = full + timeouts;
            let mut text = format!("{all} requests refused in {minute}s: {full} QUEUE_FULL, {timeouts} TIMEOUT");
            if let Some((key, refusals)) = most {
                write!(text, "; most for {}, {refusals}", escaped(key)).expect("a string takes every character");
            }
            if *floods > 1 {
                write!(text, "; {floods} keys refuse many").expect("a string takes every character");
            }
            (Level::Info, text)
        }
    }
}

/// Returns the name and the address of a client.
fn name_of(conn: ConnId, who: &[u8], peers: &dyn Peers) -> String {
    let peer = peers.peer(conn);
    if who.is_empty() { peer } else { format!("{} at {peer}", escaped(who)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;
    use poolcounter_core::time::Span;
    use poolcounter_service::contract::NoPeers;

    #[test]
    fn event_is_one_line() {
        let key = "a:ß\u{202e}\r\x1b[2J".as_bytes().iter().chain(b"\xff").copied().collect::<Vec<_>>();
        let conn = ConnId::from_index(1);
        let overdue = |who: &[u8], overdue| PoolEvent::Overdue {
            key: key.clone(),
            conn,
            who: who.into(),
            age: Span::from_micros(300_000_001),
            overdue,
        };
        let refused = |most, floods| PoolEvent::Refused { full: 1, timeouts: 2, most, floods };
        for (event, level, text) in [
            (
                overdue(b"", 1),
                Level::Warn,
                r"a lock is overdue: gone has held a:ß\u{202e}\u{d}\u{1b}[2J\xff for 300.000001s",
            ),
            (
                overdue(b"web1\n:7", 3),
                Level::Warn,
                r"a lock is overdue: web1\u{a}:7 at gone has held a:ß\u{202e}\u{d}\u{1b}[2J\xff for 300.000001s; 3 locks are overdue",
            ),
            (
                PoolEvent::TakenBack { key: b"k".into(), conn, who: (*b"db1").into(), held: Span::from_secs(60) },
                Level::Warn,
                "a lock is taken back: db1 at gone has held k for 60.000000s, which is the limit",
            ),
            (
                PoolEvent::Refusing { key: b"k".into(), refusals: 61, within: Span::from_millis(1_500) },
                Level::Warn,
                "a key refuses many: k has refused 61 requests in 1.500000s",
            ),
            (refused(None, 0), Level::Info, "3 requests refused in 60s: 1 QUEUE_FULL, 2 TIMEOUT"),
            (
                refused(Some((b"k".into(), 3)), 2),
                Level::Info,
                "3 requests refused in 60s: 1 QUEUE_FULL, 2 TIMEOUT; most for k, 3; 2 keys refuse many",
            ),
        ] {
            assert_eq!(describe(&event, &NoPeers), (level, text.to_string()));
        }
    }
}
