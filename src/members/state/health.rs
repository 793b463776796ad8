//! Queries for the health of pools: members that are kept out or held for long, and takes that wait.

use super::queries::{MemberRow, PoolRow};
use super::waiter_list::WaiterRow;
use super::waiters::Place;
use super::{MemberId, MemberPhase, PhaseKind, PoolId, State, WaiterId};
use poolcounter_core::id::ConnId;
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};

/// Most members and most waiters of a pool that are examined.
const MOST_OF_POOL: usize = 256;
/// Number of a pool's takes for which the members that fit are examined.
const MOST_STARVING: usize = 16;

/// A pool, with its possible problems.
pub struct PoolHealth<'a> {
    /// Pool with its levels.
    pub row: PoolRow<'a>,
    /// Time for which the oldest take has waited.
    pub longest_wait: Span,
    /// Member that has been in quarantine, held back or orphaned for longest.
    pub longest_out: Option<MemberRow<'a>>,
    /// Age from which a member is held for long; zero means never.
    pub warn_hold: Span,
    /// Number of members that are held for longer than `warn_hold`.
    pub held_long: usize,
    /// Member that is held for longest, with the time; of pools with `warn_hold` and of pools that are being removed.
    pub longest_held: Option<(MemberRow<'a>, Span)>,
    /// Number of members that wait to be cleaned, if no cleaner is connected.
    pub unclean: u32,
    /// Number of members whose cleaning takes longer than `clean_timeout`.
    pub late: u32,
    /// True if a provider is connected.
    pub is_provided: bool,
    /// True if a connected provider may be asked for a start: it is not in backoff.
    pub can_start: bool,
    /// True if a member could be started.
    pub has_room: bool,
    /// True if the pool is being removed.
    pub is_leaving: bool,
    /// The oldest take with a filter for which each member that fits is kept out, or held since before the take.
    pub starving: Option<Starving<'a>>,
    /// The take for several that reserves free members.
    pub reserving: Option<WaiterRow<'a>>,
}

/// Take with a filter, for which no member comes free.
pub struct Starving<'a> {
    /// The take.
    pub waiter: WaiterRow<'a>,
    /// Number of members that fit.
    pub fitting: u32,
    /// One of these.
    pub member: Option<MemberRow<'a>>,
}

/// A take that may starve, and the members that fit.
struct Candidate {
    waiter: WaiterId,
    since: Time,
    fitting: u32,
    member: Option<MemberId>,
    has_hope: bool,
}

impl State {
    /// Returns pools behind this name, in the order of their names, until `most` entries were examined; and the name of
    /// the last one, if there are more. Takes starve if they have waited for longer than `warn_wait`; zero means never.
    pub fn health_after(
        &self,
        after: Option<&[u8]>,
        most: usize,
        warn_wait: Span,
        now: Time,
        peer: impl Fn(ConnId) -> String + Copy,
    ) -> (Vec<PoolHealth<'_>>, Option<Box<[u8]>>) {
        let (mut pools, mut left) = (Vec::new(), most);
        for id in self.pools.after(after).metered() {
            let (health, visits) = self.health_of(id, warn_wait, now, peer);
            let name = health.row.name;
            pools.push(health);
            left = left.saturating_sub(1 + visits);
            if left == 0 {
                return (pools, Some(name.into()));
            }
        }
        (pools, None)
    }

