//! Who has the queue, and what of it the database has: what to ask of the database next, and what follows from each answer. It
//! knows no sockets and no clock.
//!
//! The row `owner` says who may write. It has the number of the take-over (`epoch`) and that of the last batch, and until when
//! its owner counts as alive, by the clock of the database. The owner itself trusts in that for a shorter time, by its own
//! clock and from the moment when it *asked*, so that it has stopped before another can have begun.
//!
//! An answer that does not come leaves everything open. The row decides then: if it has the number of the batch, that is
//! committed; if it has the one before, the batch is sent again. If it has an earlier one than was ever promised, the database
//! has lost commits, and everything is written anew from memory.
//!
//! The row says what others see, and not that it is on the replica that would take the server's place. What is known from the
//! row alone is proven by a renewal, which is a commit behind it, and told after that.

mod doubts;

pub use super::messages::*;

use crate::state::Commit;
use crate::store::HandedOver;
use crate::store::batch::Batch;
use crate::store::page::{PAGES_AHEAD, Page};
use poolcounter_core::time::{Span, Time};
use std::collections::VecDeque;

/// How long the database takes an owner for alive that says nothing. The statements have it, too.
pub const LEASE_SECONDS: u64 = 5;
/// How long an owner that was not answered takes itself for the owner. What is missing to the lease is for clocks that go at
/// different speeds.
pub const TRUST: Span = Span::from_secs(4);
/// What stands in the row in place of an owner that has ended: nobody is to be waited for.
pub const NOBODY: &str = "nobody";
/// How long a standby that has just come to a database waits for its owner, however long that is overdue. A database that takes
/// over from another may have lost the last words of an owner, which is about to say them again and has all jobs.
const GRACE: Span = Span::from_secs(LEASE_SECONDS);
/// How often an idle owner says that it is alive, and a standby looks whether it still is.
pub const BEAT: Span = Span::from_secs(1);
/// How long it waits before it asks again what has failed, at first and at most.
const FIRST_PAUSE: Span = Span::from_millis(20);
const LONGEST_PAUSE: Span = BEAT;
/// The same after no answer at all, so that no sessions pile up in a server in which something is locked.
const FIRST_SILENT_PAUSE: Span = Span::from_secs(1);
const LONGEST_SILENT_PAUSE: Span = Span::from_secs(8);
/// How long a database that has none of this program's tables, or newer ones, is left alone.
const REFUSED_PAUSE: Span = Span::from_secs(10);

/// What is next.
pub enum Next<'a> {
    /// This is to be asked, and [`Owner::answer`] told the answer.
    Ask(StoreRequest<'a>),
    /// Nothing before this time, unless the loop wants something.
    Wait(Time),
}

/// What it is doing.
#[derive(Clone, Debug)]
enum Phase {
    StandsBy,
    /// The process before had the queue, as far as this.
    GoesOn(Box<HandedOver>),
    /// It has the queue, and the loop gets to know what is in it. So many pages were not taken in yet.
    Reads(Cursor, usize),
    Owns,
    /// Something was not answered. If it still has the queue, it goes on with that.
    Doubts(Box<Phase>),
    /// The database has lost the take-over itself.
    Retakes,
    /// Everything is written anew, while the row is as it was left by this.
    Rewrites(Fence, Stage),
}

#[derive(Clone, Debug)]
enum Stage {
    Begins,
    /// It waits for the loop's next slice, or has it.
    Writes,
    Ends,
}

/// A batch that is to be committed.
struct UnderWay {
    batch: Batch,
    begun: Time,
}

