//! Manual pages of the commands, and the commands that each describes. The daemon's page is poolcounter.8.

use std::fs;

/// Page below the root, and its commands.
pub struct Page {
    pub path: &'static str,
    pub commands: &'static [&'static str],
}

pub const DAEMON: &str = "poolcounter.8";
/// Page of settings, which is made from the tables alone.
pub const SETTINGS: &str = "man/poolcounter.toml.5";

pub const PAGES: [Page; 6] = [
    Page { path: "poolcounter.1", commands: &["counter", "completions", "demo"] },
    Page { path: "man/poolcounter-exec.1", commands: &["exec", "holders"] },
    Page { path: "man/poolcounter-jobs.1", commands: &["jobs", "jobs run", "jobs put", "jobs schedule"] },
    Page { path: "man/poolcounter-members.1", commands: &["take", "provide", "members"] },
    Page { path: "man/poolcounter-admin.1", commands: &["admin", "doctor", "config", "tls"] },
    Page { path: "man/poolcounter-stats.1", commands: &["status", "stats", "top", "page"] },
];

/// Returns the paths of all pages.
pub fn all() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.path).chain([DAEMON, SETTINGS])
}

pub fn at_root(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
    fs::read_to_string(at_root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
