//! Buried jobs that failed in the same way: by the last part of their tube and by their error, in which numbers count
//! as equal.

use super::state::JobId;
use super::state::queries::JobStats;
use poolcounter_core::Span;
use poolcounter_protocol::jobs::name::last_part;

/// Number of bytes of a line of an error that tell groups apart.
const COMPARED_BYTES: usize = 200;

/// Returns the buried jobs that failed as this one; only that one, if it is not among these.
pub(crate) fn group_of(buried: &[(JobStats<'_>, Span)], id: JobId) -> Vec<JobId> {
    let Some(key) = buried.iter().find(|(job, _)| job.id == id).map(|(job, _)| key_of(job)) else { return vec![id] };
    buried.iter().filter(|(job, _)| key_of(job) == key).map(|(job, _)| job.id).collect()
}

/// Returns what jobs of one group have in common.
pub(crate) fn key_of<'a>(job: &JobStats<'a>) -> (&'a [u8], Vec<u8>) {
    (last_part(job.tube), normal_form(summary_of(job.error)))
}

/// Returns the first and the last line of an error, one of which usually has the reason. They are the same if there is
/// only one line.
fn summary_of(error: &[u8]) -> [&[u8]; 2] {
    let lines = || error.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let first = lines().next().unwrap_or_default();
    [first, lines().next_back().unwrap_or(first)]
}

/// Returns the first and the last line of an error as one line.
pub(crate) fn summary_text(error: &[u8]) -> Vec<u8> {
    match summary_of(error) {
        [first, last] if first == last => first.into(),
        [first, last] => [first, " … ".as_bytes(), last].concat(),
    }
}

/// Returns two lines with `#` for each number in them.
fn normal_form(lines: [&[u8]; 2]) -> Vec<u8> {
    let mut form = Vec::new();
    for line in lines {
        for byte in &line[..line.len().min(COMPARED_BYTES)] {
            match byte {
                b'0'..=b'9' if form.last() == Some(&b'#') => {}
                b'0'..=b'9' => form.push(b'#'),
                other => form.push(*other),
            }
        }
        form.push(b'\n');
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_differ_in_numbers_are_the_same() {
        let form = |error: &str| normal_form(summary_of(error.as_bytes()));
        assert_eq!(
            form("exit 1\n\nline 12: no decode delegate 7\n"),
            form("exit 23\nmore\nline 8: no decode delegate 99")
        );
        assert_ne!(form("exit 1\nno decode delegate"), form("exit 1\nno space"));
        assert_ne!(form("a"), form("b"));
    }

    #[test]
    fn an_error_is_its_first_and_its_last_line() {
        let text = |error: &str| String::from_utf8(summary_text(error.as_bytes())).expect("is text");
        assert_eq!(text(""), "");
        assert_eq!(text("one line\n"), "one line");
        assert_eq!(text("first\nsecond\r\n  third \n\n"), "first … third");
    }
}
