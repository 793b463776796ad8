//! The servers of locks for the farm: ours, which is the daemon's own code in virtual time, and a model of the C
//! daemon.

use poolcounter_core::time::{Span, Time};
use poolcounter_pools::PoolsSettings;
use poolcounter_testkit::world::World;
use std::collections::VecDeque;

/// Server of pools, in which time passes when the caller says so. Times are in microseconds.
pub trait PoolServer {
    /// Connects a client, and returns its number. Numbers are not used again.
    fn connect(&mut self) -> usize;

    /// Sends a line of the client, which the server answers if it can.
    fn send(&mut self, client: usize, line: &str);

    /// Closes the client's connection. A client whose machine has lost its power never does that.
    fn close(&mut self, client: usize);

    /// Returns the output to clients since the last call: at least to these clients.
    fn take_received(&mut self, clients: &mut dyn Iterator<Item = usize>) -> Vec<(usize, Vec<u8>)>;

    /// Returns the time at which the server does something by itself.
    fn next_work(&self) -> Option<u64>;

    /// Advances the time. The server had nothing to do before.
    fn pass_until(&mut self, now: u64);

    /// Returns true if there are no locks and no waiters.
    fn is_empty(&self) -> bool;
}

/// Our server: the daemon's own loop reads, serves and answers the bytes of the clients.
pub struct Ours(World);

impl Ours {
    pub fn new(settings: PoolsSettings) -> Ours {
        Ours(World::new(settings))
    }

    fn settle(&mut self) {
        loop {
            self.0.tick_unchecked();
            if self.0.next_work().is_none_or(|at| at > self.0.now()) {
                return;
            }
        }
    }
}

impl PoolServer for Ours {
    fn connect(&mut self) -> usize {
        self.0.connect()
    }

    fn send(&mut self, client: usize, line: &str) {
        self.0.send(client, format!("{line}\n").as_bytes());
        self.settle();
    }

    fn close(&mut self, client: usize) {
        self.0.finish(client);
        self.settle();
    }

    fn take_received(&mut self, clients: &mut dyn Iterator<Item = usize>) -> Vec<(usize, Vec<u8>)> {
        let received = clients.map(|client| (client, self.0.take_received(client)));
        received.filter(|(_, bytes)| !bytes.is_empty()).collect()
    }

    fn next_work(&self) -> Option<u64> {
        self.0.next_work().map(Time::as_micros)
    }

    fn pass_until(&mut self, now: u64) {
        self.0.tick_unchecked_after(Span::from_micros(now - self.0.now().as_micros()));
        self.settle();
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Model of `ACQ4ANY` and `RELEASE` of the C daemon on one key. It keeps every holder whose connection is open: it has
/// no `max_hold`, and no keepalive for silent clients.
#[derive(Default)]
pub struct CDaemon {
    now: u64,
    holders: Vec<usize>,
    /// Waiters, oldest first. All wait equally long.
    waiters: VecDeque<Waiter>,
    received: Vec<(usize, Vec<u8>)>,
    connected: usize,
}

struct Waiter {
    client: usize,
    until: u64,
}

impl CDaemon {
    fn say(&mut self, client: usize, line: &str) {
        self.received.push((client, format!("{line}\n").into_bytes()));
    }

    fn acquire(&mut self, client: usize, [workers, max_queue, timeout]: [usize; 3]) {
        if self.holders.len() + self.waiters.len() >= max_queue {
            self.say(client, "QUEUE_FULL");
        } else if self.holders.len() < workers {
            self.holders.push(client);
            self.say(client, "LOCKED");
        } else {
            self.waiters.push_back(Waiter { client, until: self.now + timeout as u64 * 1_000_000 });
        }
    }

    /// Releases the lock after the work is done: all waiters get DONE.
    fn release(&mut self, client: usize) {
        if !self.forget(client) {
            return self.say(client, "NOT_LOCKED");
        }
        for waiter in std::mem::take(&mut self.waiters) {
            self.say(waiter.client, "DONE");
        }
        self.say(client, "RELEASED");
    }

    /// Returns true if the client was a holder.
    fn forget(&mut self, client: usize) -> bool {
        self.waiters.retain(|waiter| waiter.client != client);
        let before = self.holders.len();
        self.holders.retain(|holder| *holder != client);
        self.holders.len() < before
    }
}

impl PoolServer for CDaemon {
    fn connect(&mut self) -> usize {
        self.connected += 1;
        self.connected
    }

    fn send(&mut self, client: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            // The C daemon ignores everything behind the timeout.
            ["ACQ4ANY", _, workers, max_queue, timeout, ..] => {
                let number = |word: &str| word.parse().expect("a number");
                self.acquire(client, [workers, max_queue, timeout].map(number));
            }
            ["RELEASE"] => self.release(client),
            _ => panic!("no client of the farm says {line}"),
        }
    }

    /// Closes a connection. The work of a holder was not done: the oldest waiter gets the lock.
    fn close(&mut self, client: usize) {
        if self.forget(client)
            && let Some(waiter) = self.waiters.pop_front()
        {
            self.holders.push(waiter.client);
            self.say(waiter.client, "LOCKED");
        }
    }

    fn take_received(&mut self, _: &mut dyn Iterator<Item = usize>) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.received)
    }

    fn next_work(&self) -> Option<u64> {
        self.waiters.front().map(|waiter| waiter.until)
    }

    fn pass_until(&mut self, now: u64) {
        self.now = now;
        while let Some(client) = self.waiters.front().filter(|waiter| waiter.until <= now).map(|waiter| waiter.client) {
            self.waiters.pop_front();
            self.say(client, "TIMEOUT");
        }
    }

    fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }
}
