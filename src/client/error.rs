//! The errors of the client, and their texts.

use poolcounter_protocol::members::request::Lost;
use poolcounter_protocol::members::wire::client::describe_loss;
use std::fmt;
use std::io::{self, ErrorKind};

/// Why a request came to nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The name of the pool or counter cannot be sent: it is empty or too long, or has a byte that the protocol forbids.
    /// Nothing was sent.
    BadName,
    /// No server answers; each with its failure, in the order in which they were asked. A caller that protects a resource from
    /// load goes on without a lock then, as MediaWiki does: an outage of the locks must not become one of the site.
    Unavailable(Vec<(String, Failure)>),
    /// The connection was lost, and with it what it held. The server may have granted that to another client already. Of a
    /// request that was under way it is not known whether the server has done it.
    Lost,
    /// The server has taken this back: the longest time to hold it was over.
    Expired,
    /// The connection holds as many locks as the server allows; four, unless its operator has chosen otherwise.
    LockHeld,
    /// The server refuses, in these words. The request is at fault and not the server.
    Refused(String),
    /// The server of jobs is a plain beanstalkd, or one that is too old to know this; nothing was sent.
    NoExtension(&'static str),
    /// The server says that the holder no longer has the member.
    MemberLost(Lost),
    /// There is no such lease of a member: it was returned, has run out or was taken back.
    NotTaken,
}

/// What is wrong with a server, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The address that was asked: `10.0.0.5:7531`, or `unix:/run/p.sock`; its name with the port if that leads to no address.
    pub address: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its name leads to no address, in the words of the system.
    Unresolved(String),
    /// It refused the connection, or the network failed; with the words of the system.
    Unreachable(ErrorKind, String),
    /// It closed the connection.
    Closed,
    /// It accepted the connection and did not answer in time.
    Silent,
    /// What it sent is no answer to the request: it is some other server, or another protocol.
    Garbled,
}

impl Fault {
    /// Returns the fault of a server that cannot be connected to.
    pub(super) fn unreachable(error: &io::Error) -> Fault {
        Fault::Unreachable(error.kind(), error.to_string())
    }
}

impl From<io::Error> for Fault {
    /// Returns the fault that a failed read or write means.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::Silent,
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => Fault::Closed,
            _ => Fault::unreachable(&error),
        }
    }
}

impl Failure {
    /// Returns the text to follow the name of the server: the fault, and the address unless that is the name.
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
            Fault::Garbled => f.write_str("it does not speak the protocol"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::BadName => f.write_str("the name cannot be sent"),
            Error::Unavailable(servers) => {
                f.write_str("no server answers")?;
                servers.iter().try_for_each(|(server, failure)| write!(f, "; {server}: {}", failure.behind(server)))
            }
            Error::Lost => f.write_str("the connection was lost, with all that it held"),
            Error::Expired => f.write_str("the longest time to hold it was over"),
            Error::LockHeld => f.write_str("the connection holds as many locks as the server allows"),
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
