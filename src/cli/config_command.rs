//! `config`: prints the settings of a configuration file, each with its origin.

use super::admin::USUAL_CONFIG;
use super::command::Failure;
use super::config::{self, Place};
use super::options::{DaemonSettings, described as rows, tables};
use super::table::Given;
use super::terminal::{print, printable};
use poolcounter_core::text::without_passwords;
use poolcounter_service::options::{Opt, assign};
use std::path::Path;
use std::process::ExitCode;

/// Column of the comments with the origins.
const ORIGIN_COLUMN: usize = 40;

/// Settings of the command.
#[derive(Default)]
struct ConfigSettings {
    config: Option<String>,
    is_changed_only: bool,
}

/// Options of the command.
const OPTIONS: &[Opt<ConfigSettings>] = &[
    file_option(|settings, value| assign(&mut settings.config, Ok(Some(value.into())))),
    Opt {
        long: "changed",
        doc_short: "print only what the file sets",
        doc_long: "Print only what the file sets, without the defaults.",
        set: |settings, _| assign(&mut settings.is_changed_only, Ok(true)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

/// Returns the option for the configuration file of a daemon on this machine.
pub(super) const fn file_option<S>(set: fn(&mut S, &str) -> Result<(), String>) -> Opt<S> {
    Opt {
        short: "c",
        long: "config",
        hint: "FILE",
        doc_short: "the daemon's configuration file (default: /etc/poolcounter.toml, if there is one)",
        doc_long: "
            The daemon's configuration file.
            The default is
            .Pa /etc/poolcounter.toml ,
            if there is one.",
        set,
        ..Opt::BLANK
    }
}

/// Returns the path of that file: the given one, or the default if it exists.
pub(super) fn path_of(named: Option<String>) -> Option<String> {
    named.or_else(|| Path::new(USUAL_CONFIG).exists().then(|| USUAL_CONFIG.into()))
}

/// Runs the command.
///
/// # Errors
///
/// Fails if the file cannot be read, or has a mistake.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = ConfigSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let path = path_of(settings.config);
    let text = path.as_deref().map(config::read).transpose()?.unwrap_or_default();
    if let Some(path) = &path {
        DaemonSettings::of_file(path)?;
    }
    print(&text_of(path.as_deref().unwrap_or_default(), &text, settings.is_changed_only))
}

/// Returns the settings in TOML: those of the file as written there, and the defaults as comments.
fn text_of(path: &str, text: &str, is_changed_only: bool) -> String {
    let (rows, tables) = (rows(), tables());
    let places = config::places(text, &tables);
    let line = |setting: String, origin: String| format!("{setting:<ORIGIN_COLUMN$} # {origin}\n");
    let mut all = String::new();
    for row in rows.iter().filter(|row| !row.key.is_empty()) {
        let set = places.iter().find(|place| row.is_called(&place.key));
        match set {
            Some(Place { value, line: at, .. }) => {
                let value = without_passwords(&value.split_whitespace().collect::<Vec<_>>().join(" "));
                all += &line(format!("{} = {}", row.key, printable(value.as_bytes())), format!("{path}:{at}"));
            }
            None if !is_changed_only => all += &line(format!("# {} = {}", row.key, row.default), "default".into()),
            None => {}
        }
    }
    for place in places.iter().filter(|place| tables.iter().any(|table| table.key == place.key)) {
        all += &line(format!("[[{}]]", place.key), format!("{path}:{}", place.line));
        let own = text.lines().skip(place.line).take_while(|line| !line.starts_with('['));
        own.filter(|line| !line.trim().is_empty()).for_each(|line| all += &format!("{}\n", without_passwords(line)));
    }
    all
}

/// Returns the options without their setters.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_their_origin() {
        let text = "max_hold = 1_0\n[jobs]\nenable = true\nstore = \"postgres://me:secret@db/q\"\n[[pools.ceiling]]\nkey = \"a\"\n";
        let changed = text_of("f.toml", text, true);
        let lines: Vec<_> = changed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "max_hold = 1_0 # f.toml:1",
                "jobs.enable = true # f.toml:3",
                "jobs.store = \"postgres://me:***@db/q\" # f.toml:4",
                "[[pools.ceiling]] # f.toml:5",
                "key = \"a\"",
            ]
        );
        let all = text_of("f.toml", text, false);
        assert!(all.contains("# backlog = 4096 ") && all.contains("max_hold = 1_0 "), "{all}");
        assert_eq!(all.matches("# default\n").count(), rows().iter().filter(|row| !row.key.is_empty()).count() - 3);
    }
}
