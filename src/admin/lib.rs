//! The administration: what an operator can have the daemon do, over a Unix socket that is the daemon's own user's. It reads
//! commands and answers them; what they do to locks and jobs is done by the services that have these.
//!
//! A drain belongs to the daemon and not to the connection that asks for it: it goes on when that is closed, and after an upgrade.

pub mod commands;
mod options;
mod stats;
pub mod wire;

pub use options::AdminSettings;

use commands::By;
use log::{LevelFilter, warn};
use poolcounter_core::id::ConnId;
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::stats::Figures;
use poolcounter_core::text::escaped;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Due, TimerId, timer_keys};
use poolcounter_service::access::{Need, Verb};
use poolcounter_service::contract::{
    Act, Acted, Asker, Caps, Context, Info, Input, NotDone, Peers, Served, Service, Traffic, Unreadable,
};
use poolcounter_service::lines::{Progress, serve_lines};
use poolcounter_service::options::{Opt, did_you_mean};
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::report::Report;
use poolcounter_service::settings::{self, Configure};
use serde::{Deserialize, Serialize};
use stats::AdminStat as Stat;
use std::fmt;
use std::io;
use wire::{MOST_LINE_BYTES, words};

/// Connections at a time: operators are few, and must not take descriptors from clients.
const MAX_CONNECTIONS: u64 = 16;
/// How long a connection is kept without a command or a line of progress.
const IDLE_LIMIT: Span = Span::from_secs(600);
/// How often a drain looks at what is left.
const LOOK_INTERVAL: Span = Span::from_millis(100);
/// After so many looks those who wait for the end of a drain are told what is left: each second.
const LOOKS_PER_LINE: u64 = 10;
/// After so many looks the log is told.
const LOOKS_PER_LOG_LINE: u64 = 100;

/// The version of what is written.
const SAVED_VERSION: u16 = 1;

/// The line of the registry.
pub const INFO: Info = Info {
    name: "admin",
    port: 0,
    is_enabled: false,
    max_connections: MAX_CONNECTIONS,
    has_store: false,
    announcement: "administrators are listened to on",
    listening: options::LISTENING,
    is_private: true,
    verbs: &["command"],
    commands: commands::RIGHTS,
    refusal: b"ERROR you are not let in\n",
    settings: settings::defaults::<AdminSettings>,
};

/// What rules of access can say of the administration: keys are the names of commands.
const COMMAND: Verb = Verb(0);

impl Configure for AdminSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        Box::new(Admin::default())
    }
}

timer_keys! {
    /// What the administration arms a timer for.
    enum AdminTimer {
        /// The drain looks at what is left.
        Look,
    }
}

/// The service.
#[derive(Default)]
pub struct Admin {
    drain: Option<Drain>,
    /// Armed while there is a drain that has not ended.
    look_timer: Option<TimerId>,
    /// The connections that wait for the end of the drain.
    watchers: Vec<ConnId>,
    /// What a service is doing for an administrator, as the log says it; empty between calls.
    asked: String,
    log_level: Option<LevelFilter>,
    figures: Figures<Stat>,
}

/// A drain that is under way.
#[derive(Clone, Serialize, Deserialize)]
struct Drain {
    /// Who asked for it.
    by: String,
    /// How often it has looked at what is left.
    looks: u64,
}

/// What is left, of each service that has something.
struct Left(Vec<(&'static str, u64)>);

impl Left {
    fn of(context: &Context<'_>) -> Left {
        Left(context.others.at_risk().filter(|(_, held)| *held > 0).collect())
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|(_, held)| held).sum()
    }
}

/// A number, and whose it is: `3 (pools 2, jobs 1)`.
impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, held)| format!("{name} {held}")).collect();
        match parts.is_empty() {
            true => f.write_str("0"),
            false => write!(f, "{} ({})", self.total(), parts.join(", ")),
        }
    }
}

