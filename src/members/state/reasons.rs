//! Reasons for which members are kept out, for operators.

use super::{Beside, Member, MemberId, Phase, State};
use poolcounter_core::{Span, Time};
use poolcounter_protocol::members::wire::NO_CLEANER;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Most bytes of an operator's note that are kept.
pub(super) const LONGEST_NOTE: usize = 200;

/// Reason why a member is kept out, or will be when it becomes free.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Reason {
    pub why: Cow<'static, [u8]>,
    /// Name or address of the peer that caused it; empty without one.
    pub by: Box<[u8]>,
}

impl Reason {
    pub fn new(why: impl Into<Cow<'static, str>>, by: String) -> Self {
        let why = match why.into() {
            Cow::Borrowed(why) => why.as_bytes().into(),
            Cow::Owned(why) => why.into_bytes().into(),
        };
        Reason { why, by: by.into_bytes().into() }
    }

    /// Returns a reason with the text of a peer behind it.
    pub fn said(why: &str, text: &[u8]) -> String {
        match &text[..text.len().min(LONGEST_NOTE)] {
            [] => why.into(),
            text => format!("{why}: {}", String::from_utf8_lossy(text)),
        }
    }

    /// Returns the reason of a member whose holder may come back after a restart.
    pub fn awaits(holder: &[u8]) -> Self {
        Reason { why: [b"awaits ", holder].concat().into(), by: Box::default() }
    }

    /// Returns the reason of an operator's hold.
    pub fn of_hold(note: &[u8], by: String) -> Self {
        match &note[..note.len().min(LONGEST_NOTE)] {
            [] => Reason::new(reason_of(Phase::Held), by),
            note => Reason { why: note.to_vec().into(), ..Reason::new("", by) },
        }
    }
}

/// Returns the reason that follows from a phase alone.
pub(super) fn reason_of(kind: Phase) -> &'static str {
    match kind {
        Phase::Quarantined => "failed",
        Phase::Held => "an operator holds it",
        Phase::Delayed => "lost",
        _ => "its provider is lost",
    }
}

/// Reason why a member is not handed out, though it is not in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptOut<'a> {
    /// Reason, in words.
    pub why: &'a [u8],
    /// Name or address of the peer that caused it; empty if unknown.
    pub by: &'a [u8],
    /// Time since then.
    pub since: Span,
}

impl State {
    /// Returns why a member is kept out, or will be when it is returned.
    pub(super) fn kept_out(&self, id: MemberId, now: Time) -> Option<KeptOut<'_>> {
        let Member { phase: kind, since, owner, pool, .. } = self.member(id);
        let lost = owner.filter(|_| *kind == Phase::Orphaned);
        let lost = lost.and_then(|agent| self.agents.get(agent).lost.as_deref());
        let Beside { hold, reason, .. } = self.members.beside(id);
        let hold = hold.as_ref().filter(|_| *kind == Phase::InUse).map(|hold| (&hold.since, &hold.reason));
        let reason = reason.as_ref().map(|(since, reason)| (since, reason));
        if let Some((since, Reason { why, by })) = reason.or(hold) {
            return Some(KeptOut { why, by, since: now.since(*since) });
        }
        let (why, by, since) = match lost {
            Some((at, address)) => (reason_of(*kind), address.as_bytes(), since.max(at)),
            None if *kind == Phase::Unclean && !self.agents.has_any(*pool) => (NO_CLEANER, &b""[..], since),
            None if Phase::KEPT_OUT.contains(kind) => (reason_of(*kind), &b""[..], since),
            None => return None,
        };
        Some(KeptOut { why: why.as_bytes(), by, since: now.since(*since) })
    }
}
