//! Keeping: writes what outlives the process to a ledger, reads it at the start, and holds replies back until what they
//! say is durable.

use super::ledger::{self, Event as News, Ledger, Row};
use super::options::StoreKind;
use super::state::{Clock, Event, RestoredKept, State, Step, Timer, What};
use super::{Members, wire};
use log::{info, warn};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::text::escaped;
use poolcounter_core::{ConnId, Span, TimerId};
use poolcounter_protocol::members::request::Refusal;
use poolcounter_protocol::members::wire::replies::write_what;
use poolcounter_service::contract::{Context, Effect, Requester, Unreadable, Wake};
use poolcounter_service::output::Promise;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Reasons for which no fixed member and no token is given out.
const NOT_WRITTEN: &str = "the file of the members cannot be written; see the log of the daemon";
const NOT_READ: &str = "the file of the members cannot be read; see the log of the daemon";
/// Mark of replies that give out members, and wait for a commit.
const GIVES: u64 = 1;
/// Time between two looks at the clock while nothing else happens: a crash so soon after a step of the clock finds times by
/// the clock as it was.
const CLOCK_LOOK: Span = Span::from_secs(10);
/// Most names of members that no pool has in one line of the log.
const MOST_NAMES: usize = 20;

/// State of the service's work with its ledger.
pub(super) struct Keeping {
    place: StoreKind,
    ledger: Box<dyn Ledger>,
    stage: Stage,
    wake: Option<Wake>,
    /// Rows read so far.
    rows: Vec<Row>,
    /// Number of the batch that collects changes.
    collecting: u64,
    /// Commits under way, each with its batch.
    under_way: VecDeque<(u64, u64)>,
    /// Leases that were given out, each with the batch for which its reply waits.
    given: VecDeque<(u64, u64)>,
    /// Operations of pages whose results wait for a batch.
    pub operations: Vec<(u64, Requester, &'static str)>,
    /// Connections that are not served before the rows are read, or during an upgrade.
    waiting: Vec<ConnId>,
    /// True while an upgrade or the end of the daemon waits for commits.
    is_settling: bool,
    /// Ledger of another process, which has handed over what it knew.
    former: Option<FormerLedger>,
    fault: Fault,
    /// Timer of the next look at the clock of the time of day; armed while times are kept.
    pub clock: Option<TimerId>,
}

/// Ledger that a process has opened.
#[derive(Serialize, Deserialize)]
pub(super) struct FormerLedger {
    place: String,
    is_unreadable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No ledger was opened: the service has no port.
    Off,
    /// The rows are being read. Nobody is served.
    Reads,
    Works,
    Fails,
    /// It could not be read.
    Unreadable,
}

impl Keeping {
    pub fn new(place: StoreKind, ledger: Box<dyn Ledger>) -> Self {
        Keeping {
            place,
            ledger,
            stage: Stage::Off,
            wake: None,
            rows: Vec::new(),
            collecting: 1,
            under_way: VecDeque::new(),
            given: VecDeque::new(),
            operations: Vec::new(),
            waiting: Vec::new(),
            is_settling: false,
            former: None,
            fault: Fault::default(),
            clock: None,
        }
    }

    /// Sets the handle that is woken for news of the ledger, from its opening on.
    pub fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    /// Returns true if a connection has to wait, and remembers it. `is_kept` is true if anything is kept.
    pub fn makes_wait(&mut self, conn: ConnId, is_kept: bool) -> bool {
        let waits = self.is_settling && is_kept || self.stage == Stage::Reads;
        if waits {
            self.waiting.push(conn);
        }
        waits
    }

    /// Serves the connections that had to wait.
    pub fn let_go(&mut self, context: &mut Context<'_>) {
        self.waiting.drain(..).for_each(|conn| context.resume(conn));
    }

