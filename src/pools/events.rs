//! Locks that were taken back, as lines of the log. Keys are escaped, so that each is one line whatever a client sent.

use super::PoolsService;
use super::state::TakenBack;
use super::wire::listing::ListedSeconds;
use log::warn;
use poolcounter_core::text::escaped;
use poolcounter_service::contract::{Context, Peers};

impl PoolsService {
    /// Ends the connections whose locks were taken back in a step, and logs them.
    #[cold]
    pub(super) fn end_taken_back(&mut self, context: &mut Context<'_>) {
        for lock in self.taken_back.drain(..) {
            context.end(lock.conn);
            if let Some(more) = self.taken_back_log.due(context.time.now) {
                warn!("{}{more}", describe(&lock, context.conns.peers));
            }
        }
    }
}

fn describe(TakenBack { key, conn, who, held }: &TakenBack, peers: &dyn Peers) -> String {
    let peer = peers.peer(*conn);
    let client = if who.is_empty() { peer } else { format!("{} at {peer}", escaped(who)) };
    let (key, held) = (escaped(key), ListedSeconds(*held));
    format!("a lock is taken back: {client} has held {key} for {held}, which is the limit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::time::Span;
    use poolcounter_service::contract::NoPeers;

    #[test]
    fn lock_that_is_taken_back_is_one_line() {
        let key = "a:ß\u{202e}\r\x1b[2J".as_bytes().iter().chain(b"\xff").copied().collect::<Vec<_>>();
        let (conn, held) = (ConnId::from_index(1), Span::from_micros(300_000_001));
        let line = |who: &[u8]| describe(&TakenBack { key: key.clone(), conn, who: who.into(), held }, &NoPeers);
        let rest = r"gone has held a:ß\u{202e}\u{d}\u{1b}[2J\xff for 300.000001s, which is the limit";
        assert_eq!(line(b""), format!("a lock is taken back: {rest}"));
        assert_eq!(line(b"web1\n:7"), format!(r"a lock is taken back: web1\u{{a}}:7 at {rest}"));
    }
}
