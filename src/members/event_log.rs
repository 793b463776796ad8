//! Log of the members. Names and texts are escaped, so that a notice is one line, whatever a peer sent. The lines of
//! each kind in a minute are limited.

use super::state::{Notice, Refusal};
use log::{Level, log};
use poolcounter_core::text::escaped;
use poolcounter_core::{LogLimit, Span, Time};
use std::collections::BTreeMap;

/// Number of kinds of notices.
const KINDS: usize = 8;
/// Most lines of a kind in a [`WINDOW`].
const MOST_LINES: u32 = 10;
const WINDOW: Span = Span::from_secs(60);

/// Longest logged text of a peer, in bytes.
const LONGEST_TEXT: usize = 200;

/// Most pools whose last failed start is kept.
const MOST_FAILURES: usize = 256;

/// The lines of each kind in the present window, and the starts that failed lately.
pub struct EventLog {
    kinds: [LogLimit; KINDS],
    failures: BTreeMap<Box<[u8]>, StartFailure>,
}

/// Last failed start of a pool.
pub struct StartFailure {
    /// Time of the failure.
    pub at: Time,
    /// Address of the provider and its reason, in words.
    pub text: String,
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog { kinds: [const { LogLimit::new(MOST_LINES, WINDOW) }; KINDS], failures: BTreeMap::new() }
    }
}

impl EventLog {
    /// Logs a notice, or counts it if there were many of its kind lately.
    pub fn log(&mut self, notice: &Notice, now: Time) {
        if let Notice::StartFailed { pool, provider, text } = notice {
            self.note_failure(pool, StartFailure { at: now, text: failure_of(provider, text) });
        }
        let (kind, level) = kind_of(notice);
        if let Some(more) = self.kinds[kind].due(now) {
            log!(level, "{}{more}", text_of(notice));
        }
    }

    fn note_failure(&mut self, pool: &[u8], failure: StartFailure) {
        if self.failures.len() >= MOST_FAILURES {
            let now = failure.at;
            self.failures.retain(|_, failure| now.since(failure.at) < WINDOW);
        }
        if self.failures.len() < MOST_FAILURES || self.failures.contains_key(pool) {
            self.failures.insert(pool.into(), failure);
        }
    }

    /// Returns the last start of a pool that failed in the last minute.
    pub fn start_failure(&self, pool: &[u8], now: Time) -> Option<&StartFailure> {
        self.failures.get(pool).filter(|failure| now.since(failure.at) < WINDOW)
    }
}

/// Returns the number of a notice's kind, and the level of its lines.
fn kind_of(notice: &Notice) -> (usize, Level) {
    match notice {
        Notice::LongHold { .. } => (0, Level::Warn),
        Notice::StartFailed { .. } => (1, Level::Warn),
        Notice::LeaseEnded { .. } => (2, Level::Info),
        Notice::Held { .. } => (3, Level::Info),
        Notice::NotDeclared { .. } => (4, Level::Warn),
        Notice::Quarantined { .. } => (5, Level::Warn),
        Notice::Released { .. } => (6, Level::Info),
        Notice::Unclean { .. } => (7, Level::Warn),
    }
}

fn text_of(notice: &Notice) -> String {
    let by_text = |before: &str, by: &str| match by {
        "" => String::new(),
        by => format!("{before}{}", escaped(by.as_bytes())),
    };
    match notice {
        Notice::LongHold { pool, member, lease, held, holder } => {
            let (pool, member, holder) = (escaped(pool), escaped(member), escaped(holder.as_bytes()));
            let held = seconds(*held);
            format!("a member is held for long: {holder} has held {member} of {pool} for {held}, lease {lease}")
        }
        Notice::StartFailed { pool, provider, text } => {
            format!("a start failed in {} at {}", escaped(pool), failure_of(provider, text))
        }
        Notice::Quarantined { pool, member, why, by } => {
            let by = if by.is_empty() { String::new() } else { format!(", by={}", escaped(by)) };
            format!("{} of {} is in quarantine: {}{by}", escaped(member), escaped(pool), escaped(why))
        }
        Notice::LeaseEnded { pool, member, lease, held, holder, ending, by, note } => {
            let (pool, member, holder) = (escaped(pool), escaped(member), escaped(holder.as_bytes()));
            let (how, by, held, note) = (ending.words(), by_text(" by ", by), seconds(*held), said(note));
            format!("lease {lease} of {member} of {pool} {how}{by}: {holder} had it for {held}{note}")
        }
        Notice::Held { pool, member, span, note, by } => {
            let (pool, member, by) = (escaped(pool), escaped(member), escaped(by.as_bytes()));
            format!("{by} holds {member} of {pool} for {}{}", seconds(*span), said(note))
        }
        Notice::Released { pool, member, release, by } => {
            format!("{} of {} is {release} by {}", escaped(member), escaped(pool), escaped(by.as_bytes()))
        }
        Notice::Unclean { pool, member, why, by } => {
            let (why, by) = (escaped(why.as_bytes()), by_text(", says ", by));
            format!("{} of {} is not clean: {why}{by}", escaped(member), escaped(pool))
        }
        Notice::NotDeclared { pool, member, why } => {
            let what = match member {
                Some(member) => format!("the fixed member {} of {}", escaped(member), escaped(pool)),
                None => format!("the pool {}", escaped(pool)),
            };
            let why = match why {
                Refusal::PoolFull => "the pool has as many members as it may have",
                Refusal::MemberExists => "another pool has a fixed member of this name",
                Refusal::BadSyntax(why) => why,
                _ => "there is no room for more",
            };
            let then = if member.is_some() { "; it is tried again each second" } else { "" };
            format!("{what} is in the configuration file and cannot be added now: {why}{then}")
        }
    }
}

