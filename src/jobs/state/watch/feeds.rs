//! Feeds: the tubes that one name or pattern covers, in an order that all sets of watches with it share, and the sets
//! that wait for a job of them.
//!
//! A feed of a pattern has the tubes that have a job to give, by the priority of their first job and by their *stamp*:
//! the time at which the tube came to that priority, or at which a job of that priority was last reserved. So the tubes
//! of a priority are served in rotation, whichever connections serve them. Tubes that the same limits of several tubes
//! hold back are in one *lane*, so that a limit which is reached hides all of them at once.
//!
//! Invariant: a tube is in each feed that covers it and knows it while it has a job that neither its own limit, a pause
//! nor the limit of a group holds back, as far as the latter is known to be reached.

use crate::state::ids::{FeedId, LaneId, Serials, SetId, Tickets, TubeId};
use poolcounter_core::id::index_by;
use poolcounter_core::{Id, meter};
use poolcounter_protocol::jobs::name::{Pattern, PatternMap};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// Most sets that keep a tube in order with each of its jobs.
pub(in crate::state) const MOST_WIDE: usize = 8;
/// Estimated bytes of a tube in the order of a feed.
const STANDING_BYTES: usize = 40;

/// Position of a tube in a lane: the priority of its first job, its stamp, and the tube.
pub(in crate::state) type Standing = (u32, u64, TubeId);

/// The tubes that one name or pattern covers.
#[derive(Default)]
pub(in crate::state) struct Feed {
    pub pattern: Box<[u8]>,
    /// True if it is of a name, and so of one tube.
    pub is_plain: bool,
    /// The tube of a plain name, if there is one.
    pub tube: Option<TubeId>,
    /// Slot of the table of tubes: tubes before it are in the lanes, the rest are added in slices.
    pub known: usize,
    /// Tubes of a pattern that have a job to give. No lane is empty.
    pub lanes: BTreeMap<LaneId, BTreeSet<Standing>>,
    /// Sets that have this watch.
    pub sets: BTreeSet<SetId>,
    /// The few sets of these that keep the tubes with a job to give.
    pub wide: Vec<SetId>,
    /// Sets that wait, by the ticket of their first waiting connection, or an earlier one. Some may not wait any more.
    pub waiters: BTreeSet<(u64, SetId)>,
}

impl Feed {
    /// Returns whether it covers a tube of this name.
    pub fn covers(&self, name: &[u8]) -> bool {
        Pattern::parse(&self.pattern).is_some_and(|pattern| pattern.matches(name))
    }
}

/// Every feed.
#[derive(Default)]
pub(in crate::state) struct Feeds {
    all: Slab<Feed>,
    pub by_pattern: PatternMap<FeedId>,
    /// Number that changes when a pattern is added or removed. A tube looks for its feeds anew if the number after it is
    /// not its own.
    pub epoch: u64,
    /// Feeds that may have a job for a waiting set, by the ticket of the first set or an earlier one.
    pub fresh: Tickets<FeedId>,
    /// Stamps of tubes that go to the end of their priority.
    pub stamps: Serials,
    standings: usize,
}

impl Feeds {
    /// Returns every feed.
    pub fn iter(&self) -> impl Iterator<Item = (FeedId, &Feed)> {
        self.all.iter().map(|(place, feed)| (FeedId::from_index(place), feed))
    }

    /// Returns the bytes that feeds take, and the orders of tubes in them.
    pub fn bytes(&self) -> usize {
        self.standings * STANDING_BYTES + self.all.len() * size_of::<Feed>() + 2 * self.by_pattern.bytes()
    }

    /// Keeps a place for a pattern that a connection watches, whose tubes are looked up with it from its next reserve
    /// on. Returns false if there are too many arrangements of `*`.
    pub fn admit(&mut self, pattern: &[u8]) -> bool {
        let has_room = self.by_pattern.has_room_for(pattern);
        if has_room {
            self.by_pattern.hold(pattern);
        }
        has_room
    }

