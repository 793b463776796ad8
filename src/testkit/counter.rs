//! One connection to the counters of a running daemon that awaits its replies.

use super::daemon::PATIENCE;
use super::frames::{self, HEADER_BYTES};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A client of the counters.
pub struct CounterClient {
    stream: TcpStream,
}

impl CounterClient {
    /// Connects to the counters of the daemon at this address.
    pub fn to(address: SocketAddr) -> CounterClient {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.set_nodelay(true).expect("an option");
        CounterClient { stream }
    }

    /// Returns the socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("is sent");
    }

    /// Waits for the next reply.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut reply = vec![0; HEADER_BYTES];
        self.stream.read_exact(&mut reply).expect("a reply comes");
        let [_, _, _, _, a, b, c, d, ..] = reply[..] else { unreachable!("a header is longer") };
        reply.resize(HEADER_BYTES + u32::from_be_bytes([a, b, c, d]) as usize, 0);
        self.stream.read_exact(&mut reply[HEADER_BYTES..]).expect("all of it");
        reply
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &[u8]) -> Vec<u8> {
        self.send(request);
        self.reply()
    }

    /// Returns the status of the reply to a request.
    pub fn status(&mut self, request: &[u8]) -> u8 {
        self.ask(request)[2]
    }

    /// Returns a counter's consumption; None if the counter does not exist.
    pub fn consumption(&mut self, name: &[u8]) -> Option<u32> {
        let reply = self.ask(&frames::get(name));
        let number = reply[HEADER_BYTES..].first_chunk().map(|number| u32::from_be_bytes(*number));
        number.filter(|_| reply[2] == 0)
    }

    /// Sends many requests while it reads the replies, and returns for each whether it succeeded.
    pub fn pipeline(&mut self, requests: &[Vec<u8>]) -> Vec<bool> {
        let mut writer = self.stream.try_clone().expect("a second handle");
        thread::scope(|scope| {
            scope.spawn(move || {
                for some in requests.chunks(1_000) {
                    writer.write_all(&some.concat()).expect("is sent");
                }
            });
            requests.iter().map(|_| self.reply()[2] == 0).collect()
        })
    }

    /// Returns the value of one statistic.
    pub fn stat(&mut self, name: &str) -> u64 {
        frames::stat(&self.ask(&frames::stats()), name)
    }

    /// Waits until a condition is true, and returns how long that took.
    pub fn wait_until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "it does not come to that");
            thread::sleep(Duration::from_micros(200));
        }
        begun.elapsed()
    }

    /// Waits for the end of the connection, and returns the bytes before it.
    pub fn wait_for_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).expect("the connection ends");
        rest
    }

    /// Closes the sending side.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("is connected");
    }

    /// Ends the connection by a reset instead of an orderly close.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an option");
    }
}
