//! Requests and replies of the members service, as values for both sides of the protocol.

pub use super::pool_settings::Attributes;
use super::pool_settings::{Change, Contradiction, Filter};
use poolcounter_core::time::Span;
use std::sync::Arc;

/// Number of a lease, or token of a lease that outlives its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseName {
    /// Strictly increasing, never used again.
    Number(u64),
    /// 128 random bits.
    Token(Token),
}

/// 128 random bits that are the only right to a lease.
pub type Token = [u8; 16];

/// Parameters of `TAKE` and `TAKEGROUP`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Take<'a> {
    /// Pool or group.
    pub from: From<'a>,
    /// Longest wait.
    pub timeout: Span,
    /// Requirements for the members; None for any.
    pub filter: Option<Arc<Filter>>,
    /// Number of members, if the client named one; at least 1.
    pub count: Option<u32>,
    /// Priority, 0 to 9, lower first.
    pub priority: u8,
    /// Time for which the lease lasts without its connection: zero for a lease with a token that ends with its connection
    /// but for a restart, None for one without a token.
    pub lease: Option<Span>,
}

/// Source of a take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From<'a> {
    /// Pool of this name.
    Pool(&'a [u8]),
    /// Any pool of this group.
    Group(&'a [u8]),
}

/// Member of a pool, by their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named<'a> {
    /// Name of the pool.
    pub pool: &'a [u8],
    /// Name of the member.
    pub member: &'a [u8],
}

/// State of a returned member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Unchanged.
    Ok,
    /// Unusable.
    Fail,
}

