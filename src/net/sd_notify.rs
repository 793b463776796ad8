//! Whoever started the daemon and looks after it, such as systemd: it is told how the daemon is, and may hand sockets over.
//! What it wants stands in the environment, which outlives an upgrade. It knows no service and no connection.

use super::handover::adopt;
use crate::time::{Span, Time};
use log::debug;
use std::env;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Names the socket where the supervisor listens.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// How soon to try again when the supervisor has not read what others told it.
const RETRY: Span = Span::from_millis(100);

/// The least time between two signs of life: a supervisor that wants more of them must not keep the loop busy.
const LEAST_INTERVAL: Span = Span::from_millis(10);

/// What the supervisor knows of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It serves.
    Ready,
    /// It is about to be replaced by another version of itself. It serves all the same.
    Reloading,
    /// It was asked to end, and does.
    Stopping,
}

/// The way to the supervisor. If there is none, nothing here makes a system call or wakes anybody up.
///
/// Nothing here waits for it either, which is why the messages are not left to a library: a supervisor that does not read
/// must not stop the loop.
#[derive(Default)]
pub struct Supervisor {
    way: Option<Way>,
    /// The time between two signs of life; None if it wants none.
    interval: Option<Span>,
    /// When the next one is due.
    beat_at: Option<Time>,
    /// What it was not told yet, and when to try.
    news: Option<(Status, Time)>,
}

struct Way {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// The supervisor that the environment names.
    pub fn of_environment() -> Supervisor {
        let Some(name) = env::var_os(VARIABLE) else { return Supervisor::default() };
        match Way::to(name.as_bytes()) {
            Ok(way) => {
                let wants = sd_notify::watchdog_enabled().filter(|within| !within.is_zero());
                let interval = wants.map(|within| interval_of(within.into()));
                Supervisor { way: Some(way), interval, beat_at: interval.map(|_| Time::START), news: None }
            }
            Err(error) => {
                debug!("{VARIABLE} is of no use: {error}");
                Supervisor::default()
            }
        }
    }

    /// Tells it how the daemon is; later, if it does not listen at the moment.
    pub fn tell(&mut self, status: Status, now: Time) {
        if self.way.is_some() {
            self.news = Some((status, now));
            self.speak(now);
        }
    }

    /// When [`Supervisor::speak`] has something to say.
    pub fn next_word(&self) -> Option<Time> {
        self.news.map(|(_, at)| at).into_iter().chain(self.beat_at).min()
    }

    /// Says what is due.
    pub fn speak(&mut self, now: Time) {
        let Some(way) = &self.way else { return };
        if let Some((status, _)) = self.news.filter(|(_, at)| *at <= now) {
            self.news = if way.takes(status.text()) { None } else { Some((status, now + RETRY)) };
        }
        if let Some(interval) = self.interval.filter(|_| self.beat_at.is_some_and(|at| at <= now)) {
            self.beat_at = Some(now + if way.takes("WATCHDOG=1") { interval } else { RETRY });
        }
    }
}

impl Status {
    fn text(self) -> &'static str {
        match self {
            Status::Ready => "READY=1",
            Status::Reloading => "RELOADING=1",
            Status::Stopping => "STOPPING=1",
        }
    }
}

impl Way {
    /// To a path, or to a name without a file, which begins with `@`.
    fn to(name: &[u8]) -> io::Result<Way> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(OsStr::from_bytes(name))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Way { socket, address })
    }

    /// Says it, and tells whether that is done: it has come, or there is nobody left to hear it.
    fn takes(&self, text: &str) -> bool {
        match self.socket.send_to_addr(text.as_bytes(), &self.address) {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            // Some wait for the first word only.
            Err(error) => {
                debug!("the supervisor was not told {text}: {error}");
                true
            }
        }
    }
}

/// The time between two signs of life for one that wants a sign within some time: half of that, so that it hears of the daemon in time
/// even if a sign comes late.
fn interval_of(within: Span) -> Span {
    (within / 2).max(LEAST_INTERVAL)
}

/// The sockets that the supervisor has opened for this process, with the names that it gave them.
///
/// # Errors
///
/// One sentence, when the environment promises what is not there.
pub fn sockets_from_supervisor() -> Result<Vec<(String, OwnedFd)>, String> {
    let passed = sd_notify::listen_fds_with_names().and_then(|sockets| {
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

    fn supervisor(interval: Option<Span>) -> (Supervisor, UnixDatagram) {
        let name = format!("poolcounter-test-{}-{:?}", std::process::id(), std::thread::current().id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let ears = UnixDatagram::bind_addr(&address).expect("nobody else has it");
        ears.set_nonblocking(true).expect("an option");
        let way = Way::to(format!("@{name}").as_bytes()).expect("a socket");
        (Supervisor { way: Some(way), interval, beat_at: interval.map(|_| Time::START), news: None }, ears)
    }

    fn heard(ears: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 64];
        let len = ears.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }

    #[test]
    fn signs_of_life_come_at_their_time_and_cost_nothing_between() {
        let (mut supervisor, ears) = supervisor(Some(Span::from_millis(500)));
        supervisor.tell(Status::Ready, at(3));
        assert_eq!(heard(&ears).as_deref(), Some("READY=1"));
        assert_eq!(heard(&ears).as_deref(), Some("WATCHDOG=1"));
        assert_eq!(supervisor.next_word(), Some(at(503)));
        supervisor.speak(at(502));
        assert_eq!(heard(&ears), None);
        supervisor.speak(at(510));
        assert_eq!(heard(&ears).as_deref(), Some("WATCHDOG=1"));
        assert_eq!(supervisor.next_word(), Some(at(1010)));
    }

    /// Neither one microsecond nor none may spin.
    #[test]
    fn signs_of_life_have_a_least_interval() {
        let intervals = [0, 1, 2, 21_000, 30_000_000].map(|us| interval_of(Span::from_micros(us)).as_micros());
        assert_eq!(intervals, [10_000, 10_000, 10_000, 10_500, 15_000_000]);
    }

    #[test]
    fn who_wants_no_signs_of_life_gets_none() {
        let (mut supervisor, ears) = supervisor(None);
        supervisor.tell(Status::Reloading, at(0));
        assert_eq!(heard(&ears).as_deref(), Some("RELOADING=1"));
        assert_eq!(supervisor.next_word(), None);
        supervisor.speak(at(100_000));
        assert_eq!(heard(&ears), None);
    }

    /// The queue of a supervisor that does not read fills up. What did not fit is said later; of two things, the newer.
    #[test]
    fn a_supervisor_that_does_not_read_is_told_later() {
        let (mut supervisor, ears) = supervisor(None);
        let mut sent = 0;
        while supervisor.news.is_none() {
            supervisor.tell(Status::Reloading, at(0));
            sent += 1;
            assert!(sent < 100_000, "the queue has no end");
        }
        assert_eq!(supervisor.next_word(), Some(at(100)));
        supervisor.tell(Status::Ready, at(50));
        while heard(&ears).is_some() {}
        supervisor.speak(at(149));
        assert_eq!(heard(&ears), None);
        supervisor.speak(at(150));
        assert_eq!(heard(&ears).as_deref(), Some("READY=1"));
        assert_eq!(supervisor.next_word(), None);
    }

    #[test]
    fn a_supervisor_that_has_gone_is_no_trouble() {
        let (mut supervisor, ears) = supervisor(Some(Span::from_millis(500)));
        drop(ears);
        supervisor.tell(Status::Ready, at(0));
        assert_eq!(supervisor.news, None);
        assert_eq!(supervisor.next_word(), Some(at(500)));
    }
}
