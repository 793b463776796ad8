//! Names that servers have: keys, pools, members and tubes, for shells to complete.

use crate::command::Failure;
use crate::servers::Servers;
use crate::terminal::print;
use poolcounter_client::{Client, Members, Producer, SummaryBy, Timeouts};
use poolcounter_service::health::quoted;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Kinds of names.
pub const KEYS: &str = "keys";
pub const POOLS: &str = "pools";
pub const MEMBERS: &str = "members";
pub const TUBES: &str = "tubes";

/// Time within which servers are to tell names: a shell waits for them.
const PATIENCE: Duration = Duration::from_millis(300);
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: Duration::ZERO };

/// Most keys that are offered.
const MOST_KEYS: usize = 200;

/// Prints the names of a kind that servers tell in time, one a line; nothing without an answer. Names that a shell
/// would change are left out.
pub fn print_names(kind: &'static str, pool: &str) -> Result<ExitCode, Failure> {
    let (sender, names) = mpsc::channel();
    let pool = pool.to_string();
    thread::spawn(move || sender.send(names_at_servers(kind, &pool)));
    let names = names.recv_timeout(PATIENCE).unwrap_or_default();
    let is_plain = |name: &Vec<u8>| quoted(name).is_some_and(|quoted| quoted.as_bytes() == name);
    let lines = names.into_iter().filter(is_plain).map(|name| String::from_utf8_lossy(&name).into_owned() + "\n");
    print(&lines.collect::<String>())
}

fn names_at_servers(kind: &str, pool: &str) -> Vec<Vec<u8>> {
    let servers = Servers::default();
    match kind {
        KEYS => {
            let answers = Client::with(servers.placement(), TIMEOUTS).query(format!("KEYS {MOST_KEYS}"));
            let lines = answers.into_iter().filter_map(|(_, answer)| answer.ok()?.ok()).flatten();
            let key = |line: Vec<u8>| line.split(|byte| *byte == b' ').next()?.strip_suffix(b":").map(<[u8]>::to_vec);
            lines.filter_map(key).collect()
        }
        POOLS => {
            let answers = Members::with(servers.placement(), TIMEOUTS).pools();
            answers.into_iter().filter_map(|(_, pools)| pools.ok()?.ok()).flatten().map(|pool| pool.name).collect()
        }
        MEMBERS => {
            let answers = Members::with(servers.placement(), TIMEOUTS).members(pool).unwrap_or_default();
            let members = answers.into_iter().filter_map(|(_, members)| members.ok()?.ok()).flatten();
            members.map(|member| member.name).collect()
        }
        _ => {
            let rows = Producer::new(servers.list(), TIMEOUTS).summary(SummaryBy::Tube).unwrap_or_default();
            rows.into_iter().map(|row| row.name.into_bytes()).collect()
        }
    }
}
