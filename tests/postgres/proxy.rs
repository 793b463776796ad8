//! Proxy between a daemon and its database, which parses messages just enough to recognize commits and their answers.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Start of a statement that commits a batch on its own.
const AT_ONCE: &[u8] = b"WITH done AS ";
/// Start of a statement that renews the lease.
const RENEWAL: &[u8] = b"UPDATE owner SET until = clock_timestamp() + ";
/// Tags of the answers to these statements.
const COMMITTED: &[u8] = b"SELECT 1";
const RENEWED: &[u8] = b"UPDATE 1";
/// Bytes of a message that are passed on at a time.
const PIECE: usize = 16 << 10;
/// Number of such pieces on their way in each direction of a connection.
const ON_THEIR_WAY: usize = 256;

/// Fault of the next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The commit does not reach the database, and the connection ends.
    DropsBefore,
    /// The commit takes effect, and the connection ends before its answer.
    DropsAfter,
    /// The answers to this and all later commits are delayed by this time, until another fault is set.
    Delays(Duration),
    /// The same for the answers to renewals.
    DelaysRenewals(Duration),
}

/// Fault that the answer with a tag meets.
type Awaited = Mutex<Option<(Fate, &'static [u8])>>;

/// Bytes that arrive at a time.
type OnTheirWay = (Instant, Vec<u8>);

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
    /// Milliseconds that bytes travel in each direction.
    delay_ms: AtomicU64,
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

    /// Delays the bytes of each direction by this time.
    pub fn delay(&self, delay: Duration) {
        self.desk.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns the number of commits that have met a fault.
    pub fn met(&self) -> u64 {
        self.desk.met.load(Ordering::Relaxed)
    }
}

impl Desk {
    /// Passes a message on, within the rate of its direction. Returns None if either side has ended.
    fn pass(&self, lane: usize, message: Message, mut from: &TcpStream, to: &SyncSender<OnTheirWay>) -> Option<()> {
        let Message { bytes, mut rest } = message;
        self.send(lane, bytes, to)?;
        while rest > 0 {
            let mut piece = vec![0; rest.min(PIECE)];
            from.read_exact(&mut piece).ok()?;
            rest -= piece.len();
            self.send(lane, piece, to)?;
        }
        Some(())
    }

    fn send(&self, lane: usize, bytes: Vec<u8>, to: &SyncSender<OnTheirWay>) -> Option<()> {
        self.pace(lane, bytes.len());
        let delay = Duration::from_millis(self.delay_ms.load(Ordering::Relaxed));
        to.send((Instant::now() + delay, bytes)).ok()
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
        let after = Awaited::default();
        thread::scope(|scope| {
            let (to_server, requests) = sync_channel(ON_THEIR_WAY);
            let (to_client, answers) = sync_channel(ON_THEIR_WAY);
            scope.spawn(|| arrive(requests, client, &server));
            scope.spawn(|| arrive(answers, &server, client));
            scope.spawn(|| {
                let to_client = to_client;
                self.carry_answers(&server, &to_client, &after);
            });
            self.carry_requests(client, &to_server, &after);
            drop(to_server);
        });
    }

    /// Carries messages to the database until either side closes, or a commit is dropped.
    fn carry_requests(&self, mut from: &TcpStream, to: &SyncSender<OnTheirWay>, after: &Awaited) {
        let mut is_first = true;
        let mut names = HashMap::new();
        while let Some(message) = read_message(&mut from, is_first) {
            is_first = false;
            if let Some(tag) = tag_of(&message.bytes, &mut names) {
                let mut fate = self.fate.lock().expect("no holder panics");
                let met = fate.filter(|fate| matches!(fate, Fate::DelaysRenewals(_)) == (tag == RENEWED));
                if matches!(met, Some(Fate::DropsBefore | Fate::DropsAfter)) {
                    *fate = None;
                }
                drop(fate);
                self.met.fetch_add(u64::from(met.is_some()), Ordering::Relaxed);
                if met == Some(Fate::DropsBefore) {
                    return;
                }
                *after.lock().expect("no holder panics") = met.map(|fate| (fate, tag));
            }
            if self.pass(0, message, from, to).is_none() {
                return;
            }
        }
    }

    fn carry_answers(&self, mut from: &TcpStream, to: &SyncSender<OnTheirWay>, after: &Awaited) {
        while let Some(message) = read_message(&mut from, false) {
            if message.bytes.starts_with(b"C") {
                let mut after = after.lock().expect("no holder panics");
                let met = after.take_if(|(_, tag)| message.bytes[5..].starts_with(tag)).map(|(fate, _)| fate);
                drop(after);
                match met {
                    Some(Fate::DropsAfter) => return,
                    Some(Fate::Delays(time) | Fate::DelaysRenewals(time)) => thread::sleep(time),
                    Some(Fate::DropsBefore) | None => {}
                }
            }
            if self.pass(1, message, from, to).is_none() {
                return;
            }
        }
    }
}

/// Writes bytes as they arrive. Both connections end with either direction.
fn arrive(bytes: Receiver<OnTheirWay>, from: &TcpStream, mut to: &TcpStream) {
    for (at, piece) in bytes {
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// A message, or its beginning with the number of bytes that follow.
struct Message {
    bytes: Vec<u8>,
    rest: usize,
}

/// Returns the tag of the answer to a message that commits a batch or renews the lease. A batch is committed by a
/// COMMIT, or by a statement that does both. `names` has the names of such prepared statements.
fn tag_of(message: &[u8], names: &mut HashMap<Vec<u8>, &'static [u8]>) -> Option<&'static [u8]> {
    let (kind, text) = (message[0], message.get(5..)?);
    if kind == b'Q' {
        return text.starts_with(b"COMMIT").then_some(b"COMMIT");
    }
    let mut texts = text.split(|byte| *byte == 0);
    let (first, second) = (texts.next()?, texts.next()?);
    match kind {
        b'P' if second.starts_with(AT_ONCE) => _ = names.insert(first.to_vec(), COMMITTED),
        b'P' if second.starts_with(RENEWAL) => _ = names.insert(first.to_vec(), RENEWED),
        b'B' => return names.get(second).copied(),
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
