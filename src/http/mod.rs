//! Metrics for machines and a status page for people, over HTTP: the adapter between the loop and the pages. It looks at the
//! other services through [`Sources`], while it is served, and remembers nothing of its connections.

pub mod host;
mod metrics;
pub mod options;
mod page;
mod samples;
mod status;
mod text;
pub mod wire;

pub use options::HttpSettings;

use crate::id::ConnId;
use crate::options::Opt;
use crate::output::MAX_BYTES;
use crate::pulse::Pulse;
use crate::record::{Reader, Writer};
use crate::registry::Others;
use crate::report::{Overview, Report};
use crate::service::{Caps, Context, IN_ONE_PIECE, Info, Input, Peers, Served, Service, Then, Traffic, Unreadable};
use crate::settings::{self, Configure};
use crate::time::{Span, Time};
use crate::wheel::Due;
use host::Hosts;
use log::trace;
use samples::Samples;
use std::io;
use wire::{Connection, Head, Method, Parsed, Request, Status};

/// How many pages one connection is served before it is another's turn: one takes up to a millisecond when there is much
/// to tell.
const PAGES_PER_TURN: usize = 4;
/// The version of what is written for an upgrade: the samples.
const SAVED_VERSION: u16 = 1;

/// Connections at a time. A few look at the pages; others must not take descriptors from those who work.
const MAX_CONNECTIONS: u64 = 100;

/// The line of the registry.
pub const INFO: Info = Info {
    name: "http",
    port: 7580,
    is_enabled: false,
    max_connections: MAX_CONNECTIONS,
    has_store: false,
    announcement: "metrics and the status page are at",
    listening: options::LISTENING,
    settings: settings::defaults::<HttpSettings>,
};

impl Configure for HttpSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

    fn open(&self) -> Box<dyn Service> {
        Box::new(Http { samples: Samples::default(), hosts: Hosts::with(&self.hosts) })
    }
}

/// How long a connection is kept without a page. Few are allowed, and those that ask nothing must not shut out those that do.
const IDLE_LIMIT: Span = Span::from_secs(10);

/// The service: what it remembers between requests.
pub struct Http {
    samples: Samples,
    /// The names that requests may be for.
    hosts: Hosts,
}

/// Everything that a page may show, at one moment.
struct Moment<'a> {
    now: Time,
    /// The time of day at the start, since 1970.
    epoch: Span,
    overview: Overview,
    pulse: &'a Pulse,
    /// Timers that are armed.
    timers: usize,
    samples: &'a Samples,
}

impl Moment<'_> {
    /// The time of day, since 1970, as far as it was known at the start.
    fn time_of_day(&self, at: Time) -> Span {
        self.epoch + at.since(Time::START)
    }
}

/// What there is to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Status,
    Json,
    Metrics,
    Health,
}

impl Page {
    fn at(path: &str) -> Option<Page> {
        match path {
            "/" => Some(Page::Status),
            "/status.json" => Some(Page::Json),
            "/metrics" => Some(Page::Metrics),
            "/healthz" => Some(Page::Health),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Page::Status => "text/html; charset=utf-8",
            Page::Json => "application/json",
            Page::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Page::Health => PLAIN,
        }
    }
}

/// What a person reads who has asked under a name that is not known.
const MISDIRECTED: &str = "This server does not know that name; the option --http-host would tell it.\n";

const PLAIN: &str = "text/plain; charset=utf-8";

impl Http {
    fn answer(&self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) {
        let Request { method, host, path, connection } = request;
        let page = Page::at(path);
        let status = match (page, method) {
            _ if host.is_some_and(|host| !self.hosts.include(host)) => Status::MisdirectedRequest,
            (None, _) => Status::NotFound,
            (Some(_), Method::Other) => Status::MethodNotAllowed,
            (Some(_), Method::Get | Method::Head) => Status::Ok,
        };
        trace!("{conn} > {method:?} {path:?}");
        let body = match page {
            Some(page) if status == Status::Ok => self.render(page, context),
            _ if status == Status::MisdirectedRequest => format!("{}\n{MISDIRECTED}", status.text()),
            _ => format!("{}\n", status.text()),
        };
        let content_type = page.filter(|_| status == Status::Ok).map_or(PLAIN, Page::content_type);
        let policy = (page == Some(Page::Status)).then_some(page::POLICY);
        let head = Head { status, content_type, length: body.len(), policy, connection };
        send(conn, &head, if method == Method::Head { "" } else { &body }, context);
    }

    fn render(&self, page: Page, context: &Context<'_>) -> String {
        let moment = || Moment {
            now: context.now,
            epoch: context.epoch,
            overview: context.others.overview(context.now, context.peers),
            pulse: context.pulse,
            timers: context.timers.armed(),
            samples: &self.samples,
        };
        match page {
            Page::Status => page::render(&status::Status::of(&moment())),
            Page::Json => status::Status::of(&moment()).to_json(),
            Page::Metrics => metrics::render(&moment()),
            Page::Health => "ok\n".into(),
        }
    }
}

/// The last answer on a connection.
fn refuse(conn: ConnId, status: Status, context: &mut Context<'_>) {
    let body = format!("{}\n", status.text());
    let connection = Connection::Ends;
    let head = Head { status, content_type: PLAIN, length: body.len(), policy: None, connection };
    send(conn, &head, &body, context);
}

