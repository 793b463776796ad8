//! A connection to a server of jobs, made when it is needed, and what it was told: the tube in use, the watches, the name. A
//! new one is told the same. It knows no single command beyond those.

use crate::connection::ClientConnection;
use crate::dial::Dial;
use crate::error::{Error, Failure, Fault};
use crate::jobs::whole_seconds;
use crate::{Said, Timeouts, Tls};
use poolcounter_protocol::jobs::wire::client as wire;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where a server listens that is named without a port.
const DEFAULT_PORT: u16 = 11300;
/// The tube that a new connection uses and watches.
pub const DEFAULT_TUBE: &str = "default";
/// The longest body or text. A server that is told to can have bodies of 1 GiB.
const LONGEST_BODY: usize = 1 << 30;
/// How much of a body comes within the time of one answer.
const PART: usize = 1 << 20;
/// The reply of a server that may not have the jobs any more, or cannot keep them.
const INTERNAL_ERROR: &str = "INTERNAL_ERROR";
/// Words to which that reply is the end of the connection: another server may do better, and nothing is lost but the request.
const MOVABLE: [&[u8]; 7] = [b"put", b"reserve", b"use ", b"watch ", b"ignore ", b"identify ", b"pause-"];
/// Time before the first server is asked again after the last has answered so.
const TURN_PAUSE: Duration = Duration::from_millis(200);
/// A connection that was used a shorter time ago is not asked first whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

/// Number of connections of this process so far, so that each has a number of its own, whichever session it is of.
static OPENED: AtomicU64 = AtomicU64::new(1);

/// A connection, and what a new one must be told.
#[derive(Debug)]
pub struct JobSession {
    servers: Vec<String>,
    timeouts: Timeouts,
    /// How to speak to those that speak TLS.
    pub(crate) tls: Option<Tls>,
    link: Option<Link>,
    /// Number of the server that is asked first for the next connection.
    first: usize,
    /// The tube that puts go to.
    used: String,
    /// What is watched, with the weight if one was given.
    watches: Vec<(String, Option<u16>)>,
    /// The runner's name, if it has one.
    name: Vec<u8>,
}

#[derive(Debug)]
struct Link {
    connection: ClientConnection,
    /// Number of its server.
    server: usize,
    number: u64,
    last_use: Instant,
    /// The words that the server knows beyond those of beanstalkd; None for a beanstalkd.
    extensions: Option<Vec<String>>,
    /// Whether a reserve is under way that was not waited for.
    is_reserving: bool,
    /// Whether the server has said something after which it may close the connection: another serves its jobs.
    is_doubtful: bool,
}

impl JobSession {
    pub fn new(servers: Vec<String>, timeouts: Timeouts) -> JobSession {
        let watches = vec![(DEFAULT_TUBE.to_string(), None)];
        let (timeouts, used) = (timeouts.cut(), DEFAULT_TUBE.into());
        JobSession { servers, timeouts, tls: None, link: None, first: 0, used, watches, name: Vec::new() }
    }

