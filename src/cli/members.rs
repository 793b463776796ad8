//! `members`: prints the pools of members, or the members or waiters of one, as a table or as JSON, and sends the
//! requests of operators and of holders of lease tokens.

mod requests;

pub use requests::{REQUESTS, list};

use super::command::{Exit, Failure};
use super::servers::{
    A_SERVER, PrintedRow, Servers, TIMEOUTS, has_part, json_option, server_option, show, table, tls_option,
};
use super::spawn::obey_signals_as_first_process;
use super::table::Given;
use super::terminal::{self, printable};
use poolcounter_client::{Error, KeptOut, ListedHolder, ListedMember, ListedPool, ListedWaiter, Members, own_user};
use poolcounter_protocol::members::wire::client::describe_refusal;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds_from};
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Settings of the command.
#[derive(Default)]
pub struct MembersCommandSettings {
    servers: Servers,
    /// True if the waiters of a pool are printed instead of its members.
    is_about_waiters: bool,
    /// True if a request is about all members of the pool.
    is_all: bool,
    /// Member that a request is about.
    member: Option<Vec<u8>>,
    /// True if a repaired member is not cleaned.
    is_as_is: bool,
    /// Time between two renewals of a lease.
    every: Option<Duration>,
    /// Process at whose end the renewals end.
    until_exit: Option<i32>,
}

/// Options of the command.
pub const OPTIONS: &[Opt<MembersCommandSettings>] = option_table!(MembersCommandSettings;
    => json_option(
        "Print a list of JSON objects, one for each server. Each has server, and pools, members, waiters or error. For \
         a request, the output is one object with request, pool and error.",
    );
    "--waiting",
        "For POOL: print its waiters, in the order in which they are served. The list has their names or addresses, \
         the time for which each has waited, their priorities, the number of members that each wants, and the \
         attributes that these must have.",
        |settings, _| assign(&mut settings.is_about_waiters, Ok(true));
    "--all", "For repair: take all members of the pool out of quarantine, and print their number.",
        |settings, _| assign(&mut settings.is_all, Ok(true));
    "--member MEMBER",
        "For takeback: take this member of the pool away from its holder, instead of the member of a lease.",
        |settings, text| assign(&mut settings.member, Ok(Some(text.into())));
    "--as-is",
        "For repair: do not clean the member, in a pool that cleans its members. A member that waits for its cleaning \
         is free then, too.",
        |settings, _| assign(&mut settings.is_as_is, Ok(true));
    "--every SECONDS",
        "For renew: go on, and renew the lease each time that these seconds are over, until it is lost (status 76), or \
         the process of --until-exit has ended. While no server replies, it tries again each second.",
        |settings, value| assign(&mut settings.every, seconds_from(Duration::ZERO, value).map(Some));
    "--until-exit PID", "For renew --every: end with status 0 once the process of this number has ended.",
        |settings, value| assign(&mut settings.until_exit, number(value, 1..=i32::MAX).map(Some));
    => server_option(A_SERVER); => tls_option();
);

/// Runs the command. A single word is a pool, whatever its name: each request has a parameter.
///
/// # Errors
///
/// Fails if the result cannot be printed or the request fails. A server that does not reply is reported, and makes the
/// status 1.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, MembersCommandSettings::default())?;
    let members = Members::with(settings.servers.placement(), TIMEOUTS);
    // A list needs no name.
    let members =
        if given.words.len() > 1 { members.named(own_user()).map_err(|error| refused(&[], &error))? } else { members };
    let words: Vec<&[u8]> = given.words.iter().map(|word| word.as_bytes()).collect();
    let bad_name = |error: Error| refused(&words, &error);
    if settings.every.is_some() {
        obey_signals_as_first_process().map_err(Failure::no_commands)?;
    } else if settings.until_exit.is_some() {
        return Err(Failure::misuse("--until-exit needs --every"));
    }
    let is_json = settings.servers.is_json;
    match (words.as_slice(), settings.is_about_waiters) {
        ([], true) => Err(Failure::misuse("--waiting needs a pool")),
        ([], false) => show(members.pools(), is_json),
        ([pool], true) => show(members.waiters(pool).map_err(bad_name)?, is_json),
        ([pool], false) => show(members.members(pool).map_err(bad_name)?, is_json),
        ([_, _, ..], true) => Err(Failure::misuse("--waiting is about one pool")),
        ([b"history", pool, member @ ..], false) if member.len() < 2 => {
            show_history(&members, pool, member.first().copied(), is_json)
        }
        (words, false) => requests::make(&members, words, &settings),
    }
}

/// Returns the failure of a request about a pool, or a member or lease of one.
pub fn refused(about: &[&[u8]], error: &Error) -> Failure {
    let about: Vec<String> = about.iter().map(|name| printable(name)).collect();
    Failure::of(error, format!("{}: {}", about.join(" "), in_words(error)))
}

fn in_words(error: &Error) -> String {
    match error {
        Error::BadName => "a name or value cannot be sent: it has 1 to 255 bytes, no line end and no NUL".into(),
        Error::Refused(words) => describe_refusal(words).unwrap_or_else(|| error.to_string()),
        _ => error.to_string(),
    }
}

