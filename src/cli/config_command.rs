//! `config`: prints the settings of a configuration file, each with its origin.

use super::command::Exit;
use super::config::{self, Place};
use super::options::{DaemonSettings, described as rows, tables};
use super::table::Given;
use super::terminal::{print, printable};
use poolcounter_service::options::{Opt, assign, option_table};
use std::path::Path;

/// Column of the comments with the origins.
const ORIGIN_COLUMN: usize = 40;

/// Configuration file of the package.
pub(super) const USUAL_CONFIG: &str = "/etc/poolcounter.toml";

/// Settings of the command.
#[derive(Default)]
pub struct ConfigSettings {
    config: Option<String>,
    is_changed_only: bool,
}

/// Options of the command.
pub const OPTIONS: &[Opt<ConfigSettings>] = option_table!(ConfigSettings;
    => file_option(|settings, value| assign(&mut settings.config, Ok(Some(value.into()))));
    "--changed", "Print only the settings in the file, without the defaults.",
        |settings, _| assign(&mut settings.is_changed_only, Ok(true));
);

/// Returns the option for the configuration file of a daemon on this machine.
pub(super) const fn file_option<S>(set: fn(&mut S, &str) -> Result<(), String>) -> Opt<S> {
    Opt::new(
        "-c, --config FILE",
        "The daemon's configuration file (default: /etc/poolcounter.toml, if it exists).",
        set,
    )
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
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, ConfigSettings::default())?;
    let path = path_of(settings.config);
    let text = path.as_deref().map(config::read).transpose()?.unwrap_or_default();
    if let Some(path) = &path {
        DaemonSettings::of_file(path)?;
    }
    print(&text_of(path.as_deref().unwrap_or_default(), &text, settings.is_changed_only))
}

