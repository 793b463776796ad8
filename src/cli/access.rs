//! Access rules in the configuration file: each `[[access]]` table, parsed and checked.

use crate::services::SERVICES;
use nix::unistd::{Group, User};
use poolcounter_service::access::{Limits, MOST_RULES, Rights, Rule, Verb, Who};
use poolcounter_service::container::ServiceId;
use poolcounter_service::options::{
    Misplaced, Table, TableDoc, TableEntry, TableOpt, TableValue, did_you_mean, number,
};
use std::net::IpAddr;

/// Tables of access rules.
pub const TABLES: &[TableOpt<Vec<Rule>>] = &[TableOpt {
    about: TableDoc {
        key: "access",
        doc_short: "Rule of access: clients, their rights and their limits. The first rule that matches a connection applies. With any rule set, requests that no rule allows are refused. There can be several.",
        doc_long: "
            .Va name
            is what the log and metrics call the rule: the first entry of
            .Va who
            without it.
            .Va who
            and
            .Va may
            are required; what they may list, and what the limits count, is in
            .Pa docs/access.md .",
        example: "name = \"web\"\nwho = [\"net:10.0.0.0/8\", \"user:www-data\", \"cn:web*.example.org\"]\nmay = [\"pools:ArticleView:*\", \"counters:read\", \"jobs:put:enwiki/*\", \"http\"]\nmax_connections = 20000\nmax_locks = 1000\nmax_waits = 10000\nmax_requests = 50000\nmax_memory = 100000000\n",
    },
    add: |rules, table| {
        if rules.len() >= MOST_RULES {
            return Err(Misplaced::new(table.at, format!("there are more than {MOST_RULES} rules")));
        }
        let rule = read_rule(table)?;
        if rules.iter().any(|other| other.name == rule.name) {
            return Err(Misplaced::new(table.at, format!("name: there are two rules called {}", rule.name)));
        }
        rules.push(rule);
        Ok(())
    },
}];

fn read_rule(table: &Table) -> Result<Rule, Misplaced> {
    let (mut name, mut who, mut rights, mut limits) = (None, Vec::new(), None, Limits::NONE);
    for TableEntry { at, key, value } in &table.entries {
        let wrong = |at: usize, what: &str| Misplaced::new(at, format!("{key}: {what}"));
        match (&key[..], value) {
            ("name", TableValue::Text(text)) if !text.is_empty() => name = Some(text.clone()),
            ("who", TableValue::List(values)) => {
                for (at, text) in texts(values).map_err(|at| wrong(at, "this is not a text"))? {
                    name = name.or_else(|| Some(text.into()));
                    who.push(read_who(text).map_err(|what| wrong(at, &format!("{text:?} is not {what}")))?);
                }
            }
            ("may", TableValue::List(values)) => {
                let mut all = vec![Rights::default(); SERVICES.len()];
                for (at, text) in texts(values).map_err(|at| wrong(at, "this is not a text"))? {
                    allow(&mut all, text).map_err(|what| wrong(at, &what))?;
                }
                rights = Some(all);
            }
            ("who" | "may", _) => return Err(wrong(*at, "this is not a list")),
            (_, TableValue::Text(text)) => set_limit(&mut limits, key, text).map_err(|what| wrong(*at, &what))?,
            _ => return Err(wrong(*at, "this is not a single value")),
        }
    }
    let missing = |key: &str| Misplaced::new(table.at, format!("[[access]] needs \"{key}\""));
    let name = name.filter(|_| !who.is_empty()).ok_or_else(|| missing("who"))?;
    Ok(Rule { name, who, rights: rights.ok_or_else(|| missing("may"))?, limits })
}

/// Returns the texts of a list, or the position of an element that is not text.
fn texts(values: &[(usize, TableValue)]) -> Result<Vec<(usize, &str)>, usize> {
    let texts = values.iter().map(|(at, value)| match value {
        TableValue::Text(text) => Ok((*at, &**text)),
        TableValue::List(_) | TableValue::Table(_) => Err(*at),
    });
    texts.collect()
}

