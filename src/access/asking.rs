//! What services ask of the rules: whether a request is allowed.

use super::{Denial, Holds, Need};
use crate::id::ConnId;
use crate::service::Context;
use crate::text::visible;
use log::warn;

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

    /// Looks whether a connection may ask for something now, and logs it if not.
    ///
    /// # Errors
    ///
    /// Why not.
    #[inline]
    pub fn check(&mut self, conn: ConnId, need: &Need<'_>) -> Result<(), Denial> {
        let checked = self.access.check(conn, self.id, need, self.now);
        checked.inspect_err(|denial| self.log_denial(conn, need, *denial))
    }

    #[cold]
    fn log_denial(&mut self, conn: ConnId, need: &Need<'_>, denial: Denial) {
        let Some(more) = self.access.should_log(conn, self.now) else { return };
        let info = self.id.info();
        let verb = info.verbs[usize::from(need.verb.0)];
        let key = need.keys.first().map_or(String::new(), |key| format!(" of {}", visible(key, LOGGED_KEY)));
        let (peer, rule) = (self.peers.peer(conn), self.access.rule_of(conn).unwrap_or("none"));
        warn!("{peer} (rule {rule}) is refused {}:{verb}{key} ({}){more}", info.name, denial.name());
    }
}
