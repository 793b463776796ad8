//! Buried jobs that failed in the same way: by the last part of their tube and by their error, in which numbers count
//! as equal.

use super::state::queries::JobStats;
use super::tables::{name_or_nothing, prose_or_nothing};
use poolcounter_core::time::Span;
use poolcounter_protocol::jobs::name::last_part;
use poolcounter_service::report::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of bytes of a line of an error that tell groups apart.
const COMPARED_BYTES: usize = 200;

/// Buried jobs with the same error.
struct BuriedGroup<'a> {
    jobs: u64,
    first: Span,
    /// Job that was buried last, with the time since its burial.
    last: (Span, &'a JobStats<'a>),
}

/// Returns a row for each group, the largest first.
pub(super) fn rows_of_groups(buried: &[(JobStats<'_>, Span)]) -> Vec<Vec<Cell>> {
    let mut groups: BTreeMap<(&[u8], Vec<u8>), BuriedGroup<'_>> = BTreeMap::new();
    for (job, span) in buried {
        let key = (last_part(job.tube), normal_form(summary_of(job.error)));
        let group = groups.entry(key).or_insert(BuriedGroup { jobs: 0, first: *span, last: (*span, job) });
        group.jobs += 1;
        group.first = group.first.max(*span);
        if *span < group.last.0 {
            group.last = (*span, job);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| Reverse(group.jobs));
    let row = |((part, _), group): ((&[u8], Vec<u8>), BuriedGroup<'_>)| {
        let (last, job) = group.last;
        vec![
            name_or_nothing(part),
            Cell::Number(group.jobs),
            Cell::time(group.first),
            Cell::time(last),
            Cell::text(job.id.to_string()),
            prose_or_nothing(&summary_text(job.error)),
        ]
    };
    groups.into_iter().map(row).collect()
}

/// Returns the first and the last line of an error, one of which usually has the reason. They are the same if there is
/// only one line.
fn summary_of(error: &[u8]) -> [&[u8]; 2] {
    let lines = || error.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let first = lines().next().unwrap_or_default();
    [first, lines().next_back().unwrap_or(first)]
}

/// Returns the first and the last line of an error as one line.
pub(super) fn summary_text(error: &[u8]) -> Vec<u8> {
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
