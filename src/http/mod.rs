//! Metrics for machines and a status page for people, over HTTP: the adapter between the loop and the pages. It looks at the
//! other services through [`Sources`], while it is served, and remembers nothing of its connections.

mod metrics;
mod page;
mod samples;
mod status;
mod text;
pub mod wire;

use crate::id::ConnId;
use crate::pulse::Pulse;
use crate::record::{Reader, Writer};
use crate::report::{Overview, Sample};
use crate::service::{Context, IN_ONE_PIECE, Peers, Served, Service, Then, Unreadable};
use crate::time::{Span, Time};
use log::trace;
use samples::Samples;
use std::io;
use wire::{Connection, Head, Method, Parsed, Request, Status};

/// How many pages one connection is served before it is another's turn: one takes up to a millisecond when there is much
/// to tell.
const PAGES_PER_TURN: usize = 4;
/// The version of what is written for an upgrade: the samples.
const SAVED_VERSION: u16 = 1;

/// The service: what it remembers between requests.
#[derive(Default)]
pub struct Http {
    samples: Samples,
}

/// The service while it is called, with what it may look at.
pub struct Serving<'a> {
    /// The service.
    pub http: &'a mut Http,
    /// The others.
    pub sources: &'a dyn Sources,
}

/// What there is to look at.
pub trait Sources {
    /// Everything that the services tell at the time `now`.
    fn overview(&self, now: Time, peers: &dyn Peers) -> Overview;
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

/// What there is to ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Status,
    Json,
    Metrics,
    Health,
}

impl Http {
    /// Whether it is time for [`Http::sample`].
    pub fn wants_sample(&self, now: Time) -> bool {
        self.samples.wants(now)
    }

    /// Notes how things stand now, and have stood since the last tick.
    pub fn sample(&mut self, now: Time, sample: Sample) {
        self.samples.note(now, sample);
    }
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

const PLAIN: &str = "text/plain; charset=utf-8";

impl Serving<'_> {
    fn answer(&self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) {
        let Request { method, path, connection } = request;
        let page = Page::at(path);
        let status = match (page, method) {
            (None, _) => Status::NotFound,
            (Some(_), Method::Other) => Status::MethodNotAllowed,
            (Some(_), Method::Get | Method::Head) => Status::Ok,
        };
        trace!("{conn} > {method:?} {path:?}: {}", status.text());
        let body = match page {
            Some(page) if status == Status::Ok => self.render(page, context),
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
            overview: self.sources.overview(context.now, context.peers),
            pulse: context.pulse,
            timers: context.timers.armed(),
            samples: &self.http.samples,
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
    context.output.reply(conn, |bytes| {
        head.write(bytes);
        bytes.extend_from_slice(body.as_bytes());
    });
}

impl Service for Serving<'_> {
    fn serve(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Served {
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

    fn longest_request(&self) -> usize {
        wire::MAX_REQUEST
    }

    fn expire(&mut self, _: usize, _: &mut Context<'_>) {}

    fn close(&mut self, _: ConnId, _: &mut Context<'_>) {}

    fn saved_version(&self) -> u16 {
        SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        out.put(&self.http.samples)
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, _: &mut Context<'_>) -> Result<(), Unreadable> {
        match version {
            IN_ONE_PIECE | SAVED_VERSION => self.http.samples = saved.take()?,
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
    use crate::report::{Holder, HotKey, Key, Pools, Service, Type};
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
        let service = |name| Service { name, traffic: Traffic::default(), figures: figures.clone() };
        Overview { services: vec![service("pools"), service("counters"), service("http")], pools }
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
