//! Conditions of the pools of members: nothing usable, members kept out or held for long, takes that wait for long.

use super::Members;
use super::state::PoolHealth;
use poolcounter_core::time::Span;
use poolcounter_service::health::{Condition, ConditionInfo, Look, grouped, in_words, name_of, quoted};

/// Pools, members and waiters that are looked at at a time.
const MOST_AT_ONCE: usize = 2048;

static EMPTY: ConditionInfo = ConditionInfo::critical(
    "empty",
    "Takes wait, and every member is kept out or held for longer than the pool's warn_hold.",
)
.labelled();
static HALF_OUT: ConditionInfo =
    ConditionInfo::critical("half out", "Takes wait, and at least half of the pool's max is kept out.").labelled();
static NO_START: ConditionInfo =
    ConditionInfo::critical("no start", "Takes wait, the pool has no member, and no provider can start one.")
        .labelled();
static OUT: ConditionInfo =
    ConditionInfo::warning("out", "A member is in quarantine, held back, or orphaned.").labelled();
static HELD_LONG: ConditionInfo =
    ConditionInfo::warning("held long", "A member is held for longer than the pool's warn_hold.").labelled();
static WAITS_LONG: ConditionInfo =
    ConditionInfo::warning("waits long", "A take has waited for longer than members.warn_wait.").labelled();

pub(super) static CONDITIONS: &[&ConditionInfo] = &[&EMPTY, &HALF_OUT, &NO_START, &OUT, &HELD_LONG, &WAITS_LONG];

impl Members {
    /// Notes the conditions that hold, of some pools at a time where there are many.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let (after, peers) = (self.health.begin_part(), look.peers);
        let (pools, next) = self.state.health_after(after.as_deref(), MOST_AT_ONCE, look.now, |conn| peers.peer(conn));
        for pool in &pools {
            conditions_of(pool, self.warn_wait).into_iter().for_each(|condition| self.health.found(condition));
        }
        self.health.end_part(next, look);
        let ((members, pools), in_use, waiting) = (self.state.len(), self.state.in_use(), self.state.waiting());
        let [pools, in_use, members, waiting] = [pools, in_use, members, waiting].map(|of| grouped(of as u64));
        look.standing = format!("{pools} pools: {in_use} of {members} members in use, {waiting} waiting");
        look.is_moving = self.state.in_use().max(self.state.waiting()) > 0;
    }
}

fn conditions_of(pool: &PoolHealth<'_>, warn_wait: Span) -> Vec<Condition> {
    let of = &pool.row.figures;
    let (name, waits) = (name_of(pool.row.name), of.queued > 0);
    let not_long = u64::from(of.in_use).saturating_sub(pool.held_long as u64);
    let usable =
        u64::from(of.free + of.starting + of.cleaning) + not_long + u64::from(pool.has_room && pool.is_provided);
    let is_empty = of.quarantined as usize + pool.held_long > 0 && usable == 0;
    let waiting = format!("{} waiting, the longest for {}", grouped(of.queued.into()), in_words(pool.longest_wait));
    let mut all = Vec::new();
    let word = quoted(pool.row.name);
    let command = |behind: &str| word.as_ref().map(|word| format!("members {word}{behind}"));
    let mut note = |info, sentence, command| {
        let condition = Condition::about(info, "/members/pool/", pool.row.name, sentence).helped_by(command);
        all.push(Condition { waiting: of.queued.into(), ..condition });
    };
    let held = pool.longest_held.as_ref().map(|(member, span)| {
        format!("{} held for {} by {}", name_of(member.name), in_words(*span), name_of(member.holder.as_bytes()))
    });
    let out = format!("{} of {} kept out", of.quarantined, of.max);
    if waits && is_empty {
        let held = held.as_ref().map_or(String::new(), |held| format!(", {held}"));
        note(&EMPTY, format!("{name} has no usable member: {out}{held}; {waiting}"), command(""));
    } else if waits && of.quarantined > 0 && u64::from(of.quarantined) * 2 >= u64::from(of.max) {
        note(&HALF_OUT, format!("{name}: {out}; {waiting}"), command(""));
    } else if waits && of.in_use + of.free + of.starting + of.cleaning + of.stopping == 0 && !pool.is_provided {
        note(&NO_START, format!("{name} has no member and no provider; {waiting}"), command(""));
    } else if warn_wait > Span::ZERO && pool.longest_wait > warn_wait {
        let used = format!("{} of {} in use", of.in_use, of.max);
        note(&WAITS_LONG, format!("{name}: {waiting}; {used}"), command(" --waiting"));
    }
    if let Some(member) = &pool.last_out {
        let (first, state) = (name_of(member.name), member.state);
        let since = member.kept_out.map_or(member.idle, |out| out.since);
        let more = match of.quarantined - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let sentence = format!("{name}: {first} {state} for {}{more}", in_words(since));
        let words = word.as_ref().zip(quoted(member.name));
        note(&OUT, sentence, words.map(|(pool, member)| format!("members repair {pool} {member}")));
    }
    if let Some(held) = held {
        note(&HELD_LONG, format!("{name}: {held}"), command(""));
    }
    all
}
