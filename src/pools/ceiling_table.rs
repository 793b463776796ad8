//! The ceilings in the configuration file: each `[[pools.ceiling]]` as a value that cannot be wrong.

use super::ceiling::{Ceiling, Shedding};
use super::options::PoolsSettings;
use poolcounter_core::Span;
use poolcounter_core::text::escaped;
use poolcounter_service::options::{
    Misplaced, Table, TableDoc, TableEntry, TableOpt, TableValue, did_you_mean, flag, number, seconds,
};

/// Most ceilings: each request is compared with them, one after the other.
pub const MOST_CEILINGS: usize = 64;

/// The tables.
pub const TABLES: &[TableOpt<PoolsSettings>] = &[TableOpt {
    about: TableDoc {
        key: "pools.ceiling",
        doc_short: "Upper limits of requests for some keys; the first table whose key matches applies. There can be several.",
        doc_long: "
            Only
            .Va key
            is required.
            A
            .Ql *
            in it stands for any bytes.
            Of its value and the request's, the smaller one is used.
            A reload applies changed ceilings to later requests; requests that wait already go on waiting.
            .Pp
            With
            .Va shed_after ,
            a key refuses new requests with
            .Li QUEUE_FULL
            once its oldest waiter has waited for longer than this during the whole of
            .Va shed_interval ,
            which is the same by default, and until that is over.
            Requests that would wait in vain are refused while their clients still have time for something else.
            With
            .Va shed_shadow
            requests are only counted, not refused (dry run).
            The status page and the metrics that begin with
            .Ql poolcounter_pools_ceiling_
            show which ceilings bind.",
        example: "key = \"ArticleView:*\"\nworkers = 2\nmax_queue = 50\ntimeout = 5.0\nhold = 60.0\nshed_after = 2.0\nshed_shadow = true\n",
    },
    add: |settings, table| {
        if settings.ceilings.len() >= MOST_CEILINGS {
            return Err(Misplaced::new(table.at, format!("there are more than {MOST_CEILINGS} ceilings")));
        }
        settings.ceilings.push(read_ceiling(table)?);
        Ok(())
    },
}];

/// Returns a sentence for each reason for which a ceiling has no effect, or its hold has none.
pub fn idle(settings: &PoolsSettings) -> Vec<String> {
    let mut sentences = Vec::new();
    for (n, ceiling) in settings.ceilings.iter().enumerate() {
        let name = |ceiling: &Ceiling| format!("pools.ceiling {}", escaped(&ceiling.pattern));
        if let Some(first) = settings.ceilings[..n].iter().find(|first| first.matches(&ceiling.pattern)) {
            sentences.push(format!("{} has no effect, because {} before it has its keys", name(ceiling), name(first)));
        } else if ceiling.hold != Span::FOREVER && settings.max_hold <= ceiling.hold {
            sentences.push(format!("{}: hold is set, but max_hold is not longer", name(ceiling)));
        }
    }
    sentences
}

/// Returns the ceiling that a table describes.
fn read_ceiling(table: &Table) -> Result<Ceiling, Misplaced> {
    let (mut ceiling, mut after, mut interval, mut is_shadow) = (Ceiling::new(b""), None, None, false);
    for TableEntry { at, key, value } in &table.entries {
        let mut set = || {
            let TableValue::Text(value) = value else { return Err("this is not a single value".into()) };
            match &**key {
                "key" => ceiling.pattern = pattern(value)?,
                "workers" => ceiling.workers = number(value, 1..=u32::MAX)?,
                "max_queue" => ceiling.max_queue = number(value, 1..=u32::MAX)?,
                "timeout" => ceiling.timeout = seconds(value)?.into(),
                "hold" => ceiling.hold = positive_seconds(value)?,
                "shed_after" => after = Some(positive_seconds(value)?),
                "shed_interval" => interval = Some(seconds(value)?.into()),
                "shed_shadow" => is_shadow = flag(value)?,
                _ => return Err(format!("there is no such setting{}", did_you_mean(key, NAMES))),
            }
            Ok(())
        };
        set().map_err(|wrong: String| Misplaced::new(*at, format!("{key}: {wrong}")))?;
    }
    if ceiling.pattern.is_empty() {
        return Err(Misplaced::new(table.at, "key is required"));
    }
    if after.is_none() && (interval.is_some() || is_shadow) {
        return Err(Misplaced::new(table.at, "shed_after is required"));
    }
    ceiling.shedding = after.map(|after| Shedding { after, interval: interval.unwrap_or(after), is_shadow });
    Ok(ceiling)
}