    /// The number of the present connection, if there is one.
    pub fn number(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.number)
    }

    /// The descriptor of the present connection.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.connection.as_fd())
    }

    /// Returns whether the server knows the extensions. Connects if there is no connection.
    pub fn is_extended(&mut self) -> Result<bool, Error> {
        Ok(self.link()?.extensions.is_some())
    }

    /// Fails unless the server knows the extension.
    pub fn require(&mut self, word: &'static str) -> Result<(), Error> {
        let has = |known: &Vec<String>| known.iter().any(|extension| extension == word);
        if self.link()?.extensions.as_ref().is_some_and(has) { Ok(()) } else { Err(Error::NoExtension(word)) }
    }

    /// Has puts go to this tube.
    pub fn use_tube(&mut self, tube: &str) -> Result<(), Error> {
        if self.used != tube {
            self.ask(format!("use {tube}\r\n").as_bytes(), Duration::ZERO, |_, line| expect(line, "USING"))?;
            self.used = tube.into();
        }
        Ok(())
    }

    /// Watches these tubes.
    pub fn watch(&mut self, pattern: &str, weight: Option<u16>) -> Result<usize, Error> {
        let count = self.ask(&watch_line(pattern, weight), Duration::ZERO, |_, line| count_of(line, "WATCHING"))?;
        self.watches.retain(|(watched, _)| watched != pattern);
        self.watches.push((pattern.into(), weight));
        Ok(count as usize)
    }

    /// Does not watch them any more.
    pub fn ignore(&mut self, pattern: &str) -> Result<usize, Error> {
        let line = format!("ignore {pattern}\r\n");
        let count = self.ask(line.as_bytes(), Duration::ZERO, |_, line| count_of(line, "WATCHING"))?;
        self.watches.retain(|(watched, _)| watched != pattern);
        Ok(count as usize)
    }

    /// Tells the runner's name.
    pub fn identify(&mut self, name: &[u8]) -> Result<(), Error> {
        self.require("identify")?;
        let request = [b"identify ", name, b"\r\n"].concat();
        self.ask(&request, Duration::ZERO, |_, line| expect(line, "IDENTIFIED"))?;
        self.name = name.into();
        Ok(())
    }

    /// Pauses these tubes for this long; returns false when there is no such tube. With `ends_with_tube` the pause ends with the tube,
    /// whose name is plain then; otherwise later tubes have it, too, where the server knows how.
    pub fn pause(&mut self, pattern: &str, time: Duration, ends_with_tube: bool) -> Result<bool, Error> {
        let is_of_all = !ends_with_tube && (!wire::is_plain(pattern.as_bytes()) || self.is_extended()?);
        if is_of_all {
            self.require("pause-all")?;
        }
        let word = if is_of_all { "pause-all" } else { "pause-tube" };
        let request = format!("{word} {pattern} {}\r\n", whole_seconds(time));
        self.ask(request.as_bytes(), Duration::ZERO, |_, line| expect_or_not_found(line, "PAUSED"))
    }

    /// Asks, and returns what `read` makes of the first line of the reply. After a fault, the connection is gone, and it is not
    /// known whether the server has done what it was asked for. The same after INTERNAL_ERROR to a put or a reserve: the next
    /// request goes to the next server.
    pub fn ask<T>(
        &mut self,
        request: &[u8],
        wait: Duration,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<T, Error> {
        let link = self.link()?;
        if link.is_reserving {
            return Err(Error::Refused("a reserve is under way".into()));
        }
        let said = link.connection.send(request, wait).and_then(|()| {
            let line = line(&mut link.connection)?;
            read(&mut link.connection, &line)
        });
        link.last_use = Instant::now();
        link.is_doubtful = is_internal_error(&said);
        if link.is_doubtful && MOVABLE.iter().any(|word| request.starts_with(word)) {
            return Err(self.leave_server());
        }
        self.lost_if_failed(said)
    }

    /// Sends a reserve whose reply [`JobSession::reply_within`] waits for.
    pub fn begin_reserve(&mut self, request: &[u8]) -> Result<(), Error> {
        let link = self.link()?;
        if link.is_reserving {
            return Err(Error::Refused("a reserve is under way".into()));
        }
        let sent = link.connection.send(request, Duration::ZERO);
        link.is_reserving = true;
        self.lost_if_failed(sent.map(Ok))
    }

    /// Returns what `read` makes of the reply to the reserve that was begun; None if there is none in time, or no reserve.
    pub fn reply_within<T>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<Option<T>, Error> {
        let Some(link) = &mut self.link else { return Err(Error::Lost) };
        if !link.is_reserving {
            return Ok(None);
        }
        let said = match link.connection.line_within(timeout) {
            Ok(None) => return Ok(None),
            Ok(Some(line)) => without_end(line).and_then(|line| {
                link.connection.renew();
                read(&mut link.connection, &line)
            }),
            Err(fault) => Err(fault),
        };
        (link.is_reserving, link.last_use) = (false, Instant::now());
        if is_internal_error(&said) {
            return Err(self.leave_server());
        }
        self.lost_if_failed(said).map(Some)
    }

    /// Gives up the connection, with all that it holds.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Gives up the connection; the next one is to the next server.
    fn leave_server(&mut self) -> Error {
        self.first = self.link.take().map_or(0, |link| link.server + 1);
        Error::Lost
    }

    fn lost_if_failed<T>(&mut self, said: Said<T>) -> Result<T, Error> {
        said.unwrap_or_else(|_| {
            self.link = None;
            Err(Error::Lost)
        })
    }

    /// Returns the connection; a new one, if there is none or the server has closed it since its last use.
    fn link(&mut self) -> Result<&mut Link, Error> {
        let is_old = |link: &Link| link.is_doubtful || link.last_use.elapsed() > FRESH;
        let is_stale = |link: &Link| is_old(link) && link.connection.is_closed();
        if self.link.as_ref().is_some_and(is_stale) {
            self.link = None;
        }
        if self.link.is_none() {
            self.link = Some(self.connect()?);
        }
        Ok(self.link.as_mut().expect("it was made if there was none"))
    }

    /// Connects to the first server that answers, or the first behind the one that was left.
    fn connect(&mut self) -> Result<Link, Error> {
        let (mut failures, count) = (Vec::new(), self.servers.len());
        if self.first == count && count > 0 {
            sleep(TURN_PAUSE);
        }
        let first = std::mem::take(&mut self.first);
        for index in (0..count).map(|step| (first + step) % count) {
            let server = &self.servers[index];
            let opened = Dial::begin(server, DEFAULT_PORT, &self.timeouts, self.tls.as_ref()).and_then(Dial::finish);
            let opened = opened.and_then(|mut connection| match self.greet(&mut connection) {
                Ok(extensions) => Ok((connection, extensions)),
                Err(fault) => Err(Failure { address: connection.address().into(), fault }),
            });
            match opened {
                Ok((connection, extensions)) => {
                    let (number, last_use) = (OPENED.fetch_add(1, Ordering::Relaxed), Instant::now());
                    return Ok(Link {
                        connection,
                        server: index,
                        number,
                        last_use,
                        extensions,
                        is_reserving: false,
                        is_doubtful: false,
                    });
                }
                Err(failure) => failures.push((server.clone(), failure)),
            }
        }
        Err(Error::Unavailable(failures))
    }

    /// Asks a new connection what the server knows, and tells it what the one before was told.
    fn greet(&self, connection: &mut ClientConnection) -> Result<Option<Vec<String>>, Fault> {
        connection.send(b"extensions\r\n", Duration::ZERO)?;
        let reply = line(connection)?;
        let extensions = match wire::split(&reply) {
            ("OK", _) => Some(wire::parse_list(&text(connection, &reply)?).ok_or(Fault::Garbled)?),
            ("UNKNOWN_COMMAND", _) => None,
            // It stands by for another, or its store has failed.
            ("INTERNAL_ERROR", _) => {
                return Err(Fault::Unreachable(ErrorKind::NotConnected, "it answers INTERNAL_ERROR".into()));
            }
            _ => return Err(Fault::Garbled),
        };
        let mut tell = |request: &[u8], word| {
            connection.send(request, Duration::ZERO)?;
            let reply = line(connection)?;
            if wire::split(&reply).0 == word { Ok(()) } else { Err(Fault::Garbled) }
        };
        if self.used != DEFAULT_TUBE {
            tell(format!("use {}\r\n", self.used).as_bytes(), "USING")?;
        }
        if !self.name.is_empty() && extensions.is_some() {
            tell(&[b"identify ", &*self.name, b"\r\n"].concat(), "IDENTIFIED")?;
        }
        for (pattern, weight) in self.watches.iter().filter(|watch| **watch != (DEFAULT_TUBE.into(), None)) {
            tell(&watch_line(pattern, *weight), "WATCHING")?;
        }
        if !self.watches.iter().any(|(pattern, _)| pattern == DEFAULT_TUBE) {
            tell(format!("ignore {DEFAULT_TUBE}\r\n").as_bytes(), "WATCHING")?;
        }
        Ok(extensions)
    }
}

