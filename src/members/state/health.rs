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
    /// Members that are in quarantine, held back or orphaned, as far as they were looked at.
    pub kept_out: Vec<MemberRow<'a>>,
    /// Members that are held for longer than `warn_hold`, each with how long.
    pub held_long: Vec<(MemberRow<'a>, Span)>,
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
            kept_out: Vec::new(),
            held_long: Vec::new(),
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
        let can_be_long = pool.settings.warn_hold > Span::ZERO && health.row.figures.in_use > 0;
        if health.row.figures.quarantined > 0 || can_be_long {
            for member in of_pool.all().take(MOST_OF_POOL).metered() {
                visits += 1;
                match self.member(member).phase.kind() {
                    PhaseKind::Quarantined | PhaseKind::Held | PhaseKind::Delayed | PhaseKind::Orphaned => {
                        health.kept_out.push(self.member_row(member, now, peer));
                    }
                    PhaseKind::InUse => {
                        let row = self.member_row(member, now, peer);
                        if let (true, MemberPhase::InUse(lease)) = (row.is_long, &self.member(member).phase) {
                            health.held_long.push((row, now.since(self.leases.get(*lease).since)));
                        }
                    }
                    _ => {}
                }
            }
        }
        health.kept_out.sort_by_key(|row| row.idle);
        health.held_long.sort_by_key(|(_, span)| std::cmp::Reverse(*span));
        (health, visits)
    }
}
