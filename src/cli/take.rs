//! `take`: takes members of a pool, runs a command with them, and returns them.
//!
//! The members belong to the connection, which the command does not inherit, unless they are taken with a lease.

mod options;

pub use options::OPTIONS;

use super::command::{Exit, Failure};
use super::failure::{FAILURE, REFUSED_AT_ONCE, TRY_LATER};
use super::members::refused;
use super::run_child::{self, Ended, HeldResource};
use super::servers::{TIMEOUTS, rows_of};
use super::spawn::{Variable, obey_signals_as_first_process};
use super::table::Given;
use super::terminal::{self, ascii_where_invisible, printable};
use super::wait::{RETRY_EVERY, WaitProgress, doubled, repeated};
use options::TakeSettings;
use poolcounter_client::{Condition, Error, Member, Members, NoMembers, PoolFigures, Source, TakeOutcome, Wanted};
use poolcounter_core::text::{escaped, is_visible, shell_word};
use poolcounter_protocol::members::wire::NO_CLEANER;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Number of renewals per lease duration: allows for a failed renewal and a short outage of the server.
const RENEWALS: u32 = 3;
/// Longest pause before another request to a server that refuses at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Pause after a failed renewal, unless the next one is due earlier.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
///
/// Fails if no member is available, or the command was not run.
pub fn run(given: &Given) -> Exit {
    let mut settings = given.settings(OPTIONS, TakeSettings::usual())?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let source = match (&settings.group, words) {
        (None, [pool]) => pool.as_bytes(),
        (Some(group), []) => group,
        _ => return Err(Failure::misuse("take needs one POOL, or --group GROUP, before \"--\"")),
    };
    match (settings.keeps, command.is_empty()) {
        (false, true) => return Err(Failure::misuse("there is no command to run behind \"--\"")),
        (false, false) if settings.format.is_some() => return Err(Failure::misuse("--format is for --keep")),
        (true, false) => return Err(Failure::misuse("--keep runs no command")),
        (true, true) if settings.wanted.lease.is_none() => return Err(Failure::misuse("--keep needs --lease")),
        (true, true) if settings.format.is_none() && !stdout().is_terminal() => {
            return Err(Failure::misuse("--keep needs --format sh, env or json"));
        }
        _ => {}
    }
    settings.wanted.resume = settings.wanted.lease.is_none();
    let mut members = Members::with(settings.servers.placement(), TIMEOUTS);
    if let Some(holder) = &settings.name {
        members = members.named(holder).map_err(|_| Failure::misuse("--name: it cannot be sent"))?;
    }
    let failure = |status, sentence: &str| Failure { status, sentence: format!("{}: {sentence}", printable(source)) };
    let refused_status = if settings.is_patient() { TRY_LATER } else { REFUSED_AT_ONCE };
    obey_signals_as_first_process().map_err(Failure::no_commands)?;
    match wait(&members, &settings, source) {
        Ok(TakeOutcome::Taken(taken)) if settings.keeps => {
            keep(taken, &settings).map_err(|sentence| failure(FAILURE, &sentence))
        }
        Ok(TakeOutcome::Taken(taken)) => run_with(taken, &settings, command),
        Ok(TakeOutcome::NoMembers(reason)) => {
            let wanted = &settings.wanted;
            let is_choosy =
                wanted.count.is_some_and(|count| count > 1) || wanted.member.is_some() || !wanted.attributes.is_empty();
            let status = if is_refusal(reason) { refused_status } else { TRY_LATER };
            Err(failure(status, &in_words(reason, is_choosy, &census(&members, &settings, source))))
        }
        Ok(TakeOutcome::QueueFull) => Err(failure(refused_status, "too many wait already")),
        Ok(TakeOutcome::Limit) => Err(failure(TRY_LATER, "no client may hold so many members")),
        Err(error) => Err(refused(&[source], &error)),
    }
}

