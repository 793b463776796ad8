//! Options of the status page.

use poolcounter_service::options::{Endpoint, Opt, assign, flag};

/// Settings of the status page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpSettings {
    /// Accepted host names in addition to the default ones, in lower case.
    pub hosts: Vec<String>,
    /// True if pages have buttons for operations.
    pub is_admin: bool,
    /// Hosts and ports of the pages of daemons to show; empty for this one.
    pub servers: Vec<String>,
    /// Services of these daemons that are shown, by name.
    pub services: Vec<&'static str>,
}

/// Options of its addresses; none by default.
pub const LISTENING: &[Opt<Endpoint>] = &[Opt {
    long: "http",
    key: "http",
    default: "[]",
    hint: "ADDRESS",
    doc: "Serve metrics and a status page on this address, written as for --listen; repeatable (default: off; the port \
          is 7580). See SERVICES in poolcounter(8).",
    repeats: true,
    set: |endpoint, value| {
        endpoint.is_enabled = true;
        endpoint.listen_on(value)
    },
    ..Opt::BLANK
}];

/// All other options.
pub const OPTIONS: &[Opt<HttpSettings>] = &[
    Opt {
        long: "http-host",
        key: "http_host",
        default: "[]",
        hint: "NAME",
        doc: "Host name that browsers and scrapers may use for the pages, besides localhost, this machine's name and \
              IP addresses; repeatable. A request for another host is answered with 421, so that no web page can read \
              the pages by making its own name point here (DNS rebinding).",
        repeats: true,
        set: |settings, value| {
            settings.hosts.push(host_name(value).ok_or("the name of a host, without a port")?);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        long: "http-admin",
        key: "http_admin",
        default: "false",
        doc: "Enable the buttons of the status page that kick and delete buried jobs, for every client that can \
              connect (default: off). A request that another site makes in the name of a browser is answered with 403.",
        set: |settings, value| assign(&mut settings.is_admin, flag(value)),
        ..Opt::BLANK
    },
];

/// Returns a host name in lower case; None if it is invalid.
pub(crate) fn host_name(text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = text.strip_suffix('.').unwrap_or(text);
    (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_ascii_lowercase())
}
