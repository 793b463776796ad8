//! Log of the daemon: lines on the standard error, written without waiting for the reader. Independent of services.
//!
//! Invariant: the flags of the standard error stay unchanged. Other processes share it, and do not expect failing
//! writes.

use env_logger::fmt::Formatter;
use log::{Level, LevelFilter, Log, Metadata, Record, error};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};
use poolcounter_core::text::plain;
use poolcounter_server as net;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, panic};

/// Prefix of the crates whose lines are logged by default; RUST_LOG can enable the lines of libraries.
const OURS: &str = "poolcounter";
/// Module that logs the actions of administrators.
const ADMINISTRATION: &str = "poolcounter::admin";
/// Bytes written at once, equal to PIPE_BUF: the kernel takes all of them or none.
const PIECE: usize = 4096;

/// Installs the logger and the panic hook.
pub fn start(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let lost = Arc::new(AtomicU64::new(0));
    let mut builder = env_logger::Builder::new();
    match env::var("RUST_LOG") {
        Ok(filters) if !filters.is_empty() => builder.filter_level(level).parse_filters(&filters),
        _ => builder.filter_module(OURS, level),
    };
    let usual_filter = builder.build();
    let mut builder = env_logger::Builder::new();
    builder.filter_level(LevelFilter::Trace);
    builder.target(env_logger::Target::Pipe(Box::new(Outlet::new(Arc::clone(&lost)))));
    let (is_journal, has_colours) = (is_journal(), has_colours());
    let write = move |formatter: &mut Formatter, record: &Record<'_>| {
        let level = record.level();
        let line = record.args().to_string();
        let line = plain(&line);
        match (is_journal, has_colours) {
            (true, _) => writeln!(formatter, "{}{line}", priority(level)),
            (false, true) => {
                let colour = colour(level);
                writeln!(formatter, "\x1b[90m[\x1b[0m{} {colour}{level:<5}\x1b[0m\x1b[90m]\x1b[0m {line}", now())
            }
            (false, false) => writeln!(formatter, "[{} {level:<5}] {line}", now()),
        }
    };
    builder.format(move |formatter, record| {
        let lost = lost.load(Ordering::Relaxed);
        if lost > 0 {
            let mut notice = Record::builder();
            notice.level(Level::Warn);
            write(formatter, &notice.args(format_args!("{lost} lines of the log were lost: nothing read it")).build())?;
        }
        write(formatter, record)
    });
    log::set_max_level(usual_filter.filter().max(LevelFilter::Warn));
    let leveled = Leveled { usual_filter, writer: builder.build() };
    log::set_boxed_logger(Box::new(leveled)).expect("the program starts its log once");
    // The default hook would wait for a reader, and with it all clients.
    panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::capture();
        error!("{}", panic.to_string().replace('\n', " "));
        if backtrace.status() == BacktraceStatus::Captured {
            backtrace.to_string().lines().for_each(|line| error!("{line}"));
        }
    }));
}

/// Logger whose level an administrator can change. Actions of administrators are logged at any level.
struct Leveled {
    /// Filter, as long as no level was set.
    usual_filter: env_logger::Logger,
    /// Writes every line that it is given.
    writer: env_logger::Logger,
}

impl Leveled {
    /// Returns true or false if the level alone decides about a line; None if the usual filter does.
    fn decided(&self, metadata: &Metadata<'_>) -> Option<bool> {
        let target = documented(metadata.target());
        let is_below = |module: &str| {
            let rest = target.strip_prefix(module);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if metadata.level() <= Level::Warn && is_below(ADMINISTRATION) {
            return Some(true);
        }
        net::log_level().filter(|_| is_below(OURS)).map(|level| metadata.level() <= level)
    }
}

impl Log for Leveled {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.decided(metadata).unwrap_or_else(|| {
            let target = documented(metadata.target());
            self.usual_filter.enabled(&Metadata::builder().level(metadata.level()).target(&target).build())
        })
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.writer.log(record);
        }
    }

    fn flush(&self) {
        self.writer.flush();
    }
}

/// Returns the name of a line's origin in RUST_LOG: `poolcounter::net` for the crate `poolcounter_server`, and
/// `poolcounter::pools` for `poolcounter_pools`. Crates beneath the services are left out of the name.
fn documented(target: &str) -> Cow<'_, str> {
    let Some(path) = target.strip_prefix("poolcounter_") else { return target.into() };
    let (name, rest) = path.find("::").map_or((path, ""), |end| path.split_at(end));
    match name {
        "core" | "protocol" | "service" => format!("{OURS}{rest}").into(),
        "server" => format!("{OURS}::net{rest}").into(),
        _ => format!("{OURS}::{path}").into(),
    }
}

