//! Options as a table, which parsing, `--help`, the configuration file and the manual's tests read. It knows no single option.

use crate::pools::wire;
use getopts::{HasArg, Occur, ParsingStyle};
use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// One option, which sets something in an `S`.
pub struct Opt<S> {
    /// Its letter, or nothing.
    pub short: &'static str,
    /// Its name.
    pub long: &'static str,
    /// Its name in a configuration file, with dots between sections, or nothing if it cannot stand there.
    pub key: &'static str,
    /// Other names that a configuration file may use for it.
    pub aliases: &'static [&'static str],
    /// What its value is, or nothing for an option without one. In a file such an option is true or false.
    pub hint: &'static str,
    /// Whether it can have several values; an array in a file.
    pub repeats: bool,
    /// What it does, for `--help`.
    pub help: &'static str,
    /// Whether it is for the program itself: users are not shown it.
    pub is_hidden: bool,
    /// Sets it. The value of an option without one is `true`. The error is what the value should have been.
    pub set: fn(&mut S, &str) -> Result<(), String>,
}

/// What a command line says, in the terms of a table whose rows it numbers.
#[derive(Default, Debug)]
pub struct Given {
    /// The rows and values of the options, by rows.
    values: Vec<(usize, String)>,
    /// What is no option, as it was given.
    pub words: Vec<OsString>,
    /// How many of the words stand before `--`; all of them if there is none.
    pub words_before_dashes: usize,
}

/// What may stand on a command line beside options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Words {
    /// Nothing.
    None,
    /// Words, among the options.
    Anywhere,
    /// Words after the options: the first ends these.
    Last,
}

impl<S> Opt<S> {
    /// What most rows leave out: no letter, no file name, no value, nothing set.
    pub const BLANK: Opt<S> = Opt {
        short: "",
        long: "",
        key: "",
        aliases: &[],
        hint: "",
        repeats: false,
        help: "",
        is_hidden: false,
        set: |_, _| Ok(()),
    };
    /// The option that every command has. Whoever reads the command line obeys it.
    pub const HELP: Opt<S> = Opt { short: "h", long: "help", help: "print this help and exit", ..Opt::BLANK };
    /// The other one.
    pub const VERSION: Opt<S> = Opt { short: "V", long: "version", help: "print the version and exit", ..Opt::BLANK };

    /// The same option, without what it sets.
    pub fn describe(&self) -> Opt<()> {
        let Opt { short, long, key, aliases, hint, repeats, help, is_hidden, .. } = *self;
        Opt { short, long, key, aliases, hint, repeats, help, is_hidden, ..Opt::BLANK }
    }

    /// Whether a configuration file may call it so.
    pub fn is_called(&self, key: &str) -> bool {
        !key.is_empty() && (self.key == key || self.aliases.contains(&key))
    }

    /// Sets it, or says in one sentence what is wrong. `name` is what it is called where the value stands.
    pub fn apply(&self, settings: &mut S, name: &str, value: &str) -> Result<(), String> {
        (self.set)(settings, value).map_err(|wanted| format!("{name}: \"{value}\" is not {wanted}"))
    }
}

impl Given {
    /// Reads a command line, without the names of program and command.
    ///
    /// # Errors
    ///
    /// One sentence that names what is wrong.
    pub fn read(table: &[Opt<()>], words: Words, arguments: &[OsString]) -> Result<Given, String> {
        let texts: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        let style = if words == Words::Last { ParsingStyle::StopAtFirstFree } else { ParsingStyle::FloatingFrees };
        let matches = getopts_of(table).parsing_style(style).parse(texts.iter().map(|text| &**text));
        let matches = matches.map_err(|fail| fail.to_string())?;
        if let (Words::None, Some(extra)) = (words, matches.free.first()) {
            return Err(format!("\"{extra}\" is no option"));
        }
        let mut given = Given { words_before_dashes: matches.free.len(), ..Given::default() };
        given.words = match (words, matches.free_trailing_start()) {
            // Nothing but words is at the end, so these can be had as they were before they were text.
            (Words::Last, _) => arguments[arguments.len() - matches.free.len()..].to_vec(),
            (_, Some(start)) => {
                given.words_before_dashes = start;
                let (before, after) = (&matches.free[..start], matches.free.len() - start);
                before.iter().map(OsString::from).chain(arguments[arguments.len() - after..].iter().cloned()).collect()
            }
            (_, None) => matches.free.iter().map(OsString::from).collect(),
        };
        for (row, option) in table.iter().enumerate() {
            let values = match option.hint {
                "" => vec!["true".to_string(); matches.opt_count(option.long)],
                _ => matches.opt_strs(option.long),
            };
            given.values.extend(values.into_iter().map(|value| (row, value)));
        }
        Ok(given)
    }

