//! `take`: takes members of a pool, runs a command with them, and returns them.
//!
//! They hang on the connection, which the command does not have, unless they are taken with a lease.

use super::command::Failure;
use super::command::MISUSE;
use super::exec::{PROTOCOL, TRY_LATER, UNAVAILABLE, WaitProgress};
use super::run_child::{self, Ended, HeldResource, OnLost};
use super::servers::{ServerOptions, Servers, TIMEOUTS};
use super::spawn::Variable;
use super::table::Given;
use super::terminal::{self, printable};
use poolcounter_client::{Condition, Error, Member, Members, NoMembers, TakeOutcome, Wanted};
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The longest that the protocol can wait: 136 years.
const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);
/// A lease is renewed so often before it runs out: one renewal may be lost and the server be gone for a while.
const RENEWALS: u32 = 3;
/// A renewal that failed is tried again after this, unless the next is due before.
const RETRY: Duration = Duration::from_secs(1);

/// What the options say.
struct TakeSettings {
    wanted: Wanted,
    /// The group to take from, in place of a pool.
    group: Option<Vec<u8>>,
    /// What the holder is called in place of its address.
    name: Option<Vec<u8>>,
    /// The statuses that mean that a member failed; all but 0 if there are none.
    fail_on: Vec<u8>,
    servers: Servers,
    on_lost: OnLost,
}

