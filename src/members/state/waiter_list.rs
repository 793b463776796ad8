//! List of the waiters of a pool in the order in which they are served.

use super::waiters::{Place, Turn};
use super::{Filter, Rank, Refusal, Span, State, Viewer, WaiterId};

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

impl State {
    /// Returns the waiters of a pool, including those for its group, behind a position in their order, each with its
    /// position.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool.
    pub fn waiters_after(
        &self,
        pool: &[u8],
        after: Option<Rank>,
        viewer: Viewer<'_>,
    ) -> Result<impl Iterator<Item = (Rank, WaiterRow<'_>)>, Refusal> {
        let id = self.pools.find(pool)?;
        let own = self.waiters.after(Place::Pool(id), after);
        let of_group = self.pool(id).group.map(|group| self.waiters.after(Place::Group(group), after));
        let all = merged(own, of_group.into_iter().flatten());
        Ok(all.map(move |(rank, waiter)| (rank, self.waiter_row(waiter, viewer))))
    }

    /// Returns a waiter as lists show it.
    pub(super) fn waiter_row(&self, id: WaiterId, Viewer { now, peer }: Viewer<'_>) -> WaiterRow<'_> {
        let waiter = self.waiters.get(id);
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

/// Merges two lists that are in order.
fn merged(one: impl Iterator<Item = Turn>, other: impl Iterator<Item = Turn>) -> impl Iterator<Item = Turn> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || {
        let is_other = match (one.peek(), other.peek()) {
            (Some(one), Some(other)) => other < one,
            (one, _) => one.is_none(),
        };
        if is_other { other.next() } else { one.next() }
    })
}