/// A request that changes something.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum Request<'a> {
    /// `POOL name init max [key=value ...]`.
    Pool { name: &'a [u8], changes: Vec<Change> },
    /// `RECONFIGURE name key=value ...`.
    Reconfigure { name: &'a [u8], changes: Vec<Change> },
    /// `RMPOOL name [GRACEFUL]`.
    RemovePool { name: &'a [u8], graceful: bool },
    /// `RMGROUP group [GRACEFUL]`.
    RemoveGroup { name: &'a [u8], graceful: bool },
    /// `PROVIDE pool [capacity] [session=NAME]`.
    Provide { pool: &'a [u8], capacity: Option<u32>, session: Option<&'a [u8]> },
    /// `CLEAN pool`.
    Clean { pool: &'a [u8] },
    /// `STARTED id member [attr=value ...]`.
    Started { start: u64, named: Result<(&'a [u8], Attributes), Refusal> },
    /// `FAILED id [text]`.
    Failed { start: u64, text: &'a [u8] },
    /// `STOPPED member`.
    Stopped { member: &'a [u8] },
    /// `ALIVE member`.
    Alive { member: &'a [u8] },
    /// `DEAD member [text]`.
    Dead { member: &'a [u8], text: &'a [u8] },
    /// `CLEANED member`.
    Cleaned { member: &'a [u8] },
    /// `CLEANING member`.
    Cleaning { member: &'a [u8] },
    /// `OFFER pool member [attr=value ...]`.
    Offer { named: Named<'a>, attributes: Attributes },
    /// `WITHDRAW pool member [NOW]`.
    Withdraw { named: Named<'a>, now: bool },
    /// `ADD pool member [attr=value ...]`.
    Add { named: Named<'a>, attributes: Attributes },
    /// `DEL pool member [NOW]`.
    Delete { named: Named<'a>, now: bool },
    /// `REPAIR pool member [as_is]`.
    Repair { named: Named<'a>, as_is: bool },
    /// `HOLD pool member seconds [note]`.
    Hold { named: Named<'a>, span: Span, note: &'a [u8] },
    /// `FREE pool member`.
    Free(Named<'a>),
    /// `TAKEBACK lease [note]`.
    TakeBack { lease: u64, note: &'a [u8] },
    /// `TAKE` and `TAKEGROUP`.
    Take(Take<'a>),
    /// `RETURN lease [OK|FAIL]`.
    Return { lease: LeaseName, condition: Condition },
    /// `RENEW token [seconds]`.
    Renew { token: Token, span: Option<Span> },
    /// `CANCEL`.
    Cancel,
    /// `IDENTIFY name`.
    Identify { name: &'a [u8] },
    /// `BYE`.
    Bye,
}

impl Request<'_> {
    /// Returns whether only operators may send it.
    pub fn is_for_operators(&self) -> bool {
        matches!(
            self,
            Request::Pool { .. }
                | Request::Reconfigure { .. }
                | Request::RemovePool { .. }
                | Request::RemoveGroup { .. }
                | Request::Add { .. }
                | Request::Delete { .. }
                | Request::Repair { .. }
                | Request::Hold { .. }
                | Request::Free(_)
                | Request::TakeBack { .. }
        )
    }
}

/// Reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The command is unknown.
    BadCommand,
    /// The parameters are wrong; the text names the fault.
    BadSyntax(&'static str),
    /// The settings contradict each other.
    BadSettings(Contradiction),
    /// There is no pool of this name, or none in this group.
    NoPool,
    /// The pool has other settings.
    PoolDiffers,
    /// The pool has reached its number of members.
    PoolFull,
    /// The pool has a member of this name.
    MemberExists,
    /// The start has failed before its answer came.
    TooLate,
    /// A limit is reached.
    TooMany,
    /// The connection waits for a member.
    Waiting,
    /// The member does not exist.
    NoSuchMember,
    /// The connection has no start of this number.
    BadStart,
    /// The connection does not provide for the pool.
    NotProvider,
    /// The connection does not wait.
    NotWaiting,
    /// The port is not for operators.
    NotAdmin,
    /// No rule of access allows the request.
    Denied,
    /// A rule of access allows the request, but its limit is reached.
    Limited,
    /// A member or a token cannot be kept over a restart, for this reason, so that none is given out.
    NotKept(&'static str),
}

/// Reason for which a take fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMembers {
    /// The pool has reached its number of members.
    AtCapacity,
    /// A start is under way, or waits for its backoff.
    Starting,
    /// There is no provider to start one.
    NoProvider,
    /// The wait timed out.
    Timeout,
    /// The pool is removed.
    Removed,
    /// The wait was cancelled.
    Cancelled,
}

/// Reason for which a holder lost its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Lost {
    /// The member is dead.
    Died,
    /// Its provider withdrew it, or it was deleted.
    Withdrawn,
    /// An operator took it back.
    TakenBack,
    /// The member was held for longer than the pool allows.
    HeldTooLong,
    /// Its provider has disconnected.
    ProviderLost,
    /// Its pool is removed.
    Removed,
    /// The lease ran out.
    Expired,
}

/// Operator who has taken a member back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostBy {
    /// Name, else address.
    pub name: Box<[u8]>,
    /// Note for the holder; may be empty.
    pub note: Box<[u8]>,
}

/// Member that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Number of its lease.
    pub lease: u64,
    /// Name of the pool.
    pub pool: Arc<[u8]>,
    /// Name of the member.
    pub member: Arc<[u8]>,
    /// Attributes of the member.
    pub attributes: Option<Arc<Attributes>>,
    /// Token of the lease, which is valid without its connection.
    pub token: Option<Token>,
}

/// Message to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum What {
    /// The request is done.
    Ok,
    /// The request is refused.
    Error(Refusal),
    /// Member of a take.
    Member(Taken),
    /// Members of a take with a count.
    Members(Vec<Taken>),
    /// The take has failed.
    NoMembers(NoMembers),
    /// The queue of waiters is full.
    QueueFull,
    /// The connection has reached its limit of members.
    Limit,
    /// The member is returned.
    Returned,
    /// The lease is renewed.
    Renewed,
    /// The lease does not exist, or another connection holds it.
    NotTaken,
    /// All members are returned; the connection is closed.
    Bye,
    /// To a provider: start a member.
    Start { pool: Arc<[u8]>, start: u64 },
    /// To a provider: stop a member.
    Stop { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a provider: check if the member is alive.
    Check { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a provider or cleaner: clean the member.
    Clean { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a holder: it has lost the member.
    Lost { lease: u64, reason: Lost, by: Option<Box<LostBy>> },
}
