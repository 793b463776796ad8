//! PoolCounter: the adapter between the loop and the pools. It turns bytes into requests and replies into bytes, and
//! decides nothing itself.

mod notices;
pub mod options;
mod report;
mod state;
pub mod wire;

pub use options::PoolsSettings;
pub use report::MOST_ROWS;
pub use state::{Acquire, BadSyntax, Busy, Client, Notice, Purpose, Reply, State, Step, Type};

use crate::id::ConnId;
use crate::options::Opt;
use crate::output::{MAX_BYTES, Output};
use crate::record::{Reader, Writer};
use crate::report::{Report, Sample};
use crate::service::{
    Caps, Context, Info, Input, Peers, REQUESTS_PER_TURN, Served, Service, Then, Traffic, Unreadable,
};
use crate::settings::{self, Configure};
use crate::stats::{Figures, Pools as Stat};
use crate::text::escaped;
use crate::time::Time;
use crate::wheel::Due;
use log::{Level, debug, log_enabled, trace};
use std::io;
use wire::listing::{self, MOST_LINES};
use wire::{Line, Query, Request};

/// The line of the registry.
pub const INFO: Info = Info {
    name: "pools",
    port: 7531,
    is_enabled: true,
    max_connections: u64::MAX,
    has_store: false,
    announcement: "listens on",
    listening: options::LISTENING,
    settings: settings::defaults::<PoolsSettings>,
};

impl Configure for PoolsSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

    fn open(&self) -> Box<dyn Service> {
        Box::new(Pools::new(*self))
    }
}

/// The pools service.
pub struct Pools {
    state: State,
    max_line: usize,
    /// What the present step has to say; empty between steps.
    replies: Vec<(ConnId, Reply)>,
    /// What the operator is to be told of it; empty between steps.
    notices: Vec<Notice>,
}

impl Pools {
    /// A service without pools.
    pub fn new(settings: PoolsSettings) -> Self {
        Pools { state: State::new(settings), max_line: settings.max_line, replies: Vec::new(), notices: Vec::new() }
    }

    /// Serves one request. Returns what to do next if the connection's turn ends with it.
    fn handle(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> Option<Then> {
        trace!("{conn} > {}", escaped(line));
        let request = wire::parse(line);
        match request {
            Request::Acquire(request) => self.step(context, |state, step| state.acquire(conn, request, step)),
            Request::Release(key) => self.step(context, |state, step| state.release(conn, key, step)),
            Request::Stats(query) => self.tell_stats(conn, query, context),
            Request::Unknown if wire::is_http(line) => {
                debug!("{conn} speaks HTTP here");
                return Some(Then::Close);
            }
            Request::Unknown => tell(context.output, conn, wire::BAD_COMMAND),
        }
        // Every key is looked at, so others are served before the next of these.
        matches!(request, Request::Stats(Query::Keys(_))).then_some(Then::Serve)
    }

    /// Has the state machine take one step, and passes on what it says.
    fn step(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let (replies, notices) = (&mut self.replies, &mut self.notices);
        take(&mut self.state, &mut Step { now: context.now, timers: &mut context.timers.typed(), replies, notices });
        for (conn, reply) in self.replies.drain(..) {
            tell(context.output, conn, wire::text_of(reply));
        }
        if !self.notices.is_empty() {
            self.notices.drain(..).for_each(|notice| notices::log(&notice, context.peers));
        }
    }

    fn tell_stats(&self, conn: ConnId, query: Query<'_>, context: &mut Context<'_>) {
        let Context { now, traffic, peers, .. } = *context;
        let state = &self.state;
        let write = |bytes: &mut Vec<u8>| match query {
            Query::Full => wire::write_figures(bytes, &self.figures(now, traffic)),
            Query::One(stat) => wire::write_one(bytes, stat, &self.figures(now, traffic)),
            Query::Keys(most) => {
                listing::write_keys(bytes, &state.busiest(most.min(MOST_LINES)), most.min(state.keys()), now);
            }
            Query::Holders(key) => {
                let peer = |client: &Client<'_>| peers.peer(client.conn);
                listing::write_clients(bytes, state.clients(key), state.occupancy(key), now, peer);
            }
            Query::Types => listing::write_types(bytes, &state.types()),
            Query::Unknown => bytes.extend_from_slice(wire::WRONG_STAT),
        };
        reply(context.output, conn, write);
    }

    /// What was counted here and below.
    pub fn figures(&self, now: Time, traffic: &Traffic) -> Figures<Stat> {
        let mut figures = self.state.figures(now);
        figures.set(Stat::ConnectErrors, traffic.connect_errors);
        figures.set(Stat::FailedSends, traffic.failed_sends);
        figures
    }
}

impl Service for Pools {
    fn caps(&self) -> Caps {
        Caps { request_bytes: self.max_line + 1, output_bytes: MAX_BYTES, idle: None }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        let Input { bytes: input, seen } = input;
        let mut consumed = 0;
        for _ in 0..REQUESTS_PER_TURN {
            if context.output.is_full(conn) {
                break;
            }
            let seen = if consumed == 0 { seen } else { 0 };
            match wire::first_line(&input[consumed..], seen, self.max_line) {
                Line::Whole(line, len) => {
                    consumed += len;
                    match self.handle(conn, line, context) {
                        None => {}
                        Some(Then::Close) => return Served { consumed: input.len(), then: Then::Close },
                        Some(then) => return Served { consumed, then },
                    }
                }
                Line::Partial => return Served { consumed, then: Then::Read },
                Line::TooLong => {
                    tell(context.output, conn, wire::LINE_TOO_LONG);
                    return Served { consumed: input.len(), then: Then::Close };
                }
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        self.step(context, |state, step| state.expire(due.key(), step));
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.step(context, |state, step| state.close(conn, step));
    }

    fn report(&self, now: Time, traffic: &Traffic, peers: &dyn Peers) -> Report {
        let figures = self.figures(now, traffic).rows().collect();
        Report { figures, pools: Some(self.tables(now, peers)) }
    }

    fn sample(&self) -> Option<Sample> {
        Some(self.standing())
    }

    fn saved_version(&self) -> u16 {
        state::SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()> {
        self.state.save(out, &context.timers.typed())
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.state.restore(version, saved, &mut context.timers.typed())
    }

    fn check(&self) {
        self.state.check();
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    fn own_timers(&self) -> usize {
        self.state.own_timers()
    }
}

fn tell(output: &mut Output, conn: ConnId, line: &'static [u8]) {
    reply(output, conn, |bytes| bytes.extend_from_slice(line));
}

/// Adds the lines of one reply, and logs each if that is wanted.
fn reply(output: &mut Output, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
    output.reply(conn, |bytes| {
        let start = bytes.len();
        write(bytes);
        if log_enabled!(Level::Trace) {
            let lines = bytes[start..].split_inclusive(|byte| *byte == b'\n');
            lines.for_each(|line| trace!("{conn} < {}", escaped(line.strip_suffix(b"\n").unwrap_or(line))));
        }
    });
}
