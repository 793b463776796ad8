//! `tls`: a terminator of TLS before a server, in a process of its own.

use super::command::Failure;
use super::logger;
use super::options::keepalive;
use super::serve::{VERSION, enumerate, raise_descriptor_limit};
use super::table::Given;
use log::info;
use nix::sys::prctl;
use poolcounter_core::time::Span;
use poolcounter_server::{self as net, Address, Handover, Listener};
use poolcounter_service::options::{Opt, assign, number, seconds};
use poolcounter_tls::{Files, SETUP_TIME, Settings, Terminator, check, inherited};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// How many connections there are at a time, unless an option says otherwise.
const MAX_CONNECTIONS: usize = 10_000;
/// Descriptors that are left for what is no connection: listeners, signals, an upgrade.
const OTHER_DESCRIPTORS: u64 = 64;

/// Settings that the options make.
struct TlsSettings {
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

/// The options.
const OPTIONS: &[Opt<TlsSettings>] = &[
    Opt {
        short: "l",
        long: "listen",
        hint: "IP:PORT",
        doc_short: "where clients connect; repeatable",
        doc_long: "
            Where clients connect.
            May be given several times.",
        repeats: true,
        set: |settings, value| {
            settings.listen.push(value.parse().map_err(|_| Address::wanted(value, "IP:PORT or [IP6]:PORT"))?);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        short: "t",
        long: "to",
        hint: "ADDRESS",
        doc_short: "the server behind it: unix:PATH or IP:PORT, which it listens on as proxy:ADDRESS",
        doc_long: "
            The server behind it:
            .Cm unix : Ns Ar path
            or
            .Ar ip : Ns Ar port .
            It must be one that reads the header of the PROXY protocol there, as
            .Xr poolcounter 8
            does where it listens on
            .Cm proxy : Ns Ar address .",
        set: |settings, value| {
            let is_address = value.starts_with("unix:") || value.parse::<SocketAddr>().is_ok();
            let address = Address::parse(value, 0).filter(|address| is_address && address.fits());
            assign(&mut settings.to, address.map(Some).ok_or_else(|| Address::wanted(value, "IP:PORT, [IP6]:PORT or unix:PATH")))
        },
        ..Opt::BLANK
    },
    Opt {
        long: "cert",
        hint: "FILE",
        doc_short: "its certificate in PEM, and the authorities between it and one that clients know",
        doc_long: "
            Its certificate in PEM, followed by the authorities between it and one that clients know.",
        set: |settings, value| assign(&mut settings.files.certificate, file(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "key",
        hint: "FILE",
        doc_short: "the certificate's private key in PEM",
        doc_long: "
            The certificate's private key in PEM.",
        set: |settings, value| assign(&mut settings.files.key, file(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "client-ca",
        hint: "FILE",
        doc_short: "let in only clients with a certificate of these authorities, and tell the server their names",
        doc_long: "
            Let in only clients that show a certificate of one of these authorities, in PEM.
            The server receives its common name; if it has none, the first host that it is for.
            If an authority of the certificate has name constraints, it is the host in any case, and without one the client is not let in:
            constraints do not bind common names.
            A client whose certificate has several common names, or one that is longer than 64 bytes or no text, is not let in.",
        set: |settings, value| assign(&mut settings.files.client_ca, file(value).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "max-connections",
        hint: "N",
        doc_short: "connections at a time (default: 10000)",
        doc_long: "
            Keep at most
            .Ar n
            connections and close those beyond that at once.
            Clients that have not finished their handshake have half of the places: the oldest of them gives way to a new one.
            The default is 10000.
            Each takes two open files, of which there must be enough:
            .Nm
            raises its limit as far as it may.",
        set: |settings, value| assign(&mut settings.max_connections, number(value, 1..=1_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "setup-timeout",
        hint: "SECONDS",
        doc_short: "how long a client may take for its handshake, and the server to take the connection (default: 10)",
        doc_long: "
            How long a client may take for its handshake, and the server after that to take the connection.
            The default is 10.",
        set: |settings, value| assign(&mut settings.setup_time, seconds(value).map(Span::from)),
        ..Opt::BLANK
    },
    Opt {
        long: "keepalive",
        hint: "IDLE[,INTERVAL[,PROBES]]",
        doc_short: "as for the daemon (default: 60,10,6)",
        doc_long: "
            When a client that is silent counts as dead, as for
            .Xr poolcounter 8 .
            The default is 60,10,6.",
        set: |settings, value| assign(&mut settings.net.keepalive, keepalive(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "check",
        doc_short: "only check the options and the certificates, and say what is wrong",
        doc_long: "
            Only check the other options and read the certificates.
            If something is wrong, one line on the standard error says what, and the status is 1.",
        set: |settings, _| assign(&mut settings.is_check, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "check-handover",
        doc_short: "only check that the listeners on standard input can be taken over; an upgrade does this first",
        is_hidden: true,
        set: |settings, _| assign(&mut settings.is_rehearsal, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        short: "v",
        long: "verbose",
        doc_short: "log connections. RUST_LOG works too",
        doc_long: "
            Log connections.",
        set: |settings, _| {
            settings.verbosity = settings.verbosity.saturating_add(1);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

impl Default for TlsSettings {
    fn default() -> Self {
        TlsSettings {
            listen: Vec::new(),
            to: None,
            files: Files::default(),
            max_connections: MAX_CONNECTIONS,
            setup_time: SETUP_TIME,
            net: net::Options::default(),
            is_check: false,
            is_rehearsal: false,
            verbosity: 0,
        }
    }
}

/// The command: serves until a signal ends it, or only tells whether it could serve, or take over.
///
/// # Errors
///
/// When it cannot.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = TlsSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    // The key must not be readable by other processes of the same user. A program that an upgrade has run is another until then.
    prctl::set_dumpable(false).map_err(|error| format!("cannot hide the key: {error}"))?;
    let handover = Handover::inherited().transpose()?;
    let terminator = terminator(&settings)?;
    if settings.is_rehearsal {
        check()?;
    } else if !settings.is_check {
        logger::start(settings.verbosity);
        serve(terminator, &settings, handover)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the terminator that the options ask for, with its certificates, which listens nowhere yet.
fn terminator(settings: &TlsSettings) -> Result<Terminator, Failure> {
    let missing = |option| Failure::misuse(format!("--{option} is needed (see poolcounter help tls)"));
    let to = settings.to.clone().ok_or_else(|| missing("to"))?;
    if settings.listen.is_empty() {
        return Err(missing("listen"));
    }
    for (path, option) in [(&settings.files.certificate, "cert"), (&settings.files.key, "key")] {
        if path.as_os_str().is_empty() {
            return Err(missing(option));
        }
    }
    let TlsSettings { files, max_connections, setup_time, .. } = settings;
    let (files, setup_time) = (files.clone(), *setup_time);
    Ok(Terminator::new(Settings { to, files, max_connections: *max_connections, setup_time })?)
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
    terminator.limit_connections(raise_descriptor_limit().saturating_sub(OTHER_DESCRIPTORS) / 2);
    let (addresses, to) = (enumerate(&terminator.addresses()), settings.to.iter().next());
    let to = to.map(Address::to_string).unwrap_or_default();
    info!("poolcounter {VERSION} {what}listens on {addresses} for TLS, which goes on to {to}");
    let result = terminator.run();
    info!("poolcounter tls stops (process {})", std::process::id());
    result.map_err(|error| format!("cannot wait for events: {error}"))
}

fn file(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err("a file".into()) } else { Ok(value.into()) }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
