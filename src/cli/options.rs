//! The daemon's options: one table, which parsing, `--help` and the manual's test read.

use crate::net::{self, Address, Keepalive};
use crate::pools::wire;
use crate::services::{Kind, Limits};
use crate::time::Span;
use getopts::{HasArg, Occur};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The port of the PoolCounter protocol.
pub const POOLS_PORT: u16 = 7531;
/// The port of metrics and the status page.
pub const HTTP_PORT: u16 = 7580;
/// The addresses of the machine itself, on which the daemon listens unless it is told otherwise.
const LOCALHOST: [&str; 2] = ["127.0.0.1", "::1"];

/// One option.
pub struct Opt {
    /// Its letter, or nothing.
    pub short: &'static str,
    /// Its name.
    pub long: &'static str,
    /// What its value is, or nothing for an option without one.
    pub hint: &'static str,
    /// What it does, for `--help`.
    pub help: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// What the options say.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// What to do at all.
    pub action: Action,
    /// Addresses to listen on; none means on [`Settings::addresses`]' default.
    listen: Vec<String>,
    port: u16,
    /// Where to serve metrics and the status page.
    pub http: Vec<Address>,
    /// How to listen.
    pub net: net::Options,
    /// What is wanted of the loop.
    pub policy: net::Policy,
    /// What clients are allowed.
    pub limits: Limits,
    /// How often `-v` was given.
    pub verbosity: u8,
}

/// What the daemon is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Serve.
    Serve,
    /// Tell whether this program could take over from a running daemon.
    CheckHandover,
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// The table.
pub const OPTIONS: &[Opt] = &[
    Opt {
        short: "l",
        long: "listen",
        hint: "ADDRESS",
        help: "listen on IP, IP:PORT, [IP6]:PORT or unix:PATH; repeatable (default: 127.0.0.1 and [::1])",
        set: |settings, value| {
            settings.listen.push(value.into());
            Ok(())
        },
    },
    Opt {
        short: "p",
        long: "port",
        hint: "PORT",
        help: "the port of addresses that name none (default: 7531)",
        set: |settings, value| assign(&mut settings.port, number(value, 0..=u16::MAX)),
    },
    Opt {
        short: "",
        long: "http",
        hint: "ADDRESS",
        help: "serve metrics and a status page on IP, IP:PORT, [IP6]:PORT or unix:PATH; repeatable (default: off; port 7580)",
        set: |settings, value| {
            let address = Address::parse(value, HTTP_PORT).ok_or("an address (IP, IP:PORT, [IP6]:PORT or unix:PATH)")?;
            settings.http.push(address);
            Ok(())
        },
    },
    Opt {
        short: "",
        long: "backlog",
        hint: "N",
        help: "connections that may wait to be accepted (default: 4096)",
        set: |settings, value| assign(&mut settings.net.backlog, number(value, 1..=i32::MAX)),
    },
    Opt {
        short: "",
        long: "socket-mode",
        hint: "MODE",
        help: "permissions of unix: sockets, in octal (default: by umask)",
        set: |settings, value| assign(&mut settings.net.mode, mode(value).map(Some)),
    },
    Opt {
        short: "",
        long: "keepalive",
        hint: "IDLE[,INTERVAL[,PROBES]]",
        help: "seconds of silence, seconds between probes, and probes after which a peer counts as dead; or off (default: 60,10,6)",
        set: |settings, value| assign(&mut settings.net.keepalive, keepalive(value)),
    },
    Opt {
        short: "",
        long: "max-connections",
        hint: "N",
        help: "connections at a time; more are closed at once; 0: as many as the system allows (default: 0)",
        set: |settings, value| {
            assign(&mut settings.policy.max_connections[Kind::Pools], number(value, 0..=u64::MAX).map(or_unlimited))
        },
    },
    Opt {
        short: "",
        long: "max-locks",
        hint: "N",
        help: "locks and waits of one connection (default: 4)",
        set: |settings, value| assign(&mut settings.limits.pools.max_locks, number(value, 1..=65535)),
    },
    Opt {
        short: "",
        long: "max-hold",
        hint: "SECONDS",
        help: "the longest that a lock may be held before it is taken back; 0: without limit (default: 0)",
        set: |settings, value| assign(&mut settings.limits.pools.max_hold, hold(value)),
    },
    Opt {
        short: "",
        long: "max-line",
        hint: "BYTES",
        help: "the longest request (default: 8192)",
        set: |settings, value| assign(&mut settings.limits.pools.max_line, number(value, 64..=1024 * 1024)),
    },
    Opt {
        short: "",
        long: "busy-poll",
        hint: "MICROSECONDS",
        help: "look for requests so long before sleeping: faster answers for a busy processor (default: 0)",
        set: |settings, value| {
            assign(&mut settings.policy.busy_poll, number(value, 0..=1_000_000).map(Span::from_micros))
        },
    },
    Opt {
        short: "",
        long: "check-handover",
        hint: "",
        help: "only check that the state on standard input can be taken over; an upgrade does this first",
        set: |settings, _| assign(&mut settings.action, Ok(Action::CheckHandover)),
    },
    Opt {
        short: "v",
        long: "verbose",
        hint: "",
        help: "log connections; twice: every line in and out. RUST_LOG works too",
        set: |settings, _| {
            settings.verbosity = settings.verbosity.saturating_add(1);
            Ok(())
        },
    },
    Opt {
        short: "V",
        long: "version",
        hint: "",
        help: "print the version and exit",
        set: |settings, _| assign(&mut settings.action, Ok(Action::Version)),
    },
    Opt {
        short: "h",
        long: "help",
        hint: "",
        help: "print this help and exit",
        set: |settings, _| assign(&mut settings.action, Ok(Action::Help)),
    },
];

