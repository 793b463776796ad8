//! `provide`: a provider of members whose commands start, stop, check and clean them.

mod work;

use super::command::Failure;
use super::exec::PROTOCOL;
use super::servers::{ServerOptions, Servers, TIMEOUTS};
use super::spawn::block_signals;
use super::table::Given;
use super::terminal::{self, printable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use poolcounter_client::{Error, Provider, Role, Timeouts};
use poolcounter_core::random::Random;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use work::Work;

/// The signals that it takes: all but the last, which drains it, end it.
const SIGNALS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR2];
/// It waits for an answer as long as its members stay by default when it is lost: to give up before would be to lose them.
const PATIENT: Timeouts = Timeouts { answer: Duration::from_secs(15), ..TIMEOUTS };
/// How long it waits before it connects again; doubled each time that this fails, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The status when nothing can be run at all.
const CANNOT_RUN: u8 = 126;

/// Settings that the options make.
pub struct ProvideSettings {
    /// The commands, for `sh -c`; empty if there is none.
    start: Vec<u8>,
    stop: Vec<u8>,
    check: Vec<u8>,
    clean: Vec<u8>,
    capacity: Option<u32>,
    /// How long a command may take.
    timeout: Duration,
    servers: Servers,
}

/// The options.
const OPTIONS: &[Opt<ProvideSettings>] = &[
    Opt {
        long: "start",
        hint: "COMMAND",
        doc_short: "starts a member, and prints its name and its attributes as NAME=VALUE on its first line",
        doc_long: "
            Starts a member.
            Its first line is the member's name and its attributes:
            .Ql 10.0.0.5:9001 kind=firefox .
            With that the member is there; the rest of the output is thrown away.
            The command may end with status 0 and leave the member running, or be its process: if it ends with another status later, the
            member is dead.",
        set_bytes: Some(|settings, value| assign(&mut settings.start, Ok(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        long: "stop",
        hint: "COMMAND",
        doc_short: "stops the member POOL_MEMBER (default: what --start has left running is terminated)",
        doc_long: "
            Stops a member, also one that is dead.
            Whatever its status, the member counts as stopped.
            If the process of
            .Fl -start
            still runs then, or without this command, its process group is terminated, and killed 5 seconds later.",
        set_bytes: Some(|settings, value| assign(&mut settings.stop, Ok(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        long: "check",
        hint: "COMMAND",
        doc_short: "fails if the member POOL_MEMBER is dead (default: it is alive until --start fails)",
        doc_long: "
            Tells by status 0 that a member is alive.
            Without it members are alive.",
        set_bytes: Some(|settings, value| assign(&mut settings.check, Ok(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        long: "clean",
        hint: "COMMAND",
        doc_short: "cleans the member POOL_MEMBER, or fails; without --start, also members of others",
        doc_long: "
            Cleans a member that was used; it is dead if this fails.
            Without it nothing is cleaned.
            With it and without
            .Fl -start
            the command cleans the members of others, such as fixed ones, and provides none.",
        set_bytes: Some(|settings, value| assign(&mut settings.clean, Ok(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        long: "capacity",
        hint: "N",
        doc_short: "start at most so many members (default: as many as the pool may have)",
        doc_long: "
            Start at most so many members.
            The default is as many as the pool may have.",
        set: |settings, value| assign(&mut settings.capacity, number(value, 1..=u32::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "timeout",
        hint: "SECONDS",
        doc_short: "end a command that takes longer; --start only until its first line (default: 60)",
        doc_long: "
            How long a command may take,
            .Fl -start
            until its first line.
            Its process group is terminated then, and killed 5 seconds later, and it has failed.
            The default is 60.
            It should be no longer than the times that the pool sets.",
        set: |settings, value| {
            let timeout = seconds(value).ok().filter(|timeout| !timeout.is_zero());
            assign(&mut settings.timeout, timeout.ok_or("a number of seconds above 0".into()))
        },
        ..Opt::BLANK
    },
    Opt::SERVER,
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When the command line is wrong, the server refuses, or the system lets nothing be run.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let misused = |sentence: &str| Failure::misuse(format!("{sentence} (see poolcounter help provide)"));
    let mut settings = ProvideSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let [pool] = given.words.as_slice() else { return Err(misused("there is not one pool")) };
    let role = settings.role().map_err(misused)?;
    let failed = |error: io::Error| Failure { status: CANNOT_RUN, sentence: format!("cannot run commands: {error}") };
    let mask = SigSet::thread_get_mask().map_err(|errno| failed(errno.into()))?;
    let signals = block_signals(&SIGNALS).map_err(failed)?;
    let work = Work::new(&settings, pool.as_bytes(), mask).map_err(failed)?;
    let link = Link::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
    let token: [u8; 16] = Random::from_system().map_err(failed)?.bytes();
    let session = Session {
        settings: &settings,
        role,
        pool: pool.as_bytes(),
        name: token.iter().map(|byte| format!("{byte:02x}")).collect(),
        signals,
        link,
        work,
        complaint: String::new(),
    };
    session.run().map_err(|error| match error {
        Stop::Refused(error) => {
            Failure { status: PROTOCOL, sentence: format!("{}: {error}", printable(pool.as_bytes())) }
        }
        Stop::System(error) => failed(error),
    })
}

/// A provider from its start to its end.
struct Session<'a> {
    settings: &'a ProvideSettings,
    role: Role,
    pool: &'a [u8],
    /// Name of its session, which it keeps over its connections.
    name: String,
    signals: SignalFd,
    link: Link,
    work: Work<'a>,
    /// What was last said about the connection, so that it is said once.
    complaint: String,
}

impl ProvideSettings {
    /// Returns what it does for the pool; the error says what is wrong with the options.
    fn role(&self) -> Result<Role, &'static str> {
        let for_members = self.capacity.is_some() || !self.stop.is_empty() || !self.check.is_empty();
        match (self.start.is_empty(), self.clean.is_empty()) {
            (false, _) => Ok(Role::Provider(self.capacity)),
            (true, true) => Err("--start or --clean is missing"),
            (true, false) if for_members => Err("--stop, --check and --capacity need --start"),
            (true, false) => Ok(Role::Cleaner),
        }
    }
}

/// The connection to the server.
enum Link {
    Up(Provider),
    /// To be made again at this time.
    Down {
        until: Instant,
        pause: Duration,
    },
    /// It is over.
    Closed,
}

/// Why it ends without being asked to.
enum Stop {
    Refused(Error),
    System(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::System(error)
    }
}

impl Session<'_> {
    fn run(mut self) -> Result<ExitCode, Stop> {
        loop {
            while let Some(info) = self.signals.read_signal().map_err(io::Error::from)? {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGCHLD) | Err(_) => self.work.note_ends(),
                    Ok(Signal::SIGUSR2) if self.role != Role::Cleaner => self.work.drain(),
                    Ok(_) if self.work.is_ending() => {
                        self.work.kill_all();
                        return Ok(ExitCode::SUCCESS);
                    }
                    Ok(_) => self.end(),
                }
            }
            self.connect()?;
            let link = if let Link::Up(provider) = &mut self.link { Some(provider) } else { None };
            if self.work.go_on(link).is_err() {
                let consequence = "; its members stay for the grace of the pool, and leave it after";
                let consequence = if self.role == Role::Cleaner { "" } else { consequence };
                self.complain(&format!("the connection is lost{consequence}"));
                self.work.disconnect();
                let down = Link::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
                self.link = if self.work.is_ending() { Link::Closed } else { down };
                continue;
            }
            self.close_if_done();
            if (self.work.is_ending() || self.work.is_draining()) && self.work.is_over() {
                return Ok(ExitCode::SUCCESS);
            }
            self.wait()?;
        }
    }

    /// Takes its members out of the pool, and has them stopped. The connection is kept until members of others are cleaned that it has
    /// begun with: another would be asked to clean them at the same time.
    fn end(&mut self) {
        if self.role == Role::Cleaner {
            return self.work.end();
        }
        if let Link::Up(provider) = &mut self.link {
            // Nothing is started in place of what it takes away. A connection that is lost has no members any more.
            let _ = provider.set_capacity(Some(0));
            let _ = self.work.members().try_for_each(|member| match provider.withdraw(member, true) {
                Err(Error::Lost) => Err(()),
                _ => Ok(()),
            });
        }
        self.work.end();
        self.close_if_done();
    }

    /// Closes the connection of a provider that ends, once nobody waits for it there.
    fn close_if_done(&mut self) {
        let is_needed = matches!(self.link, Link::Up(_)) && self.work.is_cleaning_for_others();
        if self.role != Role::Cleaner && self.work.is_ending() && !is_needed {
            self.work.disconnect();
            self.link = Link::Closed;
        }
    }

    fn connect(&mut self) -> Result<(), Stop> {
        let Link::Down { until, pause } = self.link else { return Ok(()) };
        if Instant::now() < until {
            return Ok(());
        }
        let placement = self.settings.servers.placement().into();
        match Provider::connect_as(self.role, &placement, PATIENT, self.pool, Some(&self.name)) {
            Ok(mut provider) => {
                if !self.complaint.is_empty() {
                    self.complain(&format!("it is connected to {}", provider.address()));
                    self.complaint.clear();
                }
                if self.work.connect(&mut provider).is_ok() {
                    self.link = Link::Up(provider);
                } else {
                    self.work.disconnect();
                    self.try_later(&Error::Lost, pause);
                }
            }
            // The server may not run yet, nor the pool be declared.
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => self.try_later(&error, pause),
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => {
                self.try_later(&Error::Refused(words), pause);
            }
            Err(error) => return Err(Stop::Refused(error)),
        }
        Ok(())
    }

    fn try_later(&mut self, error: &Error, pause: Duration) {
        self.complain(&format!("{error}; it is tried again"));
        self.link = Link::Down { until: Instant::now() + pause, pause: (2 * pause).min(LONGEST_PAUSE) };
    }

    fn complain(&mut self, sentence: &str) {
        if self.complaint != sentence {
            self.complaint = sentence.into();
            terminal::warn(&format!("{}: {sentence}", printable(self.pool)));
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> io::Result<()> {
        let mut until = self.work.next_deadline();
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match &self.link {
            Link::Up(provider) if self.work.has_room() && !self.work.is_ending() => {
                polled.push(PollFd::new(provider.as_fd(), PollFlags::POLLIN));
            }
            Link::Down { until: end, .. } => until = until.into_iter().chain([*end]).min(),
            _ => {}
        }
        polled.extend(self.work.outputs().map(|output| PollFd::new(output, PollFlags::POLLIN)));
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // A millisecond more, so that the deadline is past then.
            let ms = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut polled, timeout) {
            Err(nix::errno::Errno::EINTR) | Ok(_) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Default for ProvideSettings {
    fn default() -> Self {
        ProvideSettings {
            start: Vec::new(),
            stop: Vec::new(),
            check: Vec::new(),
            clean: Vec::new(),
            capacity: None,
            timeout: Duration::from_secs(60),
            servers: Servers::default(),
        }
    }
}

impl AsMut<Servers> for ProvideSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
