//! The options of the pools: what the operator allows every client, and wants to hear of.

use crate::options::{Endpoint, Opt, assign, number, seconds_or_forever, set_max_connections, set_port};
use crate::time::Span;

/// What the options of the pools say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolsSettings {
    /// Places that one connection may hold or wait for.
    pub max_locks: u32,
    /// The longest that a place may be held, whatever the client asks for.
    pub max_hold: Span,
    /// The longest request in bytes, without its line feed.
    pub max_line: usize,
    /// How long a lock may be held before the operator is told.
    pub warn_hold: Span,
    /// How many requests a key may refuse in a second, over a minute, before the operator is told.
    pub warn_refusals: u32,
}

impl Default for PoolsSettings {
    fn default() -> Self {
        PoolsSettings {
            max_locks: 4,
            max_hold: Span::FOREVER,
            max_line: 8192,
            warn_hold: Span::from_secs(300),
            warn_refusals: 100,
        }
    }
}

/// Where the pools listen. They are always on, and their options have no prefix.
pub const LISTENING: &[Opt<Endpoint>] = &[
    Opt {
        short: "l",
        long: "listen",
        key: "listen",
        hint: "ADDRESS",
        help: "listen on IP, IP:PORT, [IP6]:PORT or unix:PATH; repeatable (default: 127.0.0.1 and [::1])",
        repeats: true,
        set: Endpoint::listen_on,
        ..Opt::BLANK
    },
    Opt {
        short: "p",
        long: "port",
        key: "port",
        hint: "PORT",
        help: "the port of addresses that name none (default: 7531)",
        set: set_port,
        ..Opt::BLANK
    },
    Opt {
        long: "max-connections",
        key: "max_connections",
        hint: "N",
        help: "PoolCounter connections at a time; more are closed at once; 0: as many as the system allows (default: 0)",
        set: set_max_connections,
        ..Opt::BLANK
    },
];

/// The other options.
pub const OPTIONS: &[Opt<PoolsSettings>] = &[
    Opt {
        long: "max-locks",
        key: "max_locks",
        hint: "N",
        help: "locks and waits of one connection (default: 4)",
        set: |settings, value| assign(&mut settings.max_locks, number(value, 1..=65535)),
        ..Opt::BLANK
    },
    Opt {
        long: "max-hold",
        key: "max_hold",
        hint: "SECONDS",
        help: "the longest that a lock may be held before it is taken back; 0: without limit (default: 0)",
        set: |settings, value| assign(&mut settings.max_hold, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "warn-hold",
        key: "warn_hold",
        hint: "SECONDS",
        help: "log a lock that is held for so long, and again when that time has doubled; 0: never (default: 300)",
        set: |settings, value| assign(&mut settings.warn_hold, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "warn-refusals",
        key: "warn_refusals",
        hint: "N",
        help: "log a key that refuses more than N requests a second, over a minute; 0: never (default: 100)",
        set: |settings, value| {
            let most = number(value, 0..=1_000_000);
            assign(&mut settings.warn_refusals, most.map(|most| if most == 0 { u32::MAX } else { most }))
        },
        ..Opt::BLANK
    },
    Opt {
        long: "max-line",
        key: "max_line",
        hint: "BYTES",
        help: "the longest request (default: 8192)",
        set: |settings, value| assign(&mut settings.max_line, number(value, 64..=1024 * 1024)),
        ..Opt::BLANK
    },
];
