//! Metrics for machines and a status page for people, over HTTP: the adapter between the loop and the pages. It shows
//! snapshots of the other services, requested by an effect.

mod contract;
mod exposition;
mod fleet;
pub mod host;
mod metrics;
mod operations;
pub mod options;
#[doc(hidden)]
pub mod page;
mod recent;
mod resource;
mod rights;
mod samples;
mod snapshots;
mod tabs;
mod text;
pub mod wire;

pub use options::HttpSettings;

use fleet::Fleet;
use host::Hosts;
use log::{info, trace, warn};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::{ConnId, Due, Span};
use poolcounter_service::contract::{
    Caps, Context, Effect, Info, Input, Operations, Requester, Served, Service, Shown, Then, Wake, Wanted,
};
use poolcounter_service::operations::PendingOperations;
use poolcounter_service::options::Opt;
use poolcounter_service::output::MAX_BYTES;
use poolcounter_service::report::Snapshot;
use poolcounter_service::settings::{self, Configure};
use recent::Recent;
use resource::{Extent, Form, PLAIN, Resource, value_in};
use samples::{HOUR_OF_THINGS, INTERVAL, KEPT, KEPT_OF_THINGS, Samples};
use wire::{AfterResponse, HttpRequest, Method, Parsed, ResponseHead, Status};

/// Limit of requests of one connection answered in a turn; a page ends the turn, because it takes up to a millisecond.
const ANSWERS_PER_TURN: usize = 4;
/// Limit of open connections: viewers must not take descriptors from clients.
const MAX_CONNECTIONS: u64 = 100;

/// Entry in the list of services.
pub const INFO: Info = Info {
    name: "http",
    port: 7580,
    is_enabled: false,
    max_connections: MAX_CONNECTIONS,
    has_store: false,
    title: "",
    conditions: &[],
    announcement: "metrics and the status page are at",
    listening: options::LISTENING,
    is_private: false,
    verbs: rights::VERBS,
    commands: rights::COMMANDS,
    refusal: wire::REFUSAL,
    settings: settings::defaults::<HttpSettings>,
    operations: &[],
};

impl Configure for HttpSettings {
    const OPTIONS: &'static [Opt<Self>] = options::OPTIONS;

    fn open(&self) -> Box<dyn Service> {
        Box::new(Http {
            samples: Samples::every(INTERVAL, KEPT),
            hour: Samples::every(HOUR_INTERVAL, KEPT),
            things: Samples::of_things(INTERVAL, KEPT_OF_THINGS),
            things_hour: Samples::of_things(HOUR_OF_THINGS.0, HOUR_OF_THINGS.1),
            hosts: Hosts::with(&self.hosts),
            is_admin: self.is_admin,
            fleet: (!self.servers.is_empty()).then(|| Fleet::of(self.clone())),
            ..Http::default()
        })
    }
}

/// Time limit without a page. The limit of connections is low, so silent connections must not shut out other viewers.
const IDLE_LIMIT: Span = Span::from_secs(10);

/// The status page, as a service. Its default has no samples: they are made when it is opened.
#[derive(Default)]
pub struct Http {
    samples: Samples,
    /// Samples of the last hour. Not handed over, nor are the fields below, except for `things_hour`.
    hour: Samples,
    /// Samples of things with pages of their own, of the last minutes.
    things: Samples,
    /// Samples of the same of the last hour.
    things_hour: Samples,
    /// Counts of the last minutes; `None` if the service does not listen.
    recent: Option<Recent>,
    /// Accepted host names of requests.
    hosts: Hosts,
    /// True when pages offer operations.
    is_admin: bool,
    /// Fleet of daemons to show; `None` for this daemon.
    fleet: Option<Fleet>,
    /// Operations of all services.
    operations: Operations,
    /// Operations in progress, each with the fate of its connection.
    pending: PendingOperations<(AfterResponse, String)>,
    /// Page that waits for a snapshot of the services; `None` between calls.
    page: Option<PendingPage>,
    /// Failure of the health check.
    health: Fault,
    /// Wakes the loop after a view of the fleet.
    wake: Option<Wake>,
}