/// Returns the settings in TOML: the file's settings in their canonical form, and the defaults as comments.
fn text_of(path: &str, text: &str, is_changed_only: bool) -> String {
    let (rows, tables) = (rows(), tables());
    let places = config::places(text, &tables);
    let line = |setting: String, origin: String| format!("{setting:<ORIGIN_COLUMN$} # {origin}\n");
    let origin = |place: &Place| format!("{}:{}", printable(path.as_bytes()), place.line);
    let mut all = String::new();
    for row in rows.iter().filter(|row| !row.key.is_empty()) {
        match places.iter().find(|place| row.is_called(&place.key)) {
            Some(place) => all += &line(format!("{} = {}", row.key, place.value), origin(place)),
            None if !is_changed_only => all += &line(format!("# {} = {}", row.key, row.default), "default".into()),
            None => {}
        }
    }
    for place in places.iter().filter(|place| tables.iter().any(|table| table.key == place.key)) {
        all += &line(format!("[[{}]]", place.key), origin(place));
        all += &place.value;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::random::Random;
    use poolcounter_core::text::is_visible;

    #[test]
    fn settings_have_their_origin() {
        let text = "max_hold = 1_0\n[jobs]\nenable = true\nstore = \"postgres://me:secret@db/q\"\n[[pools.ceiling]]\nkey = \"a\"\n";
        let changed = text_of("f.toml", text, true);
        let lines: Vec<_> = changed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "max_hold = 10 # f.toml:1",
                "jobs.enable = true # f.toml:3",
                "jobs.store = \"postgres://me:***@db/q\" # f.toml:4",
                "[[pools.ceiling]] # f.toml:5",
                "key = \"a\"",
            ]
        );
        let all = text_of("f.toml", text, false);
        assert!(all.contains("# backlog = 4096 ") && all.contains("max_hold = 10 "), "{all}");
        assert_eq!(all.matches("# default\n").count(), rows().iter().filter(|row| !row.key.is_empty()).count() - 3);
    }

    /// Section with its settings and tables; each value has several spellings.
    type Section = (&'static str, &'static [(&'static str, &'static [&'static str])], &'static [TableRows]);
    /// Name of a list of tables, and the entries of each.
    type TableRows = (&'static str, &'static [&'static [(&'static str, &'static str)]]);

    const SECTIONS: &[Section] = &[
        (
            "",
            &[
                ("max_hold", &["7", "1_0.5", "'7'", "\"1\\u002e5\"", "\"\"\"\n7\"\"\""]),
                ("listen", &["'127.0.0.1'", "[ \"127.0.0.1\", # not ] all\n\t'unix:/run/a \"b\\ #ü' ,\n]", "[]"]),
                ("keepalive", &["'''5,2'''", "\"off\""]),
                ("\"socket_mode\"", &["66_0", "'umask'"]),
            ],
            &[(
                "access",
                &[&[("name", "'a\"b'"), ("who", "['net:10.0.0.0/8',\n  'user:0']"), ("may", "[\"pools:\\\\*\"]")]],
            )],
        ),
        (
            "jobs",
            &[
                ("enable", &["true", "'false'"]),
                ("store", &["'sqlite:/x/[[jobs.limit]] \"y\".db'", "\"sqlite:/\\U0000202e\\u0007\"", "'memory'"]),
                ("part_names", &["'app,task'"]),
            ],
            &[
                ("limit", &[&[("pattern", "'*/a'"), ("number", "2_0")], &[("group", "\"g\""), ("number", "1")]]),
                ("retry", &[&[("pattern", "'*/b'"), ("attempts", "3"), ("factor", "1.5")]]),
            ],
        ),
        ("status", &[("after", &["1", "'2.5'"])], &[]),
        (
            "members",
            &[("max", &["1_000"])],
            &[(
                "pool",
                &[
                    &[("name", "'p'"), ("max", "5"), ("fixed", "['one', { name = \"two\", os = 'x=\"y\"' }]")],
                    &[("name", "'q'"), ("max", "'1'"), ("\"fixed\"", "[{ \"name\" = 'three', 'a' = \"b\" }]")],
                ],
            )],
        ),
        ("pools", &[], &[("ceiling", &[&[("key", "'A:*'"), ("workers", "2")], &[("key", "'B'"), ("hold", "6_0.0")]])]),
    ];

    /// Returns settings in random spellings: dotted keys, sections, inline tables, lists of tables, and indentation.
    fn spelled(random: &mut Random) -> String {
        let mut pick = |end: usize| random.below(end as u64) as usize;
        let (mut first, mut last) = (String::new(), String::new());
        for (section, settings, tables) in SECTIONS {
            let form = if section.is_empty() { 0 } else { pick(3) };
            let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
            let indent = ["", "  ", "\t"][pick(3)];
            let (mut inline, mut body, mut headed) = (Vec::new(), String::new(), String::new());
            for (key, values) in *settings {
                let value = values[pick(values.len())];
                match form {
                    _ if pick(4) == 0 => {}
                    0 => first += &format!("{prefix}{key} = {value} # it's = [x]\n"),
                    1 => body += &format!("{indent}{key}={value}\n\n"),
                    _ => inline.push(format!("{key} = {value}")),
                }
            }
            for (table, rows) in *tables {
                let rows = rows.iter().map(|row| row.iter().map(|(key, value)| format!("{key} = {value}")));
                let list = rows.clone().map(|row| format!("{{ {} }}", row.collect::<Vec<_>>().join(", ")));
                let list = format!("[{}]", list.collect::<Vec<_>>().join(",\n "));
                match form {
                    _ if pick(4) == 0 => {}
                    2 => inline.push(format!("{table} = {list}")),
                    1 if pick(2) == 0 => body += &format!("{indent}{table} = {list}\n"),
                    0 if pick(2) == 0 => first += &format!("{prefix}{table} = {list}\n"),
                    _ => rows.for_each(|row| {
                        headed += &format!("{indent}[[ {prefix}{table} ]] # [[x]]\n");
                        row.for_each(|line| headed += &format!("{indent}{line}\n"));
                    }),
                }
            }
            match form {
                0 => {}
                1 => last += &format!("{indent}[{section}]\n{body}"),
                _ => first += &format!("{section} = {{ {} }}\n", inline.join(", ")),
            }
            last += &headed;
        }
        let text = first + &last;
        if pick(2) == 0 { text.replace('\n', "\r\n") } else { text }
    }

    /// The output has the settings of its input, and is the output for itself.
    #[test]
    fn the_output_means_what_the_file_means() {
        let scratch = std::env::temp_dir().join(format!("poolcounter-config-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&scratch, text).expect("can be written");
            DaemonSettings::of_file(&scratch.display().to_string()).unwrap_or_else(|error| panic!("{error}:\n{text}"))
        };
        let settings_in = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(setting, _)| setting).to_string()).collect()
        };
        for seed in 0..150 {
            let text = spelled(&mut Random::from_seed(seed));
            let settings = read(&text);
            for is_changed_only in [true, false] {
                let printed = text_of("f\u{1b}.toml", &text, is_changed_only);
                assert_eq!(read(&printed), settings, "seed {seed}:\n{text}\n{printed}");
                assert!(printed.chars().all(|c| c == '\n' || is_visible(c)), "seed {seed}: {printed}");
                let again = text_of("f", &printed, is_changed_only);
                assert_eq!(settings_in(&again), settings_in(&printed), "seed {seed}");
            }
        }
        std::fs::remove_file(&scratch).expect("is there");
    }
}
