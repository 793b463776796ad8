//! `top`: shows the reports of servers, updated continuously: the state of every service, its rates, and the tables.

mod controls;
mod screen;
mod view;

use super::command::{Exit, Failure};
use super::servers::{EACH_SERVER, Servers, has_part, server_option, tls_option};
use super::table::Given;
use controls::{Controls, KeyAction};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use poolcounter_client::{Client, Timeouts};
use poolcounter_service::options::{Opt, assign, option_table, seconds_from};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use view::{Sample, View};

/// Timeouts: a dead server must not delay the screen, except occasionally.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_millis(500), answer: Duration::from_secs(2), retry: Duration::from_secs(1) };
/// Time limit for noticing a signal or the end of the terminal while no key is pressed.
const SLICE: Duration = Duration::from_millis(200);

/// Settings of the command.
pub struct TopSettings {
    servers: Servers,
    interval: Duration,
}

/// Options of the command.
pub const OPTIONS: &[Opt<TopSettings>] = option_table!(TopSettings;
    => server_option(EACH_SERVER); => tls_option();
    "-i, --interval SECONDS", "Time between two polls of the servers, at least 0.1 (default: 2).",
        |settings, value| assign(&mut settings.interval, seconds_from(Duration::from_millis(100), value));
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the terminal cannot be used.
pub fn run(given: &Given) -> Exit {
    let usual = TopSettings { servers: Servers::default(), interval: Duration::from_secs(2) };
    let settings = given.settings(OPTIONS, usual)?;
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::misuse("top needs a terminal: poolcounter stats prints the reports"));
    }
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error: io::Error| format!("cannot use the terminal: {error}");
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        // The second signal of any kind has its default effect.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let events = read_events();
    let result = Top { client, settings, controls: Controls::default(), events, stop }.run(&mut terminal);
    if terminal.show_cursor().and_then(|()| ratatui::try_restore()).is_err() {
        // A terminal that is gone needs no restoring, which would report an error on the standard error, and panic if
        // that is gone as well.
        std::mem::forget(terminal);
    }
    result.map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

struct Top {
    client: Client,
    settings: TopSettings,
    controls: Controls,
    /// Events of the terminal.
    events: Receiver<Event>,
    /// True after a signal.
    stop: Arc<AtomicBool>,
}

impl Top {
    /// Shows one sample after the other.
    fn run(mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let mut before = None;
        let mut now = self.sample();
        while self.look(terminal, &now, before.as_ref())? {
            let next = self.sample();
            before = Some(std::mem::replace(&mut now, next));
        }
        Ok(())
    }

    fn sample(&self) -> Sample {
        Sample::take(&self.client, self.controls.key.as_deref())
    }

    /// Shows the samples, as the controls select, until the next is due. Returns false at the end of the command.
    fn look(&mut self, terminal: &mut DefaultTerminal, now: &Sample, before: Option<&Sample>) -> io::Result<bool> {
        let end = now.at + self.settings.interval;
        loop {
            let view = View::of(now, before, &self.controls.filter, &self.controls.orders);
            terminal.draw(|frame| screen::draw(frame, &view, &self.controls))?;
            // Redraws after a key, a new sample or a change of the terminal's size.
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

/// Reads the terminal's events in a thread of its own. The library may block for ever after the end of the terminal or
/// after half a key, which must not keep the program from ending.
fn read_events() -> Receiver<Event> {
    let (sender, events) = channel();
    thread::spawn(move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {});
    events
}

/// Returns true if the other side of the terminal is closed.
fn is_terminal_gone() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        // Without requested events, the system reports only errors and hangups.
        Ok(gone) => Ok(gone > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

has_part!(TopSettings, servers: Servers);