/// Time between two samples of the last hour.
const HOUR_INTERVAL: Span = Span::from_micros(3_600_000_000 / (KEPT as u64 - 1));

/// Text for requests under an unknown host name.
const MISDIRECTED: &str = "This server does not know that host name. Add it with the option --http-host.\n";

/// Requested page; its content comes with a snapshot of the services.
struct PendingPage {
    conn: ConnId,
    resource: Resource,
    /// Name of the service, for its health only.
    service: Option<String>,
    /// Question to the daemons of a fleet; `None` for a page about this daemon.
    target: Option<String>,
    extent: Extent,
    /// True if the client is on this machine.
    is_local: bool,
    method: Method,
    connection: AfterResponse,
}

impl Http {
    /// Serves a request. Returns true if the response is written; otherwise it follows, and no request is served before.
    fn answer(&mut self, conn: ConnId, request: HttpRequest<'_>, context: &mut Context<'_>) -> bool {
        let HttpRequest { method, host, path, connection, .. } = request;
        trace!("{conn} > {method:?} {path:?}");
        let asked = match (Resource::at(path), method) {
            _ if host.is_some_and(|host| !self.hosts.include(host)) => {
                context.count_request(conn);
                Err(Status::MisdirectedRequest)
            }
            _ if let Some(refusal) = rights::refusal_of(conn, &request, context) => Err(refusal),
            (Some(Resource::View(service, thing, Form::Page)), Method::Post) => {
                self.operate(conn, &service, &thing, &request, context)
            }
            (None, _) | (Some(Resource::View(..)), Method::Post | Method::Other) => Err(Status::NotFound),
            (Some(Resource::Tab(word, _)), Method::Post | Method::Other) if word != tabs::OVERVIEW => {
                Err(Status::NotFound)
            }
            (Some(_), Method::Post | Method::Other) => Err(Status::MethodNotAllowed),
            (Some(resource), Method::Get | Method::Head) => {
                self.ask_for_page(conn, resource, &request, context);
                Ok(())
            }
        };
        let Err(status) = asked else { return false };
        refuse(conn, status, (method, connection), context);
        true
    }

    /// Requests the snapshot for a page.
    fn ask_for_page(&mut self, conn: ConnId, resource: Resource, request: &HttpRequest<'_>, context: &mut Context<'_>) {
        let extent = Extent::of(&resource, request.query);
        let target = self.fleet.as_ref().and_then(|_| resource.target(extent.range));
        let wanted = if target.is_some() { Wanted::Reports } else { resource.wanted() };
        let (method, connection) = (request.method, request.connection);
        let service = value_in(request.query, "service").map(String::from);
        let is_local = context.conns.peers.is_local(conn) && !request.is_forwarded;
        self.page = Some(PendingPage { conn, resource, service, target, extent, is_local, method, connection });
        let from = Requester { service: context.called.id, conn, number: 0 };
        context.effects.push(Effect::Show(from, wanted));
    }

    /// Responds to the request for a page. A page of several daemons has to wait for their answers.
    fn respond_with_page(&mut self, page: PendingPage, shown: Shown<'_>, context: &mut Context<'_>) {
        let snapshot = match shown {
            Shown::Telemetry(telemetry) => {
                self.note_health(telemetry.unhealthy_reason);
                let service = page.service.as_deref();
                let health = service.map_or(Some(telemetry.unhealthy_reason), |service| (telemetry.health_of)(service));
                let (status, body) = match health {
                    Some(Some(reason)) => (Status::ServiceUnavailable, format!("{reason}\n")),
                    Some(None) => (Status::Ok, "ok\n".into()),
                    None => (Status::NotFound, text_of(Status::NotFound)),
                };
                return self.respond(&page, status, &body, context);
            }
            Shown::Reports(moment, _) if page.resource == Resource::Metrics => {
                return self.respond(&page, Status::Ok, &metrics::render(&moment), context);
            }
            Shown::Reports(moment, telemetry) => Some(self.snapshot_of(moment, page.extent, telemetry)),
            Shown::Views(moment, views, telemetry) => {
                self.snapshot_of_views(moment, views, page.extent, telemetry, page.is_local)
            }
        };
        match (&mut self.fleet, &self.wake, snapshot) {
            (Some(fleet), Some(wake), Some(own)) => {
                if let Some(page) = fleet.ask(page, own, wake) {
                    let status = Status::ServiceUnavailable;
                    self.respond(&page, status, &text_of(status), context);
                }
            }
            (.., snapshot) => self.respond_with_snapshot(&page, snapshot, context),
        }
    }