    /// Whether the option in this row was given.
    pub fn has(&self, row: usize) -> bool {
        self.values.iter().any(|(given, _)| *given == row)
    }

    /// Sets in `settings` all that was given. `table` has the rows that the command line was read with.
    ///
    /// # Errors
    ///
    /// One sentence that names the option and its value.
    pub fn apply<S>(&self, table: &[Opt<S>], settings: &mut S) -> Result<(), String> {
        let mut values = self.values.iter().map(|(row, value)| (&table[*row], value));
        values.try_for_each(|(option, value)| option.apply(settings, &format!("--{}", option.long), value))
    }
}

/// The part of the help that a table is, behind `brief`.
pub fn usage(table: &[Opt<()>], brief: &str) -> String {
    getopts_of(table.iter().filter(|option| !option.is_hidden)).usage(brief) + "\n"
}

fn getopts_of<'a>(table: impl IntoIterator<Item = &'a Opt<()>>) -> getopts::Options {
    let mut options = getopts::Options::new();
    for Opt { short, long, hint, help, .. } in table {
        let has_arg = if hint.is_empty() { HasArg::No } else { HasArg::Yes };
        options.opt(short, long, help, hint, has_arg, Occur::Multi);
    }
    options
}

/// For setters: puts a value where it belongs, if it is one.
pub fn assign<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// For setters: the value of an option that has none on the command line.
pub fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false".into())
}

/// For setters: a number in a range.
pub fn number<T: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let in_range = text.parse().ok().filter(|n| range.contains(n));
    in_range.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

/// For setters: seconds, perhaps with decimals.
pub fn seconds(text: &str) -> Result<Duration, String> {
    wire::parse_seconds(text.as_bytes()).map(Duration::from).ok_or_else(|| "a number of seconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default, PartialEq, Debug)]
    struct Settings {
        loud: bool,
        port: u16,
        names: Vec<String>,
    }

    const TABLE: &[Opt<Settings>] = &[
        Opt { short: "l", long: "loud", set: |settings, value| assign(&mut settings.loud, flag(value)), ..Opt::BLANK },
        Opt {
            long: "port",
            hint: "PORT",
            set: |settings, value| assign(&mut settings.port, number(value, 1..=9)),
            ..Opt::BLANK
        },
        Opt {
            short: "n",
            long: "name",
            hint: "NAME",
            repeats: true,
            set: |settings, value| {
                settings.names.push(value.into());
                Ok(())
            },
            ..Opt::BLANK
        },
    ];

    fn read(words: Words, line: &str) -> Result<Given, String> {
        let rows: Vec<Opt<()>> = TABLE.iter().map(Opt::describe).collect();
        Given::read(&rows, words, &line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_given_is_set() {
        let given = read(Words::None, "-n a -l --port=3 --name b").expect("is well-formed");
        let mut settings = Settings::default();
        given.apply(TABLE, &mut settings).expect("is well-formed");
        assert_eq!(settings, Settings { loud: true, port: 3, names: vec!["a".into(), "b".into()] });
        assert!(given.has(0) && given.has(1) && given.has(2) && !read(Words::None, "-l").expect("reads").has(1));
        let error = read(Words::None, "--port 10").expect("reads").apply(TABLE, &mut settings);
        assert_eq!(error.expect_err("is too much"), "--port: \"10\" is not a number from 1 to 9");
    }

    #[test]
    fn words_stand_where_they_may() {
        assert_eq!(read(Words::None, "-l surplus").expect_err("is surplus"), "\"surplus\" is no option");
        for (words, line, expected, before) in [
            (Words::Last, "-l run -n x", &["run", "-n", "x"][..], 3),
            (Words::Last, "-l -- run -- x", &["run", "--", "x"], 3),
            (Words::Last, "-l", &[], 0),
            (Words::Anywhere, "a -n x b", &["a", "b"], 2),
            (Words::Anywhere, "a -n x b -- c -l", &["a", "b", "c", "-l"], 2),
            (Words::Anywhere, "a -- --", &["a", "--"], 1),
            (Words::Anywhere, "a --", &["a"], 1),
        ] {
            let given = read(words, line).expect(line);
            assert_eq!(given.words, expected, "{line}");
            assert_eq!(given.words_before_dashes, before, "{line}");
        }
    }

    #[test]
    fn words_need_not_be_text() {
        use std::os::unix::ffi::OsStringExt;
        let odd = OsString::from_vec(b"\xff".to_vec());
        for words in [Words::Last, Words::Anywhere] {
            let arguments = ["-l".into(), "--".into(), odd.clone()];
            let given = Given::read(&[TABLE[0].describe()], words, &arguments).expect("is well-formed");
            assert_eq!(given.words, std::slice::from_ref(&odd));
        }
    }
}
