//! A proxy between a daemon and its database, which reads what goes through as far as it must know where a commit begins and where
//! its answer ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How much of a message is passed on at a time.
const PIECE: usize = 16 << 10;

/// What becomes of the next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It does not reach the database, and the connection ends.
    DropsBefore,
    /// It takes effect, its answer does not come, and the connection ends.
    DropsAfter,
    /// Its answer takes so long. All others, too, until something else is said.
    Delays(Duration),
}

/// A proxy on a port of its own.
pub struct Proxy {
    pub port: u16,
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    /// The port of the database.
    target: Mutex<u16>,
    fate: Mutex<Option<Fate>>,
    /// How many commits have met a fate.
    met: AtomicU64,
    streams: Mutex<Vec<TcpStream>>,
    /// Whether nothing goes through for now.
    is_held: AtomicBool,
    /// How many bytes a second go through in each direction; 0 for any number.
    rate: AtomicU64,
    /// Who sends at that rate, in each direction.
    lanes: [Mutex<()>; 2],
}

impl Proxy {
    /// A proxy for the database at this port of this machine.
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

    /// Connections from now on go to another port, and those that there are end.
    pub fn turn_to(&self, target: u16) {
        *self.desk.target.lock().expect("no holder panics") = target;
        let streams = std::mem::take(&mut *self.desk.streams.lock().expect("no holder panics"));
        for stream in streams {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Says what becomes of the next commit.
    pub fn set(&self, fate: Option<Fate>) {
        *self.desk.fate.lock().expect("no holder panics") = fate;
    }

    /// Has nothing go through, with all connections left as they are, or lets what was held back go on.
    pub fn hold(&self, is_held: bool) {
        self.desk.is_held.store(is_held, Ordering::Relaxed);
    }

    /// Limits how many bytes a second go through in each direction.
    pub fn limit(&self, rate: u64) {
        self.desk.rate.store(rate, Ordering::Relaxed);
    }

    /// Returns how many commits have met their fate.
    pub fn met(&self) -> u64 {
        self.desk.met.load(Ordering::Relaxed)
    }
}

impl Desk {
    /// Passes a message on, as fast as it may be.
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
            let _lane = self.lanes[lane].lock().expect("no holder panics");
            thread::sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
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

    /// Carries messages to the database until one of its ends is closed, or a commit is dropped.
    fn carry_requests(&self, mut from: &TcpStream, to: &TcpStream, after: &Mutex<Option<Fate>>) {
        let mut is_first = true;
        while let Some(message) = read_message(&mut from, is_first) {
            let Message { bytes: message, rest } = message;
            is_first = false;
            if message.starts_with(b"Q") && message[5..].starts_with(b"COMMIT") {
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
                *after.lock().expect("no holder panics") = met;
            }
            if self.pass(0, &message, rest, from, to).is_err() {
                return;
            }
        }
    }

    fn carry_answers(&self, mut from: &TcpStream, to: &TcpStream, after: &Mutex<Option<Fate>>) {
        while let Some(Message { bytes: message, rest }) = read_message(&mut from, false) {
            if message.starts_with(b"C") && message[5..].starts_with(b"COMMIT") {
                match after.lock().expect("no holder panics").take() {
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

/// A message, or its beginning with how many bytes follow.
struct Message {
    bytes: Vec<u8>,
    rest: usize,
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
