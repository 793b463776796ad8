//! `tls`: a TLS terminator in front of a server, in its own process.

use super::command::{Exit, Failure};
use super::logger;
use super::options::keepalive;
use super::serve::{VERSION, raise_descriptor_limit};
use super::table::Given;
use super::terminal::enumerate;
use log::{info, warn};
use nix::sys::prctl;
use poolcounter_core::Span;
use poolcounter_server::{self as net, Address, Handover, Listener};
use poolcounter_service::options::{Opt, assign, number, option_table, seconds};
use poolcounter_tls::{Files, SETUP_TIME, Settings, Terminator, check, inherited};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Default limit of connections.
const MAX_CONNECTIONS: usize = 10_000;
/// Number of descriptors reserved for other uses: listeners, signals, an upgrade.
const OTHER_DESCRIPTORS: u64 = 64;
/// Time limit for a replacement of the certificates that is under way when a program takes over, and the pause between
/// two attempts to read them.
const RENEWAL_TIME: Duration = Duration::from_secs(10);
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);

/// Settings of the command.
#[derive(Clone, Default)]
pub struct TlsSettings {
    listen: Vec<SocketAddr>,
    to: Option<Address>,
    files: Files,
    max_connections: usize,
    setup_time: Span,
    net: net::Options,
    is_check: bool,
    is_rehearsal: bool,
    verbosity: u8,
}

/// Options of the command.
pub const OPTIONS: &[Opt<TlsSettings>] = option_table!(TlsSettings;
    "-l, --listen IP:PORT", "Address for clients to connect to; repeatable.",
        |settings, value| {
            let address = value.parse().map_err(|_| Address::wanted(value, "IP:PORT or [IP6]:PORT"));
            address.map(|address| settings.listen.push(address))
        }, repeated();
    "-t, --to ADDRESS",
        "Server to pass connections to: unix:PATH or IP:PORT. It must read the header of the PROXY protocol there, as \
         poolcounter(8) does where it listens on proxy:ADDRESS.",
        |settings, value| {
            let is_address = value.starts_with("unix:") || value.parse::<SocketAddr>().is_ok();
            let address = Address::parse(value, 0).filter(|address| is_address && address.fits());
            assign(
                &mut settings.to,
                address.map(Some).ok_or_else(|| Address::wanted(value, "IP:PORT, [IP6]:PORT or unix:PATH")),
            )
        };
    "--cert FILE", "Certificate chain in PEM: the certificate, then the intermediate authorities.",
        |settings, value| assign(&mut settings.files.certificate, file(value));
    "--key FILE", "Private key of the certificate in PEM.",
        |settings, value| assign(&mut settings.files.key, file(value));
    "--client-ca FILE",
        "Accept only clients with a certificate of one of these authorities, in PEM, and pass their names to the \
         server. The server receives the common name of the certificate, or else its first host name. If an authority \
         of the certificate has name constraints, the server receives the host name in any case, and a client without \
         one is refused: constraints do not bind common names. A client whose certificate has several common names, or \
         one that is longer than 64 bytes or no text, is refused.",
        |settings, value| assign(&mut settings.files.client_ca, file(value).map(Some));
    "--max-connections N",
        "Maximum number of connections; further ones are closed at once (default: 10000). Clients that have not \
         finished their handshake have half of the places: the oldest of them gives way to a new one. Each connection \
         takes two open files; the program raises its limit as far as it may.",
        |settings, value| assign(&mut settings.max_connections, number(value, 1..=1_000_000));
    "--setup-timeout SECONDS",
        "Time limit of a client's handshake, and then of the server to accept the connection (default: 10).",
        |settings, value| assign(&mut settings.setup_time, seconds(value).map(Span::from));
    "--keepalive IDLE[,INTERVAL[,PROBES]]",
        "Probes of silent clients, and the time after which they count as dead, as for the daemon (default: 60,10,6). \
         See poolcounter(8).",
        |settings, value| assign(&mut settings.net.keepalive, keepalive(value));
    "--check",
        "Only check the options and the certificates, and print the mistakes. The exit status is 1 if a certificate \
         cannot be used.",
        |settings, _| assign(&mut settings.is_check, Ok(true));
    "--check-handover", "Only check that the listeners on standard input can be taken over, as an upgrade does first.",
        |settings, _| assign(&mut settings.is_rehearsal, Ok(true)), hidden();
    "-v, --verbose", "Log connections. RUST_LOG overrides it.",
        |settings, _| {
            settings.verbosity = settings.verbosity.saturating_add(1);
            Ok(())
        };
);

