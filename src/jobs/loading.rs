//! Progress of the reading of a store: in the log, and as a bar if stderr is a terminal.

use log::info;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Time that a reading takes before its progress is shown.
const FIRST_WORD: Duration = Duration::from_secs(1);
/// Time between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(2);
/// Time between two drawings of the bar.
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
    /// Starts the progress of the store at `place`.
    pub fn begin(place: String) -> Loading {
        let now = Instant::now();
        Loading { place, begun: now, logged: now, drawn: None, is_seen: stderr().is_terminal() }
    }

    /// Shows that a share of the store, 0 to 1, is read.
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

    /// Ends the progress and logs the number of jobs.
    pub fn end(mut self, jobs: usize) {
        if self.drawn.is_some() {
            self.draw("");
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        info!("the jobs are kept in {}: {jobs} were read in {seconds:.1} s", self.place);
    }

    fn draw(&mut self, text: &str) {
        // Without a terminal that can be written to, the bar is not needed.
        let _ = write!(stderr(), "\r\x1b[K{text}");
    }
}