    /// Responds with a snapshot, or that there is no such page.
    fn respond_with_snapshot(&self, page: &PendingPage, snapshot: Option<Snapshot>, context: &mut Context<'_>) {
        let part = |snapshot| match &page.resource {
            Resource::Tab(word, _) => tabs::part_of(snapshot, word),
            _ => Some(snapshot),
        };
        let Some(mut snapshot) = snapshot.and_then(part) else {
            return self.respond(page, Status::NotFound, &text_of(Status::NotFound), context);
        };
        if page.resource != Resource::Json {
            tabs::show_figures_once(&mut snapshot);
        }
        let body = if page.resource.is_page() { page::render(&snapshot) } else { snapshot.to_json() };
        self.respond(page, Status::Ok, &body, context);
    }

    fn respond(&self, page: &PendingPage, status: Status, body: &str, context: &mut Context<'_>) {
        let PendingPage { conn, ref resource, method, connection, .. } = *page;
        let is_page = status == Status::Ok && resource.is_page();
        let content_type = if status == Status::Ok { resource.content_type() } else { PLAIN };
        let policy = if self.is_admin { page::ADMIN_POLICY } else { page::POLICY };
        let policy = is_page.then_some(policy);
        let head = ResponseHead { status, content_type, length: body.len(), policy, connection };
        respond(conn, &head, if method == Method::Head { "" } else { body }, context);
    }

    /// Logs a change of the health check's result. Called for each health request as well, because the loop does not
    /// wake up for it.
    fn note_health(&mut self, unhealthy_reason: Option<&str>) {
        match unhealthy_reason {
            Some(why) if self.health.begin(why) => warn!("the health check fails: {why}"),
            None if self.health.end() => info!("the health check succeeds again"),
            _ => {}
        }
    }
}

/// Returns the text shown instead of a page.
fn text_of(status: Status) -> String {
    match status {
        Status::MisdirectedRequest => format!("{}\n{MISDIRECTED}", status.text()),
        status => format!("{}\n", status.text()),
    }
}

/// Writes the response to a request that is refused, by its method and the fate of its connection.
fn refuse(conn: ConnId, status: Status, (method, connection): (Method, AfterResponse), context: &mut Context<'_>) {
    let body = text_of(status);
    let head = ResponseHead { status, content_type: PLAIN, length: body.len(), policy: None, connection };
    send(conn, &head, if method == Method::Head { "" } else { &body }, context);
}

/// Writes the response to a request that waits for it, and resumes or ends the connection.
fn respond(conn: ConnId, head: &ResponseHead<'_>, body: &str, context: &mut Context<'_>) {
    send(conn, head, body, context);
    match head.connection {
        AfterResponse::Ends => context.end(conn),
        AfterResponse::Stays | AfterResponse::StaysOnRequest => context.resume(conn),
    }
}

