//! What follows from the row: who has the queue, what became of something that was not answered, and what the database has lost.

use super::{BEAT, FIRST_PAUSE, NOBODY, Owner, OwnerRow, Phase, Stage};
use crate::jobs::postgres::asks::{Cursor, Fence, Told};
use crate::time::Time;

/// Epochs of one database differ in no more than these bits: each begins at the time when it was made, so that those of two
/// databases are told apart.
const EPOCHS_OF_A_DATABASE: u32 = 20;

impl Owner {
    pub(super) fn took(&mut self, row: &OwnerRow, now: Time) {
        (self.epoch, self.since) = (row.epoch, row.since);
        let has_all = match &self.phase {
            Phase::StandsBy => {
                self.trust(now);
                self.batch = row.batch;
                self.phase = Phase::Reads(Cursor::Start, 0);
                return self.told.push_back(Told::Owns(self.holder()));
            }
            Phase::GoesOn(mark) => is_same_database(mark.opening, row.epoch) && row.batch == mark.batch,
            // Nobody else has written since, but something is missing.
            _ => false,
        };
        self.trust(now);
        if has_all {
            self.phase = Phase::Owns;
            self.told.push_back(Told::Works(self.holder()));
        } else {
            self.begin_rewrite(row);
        }
    }

    /// The row is this, and nothing was taken.
    pub(super) fn saw(&mut self, row: &OwnerRow, now: Time) {
        let is_mine = row.address == self.address;
        match self.phase.clone() {
            Phase::Doubts(before) => self.resolve(*before, row, now),
            Phase::GoesOn(mark) if is_mine || !is_same_database(mark.opening, row.epoch) => {
                if is_mine {
                    return self.took(row, now);
                }
                let why = "the database has other jobs than this daemon, and neither are given up";
                self.told.push_back(Told::Fails(why.into()));
                self.not_before = now + BEAT;
            }
            Phase::Retakes if is_mine && row.epoch > self.epoch => self.took(row, now),
            // Its owner was not heard of for long when it was taken for dead, and counts as dead soon.
            Phase::Retakes if row.epoch < self.epoch => self.not_before = now + BEAT.min(row.rest + FIRST_PAUSE),
            Phase::Retakes | Phase::GoesOn(_) => self.lose(&taken_by(row), now),
            _ if row.address == NOBODY && now < self.takes_from => self.takes_from = now,
            _ => {
                let rest = row.rest.max(self.takes_from.since(now));
                self.not_before = now + BEAT.min(rest + FIRST_PAUSE);
                self.told.push_back(Told::StandsBy(row.holder()));
            }
        }
    }

    /// Decides by the row what became of something that was not answered.
    pub(super) fn resolve(&mut self, before: Phase, row: &OwnerRow, now: Time) {
        if row.epoch < self.epoch {
            log::error!(
                "the database knows only of the take-over {}, and this daemon has the queue by {}: it has lost commits",
                row.epoch,
                self.epoch
            );
            self.phase = if let Phase::Reads(..) = before { Phase::StandsBy } else { Phase::Retakes };
            if let Phase::StandsBy = self.phase {
                self.lose("the database has lost commits", now);
            }
            return;
        }
        if row.epoch > self.epoch || row.address != self.address {
            return self.lose(&taken_by(row), now);
        }
        let target = self.target();
        match before {
            Phase::Reads(..) if row.batch == self.batch => self.phase = before,
            Phase::Owns if row.batch == self.batch => {
                self.phase = Phase::Owns;
                if self.under_way.is_none() {
                    self.told.push_back(Told::Works(self.holder()));
                }
            }
            Phase::Owns if row.batch == target => self.committed_before(),
            Phase::Rewrites(left, _) if row.attempt == self.attempt || row.batch == target && left.to != target => {
                self.committed_before();
            }
            Phase::Owns | Phase::Rewrites(..) if row.batch <= self.batch => {
                log::error!(
                    "the database has the batch {}, and {} was committed: all jobs are written anew",
                    row.batch,
                    self.batch
                );
                self.begin_rewrite(row);
            }
            _ => self.lose("the database has other batches than this daemon has committed", now),
        }
    }

    pub(super) fn begin_rewrite(&mut self, row: &OwnerRow) {
        self.rewrites += 1;
        self.slice = None;
        // No other attempt has this number.
        self.attempt = self.attempt.max(row.attempt);
        let left = Fence { epoch: self.epoch, from: row.batch, to: row.batch, attempt: row.attempt };
        self.phase = Phase::Rewrites(left, Stage::Begins);
        self.told.push_back(Told::Rewrite(self.rewrites));
    }

    /// Another has the queue. What the loop has counts for nothing any more.
    pub(super) fn lose(&mut self, why: &str, now: Time) {
        self.phase = Phase::StandsBy;
        self.trusted_until = Time::START;
        (self.under_way, self.unsaid, self.slice) = (None, None, None);
        self.term += 1;
        self.not_before = now;
        self.told.push_back(Told::Lost(why.into()));
    }
}

fn taken_by(row: &OwnerRow) -> String {
    format!("{} has the queue, by the take-over {}", row.address, row.epoch)
}

fn is_same_database(one: u64, other: u64) -> bool {
    one >> EPOCHS_OF_A_DATABASE == other >> EPOCHS_OF_A_DATABASE
}
