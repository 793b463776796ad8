//! What the servers tell at one moment.

use crate::client::{Client, Failure, Lines};
use crate::pools::stats::PoolStat as Stat;
use crate::pools::wire::client::listing::{self, ListedRow};
use crate::stats::Figures;
use std::collections::BTreeMap;
use std::time::Instant;

/// How many keys each server is asked for.
const KEYS: usize = 200;
/// Of how many keys the holders are asked for: those that were held or waited for longest.
const KEYS_WITH_HOLDERS: usize = 8;

/// All servers at one moment.
pub struct Sample {
    /// When.
    pub at: Instant,
    /// The servers by address, each with its statistics or with what is wrong with it.
    pub servers: Vec<(String, Result<Figures<Stat>, Failure>)>,
    /// The keys of all servers, by name.
    pub keys: Vec<ListedRow>,
    /// The types of all servers, by name.
    pub types: Vec<ListedRow>,
    /// Who holds the keys that were held longest, with the key.
    pub holders: Vec<(Vec<u8>, listing::ListedClaim)>,
}

impl Sample {
    /// Asks the servers.
    pub fn take(client: &Client) -> Sample {
        let at = Instant::now();
        let servers = client.stats();
        let keys = sum(rows_of(client.query(format!("KEYS {KEYS}"))));
        let types = sum(rows_of(client.query("TYPES")));
        let mut oldest: Vec<&ListedRow> = keys.iter().collect();
        oldest.sort_by_key(|key| std::cmp::Reverse(key.amount("oldest")));
        let holders_of = |key: &ListedRow| {
            let answers = client.query([b"HOLDERS ", &key.name[..]].concat());
            let clients = lines_of(answers).filter_map(|line| listing::ListedClaim::parse(&line));
            let holders = clients.filter(|client| client.state == "working");
            holders.map(|holder| (key.name.clone(), holder)).collect::<Vec<_>>()
        };
        let holders = oldest.into_iter().take(KEYS_WITH_HOLDERS).flat_map(holders_of).collect();
        Sample { at, servers, keys, types, holders }
    }

    /// Whether the same servers answered as at another moment. What has happened between the two is not known otherwise.
    pub fn is_comparable(&self, other: &Sample) -> bool {
        let answered = |sample: &Sample| sample.servers.iter().map(|(_, figures)| figures.is_ok()).collect::<Vec<_>>();
        answered(self) == answered(other)
    }

    /// Whether every server answered.
    pub fn is_complete(&self) -> bool {
        self.servers.iter().all(|(_, figures)| figures.is_ok())
    }

    /// A statistic, summed over the servers that answered.
    pub fn total(&self, stat: Stat) -> u64 {
        let answered = self.servers.iter().filter_map(|(_, figures)| figures.as_ref().ok());
        answered.fold(0, |total, figures| total.saturating_add(figures.of(stat)))
    }
}

/// The lines of all servers that know what was asked for.
fn lines_of(answers: Vec<(String, Result<Lines, Failure>)>) -> impl Iterator<Item = Vec<u8>> {
    answers.into_iter().filter_map(|(_, answer)| answer.ok()?.ok()).flatten()
}

fn rows_of(answers: Vec<(String, Result<Lines, Failure>)>) -> impl Iterator<Item = ListedRow> {
    lines_of(answers).filter_map(|line| ListedRow::parse(&line))
}

/// One row for all of a name. What is as old as the oldest stays so; everything else adds up.
fn sum(rows: impl Iterator<Item = ListedRow>) -> Vec<ListedRow> {
    let mut by_name: BTreeMap<Vec<u8>, ListedRow> = BTreeMap::new();
    for row in rows {
        match by_name.get_mut(&row.name) {
            Some(known) => known.add(&row),
            None => drop(by_name.insert(row.name.clone(), row)),
        }
    }
    by_name.into_values().collect()
}
