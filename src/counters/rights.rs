//! Access rules for the counters.

use super::{CounterRefusal, CounterRequest, CountersService};
use poolcounter_core::ConnId;
use poolcounter_protocol::counters::commands::Opcode;
use poolcounter_protocol::counters::request::{AcquireUnits, ReleaseUnits};
use poolcounter_service::access::{Holds, Need, Takes};
use poolcounter_service::contract::Context;
use std::slice;

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
        // Each variant is matched with all its fields, so that a new one with a counter needs a decision here.
        let (opcode, keys): (_, &[&[u8]]) = match request {
            // A connection releases only its own units.
            CounterRequest::Release(ReleaseUnits { name: _, resources: _ }) => {
                context.count_request(conn);
                return None;
            }
            CounterRequest::Noop => (Opcode::Noop, &[]),
            CounterRequest::Get(name) => (Opcode::Get, slice::from_ref(name)),
            CounterRequest::Stats => (Opcode::Stats, &[]),
            CounterRequest::Dump => (Opcode::Dump, &[]),
            CounterRequest::Acquire(AcquireUnits { name, resources: _, maximum: _ }) => {
                (Opcode::Acquire, slice::from_ref(name))
            }
        };
        let takes = matches!(opcode, Opcode::Acquire).then(|| Takes {
            has: context.holds_of(|| Holds { locks: self.state.held_by(conn), waits: 0 }),
            // A connection's units of one counter count once, whatever their number.
            locks: u32::from(!self.state.holds_units_of(conn, keys[0])),
            may_wait: false,
        });
        let denial = context.check(conn, &Need { verb: opcode.row().verb, keys, takes }).err()?;
        Some(match (denial.is_limit(), takes) {
            (false, _) => CounterRefusal::Denied,
            // The answer is the same as at a maximum, because clients know how to go on after that.
            (true, Some(_)) => CounterRefusal::NotAvailable,
            (true, None) => CounterRefusal::Limited,
        })
    }
}
