//! Ends of leases, and the last holders of each fixed member: who had it, from when until when, and how that ended.

use super::{Lease, LeaseId, Member, Moment, News, State, Step};
use crate::stats::MemberStat as Stat;
use poolcounter_core::ConnId;
use poolcounter_protocol::members::request::{Lost, Named, Refusal};
use poolcounter_protocol::members::wire::replies::lost_of;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Most holders that are kept for a fixed member.
const MOST_HOLDERS: usize = 16;

/// End of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ending {
    /// The holder has returned the member in good state.
    Returned,
    /// The holder has returned the member as failed.
    Failed,
    /// The connection of the holder has ended.
    Gone,
    /// The holder has lost the member.
    Lost(Lost),
}

impl Ending {
    /// Returns its word in the protocol, its words in the log, and its statistic, unless it is a return.
    fn row(self) -> (&'static str, &'static str, Option<Stat>) {
        let (words, stat) = match self {
            Ending::Returned => return ("returned", "was returned", None),
            Ending::Failed => return ("failed", "was returned", None),
            Ending::Gone => return ("lost", "ended with its connection", Some(Stat::LeaseLost)),
            Ending::Lost(Lost::Died) => ("ended because the member was reported dead", Stat::LeaseDied),
            Ending::Lost(Lost::Withdrawn) => ("ended because the member was withdrawn", Stat::LeaseWithdrawn),
            Ending::Lost(Lost::TakenBack) => ("was taken back", Stat::LeaseTakenBack),
            Ending::Lost(Lost::HeldTooLong) => ("was held for longer than max_hold", Stat::LeaseHeldTooLong),
            Ending::Lost(Lost::ProviderLost) => ("ended with the provider", Stat::LeaseProviderLost),
            Ending::Lost(Lost::Removed) => ("ended because the pool was removed", Stat::LeaseRemoved),
            Ending::Lost(Lost::Expired) => ("ran out", Stat::LeaseExpired),
        };
        let name = if let Ending::Lost(reason) = self { lost_of(reason) } else { "" };
        (name, words, Some(stat))
    }

    /// Returns its word in the protocol.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns its words in the log.
    pub fn words(self) -> &'static str {
        self.row().1
    }
}

/// End of a lease, with the peer that caused it, if that is not the holder, and its note.
pub(super) struct End<'a> {
    pub ending: Ending,
    pub by: String,
    pub note: &'a [u8],
}

impl End<'_> {
    /// Returns an end that no other peer has caused.
    pub fn plain(ending: Ending) -> Self {
        End { ending, by: String::new(), note: b"" }
    }
}

/// Lease of a fixed member, present or past.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PastLease {
    /// Number of the lease.
    pub lease: u64,
    /// Name of the holder, else its address.
    pub holder: Arc<[u8]>,
    /// Address from which the member was taken.
    pub address: Arc<[u8]>,
    /// Time of the take.
    pub since: Moment,
    /// Time of the end, how it ended, and by whom if not by the holder; None while it lasts.
    pub end: Option<(Moment, Ending, Box<[u8]>)>,
}

impl State {
    /// Notes the holder of a fixed member that was taken.
    pub(super) fn note_holder(&mut self, id: LeaseId, conn: ConnId, step: &Step<'_, '_>) {
        let Lease { number: lease, member, since, .. } = *self.leases.get(id);
        if self.member(member).owner.is_none() {
            let address = self.leases.address_of(conn, step.peer);
            let holder = self.leases.name(conn).unwrap_or(&address).clone();
            let past = PastLease { lease, holder, address, since: self.moment(since), end: None };
            let history = &mut self.members.beside_mut(member).history;
            if history.len() >= MOST_HOLDERS {
                history.pop_front();
            }
            history.push_back(past);
        }
    }

    /// Notes the end of a lease: for a fixed member in its history, and without a return for the operator.
    pub(super) fn note_end(&mut self, lease: &Lease, holder: String, end: End<'_>, step: &mut Step<'_, '_>) {
        let Lease { number, member: id, since, .. } = *lease;
        let Member { pool, owner, .. } = *self.member(id);
        let End { ending, by, note } = end;
        if owner.is_none() {
            let at = self.moment(step.now);
            if let Some(past) = self.members.history_mut(id).find(|past| past.lease == number) {
                past.end = Some((at, ending, by.as_bytes().into()));
            }
        }
        if let (.., Some(stat)) = ending.row() {
            self.pools.count(pool, stat);
            let (held, note) = (step.now.since(since), note.into());
            self.note(id, by, News::LeaseEnded { lease: number, held, holder, ending, note }, step);
        }
    }

    /// Returns the last leases of a member, the last one first. Leases of fixed members are kept.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool or member.
    pub fn history(&self, named: Named<'_>) -> Result<impl Iterator<Item = &PastLease>, Refusal> {
        let member = self.find_member(named)?;
        Ok(self.members.beside(member).history.iter().rev())
    }
}
