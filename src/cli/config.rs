//! Configuration file: TOML whose keys derive from the names of options. Independent of any particular option; values
//! are parsed by the setters of the command line.

use super::table::{self, Given};
use super::terminal::printable;
use poolcounter_core::file::open_regular;
use poolcounter_core::text::{is_visible, without_passwords};
use poolcounter_service::options::{Misplaced, Opt, Table, TableDoc, TableEntry, TableValue, nearest};
use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Limit of the file's size, in bytes: bounds the read of a log given by mistake.
const MAX_LEN: u64 = 1024 * 1024;

/// Limit of reported mistakes per file.
const MOST_MISTAKES: usize = 20;

/// Applies the file at `path` with the content `text` to `settings`, except for options given on the command line.
///
/// # Errors
///
/// One line per mistake, with the file, the line in it and the key; and their number, if there are several.
pub fn apply<S: Clone>(
    path: &str,
    text: &str,
    schema: &Schema<'_, S>,
    given: &Given,
    settings: &mut S,
) -> Result<(), String> {
    let mistakes = apply_text(text, schema, given, settings);
    let named = mistakes.iter().take(MOST_MISTAKES).map(|(line, sentence)| format!("{path}:{line}: {sentence}"));
    let count = (mistakes.len() > 1).then(|| format!("{path}: {} mistakes", mistakes.len()));
    let lines: Vec<String> = named.chain(count).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

/// Options and tables that a file may contain, with their setters for an `S`.
pub struct Schema<'a, S> {
    /// Options.
    pub rows: &'a [Opt<()>],
    /// Sets the option at an index. The error describes valid values.
    pub set: fn(&mut S, usize, &str) -> Result<(), String>,
    /// Tables that may occur several times.
    pub tables: &'a [TableDoc],
    /// Applies one of them.
    pub add: fn(&mut S, usize, &Table) -> Result<(), Misplaced>,
}

/// Applies a text without the name of the file. Returns line and sentence of each mistake, of a table the first one, in the
/// order of the lines.
pub fn apply_text<S: Clone>(text: &str, schema: &Schema<'_, S>, given: &Given, to: &mut S) -> Vec<(usize, String)> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let mut mistakes: Vec<_> = errors.iter().map(|error| syntax_mistake(text, error, schema)).collect();
        mistakes.sort_by_key(|(line, _)| *line);
        // Further mistakes in the same line follow from the first.
        mistakes.dedup_by_key(|(line, _)| *line);
        return mistakes;
    }
    let mut file = File { text, schema, given, seen: Vec::new(), overruled: to.clone(), mistakes: Vec::new() };
    for entry in entries(document.get_ref(), schema.tables) {
        file.apply(entry, to);
    }
    file.mistakes.sort_by_key(|(line, _)| *line);
    file.mistakes
}

/// File during its application.
struct File<'a, S> {
    text: &'a str,
    schema: &'a Schema<'a, S>,
    given: &'a Given,
    /// Indices of the options set so far.
    seen: Vec<usize>,
    /// Receives values that the command line overrides, which must be valid as well.
    overruled: S,
    mistakes: Vec<(usize, String)>,
}

