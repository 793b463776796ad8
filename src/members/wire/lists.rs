//! Lines of the daemon: messages to connections, and lists.

use crate::state::{Event, Filter, KeptOut, MemberRow, Moment, PastLease, PoolRow, Utilization, WaiterRow};
use poolcounter_core::Span;
use poolcounter_protocol::members::wire::replies::{write, write_attributes, write_escaped, write_what, write_words};

/// Writes a message to a connection, with its line feed.
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

/// Writes the line of a member in the answer to `MEMBERS`; `peer` returns the address of a connection.
pub fn write_member(bytes: &mut Vec<u8>, row: &MemberRow<'_>) {
    write_words(bytes, &[row.name, row.state.as_bytes(), row.holder.as_bytes()]);
    write_seconds(bytes, b" ", row.age);
    write_seconds(bytes, b" ", row.idle);
    write(bytes, format_args!(" {}", row.uses));
    bytes.extend_from_slice(if row.is_long { b" long" } else { b"" });
    if let Some((span, lease)) = row.held {
        write_seconds(bytes, b" held=", span);
        write(bytes, format_args!(" lease={lease}"));
    }
    if let Some(span) = row.expires {
        write_seconds(bytes, b" expires=", span);
    }
    if let Some(KeptOut { why, by, since }) = row.kept_out {
        bytes.extend_from_slice(b" why=");
        write_escaped(bytes, why);
        bytes.extend_from_slice(b" by=");
        write_escaped(bytes, if by.is_empty() { b"-" } else { by });
        write_seconds(bytes, b" since=", since);
    }
    bytes.push(b'\n');
}

/// Writes the line of a lease in the answer to `HISTORY`, with the times since its begin and its end.
pub fn write_past_lease(bytes: &mut Vec<u8>, past: &PastLease, now: Moment) {
    write(bytes, format_args!("{} ", past.lease));
    write_words(bytes, &[&past.holder, &past.address]);
    write_seconds(bytes, b" ", Span::from_micros(now.saturating_sub(past.since)));
    if let Some((at, ending, by)) = &past.end {
        write_seconds(bytes, b" ended=", Span::from_micros(now.saturating_sub(*at)));
        write(bytes, format_args!(" how={}", ending.name()));
        if !by.is_empty() {
            bytes.extend_from_slice(b" by=");
            write_escaped(bytes, by);
        }
    }
    bytes.push(b'\n');
}

/// Writes the line of the waiter at a position of the order in the answer to `WAITERS`.
pub fn write_waiter(bytes: &mut Vec<u8>, place: u64, row: &WaiterRow<'_>) {
    write(bytes, format_args!("{place} {}", row.who));
    write_seconds(bytes, b" ", row.waited);
    write(bytes, format_args!(" {} {}", row.priority, row.count));
    row.filter.iter().for_each(|filter| write_filter(bytes, filter));
    bytes.push(b'\n');
}

/// Writes the attributes or the name that members must have, with a space before each word.
pub fn write_filter(bytes: &mut Vec<u8>, Filter { member, attributes }: &Filter) {
    write_attributes(bytes, attributes);
    if let Some(member) = member {
        bytes.extend_from_slice(b" member=");
        bytes.extend_from_slice(member);
    }
}

/// Writes seconds with three decimals behind `before`.
fn write_seconds(bytes: &mut Vec<u8>, before: &[u8], span: Span) {
    bytes.extend_from_slice(before);
    write(bytes, format_args!("{}.{:03}", span.as_micros() / 1_000_000, span.as_micros() / 1_000 % 1_000));
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
    use poolcounter_protocol::members::wire::client::{self, parse_member, parse_pool, parse_waiter};
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
        let filter = Filter { member: Some(b"m"[..].into()), attributes: vec![(b"os"[..].into(), b"ios"[..].into())] };
        let (who, waited, filter) = ("me".to_string(), Span::from_millis(61_004), Some(&filter));
        let mut line = Vec::new();
        write_waiter(&mut line, 7, &WaiterRow { who, waited, priority: 5, count: 2, filter });
        assert_eq!(line, b"7 me 61.004 5 2 os=ios member=m\n");
        assert_eq!(parse_waiter(line.trim_ascii_end()).map(|waiter| waiter.attributes.len()), Some(2));
        let mut row = MemberRow {
            hold: None,
            name: b"m",
            state: "in_use",
            holder: "me".into(),
            age: Span::from_millis(1_250),
            idle: Span::ZERO,
            uses: 3,
            is_long: true,
            held: Some((Span::from_millis(1_001), u64::MAX)),
            expires: None,
            kept_out: None,
            attributes: None,
        };
        let read = |row: &MemberRow<'_>| {
            let mut line = Vec::new();
            write_member(&mut line, row);
            parse_member(line.trim_ascii_end()).expect("is a member")
        };
        let member = read(&row);
        assert_eq!((member.held, member.lease), (Some(Duration::from_millis(1_001)), Some(u64::MAX)));
        assert_eq!((&*member.name, &*member.state, member.holder.as_deref()), (&b"m"[..], "in_use", Some(&b"me"[..])));
        assert_eq!(
            (member.age, member.idle, member.uses, member.is_long),
            (Duration::from_millis(1_250), Duration::ZERO, 3, true)
        );
        row.expires = Some(Span::from_millis(2_500));
        assert_eq!(read(&row).expires, Some(Duration::from_millis(2_500)));
        (row.is_long, row.held, row.expires) = (false, None, None);
        row.kept_out = Some(KeptOut { why: b"100% \xff=\n", by: b"", since: Span::from_millis(7) });
        let member = read(&row);
        let (why, by, since) = (b"100% \xff=\n".to_vec(), b"-".to_vec(), Duration::from_millis(7));
        assert_eq!((member.held, member.kept_out), (None, Some(client::KeptOut { why, by, since })));
        assert_eq!((parse_pool(b"db"), parse_pool(b"db - max x"), parse_member(b"m free - 1 1")), (None, None, None));
    }
}