    /// Stops serving connections, or serves them again.
    pub fn settle(&mut self, settles: bool, context: &mut Context<'_>) {
        self.is_settling = settles;
        if !settles {
            self.let_go(context);
        }
    }

    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|other| *other != conn);
    }

    /// Returns true if nothing is being written.
    pub fn is_quiet(&self) -> bool {
        matches!(self.stage, Stage::Off | Stage::Fails | Stage::Unreadable)
            || self.stage == Stage::Works && self.under_way.is_empty()
    }

    /// Returns the batch that replies wait for if they depend on a change; None if they do not wait.
    pub fn batch(&self) -> Option<u64> {
        (self.stage == Stage::Works).then_some(self.collecting)
    }

    /// Returns why fixed members and tokens are not given out.
    pub fn fault(&self) -> Option<&str> {
        self.fault.reason()
    }

    /// Returns what a successor must know of the ledger; None if it was not opened.
    pub fn handed_over(&self) -> Option<FormerLedger> {
        (self.stage != Stage::Off).then(|| FormerLedger { place: self.named(), is_unreadable: self.is_unreadable() })
    }

    /// Takes the former process's ledger; None if that process opened no ledger.
    ///
    /// # Errors
    ///
    /// Fails if it has opened another place than that of the settings.
    pub fn take_over(&mut self, former: Option<FormerLedger>) -> Result<(), Unreadable> {
        let own = self.named();
        if let Some(FormerLedger { place, .. }) = former.as_ref().filter(|former| former.place != own) {
            return Err(Unreadable(format!(
                "the members are in {place}, and members.store names {own}: a running daemon does not move them; \
                 stop it, move the file, and start it"
            )));
        }
        self.former = former;
        Ok(())
    }

    /// Returns the name of the place in the settings.
    fn named(&self) -> String {
        self.place.path().map_or("memory".into(), |path| path.display().to_string())
    }

    /// Returns true if the rows could not be read.
    pub fn is_unreadable(&self) -> bool {
        self.stage == Stage::Unreadable
    }

    /// Ends the ledger, which writes what it was given.
    pub fn end(&mut self) {
        self.ledger.end();
    }

    /// Adds a reply that leaves once this batch is durable.
    pub fn tell_after(&mut self, batch: u64, event: &Event, context: &mut Context<'_>) {
        let leases = match &event.what {
            What::Member(taken) => std::slice::from_ref(taken),
            What::Members(taken) => taken,
            _ => &[],
        };
        self.given.extend(leases.iter().map(|taken| (batch, taken.lease)));
        let about = if leases.is_empty() { 0 } else { GIVES };
        let promise = Promise { commit: batch, about, follows: false };
        context.reply_after(event.conn, promise, |bytes| wire::write_event(bytes, event));
    }

    /// Sends the replies and results that wait for this batch or an earlier one.
    fn release(&mut self, batch: u64, context: &mut Context<'_>) {
        context.release_up_to(batch);
        for (_, from, done) in self.operations.extract_if(.., |(of, ..)| *of <= batch) {
            context.effects.push(Effect::Done(from, Ok(done.into())));
        }
    }

    /// Ends the present batch, which this commit makes durable, and begins another one.
    fn next_batch(&mut self, commit: u64) {
        self.under_way.push_back((commit, self.collecting));
        self.collecting += 1;
    }
}

impl Members {
    /// Opens the ledger, and reads it unless another process has handed over what it knew.
    pub(super) fn begin_keeping(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        let former = self.keeping.former.take();
        let goes_on = former.is_some();
        if !listens && !goes_on {
            return Ok(());
        }
        if former.is_some_and(|former| former.is_unreadable) {
            self.close_unreadable("it could not be read before the upgrade", context);
            return Ok(());
        }
        if let Some(path) = self.keeping.place.path() {
            self.keeping.ledger = match goes_on {
                true => ledger::take_over(&path),
                false => ledger::open(&path)
                    .map_err(|why| format!("the members cannot be kept in {}: {why}", path.display()))?,
            };
            self.state.keep_rows(true);
        }
        self.keeping.wake.iter().for_each(|wake| self.keeping.ledger.attach(wake.clone()));
        self.keeping.stage = if goes_on { Stage::Works } else { Stage::Reads };
        if goes_on {
            self.write_all(context);
        }
        self.complete_keeping(context);
        Ok(())
    }

    /// Hands the changes of a tick to the ledger.
    pub(super) fn commit_changes(&mut self, context: &mut Context<'_>) {
        if self.keeping.stage != Stage::Works {
            return;
        }
        self.state.set_wall(context.time.wall);
        if self.state.has_rows_to_write() {
            let changes = self.with_clock(context, State::take_changes);
            let commit = self.keeping.ledger.write(changes);
            self.keeping.next_batch(commit);
            self.complete_keeping(context);
        }
        if self.keeping.clock.is_none() && self.state.keeps_times() {
            self.keeping.clock = Some(context.timers.typed().arm(context.time.now + CLOCK_LOOK, Timer::Clock));
        }
    }

    /// Hands all rows to the ledger.
    fn write_all(&mut self, context: &mut Context<'_>) {
        let rows = self.with_clock(context, State::all_rows);
        let commit = self.keeping.ledger.replace(rows);
        self.keeping.next_batch(commit);
    }

