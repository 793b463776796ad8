//! `top`: shows what goes on at servers, over and over: rates, types of work, the keys that most is waited for, and who has
//! held or waited for longest.

mod controls;
mod sample;
mod screen;
mod view;

use super::command::Failure;
use super::servers::Servers;
use super::table::Given;
use super::terminal::print;
use crate::client::{Client, Timeouts};
use crate::options::{Opt, assign, number, seconds};
use controls::{Controls, Pressed};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
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
use view::View;

/// Whoever looks at a screen does not want to wait for a dead server, more than once in a while.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_millis(500), answer: Duration::from_secs(2), retry: Duration::from_secs(5) };
/// How soon a signal or the end of the terminal is noticed while nobody presses a key.
const SLICE: Duration = Duration::from_millis(200);

/// What the options say.
struct Settings {
    servers: Servers,
    interval: Duration,
    /// How often to show something; without limit if it is not said and there is a terminal.
    count: Option<u64>,
}

/// The options.
const OPTIONS: &[Opt<Settings>] = &[
    Opt::SERVER,
    Opt {
        short: "i",
        long: "interval",
        hint: "SECONDS",
        help: "how often to ask the servers (default: 2)",
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
        help: "end after so many looks (default: 1 without a terminal, else without limit)",
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
    let mut settings = Settings { servers: Servers::default(), interval: Duration::from_secs(2), count: None };
    given.apply(OPTIONS, &mut settings)?;
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

/// Without a terminal: looks twice, so that there are rates, and then as often as wanted.
fn print_plainly(client: &Client, settings: &Settings) -> Result<ExitCode, Failure> {
    let mut before = Sample::take(client);
    let mut status = ExitCode::SUCCESS;
    for _ in 0..settings.count.unwrap_or(1) {
        thread::sleep(settings.interval);
        let now = Sample::take(client);
        let orders = Controls::default().orders;
        print(&(screen::plain(&View::of(&now, Some(&before), "", &orders)) + "\n"))?;
        if !now.is_complete() {
            status = ExitCode::FAILURE;
        }
        before = now;
    }
    Ok(status)
}

struct Top {
    client: Client,
    settings: Settings,
    controls: Controls,
    /// What happens at the terminal.
    events: Receiver<Event>,
    /// A signal has come.
    stop: Arc<AtomicBool>,
}

impl Top {
    /// Shows sample after sample. The status tells whether every server answered each time, if a number of times was wanted.
    fn run(mut self, terminal: &mut DefaultTerminal) -> io::Result<ExitCode> {
        let mut before = None;
        let mut now = Sample::take(&self.client);
        let mut status = ExitCode::SUCCESS;
        let mut looks = 1;
        loop {
            if self.settings.count.is_some() && !now.is_complete() {
                status = ExitCode::FAILURE;
            }
            if !self.look(terminal, &now, before.as_ref())? || self.settings.count.is_some_and(|count| count <= looks) {
                return Ok(status);
            }
            before = Some(std::mem::replace(&mut now, Sample::take(&self.client)));
            looks += 1;
        }
    }

    /// Shows the samples, as wanted, until it is time for the next. Tells whether there is to be one.
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
                        let panel = &view.panels[self.controls.focus];
                        match self.controls.press(key, panel.columns.len(), panel.rows.len()) {
                            Pressed::Quit => return Ok(false),
                            Pressed::Refresh => return Ok(true),
                            Pressed::Look => break,
                        }
                    }
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }
}

/// Reads what happens at the terminal in a thread of its own. The library that reads it goes on for ever where a terminal has
/// ended, or half a key has come: that must keep nobody from ending the program.
fn read_events() -> Receiver<Event> {
    let (sender, events) = channel();
    thread::spawn(move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {});
    events
}

/// Whether nobody has the terminal open at its other side.
fn is_terminal_gone() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        // What is told without being asked for is that it is gone, in one way or another.
        Ok(gone) => Ok(gone > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl AsMut<Servers> for Settings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