impl Admin {
    /// Obeys one line.
    fn run_command(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> Progress {
        self.figures.count(Stat::Commands);
        let (who, words) = (who_is(conn, context), words(line));
        let command = words.split_first().and_then(|(name, rest)| Some((commands::find(name)?, rest)));
        let asked = format!("{who} asks for {}", escaped(line));
        if let Some((command, _)) = command
            && context.has_rules()
            && let Err(denial) =
                context.check(conn, &Need { verb: COMMAND, keys: &[command.name.as_bytes()], takes: None })
        {
            return self.answer(conn, &asked, &Err(NotDone::Refused(format!("access: {}", denial.name()))), context);
        }
        let Some((command, rest)) = command else {
            return self.answer(conn, &asked, &Err(no_command(&words)), context);
        };
        if rest.len() != command.parameters.len() {
            let usage = [&[command.name], command.parameters].concat().join(" ");
            return self.answer(conn, &asked, &Err(NotDone::Malformed(format!("this is {usage}"))), context);
        }
        match command.by {
            By::Service(service, action) => {
                self.asked = asked;
                context.acts.push(Act {
                    asker: Asker { service: context.id, conn, number: 0 },
                    service: service.into(),
                    action: action.into(),
                    key: rest.join(&b' '),
                });
                Progress::Waits
            }
            By::Admin(run) => {
                let answer = run(self, rest, context);
                self.answer(conn, &asked, &answer, context)
            }
            By::Later(run) => {
                warn!("{asked}");
                run(self, conn, context);
                Progress::Waits
            }
        }
    }

    /// Logs what was asked for and what came of it, and says so.
    fn answer(&self, conn: ConnId, asked: &str, answer: &Acted, context: &mut Context<'_>) -> Progress {
        match answer {
            Ok(done) if done.is_empty() => warn!("{asked}"),
            Ok(done) => warn!("{asked}: {done}"),
            Err(reason) => warn!("{asked}, which is refused: {}", reason.text()),
        }
        write_answer(conn, answer, context);
        Progress::Done
    }

    /// `DRAIN`: begins one unless there is one, and has the connection told how it goes.
    fn drain_for(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if self.drain.is_none() {
            self.drain = Some(Drain { by: who_is(conn, context), looks: 0 });
            self.go_on_draining(context);
        }
        self.watchers.push(conn);
        let left = Left::of(context);
        context.output.reply_lines(conn, |bytes| wire::write_left(bytes, &left));
    }

    /// Has nothing new granted, and looks at what is left from time to time.
    fn go_on_draining(&mut self, context: &mut Context<'_>) {
        context.orders.refuse_new = Some(true);
        self.arm_look(context);
    }

    fn arm_look(&mut self, context: &mut Context<'_>) {
        self.look_timer = Some(context.timers.typed().arm(context.now + LOOK_INTERVAL, AdminTimer::Look));
    }

    /// Ends the daemon if nothing is left, and else tells how much is, if it is time for that.
    fn look(&mut self, context: &mut Context<'_>) {
        let Some(drain) = &mut self.drain else { return };
        let left = Left::of(context);
        self.figures.set(Stat::Left, left.total());
        if left.total() == 0 {
            warn!("nothing is left, and the daemon ends, as {} has asked", drain.by);
            context.orders.end = true;
            return self.end_watch(&Ok("nothing is left, and the daemon ends".into()), context);
        }
        drain.looks += 1;
        if drain.looks % LOOKS_PER_LOG_LINE == 0 {
            warn!("what clients hold or wait for before the daemon ends: {left}");
        }
        if drain.looks % LOOKS_PER_LINE == 0 {
            // One that does not read is told how it is when it does.
            let reading = self.watchers.iter().filter(|conn| context.output.len(**conn) == 0);
            reading.copied().collect::<Vec<_>>().into_iter().for_each(|conn| {
                context.output.reply_lines(conn, |bytes| wire::write_left(bytes, &left));
            });
        }
        self.arm_look(context);
    }

    /// Answers those who wait for the end of the drain.
    fn end_watch(&mut self, answer: &Acted, context: &mut Context<'_>) {
        for conn in self.watchers.drain(..) {
            write_answer(conn, answer, context);
            context.resume(conn);
        }
    }

    /// `UNDRAIN`.
    fn undrain(&mut self, context: &mut Context<'_>) -> Acted {
        let Some(timer) = self.look_timer.take() else { return Err(NotDone::Refused("nothing is drained".into())) };
        context.timers.typed::<AdminTimer>().cancel(timer);
        self.drain = None;
        self.figures.set(Stat::Left, 0);
        context.orders.refuse_new = Some(false);
        self.end_watch(&Err(NotDone::Refused("the drain was ended by UNDRAIN".into())), context);
        Ok("new requests are granted again".into())
    }

    /// `LOG`.
    fn set_log_level(&mut self, level: Option<LevelFilter>, context: &mut Context<'_>) -> Acted {
        self.log_level = level;
        context.process.set_log_level(level);
        Ok(String::new())
    }
}

/// Returns the refusal of a line whose command there is not.
fn no_command(words: &[&[u8]]) -> NotDone {
    let name = words.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase()).unwrap_or_default();
    let near = did_you_mean(&name, commands::COMMANDS.iter().map(|command| command.name));
    NotDone::Malformed(format!("there is no such command{near}"))
}

