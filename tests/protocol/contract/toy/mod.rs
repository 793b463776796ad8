//! Toy service over a fake store: numbered texts for which clients can wait. It uses all of the contract that the real
//! services may need, and is known by its entry in a list alone.

#![allow(dead_code, reason = "each test uses its own part")]

mod contract;
mod operations;
mod options;
mod state;
pub mod store;
mod wire;

use operations::Underway;
use options::ToySettings;
use poolcounter_core::id::ConnId;
use poolcounter_core::wheel::Due;
use poolcounter_service::access::{Command, Verb};
use poolcounter_service::contract::{
    Caps, Context, Effect, Info, Input, REQUESTS_PER_TURN, Requester, Served, Service, Then, Wanted,
};
use poolcounter_service::options::Opt;
use poolcounter_service::output::Promise;
use poolcounter_service::settings::{self, Configure};
use state::{Event, State, Step};
use store::{Batch, Finished, Store};
use wire::{Reply, Request};

/// Bound of the unsent output of a connection, in bytes: less than other services allow.
pub const OUTPUT_BYTES: usize = 256 * 1024;

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "toy",
    port: 7999,
    is_enabled: false,
    max_connections: u64::MAX,
    has_store: true,
    title: "",
    conditions: &[],
    announcement: "the toy is at",
    listening: options::LISTENING,
    is_private: false,
    verbs: &["ask"],
    commands: &[Command { word: "PUT", arguments: "<text>", verb: Some(Verb(0)), help: "Stores a text." }],
    refusal: b"",
    settings: settings::defaults::<ToySettings>,
    operations: operations::OPERATIONS,
};

impl Configure for ToySettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

    fn open(&self) -> Box<dyn Service> {
        Box::new(Toy {
            output_bytes: self.output_bytes,
            state: State::default(),
            store: Store::current(),
            underway: Vec::new(),
            events: Vec::new(),
        })
    }
}

struct Toy {
    output_bytes: usize,
    state: State,
    store: Store,
    /// Operations that wait for their commit.
    underway: Vec<Underway>,
    /// Events of the present step; empty between steps.
    events: Vec<Event>,
}

impl Toy {
    /// Takes one step of the state machine, and passes on its events.
    fn step<R>(&mut self, context: &mut Context<'_>, take: impl FnOnce(&mut State, &mut Step<'_, '_>) -> R) -> R {
        let Context { time, timers, random, .. } = context;
        let mut step = Step { now: time.now, timers: &mut timers.typed(), random, events: &mut self.events };
        let result = take(&mut self.state, &mut step);
        for event in self.events.drain(..) {
            match event {
                Event::Reply(conn, reply) => context.output.reply(conn, |bytes| wire::write(bytes, &reply)),
                Event::After(conn, commit, reply) => {
                    let promise = Promise { commit, ..Promise::default() };
                    context.reply_after(conn, promise, |bytes| wire::write(bytes, &reply));
                }
                Event::Resume(conn) => context.resume(conn),
            }
        }
        result
    }

    /// Serves one request. Returns what to do next if that is not the next request.
    fn handle(&mut self, conn: ConnId, line: &[u8], context: &mut Context<'_>) -> Option<Then> {
        let reply = match wire::parse(line) {
            Request::Put(text) => {
                self.step(context, |state, step| state.put(conn, text, step));
                return None;
            }
            Request::Wait { number, patience, stays } => {
                let waits = self.step(context, |state, step| state.wait(conn, number, patience, stays, step));
                return waits.then_some(Then::Wait);
            }
            Request::Risk => {
                let from = Requester { service: context.called.id, conn, number: 0 };
                context.effects.push(Effect::Show(from, Wanted::Telemetry));
                return Some(Then::Wait);
            }
            Request::Later(span, text) => {
                self.step(context, |state, step| state.later(span, text, step));
                Reply::Agreed
            }
            Request::Get(number) => self.state.get(number),
            Request::Fill(len) => Reply::Filler(len),
            Request::Quit => Reply::Bye,
            Request::Unknown => Reply::Unknown,
        };
        context.output.reply(conn, |bytes| wire::write(bytes, &reply));
        (reply == Reply::Bye).then_some(Then::Close)
    }
}

impl Service for Toy {
    fn caps(&self) -> Caps {
        Caps { request_bytes: wire::MAX_LINE, output_bytes: self.output_bytes, idle: None }
    }

    fn serve(&mut self, conn: ConnId, Input { bytes: input, .. }: Input<'_>, context: &mut Context<'_>) -> Served {
        self.store.count(|calls| calls.serves += 1);
        assert!(!self.state.is_waiting(conn), "{conn} is served before it is resumed");
        let mut consumed = 0;
        for _ in 0..REQUESTS_PER_TURN {
            if context.output.is_full(conn) {
                break;
            }
            let Some((line, len)) = wire::first_line(&input[consumed..]) else {
                let is_long = input.len() - consumed >= wire::MAX_LINE;
                return Served { consumed, then: if is_long { Then::Close } else { Then::Read } };
            };
            consumed += len;
            if let Some(then) = self.handle(conn, line, context) {
                return Served { consumed, then };
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn hangup(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.store.count(|calls| calls.hangups += 1);
        // The connection may have been resumed a moment ago; its turn comes later in the tick.
        if self.state.is_waiting(conn) {
            self.step(context, |state, step| state.hangup(conn, step));
        }
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        self.step(context, |state, step| state.expire(due.key(), step));
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.store.count(|calls| calls.closes += 1);
        self.step(context, |state, step| state.close(conn, step));
    }

    fn commit(&mut self, _: &mut Context<'_>) {
        if let Some((commit, crashes, texts)) = self.state.take_batch() {
            self.store.submit(Batch { commit, crashes, texts });
        }
    }

    fn completed(&mut self, context: &mut Context<'_>) {
        while let Some(finished) = self.store.take_finished() {
            match finished {
                Finished::Committed(commit) => {
                    context.release_up_to(commit);
                    self.step(context, |state, step| state.committed(commit, step));
                    self.end_operations(commit, true, context);
                }
                Finished::Crashed => {
                    let last = self.state.crashed();
                    context.replace_up_to(last, |bytes| bytes.extend_from_slice(wire::LOST));
                    self.end_operations(last, false, context);
                }
            }
        }
    }
}
