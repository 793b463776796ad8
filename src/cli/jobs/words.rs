//! Names of tubes in the words and the environment of a command, and reasons of failures in lines of the log.

use super::fetch::HeldJob;
use crate::spawn::Variable;
use crate::terminal::printable;
use poolcounter_client::{JobId, ReservedJob};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Returns the first part of a tube's name.
pub fn wiki_of(tube: &str) -> &str {
    tube.split('/').next().unwrap_or_default()
}

/// Returns the last part of a tube's name.
pub fn kind_of(tube: &str) -> &str {
    tube.rsplit('/').next().unwrap_or_default()
}

/// Returns the pattern of all tubes of a tube's wiki whose names have the same number of parts.
pub fn all_of_wiki(tube: &str) -> String {
    wiki_of(tube).to_string() + &"/*".repeat(tube.split('/').count() - 1)
}

/// Returns the name of the wiki; bytes that names of tubes cannot have are written there as `+` and two hexadecimal
/// digits.
fn wiki_in_plain(tube: &str) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::new(), wiki_of(tube).as_bytes());
    while let [byte, behind @ ..] = rest {
        let digits = behind.get(..2).filter(|_| *byte == b'+').and_then(|digits| str::from_utf8(digits).ok());
        let meant =
            digits.filter(|digits| !digits.starts_with('+')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        // A NUL can be neither in an argument nor in the environment.
        let meant = meant.filter(|byte| *byte != 0);
        plain.push(meant.unwrap_or(*byte));
        rest = if meant.is_some() { &behind[2..] } else { behind };
    }
    plain
}

/// Returns a word of the command with the names filled in, in one pass. `origin` is the tube from which a dead letter
/// comes, or the tube itself.
pub fn filled(word: &OsStr, tube: &str, origin: &str) -> OsString {
    let wiki = wiki_in_plain(origin);
    let names: [(&[u8], &[u8]); 3] =
        [(b"{wiki}", &wiki), (b"{type}", kind_of(origin).as_bytes()), (b"{tube}", tube.as_bytes())];
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while !rest.is_empty() {
        let known = names.iter().find(|(place, _)| rest.starts_with(place));
        let (place, text) = known.copied().unwrap_or((&rest[..1], &rest[..1]));
        bytes.extend_from_slice(text);
        rest = &rest[place.len()..];
    }
    OsString::from_vec(bytes)
}

/// Returns the environment variables about the tube.
pub fn of_tube(tube: &str) -> Vec<Variable> {
    let variable = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    vec![
        variable("JOB_TUBE", tube.as_bytes()),
        variable("JOB_WIKI", &wiki_in_plain(tube)),
        variable("JOB_TYPE", kind_of(tube).as_bytes()),
    ]
}

/// Returns the environment variables about a command's only job.
pub fn of_job(held: &HeldJob) -> Vec<Variable> {
    let HeldJob { job: ReservedJob { id, .. }, status, .. } = held;
    let JobId(id) = id;
    let variable = |name: &str, value: u64| (name.as_bytes().to_vec(), value.to_string().into_bytes());
    let mut variables = of_tube(&status.tube);
    if let Some(origin) = &status.origin {
        // The work is that of the tube in which the job has failed.
        variables.splice(1.., of_tube(origin).into_iter().skip(1));
        variables.push((b"JOB_ORIGIN".to_vec(), origin.clone().into_bytes()));
    }
    variables.extend([
        variable("JOB_ID", *id),
        variable("JOB_PRI", status.pri.into()),
        variable("JOB_AGE", status.age.as_secs()),
        variable("JOB_TTR", status.ttr.as_secs()),
        variable("JOB_RESERVES", status.reserves),
        variable("JOB_TIMEOUTS", status.timeouts),
        variable("JOB_RELEASES", status.releases),
    ]);
    variables
}

/// Returns the reason of a failure in one line: the first two lines, one of which may be the exit status, and the last.
pub fn in_one_line(text: &[u8]) -> String {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    let (first, last) = (lines.iter().take(2), lines.iter().skip(2).next_back());
    first.chain(last).map(|line| printable(line.trim_ascii_end())).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in() {
        for (word, tube, filled_in) in [
            ("--wiki={wiki}", "enwiki/refreshLinks", "--wiki=enwiki"),
            ("{tube}: {type}{type} {wiki", "enwiki/a/b", "enwiki/a/b: bb {wiki"),
            ("{wiki}.{type}", "default", "default.default"),
            ("{", "a/b", "{"),
            ("{wiki} {tube}", "a+20+C3+BC-b+zz+/x", "a ü-b+zz+ a+20+C3+BC-b+zz+/x"),
            ("{wiki}", "a+7Btube+7D+00/x", "a{tube}+00"),
        ] {
            assert_eq!(filled(OsStr::new(word), tube, tube), OsStr::new(filled_in));
        }
    }

    #[test]
    fn a_pattern_has_all_tubes_of_a_wiki() {
        assert_eq!(["a/b", "a/b/c", "a"].map(all_of_wiki), ["a/*", "a/*/*", "a"]);
    }

    #[test]
    fn a_failure_is_a_line() {
        for (text, line) in [
            ("status 3\n", "status 3"),
            ("status 3\nfirst\nlast\n", "status 3: first: last"),
            ("status 3\nfirst\n\nmiddle\nlast \n\n", "status 3: first: last"),
            ("", ""),
        ] {
            assert_eq!(in_one_line(text.as_bytes()), line);
        }
    }
}
