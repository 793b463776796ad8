//! What is known of wikis and of types of jobs: sums over their tubes, kept as jobs move, so that to tell them costs the same
//! however many tubes and jobs there are.

use super::State;
use super::name::{type_of, wiki_of};
use super::rates::{Event as Rated, Rates};
use super::sweeps::JobState;
use super::tube::TubeId;
use crate::histogram::Histogram;
use crate::id::{Id, id};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::BTreeMap;

id! {
    /// A wiki or a type of jobs.
    SumId
}

/// By which part of their names tubes are summed up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum SumBy {
    /// The first part.
    Wiki,
    /// The last part.
    Type,
}

/// What happens in a tube and is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    /// A job was put.
    Put,
    /// A job was reserved, and how long it was ready before if it was.
    Reserve(Option<Span>),
    /// A job was deleted by a client.
    Delete,
    /// A job was refused because of its key.
    Duplicate,
    /// A leaf was refused or dropped because of a newer root job.
    Superseded,
}

/// What happened, in one tube or several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// How long jobs were ready before they were reserved.
    pub pickups: Histogram,
    /// Puts, reserves and deletes a second.
    pub rates: Rates,
    /// Puts, reserves and deletes.
    pub events: [u64; 3],
    /// Jobs refused because of their key.
    pub duplicates: u64,
    /// Leaves refused or dropped because of a newer root job.
    pub superseded: u64,
}

impl Tally {
    #[inline]
    fn note(&mut self, noted: Noted, now: Time) {
        let event = match noted {
            Noted::Put => Rated::Put,
            Noted::Reserve(waited) => {
                waited.into_iter().for_each(|waited| self.pickups.record(waited));
                Rated::Reserve
            }
            Noted::Delete => Rated::Delete,
            Noted::Duplicate => return self.duplicates += 1,
            Noted::Superseded => return self.superseded += 1,
        };
        self.events[event as usize] += 1;
        self.rates.count(event, now);
    }

    /// Adds what happened elsewhere.
    fn add(&mut self, other: &Tally, now: Time) {
        self.pickups.add(&other.pickups);
        self.rates.add(&other.rates, now);
        self.events.iter_mut().zip(other.events).for_each(|(sum, more)| *sum += more);
        self.duplicates += other.duplicates;
        self.superseded += other.superseded;
    }
}

/// A wiki or a type of jobs. It is there as long as one of its tubes is remembered.
pub(super) struct Sum {
    pub by: SumBy,
    pub name: Box<[u8]>,
    tubes: u32,
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    pub tally: Tally,
}

/// Every wiki and every type.
#[derive(Default)]
pub(super) struct Sums {
    pub all: Slab<Sum>,
    names: BTreeMap<(SumBy, Box<[u8]>), SumId>,
}

impl Sums {
    /// Returns the sums of a tube, for one tube more.
    pub fn enter(&mut self, tube: &[u8]) -> [SumId; 2] {
        [(SumBy::Wiki, wiki_of(tube)), (SumBy::Type, type_of(tube))].map(|(by, name)| {
            let Sums { all, names } = self;
            let id = *names.entry((by, name.into())).or_insert_with(|| {
                let sum = Sum { by, name: name.into(), tubes: 0, counts: [0; 4], tally: Tally::default() };
                SumId::from_index(all.insert(sum))
            });
            all[id.index()].tubes += 1;
            id
        })
    }

    /// A tube is forgotten. With its last tube, so is a sum.
    pub fn leave(&mut self, sums: [SumId; 2]) {
        for id in sums {
            let sum = &mut self.all[id.index()];
            sum.tubes -= 1;
            if sum.tubes == 0 {
                let Sum { by, name, .. } = self.all.remove(id.index());
                self.names.remove(&(by, name));
            }
        }
    }

    /// A job of a tube with these sums is in this state from now on.
    pub fn gain(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] += 1);
    }

    /// A job of a tube with these sums is not in this state any more.
    pub fn lose(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] -= 1);
    }

    /// Adds what happened in a tube before it was known here.
    pub fn add(&mut self, sums: [SumId; 2], tally: &Tally, now: Time) {
        sums.into_iter().for_each(|id| self.all[id.index()].tally.add(tally, now));
    }

    /// Sets what is known of a wiki or a type.
    pub fn restore(&mut self, by: SumBy, name: &[u8], tally: Tally) {
        if let Some(id) = self.names.get(&(by, name.into())) {
            self.all[id.index()].tally = tally;
        }
    }
}

impl State {
    /// Counts what happened in a tube.
    pub(super) fn note(&mut self, tube: TubeId, noted: Noted, now: Time) {
        let tube = &mut self.tubes[tube.index()];
        tube.tally.note(noted, now);
        for sum in tube.sums {
            self.sums.all[sum.index()].tally.note(noted, now);
        }
    }
}
