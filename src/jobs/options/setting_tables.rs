//! Settings of tubes in the configuration file: each `[[jobs.retry]]`, `[[jobs.limit]]` and `[[jobs.dead_letter]]` as a
//! value that cannot be wrong.

use super::JobsSettings;
use crate::state::{Backoff, FileSetting, Pattern, TubeName};
use poolcounter_protocol::jobs::wire::client::is_group;
use poolcounter_service::options::{
    Misplaced, Table, TableDoc, TableEntry, TableOpt, TableValue, did_you_mean, flag, number, seconds,
};

/// Most settings of tubes: a reload compares each of them with the present settings, in one step.
const MOST_SETTINGS: usize = 1000;

/// The tables.
pub const TABLES: &[TableOpt<JobsSettings>] = &[
    TableOpt {
        about: TableDoc {
            key: "jobs.retry",
            doc_short: "Attempts and delays of failed jobs of some tubes. Settings left out have the values shown here. There can be several.",
            doc_long: "
                After its first failure a job waits
                .Va first
                seconds, each later time
                .Va factor
                times as long, at most
                .Va max .
                It is buried after this number of
                .Va attempts ,
                or never with 0.
                A command
                .Ic retry
                for the same pattern overrides the table until the table changes.",
            example: "pattern = \"*/sendMail\"\nattempts = 10\nfirst = 10\nfactor = 2\nmax = 3600\n",
        },
        add: |settings, table| {
            settings.add_table(table, &["pattern", "attempts", "first", "factor", "max"], read_retry)
        },
    },
    TableOpt {
        about: TableDoc {
            key: "jobs.limit",
            doc_short: "Maximum number of jobs reserved at a time: of each tube of a pattern, of all these tubes together, or of a group. There can be several.",
            doc_long: "
                With
                .Va all ,
                the number is of all tubes together; with
                .Va group
                instead of
                .Va pattern ,
                of the jobs of a group.",
            example: "pattern = \"*/transcode\"\nnumber = 20\nall = true\n",
        },
        add: |settings, table| settings.add_table(table, &["pattern", "group", "number", "all"], read_limit),
    },
    TableOpt {
        about: TableDoc {
            key: "jobs.dead_letter",
            doc_short: "Tube to which jobs are moved after their last attempt, instead of being buried. There can be several.",
            doc_long: "
                A job keeps no trace of the tube from which it comes: each wiki should have a tube of its own.",
            example: "pattern = \"enwiki/sendMail\"\ntube = \"enwiki/failed/sendMail\"\n",
        },
        add: |settings, table| settings.add_table(table, &["pattern", "tube"], read_dead_letter),
    },
];

/// The values of a table, by name.
struct Values<'a>(&'a Table);