/// Returns the address of a provider and the reason that it gave for a failed start.
fn failure_of(provider: &str, text: &[u8]) -> String {
    let provider = if provider.is_empty() { "a lost provider" } else { provider };
    format!("{provider}{}", said(text))
}

/// Returns the text of a peer behind a colon; empty without one.
fn said(text: &[u8]) -> String {
    match text {
        [] => String::new(),
        _ => format!(": {}", escaped(&text[..text.len().min(LONGEST_TEXT)])),
    }
}

fn seconds(span: Span) -> String {
    format!("{}.{:03}s", span.as_micros() / 1_000_000, span.as_micros() / 1_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Ending, Lost};

    #[test]
    fn each_kind_has_ten_lines_in_a_minute() {
        let (pool, member) = (|| b"p"[..].into(), || b"m"[..].into());
        let (held, text, by) = (Span::ZERO, || b""[..].into(), || String::new());
        let notices = [
            Notice::LongHold { pool: pool(), member: member(), lease: 7, held, holder: by() },
            Notice::StartFailed { pool: pool(), provider: by(), text: text() },
            Notice::LeaseEnded {
                pool: pool(),
                member: member(),
                lease: 7,
                held,
                holder: by(),
                ending: Ending::Gone,
                by: by(),
                note: text(),
            },
            Notice::Held { pool: pool(), member: member(), span: held, note: text(), by: by() },
            Notice::NotDeclared { pool: pool(), member: None, why: Refusal::TooMany },
            Notice::Quarantined { pool: pool(), member: member(), why: b"x"[..].into(), by: text() },
            Notice::Released { pool: pool(), member: member(), release: "freed", by: by() },
            Notice::Unclean { pool: pool(), member: member(), why: "x".into(), by: by() },
        ];
        let (mut log, now) = (EventLog::default(), Time::from_micros(1));
        for (at, lines) in [(now, 10), (now + WINDOW, 10), (now + WINDOW, 0)] {
            for notice in &notices {
                let due = (0..11).filter(|_| log.kinds[kind_of(notice).0].due(at).is_some()).count();
                assert_eq!(due, lines, "{}", text_of(notice));
            }
        }
    }

    #[test]
    fn a_notice_is_one_line() {
        let (pool, member) = (|| b"p\n"[..].into(), || b"m\xff"[..].into());
        let (span, long) = (Span::from_micros(1_500_999), "x".repeat(1_000).into_bytes());
        for (notice, level, text) in [
            (
                Notice::LongHold { pool: pool(), member: member(), lease: 7, held: span, holder: "me\r".into() },
                Level::Warn,
                r"a member is held for long: me\u{d} has held m\xff of p\u{a} for 1.500s, lease 7".into(),
            ),
            (
                Notice::StartFailed { pool: pool(), provider: "10.0.0.1:5".into(), text: long.into() },
                Level::Warn,
                format!(r"a start failed in p\u{{a}} at 10.0.0.1:5: {}", "x".repeat(200)),
            ),
            (
                Notice::StartFailed { pool: pool(), provider: String::new(), text: b""[..].into() },
                Level::Warn,
                r"a start failed in p\u{a} at a lost provider".into(),
            ),
            (
                Notice::Quarantined {
                    pool: pool(),
                    member: member(),
                    why: b"returned as failed"[..].into(),
                    by: b"me\r"[..].into(),
                },
                Level::Warn,
                r"m\xff of p\u{a} is in quarantine: returned as failed, by=me\u{d}".into(),
            ),
            (
                Notice::LeaseEnded {
                    pool: pool(),
                    member: member(),
                    lease: 7,
                    held: span,
                    holder: "me\r".into(),
                    ending: Ending::Lost(Lost::TakenBack),
                    by: "ann".into(),
                    note: b"why\n"[..].into(),
                },
                Level::Info,
                r"lease 7 of m\xff of p\u{a} was taken back by ann: me\u{d} had it for 1.500s: why\u{a}".into(),
            ),
            (
                Notice::LeaseEnded {
                    pool: pool(),
                    member: member(),
                    lease: 7,
                    held: span,
                    holder: "me".into(),
                    ending: Ending::Gone,
                    by: String::new(),
                    note: b""[..].into(),
                },
                Level::Info,
                r"lease 7 of m\xff of p\u{a} ended with its connection: me had it for 1.500s".into(),
            ),
            (
                Notice::Held { pool: pool(), member: member(), span, note: b""[..].into(), by: "ann\r".into() },
                Level::Info,
                r"ann\u{d} holds m\xff of p\u{a} for 1.500s".into(),
            ),
            (
                Notice::Released { pool: pool(), member: member(), release: "repaired", by: "ann".into() },
                Level::Info,
                r"m\xff of p\u{a} is repaired by ann".into(),
            ),
            (
                Notice::Unclean { pool: pool(), member: member(), why: "it\r".into(), by: "x".into() },
                Level::Warn,
                r"m\xff of p\u{a} is not clean: it\u{d}, says x".into(),
            ),
            (
                Notice::NotDeclared { pool: pool(), member: Some(member()), why: Refusal::MemberExists },
                Level::Warn,
                r"the fixed member m\xff of p\u{a} is in the configuration file and cannot be added now: ".to_string()
                    + "another pool has a fixed member of this name; it is tried again each second",
            ),
            (
                Notice::NotDeclared { pool: pool(), member: None, why: Refusal::TooMany },
                Level::Warn,
                r"the pool p\u{a} is in the configuration file and cannot be added now: there is no room for more"
                    .into(),
            ),
        ] {
            assert_eq!((kind_of(&notice).1, text_of(&notice)), (level, text));
        }
    }
}
