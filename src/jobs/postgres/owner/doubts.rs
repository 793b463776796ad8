//! Consequences of the row: the owner of the queue, the outcome of an unanswered request, and commits that the database
//! has lost.

use super::{BEAT, FIRST_PAUSE, FIRST_SILENT_PAUSE, LONGEST_PAUSE, NOBODY, Owner, OwnerRow, Phase};
use crate::postgres::messages::{Answer, Cursor, Fence, Reach, StoreEvent};
use crate::store::HandedOver;
use poolcounter_core::{Span, Time};

impl Owner {
    pub(super) fn took(&mut self, row: &OwnerRow, now: Time) {
        let is_same = self.is_same_queue(row);
        (self.queue, self.epoch, self.since) = (Some(row.queue), row.epoch, row.since);
        let has_all = match &self.phase {
            Phase::StandsBy => {
                self.trust(now);
                return self.begin_reading(row);
            }
            Phase::GoesOn(handed_over) => {
                let HandedOver { mark, is_whole, .. } = **handed_over;
                is_same && is_whole && row.batch == mark.batch
            }
            // No other daemon has written since, but something is missing.
            _ => false,
        };
        self.trust(now);
        if has_all {
            self.phase = Phase::Owns;
            self.works();
        } else {
            self.begin_rewrite(row);
        }
    }

    fn begin_reading(&mut self, row: &OwnerRow) {
        (self.queue, self.epoch, self.since) = (Some(row.queue), row.epoch, row.since);
        (self.batch, self.phase) = (row.batch, Phase::Reads(Cursor::Start, 0));
        self.events.push_back(StoreEvent::Owns(self.holder()));
    }

    /// Processes the row when nothing was taken.
    pub(super) fn saw(&mut self, row: &OwnerRow, now: Time) {
        let is_mine = row.address == self.address;
        match self.phase.clone() {
            Phase::GoesOn(_) if is_mine => self.took(row, now),
            Phase::GoesOn(_) | Phase::Retakes if !self.is_same_queue(row) => self.refuse(now),
            _ if self.is_in_doubt && !self.is_same_queue(row) => self.refuse(now),
            // The same take-over in a copy of the queue belongs to the others that have the copy.
            Phase::GoesOn(_) if row.epoch <= self.epoch => self.refuse(now),
            _ if self.is_in_doubt => self.resolve(row, now),
            Phase::Retakes if is_mine && row.epoch > self.epoch => self.took(row, now),
            // Its owner was silent for long before it was taken for dead, and counts as dead soon.
            Phase::Retakes if row.epoch < self.epoch => self.not_before = now + BEAT.min(row.rest + FIRST_PAUSE),
            Phase::Retakes | Phase::GoesOn(_) => self.lose(&taken_by(row), now),
            // A statement that was given up has taken the queue, or its answer was lost. The time is unknown, so the
            // lease is renewed first.
            Phase::StandsBy if is_mine => {
                self.renewed = Time::START;
                self.begin_reading(row);
            }
            _ if row.address == NOBODY && now < self.takes_from => self.takes_from = now,
            _ => {
                let rest = row.rest.max(self.takes_from.since(now));
                self.not_before = now + BEAT.min(rest + FIRST_PAUSE);
                self.events.push_back(StoreEvent::StandsBy(row.clone()));
            }
        }
    }

