//! Possible states of one job in the store, and the effect of each change.

use std::collections::BTreeMap;

/// Part of a job that changes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shape {
    pub tube: String,
    pub pri: u32,
    pub delay: u32,
    pub attempts: u32,
    pub error: String,
    /// Tube from which a dead letter comes; empty if it is none.
    pub origin: String,
    pub place: Place,
}

/// State of a job. A reserved job is ready, because reservations are not stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    Ready,
    /// Earliest and latest time at which it may be ready, in milliseconds.
    Delayed(u64, u64),
    Buried,
}

/// Change of a job that does not end it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Release with a priority and a delay.
    Release(u32, u32),
    Bury(u32),
    /// Kick: the job is ready, and its attempts are reset.
    Kick,
    /// Release that counts as an attempt, with a text.
    Fail(u32, u32, String),
    /// Reservation that ended with the connection.
    Lose,
    /// Reservation by a client.
    Reserve,
}

/// Retry settings of a tube: number of attempts, seconds between them, and the dead-letter tube.
#[derive(Clone, Default, Debug)]
pub struct Retry {
    pub attempts: u32,
    pub seconds: u32,
    pub dead_letter: Option<String>,
}

/// Difference allowed between the clocks of the store, of the reply and of the test.
const SLACK_MS: u64 = 2_000;

impl Place {
    /// Returns the state of a job after a delay that began at some time of this span.
    pub fn after(delay: u32, from: u64, to: u64) -> Place {
        let delay = u64::from(delay) * 1000;
        if delay == 0 { Place::Ready } else { Place::Delayed(from + delay, to.saturating_add(delay)) }
    }

    /// Returns whether a job stored in this state may now be seen in `found`.
    fn may_be(self, found: Place, now: u64) -> bool {
        match (self, found) {
            (Place::Delayed(from, _), Place::Ready) => from <= now + SLACK_MS,
            (Place::Delayed(from, to), Place::Delayed(begin, end)) => {
                from <= end + SLACK_MS && begin <= to.saturating_add(SLACK_MS)
            }
            (stored, found) => stored == found,
        }
    }
}

impl Shape {
    /// Returns whether a job stored like this may now be seen as `found`.
    pub fn may_be(&self, found: &Shape, now: u64) -> bool {
        let rest = |shape: &Shape| Shape { place: Place::Ready, ..shape.clone() };
        rest(self) == rest(found) && self.place.may_be(found.place, now)
    }

    /// Returns the possible results of a change that happened at some time of this span.
    pub fn changed(&self, change: &Change, span: (u64, u64), retries: &BTreeMap<String, Retry>) -> Vec<Shape> {
        let ready = Shape { place: Place::Ready, ..self.clone() };
        match change {
            Change::Release(pri, delay) => {
                vec![Shape { pri: *pri, delay: *delay, place: Place::after(*delay, span.0, span.1), ..ready }]
            }
            Change::Bury(pri) => vec![Shape { pri: *pri, place: Place::Buried, ..ready }],
            Change::Kick if self.origin.is_empty() => vec![Shape { attempts: 0, ..ready }],
            Change::Kick => vec![Shape { attempts: 0, tube: self.origin.clone(), origin: String::new(), ..ready }],
            Change::Fail(pri, delay, text) => {
                Shape { pri: *pri, delay: *delay, error: text.clone(), ..ready }.tried(*delay, span, retries)
            }
            Change::Lose => ready.tried(0, span, retries),
            // The old state lasts until the change is committed.
            Change::Reserve => vec![self.clone(), ready],
        }
    }

    /// Returns the possible results of an attempt, if a delay of `least` seconds was asked for.
    fn tried(self, least: u32, (from, to): (u64, u64), retries: &BTreeMap<String, Retry>) -> Vec<Shape> {
        let retry = retries.get(&self.tube).cloned().unwrap_or_default();
        let attempts = self.attempts + 1;
        let tried = Shape { attempts, ..self };
        if retry.attempts > 0 && attempts >= retry.attempts {
            return match retry.dead_letter {
                Some(tube) => {
                    let origin = if tried.origin.is_empty() { tried.tube.clone() } else { tried.origin.clone() };
                    vec![Shape { tube, origin, attempts: 0, ..tried }]
                }
                None => vec![Shape { place: Place::Buried, ..tried }],
            };
        }
        // A tenth more or less, cut to seconds.
        let (shortest, longest) = (u64::from(retry.seconds) * 900, u64::from(retry.seconds) * 1100);
        if longest <= u64::from(least) * 1000 {
            return vec![Shape { place: Place::after(least, from, to), ..tried }];
        }
        let place = Place::Delayed(from + shortest, to.saturating_add(longest));
        let delays = (shortest / 1000).max(u64::from(least))..=longest / 1000;
        delays.map(|delay| Shape { delay: delay as u32, place, ..tried.clone() }).collect()
    }
}