fn send(conn: ConnId, head: &ResponseHead<'_>, body: &str, context: &mut Context<'_>) {
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
        let Input { bytes: input, seen, may_show } = input;
        let mut consumed = 0;
        for _ in 0..ANSWERS_PER_TURN {
            if context.output.is_full(conn) {
                break;
            }
            match wire::parse(&input[consumed..]) {
                Parsed::Whole(request, _) if !may_show && Resource::is_shown_for(&request) => {
                    return Served { consumed, then: Then::Show };
                }
                Parsed::Whole(request, len) => {
                    if !self.answer(conn, request, context) {
                        return Served { consumed: consumed + len, then: Then::Wait };
                    }
                    consumed += len;
                    if request.connection == AfterResponse::Ends {
                        return Served { consumed: input.len(), then: Then::Close };
                    }
                }
                Parsed::Expects(head) => {
                    if seen < consumed + head {
                        context.output.reply(conn, |bytes| bytes.extend_from_slice(wire::CONTINUE));
                    }
                    return Served { consumed, then: Then::Read };
                }
                Parsed::Partial => return Served { consumed, then: Then::Read },
                Parsed::Refused(status) => {
                    refuse(conn, status, (Method::Other, AfterResponse::Ends), context);
                    return Served { consumed: input.len(), then: Then::Close };
                }
            }
        }
        Served { consumed, then: Then::Serve }
    }

    fn completed(&mut self, context: &mut Context<'_>) {
        let finished = self.fleet.as_mut().map(Fleet::take_finished).unwrap_or_default();
        for (page, merged) in finished {
            let snapshot = merged.map(|merged| merged.cut(page.extent.room()));
            self.respond_with_snapshot(&page, snapshot, context);
        }
    }

    fn expire(&mut self, _: Due, _: &mut Context<'_>) {}

    fn close(&mut self, conn: ConnId, _: &mut Context<'_>) {
        self.fleet.iter_mut().for_each(|fleet| fleet.waiting.forget(conn));
        self.pending.forget(conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots::tests::{of_overview, overview};
    use poolcounter_core::histogram::Histogram;
    use poolcounter_core::stats::{Metric, Unit};
    use poolcounter_core::time::Time;
    use poolcounter_service::output::FULL_BYTES;
    use poolcounter_service::report::room::MOST_ROWS;
    use poolcounter_service::report::snapshot::Remembered;
    use poolcounter_service::report::{Cell, ColumnMetric, ColumnUnit, LoopStats, Overview, SeriesInfo, ServiceReport};
    use std::collections::BTreeMap;

    fn snapshot_of(overview: Overview, samples: &Samples) -> Snapshot {
        let values = |service: &str, info: &'static SeriesInfo| samples.shown(service.as_bytes(), info, KEPT - 1);
        let remembered = Remembered { interval: INTERVAL, most: KEPT - 1, values: &values, recent: &[] };
        Snapshot::of(&of_overview(overview, &LoopStats::default()), EVERYTHING.room(), &remembered)
    }

    const EVERYTHING: Extent = Extent { range: None, rows: MOST_ROWS };

    fn metrics_of(overview: Overview) -> String {
        metrics::render(&of_overview(overview, &LoopStats::default()))
    }

    /// A client whose unsent output is just not full gets one more page, and must not be closed for it.
    #[test]
    fn no_page_is_too_long_for_a_connection() {
        let (loop_stats, mut samples) = (LoopStats::default(), Samples::every(INTERVAL, KEPT));
        let long = |n: usize, filler: &[u8]| [format!("{n}").as_bytes(), &filler.repeat(900)].concat();
        for filler in ["\"", "\\", "\u{ff}", "&", "'", "<", "\u{202e}", "x"] {
            let overview = overview(1_000, |n| long(n, filler.as_bytes()));
            samples.note(Time::from_micros(1_000_000_000), |tell| {
                for service in &overview.services {
                    service.report.series.iter().for_each(|(info, _)| tell(service.name.as_bytes(), (info, u64::MAX)));
                }
            });
            let moment = of_overview(overview, &loop_stats);
            let status = snapshot_of(moment.overview.clone(), &samples);
            let pages = [page::render(&status), status.to_json(), metrics::render(&moment)];
            let lengths = pages.map(|page| page.len());
            assert!(lengths.iter().all(|len| *len < MAX_BYTES - FULL_BYTES - 1_000), "{filler:?}: {lengths:?}");
            assert!(lengths[2] > 100_000, "{filler:?}: {lengths:?}");
        }
    }

    /// All rows that one service can have are shown, unless names are malicious.
    #[test]
    fn there_is_room_for_every_type_of_work() {
        let shown_of = |service: &str, rows: usize, of_others: usize| {
            let mut overview = overview(rows, |n| format!("ArticleView{n}").into_bytes());
            for other in overview.services.iter_mut().filter(|other| other.name != service) {
                other.report.tables.iter_mut().for_each(|table| table.rows.clear());
            }
            for service in &mut overview.services {
                service.report.tables.iter_mut().skip(1).for_each(|table| table.rows.truncate(of_others));
                service.report.tables.iter_mut().for_each(|table| match &*table.name {
                    "gone" | "buried" => table.rows.truncate(20),
                    "schedules" => table.rows.truncate(10),
                    _ => {}
                });
            }
            let status = snapshot_of(overview, &Samples::every(INTERVAL, KEPT));
            let tables = status.services.iter().flat_map(|service| service.tables.iter());
            tables.filter(|table| table.more > 0).map(|table| (table.name.to_string(), table.more)).collect::<Vec<_>>()
        };
        // Besides the types, the lists of the pools are short.
        for (service, rows, of_others) in
            [("pools", 257, 100), ("counters", 257, 257), ("members", 150, 150), ("jobs", 70, 70)]
        {
            assert_eq!(shown_of(service, rows, of_others), [], "of {rows} rows of the {service}");
        }
    }

    /// Each of 256 pools of members has its values, and the first ones have histograms. The page counts what is left out.
    #[test]
    fn every_pool_of_members_has_its_values() {
        let left_out = |page: &str, table: &str, kind: &str| -> usize {
            let line = format!("poolcounter_metrics_left_out{{table=\"{table}\",kind=\"{kind}\"}} ");
            let value = page.lines().find_map(|metric| metric.strip_prefix(&line));
            value.expect("each table has one").parse().expect("a number")
        };
        let rows_of = |page: &str, metric: &str| page.matches(&format!("\npoolcounter_{metric}{{")).count();
        let name = |n: usize| format!("member-pool-{n}").into_bytes();
        let mut alone = overview(256, name);
        for other in alone.services.iter_mut().filter(|other| other.name != "members") {
            other.report.tables.iter_mut().for_each(|table| table.rows.clear());
        }
        let page = metrics_of(alone);
        for metric in ["members_pool_takes_total", "members_pool_in_use", "members_pool_starts_late_total"] {
            assert_eq!(rows_of(&page, metric), 256, "{metric}");
        }
        for table in ["members_pools", "members_events"] {
            assert_eq!(left_out(&page, table, "values"), 0, "{table}");
        }
        let with_histograms = rows_of(&page, "members_pool_wait_seconds_count");
        assert!((40..=64).contains(&with_histograms), "{with_histograms}");
        assert_eq!(with_histograms + left_out(&page, "members_pools", "histograms"), 256);
        let page = metrics_of(overview(257, name));
        for (table, metric) in [
            ("members_pools", "members_pool_takes_total"),
            ("members_events", "members_pool_starts_late_total"),
            ("pools_types", "pools_type_acquired_total"),
            ("jobs_tubes", "jobs_tube_ready"),
        ] {
            assert_eq!(rows_of(&page, metric) + left_out(&page, table, "values"), 257, "{table}");
        }
        assert!(left_out(&page, "members_events", "values") > 0, "there is no room for all of all services");
        assert!(rows_of(&page, "pools_type_acquired_total") == 257, "small tables come first");
    }

    #[test]
    fn rows_that_look_alike_are_one_metric() {
        let page = metrics_of(overview(50, |n| [&[b'x'; 100], format!("{n}").as_bytes()].concat()));
        assert_eq!(page.matches("poolcounter_pools_type_working{").count(), 1);
    }

    #[test]
    fn names_are_unique() {
        let overview = overview(1, |_| b"name".into());
        let pages = ["version", "uptime", "started_at", "last_reload", "services", "history", "loop", "process"];
        for ServiceReport { name, report, .. } in &overview.services {
            assert!(!pages.contains(name), "{name} is a member of the page itself");
            assert_unique(report.tables.iter().map(|table| &*table.name));
            assert_unique(report.series.iter().map(|(info, _)| info.name));
            assert_unique(report.figures.iter().map(|(row, _)| row.name));
            for table in &report.tables {
                assert_unique(table.columns.iter().map(|column| &*column.name));
                assert_unique(table.columns.iter().map(|column| &*column.title));
                assert!(table.columns.iter().all(|column| column.help.ends_with('.')), "{}", table.name);
            }
        }
    }

    fn assert_unique<'a>(names: impl Iterator<Item = &'a str>) {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]) && !names.contains(&""), "{names:?}");
    }

    /// Names of metrics follow <https://prometheus.io/docs/practices/naming/>.
    #[test]
    fn no_name_of_a_metric_is_twice() {
        let page = metrics_of(overview(3, |n| format!("type{n}").into_bytes()));
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').expect("a name and a type");
            assert_eq!(kinds.insert(name, kind), None, "{name} stands there twice");
        }
        assert!(kinds.len() > 50, "{}", kinds.len());
        for (name, kind) in &kinds {
            assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_' | b'0'..=b'9')), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
            let gauge = name.trim_end_matches("_total");
            assert!(gauge == *name || !kinds.contains_key(gauge), "{gauge} is there beside {name}");
        }
    }

    /// Each statistic and each column is exported under a name with its unit, or is exported elsewhere.
    #[test]
    fn every_metric_is_exported() {
        let overview = overview(3, |n| format!("type{n}").into_bytes());
        let page = metrics_of(overview.clone());
        let is_there = |name: &str, kind: &str| page.contains(&format!("\n# TYPE {name} {kind}\n"));
        for ServiceReport { name: service, report, .. } in &overview.services {
            for (row, _) in report.figures.iter().filter(|(row, _)| row.metric != Metric::Elsewhere) {
                let help = page.lines().find(|line| line.starts_with("# HELP ") && line.ends_with(row.help));
                let name = help.and_then(|help| help.split(' ').nth(2)).expect("each has a metric");
                let suffix = match (row.unit.is_time(), row.unit) {
                    (true, _) => "_seconds",
                    (false, Unit::Bytes) => "_bytes",
                    _ => "",
                };
                let total = if row.unit.is_counter() { "_total" } else { "" };
                assert!(name.ends_with(&format!("{suffix}{total}")), "{name} is in {:?}", row.unit);
            }
            for column in report.tables.iter().flat_map(|table| &table.columns) {
                if let ColumnMetric::Each(metric) = &column.metric {
                    let name = format!("poolcounter_{service}_{metric}{}", column.suffix());
                    let kinds = ["counter", "gauge", "histogram"].map(|kind| is_there(&name, kind));
                    let is_times = column.unit == ColumnUnit::Times;
                    let is_counter = column.is_counter;
                    assert_eq!(kinds, [is_counter, !is_counter && !is_times, is_times], "{name}");
                }
            }
        }
    }

    #[test]
    fn values_beyond_the_last_bound_are_marked() {
        let mut overview = overview(1, |_| b"slow".into());
        let mut histogram = Histogram::default();
        (0..50).for_each(|n| histogram.record(Span::from_secs(if n < 40 { 1 } else { 100_000 })));
        for cell in
            overview.services[0].report.tables[0].rows[0].iter_mut().filter(|cell| matches!(cell, Cell::Times(_)))
        {
            *cell = Cell::times(histogram.clone());
        }
        let status = snapshot_of(overview, &Samples::every(INTERVAL, KEPT));
        assert!(
            status.to_json().contains(r#""p99":86400.0,"p50_is_over":false,"p99_is_over":true"#),
            "{}",
            status.to_json()
        );
        assert!(page::render(&status).contains("<td class=n>over 1 d</td>"));
    }
}
