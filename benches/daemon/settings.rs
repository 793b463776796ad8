//! Amount of measuring: read from the environment and the command line.

use super::machine::{self, Cores};
use std::env;
use std::fmt::Debug;
use std::io;
use std::str::FromStr;
use std::time::Duration;

/// Descriptors that are left for other uses than connections.
const SPARE_DESCRIPTORS: usize = 200;
/// Number of connections of a case in a rehearsal.
const FEW: usize = 8;

/// Amount of measuring.
pub struct Settings {
    /// True to run every case as quickly as possible, only to show that it works.
    pub is_rehearsal: bool,
    /// Time of measuring for a case with a steady load, in each round.
    pub time: Duration,
    /// Number of rounds of each server.
    pub rounds: usize,
    /// Words of which a case's name must contain one, if there are any.
    filter: Vec<String>,
    /// Cores of the servers and of the load.
    pub cores: Option<Cores>,
    /// Maximum number of connections of one process.
    most_connections: usize,
}

impl Settings {
    /// Reads `BENCH_SECONDS`, `BENCH_ROUNDS`, `BENCH_CASES` and the arguments. Without `--bench`, which `cargo bench`
    /// gives and `cargo test` does not, this is a rehearsal.
    pub fn read(arguments: &[String]) -> io::Result<Settings> {
        let is_rehearsal = !arguments.iter().any(|argument| argument == "--bench");
        let words = arguments.iter().filter(|argument| !argument.starts_with('-')).cloned();
        let cases: String = variable("BENCH_CASES", String::new())?;
        let filter = words.chain(cases.split(',').filter(|word| !word.is_empty()).map(String::from)).collect();
        let seconds = variable("BENCH_SECONDS", if is_rehearsal { 0.01 } else { 0.2 })?;
        let most_connections = machine::raise_descriptor_limit()?.saturating_sub(SPARE_DESCRIPTORS);
        Ok(Settings {
            is_rehearsal,
            time: Duration::try_from_secs_f64(seconds).map_err(io::Error::other)?,
            rounds: variable("BENCH_ROUNDS", if is_rehearsal { 1 } else { 15 })?,
            filter,
            cores: Cores::choose(),
            most_connections: if is_rehearsal { FEW } else { most_connections },
        })
    }

    /// Returns whether a case is to be run.
    pub fn wants(&self, case: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|word| case.contains(word.as_str()))
    }

    /// Returns the wanted number of connections, or as many as the system allows.
    pub fn connections(&self, wanted: usize) -> usize {
        wanted.min(self.most_connections)
    }
}

fn variable<T: FromStr<Err: Debug>>(name: &str, default: T) -> io::Result<T> {
    let Some(text) = env::var_os(name) else { return Ok(default) };
    let value = text.to_str().and_then(|text| text.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("{name} is not understood: {}", text.display())))
}
