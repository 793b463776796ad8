//! The command words, and what must be known of a line before it is read.

use Effect::{Asks, Changes};

/// Whether a command may change something that a store keeps.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Asks,
    Changes,
}

/// beanstalkd's.
const CORE: [(&str, Effect); 25] = [
    ("put", Changes),
    ("use", Asks),
    ("reserve", Asks),
    ("reserve-with-timeout", Asks),
    ("reserve-job", Asks),
    ("delete", Changes),
    ("release", Changes),
    ("bury", Changes),
    ("touch", Asks),
    ("watch", Asks),
    ("ignore", Asks),
    ("peek", Asks),
    ("peek-ready", Asks),
    ("peek-delayed", Asks),
    ("peek-buried", Asks),
    ("kick", Changes),
    ("kick-job", Changes),
    ("stats", Asks),
    ("stats-job", Asks),
    ("stats-tube", Asks),
    ("list-tubes", Asks),
    ("list-tube-used", Asks),
    ("list-tubes-watched", Asks),
    ("pause-tube", Changes),
    ("quit", Asks),
];
/// The extensions.
const EXTENSIONS: [(&str, Effect); 17] = [
    ("put-job", Changes),
    ("put-many", Changes),
    ("root", Changes),
    ("identify", Asks),
    ("limit", Changes),
    ("retry", Changes),
    ("fail", Changes),
    ("dead-letter", Changes),
    ("clear", Changes),
    ("kick-all", Changes),
    ("list-jobs", Asks),
    ("summary", Asks),
    ("reserve-many", Asks),
    ("extensions", Asks),
    ("drain", Asks),
    ("undrain", Asks),
    ("store-copy", Asks),
];
/// The options of put-job.
pub const OPTIONS: [&str; 6] = ["tube", "key", "until", "root", "root-ts", "group"];

/// The options of fail.
pub const FAIL_OPTIONS: [&str; 1] = ["bury"];

/// Returns every command word, those of beanstalkd first.
pub fn words() -> impl Iterator<Item = &'static str> {
    CORE.iter().chain(&EXTENSIONS).map(|(word, _)| *word)
}

/// Returns true when a line that begins so may be as long as an extension's.
pub fn is_extension(line: &[u8]) -> bool {
    let word = line.split(|byte| *byte == b' ').next().unwrap_or(line);
    EXTENSIONS.iter().any(|(extension, _)| extension.as_bytes() == word)
}

/// Returns true when a line may change something that a store keeps. What input begins with no whole line is not known yet.
pub fn may_change(input: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b'\n', input) else { return false };
    let word = input[..end].split(|byte| *byte == b' ' || *byte == b'\r').next().unwrap_or_default();
    CORE.iter().chain(&EXTENSIONS).any(|(command, effect)| *effect == Changes && command.as_bytes() == word)
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
}