/// The options.
const OPTIONS: &[Opt<TakeSettings>] = &[
    Opt {
        short: "t",
        long: "timeout",
        hint: "SECONDS",
        doc_short: "how long to wait for a member; 0: not at all (default: without limit)",
        doc_long: "
            How long to wait for a member.
            With 0 nothing waits.
            Decimals are allowed.
            The default is no limit.",
        set: |settings, value| assign(&mut settings.wanted.timeout, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        short: "g",
        long: "group",
        hint: "GROUP",
        doc_short: "take from any pool of this group, in place of one pool",
        doc_long: "
            Take from any pool of this group, in place of one pool: from the one with the most free members, else from the first
            that has one.
            Where several servers share the pools, only those of the group's own server are looked at.",
        set_bytes: Some(|settings, value| assign(&mut settings.group, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        short: "a",
        long: "attr",
        hint: "NAME=VALUE",
        doc_short: "only a member that has this attribute; repeatable",
        doc_long: "
            Only a member that has this attribute.
            May be given several times.",
        repeats: true,
        set_bytes: Some(|settings, value| {
            let equals = value.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
            let at = equals.ok_or("an attribute: NAME=VALUE")?;
            settings.wanted.attributes.push((value[..at].to_vec(), value[at + 1..].to_vec()));
            Ok(())
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "member",
        hint: "NAME",
        doc_short: "only the member of this name",
        doc_long: "Only the member of this name.",
        set_bytes: Some(|settings, value| assign(&mut settings.wanted.member, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "pri",
        hint: "0..9",
        doc_short: "waiters with a lower priority number are served first (default: 5)",
        doc_long: "
            Waiters with a lower number are served first, and among equal ones who came first.
            Who has waited for a minute counts as 0.
            The default is 5.",
        set: |settings, value| assign(&mut settings.wanted.priority, number(value, 0..=9)),
        ..Opt::BLANK
    },
    Opt {
        short: "n",
        long: "count",
        hint: "N",
        doc_short: "so many members, all or none (default: 1)",
        doc_long: "
            So many members, all or none.
            The environment has
            .Ev POOL_MEMBERS
            and
            .Ev POOL_LEASES
            then, with a space between two, and for each member from 1 on its number in the names:
            .Ev POOL_MEMBER_1 , POOL_LEASE_1 , POOL_TOKEN_1
            and
            .Ev POOL_ATTR_1_ Ns Ar name .
            Those without a number are of the first.
            All are returned alike.",
        set: |settings, value| assign(&mut settings.wanted.count, number(value, 1..=u32::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "fail-on",
        hint: "STATUS",
        doc_short: "return the member as failed only if the command ends with this status; repeatable (default: all but 0)",
        doc_long: "
            The member has failed only if the command ended with this status.
            May be given several times.",
        repeats: true,
        set: |settings, value| {
            settings.fail_on.push(number(value, 0..=u8::MAX)?);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        long: "lease",
        hint: "SECONDS",
        doc_short: "keep the member so long when the connection is lost; it is renewed while the command runs",
        doc_long: "
            Take the member for so long, whatever becomes of the connection and of
            .Nm .
            The lease is renewed three times as often while the command runs, on a new connection if need be; it ends with the command.",
        set: |settings, value| {
            let lease = seconds(value).ok().filter(|lease| !lease.is_zero());
            assign(&mut settings.wanted.lease, lease.map(Some).ok_or("a number of seconds above 0".into()))
        },
        ..Opt::BLANK
    },
    Opt {
        long: "name",
        hint: "NAME",
        doc_short: "what the holder is called where members are shown (default: its address)",
        doc_long: "
            What the holder is called where members are shown, in place of its address.",
        set_bytes: Some(|settings, value| assign(&mut settings.name, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt::SERVER,
    Opt::TLS,
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "when a member is lost while the command runs: only say so, or also terminate or kill it (default: warn)",
        doc_long: "
            As for
            .Cm exec ,
            if a member is lost while the command runs: it has died, was withdrawn or taken back, or the connection is gone.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When the command was not run.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = TakeSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let source = match (&settings.group, words) {
        (None, [pool]) => pool.as_bytes(),
        (Some(group), []) => group,
        _ => {
            let sentence = "there is not one pool, or --group, before \"--\" (see poolcounter help take)";
            return Err(Failure::misuse(sentence));
        }
    };
    if command.is_empty() {
        return Err(Failure::misuse("there is no command to run behind \"--\" (see poolcounter help take)"));
    }
    let name = printable(source);
    let failure = |status, what: &str| Failure { status, sentence: format!("{name}: {what}") };
    let mut members = Members::with(settings.servers.placement(), TIMEOUTS);
    if let Some(holder) = &settings.name {
        members = members.named(holder).map_err(|_| Failure::misuse("--name: it cannot be sent"))?;
    }
    let limit = (settings.wanted.timeout < NO_LIMIT).then_some(settings.wanted.timeout);
    let mut progress = WaitProgress::new(name.clone(), limit);
    let watch = |waited| progress.show(waited);
    let taken = match settings.group {
        None => members.take_watched(source, &settings.wanted, watch),
        Some(_) => members.take_from_group_watched(source, &settings.wanted, watch),
    };
    drop(progress);
    match taken {
        Ok(TakeOutcome::Taken(taken)) => run_with(taken, &settings, command),
        Ok(TakeOutcome::NoMembers(reason)) => Err(failure(TRY_LATER, in_words(reason))),
        Ok(TakeOutcome::QueueFull) => Err(failure(TRY_LATER, "too many wait already")),
        Ok(TakeOutcome::Limit) => Err(failure(TRY_LATER, "no client may hold so many members")),
        Err(error @ Error::Unavailable(_)) => Err(failure(UNAVAILABLE, &error.to_string())),
        Err(Error::BadName) => Err(failure(MISUSE, "the name or an attribute cannot be sent")),
        Err(error) => Err(failure(PROTOCOL, &error.to_string())),
    }
}

/// Runs the command while the members are held, and returns them as its status says.
fn run_with(taken: Vec<Member<'_>>, settings: &TakeSettings, command: &[OsString]) -> Result<ExitCode, Failure> {
    let watch = LeaseWatch::new(&taken, settings.wanted.lease);
    let check = || watch.check();
    // All are on one connection.
    let descriptor = taken.first().and_then(Member::descriptor);
    let held = descriptor.map(|descriptor| HeldResource { descriptor, check: &check, on_lost: settings.on_lost });
    let variables = variables(&taken, settings.wanted.count.is_some());
    let ended = run_child::run(command, &variables, held.as_ref());
    let condition = match &ended {
        Ok(Ended { status, .. }) if settings.is_failure(*status) => Condition::Fail,
        // A command that did not run has not touched them.
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
    Ok(ExitCode::from(ended?.status))
}

/// Looks after members while the command runs.
struct LeaseWatch<'a> {
    taken: &'a [Member<'a>],
    /// How often their leases are renewed.
    interval: Option<Duration>,
    /// When they are renewed next.
    next: Cell<Option<Instant>>,
}

impl<'a> LeaseWatch<'a> {
    fn new(taken: &'a [Member<'a>], lease: Option<Duration>) -> Self {
        let interval = lease.map(|lease| lease / RENEWALS);
        let next = interval.and_then(|interval| Instant::now().checked_add(interval));
        LeaseWatch { taken, interval, next: Cell::new(next) }
    }

    /// Renews what is due, and returns when the next is; the error says what is lost.
    fn check(&self) -> Result<Option<Instant>, String> {
        if let (Some(next), Some(interval)) = (self.next.get(), self.interval)
            && next <= Instant::now()
        {
            let renewed = self.taken.iter().filter(|member| member.renew().is_ok()).count();
            let pause = if renewed == self.taken.len() { interval } else { interval.min(RETRY) };
            self.next.set(Instant::now().checked_add(pause));
        }
        for member in self.taken {
            if let Some(loss) = member.loss() {
                return Err(format!("the member {} is lost, because {loss}", printable(member.name())));
            }
        }
        let ends = self.taken.iter().filter_map(Member::expiry);
        Ok(ends.chain(self.next.get()).min())
    }
}

/// Returns what the command is told of the members. With a count, each has its number in the names, too.
fn variables(taken: &[Member<'_>], is_counted: bool) -> Vec<Variable> {
    let mut variables = Vec::new();
    if let Some(member) = taken.first() {
        variables.push((b"POOL_NAME".to_vec(), member.pool().to_vec()));
        describe(member, "", &mut variables);
    }
    if is_counted {
        for (n, member) in taken.iter().enumerate() {
            describe(member, &format!("{}_", n + 1), &mut variables);
        }
        let list = |of: &dyn Fn(&Member<'_>) -> Vec<u8>| taken.iter().map(of).collect::<Vec<_>>().join(&b' ');
        variables.push((b"POOL_MEMBERS".to_vec(), list(&|member| member.name().to_vec())));
        variables.push((b"POOL_LEASES".to_vec(), list(&|member| member.lease().to_string().into())));
    }
    variables
}

fn describe(member: &Member<'_>, number: &str, variables: &mut Vec<Variable>) {
    let suffix = number.trim_end_matches('_');
    let named = |what: &str| match suffix {
        "" => format!("POOL_{what}").into_bytes(),
        _ => format!("POOL_{what}_{suffix}").into_bytes(),
    };
    variables.push((named("MEMBER"), member.name().to_vec()));
    variables.push((named("LEASE"), member.lease().to_string().into()));
    if let Some(token) = member.token() {
        variables.push((named("TOKEN"), token.to_string().into()));
    }
    for (name, value) in member.attributes() {
        // Shells know no other names.
        let letter = |byte: &u8| if byte.is_ascii_alphanumeric() { *byte } else { b'_' };
        let name: Vec<u8> = name.iter().map(letter).collect();
        variables.push(([b"POOL_ATTR_", number.as_bytes(), &name].concat(), value.to_vec()));
    }
}

fn in_words(reason: NoMembers) -> &'static str {
    match reason {
        NoMembers::AtCapacity => "all members are in use",
        NoMembers::Starting => "no member is free, but one is being started",
        NoMembers::NoProvider => "no member is free, and there is no provider to start one",
        NoMembers::Timeout => "no member came free in time",
        NoMembers::Removed => "the pool was removed",
        NoMembers::Cancelled => "the wait was cancelled",
    }
}

impl TakeSettings {
    fn is_failure(&self, status: u8) -> bool {
        if self.fail_on.is_empty() { status != 0 } else { self.fail_on.contains(&status) }
    }
}

impl Default for TakeSettings {
    fn default() -> Self {
        let wanted = Wanted { timeout: NO_LIMIT, ..Wanted::default() };
        TakeSettings {
            wanted,
            group: None,
            name: None,
            fail_on: Vec::new(),
            servers: Servers::default(),
            on_lost: OnLost::default(),
        }
    }
}

impl AsMut<Servers> for TakeSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
