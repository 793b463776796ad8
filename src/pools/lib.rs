//! PoolCounter: the adapter between the loop and the pools. It turns bytes into requests and replies into bytes, and
//! makes no decisions.

pub mod ceiling;
pub mod ceiling_table;
mod contract;
mod events;
mod health;
mod operations;
pub mod options;
mod report;
mod rights;
mod state;
mod views;

pub use options::PoolsSettings;
pub use poolcounter_protocol::pools::{commands, request, stats};
pub use report::MOST_ROWS;
pub use state::{
    AcquireLock, BadSyntax, BusiestSearch, BusyKey, ClaimInfo, KeyLimits, PoolsState, PoolsStep, Purpose, Reply,
    TakenBack, WhichKeys, WorkType,
};

/// The protocol: lines to requests, replies and lists to lines.
pub mod wire {
    pub use poolcounter_protocol::pools::wire::*;
    pub mod listing;
}

use commands::{ACQUIRE, PoolCommand};
use health::Refusals;
use log::{Level, debug, log_enabled, trace};
use poolcounter_core::browser::is_from_browser;
use poolcounter_core::text::escaped;
use poolcounter_core::{ConnId, Due, LogLimit, Span, Time};
use poolcounter_protocol::line::{Line, first_line};
use poolcounter_service::access::Holds;
use poolcounter_service::contract::{
    Caps, Conns, Context, Effect, GONE, Info, Input, REQUESTS_PER_TURN, Requester, Served, Service, Then, Wanted,
};
use poolcounter_service::health::Growth;
use poolcounter_service::options::{Opt, TableOpt};
use poolcounter_service::output::{FULL_BYTES, MAX_BYTES, Output};
use poolcounter_service::settings::{self, Configure};
use std::collections::HashSet;
use wire::listing::{self, MOST_LINES};
use wire::{PoolRequest, StatsQuery};

/// Keys visited in one turn for an answer to `STATS KEYS`: about 0.2 ms.
const KEYS_AT_ONCE: usize = 2048;

/// Unsent bytes from which each reply is written at once: the replies of a turn, at most two to a request, could
/// overflow the output.
const NEARLY_FULL_BYTES: usize = FULL_BYTES - REQUESTS_PER_TURN * 2 * wire::MOST_REPLY_BYTES;

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "pools",
    port: poolcounter_protocol::pools::DEFAULT_PORT,
    is_enabled: true,
    max_connections: u64::MAX,
    has_store: false,
    title: "Locks",
    conditions: health::CONDITIONS,
    announcement: "listens on",
    listening: options::LISTENING,
    is_private: false,
    verbs: commands::VERBS,
    commands: PoolCommand::ROWS,
    refusal: wire::text_of(Reply::Denied),
    settings: settings::defaults::<PoolsSettings>,
    operations: operations::OPERATIONS,
};

impl Configure for PoolsSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;
    const TABLES: &'static [TableOpt<Self>] = ceiling_table::TABLES;

    fn idle_tables(&self) -> Vec<String> {
        ceiling_table::idle(self)
    }

    fn open(&self) -> Box<dyn Service> {
        Box::new(PoolsService::new(self.clone()))
    }
}

/// The pools service. Its default is the part that no setting changes.
#[derive(Default)]
pub struct PoolsService {
    state: PoolsState,
    max_line: usize,
    /// Replies that are not written yet; empty between turns.
    replies: Vec<(ConnId, Reply)>,
    /// Locks that the present step has taken back; empty between steps.
    taken_back: Vec<TakenBack>,
    /// `STATS KEYS` request of a connection, which stays in its input until it is answered. One at a time is served, to
    /// limit the memory.
    search: Option<(ConnId, BusiestSearch)>,
    /// Connections with a listing request, which was checked when it came: one is served, the rest wait.
    listing: HashSet<ConnId>,
    /// Limit of the log lines about locks that are taken back.
    taken_back_log: LogLimit,
    /// Growth of locks granted, requests refused, and requests shed in the last minute.
    minute: Growth<3>,
    /// Refusals in the last seconds.
    refusals: Refusals,
    /// Time at which the server was started.
    started: Time,
}

/// Number of bytes of a turn that are consumed, or the end of the turn.
type Consumed = Result<usize, Served>;

/// Next step after a request.
enum Handled {
    /// Done: the next request can be served.
    Next,
    /// Done, and the last request of the turn.
    Last(Then),
    /// Continued in the connection's next turn.
    Later(Then),
}

impl PoolsService {
    /// Returns a service without pools.
    pub fn new(settings: PoolsSettings) -> Self {
        let max_line = settings.max_line;
        PoolsService { max_line, state: PoolsState::new(settings), ..PoolsService::default() }
    }

