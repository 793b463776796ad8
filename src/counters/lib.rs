//! Counters: the adapter between the loop and the counters. It turns bytes into requests and results into bytes, and
//! makes no decisions.

mod contract;
mod health;
pub mod options;
mod report;
mod rights;
mod state;

pub use options::CountersSettings;
pub use poolcounter_protocol::counters::{commands, request, stats, wire};
pub use state::{
    AcquireUnits, COUNTER_BYTES, CounterRecord, CounterRefusal, CountersState, CountersStep, HOLDING_BYTES,
    ReleaseUnits,
};

use commands::Opcode;
use log::{debug, trace};
use poolcounter_core::browser::is_from_browser;
use poolcounter_core::text::escaped;
use poolcounter_core::{ConnId, Due, Figures, SideTable, Time};
use poolcounter_service::access::Holds;
use poolcounter_service::contract::{Caps, Context, Info, Input, REQUESTS_PER_TURN, Served, Service, Then, Traffic};
use poolcounter_service::health::Growth;
use poolcounter_service::options::Opt;
use poolcounter_service::output::{MAX_BYTES, Output};
use poolcounter_service::settings::{self, Configure};
use serde::{Deserialize, Serialize};
use stats::CounterStat as Stat;
use std::collections::BTreeMap;
use wire::{CounterRequest, FIELDS_BYTES, HEADER_BYTES, Header, Malformed, STATUS_OFFSET};

/// Slots of the table that a Dump visits in one turn, with or without counters in them.
const DUMP_SLOTS: usize = 4096;

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "counters",
    port: poolcounter_protocol::counters::DEFAULT_PORT,
    is_enabled: false,
    max_connections: u64::MAX,
    has_store: false,
    title: "Counters",
    conditions: health::CONDITIONS,
    announcement: "the counters are at",
    listening: options::LISTENING,
    is_private: false,
    verbs: commands::VERBS,
    commands: Opcode::ROWS,
    refusal: rights::REFUSAL,
    settings: settings::defaults::<CountersSettings>,
    operations: &[],
};

impl Configure for CountersSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

    fn open(&self) -> Box<dyn Service> {
        Box::new(CountersService::new(*self))
    }
}

/// The counters service. Its default is the part that no setting changes.
#[derive(Default)]
pub struct CountersService {
    state: CountersState,
    /// True while no units are granted, because the daemon ends once all are released.
    refuses_new: bool,
    sessions: SideTable<ConnId, CounterSession>,
    warn_refusals: u64,
    /// Growth of the requests refused at their maximum, and for lack of memory.
    minute: Growth<2>,
    /// Counters at whose maximum requests were refused, each with the time of the look that found it.
    refused: BTreeMap<Vec<u8>, Time>,
}

/// State of a connection beyond its holdings.
#[derive(Clone, Default, Serialize, Deserialize)]
struct CounterSession {
    /// First slot of the table that the Dump under way has not sent.
    dump_next: Option<u32>,
    /// Request with a long body that is not complete.
    long: Option<Box<LongRequest>>,
}

/// Request with a body longer than its fields can be. The whole body must arrive before the reply, but need not be
/// kept.
#[derive(Clone, Serialize, Deserialize)]
struct LongRequest {
    /// Header and fields.
    kept: Vec<u8>,
    /// Number of bytes of the body that have not arrived.
    missing: usize,
}

/// Progress of a request.
enum RequestProgress {
    /// Answered.
    Done,
    /// Must be served again: its replies do not fit into one turn.
    Partly,
    /// Refused; the connection is closed.
    Over,
}

impl CountersService {
    /// Returns a service without counters.
    pub fn new(settings: CountersSettings) -> Self {
        let warn_refusals = settings.warn_refusals;
        CountersService { warn_refusals, state: CountersState::new(settings), ..CountersService::default() }
    }

    /// Returns the statistics, with present levels.
    pub fn figures(&self, traffic: &Traffic) -> Figures<Stat> {
        let mut figures = self.state.figures();
        figures.set(Stat::CurrConnections, traffic.open);
        figures.set(Stat::TotalConnections, traffic.opened.get());
        figures
    }

