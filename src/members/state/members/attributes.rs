//! Index of members by attribute. For each attribute of a pool there is a queue of its idle members, and a set of all
//! that have it.
//!
//! A search goes through the shortest queue, in the order in which members are handed out. If the queue is long and few
//! of its members match, the search continues in the sets, 64 members at a time; then the order is that of the matches
//! examined.

use super::{MemberId, MemberTable, Phase, PoolId};
use crate::state::{MOST_AT_ONCE, PairId, Pairs};
use poolcounter_core::id::id;
use poolcounter_core::{Id as _, Links, List, meter};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::Attributes;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most members of the shortest queue that a search examines, besides those that it returns, before it uses the sets.
const MOST_WALKED: usize = 256;
/// Most matches in the sets that a search examines: more than may be reserved for a waiter and asked for by a take
/// together.
const MOST_MATCHES: usize = 2 * MOST_AT_ONCE as usize;
/// Owner of an attribute in any pool.
const ANY_POOL: u64 = u64::MAX;
/// Number of words of a set that take as long as a visit of a member.
const WORDS_OF_A_VISIT: usize = 8;

id! {
    /// Id of a member in the queue of an attribute.
    PostingId
}

/// Attributes of the members that have some.
#[derive(Default)]
pub(in crate::state) struct MemberAttributes {
    of_members: Vec<Option<OfMember>>,
    pairs: Pairs<Having>,
    /// Pools that have members with an attribute.
    pools: Pairs<BTreeSet<PoolId>>,
    postings: Slab<Posting>,
    links: Links,
    /// The free members among them, as bits.
    free: Vec<u64>,
}

struct OfMember {
    attributes: Arc<Attributes>,
    /// Entry for each attribute.
    postings: Box<[PostingId]>,
}

struct Posting {
    member: MemberId,
    pair: PairId,
}

/// The members of a pool that have an attribute.
#[derive(Default)]
struct Having {
    /// Free or checked members, longest idle first.
    idle: List<PostingId>,
    all: MemberSet,
}

/// Set of members, 64 in a word, without empty words.
#[derive(Default)]
struct MemberSet {
    words: Vec<(u32, u64)>,
}

/// Request of a search.
pub(in crate::state) struct Wanted<'a> {
    pub attributes: &'a Attributes,
    pub members: usize,
    /// True if the longest idle come last.
    pub is_back: bool,
}

impl MemberTable {
    /// Returns the attributes of a member; None without any.
    pub fn attributes(&self, id: MemberId) -> Option<&Arc<Attributes>> {
        self.attributes.of(id)
    }

    pub fn matches(&self, filter: &Filter, id: MemberId) -> bool {
        filter.matches(&self.get(id).name, self.attributes(id).map(|attributes| &**attributes))
    }

    /// Returns free members of a pool that have the wanted attributes and for which `is_meant` is true, in the order in
    /// which they are handed out: as many as are wanted, or all that there are.
    pub fn find_free(&self, pool: PoolId, wanted: &Wanted<'_>, is_meant: impl Fn(&MemberId) -> bool) -> Vec<MemberId> {
        let mut found = self.attributes.find_free(pool, wanted, is_meant);
        // Members that became free together stay in order.
        match wanted.is_back {
            true => found.sort_by_key(|id| Reverse(self.get(*id).since)),
            false => found.sort_by_key(|id| self.get(*id).since),
        }
        found.truncate(wanted.members);
        found
    }

    pub fn set_attributes(&mut self, id: MemberId, attributes: impl Into<Arc<Attributes>>) {
        let (pool, kind) = (self.get(id).pool, self.get(id).phase);
        let is_idle = matches!(kind, Phase::Free | Phase::Checking);
        if is_idle {
            self.attributes.leave_idle(id);
            self.attributes.set_free(id, false);
        }
        self.attributes.set(id, pool, attributes.into());
        if is_idle {
            self.attributes.enter_idle(id);
            self.attributes.set_free(id, kind == Phase::Free);
        }
    }
}

impl MemberAttributes {
    /// Returns the attributes of a member; None without any.
    pub fn of(&self, id: MemberId) -> Option<&Arc<Attributes>> {
        Some(&self.of_members.get(id.index())?.as_ref()?.attributes)
    }

