//! The store as the service calls it.

use super::owner::{Inbox, OwnerRow, StoreEvent, Wish};
use super::{Gathering, LEASE_BEYOND_TRUST, Postgres, Role, STUCK_AFTER, TICKS_BEFORE_NEXT};
use crate::state::Stored;
use crate::state::inbox::InboxRow;
use crate::store::batch::signed;
use crate::store::{HandedOver, Health, Jobs, Mark, OwnerHealth, Ownership, Store, Verdict, Visit};
use poolcounter_core::Span;
use poolcounter_service::contract::Wake;
use std::time::{Duration, Instant};

impl Store<Jobs> for Postgres {
    fn attach(&mut self, wake: Wake) {
        self.desk.wake = Some(wake);
    }

    fn place(&self) -> String {
        self.name.clone()
    }

    /// Returns database and schema. Whether another server has the same queue is known once it is connected to.
    fn identity(&self) -> String {
        self.identity.clone()
    }

    /// Opens the store. Its jobs come in pages, once this process owns the queue.
    fn load(&mut self, epoch: Span) -> Result<(), String> {
        self.set_epoch(epoch);
        self.start(None)?;
        let deadline = Instant::now() + self.backend.patience;
        while let Some(event) = self.desk.next_event(deadline.saturating_duration_since(Instant::now())) {
            if let StoreEvent::Refused(sentence) = event {
                return Err(sentence);
            }
            let is_first_word = !matches!(event, StoreEvent::Clock(_));
            self.events.push_back(event);
            if is_first_word {
                break;
            }
        }
        // The events so far are processed in the first tick.
        self.desk.wake.iter().for_each(Wake::wake);
        Ok(())
    }

    fn go_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.set_epoch(epoch);
        self.standing = Role::GoesOn;
        self.begun = (self.backend.clock)();
        self.handed_over = handed_over.clone();
        self.start(Some(handed_over)).unwrap_or_else(|sentence| self.fail(&sentence));
    }

    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        if self.standing == Role::GoesOn {
            return self.handed_over.with_next_id(next_id);
        }
        let OwnerRow { epoch, queue, address, .. } = self.holder.clone();
        let (mark, is_whole) = (Mark { opening: epoch, batch, next_id }, self.desk.rewrite.is_none());
        HandedOver { mark, queue: Some(queue), address: Some(address), is_whole }
    }

    fn ownership(&self) -> Ownership {
        match self.standing {
            // Pages that were read may be lost with the database.
            Role::Reads if !self.is_failing() => Ownership::Reads,
            Role::StandsBy | Role::Reads => Ownership::StandsBy,
            Role::GoesOn | Role::Owns => {
                let now = (self.backend.clock)();
                match self.trusted_until() {
                    until if now >= until + LEASE_BEYOND_TRUST => Ownership::Expired,
                    _ if self.standing == Role::GoesOn => Ownership::GoesOn,
                    until if now >= until => Ownership::Lapsed,
                    _ => Ownership::Owns,
                }
            }
        }
    }

    fn expires_in(&self) -> Option<Span> {
        let is_held = matches!(self.standing, Role::GoesOn | Role::Owns);
        let left = (self.trusted_until() + LEASE_BEYOND_TRUST).since((self.backend.clock)());
        (is_held && left > Span::ZERO).then_some(left)
    }

    fn visit_page(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let visited =
            self.desk.visit(self.epoch, visit).inspect_err(|sentence| self.wish(Wish::Unreadable(sentence.clone())))?;
        let Some(order) = visited else { return Ok(false) };
        if order.is_last {
            self.standing = Role::Owns;
            log::info!("the jobs are served here");
        }
        self.wish(Wish::PageTaken);
        Ok(true)
    }

    fn is_busy(&self) -> bool {
        let is_beginning = matches!(self.standing, Role::Reads | Role::GoesOn);
        self.desk.is_busy() || is_beginning
    }

    fn gathers(&mut self, changes: usize) -> bool {
        let Some(Gathering { ticks, changes: before, until }) = self.gathering.take() else { return false };
        let has_more = changes > before && (self.backend.clock)() < until;
        let ticks = if has_more { TICKS_BEFORE_NEXT } else { ticks - 1 };
        self.gathering = (ticks > 0).then_some(Gathering { ticks, changes, until });
        self.desk.wake.iter().filter(|_| ticks > 0).for_each(Wake::wake);
        ticks > 0
    }

    fn is_failing(&self) -> bool {
        self.desk.fault.reason().is_some()
    }

    fn may_be_left(&self) -> bool {
        matches!(self.standing, Role::GoesOn | Role::Owns)
            && self.is_failing()
            && (self.backend.clock)().since(self.failed_at) >= STUCK_AFTER
    }

    fn add(&mut self, change: Stored<'_>) {
        self.desk.add(change, self.epoch);
    }

    fn commit(&mut self, commit: crate::state::Commit) {
        let batch = self.desk.begin(commit);
        self.wish(Wish::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let Some((number, batch)) = self.desk.slice() else { return };
        self.wish(Wish::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let event = self.events.pop_front().or_else(|| self.desk.next_event(Duration::ZERO));
        self.take(event?)
    }

    fn next_request(&mut self) -> Option<InboxRow> {
        self.inbox.rows.pop_front()
    }

    fn health(&self) -> Option<Health> {
        let OwnerRow { address, epoch, since, .. } = self.holder.clone();
        // Exact to a microsecond, more than the value is.
        let since = ((since * 1e6) as i64).saturating_sub(signed(self.epoch));
        let owner = Some(OwnerHealth { is_self: self.ownership() == Ownership::Owns, address, epoch, since });
        let Inbox { refused, reason, .. } = &self.inbox;
        let refused = (!reason.is_empty()).then(|| (*refused, reason.clone()));
        Some(Health { owner, refused, ..self.desk.health(self.desk.fault.reason()) })
    }
}
