//! Proxy between a daemon and its database, which parses messages just enough to recognize commits and their answers.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Start of a statement that commits a batch on its own.
const AT_ONCE: &[u8] = b"WITH done AS ";
/// Bytes of a message that are passed on at a time.
const PIECE: usize = 16 << 10;

/// Fault of the next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The commit does not reach the database, and the connection ends.
    DropsBefore,
    /// The commit takes effect, and the connection ends before its answer.
    DropsAfter,
    /// The answers to this and all later commits are delayed by this time, until another fault is set.
    Delays(Duration),
}

/// Proxy on a port of its own.
pub struct Proxy {
    pub port: u16,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    /// Port of the database.
    target: Mutex<u16>,
    fate: Mutex<Option<Fate>>,
    /// Number of commits that have met a fault.
    met: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    /// True while all bytes are held back.
    is_held: AtomicBool,
    /// Bytes a second in each direction; 0 for no limit.
    rate: AtomicU64,
    /// Time at which all bytes so far have passed in each direction at that rate. Senders pass in the order in which
    /// they came, as on a real link.
    passed: [Mutex<Option<Instant>>; 2],
}

impl Proxy {
    /// Starts a proxy of the database at this port of this machine.
    pub fn to(target: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it has one").port();
        let desk = Arc::new(Desk { target: Mutex::new(target), ..Desk::default() });
        let shared = desk.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let desk = shared.clone();
                thread::spawn(move || desk.carry(&client));
            }
        });
        Proxy { port, desk }
    }

    /// Sends new connections to another port, and ends all present ones.
    pub fn turn_to(&self, target: u16) {
        *self.desk.target.lock().expect("no holder panics") = target;
        let streams = std::mem::take(&mut *self.desk.streams.lock().expect("no holder panics"));
        for stream in streams {
            // The connection may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Sets the fault of the next commit.
    pub fn set(&self, fate: Option<Fate>) {
        *self.desk.fate.lock().expect("no holder panics") = fate;
    }

    /// Holds back all bytes while connections stay open, or passes them on again.
    pub fn hold(&self, is_held: bool) {
        self.desk.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Limits the bytes a second of each direction.
    pub fn limit(&self, rate: u64) {
        self.desk.rate.store(rate, Ordering::Relaxed);
    }

    /// Returns the number of commits that have met a fault.
    pub fn met(&self) -> u64 {
        self.desk.met.load(Ordering::Relaxed)
    }
}

impl Desk {
    /// Passes a message on, within the rate of its direction.
    fn pass(
        &self,
        lane: usize,
        start: &[u8],
        mut rest: usize,
        mut from: &TcpStream,
        mut to: &TcpStream,
    ) -> std::io::Result<()> {
        self.pace(lane, start.len());
        to.write_all(start)?;
        let mut piece = [0; PIECE];
        while rest > 0 {
            let part = &mut piece[..rest.min(PIECE)];
            from.read_exact(part)?;
            self.pace(lane, part.len());
            to.write_all(part)?;
            rest -= part.len();
        }
        Ok(())
    }

    fn pace(&self, lane: usize, bytes: usize) {
        while self.is_held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        let rate = self.rate.load(Ordering::Relaxed);
        if rate > 0 {
            let now = Instant::now();
            let mut passed = self.passed[lane].lock().expect("no holder panics");
            let begins = passed.filter(|passed| *passed > now).unwrap_or(now);
            let passes = begins + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *passed = Some(passes);
            drop(passed);
            thread::sleep(passes - now);
        }
    }

    fn carry(&self, client: &TcpStream) {
        let target = *self.target.lock().expect("no holder panics");
        let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
        let clone = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
        [client, &server].iter().for_each(|stream| stream.set_nodelay(true).expect("is an option"));
        self.streams.lock().expect("no holder panics").extend([clone(client), clone(&server)]);
        let after = Arc::new(Mutex::new(None));
        thread::scope(|scope| {
            let fate_of_answer = after.clone();
            scope.spawn(move || self.carry_answers(&server, client, &fate_of_answer));
            let server = self.streams.lock().expect("no holder panics").last().map(clone);
            if let Some(server) = server {
                self.carry_requests(client, &server, &after);
                // The other half ends with it.
                let _ = server.shutdown(Shutdown::Both);
                let _ = client.shutdown(Shutdown::Both);
            }
        });
    }

    /// Carries messages to the database until either side closes, or a commit is dropped.
    fn carry_requests(&self, mut from: &TcpStream, to: &TcpStream, after: &Mutex<Option<(Fate, &'static [u8])>>) {
        let mut is_first = true;
        let mut at_once = HashSet::new();
        while let Some(message) = read_message(&mut from, is_first) {
            let Message { bytes: message, rest } = message;
            is_first = false;
            if let Some(tag) = tag_of_commit(&message, &mut at_once) {
                let mut fate = self.fate.lock().expect("no holder panics");
                let met = *fate;
                if !matches!(met, Some(Fate::Delays(_))) {
                    *fate = None;
                }
                drop(fate);
                self.met.fetch_add(u64::from(met.is_some()), Ordering::Relaxed);
                if met == Some(Fate::DropsBefore) {
                    return;
                }
                *after.lock().expect("no holder panics") = met.map(|fate| (fate, tag));
            }
            if self.pass(0, &message, rest, from, to).is_err() {
                return;
            }
        }
    }

    fn carry_answers(&self, mut from: &TcpStream, to: &TcpStream, after: &Mutex<Option<(Fate, &'static [u8])>>) {
        while let Some(Message { bytes: message, rest }) = read_message(&mut from, false) {
            if message.starts_with(b"C") {
                let mut after = after.lock().expect("no holder panics");
                let met = after.take_if(|(_, tag)| message[5..].starts_with(tag)).map(|(fate, _)| fate);
                drop(after);
                match met {
                    Some(Fate::DropsAfter) => break,
                    Some(Fate::Delays(time)) => thread::sleep(time),
                    Some(Fate::DropsBefore) | None => {}
                }
            }
            if self.pass(1, &message, rest, from, to).is_err() {
                break;
            }
        }
        // The other half ends with it.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

/// A message, or its beginning with the number of bytes that follow.
struct Message {
    bytes: Vec<u8>,
    rest: usize,
}

/// Returns the tag of the answer to a message that commits a batch: a COMMIT, or a statement that does both. `at_once`
/// has the names of such prepared statements.
fn tag_of_commit(message: &[u8], at_once: &mut HashSet<Vec<u8>>) -> Option<&'static [u8]> {
    let (kind, text) = (message[0], message.get(5..)?);
    if kind == b'Q' {
        return text.starts_with(b"COMMIT").then_some(b"COMMIT");
    }
    let mut texts = text.split(|byte| *byte == 0);
    let (first, second) = (texts.next()?, texts.next()?);
    match kind {
        b'P' if second.starts_with(AT_ONCE) => _ = at_once.insert(first.to_vec()),
        b'B' if at_once.contains(second) => return Some(b"SELECT 1"),
        _ => {}
    }
    None
}

/// Returns the next message; the first of a connection has no letter before its length.
fn read_message(from: &mut &TcpStream, is_first: bool) -> Option<Message> {
    let mut bytes = vec![0; if is_first { 4 } else { 5 }];
    from.read_exact(&mut bytes).ok()?;
    let len = bytes.last_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize)? - 4;
    let (head, part) = (bytes.len(), len.min(PIECE));
    bytes.resize(head + part, 0);
    from.read_exact(&mut bytes[head..]).ok()?;
    Some(Message { bytes, rest: len - part })
}
