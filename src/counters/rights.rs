//! What rules of access can say of the counters.

use super::{CounterRefusal, CounterRequest, CountersService};
use poolcounter_core::id::ConnId;
use poolcounter_protocol::counters::commands::{ACQUIRE, READ};
use poolcounter_protocol::counters::request::{AcquireUnits, ReleaseUnits};
use poolcounter_service::access::{Holds, Need, Takes};
use poolcounter_service::contract::Context;

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
        // Each variant is matched with all its fields, so that one that names a counter cannot be added without a decision here.
        let checked = match request {
            // What is given back is the connection's own.
            CounterRequest::Noop | CounterRequest::Release(ReleaseUnits { name: _, resources: _ }) => return None,
            CounterRequest::Get(name) => context.check(conn, &Need { verb: READ, keys: &[name], takes: None }),
            CounterRequest::Stats | CounterRequest::Dump => {
                context.check(conn, &Need { verb: READ, keys: all, takes: None })
            }
            CounterRequest::Acquire(AcquireUnits { name, resources: _, maximum: _ }) => {
                let has = context.holds_of(|| Holds { locks: self.state.held_by(conn), waits: 0 });
                // A connection's units of one counter count once, however many they are.
                let locks = u32::from(!self.state.holds_units_of(conn, name));
                let need = Need { verb: ACQUIRE, keys: &[name], takes: Some(Takes { has, locks }) };
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
