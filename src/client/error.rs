//! Errors of the client, and their texts.

use super::Said;
use poolcounter_core::text::plain;
use poolcounter_protocol::members::request::Lost;
use poolcounter_protocol::members::wire::client::describe_loss;
use poolcounter_protocol::{counters, jobs, members};
use std::fmt;
use std::io::{self, ErrorKind};

/// Error of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The name of the pool or counter is empty, too long or has a byte that the protocol forbids. Nothing was sent.
    BadName,
    /// An argument is wrong: attributes of members, with the rule that they break, or of a request about jobs, with its
    /// name, its value and the rule. Nothing was sent.
    BadArgument(String),
    /// No server replied; the failure of each by server, in the order tried. A caller that uses locks only against
    /// overload continues without one, as MediaWiki does: an outage of the locks must not become an outage of the site.
    Unavailable(Vec<(String, Failure)>),
    /// The connection was lost, and with it everything held on it, which other clients may hold by now. The server may
    /// have executed a request that was in progress.
    Lost,
    /// The server has revoked this: the time to hold it or to run is over, an operator took it, or a job was deleted.
    Expired,
    /// The job was cancelled by this client.
    Cancelled(String),
    /// The connection holds as many locks as the server allows (four by default).
    LockHeld,
    /// The server refused with this text. The request is wrong, not the server.
    Refused(String),
    /// The server of jobs is a plain beanstalkd, and does not know this request; nothing was sent.
    NoExtension(&'static str),
    /// The server reports that the holder no longer has the member.
    MemberLost(Lost),
    /// The lease of the member does not exist: it was returned, has expired or was revoked.
    NotTaken,
}

/// Fault of a server, with its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Address tried: `10.0.0.5:7531`, or `unix:/run/p.sock`; the name with the port if it could not be resolved.
    pub address: String,
    /// Fault at this address.
    pub fault: Fault,
}

/// Services that are off by default: port, and option of the daemon.
const OPTIONS: [(u16, &str); 3] =
    [(counters::DEFAULT_PORT, "--counter"), (members::DEFAULT_PORT, "--members"), (jobs::DEFAULT_PORT, "--jobs")];

/// Fault of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The name could not be resolved; text of the system.
    Unresolved(String),
    /// The server refused the connection, or the network failed; text of the system.
    Unreachable(ErrorKind, String),
    /// The server closed the connection.
    Closed,
    /// The server accepted the connection but did not reply in time.
    Silent,
    /// The server's input is not a reply to the request: another server or another protocol.
    Garbled,
    /// The server refused the connection with this text, before the request.
    Refused(String),
    /// The server drains: it grants nothing new.
    Draining,
}

/// Reason why an exchange has no result: a refusal, after which the connection goes on, or a fault, which ends it
/// unless the server drains.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Refused(Error),
    Fault(Fault),
}

impl Stop {
    /// Returns the refusal that has this text.
    pub fn refused(words: &[u8]) -> Stop {
        Stop::Refused(Error::Refused(String::from_utf8_lossy(words).into_owned()))
    }

    /// Returns the error for the caller of a single connection, which a fault has ended.
    pub fn or_lost(self) -> Error {
        match self {
            Stop::Refused(error) => error,
            Stop::Fault(_) => Error::Lost,
        }
    }

    /// Separates the refusals, after which the connection goes on, from the faults.
    pub fn split<T>(said: Said<T>) -> Result<Result<T, Error>, Fault> {
        match said {
            Ok(answer) => Ok(Ok(answer)),
            Err(Stop::Refused(error)) => Ok(Err(error)),
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refused(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

impl Fault {
    /// Returns the fault for a failed connection attempt.
    fn unreachable(error: &io::Error) -> Fault {
        Fault::Unreachable(error.kind(), plain(&error.to_string()).into_owned())
    }

    /// Returns the fault for a failed attempt to connect to a service, which has this default port.
    pub(super) fn unconnected(error: &io::Error, default_port: u16) -> Fault {
        if error.kind() != ErrorKind::ConnectionRefused {
            return Fault::unreachable(error);
        }
        let option = OPTIONS.iter().find(|(port, _)| *port == default_port);
        let hint = option.map(|(_, option)| format!(" (is the daemon started with {option}?)")).unwrap_or_default();
        Fault::Unreachable(error.kind(), format!("nothing listens there{hint}"))
    }
}

impl From<io::Error> for Fault {
    /// Returns the fault for a failed read or write.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock => Fault::Silent,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Fault::Closed,
            // Also what keepalive finds: the machine is gone, or a firewall has dropped the connection.
            _ => Fault::unreachable(&error),
        }
    }
}

impl Error {
    /// Returns the error for a request that no server has served: a refusal if all of them refuse connections.
    pub(super) fn of_failures(servers: Vec<(String, Failure)>) -> Error {
        let words = servers.iter().map(|(_, failure)| match &failure.fault {
            Fault::Refused(words) => Some(words),
            _ => None,
        });
        match words.collect::<Option<Vec<_>>>().as_deref() {
            Some([words, ..]) => Error::Refused((*words).clone()),
            _ => Error::Unavailable(servers),
        }
    }
}

impl Failure {
    /// Returns the text that follows the name of the server: the fault, with the address unless that equals the name.
    pub fn behind(&self, server: &str) -> String {
        if server == self.address { self.fault.to_string() } else { self.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unresolved(words) | Fault::Unreachable(_, words) => f.write_str(words),
            Fault::Closed => f.write_str("it closed the connection"),
            Fault::Silent => f.write_str("it does not answer"),
            Fault::Garbled => f.write_str("it does not speak the protocol: does another service answer there?"),
            Fault::Refused(words) => write!(f, "it refuses: {words}"),
            Fault::Draining => f.write_str("it drains, and grants nothing new"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadName => f.write_str(
                "a name cannot be sent: it is empty, too long or has a byte that the protocol does not allow",
            ),
            Error::BadArgument(sentence) => f.write_str(sentence),
            Error::Unavailable(servers) => {
                f.write_str("no server answers")?;
                servers.iter().try_for_each(|(server, failure)| write!(f, "; {server}: {}", failure.behind(server)))
            }
            Error::Lost => f.write_str("the connection was lost, with all that it held"),
            Error::Expired => f.write_str("its time was over, or it was taken away or deleted"),
            Error::Cancelled(who) => write!(f, "cancelled by {who}"),
            Error::LockHeld => f.write_str("the connection holds as many locks as the server allows"),
            Error::Refused(words) if words == "BAD_COMMAND" => f.write_str(
                "the server does not know the request (BAD_COMMAND): another service answers there, or an older server",
            ),
            Error::Refused(words) => write!(f, "the server refuses: {words}"),
            Error::NoExtension(what) => write!(f, "the server does not know {what}: it is a plain beanstalkd"),
            Error::MemberLost(reason) => write!(f, "the member is lost: {}", describe_loss(*reason)),
            Error::NotTaken => f.write_str("there is no such lease: it was returned, has run out or was taken back"),
        }
    }
}

impl std::error::Error for Error {}

impl std::error::Error for Failure {}

impl std::error::Error for Fault {}
