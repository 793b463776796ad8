//! Clients on connections of their own, whose requests and replies go into one history.

use poolcounter_testkit::crash::Response;
use poolcounter_testkit::crash::actor::{Actor, Group, greeting};
use poolcounter_testkit::crash::history::{Found, History};
use poolcounter_testkit::crash::survey::survey;
use poolcounter_testkit::random::Random;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

/// Longer than any commit takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rate at which a client drops its connection: one in this number of groups.
const LEAVES_ONCE_IN: usize = 40;

/// History of a server over all its lives.
pub struct Log {
    history: Mutex<History>,
    origin: Instant,
    /// Next number of a connection or a put-many; each is unique.
    next_number: AtomicUsize,
    replies: AtomicUsize,
}

/// One connection.
struct Line(BufReader<TcpStream>);

impl Log {
    /// Returns a log that begins with this history.
    pub fn new(history: History) -> Log {
        let (origin, zero) = (Instant::now(), AtomicUsize::new(0));
        Log { history: Mutex::new(history), origin, next_number: AtomicUsize::new(0), replies: zero }
    }

    /// Returns the milliseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }

    /// Returns the number of replies received.
    pub fn replies(&self) -> usize {
        self.replies.load(Ordering::Relaxed)
    }

    /// Surveys a server that has no clients, and compares the result with the replies to its clients.
    pub fn check(&self, address: SocketAddr, clients: usize, setup: &[&str]) -> Found {
        let mut line = Line::to(address).expect("the server listens");
        let mut ask = |request: &str| line.ask(request).unwrap_or_else(|error| panic!("{request}: {error}"));
        for request in setup {
            ask(request);
        }
        // Connections that have just ended may still have jobs reserved.
        while !is_without_holders(&ask("stats")) {
            thread::sleep(Duration::from_millis(1));
        }
        let found = survey(&mut ask, clients, || self.now());
        let verdict = self.history.lock().expect("no holder panics").crashed(found.clone(), self.now());
        verdict.unwrap_or_else(|error| panic!("{error}"));
        found
    }

    /// Plays a random client until the server is gone, or the test is over.
    pub fn play<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        address: SocketAddr,
        (mut actor, number, seed): (Actor, usize, u64),
        is_over: &'scope AtomicBool,
    ) {
        scope.spawn(move || {
            let mut random = Random::new(seed ^ number as u64);
            while !is_over.load(Ordering::Relaxed) {
                if self.live(address, (&mut actor, number), &mut random, is_over).is_err() {
                    return;
                }
                actor.forget();
            }
        });
    }

    /// Plays one connection of a client, to its end.
    fn live(
        &self,
        address: SocketAddr,
        (actor, number): (&mut Actor, usize),
        random: &mut Random,
        is_over: &AtomicBool,
    ) -> io::Result<()> {
        let client = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut line = Line::to(address)?;
        for request in greeting(number) {
            line.ask(&request)?;
        }
        while !is_over.load(Ordering::Relaxed) {
            let group = actor.speak();
            let asked = self.begin(client, &group);
            line.0.get_mut().write_all(&group.bytes())?;
            if group.may_be_abandoned() && random.once_in(LEAVES_ONCE_IN) {
                self.history.lock().expect("no holder panics").lost(client);
                return Ok(());
            }
            self.hear(&mut line, actor, &group, &asked)?;
        }
        self.history.lock().expect("no holder panics").lost(client);
        Ok(())
    }

    fn begin(&self, client: usize, group: &Group) -> Vec<usize> {
        let mut history = self.history.lock().expect("no holder panics");
        let now = self.now();
        let many = group.is_many.then(|| self.next_number.fetch_add(1, Ordering::Relaxed) as u64);
        let begin = group.requests.iter().map(|request| {
            let body = request.body.as_deref().unwrap_or_default();
            history.begin(client, &request.line, body, many, now)
        });
        begin.collect()
    }

    fn hear(&self, line: &mut Line, actor: &mut Actor, group: &Group, asked: &[usize]) -> io::Result<()> {
        let mut heard: Option<Response> = None;
        for (request, asked) in group.requests.iter().zip(asked) {
            let told = match heard {
                // All jobs of the put-many are refused at once.
                Some(told) if group.is_many && told.line == "OUT_OF_MEMORY" => told,
                _ => line.hear()?,
            };
            self.replies.fetch_add(1, Ordering::Relaxed);
            self.history.lock().expect("no holder panics").told(*asked, told.clone(), self.now());
            actor.told(request, &told);
            heard = Some(told);
        }
        Ok(())
    }
}

fn is_without_holders(stats: &Response) -> bool {
    String::from_utf8_lossy(&stats.body).contains("current-jobs-reserved: 0\n")
}

impl Line {
    fn to(address: SocketAddr) -> io::Result<Line> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Line(BufReader::new(stream)))
    }

    fn ask(&mut self, request: &str) -> io::Result<Response> {
        // A request with a body contains it.
        self.0.get_mut().write_all(format!("{request}\r\n").as_bytes())?;
        self.hear()
    }

    fn hear(&mut self) -> io::Result<Response> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else { return Err(ErrorKind::UnexpectedEof.into()) };
        let mut body = Vec::new();
        if let Some(len) = Response::body_len(line) {
            body.resize(len + 2, 0);
            self.0.read_exact(&mut body)?;
            body.truncate(len);
        }
        Ok(Response { line: line.into(), body })
    }
}
