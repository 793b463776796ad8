//! Messages between the loop, the [`Owner`](super::owner::Owner) and the database.

use crate::state::Commit;
use crate::state::inbox::InboxRow;
use crate::store::HandedOver;
use crate::store::batch::Batch;
use crate::store::page::Page;
use poolcounter_core::Span;
use std::collections::VecDeque;

/// Order of the loop, with its term as the owner: an order from an earlier term has no effect.
pub struct Order {
    /// Number of times that the loop had lost the queue by then.
    pub term: u64,
    /// Content of the order.
    pub wish: Wish,
}

/// Content of an order of the loop.
pub enum Wish {
    /// Commit a batch.
    Commit(Batch),
    /// Write a slice of all jobs and settings.
    Slice {
        /// Number of the rewrite that it is part of.
        number: u64,
        /// The changes.
        batch: Batch,
        /// True if it is the last slice.
        is_last: bool,
    },
    /// The loop has taken in a page.
    PageTaken,
    /// The loop cannot read a page, for this reason.
    Unreadable(String),
}

/// Event for the loop.
#[derive(Debug)]
pub enum StoreEvent {
    /// Another daemon owns the queue.
    StandsBy(OwnerRow),
    /// The clock of the database is this many microseconds ahead of this machine's.
    Clock(i64),
    /// This process owns the queue, as this holder, and reads its jobs.
    Owns(OwnerRow),
    /// A page of jobs.
    Page(Page),
    /// A batch is committed.
    Committed {
        /// Number of the batch.
        commit: Commit,
        /// Time that the commit took.
        took: Span,
    },
    /// This process goes on as the owner.
    Works(OwnerRow),
    /// This process may be the owner, but the database does not confirm it at present.
    Fails(String),
    /// The database cannot be used as it is.
    Refused(String),
    /// Another daemon owns the queue now, or may own it.
    Lost(String),
    /// This process owns the queue, as this holder, and must write everything anew, beginning with the first slice.
    Rewrite(u64, OwnerRow),
    /// The slice of this rewrite is written.
    NextSlice(u64),
    /// Rows of the inbox that wait.
    Inbox(Inbox),
}

/// Content of the inbox.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inbox {
    /// The first rows that wait.
    pub rows: VecDeque<InboxRow>,
    /// Number of refused rows, up to a limit.
    pub refused: u64,
    /// Reason of one of them; without any, the reason for which the inbox cannot be read.
    pub reason: String,
}

/// Position of the reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// The settings and the root jobs are next.
    Start,
    /// The jobs with higher numbers are next.
    After(u64),
}

/// Request to the database.
pub enum StoreRequest<'a> {
    /// Connect, in place of any existing connection.
    Connect,
    /// Take the queue, if its owner counts as dead.
    TakeOver,
    /// Go on with the queue that another process has handed over.
    GoOn(&'a HandedOver),
    /// Take the queue of this id again, if its row knows only earlier take-overs than this number.
    Retake(u64, u128),
    /// Read the row `owner`.
    Look,
    /// Renew the lease of this take-over.
    Renew(u64),
    /// Read a page.
    Read(Cursor),
    /// Read the first rows of the inbox.
    ReadInbox,
    /// Commit a batch, in one transaction with its number.
    Commit(Fence, &'a Batch),
    /// Write a slice in one transaction with the other slices: before the first, everything is deleted.
    WriteAnew {
        /// True of the first slice.
        is_first: bool,
        /// The slice.
        slice: &'a Batch,
        /// End of the transaction, behind the last slice.
        end: Option<EndAnew<'a>>,
    },
}

/// End of a transaction that writes everything anew.
#[derive(Clone, Copy)]
pub struct EndAnew<'a> {
    /// The fence.
    pub fence: Fence,
    /// Number of the next job.
    pub next_id: Option<u64>,
    /// Taken rows of the inbox are in this batch; its jobs are in the slices.
    pub taken: Option<&'a Batch>,
}

/// Condition of the row for a commit, and its values after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Number of the take-over.
    pub epoch: u64,
    /// Number of the batch before.
    pub from: u64,
    /// Number of the batch.
    pub to: u64,
    /// Number of this process's attempt to commit anything. Of two attempts for one batch, rows written by the later
    /// one must not count if the earlier one was committed after all.
    pub attempt: u64,
}

/// Answer of the database.
#[derive(Debug)]
pub enum Answer {
    /// The request was executed.
    Done,
    /// The queue was taken, and this is the new row.
    Took(OwnerRow, Reach),
    /// The queue was not taken, because of this row; or the row was requested.
    Seen(OwnerRow),
    /// The lease was renewed, and this is the owner's last batch; None if the row has another owner.
    Renewed(Option<u64>, Reach),
    /// Rows of the inbox.
    Inbox(Inbox),
    /// A page, and the position of the next.
    Page(Page, Cursor),
    /// True if the fence held. If not, nothing was written.
    Committed(bool, Reach),
    /// It is unknown if the request was executed.
    Failed {
        /// Reason.
        sentence: String,
        /// True if the connection can still be used.
        is_connected: bool,
    },
    /// No answer came in time, and the connection was given up.
    Silent,
    /// The database cannot be used as it is.
    Refused(String),
}

/// Durability that is known of a commit when its answer arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It is on the disk of the server, and on its replicas if commits wait for these. So are all commits before it.
    Kept,
    /// It is visible to other sessions. The server has sent this warning with the answer: it may not be replicated.
    Warned(String),
}

/// Values of the row `owner`. Events have those about the owner.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OwnerRow {
    /// Id of the queue.
    pub queue: u128,
    /// Number of the last take-over.
    pub epoch: u64,
    /// Number of the last batch.
    pub batch: u64,
    /// Number of the next job.
    pub next_id: u64,
    /// Number of the attempt that wrote it.
    pub attempt: u64,
    /// Address of the last owner.
    pub address: String,
    /// Time of its take-over, in seconds since 1970.
    pub since: f64,
    /// Time for which the owner still counts as alive.
    pub rest: Span,
}
