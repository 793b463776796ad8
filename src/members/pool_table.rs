//! Pools in the configuration file: each `[[members.pool]]` as a value that cannot be wrong. Names and settings are
//! those of the protocol.

mod idle;

pub use idle::idle;

use super::options::MembersSettings;
use super::state::{DeclaredMember, DeclaredPool, MOST_POOLS, NOT_CHECKED, checks_of};
use poolcounter_core::text::escaped;
use poolcounter_protocol::members::pool_settings::{Change, Key, MANUAL, Settings};
use poolcounter_protocol::members::request::{Attributes, Refusal};
use poolcounter_protocol::members::wire;
use poolcounter_service::options::{Misplaced, Table, TableDoc, TableEntry, TableOpt, TableValue, did_you_mean};
use std::sync::Arc;

/// The tables.
pub const TABLES: &[TableOpt<MembersSettings>] = &[TableOpt {
    about: TableDoc {
        key: "members.pool",
        doc_short: "Pool of members, with the settings of POOL, and its fixed members. There can be several.",
        doc_long: MANUAL,
        example: "name = \"phones\"\nmax = 5\nfixed = [\"phone-1\", { name = \"phone-2\", os = \"android\" }]\n",
    },
    add: add_pool,
}];

/// Checks that there is room for all fixed members.
///
/// # Errors
///
/// One sentence with their number.
pub fn check(settings: &MembersSettings) -> Result<(), String> {
    let fixed: usize = settings.pools.iter().map(|pool| pool.fixed.len()).sum();
    if fixed <= settings.most {
        return Ok(());
    }
    Err(format!("members.pool: there are {fixed} fixed members, and members.max is {}", settings.most))
}

fn add_pool(settings: &mut MembersSettings, table: &Table) -> Result<(), Misplaced> {
    let pool = read_pool(table)?;
    if settings.pools.iter().any(|other| other.name == pool.name) {
        return Err(Misplaced::new(place_of(table, "name"), "name: there are two such pools"));
    }
    if settings.pools.len() >= MOST_POOLS {
        return Err(Misplaced::new(table.at, format!("there are more than {MOST_POOLS} pools")));
    }
    let places = table.entries.iter().filter(|entry| entry.key == "fixed").flat_map(|entry| match &entry.value {
        TableValue::List(members) => &members[..],
        _ => &[],
    });
    for (member, (at, _)) in pool.fixed.iter().zip(places) {
        if let Some(first) = settings.fixed_at.0.insert(member.name.clone(), *at) {
            let what = format!("fixed: there are two members called {}", escaped(&member.name));
            return Err(Misplaced { first: Some(first), ..Misplaced::new(*at, what) });
        }
    }
    settings.pools.push(pool);
    Ok(())
}

/// Returns the place of a key, or that of a table without it.
fn place_of(table: &Table, key: &str) -> usize {
    table.entries.iter().find(|entry| entry.key == key).map_or(table.at, |entry| entry.at)
}

fn read_pool(table: &Table) -> Result<DeclaredPool, Misplaced> {
    let (mut name, mut changes, mut fixed) = (None, Vec::new(), Vec::new());
    for TableEntry { at, key, value } in &table.entries {
        let wrong = |what: &str| Misplaced::new(*at, format!("{key}: {what}"));
        match (&key[..], value) {
            ("name", TableValue::Text(text)) => name = Some(read_name(text).map_err(wrong)?),
            ("fixed", TableValue::List(members)) => fixed = read_members(members)?,
            ("fixed", _) => return Err(wrong("this is not a list of members")),
            (key, TableValue::Text(text)) => changes.push(read_change(key, text).map_err(|what| wrong(&what))?),
            _ => return Err(wrong("this is not a single value")),
        }
    }
    let missing = |key: &str| Misplaced::new(table.at, format!("{key} is required"));
    let name = name.ok_or_else(|| missing("name"))?;
    if !changes.iter().any(|change: &Change| change.key() == Key::max) {
        return Err(missing(Key::max.name()));
    }
    let settings = Settings::default().with(&changes);
    let settings = settings.map_err(|contradiction| {
        let key = contradiction.key().name();
        Misplaced::new(place_of(table, key), format!("{key}: {}", wire::text_of(contradiction)))
    })?;
    if fixed.len() as u64 > u64::from(settings.max) {
        let why = format!("fixed: {} members are more than max", fixed.len());
        return Err(Misplaced::new(place_of(table, "fixed"), why));
    }
    if let Some(key) = checks_of(&settings).filter(|_| !fixed.is_empty()) {
        let key = key.name();
        return Err(Misplaced::new(place_of(table, key), format!("{key}: {NOT_CHECKED}")));
    }
    Ok(DeclaredPool { name, settings, fixed })
}