/// Parses a subject of a rule. The error describes valid values.
fn read_who(text: &str) -> Result<Who, &'static str> {
    if text == "all" {
        return Ok(Who::All);
    }
    let (kind, name) = text.split_once(':').unwrap_or_default();
    match kind {
        "net" => {
            read_net(name).ok_or("an address with the number of its first bits that count, such as net:10.0.0.0/8")
        }
        "user" => uid_of(name).map(Who::User).ok_or("a user of this machine"),
        "group" => read_group(name).ok_or("a group of this machine"),
        "cn" if !name.is_empty() => Ok(Who::Certificate(name.as_bytes().into())),
        _ => Err("all, net:, user:, group: or cn: and a name"),
    }
}

/// Length of the prefix of IPv6 addresses that stand for IPv4 addresses, in bits.
const MAPPED_BITS: u8 = 96;

fn read_net(text: &str) -> Option<Who> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |bits| number(bits, 0..=most).ok())?;
    // Normalises to IPv4, because the addresses of peers are IPv4 even if the socket reports them as IPv6.
    Some(match address.to_canonical() {
        canonical if canonical == address => Who::Net { address, bits },
        canonical => Who::Net { address: canonical, bits: bits.checked_sub(MAPPED_BITS)? },
    })
}

fn uid_of(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(User::from_name(name).ok()??.uid.as_raw()))
}

/// Returns the group of this name or id. The system lists as members only users for whom it is not the primary group.
fn read_group(name: &str) -> Option<Who> {
    if let Ok(gid) = name.parse() {
        return Some(Who::Group { gid, uids: Vec::new() });
    }
    let group = Group::from_name(name).ok()??;
    Some(Who::Group { gid: group.gid.as_raw(), uids: group.mem.iter().filter_map(|name| uid_of(name)).collect() })
}

/// Adds the right in a text: `SERVICE`, `SERVICE:VERB`, `SERVICE:VERB:PATTERN`, or `SERVICE:PATTERN` for all verbs. The
/// error describes the fault.
fn allow(rights: &mut [Rights], text: &str) -> Result<(), String> {
    let (service, rest) = text.split_once(':').map_or((text, None), |(service, rest)| (service, Some(rest)));
    let Some(id) = ServiceId::named(SERVICES, service) else {
        let names: Vec<&str> = SERVICES.iter().map(|info| info.name).collect();
        return Err(format!("{text:?} does not begin with a service: {}", names.join(", ")));
    };
    let verbs = id.info(SERVICES).verbs;
    let verb_of = |name: &str| verbs.iter().position(|verb| *verb == name);
    let (word, pattern) =
        match rest.map(|rest| rest.split_once(':').map_or((rest, None), |(word, rest)| (word, Some(rest)))) {
            None => (None, None),
            Some((word, pattern)) if verb_of(word).is_some() => (verb_of(word), pattern),
            Some(_) => (None, rest),
        };
    if pattern == Some("") {
        return Err(format!("{text:?} ends with a colon"));
    }
    // Lossless: a service has few verbs.
    let allowed = (0..verbs.len()).filter(|at| word.is_none_or(|word| word == *at)).map(|at| Verb(at as u8));
    rights[id.index()].allow(allowed, pattern.map(str::as_bytes));
    Ok(())
}

/// Keys of a rule.
const NAMES: [&str; 8] =
    ["name", "who", "may", "max_connections", "max_locks", "max_waits", "max_requests", "max_memory"];

