//! List of the waiters of a pool in the order in which they are served, collected in slices. It changes nothing.

use super::waiters::Rank;
use super::*;
use poolcounter_core::meter::Metered as _;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most connections and waiters that one turn examines.
const COLLECTED_PER_TURN: usize = 2048;

/// Waiter in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaiterRow<'a> {
    /// Name of its connection, else the address.
    pub who: String,
    /// Time for which it has waited.
    pub waited: Span,
    /// Priority.
    pub priority: u8,
    /// Number of members that it wants.
    pub count: u32,
    /// Requirements for the members; None for any.
    pub filter: Option<&'a Filter>,
}

/// Waiters of a pool that are still to be listed.
#[derive(Default)]
pub struct WaiterOrder {
    /// Number of connections examined so far.
    looked_at: usize,
    found: BinaryHeap<Reverse<(Rank, ConnId)>>,
}

impl WaiterOrder {
    /// Returns the number of its bytes.
    pub fn bytes(&self) -> usize {
        self.found.capacity() * size_of::<(Rank, ConnId)>()
    }
}

impl State {
    /// Adds waiters of a pool, including those for its group, to a list: those that are served behind `after`. Returns
    /// whether these are all; otherwise it must be called again.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool.
    pub fn collect_waiters(
        &self,
        pool: &[u8],
        after: Option<Rank>,
        order: &mut WaiterOrder,
        now: Time,
    ) -> Result<bool, Refusal> {
        let id = self.pools.find(pool)?;
        let (group, conns) = (self.pool(id).group, self.waiters.conns());
        let mut add = |waiter: &Waiter| {
            let rank = waiter.rank(now);
            if after.is_none_or(|after| rank > after) {
                order.found.push(Reverse((rank, waiter.conn)));
            }
        };
        if order.looked_at == 0 && self.queued(id) as usize <= COLLECTED_PER_TURN {
            let all = self.waiters.for_pool(id, group).metered();
            all.for_each(|waiter| add(self.waiters.get(waiter)));
            order.looked_at = conns;
            return Ok(true);
        }
        let next = conns.min(order.looked_at + COLLECTED_PER_TURN);
        for conn in (order.looked_at..next).metered() {
            let waiter = self.waiters.of_conn(ConnId::from_index(conn)).map(|id| self.waiters.get(id));
            let is_meant = |waiter: &&Waiter| match waiter.source {
                WaitSource::Pool(of) => of == id,
                WaitSource::Group(of, _) => Some(of) == group,
            };
            waiter.filter(is_meant).into_iter().for_each(&mut add);
        }
        order.looked_at = next;
        Ok(next == conns)
    }

    /// Takes the next waiter of a list, with its rank; `Some(None)` for one that has left meanwhile, `None` behind the
    /// last.
    pub fn next_waiter(
        &self,
        order: &mut WaiterOrder,
        now: Time,
        peer: impl Fn(ConnId) -> String,
    ) -> Option<Option<(Rank, WaiterRow<'_>)>> {
        let Reverse((rank, conn)) = order.found.pop()?;
        poolcounter_core::meter::visit();
        let waiter = self.waiters.of_conn(conn).map(|id| self.waiters.get(id));
        let row = waiter.filter(|waiter| waiter.arrival == rank.1);
        Some(row.map(|waiter| (rank, self.row_of_waiter(waiter, now, peer))))
    }

    /// Returns a waiter as lists show it.
    pub(super) fn waiter_row(&self, id: WaiterId, now: Time, peer: impl Fn(ConnId) -> String) -> WaiterRow<'_> {
        self.row_of_waiter(self.waiters.get(id), now, peer)
    }

    fn row_of_waiter<'a>(&'a self, waiter: &'a Waiter, now: Time, peer: impl Fn(ConnId) -> String) -> WaiterRow<'a> {
        let name = self.leases.name(waiter.conn).map(|name| String::from_utf8_lossy(name).into_owned());
        WaiterRow {
            who: name.unwrap_or_else(|| peer(waiter.conn)),
            waited: now.since(waiter.since),
            priority: waiter.priority,
            count: waiter.members(),
            filter: waiter.filter.as_deref(),
        }
    }
}
