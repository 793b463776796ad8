//! In the steady state, serving a request allocates nothing, according to the allocator.

use crate::counting_allocator::{allocations, bytes};
use poolcounter_core::id::ConnId;
use poolcounter_core::random::Random;
use poolcounter_core::time::{Span, Time};
use poolcounter_members::MembersSettings;
use poolcounter_server::{Connections, Host, Readiness, Stream};
use poolcounter_service::container::{AllSettings, ServiceId, Services};
use poolcounter_service::health::HealthSettings;
use poolcounter_testkit::frames::{acquire, dump, frame, get, release};
use poolcounter_testkit::world::World;
use std::io::{self, ErrorKind, Read, Write};

/// Client that sends its requests by turns, and ignores the replies.
struct Script {
    requests: Vec<Vec<u8>>,
    sent: usize,
    /// True if there is a request to be read.
    full: bool,
}

impl Read for Script {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !std::mem::take(&mut self.full) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.sent += 1;
        let request = self.requests[self.sent % self.requests.len()].as_slice();
        let Some(start) = request.strip_suffix(b"#\n") else { return Read::read(&mut &request[..], bytes) };
        // Number of the last lease: they are numbered from 0 on, and each is returned before the next.
        let mut rest = &mut bytes[..];
        rest.write_all(start)?;
        writeln!(rest, "{}", self.sent / 2 - 1)?;
        let left = rest.len();
        Ok(bytes.len() - left)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Script {
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn peer(&self) -> io::Result<String> {
        Ok("script".into())
    }
}

/// Surroundings of the loop: clients that play their scripts, and the time of the round.
struct Scene {
    connections: Connections<Script>,
    now: Time,
}

impl Scene {
    /// Returns a server without checks of its health, which would write sentences once a second.
    fn of(services: Services) -> Scene {
        let mut connections = Connections::new(services, Span::ZERO, Random::from_seed(0));
        connections.watch_over(HealthSettings { interval: Span::FOREVER, ..HealthSettings::default() });
        Scene { connections, now: Time::START }
    }
}

impl Host for Scene {
    type Stream = Script;

    fn connections(&mut self) -> &mut Connections<Script> {
        &mut self.connections
    }

    fn clock(&self) -> impl Fn() -> Time + use<> {
        let now = self.now;
        move || now
    }

    fn wait(&mut self, _: Time) -> io::Result<()> {
        Ok(())
    }

