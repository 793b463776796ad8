//! The command words, and what must be known of a line before it is read.

use Effect::{Asks, Changes};
use Sees::{Any, Named, No};

/// Whether a command may change something that a store keeps.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Asks,
    Changes,
}

/// Jobs whose put may decide the reply to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// None of them.
    No,
    /// The job that the command names.
    Named,
    /// Any job.
    Any,
}

/// Word of a command, with what must be known of it.
type Command = (&'static str, Effect, Sees);

/// beanstalkd's.
const CORE: [Command; 25] = [
    ("put", Changes, No),
    ("use", Asks, No),
    ("reserve", Asks, Any),
    ("reserve-with-timeout", Asks, Any),
    ("reserve-job", Asks, Named),
    ("delete", Changes, Named),
    ("release", Changes, No),
    ("bury", Changes, No),
    ("touch", Asks, No),
    ("watch", Asks, No),
    ("ignore", Asks, No),
    ("peek", Asks, Named),
    ("peek-ready", Asks, Any),
    ("peek-delayed", Asks, Any),
    ("peek-buried", Asks, No),
    ("kick", Changes, Any),
    ("kick-job", Changes, Named),
    ("stats", Asks, Any),
    ("stats-job", Asks, Named),
    ("stats-tube", Asks, Any),
    ("list-tubes", Asks, No),
    ("list-tube-used", Asks, No),
    ("list-tubes-watched", Asks, No),
    ("pause-tube", Changes, No),
    ("quit", Asks, No),
];
/// The extensions.
const EXTENSIONS: [Command; 17] = [
    ("put-job", Changes, No),
    ("put-many", Changes, No),
    ("root", Changes, No),
    ("identify", Asks, No),
    ("limit", Changes, No),
    ("retry", Changes, No),
    ("fail", Changes, No),
    ("dead-letter", Changes, No),
    ("clear", Changes, Any),
    ("kick-all", Changes, Any),
    ("list-jobs", Asks, Any),
    ("summary", Asks, Any),
    ("reserve-many", Asks, Any),
    ("extensions", Asks, No),
    ("drain", Asks, No),
    ("undrain", Asks, No),
    ("store-copy", Asks, No),
];
/// The options of put-job.
pub const OPTIONS: [&str; 6] = ["tube", "key", "until", "root", "root-ts", "group"];

/// The options of fail.
pub const FAIL_OPTIONS: [&str; 1] = ["bury"];

/// Returns every command word, those of beanstalkd first.
pub fn words() -> impl Iterator<Item = &'static str> {
    CORE.iter().chain(&EXTENSIONS).map(|(word, ..)| *word)
}

/// Returns true when a line that begins so may be as long as an extension's.
pub fn is_extension(line: &[u8]) -> bool {
    let word = line.split(|byte| *byte == b' ').next().unwrap_or(line);
    EXTENSIONS.iter().any(|(extension, ..)| extension.as_bytes() == word)
}

/// Returns true when a line may change something that a store keeps. What input begins with no whole line is not known yet.
pub fn may_change(input: &[u8]) -> bool {
    command_of(input).is_some_and(|((_, effect, _), _)| effect == Changes)
}

/// Returns which jobs the line at the front of the input sees, and the number of the job that it names, if it names one.
pub fn sees(input: &[u8]) -> (Sees, Option<u64>) {
    let Some(((_, _, sees), rest)) = command_of(input) else { return (No, None) };
    let named = || std::str::from_utf8(rest).ok()?.trim().parse().ok();
    (sees, if sees == Named { named() } else { None })
}

/// Returns the command of the line at the front of the input, and what stands behind its word; None without a whole line.
fn command_of(input: &[u8]) -> Option<(Command, &[u8])> {
    let line = &input[..memchr::memchr(b'\n', input)?];
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(line.len());
    let command = CORE.iter().chain(&EXTENSIONS).find(|(command, ..)| command.as_bytes() == &line[..end])?;
    Some((*command, &line[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_alone_counts() {
        assert!(!is_extension(b"put 1") && is_extension(b"put-job 1") && !is_extension(b"put-jobs"));
        assert!(may_change(b"put 1 2 3 4\r\n") && may_change(b"clear *\n") && !may_change(b"peek 1\r\nput\r\n"));
        assert!(!may_change(b"put 1 2 3 4"), "not a whole line");
    }

    #[test]
    fn number_of_the_job_is_read_where_it_decides() {
        for (line, seen) in [
            ("peek 12\r\nx", (Named, Some(12))),
            ("delete  7\r\n", (Named, Some(7))),
            ("peek x\r\n", (Named, None)),
            ("peek\r\n", (Named, None)),
            ("kick 3\r\n", (Any, None)),
            ("reserve\r\n", (Any, None)),
            ("touch 1\r\n", (No, None)),
            ("peek 1", (No, None)),
        ] {
            assert_eq!(sees(line.as_bytes()), seen, "{line}");
        }
    }
}
