//! Options of the pools: limits of clients, and thresholds of warnings.

use super::ceiling::Ceiling;
use poolcounter_core::Span;
use poolcounter_service::options::{
    Endpoint, Opt, assign, number, option_table, seconds_or_forever, set_max_connections, set_port,
};

/// Settings of the pools.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolsSettings {
    /// Most locks that one connection may hold or wait for.
    pub max_locks: u32,
    /// Longest hold of a lock, whatever the client asks for.
    pub max_hold: Span,
    /// Longest request in bytes, without its line feed.
    pub max_line: usize,
    /// Age of a lock at which the operator is warned.
    pub warn_hold: Span,
    /// Refusals of a key in a second, over a minute, at which the operator is warned.
    pub warn_refusals: u32,
    /// Ceilings of requests; the first whose pattern matches applies.
    pub ceilings: Vec<Ceiling>,
}

impl Default for PoolsSettings {
    fn default() -> Self {
        PoolsSettings {
            max_locks: 4,
            max_hold: Span::FOREVER,
            max_line: 8192,
            warn_hold: Span::from_secs(300),
            warn_refusals: 100,
            ceilings: Vec::new(),
        }
    }
}

/// Options for the addresses of the pools. The pools are always on, and their options have no prefix.
pub const LISTENING: &[Opt<Endpoint>] = option_table!(Endpoint;
    "-l, --listen ADDRESS",
        "Listen on this address: IP, IP:PORT, [IP6]:PORT or unix:PATH, for proxies with proxy: before it; repeatable \
         (default: 127.0.0.1 and [::1]). Names of hosts are not looked up. With proxy: only proxies connect there, and \
         pass on the addresses of their clients; see ACCESS in poolcounter(8). A socket file on which no process \
         listens any more is replaced, and the daemon removes its socket files when it stops. The default has [::1] \
         only where the machine has IPv6. [::] is for IPv6 alone; 0.0.0.0 is for IPv4.",
        Endpoint::listen_on, in_file("listen", r#"["127.0.0.1", "::1"]"#), repeated();
    "-p, --port PORT", "Port of addresses without one, from 0 to 65535; 0: the system chooses one (default: 7531).",
        set_port, in_file("port", "7531"), idle_if(Endpoint::idle_port);
    "--max-connections N",
        "Maximum number of PoolCounter connections; further ones are closed at once; 0: as many as the system allows \
         (default: 0).",
        set_max_connections, in_file("max_connections", "0");
);

/// The other options.
pub const OPTIONS: &[Opt<PoolsSettings>] = option_table!(PoolsSettings;
    "--max-locks N", "Maximum number of locks and waits of one connection, from 1 to 1024 (default: 4).",
        |settings, value| assign(&mut settings.max_locks, number(value, 1..=1024)), in_file("max_locks", "4");
    "--max-hold SECONDS",
        "Maximum time to hold a lock, after which it is taken back, whatever the request asks for; 0: without limit \
         (default: 0). A client that asked for more receives NOT_LOCKED, and its connection is closed. Decimals are \
         allowed.",
        |settings, value| assign(&mut settings.max_hold, seconds_or_forever(value)), in_file("max_hold", "0");
    "--warn-hold SECONDS",
        "Report a lock that is held for longer than this, in the status and, up to 15 seconds later, in the log; 0: \
         never (default: 300). Decimals are allowed.",
        |settings, value| assign(&mut settings.warn_hold, seconds_or_forever(value)),
        in_file("warn_hold", "300"), idle_if(|settings| {
            let is_over = settings.warn_hold != Span::FOREVER && settings.max_hold <= settings.warn_hold;
            is_over.then_some("max_hold is not longer")
        });
    "--warn-refusals N",
        "Report a key that refuses more than this number of requests a second as critical, up to 1000000; 0: never \
         (default: 100).",
        |settings, value| {
            let most = number(value, 0..=1_000_000);
            assign(&mut settings.warn_refusals, most.map(|most| if most == 0 { u32::MAX } else { most }))
        }, in_file("warn_refusals", "100");
    "--max-line BYTES", "Maximum length of a request without its line feed, from 64 to 1048576 (default: 8192).",
        |settings, value| assign(&mut settings.max_line, number(value, 64..=1024 * 1024)), in_file("max_line", "8192");
);
