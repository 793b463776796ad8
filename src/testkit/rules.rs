//! Rules of access and other settings, read as the daemon reads them.

use super::scratch::Scratch;
use poolcounter_cli::DaemonSettings;
use poolcounter_service::access::Rule;
use std::fs;

/// Returns the rules of a configuration file with this text.
pub fn read(text: &str) -> Vec<Rule> {
    settings(text).rules
}

/// Returns all settings of a configuration file with this text.
pub fn settings(text: &str) -> DaemonSettings {
    let scratch = Scratch::new();
    let path = scratch.file("toml");
    fs::write(&path, text).expect("can be written");
    DaemonSettings::of_file(&path.display().to_string()).expect("is well-formed")
}
