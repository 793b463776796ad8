//! One connection to the counters of a running daemon that awaits its replies.

use super::daemon::{Client, PATIENCE, derefs_to_client};
use super::frames::{self, HEADER_BYTES};
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// A client of the counters.
pub struct CounterClient(Client);

derefs_to_client!(CounterClient);

impl CounterClient {
    /// Connects to the counters of the daemon at this address.
    pub fn to(address: SocketAddr) -> CounterClient {
        CounterClient(Client::to(address))
    }

    /// Waits for the next reply.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut reply = self.bytes(HEADER_BYTES);
        let [_, _, _, _, a, b, c, d, ..] = reply[..] else { unreachable!("a header is longer") };
        reply.extend(self.bytes(u32::from_be_bytes([a, b, c, d]) as usize));
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
        let mut writer = self.stream().try_clone().expect("a second handle");
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
}
