//! Requests of `members` that change something: one table, used by the command, its help and its manual.

use super::{MembersCommandSettings, refused};
use crate::command::{Exit, Failure, Requests, first_word};
use crate::terminal::{print, print_json, printable, warn};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use poolcounter_client::{Condition, Error, LeaseToken, Members, Offered};
use poolcounter_protocol::members::wire::client::escape_name;
use poolcounter_service::options::{number, seconds};
use serde_json::json;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Request of the table: its usage, its effect for the help and the manual, and the function that sends it. The first
/// parameter is the pool. Optional parameters are in brackets, repeated parameters end with dots.
pub type MemberRequest = (&'static str, &'static str, RunRequest);

/// Sends a request with these parameters and options, and returns the text to print. [`Error::BadArgument`] for an invalid
/// parameter.
pub type RunRequest = fn(&Members, &[&[u8]], &MembersCommandSettings) -> Result<Option<String>, Error>;

/// Requests, in the order of the help.
pub const REQUESTS: &[MemberRequest] = &[
    (
        "renew POOL TOKEN [SECONDS]",
        "extends a lease to this time from now, or to the time that it was taken for",
        |members, words, settings| {
            let (token, span) =
                (token(words[1])?, words.get(2).map(|word| read("SECONDS", word, seconds)).transpose()?);
            let renewed = match settings.every {
                None => members.renew(words[0], token, span),
                Some(every) => keep_renewing(members, (words[0], token, span), every, settings.until_exit),
            };
            renewed.map(nothing)
        },
    ),
    ("return POOL TOKEN [ok|fail]", "returns the member of a lease, as it was or as failed", |members, words, _| {
        let (token, is_failed) = (token(words[1])?, flag(words.get(2), "fail", Some("ok"))?);
        let condition = if is_failed { Condition::Fail } else { Condition::Ok };
        members.give_back(words[0], token, condition).map(nothing)
    }),
    ("history POOL [MEMBER]", "lists the last holders of a fixed member, or of all members of the pool", |_, _, _| {
        Err(Error::BadArgument("history needs POOL [MEMBER]".into()))
    }),
    ("repair POOL MEMBER", "takes a fixed member out of quarantine, and has it cleaned", |members, words, settings| {
        let (operator, as_is) = (members.operator(), settings.is_as_is);
        if !settings.is_all {
            return operator.repair(words[0], words[1], as_is).map(nothing);
        }
        let listed = operator.members(words[0])?;
        let out: Vec<_> = listed.iter().filter(|member| member.state == "quarantined").collect();
        out.iter().try_for_each(|member| operator.repair(words[0], &member.name, as_is))?;
        Ok(Some(format!("repaired: {}\n", out.len())))
    }),
    (
        "hold POOL MEMBER SECONDS [NOTE]",
        "keeps a member out of use; if it is in use, from its return on, as it is",
        |members, words, _| {
            let span = read("SECONDS", words[2], seconds)?;
            members.operator().hold(words[0], words[1], span, &note(words.get(3))).map(nothing)
        },
    ),
    ("free POOL MEMBER", "ends a hold, and has the member cleaned", |members, words, _| {
        members.operator().free(words[0], words[1]).map(nothing)
    }),
    ("takeback POOL LEASE [NOTE]", "takes the member of a lease away from its holder", |members, words, settings| {
        let operator = members.operator();
        let Some(member) = &settings.member else {
            let lease = read("LEASE", words[1], |text| number(text, 0..=u64::MAX))?;
            return operator.take_back(words[0], lease, &note(words.get(2))).map(nothing);
        };
        let escaped = escape_name(member).ok_or(Error::BadName)?;
        let listed = operator.members(words[0])?;
        let lease = listed.iter().find(|listed| listed.name == *escaped).and_then(|listed| listed.lease);
        operator.take_back(words[0], lease.ok_or(Error::NotTaken)?, &note(words.get(1))).map(nothing)
    }),
    ("add POOL MEMBER [ATTR=VALUE ...]", "adds a fixed member", |members, words, _| {
        let pairs = words[2..].iter().map(|word| pair(word));
        let offered = Offered { name: words[1].to_vec(), attributes: pairs.collect::<Result<_, _>>()? };
        members.operator().add(words[0], &offered).map(nothing)
    }),
    (
        "del POOL MEMBER [now]",
        "removes a fixed member from its pool, once it is returned or at once",
        |members, words, _| {
            members.operator().delete(words[0], words[1], flag(words.get(2), "now", None)?).map(nothing)
        },
    ),
    (
        "pool POOL INIT MAX [KEY=VALUE ...]",
        "declares a pool, or confirms that it has these settings",
        |members, words, _| {
            let count = |name, word| read(name, word, |text| number(text, 0..=u32::MAX));
            let (init, max) = (count("INIT", words[1])?, count("MAX", words[2])?);
            with_settings(&words[3..], |settings| members.operator().declare(words[0], init, max, settings))
        },
    ),
    ("reconfigure POOL KEY=VALUE ...", "changes these settings of a pool, all or none", |members, words, _| {
        with_settings(&words[1..], |settings| members.operator().reconfigure(words[0], settings))
    }),
    ("rmpool POOL [graceful]", "removes a pool, at once or as its members come back", |members, words, _| {
        members.operator().remove(words[0], flag(words.get(1), "graceful", None)?).map(nothing)
    }),
    (
        "rmgroup GROUP [graceful]",
        "removes the pools of a group, at once or as their members come back",
        |members, words, _| {
            members.operator().remove_group(words[0], flag(words.get(1), "graceful", None)?).map(nothing)
        },
    ),
];

