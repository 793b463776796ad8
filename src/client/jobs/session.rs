//! Session with a server of jobs: connects on demand and restores the state of the connection (tube in use, watches,
//! name) on each new one. Independent of all other commands.

use super::replies::{DRAINING, INTERNAL_ERROR, count_of, expect, expect_or_not_found, line, read_text, without_end};
use crate::connection::ClientConnection;
use crate::dial::Dial;
use crate::error::{Error, Fault, Stop};
use crate::jobs::whole_seconds;
use crate::{Said, Timeouts};
use poolcounter_protocol::jobs::DEFAULT_PORT;
use poolcounter_protocol::jobs::wire::client as wire;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The tube that a new connection uses and watches.
pub const DEFAULT_TUBE: &str = "default";
/// Requests after which INTERNAL_ERROR ends the connection: another server may accept them, and only the request is lost.
const MOVABLE: [&[u8]; 7] = [b"put", b"reserve", b"use ", b"watch ", b"ignore ", b"identify ", b"pause-"];
/// Pause before the first server is asked again after the last one has replied so.
const TURN_PAUSE: Duration = Duration::from_millis(200);
/// Age of a connection's last use up to which it is reused without a check that it is still open.
const FRESH: Duration = Duration::from_millis(100);

/// Connection, with the state that a new one must restore.
#[derive(Debug)]
pub struct JobSession {
    servers: Vec<String>,
    pub(crate) dial: Dial,
    link: Option<Link>,
    /// Index of the server that is tried first for the next connection.
    first: usize,
    /// Tube in use by puts.
    used: String,
    /// Watches, each with its weight if it has one.
    watches: Vec<(String, Option<u16>)>,
    /// Name of the runner; empty if it has none.
    name: Vec<u8>,
}

#[derive(Debug)]
struct Link {
    connection: ClientConnection,
    /// Index of the server.
    server: usize,
    last_use: Instant,
    /// Extensions that the server supports; None for a plain beanstalkd.
    extensions: Option<Vec<String>>,
    /// True while a reserve started with [`JobSession::begin_reserve`] awaits its reply.
    is_reserving: bool,
    /// True if the last reply was INTERNAL_ERROR: the server may close the connection, because another one serves its
    /// jobs.
    is_doubtful: bool,
}

