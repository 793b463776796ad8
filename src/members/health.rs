//! Conditions of the pools of members: no usable member, members kept out or held for long, takes that wait for long,
//! starts that fail.

use super::Members;
use super::event_log::failure_of;
use super::state::{PoolHealth, Viewer};
use poolcounter_core::Span;
use poolcounter_service::health::{TOTAL, grouped, in_words, name_of, quoted};
use poolcounter_service::report::{Condition, ConditionInfo, Look, conditions};

/// Time for which a failed start is worth a condition.
const LATELY: Span = Span::from_secs(60);
/// Most pools, members and waiters that one look examines.
const MOST_AT_ONCE: usize = 2048;

conditions! {
    pub(super) static CONDITIONS;
    NOT_KEPT = critical "not kept",
        "The file of the members cannot be written or read: fixed members and tokens are not given out.";
    EMPTY = critical "empty" labelled,
        "Takes wait, and every member is kept out or held for longer than the pool's warn_hold.";
    HALF_OUT = critical "half out" labelled, "Takes wait, and at least half of the pool's max is kept out.";
    NO_START = critical "no start" labelled,
        "Takes wait, the pool has no member, and no provider; or no member is free, and all providers are in backoff after \
         failed starts.";
    NO_CLEANER = critical "no cleaner" labelled,
        "Takes wait, members wait to be cleaned, and no cleaner is connected.";
    OUT = warning "out" labelled, "A member is in quarantine, held back, or orphaned.";
    UNCLEAN = warning "unclean" labelled,
        "Members wait to be cleaned, and no cleaner is connected; or a cleaning takes longer than the pool's clean_timeout.";
    HELD_LONG = warning "held long" labelled, "A member is held for longer than the pool's warn_hold.";
    WAITS_LONG = warning "waits long" labelled, "A take has waited for longer than members.warn_wait.";
    START_FAILED = warning "start failed" labelled, "A start of a member failed in the last minute.";
    LEAVING = warning "leaving" labelled, "The pool is being removed, and members of it are still in use.";
}

impl Members {
    /// Notes the conditions that hold; of many pools, some in each look.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let (after, peers) = (self.health.begin_part(), look.peers);
        let (state, warn_wait, now) = (&self.state, self.warn_wait, look.now);
        let viewer = Viewer { now, peer: &|conn| peers.peer(conn) };
        let (pools, next) = state.health_after(after.as_deref(), MOST_AT_ONCE, viewer);
        for pool in &pools {
            let failure = pool.failure.filter(|(at, ..)| now.since(*at) < LATELY);
            let failure = failure.map(|(at, provider, text)| (now.since(*at), failure_of(provider, text)));
            let mut found = PoolConditions { pool, failure, warn_wait, has_told_out: false, all: Vec::new() };
            found.note_waits();
            found.note_members();
            found.note_rest();
            found.all.into_iter().for_each(|condition| self.health.found(condition));
        }
        self.health.end_part(next, look);
        if let Some(fault) = self.keeping.fault() {
            let sentence = format!("fixed members and tokens are not given out: {fault}");
            look.note(Condition { badness: TOTAL, ..Condition::of_service(&NOT_KEPT, "/members", sentence) });
        }
        let totals @ [_, _, used, waiters] = self.state.totals();
        let [pools, members, in_use, waiting] = totals.map(grouped);
        let noun = if pools == "1" { "pool" } else { "pools" };
        look.standing = format!("{pools} {noun}: {in_use} of {members} members in use, {waiting} waiting");
        look.is_moving = used.max(waiters) > 0;
    }
}

/// Conditions of one pool. Most pools have none, and need no texts.
struct PoolConditions<'a> {
    pool: &'a PoolHealth<'a>,
    /// Time since the last failed start, and its text.
    failure: Option<(Span, String)>,
    warn_wait: Span,
    /// True once a condition has the number of members that are kept out.
    has_told_out: bool,
    all: Vec<Condition>,
}