    /// Sets the attributes of a member that is not idle.
    pub fn set(&mut self, id: MemberId, pool: PoolId, attributes: Arc<Attributes>) {
        self.clear(id, pool);
        if attributes.is_empty() {
            return;
        }
        let mut postings = Vec::with_capacity(attributes.len());
        for (name, value) in &*attributes {
            let pair = self.pairs.find_or_add(owner_of(pool), name, value);
            let all = &mut self.pairs.get_mut(pair).all;
            if all.words.is_empty() {
                let pools = self.pools.find_or_add(ANY_POOL, name, value);
                self.pools.get_mut(pools).insert(pool);
            }
            all.insert(id);
            postings.push(PostingId::from_index(self.postings.insert(Posting { member: id, pair })));
        }
        if self.of_members.len() <= id.index() {
            self.of_members.resize_with(id.index() + 1, || None);
            self.free.resize(id.index() / 64 + 1, 0);
        }
        self.of_members[id.index()] = Some(OfMember { attributes, postings: postings.into() });
    }

    fn clear(&mut self, id: MemberId, pool: PoolId) {
        let Some(of_member) = self.of_members.get_mut(id.index()).and_then(Option::take) else { return };
        for (posting, (name, value)) in of_member.postings.iter().zip(&*of_member.attributes) {
            let Posting { pair, .. } = self.postings.remove(posting.index());
            let all = &mut self.pairs.get_mut(pair).all;
            all.remove(id);
            if all.words.is_empty() {
                self.pairs.remove(pair);
                self.leave_pools(pool, name, value);
            }
        }
    }

    /// Removes a pool that has no member with an attribute any more.
    fn leave_pools(&mut self, pool: PoolId, name: &[u8], value: &[u8]) {
        let pair = self.pools.find(ANY_POOL, name, value).expect("an attribute of a pool has its pools");
        let pools = self.pools.get_mut(pair);
        pools.remove(&pool);
        if pools.is_empty() {
            self.pools.remove(pair);
        }
    }

    /// Returns the pools that have members with the attribute that the fewest pools have; None without attributes.
    pub fn pools_with(&self, attributes: &Attributes) -> Option<&BTreeSet<PoolId>> {
        const NONE: &BTreeSet<PoolId> = &BTreeSet::new();
        let pools = |(name, value): &(Box<[u8]>, Box<[u8]>)| self.pools.find(ANY_POOL, name, value);
        let pools = attributes.iter().map(|attribute| pools(attribute).map_or(NONE, |pair| self.pools.get(pair)));
        pools.min_by_key(|pools| pools.len())
    }

    /// Appends a member to the queues of its attributes.
    #[inline]
    pub fn enter_idle(&mut self, id: MemberId) {
        let Some(Some(of_member)) = self.of_members.get(id.index()) else { return };
        for posting in &of_member.postings {
            let pair = self.postings[posting.index()].pair;
            self.pairs.get_mut(pair).idle.push_back(&mut self.links, *posting);
        }
    }

    /// Removes a member from the queues of its attributes.
    #[inline]
    pub fn leave_idle(&mut self, id: MemberId) {
        let Some(Some(of_member)) = self.of_members.get(id.index()) else { return };
        for posting in &of_member.postings {
            let pair = self.postings[posting.index()].pair;
            self.pairs.get_mut(pair).idle.remove(&mut self.links, *posting);
        }
    }

    /// Sets whether a member is free.
    #[inline]
    pub fn set_free(&mut self, id: MemberId, is_free: bool) {
        if let Some(Some(_)) = self.of_members.get(id.index()) {
            let (word, bit) = (&mut self.free[id.index() / 64], 1 << (id.index() % 64));
            *word = if is_free { *word | bit } else { *word & !bit };
        }
    }

    /// Returns whether a member of the pool, free or not, has all of some attributes.
    pub fn has_any(&self, pool: PoolId, attributes: &Attributes) -> bool {
        self.having(pool, attributes).is_some_and(|having| common(&having).any(|(_, bits)| bits != 0))
    }

    /// Returns the free members of a pool that have the wanted attributes and for which `is_meant` is true: as many as
    /// are wanted, or all that there are, in the order in which they are handed out.
    pub fn find_free(&self, pool: PoolId, wanted: &Wanted<'_>, is_meant: impl Fn(&MemberId) -> bool) -> Vec<MemberId> {
        match &wanted.attributes[..] {
            // A single attribute, as in most takes, needs no table.
            [(name, value)] => match self.pairs.find(owner_of(pool), name, value) {
                Some(pair) => self.search(&[self.pairs.get(pair)], wanted, is_meant),
                None => Vec::new(),
            },
            _ => match self.having(pool, wanted.attributes) {
                Some(having) => self.search(&having, wanted, is_meant),
                None => Vec::new(),
            },
        }
    }