/// Sends the request that these words are, with these options, and prints the result if it is to be in JSON.
///
/// # Errors
///
/// Fails if the words are no request, no server replies, or the server refuses.
pub fn make(members: &Members, words: &[&[u8]], settings: &MembersCommandSettings) -> Exit {
    let (word, words) = words.split_first().expect("the caller has checked that there are words");
    let known = || REQUESTS.iter().map(|(usage, ..)| first_word(usage));
    let Some((usage, _, run)) = REQUESTS.iter().find(|(usage, ..)| first_word(usage).as_bytes() == *word) else {
        return Err(Failure::unknown("request", &printable(word), known()));
    };
    let (word, wanted) = usage.split_once(' ').unwrap_or((usage, ""));
    let parameters: Vec<&str> = wanted.split(' ').filter(|parameter| !parameter.starts_with("...")).collect();
    // Each of these options stands for the second parameter.
    let given = words.len() + usize::from(settings.is_all || settings.member.is_some());
    let needed = parameters.iter().filter(|parameter| !parameter.starts_with('[')).count();
    if given < needed || given > parameters.len() && !wanted.contains("...") {
        return Err(Failure::misuse(format!("{word} needs {wanted}")));
    }
    // A token is a secret, which has no place in the log of a build.
    let named = if wanted.contains("TOKEN") { 1 } else { 2 };
    let made = match run(members, words, settings) {
        Err(Error::BadArgument(sentence)) => return Err(Failure::misuse(sentence)),
        made => made.map_err(|error| refused(&words[..named.min(words.len())], &error)),
    };
    if !settings.servers.is_json {
        return print(&made?.unwrap_or_default());
    }
    let error = made.as_ref().err().map(|failure| &failure.sentence);
    let pool = String::from_utf8_lossy(words[0]);
    print_json(&json!({ "request": word, "pool": pool, "error": error }))?;
    Ok(made.map_or_else(|failure| ExitCode::from(failure.status), |_| ExitCode::SUCCESS))
}

/// Returns the output of a request without a result.
fn nothing((): ()) -> Option<String> {
    None
}

/// Returns the requests for the help.
pub fn list() -> Requests {
    REQUESTS.iter().map(|(usage, summary, _)| (usage.to_string(), *summary)).collect()
}

/// Parses a parameter. The error of `parse` describes valid values.
fn read<T>(name: &str, word: &[u8], parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Error> {
    let text = String::from_utf8_lossy(word);
    parse(&text).map_err(|wanted| Error::BadArgument(format!("{name}: \"{text}\" is not {wanted}")))
}

/// Parses the token of a lease. The error does not show the word, which may be a token but for a letter.
fn token(word: &[u8]) -> Result<LeaseToken, Error> {
    let token = str::from_utf8(word).ok().and_then(LeaseToken::parse);
    token.ok_or_else(|| Error::BadArgument("TOKEN is not 32 hexadecimal digits, as in POOL_TOKEN".into()))
}

/// Returns true for the optional word `yes`, and false for its opposite `no` or without a word.
fn flag(word: Option<&&[u8]>, yes: &str, no: Option<&str>) -> Result<bool, Error> {
    let Some(word) = word else { return Ok(false) };
    read("the last parameter", word, |text| match text {
        _ if text == yes => Ok(true),
        _ if Some(text) == no => Ok(false),
        _ => Err(no.into_iter().chain([yes]).collect::<Vec<_>>().join(" or ")),
    })
}

fn note(word: Option<&&[u8]>) -> String {
    word.map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default()
}

fn pair(word: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Error> {
    read("a parameter", word, |_| {
        let at = word.iter().position(|byte| *byte == b'=').ok_or("NAME=VALUE")?;
        Ok((word[..at].to_vec(), word[at + 1..].to_vec()))
    })
}

fn with_settings(words: &[&[u8]], ask: impl Fn(&[(&str, &str)]) -> Result<(), Error>) -> Result<Option<String>, Error> {
    let setting = |word: &&[u8]| {
        read("a setting", word, |text| {
            text.split_once('=').map(|(key, value)| (key.to_string(), value.to_string())).ok_or("KEY=VALUE".into())
        })
    };
    let settings = words.iter().map(setting).collect::<Result<Vec<_>, _>>()?;
    ask(&settings.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>()).map(nothing)
}

/// Time between two looks at the process, and between two attempts while no server replies.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Renews a lease for `span` each time that `every` is over, until it is lost, or the process has ended.
///
/// # Errors
///
/// [`Error::NotTaken`] if the lease is lost; [`Error::Refused`].
fn keep_renewing(
    members: &Members,
    (pool, token, span): (&[u8], LeaseToken, Option<Duration>),
    every: Duration,
    process: Option<i32>,
) -> Result<(), Error> {
    let mut is_told = false;
    loop {
        let pause = match members.renew(pool, token, span) {
            Ok(()) => {
                is_told = false;
                every
            }
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn(&format!("{}; it is tried again", refused(&[pool], &error).sentence));
                }
                LOOK_EVERY.min(every)
            }
            Err(error) => return Err(error),
        };
        let next = Instant::now() + pause;
        loop {
            if process.is_some_and(|process| kill(Pid::from_raw(process), None) == Err(Errno::ESRCH)) {
                return Ok(());
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