/// Prints the last holders of a fixed member, or of each member of the pool.
fn show_history(members: &Members, pool: &[u8], member: Option<&[u8]>, is_json: bool) -> Exit {
    let rows = || {
        let names = match member {
            Some(member) => vec![member.to_vec()],
            None => members.operator().members(pool)?.into_iter().map(|listed| listed.name).collect(),
        };
        let mut rows = Vec::new();
        for name in names {
            let row = |holder| HistoryRow { member: name.clone(), holder };
            rows.extend(members.history(pool, &name)?.into_iter().map(row));
        }
        Ok(rows)
    };
    let rows: Vec<HistoryRow> = rows().map_err(|error| refused(&[pool], &error))?;
    if is_json {
        let list: Vec<Value> = rows.iter().map(HistoryRow::object).collect();
        return terminal::print_json(&json!({ "pool": text(pool), HistoryRow::LIST: list }));
    }
    terminal::print(&table(&rows).into_iter().map(|line| line + "\n").collect::<String>())
}

/// Holder of a fixed member, present or past.
struct HistoryRow {
    member: Vec<u8>,
    holder: ListedHolder,
}

impl PrintedRow for HistoryRow {
    const LIST: &'static str = "history";

    const HEADS: &'static str = "MEMBER LEASE HOLDER ADDRESS TAKEN ENDED HOW BY";

    fn cell(&self, head: &str) -> Option<String> {
        let ago = |span| format!("{} ago", terminal::in_words(span));
        match head {
            "TAKEN" => Some(ago(self.holder.taken)),
            "ENDED" => self.holder.ended.map(ago),
            _ => None,
        }
    }

    fn object(&self) -> Value {
        let ListedHolder { lease, holder, address, taken, ended, how, by } = &self.holder;
        json!({
            "member": text(&self.member), "lease": lease, "holder": text(holder), "address": text(address),
            "taken": taken.as_secs_f64(), "ended": ended.map(|ended| ended.as_secs_f64()),
            "how": how, "by": by.as_deref().map(text),
        })
    }
}

impl PrintedRow for ListedPool {
    const LIST: &'static str = "pools";

    const REFUSAL: fn(&Error) -> String = in_words;

    /// Behind the group stand figures, by their names in the protocol.
    const HEADS: &'static str = "POOL GROUP MAX IN_USE FREE STARTING STOPPING CLEANING QUARANTINED QUEUED QUEUE_MAX";

    fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("pool".into(), text(&self.name));
        object.insert("group".into(), self.group.as_deref().map_or(Value::Null, text));
        object.extend(self.figures.iter().map(|(name, value)| (name.clone(), Value::from(*value))));
        object.into()
    }
}

impl PrintedRow for ListedMember {
    const LIST: &'static str = "members";

    const REFUSAL: fn(&Error) -> String = in_words;

    const HEADS: &'static str = "MEMBER STATE HOLDER AGE IDLE USES HELD_FOR LEASE EXPIRES WHY";

    fn cell(&self, head: &str) -> Option<String> {
        match head {
            "STATE" if self.is_long => Some(format!("{} long", printable(self.state.as_bytes()))),
            "WHY" => self.kept_out.as_ref().map(why),
            _ => None,
        }
    }

    fn object(&self) -> Value {
        let (kept, seconds) = (self.kept_out.as_ref(), |time: Option<Duration>| time.map(|time| time.as_secs_f64()));
        json!({
            "member": text(&self.name), "state": self.state, "holder": self.holder.as_deref().map(text),
            "age": self.age.as_secs_f64(), "idle": self.idle.as_secs_f64(), "uses": self.uses, "is_long": self.is_long,
            "held_for": seconds(self.held), "lease": self.lease, "expires": seconds(self.expires),
            "why": kept.map(|kept| text(&kept.why)), "by": kept.map(|kept| text(&kept.by)),
            "since": seconds(kept.map(|kept| kept.since)),
        })
    }
}

impl PrintedRow for ListedWaiter {
    const LIST: &'static str = "waiters";

    const REFUSAL: fn(&Error) -> String = in_words;

    const HEADS: &'static str = "PLACE WAITER WAITED PRI COUNT ATTRIBUTES";

    fn cell(&self, head: &str) -> Option<String> {
        let pair = |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", printable(name), printable(value));
        let attributes: Vec<String> = self.attributes.iter().map(pair).collect();
        (head == "ATTRIBUTES").then(|| if attributes.is_empty() { "-".into() } else { attributes.join(" ") })
    }

    fn object(&self) -> Value {
        let pair = |(name, value): &(Vec<u8>, Vec<u8>)| (String::from_utf8_lossy(name).into_owned(), text(value));
        json!({
            "place": self.place, "waiter": text(&self.who), "waited": self.waited.as_secs_f64(),
            "pri": self.priority, "count": self.count,
            "attributes": Value::Object(self.attributes.iter().map(pair).collect()),
        })
    }
}

/// Returns the reason for which a member is out of use, with the peer that caused it and the time since then.
fn why(kept: &KeptOut) -> String {
    let by = if matches!(&*kept.by, b"" | b"-") { String::new() } else { format!("by {}, ", printable(&kept.by)) };
    format!("{} ({by}{} ago)", printable(&kept.why), terminal::in_words(kept.since))
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

has_part!(MembersCommandSettings, servers: Servers);
