//! Members: a network form of Erlang's pooler. Providers bring members, consumers take them for themselves alone and
//! return them. This module is the adapter between the loop and the state: it turns lines into requests and events into
//! lines, and decides only the time at which lines are sent.

mod contract;
mod event_log;
mod health;
mod keeping;
mod operations;
mod options;
mod pool_table;
mod report;
mod rights;
mod sessions;
pub mod state;
pub mod stats;
mod views;

pub use options::{MembersSettings, StoreKind};
pub use poolcounter_protocol::members::{commands, pool_settings, request};
pub use poolcounter_store::ledger;

/// The protocol: lines to requests, replies and lists to lines.
pub mod wire {
    pub use poolcounter_protocol::members::wire::*;
    mod lists;
    pub use lists::{
        write_event, write_filter, write_member, write_past_lease, write_pool, write_utilization, write_waiter,
    };
}

use event_log::EventLog;
use keeping::Keeping;
use ledger::Ledger;
use log::trace;
use poolcounter_core::text::escaped;
use poolcounter_core::{ConnId, Due, Span, Time, TimerId};
use poolcounter_service::access::Holds;
use poolcounter_service::contract::{Caps, Context, Effect, Info, Input, Served, Service, Then};
use poolcounter_service::health::Sweep;
use poolcounter_service::lines::{Progress, serve_lines};
use poolcounter_service::options::{Opt, TableOpt};
use poolcounter_service::output::{MAX_BYTES, Output};
use poolcounter_service::settings::{self, Configure};
use request::{Refusal, Request, What};
use sessions::{Listing, Sessions};
use state::{DeclaredPool, Event, MemberRow, Notice, PoolRow, State, Step, Timer, Viewer};
use wire::{Line, Query};

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "members",
    port: poolcounter_protocol::members::DEFAULT_PORT,
    is_enabled: false,
    max_connections: u64::MAX,
    has_store: true,
    title: "Members",
    conditions: health::CONDITIONS,
    announcement: "the members are at",
    listening: options::LISTENING,
    is_private: false,
    verbs: commands::VERBS,
    commands: commands::MemberCommand::ROWS,
    refusal: b"ERROR DENIED\n",
    settings: settings::defaults::<MembersSettings>,
    operations: operations::OPERATIONS,
};

/// Longest line, without its end, in bytes: as in the pools protocol.
const MOST_LINE_BYTES: usize = 8192;
/// Pools at which takes look in a turn to find one in a group: beyond that further requests are served in the next turn.
const WALKED_PER_TURN: usize = 512;
/// Lines of a list written in one turn: about a millisecond, with a system call for an address in each.
const LISTED_PER_TURN: usize = 512;

impl Configure for MembersSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;
    const TABLES: &'static [TableOpt<Self>] = pool_table::TABLES;

    fn idle_tables(&self) -> Vec<String> {
        pool_table::idle(self)
    }

    fn check(&self) -> Result<(), String> {
        pool_table::check(self)
    }

    fn open(&self) -> Box<dyn Service> {
        Box::new(Members::new(self.clone()))
    }

    fn keep_in_memory(&mut self) {
        self.store = StoreKind::Memory;
    }
}

/// The members service.
pub struct Members {
    state: State,
    admin: Option<bool>,
    /// Pools of the configuration file, until they are made.
    declared: Vec<DeclaredPool>,
    /// True once leases have numbers, which begin at the time of the first request.
    is_numbered: bool,
    sessions: Sessions,
    /// Timer of owed lines; armed while there are some.
    pacing: Option<TimerId>,
    /// Events of the present step; empty between steps.
    events: Vec<Event>,
    /// Notices of the present step for the log; empty between steps.
    notices: Vec<Notice>,
    log: EventLog,
    health: Sweep<Box<[u8]>>,
    /// Wait of a take that is worth a condition; zero for none.
    warn_wait: Span,
    keeping: Keeping,
}

impl Members {
    /// Returns a service without pools.
    pub fn new(settings: MembersSettings) -> Self {
        let mut members = Members::with_ledger(settings, ledger::memory());
        members.state.keep_rows(false);
        members
    }

    /// Returns a service without pools, which keeps members in this ledger until it opens that of the settings.
    pub fn with_ledger(settings: MembersSettings, ledger: Box<dyn Ledger>) -> Self {
        let mut state = State::new(state::Limits { most: settings.most }, 0);
        state.set_grace(settings.restart_grace);
        Members {
            state,
            admin: settings.admin,
            declared: settings.pools,
            is_numbered: false,
            sessions: Sessions::default(),
            pacing: None,
            events: Vec::new(),
            notices: Vec::new(),
            log: EventLog::default(),
            health: Sweep::default(),
            warn_wait: settings.warn_wait,
            keeping: Keeping::new(settings.store, ledger),
        }
    }

