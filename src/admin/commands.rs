//! The commands of the administration: one table, which the service, `poolcounter admin` and the tests read.

use super::{Admin, COMMAND};
use log::LevelFilter;
use poolcounter_core::id::ConnId;
use poolcounter_service::access::Command;
use poolcounter_service::contract::{Acted, Context, NotDone};

/// One command.
pub struct AdminCommand {
    /// Its name.
    pub name: &'static str,
    /// What follows the name, a word each.
    pub parameters: &'static [&'static str],
    /// What it does, in a few words.
    pub summary: &'static str,
    /// What does it.
    pub(super) by: By,
}

/// What does something that a command asks for.
pub(super) enum By {
    /// A service, by [`Service::act`](poolcounter_service::contract::Service::act): its name, the action, and the words behind the command as the key.
    Service(&'static str, &'static str),
    /// The administration itself, at once. The words are as many as the parameters.
    Admin(fn(&mut Admin, &[&[u8]], &mut Context<'_>) -> Acted),
    /// The administration itself, which answers the connection when it is done.
    Later(fn(&mut Admin, ConnId, &mut Context<'_>)),
}

/// Every command.
pub const COMMANDS: &[AdminCommand] = &[
    AdminCommand {
        name: "RELEASE-LOCK",
        parameters: &["KEY", "CLIENT"],
        summary: "take a lock away from a client, as holders KEY shows it",
        by: By::Service("pools", "release-lock"),
    },
    AdminCommand {
        name: "CEILING",
        parameters: &["KEYS", "NAME=VALUE,...|none"],
        summary: "what requests for these keys may have at most, until the next upgrade",
        by: By::Service("pools", "ceiling"),
    },
    AdminCommand {
        name: "DRAIN",
        parameters: &[],
        summary: "grant nothing new, wait until all is given back, and end the daemon",
        by: By::Later(Admin::drain_for),
    },
    AdminCommand {
        name: "UNDRAIN",
        parameters: &[],
        summary: "grant again, and go on",
        by: By::Admin(|admin, _, context| admin.undrain(context)),
    },
    AdminCommand {
        name: "LOG",
        parameters: &["warn|info|debug|trace|default"],
        summary: "what is logged until a restart",
        by: By::Admin(|admin, words, context| admin.set_log_level(level_of(words[0])?, context)),
    },
];

/// What each command asks for, as rules of access can allow it.
pub(super) const RIGHTS: &[Command] = &{
    let mut rows = [Command { word: "", arguments: "", verb: Some(COMMAND), help: "" }; COMMANDS.len()];
    let mut row = 0;
    while row < rows.len() {
        rows[row].word = COMMANDS[row].name;
        rows[row].help = COMMANDS[row].summary;
        row += 1;
    }
    rows
};

/// Returns the command of that name, in upper or lower case.
pub(super) fn find(name: &[u8]) -> Option<&'static AdminCommand> {
    COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

/// Returns the level of that name; None for the one that the daemon was started with. Less than warnings is none of them: a log
/// without these helps nobody.
fn level_of(name: &[u8]) -> Result<Option<LevelFilter>, NotDone> {
    match name {
        b"warn" => Ok(Some(LevelFilter::Warn)),
        b"info" => Ok(Some(LevelFilter::Info)),
        b"debug" => Ok(Some(LevelFilter::Debug)),
        b"trace" => Ok(Some(LevelFilter::Trace)),
        b"default" => Ok(None),
        _ => Err(NotDone::Malformed("the level is warn, info, debug, trace or default".into())),
    }
}
