//! Requests of `members` that change something: one table, used by the command, its help and its manual.

use super::refused;
use crate::command::{Failure, Requests};
use crate::terminal::{ascii_where_invisible, print};
use poolcounter_client::{Condition, Error, LeaseToken, Members, Offered};
use poolcounter_protocol::members::wire::client::escape_name;
use poolcounter_service::options::{number, seconds};
use serde_json::json;
use std::process::ExitCode;

/// Request of the table.
pub struct MemberRequest {
    /// Word of the request.
    pub word: &'static str,
    /// Parameters after the word; the first is the pool. Optional parameters are in brackets, repeated parameters end
    /// with dots.
    pub parameters: &'static [&'static str],
    /// Effect, for the help and the manual.
    pub summary: &'static str,
    /// Sends the request.
    run: fn(&Members, &[&[u8]]) -> Result<(), Mistake>,
}

/// Reason of a failed request.
pub(super) enum Mistake {
    /// Invalid parameter.
    Parameter(String),
    /// Error of the client.
    Client(Error),
}

impl From<Error> for Mistake {
    fn from(error: Error) -> Self {
        Mistake::Client(error)
    }
}

/// Requests, in the order of the help.
pub const REQUESTS: &[MemberRequest] = &[
    MemberRequest {
        word: "renew",
        parameters: &["POOL", "TOKEN", "[SECONDS]"],
        summary: "extends a lease to this time from now, or to the time that it was taken for",
        run: |members, words| {
            let span = words.get(2).map(|word| read("SECONDS", word, seconds)).transpose()?;
            Ok(members.renew(words[0], token(words[1])?, span)?)
        },
    },
    MemberRequest {
        word: "return",
        parameters: &["POOL", "TOKEN", "[ok|fail]"],
        summary: "returns the member of a lease, as it was or as failed",
        run: |members, words| {
            let is_failed = flag(words.get(2), "fail", Some("ok"))?;
            let condition = if is_failed { Condition::Fail } else { Condition::Ok };
            Ok(members.give_back(words[0], token(words[1])?, condition)?)
        },
    },
    MemberRequest {
        word: "history",
        parameters: &["POOL", "[MEMBER]"],
        summary: "lists the last holders of a fixed member, or of all members of the pool",
        run: |_, _| Err(Mistake::Parameter("history needs POOL [MEMBER]".into())),
    },
    MemberRequest {
        word: "repair",
        parameters: &["POOL", "MEMBER"],
        summary: "takes a fixed member out of quarantine, and has it cleaned",
        run: |members, words| Ok(members.operator().repair(words[0], words[1], false)?),
    },
    MemberRequest {
        word: "hold",
        parameters: &["POOL", "MEMBER", "SECONDS", "[NOTE]"],
        summary: "keeps a member out of use; if it is in use, from its return on, as it is",
        run: |members, words| {
            let span = read("SECONDS", words[2], seconds)?;
            Ok(members.operator().hold(words[0], words[1], span, &note(words.get(3)))?)
        },
    },
    MemberRequest {
        word: "free",
        parameters: &["POOL", "MEMBER"],
        summary: "ends a hold, and has the member cleaned",
        run: |members, words| Ok(members.operator().free(words[0], words[1])?),
    },
    MemberRequest {
        word: "takeback",
        parameters: &["POOL", "LEASE", "[NOTE]"],
        summary: "takes the member of a lease away from its holder",
        run: |members, words| {
            let lease = read("LEASE", words[1], |text| number(text, 0..=u64::MAX))?;
            Ok(members.operator().take_back(words[0], lease, &note(words.get(2)))?)
        },
    },
    MemberRequest {
        word: "add",
        parameters: &["POOL", "MEMBER", "[ATTR=VALUE ...]"],
        summary: "adds a fixed member",
        run: |members, words| {
            let pairs = words[2..].iter().map(|word| pair(word));
            let attributes: Result<Vec<_>, Mistake> = pairs.collect();
            let offered = Offered { name: words[1].to_vec(), attributes: attributes? };
            Ok(members.operator().add(words[0], &offered)?)
        },
    },
    MemberRequest {
        word: "del",
        parameters: &["POOL", "MEMBER", "[now]"],
        summary: "removes a fixed member from its pool, once it is returned or at once",
        run: |members, words| Ok(members.operator().delete(words[0], words[1], flag(words.get(2), "now", None)?)?),
    },
    MemberRequest {
        word: "pool",
        parameters: &["POOL", "INIT", "MAX", "[KEY=VALUE ...]"],
        summary: "declares a pool, or confirms that it has these settings",
        run: |members, words| {
            let count = |name, word| read(name, word, |text| number(text, 0..=u32::MAX));
            let (init, max) = (count("INIT", words[1])?, count("MAX", words[2])?);
            with_settings(&words[3..], |settings| members.operator().declare(words[0], init, max, settings))
        },
    },
    MemberRequest {
        word: "reconfigure",
        parameters: &["POOL", "KEY=VALUE ..."],
        summary: "changes these settings of a pool, all or none",
        run: |members, words| with_settings(&words[1..], |settings| members.operator().reconfigure(words[0], settings)),
    },
    MemberRequest {
        word: "rmpool",
        parameters: &["POOL", "[graceful]"],
        summary: "removes a pool, at once or as its members come back",
        run: |members, words| Ok(members.operator().remove(words[0], flag(words.get(1), "graceful", None)?)?),
    },
    MemberRequest {
        word: "rmgroup",
        parameters: &["GROUP", "[graceful]"],
        summary: "removes the pools of a group, at once or as their members come back",
        run: |members, words| Ok(members.operator().remove_group(words[0], flag(words.get(1), "graceful", None)?)?),
    },
];

