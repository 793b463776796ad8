//! Requests of the clients of the steady loads.

use super::load::Player;
use super::protocol::{self, Protocol};
use super::random::Random;
use super::server::Program;

/// Clients that acquire and release over and over, whatever the replies.
pub struct Turns {
    /// Requests of each client, sent in turn.
    batches: Vec<[Batch; 2]>,
    /// True for each client whose next turn is the second.
    second: Vec<bool>,
    replies: usize,
    protocol: Protocol,
}

type Batch = Vec<u8>;

impl Turns {
    /// Returns clients that each acquire and release a key of their own.
    pub fn pairs(program: Program, clients: usize) -> Turns {
        Turns::of(clients, 1, |client| match program {
            Program::Redis => {
                let key = format!("Article:{client}");
                let set = format!("*4\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$1\r\n1\r\n$2\r\nNX\r\n", key.len());
                [set, format!("*2\r\n$3\r\nDEL\r\n${}\r\n{key}\r\n", key.len())]
            }
            _ => [format!("ACQ4ME Article:{client} 1 100 5\n"), "RELEASE\n".into()],
        })
    }

    /// Returns such clients that send `depth` pairs in one write.
    pub fn pipelines(clients: usize, depth: usize) -> Turns {
        Turns::of(clients, 2 * depth, |client| {
            let pairs = format!("ACQ4ME Article:{client} 1 100 5\nRELEASE\n").repeat(depth);
            [pairs.clone(), pairs]
        })
    }

    /// Returns clients of one key for all, which one client holds at a time.
    pub fn hot(program: Program, clients: usize) -> Turns {
        let [acquire, release] = match program {
            Program::Limit => ["Q\n", "H\n"],
            _ => ["ACQ4ME Article:hot 1 100000 60\n", "RELEASE\n"],
        };
        Turns::of(clients, 1, |_| [acquire.into(), release.into()])
    }

    /// Returns clients that each acquire and release a counter of their own, once or `depth` times in one write.
    pub fn counters(clients: usize, depth: usize) -> Turns {
        let batches = (0..clients).map(|client| {
            let name = format!("Resource:{client}");
            let pair = [protocol::acquire(name.as_bytes()), protocol::release(name.as_bytes())];
            if depth == 1 { pair } else { [pair.concat().repeat(depth / 2), pair.concat().repeat(depth / 2)] }
        });
        Turns { batches: batches.collect(), second: vec![false; clients], replies: depth, protocol: Protocol::Frames }
    }

    fn of(clients: usize, replies: usize, batches: impl Fn(usize) -> [String; 2]) -> Turns {
        let batches = (0..clients).map(|client| batches(client).map(String::into_bytes)).collect();
        Turns { batches, second: vec![false; clients], replies, protocol: Protocol::Lines }
    }
}

impl Player for Turns {
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize {
        let second = &mut self.second[client];
        requests.extend_from_slice(&self.batches[client][usize::from(*second)]);
        *second = !*second;
        self.replies
    }

    fn hear(&mut self, _: usize, reply: &[u8]) -> bool {
        match self.protocol {
            // LOCKED, RELEASED; redis's +OK and :1.
            Protocol::Lines | Protocol::Members => matches!(reply[0], b'L' | b'R' | b'+' | b':'),
            Protocol::Frames => protocol::is_success(reply),
            Protocol::Jobs => !reply.starts_with(b"TIMED"),
        }
    }
}

/// Keys of very different popularity, and now and then a request for a statistic.
pub struct Mixed {
    requests: Vec<Vec<u8>>,
    /// Share of requests, by key, that are for it or a more popular one.
    shares: Vec<f64>,
    holds: Vec<bool>,
    random: Random,
}

impl Mixed {
    /// Returns a load on `keys` keys, the n-th of which has 1/n of the first one's popularity.
    pub fn new(clients: usize, keys: usize) -> Mixed {
        let total: f64 = (1..=keys).map(|n| 1.0 / n as f64).sum();
        let shares = (1..=keys).scan(0.0, |sum, n| {
            *sum += 1.0 / n as f64 / total;
            Some(*sum)
        });
        Mixed {
            requests: (0..keys).map(|key| format!("ACQ4ANY Article:{key} 2 100000 60\n").into_bytes()).collect(),
            shares: shares.collect(),
            holds: vec![false; clients],
            random: Random::new(1),
        }
    }
}

impl Player for Mixed {
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize {
        if self.random.fraction() < 0.2 {
            requests.extend_from_slice(b"STATS UPTIME\n");
        } else if self.holds[client] {
            requests.extend_from_slice(b"RELEASE\n");
        } else {
            let place = self.random.fraction();
            let key = self.shares.partition_point(|share| *share < place).min(self.requests.len() - 1);
            requests.extend_from_slice(&self.requests[key]);
        }
        1
    }

    fn hear(&mut self, client: usize, reply: &[u8]) -> bool {
        match reply[0] {
            b'L' => self.holds[client] = true,
            b'R' => self.holds[client] = false,
            // After DONE there is no lock to release; a statistic changes nothing.
            b'D' | b'u' | b'w' => {}
            _ => return false,
        }
        true
    }
}