fn is_internal_error<T>(said: &Said<T>) -> bool {
    matches!(said, Ok(Err(Error::Refused(words))) if words == INTERNAL_ERROR)
}

/// Returns the next line, without its end.
pub fn line(connection: &mut ClientConnection) -> Result<Vec<u8>, Fault> {
    connection.line().and_then(without_end)
}

fn without_end(mut line: Vec<u8>) -> Result<Vec<u8>, Fault> {
    if line.pop() == Some(b'\r') { Ok(line) } else { Err(Fault::Garbled) }
}

/// Returns the next `len` bytes, which are followed by the end of a line.
pub fn body(connection: &mut ClientConnection, len: usize) -> Result<Vec<u8>, Fault> {
    if len > LONGEST_BODY {
        return Err(Fault::Garbled);
    }
    let mut body = Vec::new();
    while body.len() < len + 2 {
        connection.renew();
        let part = connection.bytes((len + 2 - body.len()).min(PART))?;
        body.extend_from_slice(&part);
    }
    if !body.ends_with(b"\r\n") {
        return Err(Fault::Garbled);
    }
    body.truncate(len);
    Ok(body)
}

/// Returns the text that a reply announces.
pub fn text(connection: &mut ClientConnection, reply: &[u8]) -> Result<Vec<u8>, Fault> {
    let (word, rest) = wire::split(reply);
    let len = wire::number(rest).filter(|_| word == "OK").ok_or(Fault::Garbled)?;
    body(connection, usize::try_from(len).map_err(|_| Fault::Garbled)?)
}