    /// Serves one request. Its replies may be written later in the turn.
    fn handle(&mut self, conn: ConnId, line: &[u8], may_show: bool, context: &mut Context<'_>) -> Handled {
        let request = wire::parse(line);
        if !may_show && matches!(request, PoolRequest::Report(_)) {
            return Handled::Later(Then::Show);
        }
        trace!("{conn} > {}", escaped(line));
        // A list under way was checked when it was asked for.
        if context.has_rules()
            && !self.listing.contains(&conn)
            && let Some(refusal) = self.refusal_of(conn, &request, context)
        {
            self.replies.push((conn, refusal));
            return Handled::Next;
        }
        match request {
            PoolRequest::Acquire(mut request) => {
                let peer;
                if let Ok(request) = &mut request
                    && request.keep > Span::ZERO
                    && request.who.is_empty()
                {
                    // A kept lock outlives its connection, and with it the address.
                    peer = context.conns.peers.peer(conn);
                    request.who = peer.as_bytes();
                }
                self.step(context, |state, step| state.acquire(conn, request.as_mut().map_err(|wrong| *wrong), step));
            }
            PoolRequest::Release(key) => self.step(context, |state, step| state.release(conn, key, step)),
            rare => return self.handle_rare(conn, line, &rare, context),
        }
        Handled::Next
    }

    /// Serves a request of an operator, or an unknown request. A function of its own, so that common requests need no
    /// room for it.
    #[cold]
    fn handle_rare(&mut self, conn: ConnId, line: &[u8], rare: &PoolRequest<'_>, context: &mut Context<'_>) -> Handled {
        match *rare {
            PoolRequest::Keys(most) => {
                self.end_turn(context.output);
                return self.search_keys(conn, most.min(MOST_LINES), context);
            }
            PoolRequest::Stats(query) => {
                self.end_turn(context.output);
                self.reply_stats(conn, query, context);
            }
            PoolRequest::Report(rows) => {
                self.end_turn(context.output);
                // Lossless: a number of rows.
                let from = Requester { service: context.called.id, conn, number: rows as u64 };
                context.effects.push(Effect::Show(from, Wanted::Reports));
                return Handled::Last(Then::Wait);
            }
            PoolRequest::Unknown if is_from_browser(line) => {
                debug!("{conn} is a browser, and is closed");
                return Handled::Last(Then::Close);
            }
            _ => {
                self.replies.push((conn, Reply::BadCommand));
            }
        }
        Handled::Next
    }