impl<S: Clone> File<'_, S> {
    fn note(&mut self, at: usize, sentence: &str) {
        // Names and values of the file may have line ends and control characters.
        self.mistakes.push((line_of(self.text, at), printable(sentence.as_bytes())));
    }

    fn apply(&mut self, ConfigEntry { key, at, value }: ConfigEntry<'_>, settings: &mut S) {
        let schema = self.schema;
        if let Some(row) = schema.tables.iter().position(|table| table.key == key) {
            return match tables_of(value, self.text) {
                Ok(tables) => {
                    let mistakes = tables.iter().filter_map(|table| (schema.add)(settings, row, table).err());
                    mistakes.for_each(|Misplaced { at, what, first }| {
                        let first = first.map(|first| format!(", the first in line {}", line_of(self.text, first)));
                        self.note(at, &format!("{key}: {what}{}", first.unwrap_or_default()));
                    });
                }
                Err((at, what)) => self.note(at.start, &format!("{key}: {what}")),
            };
        }
        let Some(row) = schema.rows.iter().position(|option| option.is_called(&key)) else {
            return self.note(at.start, &unknown(&key, schema));
        };
        if self.seen.contains(&row) {
            return self.note(at.start, &format!("{key}: this is set twice, under two names"));
        }
        self.seen.push(row);
        let values = match values_of(value, self.text, schema.rows[row].repeats) {
            Ok(values) => values,
            Err(what) => return self.note(value.span().start, &format!("{key}: {what}")),
        };
        for (value, at) in values {
            let target = if self.given.has(row) { &mut self.overruled } else { &mut *settings };
            if let Err(wanted) = (schema.set)(target, row, &value) {
                self.note(at, &table::not(&key, &value, &wanted));
            }
        }
    }
}

/// Returns the sentence about an unknown setting, with a suggestion if possible.
fn unknown<S>(key: &str, schema: &Schema<'_, S>) -> String {
    let keys = || schema.rows.iter().map(|row| row.key).filter(|key| !key.is_empty());
    let section_of = |key: &'static str| key.strip_suffix(".enable");
    if keys().any(|known| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'))) {
        return match keys().any(|known| section_of(known) == Some(key)) {
            true => format!("{key} is a section; {key}.enable = true turns the service on"),
            false => format!("{key} is a section"),
        };
    }
    if schema.rows.iter().any(|row| row.key.is_empty() && row.long == key.replace('_', "-")) {
        return format!("there is no setting {key}: it is an option of the command line");
    }
    let flat = |key: &str| key.replace(['.', '-'], "_");
    let in_section = key.split_once('.').map_or("", |(_, rest)| rest);
    let same = keys().find(|known| flat(known) == flat(key) || flat(known) == flat(in_section));
    let near = || {
        let sections = keys().filter_map(section_of);
        let near = nearest(key, keys().chain(sections).chain(schema.tables.iter().map(|table| table.key)))?;
        Some(keys().find(|known| section_of(known) == Some(near)).unwrap_or(near))
    };
    let hint = same.or_else(near).map_or(String::new(), |near| format!("; did you mean {near}?"));
    format!("there is no setting {key}{hint}")
}

/// Returns line and sentence of a syntax error.
fn syntax_mistake<S>(text: &str, error: &toml::de::Error, schema: &Schema<'_, S>) -> (usize, String) {
    let line = line_of(text, error.span().unwrap_or_default().start);
    let name_in =
        |line: &str| line.trim_start_matches([' ', '[']).split(['.', ']', '=', ' ']).next().unwrap_or("").to_string();
    let wrong = text.lines().nth(line - 1).unwrap_or_default();
    let name = name_in(wrong);
    let enable = format!("{name}.enable");
    let is_service = schema.rows.iter().any(|row| row.key == enable);
    let set_in = text.lines().position(|line| {
        let value = line.trim_start().strip_prefix(&name).map(str::trim_start);
        value.is_some_and(|value| value.starts_with('='))
    });
    let wrong = wrong.split('#').next().unwrap_or_default();
    let value = wrong.split_once('=').and_then(|(_, value)| value.split_whitespace().next()).unwrap_or_default();
    let is_word = !matches!(value, "" | "true" | "false") && value.bytes().all(|byte| byte.is_ascii_alphabetic());
    match set_in {
        Some(place) if is_service => (place + 1, format!("{name} is a section; {enable} = true turns the service on")),
        _ if is_word => {
            (line, format!("{value} is neither true, false nor a number; a text stands in quotes: \"{value}\""))
        }
        _ => (line, error.message().replace('\n', ", ")),
    }
}

/// Entry: the key with its sections, and the value.
struct ConfigEntry<'a> {
    key: String,
    at: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

