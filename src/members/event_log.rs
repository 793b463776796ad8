//! Log of the members. Names and texts are escaped, so that a notice is one line, whatever a peer sent. The lines of
//! each kind in a minute are limited.

use super::state::{News, Notice, Refusal};
use log::{Level, log};
use poolcounter_core::text::escaped;
use poolcounter_core::{LogLimit, Span, Time};

/// Number of kinds of notices.
const KINDS: usize = 8;
/// Most lines of a kind in a [`WINDOW`].
const MOST_LINES: u32 = 10;
const WINDOW: Span = Span::from_secs(60);

/// Longest logged text of a peer, in bytes.
const LONGEST_TEXT: usize = 200;

/// The lines of each kind in the present window.
pub struct EventLog([LogLimit; KINDS]);

impl Default for EventLog {
    fn default() -> Self {
        EventLog([const { LogLimit::new(MOST_LINES, WINDOW) }; KINDS])
    }
}

impl EventLog {
    /// Logs a notice, or counts it if there were many of its kind lately.
    pub fn log(&mut self, notice: &Notice, now: Time) {
        let (kind, level) = kind_of(&notice.news);
        if let Some(more) = self.0[kind].due(now) {
            log!(level, "{}{more}", text_of(notice));
        }
    }
}

/// Returns the number of a notice's kind, and the level of its lines.
fn kind_of(news: &News) -> (usize, Level) {
    match news {
        News::LongHold { .. } => (0, Level::Warn),
        News::StartFailed(_) => (1, Level::Warn),
        News::LeaseEnded { .. } => (2, Level::Info),
        News::Held { .. } => (3, Level::Info),
        News::NotDeclared(_) => (4, Level::Warn),
        News::Quarantined(_) => (5, Level::Warn),
        News::Released(_) => (6, Level::Info),
        News::Unclean(_) => (7, Level::Warn),
    }
}

fn text_of(Notice { pool, member, by, news }: &Notice) -> String {
    let by_text = |before: &str| match &**by {
        "" => String::new(),
        by => format!("{before}{}", escaped(by.as_bytes())),
    };
    let (pool, who) = (escaped(pool), escaped(by.as_bytes()));
    let of = member.as_ref().map_or_else(String::new, |member| format!("{} of {pool}", escaped(member)));
    match news {
        News::LongHold { lease, held } => {
            format!("a member is held for long: {who} has held {of} for {}, lease {lease}", seconds(*held))
        }
        News::StartFailed(text) => format!("a start failed in {pool} at {}", failure_of(by, text)),
        News::Quarantined(why) => format!("{of} is in quarantine: {}{}", escaped(why), by_text(", by=")),
        News::LeaseEnded { lease, held, holder, ending, note } => {
            let (how, by, holder) = (ending.words(), by_text(" by "), escaped(holder.as_bytes()));
            format!("lease {lease} of {of} {how}{by}: {holder} had it for {}{}", seconds(*held), said(note))
        }
        News::Held { span, note } => format!("{who} holds {of} for {}{}", seconds(*span), said(note)),
        News::Released(release) => format!("{of} is {release} by {who}"),
        News::Unclean(why) => format!("{of} is not clean: {}{}", escaped(why.as_bytes()), by_text(", says ")),
        News::NotDeclared(why) => {
            let (what, then) = match member {
                Some(_) => (format!("the fixed member {of}"), "; it is tried again each second"),
                None => (format!("the pool {pool}"), ""),
            };
            let why = match why {
                Refusal::PoolFull => "the pool has as many members as it may have",
                Refusal::MemberExists => "another pool has a fixed member of this name",
                Refusal::BadSyntax(why) => why,
                _ => "there is no room for more",
            };
            format!("{what} is in the configuration file and cannot be added now: {why}{then}")
        }
    }
}

