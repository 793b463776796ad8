//! What a step has to say, and to whom.

use super::{Refusal, What};
use poolcounter_core::id::ConnId;
use poolcounter_core::time::Span;
use std::sync::Arc;

/// One thing that a connection is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which connection.
    pub conn: ConnId,
    /// What.
    pub what: What,
}

/// Something that operators are told.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are named as what they are")]
pub enum Notice {
    /// A member is held for longer than `warn_hold`.
    LongHold { pool: Arc<[u8]>, member: Arc<[u8]>, lease: u64, held: Span, holder: String },
    /// A start failed, with the provider's own words.
    StartFailed { pool: Arc<[u8]>, text: Box<[u8]> },
    /// A start has succeeded after others had failed.
    StartsAgain { pool: Arc<[u8]> },
    /// An operator took a member back.
    TakenBack { pool: Arc<[u8]>, member: Arc<[u8]>, lease: u64, note: Box<[u8]> },
    /// An operator holds a member.
    Held { pool: Arc<[u8]>, member: Arc<[u8]>, span: Span, note: Box<[u8]> },
    /// A pool of the configuration file, or a fixed member of one, cannot be added to what there is.
    NotDeclared { pool: Arc<[u8]>, member: Option<Arc<[u8]>>, why: Refusal },
}