    fn accept(&mut self) {}
}

/// Lets each client send its two requests by turns, after one has sent `before`, and asserts that only the first turns
/// allocate memory.
fn assert_steady(service: &str, before: &str, scripts: &[[Vec<u8>; 2]]) {
    let members = MembersSettings { admin: Some(true), ..MembersSettings::default() };
    let services = Services::of(poolcounter::SERVICES, &AllSettings::defaults(poolcounter::SERVICES).with(members));
    let mut scene = Scene::of(services);
    let service = ServiceId::named(poolcounter::SERVICES, service).expect("is in the registry");
    let first = scene.connections.open(
        Script { requests: vec![before.into(), before.into()], sent: 0, full: true },
        service,
        Time::START,
    );
    scene.connections.mark(first, Readiness { readable: true, ..Readiness::default() });
    Connections::tick(&mut scene).expect("waits for nothing");
    let open = |requests: &[Vec<u8>; 2]| {
        scene.connections.open(Script { requests: requests.to_vec(), sent: 0, full: false }, service, Time::START)
    };
    let ids: Vec<ConnId> = scripts.iter().map(open).collect();
    let mut rounds = |range: std::ops::Range<u64>| {
        let before = allocations();
        for round in range {
            for id in &ids {
                scene.connections.stream(*id).expect("is open").full = true;
                scene.connections.mark(*id, Readiness { readable: true, ..Readiness::default() });
            }
            scene.now = Time::from_micros(round * 1_000);
            Connections::tick(&mut scene).expect("waits for nothing");
        }
        allocations() - before
    };
    assert!(rounds(0..100) > 0, "the tables are made");
    assert_eq!(rounds(100..10_000), 0, "they are made once");
}

/// A runner and a producer get their records at their first reserve and put; a question needs none.
#[test]
fn idle_connection_of_jobs_is_small() {
    const CONNECTIONS: usize = 16_000;
    let taken = |(service, requests): (&str, &[&str])| {
        let services = Services::of(poolcounter::SERVICES, &AllSettings::defaults(poolcounter::SERVICES).in_memory());
        let mut scene = Scene::of(services);
        let service = ServiceId::named(poolcounter::SERVICES, service).expect("is in the registry");
        let before = bytes();
        for _ in 0..CONNECTIONS {
            let requests: Vec<Vec<u8>> = requests.iter().map(|request| request.as_bytes().to_vec()).collect();
            let script = Script { full: !requests.is_empty(), requests, sent: 0 };
            let id = scene.connections.open(script, service, Time::START);
            scene.connections.mark(id, Readiness { readable: true, ..Readiness::default() });
            Connections::tick(&mut scene).expect("waits for nothing");
        }
        (bytes() - before) / CONNECTIONS
    };
    let requests: [[&[&str]; 2]; 2] = [[&[], &[]], [&["RELEASE\n"], &["peek 1\r\n"]]];
    for [pools, jobs] in requests {
        let [pools, jobs] = [("pools", pools), ("jobs", jobs)].map(taken);
        println!("an idle connection of pools takes {pools} bytes, and that of jobs {jobs}");
        assert!(jobs <= pools + 40, "{jobs} bytes, and {pools} with pools");
    }
}

#[test]
fn steady_state_allocates_nothing() {
    let scripts = [
        ["RELEASE\n", "ACQ4ME a:page-with-a-name-of-some-length 1 50 10\n"],
        ["RELEASE\n", "ACQ4ANY a:page-with-a-name-of-some-length 1 50 10\n"],
        ["RELEASE\n", "ACQ4ME another 2 50 10 hold=5\n"],
        ["RELEASE\nACQ4ME pipelined 1 1 0\n", "RELEASE\nACQ4ANY pipelined 1 1 0\n"],
        ["ACQ4ME a:page-with-a-name-of-some-length 1 1 0\n", "ACQ4ME another 1 50 0\n"],
    ];
    assert_steady("pools", "", &scripts.map(|requests| requests.map(Into::into)));
}

#[test]
fn steady_state_of_counters_allocates_nothing() {
    let name = b"a-counter-with-a-name-of-some-length";
    let [a, b, c] = [b"a", b"b", b"c"];
    let scripts = [
        [release(3, name), acquire(3, 10, name)],
        [release(9, name), acquire(9, 10, name)],
        [
            [release(1, a), release(1, b), release(1, c)].concat(),
            [acquire(1, 10, a), acquire(1, 10, b), acquire(1, 10, c)].concat(),
        ],
        [[get(name), frame(0x00, b"")].concat(), [get(b"nothing"), acquire(1, 0, a), frame(0x77, b"what")].concat()],
        [dump(), dump()],
    ];
    assert_steady("counters", "", &scripts);
}

#[test]
fn taking_and_returning_a_member_allocates_nothing() {
    for (before, add) in [("PROVIDE p\n", "OFFER"), ("", "ADD")] {
        let names = ["a-member-with-a-name-of-some-length os=linux", "b", "c"];
        let members: String = names.iter().map(|name| format!("{add} p {name}\n")).collect();
        let before = format!("POOL p 0 3\n{before}{members}");
        assert_steady("members", &before, &[[b"RETURN #\n".to_vec(), b"TAKE p 5\n".to_vec()]]);
    }
}

/// A put allocates its body, and now and then a leaf of its tube's queue; a reserve shrinks a leaf now and then; a delete
/// allocates nothing.
#[test]
fn jobs_allocate_their_bodies_and_leaves() {
    const JOBS: usize = 100;
    const WARM: usize = 2_000;
    const CYCLES: usize = 10_000;
    let put = b"put 5 0 60 20\r\nabcdefghijklmnopqrst\r\n".to_vec();
    let cycle = |n: usize| [put.clone(), b"reserve\r\n".to_vec(), format!("delete {n}\r\n").into()];
    let mut requests = vec![put.clone(); JOBS];
    requests.extend((1..=CYCLES).flat_map(cycle));
    let total = requests.len();
    // The client begins with its second request.
    requests.rotate_right(1);
    let services = Services::of(poolcounter::SERVICES, &AllSettings::defaults(poolcounter::SERVICES).in_memory());
    let mut scene = Scene::of(services);
    let service = ServiceId::named(poolcounter::SERVICES, "jobs").expect("is in the registry");
    let id = scene.connections.open(Script { requests, sent: 0, full: false }, service, Time::START);
    let mut counts = [0; 3];
    for round in 0..total {
        scene.connections.stream(id).expect("is open").full = true;
        scene.connections.mark(id, Readiness { readable: true, ..Readiness::default() });
        scene.now = Time::from_micros(round as u64 * 100);
        let before = allocations();
        Connections::tick(&mut scene).expect("waits for nothing");
        if round >= JOBS + 3 * WARM {
            counts[(round - JOBS) % 3] += allocations() - before;
        }
    }
    let puts = (CYCLES - WARM) as u64;
    println!("{puts} puts, reserves and deletes have allocated {counts:?} times");
    assert!((puts..=puts + puts / 6).contains(&counts[0]), "a put allocates its body, and a leaf now and then");
    assert!(counts[1] <= puts / 10 && counts[2] == 0, "a reserve shrinks a leaf now and then");
}

/// Released units take no memory, however many counters a connection has held.
#[test]
fn released_things_take_no_memory() {
    let mut world = World::new(poolcounter_pools::PoolsSettings::default());
    let names: Vec<[u8; 4]> = (0..2_000_u32).map(u32::to_be_bytes).collect();
    let mut play = || {
        let client = world.connect_to("counters");
        let requests = [|name: &[u8]| acquire(1, 9, name), |name: &[u8]| release(1, name)];
        for (request, some) in requests.iter().flat_map(|request| names.chunks(100).map(move |some| (request, some))) {
            // The stand-ins for sockets keep the largest amount that is sent and received at once.
            world.send(client, &some.iter().flat_map(|name| request(name)).collect::<Vec<u8>>());
            world.settle();
            world.take_received(client);
        }
        bytes()
    };
    let first = play();
    let more: usize = (0..10).map(|_| play()).max().unwrap_or_default().saturating_sub(first);
    println!("ten more connections that held 2000 counters each keep {more} bytes");
    assert!(more < 100_000, "{more} bytes are kept");
}