/// Reads a reply that is this word, whatever follows it, or a refusal.
pub fn expect(reply: &[u8], wanted: &str) -> Said<()> {
    match wire::split(reply) {
        (word, _) if word == wanted => Ok(Ok(())),
        _ if wire::is_refusal(reply) => Ok(Err(refused(reply))),
        _ => Err(Fault::Garbled),
    }
}

/// Reads a reply that is this word or that there is nothing of the kind, or a refusal.
pub fn expect_or_not_found(reply: &[u8], wanted: &str) -> Said<bool> {
    match reply {
        b"NOT_FOUND" => Ok(Ok(false)),
        reply => Ok(expect(reply, wanted)?.map(|()| true)),
    }
}

/// Reads a reply that is this word and a number, or a refusal.
pub fn count_of(reply: &[u8], wanted: &str) -> Said<u64> {
    match wire::split(reply) {
        (word, rest) if word == wanted => Ok(Ok(wire::number(rest).ok_or(Fault::Garbled)?)),
        _ => Ok(expect(reply, wanted)?.map(|()| 0)),
    }
}

/// Returns the error for a reply that refuses.
pub fn refused(reply: &[u8]) -> Error {
    Error::Refused(String::from_utf8_lossy(reply).into_owned())
}

fn watch_line(pattern: &str, weight: Option<u16>) -> Vec<u8> {
    let weight = weight.map(|weight| format!(" {weight}")).unwrap_or_default();
    format!("watch {pattern}{weight}\r\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{NewJob, Producer, PutOutcome, Reservation, Runner};
    use poolcounter_protocol::jobs::request::JobId;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::spawn;

    const TIMEOUTS: Timeouts =
        Timeouts { connect: Duration::from_secs(5), answer: Duration::from_secs(5), retry: Duration::ZERO };

    /// Returns the address of a server of the extensions that answers what is asked with these lines, in order, and ends each
    /// connection after INTERNAL_ERROR.
    fn server(mut replies: Vec<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().expect("there are descriptors")).lines();
                for line in lines.map_while(Result::ok).filter(|line| line.contains("put") || line.contains("e")) {
                    let reply = match &*line {
                        "extensions" => "OK 4\r\n---\n",
                        // It has no more to say.
                        _ if replies.is_empty() => return,
                        _ => replies.remove(0),
                    };
                    let sent = (&stream).write_all(format!("{reply}\r\n").as_bytes());
                    if sent.is_err() || reply == INTERNAL_ERROR {
                        break;
                    }
                }
            }
        });
        address
    }

    #[test]
    fn put_that_is_answered_internal_error_leads_to_the_next_server() {
        let servers = [server(vec!["INTERNAL_ERROR"]), server(vec!["INSERTED 5", "INSERTED 6"])];
        let producer = Producer::new(servers, TIMEOUTS);
        let put = || producer.put(&NewJob::new("x"));
        assert_eq!(put(), Err(Error::Lost));
        assert_eq!(put(), Ok(PutOutcome::Inserted(JobId(5))));
        assert_eq!(put(), Ok(PutOutcome::Inserted(JobId(6))));
    }

    #[test]
    fn reserve_that_is_answered_internal_error_leads_to_the_next_server_and_back() {
        let servers = [server(vec!["INTERNAL_ERROR", "TIMED_OUT"]), server(vec!["INTERNAL_ERROR"])];
        let mut runner = Runner::new(servers, TIMEOUTS);
        let begun = Instant::now();
        assert_eq!(runner.reserve(Some(Duration::ZERO)), Err(Error::Lost));
        runner.begin_reserve(Some(Duration::ZERO)).expect("the second is asked");
        assert_eq!(runner.reserved_within(TIMEOUTS.answer), Err(Error::Lost));
        assert!(begun.elapsed() < TURN_PAUSE, "the second is asked at once");
        assert_eq!(runner.reserve(Some(Duration::ZERO)), Ok(Reservation::TimedOut));
        assert!(begun.elapsed() >= TURN_PAUSE, "the first is asked again after a pause");
    }
}
