//! `members`: prints the pools of members, or the members or waiters of one, as a table or as JSON, and sends the
//! requests of operators and of holders of lease tokens.

mod requests;

pub use requests::{REQUESTS, first_words, list};

use super::command::{Failure, MISUSE};
use super::failure::{PROTOCOL, UNAVAILABLE};
use super::rows::{PrintedRow, show};
use super::servers::{ServerOptions, Servers, TIMEOUTS, has_servers, json_option};
use super::table::Given;
use super::terminal::{self, printable};
use poolcounter_client::{Error, KeptOut, ListedMember, ListedPool, ListedWaiter, Members};
use poolcounter_protocol::members::wire::client::describe_refusal;
use poolcounter_service::options::{Opt, assign};
use requests::MemberRequest;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Settings of the command.
#[derive(Default)]
pub struct MembersCommandSettings {
    servers: Servers,
    is_json: bool,
    /// True if the waiters of a pool are printed instead of its members.
    is_about_waiters: bool,
    /// True if a request is about all members of the pool.
    is_all: bool,
    /// Member that a request is about.
    member: Option<Vec<u8>>,
}

/// Options of the command.
pub const OPTIONS: &[Opt<MembersCommandSettings>] = &[
    json_option(
        "Print a list of JSON objects, one for each server. Each has server, and pools, members, waiters or error. For \
         a request, the output is one object with request, pool and error.",
        |settings, _| assign(&mut settings.is_json, Ok(true)),
    ),
    Opt {
        long: "waiting",
        doc: "Print the waiters of the pool, in the order in which they are served. The list has their names or \
              addresses, the time for which each has waited, their priorities, the number of members that each wants, \
              and the attributes that these must have.",
        set: |settings, _| assign(&mut settings.is_about_waiters, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "all",
        doc: "With repair: take all members of the pool out of quarantine, and print their number.",
        set: |settings, _| assign(&mut settings.is_all, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "member",
        hint: "MEMBER",
        doc: "With takeback: take this member of the pool away from its holder, instead of the member of a lease.",
        set: |settings, text| assign(&mut settings.member, Ok(Some(text.into()))),
        ..Opt::BLANK
    },
    Opt::SERVER,
    Opt::TLS,
];

/// Runs the command. A single word is a pool, whatever its name: each request has a parameter.
///
/// # Errors
///
/// Fails if the result cannot be printed or the request fails. A server that does not reply is reported, and makes the
/// status 1.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = MembersCommandSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let members = Members::with(settings.servers.placement(), TIMEOUTS);
    let words: Vec<&[u8]> = given.words.iter().map(|word| word.as_bytes()).collect();
    let bad_name = |error: Error| refused(&words, &error);
    match (words.as_slice(), settings.is_all, &settings.member) {
        (_, false, None) => {}
        ([b"repair", pool], true, None) => return requests::repair_all(&members, pool, settings.is_json),
        ([b"takeback", pool, note @ ..], false, Some(member)) if note.len() < 2 => {
            return requests::take_back_member(&members, pool, member, note.first(), settings.is_json);
        }
        _ => return Err(Failure::misuse("--all is for \"repair POOL\", and --member for \"takeback POOL [NOTE]\"")),
    }
    match (words.as_slice(), settings.is_about_waiters) {
        ([], true) => Err(Failure::misuse("--waiting needs a pool (see poolcounter help members)")),
        ([], false) => show(members.pools(), settings.is_json),
        ([pool], true) => show(members.waiters(pool).map_err(bad_name)?, settings.is_json),
        ([pool], false) => show(members.members(pool).map_err(bad_name)?, settings.is_json),
        ([_, _, ..], true) => Err(Failure::misuse("--waiting is about one pool (see poolcounter help members)")),
        ([word, rest @ ..], false) => match MemberRequest::of_word(word) {
            Some(request) => request.make(&members, rest, settings.is_json),
            None => Err(Failure::unknown("request", &printable(word), first_words(), "poolcounter help members")),
        },
    }
}

/// Returns the failure of a request about a pool, or a member or lease of one.
pub fn refused(about: &[&[u8]], error: &Error) -> Failure {
    let status = match error {
        Error::Unavailable(_) => UNAVAILABLE,
        Error::BadName => MISUSE,
        _ => PROTOCOL,
    };
    let about: Vec<String> = about.iter().map(|name| printable(name)).collect();
    Failure { status, sentence: format!("{}: {}", about.join(" "), in_words(error)) }
}

fn in_words(error: &Error) -> String {
    match error {
        Error::BadName => "a name or value cannot be sent: it has 1 to 255 bytes, no line end and no NUL".into(),
        Error::Refused(words) => describe_refusal(words).unwrap_or_else(|| error.to_string()),
        _ => error.to_string(),
    }
}

/// Figures of a pool that are shown, by their names in the protocol.
const FIGURES: [&str; 9] =
    ["max", "in_use", "free", "starting", "stopping", "cleaning", "quarantined", "queued", "queue_max"];

impl PrintedRow for ListedPool {
    const LIST: &'static str = "pools";

    fn refusal(error: &Error) -> String {
        in_words(error)
    }

    fn heads() -> Vec<String> {
        ["POOL", "GROUP"].into_iter().map(String::from).chain(FIGURES.map(str::to_uppercase)).collect()
    }

    fn cells(&self) -> Vec<String> {
        let group = self.group.as_ref().map_or("-".into(), |group| printable(group));
        let figure = |name: &str| {
            let found = self.figures.iter().find(|(known, _)| known == name);
            found.map_or("-".into(), |(_, value)| value.to_string())
        };
        [printable(&self.name), group].into_iter().chain(FIGURES.map(figure)).collect()
    }

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

    fn refusal(error: &Error) -> String {
        in_words(error)
    }

    fn heads() -> Vec<String> {
        ["MEMBER", "STATE", "HOLDER", "AGE", "IDLE", "USES", "HELD_FOR", "LEASE", "WHY"].map(String::from).into()
    }

    fn cells(&self) -> Vec<String> {
        let state = if self.is_long { format!("{} long", self.state) } else { self.state.clone() };
        vec![
            printable(&self.name),
            printable(state.as_bytes()),
            self.holder.as_ref().map_or("-".into(), |holder| printable(holder)),
            terminal::in_words(self.age),
            terminal::in_words(self.idle),
            self.uses.to_string(),
            self.held.map_or("-".into(), terminal::in_words),
            self.lease.map_or("-".into(), |lease| lease.to_string()),
            self.kept_out.as_ref().map_or("-".into(), why),
        ]
    }

    fn object(&self) -> Value {
        json!({
            "member": text(&self.name),
            "state": self.state,
            "holder": self.holder.as_deref().map_or(Value::Null, text),
            "age": self.age.as_secs_f64(),
            "idle": self.idle.as_secs_f64(),
            "uses": self.uses,
            "is_long": self.is_long,
            "held_for": self.held.map(|held| held.as_secs_f64()),
            "lease": self.lease,
            "why": self.kept_out.as_ref().map(|kept| text(&kept.why)),
            "by": self.kept_out.as_ref().map(|kept| text(&kept.by)),
            "since": self.kept_out.as_ref().map(|kept| kept.since.as_secs_f64()),
        })
    }
}

impl PrintedRow for ListedWaiter {
    const LIST: &'static str = "waiters";

    fn refusal(error: &Error) -> String {
        in_words(error)
    }

    fn heads() -> Vec<String> {
        ["PLACE", "WAITER", "WAITED", "PRI", "COUNT", "ATTRIBUTES"].map(String::from).into()
    }

    fn cells(&self) -> Vec<String> {
        let pair = |(name, value): &(Vec<u8>, Vec<u8>)| format!("{}={}", printable(name), printable(value));
        let attributes: Vec<String> = self.attributes.iter().map(pair).collect();
        vec![
            self.place.to_string(),
            printable(&self.who),
            terminal::in_words(self.waited),
            self.priority.to_string(),
            self.count.to_string(),
            if attributes.is_empty() { "-".into() } else { attributes.join(" ") },
        ]
    }

    fn object(&self) -> Value {
        let pair = |(name, value): &(Vec<u8>, Vec<u8>)| (String::from_utf8_lossy(name).into_owned(), text(value));
        json!({
            "place": self.place,
            "waiter": text(&self.who),
            "waited": self.waited.as_secs_f64(),
            "pri": self.priority,
            "count": self.count,
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

has_servers!(MembersCommandSettings);