/// The store's part in the ownership.
pub struct Owner {
    address: String,
    phase: Phase,
    is_connected: bool,
    /// Nothing is taken over before.
    takes_from: Time,
    /// Nothing is asked before.
    not_before: Time,
    pause: Span,
    silent_pause: Span,
    /// Until when it takes itself for the owner.
    trusted_until: Time,
    /// When that was asked for which it was taken for alive last.
    renewed: Time,
    /// Which queue the loop's jobs are of; None if it has none, or the process before did not say so.
    queue: Option<u128>,
    epoch: u64,
    /// When it took over, in seconds since 1970 of the database.
    since: f64,
    /// The last batch that is committed, as far as the loop was told, or is to be.
    batch: u64,
    under_way: Option<UnderWay>,
    /// A batch that is committed, of which nothing is told before that is proven and it is the owner for sure.
    unsaid: Option<(Commit, Time)>,
    /// Whether what the row has is kept wherever commits are to be kept. It is not known of what was only read.
    is_proven: bool,
    /// The loop was told that the database fails, and of nothing better since then.
    is_failing: bool,
    attempt: u64,
    slice: Option<(Batch, bool)>,
    /// The number of the next job, as the slices have it.
    next_id: Option<u64>,
    rewrites: u64,
    term: u64,
    asked: Time,
    told: VecDeque<StoreEvent>,
}

impl Owner {
    /// One that begins with what there is, once the queue is free.
    pub fn new(address: String, now: Time) -> Owner {
        Owner {
            address,
            phase: Phase::StandsBy,
            is_connected: false,
            takes_from: now,
            not_before: now,
            pause: FIRST_PAUSE,
            silent_pause: FIRST_SILENT_PAUSE,
            trusted_until: Time::START,
            renewed: now,
            queue: None,
            epoch: 0,
            since: 0.0,
            batch: 0,
            under_way: None,
            unsaid: None,
            is_proven: true,
            is_failing: false,
            attempt: 0,
            slice: None,
            next_id: None,
            rewrites: 0,
            term: 0,
            asked: now,
            told: VecDeque::new(),
        }
    }

    /// One for a loop that has everything from the process before.
    pub fn going_on(address: String, handed_over: HandedOver, now: Time) -> Owner {
        let (mark, queue) = (handed_over.mark, handed_over.queue);
        let phase = Phase::GoesOn(handed_over.into());
        Owner { phase, queue, epoch: mark.opening, batch: mark.batch, ..Owner::new(address, now) }
    }

    /// Returns what it calls itself.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns until when it takes itself for the owner: then jobs may be given out.
    pub fn trusted_until(&self) -> Time {
        self.trusted_until
    }

    /// Returns the number of its take-over if it may have the queue.
    pub fn epoch(&self) -> Option<u64> {
        (!matches!(self.phase, Phase::StandsBy | Phase::GoesOn(_))).then_some(self.epoch)
    }

    fn holder(&self) -> Holder {
        let queue = self.queue.unwrap_or_default();
        Holder { queue, address: self.address.clone(), epoch: self.epoch, since: self.since }
    }

