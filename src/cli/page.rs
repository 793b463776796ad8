//! `page`: status page of several daemons, made from their own pages.

use super::command::{Exit, Failure};
use super::endpoint::default_of;
use super::logger;
use super::serve::{VERSION, listen_for, serve};
use super::table::Given;
use super::terminal::enumerate;
use log::info;
use poolcounter_client::host_and_port;
use poolcounter_http::options::{OPTIONS as HTTP_OPTIONS, host_name};
use poolcounter_http::{self as http, HttpSettings};
use poolcounter_protocol::pools::DEFAULT_PORT as LOCKS_PORT;
use poolcounter_server::{Options, Policy, Server};
use poolcounter_service::access;
use poolcounter_service::container::{AllSettings, ServiceId, Services};
use poolcounter_service::contract::Info;
use poolcounter_service::options::{Endpoint, Opt, option_table};
use std::net::Ipv6Addr;
use std::process::ExitCode;

/// Services of this program: only the status page.
const SERVICES: &[&Info] = &[&http::INFO];

/// Settings of the command: its addresses, and the daemons that it shows.
type PageSettings = (Endpoint, HttpSettings);

/// Options of the command.
pub const OPTIONS: &[Opt<PageSettings>] = option_table!(PageSettings;
    "-s, --server HOST[:PORT]",
        "A server, as for other commands: its status page is looked for at port 7580. HOST:PORT with a port other than \
         7531, or a URL that begins with http://, is the address of the page itself; repeatable, and required.",
        |(_, http), value| {
            let server = page_of(value).ok_or("a host, with or without a port, or an http URL without a path")?;
            if !http.servers.contains(&server) {
                http.servers.push(server);
            }
            Ok(())
        }, repeated();
    "--http ADDRESS",
        "Serve the page on this address: IP, IP:PORT or unix:PATH; repeatable (default: 127.0.0.1; the port is 7580).",
        |(endpoint, _), value| endpoint.listen_on(value), repeated();
    "--http-host NAME",
        "Host name that browsers may use for the page, besides localhost, this machine's name and IP addresses; \
         repeatable.",
        |(_, http), value| (HTTP_OPTIONS[0].set)(http, value), repeated();
);

/// Runs the command: serves until a signal ends it.
///
/// # Errors
///
/// Fails if it cannot.
pub fn run(given: &Given) -> Exit {
    let services = crate::services::SERVICES.iter().map(|info| info.name).filter(|name| *name != http::INFO.name);
    let services = services.chain([access::report::NAME]).collect();
    let endpoint = Endpoint { is_enabled: true, ..default_of(&http::INFO) };
    let http = HttpSettings { services, ..HttpSettings::default() };
    let (mut endpoint, http) = given.settings(OPTIONS, (endpoint, http))?;
    if http.servers.is_empty() {
        return Err(Failure::misuse("no --server is named"));
    }
    logger::start(0);
    if endpoint.listen.is_empty() {
        endpoint.listen.push("127.0.0.1".into());
    }
    let count = http.servers.len();
    let settings = AllSettings::defaults(SERVICES).with(http);
    let mut server = Server::new(Services::of(SERVICES, &settings), Policy::of(SERVICES))
        .map_err(|error| format!("cannot wait for events: {error}"))?;
    let service = ServiceId::all(SERVICES).next().expect("the list has one");
    listen_for(&mut server, service, http::INFO.name, &endpoint, &Options::default())?;
    server.begin()?;
    let addresses = enumerate(&server.addresses(http::INFO.name));
    info!("poolcounter {VERSION} with the page of {count} servers listens on {addresses}");
    serve(server)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the host and port of a server's page, from its name or the URL of the page; None if the text is neither.
fn page_of(server: &str) -> Option<String> {
    let url = server.strip_prefix("http://");
    let name = url.unwrap_or(server);
    let name = name.strip_suffix('/').unwrap_or(name);
    let (host, port) = host_and_port(name, http::INFO.port);
    let host = match host.parse::<Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]"),
        Err(_) => host_name(host).filter(|_| !name.starts_with('[')).map(|_| host.into())?,
    };
    let is_of_locks = port == LOCKS_PORT && url.is_none();
    (port > 0).then(|| format!("{host}:{}", if is_of_locks { http::INFO.port } else { port }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_named_as_for_other_commands() {
        for (server, page) in [
            ("pc1", "pc1:7580"),
            ("pc1:7531", "pc1:7580"),
            ("[::1]:7531", "[::1]:7580"),
            ("fe80::7531", "[fe80::7531]:7580"),
            ("pc1:81", "pc1:81"),
            ("http://a.example/", "a.example:7580"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("::1", "[::1]:7580"),
            ("[::1]:81", "[::1]:81"),
            ("http://[2001:db8::1]", "[2001:db8::1]:7580"),
            ("http://pc1:81/", "pc1:81"),
            ("http://pc1:7531/", "pc1:7531"),
            ("PC1.example.", "PC1.example.:7580"),
        ] {
            let mut settings = (default_of(&http::INFO), HttpSettings::default());
            (OPTIONS[0].set)(&mut settings, server).expect(server);
            assert_eq!(settings.1.servers, [page], "{server}");
        }
        for text in
            ["", "https://a", "a/b", "a:", "a:0", "a:b", "a:99999", "unix:/x", "[a]", "[::1]80", "a b", "u@a", "a?"]
        {
            assert_eq!(page_of(text), None, "{text}");
        }
    }
}
