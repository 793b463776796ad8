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

/// Message to the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum Notice {
    /// A member is held for longer than `warn_hold`.
    LongHold { pool: Arc<[u8]>, member: Arc<[u8]>, lease: u64, held: Span, holder: String },
    /// A start failed, with the address of the provider and the reason.
    StartFailed { pool: Arc<[u8]>, provider: String, text: Box<[u8]> },
    /// A lease has ended without a return, after this time, with the peer that has caused it, if there is one, and its
    /// note.
    LeaseEnded {
        pool: Arc<[u8]>,
        member: Arc<[u8]>,
        lease: u64,
        held: Span,
        holder: String,
        ending: Ending,
        by: String,
        note: Box<[u8]>,
    },
    /// An operator holds a member.
    Held { pool: Arc<[u8]>, member: Arc<[u8]>, span: Span, note: Box<[u8]>, by: String },
    /// An operator has ended a hold or a quarantine: `release` is "repaired".
    Released { pool: Arc<[u8]>, member: Arc<[u8]>, release: &'static str, by: String },
    /// A cleaning has failed, or takes too long, with the reason and the cleaner that has reported it.
    Unclean { pool: Arc<[u8]>, member: Arc<[u8]>, why: String, by: String },
    /// A fixed member goes into quarantine, with the reason, and the name or address of the peer that caused it.
    Quarantined { pool: Arc<[u8]>, member: Arc<[u8]>, why: Cow<'static, [u8]>, by: Box<[u8]> },
    /// A pool of the configuration file, or a fixed member of one, cannot be added.
    NotDeclared { pool: Arc<[u8]>, member: Option<Arc<[u8]>>, why: Refusal },
}
