//! Ids of services.

use poolcounter_core::Owner;
use std::iter::Map;
use std::ops::Range;

/// Index of a service in the list that the server was made with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServiceId(u8);

impl ServiceId {
    /// Returns the ids of the first `services` services of a list.
    ///
    /// # Panics
    ///
    /// Panics if there are more than 255.
    pub fn first(services: usize) -> Map<Range<u8>, fn(u8) -> ServiceId> {
        (0..u8::try_from(services).expect("a list of services is written by hand")).map(ServiceId)
    }

    /// Returns its index in the list.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the number under which the service arms its timers.
    pub fn owner(self) -> Owner {
        Owner(self.0)
    }

    /// Returns the service that armed a timer.
    pub fn of(owner: Owner) -> ServiceId {
        ServiceId(owner.0)
    }
}
