//! Ownership of the queue, and the state of its copy in the database: the next request to the database, and the
//! consequences of each answer. It uses no sockets and no clock.
//!
//! The row `owner` names the daemon that may write. It has the number of the take-over (`epoch`), that of the last
//! batch, and the end of the lease, by the clock of the database. The owner itself trusts the lease for a shorter time,
//! by its own clock and from the moment at which it *asked*, so that it has stopped before another can have begun.
//!
//! A missing answer leaves the outcome open. The row decides then: if it has the number of the batch, the batch is
//! committed; if it has the number before, the batch is sent again. If it has an earlier number than was ever promised,
//! the database has lost commits, and everything is written anew from memory.
//!
//! The row shows what other sessions see, which may not be on the replica that would take the server's place. Facts known
//! from the row alone are proven by a renewal, which is a commit behind them, and reported after that.

mod doubts;

pub use super::messages::*;

use crate::state::Commit;
use crate::store::HandedOver;
use crate::store::PAGES_AHEAD;
use crate::store::batch::Batch;
use crate::store::page::Page;
use poolcounter_core::{Span, Time};
use std::collections::VecDeque;

/// Time after which the database counts a silent owner as dead. The statements contain it, too.
pub const LEASE_SECONDS: u64 = 5;
/// Time for which an owner without an answer trusts that it is the owner. The difference to the lease is for clocks
/// that go at different speeds.
pub const TRUST: Span = Span::from_secs(4);
/// Address in the row after an owner has ended: a standby need not wait for the end of the lease.
pub const NOBODY: &str = "nobody";
/// Least time for which a newly connected standby waits for the owner, even if that is long overdue. After a failover
/// the database may lack the last renewals of an owner that is alive and has all jobs.
const GRACE: Span = Span::from_secs(LEASE_SECONDS);
/// Time between two renewals of an idle owner, and between two looks of a standby.
pub const BEAT: Span = Span::from_secs(1);
/// Time between two looks at an inbox without news: a notification may be lost with its connection.
const INBOX_LOOK: Span = Span::from_secs(10);
/// Pause before a failed request is repeated, at first and at most.
const FIRST_PAUSE: Span = Span::from_millis(20);
const LONGEST_PAUSE: Span = BEAT;
/// The same after no answer at all, so that no sessions pile up in a server with locked rows.
const FIRST_SILENT_PAUSE: Span = Span::from_secs(1);
const LONGEST_SILENT_PAUSE: Span = Span::from_secs(8);
/// Pause before a database without this program's tables, or with newer ones, is asked again.
const REFUSED_PAUSE: Span = Span::from_secs(10);

/// Next action.
pub enum Next<'a> {
    /// Send this request, and pass the answer to [`Owner::answer`].
    Ask(StoreRequest<'a>),
    /// Do nothing before this time, unless the loop sends an order.
    Wait(Time),
}

/// Phase of the ownership.
#[derive(Clone, Debug, Default)]
enum Phase {
    #[default]
    StandsBy,
    /// The previous process owned the queue, as this handover says.
    GoesOn(Box<HandedOver>),
    /// It owns the queue, and the loop reads the jobs. This many pages are not taken in yet.
    Reads(Cursor, usize),
    Owns,
    /// The database has lost the take-over itself.
    Retakes,
    /// Everything is written anew, while the row is as this fence left it. True once a slice is written.
    Rewrites(Fence, bool),
}

/// Batch that is to be committed.
struct UnderWay {
    batch: Batch,
    begun: Time,
}