    fn with_clock<T>(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &Clock<'_, '_>) -> T) -> T {
        let peers = context.conns.peers;
        let peer = |conn| peers.peer(conn);
        self.state.set_wall(context.time.wall);
        take(&mut self.state, &Clock { timers: &context.timers.typed(), peer: &peer })
    }

    /// Processes the news of the ledger.
    pub(super) fn complete_keeping(&mut self, context: &mut Context<'_>) {
        while let Some(news) = self.keeping.ledger.next_event() {
            match news {
                News::Rows(rows) if self.keeping.stage == Stage::Reads => self.keeping.rows.extend(rows),
                News::Opened if self.keeping.stage == Stage::Reads => self.take_rows(context),
                News::Rows(_) | News::Opened => {}
                News::Unreadable(why) => self.close_unreadable(&why, context),
                News::Committed(commit) => self.note_committed(commit, context),
                News::Failing(why) => self.begin_failing(&why, context),
                News::Works => self.end_failing(context),
                News::Rewrite => self.write_all(context),
            }
        }
    }

    /// Applies the rows that were read, and serves connections.
    fn take_rows(&mut self, context: &mut Context<'_>) {
        let rows = std::mem::take(&mut self.keeping.rows);
        self.keeping.stage = Stage::Works;
        match self.step(context, false, |state, step| state.restore_kept(&rows, step)) {
            Ok(restored) => log_restored(&self.keeping.ledger.place(), &restored),
            Err(why) => self.close_unreadable(&why, context),
        }
        self.keeping.let_go(context);
    }

    fn close_unreadable(&mut self, why: &str, context: &mut Context<'_>) {
        let place = self.keeping.ledger.place();
        log::error!("the members in {place} cannot be read: {why}; fixed members and tokens are not given out");
        self.keeping.fault.begin(&format!("{place} cannot be read: {why}"));
        self.keeping.stage = Stage::Unreadable;
        self.end_waits_for_commits(NOT_READ, context);
        self.keeping.let_go(context);
    }

    fn note_committed(&mut self, commit: u64, context: &mut Context<'_>) {
        while let Some((of, batch)) = self.keeping.under_way.front().copied()
            && of <= commit
        {
            self.keeping.under_way.pop_front();
            self.keeping.release(batch, context);
            let committed = self.keeping.given.iter().take_while(|(of, _)| *of <= batch).count();
            self.keeping.given.drain(..committed);
        }
    }

    fn begin_failing(&mut self, why: &str, context: &mut Context<'_>) {
        let place = self.keeping.ledger.place();
        if self.keeping.fault.begin(&format!("{place} cannot be written: {why}")) {
            warn!("no fixed member and no token is given out while the members cannot be kept");
        }
        if self.keeping.stage == Stage::Works {
            self.keeping.stage = Stage::Fails;
            self.end_waits_for_commits(NOT_WRITTEN, context);
        }
    }

    fn end_failing(&mut self, context: &mut Context<'_>) {
        if self.keeping.stage == Stage::Fails {
            self.keeping.stage = Stage::Works;
            self.step(context, false, |state, step| state.set_closed(None, step));
        }
        self.keeping.fault.end();
    }

    /// Gives out no fixed member and no token any more. Takes whose members are not durable are refused, and the members
    /// are free again; other replies are sent.
    fn end_waits_for_commits(&mut self, why: &'static str, context: &mut Context<'_>) {
        let refused = What::Error(Refusal::NotKept(why));
        context.reword(|_, about| about == GIVES, false, |bytes| write_what(bytes, &refused));
        self.keeping.release(self.keeping.collecting, context);
        let given = std::mem::take(&mut self.keeping.given);
        self.step(context, false, |state, step: &mut Step<'_, '_>| {
            state.set_closed(Some(why), step);
            given.iter().for_each(|(_, lease)| state.take_undone(*lease, step));
        });
    }
}

/// Logs what was read.
fn log_restored(place: &str, RestoredKept { leased, awaited, kept_out, to_clean, unknown }: &RestoredKept) {
    if leased + awaited + kept_out + to_clean > 0 {
        info!(
            "the members are kept in {place}: {leased} leases go on, {awaited} holders are awaited, {kept_out} members \
             are kept out, {to_clean} are to be cleaned"
        );
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().take(MOST_NAMES).map(|name| escaped(name).to_string()).collect();
        let (names, all) = (names.join(", "), unknown.len());
        info!("{all} fixed members that are not plainly free are in no pool, and remembered for 30 days: {names}");
    }
}
