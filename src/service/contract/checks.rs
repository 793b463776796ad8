//! Checks of requests against the access rules, for services.

use super::Context;
use crate::access::{Denial, Holds, Need, Verb};
use log::warn;
use poolcounter_core::ConnId;
use poolcounter_core::text::visible;

/// Most bytes of a refused key in the log.
const LOGGED_KEY: usize = 64;

impl Context<'_> {
    /// Returns true if there are rules: each request then needs a [`Context::check`].
    #[inline]
    pub fn has_rules(&self) -> bool {
        self.access.is_on
    }

    /// Returns the usage of a connection if some rule limits it, else zero.
    pub fn holds_of(&self, holds: impl FnOnce() -> Holds) -> Holds {
        if self.access.counts_holds { holds() } else { Holds::default() }
    }

    /// Returns true if the rule of a connection allows a verb for each of these keys. Counts nothing.
    pub fn includes(&self, conn: ConnId, verb: Verb, keys: &[&[u8]]) -> bool {
        self.access.includes(conn, self.called.id, verb, keys)
    }

    /// Checks a request against the rule of its connection, and logs a denial. Returns the number of locks that the
    /// rule allows before this request.
    ///
    /// # Errors
    ///
    /// The reason of the denial.
    #[inline]
    pub fn check(&mut self, conn: ConnId, need: &Need<'_>) -> Result<u64, Denial> {
        let checked = self.access.check(conn, self.called.id, need, self.time.now);
        checked.inspect_err(|denial| self.log_denial(conn, need, *denial))
    }

    /// Counts a request that is answered in any case: one that gives something back, or cannot be read.
    #[inline]
    pub fn count_request(&mut self, conn: ConnId) {
        if self.has_rules() {
            self.access.count_request(conn, self.time.now);
        }
    }

    #[cold]
    fn log_denial(&mut self, conn: ConnId, need: &Need<'_>, denial: Denial) {
        let (info, key) = (self.called.info, self.access.key_refused(conn, self.called.id, need));
        self.log(conn, denial, || {
            let Some(verb) = need.verb else { return format!("is refused a request to the {}", info.name) };
            let key = key.map_or(String::new(), |key| format!(" of {}", visible(key, LOGGED_KEY)));
            format!("is refused {}:{}{key}", info.name, info.verbs[usize::from(verb.0)])
        });
    }

    fn log(&mut self, conn: ConnId, denial: Denial, what: impl FnOnce() -> String) {
        let (peer, rule) = (self.conns.peers.peer(conn), self.access.rule_at(conn));
        let line = self.access.denial_line(rule, denial, (&peer, what), self.time.now);
        line.into_iter().for_each(|line| warn!("{line}"));
    }
}