    /// Returns the feeds that cover a tube of this name, the most literal first.
    pub fn covering<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = FeedId> + 'a {
        self.by_pattern.matching(name).copied()
    }

    /// Returns the feed of this name or pattern, and adds a set to it. A new feed is created; then the second value is
    /// true.
    pub fn enter(&mut self, pattern: &[u8], set: SetId) -> (FeedId, bool) {
        let known = self.by_pattern.of(pattern).copied();
        let id = known.unwrap_or_else(|| {
            let is_plain = !pattern.contains(&b'*');
            let feed = Feed { pattern: pattern.into(), is_plain, ..Feed::default() };
            self.epoch += u64::from(!is_plain);
            let id = FeedId::from_index(self.all.insert(feed));
            self.by_pattern.insert(pattern, id);
            id
        });
        self[id].sets.insert(set);
        (id, known.is_none())
    }

    /// Removes a set. The last one removes the feed, whose tube is returned if it was of one.
    pub fn leave(&mut self, id: FeedId, set: SetId) -> Option<TubeId> {
        self[id].sets.remove(&set);
        self[id].wide.retain(|wide| *wide != set);
        if !self[id].sets.is_empty() {
            return None;
        }
        self.fresh.remove(id);
        let feed = self.all.remove(id.index());
        self.by_pattern.remove(&feed.pattern);
        self.epoch += u64::from(!feed.is_plain);
        meter::visit_many(feed.lanes.len());
        self.standings -= feed.lanes.values().map(BTreeSet::len).sum::<usize>();
        feed.tube
    }

    /// Returns the feed of exactly this name or pattern.
    pub fn of_name(&self, name: &[u8]) -> Option<FeedId> {
        self.by_pattern.of(name).copied()
    }

    /// Moves a tube within the feed of a pattern, if the feed knows it.
    pub fn move_tube(&mut self, id: FeedId, lane: LaneId, old: Option<Standing>, new: Option<Standing>) {
        let feed = &mut self.all[id.index()];
        if let Some(old) = old {
            let list = feed.lanes.get_mut(&lane).expect("a lane is there as long as tubes stand in it");
            let was_there = list.remove(&old);
            debug_assert!(was_there, "a tube stands where it was put");
            self.standings -= 1;
            if list.is_empty() && new.is_none() {
                feed.lanes.remove(&lane);
            }
        }
        if let Some(new) = new {
            feed.lanes.entry(lane).or_default().insert(new);
            self.standings += 1;
        }
    }

    /// Marks a feed that may have a job for a waiting set, if it still exists.
    pub fn freshen_if_there(&mut self, id: FeedId) {
        if self.all.contains(id.index()) {
            self.freshen(id);
        }
    }

    /// Marks a feed that may have a job for a waiting set.
    pub fn freshen(&mut self, id: FeedId) {
        if self.fresh.of(id).is_none()
            && let Some((ticket, _)) = self.all[id.index()].waiters.first()
        {
            self.fresh.set(id, *ticket);
        }
    }

    /// Moves the first marked feed to its place. Returns false if another one is first then.
    pub fn is_first(&mut self, id: FeedId, ticket: u64) -> bool {
        if self.fresh.of(id) != Some(ticket) {
            self.fresh.set(id, ticket);
        }
        self.fresh.first() == Some(id)
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let mut standings = 0;
        for (id, feed) in self.iter() {
            assert_eq!(self.of_name(&feed.pattern), Some(id), "a feed is found by its pattern");
            assert!(!feed.sets.is_empty(), "a feed has a set");
            assert!(feed.lanes.values().all(|list| !list.is_empty()), "a lane has a tube");
            standings += feed.lanes.values().map(BTreeSet::len).sum::<usize>();
        }
        assert_eq!(self.fresh.len(), self.iter().filter(|(id, _)| self.fresh.of(*id).is_some()).count(), "fresh feeds");
        assert_eq!(self.standings, standings, "tubes in feeds are counted");
    }
}

index_by!(FeedId => Feeds.all: Feed);
