//! Sets of watches: connections that watch the same tubes share one.
//!
//! A set of plain names gives the job with the lowest priority and number. In a set with a pattern or a weight each
//! watch has a *turn*; turns of equal priority are taken in proportion to their weights. The tubes of a turn are in the
//! order of the watch's feed, which all sets share.

use crate::state::ids::{FeedId, TubeId};
use crate::state::tube::Rank;
use poolcounter_core::{ConnId, List};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One watch of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// Pattern, or plain name.
    pub pattern: Box<[u8]>,
    /// Share of the turns.
    pub weight: u16,
    /// True if the client named the weight, which makes the turns fair.
    pub is_weighted: bool,
}

impl Watch {
    /// Returns true if tubes take turns because of this watch.
    pub fn is_fair(&self) -> bool {
        self.is_weighted || self.pattern.contains(&b'*')
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<(Watch, u64)>() + self.pattern.len()
    }
}

/// Advance of a turn's pass for each job, divided by its weight.
const STRIDE: u32 = 1 << 31;

/// Number of watches from which a set keeps the tubes with a job to give in order.
pub(in crate::state) const WIDE: usize = 32;
/// Bytes of a tube in that order.
const GIVING_BYTES: usize = 2 * size_of::<(Rank, TubeId)>();

/// One watch of a set: its feed, and its share of the turns.
pub(in crate::state) struct Turn {
    pub feed: FeedId,
    /// Ticket of the set among the feed's waiters; 0 if the set is not there.
    pub ticket: u64,
    stride: u32,
    /// Position among turns of equal priority; the lowest is next. No number of jobs reaches its end.
    pub pass: u128,
}

/// A set of watches.
pub(in crate::state) struct WatchSet {
    pub watches: Box<[Watch]>,
    /// True if the tubes take turns.
    pub is_fair: bool,
    /// Number of connections with these watches.
    pub conns: u32,
    pub waiting: List<ConnId>,
    /// True once all tubes are in its feeds.
    pub is_built: bool,
    /// Turns of the watches, by feed.
    pub turns: Box<[Turn]>,
    /// True while it has a ticket among the waiters of each of its feeds.
    pub is_registered: bool,
    /// Tubes with a job to give, by the first of these; None if the tubes take turns, are few, or are in many such
    /// sets. Then they are looked at one by one.
    pub giving: Option<BTreeSet<(Rank, TubeId)>>,
    pass: u128,
}

impl WatchSet {
    /// Returns the bytes that it takes: its watches are its key, too.
    pub fn bytes(&self) -> usize {
        let watches = self.watches.iter().map(|watch| 2 * watch.bytes() + size_of::<Turn>());
        let giving = self.giving.as_ref().map_or(0, |_| self.turns.len() * GIVING_BYTES);
        size_of::<WatchSet>() + watches.sum::<usize>() + giving
    }

    /// Returns a set that has served nothing yet, for sorted watches and their feeds.
    pub fn new(watches: Box<[Watch]>, feeds: &[FeedId]) -> WatchSet {
        let turn_of = |(watch, feed): (&Watch, &FeedId)| Turn {
            feed: *feed,
            ticket: 0,
            stride: STRIDE / u32::from(watch.weight),
            pass: 0,
        };
        let mut turns: Box<[Turn]> = watches.iter().zip(feeds).map(turn_of).collect();
        turns.sort_unstable_by_key(|turn| turn.feed);
        let is_fair = watches.iter().any(Watch::is_fair);
        WatchSet {
            watches,
            is_fair,
            conns: 0,
            waiting: List::default(),
            is_built: !is_fair,
            turns,
            is_registered: false,
            giving: None,
            pass: 0,
        }
    }

    /// Notes the ticket of the set among the waiters of a feed.
    pub fn set_ticket(&mut self, feed: FeedId, ticket: u64) {
        if let Ok(turn) = self.turns.binary_search_by_key(&feed, |turn| turn.feed) {
            self.turns[turn].ticket = ticket;
            self.is_registered &= ticket > 0;
        }
    }

    /// Notes that a job was served in this turn.
    pub fn advance(&mut self, index: usize) {
        let turn = &mut self.turns[index];
        // A turn that was idle for a while does not catch up.
        self.pass = self.pass.max(turn.pass);
        turn.pass = self.pass + u128::from(turn.stride);
    }
}
