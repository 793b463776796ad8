//! PoolCounter: the adapter between the loop and the pools. It turns bytes into requests and replies into bytes, and
//! decides nothing itself.

mod state;
pub mod wire;

pub use state::{Acquire, BadSyntax, Limits, Purpose, Reply, State, Step};

use crate::id::ConnId;
use crate::output::Output;
use crate::report;
use crate::service::{Context, REQUESTS_PER_TURN, Served, Service, Then, Traffic, Unreadable};
use crate::stats::{Figures, Pools as Stat};
use crate::time::Time;
use log::trace;
use wire::{Line, Query, Request};

/// The pools service.
pub struct Pools {
    state: State,
    max_line: usize,
    /// What the present step has to say; empty between steps.
    replies: Vec<(ConnId, Reply)>,
}

impl Pools {
    /// A service without pools.
    pub fn new(limits: Limits) -> Self {
        Pools { state: State::new(limits), max_line: limits.max_line, replies: Vec::new() }
    }

    /// What was counted, and the levels as they are now.
    pub fn figures(&self, now: Time, traffic: &Traffic) -> Figures<Stat> {
        let mut figures = self.state.figures(now);
        figures.set(Stat::ConnectErrors, traffic.connect_errors);
        figures.set(Stat::FailedSends, traffic.failed_sends);
        figures
    }

    /// What operators are told.
    pub fn report(&self, now: Time, traffic: &Traffic) -> report::Pools {
        report::Pools { figures: self.figures(now, traffic).rows().collect(), ..report::Pools::default() }
    }

    fn handle(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) {
        trace!("{conn} > {}", line.escape_ascii());
        match wire::parse(line) {
            Request::Acquire(request) => self.step(context, |state, step| state.acquire(conn, request, step)),
            Request::Release(key) => self.step(context, |state, step| state.release(conn, key, step)),
            Request::Stats(query) => self.tell_stats(conn, query, context),
            Request::Unknown => tell(context.output, conn, wire::BAD_COMMAND),
        }
    }

    /// Has the state machine take one step, and passes on what it says.
    fn step(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
        let mut step = Step { now: context.now, timers: &mut context.timers, replies: &mut self.replies };
        take(&mut self.state, &mut step);
        for (conn, reply) in self.replies.drain(..) {
            tell(context.output, conn, wire::text_of(reply));
        }
    }

    fn tell_stats(&self, conn: ConnId, query: Query, context: &mut Context<'_>) {
        let figures = self.figures(context.now, context.traffic);
        trace!("{conn} < {query:?}");
        context.output.reply(conn, |bytes| wire::write_stats(bytes, query, &figures));
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
                    self.handle(conn, line, context);
                    consumed += len;
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

    fn save(&self, context: &mut Context<'_>) -> Vec<u8> {
        postcard::to_allocvec(&self.state.save(&context.timers)).expect("a vector takes every byte")
    }

    fn restore(&mut self, saved: &[u8], context: &mut Context<'_>) -> Result<(), Unreadable> {
        let saved = postcard::from_bytes(saved).map_err(|error| Unreadable(format!("pools: {error}")))?;
        self.state.restore(saved, &mut context.timers)
    }

    fn check(&self) {
        self.state.check();
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty()
    }
}

fn tell(output: &mut Output, conn: ConnId, line: &'static [u8]) {
    trace!("{conn} < {}", line.escape_ascii());
    output.reply(conn, |bytes| bytes.extend_from_slice(line));
}
