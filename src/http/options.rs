//! Options of the status page.

use poolcounter_service::options::{Endpoint, Opt, assign, flag, option_table};

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
pub const LISTENING: &[Opt<Endpoint>] = option_table!(Endpoint;
    "--http ADDRESS",
        "Serve metrics and a status page on this address, written as for --listen; repeatable (default: off; the port \
         is 7580). See SERVICES in poolcounter(8).",
        |endpoint, value| {
            endpoint.is_enabled = true;
            endpoint.listen_on(value)
        }, in_file("http", "[]"), repeated();
);

/// All other options.
pub const OPTIONS: &[Opt<HttpSettings>] = option_table!(HttpSettings;
    "--http-host NAME",
        "Host name that browsers and scrapers may use for the pages, besides localhost, this machine's name and IP \
         addresses; repeatable. A request for another host is answered with 421, so that no web page can read the \
         pages by making its own name point here (DNS rebinding).",
        |settings, value| {
            settings.hosts.push(host_name(value).ok_or("the name of a host, without a port")?);
            Ok(())
        }, in_file("http_host", "[]"), repeated();
    "--http-admin",
        "Enable the buttons of the status page for locks, members and jobs, for every client that can connect \
         (default: off). A request that another site makes in the name of a browser is answered with 403.",
        |settings, value| assign(&mut settings.is_admin, flag(value)), in_file("http_admin", "false");
);

/// Returns a host name in lower case; None if it is invalid.
pub fn host_name(text: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = text.strip_suffix('.').unwrap_or(text);
    (!name.is_empty() && name.chars().all(is_name)).then(|| name.to_ascii_lowercase())
}