    /// Decides by the row if an unanswered request was executed.
    fn resolve(&mut self, row: &OwnerRow, now: Time) {
        self.is_in_doubt = false;
        if row.epoch < self.epoch {
            log::error!(
                "the database knows only of the take-over {}, and this daemon has the queue by {}: it has lost commits",
                row.epoch,
                self.epoch
            );
            if let Phase::Reads(..) = self.phase {
                return self.lose("the database has lost commits", now);
            }
            self.phase = Phase::Retakes;
            return;
        }
        if row.epoch > self.epoch || row.address != self.address {
            return self.lose(&taken_by(row), now);
        }
        let target = self.target();
        match &self.phase {
            Phase::Reads(..) | Phase::Owns if row.batch == self.batch => {}
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
        // No other attempt has this number, and the row has it only once everything is written.
        self.attempt = self.attempt.max(row.attempt) + 1;
        let left = Fence { epoch: self.epoch, from: row.batch, to: row.batch, attempt: row.attempt };
        self.phase = Phase::Rewrites(left, false);
        self.events.push_back(StoreEvent::Rewrite(self.rewrites, self.holder()));
    }

    /// Returns true if a row is of the queue whose jobs the loop has.
    fn is_same_queue(&self, row: &OwnerRow) -> bool {
        self.queue == Some(row.queue)
    }

    /// Notes if an answer proves that the data in the database is durable.
    pub(super) fn weigh(&mut self, answer: &Answer, now: Time) {
        let reach = match answer {
            Answer::Took(_, reach) | Answer::Renewed(Some(_), reach) | Answer::Committed(true, reach) => reach,
            Answer::Page(..) => return self.is_answered(),
            Answer::Seen(_) => {
                self.silent_pause = FIRST_SILENT_PAUSE;
                return self.is_proven = false;
            }
            _ => return,
        };
        self.is_proven = *reach == Reach::Kept;
        match reach {
            Reach::Kept => self.is_answered(),
            Reach::Warned(sentence) => {
                self.rest(now);
                self.fail(sentence.clone());
            }
        }
    }

    fn is_answered(&mut self) {
        (self.pause, self.silent_pause) = (FIRST_PAUSE, FIRST_SILENT_PAUSE);
    }

    /// Pauses the requests, each time for longer.
    pub(super) fn rest(&mut self, now: Time) {
        self.not_before = now + self.pause;
        self.pause = Span::from_micros(self.pause.as_micros() * 2).min(LONGEST_PAUSE);
    }

    pub(super) fn fail(&mut self, sentence: String) {
        self.is_failing = true;
        self.events.push_back(StoreEvent::Fails(sentence));
    }

    pub(super) fn works(&mut self) {
        self.is_failing = false;
        self.events.push_back(StoreEvent::Works(self.holder()));
    }

    /// Refuses a database that has other jobs than the loop. Another database may be behind the same name at the next
    /// connection.
    fn refuse(&mut self, now: Time) {
        self.is_connected = false;
        self.not_before = now + BEAT;
        self.fail("the database has other jobs than this daemon, and neither are given up".into());
    }

    /// Stands by, because another daemon owns the queue: discards the loop's orders.
    pub(super) fn lose(&mut self, why: &str, now: Time) {
        (self.phase, self.is_in_doubt) = (Phase::StandsBy, false);
        self.queue = None;
        self.trusted_until = Time::START;
        (self.under_way, self.unsaid, self.slice) = (None, None, None);
        (self.inbox_at, self.in_hand) = (now, 0);
        self.term += 1;
        self.not_before = now;
        self.events.push_back(StoreEvent::Lost(why.into()));
    }
}

fn taken_by(row: &OwnerRow) -> String {
    format!("{} has the queue, by the take-over {}", row.address, row.epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::messages::{Order, StoreRequest, Wish};
    use crate::postgres::owner::Next;
    use crate::store::batch::Batch;

    /// The process before has left changes that are not in the database. The row has the attempt of its last commit.
    #[test]
    fn interrupted_rewrite_begins_again() {
        let mut owner =
            Owner::going_on("me".into(), HandedOver { is_whole: false, ..HandedOver::default() }, Time::START);
        let row = OwnerRow { epoch: 1, attempt: 45, address: "me".into(), ..OwnerRow::default() };
        owner.queue = Some(row.queue);
        let mut rewrites = Vec::new();
        for second in 1..=9 {
            let now = Time::START + Span::from_secs(second);
            let Next::Ask(ask) = owner.next(now) else { continue };
            let answer = match ask {
                StoreRequest::Connect => Answer::Done,
                StoreRequest::GoOn(_) => Answer::Took(row.clone(), Reach::Kept),
                StoreRequest::Look => Answer::Seen(row.clone()),
                StoreRequest::Renew(_) => Answer::Renewed(Some(0), Reach::Kept),
                _ => Answer::Failed { sentence: "the connection is lost".into(), is_connected: false },
            };
            owner.answer(answer, now);
            while let Some(event) = owner.next_event() {
                if let StoreEvent::Works(_) | StoreEvent::Rewrite(..) = event {
                    rewrites.push(matches!(event, StoreEvent::Rewrite(..)));
                }
                if let StoreEvent::Rewrite(number, _) = event {
                    let wish = Wish::Slice { number, batch: Batch::default(), is_last: false };
                    owner.order(Order { term: 0, wish }, now);
                }
            }
        }
        assert_eq!(rewrites, [true; 2], "it does not work before everything is written");
    }
}
