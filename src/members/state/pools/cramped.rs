//! Pools that could start members if there was room in the daemon.

use super::*;

impl Pools {
    /// Notes that a pool could start members if there was room in the daemon.
    pub fn set_cramped(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.index()];
        if !std::mem::replace(&mut pool.is_cramped, true) {
            self.cramped.push_back(id);
        }
    }

    /// Forgets a pool that is removed.
    pub fn leave_cramped(&mut self, id: PoolId) {
        if self.pools[id.index()].is_cramped {
            self.cramped.retain(|other| *other != id);
        }
    }

    pub fn has_cramped(&self) -> bool {
        !self.cramped.is_empty()
    }

    /// Takes the pool that has waited for room for longest.
    pub fn next_cramped(&mut self) -> Option<PoolId> {
        let id = self.cramped.pop_front()?;
        self.pools[id.index()].is_cramped = false;
        Some(id)
    }
}