/// Returns the priority prefix of a line for the journal; empty if the standard error is not the journal.
pub fn prefix(level: Level) -> &'static str {
    if is_journal() { priority(level) } else { "" }
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    }
}

/// Returns true if the standard error is the journal's socket, which the supervisor identifies by device and inode. A
/// process started with another standard error inherits the variable, too.
fn is_journal() -> bool {
    let is_named = |name: &str| {
        let (device, inode) = name.split_once(':')?;
        let stderr = File::from(stderr().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
        Some(device.parse() == Ok(stderr.dev()) && inode.parse() == Ok(stderr.ino()))
    };
    env::var("JOURNAL_STREAM").is_ok_and(|name| is_named(&name) == Some(true))
}

/// Returns the escape sequence of a terminal for lines of a level.
fn colour(level: Level) -> &'static str {
    match level {
        Level::Error => "\x1b[1m\x1b[31m",
        Level::Warn => "\x1b[33m",
        Level::Info => "\x1b[32m",
        Level::Debug => "\x1b[34m",
        Level::Trace => "\x1b[36m",
    }
}

/// Returns the time of day: `2026-11-22T08:03:05Z`.
fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}

/// Returns true if lines are coloured.
fn has_colours() -> bool {
    let is = |name, value: &str| env::var(name).is_ok_and(|other| other == value);
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || is("TERM", "dumb");
    is("RUST_LOG_STYLE", "always") || !is("RUST_LOG_STYLE", "never") && stderr().is_terminal() && !is_plain
}

/// Standard error. A line that it cannot take at once is lost, and counted.
struct Outlet {
    way: Way,
    lost: Arc<AtomicU64>,
    /// True if the last line was written in part.
    is_torn: bool,
}

/// Method of writing without waiting.
enum Way {
    /// Socket: each send can be non-blocking.
    Socket,
    /// Pipe or terminal that could be reopened, with its own flags.
    Reopened(File),
    /// Anything else is polled before each write. For a pipe, the poll tells if a piece fits, unless another process
    /// fills it first.
    Asked,
}

impl Outlet {
    fn new(lost: Arc<AtomicU64>) -> Self {
        Outlet { way: Way::of_stderr().unwrap_or(Way::Asked), lost, is_torn: false }
    }

    /// Writes as many bytes as possible without waiting, and returns their number.
    fn put(&self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            let piece = &bytes[written..][..PIECE.min(bytes.len() - written)];
            match self.way.write(piece) {
                Ok(len) if len > 0 => written += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        written
    }
}

impl Write for Outlet {
    /// Writes one line, after the notice about lost lines, if any.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_torn && self.put(b"\n") == 1 {
            self.is_torn = false;
        }
        let written = if self.is_torn { 0 } else { self.put(line) };
        if written == line.len() {
            self.lost.store(0, Ordering::Relaxed);
            return Ok(line.len());
        }
        self.is_torn |= written > 0;
        if line[..written].contains(&b'\n') {
            // The notice was written, but not the line.
            self.lost.store(1, Ordering::Relaxed);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Way {
    fn of_stderr() -> io::Result<Way> {
        let kind = File::from(stderr().as_fd().try_clone_to_owned()?).metadata()?.file_type();
        if kind.is_socket() {
            return Ok(Way::Socket);
        }
        if !kind.is_fifo() && !stderr().is_terminal() {
            // A reopened file would be written from its start.
            return Ok(Way::Asked);
        }
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        OpenOptions::new().write(true).custom_flags(flags.bits()).open("/proc/self/fd/2").map(Way::Reopened)
    }

    fn write(&self, piece: &[u8]) -> io::Result<usize> {
        match self {
            Way::Socket => Ok(send(stderr().as_raw_fd(), piece, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)?),
            Way::Reopened(file) => (&*file).write(piece),
            Way::Asked => {
                let stderr = stderr();
                let mut polled = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
                match poll(&mut polled, PollTimeout::ZERO)? {
                    0 => Ok(0),
                    _ => stderr.lock().write(piece),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_in_whole_seconds() {
        let time = now();
        assert!(time.len() == "2026-11-22T08:03:05Z".len() && time.ends_with('Z'), "{time}");
    }

    #[test]
    fn crates_have_the_names_of_their_modules() {
        for (target, name) in [
            ("poolcounter", "poolcounter"),
            ("poolcounter::net::server", "poolcounter::net::server"),
            ("poolcounter_server", "poolcounter::net"),
            ("poolcounter_server::connections::tick", "poolcounter::net::connections::tick"),
            ("poolcounter_pools::events", "poolcounter::pools::events"),
            ("poolcounter_admin", "poolcounter::admin"),
            ("poolcounter_service::access", "poolcounter::access"),
            ("poolcounter_core", "poolcounter"),
            ("mio::poll", "mio::poll"),
        ] {
            assert_eq!(documented(target), name);
        }
    }
}
