//! The inbox: jobs that applications put in transactions of their own, in the database that keeps the jobs.

use super::commits::Change;
use super::{Body, Put, Reply, State, Step, TubeName};
use poolcounter_protocol::jobs::wire::{Line, MAX_EXTENSION_LINE, parse};

/// Row of the inbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InboxRow {
    /// Number: rows are taken in the order of their numbers.
    pub id: i64,
    /// Tube.
    pub tube: String,
    /// Priority, delay and TTR, the latter in seconds.
    pub numbers: [i64; 3],
    /// Options of `put-job` but for the tube, such as `key=welcome:42`.
    pub options: String,
    /// Body.
    pub body: Box<[u8]>,
}

impl State {
    /// Puts the job of a row of the inbox, and notes in the same batch that the row is taken, or refused for a reason. A row
    /// whose job is kept out by its key or its root job is taken. Returns false if the job must wait for room.
    pub fn take_from_inbox(&mut self, row: &InboxRow, step: &mut Step<'_, '_>) -> bool {
        let refused = match self.put_of(row) {
            Ok(put) => match self.put_itself(&put, Body::Own(row.body.clone()), step) {
                Err(Reply::OutOfMemory | Reply::Draining) => return false,
                _ => String::new(),
            },
            Err(reason) => reason,
        };
        self.note_change(Change::Taken(row.id, refused.into()));
        true
    }

    /// Returns the put of a row. The error is the reason for which there is none.
    fn put_of(&self, row: &InboxRow) -> Result<Put, String> {
        let (most, bytes, [pri, delay, ttr]) = (self.bounds.max_size, row.body.len(), row.numbers);
        if TubeName::parse(row.tube.as_bytes()).is_none() {
            return Err("tube is not the name of a tube".into());
        }
        if bytes > most as usize {
            return Err(format!("body has {bytes} bytes, and jobs.max_size is {most}"));
        }
        let line = format!("put-job {pri} {delay} {ttr} {bytes} tube={} {}", row.tube, row.options.trim());
        match parse(line.trim_end().as_bytes()) {
            Line::Put(put, _) if line.len() <= MAX_EXTENSION_LINE => Ok(put),
            _ => Err("pri, delay, ttr or options are none of put-job".into()),
        }
    }
}
