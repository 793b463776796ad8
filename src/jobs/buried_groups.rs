//! Buried jobs that failed in the same way: by the last part of their tube and by their error, in which numbers count
//! as equal.

use super::buried_form::{key_of, summary_text};
use super::state::queries::JobStats;
use super::tables::{name_or_nothing, prose_or_nothing};
use poolcounter_core::time::Span;
use poolcounter_service::report::Cell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

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
        let group = groups.entry(key_of(job)).or_insert(BuriedGroup { jobs: 0, first: *span, last: (*span, job) });
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
