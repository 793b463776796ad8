//! What operators have the pools do: on a page, and with commands of the administration.

use super::ceiling_table::{self, MOST_CEILINGS};
use super::{PoolsService, Reply};
use poolcounter_core::id::ConnId;
use poolcounter_protocol::pools::wire;
use poolcounter_service::contract::{Act, Acted, Context, GONE, NotDone};

/// The action that takes a lock away.
const RELEASE_LOCK: &str = "release-lock";
const CEILING: &str = "ceiling";

impl PoolsService {
    /// Does what an operator has asked for.
    pub(super) fn act_on(&mut self, act: &Act, context: &mut Context<'_>) -> Acted {
        match &*act.action {
            RELEASE_LOCK => self.take_locks_from(&act.key, context),
            CEILING => self.change_ceiling(&act.key),
            action => Err(NotDone::no_action(action)),
        }
    }

    /// Takes the locks of a key from the client of an address, `KEY ADDRESS`: its connections there are told `NOT_LOCKED` and end,
    /// whatever else they hold or wait for. That line is the answer to a RELEASE that comes later, or is on its way.
    fn take_locks_from(&mut self, words: &[u8], context: &mut Context<'_>) -> Acted {
        let mut words = words.splitn(2, |byte| *byte == b' ');
        let (key, client) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let peers = context.peers;
        let is_asked_for = |conn| {
            let peer = peers.peer(conn);
            peer != GONE && peer.as_bytes() == client
        };
        let claims = self.state.claims_on(key).filter(|claim| is_asked_for(claim.conn));
        let (held, waiting): (Vec<_>, Vec<_>) = claims.partition(|claim| claim.waits_for.is_none());
        let locks = held.len();
        if locks == 0 {
            return Err(match waiting.len() {
                0 => NotDone::NotFound("no client of that address has a lock of that key".into()),
                _ => NotDone::Refused("that client waits for a lock of that key, and has none".into()),
            });
        }
        let mut conns: Vec<ConnId> = held.into_iter().map(|claim| claim.conn).collect();
        conns.sort_unstable();
        conns.dedup();
        for conn in conns {
            context.output.reply_lines(conn, |bytes| bytes.extend_from_slice(wire::text_of(Reply::NotLocked)));
            context.end(conn);
        }
        Ok(format!("{locks} {} taken away", if locks == 1 { "lock" } else { "locks" }))
    }

    /// Sets or removes a ceiling, as `KEYS NAME=VALUE,NAME=VALUE` or `KEYS none` says.
    fn change_ceiling(&mut self, words: &[u8]) -> Acted {
        let words = std::str::from_utf8(words).map_err(|_| NotDone::Malformed("this is no text".into()))?;
        let (pattern, settings) = words.split_once(' ').unwrap_or((words, "none"));
        if settings == "none" {
            let was_there = self.state.remove_ceiling(pattern.as_bytes());
            return match was_there {
                true => Ok("the ceiling is gone".into()),
                false => Err(NotDone::NotFound("there is no such ceiling".into())),
            };
        }
        let ceiling = ceiling_table::parse_ceiling(pattern, settings).map_err(NotDone::Malformed)?;
        let is_new = self.state.ceilings().iter().all(|one| one.ceiling.pattern != ceiling.pattern);
        if is_new && self.state.ceilings().len() >= MOST_CEILINGS {
            return Err(NotDone::Refused(format!("there are more than {MOST_CEILINGS} ceilings")));
        }
        self.state.set_ceiling(ceiling);
        Ok(format!("a ceiling for {pattern} until the next upgrade"))
    }
}