/// Names of the settings of a ceiling.
const NAMES: [&str; 8] =
    ["key", "workers", "max_queue", "timeout", "hold", "shed_after", "shed_interval", "shed_shadow"];

/// Returns the ceiling for keys of this pattern with the settings of a command: `NAME=VALUE,NAME=VALUE`.
///
/// # Errors
///
/// A sentence with the name of the wrong setting.
pub fn parse_ceiling(pattern: &str, settings: &str) -> Result<Ceiling, String> {
    let settings = settings.split(',').map(|setting| setting.split_once('=').unwrap_or((setting, "")));
    let entry =
        |(key, value): (&str, &str)| TableEntry { at: 0, key: key.into(), value: TableValue::Text(value.into()) };
    let entries = [("key", pattern)].into_iter().chain(settings).map(entry).collect();
    read_ceiling(&Table { at: 0, entries }).map_err(|wrong| wrong.what)
}

fn pattern(value: &str) -> Result<Box<[u8]>, String> {
    if value.is_empty() || value.contains([' ', '\n', '\r', '\0']) {
        return Err("a key is not empty, and has no spaces and no ends of lines".into());
    }
    Ok(value.as_bytes().into())
}

fn positive_seconds(value: &str) -> Result<Span, String> {
    let span = Span::from(seconds(value)?);
    if span > Span::ZERO { Ok(span) } else { Err("a number of seconds above zero".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<Ceiling, Misplaced> {
        let entry = |(at, (key, value)): (usize, &(&str, &str))| TableEntry {
            at: at + 1,
            key: (*key).into(),
            value: TableValue::Text((*value).into()),
        };
        read_ceiling(&Table { at: 0, entries: entries.iter().enumerate().map(entry).collect() })
    }

    #[test]
    fn ceiling_has_its_settings() {
        let shed = [("shed_after", "2"), ("shed_interval", "0.5"), ("shed_shadow", "true")];
        let bounds = [("key", "a:*"), ("workers", "2"), ("max_queue", "50"), ("timeout", "0"), ("hold", "1.5")];
        let ceiling = read(&[&bounds[..], &shed].concat()).expect("is well-formed");
        assert_eq!((&*ceiling.pattern, ceiling.workers, ceiling.max_queue), (&b"a:*"[..], 2, 50));
        assert_eq!((ceiling.timeout, ceiling.hold), (Span::ZERO, Span::from_millis(1_500)));
        let (after, interval) = (Span::from_secs(2), Span::from_millis(500));
        assert_eq!(ceiling.shedding, Some(Shedding { after, interval, is_shadow: true }));
        let usual = read(&[("shed_after", "2"), ("key", "a")]).expect("is well-formed").shedding;
        assert_eq!(usual, Some(Shedding { after, interval: after, is_shadow: false }));
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let key = ("key", "k");
        for (entries, at, named) in [
            (&[("workers", "1")][..], 0, "key is required"),
            (&[("key", "")], 1, "key: a key is not empty"),
            (&[("key", "a b")], 1, "key: a key is not empty"),
            (&[key, ("workers", "0")], 2, "workers: a number from 1"),
            (&[key, ("max_queue", "-1")], 2, "max_queue: a number from 1"),
            (&[key, ("timeout", "x")], 2, "timeout: a number of seconds"),
            (&[key, ("hold", "0")], 2, "hold: a number of seconds above zero"),
            (&[key, ("shed_after", "0.0")], 2, "shed_after: a number of seconds above zero"),
            (&[key, ("shed_shadow", "yes")], 2, "shed_shadow: true or false"),
            (&[key, ("shed_interval", "1")], 0, "shed_after is required"),
            (&[key, ("colour", "red")], 2, "colour: there is no such setting"),
        ] {
            let wrong = read(entries).expect_err(named);
            assert!(wrong.what.starts_with(named), "{named}: {wrong:?}");
            assert_eq!(wrong.at, at, "{wrong:?}");
        }
    }
}
