//! What rules of access can say of the counters.

use super::{CounterRefusal, CounterRequest, CountersService};
use crate::access::{Holds, Need, Verb};
use crate::id::ConnId;
use crate::service::Context;

/// What can be asked for.
pub const VERBS: &[&str] = &["acquire", "read"];
const ACQUIRE: Verb = Verb(0);
const READ: Verb = Verb(1);

/// What each command asks for.
pub const COMMANDS: &[(&str, Option<Verb>)] = &[
    ("Noop", None),
    ("Get", Some(READ)),
    ("Acquire", Some(ACQUIRE)),
    ("Release", None),
    ("Stats", Some(READ)),
    ("Dump", Some(READ)),
];

/// What a connection is told that no rule allows: the refusal of a Noop that nobody has sent.
pub const REFUSAL: &[u8] = b"\x91\x00\x20\x00\x00\x00\x00\x0d\x00\x00\x00\x00Access denied";

impl CountersService {
    /// Looks whether a connection may ask for this now, and returns what it is told if not.
    #[inline(never)]
    pub(super) fn refusal_of(
        &self,
        conn: ConnId,
        request: &CounterRequest<'_>,
        context: &mut Context<'_>,
    ) -> Option<CounterRefusal> {
        let all: &[&[u8]] = &[];
        let checked = match request {
            CounterRequest::Noop | CounterRequest::Release(_) => return None,
            CounterRequest::Get(name) => context.check(conn, &Need { verb: READ, keys: &[name], takes: None }),
            CounterRequest::Stats | CounterRequest::Dump => {
                context.check(conn, &Need { verb: READ, keys: all, takes: None })
            }
            CounterRequest::Acquire(acquire) => {
                let takes = Some(context.holds_of(|| Holds { locks: self.state.held_by(conn), waits: 0 }));
                let need = Need { verb: ACQUIRE, keys: &[acquire.name], takes };
                // No more than a maximum of units: what clients know how to go on after.
                return context.check(conn, &need).err().map(|denial| match denial.is_limit() {
                    true => CounterRefusal::NotAvailable,
                    false => CounterRefusal::Denied,
                });
            }
        };
        checked.err().map(|denial| if denial.is_limit() { CounterRefusal::Limited } else { CounterRefusal::Denied })
    }
}