    fn search(&self, having: &[&Having], wanted: &Wanted<'_>, is_meant: impl Fn(&MemberId) -> bool) -> Vec<MemberId> {
        let Some(Having { idle, .. }) = having.iter().min_by_key(|having| having.idle.len()) else { return Vec::new() };
        let most_walked = MOST_WALKED + wanted.members;
        let has_all = |id: &MemberId| having.len() == 1 || having.iter().all(|having| having.all.has(*id));
        let walked = self.walk(idle, wanted.is_back).take(most_walked).filter(|id| self.is_free(*id) && has_all(id));
        let found: Vec<MemberId> = walked.filter(&is_meant).take(wanted.members).collect();
        if found.len() == wanted.members || idle.len() as usize <= most_walked {
            return found;
        }
        let free = common(having).flat_map(|(n, bits)| members_of(n, bits & self.free[n as usize]));
        free.take(MOST_MATCHES).filter(is_meant).collect()
    }

    /// Returns the members of a queue from one end to the other.
    fn walk(&self, idle: &List<PostingId>, is_back: bool) -> impl Iterator<Item = MemberId> {
        let mut next = if is_back { idle.back() } else { idle.front() };
        std::iter::from_fn(move || {
            let id = next?;
            meter::visit();
            next = if is_back { self.links.before(id) } else { self.links.after(id) };
            Some(self.postings[id.index()].member)
        })
    }

    fn is_free(&self, id: MemberId) -> bool {
        self.free[id.index() / 64] & 1 << (id.index() % 64) != 0
    }

    /// Returns the members that have each attribute, fewest words first; None if no member has one of them.
    fn having(&self, pool: PoolId, attributes: &Attributes) -> Option<Vec<&Having>> {
        let find = |(name, value): &(Box<[u8]>, Box<[u8]>)| {
            Some(self.pairs.get(self.pairs.find(owner_of(pool), name, value)?))
        };
        let mut having: Vec<&Having> = attributes.iter().map(find).collect::<Option<_>>()?;
        having.sort_by_key(|having| having.all.words.len());
        Some(having)
    }

    /// Compares the queues and sets with the members; `state_of` returns the pool and phase of one.
    pub fn check(&self, state_of: impl Fn(MemberId) -> (PoolId, Phase)) {
        let (mut having, mut queued) = (0, 0);
        for (index, of_member) in self.of_members.iter().enumerate() {
            let id = MemberId::from_index(index);
            let Some(OfMember { attributes, postings }) = of_member else {
                assert!(!self.is_free(id), "a member without attributes is found by none");
                continue;
            };
            let (pool, kind) = state_of(id);
            assert_eq!(self.is_free(id), kind == Phase::Free, "free members are found by their attributes");
            assert_eq!(postings.len(), attributes.len(), "each attribute has its place");
            for (posting, (name, value)) in postings.iter().zip(&**attributes) {
                let Posting { member, pair } = self.postings[posting.index()];
                assert_eq!(self.pairs.find(owner_of(pool), name, value), Some(pair), "an attribute is found");
                assert!(member == id && self.pairs.get(pair).all.has(id), "a member is found by its attributes");
                let is_idle = matches!(kind, Phase::Free | Phase::Checking);
                assert_eq!(self.links.is_linked(*posting), is_idle, "idle members are in the queues");
                having += 1;
                queued += u32::from(is_idle);
            }
        }
        let sets = || self.pairs.iter().map(|(_, having)| having);
        let pools = self.pools.iter().map(|(_, pools)| pools.len()).sum::<usize>();
        assert_eq!(pools, sets().count(), "an attribute of a pool has its pools");
        let members = sets().flat_map(|having| &having.all.words).map(|(_, bits)| bits.count_ones()).sum::<u32>();
        assert_eq!((members as usize, self.postings.len()), (having, having), "a set has its own members");
        assert_eq!(sets().map(|having| having.idle.len()).sum::<u32>(), queued, "a queue has its own members");
        assert!(sets().all(|having| !having.all.words.is_empty()), "an attribute has members");
    }
}

