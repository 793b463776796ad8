//! Queries for the health of pools: members that are kept out or held for long, and takes that wait.

use super::queries::{MemberRow, PoolRow};
use super::{MemberPhase, PhaseKind, PoolId, State};
use poolcounter_core::id::ConnId;
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};

/// Most members and most waiters of a pool that are looked at.
const MOST_OF_POOL: usize = 256;

/// A pool, with what may be wrong in it.
pub struct PoolHealth<'a> {
    /// The pool, with its levels.
    pub row: PoolRow<'a>,
    /// Time for which the take has waited that has waited longest.
    pub longest_wait: Span,
    /// The member that was put into quarantine, held back or orphaned last.
    pub last_out: Option<MemberRow<'a>>,
    /// Number of members that are held for longer than `warn_hold`.
    pub held_long: usize,
    /// The one of those that is held for longest, and for how long.
    pub longest_held: Option<(MemberRow<'a>, Span)>,
    /// True when a provider is connected.
    pub is_provided: bool,
    /// True when a member could be started.
    pub has_room: bool,
}

impl State {
    /// Returns pools behind this name, in the order of their names, until so many entries were looked at; and the name of the last one,
    /// if there are more.
    pub fn health_after(
        &self,
        after: Option<&[u8]>,
        most: usize,
        now: Time,
        peer: impl Fn(ConnId) -> String + Copy,
    ) -> (Vec<PoolHealth<'_>>, Option<Box<[u8]>>) {
        let (mut pools, mut left) = (Vec::new(), most);
        for id in self.pools.after(after).metered() {
            let (health, visits) = self.health_of(id, now, peer);
            let name = health.row.name;
            pools.push(health);
            left = left.saturating_sub(1 + visits);
            if left == 0 {
                return (pools, Some(name.into()));
            }
        }
        (pools, None)
    }

    fn health_of(&self, id: PoolId, now: Time, peer: impl Fn(ConnId) -> String + Copy) -> (PoolHealth<'_>, usize) {
        let (row, of_pool, pool) = (self.pool_row(id), self.members.in_pool(id), self.pool(id));
        let mut health = PoolHealth {
            longest_wait: Span::ZERO,
            last_out: None,
            held_long: 0,
            longest_held: None,
            is_provided: self.agents.is_provided(id),
            has_room: of_pool.live() < u64::from(row.figures.max),
            row,
        };
        let mut visits = 0;
        if health.row.figures.queued > 0 {
            let waiters = self.waiters.for_pool(id, pool.group).take(MOST_OF_POOL).metered();
            let since = waiters.inspect(|_| visits += 1).map(|id| self.waiters.get(id).since).min();
            health.longest_wait = since.map_or(Span::ZERO, |since| now.since(since));
        }
        let warn_hold = pool.settings.warn_hold;
        let can_be_long = warn_hold > Span::ZERO && health.row.figures.in_use > 0;
        if health.row.figures.quarantined > 0 || can_be_long {
            let (mut last_out, mut longest_held) = (None, None);
            for member in of_pool.all().take(MOST_OF_POOL).metered() {
                visits += 1;
                let of = self.member(member);
                match of.phase {
                    MemberPhase::InUse(lease) => {
                        let since = self.leases.get(lease).since;
                        if can_be_long && now.since(since) > warn_hold {
                            health.held_long += 1;
                            longest_held = longest_held.min(Some((since, member))).or(Some((since, member)));
                        }
                    }
                    _ if PhaseKind::KEPT_OUT.contains(&of.phase.kind()) => {
                        last_out = last_out.max(Some((of.since, member)));
                    }
                    _ => {}
                }
            }
            health.last_out = last_out.map(|(_, member)| self.member_row(member, now, peer));
            health.longest_held =
                longest_held.map(|(since, member)| (self.member_row(member, now, peer), now.since(since)));
        }
        (health, visits)
    }
}
