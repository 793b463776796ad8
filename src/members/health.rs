//! Conditions of the pools of members: nothing usable, members kept out or held for long, takes that wait for long.

use super::Members;
use super::state::PoolHealth;
use super::stats::Levels;
use poolcounter_core::time::Span;
use poolcounter_core::top_keys;
use poolcounter_service::health::{Condition, ConditionInfo, Level, Look, grouped, in_words, name_of, path_of, quoted};

/// Pools, members and waiters that are looked at at a time.
const MOST_AT_ONCE: usize = 2048;

pub(super) static CONDITIONS: [ConditionInfo; 6] = [
    ConditionInfo {
        name: "empty",
        level: Level::Critical,
        meaning: "Takes wait, and every member is kept out or held for longer than the pool's warn_hold.",
        has_label: true,
    },
    ConditionInfo {
        name: "half out",
        level: Level::Critical,
        meaning: "Takes wait, and at least half of the pool's max is kept out.",
        has_label: true,
    },
    ConditionInfo {
        name: "no start",
        level: Level::Critical,
        meaning: "Takes wait, the pool has no member, and no provider can start one.",
        has_label: true,
    },
    ConditionInfo {
        name: "out",
        level: Level::Warning,
        meaning: "A member is in quarantine, held back, or orphaned.",
        has_label: true,
    },
    ConditionInfo {
        name: "held long",
        level: Level::Warning,
        meaning: "A member is held for longer than the pool's warn_hold.",
        has_label: true,
    },
    ConditionInfo {
        name: "waits long",
        level: Level::Warning,
        meaning: "A take has waited for longer than members.warn_wait.",
        has_label: true,
    },
];

static EMPTY: &ConditionInfo = &CONDITIONS[0];
static HALF_OUT: &ConditionInfo = &CONDITIONS[1];
static NO_START: &ConditionInfo = &CONDITIONS[2];
static OUT: &ConditionInfo = &CONDITIONS[3];
static HELD_LONG: &ConditionInfo = &CONDITIONS[4];
static WAITS_LONG: &ConditionInfo = &CONDITIONS[5];

impl Members {
    /// Notes the conditions that hold, of some pools at a time where there are many.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let (after, peers) = (self.health.begin_part(), look.peers);
        let (pools, next) = self.state.health_after(after.as_deref(), MOST_AT_ONCE, look.now, |conn| peers.peer(conn));
        for pool in &pools {
            conditions_of(pool, self.warn_wait).into_iter().for_each(|condition| self.health.found(condition));
        }
        self.health.end_part(next, look);
        let levels = self.levels(look.traffic);
        let [pools, in_use, waiting] = [Levels::Pools, Levels::InUse, Levels::Waiting].map(|of| levels.of(of));
        let members = levels.of(Levels::Members);
        look.standing = format!(
            "{} pools: {} of {} members in use, {} waiting",
            grouped(pools),
            grouped(in_use),
            grouped(members),
            grouped(waiting)
        );
        look.is_moving = in_use.max(waiting) > 0;
    }
}

fn conditions_of(pool: &PoolHealth<'_>, warn_wait: Span) -> Vec<Condition> {
    let of = &pool.row.figures;
    let (name, waits) = (name_of(pool.row.name), of.queued > 0);
    let not_long = u64::from(of.in_use).saturating_sub(pool.held_long.len() as u64);
    let usable =
        u64::from(of.free + of.starting + of.cleaning) + not_long + u64::from(pool.has_room && pool.is_provided);
    let is_empty = of.quarantined as usize + pool.held_long.len() > 0 && usable == 0;
    let waiting = format!("{} waiting, the longest for {}", grouped(of.queued.into()), in_words(pool.longest_wait));
    let mut all = Vec::new();
    let mut note = |info, sentence, command| {
        let (subject, link) = (top_keys::truncated(pool.row.name).to_vec(), path_of("/members/pool/", pool.row.name));
        all.push(Condition { info, subject, sentence, link, command, waiting: of.queued.into() });
    };
    let word = quoted(&name);
    let list = format!("members {word}");
    let held = pool.held_long.first().map(|(member, span)| {
        format!("{} held for {} by {}", name_of(member.name), in_words(*span), name_of(member.holder.as_bytes()))
    });
    let out = format!("{} of {} kept out", of.quarantined, of.max);
    if waits && is_empty {
        let held = held.as_ref().map_or(String::new(), |held| format!(", {held}"));
        note(EMPTY, format!("{name} has no usable member: {out}{held}; {waiting}"), list.clone());
    } else if waits && of.quarantined > 0 && u64::from(of.quarantined) * 2 >= u64::from(of.max) {
        note(HALF_OUT, format!("{name}: {out}; {waiting}"), list.clone());
    } else if waits && of.in_use + of.free + of.starting + of.cleaning + of.stopping == 0 && !pool.is_provided {
        note(NO_START, format!("{name} has no member and no provider; {waiting}"), list.clone());
    } else if warn_wait > Span::ZERO && pool.longest_wait > warn_wait {
        let used = format!("{} of {} in use", of.in_use, of.max);
        note(WAITS_LONG, format!("{name}: {waiting}; {used}"), format!("members {word} --waiting"));
    }
    if let Some(member) = pool.kept_out.first() {
        let (first, state) = (name_of(member.name), member.state);
        let more = match of.quarantined - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let sentence = format!("{name}: {first} {state} for {}{more}", in_words(member.idle));
        note(OUT, sentence, format!("members repair {word} {}", quoted(&first)));
    }
    if let Some(held) = held {
        note(HELD_LONG, format!("{name}: {held}"), list);
    }
    all
}