/// State of the ownership, on the side of the store.
#[derive(Default)]
pub struct Owner {
    address: String,
    phase: Phase,
    /// True if a request was not answered. The phase goes on if the row is still this process's.
    is_in_doubt: bool,
    is_connected: bool,
    /// Time before which nothing is taken over.
    takes_from: Time,
    /// Time before which nothing is asked.
    not_before: Time,
    pause: Span,
    silent_pause: Span,
    /// Time until which it trusts that it is the owner.
    trusted_until: Time,
    /// Time of the request by whose answer the lease was last renewed.
    renewed: Time,
    /// True if the last answer was that to a renewal.
    was_renewal: bool,
    /// Id of the queue of the loop's jobs; None without jobs.
    queue: Option<u128>,
    epoch: u64,
    /// Time of its take-over, in seconds since 1970 of the database.
    since: f64,
    /// Number of the last committed batch that the loop knows of, or will get an event about.
    batch: u64,
    under_way: Option<UnderWay>,
    /// Committed batch that is not reported yet: it must be proven, and the ownership certain.
    unsaid: Option<(Commit, Time)>,
    /// True if the row's values are known to be as durable as commits are. A row that was only read is not proven.
    is_proven: bool,
    /// True if the last state that the loop knows is a failure.
    is_failing: bool,
    attempt: u64,
    slice: Option<(Batch, bool)>,
    /// Number of the next job, as the slices have it.
    next_id: Option<u64>,
    rewrites: u64,
    /// Time of the next look at the inbox.
    inbox_at: Time,
    /// Number of rows of the inbox that the loop has, and has not committed.
    in_hand: usize,
    term: u64,
    asked: Time,
    events: VecDeque<StoreEvent>,
}

impl Owner {
    /// Returns an owner that takes over the jobs in the database, once the queue is free.
    pub fn new(address: String, now: Time) -> Owner {
        Owner {
            address,
            takes_from: now,
            not_before: now,
            pause: FIRST_PAUSE,
            silent_pause: FIRST_SILENT_PAUSE,
            renewed: now,
            is_proven: true,
            inbox_at: now,
            asked: now,
            ..Owner::default()
        }
    }

    /// Returns an owner for a loop that has everything from the previous process.
    pub fn going_on(address: String, handed_over: HandedOver, now: Time) -> Owner {
        let (mark, queue) = (handed_over.mark, handed_over.queue);
        let phase = Phase::GoesOn(handed_over.into());
        Owner { phase, queue, epoch: mark.opening, batch: mark.batch, ..Owner::new(address, now) }
    }

    /// Returns the address by which it is known.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the time until which it trusts that it is the owner and jobs may be given out.
    pub fn trusted_until(&self) -> Time {
        self.trusted_until
    }

    /// Returns the number of its take-over if it may own the queue.
    pub fn epoch(&self) -> Option<u64> {
        (!matches!(self.phase, Phase::StandsBy | Phase::GoesOn(_))).then_some(self.epoch)
    }

    fn holder(&self) -> OwnerRow {
        let (queue, address) = (self.queue.unwrap_or_default(), self.address.clone());
        OwnerRow { queue, address, epoch: self.epoch, since: self.since, ..OwnerRow::default() }
    }

