//! Parser of command lines by a table of options. Independent of any particular option.

use super::failure::Failure;
use getopts::{Fail, HasArg, Occur, ParsingStyle};
use poolcounter_core::text::without_passwords;
use poolcounter_service::options::{Opt, nearest};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Parsed command line, in terms of a table of options.
#[derive(Default, Debug)]
pub struct Given {
    /// Index and value of each option given, by index.
    values: Vec<(usize, OsString)>,
    /// Words other than options, in order.
    pub words: Vec<OsString>,
    /// Number of words before `--`; all of them without one.
    pub words_before_dashes: usize,
}

/// Words allowed on a command line beside options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordsAllowed {
    /// No words.
    None,
    /// Words, among the options.
    Anywhere,
    /// Words after the options: the first word ends the options.
    Last,
}

impl Given {
    /// Parses a command line, without the names of program and command.
    ///
    /// # Errors
    ///
    /// One sentence about the fault.
    pub fn read(table: &[Opt<()>], words: WordsAllowed, arguments: &[OsString]) -> Result<Given, String> {
        let texts: Vec<_> = arguments.iter().map(|argument| text_of(argument)).collect();
        let style =
            if words == WordsAllowed::Last { ParsingStyle::StopAtFirstFree } else { ParsingStyle::FloatingFrees };
        let matches = getopts_of(table).parsing_style(style).parse(&texts);
        let matches = matches.map_err(|fail| argument_of(&sentence_of(&fail, table)).display().to_string())?;
        if let (WordsAllowed::None, Some(extra)) = (words, matches.free.first()) {
            return Err(format!("unexpected argument \"{}\"", argument_of(extra).display()));
        }
        let words_before_dashes = match (words, matches.free_trailing_start()) {
            (WordsAllowed::Anywhere, Some(start)) => start,
            _ => matches.free.len(),
        };
        let words = matches.free.iter().map(|text| argument_of(text)).collect();
        let mut given = Given { words, words_before_dashes, values: Vec::new() };
        for (row, option) in table.iter().enumerate() {
            let values = match option.hint {
                "" => vec!["true".to_string(); matches.opt_count(option.long)],
                _ => matches.opt_strs(option.long),
            };
            given.values.extend(values.into_iter().map(|value| (row, argument_of(&value))));
        }
        Ok(given)
    }

    /// Returns true if the option at this index was given.
    pub fn has(&self, row: usize) -> bool {
        self.values.iter().any(|(given, _)| *given == row)
    }

    /// Returns the settings with the command line applied. `table` must have the rows of the one it was parsed with.
    ///
    /// # Errors
    ///
    /// One line per invalid value, with the name of the option.
    pub fn settings<S>(&self, table: &[Opt<S>], mut settings: S) -> Result<S, Failure> {
        let mistakes = self.apply_with(
            |row| table[row].long,
            |row, value| match table[row].set_bytes {
                Some(set) => set(&mut settings, value.as_bytes()),
                None => (table[row].set)(&mut settings, &value.to_string_lossy()),
            },
        );
        if mistakes.is_empty() { Ok(settings) } else { Err(Failure::misuse(mistakes.join("\n"))) }
    }

    /// Applies the command line with a function that takes the index and value of an option, and whose error describes
    /// valid values. `name_of` returns the name of an option. Returns a sentence for each invalid value.
    pub fn apply_with(
        &self,
        name_of: impl Fn(usize) -> &'static str,
        mut set: impl FnMut(usize, &OsStr) -> Result<(), String>,
    ) -> Vec<String> {
        let wrong = self.values.iter().filter_map(|(row, value)| {
            let wanted = set(*row, value).err()?;
            Some(not(&format!("--{}", name_of(*row)), &value.to_string_lossy(), &wanted))
        });
        wrong.collect()
    }
}

/// Returns the sentence about a fault, with a suggestion if possible.
fn sentence_of(fail: &Fail, table: &[Opt<()>]) -> String {
    let dashed = |name: &str| format!("{}{name}", if name.chars().count() == 1 { "-" } else { "--" });
    match fail {
        Fail::UnrecognizedOption(name) => {
            let shown = table.iter().filter(|option| !option.is_hidden).map(|option| option.long);
            let near = nearest(name, shown).map_or(String::new(), |near| format!("; did you mean --{near}?"));
            format!("unknown option {}{near}", dashed(name))
        }
        Fail::ArgumentMissing(name) => format!("{} needs a value", dashed(name)),
        Fail::UnexpectedArgument(name) => format!("{} takes no value", dashed(name)),
        other => other.to_string(),
    }
}

/// Returns the sentence about an invalid value, without a password in it.
pub fn not(name: &str, value: &str, wanted: &str) -> String {
    format!("{name}: \"{}\" is not {wanted}", without_passwords(value))
}

/// Returns the value that a table has for a word.
///
/// # Errors
///
/// Fails with the words of the table if it lacks the word.
pub fn one_of<T: Copy>(text: &str, table: &[(&str, T)]) -> Result<T, String> {
    let found = table.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    let words: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
    let (last, first) = words.split_last().expect("the table has words");
    found.ok_or_else(|| format!("{} or {last}", first.join(", ")))
}

/// First of 256 code points that stand for bytes. They have no meaning in Unicode; one in an argument stands for its
/// own bytes.
const FIRST_BYTE: u32 = 0x10_ff00;

/// Returns an argument as text that [`argument_of`] reverses, because the parser of command lines accepts only text.
fn text_of(argument: &OsStr) -> String {
    let stand_in = |byte: &u8| char::from_u32(FIRST_BYTE + u32::from(*byte)).expect("the last is U+10FFFF");
    let mut text = String::new();
    for chunk in argument.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c as u32 >= FIRST_BYTE {
                text.extend(c.encode_utf8(&mut [0; 4]).as_bytes().iter().map(stand_in));
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().map(stand_in));
    }
    text
}

