//! Settings of tubes in the configuration file: each `[[jobs.retry]]`, `[[jobs.limit]]` and `[[jobs.dead_letter]]` as a
//! value that cannot be wrong.

use super::JobsSettings;
use crate::state::periodic::definition_of;
use crate::state::{Backoff, Limit, Pattern, Put, PutOptions, Scope, Setting, SettingKind, TubeName, Value};
use crate::timetable::Timetable;
use poolcounter_protocol::jobs::values::{Schedule, ScheduleTimes};
use poolcounter_protocol::jobs::wire::client::{is_group, is_key};
use poolcounter_protocol::jobs::wire::schedule;
use poolcounter_service::options::{
    Misplaced, Table, TableDoc, TableEntry, TableOpt, TableValue, did_you_mean, flag, number, seconds,
};

/// Most settings of tubes: a reload compares each of them with the present settings, in one step.
const MOST_SETTINGS: usize = 1000;

/// Priority and time to run of periodic jobs that name none, as of the command `jobs put`.
const USUAL_PRI: u32 = 65_536;
const USUAL_TTR: u32 = 60;

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
            doc_short: "Maximum number of jobs reserved at a time, or of jobs that start in a period: of each tube of a pattern, of all these tubes together, or of a group. There can be several.",
            doc_long: "
                With
                .Va all ,
                the number is of all tubes together; with
                .Va group
                instead of
                .Va pattern ,
                of the jobs of a group; with
                .Va ordered ,
                while a job of the group waits to be tried again, its successors wait, too.
                With
                .Va per ,
                it is of the jobs that start in this many seconds; a pattern or group can have such a table beside one without.",
            example: "pattern = \"*/transcode\"\nnumber = 20\nall = true\n",
        },
        add: |settings, table| settings.add_table(table, &["pattern", "group", "number", "per", "all", "ordered"], read_limit),
    },
    TableOpt {
        about: TableDoc {
            key: "jobs.dead_letter",
            doc_short: "Tube to which jobs are moved after their last attempt, instead of being buried. There can be several.",
            doc_long: "
                A job remembers the tube from which it comes, and a kick sends it back there.",
            example: "pattern = \"enwiki/sendMail\"\ntube = \"enwiki/failed/sendMail\"\n",
        },
        add: |settings, table| settings.add_table(table, &["pattern", "tube"], read_dead_letter),
    },
    TableOpt {
        about: TableDoc {
            key: "jobs.schedule",
            doc_short: "Job that is put periodically. There can be several.",
            doc_long: "
                With
                .Va cron ,
                it is put by the time of day in
                .Va timezone ,
                or in UTC; with
                .Va every ,
                each time that this many seconds are over.
                Its key is schedule: and its name, unless
                .Va key
                is set; its time is skipped while another job with the key waits.
                A time that is more than a minute over was missed; with
                .Va missed
                set to once, the job is put late then, once.
                A command
                .Ic schedule
                with the same name overrides the table until the table changes.",
            example: "name = \"nightly\"\ncron = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"\n\
                tube = \"enwiki/cleanUp\"\nbody = \"all\"\npri = 65536\nttr = 60\nmissed = \"skip\"\n",
        },
        add: |settings, table| {
            let names = &["name", "cron", "every", "timezone", "tube", "body", "key", "pri", "ttr", "missed"];
            settings.add_table(table, names, read_schedule)
        },
    },
];

/// The values of a table, by name.
struct Values<'a>(&'a Table);

