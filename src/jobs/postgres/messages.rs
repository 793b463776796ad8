//! What there is to say between the loop, the [`Owner`](super::owner::Owner) and the database.

use crate::state::Commit;
use crate::store::batch::Batch;
use crate::store::page::Page;
use crate::store::{HandedOver, Mark, RefusedRow};
use poolcounter_core::time::Span;

/// What the loop wants, and for which of its terms as the owner: what comes from an earlier one counts for nothing.
pub struct Order {
    /// How often it had lost the queue by then.
    pub term: u64,
    /// What it wants.
    pub wish: Wish,
}

/// What the loop wants.
pub enum Wish {
    /// A batch is to be committed.
    Commit(Batch),
    /// A part of everything that there is.
    Slice {
        /// Which of the times that all is written anew it is for.
        number: u64,
        /// The changes.
        batch: Batch,
        /// Whether it is the last.
        is_last: bool,
    },
    /// A page was taken in.
    PageTaken,
    /// A page makes no sense, for this reason.
    Unreadable(String),
}

/// What the loop is told.
#[derive(Debug)]
pub enum StoreEvent {
    /// Another has the queue.
    StandsBy(Holder),
    /// The clock of the database is so many microseconds ahead of this machine's.
    Clock(i64),
    /// It has the queue, as this, and reads what there is.
    Owns(Holder),
    /// A page of what there is.
    Page(Page),
    /// A batch is committed.
    Committed {
        /// Which.
        commit: Commit,
        /// How long that took.
        took: Span,
    },
    /// It can never take these changes of the batch that is under way.
    Unfit(Vec<RefusedRow>),
    /// It goes on as the owner.
    Works(Holder),
    /// It may be the owner, but the database does not say so for now.
    Fails(String),
    /// The database cannot be used as it is.
    Refused(String),
    /// Another has the queue now, or may have it.
    Lost(String),
    /// It has the queue, as this, and all that there is must be written anew, the first slice first.
    Rewrite(u64, Holder),
    /// The slice was written.
    NextSlice(u64),
}

/// Who has the queue.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Holder {
    /// Which queue it is.
    pub queue: u128,
    /// What it calls itself.
    pub address: String,
    /// The number of its take-over.
    pub epoch: u64,
    /// When that was, in seconds since 1970.
    pub since: f64,
}

impl Holder {
    /// Returns what a process hands over that is the holder, with its mark.
    pub fn hand_over(&self, mark: Mark, is_whole: bool) -> HandedOver {
        HandedOver { mark, queue: Some(self.queue), address: Some(self.address.clone()), is_whole }
    }
}

/// How far the reading is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// The settings and the root jobs are next.
    Start,
    /// The jobs with higher numbers are next.
    After(u64),
}

/// What is asked of the database.
pub enum StoreRequest<'a> {
    /// A connection, instead of any that there is.
    Connect,
    /// The queue, if its owner counts as dead.
    TakeOver,
    /// The queue that another process has handed over, or one where nothing was ever kept.
    GoOn(&'a HandedOver),
    /// The queue of this id, if its row knows only of earlier take-overs than this.
    Retake(u64, u128),
    /// The row.
    Look,
    /// To be taken for alive.
    Renew(u64),
    /// A page.
    Read(Cursor),
    /// A batch, in one transaction with its number.
    Commit(Fence, &'a Batch),
    /// A transaction in which nothing is left.
    BeginAnew,
    /// Rows, in that transaction.
    WriteAnew(&'a Batch),
    /// The end of that transaction, with the number of the next job.
    EndAnew(Fence, Option<u64>),
}

/// What the row must be for a commit, and what it is after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The number of the take-over.
    pub epoch: u64,
    /// The batch before.
    pub from: u64,
    /// The batch.
    pub to: u64,
    /// Which attempt of this process it is to commit anything. Of two attempts for one batch, what the later one writes must
    /// not count because the earlier one was committed after all.
    pub attempt: u64,
}

/// What the database says.
#[derive(Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// The queue was taken. The row is as it is now.
    Took(OwnerRow, Reach),
    /// The queue was not taken, because of this row; or this row was asked for.
    Seen(OwnerRow),
    /// The last batch of the owner that was renewed; None if that is another.
    Renewed(Option<u64>, Reach),
    /// A page, and where the next begins.
    Page(Page, Cursor),
    /// Whether the fence held. If not, nothing was written.
    Committed(bool, Reach),
    /// The database can never take these rows of the batch. Nothing was written.
    Unfit(Vec<RefusedRow>),
    /// It is not known whether it was done.
    Failed {
        /// Why.
        sentence: String,
        /// Whether the connection can be used.
        is_connected: bool,
    },
    /// There was none in time, and the connection was given up.
    Silent,
    /// It cannot be used as it is.
    Refused(String),
}

/// How far a commit is known to have come when its answer is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// To the disk of the server, and to its replicas if commits wait for these. So are all before it.
    Kept,
    /// Others see it. The server has said this with the answer: it may not be replicated.
    Warned(String),
}

/// The row `owner`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OwnerRow {
    /// Which queue it is of.
    pub queue: u128,
    /// The number of the last take-over.
    pub epoch: u64,
    /// The last batch.
    pub batch: u64,
    /// The number of the next job.
    pub next_id: u64,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// Who has taken over.
    pub address: String,
    /// When that was, in seconds since 1970.
    pub since: f64,
    /// For how long the owner counts as alive.
    pub rest: Span,
}

impl OwnerRow {
    /// Returns who has the queue.
    pub fn holder(&self) -> Holder {
        Holder { queue: self.queue, address: self.address.clone(), epoch: self.epoch, since: self.since }
    }
}

impl Batch {
    /// Leaves out rows that the database can never take.
    pub fn leave_out(&mut self, rows: &[RefusedRow]) {
        let mut index = 0;
        self.rows.retain(|_| {
            index += 1;
            !rows.iter().any(|row| row.index + 1 == index)
        });
    }
}
