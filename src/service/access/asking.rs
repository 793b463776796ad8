//! What services ask of the rules: whether a request is allowed.

use super::{Denial, Holds, Need, Verb};
use crate::contract::Context;
use log::warn;
use poolcounter_core::id::ConnId;
use poolcounter_core::text::visible;

/// How much of a key the log has where its request was refused, in bytes.
const LOGGED_KEY: usize = 64;

impl Context<'_> {
    /// Returns whether each request has to be allowed: [`Context::check`].
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.access.is_on()
    }

    /// Returns what a connection has, where some rule limits that.
    pub fn holds_of(&self, holds: impl FnOnce() -> Holds) -> Holds {
        if self.access.counts_holds() { holds() } else { Holds::default() }
    }

    /// Returns whether the rule of a connection includes a verb for each of some keys, for what goes on. Nothing is counted.
    pub fn includes(&self, conn: ConnId, verb: Verb, keys: &[&[u8]]) -> bool {
        self.access.includes(conn, self.id, verb, keys)
    }

    /// Looks whether a connection may ask for something now, and logs it if not. Returns how many locks its rule allows more before that.
    ///
    /// # Errors
    ///
    /// Why not.
    #[inline]
    pub fn check(&mut self, conn: ConnId, need: &Need<'_>) -> Result<u64, Denial> {
        let checked = self.access.check(conn, self.id, need, self.now);
        checked.inspect_err(|denial| self.log_denial(conn, need, *denial))
    }

    #[cold]
    fn log_denial(&mut self, conn: ConnId, need: &Need<'_>, denial: Denial) {
        let (info, key) = (self.others.called(), self.access.key_refused(conn, self.id, need));
        let what = || {
            let verb = info.verbs[usize::from(need.verb.0)];
            let key = key.map_or(String::new(), |key| format!(" of {}", visible(key, LOGGED_KEY)));
            format!("is refused {}:{verb}{key}", info.name)
        };
        let (peer, rule) = (self.peers.peer(conn), self.access.rule_at(conn));
        let line = self.access.denial_line(rule, denial, (&peer, what), self.now);
        line.into_iter().for_each(|line| warn!("{line}"));
    }
}