    /// Returns whether a batch is under way.
    pub fn is_committing(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns the next event for the loop.
    pub fn next_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    /// Processes an order of the loop.
    pub fn order(&mut self, order: Order, now: Time) {
        if order.term != self.term {
            return;
        }
        match order.wish {
            Wish::Commit(batch) => self.under_way = Some(UnderWay { batch, begun: now }),
            Wish::Slice { number, batch, is_last } if number == self.rewrites => {
                self.next_id = batch.next_id().or(self.next_id);
                self.slice = Some((batch, is_last));
            }
            Wish::Slice { .. } => {}
            Wish::PageTaken => {
                if let Phase::Reads(_, ahead) = &mut self.phase {
                    *ahead = ahead.saturating_sub(1);
                }
            }
            Wish::Unreadable(why) => {
                self.lose(&why, now);
                self.not_before = now + REFUSED_PAUSE;
            }
        }
    }

    /// Returns the next action.
    pub fn next(&mut self, now: Time) -> Next<'_> {
        if now < self.not_before {
            return Next::Wait(self.not_before);
        }
        self.asked = now;
        if !self.is_connected {
            return Next::Ask(StoreRequest::Connect);
        }
        let renewal = self.renewed + BEAT;
        // A renewal that takes longer than a beat makes the next one due at once. Other requests come between them.
        let is_due = now >= renewal && !(self.was_renewal && self.has_work());
        let epoch = self.epoch;
        match &self.phase {
            Phase::StandsBy if now < self.takes_from => Next::Ask(StoreRequest::Look),
            Phase::StandsBy => Next::Ask(StoreRequest::TakeOver),
            Phase::GoesOn(handed_over) => Next::Ask(StoreRequest::GoOn(handed_over)),
            _ if self.is_in_doubt => Next::Ask(StoreRequest::Look),
            Phase::Retakes => Next::Ask(StoreRequest::Retake(epoch, self.queue.unwrap_or_default())),
            _ if is_due || !self.is_proven || self.unsaid.is_some() => Next::Ask(StoreRequest::Renew(epoch)),
            Phase::Reads(_, PAGES_AHEAD..) => Next::Wait(renewal),
            Phase::Reads(cursor, _) => Next::Ask(StoreRequest::Read(*cursor)),
            Phase::Owns => match &self.under_way {
                Some(UnderWay { batch, .. }) => {
                    self.attempt += 1;
                    let (from, to) = (self.batch, batch.commit.0);
                    Next::Ask(StoreRequest::Commit(Fence { epoch, from, to, attempt: self.attempt }, batch))
                }
                None if self.in_hand > 0 => Next::Wait(renewal),
                None if self.inbox_at <= now => Next::Ask(StoreRequest::ReadInbox),
                None => Next::Wait(renewal.min(self.inbox_at)),
            },
            Phase::Rewrites(left, has_begun) => match &self.slice {
                Some((slice, is_last)) => {
                    self.attempt += u64::from(*is_last);
                    let fence = Fence { epoch, from: left.to, to: self.target(), attempt: self.attempt };
                    let taken = self.under_way.as_ref().map(|under_way| &under_way.batch);
                    let end = is_last.then_some(EndAnew { fence, next_id: self.next_id, taken });
                    Next::Ask(StoreRequest::WriteAnew { is_first: !has_begun, slice, end })
                }
                None => Next::Wait(renewal),
            },
        }
    }

    /// Returns whether there is something to ask beside renewals.
    fn has_work(&self) -> bool {
        match &self.phase {
            Phase::Reads(_, ahead) => *ahead < PAGES_AHEAD,
            Phase::Owns => self.under_way.is_some(),
            Phase::Rewrites(..) => self.slice.is_some(),
            _ => true,
        }
    }

    /// Processes the answer to the last request.
    pub fn answer(&mut self, answer: Answer, now: Time) {
        self.weigh(&answer, now);
        self.was_renewal = matches!(answer, Answer::Renewed(..));
        match answer {
            Answer::Done => self.done(now),
            Answer::Took(row, _) => self.took(&row, now),
            Answer::Seen(row) => self.saw(&row, now),
            Answer::Renewed(Some(batch), _) if batch == self.batch || self.is_rewriting() => self.trust(now),
            Answer::Committed(true, _) => self.committed(now),
            // The row says why.
            Answer::Renewed(..) | Answer::Committed(false, _) => self.doubt(),
            Answer::Page(page, cursor) => self.read(page, cursor),
            Answer::Inbox(inbox) => self.read_inbox(inbox, now),
            Answer::Failed { sentence, is_connected } => {
                self.is_connected = is_connected;
                self.rest(now);
                self.doubt();
                self.fail(sentence);
            }
            Answer::Silent => {
                self.is_connected = false;
                self.not_before = now + self.silent_pause;
                self.silent_pause = Span::from_micros(self.silent_pause.as_micros() * 2).min(LONGEST_SILENT_PAUSE);
                self.doubt();
                self.fail("the database does not answer".into());
            }
            Answer::Refused(sentence) => {
                self.is_connected = false;
                self.not_before = now + REFUSED_PAUSE;
                self.doubt();
                self.is_failing = true;
                self.events.push_back(StoreEvent::Refused(sentence));
            }
        }
        self.confirm_committed(now);
    }