    /// Runs one step of the state machine, and ends the connections whose locks it has taken back.
    fn step(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut PoolsState, &mut PoolsStep<'_, '_>)) {
        let (replies, taken_back) = (&mut self.replies, &mut self.taken_back);
        let (now, timers) = (context.time.now, &mut context.timers.typed());
        take(&mut self.state, &mut PoolsStep { now, timers, replies, taken_back });
        if !self.taken_back.is_empty() {
            self.end_taken_back(context);
        }
    }

    /// Writes the replies of the turn, with one look-up of a connection for consecutive replies to it.
    #[inline]
    fn end_turn(&mut self, output: &mut Output) {
        self.state.end_turn();
        for to_one in self.replies.chunk_by(|(one, _), (other, _)| one == other) {
            output.reply_all_lines(to_one[0].0, |bytes| {
                to_one.iter().for_each(|(_, reply)| wire::write_reply(bytes, *reply));
                // Lossless: a turn has a bounded number of requests.
                to_one.len() as u32
            });
        }
        self.replies.clear();
    }

    /// Serves the usual requests at the front of the input, at most `left`, and returns the number of their bytes. Stops
    /// before a request that a rule may refuse.
    #[inline(always)]
    fn serve_usual(&mut self, conn: ConnId, input: &[u8], left: &mut usize, context: &mut Context<'_>) -> usize {
        if log_enabled!(Level::Trace) || context.output.len(conn) >= NEARLY_FULL_BYTES {
            return 0;
        }
        let PoolsService { state, replies, taken_back, max_line, .. } = self;
        let Context { timers, access, time, called, .. } = context;
        let step = &mut PoolsStep { now: time.now, timers: &mut timers.typed(), replies, taken_back };
        let mut rest = input;
        while *left > 0 {
            if let Some(after) = rest.strip_prefix(wire::RELEASE_LINE) {
                access.count_request(conn, step.now);
                state.release(conn, None, step);
                rest = after;
            } else if let Some((mut request, after)) = wire::parse_usual(rest, *max_line) {
                let holds = || state.holds(conn);
                if access.is_on && !access.allows_lock(conn, called.id, (ACQUIRE, request.key), holds, step.now) {
                    break;
                }
                state.acquire(conn, Ok(&mut request), step);
                rest = after;
            } else {
                break;
            }
            *left -= 1;
        }
        input.len() - rest.len()
    }

    /// Serves one request of any kind, which begins after the consumed bytes, and returns the number of consumed bytes
    /// with its own; `Err` if it is the last of the turn.
    #[inline(never)]
    fn serve_one(&mut self, conn: ConnId, input: Input<'_>, consumed: usize, context: &mut Context<'_>) -> Consumed {
        let Input { bytes: input, seen, may_show } = input;
        if context.output.len(conn) >= NEARLY_FULL_BYTES {
            self.end_turn(context.output);
            if context.output.is_full(conn) {
                return Err(Served { consumed, then: Then::Serve });
            }
        }
        let seen = if consumed == 0 { seen } else { 0 };
        match first_line(&input[consumed..], seen, self.max_line) {
            Line::Whole(line, len) => match self.handle(conn, line, may_show, context) {
                Handled::Next => Ok(consumed + len),
                Handled::Last(Then::Close) => Err(Served { consumed: input.len(), then: Then::Close }),
                Handled::Last(then) => Err(Served { consumed: consumed + len, then }),
                Handled::Later(then) => Err(Served { consumed, then }),
            },
            Line::Partial => Err(Served { consumed, then: Then::Read }),
            Line::TooLong => {
                self.replies.push((conn, Reply::LineTooLong));
                Err(Served { consumed: input.len(), then: Then::Close })
            }
        }
    }

    /// Examines some more keys for `STATS KEYS`, and answers it after the last key.
    fn search_keys(&mut self, conn: ConnId, most: usize, context: &mut Context<'_>) -> Handled {
        // The search of a connection that does not read its replies is dropped, and begins anew once it does.
        self.search.take_if(|(searcher, _)| *searcher != conn && context.output.is_full(*searcher));
        let (searcher, search) = self.search.get_or_insert_with(|| (conn, BusiestSearch::new(most)));
        if *searcher != conn || !self.state.search_busiest(search, KEYS_AT_ONCE) {
            self.listing.insert(conn);
            return Handled::Later(Then::Serve);
        }
        self.listing.remove(&conn);
        if let Some((_, search)) = self.search.take() {
            let keys = self.state.found_busiest(search);
            let total = most.min(self.state.keys());
            context.output.reply_lines(conn, |bytes| listing::write_keys(bytes, &keys, total, context.time.now));
        }
        Handled::Last(Then::Serve)
    }

    fn reply_stats(&self, conn: ConnId, query: StatsQuery<'_>, context: &mut Context<'_>) {
        let (now, Conns { peers, traffic }) = (context.time.now, context.conns);
        let state = &self.state;
        let write = |bytes: &mut Vec<u8>| match query {
            StatsQuery::Full => wire::write_figures(bytes, &self.figures(now, traffic)),
            StatsQuery::One(stat) => wire::write_one(bytes, stat, &self.figures(now, traffic)),
            StatsQuery::Holders(key) => {
                let peer =
                    |claim: &ClaimInfo<'_>| claim.kept_until.map_or_else(|| peers.peer(claim.conn), |_| GONE.into());
                listing::write_claims(bytes, state.claims_on(key), state.occupancy(key), now, peer);
            }
            StatsQuery::Types => listing::write_types(bytes, &state.types()),
            StatsQuery::Fields => listing::write_fields(bytes),
            StatsQuery::Unknown => bytes.extend_from_slice(wire::WRONG_STAT),
        };
        context.output.reply_lines(conn, write);
    }
}

impl Service for PoolsService {
    fn caps(&self) -> Caps {
        Caps { request_bytes: self.max_line + 1, output_bytes: MAX_BYTES, idle: None }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        let (mut consumed, mut left) = (0, REQUESTS_PER_TURN);
        // A line that comes in pieces is not read again from its begin.
        let mut is_begun = input.seen > 0;
        let served = loop {
            if !std::mem::take(&mut is_begun) {
                consumed += self.serve_usual(conn, &input.bytes[consumed..], &mut left, context);
            }
            if consumed > 0 && consumed == input.bytes.len() {
                break Served { consumed, then: Then::Read };
            } else if left == 0 {
                break Served { consumed, then: Then::Serve };
            }
            left -= 1;
            match self.serve_one(conn, input, consumed, context) {
                Ok(served) => consumed = served,
                Err(last) => break last,
            }
        };
        self.end_turn(context.output);
        served
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        self.step(context, |state, step| state.expire(due.key(), step));
        self.end_turn(context.output);
    }

    fn has_forgotten(&self, conn: ConnId) -> bool {
        !self.state.has_claims(conn)
    }

    fn usage_of(&self, conn: ConnId) -> Holds {
        self.state.holds(conn)
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.search.take_if(|(searcher, _)| *searcher == conn);
        self.listing.remove(&conn);
        self.step(context, |state, step| state.close(conn, step));
        self.end_turn(context.output);
    }
}
