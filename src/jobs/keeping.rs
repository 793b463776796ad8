//! What the service does with its store: begins with what that has, hands over batches, lets replies leave or ends their wait, and
//! holds back those who would change more than it can take.

use super::loading::Loading;
use super::sessions::session_of;
use super::state::{Commit, Event, Reply, SnapshotPlace, State, Timer};
use super::store::{Mark, Store, Verdict};
use super::telling::Body;
use super::wire::replies;
use super::{JobQueue, JobsSettings, wire};
use crate::id::{ConnId, Id};
use crate::service::Context;
use crate::time::{Span, Time};
use crate::wheel::TimerId;
use std::collections::VecDeque;

/// How often replies that wait are looked after: so exact is the end of their wait.
const LOOK: Span = Span::from_secs(1);

/// What the service keeps of its store.
pub(super) struct Keeping {
    /// The store was opened, or there was no need.
    has_begun: bool,
    /// What the process before knew of its store; None if it had none, or there was no such process.
    pub handed_over: Option<Mark>,
    /// How long replies wait for a commit that fails.
    timeout: Span,
    /// The batch that is under way, and when it was begun.
    under_way: Option<(Commit, Time)>,
    /// When the first of those changes came that are in no batch yet, as far as that was seen.
    pub collecting_since: Option<Time>,
    /// Numbers that replies wait for, each with the moment after which no more replies were told to.
    marks: VecDeque<(Commit, Time)>,
    timer: Option<TimerId>,
    /// Connections that are not served because too much waits for its commit.
    held_back: Vec<ConnId>,
    /// Connections that wait for a copy, in the order in which they asked; None for those that are gone.
    copies: VecDeque<Option<ConnId>>,
    /// How far the store was told of everything.
    snapshot: Option<SnapshotPlace>,
}

impl Keeping {
    pub fn new(settings: &JobsSettings) -> Keeping {
        Keeping {
            has_begun: false,
            handed_over: None,
            timeout: settings.store_timeout,
            under_way: None,
            collecting_since: None,
            marks: VecDeque::new(),
            timer: None,
            held_back: Vec::new(),
            copies: VecDeque::new(),
            snapshot: None,
        }
    }

    /// Forgets a connection that is gone.
    pub fn forget(&mut self, conn: ConnId) {
        self.held_back.retain(|other| *other != conn);
        self.copies.iter_mut().filter(|waits| **waits == Some(conn)).for_each(|waits| *waits = None);
    }

    /// Returns true when nobody waits for anything but a commit.
    pub fn is_quiet(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns how many timers are armed.
    pub fn timers(&self) -> usize {
        usize::from(self.timer.is_some())
    }

    /// Returns true when the store was opened, or is about to be.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns how long the oldest change has waited for its commit.
    pub fn oldest(&self, now: Time) -> Span {
        let since = self.under_way.map(|(_, since)| since).or(self.collecting_since);
        since.map_or(Span::ZERO, |since| now.since(since))
    }
}

impl JobQueue {
    /// Opens the store, and reads what it has unless another process handed everything over.
    pub(super) fn begin_store(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        if !listens && self.keeping.handed_over.is_none() {
            return Ok(());
        }
        self.keeping.has_begun = true;
        if let Some(mark) = self.keeping.handed_over {
            self.store.go_on(context.epoch, mark);
            return Ok(());
        }
        let JobQueue { state, store, .. } = self;
        let place = store.place();
        let mut loading = Loading::begin(&place);
        let mut events = Vec::new();
        let Context { now, timers, random, epoch, .. } = context;
        let mut step = super::Step { now: *now, timers: &mut timers.typed(), random, events: &mut events };
        let loaded = store.load(*epoch, &mut |saved| state.restore(saved, &mut step), &mut |share| loading.note(share));
        loaded.map_err(|sentence| format!("the jobs cannot be kept in {place}: {sentence}"))?;
        loading.end(state.len());
        Ok(())
    }

    /// Returns how far the store is, for a process that takes over; None if it was never opened.
    pub(super) fn store_mark(&self) -> Option<Mark> {
        let batch = self.state.last_committed().0;
        self.keeping.has_begun.then(|| Mark { opening: self.store.opening(), batch, next_id: self.state.next_id() })
    }

    /// Hands over a batch if there is none under way, and sees to it that replies do not wait for ever.
    pub(super) fn commit_batch(&mut self, context: &mut Context<'_>) {
        while !self.store.is_busy() && self.begin_batch() {
            self.keeping.under_way =
                Some((self.state.last_taken(), self.keeping.collecting_since.unwrap_or(context.now)));
            self.keeping.collecting_since = None;
            // It may have been committed at once.
            self.complete(context);
        }
        if self.state.uncollected().0 > 0 {
            self.keeping.collecting_since.get_or_insert(context.now);
        }
        let is_looked_after = self.keeping.timer.is_some() || self.keeping.timeout == Span::FOREVER;
        if self.store.is_busy() && !is_looked_after {
            self.keeping.timer = Some(context.timers.typed().arm(context.now + LOOK, Timer::Store));
        }
    }

