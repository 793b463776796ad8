//! `provide`: a provider of members whose commands start, stop, check and clean them.

mod work;

use super::command::{Exit, Failure};
use super::failure::PROTOCOL;
use super::servers::{A_SERVER, Servers, TIMEOUTS, has_part, server_option, tls_option};
use super::spawn::block_signals;
use super::table::Given;
use super::terminal::printable;
use super::wait::{Outage, poll_until};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use poolcounter_client::{Error, Provider, Role, Timeouts};
use poolcounter_core::Random;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds_from};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use work::Work;

/// Signals that it handles: the last one drains it, the other signals end it.
const SIGNALS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR2];
/// Timeouts of the provider. It waits for a reply as long as its members stay after a loss by default: to give up
/// earlier would lose them.
const PATIENT: Timeouts = Timeouts { answer: Duration::from_secs(15), ..TIMEOUTS };

/// Settings of the command.
#[derive(Default)]
pub struct ProvideSettings {
    /// Commands, for `sh -c`; empty if not set.
    start: Vec<u8>,
    stop: Vec<u8>,
    check: Vec<u8>,
    clean: Vec<u8>,
    capacity: Option<u32>,
    /// Time limit of a command.
    timeout: Duration,
    servers: Servers,
}

/// Options of the command.
pub const OPTIONS: &[Opt<ProvideSettings>] = option_table!(ProvideSettings;
    => Opt::of_bytes("--start COMMAND",
        "Command that starts a member, and prints its name and attributes (NAME=VALUE) in its first line, such as \
         10.0.0.5:9001 kind=firefox. With that line the member has started; the rest of the output is discarded. The \
         command may end with status 0 and leave the member running, or be its process: if it ends with another status \
         later, the member is dead.",
        |settings, value| assign(&mut settings.start, Ok(value.into())));
    => Opt::of_bytes("--stop COMMAND",
        "Command that stops the member POOL_MEMBER, alive or dead (default: the process group of --start is \
         terminated). The member counts as stopped, whatever the status. If the process of --start still runs then, \
         its process group is terminated, and killed 5 seconds later.",
        |settings, value| assign(&mut settings.stop, Ok(value.into())));
    => Opt::of_bytes("--check COMMAND",
        "Command that fails if the member POOL_MEMBER is dead (default: members are alive until their process ends).",
        |settings, value| assign(&mut settings.check, Ok(value.into())));
    => Opt::of_bytes("--clean COMMAND",
        "Command that cleans the member POOL_MEMBER after its use (default: members are not cleaned). If it fails, its \
         status and the last line of its output go to the server, which asks again later; a member that this provider \
         has started is dead then. Without --start, the command cleans members of other providers and fixed members, \
         and the provider starts none.",
        |settings, value| assign(&mut settings.clean, Ok(value.into())));
    "--capacity N", "Maximum number of members to start (default: the maximum of the pool).",
        |settings, value| assign(&mut settings.capacity, number(value, 1..=u32::MAX).map(Some));
    "--timeout SECONDS",
        "Time limit of a command, and of --start until its first line (default: 60). After that its process group is \
         terminated, and killed 5 seconds later, and the command has failed. The limit should be no longer than the \
         times that the pool sets.",
        |settings, value| assign(&mut settings.timeout, seconds_from(Duration::ZERO, value));
    => server_option(A_SERVER); => tls_option();
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the command line is wrong, the server refuses, or the system cannot run commands.
pub fn run(given: &Given) -> Exit {
    let usual = ProvideSettings { timeout: Duration::from_secs(60), ..ProvideSettings::default() };
    let settings = given.settings(OPTIONS, usual)?;
    let [pool] = given.words.as_slice() else { return Err(Failure::misuse("provide needs one POOL")) };
    let role = settings.role().map_err(Failure::misuse)?;
    let mask = SigSet::thread_get_mask().map_err(Failure::no_commands)?;
    let signals = block_signals(&SIGNALS).map_err(Failure::no_commands)?;
    let work = Work::new(&settings, pool.as_bytes(), mask).map_err(Failure::no_commands)?;
    let token: [u8; 16] = Random::from_system().map_err(Failure::no_commands)?.bytes();
    let session = Session {
        settings: &settings,
        role,
        pool: pool.as_bytes(),
        name: token.iter().map(|byte| format!("{byte:02x}")).collect(),
        signals,
        retry_at: Some(Instant::now()),
        work,
        outage: Outage::new(format!("{}: ", printable(pool.as_bytes()))),
    };
    session.run()
}

/// State of a provider from its start to its end.
struct Session<'a> {
    settings: &'a ProvideSettings,
    role: Role,
    pool: &'a [u8],
    /// Name of its session, the same on all its connections.
    name: String,
    signals: SignalFd,
    /// Time at which it connects again; None while it is connected, and at its end.
    retry_at: Option<Instant>,
    work: Work<'a>,
    outage: Outage,
}