fn read_change(key: &str, text: &str) -> Result<Change, String> {
    let names = || ["name", "fixed"].into_iter().chain(Key::ALL.iter().map(|known| known.name()));
    let known = Key::ALL.iter().find(|known| known.name() == key);
    let known = known.ok_or_else(|| format!("there is no such setting{}", did_you_mean(key, names())))?;
    wire::parse_change(*known, text.as_bytes()).map_err(|refusal| match text_of(refusal) {
        wire::NO_NUMBER => format!("\"{text}\" is not a number"),
        wire::NO_SECONDS => format!("\"{text}\" is not a number of seconds"),
        sentence => sentence.into(),
    })
}

/// Reads a name, which must fit into a line of the protocol.
fn read_name(text: &str) -> Result<Arc<[u8]>, &'static str> {
    if text.contains([' ', '\r', '\n']) {
        return Err("a name has no spaces and no ends of lines");
    }
    wire::check_name(text.as_bytes()).map(Arc::from).map_err(text_of)
}

fn read_members(values: &[(usize, TableValue)]) -> Result<Vec<DeclaredMember>, Misplaced> {
    let read = |(at, value): &(usize, TableValue)| {
        let wrong = |what: &str| Misplaced::new(*at, format!("fixed: {what}"));
        match value {
            TableValue::Text(name) => {
                Ok(DeclaredMember { name: read_member_name(name).map_err(wrong)?, attributes: Attributes::new() })
            }
            TableValue::Table(table) => read_member(table),
            TableValue::List(_) => Err(wrong("a member is a name, or a table with a name and attributes")),
        }
    };
    values.iter().map(read).collect()
}

fn read_member_name(text: &str) -> Result<Arc<[u8]>, &'static str> {
    let name = read_name(text)?;
    wire::check_member(&name).map_err(text_of)?;
    Ok(name)
}

fn read_member(table: &Table) -> Result<DeclaredMember, Misplaced> {
    let (mut name, mut attributes) = (None, Attributes::new());
    for TableEntry { at, key, value } in &table.entries {
        let wrong = |what: &str| Misplaced::new(*at, format!("fixed: {key}: {what}"));
        let TableValue::Text(text) = value else { return Err(wrong("this is not a single value")) };
        if key == "name" {
            name = Some(read_member_name(text).map_err(wrong)?);
        } else {
            let wrong = |what| Misplaced::new(*at, format!("fixed: attribute \"{key}\": {what}"));
            add_attribute(&mut attributes, key, text).map_err(wrong)?;
        }
    }
    let wrong = |what| Misplaced::new(table.at, format!("fixed: {what}"));
    wire::check_attributes(&attributes).map_err(text_of).map_err(wrong)?;
    Ok(DeclaredMember { name: name.ok_or_else(|| wrong("name is required"))?, attributes })
}

/// Adds an attribute, which must fit into a line of the protocol.
fn add_attribute(attributes: &mut Attributes, name: &str, value: &str) -> Result<(), &'static str> {
    let is_word =
        |text: &str| (1..=wire::LONGEST_NAME).contains(&text.len()) && !text.contains([' ', '\r', '\n', '\0']);
    if !is_word(name) || name.contains('=') {
        return Err("a name has 1 to 255 bytes, without spaces, ends of lines and =");
    }
    if !is_word(value) {
        return Err("a value has 1 to 255 bytes, without spaces and ends of lines");
    }
    match wire::add_attribute(attributes, format!("{name}={value}").as_bytes()) {
        Ok(()) => Ok(()),
        Err(_) => Err("member, n, pri, lease and token are options of TAKE, so it needs another name"),
    }
}

