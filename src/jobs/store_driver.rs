//! Driver of the store: opens it, hands over batches, releases replies or ends their wait, and holds back connections
//! that would change more than the store can take.

use super::JobQueue;
use super::loading::Loading;
use super::state::inbox::InboxRow;
use super::state::{Commit, Handed, SnapshotPlace, State, Timer};
use super::store::{HandedOver, Ownership, PageOrder, Verdict};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::{ConnId, Id, Span, Time, TimerId, meter};
use poolcounter_service::contract::{Context, Effect, OperationError, Requester, Wake};
use std::collections::VecDeque;

mod copying;
mod failing;
mod succession;

/// Time between two checks of waiting replies, and so the precision of the end of their wait.
const LOOK: Span = Span::from_secs(1);
/// Number of changes of a batch that are handed over at once: about half a millisecond.
const CHANGES_AT_ONCE: usize = 1024;
/// Number of rows of the inbox that are taken at once.
const INBOX_AT_ONCE: usize = 100;
/// Number of changes that are not charged to the tick, because ordinary requests make as many.
const FEW: u32 = 64;

/// Cost of a change that is handed over or taken in: half a microsecond.
pub(super) const ROW_COST: u32 = 2;

/// State of the service's work with its store.
#[derive(Default)]
pub(super) struct StoreDriver {
    /// True once the store was opened, or is about to be.
    pub has_begun: bool,
    /// Handover of the store by the previous process; None without a store or such a process.
    pub handed_over: Option<HandedOver>,
    /// Identity of the store of the previous process; None if it had opened none.
    pub former_store: Option<String>,
    /// True if that process has left the jobs in the store, and has handed over only the reserved ones.
    pub are_left: bool,
    /// Batch under way, and the time of its begin.
    pub under_way: Option<(Commit, Time)>,
    /// Time of the first change that is in no batch yet, as far as that was seen.
    pub collecting_since: Option<Time>,
    /// Commits that replies wait for, each with the time after which no more replies were added to it.
    marks: VecDeque<(Commit, Time)>,
    timer: Option<TimerId>,
    /// Time of day at the start, as the store computes with it.
    wall: Span,
    /// Timer of the end of the lease.
    pub lease_timer: Option<TimerId>,
    /// Connections held back.
    held_back: Vec<(HeldUntil, ConnId)>,
    /// Operations that are done and not committed, with their results.
    pub operations: Vec<(Commit, Requester, String)>,
    /// Copy under way, and the connection that waits for it, if it has not ended.
    pub copy: Option<Option<ConnId>>,
    /// Fault of replies that have waited too long, which the log reports once.
    late: Fault,
    /// Progress of handing everything to the store.
    snapshot: Option<SnapshotPlace>,
    /// Progress of reading the store.
    pub loading: Option<Loading>,
    /// Page that is being taken in.
    pub page: Option<PageOrder>,
    /// True once the settings were read, or need no reading: requests that need no job are served.
    pub has_settings: bool,
    /// True while requests wait, because an upgrade waits for the changes under way.
    pub is_settling: bool,
    /// True once the daemon ends.
    pub is_ending: bool,
    /// True if the last commit took so long that the end of the daemon waits for no other.
    pub is_slow: bool,
    /// Row of the inbox for whose job there was no room.
    inbox: Option<InboxRow>,
    /// Work on jobs that are not visible yet, in slices.
    unseen: Option<Unseen>,
    /// Handle that wakes the loop for the next slice.
    pub wake: Option<Wake>,
}

/// Event for which a connection is held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeldUntil {
    /// There is room for changes, or all jobs are read.
    Room,
    /// This commit is done, as the next request may see an own job of it.
    Committed(Commit),
    /// Commands whose clients have gone are done.
    Uncrowded,
}

/// Work on jobs that are not visible yet.
#[derive(Clone, Copy)]
enum Unseen {
    /// The jobs of this committed batch are being shown.
    Show(Commit),
    /// All jobs that are not committed are being taken back.
    TakeBack,
}

impl StoreDriver {
    /// Ends operations that wait for a commit up to this one: their results are unknown.
    pub fn give_up_operations(&mut self, last: Commit, context: &mut Context<'_>) {
        let given_up = self.operations.extract_if(.., |(commit, ..)| *commit <= last);
        let unknown =
            || OperationError::Unknown("the store of the jobs fails: it is not known whether this is done".into());
        context.effects.extend(given_up.map(|(_, from, _)| Effect::Done(from, Err(unknown()))));
    }

    /// Forgets all that waits for the store, because another daemon owns the jobs. Held connections get their turns.
    pub fn lose(&mut self) {
        (self.under_way, self.collecting_since, self.snapshot) = (None, None, None);
        (self.loading, self.page, self.has_settings, self.unseen) = (None, None, false, None);
        self.inbox = None;
        self.marks.clear();
        self.held_back.clear();
        self.copy = None;
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, conn: ConnId) {
        self.held_back.retain(|(_, held)| *held != conn);
        self.copy.iter_mut().filter(|waits| **waits == Some(conn)).for_each(|waits| *waits = None);
    }