/// Setting or table of a file, in the canonical form of TOML.
pub struct Place {
    /// Key, with its sections.
    pub key: String,
    /// Line, from 1.
    pub line: usize,
    /// Value of a setting, or the lines of a table, without passwords.
    pub value: String,
}

/// Returns the settings and tables of a well-formed file, in its order, each table on its own.
pub fn places(text: &str, tables: &[TableDoc]) -> Vec<Place> {
    let document = DeTable::parse(text).ok();
    let mut places = Vec::new();
    for ConfigEntry { key, at, value } in document.iter().flat_map(|document| entries(document.get_ref(), tables)) {
        match value.get_ref() {
            DeValue::Array(values) if tables.iter().any(|table| table.key == key) => {
                places.extend(values.iter().filter_map(|value| {
                    let lines = |(key, value)| format!("{key} = {value}\n");
                    let rows = rows_of(value.get_ref().as_table()?, text).into_iter().map(lines);
                    Some(Place { key: key.clone(), line: line_of(text, value.span().start), value: rows.collect() })
                }));
            }
            _ => places.push(Place { key, line: line_of(text, at.start), value: canonical(value, text) }),
        }
    }
    places
}

/// Returns the keys and values of a table in the form of TOML, in its order.
fn rows_of(table: &DeTable<'_>, text: &str) -> Vec<(String, String)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let is_bare = |key: &str| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let key = |key: &str| if is_bare(key) { key.into() } else { quoted(key) };
    entries.into_iter().map(|(name, value)| (key(name.get_ref()), canonical(value, text))).collect()
}

/// Returns a value in one line of TOML.
fn canonical(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    match value.get_ref() {
        DeValue::String(string) => quoted(&without_passwords(string)),
        DeValue::Array(values) => {
            let values: Vec<_> = values.iter().map(|value| canonical(value, text)).collect();
            format!("[{}]", values.join(", "))
        }
        DeValue::Table(table) => {
            let rows: Vec<_> =
                rows_of(table, text).into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
            format!("{{ {} }}", rows.join(", "))
        }
        _ => text[value.span()].replace('_', ""),
    }
}

/// Returns a string of TOML, with invisible characters escaped, which could harm a terminal.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        _ if is_visible(c) => c.into(),
        _ => format!("\\U{:08X}", c as u32),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Returns true if a file sets nothing.
pub fn is_empty(text: &str) -> bool {
    DeTable::parse(text).is_ok_and(|document| document.get_ref().is_empty())
}

/// Returns the content of the file at `path`.
///
/// # Errors
///
/// One sentence with the name of the file.
pub fn read(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let file = open_regular(path.as_ref());
    let read = file.and_then(|file| file.take(MAX_LEN + 1).read_to_string(&mut text));
    match read {
        Ok(len) if len as u64 > MAX_LEN => Err(format!("{path}: this is longer than {MAX_LEN} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{path}: cannot be read: {error}")),
    }
}

/// Returns all entries, in the order of the file. A list of tables is one entry, even if its value has another type.
fn entries<'a>(document: &'a DeTable<'a>, tables: &[TableDoc]) -> Vec<ConfigEntry<'a>> {
    let mut entries = Vec::new();
    let mut sections = vec![(String::new(), document)];
    while let Some((prefix, section)) = sections.pop() {
        for (name, value) in section {
            let key = format!("{prefix}{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) if tables.iter().all(|table| table.key != key) => {
                    sections.push((key + ".", inner));
                }
                _ => entries.push(ConfigEntry { key, at: name.span(), value }),
            }
        }
    }
    entries.sort_by_key(|entry| entry.at.start);
    entries
}

