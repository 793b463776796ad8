//! Usual requests of jobs are executed where they are read. The same histories go the same way where each request is read
//! by the general parser: behind a rule that allows everything.

use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::random::{Random, setting};
use poolcounter_testkit::rules;
use poolcounter_testkit::world::World;

const CLIENTS: usize = 3;
const STEPS: usize = 150;
const RULE: &str = "[[access]]\nname = \"all\"\nwho = [\"all\"]\nmay = [\"jobs\", \"jobs:admin\"]\n";

fn world(max_memory: usize) -> World {
    let jobs = JobsSettings { max_size: 300, max_memory, max_tubes: 20, admin: true, ..JobsSettings::default() };
    World::with(AllSettings::defaults(poolcounter::SERVICES).with(jobs))
}

/// Returns a request: mostly a usual one, some of them wrong.
fn request(random: &mut Random) -> String {
    let (id, seconds) = (random.below(32), random.below(4));
    let body = "b".repeat(random.below(6) * random.pick(&[1, 1, 1, 1, 1, 1, 1, 60]));
    let len = body.len();
    match random.below(40) {
        0..=9 => format!("put {} {} {seconds} {len}\r\n{body}\r\n", random.below(3), random.pick(&[0, 0, 0, 0, 2])),
        10..=17 => format!("reserve-with-timeout {}\r\n", random.pick(&[0, 0, 0, seconds])),
        18..=26 => format!("delete {id}\r\n"),
        27 => format!("delete 00{id}\r\n"),
        28 => format!("put 01 0 9 {}\r\n{body}\r\n", len + 1),
        29 => format!("put 1 0 9 {len}\r\n{body}xx\r\n"),
        30 => format!("release {id} 0 {}\r\nbury {id} 0\r\nkick 3\r\n", random.below(2)),
        31 => format!("put-many 2\r\nput 1 0 9 1\r\na\r\ndelete {id}\r\n"),
        32 => random.pick(&["drain\r\n", "undrain\r\n", "undrain\r\n"]).into(),
        33 => format!("use t{seconds}\r\nwatch t{seconds}\r\nignore t1\r\n"),
        34 => random.pick(&["list-tubes\r\n", "stats-tube default\r\n", "list-jobs default ready 9\r\n"]).into(),
        35 => random.pick(&["delete 1", "reserve-with-timeout 0\n", "\r\n", "xyzzy\r\n", "put 1 1 1 1\r\n"]).into(),
        36 => "put 1 0 9 400\r\nabc\r\n".into(),
        37 => "reserve-many 3\r\n".into(),
        38 => format!("put-job 0 0 9 1 tube=t1 key=k{seconds}\r\nx\r\n"),
        _ => "stats\r\n".into(),
    }
}

/// Removes the lines that differ between two daemons.
fn without_chance(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_chance = |line: &&str| ["rusage-", "pid: ", "id: ", "OK "].iter().any(|word| line.starts_with(word));
    text.split_inclusive('\n').filter(|line| !is_chance(line)).collect()
}

fn play(seed: u64) {
    let mut random = Random::new(seed);
    let memory = random.pick(&[20_000, 300_000]);
    let mut worlds = [world(memory), world(memory)];
    worlds[1].guard(rules::read(RULE));
    let connect = |world: &mut World| (0..CLIENTS).map(|_| world.connect_to("jobs")).collect::<Vec<_>>();
    let [clients, others] = worlds.each_mut().map(connect);
    assert_eq!(clients, others);
    let mut pending = vec![Vec::new(); CLIENTS];
    for step in 0..STEPS {
        let n = random.below(CLIENTS);
        (0..random.below(5)).for_each(|_| pending[n].extend(request(&mut random).into_bytes()));
        let all = pending[n].len();
        let cut = if random.once_in(2) { all } else { random.below(all + 1) };
        let bytes: Vec<u8> = pending[n].drain(..cut).collect();
        let room = random.once_in(3).then(|| random.below(200));
        let pause = random.once_in(6).then(|| Span::from_millis(random.pick(&[1, 500, 1_000, 3_000])));
        let is_end = random.once_in(200);
        let heard = worlds.each_mut().map(|world| {
            room.into_iter().for_each(|room| world.set_room(clients[n], room));
            world.send(clients[n], &bytes);
            world.settle();
            if is_end {
                world.finish(clients[n]);
            }
            pause.into_iter().for_each(|span| world.advance(span));
            world.set_room(clients[n], usize::MAX);
            world.settle();
            let heard = clients.iter().map(|conn| (without_chance(&world.take_received(*conn)), world.is_ended(*conn)));
            heard.collect::<Vec<_>>()
        });
        assert_eq!(heard[0], heard[1], "SIM_SEED={seed}, step {step}: {}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn usual_requests_go_as_all_others() {
    let seed = setting("SIM_SEED", 1);
    (seed..seed + setting("SIM_HISTORIES", 40)).for_each(play);
}