fn argument_of(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match (c as u32).checked_sub(FIRST_BYTE) {
            Some(byte) => bytes.push(byte as u8),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

/// Returns a table of options without setters, with the options that every command has.
pub fn described<S>(table: &[Opt<S>]) -> Vec<Opt<()>> {
    table.iter().map(Opt::describe).chain([Opt::VERSION, Opt::HELP]).collect()
}

/// Returns the lines of a table of options.
pub fn lines(table: &[Opt<()>]) -> String {
    let usage = usage(table, "");
    usage.split_once("Options:\n").map(|(_, lines)| lines.trim_end().to_string() + "\n").unwrap_or_default()
}

/// Returns the help for a table of options, after `brief`.
pub fn usage(table: &[Opt<()>], brief: &str) -> String {
    getopts_of(table.iter().filter(|option| !option.is_hidden)).usage(brief) + "\n"
}

fn getopts_of<'a>(table: impl IntoIterator<Item = &'a Opt<()>>) -> getopts::Options {
    let mut options = getopts::Options::new();
    for option in table {
        let has_arg = if option.hint.is_empty() { HasArg::No } else { HasArg::Yes };
        options.opt(option.short, option.long, option.summary(), option.hint, has_arg, Occur::Multi);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_service::options::{assign, flag, number};

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

    fn read(words: WordsAllowed, line: &str) -> Result<Given, String> {
        let rows: Vec<Opt<()>> = TABLE.iter().map(Opt::describe).collect();
        Given::read(&rows, words, &line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn given_options_are_set() {
        let given = read(WordsAllowed::None, "-n a -l --port=3 --name b").expect("is well-formed");
        let settings = given.settings(TABLE, Settings::default()).expect("is well-formed");
        assert_eq!(settings, Settings { loud: true, port: 3, names: vec!["a".into(), "b".into()] });
        assert!(given.has(0) && given.has(1) && given.has(2) && !read(WordsAllowed::None, "-l").expect("reads").has(1));
        let error = read(WordsAllowed::None, "--port 10").expect("reads").settings(TABLE, Settings::default());
        assert_eq!(error.expect_err("is too much").sentence, "--port: \"10\" is not a number from 1 to 9");
        for (line, said) in [
            ("--prot 3", "unknown option --prot; did you mean --port?"),
            ("--nothing-like-it", "unknown option --nothing-like-it"),
            ("-x", "unknown option -x"),
            ("--port", "--port needs a value"),
            ("--loud=yes", "--loud takes no value"),
        ] {
            assert_eq!(read(WordsAllowed::None, line).expect_err(line), said);
        }
        let error = read(WordsAllowed::None, "--port 10 --port x").expect("reads").settings(TABLE, Settings::default());
        assert_eq!(error.expect_err("both are told of").sentence.lines().count(), 2);
    }

    #[test]
    fn words_stand_where_they_may() {
        assert_eq!(read(WordsAllowed::None, "-l surplus").expect_err("is surplus"), "unexpected argument \"surplus\"");
        for (words, line, expected, before) in [
            (WordsAllowed::Last, "-l run -n x", &["run", "-n", "x"][..], 3),
            (WordsAllowed::Last, "-l -- run -- x", &["run", "--", "x"], 3),
            (WordsAllowed::Last, "-l", &[], 0),
            (WordsAllowed::Anywhere, "a -n x b", &["a", "b"], 2),
            (WordsAllowed::Anywhere, "a -n x b -- c -l", &["a", "b", "c", "-l"], 2),
            (WordsAllowed::Anywhere, "a -- --", &["a", "--"], 1),
            (WordsAllowed::Anywhere, "a --", &["a"], 1),
        ] {
            let given = read(words, line).expect(line);
            assert_eq!(given.words, expected, "{line}");
            assert_eq!(given.words_before_dashes, before, "{line}");
        }
    }

    #[test]
    fn values_need_not_be_text() {
        for bytes in [&b"\xff"[..], b"a\xc3", b"--\xf4\x8f\xbf\xbf=\xf4\x8f\xbc\x80", "ü\u{10fe00}".as_bytes(), b""] {
            let argument = OsString::from_vec(bytes.to_vec());
            assert_eq!(argument_of(&text_of(&argument)), argument, "{}", bytes.escape_ascii());
        }
        let rows = [Opt {
            long: "name",
            hint: "NAME",
            set_bytes: Some(|names: &mut Vec<Vec<u8>>, name| assign(names, Ok(vec![name.to_vec()]))),
            ..Opt::BLANK
        }];
        let described: Vec<Opt<()>> = rows.iter().map(Opt::describe).collect();
        for arguments in [vec![b"--name=\xff\x80".to_vec()], vec![b"--name".to_vec(), b"\xff\x80".to_vec()]] {
            let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from_vec).collect();
            let given = Given::read(&described, WordsAllowed::None, &arguments).expect("is well-formed");
            let names = given.settings(&rows, Vec::new()).expect("is a name");
            assert_eq!(names, [b"\xff\x80"]);
        }
    }

    #[test]
    fn words_need_not_be_text() {
        let odd = OsString::from_vec(b"\xff".to_vec());
        for words in [WordsAllowed::Last, WordsAllowed::Anywhere] {
            let arguments = ["-l".into(), odd.clone(), "--".into(), odd.clone()];
            let given = Given::read(&[TABLE[0].describe()], words, &arguments).expect("is well-formed");
            assert_eq!(given.words[0], odd);
            assert_eq!(given.words.last(), Some(&odd));
        }
    }
}