/// Returns the values as text, with their positions: the contents of strings, and the source text of anything else.
fn values_of(value: &Spanned<DeValue<'_>>, text: &str, repeats: bool) -> Result<Vec<(String, usize)>, &'static str> {
    let values = match table_value_of(value, text) {
        TableValue::List(values) if repeats => values,
        single => vec![(value.span().start, single)],
    };
    let text_of = |(at, value)| match value {
        TableValue::Text(text) => Ok((text, at)),
        TableValue::List(_) | TableValue::Table(_) => Err("this is not a single value"),
    };
    values.into_iter().map(text_of).collect()
}

/// Returns the tables of a list of tables. The error is a position and a description.
fn tables_of<'a>(value: &'a Spanned<DeValue<'a>>, text: &str) -> Result<Vec<Table>, (Range<usize>, &'static str)> {
    let DeValue::Array(values) = value.get_ref() else {
        return Err((value.span(), "this is not a list of tables, each of which begins with its name in [[ and ]]"));
    };
    let tables = values.iter().map(|value| match value.get_ref() {
        DeValue::Table(table) => Ok(table_of(table, value.span().start, text)),
        _ => Err((value.span(), "this is not a table")),
    });
    tables.collect()
}

fn table_of(table: &DeTable<'_>, at: usize, text: &str) -> Table {
    let entry = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| TableEntry {
        at: name.span().start,
        key: name.get_ref().to_string(),
        value: table_value_of(value, text),
    };
    let mut entries: Vec<TableEntry> = table.iter().map(entry).collect();
    entries.sort_by_key(|entry| entry.at);
    Table { at, entries }
}