    fn handle(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> Progress {
        if !self.sessions.is_listing(conn) {
            trace!("{conn} > {}", escaped(line));
        }
        if self.state.walked.get() > WALKED_PER_TURN {
            return Progress::Partly;
        }
        let (text, line) = (line, wire::parse(line));
        // A list under way was checked when it began: a line within it could not report a denial.
        if context.has_rules()
            && !self.sessions.is_listing(conn)
            && let Some(what) = self.refusal(conn, line.as_ref().ok(), context)
        {
            tell(context.output, &Event { conn, what });
            return Progress::Done;
        }
        let refusal = match line {
            Ok(Line::Request(request)) => {
                if !std::mem::replace(&mut self.is_numbered, true) {
                    self.state.number_from((context.time.epoch + context.time.now.since(Time::START)).as_micros());
                }
                let is_last = matches!(request, Request::Bye);
                let is_admin = request.is_for_operators() && self.is_operator(conn, context);
                // Clients declare their pools again at each start.
                let is_act = is_admin && !matches!(request, Request::Pool { .. });
                let who = self.step(context, is_admin, |state, step| {
                    state.serve(conn, request, step);
                    let is_refused =
                        step.events.iter().any(|event| matches!(event.what, What::Error(_) | What::NotTaken));
                    (is_act && !is_refused).then(|| state.who(conn, step))
                });
                context.effects.extend(who.map(|who| Effect::Acted(format!("{who}: {}", escaped(text)))));
                return if is_last { Progress::Over } else { Progress::Done };
            }
            Ok(Line::Query(query)) => match self.answer(conn, query, context) {
                Ok(progress) => return progress,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        tell(context.output, &Event { conn, what: What::Error(refusal) });
        Progress::Done
    }

    /// Takes one step of the state machine, and passes on its events.
    fn step<T>(
        &mut self,
        context: &mut Context<'_>,
        is_admin: bool,
        take: impl FnOnce(&mut State, &mut Step<'_, '_>) -> T,
    ) -> T {
        let peers = context.conns.peers;
        let mut step = Step {
            now: context.time.now,
            timers: &mut context.timers.typed(),
            random: context.random,
            events: &mut self.events,
            notices: &mut self.notices,
            is_admin,
            peer: &|conn| peers.peer(conn),
        };
        self.state.set_wall(context.time.wall);
        let changes = self.state.kept_changes();
        let done = take(&mut self.state, &mut step);
        let batch = self.keeping.batch().filter(|_| self.state.kept_changes() > changes);
        for event in &self.events {
            if self.sessions.admit(event, batch, context.output) {
                match batch.filter(|_| sessions::is_reply(&event.what)) {
                    Some(batch) => self.keeping.tell_after(batch, event, context),
                    None => tell(context.output, event),
                }
            }
        }
        self.events.clear();
        std::mem::take(&mut self.state.replaced).into_iter().for_each(|conn| context.end(conn));
        for (rule, leases) in self.state.changed_rules() {
            context.access.note_leases(&rule, leases);
        }
        self.notices.drain(..).for_each(|notice| self.log.log(&notice, context.time.now));
        self.arm_pacing(context);
        done
    }

    /// Arms the timer for lines that connections are owed.
    fn arm_pacing(&mut self, context: &mut Context<'_>) {
        if self.sessions.owe() && self.pacing.is_none() {
            self.pacing = Some(context.timers.typed().arm(context.time.now + sessions::PACE, Timer::Pacing));
        }
    }

    /// Answers a query. Within the loop over lines, it would take the registers of the requests.
    #[inline(never)]
    fn answer(&mut self, conn: ConnId, query: Query<'_>, context: &mut Context<'_>) -> Result<Progress, Refusal> {
        if let Query::Utilization { pool } = query {
            let figures = self.state.report_of_name(pool)?.row.figures;
            context.output.reply_lines(conn, |bytes| wire::write_utilization(bytes, &figures));
            return Ok(Progress::Done);
        }
        if let Query::History { named } = query {
            let now = self.state.moment(context.time.now);
            let past = self.state.history(named)?;
            context.output.reply_lines(conn, |bytes| {
                past.for_each(|past| wire::write_past_lease(bytes, past, now));
                bytes.push(b'\n');
            });
            return Ok(Progress::Done);
        }
        let mut listing = self.sessions.take_listing(conn).unwrap_or_else(|| Listing::new(query));
        let is_whole = self.list(conn, query, &mut listing, context)?;
        if !is_whole {
            self.sessions.keep_listing(conn, listing);
            return Ok(Progress::Partly);
        }
        context.output.reply_lines(conn, |bytes| bytes.push(b'\n'));
        self.sessions.end_listing(conn, context);
        Ok(Progress::Done)
    }

    /// Goes on with a list, and returns whether it is complete. Each member and pool is listed once; what comes or goes
    /// meanwhile may be missing.
    fn list(
        &self,
        conn: ConnId,
        query: Query<'_>,
        listing: &mut Listing,
        context: &mut Context<'_>,
    ) -> Result<bool, Refusal> {
        let peers = context.conns.peers;
        let viewer = Viewer { now: context.time.now, peer: &|conn| peers.peer(conn) };
        let from = listing.after.clone();
        Ok(match query {
            Query::Members { pool, .. } => {
                let rows = self.state.members_after(pool, from.as_deref(), viewer);
                let Some(rows) = listing.begin(rows)? else { return Ok(true) };
                let mark = |listing: &mut Listing, row: MemberRow<'_>| listing.after = Some(row.name.into());
                list(conn, rows, listing, context, wire::write_member, mark)
            }
            Query::Waiters { pool, .. } => {
                let (place, last) = listing.last.unzip();
                let rows = self.state.waiters_after(pool, last, viewer);
                let Some(rows) = listing.begin(rows)? else { return Ok(true) };
                let write = |bytes: &mut Vec<u8>, (place, (_, row)): &_| wire::write_waiter(bytes, *place, row);
                let mark = |listing: &mut Listing, (place, (rank, _))| listing.last = Some((place, rank));
                list(conn, (place.unwrap_or(0) + 1..).zip(rows), listing, context, write, mark)
            }
            _ => {
                let mark = |listing: &mut Listing, row: PoolRow<'_>| listing.after = Some(row.name.into());
                list(conn, self.state.pools_after(from.as_deref()), listing, context, wire::write_pool, mark)
            }
        })
    }
}

/// Writes as many rows as the connection's output takes, and marks the last row if there are more. Returns true after the
/// last.
fn list<R>(
    conn: ConnId,
    rows: impl Iterator<Item = R>,
    listing: &mut Listing,
    context: &mut Context<'_>,
    write: impl Fn(&mut Vec<u8>, &R),
    mark: impl Fn(&mut Listing, R),
) -> bool {
    let mut last = None;
    for (n, row) in rows.enumerate() {
        if listing.left == 0 {
            return true;
        }
        if n == LISTED_PER_TURN || context.output.is_full(conn) {
            last.into_iter().for_each(|row| mark(listing, row));
            return false;
        }
        context.output.reply_lines(conn, |bytes| write(bytes, &row));
        listing.left -= 1;
        last = Some(row);
    }
    true
}

impl Service for Members {
    fn caps(&self) -> Caps {
        Caps { request_bytes: MOST_LINE_BYTES + 1, output_bytes: MAX_BYTES, idle: None }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        if self.keeping.makes_wait(conn, self.state.keeps_anything()) {
            return Served { consumed: 0, then: Then::Wait };
        }
        self.state.walked.set(0);
        serve_lines(conn, input, MOST_LINE_BYTES, context, |line, context| self.handle(conn, line, context))
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        match due.key() {
            Timer::Pacing => {
                self.pacing.take().into_iter().for_each(TimerId::fired);
                self.sessions.pay(context.output);
                self.arm_pacing(context);
            }
            // The commit of this tick looks at the clock.
            Timer::Clock => self.keeping.clock.take().into_iter().for_each(TimerId::fired),
            timer => self.step(context, false, |state, step| state.expire(timer, step)),
        }
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.keeping.forget(conn);
        self.sessions.close(conn);
        self.step(context, false, |state, step| state.close(conn, step));
        if !self.sessions.owe() {
            self.pacing.take().into_iter().for_each(|timer| context.timers.typed::<Timer>().cancel(timer));
        }
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        self.commit_changes(context);
    }

    fn completed(&mut self, context: &mut Context<'_>) {
        self.complete_keeping(context);
    }

    fn usage_of(&self, conn: ConnId) -> Holds {
        self.state.holds(conn)
    }

    fn kept_bytes(&self, conn: ConnId) -> usize {
        self.sessions.kept_bytes(conn)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.keeping.end();
    }
}

fn tell(output: &mut Output, event: &Event) {
    output.reply_lines(event.conn, |bytes| wire::write_event(bytes, event));
}