impl MemberRequest {
    /// Returns the request of this word.
    pub fn of_word(word: &[u8]) -> Option<&'static MemberRequest> {
        REQUESTS.iter().find(|request| request.word.as_bytes() == word)
    }

    /// Sends the request with these parameters, and prints the result in JSON if `is_json`.
    ///
    /// # Errors
    ///
    /// Fails if the parameters are wrong, no server replies, or the server refuses.
    pub fn make(&self, members: &Members, words: &[&[u8]], is_json: bool) -> Result<ExitCode, Failure> {
        let needed = self.parameters.iter().filter(|parameter| !parameter.starts_with('[')).count();
        let repeats = self.parameters.last().is_some_and(|last| last.contains("..."));
        if words.len() < needed || words.len() > self.parameters.len() && !repeats {
            let wanted = self.parameters.join(" ");
            return Err(Failure::misuse(format!("{} needs {wanted}", self.word)));
        }
        let made = match (self.run)(members, words) {
            Err(Mistake::Parameter(sentence)) => return Err(Failure::misuse(sentence)),
            Err(Mistake::Client(error)) => Err(refused(&words[..2.min(words.len())], &error)),
            Ok(()) => Ok(ExitCode::SUCCESS),
        };
        finish(self.word, words[0], made, is_json)
    }
}

/// Prints the result of a request in JSON if `is_json`.
fn finish(word: &str, pool: &[u8], made: Result<ExitCode, Failure>, is_json: bool) -> Result<ExitCode, Failure> {
    if !is_json {
        return made;
    }
    let error = made.as_ref().err().map(|failure| failure.sentence.clone());
    let object = json!({ "request": word, "pool": String::from_utf8_lossy(pool), "error": error });
    print(&format!("{}\n", ascii_where_invisible(&object.to_string())))?;
    Ok(made.unwrap_or_else(|failure| ExitCode::from(failure.status)))
}

