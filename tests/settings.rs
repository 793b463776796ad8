//! The settings that the package installs name every setting there is, each with its default.

mod support;

use poolcounter::cli::{COMMANDS, Given, OPTIONS, Settings, Words};
use poolcounter::services::Kind;
use std::fs;
use support::place::Place;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/debian/poolcounter.toml");

/// What the line shows is not what holds without it: there is no such value.
const WITHOUT_DEFAULT: &[&str] = &["socket_mode"];

/// The lines that are settings with a `# ` in front: the key, and the line without that.
fn settings() -> Vec<(String, String)> {
    let text = fs::read_to_string(FILE).expect("the file is there");
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "something is set");
    let lines = text.lines().filter_map(|line| line.strip_prefix("# "));
    let key_of = |line: &str| {
        let (key, _) = line.split_once(" = ")?;
        (!key.contains(' ')).then(|| key.to_string())
    };
    lines.filter_map(|line| Some((key_of(line)?, line.to_string()))).collect()
}

#[test]
fn every_setting_is_there_once() {
    let mut named: Vec<String> = settings().into_iter().map(|(key, _)| key).collect();
    let mut known: Vec<&str> = OPTIONS.iter().map(|option| option.key).filter(|key| !key.is_empty()).collect();
    named.sort();
    known.sort_unstable();
    assert_eq!(named, known, "the lines of {FILE}, and the table of options");
}

#[test]
fn every_line_shows_the_default() {
    let place = Place::new();
    let path = place.file("settings");
    let read = |text: &str| {
        fs::write(&path, text).expect("can be written");
        let arguments = ["-c".into(), path.clone().into_os_string()];
        let given = Given::read(&(COMMANDS[0].options)(), Words::None, &arguments).expect("is well-formed");
        let mut settings = Settings::of(&given).unwrap_or_else(|sentence| panic!("{text}: {sentence}"));
        // What the text sets is compared, not the text.
        settings.config_text = None;
        settings
    };
    let default = read("");
    for (key, line) in settings() {
        let set = read(&line);
        match key.strip_suffix("listen") {
            // An address that was named is another than one that was not, even if it is the same.
            Some(_) => {
                let addresses = |settings: &Settings| Kind::ALL.map(|kind| settings.endpoints[kind].addresses());
                assert_eq!(addresses(&set), addresses(&default), "{line}");
                assert_ne!(set, default, "{line}");
            }
            None => assert_eq!(set == default, !WITHOUT_DEFAULT.contains(&&*key), "{line}"),
        }
    }
    let all: Vec<String> = settings().into_iter().map(|(_, line)| line).collect();
    read(&all.join("\n"));
}
