//! Access rules for the counters.

use super::{CounterRefusal, CounterRequest, CountersService};
use poolcounter_core::id::ConnId;
use poolcounter_protocol::counters::commands::{ACQUIRE, READ};
use poolcounter_protocol::counters::request::{AcquireUnits, ReleaseUnits};
use poolcounter_service::access::{Holds, Need, Takes};
use poolcounter_service::contract::Context;

/// Refusal of a connection that no access rule admits: a complete error response (opcode Noop), because clients expect
/// a header.
pub const REFUSAL: &[u8] = b"\x91\x00\x20\x00\x00\x00\x00\x0d\x00\x00\x00\x00Access denied";

impl CountersService {
    /// Checks if a connection may send this request now, and returns the refusal if not.
    #[inline(never)]
    pub(super) fn refusal_of(
        &self,
        conn: ConnId,
        request: &CounterRequest<'_>,
        context: &mut Context<'_>,
    ) -> Option<CounterRefusal> {
        let all: &[&[u8]] = &[];
        // Each variant is matched with all its fields, so that a new one with a counter needs a decision here.
        let checked = match request {
            // A connection releases only its own units.
            CounterRequest::Release(ReleaseUnits { name: _, resources: _ }) => {
                context.count_request(conn);
                return None;
            }
            CounterRequest::Noop => context.check_rate(conn),
            CounterRequest::Get(name) => {
                context.check(conn, &Need { verb: READ, keys: &[name], takes: None }).map(drop)
            }
            CounterRequest::Stats | CounterRequest::Dump => {
                context.check(conn, &Need { verb: READ, keys: all, takes: None }).map(drop)
            }
            CounterRequest::Acquire(AcquireUnits { name, resources: _, maximum: _ }) => {
                let has = context.holds_of(|| Holds { locks: self.state.held_by(conn), waits: 0 });
                // A connection's units of one counter count once, whatever their number.
                let locks = u32::from(!self.state.holds_units_of(conn, name));
                let need = Need { verb: ACQUIRE, keys: &[name], takes: Some(Takes { has, locks, may_wait: false }) };
                // The answer is the same as at a maximum, because clients know how to go on after that.
                return context.check(conn, &need).err().map(|denial| match denial.is_limit() {
                    true => CounterRefusal::NotAvailable,
                    false => CounterRefusal::Denied,
                });
            }
        };
        checked.err().map(|denial| if denial.is_limit() { CounterRefusal::Limited } else { CounterRefusal::Denied })
    }
}
