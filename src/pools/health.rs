//! Conditions of the pools: keys that refuse requests, locks that are held for long, limits that shed.

use super::PoolsService;
use super::report::KEYS;
use super::state::{BusyKey, OverdueLock, PoolsState};
use poolcounter_core::{Count, Span, Time};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_service::health::{Growth, grouped, in_words, name_of, per_second, quoted, rate};
use poolcounter_service::report::{Condition, ConditionInfo, Look, conditions};
use std::collections::BTreeMap;

/// Most locks that one look examines.
const MOST_LOCKS: usize = 64;
/// Time over which refusals are counted.
const RECENT: Span = Span::from_secs(10);
/// Refusals of a key in a second from which the key is named.
const REFUSALS: f64 = 1.0;
/// Factor from which refusals of all keys together are worth a condition.
const ALL_KEYS: f64 = 10.0;

conditions! {
    pub(super) static CONDITIONS;
    FLOODS = critical "floods", "A key refuses more than warn_refusals requests in a second.";
    BLOCKED = critical "blocked", "A lock is held for longer than warn_hold, and a request has waited for it as long.";
    REFUSES = warning "refuses", "A key refuses more than one request in a second, or all keys together more than ten.";
    OVERDUE = warning "overdue", "A lock is held for longer than warn_hold.";
    SHEDS = warning "sheds",
        "A ceiling has refused requests in the last minute because those before them waited for too long.";
}

impl PoolsService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let state = &self.state;
        let shed = state.ceilings().iter().map(|it| Count::from(it.shed)).sum::<Count>().get();
        let counts = [state.count_of(Stat::TotalAcquired), state.refusals(), shed];
        let ([granted, refused, shed], within) = self.minute.growth(look.now, counts);
        self.note_refusals(look);
        self.note_overdue(look);
        if shed > 0 {
            let most = self.state.ceilings().iter().max_by_key(|it| it.shed);
            let most = most.map_or(String::new(), |it| format!(", most so far of {}", name_of(&it.ceiling.pattern)));
            let minute = in_words(within.max(Span::from_secs(1)));
            let sentence = format!("ceilings shed {} requests in the last {minute}{most}", grouped(shed));
            let condition = Condition::of_service(&SHEDS, "/locks", sentence);
            look.note(condition.helped_by(Some("stats KEYS 5".into())));
        }
        let state = &self.state;
        let refused = if refused == 0 { "nothing".into() } else { per_second(refused, within) };
        let [held, waiting] = [state.working(), state.waiting()].map(grouped);
        look.standing =
            format!("{} granted, {held} held, {waiting} waiting, {refused} refused", per_second(granted, within));
        look.is_moving = state.working() > 0 && state.settings.warn_hold < Span::FOREVER;
    }

    fn note_refusals(&mut self, look: &mut Look<'_>) {
        self.refusals.update(&self.state, look.now);
        let limit = f64::from(self.state.settings.warn_refusals);
        let mut named = false;
        for (key, of) in &self.refusals.keys {
            let rate = rate(of.recent.0, of.recent.1);
            if rate > REFUSALS {
                named = true;
                let (info, limit) = if rate > limit { (&FLOODS, limit) } else { (&REFUSES, REFUSALS) };
                look.note(refuses(info, key, of.recent, self.state.busy_key(key)).measured(rate, limit));
            }
        }
        let (refused, within) = self.refusals.of_all;
        let most = self.refusals.keys.iter().max_by_key(|(_, of)| of.recent.0);
        if let Some((key, _)) = most.filter(|_| !named && rate(refused, within) > ALL_KEYS * REFUSALS) {
            let (keys, key) = (grouped(self.refusals.keys.len() as u64), name_of(key));
            let sentence = format!("{} refused for {keys} keys, most for {key}", per_second(refused, within));
            let condition = Condition::of_service(&REFUSES, "/locks", sentence);
            look.note(condition.measured(rate(refused, within), ALL_KEYS * REFUSALS));
        }
    }

    fn note_overdue(&self, look: &mut Look<'_>) {
        for OverdueLock { claim, waiting, waiting_since } in self.state.overdue_locks(look.now, MOST_LOCKS) {
            let (key, peer) = (name_of(claim.key), look.peers.peer(claim.conn));
            let holder = if claim.who.is_empty() { peer.clone() } else { format!("{} at {peer}", name_of(claim.who)) };
            let mut sentence = format!("{key}: {holder} has held it for {}", in_words(look.now.since(claim.since)));
            let longest = look.now.since(waiting_since);
            if waiting > 0 {
                sentence += &format!("; {} waiting, the longest for {}", grouped(waiting.into()), in_words(longest));
            }
            let warn_hold = self.state.settings.warn_hold;
            let (info, lasting) = match waiting > 0 && longest >= warn_hold {
                true => (&BLOCKED, longest),
                false => (&OVERDUE, look.now.since(claim.since)),
            };
            // Words of an administration command are separated by spaces.
            let word = quoted(claim.key).filter(|_| !claim.key.contains(&b' '));
            let release = word.zip(quoted(peer.as_bytes()));
            let condition = Condition::about(info, KEYS, claim.key, sentence)
                .helped_by(release.map(|(key, peer)| format!("admin RELEASE-LOCK {key} {peer}")));
            look.note(condition.lasting(lasting, warn_hold));
        }
    }
}

