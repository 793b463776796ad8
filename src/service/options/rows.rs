//! Rows of tables of options.

use super::{Opt, SetBytes, SetText};

/// Declares a table of options. A row is `USAGE, TEXT, SETTER, CALL ...;`, with the usage of [`Opt::new`] and calls of
/// its methods, such as `repeated()`; or `=> OPTION;`.
#[macro_export]
macro_rules! option_table {
    ($of:ty; $($($usage:literal, $doc:expr, $set:expr $(, $call:ident $arguments:tt)*)? $(=> $row:expr)?;)*) => {
        &[$($($crate::options::Opt::<$of>::new($usage, $doc, $set)$(.$call $arguments)*)? $($row)?,)*]
    };
}

impl<S> Opt<S> {
    /// Defaults of most rows: no letter, no key, no value, nothing to set.
    pub const BLANK: Opt<S> = Opt {
        short: "",
        long: "",
        key: "",
        aliases: &[],
        hint: "",
        repeats: false,
        default: "",
        doc: "",
        is_hidden: false,
        set: |_, _| Ok(()),
        set_bytes: None,
        idle: |_| None,
    };
    /// Option `--help`, which every command has. The reader of the command line handles it.
    pub const HELP: Opt<S> = Opt::new("-h, --help", "Print this help and exit.", |_, _| Ok(()));
    /// Option `--version`, handled likewise.
    pub const VERSION: Opt<S> = Opt::new("-V, --version", "Print the version and exit.", |_, _| Ok(()));

    /// Returns the option of a usage: its letter, if it has one, its name, and the placeholder of its value, if it takes
    /// one, as in `-k, --key KEY`.
    pub const fn new(usage: &'static str, doc: &'static str, set: SetText<S>) -> Opt<S> {
        let (short, rest) = match usage.as_bytes() {
            [b'-', b'-', ..] => ("", usage),
            [b'-', _, b',', b' ', b'-', b'-', ..] => {
                (usage.split_at(1).1.split_at(1).0, usage.split_at("-k, ".len()).1)
            }
            _ => panic!("a usage is --key KEY, or -k, --key KEY"),
        };
        let name = rest.split_at("--".len()).1;
        let mut end = 0;
        while end < name.len() && name.as_bytes()[end] != b' ' {
            end += 1;
        }
        let (long, hint) = name.split_at(end);
        let hint = if hint.is_empty() { "" } else { hint.split_at(" ".len()).1 };
        Opt { short, long, hint, doc, set, ..Opt::BLANK }
    }

    /// Returns the option of a usage whose value may be other than UTF-8 text.
    pub const fn of_bytes(usage: &'static str, doc: &'static str, set: SetBytes<S>) -> Opt<S> {
        Opt { set_bytes: Some(set), ..Opt::new(usage, doc, |_, _| Ok(())) }
    }

    /// Returns the option with its key in the configuration file, and its default as written there.
    pub const fn in_file(self, key: &'static str, default: &'static str) -> Opt<S> {
        Opt { key, default, ..self }
    }

    /// Returns the option as one that may be given several times.
    pub const fn repeated(self) -> Opt<S> {
        Opt { repeats: true, ..self }
    }

    /// Returns the option, hidden from help and manual.
    pub const fn hidden(self) -> Opt<S> {
        Opt { is_hidden: true, ..self }
    }

    /// Returns the option with the function that says why it has no effect.
    pub const fn idle_if(self, idle: fn(&S) -> Option<&'static str>) -> Opt<S> {
        Opt { idle, ..self }
    }

    /// Returns the same option without its setter.
    pub fn describe(&self) -> Opt<()> {
        let Opt { short, long, key, aliases, hint, repeats, default, doc, is_hidden, .. } = *self;
        Opt { short, long, key, aliases, hint, repeats, default, doc, is_hidden, ..Opt::BLANK }
    }

    /// Returns the first sentence of the description without its full stop, for `--help`, completions and the file's
    /// template.
    pub fn summary(&self) -> &'static str {
        self.doc.split(". ").next().unwrap_or_default().trim_end_matches('.')
    }

    /// Returns true if a configuration file may use this key for it.
    pub fn is_called(&self, key: &str) -> bool {
        !key.is_empty() && (self.key == key || self.aliases.contains(&key))
    }
}
