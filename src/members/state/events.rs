//! Effects of a step: replies and messages to connections, and messages to the operator.

use super::{Ending, Refusal, What};
use poolcounter_core::{ConnId, Span};
use std::borrow::Cow;
use std::sync::Arc;

/// Reply or message to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Connection.
    pub conn: ConnId,
    /// Reply or message.
    pub what: What,
}

/// Message to the operator about a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Name of the pool.
    pub pool: Arc<[u8]>,
    /// Member that it is about; None for the pool as a whole.
    pub member: Option<Arc<[u8]>>,
    /// Name or address of the peer that caused it; empty without one.
    pub by: String,
    /// Its kind, with further facts.
    pub news: News,
}

/// Kind of a message to the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum News {
    /// Its holder has a member for longer than `warn_hold`.
    LongHold { lease: u64, held: Span },
    /// A start failed at a provider, for this reason.
    StartFailed(Box<[u8]>),
    /// A lease has ended without a return, after this time, with the note of the peer that has caused it.
    LeaseEnded { lease: u64, held: Span, holder: String, ending: Ending, note: Box<[u8]> },
    /// An operator holds a member.
    Held { span: Span, note: Box<[u8]> },
    /// An operator has ended a hold or a quarantine: it is "repaired".
    Released(&'static str),
    /// A cleaning has failed, or takes too long, for this reason.
    Unclean(String),
    /// A fixed member goes into quarantine, for this reason.
    Quarantined(Cow<'static, [u8]>),
    /// A pool of the configuration file, or a fixed member of one, cannot be added.
    NotDeclared(Refusal),
}
