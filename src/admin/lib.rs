//! Administration: commands of operators, over a Unix socket owned by the daemon's user. Parses commands and replies to
//! them; the services run the operations in their tables.
//!
//! A drain and a reload belong to the daemon and not to the connection that started them: they continue after that is
//! closed. A drain also continues after an upgrade.

mod commands;
mod contract;
mod drain;
mod options;
mod reload;
mod stats;
pub mod wire;

pub use options::AdminSettings;

use drain::Drain;
use log::{LevelFilter, warn};
use poolcounter_core::text::escaped;
use poolcounter_core::wheel::timer_keys;
use poolcounter_core::{ConnId, Due, Figures, Span, TimerId};
use poolcounter_service::access::{Need, Verb};
use poolcounter_service::contract::{
    Caps, Context, Effect, Info, Input, OperationError, OperationResult, Operations, Requester, Served, Service,
};
use poolcounter_service::lines::{Progress, serve_lines};
use poolcounter_service::operations::{Offered, PendingOperations};
use poolcounter_service::options::{Opt, did_you_mean};
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::settings::{self, Configure};
use reload::Reloads;
use stats::AdminStat as Stat;
use wire::{MOST_LINE_BYTES, words};

/// Limit of open connections: operators are few, and must not take descriptors from clients.
const MAX_CONNECTIONS: u64 = 16;
/// Time limit without a command or a progress line.
const IDLE_LIMIT: Span = Span::from_secs(600);

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "admin",
    port: 0,
    is_enabled: false,
    max_connections: MAX_CONNECTIONS,
    has_store: false,
    title: "",
    conditions: &[],
    announcement: "administrators are listened to on",
    listening: options::LISTENING,
    is_private: true,
    verbs: &["command"],
    commands: &[],
    refusal: b"ERROR no rule of access allows this\n",
    settings: settings::defaults::<AdminSettings>,
    operations: commands::OPERATIONS,
};

/// Permission for commands in access rules: keys are the names of commands.
const COMMAND: Verb = Verb(0);

impl Configure for AdminSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        Box::new(Admin::default())
    }
}

timer_keys! {
    /// Timers of the administration.
    enum AdminTimer {
        /// Next count of the drain.
        Look,
    }
}

/// The administration, as a service.
#[derive(Default)]
pub struct Admin {
    drain: Option<Drain>,
    /// Timer of the next count; armed during a drain.
    look_timer: Option<TimerId>,
    /// Connections that wait for the end of the drain.
    watchers: Vec<ConnId>,
    reloads: Reloads,
    /// Operations of all services.
    operations: Operations,
    /// Operations in progress, each with its line of the log.
    pending: PendingOperations<String>,
    /// Log level set by an operator; `None`: that of the start of the process.
    log_level: Option<LevelFilter>,
    figures: Figures<Stat>,
}