/// Returns the address of a provider and the reason that it gave for a failed start.
pub fn failure_of(provider: &str, text: &[u8]) -> String {
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

    fn about(member: Option<&[u8]>, by: &str, news: News) -> Notice {
        Notice { pool: b"p\n"[..].into(), member: member.map(Into::into), by: by.into(), news }
    }

    #[test]
    fn each_kind_has_ten_lines_in_a_minute() {
        let (held, text, holder) = (Span::ZERO, || b""[..].into(), String::new);
        let all = [
            News::LongHold { lease: 7, held },
            News::StartFailed(text()),
            News::LeaseEnded { lease: 7, held, holder: holder(), ending: Ending::Gone, note: text() },
            News::Held { span: held, note: text() },
            News::NotDeclared(Refusal::TooMany),
            News::Quarantined(b"x"[..].into()),
            News::Released("freed"),
            News::Unclean("x".into()),
        ];
        let (mut log, now) = (EventLog::default(), Time::from_micros(1));
        for (at, lines) in [(now, 10), (now + WINDOW, 10), (now + WINDOW, 0)] {
            for news in &all {
                let due = (0..11).filter(|_| log.0[kind_of(news).0].due(at).is_some()).count();
                assert_eq!(due, lines, "{news:?}");
            }
        }
    }

    #[test]
    fn a_notice_is_one_line() {
        let (held, long) = (Span::from_micros(1_500_999), "x".repeat(1_000).into_bytes());
        let ended = |holder: &str, ending, note: &[u8]| {
            let (holder, note) = (holder.into(), note.into());
            News::LeaseEnded { lease: 7, held, holder, ending, note }
        };
        let taken_back = ended("me\r", Ending::Lost(Lost::TakenBack), b"why\n");
        for (by, news, level, text) in [
            (
                "me\r",
                News::LongHold { lease: 7, held },
                Level::Warn,
                r"a member is held for long: me\u{d} has held m\xff of p\u{a} for 1.500s, lease 7".to_string(),
            ),
            (
                "10.0.0.1:5",
                News::StartFailed(long.into()),
                Level::Warn,
                format!(r"a start failed in p\u{{a}} at 10.0.0.1:5: {}", "x".repeat(200)),
            ),
            ("", News::StartFailed(b""[..].into()), Level::Warn, r"a start failed in p\u{a} at a lost provider".into()),
            (
                "me\r",
                News::Quarantined(b"returned as failed"[..].into()),
                Level::Warn,
                r"m\xff of p\u{a} is in quarantine: returned as failed, by=me\u{d}".into(),
            ),
            (
                "ann",
                taken_back,
                Level::Info,
                r"lease 7 of m\xff of p\u{a} was taken back by ann: me\u{d} had it for 1.500s: why\u{a}".into(),
            ),
            (
                "",
                ended("me", Ending::Gone, b""),
                Level::Info,
                r"lease 7 of m\xff of p\u{a} ended with its connection: me had it for 1.500s".into(),
            ),
            (
                "ann\r",
                News::Held { span: held, note: b""[..].into() },
                Level::Info,
                r"ann\u{d} holds m\xff of p\u{a} for 1.500s".into(),
            ),
            ("ann", News::Released("repaired"), Level::Info, r"m\xff of p\u{a} is repaired by ann".into()),
            ("x", News::Unclean("it\r".into()), Level::Warn, r"m\xff of p\u{a} is not clean: it\u{d}, says x".into()),
            (
                "",
                News::NotDeclared(Refusal::MemberExists),
                Level::Warn,
                r"the fixed member m\xff of p\u{a} is in the configuration file and cannot be added now: ".to_string()
                    + "another pool has a fixed member of this name; it is tried again each second",
            ),
        ] {
            let notice = about(Some(b"m\xff"), by, news);
            assert_eq!((kind_of(&notice.news).1, text_of(&notice)), (level, text));
        }
        let of_pool = about(None, "", News::NotDeclared(Refusal::TooMany));
        let text = r"the pool p\u{a} is in the configuration file and cannot be added now: there is no room for more";
        assert_eq!(text_of(&of_pool), text);
    }
}
