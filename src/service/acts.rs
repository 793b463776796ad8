//! Actions that operators ask of services, and their results.

use crate::container::ServiceId;
use poolcounter_core::id::ConnId;
use poolcounter_core::text::escaped;

/// Result of an [`Act`]: what was done, in a few words, or why it was not.
pub type Acted = Result<String, NotDone>;

/// Reason why an [`Act`] was not done, in a few words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotDone {
    /// There is no such action, or its key is malformed.
    Malformed(String),
    /// There is no such thing.
    NotFound(String),
    /// The thing is there, and cannot be changed so now.
    Refused(String),
    /// The store has failed meanwhile: it may be done or not.
    Unknown(String),
}

impl NotDone {
    /// Returns the reason for an action that the service does not have.
    pub fn no_action(action: &str) -> NotDone {
        NotDone::Malformed(format!("there is no action {}", escaped(action.as_bytes())))
    }

    /// Returns the words.
    pub fn text(&self) -> &str {
        let (NotDone::Malformed(text) | NotDone::NotFound(text) | NotDone::Refused(text) | NotDone::Unknown(text)) =
            self;
        text
    }
}

/// Service that is told the result of an [`Act`], and what it tells the request by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The service.
    pub service: ServiceId,
    /// The connection that asked. Its id may be that of another when the result comes.
    pub conn: ConnId,
    /// Number of the request, which no other request of the service has.
    pub number: u64,
}

/// Action that an operator asks of a service: [`crate::contract::Service::act`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Act {
    /// Gets the result: [`crate::contract::Service::acted`].
    pub asker: Asker,
    /// The name of the service that is to do it.
    pub service: String,
    /// What to do.
    pub action: String,
    /// With what.
    pub key: Vec<u8>,
}
