//! Streams of bytes, cut into chunks, through a whole service: several clients play the input, and then a single client
//! sends it.

use super::{CLIENTS, begin, some_bytes};
use crate::random::Random;
use crate::world::{World, administered};
use poolcounter_core::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_jobs::JobsSettings;
use poolcounter_members::MembersSettings;
use poolcounter_pools::PoolsSettings;

/// Time after which counters that nobody uses are removed.
const INTERVAL: Span = Span::from_secs(10);

/// Plays the input to the pools.
pub fn pools(data: &[u8]) {
    let streams = Streams {
        service: "pools",
        begin: || World::new(PoolsSettings { max_line: 64, ..PoolsSettings::default() }),
        far_us: u64::MAX,
        say: some_bytes,
        linger: Span::from_secs(6),
        end: |_| {},
        shown: without_reports,
    };
    streams.run(data);
}

/// Plays the input to the counters.
pub fn counters(data: &[u8]) {
    let streams = Streams {
        service: "counters",
        begin: || {
            let counters = CountersSettings {
                buckets: 1024,
                interval: INTERVAL,
                max_memory: 1_000,
                ..CountersSettings::default()
            };
            World::with(administered().with(counters))
        },
        // A hundred intervals.
        far_us: 1_000_000_000,
        say: some_bytes,
        linger: INTERVAL,
        // Counters stay until their interval is over.
        end: |world| world.advance(INTERVAL),
        shown: <[u8]>::to_vec,
    };
    streams.run(data);
}

/// Plays the input to the members.
pub fn members(data: &[u8]) {
    let streams = Streams {
        service: "members",
        begin: || {
            let members = MembersSettings { most: 64, admin: Some(true), ..MembersSettings::default() };
            World::with(administered().with(members))
        },
        // Culling goes on as long as time does.
        far_us: 100_000_000,
        say: some_bytes,
        linger: Span::from_secs(6),
        end: |_| {},
        shown: <[u8]>::to_vec,
    };
    streams.run(data);
}

/// Plays the input to the jobs.
pub fn jobs(data: &[u8]) {
    let streams = Streams {
        service: "jobs",
        begin: || {
            let (max_size, max_memory, max_tubes) = (100_000, 300_000, 20);
            let jobs = JobsSettings { max_size, max_memory, max_tubes, admin: true, ..JobsSettings::default() };
            World::with(administered().with(jobs))
        },
        // A quarter of an hour.
        far_us: 1_000_000_000,
        say: put_or_bytes,
        linger: Span::from_secs(60),
        end,
        shown: without_chance,
    };
    streams.run(data);
}

/// Streams of bytes, cut into chunks, through a whole service.
struct Streams {
    service: &'static str,
    /// Returns a server without clients.
    begin: fn() -> World,
    /// Longest jump of time.
    far_us: u64,
    /// Returns bytes for a client to send in its turn.
    say: fn(u8, &mut Random) -> Vec<u8>,
    /// Time after which clients that do not read are disconnected.
    linger: Span,
    /// Ends what outlives its clients, if anything does.
    end: fn(&mut World),
    /// Returns the output that must not depend on the cuts.
    shown: fn(&[u8]) -> Vec<u8>,
}

impl Streams {
    /// Plays the input by several clients, and then sends it as the bytes of a single client.
    fn run(&self, data: &[u8]) {
        begin(data);
        self.converse(&mut Random::of_choices(data));
        self.assert_same_when_cut(data);
    }

    /// Checks that the replies do not depend on the cuts of the stream, on the speed at which they are read, and on
    /// whether the end comes with the last bytes or later.
    fn assert_same_when_cut(&self, data: &[u8]) {
        let whole = self.converse_alone(data, &mut || usize::MAX, usize::MAX);
        for room in [usize::MAX, data.len() % 32] {
            let mut sizes = data.iter().map(|byte| usize::from(byte % 8)).cycle();
            let cut = self.converse_alone(data, &mut || sizes.next().unwrap_or(1), room);
            assert_eq!(whole, cut, "cut, with room for {room} bytes of reply after each chunk");
        }
    }

    /// Returns the output to one client that sends chunks of some sizes, and takes `room` more bytes after each.
    fn converse_alone(&self, data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> String {
        let mut world = (self.begin)();
        let client = world.connect_to(self.service);
        world.send_in_chunks(client, data, sizes, room);
        (self.end)(&mut world);
        assert!(world.is_empty(), "something is left of somebody");
        (self.shown)(&world.take_received(client)).escape_ascii().to_string()
    }

    /// Plays the input by clients of the service, and disconnects them at its end.
    fn converse(&self, choices: &mut Random) {
        let mut world = (self.begin)();
        let mut clients: Vec<usize> = (0..CLIENTS).map(|_| world.connect_to(self.service)).collect();
        while !choices.is_used_up() {
            let turn = choices.byte();
            let slot = usize::from(turn) % CLIENTS;
            let client = clients[slot];
            let mut span = || Span::from_micros(choices.shifted().min(self.far_us));
            match turn / 16 {
                8 => world.advance(span()),
                9 => world.set_room(client, choices.shifted() as usize),
                10 => {
                    world.finish(client);
                    clients[slot] = world.connect_to(self.service);
                }
                11 => {
                    world.reset(client);
                    clients[slot] = world.connect_to(self.service);
                }
                12 => {
                    world.settle();
                    world.upgrade_within(span());
                }
                13 => world.tick_slowly(span()),
                14.. => world.tick(),
                _ => world.send(client, &(self.say)(turn, choices)),
            }
        }
        clients.iter().for_each(|client| world.finish(*client));
        world.advance(self.linger);
        (self.end)(&mut world);
        assert!(world.is_empty(), "something is left of somebody");
    }
}

/// Returns the output without the documents of `STATS REPORT`, which count bytes and turns of the loop.
fn without_reports(mut output: &[u8]) -> Vec<u8> {
    let find = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|part| part == mark);
    let mut kept = Vec::new();
    while let Some(begin) = find(output, b"{\"version\":") {
        kept.extend_from_slice(&output[..begin]);
        output = &output[begin..];
        output = &output[find(output, b"\n\n").map_or(output.len(), |end| end + 2)..];
    }
    kept.extend_from_slice(output);
    kept
}

fn put_or_bytes(turn: u8, choices: &mut Random) -> Vec<u8> {
    if turn / 16 != 7 {
        return some_bytes(turn, choices);
    }
    let len = choices.shifted().min(100_001) as usize;
    format!("put {len} 0 9 {len}\r\n{}\r\n", "x".repeat(len)).into_bytes()
}

/// Clears all jobs, which stay until then. Settings stay for good.
fn end(world: &mut World) {
    world.advance(Span::from_secs(60));
    let client = world.connect_to("jobs");
    world.send(client, b"list-tubes\r\n");
    world.settle();
    let list = world.take_received(client);
    let names = list.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"- "));
    let clears: Vec<Vec<u8>> = names.map(|name| [b"clear ", name, b"\r\n"].concat()).collect();
    world.send(client, &clears.concat());
    world.advance(Span::from_secs(60));
    world.finish(client);
    world.advance(Span::from_secs(60));
}

/// Removes the lines that depend on processor time and on the process.
fn without_chance(bytes: &[u8]) -> Vec<u8> {
    let is_chance =
        |line: &&[u8]| [&b"rusage-"[..], b"pid: ", b"id: ", b"OK "].iter().any(|word| line.starts_with(word));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_chance(line));
    lines.flatten().copied().collect()
}