fn refuses(info: &'static ConditionInfo, key: &[u8], recent: (u64, Span), claims: Option<BusyKey<'_>>) -> Condition {
    let mut sentence = format!("{} refuses {}", name_of(key), per_second(recent.0, recent.1));
    if let Some(BusyKey { working, waiting, .. }) = claims {
        sentence.push_str(&format!(": {} working, {} waiting", grouped(working.into()), grouped(waiting.into())));
    }
    let command = quoted(key).map(|key| format!("holders {key}"));
    Condition::about(info, KEYS, key, sentence).helped_by(command)
}

/// Refusals in the last seconds.
pub(super) struct Refusals {
    /// Keys that have refused requests.
    keys: BTreeMap<Box<[u8]>, KeyRefusals>,
    all: Growth<1>,
    /// Refusals of all keys in the last seconds, and the exact time.
    of_all: (u64, Span),
    looked_at: Time,
}

struct KeyRefusals {
    /// Refusals in the window of the state at the last look; each window begins at zero.
    in_window: u64,
    /// Refusals since the key has been here.
    total: u64,
    growth: Growth<1>,
    /// Refusals in the last seconds, and the exact time.
    recent: (u64, Span),
    seen: Time,
}

impl Default for Refusals {
    fn default() -> Self {
        let (keys, all) = (BTreeMap::new(), Growth::over(RECENT));
        Refusals { keys, all, of_all: (0, Span::ZERO), looked_at: Time::START }
    }
}

impl Refusals {
    /// Returns the requests of a key that were refused in each of the last seconds, at the last look.
    pub fn rate_of(&self, key: &[u8]) -> f64 {
        self.keys.get(key).map_or(0.0, |of| rate(of.recent.0, of.recent.1))
    }

    fn update(&mut self, state: &PoolsState, now: Time) {
        let ([refused], within) = self.all.growth(now, [state.refusals()]);
        self.of_all = (refused, within);
        let looked_at = std::mem::replace(&mut self.looked_at, now);
        for (begun, key, refusals) in state.refusing(now) {
            let of = self.keys.entry(key.into()).or_insert_with(|| {
                let (growth, recent) = (Growth::from_zero(RECENT, begun.max(looked_at)), (0, Span::ZERO));
                KeyRefusals { in_window: 0, total: 0, growth, recent, seen: now }
            });
            let before = if refusals < of.in_window { 0 } else { of.in_window };
            of.total = of.total.saturating_add(refusals - before);
            (of.in_window, of.seen) = (refusals, now);
        }
        self.keys.retain(|_, of| {
            let ([refusals], within) = of.growth.growth(now, [of.total]);
            of.recent = (refusals, within);
            if of.seen < now {
                of.in_window = 0;
            }
            of.seen == now || refusals > 0
        });
    }
}