fn write_answer(conn: ConnId, answer: &Acted, context: &mut Context<'_>) {
    let answer = answer.as_ref().map(String::as_str).map_err(NotDone::text);
    context.output.reply_lines(conn, |bytes| wire::write_answer(bytes, answer));
}

/// Returns whose connection it is, for the log.
fn who_is(conn: ConnId, context: &Context<'_>) -> String {
    match context.peers.credentials(conn) {
        Some(credentials) => credentials.to_string(),
        None => context.peers.peer(conn),
    }
}

impl Service for Admin {
    fn caps(&self) -> Caps {
        Caps { request_bytes: MOST_LINE_BYTES + 1, output_bytes: MAX_BYTES, idle: Some(IDLE_LIMIT) }
    }

    fn begin(&mut self, _: bool, context: &mut Context<'_>) -> Result<(), String> {
        context.process.set_log_level(self.log_level);
        Ok(())
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        serve_lines(conn, input, MOST_LINE_BYTES, context, |line, context| self.run_command(conn, line, context))
    }

    fn acted(&mut self, asker: Asker, result: &Acted, context: &mut Context<'_>) {
        let asked = std::mem::take(&mut self.asked);
        self.answer(asker.conn, &asked, result, context);
        context.resume(asker.conn);
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        match due.key() {
            AdminTimer::Look => {
                self.look_timer.take().into_iter().for_each(TimerId::fired);
                self.look(context);
            }
        }
    }

    fn close(&mut self, conn: ConnId, _: &mut Context<'_>) {
        self.watchers.retain(|watcher| *watcher != conn);
    }

    fn unhealthy_reason(&self) -> Option<&'static str> {
        self.drain.is_some().then_some("the daemon is to end")
    }

    fn report(&self, _: Time, _: &Traffic, _: &dyn Peers) -> Report {
        let mut figures = self.figures.clone();
        figures.set(Stat::Draining, u64::from(self.drain.is_some()));
        Report { figures: figures.rows().collect(), ..Report::default() }
    }

    fn saved_version(&self) -> u16 {
        SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        let level = self.log_level.map(|level| level.as_str());
        out.put(&(&self.drain, &self.watchers, level, self.figures.save()))
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        if version != SAVED_VERSION {
            return Err(Unreadable::version("admin", version));
        }
        type Saved = (Option<Drain>, Vec<ConnId>, Option<String>, Vec<(String, u64)>);
        let (drain, watchers, level, figures) = saved.take::<Saved>()?;
        (self.drain, self.watchers) = (drain, watchers);
        self.figures.restore(&figures);
        self.log_level = level.and_then(|level| level.parse().ok());
        if self.drain.is_some() {
            self.go_on_draining(context);
        }
        Ok(())
    }

    fn check(&self) {
        assert!(self.watchers.is_empty() || self.drain.is_some(), "only a drain is waited for");
        assert!(self.look_timer.is_none() || self.drain.is_some(), "only a drain looks at what is left");
        assert!(self.asked.is_empty(), "what is asked of services is done at once");
    }

    fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    fn background_timers(&self) -> usize {
        usize::from(self.look_timer.is_some())
    }
}
