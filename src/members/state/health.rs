//! Queries for the health of pools: members that are kept out or held for long, and takes that wait.

use super::pools::StartFailure;
use super::queries::{MemberRow, PoolRow};
use super::waiters::Place;
use super::{Phase, PoolId, State, Viewer};
use poolcounter_core::{Metered as _, Span};

/// Most members and most waiters of a pool that are examined.
const MOST_OF_POOL: usize = 256;
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
    /// Its last failed start.
    pub failure: Option<&'a StartFailure>,
    /// True if a provider is connected.
    pub is_provided: bool,
    /// True if a connected provider may be asked for a start: it is not in backoff.
    pub can_start: bool,
    /// True if a member could be started.
    pub has_room: bool,
}

impl State {
    /// Returns pools behind this name, in the order of their names, until `most` entries were examined; and the name of
    /// the last one, if there are more.
    pub fn health_after(
        &self,
        after: Option<&[u8]>,
        most: usize,
        viewer: Viewer<'_>,
    ) -> (Vec<PoolHealth<'_>>, Option<Box<[u8]>>) {
        let (mut pools, mut left) = (Vec::new(), most);
        for id in self.pools.after(after).metered() {
            let (health, visits) = self.health_of(id, viewer);
            let name = health.row.name;
            pools.push(health);
            left = left.saturating_sub(1 + visits);
            if left == 0 {
                return (pools, Some(name.into()));
            }
        }
        (pools, None)
    }

    fn health_of(&self, id: PoolId, viewer: Viewer<'_>) -> (PoolHealth<'_>, usize) {
        let (row, pool) = (self.pool_row(id), self.pool(id));
        let mut health = PoolHealth {
            longest_wait: Span::ZERO,
            longest_out: None,
            warn_hold: pool.settings.warn_hold,
            held_long: 0,
            longest_held: None,
            unclean: match self.agents.has_any(id) {
                false => self.members.in_pool(id).count(Phase::Unclean),
                true => 0,
            },
            late: self.members.in_pool(id).late,
            failure: pool.failure.as_deref(),
            is_provided: self.agents.is_provided(id),
            can_start: self.agents.can_start(id),
            has_room: self.members.in_pool(id).live() < u64::from(row.figures.max),
            row,
        };
        let mut visits = 0;
        if health.row.figures.queued > 0 {
            let own = self.waiters.after(Place::Pool(id), None);
            let of_group = pool.group.map(|group| self.waiters.after(Place::Group(group), None));
            let waiters = own.chain(of_group.into_iter().flatten()).map(|(_, id)| id).take(MOST_OF_POOL);
            let since = waiters.inspect(|_| visits += 1).map(|id| self.waiters.get(id).since).min();
            health.longest_wait = since.map_or(Span::ZERO, |since| viewer.now.since(since));
        }
        visits += self.look_at_members(id, &mut health, viewer);
        (health, visits)
    }

    /// Notes the members of a pool that are kept out or held for long. Returns the number of visited members.
    fn look_at_members<'a>(&'a self, id: PoolId, health: &mut PoolHealth<'a>, viewer: Viewer<'_>) -> usize {
        let (figures, warn_hold) = (&health.row.figures, self.pool(id).settings.warn_hold);
        let looks_at_holds = figures.in_use > 0 && (warn_hold > Span::ZERO || health.row.figures.is_removing);
        if figures.quarantined == 0 && !looks_at_holds {
            return 0;
        }
        let (mut visits, mut longest_out, mut longest_held) = (0, None, None);
        for member in self.members.in_pool(id).all().take(MOST_OF_POOL).metered() {
            visits += 1;
            let of = self.member(member);
            match of.lease() {
                Some(lease) => {
                    let since = self.leases.get(lease).since;
                    health.held_long += usize::from(warn_hold > Span::ZERO && viewer.now.since(since) > warn_hold);
                    if looks_at_holds {
                        longest_held = longest_held.min(Some((since, member))).or(Some((since, member)));
                    }
                }
                _ if Phase::KEPT_OUT.contains(&of.phase) => {
                    longest_out = longest_out.min(Some((of.since, member))).or(Some((of.since, member)));
                }
                _ => {}
            }
        }
        health.longest_out = longest_out.map(|(_, member)| self.member_row(member, viewer));
        health.longest_held =
            longest_held.map(|(since, member)| (self.member_row(member, viewer), viewer.now.since(since)));
        visits
    }
}
