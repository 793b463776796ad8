//! The options of the status page.

use super::fleet::fetch::HttpServer;
use poolcounter_service::options::{Endpoint, Opt, assign, flag};

/// What the options of the status page say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpSettings {
    /// Names under which the pages are shown, besides those that need not be told, in lower case.
    pub hosts: Vec<String>,
    /// Whether the pages have buttons that change things.
    pub is_admin: bool,
    /// The daemons of which the pages tell; none if they tell of this one.
    pub servers: Vec<HttpServer>,
    /// The services of which those daemons tell, by name; what they tell of others is left out.
    pub services: Vec<&'static str>,
}

/// Where the pages are served: nowhere, until an address is named.
pub const LISTENING: &[Opt<Endpoint>] = &[Opt {
    long: "http",
    key: "http",
    default: "[]",
    hint: "ADDRESS",
    doc_short: "serve metrics and a status page on such an address; repeatable (default: off; the port is 7580)",
    doc_long: "
            Serve metrics and a status page on
            .Ar address ,
            which is written as for
            .Fl -listen ;
            see
            .Sx METRICS AND STATUS PAGE .
            May be given several times.
            The port of addresses that name none is 7580.
            By default this is off.",
    repeats: true,
    set: |endpoint, value| {
        endpoint.is_enabled = true;
        endpoint.listen_on(value)
    },
    ..Opt::BLANK
}];

/// The other options.
pub const OPTIONS: &[Opt<HttpSettings>] = &[
    Opt {
        long: "http-host",
        key: "http_host",
        default: "[]",
        hint: "NAME",
        doc_short: "a name under which browsers and scrapers ask for the pages, besides localhost, this machine's name and IP addresses; \
               repeatable",
        doc_long: "
            A name under which browsers and scrapers ask for the pages.
            A request for another host than localhost, this machine's own name, an IP address or such a name is answered with
            .Li 421 ,
            so that no page of the web can have its own name point here and read what is shown.
            May be given several times.",
        repeats: true,
        set: |settings, value| {
            settings.hosts.push(name(value).ok_or("the name of a host, without a port")?);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        long: "http-admin",
        key: "http_admin",
        default: "false",
        doc_short: "enable the buttons of the status page that change something: kick and delete buried jobs",
        doc_long: "
            Enable the buttons of the status page that kick and delete buried jobs, for every client that can connect.
            A request that another site makes in the name of a browser is answered with
            .Li 403 .
            By default this is off.",
        set: |settings, value| assign(&mut settings.is_admin, flag(value)),
        ..Opt::BLANK
    },
];

/// Returns the name as requests are compared with it; None if it is no name.
fn name(text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = text.strip_suffix('.').unwrap_or(text);
    (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_ascii_lowercase())
}
