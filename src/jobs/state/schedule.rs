//! Work that is due at a time or goes on in slices: periodic jobs, deadlines, burials, sweeps and requests for many jobs.

pub(super) mod background;
pub(super) mod bulk;
pub(super) mod deadlines;
pub(super) mod expiry;
pub mod periodic;
pub(super) mod sweeps;