impl JobSession {
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, timeouts: Timeouts) -> JobSession {
        JobSession {
            servers: servers.into_iter().map(Into::into).collect(),
            dial: Dial::new(DEFAULT_PORT, timeouts, None),
            link: None,
            first: 0,
            used: DEFAULT_TUBE.into(),
            watches: vec![(DEFAULT_TUBE.into(), None)],
            name: Vec::new(),
        }
    }

    /// Returns the number of the current connection, if any.
    pub fn number(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.connection.number)
    }

    /// Returns the name of the server of the current connection.
    pub fn server(&self) -> Option<&str> {
        self.link.as_ref().map(|link| &*self.servers[link.server])
    }

    /// Returns the descriptor of the current connection.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.connection.as_fd())
    }

    /// Returns true if the server supports the extensions. Connects if necessary.
    pub fn is_extended(&mut self) -> Result<bool, Error> {
        Ok(self.link()?.extensions.is_some())
    }

    /// Fails unless the server supports the extension.
    pub fn require(&mut self, word: &'static str) -> Result<(), Error> {
        let has = |known: &Vec<String>| known.iter().any(|extension| extension == word);
        if self.link()?.extensions.as_ref().is_some_and(has) { Ok(()) } else { Err(Error::NoExtension(word)) }
    }

    /// Sets the tube in use by puts.
    pub fn use_tube(&mut self, tube: &str) -> Result<(), Error> {
        if self.used != tube {
            self.ask(format!("use {tube}"), |_, line| expect(line, "USING"))?;
            self.used = tube.into();
        }
        Ok(())
    }

    /// Watches the matching tubes, and returns the number of watches.
    pub fn watch(&mut self, pattern: &str, weight: Option<u16>) -> Result<usize, Error> {
        let count = self.ask(watch_request(pattern, weight), |_, line| count_of(line, "WATCHING"))?;
        self.watches.retain(|(watched, _)| watched != pattern);
        self.watches.push((pattern.into(), weight));
        Ok(count as usize)
    }

    /// Removes a watch, and returns the number of watches.
    pub fn ignore(&mut self, pattern: &str) -> Result<usize, Error> {
        let count = self.ask(format!("ignore {pattern}"), |_, line| count_of(line, "WATCHING"))?;
        self.watches.retain(|(watched, _)| watched != pattern);
        Ok(count as usize)
    }

    /// Sets the runner's name.
    pub fn identify(&mut self, name: &[u8]) -> Result<(), Error> {
        self.require("identify")?;
        self.ask([b"identify ", name].concat(), |_, line| expect(line, "IDENTIFIED"))?;
        self.name = name.into();
        Ok(())
    }

    /// Pauses the matching tubes for `time`; returns false if the tube does not exist. With `ends_with_tube`, which
    /// requires a plain name, the pause ends with the tube; otherwise it also covers future tubes if the server
    /// supports that.
    pub fn pause(&mut self, pattern: &str, time: Duration, ends_with_tube: bool) -> Result<bool, Error> {
        let is_of_all = !ends_with_tube && (!wire::is_plain(pattern.as_bytes()) || self.is_extended()?);
        if is_of_all {
            self.require("pause-all")?;
        }
        let word = if is_of_all { "pause-all" } else { "pause-tube" };
        let request = format!("{word} {pattern} {}", whole_seconds(time));
        self.ask(request, |_, line| expect_or_not_found(line, "PAUSED"))
    }

    /// Sends a request that needs no wait; see [`JobSession::ask_waiting`].
    pub fn ask<T>(
        &mut self,
        request: impl Into<Vec<u8>>,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<T, Error> {
        self.ask_waiting(request, Duration::ZERO, read)
    }

    /// Sends a request, which lacks its last line end, and parses the reply, whose first line is passed to `read`. A
    /// fault closes the connection, and the request may or may not have been executed. So does INTERNAL_ERROR to one of
    /// [`MOVABLE`]; the next request then goes to the next server.
    pub fn ask_waiting<T>(
        &mut self,
        request: impl Into<Vec<u8>>,
        wait: Duration,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<T, Error> {
        let request = request.into();
        let is_movable = MOVABLE.iter().any(|word| request.starts_with(word));
        let link = self.send(request, wait)?;
        let said = line(&mut link.connection).map_err(Stop::from).and_then(|line| read(&mut link.connection, &line));
        self.result(said, is_movable)
    }

    /// Sends a request on the connection, or on a new one.
    fn send(&mut self, mut request: Vec<u8>, wait: Duration) -> Result<&mut Link, Error> {
        request.extend_from_slice(b"\r\n");
        let link = self.link()?;
        if link.is_reserving {
            return Err(Error::Refused("a reserve is under way".into()));
        }
        if link.connection.send(&request, wait).is_err() {
            self.link = None;
        }
        self.link.as_mut().ok_or(Error::Lost)
    }

    /// Returns the result of a request. A fault closes the connection; INTERNAL_ERROR leads to the next server if it
    /// `is_movable`.
    fn result<T>(&mut self, said: Said<T>, is_movable: bool) -> Result<T, Error> {
        let is_internal_error = matches!(&said, Err(Stop::Refused(Error::Refused(words))) if words == INTERNAL_ERROR);
        if let Some(link) = &mut self.link {
            (link.last_use, link.is_doubtful) = (Instant::now(), is_internal_error);
        }
        if is_internal_error && is_movable {
            self.leave_server();
            return Err(Error::Lost);
        }
        Stop::split(said).unwrap_or_else(|_| {
            self.link = None;
            Err(Error::Lost)
        })
    }

    /// Calls `put`, and again for the next server if one drains, which has put nothing then.
    pub fn put<T>(&mut self, put: impl Fn(&mut JobSession) -> Result<T, Error>) -> Result<T, Error> {
        for _ in 1..self.servers.len() {
            match put(self) {
                Err(Error::Refused(words)) if words == DRAINING => self.leave_server(),
                answer => return answer,
            }
        }
        put(self)
    }

    /// Sends a reserve without waiting; [`JobSession::reply_within`] returns its reply.
    pub fn begin_reserve(&mut self, request: String) -> Result<(), Error> {
        self.send(request.into(), Duration::ZERO)?.is_reserving = true;
        Ok(())
    }

    /// Parses the reply to the started reserve; None if it does not come within `timeout` or no reserve was started.
    pub fn reply_within<T>(
        &mut self,
        timeout: Duration,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<Option<T>, Error> {
        let link = self.link.as_mut().ok_or(Error::Lost)?;
        if !link.is_reserving {
            return Ok(None);
        }
        let said = match link.connection.line_within(timeout) {
            Ok(None) => return Ok(None),
            Ok(Some(line)) => without_end(line).map_err(Stop::from).and_then(|line| read(&mut link.connection, &line)),
            Err(fault) => Err(fault.into()),
        };
        link.is_reserving = false;
        self.result(said, true).map(Some)
    }

    /// Closes the connection, which releases everything held on it.
    pub fn close(&mut self) {
        self.link = None;
    }

    /// Closes the connection; the next one goes to the next server.
    fn leave_server(&mut self) {
        self.first = self.link.take().map_or(0, |link| link.server + 1);
    }

    /// Returns the connection; a new one if there is none or the server has closed it since its last use.
    fn link(&mut self) -> Result<&mut Link, Error> {
        let is_old = |link: &Link| link.is_doubtful || link.last_use.elapsed() > FRESH;
        self.link.take_if(|link| is_old(link) && link.connection.is_closed());
        if self.link.is_none() {
            self.link = Some(self.connect()?);
        }
        Ok(self.link.as_mut().expect("it was made if there was none"))
    }

    /// Connects to the first server that replies, starting behind the last server.
    fn connect(&mut self) -> Result<Link, Error> {
        let (first, count) = (std::mem::take(&mut self.first), self.servers.len());
        if first == count && count > 0 {
            sleep(TURN_PAUSE);
        }
        let servers = (0..count).map(|step| &self.servers[(first + step) % count]);
        let (step, connection, extensions) = self.dial.first(servers, |connection| self.set_up(connection))?;
        let (server, last_use) = ((first + step) % count, Instant::now());
        Ok(Link { connection, server, last_use, extensions, is_reserving: false, is_doubtful: false })
    }

    /// Asks a new connection for the server's extensions, and restores the state of the previous connection.
    fn set_up(&self, connection: &mut ClientConnection) -> Said<Option<Vec<String>>> {
        connection.send(b"extensions\r\n", Duration::ZERO)?;
        let reply = line(connection)?;
        let extensions = match wire::split(&reply).0 {
            "OK" => Some(read_text(connection, &reply, wire::parse_list)?),
            "UNKNOWN_COMMAND" => None,
            _ => return Err(unexpected(&reply).into()),
        };
        let mut tell = |request: &[u8], word| {
            connection.send(&[request, b"\r\n"].concat(), Duration::ZERO)?;
            let reply = line(connection)?;
            if wire::split(&reply).0 == word { Ok(()) } else { Err(unexpected(&reply)) }
        };
        if self.used != DEFAULT_TUBE {
            tell(format!("use {}", self.used).as_bytes(), "USING")?;
        }
        if !self.name.is_empty() && extensions.is_some() {
            tell(&[b"identify ", &*self.name].concat(), "IDENTIFIED")?;
        }
        for (pattern, weight) in self.watches.iter().filter(|watch| **watch != (DEFAULT_TUBE.into(), None)) {
            tell(watch_request(pattern, *weight).as_bytes(), "WATCHING")?;
        }
        if !self.watches.iter().any(|(pattern, _)| pattern == DEFAULT_TUBE) {
            tell(format!("ignore {DEFAULT_TUBE}").as_bytes(), "WATCHING")?;
        }
        Ok(extensions)
    }
}

/// Returns the fault for a reply to the first requests of a connection that they do not expect.
fn unexpected(reply: &[u8]) -> Fault {
    match reply {
        // The server is a standby, or its store has failed.
        b"INTERNAL_ERROR" => Fault::Unreachable(ErrorKind::NotConnected, "it answers INTERNAL_ERROR".into()),
        _ if wire::is_refusal(reply) => Fault::Refused(String::from_utf8_lossy(reply).into_owned()),
        _ => Fault::Garbled,
    }
}

fn watch_request(pattern: &str, weight: Option<u16>) -> String {
    weight.map_or(format!("watch {pattern}"), |weight| format!("watch {pattern} {weight}"))
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

    /// Returns the address of a server with extensions that replies with these lines, in order, and closes each
    /// connection after INTERNAL_ERROR.
    fn server(mut replies: Vec<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has one").to_string();
        spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let lines = BufReader::new(stream.try_clone().expect("there are descriptors")).lines();
                // Lines of a put-many that are still to come.
                let mut rest = 0;
                for line in lines.map_while(Result::ok) {
                    if let Some(count) = line.strip_prefix("put-many ") {
                        rest = 2 * count.parse::<usize>().expect("is a number");
                        continue;
                    }
                    let is_request = if rest == 0 { line.contains("put") || line.contains("e") } else { rest == 1 };
                    rest = rest.saturating_sub(1);
                    if !is_request {
                        continue;
                    }
                    let reply = match &*line {
                        "extensions" => "OK 15\r\n---\n- put-many\n",
                        // All replies are used up.
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

    /// A server that gives up its jobs replies once for all of them and closes the connection; a server
    /// that refuses some of them answers each.
    #[test]
    fn replies_to_many_puts_are_told_apart() {
        let failed = || Err(Error::Refused(INTERNAL_ERROR.into()));
        let replies =
            ["INTERNAL_ERROR\r\nINSERTED 1\r\nINTERNAL_ERROR", "NOT_ALLOWED", "INSERTED 2\r\nINSERTED 3\r\nDRAINING"];
        let whole = ["INTERNAL_ERROR\r\nINTERNAL_ERROR\r\nINTERNAL_ERROR", "INTERNAL_ERROR"];
        let producer = |replies: &[&'static str]| {
            Producer::new([server(replies.to_vec()), server(vec!["INSERTED 7\r\nDUPLICATE 8\r\nSUPERSEDED"])], TIMEOUTS)
        };
        let jobs = ["x", "y", "z"].map(NewJob::new);
        let inserted = |id| Ok(PutOutcome::Inserted(JobId(id)));
        let first = producer(&replies);
        assert_eq!(first.put_many(&jobs), Ok(vec![failed(), inserted(1), failed()]));
        assert_eq!(first.put_many(&jobs), Err(Error::Refused("NOT_ALLOWED".into())));
        let draining = Err(Error::Refused("DRAINING".into()));
        assert_eq!(first.put_many(&jobs), Ok(vec![inserted(2), inserted(3), draining]), "no reply is left over");
        for reply in whole {
            let begun = Instant::now();
            let producer = producer(&[reply]);
            assert_eq!(producer.put_many(&jobs), Err(Error::Lost), "{reply}");
            let next = vec![inserted(7), Ok(PutOutcome::Duplicate(JobId(8))), Ok(PutOutcome::Superseded)];
            assert_eq!(producer.put_many(&jobs), Ok(next), "{reply}: the next server is asked");
            assert!(begun.elapsed() < TIMEOUTS.answer);
        }
    }

    #[test]
    fn put_that_a_draining_server_refuses_goes_to_the_next() {
        let (job, inserted) = (NewJob::new("x"), |id| Ok(PutOutcome::Inserted(JobId(id))));
        let producer = Producer::new([server(vec!["DRAINING"]), server(vec!["INSERTED 5", "INSERTED 6"])], TIMEOUTS);
        assert_eq!((producer.put(&job), producer.put(&job)), (inserted(5), inserted(6)));
        let next = server(vec!["INSERTED 5\r\nINSERTED 6"]);
        let producer = Producer::new([server(vec!["DRAINING\r\nDRAINING"]), next], TIMEOUTS);
        assert_eq!(producer.put_many(&[job.clone(), job.clone()]), Ok(vec![inserted(5), inserted(6)]));
        let producer = Producer::new([server(vec!["DRAINING"]), server(vec!["DRAINING"])], TIMEOUTS);
        assert_eq!(producer.put(&job), Err(Error::Refused("DRAINING".into())), "no server is left");
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