impl Default for Settings {
    fn default() -> Self {
        Settings {
            action: Action::Serve,
            listen: Vec::new(),
            port: POOLS_PORT,
            http: Vec::new(),
            net: net::Options::default(),
            policy: net::Policy::default(),
            limits: Limits::default(),
            verbosity: 0,
        }
    }
}

impl Settings {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    ///
    /// One sentence that names what is wrong.
    pub fn parse(arguments: &[String]) -> Result<Settings, String> {
        let matches = table().parse(arguments).map_err(|fail| format!("{fail} (see --help)"))?;
        if let Some(extra) = matches.free.first() {
            return Err(format!("\"{extra}\" is no option (see --help)"));
        }
        let mut settings = Settings::default();
        for option in OPTIONS {
            let values = match option.hint {
                "" => vec![String::new(); matches.opt_count(option.long)],
                _ => matches.opt_strs(option.long),
            };
            for value in values {
                (option.set)(&mut settings, &value)
                    .map_err(|wanted| format!("--{}: \"{value}\" is not {wanted}", option.long))?;
            }
        }
        settings.addresses()?;
        Ok(settings)
    }

    /// Where to listen.
    ///
    /// # Errors
    ///
    /// One sentence that names what is no address. After [`Settings::parse`] there is none.
    pub fn addresses(&self) -> Result<Vec<Address>, String> {
        let texts: Vec<&str> = self.listen.iter().map(String::as_str).collect();
        let texts = if self.listens_by_default() { &LOCALHOST[..] } else { &texts };
        let read = |text: &&str| {
            Address::parse(text, self.port)
                .ok_or_else(|| format!("--listen: \"{text}\" is not an address (IP, IP:PORT, [IP6]:PORT or unix:PATH)"))
        };
        texts.iter().map(read).collect()
    }

    /// Whether nobody said where to listen.
    pub fn listens_by_default(&self) -> bool {
        self.listen.is_empty()
    }
}

/// The text of `--help`.
pub fn help() -> String {
    table().usage("Usage: poolcounter [options]\n\nKeeps a fleet of servers from stampeding: a PoolCounter daemon.")
        + "\n"
}

fn table() -> getopts::Options {
    let mut table = getopts::Options::new();
    for Opt { short, long, hint, help, .. } in OPTIONS {
        let has_arg = if hint.is_empty() { HasArg::No } else { HasArg::Yes };
        table.opt(short, long, help, hint, has_arg, Occur::Multi);
    }
    table
}

