//! Who says to have a claim. Most do not say, and pay nothing for those who do.

use super::ClaimId;
use poolcounter_core::id::Id;

/// The names by claim: empty where nobody said one, and the vector ends behind the last that was ever said.
#[derive(Default)]
pub(super) struct Whos(Vec<Box<[u8]>>);

impl Whos {
    /// Notes who has a new claim.
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

    /// Returns who has the claim; empty if nobody said.
    pub fn of(&self, id: ClaimId) -> &[u8] {
        self.0.get(id.index()).map_or(&[], |who| who)
    }

    /// Forgets who had a claim that is gone.
    #[inline]
    pub fn forget(&mut self, id: ClaimId) {
        if let Some(who) = self.0.get_mut(id.index()) {
            *who = Box::default();
        }
    }

    /// Returns how many names there are.
    pub fn len(&self) -> usize {
        self.0.iter().filter(|who| !who.is_empty()).count()
    }
}
