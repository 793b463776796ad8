//! Raw bytes into the parser of the members protocol.

use poolcounter_members::state::{Attributes, Request, Take};
use poolcounter_protocol::members::wire::{ATTRIBUTE_BYTES, LONGEST_NAME, Line, MOST_ATTRIBUTES, Query, parse};

/// Reads everything as lines, and checks the results.
pub fn run(data: &[u8]) {
    data.split(|byte| *byte == b'\n').for_each(look_at);
}

fn look_at(line: &[u8]) {
    let parsed = parse(line);
    // One space separates as well as several, and trailing spaces are ignored, except in free texts.
    let mut wide = line.split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"   "[..]);
    wide.push(b' ');
    let is_for_people = [&b"FAILED"[..], b"DEAD", b"HOLD", b"TAKEBACK"].iter().any(|command| line.starts_with(command));
    assert!(is_for_people || parse(&wide) == parsed, "spaces matter");
    let is_name = |name: &[u8]| {
        assert!(!name.is_empty() && name.len() <= LONGEST_NAME);
        assert!(!name.iter().any(|byte| matches!(byte, 0 | b' ' | b'\n')));
    };
    let is_member = |name: &[u8]| {
        is_name(name);
        assert!(name[0] != b'!', "what the daemon says by itself begins so");
    };
    let are_attributes = |attributes: &Attributes| {
        let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(attributes.len() <= MOST_ATTRIBUTES && bytes <= ATTRIBUTE_BYTES);
        for (n, (name, value)) in attributes.iter().enumerate() {
            is_name(name);
            is_name(value);
            assert!(attributes[..n].iter().all(|(other, _)| other != name), "an attribute has one value");
        }
    };
    match parsed {
        Ok(Line::Request(Request::Take(Take { priority, count, lease, filter, .. }))) => {
            assert!(priority <= 9 && count != Some(0) && lease.is_none_or(|span| span.as_micros() > 0));
            assert!(filter.is_none_or(|filter| !filter.is_empty()), "a filter asks for something");
        }
        Ok(Line::Request(Request::Offer { named, attributes } | Request::Add { named, attributes })) => {
            is_name(named.pool);
            is_member(named.member);
            are_attributes(&attributes);
        }
        Ok(Line::Request(Request::Started { named: Ok((member, attributes)), .. })) => {
            is_member(member);
            are_attributes(&attributes);
        }
        Ok(Line::Request(Request::Pool { name, changes } | Request::Reconfigure { name, changes })) => {
            is_name(name);
            for (n, change) in changes.iter().enumerate() {
                assert!(changes[..n].iter().all(|other| other.key() != change.key()), "a setting has one value");
            }
        }
        Ok(Line::Query(Query::Members { pool, after, .. })) => {
            is_name(pool);
            after.into_iter().for_each(is_name);
        }
        Ok(Line::Query(Query::Waiters { pool, .. })) => is_name(pool),
        _ => {}
    }
}
