//! Reports of servers at one moment, and their sum.

use crate::holders::state_of;
use crate::report::{is_used, snapshots};
use crate::servers::rows_of;
use poolcounter_client::{Client, ListedClaim};
use poolcounter_core::text::visible;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Snapshot, Table};
use std::time::{Duration, Instant};

/// Number of rows of each table requested from each server.
const ROWS: usize = 200;

/// Name of the table of a key's claims.
pub const KEY_TABLE: &str = "key";

/// Reports of all servers at one moment.
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Servers by address, each with its report or error.
    pub servers: Vec<(String, Result<Snapshot, String>)>,
    /// Key to show, with the holders and waiters of its locks.
    pub key: Option<(String, Vec<ListedClaim>)>,
}

impl Sample {
    /// Asks the servers for their reports, and for the holders of a key, if given.
    pub fn take(client: &Client, key: Option<&str>) -> Sample {
        let (at, servers) = (Instant::now(), snapshots(client, ROWS));
        let claims = |key: &str| rows_of(client.claims_of_each(key).unwrap_or_default()).collect();
        Sample { at, servers, key: key.map(|key| (key.into(), claims(key))) }
    }

    /// Returns true if the same servers replied to both samples; otherwise there are no rates.
    pub fn is_comparable(&self, other: &Sample) -> bool {
        let answered = |sample: &Sample| sample.servers.iter().map(|(_, report)| report.is_ok()).collect::<Vec<_>>();
        answered(self) == answered(other)
    }

    /// Returns the claims on the requested key, as a table.
    pub fn claims(&self) -> Option<Table> {
        let (key, claims) = self.key.as_ref()?;
        let column = |title: &'static str, unit| Column::new("", title, unit, "");
        let text = |title| column(title, ColumnUnit::Text);
        let columns = vec![text("state"), column("for", ColumnUnit::Seconds), text("client"), text("who")];
        let row = |claim: &ListedClaim| {
            let text = |text: &str| Cell::Text(visible(text.as_bytes(), usize::MAX));
            let age = Cell::Seconds(Duration::from(claim.age).as_secs_f64());
            vec![text(state_of(claim)), age, text(&claim.peer), text(&claim.who)]
        };
        let empty = "No holders or waiters, or the name of the key was not shown in full.";
        Some(Table::new("", key.clone(), columns).empty(empty).rows(claims.iter().map(row)))
    }

    /// Returns the report of the only server that answered, or the sum of the reports, with the used services.
    pub fn sum(&self) -> Snapshot {
        let answered = self.servers.iter().filter_map(|(server, report)| Some((server, report.as_ref().ok()?)));
        let answered: Vec<(&String, &Snapshot)> = answered.collect();
        let mut sum = match &answered[..] {
            [(_, only)] => (*only).clone(),
            several => {
                let mut sum = Snapshot::default();
                several.iter().enumerate().for_each(|(n, (server, report))| sum.add(server, n, (*report).clone()));
                sum
            }
        };
        sum.services.retain(is_used);
        sum
    }
}
