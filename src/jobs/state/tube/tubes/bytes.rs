//! Bytes of tubes and of sums over tubes, as they count for `--jobs-max-memory`: of the present ones, and of new ones
//! that puts would add.

use super::{Tubes, part_of};
use crate::state::{SUM_BYTES, TUBE_BYTES};
use std::collections::BTreeSet;

impl Tubes {
    /// Returns the bytes of visible tubes and of sums over tubes, without the tube `default`. Hidden tubes take
    /// [`Tubes::hidden_bytes`] more until that room is needed.
    pub fn bytes(&self) -> usize {
        let (tubes, sums) = (self.visible().saturating_sub(1), self.sums.len().saturating_sub(2));
        bytes_of(tubes, sums, self.name_bytes, self.tally_bytes[0] + self.sums.tally_bytes)
    }

    /// Returns by how many [`Tubes::bytes`] grow with these tubes, none of which clients see.
    pub fn bytes_of_new(&self, names: &BTreeSet<&[u8]>) -> usize {
        let hidden = names.iter().filter_map(|name| self.find(name)).map(|tube| self[tube].tally.bytes()).sum();
        let unknown = || names.iter().copied().filter(|name| self.find(name).is_none());
        let sums = self.sums.new_with(unknown(), |tube| part_of(&self.all, tube));
        bytes_of(names.len(), sums, unknown().map(name_bytes).sum(), hidden)
    }

    /// Returns the bytes that hidden tubes take.
    pub fn hidden_bytes(&self) -> usize {
        self.hidden.len() * TUBE_BYTES + self.tally_bytes[1]
    }
}

/// Returns the bytes of visible tubes and of sums over tubes, with the bytes of their names and of their tallies.
fn bytes_of(tubes: usize, sums: usize, names: usize, tallies: usize) -> usize {
    tubes * TUBE_BYTES + sums * SUM_BYTES + names + tallies
}

/// Returns the bytes of the name of a tube, and of its parts.
pub(super) fn name_bytes(name: &[u8]) -> usize {
    3 * name.len()
}
