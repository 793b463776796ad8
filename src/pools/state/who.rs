//! Names that clients give for their claims. Claims without a name, which are most, cost nothing more.

use super::ClaimId;
use poolcounter_core::Id;

/// Names by claim: empty without one; the vector ends behind the last claim that ever had one.
#[derive(Default)]
pub(super) struct ClaimOwners(Vec<Box<[u8]>>);

impl ClaimOwners {
    /// Sets the name of a new claim.
    #[inline]
    pub fn note(&mut self, id: ClaimId, who: &[u8]) {
        if who.is_empty() {
            return;
        }
        if self.0.len() <= id.index() {
            self.0.resize_with(id.index() + 1, Box::default);
        }
        self.0[id.index()] = who.into();
    }

    /// Returns the name of a claim; empty without one.
    pub fn of(&self, id: ClaimId) -> &[u8] {
        self.0.get(id.index()).map_or(&[], |who| who)
    }

    /// Removes the name of a claim that has ended.
    #[inline]
    pub fn forget(&mut self, id: ClaimId) {
        if let Some(who) = self.0.get_mut(id.index()) {
            *who = Box::default();
        }
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.0.iter().filter(|who| !who.is_empty()).count()
    }
}