    /// Ends the wait of replies to which the store has not come for too long, while it fails.
    pub(super) fn look_after_store(&mut self, context: &mut Context<'_>) {
        self.keeping.timer.take().into_iter().for_each(TimerId::fired);
        let now = context.now;
        let is_slow = self.keeping.under_way.is_some_and(|(_, since)| now.since(since) >= LOOK);
        if !is_slow && !self.store.is_failing() {
            return self.keeping.marks.clear();
        }
        if self.is_store_failing(now) {
            // Their puts are refused now.
            self.keeping.held_back.drain(..).for_each(|conn| context.resume(conn));
        }
        let last = self.state.last_uncommitted().unwrap_or(self.state.last_committed());
        if self.keeping.marks.back().is_none_or(|(mark, _)| *mark < last) {
            self.keeping.marks.push_back((last, now));
            self.state.split_batch();
        }
        while let Some((mark, until)) = self.keeping.marks.front().copied()
            && now.since(until) >= self.keeping.timeout
        {
            self.keeping.marks.pop_front();
            if mark <= self.state.last_committed() {
                continue;
            }
            log::warn!("the jobs are not committed: replies that wait for that are INTERNAL_ERROR");
            context.replace_up_to(mark.0, replies::write_internal_error);
        }
    }

    /// Returns whether a commit takes so long that the store counts as failing, or it says so itself.
    pub(super) fn is_store_failing(&self, now: Time) -> bool {
        let takes = self.keeping.under_way.map_or(Span::ZERO, |(_, since)| now.since(since));
        self.store.is_failing() || takes > self.keeping.timeout + LOOK
    }

    /// Holds a connection back that is about to change something while too much waits for its commit. Returns whether it does.
    pub(super) fn hold_back(&mut self, conn: ConnId, input: &[u8], now: Time) -> bool {
        if !self.state.is_backed_up() || input.is_empty() {
            return false;
        }
        let is_between = session_of(&mut self.sessions, conn).stream.is_between();
        let is_put = !is_between || input.starts_with(b"put");
        // A put changes nothing while the store fails.
        if is_between && !wire::commands::may_change(input) || is_put && self.is_store_failing(now) {
            return false;
        }
        self.keeping.held_back.push(conn);
        true
    }

    /// Takes what the store has finished.
    pub(super) fn complete(&mut self, context: &mut Context<'_>) {
        let was_failing = self.store.is_failing();
        while let Some(verdict) = self.store.verdict() {
            match verdict {
                Verdict::Committed(commit) => self.show_committed(commit, context),
                Verdict::Rewrite => self.hand_over_slice(SnapshotPlace::Start),
                Verdict::NextSlice => self.keeping.snapshot.into_iter().for_each(|place| self.hand_over_slice(place)),
                Verdict::Copied(result) => self.tell_copied(&result, context),
            }
        }
        if !self.state.is_backed_up() || !was_failing && self.store.is_failing() {
            self.keeping.held_back.drain(..).for_each(|conn| context.resume(conn));
        }
    }

    /// Lets those replies leave whose batch is committed, and shows its jobs.
    fn show_committed(&mut self, commit: Commit, context: &mut Context<'_>) {
        self.keeping.under_way = None;
        context.release_up_to(commit.0);
        self.step(context, |state, step| state.committed(commit, step));
        let is_due = |(waits_for, _): &mut (Commit, ConnId)| *waits_for <= commit;
        let due: Vec<(Commit, ConnId)> = self.hung_up.extract_if(.., is_due).collect();
        for (_, conn) in due {
            self.step(context, |state, step| state.hang_up(conn, step));
        }
    }

    fn hand_over_slice(&mut self, place: SnapshotPlace) {
        let JobQueue { state, store, keeping, .. } = self;
        keeping.snapshot = state.snapshot(place, &mut |change| store.add(change));
        store.add_slice(keeping.snapshot.is_none());
    }

    /// Has the store copy itself, and returns true if an answer will come.
    pub(super) fn begin_copy(&mut self, conn: ConnId, path: &[u8]) -> bool {
        let is_begun = self.store.copy(path);
        if is_begun {
            self.keeping.copies.push_back(Some(conn));
        }
        is_begun
    }

    fn tell_copied(&mut self, result: &Result<u64, String>, context: &mut Context<'_>) {
        let Some(conn) = self.keeping.copies.pop_front().flatten() else { return };
        let write = |out: &mut Vec<u8>| match result {
            Ok(bytes) => replies::write_copied(out, *bytes),
            Err(_) => replies::write_internal_error(out),
        };
        if let Err(sentence) = result {
            log::warn!("the jobs were not copied: {sentence}");
        }
        self.say(conn, Body::None, None, context, |_, out, _| write(out));
        context.resume(conn);
    }

    /// Hands what has changed to the store, and returns whether there was anything.
    pub(super) fn begin_batch(&mut self) -> bool {
        let JobQueue { state, store, .. } = self;
        let commit = state.take_batch(&mut |change| store.add(change));
        commit.into_iter().for_each(|commit| store.commit(commit));
        commit.is_some()
    }

    /// Answers a put while the store fails.
    pub(super) fn refuse_put(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.tell(&Event { conn, reply: Reply::OutOfMemory, after: None }, context);
    }

    pub(super) fn check_keeping(&self) {
        for conn in self.keeping.held_back.iter().chain(self.keeping.copies.iter().flatten()) {
            assert!(self.sessions[conn.index()].is_open, "{conn} waits for the store, and is not open");
        }
    }
}

/// Returns a store that the settings ask for. It is not open yet.
pub(super) fn store_of(settings: &JobsSettings) -> Box<dyn Store> {
    use super::options::StoreKind;
    match &settings.store {
        StoreKind::Memory => Box::<super::store::Memory>::default(),
        StoreKind::Sqlite(path) => Box::new(super::sqlite::Sqlite::new(super::sqlite::Place {
            path: super::options::absolute(path),
            vfs: None,
        })),
    }
}

/// Returns the state with the bounds that the settings ask for.
pub(super) fn state_of(settings: &JobsSettings) -> State {
    let mut state = State::new(settings.bounds());
    state.set_queue(settings.queue.changes, settings.queue.bytes);
    state
}