impl Admin {
    /// Runs the command of one line. The reply follows with the result.
    fn run_command(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> Progress {
        self.figures.count(Stat::Commands);
        let words = words(line);
        let asked = format!("{} asks for {}", who_is(conn, context), escaped(line));
        match self.command_of(conn, &words, context) {
            Err(error) => {
                let refused = Err(error);
                note_result(&asked, &refused, context);
                write_answer(conn, &refused, context);
                Progress::Done
            }
            Ok(offered) => {
                let number = self.pending.begin(conn, asked);
                let from = Requester { service: context.called.id, conn, number };
                context.effects.push(Effect::Operate(offered.request(from, words[1..].join(&b' '))));
                Progress::Waits
            }
        }
    }

    /// Returns the operation for a line, if it exists and is allowed.
    fn command_of(&self, conn: ConnId, words: &[&[u8]], context: &mut Context<'_>) -> Result<Offered, OperationError> {
        let name = words.first().copied().unwrap_or_default();
        let found = self.operations.commands().find(|(command, _)| name.eq_ignore_ascii_case(command.as_bytes()));
        let Some((command, offered)) = found else {
            context.count_request(conn);
            return Err(self.unknown(name));
        };
        if context.has_rules() {
            let need = Need { verb: Some(COMMAND), keys: &[command.as_bytes()], takes: None };
            context.check(conn, &need).map_err(|denial| {
                OperationError::Refused(match denial.is_limit() {
                    true => "the rules of access allow no more of this now".into(),
                    false => format!("no rule of access allows this (admin:command of {command})"),
                })
            })?;
        }
        let parameters = offered.about.parameters;
        if words.len() != 1 + parameters.len() {
            let usage = [&[command], parameters].concat().join(" ");
            return Err(OperationError::Malformed(format!("usage: {usage}")));
        }
        Ok(offered)
    }

    /// Returns the error for an unknown command.
    fn unknown(&self, name: &[u8]) -> OperationError {
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let near = did_you_mean(&name, self.operations.commands().map(|(command, _)| command));
        OperationError::Malformed(format!("unknown command{near}"))
    }

    /// Logs a command whose reply takes longer than an upgrade may wait, and lets the upgrade go on.
    fn end_pending(&mut self, from: Requester) {
        if let Some((_, asked)) = self.pending.end(from.number) {
            warn!("{asked}");
        }
    }

    /// Handles `LOG`: sets the log level.
    fn set_log_level(&mut self, name: &[u8], context: &mut Context<'_>) -> OperationResult {
        self.log_level = level_of(name)?;
        context.effects.push(Effect::SetLogLevel(self.log_level));
        Ok(String::new())
    }
}

/// Logs a command with its result, and notes it for the page if it is done.
fn note_result(asked: &str, result: &OperationResult, context: &mut Context<'_>) {
    match result {
        Ok(done) if done.is_empty() => warn!("{asked}"),
        Ok(done) => warn!("{asked}: {done}"),
        Err(reason) => warn!("{asked}, which is refused: {}", reason.text()),
    }
    context.effects.extend(result.is_ok().then(|| Effect::Acted(asked.into())));
}

/// Replies to connections that have waited, and serves them again.
fn end_waits(conns: Vec<ConnId>, result: &OperationResult, context: &mut Context<'_>) {
    for conn in conns {
        write_answer(conn, result, context);
        context.resume(conn);
    }
}

fn write_answer(conn: ConnId, result: &OperationResult, context: &mut Context<'_>) {
    let result = result.as_ref().map(String::as_str).map_err(OperationError::text);
    context.output.reply_lines(conn, |bytes| wire::write_answer(bytes, result));
}

/// Returns the log level of this name; `None` for the one at the start of the process. Levels below `warn` are not
/// offered, because a log without warnings is useless.
fn level_of(name: &[u8]) -> Result<Option<LevelFilter>, OperationError> {
    match str::from_utf8(name) {
        Ok(name @ ("warn" | "info" | "debug" | "trace")) => Ok(name.parse().ok()),
        Ok("default") => Ok(None),
        _ => Err(OperationError::Malformed("the level must be warn, info, debug, trace or default".into())),
    }
}

/// Returns the user of a connection, for the log.
fn who_is(conn: ConnId, context: &Context<'_>) -> String {
    match context.conns.peers.credentials(conn) {
        Some(credentials) => credentials.to_string(),
        None => context.conns.peers.peer(conn),
    }
}

impl Service for Admin {
    fn caps(&self) -> Caps {
        Caps { request_bytes: MOST_LINE_BYTES + 1, output_bytes: MAX_BYTES, idle: Some(IDLE_LIMIT) }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        serve_lines(conn, input, MOST_LINE_BYTES, context, |line, context| self.run_command(conn, line, context))
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        match due.key() {
            AdminTimer::Look => {
                self.look_timer.take().into_iter().for_each(TimerId::fired);
                drain::look(None, context);
            }
        }
    }

    fn close(&mut self, conn: ConnId, _: &mut Context<'_>) {
        self.watchers.retain(|watcher| *watcher != conn);
        self.reloads.forget(conn);
        self.pending.forget(conn);
    }
}
