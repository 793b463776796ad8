//! Conditions of the pools: keys that refuse requests, locks that are held for long, limits that shed.

use super::PoolsService;
use super::report::KEYS;
use super::state::{BusyKey, OverdueLock, RefusingKey};
use poolcounter_core::count::Count;
use poolcounter_core::time::Span;
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_service::health::{
    Condition, ConditionInfo, Look, grouped, in_words, name_of, per_second, quoted, rate,
};

/// Most locks that one look examines.
const MOST_LOCKS: usize = 64;
/// Refusals of a key in a second from which the key is named.
const REFUSALS: f64 = 1.0;
/// Factor from which refusals of all keys together are worth a condition.
const ALL_KEYS: f64 = 10.0;

static FLOODS: ConditionInfo =
    ConditionInfo::critical("floods", "A key refuses more than warn_refusals requests in a second.");
static BLOCKED: ConditionInfo = ConditionInfo::critical(
    "blocked",
    "A lock is held for longer than warn_hold, and a request has waited for it as long.",
);
static REFUSES: ConditionInfo = ConditionInfo::warning(
    "refuses",
    "A key refuses more than one request in a second, or all keys together more than ten.",
);
static OVERDUE: ConditionInfo = ConditionInfo::warning("overdue", "A lock is held for longer than warn_hold.");
static SHEDS: ConditionInfo = ConditionInfo::warning(
    "sheds",
    "A ceiling has refused requests in the last minute because those before them waited for too long.",
);

pub(super) static CONDITIONS: &[&ConditionInfo] = &[&FLOODS, &BLOCKED, &REFUSES, &OVERDUE, &SHEDS];

impl PoolsService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let state = &self.state;
        let shed = state.ceilings().iter().map(|it| Count::from(it.shed)).sum::<Count>().get();
        let counts = [state.count_of(Stat::TotalAcquired), state.refusals(), shed];
        let ([granted, refused, shed], within) = self.minute.growth(look.now, counts);
        self.note_refusals(refused, within, look);
        self.note_overdue(look);
        if shed > 0 {
            let sentence = format!("ceilings shed {}", per_second(shed, within));
            look.note(Condition::of_service(&SHEDS, "/locks", sentence));
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
                look.note(refuses(if rate > limit { &FLOODS } else { &REFUSES }, &key, open));
            }
        }
        if let Some((_, key)) = most.filter(|_| !named && rate(refused, within) > ALL_KEYS * REFUSALS) {
            let refused = per_second(refused, within);
            let sentence =
                format!("{refused} refused for {} keys, most for {}", grouped(keys_refusing as u64), name_of(key));
            look.note(Condition::of_service(&REFUSES, "/locks", sentence));
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
            let info = if waiting > 0 && longest >= self.state.warn_hold() { &BLOCKED } else { &OVERDUE };
            // Words of an administration command are separated by spaces.
            let word = quoted(claim.key).filter(|_| !claim.key.contains(&b' '));
            let release = word.zip(quoted(peer.as_bytes()));
            let condition = Condition::about(info, KEYS, claim.key, sentence)
                .helped_by(release.map(|(key, peer)| format!("admin RELEASE-LOCK {key} {peer}")));
            look.note(Condition { waiting: waiting.into(), ..condition });
        }
    }
}

fn refuses(info: &'static ConditionInfo, of: &RefusingKey<'_>, open: Span) -> Condition {
    let key = name_of(of.key);
    let mut sentence = format!("{key} refuses {}", per_second(of.refusals, open));
    let waiting = of.claims.map_or(0, |claims| claims.waiting);
    if let Some(BusyKey { working, waiting, .. }) = of.claims {
        sentence.push_str(&format!(": {} working, {} waiting", grouped(working.into()), grouped(waiting.into())));
    }
    let command = quoted(of.key).map(|key| format!("holders {key}"));
    Condition { waiting: waiting.into(), ..Condition::about(info, KEYS, of.key, sentence).helped_by(command) }
}
