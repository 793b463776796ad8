//! Results of a run of the farm.

use crate::farm::servers::{EDIT, MS, Page, RENDERING, SECOND, WATCHED};

/// Longest time of a good answer, of any page.
const PROMPT: u64 = SECOND;

/// Time that is never reached.
pub const NEVER: u64 = u64::MAX;
/// Time without bad answers at the end after which a farm counts as recovered.
const QUIET: u64 = 10 * SECOND;

/// Number of figures of a run.
pub const FIGURES: usize = 7;

/// Results from the edit on.
#[derive(Default)]
pub struct Tally {
    /// Number of renderings of the page that were started.
    pub renderings: u64,
    /// Processor time of the renderings, in microseconds.
    pub rendering_us: u64,
    /// Largest number of workers that waited for a lock at a time.
    pub most_waiting: usize,
    /// Time of the last bad answer to a reader.
    last_bad: u64,
    /// Number of readers without an answer.
    pub failed: u64,
    /// Number of readers with a stale copy.
    pub stale: u64,
    /// Waits of the readers of the viral page and of other readers; [`NEVER`] for readers without an answer.
    waits: [Vec<u64>; 2],
}

/// Answer to a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The page as it is now.
    Current,
    /// The page as it was before the edit.
    Stale,
    /// No answer in time.
    None,
}

impl Tally {
    /// Notes the answer to a reader whose request began at `begun`.
    pub fn note(&mut self, page: Page, answer: Answer, begun: u64, now: u64) {
        if now < EDIT {
            return;
        }
        let wait = if answer == Answer::None { NEVER } else { now - begun };
        self.failed += u64::from(answer == Answer::None);
        self.stale += u64::from(answer == Answer::Stale);
        if answer != Answer::Current || wait > PROMPT {
            self.last_bad = now;
        }
        self.waits[page as usize].push(wait);
    }

    /// Returns the time from the edit to the last bad answer; [`NEVER`] if these have not ended.
    pub fn recovery(&self) -> u64 {
        let has_ended = self.last_bad + QUIET < EDIT + WATCHED;
        if has_ended { self.last_bad.saturating_sub(EDIT) } else { NEVER }
    }

    /// Returns the number of renderings that were not needed.
    pub fn needless_renderings(&self) -> u64 {
        self.renderings.saturating_sub(1)
    }

    /// Returns the wasted processor time: one rendering would have been enough.
    pub fn wasted(&self) -> u64 {
        self.rendering_us.saturating_sub(RENDERING)
    }

    /// Returns the 99th percentile of the waits of the readers of a page; [`NEVER`] if fewer got an answer.
    pub fn p99(&self, page: Page) -> u64 {
        let mut waits = self.waits[page as usize].clone();
        waits.sort_unstable();
        waits[waits.len() * 99 / 100]
    }

    /// Returns the figures of the table, each with its name.
    pub fn figures(&self) -> [(&'static str, String); FIGURES] {
        [
            ("time to recover, s", seconds(self.recovery())),
            ("requests without an answer", grouped(self.failed)),
            ("requests with a stale copy", grouped(self.stale)),
            ("renderings too many", grouped(self.needless_renderings())),
            ("processor seconds wasted", grouped(self.wasted() / SECOND)),
            ("99 % of other pages within, s", seconds(self.p99(Page::Other))),
            ("workers that wait, at most", grouped(self.most_waiting as u64)),
        ]
    }
}

/// Returns seconds with two decimals.
fn seconds(us: u64) -> String {
    match us {
        NEVER => "never".into(),
        us => format!("{}.{:02}", us / SECOND, us % SECOND / (10 * MS)),
    }
}

/// Returns a number with commas between thousands.
fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1_000),
    }
}