fn set_limit(limits: &mut Limits, name: &str, text: &str) -> Result<(), String> {
    let (limit, most) = match name {
        "max_connections" => (&mut limits.connections, u64::MAX),
        "max_locks" => (&mut limits.locks, u64::MAX),
        "max_waits" => (&mut limits.waits, u64::MAX),
        "max_requests" => (&mut limits.requests, 1_000_000),
        "max_memory" => (&mut limits.memory, u64::MAX),
        _ => return Err(format!("there is no such setting{}", did_you_mean(name, NAMES))),
    };
    *limit = number(text, 1..=most).map_err(|wanted| format!("{text:?} is not {wanted}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::time::Time;
    use poolcounter_service::access::{Access, Denial, Identity, Need};
    use poolcounter_service::contract::Credentials;

    fn rule(who: &[&str], may: &[&str]) -> Result<Rule, Misplaced> {
        let list = |texts: &[&str]| {
            let texts = texts.iter().enumerate().map(|(at, text)| (at + 10, TableValue::Text((*text).into())));
            TableValue::List(texts.collect())
        };
        let entry = |at: usize, key: &str, value| TableEntry { at, key: key.into(), value };
        read_rule(&Table { at: 0, entries: vec![entry(1, "who", list(who)), entry(2, "may", list(may))] })
    }

    fn id(service: &str) -> ServiceId {
        ServiceId::named(SERVICES, service).expect("is in the registry")
    }

    /// Returns the decision of a rule with these rights about a request.
    fn asked(may: &[&str], service: &str, verb: &str, keys: &[&str]) -> Result<(), Denial> {
        let mut access = Access::new(vec![rule(&["all"], may).expect("is well-formed")]);
        let conn = ConnId::from_index(0);
        let rule = access.rule_of_new(id(service), Some(&Identity::default()))?;
        access.enter(conn, rule);
        let at = id(service).info(SERVICES).verbs.iter().position(|known| *known == verb).expect("is a verb");
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        access
            .check(conn, id(service), &Need { verb: Some(Verb(at as u8)), keys: &keys, takes: None }, Time::START)
            .map(|_| ())
    }

    #[test]
    fn a_right_is_for_a_service_a_verb_or_keys() {
        let articles = &["pools:ArticleView:*"][..];
        assert_eq!(asked(articles, "pools", "acquire", &["ArticleView:x"]), Ok(()));
        assert_eq!(asked(articles, "pools", "stats", &["ArticleView:x"]), Ok(()));
        assert_eq!(asked(articles, "pools", "acquire", &["Other:x"]), Err(Denial::Right));
        assert_eq!(asked(articles, "pools", "acquire", &["ArticleView:x", "Other:x"]), Err(Denial::Right));
        assert_eq!(asked(articles, "pools", "stats", &[]), Err(Denial::Right), "all keys are more than some");
        assert_eq!(asked(articles, "counters", "read", &["ArticleView:x"]), Err(Denial::Stranger));
        assert_eq!(asked(&["pools:stats"], "pools", "stats", &[]), Ok(()));
        assert_eq!(asked(&["pools:stats"], "pools", "acquire", &["k"]), Err(Denial::Right));
        assert_eq!(asked(&["pools:acquire:stats*"], "pools", "acquire", &["stats:x"]), Ok(()));
        assert_eq!(asked(&["jobs:put:enwiki/*", "jobs:reserve"], "jobs", "put", &["enwiki/a"]), Ok(()));
        assert_eq!(asked(&["jobs:put:enwiki/*", "jobs:reserve"], "jobs", "put", &["dewiki/a"]), Err(Denial::Right));
        assert_eq!(asked(&["jobs:put:enwiki/*", "jobs:reserve"], "jobs", "reserve", &["dewiki/a"]), Ok(()));
        assert_eq!(asked(&["http"], "http", "act", &["/"]), Ok(()));
    }

    #[test]
    fn a_rule_applies_to_its_subjects_only() {
        let ip = |text: &str| Identity { ip: Some(text.parse().expect("an address")), ..Identity::default() };
        let process = |uid, gid| Identity {
            credentials: Some(Credentials { uid: Some(uid), gid: Some(gid), pid: 1 }),
            ..Identity::default()
        };
        let unmapped = Credentials { uid: None, gid: None, pid: 1 };
        let unmapped = Identity { credentials: Some(unmapped), ..Identity::default() };
        let certificate = |name| Identity { certificate: Some(name), ..Identity::default() };
        let cases: &[(&str, &[Identity<'_>], &[Identity<'_>])] = &[
            ("net:10.0.0.0/8", &[ip("10.1.2.3"), ip("10.255.255.255")], &[ip("11.0.0.0"), ip("::a"), process(0, 0)]),
            ("net:10.1.2.3", &[ip("10.1.2.3")], &[ip("10.1.2.2")]),
            ("net:0.0.0.0/0", &[ip("203.0.113.1")], &[ip("2001:db8::1")]),
            ("net:2001:db8::/33", &[ip("2001:db8:7fff::1")], &[ip("2001:db8:8000::1"), ip("32.1.13.184")]),
            ("user:root", &[process(0, 7)], &[process(7, 0), certificate("root"), ip("127.0.0.1")]),
            ("user:33", &[process(33, 1)], &[process(1, 33)]),
            ("group:root", &[process(7, 0)], &[process(7, 1)]),
            ("user:65534", &[process(65534, 1)], &[unmapped]),
            ("group:65534", &[process(1, 65534)], &[unmapped]),
            ("net:::ffff:10.1.2.3", &[ip("10.1.2.3")], &[ip("10.1.2.2")]),
            ("net:::ffff:10.0.0.0/104", &[ip("10.1.2.3")], &[ip("11.0.0.0"), ip("::ffff:0:0")]),
            ("net:::ffff:0:0/96", &[ip("203.0.113.1")], &[ip("2001:db8::1")]),
            (
                "cn:web*.example.org",
                &[certificate("web1.example.org")],
                &[certificate("db.example.org"), process(0, 0)],
            ),
            ("all", &[ip("::1"), process(9, 9), certificate("x"), Identity::default()], &[]),
        ];
        for (who, are, are_not) in cases {
            let mut access = Access::new(vec![rule(&[who], &["pools"]).expect("is well-formed")]);
            let conn = ConnId::from_index(3);
            for (identity, is) in are.iter().map(|one| (one, true)).chain(are_not.iter().map(|one| (one, false))) {
                let rule = access.rule_of_new(id("pools"), Some(identity));
                assert_eq!(rule.is_ok(), is, "{who}: {identity:?}");
                access.enter(conn, rule.unwrap_or_default());
                access.leave(conn);
            }
            assert!(access.is_empty());
        }
    }

    #[test]
    fn faults_are_named_with_their_place() {
        for (who, may, at, named) in [
            (&[][..], &["pools"][..], 0, "[[access]] needs \"who\""),
            (&["10.0.0.0/8"], &["pools"], 10, "who: \"10.0.0.0/8\" is not all, net:"),
            (&["all", "net:10.0.0.0/33"], &["pools"], 11, "who: \"net:10.0.0.0/33\" is not an address"),
            (&["net:::ffff:10.0.0.0/95"], &["pools"], 10, "who: \"net:::ffff:10.0.0.0/95\" is not an address"),
            (&["user:nobody-of-that-name"], &["pools"], 10, "who: \"user:nobody-of-that-name\" is not a user"),
            (&["group:no-group-of-that-name"], &["pools"], 10, "who: \"group:no-group"),
            (&["cn:"], &["pools"], 10, "who: \"cn:\" is not"),
            (&["all"], &["pool"], 10, "may: \"pool\" does not begin with a service: pools, "),
            (&["all"], &["pools", "jobs:put:"], 11, "may: \"jobs:put:\" ends with a colon"),
        ] {
            let wrong = rule(who, may).expect_err(named);
            assert!(wrong.what.starts_with(named), "{named}: {wrong:?}");
            assert_eq!(wrong.at, at, "{wrong:?}");
        }
        let mut limits = Limits::NONE;
        assert_eq!(
            set_limit(&mut limits, "max_locks", "0"),
            Err(format!("\"0\" is not a number from 1 to {}", u64::MAX))
        );
        assert!(set_limit(&mut limits, "max_requests", "1000001").is_err());
        assert!(set_limit(&mut limits, "colour", "1").is_err());
    }
}
