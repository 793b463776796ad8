//! PoolCounter: the adapter between the loop and the pools. It turns bytes into requests and replies into bytes, and
//! decides nothing itself.

mod notices;
mod report;
mod state;
pub mod wire;

pub use report::MOST_ROWS;
pub use state::{Acquire, BadSyntax, Busy, Client, Limits, Notice, Purpose, Reply, State, Step, Type};

use crate::id::ConnId;
use crate::output::Output;
use crate::record::{Reader, Writer};
use crate::service::{Context, REQUESTS_PER_TURN, Served, Service, Then, Traffic, Unreadable};
use crate::stats::{Figures, Pools as Stat};
use crate::time::Time;
use log::trace;
use std::io;
use wire::listing::{self, MOST_LINES};
use wire::{Line, Query, Request};

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
    pub fn new(limits: Limits) -> Self {
        Pools { state: State::new(limits), max_line: limits.max_line, replies: Vec::new(), notices: Vec::new() }
    }

    /// Serves one request, and tells whether the connection's turn ends with it.
    fn handle(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> bool {
        trace!("{conn} > {}", line.escape_ascii());
        let request = wire::parse(line);
        match request {
            Request::Acquire(request) => self.step(context, |state, step| state.acquire(conn, request, step)),
            Request::Release(key) => self.step(context, |state, step| state.release(conn, key, step)),
            Request::Stats(query) => self.tell_stats(conn, query, context),
            Request::Unknown => tell(context.output, conn, wire::BAD_COMMAND),
        }
        // Every key is looked at, so others are served before the next of these.
        matches!(request, Request::Stats(Query::Keys(_)))
    }

    /// Has the state machine take one step, and passes on what it says.
    fn step(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let (replies, notices) = (&mut self.replies, &mut self.notices);
        take(&mut self.state, &mut Step { now: context.now, timers: &mut context.timers, replies, notices });
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
        trace!("{conn} < {query:?}");
        context.output.reply(conn, |bytes| match query {
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
        });
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
    fn serve(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Served {
        let mut consumed = 0;
        for _ in 0..REQUESTS_PER_TURN {
            if context.output.is_full(conn) {
                break;
            }
            match wire::first_line(&input[consumed..], self.max_line) {
                Line::Whole(line, len) => {
                    consumed += len;
                    if self.handle(conn, line, context) {
                        break;
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

    fn longest_request(&self) -> usize {
        self.max_line + 1
    }

    fn expire(&mut self, key: usize, context: &mut Context<'_>) {
        self.step(context, |state, step| state.expire(key, step));
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.step(context, |state, step| state.close(conn, step));
    }

    fn saved_version(&self) -> u16 {
        state::SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()> {
        self.state.save(out, &context.timers)
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.state.restore(version, saved, &mut context.timers)
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
    trace!("{conn} < {}", line.escape_ascii());
    output.reply(conn, |bytes| bytes.extend_from_slice(line));
}
