//! Driver of the store: begins with what that has, hands over batches, lets replies leave or ends their wait, and
//! holds back those who would change more than it can take.

use super::loading::Loading;
use super::state::{Commit, Event, Handed, Reply, SnapshotPlace, State, Timer};
use super::store::{HandedOver, Ownership, PageOrder, RefusedChange, RefusedRow, Store, Verdict};
use super::{JobQueue, JobsSettings};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::meter;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_service::contract::{Context, Effect, OperationError, Requester, Wake};
use std::collections::VecDeque;

mod copying;
mod failing;
mod succession;

/// Time between two looks after replies that wait: so exact is the end of their wait.
const LOOK: Span = Span::from_secs(1);

/// Number of changes of a batch handed over at once: about half a millisecond.
const CHANGES_AT_ONCE: usize = 1024;

/// Number of changes refused together that have lines of their own in the log.
const MOST_LOGGED: usize = 10;

/// State of the service's work with its store.
pub(super) struct StoreDriver {
    /// The store was opened, or there was no need.
    has_begun: bool,
    /// Handover of the store by the process before; None if it had none, or there was no such process.
    pub handed_over: Option<HandedOver>,
    /// Place of the store in which that process has left the jobs; None if it has handed over all.
    pub left_in: Option<String>,
    /// True when the next handover has all jobs: the process that takes over cannot read them where they are.
    pub hands_over_all: bool,
    /// Time for which replies wait for a commit that fails.
    timeout: Span,
    /// The batch that is under way, and when it was begun.
    under_way: Option<(Commit, Time)>,
    /// Time of the first of those changes that are in no batch yet, as far as that was seen.
    pub collecting_since: Option<Time>,
    /// Numbers that replies wait for, each with the moment after which no more replies were told to.
    marks: VecDeque<(Commit, Time)>,
    timer: Option<TimerId>,
    /// Timer of the end of the lease.
    pub lease_timer: Option<TimerId>,
    /// Connections that are not served: because too much waits for its commit, or because the next request may see a job that the same
    /// connection has put, in this commit.
    held_back: Vec<(Option<Commit>, ConnId)>,
    /// Operations that are done and not committed, with their results.
    pub operations: Vec<(Commit, Requester, String)>,
    /// The copy that is being made, and the connection that waits for it, if it is still there.
    copy: Option<Option<ConnId>>,
    /// Whether the log says that replies have waited too long.
    late: Fault,
    /// Progress of telling the store of everything.
    snapshot: Option<SnapshotPlace>,
    /// The reading of what the store has.
    pub loading: Option<Loading>,
    /// The page of that which is being taken in.
    pub page: Option<PageOrder>,
    /// The settings were read, or there was no need: requests that need no job are answered.
    pub has_settings: bool,
    /// Requests wait, because an upgrade waits for what is under way.
    pub is_settling: bool,
    /// The batch that is committed, and whose jobs are being shown.
    pub shows: Option<Commit>,
    /// Wakes the loop for the next slice of what is taken in or handed over.
    pub wake: Option<Wake>,
}

impl StoreDriver {
    pub fn new(settings: &JobsSettings) -> StoreDriver {
        StoreDriver {
            has_begun: false,
            handed_over: None,
            left_in: None,
            hands_over_all: false,
            timeout: settings.store_timeout,
            under_way: None,
            collecting_since: None,
            marks: VecDeque::new(),
            timer: None,
            lease_timer: None,
            held_back: Vec::new(),
            operations: Vec::new(),
            copy: None,
            late: Fault::default(),
            snapshot: None,
            loading: None,
            page: None,
            has_settings: false,
            is_settling: false,
            shows: None,
            wake: None,
        }
    }

    /// Ends operations that wait for a commit up to this one: their results are not known.
    pub fn give_up_operations(&mut self, last: Commit, context: &mut Context<'_>) {
        let given_up = self.operations.extract_if(.., |(commit, ..)| *commit <= last);
        let unknown =
            || OperationError::Unknown("the store of the jobs fails: it is not known whether this is done".into());
        context.effects.extend(given_up.map(|(_, from, _)| Effect::Done(from, Err(unknown()))));
    }

    /// Forgets what waits for the store: another daemon has what it had. Those who are held back have their turns in any case.
    pub fn lose(&mut self) {
        (self.under_way, self.collecting_since, self.snapshot) = (None, None, None);
        (self.loading, self.page, self.has_settings, self.shows) = (None, None, false, None);
        self.marks.clear();
        self.held_back.clear();
        self.copy = None;
    }

    /// Returns whether a connection waits for a copy.
    pub fn is_awaiting(&self, conn: ConnId) -> bool {
        self.copy == Some(Some(conn))
    }