fn table_value_of(value: &Spanned<DeValue<'_>>, text: &str) -> TableValue {
    match value.get_ref() {
        DeValue::String(string) => TableValue::Text(string.to_string()),
        DeValue::Array(values) => {
            let values = values.iter().map(|value| (value.span().start, table_value_of(value, text)));
            TableValue::List(values.collect())
        }
        DeValue::Table(table) => TableValue::Table(table_of(table, value.span().start, text)),
        _ => TableValue::Text(text[value.span()].replace('_', "")),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::super::table::WordsAllowed;
    use super::*;
    use poolcounter_service::options::{assign, flag, number};
    use std::ffi::OsString;

    #[derive(Clone, Default, PartialEq, Debug)]
    struct Settings {
        enable: bool,
        port: u16,
        interval: u32,
        names: Vec<String>,
    }

    /// Stores a table as one name; `bad` is not allowed in it.
    fn add_row(settings: &mut Settings, table: &Table) -> Result<(), Misplaced> {
        if let Some(bad) = table.entries.iter().find(|entry| entry.key == "bad") {
            return Err(Misplaced::new(bad.at, "bad: this is bad"));
        }
        let name = table.entries.first().ok_or_else(|| Misplaced::new(table.at, "this is empty"))?;
        settings.names.push(format!("{}={:?}", name.key, name.value));
        Ok(())
    }

    const TABLE: &[Opt<Settings>] = &[
        Opt {
            long: "counter",
            key: "counter.enable",
            set: |settings, value| assign(&mut settings.enable, flag(value)),
            ..Opt::BLANK
        },
        Opt {
            long: "counter-port",
            key: "counter.port",
            hint: "PORT",
            set: |settings, value| assign(&mut settings.port, number(value, 0..=u16::MAX)),
            ..Opt::BLANK
        },
        Opt {
            long: "counter-stats-interval",
            key: "counter.stats_interval",
            aliases: &["counter.stat_interval"],
            hint: "SECONDS",
            set: |settings, value| assign(&mut settings.interval, number(value, 10..=u32::MAX)),
            ..Opt::BLANK
        },
        Opt {
            long: "name",
            key: "name",
            hint: "NAME",
            repeats: true,
            set: |settings, value| {
                settings.names.push(value.into());
                Ok(())
            },
            ..Opt::BLANK
        },
        Opt::HELP,
    ];

    fn read_with(line: &str, text: &str) -> Result<Settings, (usize, String)> {
        let rows: Vec<Opt<()>> = TABLE.iter().map(Opt::describe).collect();
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let given = Given::read(&rows, WordsAllowed::None, &arguments).expect("is well-formed");
        let mut settings = Settings::default();
        let schema = Schema {
            rows: &rows,
            set: |settings, row, value| (TABLE[row].set)(settings, value),
            tables: &[TableDoc { key: "seats.row", doc_short: "", doc_long: "", example: "" }],
            add: |settings, _, table| add_row(settings, table),
        };
        if let Some(first) = apply_text(text, &schema, &given, &mut settings).into_iter().next() {
            return Err(first);
        }
        Ok(given.settings(TABLE, settings).expect("is well-formed"))
    }

    /// The lines are from an existing yrmcds.conf.
    #[test]
    fn sections_are_dots() {
        let expected = Settings { enable: true, port: 11215, interval: 86400, names: Vec::new() };
        for text in [
            "# counters\ncounter.enable = true\ncounter.port = 11215\ncounter.stats_interval = 86400\n",
            "[counter]\nenable = true # yes\nport = 11_215\nstat_interval = \"86400\"\n",
            "counter = { enable = true, port = 11215, stats_interval = 86400 }",
        ] {
            assert_eq!(read_with("", text), Ok(expected.clone()), "{text}");
        }
        assert_eq!(read_with("", ""), Ok(Settings::default()));
        assert_eq!(read_with("", "counter.enable = false"), Ok(Settings::default()));
    }

    #[test]
    fn the_command_line_counts_more() {
        let text = "name = ['a', 'b']\ncounter.port = 1\ncounter.stats_interval = 10\n";
        let settings = read_with("--counter-port 2 --name c", text).expect("is well-formed");
        assert_eq!(settings, Settings { enable: false, port: 2, interval: 10, names: vec!["c".into()] });
        assert_eq!(read_with("", text).expect("is well-formed").names, ["a", "b"]);
        assert_eq!(read_with("", "name = 'a'").expect("is well-formed").names, ["a"]);
        let (line, _) = read_with("--counter-port 2", "\ncounter.port = 'none'").expect_err("is wrong all the same");
        assert_eq!(line, 2);
    }

    #[test]
    fn all_mistakes_are_named_in_their_order() {
        let text = "nmae = 'a'\ncounter.port = 'x'\nname = ['a', ['b']]\n[[seats.row]]\nbad = 1\na = 1\nbad2 = 1\n[[seats.row]]\n";
        let rows: Vec<Opt<()>> = TABLE.iter().map(Opt::describe).collect();
        let schema = Schema {
            rows: &rows,
            set: |settings: &mut Settings, row, value| (TABLE[row].set)(settings, value),
            tables: &[TableDoc { key: "seats.row", doc_short: "", doc_long: "", example: "" }],
            add: |settings, _, table| match table.entries.iter().find(|entry| entry.key.starts_with("bad")) {
                Some(bad) => Err(Misplaced::new(bad.at, format!("{}: this is bad", bad.key))),
                None => add_row(settings, table),
            },
        };
        let mistakes = apply_text(text, &schema, &Given::default(), &mut Settings::default());
        let lines: Vec<usize> = mistakes.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 5, 8], "the first one of each table: {mistakes:?}");
        let told = apply("f", text, &schema, &Given::default(), &mut Settings::default()).expect_err("is wrong");
        assert!(told.starts_with("f:1: there is no setting nmae") && told.ends_with("\nf: 5 mistakes"), "{told}");
        let long = "x = 1\n".split('\n').next().map(|_| (0..30).map(|n| format!("x{n} = 1\n")).collect::<String>());
        let told = apply("f", &long.expect("is there"), &schema, &Given::default(), &mut Settings::default());
        assert_eq!(told.expect_err("is wrong").lines().count(), MOST_MISTAKES + 1);
    }

    #[test]
    fn tables_are_handed_over_in_order() {
        for text in [
            "[[seats.row]]\na = 1_000\n[[seats.row]]\nb = ['x', { c = 1 }]\n",
            "[seats]\nrow = [{ a = 1_000 }, { b = ['x', { c = 1 }] }]\n",
        ] {
            let names = read_with("", text).expect(text).names;
            assert_eq!(names[0], "a=Text(\"1000\")", "{text}");
            assert!(names[1].starts_with("b=List([(") && names[1].contains("key: \"c\""), "{text}: {names:?}");
        }
        for (text, line, named) in [
            ("port = 1\n[[seats.row]]\na = 1\nbad = 1\n", 1, "there is no setting port"),
            ("[[seats.row]]\na = 1\nbad = 1\n", 3, "seats.row: bad: this is bad"),
            ("\n[[seats.row]]\na = 1\n\n[[seats.row]]\n", 5, "seats.row: this is empty"),
            ("[seats.row]\na = 1\n", 1, "seats.row: this is not a list of tables"),
            ("seats.row = 1", 1, "seats.row: this is not a list of tables"),
            ("seats.row = [\n1]", 2, "seats.row: this is not a table"),
        ] {
            let (found, sentence) = read_with("", text).expect_err(text);
            assert!(sentence.contains(named) && !sentence.contains('\n'), "{text}: {sentence}");
            assert_eq!(found, line, "{text}: {sentence}");
        }
    }

    #[test]
    fn faults_are_named_with_their_line() {
        for (text, line, named) in [
            ("counter.enable = true\nvirtual_ip = '10.0.0.1'\n", 2, "there is no setting virtual_ip"),
            ("[counter]\nenable = true\n\n[log]\nlevel = 'x'\n", 5, "there is no setting log.level"),
            ("help = true", 1, "there is no setting help: it is an option of the command line"),
            ("counter.enable = 1", 1, "counter.enable: \"1\" is not true or false"),
            ("\ncounter.port = 70_000", 2, "counter.port: \"70000\" is not a number from 0 to 65535"),
            ("counter.port = 0x10", 1, "counter.port: \"0x10\" is not a number"),
            ("counter.port = [1]", 1, "counter.port: this is not a single value"),
            ("name = [\n'a',\n['b']]", 1, "name: this is not a single value"),
            ("counter.stats_interval = 10\ncounter.stat_interval = 10", 2, "set twice"),
            ("counter.port = 1\ncounter.port = 2", 2, "duplicate key"),
            ("counter.port = 1\ncounter.enable\n", 2, "expected"),
            (
                "counter.port = none # off\n",
                1,
                "none is neither true, false nor a number; a text stands in quotes: \"none\"",
            ),
            ("[counter # a = b\n", 1, "expected"),
            ("counter.port = 1 none\n", 1, "expected"),
            ("counter = true", 1, "counter is a section; counter.enable = true turns the service on"),
            ("[[counter]]\nport = 1", 1, "counter is a section; counter.enable = true turns the service on"),
            (
                "\ncounter = true\ncounter.port = 1",
                2,
                "counter is a section; counter.enable = true turns the service on",
            ),
            ("counter_port = 1", 1, "there is no setting counter_port; did you mean counter.port?"),
            ("[counter]\ncounter_port = 1", 2, "did you mean counter.port?"),
            ("conter.enable = true", 1, "there is no setting conter.enable; did you mean counter.enable?"),
            ("couter = true", 1, "did you mean counter.enable?"),
            ("nmae = 'a'", 1, "did you mean name?"),
            ("\"\\u001b[31mred\\nOK\" = 1", 1, "there is no setting \\u{1b}[31mred\\u{a}OK"),
            ("[[seat.row]]\na = 1", 1, "there is no setting seat.row; did you mean seats.row?"),
        ] {
            let (found, sentence) = read_with("", text).expect_err(text);
            assert!(sentence.contains(named) && !sentence.contains('\n'), "{text}: {sentence}");
            assert_eq!(found, line, "{text}: {sentence}");
        }
    }
}
