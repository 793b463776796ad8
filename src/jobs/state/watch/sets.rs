//! Sets of watches: connections that watch the same tubes share one.
//!
//! A set of plain names gives the job with the lowest priority and number. In a set with a pattern or a weight each
//! watch has a *turn*; turns of equal priority are taken in proportion to their weights. The tubes of a turn are in the
//! order of the watch's feed, which all sets share.

use crate::state::ids::{FeedId, TubeId};
use crate::state::tube::Rank;
use poolcounter_core::count::first_before;
use poolcounter_core::id::ConnId;
use poolcounter_core::list::List;
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
        size_of::<(Watch, u32)>() + self.pattern.len()
    }
}

/// Advance of a turn's pass for each job, divided by its weight.
const STRIDE: u64 = 1 << 32;
/// Pass at which all passes are rebased near zero: at most once in 2^30 jobs, and far from the largest number.
const REBASED_FROM: u64 = 1 << 62;

/// Number of watches from which a set keeps the tubes with a job to give in order.
pub(in crate::state) const WIDE: usize = 32;
/// Bytes of a tube in that order.
const GIVING_BYTES: usize = 2 * size_of::<(Rank, TubeId)>();

/// One watch of a set: its feed, and its share of the turns.
pub(in crate::state) struct Turn {
    pub feed: FeedId,
    /// Ticket of the set among the feed's waiters; 0 if the set is not there.
    pub ticket: u64,
    stride: u64,
    /// Position among turns of equal priority; the lowest is next.
    pub pass: u64,
}

/// A set of watches.
pub(in crate::state) struct WatchSet {
    pub watches: Box<[Watch]>,
    /// True if the tubes take turns.
    pub is_fair: bool,
    /// Number of connections with these watches.
    pub conns: u32,
    pub waiting: List<ConnId>,
    /// Ticket among the sets whose search for a job is unfinished.
    pub awake: Option<u64>,
    /// True once all tubes are in its feeds.
    pub is_built: bool,
    /// Turns of the watches, by feed.
    pub turns: Box<[Turn]>,
    /// True while it has a ticket among the waiters of each of its feeds.
    pub is_registered: bool,
    /// Tubes with a job to give, by the first of these; None if the tubes take turns, are few, or are in many such
    /// sets. Then they are looked at one by one.
    pub giving: Option<BTreeSet<(Rank, TubeId)>>,
    pass: u64,
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
            stride: STRIDE / u64::from(watch.weight),
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
            awake: None,
            is_built: !is_fair,
            turns,
            is_registered: false,
            giving: None,
            pass: first_before(REBASED_FROM),
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
        turn.pass = self.pass + turn.stride;
        if self.pass >= REBASED_FROM {
            self.rebase();
        }
    }

    /// Brings all passes near zero, and keeps their order. Turns behind the pass of the set keep only their order,
    /// because each goes on from that pass when it is served; the other turns keep their distance to it.
    fn rebase(&mut self) {
        let mut behind: Vec<u64> = self.turns.iter().map(|turn| turn.pass).filter(|pass| *pass < self.pass).collect();
        behind.sort_unstable();
        behind.dedup();
        let base = behind.len() as u64;
        for turn in &mut self.turns {
            turn.pass = match turn.pass.checked_sub(self.pass) {
                Some(ahead) => base + ahead,
                None => behind.partition_point(|pass| *pass < turn.pass) as u64,
            };
        }
        self.pass = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;

    /// Serves a job of the next turn that has some, and returns that turn.
    fn serve(set: &mut WatchSet, has_jobs: [bool; 4]) -> usize {
        let turns = (0..4).filter(|turn| has_jobs[*turn]);
        let turn = turns.min_by_key(|turn| set.turns[*turn].pass).expect("a turn has a job");
        set.advance(turn);
        turn
    }

    #[test]
    fn turns_are_the_same_however_many_jobs_there_were() {
        let set = || {
            let watch = |weight| Watch { pattern: Box::default(), weight, is_weighted: true };
            let feeds: Vec<FeedId> = (0..4).map(FeedId::from_index).collect();
            WatchSet::new([1, 3, 7, 1000].map(watch).into(), &feeds)
        };
        let (mut new, mut old) = (set(), set());
        // The state after 2^30 - 50 jobs of the first turn.
        let begin = REBASED_FROM - 50 * STRIDE;
        old.pass += begin;
        old.turns.iter_mut().for_each(|turn| turn.pass += begin);
        let mut has_jobs = [true; 4];
        for served in 0..200_000_u32 {
            // Now and then a turn has no jobs for a while, and is behind the others when it has some again.
            for (turn, pause) in [(1, 900), (2, 5_000)] {
                match served % (10 * pause) {
                    after if after == 3 * pause => has_jobs[turn] = false,
                    after if after == 8 * pause => has_jobs[turn] = true,
                    _ => {}
                }
            }
            assert_eq!(serve(&mut old, has_jobs), serve(&mut new, has_jobs), "job {served}");
        }
        assert!(old.pass < new.pass, "the passes of the set have begun anew");
    }
}