    /// Notes a renewal on another connection that was requested at `asked`.
    pub fn renewed_beside(&mut self, asked: Time, now: Time) {
        if self.epoch().is_some() {
            self.trust_since(asked, now);
        }
    }

    fn done(&mut self, now: Time) {
        if !self.is_connected {
            self.is_connected = true;
            self.takes_from = now + GRACE;
            return;
        }
        if let Phase::Rewrites(_, has_begun) = &mut self.phase {
            (*has_begun, self.slice) = (true, None);
            self.events.push_back(StoreEvent::NextSlice(self.rewrites));
        }
    }

    /// Notes that the last request is committed, and no other daemon owns the queue.
    fn committed(&mut self, now: Time) {
        self.trust(now);
        self.committed_before();
    }

    /// Notes that an earlier request is committed, at an unknown time.
    fn committed_before(&mut self) {
        let was_rewriting = self.is_rewriting();
        self.batch = self.target();
        (self.phase, self.slice) = (Phase::Owns, None);
        if was_rewriting {
            self.works();
        }
        let taken = self.under_way.as_ref().map_or(0, |under_way| under_way.batch.taken());
        self.in_hand = self.in_hand.saturating_sub(taken);
        self.unsaid =
            self.under_way.take().map(|UnderWay { batch, begun }| (batch.commit, begun)).or(self.unsaid.take());
    }

    /// Reports a commit once it is proven, while the ownership is certain.
    fn confirm_committed(&mut self, now: Time) {
        if self.is_proven
            && now < self.trusted_until()
            && let Some((commit, begun)) = self.unsaid.take()
        {
            self.is_failing = false;
            self.events.push_back(StoreEvent::Committed { commit, took: now.since(begun) });
        }
    }

    /// Extends the trust from the time of the last request.
    fn trust(&mut self, now: Time) {
        self.trust_since(self.asked.max(self.renewed), now);
    }

    fn trust_since(&mut self, asked: Time, now: Time) {
        let until = asked + TRUST;
        // The loop may wait for the end of the lapse.
        let was_lapsed = now >= self.trusted_until && now < until;
        (self.renewed, self.trusted_until) = (asked, until);
        if (was_lapsed || self.is_failing && self.is_proven) && matches!(self.phase, Phase::Owns) && !self.is_in_doubt {
            self.works();
        }
    }

    fn read(&mut self, mut page: Page, cursor: Cursor) {
        let Phase::Reads(from, ahead) = &mut self.phase else { return };
        if *from == Cursor::Start {
            page.committed = Some(Commit(self.batch));
        }
        (*from, *ahead) = (cursor, *ahead + 1);
        if page.is_last {
            self.phase = Phase::Owns;
        }
        self.events.push_back(StoreEvent::Page(page));
    }

    /// Notes that the inbox may have new rows.
    pub fn note_inbox(&mut self, now: Time) {
        self.inbox_at = now;
    }

    fn read_inbox(&mut self, inbox: Inbox, now: Time) {
        self.inbox_at = if inbox.rows.is_empty() { now + INBOX_LOOK } else { now };
        self.in_hand = inbox.rows.len();
        self.events.push_back(StoreEvent::Inbox(inbox));
    }

    /// Makes the row be read before anything else.
    fn doubt(&mut self) {
        if let Phase::Reads(..) | Phase::Owns | Phase::Rewrites(..) = self.phase {
            (self.is_in_doubt, self.slice) = (true, None);
        }
    }

    fn is_rewriting(&self) -> bool {
        matches!(self.phase, Phase::Rewrites(..))
    }

    /// Returns the number of the last batch, including the one under way.
    fn target(&self) -> u64 {
        self.under_way.as_ref().map_or(self.batch, |under_way| under_way.batch.commit.0)
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, the take-over {}, the batch {}: {:?}", self.address, self.epoch, self.batch, self.phase)
    }
}
