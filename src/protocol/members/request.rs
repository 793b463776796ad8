//! What connections ask of the members service, and what they are told: values that both sides of the protocol have.

pub use super::pool_settings::Attributes;
use super::pool_settings::{Change, Contradiction, Filter};
use poolcounter_core::time::Span;
use std::sync::Arc;

/// The number of a lease, or the token of one that outlives its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseName {
    /// Strictly increasing, never used again.
    Number(u64),
    /// 128 random bits.
    Token(Token),
}

/// 128 random bits that name a lease to whoever knows them.
pub type Token = [u8; 16];

/// What `TAKE` and `TAKEGROUP` ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Take<'a> {
    /// The pool or the group.
    pub from: From<'a>,
    /// How long to wait.
    pub timeout: Span,
    /// What the members must be like; None when any will do.
    pub filter: Option<Box<Filter>>,
    /// How many members, when it was said; at least 1.
    pub count: Option<u32>,
    /// 0 to 9, lower first.
    pub priority: u8,
    /// How long the lease lasts without its connection, when it does.
    pub lease: Option<Span>,
}

/// Where a take is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From<'a> {
    /// The pool of this name.
    Pool(&'a [u8]),
    /// Any pool of this group.
    Group(&'a [u8]),
}

/// A member of a pool, by their names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named<'a> {
    /// The pool's name.
    pub pool: &'a [u8],
    /// The member's name.
    pub member: &'a [u8],
}

/// How a member comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// As it was.
    Ok,
    /// Not usable.
    Fail,
}

/// One request of a connection that changes something.
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
    /// `DEAD member`.
    Dead { member: &'a [u8] },
    /// `CLEANED member`.
    Cleaned { member: &'a [u8] },
    /// `OFFER pool member [attr=value ...]`.
    Offer { named: Named<'a>, attributes: Attributes },
    /// `WITHDRAW pool member [NOW]`.
    Withdraw { named: Named<'a>, now: bool },
    /// `ADD pool member [attr=value ...]`.
    Add { named: Named<'a>, attributes: Attributes },
    /// `DEL pool member [NOW]`.
    Delete { named: Named<'a>, now: bool },
    /// `REPAIR pool member`.
    Repair(Named<'a>),
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
    /// Returns whether only operators may ask for it.
    pub fn is_for_operators(&self) -> bool {
        matches!(
            self,
            Request::Pool { .. }
                | Request::Reconfigure { .. }
                | Request::RemovePool { .. }
                | Request::RemoveGroup { .. }
                | Request::Add { .. }
                | Request::Delete { .. }
                | Request::Repair(_)
                | Request::Hold { .. }
                | Request::Free(_)
                | Request::TakeBack { .. }
        )
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No such command.
    BadCommand,
    /// The parameters are not those of the command; the text says which.
    BadSyntax(&'static str),
    /// The settings contradict each other.
    BadSettings(Contradiction),
    /// There is no pool of this name, or none in this group.
    NoPool,
    /// The pool has other settings.
    PoolDiffers,
    /// The pool has as many members as it may have.
    PoolFull,
    /// The pool has a member of this name.
    MemberExists,
    /// The start has failed before its answer came.
    TooLate,
    /// A bound is reached.
    TooMany,
    /// The connection waits for a member.
    Waiting,
    /// There is no such member.
    NoSuchMember,
    /// The connection was not given this start.
    BadStart,
    /// The connection does not provide for the pool.
    NotProvider,
    /// The connection does not wait.
    NotWaiting,
    /// The port is not for operators.
    NotAdmin,
    /// No rule of access allows that.
    Denied,
    /// A rule of access allows that, but not as often.
    Limited,
}

/// Why a take has no members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMembers {
    /// The pool has as many members as it may have.
    AtCapacity,
    /// A start is under way, or waits for its backoff.
    Starting,
    /// There is no provider to start one.
    NoProvider,
    /// The wait ran out.
    Timeout,
    /// The pool is removed.
    Removed,
    /// The wait was cancelled.
    Cancelled,
}

/// Why a holder no longer has its member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The member is dead.
    Died,
    /// Its provider withdrew it, or it was deleted.
    Withdrawn,
    /// An operator took it back.
    TakenBack,
    /// It was held for longer than the pool allows.
    HeldTooLong,
    /// Its provider is gone.
    ProviderLost,
    /// Its pool is removed.
    Removed,
    /// The lease ran out.
    Expired,
}

/// A member that was handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// The number of its lease.
    pub lease: u64,
    /// The pool's name.
    pub pool: Arc<[u8]>,
    /// The member's name.
    pub member: Arc<[u8]>,
    /// The member's attributes.
    pub attributes: Option<Arc<Attributes>>,
    /// What names the lease without its connection.
    pub token: Option<Token>,
}

/// What a connection is told.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum What {
    /// It is done.
    Ok,
    /// It is refused.
    Error(Refusal),
    /// The member that a take asked for.
    Member(Taken),
    /// The members that a take with a count asked for.
    Members(Vec<Taken>),
    /// A take has none.
    NoMembers(NoMembers),
    /// Too many wait.
    QueueFull,
    /// The connection holds as many members as it may hold.
    Limit,
    /// The member is given back.
    Returned,
    /// The lease lasts longer.
    Renewed,
    /// There is no such lease, or another connection holds it.
    NotTaken,
    /// Everything is given back; the connection is to be closed.
    Bye,
    /// To a provider: start a member.
    Start { pool: Arc<[u8]>, start: u64 },
    /// To a provider: stop a member.
    Stop { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a provider: is the member alive?
    Check { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a provider or cleaner: clean the member.
    Clean { pool: Arc<[u8]>, member: Arc<[u8]> },
    /// To a holder: it no longer has the member.
    Lost { lease: u64, reason: Lost },
}
