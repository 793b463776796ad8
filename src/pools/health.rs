//! Conditions of the pools: keys that refuse requests, locks that are held for long, limits that shed.

use super::PoolsService;
use super::report::KEYS;
use super::state::{BusyKey, OverdueLock, RefusingKey};
use poolcounter_core::count::Count;
use poolcounter_core::time::Span;
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_service::health::{
    Condition, ConditionInfo, Level, Look, grouped, in_words, name_of, path_of, per_second, quoted, rate,
};

/// Most locks that are looked at.
const MOST_LOCKS: usize = 64;
/// Refusals of a key in a second from which on it is named.
const REFUSALS: f64 = 1.0;
/// How many times as many refusals of all keys together are worth a condition.
const ALL_KEYS: f64 = 10.0;

pub(super) static CONDITIONS: [ConditionInfo; 5] = [
    ConditionInfo {
        name: "floods",
        level: Level::Critical,
        meaning: "A key refuses more than warn_refusals requests in a second.",
        has_label: false,
    },
    ConditionInfo {
        name: "blocked",
        level: Level::Critical,
        meaning: "A lock is held for longer than warn_hold, and a request has waited for it as long.",
        has_label: false,
    },
    ConditionInfo {
        name: "refuses",
        level: Level::Warning,
        meaning: "A key refuses more than one request in a second, or all keys together more than ten.",
        has_label: false,
    },
    ConditionInfo {
        name: "overdue",
        level: Level::Warning,
        meaning: "A lock is held for longer than warn_hold.",
        has_label: false,
    },
    ConditionInfo {
        name: "sheds",
        level: Level::Warning,
        meaning: "A ceiling has refused requests in the last minute because those before them waited for too long.",
        has_label: false,
    },
];

static FLOODS: &ConditionInfo = &CONDITIONS[0];
static BLOCKED: &ConditionInfo = &CONDITIONS[1];
static REFUSES: &ConditionInfo = &CONDITIONS[2];
static OVERDUE: &ConditionInfo = &CONDITIONS[3];
static SHEDS: &ConditionInfo = &CONDITIONS[4];

impl PoolsService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let state = &self.state;
        let shed = state
            .ceilings()
            .iter()
            .filter(|ceiling| !ceiling.is_shadow())
            .map(|it| Count::from(it.shed))
            .sum::<Count>()
            .get();
        let counts = [state.count_of(Stat::TotalAcquired), state.refusals(), shed];
        let ([granted, refused, shed], within) = self.minute.growth(look.now, counts);
        self.note_refusals(refused, within, look);
        self.note_overdue(look);
        if shed > 0 {
            let sentence = format!("ceilings shed {}", per_second(shed, within));
            look.note(Condition { sentence, ..about_all(SHEDS, 0) });
        }
        let state = &self.state;
        let refused = if refused == 0 { "nothing".into() } else { per_second(refused, within) };
        let [held, waiting] = [state.working(), state.waiting()].map(grouped);
        look.standing =
            format!("{} granted, {held} held, {waiting} waiting, {refused} refused", per_second(granted, within));
        look.is_moving = state.working() > 0 && state.warn_hold() < Span::FOREVER;
    }

    fn note_refusals(&self, refused: u64, within: Span, look: &mut Look<'_>) {
        let Some((open, keys)) = self.state.refusing(look.now) else { return };
        let (mut named, mut most) = (false, None);
        let (mut keys_refusing, limit) = (0_usize, f64::from(self.state.warn_refusals()));
        for key in keys {
            keys_refusing += 1;
            if most.as_ref().is_none_or(|(refusals, _)| key.refusals > *refusals) {
                most = Some((key.refusals, key.key));
            }
            let rate = rate(key.refusals, open);
            if rate > REFUSALS {
                named = true;
                look.note(refuses(if rate > limit { FLOODS } else { REFUSES }, &key, open));
            }
        }
        if let Some((_, key)) = most.filter(|_| !named && rate(refused, within) > ALL_KEYS * REFUSALS) {
            let refused = per_second(refused, within);
            let sentence =
                format!("{refused} refused for {} keys, most for {}", grouped(keys_refusing as u64), name_of(key));
            look.note(Condition { sentence, ..about_all(REFUSES, 0) });
        }
    }

    fn note_overdue(&self, look: &mut Look<'_>) {
        for OverdueLock { claim, waiting, waiting_since } in self.state.overdue_locks(look.now, MOST_LOCKS) {
            let (key, peer) = (name_of(claim.key), look.peers.peer(claim.conn));
            let holder = if claim.who.is_empty() { peer.clone() } else { format!("{} at {peer}", name_of(claim.who)) };
            let mut sentence = format!("{key}: {holder} has held it for {}", in_words(look.now.since(claim.since)));
            let longest = look.now.since(waiting_since);
            if waiting > 0 {
                sentence.push_str(&format!(
                    "; {} waiting, the longest for {}",
                    grouped(waiting.into()),
                    in_words(longest)
                ));
            }
            let info = if waiting > 0 && longest >= self.state.warn_hold() { BLOCKED } else { OVERDUE };
            // Keys of operators' lines have no space, and are quoted for a shell.
            let command = format!("admin RELEASE-LOCK {} {peer}", quoted(&key));
            let (subject, link) = (claim.key.to_vec(), path_of(KEYS, claim.key));
            look.note(Condition { info, subject, sentence, link, command, waiting: waiting.into() });
        }
    }
}

fn about_all(info: &'static ConditionInfo, waiting: u64) -> Condition {
    let link = String::from("/");
    Condition { info, subject: Vec::new(), sentence: String::new(), link, command: String::new(), waiting }
}

fn refuses(info: &'static ConditionInfo, of: &RefusingKey<'_>, open: Span) -> Condition {
    let key = name_of(of.key);
    let mut sentence = format!("{key} refuses {}", per_second(of.refusals, open));
    let waiting = of.claims.map_or(0, |claims| claims.waiting);
    if let Some(BusyKey { working, waiting, .. }) = of.claims {
        sentence.push_str(&format!(": {} working, {} waiting", grouped(working.into()), grouped(waiting.into())));
    }
    let (subject, link) = (of.key.to_vec(), path_of(KEYS, of.key));
    Condition { info, subject, sentence, link, command: format!("holders {}", quoted(&key)), waiting: waiting.into() }
}
