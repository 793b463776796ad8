//! Tells how far the reading of a store is: in the log, and with a bar where a person looks.

use log::info;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// What is read in less time is not worth a word.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// How often the log is told.
const LOG_EVERY: Duration = Duration::from_secs(2);
/// How often the bar moves.
const DRAW_EVERY: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 40;

/// The reading of a store.
pub(super) struct Loading {
    place: String,
    begun: Instant,
    logged: Instant,
    drawn: Option<Instant>,
    is_seen: bool,
}

impl Loading {
    /// It begins.
    pub fn begin(place: String) -> Loading {
        let now = Instant::now();
        Loading { place, begun: now, logged: now, drawn: None, is_seen: stderr().is_terminal() }
    }

    /// So much of it is done.
    pub fn note(&mut self, share: f64) {
        let now = Instant::now();
        if self.is_seen && self.drawn.map_or(now - self.begun > FIRST_WORD, |drawn| now - drawn > DRAW_EVERY) {
            self.drawn = Some(now);
            // Lossless enough for a bar: the share is from 0 to 1.
            let full = (share * BAR_WIDTH as f64) as usize;
            self.draw(&format!("[{:#<full$}{:width$}] {:3.0} %", "", "", share * 100.0, width = BAR_WIDTH - full));
        } else if !self.is_seen && now - self.logged > LOG_EVERY {
            self.logged = now;
            info!("{:.0} % of the jobs in {} are read", share * 100.0, self.place);
        }
    }

    /// It is over; there are so many jobs.
    pub fn end(mut self, jobs: usize) {
        if self.drawn.is_some() {
            self.draw("");
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        info!("the jobs are kept in {}: {jobs} were read in {seconds:.1} s", self.place);
    }

    fn draw(&mut self, text: &str) {
        // Nothing is lost when nobody can read it.
        let _ = write!(stderr(), "\r\x1b[K{text}");
    }
}
