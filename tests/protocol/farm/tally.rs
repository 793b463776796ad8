//! What came of a run of the farm.

use crate::farm::servers::{EDIT, MS, Page, RENDERING, SECOND, WATCHED};

/// An answer that comes later, of any page, is a bad one.
const PROMPT: u64 = SECOND;

/// A time that does not come.
pub const NEVER: u64 = u64::MAX;
/// A farm that was well for so long at the end has recovered.
const QUIET: u64 = 10 * SECOND;

/// How many figures are shown of a run.
pub const FIGURES: usize = 7;

/// What happened from the edit on.
#[derive(Default)]
pub struct Tally {
    /// How often the page was begun to be rendered.
    pub renderings: u64,
    /// What they had of processors.
    pub rendering_us: u64,
    /// How many workers waited for a lock at a time, at most.
    pub most_waiting: usize,
    /// When a reader was last answered badly.
    last_bad: u64,
    /// How many readers got no answer.
    pub failed: u64,
    /// How many got a stale copy.
    pub stale: u64,
    /// How long each reader of the viral page and of the others waited; [`NEVER`] for those who got no answer.
    waits: [Vec<u64>; 2],
}

/// What a reader gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The page as it is now.
    Current,
    /// The page as it was before the edit.
    Stale,
    /// Nothing in time.
    None,
}

impl Tally {
    /// Notes what a reader got who has asked at `begun`.
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

    /// Returns how long after the edit a reader was last answered badly; [`NEVER`] if that has not ended.
    pub fn recovery(&self) -> u64 {
        let has_ended = self.last_bad + QUIET < EDIT + WATCHED;
        if has_ended { self.last_bad.saturating_sub(EDIT) } else { NEVER }
    }

    /// Returns how often the page was rendered that did not have to be.
    pub fn needless_renderings(&self) -> u64 {
        self.renderings.saturating_sub(1)
    }

    /// Returns what processors did for nothing: one rendering would have been enough.
    pub fn wasted(&self) -> u64 {
        self.rendering_us.saturating_sub(RENDERING)
    }

    /// Returns within which time 99 % of the readers of a page were answered; [`NEVER`] if fewer were.
    pub fn p99(&self, page: Page) -> u64 {
        let mut waits = self.waits[page as usize].clone();
        waits.sort_unstable();
        waits[waits.len() * 99 / 100]
    }

    /// Returns what is shown of it, each with its name.
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

/// Seconds with two decimals.
fn seconds(us: u64) -> String {
    match us {
        NEVER => "never".into(),
        us => format!("{}.{:02}", us / SECOND, us % SECOND / (10 * MS)),
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    match number / 1_000 {
        0 => number.to_string(),
        thousands => format!("{},{:03}", grouped(thousands), number % 1_000),
    }
}