impl MemberSet {
    fn place_of(&self, n: u32) -> Result<usize, usize> {
        self.words.binary_search_by_key(&n, |(n, _)| *n)
    }

    fn insert(&mut self, id: MemberId) {
        let (n, bit) = word_of(id);
        match self.place_of(n) {
            Ok(at) => self.words[at].1 |= bit,
            Err(at) => self.words.insert(at, (n, bit)),
        }
    }

    fn remove(&mut self, id: MemberId) {
        let (n, bit) = word_of(id);
        let Ok(at) = self.place_of(n) else { return };
        self.words[at].1 &= !bit;
        if self.words[at].1 == 0 {
            self.words.remove(at);
        }
    }

    fn has(&self, id: MemberId) -> bool {
        let (n, bit) = word_of(id);
        self.place_of(n).is_ok_and(|at| self.words[at].1 & bit != 0)
    }
}

fn owner_of(pool: PoolId) -> u64 {
    pool.index() as u64
}

/// Returns the number of the word of a member, and its bit.
fn word_of(id: MemberId) -> (u32, u64) {
    // Lossless: an id is a u32.
    ((id.index() / 64) as u32, 1 << (id.index() % 64))
}

fn members_of(n: u32, mut bits: u64) -> impl Iterator<Item = MemberId> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros();
        (bits != 0).then(|| {
            meter::visit();
            bits &= bits - 1;
            MemberId::from_index(n as usize * 64 + bit as usize)
        })
    })
}

/// Returns the words of the members that are in each set; the first set has the fewest.
fn common<'a>(having: &'a [&'a Having]) -> impl Iterator<Item = (u32, u64)> + 'a {
    let mut places = vec![0; having.len()];
    let words = having[0].all.words.iter().enumerate();
    words.map(move |(at, (n, bits))| {
        if at % WORDS_OF_A_VISIT == 0 {
            meter::visit();
        }
        let mut bits = *bits;
        for (having, place) in having.iter().zip(&mut places).skip(1) {
            let words = &having.all.words[*place..];
            // The next word, if most members have the attribute.
            *place += match words.first() {
                Some((first, _)) if first >= n => 0,
                _ => words.partition_point(|(other, _)| other < n),
            };
            bits &= having.all.words.get(*place).filter(|(other, _)| other == n).map_or(0, |(_, bits)| *bits);
        }
        (*n, bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(all: &[(&str, usize)]) -> Attributes {
        all.iter().map(|(name, value)| (name.as_bytes().into(), value.to_string().into_bytes().into())).collect()
    }

    /// A search gives the same result as a look at each member, with queues as with sets.
    #[test]
    fn search_finds_members_by_attributes() {
        let (pool, mut table) = (PoolId::from_index(0), MemberAttributes::default());
        let ids = || (0..5_000).map(MemberId::from_index);
        let attributes_of =
            |id: MemberId| pairs(&[("two", id.index() % 2), ("step", id.index() / 1_250), ("id", id.index())]);
        for id in ids() {
            table.set(id, pool, attributes_of(id).into());
            table.enter_idle(id);
            table.set_free(id, id.index() % 3 > 0);
        }
        let filters =
            [&[("two", 1)][..], &[("two", 0), ("step", 3)], &[("step", 0), ("two", 1)], &[("id", 7), ("two", 1)]];
        for (filter, members) in filters.into_iter().flat_map(|filter| [(filter, 1), (filter, 300)]) {
            for is_back in [false, true] {
                let attributes = pairs(filter);
                let has_all = |id: &MemberId| attributes.iter().all(|pair| attributes_of(*id).contains(pair));
                let matches = ids().filter(|id| table.is_free(*id) && has_all(id)).count();
                let found = table.find_free(pool, &Wanted { attributes: &attributes, members, is_back }, |_| true);
                assert!(found.iter().all(|id| table.is_free(*id) && has_all(id)), "{filter:?}");
                assert_eq!(found.len().min(members), matches.min(members), "{filter:?}");
                assert!(table.has_any(pool, &attributes));
            }
        }
        assert!(!table.has_any(pool, &pairs(&[("id", 7), ("two", 0)])));
        ids().for_each(|id| table.leave_idle(id));
        ids().for_each(|id| table.set(id, pool, Arc::default()));
        assert_eq!((table.pairs.iter().count(), table.postings.len()), (0, 0));
    }
}
