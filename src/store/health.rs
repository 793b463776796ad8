//! Figures of a store, for operators.

use poolcounter_core::Histogram;

/// Figures of a store, for operators.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Reason for which it fails at present.
    pub fault: Option<String>,
    /// Times of commits.
    pub commits: Histogram,
    /// Times of checkpoints, each of which brings commits from the log into the file.
    pub checkpoints: Histogram,
    /// Number of changes in the last batch.
    pub last_batch: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Number of rewrites.
    pub rewrites: u64,
    /// Number of requests in the store that were refused, and the reason of one. With 0, requests cannot be read for this
    /// reason.
    pub refused: Option<(u64, String)>,
    /// Owner of the place; None if daemons do not share it.
    pub owner: Option<OwnerHealth>,
}

/// Owner of a place that several daemons share.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnerHealth {
    /// True if it is this daemon.
    pub is_self: bool,
    /// Address of the owner; empty if unknown.
    pub address: String,
    /// Number of its take-over.
    pub epoch: u64,
    /// Time of its take-over, in microseconds since the service's start.
    pub since: i64,
}