impl ProvideSettings {
    /// Returns the role of the provider; the error describes a fault of the options.
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

impl Session<'_> {
    fn run(mut self) -> Exit {
        loop {
            while let Some(info) = self.signals.read_signal().map_err(Failure::no_commands)? {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGCHLD) | Err(_) => self.work.has_ends = true,
                    Ok(Signal::SIGUSR2) if self.role != Role::Cleaner => self.work.drain(),
                    Ok(_) if self.work.is_ending => {
                        self.work.kill_all();
                        return Ok(ExitCode::SUCCESS);
                    }
                    Ok(_) => {
                        self.work.end();
                        self.close_if_done();
                    }
                }
            }
            self.connect()?;
            let was_connected = self.work.link.is_some();
            self.work.go_on();
            if was_connected && self.work.link.is_none() {
                let consequence = "; its members stay for the grace of the pool, and leave it after";
                let consequence = if self.role == Role::Cleaner { "" } else { consequence };
                self.outage.complain(&format!("the connection is lost{consequence}"));
                self.retry_at = (!self.work.is_ending).then(Instant::now);
                continue;
            }
            self.close_if_done();
            if (self.work.is_ending || self.work.is_draining) && self.work.is_over() {
                return Ok(ExitCode::SUCCESS);
            }
            self.wait().map_err(Failure::no_commands)?;
        }
    }

    /// Closes the connection of an ending provider, once the server waits for no cleaning of others' members: it would
    /// have them cleaned by another cleaner at the same time.
    fn close_if_done(&mut self) {
        if self.role != Role::Cleaner && self.work.is_ending && !self.work.is_cleaning_for_others() {
            self.work.disconnect();
            self.retry_at = None;
        }
    }

    fn connect(&mut self) -> Result<(), Failure> {
        if self.retry_at.is_none_or(|at| Instant::now() < at) {
            return Ok(());
        }
        let placement = self.settings.servers.placement().into();
        match Provider::connect_as(self.role, &placement, PATIENT, self.pool, Some(&self.name)) {
            Ok(provider) => {
                let address = provider.address().to_string();
                self.work.connect(provider);
                if self.work.link.is_some() {
                    self.retry_at = None;
                    self.outage.recover(&format!("it is connected to {address}"));
                } else {
                    self.try_later(&Error::Lost);
                }
            }
            // The server may not run yet, or the pool may not be declared yet.
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => self.try_later(&error),
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => self.try_later(&Error::Refused(words)),
            Err(error) => {
                return Err(Failure { status: PROTOCOL, sentence: format!("{}: {error}", printable(self.pool)) });
            }
        }
        Ok(())
    }

    fn try_later(&mut self, error: &Error) {
        self.retry_at = Some(self.outage.try_later(&error.to_string()));
    }

    /// Waits until there is work.
    fn wait(&mut self) -> io::Result<()> {
        let until = self.work.next_deadline().into_iter().chain(self.retry_at).min();
        let takes_tasks = self.work.has_room() && !self.work.is_ending;
        let link = self.work.link.as_ref().filter(|_| takes_tasks).map(AsFd::as_fd);
        let polled: Vec<_> = [self.signals.as_fd()].into_iter().chain(link).chain(self.work.outputs()).collect();
        poll_until(until, &polled, None).map(drop)
    }
}

has_part!(ProvideSettings, servers: Servers);
