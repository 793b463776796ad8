//! Wikis whose tubes rest, because a job of theirs could not be run: how long the next rest is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest rest that follows from others.
const LONGEST: Duration = Duration::from_secs(300);

/// Rests of wikis since a job of theirs was last done.
#[derive(Default)]
pub struct Rests {
    wikis: Mutex<HashMap<String, Rest>>,
}

struct Rest {
    time: Duration,
    until: Instant,
}

impl Rests {
    /// Begins a rest of a wiki, and returns its length: `asked` for the first, twice as long as the one before for the next. One
    /// that several commands ask for is the same.
    pub fn begin(&self, wiki: &str, asked: Duration, now: Instant) -> Duration {
        let mut wikis = self.wikis.lock().unwrap_or_else(PoisonError::into_inner);
        let time = match wikis.get(wiki) {
            Some(rest) if now < rest.until => return rest.until - now,
            Some(rest) => (2 * rest.time).clamp(asked, LONGEST.max(asked)),
            None => asked,
        };
        // Forgetting one only makes its next rest a short one.
        wikis.retain(|_, rest| now < rest.until + 2 * LONGEST);
        let until = now.checked_add(time).unwrap_or(now);
        wikis.insert(wiki.into(), Rest { time, until });
        time
    }

    /// A job of the wiki is done: its next rest is short again.
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
