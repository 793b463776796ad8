//! The configuration file: TOML whose keys are the names of options. It knows no single option, and reads each value with
//! what reads it on the command line.

use super::table::{self, Given};
use crate::options::{Misplaced, Opt, Table, TableDoc, TableEntry, TableValue};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// No settings need as much; a device or a log that was named by mistake is not read to its end.
const MAX_LEN: u64 = 1024 * 1024;

/// Sets in `settings` what the file at `path` says, whose content is `text`, except for the options that the command line has
/// given.
///
/// # Errors
///
/// One sentence that names the file, the line and the key.
pub fn apply<S: Clone>(
    path: &str,
    text: &str,
    schema: &Schema<'_, S>,
    given: &Given,
    settings: &mut S,
) -> Result<(), String> {
    apply_text(text, schema, given, settings).map_err(|(line, sentence)| format!("{path}:{line}: {sentence}"))
}

/// What a file can set in an `S`.
pub struct Schema<'a, S> {
    /// The options.
    pub rows: &'a [Opt<()>],
    /// Sets what the row of an option is about. The error is what the value should have been.
    pub set: fn(&mut S, usize, &str) -> Result<(), String>,
    /// The tables of which there can be several.
    pub tables: &'a [TableDoc],
    /// Sets what one of them says.
    pub add: fn(&mut S, usize, &Table) -> Result<(), Misplaced>,
}

/// The same without the file's name. The error is a line and a sentence.
pub fn apply_text<S: Clone>(
    text: &str,
    schema: &Schema<'_, S>,
    given: &Given,
    settings: &mut S,
) -> Result<(), (usize, String)> {
    let in_line = |at: Range<usize>, sentence: String| (line_of(text, at.start), sentence);
    let document = DeTable::parse(text)
        .map_err(|error| in_line(error.span().unwrap_or_default(), error.message().replace('\n', ", ")))?;
    let mut seen: Vec<usize> = Vec::new();
    // What the command line overrules must be well-formed all the same.
    let mut overruled = settings.clone();
    for ConfigEntry { key, at, value } in entries(document.get_ref(), schema.tables) {
        let fault = |at, what: &str| in_line(at, format!("{key}: {what}"));
        if let Some(row) = schema.tables.iter().position(|table| table.key == key) {
            let tables = tables_of(value, text).map_err(|(at, what)| fault(at, what))?;
            for table in tables {
                let wrong = |wrong: Misplaced| fault(wrong.at..wrong.at, &wrong.what);
                (schema.add)(settings, row, &table).map_err(wrong)?;
            }
            continue;
        }
        let row = schema.rows.iter().position(|option| option.is_called(&key));
        let row = row.ok_or_else(|| fault(at.clone(), "there is no such setting"))?;
        if seen.contains(&row) {
            return Err(fault(at, "this is set twice, under two names"));
        }
        seen.push(row);
        let target = if given.has(row) { &mut overruled } else { &mut *settings };
        let values = values_of(value, text, schema.rows[row].repeats).map_err(|what| fault(value.span(), what))?;
        for (value, at) in values {
            (schema.set)(target, row, &value).map_err(|wanted| in_line(at, table::not(&key, &value, &wanted)))?;
        }
    }
    Ok(())
}

/// A key with the sections around it, and its value.
struct ConfigEntry<'a> {
    key: String,
    at: Range<usize>,
    value: &'a Spanned<DeValue<'a>>,
}

/// The content of the file at `path`.
///
/// # Errors
///
/// One sentence that names the file.
pub fn read(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_LEN + 1).read_to_string(&mut text));
    match read {
        Ok(len) if len as u64 > MAX_LEN => Err(format!("{path}: this is longer than {MAX_LEN} bytes")),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{path}: cannot be read: {error}")),
    }
}

/// All entries, in the order of the file. What is to be a list of tables is one entry, whatever it is.
fn entries<'a>(document: &'a DeTable<'a>, tables: &[TableDoc]) -> Vec<ConfigEntry<'a>> {
    let mut entries = Vec::new();
    let mut sections = vec![(String::new(), document)];
    while let Some((prefix, section)) = sections.pop() {
        for (name, value) in section {
            let key = format!("{prefix}{}", name.get_ref());
            match value.get_ref() {
                DeValue::Table(inner) if tables.iter().all(|table| table.key != key) => {
                    sections.push((key + ".", inner))
                }
                _ => entries.push(ConfigEntry { key, at: name.span(), value }),
            }
        }
    }
    entries.sort_by_key(|entry| entry.at.start);
    entries
}

/// The values as text: a string as it is meant, everything else as it is written.
fn values_of<'a>(
    value: &'a Spanned<DeValue<'a>>,
    text: &str,
    repeats: bool,
) -> Result<Vec<(String, Range<usize>)>, &'static str> {
    match value.get_ref() {
        DeValue::String(string) => Ok(vec![(string.to_string(), value.span())]),
        DeValue::Array(values) if repeats => {
            let values = values.iter().map(|value| values_of(value, text, false));
            Ok(values.collect::<Result<Vec<_>, _>>()?.concat())
        }
        DeValue::Array(_) | DeValue::Table(_) => Err("this is not a single value"),
        _ => Ok(vec![(text[value.span()].replace('_', ""), value.span())]),
    }
}

/// The tables of a list of tables. The error is a place, and what is wrong there.
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
    use crate::options::{assign, flag, number};
    use std::ffi::OsString;

    #[derive(Clone, Default, PartialEq, Debug)]
    struct Settings {
        enable: bool,
        port: u16,
        interval: u32,
        names: Vec<String>,
    }

    /// Takes what a table says as one name; `bad` may not stand in it.
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
            tables: &[TableDoc { key: "seats.row", doc_short: "", example: "" }],
            add: |settings, _, table| add_row(settings, table),
        };
        apply_text(text, &schema, &given, &mut settings)?;
        given.apply(TABLE, &mut settings).expect("is well-formed");
        Ok(settings)
    }

    /// The lines are those of an existing yrmcds.conf.
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
            ("port = 1\n[[seats.row]]\na = 1\nbad = 1\n", 1, "port: there is no such setting"),
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
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, named) in [
            ("counter.enable = true\nvirtual_ip = '10.0.0.1'\n", 2, "virtual_ip: there is no such setting"),
            ("[counter]\nenable = true\n\n[log]\nlevel = 'x'\n", 5, "log.level: there is no such setting"),
            ("help = true", 1, "help: there is no such setting"),
            ("counter.enable = 1", 1, "counter.enable: \"1\" is not true or false"),
            ("\ncounter.port = 70_000", 2, "counter.port: \"70000\" is not a number from 0 to 65535"),
            ("counter.port = 0x10", 1, "counter.port: \"0x10\" is not a number"),
            ("counter.port = [1]", 1, "counter.port: this is not a single value"),
            ("name = [\n'a',\n['b']]", 1, "name: this is not a single value"),
            ("counter.stats_interval = 10\ncounter.stat_interval = 10", 2, "set twice"),
            ("counter.port = 1\ncounter.port = 2", 2, "duplicate key"),
            ("counter.port = 1\ncounter.enable\n", 2, "expected"),
            ("counter = true", 1, "counter: there is no such setting"),
            ("[[counter]]\nport = 1", 1, "counter: there is no such setting"),
        ] {
            let (found, sentence) = read_with("", text).expect_err(text);
            assert!(sentence.contains(named) && !sentence.contains('\n'), "{text}: {sentence}");
            assert_eq!(found, line, "{text}: {sentence}");
        }
    }
}