fn assign<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let in_range = text.parse().ok().filter(|n| range.contains(n));
    in_range.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

fn or_unlimited(number: u64) -> u64 {
    if number == 0 { u64::MAX } else { number }
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "an octal mode from 0 to 777".into())
}

fn hold(text: &str) -> Result<Span, String> {
    let span = wire::parse_seconds(text.as_bytes()).ok_or("a number of seconds")?;
    Ok(if span == Span::ZERO { Span::FOREVER } else { span })
}

fn keepalive(text: &str) -> Result<Option<Keepalive>, String> {
    if text == "off" {
        return Ok(None);
    }
    let wanted = || "IDLE[,INTERVAL[,PROBES]] (at most 32767,32767,127) or off".to_string();
    let defaults = Keepalive::default();
    let mut parts = text.split(',');
    let mut next = |max| parts.next().map(|part| number(part, 1..=max).map_err(|_| wanted())).transpose();
    let idle = next(32767)?.map_or(defaults.idle, |s| Duration::from_secs(u64::from(s)));
    let interval = next(32767)?.map_or(defaults.interval, |s| Duration::from_secs(u64::from(s)));
    let probes = next(127_u32)?.unwrap_or(defaults.probes);
    if parts.next().is_some() {
        return Err(wanted());
    }
    Ok(Some(Keepalive { idle, interval, probes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Settings, String> {
        Settings::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn without_options_it_serves_the_local_machine() {
        let settings = parse("").expect("is well-formed");
        assert_eq!(settings, Settings::default());
        let addresses: Vec<String> = settings.addresses().expect("addresses").iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:7531", "[::1]:7531"]);
    }

    #[test]
    fn options_set_what_they_say() {
        let line = "-l 10.0.0.1 --listen unix:/run/p -p 99 --backlog 7 --socket-mode 660 --keepalive 5,2 \
                    --max-connections 10 --busy-poll 50 --max-locks 2 --max-hold 1.5 --max-line 100 -v -vv";
        let settings = parse(line).expect("is well-formed");
        let addresses: Vec<String> = settings.addresses().expect("addresses").iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:99", "unix:/run/p"]);
        let http = parse("--http ::1 --http 10.0.0.1:80").expect("is well-formed").http;
        assert_eq!(http.iter().map(Address::to_string).collect::<Vec<_>>(), ["[::1]:7580", "10.0.0.1:80"]);
        let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(2), probes: 6 };
        assert_eq!(settings.net, net::Options { backlog: 7, keepalive: Some(keepalive), mode: Some(0o660) });
        assert_eq!(
            settings.limits.pools,
            crate::pools::Limits { max_locks: 2, max_hold: Span::from_millis(1_500), max_line: 100 }
        );
        assert_eq!(settings.policy.max_connections[Kind::Pools], 10);
        assert_eq!(settings.policy.busy_poll, Span::from_micros(50));
        assert_eq!(settings.verbosity, 3);
        assert_eq!(parse("--keepalive off").expect("is well-formed").net.keepalive, None);
        assert_eq!(parse("-V").expect("is well-formed").action, Action::Version);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("-l nowhere", "--listen: \"nowhere\" is not an address"),
            ("--http nowhere", "--http: \"nowhere\" is not an address"),
            ("--port 65536", "--port: \"65536\" is not a number from 0 to 65535"),
            ("--backlog 0", "--backlog: \"0\""),
            ("--socket-mode 9", "--socket-mode: \"9\""),
            ("--keepalive 1,2,3,4", "--keepalive: \"1,2,3,4\""),
            ("--keepalive 0", "--keepalive: \"0\""),
            ("--busy-poll -1", "--busy-poll: \"-1\""),
            ("--max-hold x", "--max-hold: \"x\" is not a number of seconds"),
            ("--max-line 1", "--max-line: \"1\""),
            ("--frobnicate", "frobnicate"),
            ("surplus", "\"surplus\" is no option"),
            ("-p", "'p'"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(named) && !error.contains('\n'), "{line}: {error}");
        }
    }
}
