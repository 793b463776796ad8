//! Leases of a handover.

use super::*;
use crate::state::saved::SavedLease;

impl Leases {
    /// Adds a lease of a handover. It is found after [`Leases::index_all`].
    pub(in crate::state) fn restore(&mut self, lease: SavedLease, pool: PoolId) -> LeaseId {
        let SavedLease { number, member, conn, left, holder, since, is_reported, token } = lease;
        let holding = conn.map(|conn| self.holding_of(conn)).or(left);
        let token = token.map(|(token, span, until)| Box::new(LeaseToken { token, span, until, rule: None }));
        self.insert(Lease { number, member, holding, holder, since, is_reported, token, timer: None }, pool)
    }

    /// Adds a lease that was kept over a restart, unless another one has its number or token.
    pub(in crate::state) fn restore_one(&mut self, lease: SavedLease, pool: PoolId) -> LeaseId {
        self.number_from(lease.number + 1);
        let id = self.restore(lease, pool);
        self.index(id);
        self.mark(id);
        id
    }

    /// Adds all leases to the indexes together, which is far quicker than one by one.
    pub(in crate::state) fn index_all(&mut self) {
        let leases = || self.leases.iter().map(|(index, lease)| (LeaseId::from_index(index), lease));
        let tokens = || leases().filter_map(|(id, lease)| Some((hash_token(&lease.token.as_ref()?.token), id)));
        self.by_number.reserve(self.leases.len());
        self.by_number.fill(leases().map(|(id, lease)| (hash_number(lease.number), id)));
        self.by_token.reserve(tokens().count());
        self.by_token.fill(tokens());
    }
}