fn send(conn: ConnId, head: &Head<'_>, body: &str, context: &mut Context<'_>) {
    trace!("{conn} < {}, {} bytes", head.status.text(), body.len());
    context.output.reply(conn, |bytes| {
        head.write(bytes);
        bytes.extend_from_slice(body.as_bytes());
    });
}

impl Service for Http {
    fn caps(&self) -> Caps {
        Caps { request_bytes: wire::MAX_REQUEST, output_bytes: MAX_BYTES, idle: Some(IDLE_LIMIT) }
    }

    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served {
        let input = input.bytes;
        let mut consumed = 0;
        for _ in 0..PAGES_PER_TURN {
            if context.output.is_full(conn) {
                break;
            }
            match wire::parse(&input[consumed..]) {
                Parsed::Whole(request, len) => {
                    self.answer(conn, request, context);
                    consumed += len;
                    if request.connection == Connection::Ends {
                        return Served { consumed: input.len(), then: Then::Close };
                    }
                }
                Parsed::Partial => return Served { consumed, then: Then::Read },
                Parsed::Refused(status) => {
                    refuse(conn, status, context);
                    return Served { consumed: input.len(), then: Then::Close };
                }
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn expire(&mut self, _: Due, _: &mut Context<'_>) {}

    fn close(&mut self, _: ConnId, _: &mut Context<'_>) {}

    fn observe(&mut self, others: &Others<'_>, now: Time) -> Time {
        if let Some(sample) = others.samples().next() {
            self.samples.note(now, sample);
        }
        self.samples.next()
    }

    fn report(&self, _: Time, _: &Traffic, _: &dyn Peers) -> Report {
        Report::default()
    }

    fn saved_version(&self) -> u16 {
        SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        out.put(&self.samples)
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, _: &mut Context<'_>) -> Result<(), Unreadable> {
        match version {
            IN_ONE_PIECE | SAVED_VERSION => self.samples = saved.take()?,
            _ => return Err(Unreadable::version("http", version)),
        }
        Ok(())
    }

    fn check(&self) {}

    fn is_empty(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{FULL_BYTES, MAX_BYTES};
    use crate::report::{Holder, HotKey, Key, Pools, Sample, ServiceReport, Type};
    use crate::service::Traffic;
    use crate::stats::{Pools as Stat, Stat as _};

    /// As much as there can be to tell, in names that grow most when they are escaped.
    fn most(name: impl Fn(usize) -> Vec<u8>) -> Overview {
        let histogram = || {
            let mut histogram = crate::histogram::Histogram::default();
            (0..1_000_000).for_each(|n| histogram.record(Span::from_micros(n * n)));
            histogram
        };
        let kind =
            Type { waits: histogram(), holds: histogram(), acquired: u64::MAX, full: u64::MAX, ..Type::default() };
        let pools = Pools {
            types: (0..1_000).map(|n| Type { name: name(n), ..kind.clone() }).collect(),
            busiest: (0..1_000).map(|n| Key { key: name(n), ..Key::default() }).collect(),
            hottest: (0..1_000).map(|n| HotKey { key: name(n), refusals: u64::MAX, waits: u64::MAX }).collect(),
            holders: (0..1_000).map(|n| Holder { key: name(n), ..Holder::default() }).collect(),
            ..Pools::default()
        };
        let figures: Vec<_> = Stat::ALL.iter().map(|stat| (stat.row(), u64::MAX)).collect();
        let service = |name| {
            let report = Report { figures: figures.clone(), pools: Some(pools.clone()) };
            ServiceReport { name, traffic: Traffic::default(), report }
        };
        Overview { services: vec![service("pools"), service("counters"), service("http")] }
    }

    /// Whoever has not read all but the last byte that makes it full is told one page more, and must not be closed for it.
    #[test]
    fn no_page_is_too_long_for_a_connection() {
        let (pulse, mut samples) = (Pulse::default(), Samples::default());
        let sample = Sample { acquired: u64::MAX, refused: u64::MAX, working: u64::MAX, waiting: u64::MAX };
        samples.note(Time::from_micros(1_000_000_000), sample);
        let long = |n: usize, filler: &[u8]| [format!("{n}").as_bytes(), &filler.repeat(900)].concat();
        for filler in ["\"", "\\", "\u{ff}", "&", "'", "<", "\u{202e}", "x"] {
            let overview = most(|n| long(n, filler.as_bytes()));
            let epoch = Span::ZERO;
            let moment = Moment { now: Time::START, epoch, overview, pulse: &pulse, timers: 0, samples: &samples };
            let status = status::Status::of(&moment);
            let pages = [page::render(&status), status.to_json(), metrics::render(&moment)];
            let lengths = pages.map(|page| page.len());
            assert!(lengths.iter().all(|len| *len < MAX_BYTES - FULL_BYTES - 1_000), "{filler:?}: {lengths:?}");
        }
    }

    #[test]
    fn types_that_look_alike_are_one_metric() {
        let (pulse, samples) = (Pulse::default(), Samples::default());
        let overview = most(|n| [&[b'x'; 100], format!("{n}").as_bytes()].concat());
        let epoch = Span::ZERO;
        let moment = Moment { now: Time::START, epoch, overview, pulse: &pulse, timers: 0, samples: &samples };
        let page = metrics::render(&moment);
        assert_eq!(page.matches("poolcounter_pools_type_working{").count(), 1);
    }
}
