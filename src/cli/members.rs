//! `members`: prints the pools of members, or the members of one, as a table or as JSON.

use super::command::Failure;
use super::rows::{PrintedRow, show};
use super::servers::{ServerOptions, Servers, TIMEOUTS, json_option};
use super::table::Given;
use super::terminal::printable;
use poolcounter_client::{ListedMember, ListedPool, Members};
use poolcounter_service::options::Opt;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// What the options say.
#[derive(Default)]
struct MembersCommandSettings {
    servers: Servers,
    is_json: bool,
}

/// The options.
const OPTIONS: &[Opt<MembersCommandSettings>] = &[
    json_option(
        "
            Print a list of JSON objects, one for each server:
            .Va server ,
            and
            .Va pools
            or
            .Va members ,
            or
            .Va error .",
        |settings, _| {
            settings.is_json = true;
            Ok(())
        },
    ),
    Opt::SERVER,
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When what was asked for cannot be printed. A server that does not answer is told of, and makes the status 1.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = MembersCommandSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let members = Members::with(settings.servers.placement(), TIMEOUTS);
    match given.words.as_slice() {
        [] => show(members.pools(), settings.is_json),
        [pool] => match members.members(pool.as_bytes()) {
            Ok(answers) => show(answers, settings.is_json),
            Err(error) => Err(Failure::misuse(error.to_string())),
        },
        [_, extra, ..] => {
            Err(Failure::misuse(format!("unexpected argument \"{}\" (see poolcounter help members)", extra.display())))
        }
    }
}

/// The figures of a pool that are shown, by their names on the wire.
const FIGURES: [&str; 9] =
    ["max", "in_use", "free", "starting", "stopping", "cleaning", "quarantined", "queued", "queue_max"];

impl PrintedRow for ListedPool {
    const LIST: &'static str = "pools";

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

    fn heads() -> Vec<String> {
        ["MEMBER", "STATE", "HOLDER", "AGE", "IDLE", "USES"].map(String::from).into()
    }

    fn cells(&self) -> Vec<String> {
        let state = if self.is_long { format!("{} long", self.state) } else { self.state.clone() };
        vec![
            printable(&self.name),
            printable(state.as_bytes()),
            self.holder.as_ref().map_or("-".into(), |holder| printable(holder)),
            format!("{:.3}", self.age.as_secs_f64()),
            format!("{:.3}", self.idle.as_secs_f64()),
            self.uses.to_string(),
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
        })
    }
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}

impl AsMut<Servers> for MembersCommandSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
