//! Protocol of sd_notify(3) and sd_listen_fds(3), with the supervisor that has started the daemon, such as systemd: it
//! gets the daemon's state and watchdog keep-alives, and may provide listening sockets. The environment names both, and
//! outlives an upgrade. This module knows no service and no connection.

use super::handover::adopt;
use log::debug;
use poolcounter_core::time::earliest;
use poolcounter_core::{Span, Time, words};
use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the address of the supervisor's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// Time until the next attempt after the queue of the supervisor's socket was full.
const RETRY_INTERVAL: Span = Span::from_millis(100);

/// Least time between two keep-alives: a supervisor that wants more of them must not keep the loop busy.
const MIN_WATCHDOG_INTERVAL: Span = Span::from_millis(10);

words! {
    /// State of the daemon for the supervisor.
    pub enum DaemonState, text {
        /// The daemon serves.
        Ready = "READY=1",
        /// The daemon is about to be replaced by another version of itself, and still serves.
        Reloading = "RELOADING=1",
        /// The daemon is ending, as requested.
        Stopping = "STOPPING=1",
    }
}

/// Sender of notifications to the supervisor. Without a supervisor it makes no system call and has no deadline.
///
/// The notifier never blocks, and so uses no library for the messages: a supervisor that does not read must not stop
/// the loop.
#[derive(Default)]
pub struct Notifier {
    socket: Option<NotifySocket>,
    /// Time between two keep-alives, and time of the next one; None if the supervisor wants none.
    watchdog: Option<(Span, Time)>,
    /// State that must still be sent, and the time of the next attempt.
    pending: Option<(DaemonState, Time)>,
}

struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Notifier {
    /// Returns the notifier for the supervisor in the environment, or a notifier without effect.
    pub fn from_environment() -> Notifier {
        let Some(name) = env::var_os(VARIABLE) else { return Notifier::default() };
        let socket = NotifySocket::to(name.as_bytes());
        let socket = socket.inspect_err(|error| debug!("{VARIABLE} is of no use: {error}")).ok();
        let wants = ::sd_notify::watchdog_enabled().filter(|within| socket.is_some() && !within.is_zero());
        let watchdog = wants.map(|within| (watchdog_interval_of(within.into()), Time::START));
        Notifier { socket, watchdog, pending: None }
    }

    /// Sends the daemon's state; later, if the queue is full at the moment.
    pub fn notify(&mut self, state: DaemonState, now: Time) {
        if self.socket.is_some() {
            self.pending = Some((state, now));
            self.notify_due(now);
        }
    }

    /// Returns the time of the next call of [`Notifier::notify_due`].
    pub fn next_deadline(&self) -> Option<Time> {
        self.socket.as_ref()?;
        earliest(self.pending.map(|(_, at)| at), self.watchdog.map(|(_, at)| at))
    }

    /// Sends the state and the keep-alive that are due.
    pub fn notify_due(&mut self, now: Time) {
        let Some(socket) = &self.socket else { return };
        if let Some((state, _)) = self.pending.filter(|(_, at)| *at <= now) {
            self.pending = if socket.try_send(state.text()) { None } else { Some((state, now + RETRY_INTERVAL)) };
        }
        if let Some((interval, at)) = self.watchdog.as_mut().filter(|(_, at)| *at <= now) {
            *at = now + if socket.try_send("WATCHDOG=1") { *interval } else { RETRY_INTERVAL };
        }
    }
}

impl NotifySocket {
    /// Returns a socket that sends to a path, or to an abstract name, which begins with `@`.
    fn to(name: &[u8]) -> io::Result<NotifySocket> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(NotifySocket { socket, address })
    }

    /// Sends one datagram. Returns false if the queue is full, and true if it was sent or never can be.
    fn try_send(&self, text: &str) -> bool {
        match self.socket.send_to_addr(text.as_bytes(), &self.address) {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            // Some supervisors wait for READY=1 only, and close their socket then.
            Err(error) => {
                debug!("the supervisor was not notified of {text}: {error}");
                true
            }
        }
    }
}

/// Returns the time between two keep-alives for a watchdog's timeout: half of it, so that a late one still comes in
/// time.
fn watchdog_interval_of(within: Span) -> Span {
    Span::from_micros(within.as_micros() / 2).max(MIN_WATCHDOG_INTERVAL)
}