impl PoolConditions<'_> {
    /// Returns the name of the pool as sentences show it.
    fn name(&self) -> String {
        name_of(self.pool.row.name)
    }

    /// Returns the name of the pool as a word of a command, if it can be typed.
    fn word(&self) -> Option<String> {
        quoted(self.pool.row.name)
    }

    /// Returns the member that is held for longest, in words.
    fn longest(&self) -> Option<String> {
        let (member, span) = self.pool.longest_held.as_ref()?;
        let (name, holder) = (name_of(member.name), name_of(member.holder.as_bytes()));
        Some(format!("{name} held for {} by {holder}", in_words(*span)))
    }

    fn note(&mut self, info: &'static ConditionInfo, sentence: String, command: Option<String>) {
        let condition = Condition::about(info, "/members/pool/", self.pool.row.name, sentence).helped_by(command);
        self.all.push(condition.lasting(self.pool.longest_wait, self.warn_wait));
    }

    /// Notes that members are kept out or held. A repair before the cause is mended brings broken members back.
    fn note_out(&mut self, info: &'static ConditionInfo, sentence: String) {
        let is_broken = self.pool.longest_out.as_ref().is_some_and(|member| member.state == "quarantined");
        let hint = if is_broken { "; mend the cause, then repair" } else { "" };
        self.note(info, sentence + hint, self.repair().or_else(|| self.take_back()));
    }

    /// Notes the first reason that applies for which takes wait.
    fn note_waits(&mut self) {
        let (pool, of) = (self.pool, &self.pool.row.figures);
        let waiting =
            || format!("{} waiting, the longest for {}", grouped(of.queued.into()), in_words(pool.longest_wait));
        let out = || format!("{} of {} kept out", of.quarantined, of.max);
        let (waits, comes) = (of.queued > 0, of.free + of.starting + of.cleaning - pool.unclean - pool.late);
        let not_long = u64::from(of.in_use).saturating_sub(pool.held_long as u64);
        let usable = u64::from(comes) + not_long + u64::from(pool.has_room && pool.is_provided);
        let is_backing_off = pool.has_room && pool.is_provided && !pool.can_start;
        if waits && of.quarantined as usize + pool.held_long > 0 && usable == 0 {
            let held = self.held_long().map_or(String::new(), |held| format!(", {held}"));
            let sentence = format!("{} has no usable member: {}{held}; {}", self.name(), out(), waiting());
            self.note_out(&EMPTY, sentence);
            self.has_told_out = true;
        } else if waits && pool.unclean > 0 {
            let unclean = in_plural(pool.unclean, "member waits for a cleaner", "members wait for a cleaner");
            let sentence = format!("{}: {unclean}, and none is connected; {}", self.name(), waiting());
            self.note(&NO_CLEANER, sentence, self.look(""));
        } else if waits && of.quarantined > 0 && u64::from(of.quarantined) * 2 >= u64::from(of.max) {
            self.note_out(&HALF_OUT, format!("{}: {}; {}", self.name(), out(), waiting()));
            self.has_told_out = true;
        } else if waits && comes + of.in_use + of.stopping == 0 && !pool.is_provided {
            let sentence = format!("{} has no member and no provider; {}", self.name(), waiting());
            self.note(&NO_START, sentence, self.look(""));
        } else if let Some((_, text)) = self.failure.as_ref().filter(|_| waits && is_backing_off && comes == 0) {
            let sentence =
                format!("{} cannot start members: the last start failed at {text}; {}", self.name(), waiting());
            self.note(&NO_START, sentence, self.look(""));
        } else if self.warn_wait > Span::ZERO && pool.longest_wait > self.warn_wait {
            let sentence = format!("{}: {}; {} of {} in use", self.name(), waiting(), of.in_use, of.max);
            self.note(&WAITS_LONG, sentence, self.look(" --waiting"));
        }
    }

    /// Notes members that are kept out, or held for long.
    fn note_members(&mut self) {
        if let Some(member) = self.pool.longest_out.as_ref().filter(|_| !self.has_told_out) {
            let since = member.kept_out.map_or(member.idle, |out| out.since);
            let more = match self.pool.row.figures.quarantined - 1 {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let (name, first, state) = (self.name(), name_of(member.name), member.state);
            self.note_out(&OUT, format!("{name}: {first} {state} for {}{more}", in_words(since)));
        }
        if let Some(held) = self.held_long() {
            self.note(&HELD_LONG, format!("{}: {held}", self.name()), self.take_back());
            let longest = self.pool.longest_held.as_ref().map_or(Span::ZERO, |(_, span)| *span);
            let last = self.all.pop().map(|condition| condition.lasting(longest, self.pool.warn_hold));
            self.all.extend(last);
        }
    }

    /// Notes members that are not cleaned, starts that fail, and the removal of the pool.
    fn note_rest(&mut self) {
        let of = &self.pool.row.figures;
        let failed = self
            .failure
            .as_ref()
            .map(|(ago, text)| format!("{}: a start failed {} ago at {text}", self.name(), in_words(*ago)));
        let is_leaving = of.is_removing && of.in_use > 0;
        let leaving = is_leaving.then(|| {
            let longest = self.longest().map_or(String::new(), |held| format!(", {held}"));
            format!("{} is being removed: {} still in use{longest}", self.name(), of.in_use)
        });
        let unclean = match (self.pool.unclean, self.pool.late) {
            (1.., _) if of.queued == 0 => {
                let wait = in_plural(self.pool.unclean, "member waits for a cleaner", "members wait for a cleaner");
                Some(format!("{}: {wait}, and none is connected", self.name()))
            }
            (_, late @ 1..) => {
                let take = in_plural(late, "cleaning takes", "cleanings take");
                Some(format!("{}: {take} longer than clean_timeout", self.name()))
            }
            _ => None,
        };
        for (info, sentence) in [(&UNCLEAN, unclean), (&START_FAILED, failed), (&LEAVING, leaving)] {
            sentence.into_iter().for_each(|sentence| self.note(info, sentence, self.look("")));
        }
    }

    /// Returns the member that is held for longest, in words, if that is longer than `warn_hold`.
    fn held_long(&self) -> Option<String> {
        if self.pool.held_long > 0 { self.longest() } else { None }
    }

    /// Returns the command that shows the pool.
    fn look(&self, behind: &str) -> Option<String> {
        self.word().map(|pool| format!("members {pool}{behind}"))
    }

    /// Returns the command that makes the member that is kept out for longest usable, or all if several are; None if none
    /// is kept out.
    fn repair(&self) -> Option<String> {
        let (member, pool) = (self.pool.longest_out.as_ref()?, self.word()?);
        match member.state {
            "quarantined" if self.pool.row.figures.quarantined > 1 => Some(format!("members repair {pool} --all")),
            "quarantined" => Some(format!("members repair {pool} {}", quoted(member.name)?)),
            "held" => Some(format!("members free {pool} {}", quoted(member.name)?)),
            // These come back by themselves, or are gone.
            _ => self.look(""),
        }
    }

    /// Returns the command that takes the member that is held for longest from its holder.
    fn take_back(&self) -> Option<String> {
        let (member, _) = self.pool.longest_held.as_ref()?;
        Some(format!("members takeback {} --member {}", self.word()?, quoted(member.name)?))
    }
}

fn in_plural(number: u32, one: &str, several: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {several}") }
}
