//! Pauses of wikis whose jobs could not be run, and their lengths.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest pause by doubling.
const LONGEST: Duration = Duration::from_secs(300);

/// Pauses of wikis since their last successful job.
#[derive(Default)]
pub struct Rests {
    wikis: Mutex<HashMap<String, Rest>>,
}

struct Rest {
    time: Duration,
    until: Instant,
}

impl Rests {
    /// Starts a pause of a wiki, and returns its length: `asked` for the first, then twice the previous one. A request
    /// during a pause returns the rest of it.
    pub fn begin(&self, wiki: &str, asked: Duration, now: Instant) -> Duration {
        let mut wikis = self.wikis.lock().unwrap_or_else(PoisonError::into_inner);
        let time = match wikis.get(wiki) {
            Some(rest) if now < rest.until => return rest.until - now,
            Some(rest) => (2 * rest.time).clamp(asked, LONGEST.max(asked)),
            None => asked,
        };
        // After this, the next pause is short again.
        wikis.retain(|_, rest| now < rest.until + 2 * LONGEST);
        let until = now.checked_add(time).unwrap_or(now);
        wikis.insert(wiki.into(), Rest { time, until });
        time
    }

    /// Resets the pause of a wiki after a successful job.
    pub fn end(&self, wiki: &str) {
        self.wikis.lock().unwrap_or_else(PoisonError::into_inner).remove(wiki);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_until_a_job_is_done() {
        let (rests, asked, mut now) = (Rests::default(), Duration::from_secs(30), Instant::now());
        for (n, wanted) in [30, 60, 120, 240, 300, 300].into_iter().enumerate() {
            let time = rests.begin("a", asked, now);
            assert_eq!(time, Duration::from_secs(wanted));
            assert_eq!(rests.begin("a", asked, now + time / 2), time / 2, "it is the same rest");
            assert_eq!(rests.begin(&format!("b{n}"), asked, now), asked, "of another wiki");
            now += time;
        }
        rests.end("a");
        assert_eq!(rests.begin("a", asked, now), asked);
        let long = Duration::from_secs(1000);
        assert_eq!(rests.begin("c", long, now), long);
        assert_eq!(rests.begin("c", long, now + long), long);
    }
}