/// Runs the command: serves until a signal ends it, or only checks whether it could serve, or take over.
///
/// # Errors
///
/// Fails if it cannot.
pub fn run(given: &Given) -> Exit {
    let (max_connections, setup_time) = (MAX_CONNECTIONS, SETUP_TIME);
    let settings = given.settings(OPTIONS, TlsSettings { max_connections, setup_time, ..TlsSettings::default() })?;
    // Hides the key from other processes of the same user. An upgraded program starts without this protection.
    prctl::set_dumpable(false).map_err(|error| format!("cannot hide the key: {error}"))?;
    let handover = Handover::inherited().transpose()?;
    let its_settings = settings_of_terminator(&settings)?;
    if settings.is_check || settings.is_rehearsal {
        Terminator::new(its_settings)?;
        if settings.is_rehearsal {
            check()?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    logger::start(settings.verbosity);
    let terminator = match handover {
        None => Terminator::new(its_settings)?,
        Some(_) => successor(&its_settings)?,
    };
    serve(terminator, &settings, handover)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the terminator that takes over. The rehearsal has read its certificates: if they cannot be read any more, they
/// are being replaced, and new clients wait for that. A failure would end the connections of the copies.
fn successor(settings: &Settings) -> Result<Terminator, String> {
    let begun = Instant::now();
    let mut is_logged = false;
    loop {
        match Terminator::new(settings.clone()) {
            Err(sentence) if begun.elapsed() < RENEWAL_TIME => {
                if !std::mem::replace(&mut is_logged, true) {
                    warn!("the certificates cannot be used, and are read again: {sentence}");
                }
                thread::sleep(RENEWAL_PAUSE);
            }
            result => return result,
        }
    }
}

/// Returns the settings for the options.
fn settings_of_terminator(settings: &TlsSettings) -> Result<Settings, Failure> {
    let missing = |option| Failure::misuse(format!("--{option} is needed"));
    let to = settings.to.clone().ok_or_else(|| missing("to"))?;
    let TlsSettings { listen, files, max_connections, setup_time, .. } = settings.clone();
    let is_empty = |path: &PathBuf| path.as_os_str().is_empty();
    let needed = [("listen", listen.is_empty()), ("cert", is_empty(&files.certificate)), ("key", is_empty(&files.key))];
    match needed.iter().find(|(_, is_missing)| *is_missing) {
        Some((option, _)) => Err(missing(*option)),
        None => Ok(Settings { to, files, max_connections, setup_time }),
    }
}

fn serve(mut terminator: Terminator, settings: &TlsSettings, handover: Option<Handover>) -> Result<(), String> {
    terminator.handle_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let what = match handover {
        None => {
            for address in &settings.listen {
                let listener = Listener::bind(&Address::Tcp(*address), &settings.net);
                let added = listener.and_then(|listener| terminator.listen(listener));
                added.map_err(|error| format!("cannot listen on {address}: {error}"))?;
            }
            ""
        }
        Some(handover) => {
            for listener in inherited(handover, &mut terminator)? {
                terminator.listen(listener).map_err(|error| format!("cannot take over: {error}"))?;
            }
            "has taken over and "
        }
    };
    terminator.limit_connections(raise_descriptor_limit(0).saturating_sub(OTHER_DESCRIPTORS) / 2);
    let (addresses, to) = (enumerate(&terminator.addresses()), settings.to.iter().next());
    let to = to.map(Address::to_string).unwrap_or_default();
    info!("poolcounter {VERSION} {what}listens on {addresses} for TLS, and passes connections on to {to}");
    let result = terminator.run();
    info!("poolcounter tls stops (process {})", std::process::id());
    result.map_err(|error| format!("cannot wait for events: {error}"))
}

fn file(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err("a file".into()) } else { Ok(value.into()) }
}