    /// Returns whether a batch is under way.
    pub fn is_committing(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns what the loop is to be told next.
    pub fn told(&mut self) -> Option<StoreEvent> {
        self.told.pop_front()
    }

    /// Takes in what the loop wants.
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
                let phase = match &mut self.phase {
                    Phase::Doubts(before) => &mut **before,
                    phase => phase,
                };
                if let Phase::Reads(_, ahead) = phase {
                    *ahead = ahead.saturating_sub(1);
                }
            }
            Wish::Unreadable(why) => {
                self.lose(&why, now);
                self.not_before = now + REFUSED_PAUSE;
            }
        }
    }

    /// Returns what is next.
    pub fn next(&mut self, now: Time) -> Next<'_> {
        if now < self.not_before {
            return Next::Wait(self.not_before);
        }
        self.asked = now;
        if !self.is_connected {
            return Next::Ask(StoreRequest::Connect);
        }
        let renewal = self.renewed + BEAT;
        let is_due = now >= renewal;
        let epoch = self.epoch;
        match &self.phase {
            Phase::StandsBy if now < self.takes_from => Next::Ask(StoreRequest::Look),
            Phase::StandsBy => Next::Ask(StoreRequest::TakeOver),
            Phase::GoesOn(handed_over) => Next::Ask(StoreRequest::GoOn(handed_over)),
            Phase::Doubts(_) => Next::Ask(StoreRequest::Look),
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
                None => Next::Wait(renewal),
            },
            Phase::Rewrites(_, Stage::Begins) => Next::Ask(StoreRequest::BeginAnew),
            Phase::Rewrites(_, Stage::Writes) => match &self.slice {
                Some((batch, _)) => Next::Ask(StoreRequest::WriteAnew(batch)),
                None => Next::Wait(renewal),
            },
            Phase::Rewrites(left, Stage::Ends) => {
                self.attempt += 1;
                Next::Ask(StoreRequest::EndAnew(
                    Fence { epoch, from: left.to, to: self.target(), attempt: self.attempt },
                    self.next_id,
                ))
            }
        }
    }

    /// Takes in the answer to what was asked last.
    pub fn answer(&mut self, answer: Answer, now: Time) {
        self.weigh(&answer, now);
        match answer {
            Answer::Done => self.done(now),
            Answer::Took(row, _) => self.took(&row, now),
            Answer::Seen(row) => self.saw(&row, now),
            Answer::Renewed(Some(batch), _) if batch == self.batch || self.is_rewriting() => self.trust(now),
            Answer::Committed(true, _) => self.committed(now),
            // Why not is in the row.
            Answer::Renewed(..) | Answer::Committed(false, _) => self.doubt(),
            Answer::Page(page, cursor) => self.read(page, cursor),
            Answer::Unfit(rows) => self.leave_out(rows),
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
                self.told.push_back(StoreEvent::Refused(sentence));
            }
        }
        self.say_committed(now);
    }

    /// The database has taken it for alive at this time, which it was told beside something else that was asked.
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
        let Phase::Rewrites(_, stage) = &mut self.phase else { return };
        *stage = match stage {
            Stage::Begins => Stage::Writes,
            _ => match self.slice.take() {
                Some((_, true)) => Stage::Ends,
                _ => {
                    self.told.push_back(StoreEvent::NextSlice(self.rewrites));
                    Stage::Writes
                }
            },
        };
    }

    /// What was last asked is committed, and nobody else has the queue.
    fn committed(&mut self, now: Time) {
        self.trust(now);
        self.committed_before();
    }

    /// What was asked earlier is committed, but how long ago is not known.
    fn committed_before(&mut self) {
        let was_rewriting = self.is_rewriting();
        self.batch = self.target();
        self.phase = Phase::Owns;
        if was_rewriting {
            self.works();
        }
        self.unsaid =
            self.under_way.take().map(|UnderWay { batch, begun }| (batch.commit, begun)).or(self.unsaid.take());
    }

    /// Tells of what is committed once that is proven, while it is the owner for sure.
    fn say_committed(&mut self, now: Time) {
        if self.is_proven
            && now < self.trusted_until()
            && let Some((commit, begun)) = self.unsaid.take()
        {
            self.is_failing = false;
            self.told.push_back(StoreEvent::Committed { commit, took: now.since(begun) });
        }
    }

    /// The database takes it for alive since it was asked.
    fn trust(&mut self, now: Time) {
        self.trust_since(self.asked.max(self.renewed), now);
    }

    fn trust_since(&mut self, asked: Time, now: Time) {
        let until = asked + TRUST;
        // Whoever has waited for that is to know.
        let was_lapsed = now >= self.trusted_until && now < until;
        (self.renewed, self.trusted_until) = (asked, until);
        if (was_lapsed || self.is_failing && self.is_proven) && matches!(self.phase, Phase::Owns) {
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
        self.told.push_back(StoreEvent::Page(page));
    }

    /// The row must be looked at before anything else.
    fn doubt(&mut self) {
        let before = match &self.phase {
            Phase::Reads(..) | Phase::Owns | Phase::Rewrites(..) => self.phase.clone(),
            Phase::StandsBy | Phase::GoesOn(_) | Phase::Doubts(_) | Phase::Retakes => return,
        };
        self.slice = None;
        self.phase = Phase::Doubts(Box::new(before));
    }

    fn is_rewriting(&self) -> bool {
        match &self.phase {
            Phase::Rewrites(..) => true,
            Phase::Doubts(before) => matches!(**before, Phase::Rewrites(..)),
            _ => false,
        }
    }

    /// Returns the last batch, the one under way among them.
    fn target(&self) -> u64 {
        self.under_way.as_ref().map_or(self.batch, |under_way| under_way.batch.commit.0)
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, the take-over {}, the batch {}: {:?}", self.address, self.epoch, self.batch, self.phase)
    }
}