    fn health_of(
        &self,
        id: PoolId,
        warn_wait: Span,
        now: Time,
        peer: impl Fn(ConnId) -> String + Copy,
    ) -> (PoolHealth<'_>, usize) {
        let (row, pool) = (self.pool_row(id), self.pool(id));
        let mut health = PoolHealth {
            longest_wait: Span::ZERO,
            longest_out: None,
            warn_hold: pool.settings.warn_hold,
            held_long: 0,
            longest_held: None,
            unclean: match self.agents.has_any(id) {
                false => self.members.in_pool(id).count(PhaseKind::Unclean),
                true => 0,
            },
            late: self.members.in_pool(id).late(),
            is_provided: self.agents.is_provided(id),
            can_start: self.agents.can_start(id),
            has_room: self.members.in_pool(id).live() < u64::from(row.figures.max),
            is_leaving: pool.is_leaving,
            starving: None,
            reserving: None,
            row,
        };
        let (mut visits, mut candidates) = (0, Vec::new());
        if health.row.figures.queued > 0 {
            let own = self.waiters.after(Place::Pool(id), None);
            let of_group = pool.group.map(|group| self.waiters.after(Place::Group(group), None));
            let waiters = own.chain(of_group.into_iter().flatten()).map(|(_, id)| id).take(MOST_OF_POOL);
            let since = waiters.inspect(|_| visits += 1).map(|id| self.waiters.get(id).since).min();
            health.longest_wait = since.map_or(Span::ZERO, |since| now.since(since));
            health.reserving = self.reserving_waiter(id).map(|(_, waiter)| self.waiter_row(waiter, now, peer));
            let can_start = health.has_room && health.can_start;
            if warn_wait > Span::ZERO && !can_start && self.members.in_pool(id).live() <= MOST_OF_POOL as u64 {
                candidates = self.candidates(id, warn_wait, now);
            }
        }
        visits += self.look_at_members(id, &mut health, &mut candidates, now, peer);
        let starving = candidates.iter().find(|candidate| !candidate.has_hope);
        health.starving = starving.map(|candidate| Starving {
            waiter: self.waiter_row(candidate.waiter, now, peer),
            fitting: candidate.fitting,
            member: candidate.member.map(|member| self.member_row(member, now, peer)),
        });
        (health, visits)
    }

    /// Notes the members of a pool that are kept out or held for long, and those that fit the candidates. Returns the
    /// number of visited members.
    fn look_at_members<'a>(
        &'a self,
        id: PoolId,
        health: &mut PoolHealth<'a>,
        candidates: &mut [Candidate],
        now: Time,
        peer: impl Fn(ConnId) -> String + Copy,
    ) -> usize {
        let (figures, warn_hold) = (&health.row.figures, self.pool(id).settings.warn_hold);
        let looks_at_holds = figures.in_use > 0 && (warn_hold > Span::ZERO || health.is_leaving);
        if figures.quarantined == 0 && !looks_at_holds && candidates.is_empty() {
            return 0;
        }
        let (mut visits, mut longest_out, mut longest_held) = (0, None, None);
        for member in self.members.in_pool(id).all().take(MOST_OF_POOL).metered() {
            visits += 1;
            let of = self.member(member);
            let mut held_since = None;
            match of.phase {
                MemberPhase::InUse(lease) => {
                    let since = self.leases.get(lease).since;
                    held_since = Some(since);
                    health.held_long += usize::from(warn_hold > Span::ZERO && now.since(since) > warn_hold);
                    if looks_at_holds {
                        longest_held = longest_held.min(Some((since, member))).or(Some((since, member)));
                    }
                }
                _ if PhaseKind::KEPT_OUT.contains(&of.phase.kind()) => {
                    longest_out = longest_out.min(Some((of.since, member))).or(Some((of.since, member)));
                    held_since = Some(Time::START);
                }
                _ => {}
            }
            candidates.iter_mut().for_each(|candidate| self.consider(candidate, member, held_since));
        }
        health.longest_out = longest_out.map(|(_, member)| self.member_row(member, now, peer));
        health.longest_held =
            longest_held.map(|(since, member)| (self.member_row(member, now, peer), now.since(since)));
        visits
    }

    /// Returns the oldest takes from this pool alone that wait for one member with a filter for longer than
    /// `warn_wait`.
    fn candidates(&self, id: PoolId, warn_wait: Span, now: Time) -> Vec<Candidate> {
        let waiters = self.waiters.after(Place::Pool(id), None).map(|(_, id)| id).take(MOST_OF_POOL);
        let late = waiters.filter(|waiter| {
            let waiter = self.waiters.get(*waiter);
            waiter.filter.is_some() && !waiter.is_several() && now.since(waiter.since) > warn_wait
        });
        let candidate = |waiter| {
            let since = self.waiters.get(waiter).since;
            Candidate { waiter, since, fitting: 0, member: None, has_hope: false }
        };
        let mut candidates: Vec<Candidate> = late.map(candidate).collect();
        candidates.sort_by_key(|candidate| candidate.since);
        candidates.truncate(MOST_STARVING);
        candidates
    }

    /// Notes a member that fits a take: one that is free or comes back soon, or that is kept out or held since that
    /// time.
    fn consider(&self, candidate: &mut Candidate, member: MemberId, held_since: Option<Time>) {
        if self.fits(candidate.waiter, member) {
            candidate.fitting += 1;
            candidate.member = Some(member);
            candidate.has_hope |= held_since.is_none_or(|held| held > candidate.since);
        }
    }
}