    /// Forgets a connection that is gone.
    pub fn forget(&mut self, conn: ConnId) {
        self.held_back.retain(|(_, held)| *held != conn);
        self.copy.iter_mut().filter(|waits| **waits == Some(conn)).for_each(|waits| *waits = None);
    }

    /// Returns true when no copy is being made.
    pub fn has_no_copy(&self) -> bool {
        self.copy.is_none()
    }

    /// Returns true when nobody waits for anything of which a process that takes over knows nothing.
    pub fn is_quiet(&self) -> bool {
        self.has_no_copy() && self.held_back.is_empty()
    }

    /// Has all served again that are held back.
    pub fn let_go(&mut self, context: &mut Context<'_>) {
        self.held_back.drain(..).for_each(|(_, conn)| context.resume(conn));
    }

    /// Wakes the loop, which takes what the store has finished in its next tick.
    pub fn wake_loop(&self) {
        self.wake.iter().for_each(Wake::wake);
    }

    /// Returns how many timers are armed.
    pub fn timers(&self) -> usize {
        usize::from(self.timer.is_some()) + usize::from(self.lease_timer.is_some())
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
    /// Hands over a batch if there is none under way, and sees to it that replies do not wait for ever.
    pub(super) fn commit_batch(&mut self, context: &mut Context<'_>) {
        self.state.set_batch_bytes(self.store.batch_bytes());
        while self.driver.shows.is_none()
            && !self.store.is_busy()
            && let Some(commit) = self.begin_batch(CHANGES_AT_ONCE)
        {
            self.driver.under_way = Some((commit, self.driver.collecting_since.unwrap_or(context.time.now)));
            self.driver.collecting_since = None;
            // It may have been committed at once.
            self.complete(context);
        }
        if self.state.uncollected().0 > 0 {
            self.driver.collecting_since.get_or_insert(context.time.now);
        }
        let is_looked_after = self.driver.timer.is_some() || self.driver.timeout == Span::FOREVER;
        if self.store.is_busy() && !is_looked_after {
            self.driver.timer = Some(context.timers.typed().arm(context.time.now + LOOK, Timer::Store));
        }
    }

    /// Takes what the store has finished.
    pub(super) fn complete(&mut self, context: &mut Context<'_>) {
        let was_failing = self.store.is_failing();
        if let Some(page) = self.driver.page {
            self.take_slice(page, context);
        }
        if let Some(commit) = self.driver.shows.take() {
            self.show_committed(commit, context);
        }
        while self.driver.page.is_none()
            && self.driver.shows.is_none()
            && let Some(verdict) = self.store.verdict()
        {
            match verdict {
                Verdict::Committed(commit) => self.show_committed(commit, context),
                Verdict::Rewrite | Verdict::NextSlice => self.hand_over_asked(&verdict),
                Verdict::Refused(rows) => self.take_back(&rows, context),
                Verdict::Copied(result) => self.tell_copied(&result, context),
                Verdict::Page(page) => self.driver.page = Some(page),
                Verdict::Lost(_) => self.lose_all(context),
                Verdict::Damaged(sentence) => self.lose_damaged(&sentence, context),
            }
        }
        if self.driver.page.is_some() || self.driver.shows.is_some() {
            self.driver.wake_loop();
        }
        // Those who wait may be given jobs again.
        self.step(context, |_, _| {});
        self.await_end_of_lease(context);
        self.set_from_file(context);
        let begins_to_fail = !was_failing && self.store.is_failing();
        if (self.store.ownership() == Ownership::Reads || self.driver.is_settling) && !begins_to_fail {
            return;
        }
        let has_room = !self.state.is_backed_up();
        let done = self.state.last_committed();
        let is_due = |(commit, _): &mut (Option<Commit>, ConnId)| {
            begins_to_fail || commit.map_or(has_room, |commit| commit <= done)
        };
        self.driver.held_back.extract_if(.., is_due).for_each(|(_, conn)| context.resume(conn));
    }

    /// Sets what the configuration file says of tubes, once the settings that are kept are known.
    pub(super) fn set_from_file(&mut self, context: &mut Context<'_>) {
        let has_settings = self.driver.has_begun && self.store.ownership() == Ownership::Owns;
        if has_settings && self.of_tubes.1 && !self.state.has_file() {
            let file = std::mem::take(&mut self.of_tubes.0);
            self.step(context, |state, step| state.set_from_file(&file, step));
            self.of_tubes.0 = file;
        }
    }

    /// Ends the store, and gives it all jobs if it has lost them.
    pub(super) fn end_store(&mut self) {
        while let Some(verdict) = self.store.end() {
            self.hand_over_asked(&verdict);
        }
    }

    /// Gives the store what it asks for of everything.
    fn hand_over_asked(&mut self, verdict: &Verdict) {
        if self.state.is_handing_over() && self.driver.under_way.is_none() {
            // A slice and the changes of a batch are handed over in one way. The batch has a few thousand changes at most.
            let since = self.driver.collecting_since.take();
            self.driver.under_way =
                meter::exempt(|| self.begin_batch(usize::MAX)).map(|commit| (commit, since.unwrap_or(Time::START)));
        }
        let place = match verdict {
            Verdict::Rewrite => Some(SnapshotPlace::Start),
            Verdict::NextSlice => self.driver.snapshot,
            _ => None,
        };
        place.into_iter().for_each(|place| self.hand_over_slice(place));
    }

    /// Answers those whose changes the store can never take. Jobs that they have put were never there.
    fn take_back(&mut self, rows: &[RefusedRow], context: &mut Context<'_>) {
        let place = self.store.place();
        let (mut put, mut changed, mut are_others) = (Vec::new(), Vec::new(), false);
        for (count, RefusedRow { what, why, .. }) in rows.iter().enumerate() {
            let what = match what {
                RefusedChange::Put(id) => {
                    put.push(id.0);
                    self.step(context, |state, step| state.take_back(*id, step));
                    format!("job {id}")
                }
                RefusedChange::Job(id) => {
                    changed.push(id.0);
                    format!("a change of job {id}")
                }
                RefusedChange::Other => {
                    are_others = true;
                    "a setting or a root job".into()
                }
            };
            match count {
                0..MOST_LOGGED => log::error!("{place} cannot keep {what}: {why}"),
                MOST_LOGGED => log::error!("{place} cannot keep {} changes more", rows.len() - MOST_LOGGED),
                _ => {}
            }
        }
        [&mut put, &mut changed].into_iter().for_each(|ids| ids.sort_unstable());
        let until = self.driver.under_way.map_or(self.state.last_taken(), |(commit, _)| commit);
        let has = |ids: &[u64], id: u64| ids.binary_search(&id).is_ok();
        // What is told of a job that is not there waits for it, however late. Of many changes nobody knows whose they are.
        let is_theirs = |commit: u64, about: u64| {
            let is_many = about == 0 && (are_others || !changed.is_empty());
            has(&put, about) || commit <= until.0 && (has(&changed, about) || is_many)
        };
        context.reword(is_theirs, replies::write_internal_error);
        if !changed.is_empty() {
            self.driver.give_up_operations(until, context);
        }
        for message in self.sessions.iter_mut().flat_map(|session| &mut session.unsent) {
            if message.after.is_some_and(|promise| is_theirs(promise.commit.0, promise.about)) {
                message.head.clear();
                replies::write_internal_error(&mut message.head);
            }
        }
    }

    /// Lets those replies leave whose batch is committed, and shows its jobs: very many of them bit by bit, before anybody is told.
    fn show_committed(&mut self, commit: Commit, context: &mut Context<'_>) {
        let mut are_many = false;
        self.step(context, |state, step| are_many = state.show_some(commit, step));
        if are_many {
            self.driver.shows = Some(commit);
            return;
        }
        self.driver.under_way = None;
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

    fn hand_over_slice(&mut self, place: SnapshotPlace) {
        let JobQueue { state, store, driver, .. } = self;
        driver.snapshot = state.snapshot(place, &mut |change| store.add(change));
        store.add_slice(driver.snapshot.is_none());
    }

    /// Hands so many changes at most to the store, and returns the number of their batch if these were the last of it.
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

    /// Answers a put while the store fails.
    pub(super) fn refuse_put(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.tell(&Event { conn, reply: Reply::OutOfMemory, after: None, about: None }, context);
    }

    pub(super) fn check_driver(&self) {
        let held_back = self.driver.held_back.iter().map(|(_, conn)| conn);
        for conn in held_back.chain(self.driver.copy.iter().flatten()) {
            assert!(self.sessions[conn.index()].is_open, "{conn} waits for the store, and is not open");
        }
    }
}

/// Returns a store that the settings ask for. It is not open yet.
pub(super) fn store_of(settings: &JobsSettings) -> Box<dyn Store> {
    use super::options::StoreKind;
    match &settings.store {
        StoreKind::Memory => Box::<super::store::Memory>::default(),
        StoreKind::Sqlite(path) => Box::new(super::sqlite::Sqlite::new(super::sqlite::DatabaseFile {
            path: super::options::absolute(path),
            vfs: None,
        })),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(place) => Box::new(super::postgres::Postgres::new(place.place.clone())),
    }
}

/// Returns the state with the bounds that the settings ask for.
pub(super) fn state_of(settings: &JobsSettings) -> State {
    let mut state = State::new(settings.bounds());
    state.set_queue(settings.queue.changes, settings.queue.bytes);
    state
}