    /// Serves the first request of the input, and returns the number of consumed bytes; `None` if the request is
    /// incomplete.
    fn serve_one(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Option<(usize, RequestProgress)> {
        if let Some(long) = self.sessions.get_mut(conn).long.take() {
            return self.continue_long(conn, long, input, context);
        }
        let header = Header::parse(input)?;
        if !header.is_request && is_from_browser(input) {
            debug!("{conn} is a browser, and is closed");
            return Some((input.len(), RequestProgress::Over));
        }
        let is_too_long = header.body_bytes > wire::MAX_BODY_BYTES;
        let kept = HEADER_BYTES + header.body_bytes.min(FIELDS_BYTES);
        if !is_too_long && input.len() < kept {
            return None;
        }
        if !is_too_long && header.body_bytes > FIELDS_BYTES {
            let long = LongRequest { kept: input[..kept].to_vec(), missing: header.body_bytes - FIELDS_BYTES };
            self.sessions.get_mut(conn).long = Some(Box::new(long));
            return Some((kept, RequestProgress::Done));
        }
        let body = if is_too_long { &[] } else { &input[HEADER_BYTES..kept] };
        Some(match self.handle(conn, &header, body, context) {
            RequestProgress::Done => (kept, RequestProgress::Done),
            RequestProgress::Partly => (0, RequestProgress::Partly),
            RequestProgress::Over => (input.len(), RequestProgress::Over),
        })
    }

    /// Consumes the part of a long body that has arrived, and serves the request once it is complete.
    fn continue_long(
        &mut self,
        conn: ConnId,
        mut long: Box<LongRequest>,
        input: &[u8],
        context: &mut Context<'_>,
    ) -> Option<(usize, RequestProgress)> {
        let skipped = long.missing.min(input.len());
        long.missing -= skipped;
        if long.missing == 0 {
            let header = Header::parse(&long.kept).expect("a header is kept whole");
            let progress = self.handle(conn, &header, &long.kept[HEADER_BYTES..], context);
            if !matches!(progress, RequestProgress::Partly) {
                return Some((skipped, progress));
            }
            // The last byte stays in the input until the request is done.
            long.missing = 1;
            self.sessions.get_mut(conn).long = Some(long);
            return Some((skipped - 1, RequestProgress::Partly));
        }
        self.sessions.get_mut(conn).long = Some(long);
        (skipped > 0).then_some((skipped, RequestProgress::Done))
    }

    fn handle(&mut self, conn: ConnId, header: &Header, body: &[u8], context: &mut Context<'_>) -> RequestProgress {
        trace!("{conn} > {:#04x} {}", header.opcode, escaped(body));
        let request = match header.request(body) {
            Ok(request) => request,
            Err(malformed) => {
                context.count_request(conn);
                reply(context.output, conn, |bytes| wire::write_malformed(bytes, header, malformed));
                return if malformed == Malformed::TooLong { RequestProgress::Over } else { RequestProgress::Done };
            }
        };
        // A Dump under way was checked when it began.
        if context.has_rules()
            && self.sessions.get(conn).dump_next.is_none()
            && let Some(refusal) = self.refusal_of(conn, &request, context)
        {
            reply(context.output, conn, |bytes| wire::write_refusal(bytes, header, refusal));
            return RequestProgress::Done;
        }
        let number = match request {
            CounterRequest::Noop => self.counting(Stat::Noop, |_| Ok(None)),
            CounterRequest::Get(name) => {
                self.counting(Stat::Get, |state| state.get(name, &mut step(context)).map(Some))
            }
            CounterRequest::Acquire(_) if self.refuses_new => {
                self.counting(Stat::Acquire, |_| Err(CounterRefusal::NotAvailable))
            }
            CounterRequest::Acquire(acquire) => {
                self.counting(Stat::Acquire, |state| state.acquire(conn, acquire, &mut step(context)).map(Some))
            }
            CounterRequest::Release(release) => {
                self.counting(Stat::Release, |state| state.release(conn, release, &mut step(context)).map(|()| None))
            }
            CounterRequest::Stats => {
                self.reply_stats(conn, header, context);
                return RequestProgress::Done;
            }
            CounterRequest::Dump => return self.continue_dump(conn, header, context),
        };
        reply(context.output, conn, |bytes| match number {
            Ok(None) => wire::write_ok(bytes, header),
            Ok(Some(number)) => wire::write_number(bytes, header, number),
            Err(refusal) => wire::write_refusal(bytes, header, refusal),
        });
        RequestProgress::Done
    }

    fn counting<R>(&mut self, command: Stat, act: impl FnOnce(&mut CountersState) -> R) -> R {
        self.state.count(command);
        act(&mut self.state)
    }

    fn reply_stats(&mut self, conn: ConnId, header: &Header, context: &mut Context<'_>) {
        self.state.count(Stat::Stats);
        self.state.roll_interval(&mut step(context));
        let figures = self.figures(context.conns.traffic);
        reply(context.output, conn, |bytes| wire::write_stats(bytes, header, &figures));
    }

    /// Sends as many counters as the connection's output takes. Each is sent once; counters that are created or dropped
    /// meanwhile may be missing.
    fn continue_dump(&mut self, conn: ConnId, header: &Header, context: &mut Context<'_>) -> RequestProgress {
        self.state.roll_interval(&mut step(context));
        let first = match self.sessions.get_mut(conn).dump_next.take() {
            Some(slot) => slot as usize,
            None => {
                self.state.count(Stat::Dump);
                0
            }
        };
        let mut slot = first;
        while slot < self.state.slots() {
            if slot - first == DUMP_SLOTS || context.output.is_full(conn) {
                self.sessions.get_mut(conn).dump_next = Some(slot as u32);
                return RequestProgress::Partly;
            }
            if let Some(record) = self.state.record(slot) {
                reply(context.output, conn, |bytes| wire::write_record(bytes, header, &record));
            }
            slot += 1;
        }
        reply(context.output, conn, |bytes| wire::write_ok(bytes, header));
        RequestProgress::Done
    }
}

impl CounterSession {
    fn is_busy(&self) -> bool {
        self.dump_next.is_some() || self.long.is_some()
    }
}

/// Returns a step of the state machine at the time of the call.
fn step<'a>(context: &'a mut Context<'_>) -> CountersStep<'a> {
    CountersStep { now: context.time.now, epoch: context.time.epoch, timers: context.timers.typed() }
}

/// Adds one reply, and logs its status and body at the level trace.
fn reply(output: &mut Output, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
    output.reply(conn, |bytes| {
        let start = bytes.len();
        write(bytes);
        trace!("{conn} < {:#04x} {}", bytes[start + STATUS_OFFSET], escaped(&bytes[start + HEADER_BYTES..]));
    });
}

impl Service for CountersService {
    fn caps(&self) -> Caps {
        Caps { request_bytes: HEADER_BYTES + FIELDS_BYTES, output_bytes: MAX_BYTES, idle: None }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        let input = input.bytes;
        let mut consumed = 0;
        for _ in 0..REQUESTS_PER_TURN {
            if consumed > 0 && consumed == input.len() {
                return Served { consumed, then: Then::Read };
            }
            if context.output.is_full(conn) {
                break;
            }
            let Some((len, progress)) = self.serve_one(conn, &input[consumed..], context) else {
                return Served { consumed, then: Then::Read };
            };
            consumed += len;
            match progress {
                RequestProgress::Done => {}
                RequestProgress::Partly => break,
                RequestProgress::Over => return Served { consumed, then: Then::Close },
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn expire(&mut self, due: Due, context: &mut Context<'_>) {
        self.state.expire(due.key(), &mut step(context));
    }

    fn close(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.sessions.clear(conn);
        self.state.close(conn, &mut step(context));
    }

    fn usage_of(&self, conn: ConnId) -> Holds {
        Holds { locks: self.state.held_by(conn), waits: 0 }
    }

    fn kept_bytes(&self, conn: ConnId) -> usize {
        self.sessions.get(conn).long.as_ref().map_or(0, |long| long.kept.capacity())
    }
}