/// Waits for members, and shows the progress on a terminal. Reports members in quarantine once.
fn wait<'a>(members: &'a Members, settings: &TakeSettings, source: &[u8]) -> Result<TakeOutcome<'a>, Error> {
    let timeout = settings.wanted.timeout;
    let mut progress = WaitProgress::new(printable(source), timeout);
    let mut is_told = false;
    let mut show = |waited: Duration| {
        if waited >= Duration::from_secs(1) && !is_told {
            is_told = true;
            // The waiting connection is in use, so this is another one.
            let others = Members::with(settings.servers.placement(), TIMEOUTS);
            let census = census(&others, settings, source);
            if let Some(kept_out) = census.kept_out() {
                let why = if census.is_exhausted() { census.in_words() } else { kept_out };
                terminal::warn(&format!("{}: waiting; {why}", printable(source)));
            }
        }
        progress.show(waited);
    };
    let from = if settings.group.is_some() { Source::Group(source) } else { Source::Pool(source) };
    let ask = |waited| {
        show(waited);
        let wanted = Wanted { timeout: timeout.saturating_sub(waited), ..settings.wanted.clone() };
        members.take_from(from, &wanted, |more| show(waited + more))
    };
    let mut pause = RETRY_EVERY;
    let mut while_patient = || settings.is_patient().then(|| doubled(&mut pause, LONGEST_PAUSE));
    repeated(timeout, ask, |outcome| match outcome {
        Err(Error::Unavailable(_)) => settings.retries.then_some(RETRY_EVERY),
        Ok(TakeOutcome::QueueFull) => while_patient(),
        Ok(TakeOutcome::NoMembers(reason)) if is_refusal(*reason) => while_patient(),
        _ => None,
    })
}

/// Returns whether a server that refuses a take for this reason has not waited, as while it drains.
fn is_refusal(reason: NoMembers) -> bool {
    matches!(reason, NoMembers::AtCapacity | NoMembers::Starting | NoMembers::NoProvider)
}

/// Numbers of members of a pool or group: sums of the figures of the pools, by name, and of [`UNCLEAN`] members. Empty
/// if the server does not report them.
#[derive(Default)]
struct Census(BTreeMap<String, u64>);

/// Name for the members that wait for a cleaner while none is connected.
const UNCLEAN: &str = "unclean";

impl Census {
    /// Adds the members of a pool. They are listed only if some are cleaned or wait for it.
    fn add(&mut self, members: &Members, pool: &[u8], figures: &PoolFigures) {
        let mut add = |name: &str, value| *self.0.entry(name.into()).or_default() += value;
        figures.iter().for_each(|(name, value)| add(name, *value));
        if figures.iter().any(|(name, value)| name == "cleaning" && *value > 0) {
            let listed = rows_of(members.members(pool).unwrap_or_default());
            let kept_out = listed.filter_map(|member| member.kept_out);
            add(UNCLEAN, kept_out.filter(|out| out.why == NO_CLEANER.as_bytes()).count() as u64);
        }
    }

