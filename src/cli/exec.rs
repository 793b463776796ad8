//! `exec`: acquires a lock in a pool, runs a command, and releases the lock.
//!
//! The lock belongs to the connection, which no other process inherits, so the end of this process releases it in any
//! case. Until the lock is held, signals have their default effect.

mod options;

use super::command::{Exit, Failure};
use super::run_child::{self, Ended, HeldResource};
use super::servers::TIMEOUTS;
use super::spawn::{Variable, obey_signals_as_first_process, stat_of};
use super::table::Given;
use super::terminal::{self, printable};
use super::wait::{RETRY_EVERY, WaitProgress, repeated};
use nix::unistd::getppid;
pub use options::OPTIONS;
use options::{ExecSettings, key};
use poolcounter_client::{Client, Error, KeyLimits, Limits, ListedClaim, Lock, Outcome, Purpose};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, process};

/// Environment variable with the key, if no option sets it.
const KEY_VARIABLE: &str = "POOLCOUNTER_KEY";
/// Environment variable with the locks that `exec` holds for its command, and the inherited locks. Each line is a
/// process id, the servers and the key.
const HELD_VARIABLE: &str = "POOLCOUNTER_HELD";

/// Runs the command.
///
/// # Errors
///
/// Fails if the command was not run.
pub fn run(given: &Given) -> Exit {
    let mut settings = given.settings(OPTIONS, ExecSettings::usual())?;
    if let (true, Some(value)) = (settings.key.is_empty(), env::var_os(KEY_VARIABLE)) {
        settings.key =
            key(value.as_bytes()).map_err(|wanted| Failure::misuse(format!("{KEY_VARIABLE} is not {wanted}")))?;
    }
    let mut others = settings.also.iter().map(|(key, ..)| key);
    while let Some(key) = others.next() {
        if *key == settings.key || others.clone().any(|other| other == key) {
            return Err(Failure::misuse(format!("--also {}: the key is given twice", printable(key))));
        }
    }
    let faults = [
        (settings.key.is_empty(), "--key is missing"),
        (!settings.at_least.is_zero() && !settings.also.is_empty(), "--at-least cannot be used with --also"),
        (settings.hold.is_some_and(|hold| settings.at_least > hold), "--at-least is longer than --hold"),
        (settings.is_one_attempt && !settings.is_for_anyone, "--one-attempt needs --any"),
        (given.words.is_empty(), "there is no command to run"),
    ];
    if let Some((_, fault)) = faults.iter().find(|(is_so, _)| *is_so) {
        return Err(Failure::misuse(*fault));
    }
    let held = env::var_os(HELD_VARIABLE).map(OsStringExt::into_vec).unwrap_or_default();
    let servers = settings.servers.list();
    let is_held = |(key, workers): &(&Vec<u8>, u32)| count_held(&held, &servers, key) >= *workers as usize;
    if let Some((key, _)) = settings.keys().find(is_held) {
        let name = printable(key);
        return Err(Failure::misuse(format!(
            "{name}: this runs in a command that holds the key, and would wait for itself"
        )));
    }
    obey_signals_as_first_process().map_err(Failure::no_commands)?;
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    let client = if let Some(who) = &settings.who { client.named(who) } else { client };
    match wait(&client, &settings) {
        Ok(Outcome::Locked(lock)) => {
            let variable = with_held(&held, &servers, settings.keys().map(|(key, _)| &key[..]));
            run_with(lock, &settings, &given.words, variable)
        }
        Ok(Outcome::Done) => Ok(ExitCode::from(settings.done_exit)),
        Ok(Outcome::QueueFull) => {
            let why = match settings.queue {
                // The limit of the queue was the server's, not this client's.
                u32::MAX => "the server takes no more".into(),
                queue => format!("{queue} run or wait already"),
            };
            settings.turned_away(&client, &format!("QUEUE_FULL, as {why}"))
        }
        Ok(Outcome::Timeout) => {
            let timeout = settings.timeout.as_secs_f64();
            settings.turned_away(&client, &format!("TIMEOUT, as no lock came free within {timeout} s"))
        }
        Err(error @ Error::Unavailable(_)) if settings.fails_open => {
            terminal::warn(&format!("{}: {error}; the command runs without a lock", settings.name()));
            Ok(settings.lifetime.exit(&run_child::run(&given.words, &[], &settings.lifetime, None)?))
        }
        Err(error) => Err(Failure::of(&error, format!("{}: {error}", settings.name()))),
    }
}

/// Waits for a lock, and shows the progress on a terminal.
fn wait<'a>(client: &'a Client, settings: &ExecSettings) -> Result<Outcome<'a>, Error> {
    let ExecSettings { workers, queue: max_queue, hold, at_least, timeout, .. } = *settings;
    let mut progress = (!settings.is_quiet).then(|| WaitProgress::new(settings.name(), timeout));
    let mut show = |waited| progress.iter_mut().for_each(|progress| progress.show(waited));
    let purpose = if settings.is_for_anyone { Purpose::Anyone } else { Purpose::Me };
    let also = settings.also.iter().map(|&(ref key, workers, max_queue)| KeyLimits { key, workers, max_queue });
    let also: Vec<_> = also.collect();
    let ask = |waited| {
        show(waited);
        // The first request keeps a timeout in whole seconds, which is all that the C daemon supports.
        let timeout = if waited < RETRY_EVERY { timeout } else { timeout.saturating_sub(waited) };
        let limits = Limits { workers, max_queue, timeout, hold, at_least };
        client.acquire_several(purpose, &settings.key, &limits, &also, |more| show(waited + more))
    };
    let is_unavailable = |answer: &_| matches!(answer, Err(Error::Unavailable(_)));
    repeated(timeout, ask, |answer| (settings.retries && is_unavailable(answer)).then_some(RETRY_EVERY))
}

