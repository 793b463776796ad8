//! `top`: shows what servers report, over and over: how every service stands, what has happened by second, and the tables.

mod controls;
mod sample;
mod screen;
mod view;

use super::command::Failure;
use super::servers::{ServerOptions, Servers};
use super::table::Given;
use super::terminal::print;
use crate::services::SERVICES;
use controls::{Controls, KeyAction};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use poolcounter_client::{Client, Timeouts};
use poolcounter_service::options::{Opt, assign, did_you_mean, number, seconds};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sample::Sample;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use view::{Orders, View};

/// A dead server must not delay the screen, except now and then.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_millis(500), answer: Duration::from_secs(2), retry: Duration::from_secs(1) };
/// How soon a signal or the end of the terminal is noticed while no key is pressed.
const SLICE: Duration = Duration::from_millis(200);

/// Settings that the options make.
struct TopSettings {
    servers: Servers,
    /// The only service that is shown, if one is named.
    service: Option<String>,
    interval: Duration,
    /// How often to show something; without limit if it is not said and there is a terminal.
    count: Option<u64>,
}

/// The options.
const OPTIONS: &[Opt<TopSettings>] = &[
    Opt::EACH_SERVER,
    Opt::TLS,
    Opt {
        long: "service",
        hint: "NAME",
        doc_short: "show only this service, such as jobs",
        doc_long: "
            Show only this service:
            .Cm pools , counters , members
            or
            .Cm jobs .",
        set: |settings, value| {
            let is_known = SERVICES.iter().any(|info| info.name == value);
            let names = || SERVICES.iter().map(|info| info.name);
            let expected =
                || format!("a service: {}{}", names().collect::<Vec<_>>().join(", "), did_you_mean(value, names()));
            settings.service = Some(value.into()).filter(|_| is_known);
            settings.service.as_ref().map(drop).ok_or_else(expected)
        },
        ..Opt::BLANK
    },
    Opt {
        short: "i",
        long: "interval",
        hint: "SECONDS",
        doc_short: "how often to ask the servers (default: 2)",
        doc_long: "
            How often to ask the servers, at least 0.1.
            The default is 2.",
        set: |settings, value| {
            let interval = seconds(value).ok().filter(|interval| *interval >= Duration::from_millis(100));
            assign(&mut settings.interval, interval.ok_or("a number of seconds from 0.1".into()))
        },
        ..Opt::BLANK
    },
    Opt {
        short: "n",
        long: "count",
        hint: "N",
        doc_short: "exit after N updates (default: 1 without a terminal, else without limit)",
        doc_long: "
            Exit after this number of updates.",
        set: |settings, value| assign(&mut settings.count, number(value, 1..=u64::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When the terminal cannot be used.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings =
        TopSettings { servers: Servers::default(), service: None, interval: Duration::from_secs(2), count: None };
    given.apply(OPTIONS, &mut settings)?;
    settings.servers = settings.servers.or_environment();
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return print_plainly(&client, &settings);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error: io::Error| format!("cannot use the terminal: {error}");
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        // The second signal, of whichever kind, does what it does to any program.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let events = read_events();
    let result = Top { client, settings, controls: Controls::default(), events, stop }.run(&mut terminal);
    if terminal.show_cursor().and_then(|()| ratatui::try_restore()).is_err() {
        // A terminal that is gone needs nothing. It would complain of that on the standard error, and panic if that is gone.
        std::mem::forget(terminal);
    }
    Ok(result.map_err(failed)?)
}

/// Prints plain lines, without a terminal: takes two samples, so that there are rates, and then as many as wanted.
fn print_plainly(client: &Client, settings: &TopSettings) -> Result<ExitCode, Failure> {
    let mut before = Sample::take(client, settings.service.as_deref(), None);
    let mut status = ExitCode::SUCCESS;
    for _ in 0..settings.count.unwrap_or(1) {
        thread::sleep(settings.interval);
        let now = Sample::take(client, settings.service.as_deref(), None);
        print(&(screen::plain(&View::of(&now, Some(&before), "", &Orders::new())) + "\n"))?;
        if !now.is_complete() {
            status = ExitCode::FAILURE;
        }
        before = now;
    }
    Ok(status)
}

struct Top {
    client: Client,
    settings: TopSettings,
    controls: Controls,
    /// The terminal's events.
    events: Receiver<Event>,
    /// A signal has come.
    stop: Arc<AtomicBool>,
}

impl Top {
    /// Shows sample after sample. If a number of samples was asked for, the status is a failure when a server did not answer each
    /// time.
    fn run(mut self, terminal: &mut DefaultTerminal) -> io::Result<ExitCode> {
        let mut before = None;
        let mut now = self.sample();
        let mut status = ExitCode::SUCCESS;
        let mut looks = 1;
        loop {
            if self.settings.count.is_some() && !now.is_complete() {
                status = ExitCode::FAILURE;
            }
            if !self.look(terminal, &now, before.as_ref())? || self.settings.count.is_some_and(|count| count <= looks) {
                return Ok(status);
            }
            let next = self.sample();
            before = Some(std::mem::replace(&mut now, next));
            looks += 1;
        }
    }

    fn sample(&self) -> Sample {
        Sample::take(&self.client, self.settings.service.as_deref(), self.controls.key.as_deref())
    }

    /// Shows the samples, as the controls say, until it is time for the next. Returns false when the command is to end.
    fn look(&mut self, terminal: &mut DefaultTerminal, now: &Sample, before: Option<&Sample>) -> io::Result<bool> {
        let end = now.at + self.settings.interval;
        loop {
            let view = View::of(now, before, &self.controls.filter, &self.controls.orders);
            terminal.draw(|frame| screen::draw(frame, &view, &self.controls))?;
            // The next turn is for a key, for the next sample, or for a terminal of another size.
            loop {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                let left = if self.controls.is_paused { SLICE } else { end.saturating_duration_since(Instant::now()) };
                if left.is_zero() {
                    return Ok(true);
                }
                if is_terminal_gone()? {
                    return Ok(false);
                }
                let Ok(event) = self.events.recv_timeout(left.min(SLICE)) else { continue };
                match event {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        match self.controls.press(key, &view.panels) {
                            KeyAction::Quit => return Ok(false),
                            KeyAction::Refresh => return Ok(true),
                            KeyAction::Redraw => break,
                        }
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }
}

/// Reads the terminal's events in a thread of their own. The library may block for ever where a terminal has ended, or half a key
/// has come: that must not keep the program from ending.
fn read_events() -> Receiver<Event> {
    let (sender, events) = channel();
    thread::spawn(move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {});
    events
}

/// Returns true when the other side of the terminal is closed.
fn is_terminal_gone() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        // Without events asked for, the system reports only errors and hangups.
        Ok(gone) => Ok(gone > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl AsMut<Servers> for TopSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