    fn count(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// Returns whether it is known that there are no members.
    fn is_empty(&self) -> bool {
        let kinds = ["free", "in_use", "starting", "stopping", "cleaning", "quarantined"];
        !self.0.is_empty() && self.count(&kinds) == 0
    }

    /// Returns whether there are members, and none of them is free.
    fn is_exhausted(&self) -> bool {
        self.count(&["free"]) == 0 && self.count(&["in_use", "cleaning", "quarantined"]) > 0
    }

    /// Returns why none is free.
    fn in_words(&self) -> String {
        match self.kept_out() {
            None => "all members are in use".into(),
            Some(kept_out) => format!("all members are in use or kept out ({kept_out})"),
        }
    }

    /// Returns what keeps members out, if any is.
    fn kept_out(&self) -> Option<String> {
        let kinds = [
            ("quarantined", "in quarantine, held back or orphaned"),
            (UNCLEAN, "to be cleaned, and no cleaner is connected"),
        ];
        let counted = kinds.into_iter().map(|(name, words)| (self.count(&[name]), words));
        let all: Vec<_> =
            counted.filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Counts the members of the pool or group.
fn census(members: &Members, settings: &TakeSettings, source: &[u8]) -> Census {
    let mut census = Census::default();
    if settings.group.is_none() {
        members.utilization(source).iter().for_each(|figures| census.add(members, source, figures));
        return census;
    }
    let pools = rows_of(members.pools()).filter(|pool| pool.group.as_deref() == Some(source));
    pools.for_each(|pool| census.add(members, &pool.name, &pool.figures));
    census
}

/// Prints the variables that a command would get. The members stay taken.
///
/// # Errors
///
/// Fails if the format cannot carry a value, or nothing can be printed. The members are returned in that case, because
/// no other process has their tokens.
fn keep(taken: Vec<Member<'_>>, settings: &TakeSettings) -> Result<ExitCode, String> {
    let variables = variables(&taken, settings.wanted.count.is_some());
    let is_seen = stdout().is_terminal();
    let mut text = Vec::new();
    for line in lines_of(&variables, settings.format)? {
        text.extend(if is_seen { printable(&line).into_bytes() } else { line });
        text.push(b'\n');
    }
    stdout().write_all(&text).map_err(|error| format!("cannot print: {error}"))?;
    for member in taken {
        member.keep();
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the variables as lines of a format; None is for a person. The error names a value that a line cannot carry.
fn lines_of(variables: &[Variable], format: Option<&str>) -> Result<Vec<Vec<u8>>, String> {
    let assigned = |name: &[u8], value: &[u8]| [name, b"=", value].concat();
    let lines = variables.iter();
    match format {
        None => Ok(lines.map(|(name, value)| assigned(name, value)).collect()),
        Some("sh") => Ok(lines.map(|(name, value)| assigned(name, &shell_word(value))).collect()),
        Some("env") => lines
            .map(|(name, value)| match str::from_utf8(value) {
                Ok(text) if text.chars().all(is_visible) => Ok(assigned(name, value)),
                _ => Err(format!(
                    "--format env cannot carry the invisible characters in {}=\"{}\"; sh and json can",
                    printable(name),
                    escaped(value)
                )),
            })
            .collect(),
        Some(_json) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let object = lines.map(|(name, value)| (text(name), Value::from(text(value))));
            Ok(vec![ascii_where_invisible(&Value::Object(object.collect()).to_string()).into_bytes()])
        }
    }
}

/// Runs the command while the members are held, and returns them in the condition that its exit status means.
fn run_with(taken: Vec<Member<'_>>, settings: &TakeSettings, command: &[OsString]) -> Exit {
    let watch = LeaseWatch::new(&taken, settings.wanted.lease);
    let check = || watch.check();
    // All are on one connection; after its loss, leases that have moved to another are open.
    let connection = || taken.iter().find_map(Member::descriptor);
    let held = HeldResource { connection: &connection, check: &check };
    let variables = variables(&taken, settings.wanted.count.is_some());
    let ended = run_child::run(command, &variables, &settings.lifetime, Some(&held));
    let condition = match &ended {
        Ok(Ended { status, .. }) if settings.is_failure(*status) => Condition::Fail,
        // A command that did not run has not used them.
        _ => Condition::Ok,
    };
    let was_lost = ended.as_ref().is_ok_and(|ended| ended.was_lost);
    for member in taken {
        let name = printable(member.name());
        match member.give_back(condition) {
            Err(error) if !was_lost => terminal::warn(&format!("{name}: {error}")),
            _ => {}
        }
    }
    Ok(settings.lifetime.exit(&ended?))
}

/// Renewal and check of the members' leases while the command runs.
struct LeaseWatch<'a> {
    taken: &'a [Member<'a>],
    /// Time between two renewals.
    interval: Option<Duration>,
    /// Time of the next renewal.
    next: Cell<Option<Instant>>,
    /// Time of the last renewal.
    last: Cell<Instant>,
}

impl<'a> LeaseWatch<'a> {
    fn new(taken: &'a [Member<'a>], lease: Option<Duration>) -> Self {
        let (now, interval) = (Instant::now(), lease.map(|lease| lease / RENEWALS));
        let next = interval.and_then(|interval| now.checked_add(interval));
        LeaseWatch { taken, interval, next: Cell::new(next), last: Cell::new(now) }
    }

    /// Renews the leases if due, and returns the time of the next renewal; the error names the loss. After the loss of
    /// a connection the renewal is due at once: the server reports a later loss on the connection of the last renewal.
    fn check(&self) -> Result<Option<Instant>, String> {
        let soon = || {
            let is_cut = self.taken.iter().any(|member| member.loss().is_none() && member.descriptor().is_none());
            is_cut.then(|| self.last.get() + RETRY)
        };
        let next = self.next.get().into_iter().chain(soon()).min();
        if next.is_some_and(|next| next <= Instant::now()) {
            let renewed = self.taken.iter().filter(|member| member.renew().is_ok()).count();
            let pause = |interval: Duration| if renewed == self.taken.len() { interval } else { interval.min(RETRY) };
            self.last.set(Instant::now());
            self.next.set(self.interval.and_then(|interval| Instant::now().checked_add(pause(interval))));
        }
        for member in self.taken {
            if let Some(loss) = member.loss() {
                let by = member.taken_back_by().map_or(String::new(), |by| format!(" ({})", printable(by.as_bytes())));
                return Err(format!("the member {} is lost, because {loss}{by}", printable(member.name())));
            }
        }
        let ends = self.taken.iter().filter_map(Member::expiry);
        Ok(ends.chain(self.next.get()).chain(soon()).min())
    }
}

/// Returns the variables about the members. With a count, the names also exist with a number for each member.
fn variables(taken: &[Member<'_>], is_counted: bool) -> Vec<Variable> {
    let mut variables = Vec::new();
    if let Some(member) = taken.first() {
        variables.push((b"POOL_NAME".to_vec(), member.pool().to_vec()));
        describe(member, "", &mut variables);
    }
    if is_counted {
        for (n, member) in taken.iter().enumerate() {
            describe(member, &format!("_{}", n + 1), &mut variables);
        }
        let list = |of: &dyn Fn(&Member<'_>) -> Vec<u8>| taken.iter().map(of).collect::<Vec<_>>().join(&b' ');
        variables.push((b"POOL_MEMBERS".to_vec(), list(&|member| member.name().to_vec())));
        variables.push((b"POOL_LEASES".to_vec(), list(&|member| member.lease().to_string().into())));
    }
    variables
}

fn describe(member: &Member<'_>, number: &str, variables: &mut Vec<Variable>) {
    let named = |what: &str| format!("POOL_{what}{number}").into_bytes();
    variables.push((named("MEMBER"), member.name().to_vec()));
    variables.push((named("LEASE"), member.lease().to_string().into()));
    if let Some(token) = member.token() {
        variables.push((named("TOKEN"), token.to_string().into()));
    }
    for (name, value) in member.attributes() {
        // Names of variables in shells allow no other characters.
        let letter = |byte: &u8| if byte.is_ascii_alphanumeric() { *byte } else { b'_' };
        let name: Vec<u8> = name.iter().map(letter).collect();
        variables.push(([&named("ATTR")[..], b"_", &name].concat(), value.to_vec()));
    }
}

fn in_words(reason: NoMembers, is_choosy: bool, census: &Census) -> String {
    let sentence = match reason {
        NoMembers::AtCapacity if !is_choosy && census.is_exhausted() => return census.in_words(),
        NoMembers::AtCapacity if is_choosy => {
            "not enough of the members that are wanted are free, or the daemon drains"
        }
        NoMembers::AtCapacity => "no member is free, or the daemon drains",
        NoMembers::Starting => "no member is free, but one is being started",
        NoMembers::NoProvider => "no member is free, and there is no provider to start one",
        NoMembers::Timeout if census.is_empty() => "no member came: is there a provider, and do its starts succeed?",
        NoMembers::Timeout => "no member came free in time",
        NoMembers::Removed => "the pool was removed",
        NoMembers::Cancelled => "the wait was cancelled",
    };
    match (reason, census.kept_out()) {
        (NoMembers::AtCapacity | NoMembers::NoProvider | NoMembers::Timeout, Some(kept_out)) => {
            format!("{sentence} ({kept_out})")
        }
        _ => sentence.into(),
    }
}