impl JobsSettings {
    fn add_table(
        &mut self,
        table: &Table,
        names: &[&'static str],
        read: fn(&Values<'_>) -> Result<FileSetting, Misplaced>,
    ) -> Result<(), Misplaced> {
        if let Some(entry) = table.entries.iter().find(|entry| !names.contains(&&*entry.key)) {
            let near = did_you_mean(&entry.key, names.iter().copied());
            return Err(Misplaced::new(entry.at, format!("{}: there is no such setting{near}", entry.key)));
        }
        if self.of_tubes.len() >= MOST_SETTINGS {
            return Err(Misplaced::new(table.at, format!("there are more than {MOST_SETTINGS} settings of tubes")));
        }
        let setting = read(&Values(table))?;
        if self.of_tubes.iter().any(|other| other.name() == setting.name()) {
            return Err(Misplaced::new(table.at, "this is set twice"));
        }
        self.of_tubes.push(setting);
        Ok(())
    }
}

impl<'a> Values<'a> {
    /// Returns a value if the table has it.
    fn optional<T>(&self, name: &str, read: impl FnOnce(&'a str) -> Result<T, String>) -> Result<Option<T>, Misplaced> {
        let Some(TableEntry { at, value, .. }) = self.0.entries.iter().find(|entry| entry.key == name) else {
            return Ok(None);
        };
        let wrong = |what: String| Misplaced::new(*at, format!("{name}: {what}"));
        let TableValue::Text(text) = value else { return Err(wrong("this is not a single value".into())) };
        read(text).map(Some).map_err(|wanted| wrong(format!("\"{text}\" is not {wanted}")))
    }

    fn required<T>(&self, name: &str, read: impl FnOnce(&'a str) -> Result<T, String>) -> Result<T, Misplaced> {
        let missing = || Misplaced::new(self.0.at, format!("{name} is required"));
        self.optional(name, read)?.ok_or_else(missing)
    }
}

fn read_retry(values: &Values<'_>) -> Result<FileSetting, Misplaced> {
    let usual = Backoff::DEFAULT;
    let time = |name| values.optional(name, |text| seconds(text).map(|time| time.as_secs_f64()));
    let factor = values.optional("factor", |text| number(text, 0.0..=f64::from(u32::MAX)))?;
    let backoff = Backoff {
        attempts: values.optional("attempts", |text| number(text, 0..=u32::MAX))?.unwrap_or(usual.attempts),
        first: time("first")?.unwrap_or(usual.first),
        factor: factor.unwrap_or(usual.factor),
        max: time("max")?.unwrap_or(usual.max),
    };
    Ok(FileSetting::Retry(values.required("pattern", pattern)?, backoff))
}

fn read_limit(values: &Values<'_>) -> Result<FileSetting, Misplaced> {
    let most = values.required("number", |text| number(text, 0..=u32::MAX))?;
    let is_all = values.optional("all", flag)?;
    match values.optional("group", group)? {
        Some(_) if values.optional("pattern", pattern)?.is_some() => {
            Err(Misplaced::new(values.0.at, "group: not together with pattern"))
        }
        Some(_) if is_all.is_some() => Err(Misplaced::new(values.0.at, "all: only together with pattern")),
        Some(name) => Ok(FileSetting::GroupLimit(name, most)),
        None => Ok(FileSetting::Limit(values.required("pattern", pattern)?, most, is_all.unwrap_or(false))),
    }
}

fn read_dead_letter(values: &Values<'_>) -> Result<FileSetting, Misplaced> {
    Ok(FileSetting::DeadLetter(values.required("pattern", pattern)?, values.required("tube", tube)?))
}

fn pattern(text: &str) -> Result<Box<[u8]>, String> {
    let pattern = Pattern::parse(text.as_bytes()).map(|pattern| pattern.bytes().into());
    pattern.ok_or_else(|| "a tube or a pattern, such as */sendMail".into())
}

fn tube(text: &str) -> Result<Box<[u8]>, String> {
    TubeName::parse(text.as_bytes()).map(|tube| tube.bytes().into()).ok_or_else(|| "the name of a tube".into())
}

fn group(text: &str) -> Result<Box<[u8]>, String> {
    let name = text.as_bytes();
    if is_group(name) { Ok(name.into()) } else { Err("a name of 1 to 64 bytes without spaces".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, entries: &[(&str, &str)]) -> Result<Vec<FileSetting>, Misplaced> {
        let entry = |(at, (key, value)): (usize, &(&str, &str))| TableEntry {
            at: at + 1,
            key: (*key).into(),
            value: TableValue::Text((*value).into()),
        };
        let table = Table { at: 0, entries: entries.iter().enumerate().map(entry).collect() };
        let mut settings = JobsSettings::default();
        let row = TABLES.iter().find(|row| row.about.key == key).expect("there is such a table");
        (row.add)(&mut settings, &table)?;
        let again = (row.add)(&mut settings, &table).expect_err("is there already");
        assert_eq!(again, Misplaced::new(0, "this is set twice"));
        Ok(settings.of_tubes)
    }

    #[test]
    fn each_table_is_a_setting() {
        let a = || b"a/*"[..].into();
        let p = ("pattern", "a/*");
        let backoff = Backoff { attempts: 3, max: 0.5, ..Backoff::DEFAULT };
        for (key, entries, setting) in [
            ("jobs.retry", &[p][..], FileSetting::Retry(a(), Backoff::DEFAULT)),
            ("jobs.retry", &[("attempts", "3"), p, ("max", "0.5")], FileSetting::Retry(a(), backoff)),
            ("jobs.limit", &[p, ("number", "0")], FileSetting::Limit(a(), 0, false)),
            ("jobs.limit", &[p, ("number", "7"), ("all", "true")], FileSetting::Limit(a(), 7, true)),
            ("jobs.limit", &[("group", "*"), ("number", "7")], FileSetting::GroupLimit(b"*"[..].into(), 7)),
            ("jobs.dead_letter", &[p, ("tube", "t")], FileSetting::DeadLetter(a(), b"t"[..].into())),
        ] {
            assert_eq!(read(key, entries), Ok(vec![setting]), "{key}: {entries:?}");
        }
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let p = ("pattern", "a/*");
        for (key, entries, at, named) in [
            ("jobs.retry", &[("attempts", "1")][..], 0, "pattern is required"),
            ("jobs.retry", &[p, ("attempts", "-1")], 2, "attempts: \"-1\" is not a number from 0"),
            ("jobs.retry", &[p, ("factor", "x")], 2, "factor: "),
            ("jobs.retry", &[p, ("first", "x")], 2, "first: \"x\" is not a number of seconds"),
            ("jobs.retry", &[p, ("attempt", "1")], 2, "attempt: there is no such setting; did you mean attempts?"),
            ("jobs.limit", &[p], 0, "number is required"),
            ("jobs.limit", &[("pattern", "a*"), ("number", "1")], 1, "pattern: \"a*\" is not a tube or a pattern"),
            ("jobs.limit", &[p, ("group", "g"), ("number", "1")], 0, "group: not together with pattern"),
            ("jobs.limit", &[("group", "a b"), ("number", "1")], 1, "group: \"a b\" is not a name"),
            ("jobs.dead_letter", &[p, ("tube", "*/a")], 2, "tube: \"*/a\" is not the name of a tube"),
        ] {
            let wrong = read(key, entries).expect_err(named);
            assert!(wrong.what.starts_with(named), "{named}: {wrong:?}");
            assert_eq!(wrong.at, at, "{wrong:?}");
        }
    }
}
