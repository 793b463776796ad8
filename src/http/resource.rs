//! Resources over HTTP: paths and queries.

use super::recent::{RANGES, Range};
use super::tabs::OVERVIEW;
use super::wire::{HttpRequest, Method};
use percent_encoding::percent_decode_str;
use poolcounter_service::contract::Wanted;
use poolcounter_service::report::{MOST_ROWS, Room};

/// Content type of text other than pages.
pub const PLAIN: &str = "text/plain; charset=utf-8";
/// Limit of the tables on the page in bytes, as markup and as JSON; the rest of the page has some 100 KiB.
const TABLE_BYTES: usize = 780_000;
/// Word instead of a service in the path of a search in all services.
const FOUND: &str = "find";
/// Default number of rows per table: the rows that are not folded.
const PAGE_ROWS: usize = 20;

/// Resource of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Tab of the page, by its word.
    Tab(String, Form),
    /// Reports of all services.
    Json,
    Metrics,
    Health,
    /// One thing of a service, on a page or as JSON.
    View(String, String, Form),
}

/// Extent of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Range of time; `None`: totals since the start.
    pub range: Option<Range>,
    /// Limit of rows per table.
    pub rows: usize,
}

/// Form of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Page,
    Json,
}

/// Returns the value of this name in a query.
pub fn value_in<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|part| part.split_once('=')).find(|it| it.0 == name).map(|it| it.1)
}

impl Resource {
    pub fn at(path: &str) -> Option<Resource> {
        match path {
            "/" => Some(Resource::Tab(OVERVIEW.into(), Form::Page)),
            "/status.json" => Some(Resource::Json),
            "/metrics" => Some(Resource::Metrics),
            "/healthz" => Some(Resource::Health),
            _ => {
                let path = path.strip_prefix('/')?;
                let (path, form) = path.strip_suffix(".json").map_or((path, Form::Page), |path| (path, Form::Json));
                match path.split_once('/') {
                    Some((service, thing)) => Some(Resource::View(service.into(), thing.into(), form)),
                    None => {
                        path.bytes().all(|byte| byte.is_ascii_lowercase()).then(|| Resource::Tab(path.into(), form))
                    }
                }
            }
        }
    }

    /// Returns true if a request needs a snapshot of the services.
    pub fn is_shown_for(request: &HttpRequest<'_>) -> bool {
        let is_of_page = matches!(request.method, Method::Get | Method::Head);
        is_of_page && Resource::at(request.path).is_some_and(|resource| resource != Resource::Health)
    }

    /// Returns what this daemon is asked for.
    pub fn wanted(&self) -> Wanted {
        match self {
            Resource::View(service, thing, _) => {
                let path = percent_decode_str(thing).collect();
                if service == FOUND { Wanted::Search(path) } else { Wanted::View { service: service.clone(), path } }
            }
            Resource::Health => Wanted::Telemetry,
            Resource::Tab(..) | Resource::Json | Resource::Metrics => Wanted::Reports,
        }
    }

    pub fn content_type(&self) -> &'static str {
        match self {
            Resource::Tab(_, Form::Page) | Resource::View(_, _, Form::Page) => "text/html; charset=utf-8",
            Resource::Json | Resource::Tab(_, Form::Json) | Resource::View(_, _, Form::Json) => "application/json",
            Resource::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Resource::Health => PLAIN,
        }
    }

    /// Returns the question to the daemons of a fleet; `None` if this daemon answers by itself.
    pub fn target(&self, range: Option<Range>) -> Option<String> {
        let query = format!("range={}", range.map_or("start", |range| range.name));
        match self {
            Resource::Tab(..) | Resource::Json => Some(format!("/status.json?{query}")),
            Resource::View(service, thing, _) => Some(format!("/{service}/{thing}.json?{query}")),
            Resource::Metrics | Resource::Health => None,
        }
    }

    pub fn is_page(&self) -> bool {
        matches!(self, Resource::Tab(_, Form::Page) | Resource::View(_, _, Form::Page))
    }
}

impl Extent {
    /// Returns the extent for a query: `range=NAME` (default for pages: the shortest range; for JSON: totals since the
    /// start); `rows=N`.
    pub fn of(resource: &Resource, query: &str) -> Extent {
        let value = |name| value_in(query, name);
        let range = match value("range") {
            Some(name) => Range::named(name),
            None => resource.is_page().then_some(RANGES[0]),
        };
        let rows = value("rows").and_then(|rows| rows.parse::<usize>().ok());
        let rows = rows.unwrap_or(if resource.is_page() { PAGE_ROWS } else { MOST_ROWS }).min(MOST_ROWS);
        Extent { range, rows }
    }

    pub fn room(self) -> Room {
        Room { rows: self.rows, bytes: TABLE_BYTES }
    }
}
