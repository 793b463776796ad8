//! Watches of connections: sets of watched tubes and patterns, and the turns by which they are served.

pub(super) mod feeds;
pub(super) mod sets;
pub(super) mod watch_sets;
pub(super) mod watches;
pub(super) mod watching;