/// Runs the command while the lock is held. Waiters for the same work get DONE only if it succeeded, or if one attempt is
/// enough.
fn run_with(lock: Lock<'_>, settings: &ExecSettings, words: &[OsString], variable: Variable) -> Exit {
    let until = settings.hold.and_then(|hold| Instant::now().checked_add(hold));
    let lost = |why: &str| format!("{}: the lock is lost, because {why}", settings.name());
    let check = || match until {
        Some(until) if until <= Instant::now() => Err(lost("its time is over")),
        _ => lock.loss().map_or(Ok(until), |loss| Err(lost(&loss.to_string()))),
    };
    let held = HeldResource { connection: &|| lock.descriptor(), check: &check };
    let ended = run_child::run(words, &[variable], &settings.lifetime, Some(&held));
    match &ended {
        Ok(Ended { status, was_lost: false }) if *status == 0 || settings.is_one_attempt => {
            if let Err(error) = lock.release() {
                terminal::warn(&format!("{}: {error}", settings.name()));
            }
        }
        _ => lock.abandon(),
    }
    Ok(settings.lifetime.exit(&ended?))
}

impl ExecSettings {
    /// Returns the keys with the number of places of each.
    fn keys(&self) -> impl Iterator<Item = (&Vec<u8>, u32)> {
        let also = self.also.iter().map(|(key, workers, _)| (key, *workers));
        [(&self.key, self.workers)].into_iter().chain(also)
    }

    /// Reports that there is no lock, with the reason and the holders.
    fn turned_away(&self, client: &Client, why: &str) -> Exit {
        if self.is_quiet {
            return Ok(ExitCode::from(self.conflict_exit));
        }
        let sentence = format!("{}: {why}{}", self.name(), holders_in_words(client, &self.key));
        Err(Failure { status: self.conflict_exit, sentence })
    }

    /// Returns the key as text.
    fn name(&self) -> String {
        printable(&self.key)
    }
}

/// Returns the holders of the pool as text, as far as the server reports them.
fn holders_in_words(client: &Client, key: &[u8]) -> String {
    let claims = client.claims(key).unwrap_or_default();
    let mut holders = claims.iter().filter(|claim| claim.waits_for.is_none());
    let Some(ListedClaim { peer, who, age, kept_for, .. }) = holders.next() else { return String::new() };
    if let Some(left) = kept_for {
        return format!("; {who} has ended, and the key is kept for {:.1} s", Duration::from(*left).as_secs_f64());
    }
    let name = if who.is_empty() { peer.clone() } else { format!("{who} at {peer}") };
    let others = match holders.count() {
        0 => String::new(),
        1 => ", another for less".into(),
        others => format!(", {others} others for less"),
    };
    format!("; {name} has held it for {:.1} s{others}", Duration::from(*age).as_secs_f64())
}

/// Returns the number of locks of this key that ancestors of this process hold. A process that has outlived its `exec`,
/// such as one in the background, has the variable too, but no such ancestor.
fn count_held(inherited: &[u8], servers: &[String], key: &[u8]) -> usize {
    let wanted = lock(servers, key);
    let holders = inherited.split(|byte| *byte == b'\n').filter_map(|line| {
        let pid = line.strip_suffix(&wanted[..])?;
        std::str::from_utf8(pid).ok()?.parse().ok()
    });
    let holders: Vec<u32> = holders.collect();
    if holders.is_empty() { 0 } else { lineage().filter(|pid| holders.contains(pid)).count() }
}

/// Returns the variable for a command for which this process holds a lock of each of these keys.
fn with_held<'a>(inherited: &[u8], servers: &[String], keys: impl Iterator<Item = &'a [u8]>) -> Variable {
    let own = keys.flat_map(|key| [process::id().to_string().as_bytes(), &lock(servers, key), b"\n"].concat());
    (HELD_VARIABLE.as_bytes().to_vec(), own.chain(inherited.iter().copied()).collect())
}

/// Returns a line without its process id.
fn lock(servers: &[String], key: &[u8]) -> Vec<u8> {
    [b" ", servers.join(",").as_bytes(), b" ", key].concat()
}

/// Returns the process ids of the parent, its parent and so on, as far as this process can see them.
fn lineage() -> impl Iterator<Item = u32> {
    let parent = u32::try_from(getppid().as_raw()).ok();
    let parent_of = |pid: &u32| stat_of(&pid.to_string()).map(|(_, parent, _)| parent);
    std::iter::successors(parent, parent_of).take_while(|pid| *pid != 0)
}
