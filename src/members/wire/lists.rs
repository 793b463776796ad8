//! What the daemon has to say, as lines: what a step tells connections, and lists of what there is.

use super::replies::{write, write_what, write_words};
use crate::members::state::{Event, MemberRow, PoolRow, Utilization};
use crate::time::Span;

/// Writes what a connection is told, with its line feed.
pub fn write_event(bytes: &mut Vec<u8>, event: &Event) {
    write_what(bytes, &event.what);
}

/// Writes the answer to `UTILIZATION`.
pub fn write_utilization(bytes: &mut Vec<u8>, figures: &Utilization) {
    write_figures(bytes, figures);
    bytes.push(b'\n');
}

/// Writes the line of a pool in the answer to `POOLS`.
pub fn write_pool(bytes: &mut Vec<u8>, row: &PoolRow<'_>) {
    write_words(bytes, &[row.name, row.group.unwrap_or(b"-"), b""]);
    write_figures(bytes, &row.figures);
    bytes.push(b'\n');
}

/// Writes the line of a member in the answer to `MEMBERS`; `peer` tells the address of a connection.
pub fn write_member(bytes: &mut Vec<u8>, row: &MemberRow<'_>) {
    write_words(bytes, &[row.name, row.state.as_bytes(), row.holder.as_bytes()]);
    let seconds = |span: Span| (span.as_micros() / 1_000_000, span.as_micros() / 1_000 % 1_000);
    let ((age, age_ms), (idle, idle_ms)) = (seconds(row.age), seconds(row.idle));
    write(bytes, format_args!(" {age}.{age_ms:03} {idle}.{idle_ms:03} {}", row.uses));
    bytes.extend_from_slice(if row.is_long { b" long\n" } else { b"\n" });
}

fn write_figures(bytes: &mut Vec<u8>, figures: &Utilization) {
    for (n, (name, value)) in figures.rows().into_iter().enumerate() {
        let space = if n == 0 { "" } else { " " };
        write(bytes, format_args!("{space}{name} {value}"));
    }
}
