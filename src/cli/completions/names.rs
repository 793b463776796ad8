//! Names that servers have: keys, pools, members and tubes, for shells to complete.

use crate::servers::{Servers, rows_of};
use poolcounter_client::{Client, Members, Producer, SummaryBy, Timeouts};
use poolcounter_service::health::quoted;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Kind of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Keys,
    Pools,
    Members,
    Tubes,
}

/// Time within which servers are to tell names: a shell waits for them.
const PATIENCE: Duration = Duration::from_millis(300);
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: Duration::ZERO };

/// Most keys that are offered.
const MOST_KEYS: usize = 200;

/// Returns the names of a kind that servers tell in time; none without an answer. Names that a shell would change are
/// left out. `pool` is the pool of members.
pub fn names_at(servers: &Servers, kind: Kind, pool: Option<&str>) -> Vec<String> {
    let (sender, names) = mpsc::channel();
    let (servers, pool) = (servers.clone(), pool.unwrap_or_default().to_string());
    thread::spawn(move || sender.send(ask(&servers, kind, &pool)));
    let names = names.recv_timeout(PATIENCE).unwrap_or_default();
    let is_plain = |name: &Vec<u8>| quoted(name).is_some_and(|quoted| quoted.as_bytes() == name);
    names.into_iter().filter(is_plain).map(|name| String::from_utf8_lossy(&name).into_owned()).collect()
}

fn ask(servers: &Servers, kind: Kind, pool: &str) -> Vec<Vec<u8>> {
    match kind {
        Kind::Keys => {
            let key = |line: Vec<u8>| line.split(|byte| *byte == b' ').next()?.strip_suffix(b":").map(<[u8]>::to_vec);
            let lines = Client::with(servers.placement(), TIMEOUTS).query(format!("KEYS {MOST_KEYS}"));
            rows_of(lines).filter_map(key).collect()
        }
        Kind::Pools => rows_of(Members::with(servers.placement(), TIMEOUTS).pools()).map(|pool| pool.name).collect(),
        Kind::Members => {
            let members = Members::with(servers.placement(), TIMEOUTS).members(pool).unwrap_or_default();
            rows_of(members).map(|member| member.name).collect()
        }
        Kind::Tubes => {
            let rows = Producer::new(servers.list(), TIMEOUTS).summary(SummaryBy::Tube).unwrap_or_default();
            rows.into_iter().map(|row| row.name.into_bytes()).collect()
        }
    }
}
