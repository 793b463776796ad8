//! The model of the C daemon as a target of conversations.

use crate::farm::pool_server::{CDaemon, PoolServer};
use poolcounter_testkit::player::Target;
use poolcounter_testkit::script::Then;
use std::collections::BTreeMap;
use std::time::Duration;

/// A model, and the output to its clients.
#[derive(Default)]
pub struct Modelled {
    server: CDaemon,
    now: u64,
    received: BTreeMap<usize, Vec<u8>>,
}

impl Modelled {
    fn settle(&mut self) {
        self.server.pass_until(self.now);
        for (client, bytes) in self.server.take_received(&mut std::iter::empty()) {
            self.received.entry(client).or_default().extend(bytes);
        }
    }
}

impl Target for Modelled {
    type Client = usize;

    fn connect(&mut self, _: u32) -> usize {
        self.server.connect()
    }

    fn send(&mut self, client: &mut usize, bytes: &[u8], _: Then) {
        let line = bytes.strip_suffix(b"\n").expect("the farm's clients send whole lines");
        self.server.send(*client, std::str::from_utf8(line).expect("is text"));
        self.settle();
    }

    fn finish(&mut self, client: &mut usize) {
        self.server.close(*client);
        self.settle();
    }

    fn close(&mut self, client: &mut usize) {
        self.finish(client);
    }

    fn close_unseen(&mut self, client: &mut usize) {
        self.finish(client);
    }

    fn reset(&mut self, client: &mut usize) {
        self.finish(client);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time.as_micros() as u64;
        self.settle();
    }

    fn reply(&mut self, client: &mut usize) -> Result<Vec<u8>, String> {
        let received = self.received.entry(*client).or_default();
        let end = received.iter().position(|byte| *byte == b'\n').ok_or("no reply came")?;
        let line: Vec<u8> = received.drain(..=end).collect();
        Ok(line[..end].into())
    }

    fn rest(&mut self, client: &mut usize) -> Vec<u8> {
        self.received.remove(client).unwrap_or_default()
    }

    fn is_ended(&mut self, _: &mut usize) -> bool {
        false
    }

    fn check_empty(&mut self) -> Result<(), String> {
        if self.server.is_empty() { Ok(()) } else { Err("something is held".into()) }
    }

    fn tolerance(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }
}
