//! What the daemon has to say, as lines: what a step tells connections, and lists of what there is.

use crate::state::{Event, MemberRow, PoolRow, Utilization};
use poolcounter_core::time::Span;
use poolcounter_protocol::members::wire::replies::{write, write_what, write_words};

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
    bytes.extend_from_slice(if figures.is_removing { b" removing 1" } else { b"" });
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_protocol::members::wire::client::{parse_member, parse_pool};
    use std::time::Duration;

    #[test]
    fn lists_are_read_as_they_were_written() {
        let figures = Utilization {
            max: 9,
            in_use: 1,
            free: 2,
            starting: 3,
            stopping: 4,
            cleaning: 5,
            quarantined: 6,
            queued: 7,
            queue_max: 8,
            is_removing: false,
        };
        let mut line = Vec::new();
        write_pool(&mut line, &PoolRow { name: b"db", group: None, figures });
        let pool = parse_pool(line.trim_ascii_end()).expect("is a pool");
        assert_eq!((&*pool.name, pool.group), (&b"db"[..], None));
        assert_eq!(pool.figures, figures.rows().map(|(name, value)| (name.to_string(), u64::from(value))));
        let mut line = Vec::new();
        write_member(
            &mut line,
            &MemberRow {
                name: b"m",
                state: "in_use",
                holder: "me".into(),
                age: Span::from_millis(1_250),
                idle: Span::ZERO,
                uses: 3,
                is_long: true,
            },
        );
        let member = parse_member(line.trim_ascii_end()).expect("is a member");
        assert_eq!((&*member.name, &*member.state, member.holder.as_deref()), (&b"m"[..], "in_use", Some(&b"me"[..])));
        assert_eq!(
            (member.age, member.idle, member.uses, member.is_long),
            (Duration::from_millis(1_250), Duration::ZERO, 3, true)
        );
        assert_eq!((parse_pool(b"db"), parse_pool(b"db - max x"), parse_member(b"m free - 1 1")), (None, None, None));
    }
}