/// Returns the sockets that the supervisor has opened for this process, with the names that it gave them.
///
/// # Errors
///
/// One sentence: the environment names descriptors that are not open.
pub fn sockets_from_supervisor() -> Result<Vec<(String, OwnedFd)>, String> {
    let passed = ::sd_notify::listen_fds_with_names().and_then(|sockets| {
        let adopted = sockets.map(|(fd, name)| Ok((name, adopt(fd)?)));
        adopted.collect()
    });
    passed.map_err(|error| format!("cannot take the sockets of LISTEN_FDS: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::START + Span::from_millis(ms)
    }

    fn supervisor(interval: Option<Span>) -> (Notifier, UnixDatagram) {
        let name = format!("poolcounter-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let receiver = UnixDatagram::bind_addr(&address).expect("the name is free");
        receiver.set_nonblocking(true).expect("an option");
        let socket = NotifySocket::to(format!("@{name}").as_bytes()).expect("a socket");
        let watchdog = interval.map(|interval| (interval, Time::START));
        (Notifier { socket: Some(socket), watchdog, pending: None }, receiver)
    }

    fn received(receiver: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 64];
        let len = receiver.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    #[test]
    fn keepalives_come_in_time_and_cost_nothing_between() {
        let (mut supervisor, receiver) = supervisor(Some(Span::from_millis(500)));
        supervisor.notify(DaemonState::Ready, at(3));
        assert_eq!(received(&receiver).as_deref(), Some("READY=1"));
        assert_eq!(received(&receiver).as_deref(), Some("WATCHDOG=1"));
        assert_eq!(supervisor.next_deadline(), Some(at(503)));
        supervisor.notify_due(at(502));
        assert_eq!(received(&receiver), None);
        supervisor.notify_due(at(510));
        assert_eq!(received(&receiver).as_deref(), Some("WATCHDOG=1"));
        assert_eq!(supervisor.next_deadline(), Some(at(1010)));
    }

    /// A timeout of one microsecond or zero must not make the loop spin.
    #[test]
    fn keep_alives_have_a_least_interval() {
        let intervals = [0, 1, 2, 21_000, 30_000_000].map(|us| watchdog_interval_of(Span::from_micros(us)).as_micros());
        assert_eq!(intervals, [10_000, 10_000, 10_000, 10_500, 15_000_000]);
    }

    #[test]
    fn without_a_watchdog_there_are_no_keep_alives() {
        let (mut supervisor, receiver) = supervisor(None);
        supervisor.notify(DaemonState::Reloading, at(0));
        assert_eq!(received(&receiver).as_deref(), Some("RELOADING=1"));
        assert_eq!(supervisor.next_deadline(), None);
        supervisor.notify_due(at(100_000));
        assert_eq!(received(&receiver), None);
    }

    /// The queue of a supervisor that does not read fills up. A state that did not fit is sent later; of two states,
    /// the newer.
    #[test]
    fn supervisor_that_does_not_read_is_notified_later() {
        let (mut supervisor, receiver) = supervisor(None);
        let mut sent = 0;
        while supervisor.pending.is_none() {
            supervisor.notify(DaemonState::Reloading, at(0));
            sent += 1;
            assert!(sent < 100_000, "the queue has no end");
        }
        assert_eq!(supervisor.next_deadline(), Some(at(100)));
        supervisor.notify(DaemonState::Ready, at(50));
        while received(&receiver).is_some() {}
        supervisor.notify_due(at(149));
        assert_eq!(received(&receiver), None);
        supervisor.notify_due(at(150));
        assert_eq!(received(&receiver).as_deref(), Some("READY=1"));
        assert_eq!(supervisor.next_deadline(), None);
    }

    #[test]
    fn supervisor_that_has_gone_is_no_trouble() {
        let (mut supervisor, receiver) = supervisor(Some(Span::from_millis(500)));
        drop(receiver);
        supervisor.notify(DaemonState::Ready, at(0));
        assert_eq!(supervisor.pending, None);
        assert_eq!(supervisor.next_deadline(), Some(at(500)));
    }
}