fn text_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::BadSyntax(text) => text,
        Refusal::TooMany => "a member has at most 16 attributes, and 1024 bytes of them",
        _ => "this is not well-formed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::time::Span;

    fn text(at: usize, key: &str, value: &str) -> TableEntry {
        TableEntry { at, key: key.into(), value: TableValue::Text(value.into()) }
    }

    fn table(entries: &[(&str, &str)]) -> Table {
        let entries = entries.iter().enumerate();
        Table { at: 0, entries: entries.map(|(n, (key, value))| text(n + 1, key, value)).collect() }
    }

    fn with_fixed(values: Vec<TableValue>) -> Table {
        let mut table = table(&[("name", "p"), ("max", "3")]);
        let values = values.into_iter().enumerate().map(|(n, value)| (n + 10, value)).collect();
        table.entries.push(TableEntry { at: 3, key: "fixed".into(), value: TableValue::List(values) });
        table
    }

    fn member(entries: &[(&str, &str)]) -> TableValue {
        TableValue::Table(table(entries))
    }

    fn name(text: &str) -> TableValue {
        TableValue::Text(text.into())
    }

    #[test]
    fn every_setting_can_stand_in_a_table() {
        let pairs = Key::ALL.iter().map(|key| {
            let value = match key {
                Key::group => "g",
                Key::order => "fifo",
                Key::on_loss => "ok",
                Key::max_lifetime => "9",
                Key::max => "4",
                _ => "2",
            };
            (key.name(), value)
        });
        let pairs: Vec<(&str, &str)> = [("name", "p")].into_iter().chain(pairs).collect();
        let pool = read_pool(&table(&pairs)).expect("is well-formed");
        assert_eq!((&*pool.name, pool.settings.init, pool.settings.max), (&b"p"[..], 2, 4));
        assert_eq!((pool.settings.repair_after, pool.settings.grow_at), (Span::from_secs(2), Some(2)));
        let fixed = read_pool(&with_fixed(vec![name("a"), member(&[("os", "android"), ("name", "b")])]));
        let fixed = fixed.expect("is well-formed").fixed;
        assert_eq!(fixed.iter().map(|member| &*member.name).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(fixed[1].attributes, [(Box::from(&b"os"[..]), Box::from(&b"android"[..]))]);
    }

    #[test]
    fn faults_are_named_with_their_place() {
        let mut checked = with_fixed(vec![name("a")]);
        checked.entries.push(text(4, "check_on_take", "5"));
        let long = "x".repeat(256);
        let attribute = |key: &str, value: &str| with_fixed(vec![member(&[("name", "a"), (key, value)])]);
        for (table, at, named) in [
            (table(&[("max", "1")]), 0, "name is required"),
            (table(&[("name", "p")]), 0, "max is required"),
            (table(&[("name", "a b"), ("max", "1")]), 1, "name: a name has no spaces"),
            (table(&[("name", ""), ("max", "1")]), 1, "name: a name is empty"),
            (table(&[("name", &long), ("max", "1")]), 1, "name: a name has at most 255 bytes"),
            (table(&[("name", "p"), ("max", "0")]), 2, "max: max is at least 1"),
            (table(&[("name", "p"), ("max", "1e3")]), 2, "max: \"1e3\" is not a number"),
            (
                table(&[("name", "p"), ("max", "1"), ("max_hold", "2h")]),
                3,
                "max_hold: \"2h\" is not a number of seconds",
            ),
            (table(&[("name", "p"), ("max", "1"), ("init", "2")]), 3, "init: init is at most max"),
            (table(&[("name", "p"), ("max", "1"), ("lifetime_jitter", "2")]), 3, "lifetime_jitter: "),
            (table(&[("name", "p"), ("max", "1"), ("order", "random")]), 3, "order: order is lifo or fifo"),
            (table(&[("name", "p"), ("max", "1"), ("colour", "red")]), 3, "colour: there is no such setting"),
            (table(&[("name", "p"), ("max", "1"), ("fixed", "a")]), 3, "fixed: this is not a list of members"),
            (checked, 4, "check_on_take: fixed members are not checked"),
            (with_fixed(vec![name("!a")]), 10, "fixed: a member's name begins with !"),
            (with_fixed(vec![name("a"), name("b"), name("a")]), 12, "fixed: there are two members called a"),
            (with_fixed(vec![name("a"), name("b"), name("c"), name("d")]), 3, "fixed: 4 members are more than max"),
            (with_fixed(vec![TableValue::List(Vec::new())]), 10, "fixed: a member is a name"),
            (with_fixed(vec![member(&[("os", "x")])]), 0, "fixed: name is required"),
            (attribute("os", ""), 2, "fixed: attribute \"os\": a value has 1 to 255 bytes"),
            (attribute("os", "x y"), 2, "fixed: attribute \"os\": a value has 1 to 255 bytes, without spaces"),
            (attribute("os", &long), 2, "fixed: attribute \"os\": a value has 1 to 255 bytes"),
            (attribute("", "x"), 2, "fixed: attribute \"\": a name has 1 to 255 bytes"),
            (attribute("o s", "x"), 2, "fixed: attribute \"o s\": a name has 1 to 255 bytes, without spaces"),
            (attribute("o=s", "x"), 2, "fixed: attribute \"o=s\": a name has 1 to 255 bytes"),
            (attribute("pri", "1"), 2, "fixed: attribute \"pri\": member, n, pri, lease and token are options"),
        ] {
            let wrong = add_pool(&mut MembersSettings::default(), &table).expect_err(named);
            assert!(wrong.what.starts_with(named), "{named}: {wrong:?}");
            assert_eq!(wrong.at, at, "{wrong:?}");
        }
        let many: Vec<(String, String)> = (0..17).map(|n| (format!("a{n}"), "x".into())).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let wrong = read_pool(&with_fixed(vec![member(&[&[("name", "a")], &many[..]].concat())]));
        assert_eq!(
            wrong.expect_err("too many").what,
            "fixed: a member has at most 16 attributes, and 1024 bytes of them"
        );
    }

    #[test]
    fn pools_are_bounded_and_stand_there_once() {
        let mut settings = MembersSettings { most: 1, ..MembersSettings::default() };
        add_pool(&mut settings, &with_fixed(vec![name("a"), name("b")])).expect("is well-formed");
        let twice = add_pool(&mut settings, &table(&[("name", "p"), ("max", "1")]));
        assert_eq!(twice, Err(Misplaced::new(1, "name: there are two such pools")));
        let error = check(&settings).expect_err("there is room for one");
        assert_eq!(error, "members.pool: there are 2 fixed members, and members.max is 1");
        settings.most = 2;
        assert_eq!(check(&settings), Ok(()));
    }
}
