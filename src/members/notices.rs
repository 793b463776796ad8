//! What the log says of the members. Names and texts are escaped, so that a line of the log is one line, whatever a peer sent.

use super::state::{Notice, Refusal};
use crate::text::escaped;
use crate::time::Span;
use log::{Level, log};

/// How many bytes of a text that a peer wrote for people are logged.
const LONGEST_TEXT: usize = 200;

/// Logs what the operator is to know.
pub fn log(notice: &Notice) {
    let (level, text) = describe(notice);
    log!(level, "{text}");
}

fn describe(notice: &Notice) -> (Level, String) {
    match notice {
        Notice::LongHold { pool, member, lease, held, holder } => {
            let (pool, member, holder) = (escaped(pool), escaped(member), escaped(holder.as_bytes()));
            let held = seconds(*held);
            (
                Level::Warn,
                format!("a member is held for long: {holder} has held {member} of {pool} for {held}, lease {lease}"),
            )
        }
        Notice::StartFailed { pool, text } => {
            (Level::Warn, format!("a start failed in {}{}", escaped(pool), said(text)))
        }
        Notice::TakenBack { pool, member, lease, note } => {
            let (pool, member) = (escaped(pool), escaped(member));
            (Level::Info, format!("an operator took back {member} of {pool}, lease {lease}{}", said(note)))
        }
        Notice::Held { pool, member, span, note } => {
            let (pool, member) = (escaped(pool), escaped(member));
            (Level::Info, format!("an operator holds {member} of {pool} for {}{}", seconds(*span), said(note)))
        }
        Notice::NotDeclared { pool, member, why } => {
            let what = match member {
                Some(member) => format!("the fixed member {} of {}", escaped(member), escaped(pool)),
                None => format!("the pool {}", escaped(pool)),
            };
            let why = match why {
                Refusal::PoolFull => "the pool has as many members as it may have",
                Refusal::MemberExists => "a provider has brought a member of this name",
                _ => "there is no room for more",
            };
            (Level::Warn, format!("{what} is in the configuration file and cannot be added now: {why}"))
        }
    }
}

/// Returns what a peer says, if it says anything.
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
                Notice::StartFailed { pool: pool(), text: long.into() },
                Level::Warn,
                format!(r"a start failed in p\u{{a}}: {}", "x".repeat(200)),
            ),
            (
                Notice::StartFailed { pool: pool(), text: b""[..].into() },
                Level::Warn,
                r"a start failed in p\u{a}".into(),
            ),
            (
                Notice::TakenBack { pool: pool(), member: member(), lease: 7, note: b"why\n"[..].into() },
                Level::Info,
                r"an operator took back m\xff of p\u{a}, lease 7: why\u{a}".into(),
            ),
            (
                Notice::Held { pool: pool(), member: member(), span, note: b""[..].into() },
                Level::Info,
                r"an operator holds m\xff of p\u{a} for 1.500s".into(),
            ),
            (
                Notice::NotDeclared { pool: pool(), member: Some(member()), why: Refusal::MemberExists },
                Level::Warn,
                r"the fixed member m\xff of p\u{a} is in the configuration file and cannot be added now: ".to_string()
                    + "a provider has brought a member of this name",
            ),
            (
                Notice::NotDeclared { pool: pool(), member: None, why: Refusal::TooMany },
                Level::Warn,
                r"the pool p\u{a} is in the configuration file and cannot be added now: there is no room for more"
                    .into(),
            ),
        ] {
            assert_eq!(describe(&notice), (level, text));
        }
    }
}