/// Takes all members of a pool out of quarantine.
///
/// # Errors
///
/// Fails if no server replies, or the server refuses.
pub fn repair_all(members: &Members, pool: &[u8], as_is: bool, is_json: bool) -> Result<ExitCode, Failure> {
    let repair = || {
        let listed = members.operator().members(pool)?;
        let out: Vec<_> = listed.iter().filter(|member| member.state == "quarantined").collect();
        out.iter().try_for_each(|member| members.operator().repair(pool, &member.name, as_is))?;
        Ok(out.len())
    };
    let repaired = repair().map_err(|error| refused(&[pool], &error));
    if let (Ok(number), false) = (&repaired, is_json) {
        print(&format!("repaired: {number}\n"))?;
    }
    finish("repair", pool, repaired.map(|_| ExitCode::SUCCESS), is_json)
}

/// Takes a member out of quarantine, or out of the wait for a cleaning, without a cleaning.
///
/// # Errors
///
/// Fails if no server replies, or the server refuses.
pub fn repair_as_is(members: &Members, pool: &[u8], member: &[u8], is_json: bool) -> Result<ExitCode, Failure> {
    let repaired = members.operator().repair(pool, member, true);
    let made = repaired.map(|()| ExitCode::SUCCESS).map_err(|error| refused(&[pool, member], &error));
    finish("repair", pool, made, is_json)
}

/// Takes a member of a pool away from its holder.
///
/// # Errors
///
/// Fails if the member is not in use, no server replies, or the server refuses.
pub fn take_back_member(
    members: &Members,
    pool: &[u8],
    member: &[u8],
    reason: Option<&&[u8]>,
    is_json: bool,
) -> Result<ExitCode, Failure> {
    let take_back = || {
        let listed = members.operator().members(pool)?;
        let escaped = escape_name(member).ok_or(Error::BadName)?;
        let lease = listed.iter().find(|listed| listed.name == *escaped).and_then(|listed| listed.lease);
        members.operator().take_back(pool, lease.ok_or(Error::NotTaken)?, &note(reason))
    };
    let taken = take_back().map(|()| ExitCode::SUCCESS).map_err(|error| refused(&[pool, member], &error));
    finish("takeback", pool, taken, is_json)
}

/// Returns the requests for the help.
pub fn list() -> Requests {
    REQUESTS.iter().map(|one| (format!("{} {}", one.word, one.parameters.join(" ")), one.summary)).collect()
}

/// Parses a parameter. The error of `parse` describes valid values.
fn read<T>(name: &str, word: &[u8], parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Mistake> {
    let text = String::from_utf8_lossy(word);
    parse(&text).map_err(|wanted| Mistake::Parameter(format!("{name}: \"{text}\" is not {wanted}")))
}

/// Parses the token of a lease.
pub(super) fn token(word: &[u8]) -> Result<LeaseToken, Mistake> {
    read("TOKEN", word, |text| LeaseToken::parse(text).ok_or("32 hexadecimal digits, as in POOL_TOKEN".into()))
}

/// Returns true for the optional word `yes`, and false for its opposite `no` or without a word.
fn flag(word: Option<&&[u8]>, yes: &str, no: Option<&str>) -> Result<bool, Mistake> {
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

fn pair(word: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Mistake> {
    read("a parameter", word, |_| {
        let at = word.iter().position(|byte| *byte == b'=').ok_or("NAME=VALUE")?;
        Ok((word[..at].to_vec(), word[at + 1..].to_vec()))
    })
}

fn with_settings(words: &[&[u8]], ask: impl Fn(&[(&str, &str)]) -> Result<(), Error>) -> Result<(), Mistake> {
    let setting = |word: &&[u8]| {
        read("a setting", word, |text| {
            text.split_once('=').map(|(key, value)| (key.to_string(), value.to_string())).ok_or("KEY=VALUE".into())
        })
    };
    let settings = words.iter().map(setting).collect::<Result<Vec<_>, _>>()?;
    Ok(ask(&settings.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>())?)
}