    /// Returns true if no connection waits for anything that a handover cannot contain.
    pub fn is_quiet(&self) -> bool {
        self.copy.is_none() && self.held_back.is_empty()
    }

    /// Serves all connections again that are held back.
    pub fn let_go(&mut self, context: &mut Context<'_>) {
        self.held_back.drain(..).for_each(|(_, conn)| context.resume(conn));
    }

    /// Wakes the loop, which processes the store's events in its next tick.
    pub fn wake_loop(&self) {
        self.wake.iter().for_each(Wake::wake);
    }

    /// Returns the number of armed timers.
    pub fn timers(&self) -> usize {
        usize::from(self.timer.is_some()) + usize::from(self.lease_timer.is_some())
    }

    /// Returns the time for which the oldest change has waited for its commit.
    pub fn oldest(&self, now: Time) -> Span {
        let since = self.under_way.map(|(_, since)| since).or(self.collecting_since);
        since.map_or(Span::ZERO, |since| now.since(since))
    }
}

impl JobQueue {
    /// Hands over a batch if there is none under way, and arms the timer that ends the wait of replies.
    pub(super) fn commit_batch(&mut self, context: &mut Context<'_>) {
        if self.driver.is_ending && self.driver.is_slow {
            return;
        }
        if context.time.wall != self.driver.wall {
            self.go_by_clock(context);
        }
        if self.state.keeps_no_changes() {
            return self.look_again(false, context);
        }
        self.take_from_inbox(context);
        let before = self.state.uncollected().0;
        let gathers = self.store.gathers(before);
        while !gathers
            && self.driver.unseen.is_none()
            && !self.store.is_busy()
            && let Some(commit) = self.begin_batch(CHANGES_AT_ONCE)
        {
            self.driver.under_way = Some((commit, self.driver.collecting_since.unwrap_or(context.time.now)));
            self.driver.collecting_since = None;
            // It may have been committed at once.
            self.complete(context);
        }
        let left = self.state.uncollected().0;
        if left > 0 {
            self.driver.collecting_since.get_or_insert(context.time.now);
        }
        // Lossless: few are handed over at once. Background work has what is left of the tick.
        let handed_over = before.saturating_sub(left).min(CHANGES_AT_ONCE) as u32;
        if handed_over > FEW {
            context.timers.typed::<Timer>().charge(handed_over * ROW_COST);
        }
        self.look_again(gathers || self.store.is_busy() || self.driver.inbox.is_some(), context);
    }

    /// Arms the timer of the next look, if something waits or goes by the clock.
    fn look_again(&mut self, waits: bool, context: &mut Context<'_>) {
        if self.driver.timer.is_none() && (waits || self.goes_by_clock()) {
            self.driver.timer = Some(context.timers.typed().arm(context.time.now + LOOK, Timer::Store));
        }
    }

    /// Puts jobs of the inbox, while there is room for them.
    fn take_from_inbox(&mut self, context: &mut Context<'_>) {
        let is_open = self.store.ownership() == Ownership::Owns && !self.driver.is_settling && !self.driver.is_ending;
        for _ in 0..INBOX_AT_ONCE {
            if !is_open || self.state.is_backed_up() {
                return;
            }
            let Some(row) = self.driver.inbox.take().or_else(|| self.store.next_request()) else { return };
            if !self.step(context, |state, step| state.take_from_inbox(&row, step)) {
                self.driver.inbox = Some(row);
                return;
            }
        }
        self.driver.wake_loop();
    }

    /// Goes by the clock after it was set. Delays and pauses are stored anew, so that the next process finds the time
    /// left that they have.
    #[cold]
    fn go_by_clock(&mut self, context: &mut Context<'_>) {
        let wall = context.time.wall;
        self.step(context, |_, _| {});
        if self.driver.has_begun && self.store.keeps_times() {
            if self.store.ownership() != Ownership::Owns {
                // Times that are still to be read were stored by the clock as it was.
                return;
            }
            self.store.set_epoch(wall);
            self.step(context, State::store_times_anew);
        }
        self.driver.wall = wall;
    }

    /// Returns whether a step of the clock must be seen soon: something is delayed or paused, or put periodically.
    fn goes_by_clock(&self) -> bool {
        self.state.has_schedules() || self.state.has_deadlines() && self.store.keeps_times()
    }

