//! Figures: tallies, sums by parts of names, and the contents of pages, listings and conditions.

pub mod health;
pub mod queries;
pub(super) mod sums;
pub(super) mod tally;
pub mod views;