impl JobsSettings {
    fn add_table(
        &mut self,
        table: &Table,
        names: &[&'static str],
        read: fn(&Values<'_>) -> Result<Setting, Misplaced>,
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

fn read_retry(values: &Values<'_>) -> Result<Setting, Misplaced> {
    let usual = Backoff::DEFAULT;
    let time = |name| values.optional(name, |text| seconds(text).map(|time| time.as_secs_f64()));
    let factor = values.optional("factor", |text| number(text, 0.0..=f64::from(u32::MAX)))?;
    let backoff = Backoff {
        attempts: values.optional("attempts", |text| number(text, 0..=u32::MAX))?.unwrap_or(usual.attempts),
        first: time("first")?.unwrap_or(usual.first),
        factor: factor.unwrap_or(usual.factor),
        max: time("max")?.unwrap_or(usual.max),
    };
    Ok(setting(SettingKind::Retry, values.required("pattern", pattern)?, Value::Retry(backoff)))
}

fn read_limit(values: &Values<'_>) -> Result<Setting, Misplaced> {
    let most = values.required("number", |text| number(text, 0..=u32::MAX))?;
    let [is_all, is_ordered] = [values.optional("all", flag)?, values.optional("ordered", flag)?];
    let per = values.optional("per", |text| number(text, 1..=u32::MAX))?;
    let wrong = |sentence: &str| Err(Misplaced::new(values.0.at, sentence));
    let (of, scope) = match values.optional("group", group)? {
        Some(_) if values.optional("pattern", pattern)?.is_some() => return wrong("group: not together with pattern"),
        Some(_) if is_all.is_some() => return wrong("all: only together with pattern"),
        Some(_) if per.is_some() && is_ordered.is_some() => return wrong("ordered: not together with per"),
        Some(name) => (name, if is_ordered == Some(true) { Scope::Ordered } else { Scope::Group }),
        None if is_ordered.is_some() => return wrong("ordered: only together with group"),
        None => {
            let scope = if is_all == Some(true) && most > 0 { Scope::All } else { Scope::Each };
            (values.required("pattern", pattern)?, scope)
        }
    };
    let limit = Limit { most, per, scope };
    Ok(setting(SettingKind::of_limit(limit), of, Value::Limit(limit)))
}

fn read_dead_letter(values: &Values<'_>) -> Result<Setting, Misplaced> {
    let pattern = values.required("pattern", pattern)?;
    Ok(setting(SettingKind::DeadLetter, pattern, Value::Text(values.required("tube", tube)?)))
}

fn setting(kind: SettingKind, of: Box<[u8]>, value: Value) -> Setting {
    Setting { kind, of, value: Some(value) }
}

fn read_schedule(values: &Values<'_>) -> Result<Setting, Misplaced> {
    let wrong = |what: &str| Misplaced::new(values.0.at, what);
    let name = values.required("name", group)?;
    let zone = values.optional("timezone", Ok)?;
    let cron = values.optional("cron", Ok)?;
    let every = values.optional("every", |text| number(text, 1..=u32::MAX))?;
    let times = match (cron, every) {
        (Some(cron), None) => {
            ScheduleTimes::Cron { expression: cron.into(), timezone: zone.unwrap_or(schedule::UTC).into() }
        }
        (None, Some(_)) if zone.is_some() => return Err(wrong("timezone: only together with cron")),
        (None, Some(every)) => ScheduleTimes::Every(every),
        _ => return Err(wrong("either cron or every is required")),
    };
    Timetable::new(&times).map_err(|sentence| wrong(&sentence))?;
    let missed = values.optional("missed", |text| match text {
        "skip" => Ok(false),
        "once" => Ok(true),
        _ => Err("skip or once".into()),
    })?;
    let body = values.optional("body", |text| Ok(text.as_bytes()))?.unwrap_or_default();
    let options = PutOptions {
        tube: values.required("tube", tube)?,
        key: values.optional("key", key)?.unwrap_or_else(|| schedule::key_of(&name)),
        schedule: Some(Box::new(Schedule { name: name.clone(), times, is_made_up: missed.unwrap_or(false) })),
        ..PutOptions::default()
    };
    let put = Put {
        pri: values.optional("pri", |text| number(text, 0..=u32::MAX))?.unwrap_or(USUAL_PRI),
        delay: 0,
        ttr: values.optional("ttr", |text| number(text, 0..=u32::MAX))?.unwrap_or(USUAL_TTR),
        options: Some(Box::new(options)),
    };
    Ok(setting(SettingKind::Schedule, name, Value::Text(definition_of(&put, body).into())))
}

fn key(text: &str) -> Result<Box<[u8]>, String> {
    let name = text.as_bytes();
    if is_key(name) { Ok(name.into()) } else { Err("a key of 1 to 200 bytes without spaces".into()) }
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

    fn read(key: &str, entries: &[(&str, &str)]) -> Result<Vec<Setting>, Misplaced> {
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
        let p = ("pattern", "a/*");
        let (n, g) = (("number", "7"), ("group", "g"));
        let t = ("tube", "t");
        for (key, entries, kind, of, text) in [
            ("jobs.retry", &[p][..], SettingKind::Retry, "a/*", "10 10 2 3600"),
            ("jobs.retry", &[("attempts", "3"), p, ("max", "0.5")], SettingKind::Retry, "a/*", "3 10 2 0.5"),
            ("jobs.limit", &[p, ("number", "0")], SettingKind::Limit, "a/*", "0 each"),
            ("jobs.limit", &[p, ("number", "0"), ("all", "true")], SettingKind::Limit, "a/*", "0 each"),
            ("jobs.limit", &[p, n, ("all", "true")], SettingKind::Limit, "a/*", "7 all"),
            ("jobs.limit", &[p, n, ("per", "60")], SettingKind::Rate, "a/*", "7 per 60 each"),
            ("jobs.limit", &[g, n, ("per", "60")], SettingKind::GroupRate, "g", "7 per 60"),
            ("jobs.limit", &[("group", "*"), n], SettingKind::GroupLimit, "*", "7"),
            ("jobs.limit", &[g, n, ("ordered", "true")], SettingKind::GroupLimit, "g", "7 ordered"),
            ("jobs.dead_letter", &[p, t], SettingKind::DeadLetter, "a/*", "t"),
            (
                "jobs.schedule",
                &[("name", "n"), t, ("cron", "@daily"), ("timezone", "Europe/Berlin"), ("body", "b")],
                SettingKind::Schedule,
                "n",
                "65536 60 1 tube=t timezone=Europe/Berlin cron=@daily\nb",
            ),
            (
                "jobs.schedule",
                &[("name", "n"), t, ("every", "60"), ("missed", "once"), ("key", "k"), ("ttr", "9")],
                SettingKind::Schedule,
                "n",
                "65536 9 0 tube=t key=k missed=once every=60\n",
            ),
        ] {
            let set = read(key, entries).expect("is right");
            let [Setting { kind: is, of: name, value: Some(value) }] = &set[..] else { panic!("{set:?}") };
            let text = (kind, of.as_bytes(), text.as_bytes().to_vec());
            assert_eq!((*is, &**name, value.text(|_| 0)), text, "{key}: {entries:?}");
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
            ("jobs.limit", &[p, ("number", "1"), ("ordered", "true")], 0, "ordered: only together with group"),
            ("jobs.limit", &[("group", "a b"), ("number", "1")], 1, "group: \"a b\" is not a name"),
            ("jobs.schedule", &[("name", "n"), ("tube", "t")], 0, "either cron or every is required"),
            (
                "jobs.schedule",
                &[("name", "n"), ("tube", "t"), ("cron", "0 0 31 2 *")],
                0,
                "cron \"0 0 31 2 *\": there is no such day",
            ),
            ("jobs.schedule", &[("name", "n"), ("tube", "t"), ("every", "0")], 3, "every: \"0\" is not a number"),
            ("jobs.dead_letter", &[p, ("tube", "*/a")], 2, "tube: \"*/a\" is not the name of a tube"),
        ] {
            let wrong = read(key, entries).expect_err(named);
            assert!(wrong.what.starts_with(named), "{named}: {wrong:?}");
            assert_eq!(wrong.at, at, "{wrong:?}");
        }
    }
}