    /// Processes the store's events.
    pub(super) fn complete(&mut self, context: &mut Context<'_>) {
        let was_failing = self.store.is_failing();
        if let Some(page) = self.driver.page {
            self.take_slice(page, context);
        }
        match self.driver.unseen.take() {
            Some(Unseen::Show(commit)) => self.show_committed(commit, context),
            Some(Unseen::TakeBack) => self.take_back_some(context),
            None => {}
        }
        while self.driver.page.is_none()
            && self.driver.unseen.is_none()
            && let Some(verdict) = self.store.verdict()
        {
            match verdict {
                Verdict::Committed(commit) => self.show_committed(commit, context),
                Verdict::Rewrite | Verdict::NextSlice => self.hand_over_asked(&verdict),
                Verdict::RolledBack => self.refuse_pending(context),
                Verdict::Copied(result) => self.report_copied(&result, context),
                Verdict::Page(page) => self.driver.page = Some(page),
                Verdict::Lost(_) => self.lose_all(context),
                Verdict::Damaged(sentence) => self.lose_damaged(&sentence, context),
            }
        }
        if self.driver.page.is_some() || self.driver.unseen.is_some() {
            self.driver.wake_loop();
        }
        self.give_up_copy(context);
        // Waiting connections may be given jobs again.
        self.step(context, |_, _| {});
        self.await_end_of_lease(context);
        self.set_from_file(context);
        self.resume_due(!was_failing && self.store.is_failing(), context);
    }

    /// Serves connections again that have not to be held back any more, or all.
    pub(super) fn resume_due(&mut self, all: bool, context: &mut Context<'_>) {
        if (self.store.ownership() == Ownership::Reads || self.driver.is_settling) && !all {
            return;
        }
        let has_room = !self.state.is_backed_up();
        let (done, is_crowded) = (self.state.last_committed(), self.state.is_crowded());
        let is_due = |(until, _): &mut (HeldUntil, ConnId)| {
            all || match *until {
                HeldUntil::Room => has_room,
                HeldUntil::Committed(commit) => commit <= done,
                HeldUntil::Uncrowded => !is_crowded,
            }
        };
        self.driver.held_back.extract_if(.., is_due).for_each(|(_, conn)| context.resume(conn));
    }

    /// Applies the settings of tubes in the configuration file, once the stored settings are known.
    pub(super) fn set_from_file(&mut self, context: &mut Context<'_>) {
        let has_settings = self.driver.has_begun && self.store.ownership() == Ownership::Owns;
        if has_settings && self.has_file && !self.state.has_file() {
            let file = std::mem::take(&mut self.settings.of_tubes);
            self.step(context, |state, step| state.set_from_file(&file, step));
            self.settings.of_tubes = file;
        }
    }

    /// Hands the store the slice that it asks for.
    pub(super) fn hand_over_asked(&mut self, verdict: &Verdict) {
        if self.state.is_handing_over() && self.driver.under_way.is_none() {
            // Slices and changes of a batch are handed over in one way. The batch has a few thousand changes at most.
            let since = self.driver.collecting_since.take();
            self.driver.under_way =
                meter::exempt(|| self.begin_batch(usize::MAX)).map(|commit| (commit, since.unwrap_or(Time::START)));
        }
        let place = match verdict {
            Verdict::Rewrite => Some(SnapshotPlace::Start),
            Verdict::NextSlice => self.driver.snapshot,
            _ => None,
        };
        if let Some(place) = place {
            let JobQueue { state, store, driver, .. } = self;
            driver.snapshot = state.snapshot(place, &mut |change| store.add(change));
            store.add_slice(driver.snapshot.is_none());
        }
    }

    /// Releases the replies of a committed batch after its jobs are shown, in slices if they are very many.
    fn show_committed(&mut self, commit: Commit, context: &mut Context<'_>) {
        if self.step(context, |state, step| state.show_some(commit, step)) {
            self.driver.unseen = Some(Unseen::Show(commit));
            return;
        }
        if let Some((_, since)) = self.driver.under_way.take() {
            self.driver.is_slow = context.time.now.since(since) > LOOK;
        }
        self.driver.late.end();
        context.release_up_to(commit.0);
        let done = self.driver.operations.extract_if(.., |(waits_for, ..)| *waits_for <= commit);
        context.effects.extend(done.map(|(_, from, done)| Effect::Done(from, Ok(done))));
        self.step(context, |state, step| state.committed(commit, step));
        let is_due = |(waits_for, _): &mut (Commit, ConnId)| *waits_for <= commit;
        let due: Vec<(Commit, ConnId)> = self.hung_up.extract_if(.., is_due).collect();
        for (_, conn) in due {
            self.step(context, |state, step| state.hang_up(conn, step));
        }
    }

    /// Hands at most `most` changes to the store, and returns the number of their batch if these were the last of it.
    fn begin_batch(&mut self, most: usize) -> Option<Commit> {
        let JobQueue { state, store, driver, .. } = self;
        match state.take_batch(most, &mut |change| store.add(change)) {
            Handed::Nothing => None,
            Handed::Part => {
                driver.wake_loop();
                None
            }
            Handed::Batch(commit) => {
                store.commit(commit);
                Some(commit)
            }
        }
    }

    pub(super) fn check_driver(&self) {
        let held_back = self.driver.held_back.iter().map(|(_, conn)| conn);
        for conn in held_back.chain(self.driver.copy.iter().flatten()) {
            assert!(self.sessions[conn.index()].is_open, "{conn} waits for the store, and is not open");
        }
    }
}
