//! A long run of all actions of clients, at full speed, on the real program: `make soak MINUTES=20`. Memory must stay
//! flat, and in the end nothing may be left.

use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::running::Over;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 64;
/// Time between two measurements of memory.
const LOOK: Duration = Duration::from_secs(10);

/// One client after another, each with a behaviour that its number decides.
struct Behaviour<'a> {
    address: SocketAddr,
    random: u64,
    requests: &'a AtomicU64,
}

impl Behaviour<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn acquire(&mut self) -> String {
        let kind = ["ACQ4ME", "ACQ4ANY"][self.below(2) as usize];
        let hold = ["", " hold=0.01", " hold=5"][self.below(3) as usize];
        let timeout = ["0", "0.003", "0.05", "1"][self.below(4) as usize];
        format!("{kind} type{}:{} {} 20 {timeout}{hold}\n", self.below(9), self.below(20), 1 + self.below(2))
    }

    /// Connects, does something, and disconnects.
    fn live(&mut self) {
        let mut client = Client::to(self.address);
        match self.below(8) {
            0..=2 => self.work(&mut client),
            3 => self.pipeline(&mut client),
            4 => self.type_slowly(&mut client),
            5 => self.leave_before_the_answer(client),
            6 => client.send(b"ACQ4ME \0 1 1 1\nNONSENSE\n\nSTATS FULL\nACQ4ME gone 1 1 1"),
            _ => self.read_nothing(&mut client),
        }
    }

    fn work(&mut self, client: &mut Client) {
        for _ in 0..self.below(200) {
            let answer = client.ask(self.acquire().trim_end());
            assert!(["LOCKED", "DONE", "TIMEOUT", "QUEUE_FULL", "LOCK_HELD"].contains(&answer.as_str()), "{answer}");
            if self.below(3) > 0 {
                let answer = client.ask("RELEASE");
                assert!(["RELEASED", "NOT_LOCKED"].contains(&answer.as_str()), "{answer}");
            }
            self.requests.fetch_add(2, Ordering::Relaxed);
        }
    }

    fn pipeline(&mut self, client: &mut Client) {
        let pairs = self.below(500);
        let requests: String = (0..pairs).map(|n| format!("ACQ4ANY own{}:{n} 1 9 0\nRELEASE\n", self.random)).collect();
        client.send(requests.as_bytes());
        for _ in 0..pairs {
            assert_eq!(client.line(), "LOCKED");
            assert_eq!(client.line(), "RELEASED");
        }
        self.requests.fetch_add(2 * pairs, Ordering::Relaxed);
    }

    fn type_slowly(&mut self, client: &mut Client) {
        for byte in self.acquire().bytes() {
            client.send(&[byte]);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn leave_before_the_answer(&mut self, mut client: Client) {
        client.send(self.acquire().as_bytes());
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.below(2) == 0 {
            client.reset();
        } else {
            client.finish();
            client.rest();
        }
    }

    fn read_nothing(&mut self, client: &mut Client) {
        client.stream().set_nonblocking(true).expect("an option");
        // Both directions fill up at some point.
        while client.stream().write(&b"STATS FULL\n".repeat(1_000)).is_ok() {}
        self.requests.fetch_add(1_000, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "runs for minutes; make soak"]
fn nothing_leaks() {
    let minutes: f64 =
        std::env::var("SOAK_MINUTES").map_or(20.0, |text| text.parse().expect("SOAK_MINUTES is a number"));
    let daemon = Daemon::start(&[]);
    let (requests, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut memory = Vec::new();
    thread::scope(|scope| {
        let _over = Over(&ended);
        for n in 1..=CLIENTS {
            let mut behaviour = Behaviour { address: daemon.address, random: n, requests: &requests };
            let ended = &ended;
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    behaviour.live();
                }
            });
        }
        let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
        while Instant::now() < end {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            memory.push(daemon.memory());
            println!("{:>12} requests, {:>6} KiB", requests.load(Ordering::Relaxed), daemon.memory() / 1024);
        }
    });
    let mut observer = daemon.connect();
    observer.wait_for_stat("hashtable_entries", 0);
    observer.wait_for_stat("waiting_workers", 0);
    assert_eq!(observer.stat("total_acquired"), observer.stat("processed_count"));
    let (early, late) = memory.split_at(memory.len() / 2);
    let (early, late) = (early.iter().max(), late.iter().max());
    println!("at most {early:?} bytes in the first half and {late:?} in the second");
    if let (Some(early), Some(late)) = (early, late) {
        assert!(*late <= early + early / 4 + (1 << 20), "memory grows");
    }
    observer.send(b"STATS FULL\n");
    observer.finish();
    println!("{}", observer.rest());
}
