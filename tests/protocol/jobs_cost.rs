//! The cost of a job must not depend on the number of tubes, runners and jobs; and however many jobs of one wiki flood
//! the queue, the others have their turns. The tests measure processor time, of rounds that take turns: other load
//! slows all of them alike, if at all.

use nix::time::{ClockId, clock_gettime};
use poolcounter_core::meter;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Bounds, TubeName, Watchers};
use poolcounter_testkit::jobs::Service;
use std::collections::BTreeSet;
use std::time::Duration;

const CYCLES: usize = 1_000;
const ROUNDS: usize = 12;
/// Bound of the cost of a cycle among many tubes, whose memory is in no cache, as a multiple: three is usual. Work that
/// grew with the tubes would cost thousands of times more, and work that grew with the sets of watches or the runners
/// hundreds of times.
const MOST: u32 = 5;

/// Returns the processor time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has a clock").into()
}

/// A service with this number of tubes of some jobs each.
struct Stage {
    service: Service,
    tubes: usize,
    /// Number of the last job.
    last: usize,
}

impl Stage {
    /// Returns a service in which `runners` runners wait, with five different sets of watches.
    fn new(tubes: usize, runners: usize, jobs: usize) -> Stage {
        let mut service = Service::without_store(Bounds::default());
        let sets = ["*/u", "w1/u", "*/u 2", "x/*", "*/*/*"];
        for runner in 0..runners {
            let lines = format!("watch {}\r\nignore default\r\nreserve\r\n", sets[runner % 5]);
            service.send(10 + runner, lines.as_bytes());
            service.output(10 + runner);
        }
        for tube in 0..tubes {
            let one = format!("put-job 9 0 99 1 tube=w{tube}/t\r\na\r\n");
            service.send(1, one.repeat(jobs).as_bytes());
        }
        service.send(2, b"watch */*\r\nignore default\r\nreserve-with-timeout 1\r\n");
        service.pass(Span::from_secs(2));
        service.close(2);
        service.send(2, b"watch */*\r\nignore default\r\n");
        service.output(1);
        service.output(2);
        Stage { service, tubes, last: tubes * jobs }
    }

    /// Returns the time to put, reserve and delete `CYCLES` jobs, in tubes all over.
    fn cycles(&mut self) -> Duration {
        let Stage { service, tubes, last } = self;
        let start = cpu_time();
        for n in 0..CYCLES {
            let tube = n * 7_919 % *tubes;
            service.send(1, format!("put-job 1 0 99 1 tube=w{tube}/t\r\na\r\n").as_bytes());
            service.send(2, b"reserve\r\n");
            *last += 1;
            service.send(2, format!("delete {last}\r\n").as_bytes());
            service.output(1);
            let told = service.output(2);
            assert!(told.starts_with(format!("RESERVED {last} ").as_bytes()), "{}", told.escape_ascii());
        }
        cpu_time() - start
    }
}

#[test]
fn nothing_grows_with_tubes_runners_or_jobs() {
    let (mut small, mut large) = (Stage::new(2, 1, 2), Stage::new(20_000, 1_000, 5));
    let rounds: Vec<[Duration; 2]> = (0..ROUNDS).map(|_| [small.cycles(), large.cycles()]).collect();
    let [least, most] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).min().expect("there are some"));
    let per_job = |time: Duration| time.as_nanos() / CYCLES as u128;
    println!("a put, a reserve and a delete: {} ns with 2 tubes, {} ns with 20,000", per_job(least), per_job(most));
    assert!(most < MOST * least, "2 tubes: {least:?}, 20,000 tubes: {most:?}");
}

/// One wiki has a million jobs, 699 have one each, and there are 100 runners: the last of the others is reserved within
/// one turn of all.
#[test]
fn a_flood_of_one_wiki_holds_no_other_up() {
    const FLOOD: usize = 1_000_000;
    const OTHERS: usize = 699;
    const RUNNERS: usize = 100;
    let mut service = Service::without_store(Bounds::default());
    let put = |service: &mut Service, tube: &str, count: usize| {
        let one = format!("put-job 9 0 600 1 tube={tube}\r\na\r\n");
        service.send(1, one.repeat(count).as_bytes());
        service.output(1);
    };
    for _ in 0..FLOOD / 20 {
        put(&mut service, "flood/t", 20);
    }
    for wiki in 0..OTHERS {
        put(&mut service, &format!("w{wiki}/t"), 1);
    }
    for runner in 0..RUNNERS {
        service.send(10 + runner, b"watch */*\r\nignore default\r\n");
        service.output(10 + runner);
    }
    let mut others = BTreeSet::new();
    for turn in 0..=OTHERS {
        let runner = 10 + turn % RUNNERS;
        service.send(runner, b"reserve\r\n");
        let reply = service.next(runner).expect("there are jobs");
        let id: usize = reply.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number");
        others.extend(Some(id).filter(|id| *id > FLOOD));
    }
    assert_eq!(others.len(), OTHERS, "one turn of all serves each of them");
}

/// Number of entries that a request may look at, besides those that it names.
const FEW_VISITS: u64 = 16;

/// Sends a request, and returns the number of entries that it has looked at.
fn visits(service: &mut Service, conn: usize, line: &str) -> u64 {
    meter::begin_step();
    service.send(conn, line.as_bytes());
    meter::begin_step()
}

/// Sends a request, and returns the reply, which must come at once after a look at few entries.
fn ask(service: &mut Service, conn: usize, line: &str) -> String {
    let visits = visits(service, conn, line);
    assert!(visits <= FEW_VISITS, "{} looks at {visits} entries", line.escape_debug());
    service.next(conn).unwrap_or_else(|| panic!("{} is answered at once", line.escape_debug()))
}

/// Reserves a job and deletes it.
fn work(service: &mut Service, conn: usize) -> String {
    let reply = ask(service, conn, "reserve-with-timeout 0\r\n");
    let id = reply.split(' ').nth(1).unwrap_or_else(|| panic!("{reply}")).to_string();
    assert_eq!(ask(service, conn, &format!("delete {id}\r\n")), "DELETED");
    id
}

/// A runner that watches very many tubes by their names finds its next job among the tubes with jobs, in order.
#[test]
fn a_reserve_costs_the_same_for_a_thousand_watched_tubes() {
    const TUBES: usize = 1_000;
    let mut service = Service::without_store(Bounds::default());
    (0..TUBES).for_each(|tube| service.send(2, format!("watch t{tube}\r\n").as_bytes()));
    service.output(2);
    for round in 0..10 {
        let visits = visits(&mut service, 2, "reserve\r\n");
        assert!(visits <= FEW_VISITS || round == 0, "a runner that waits again looks at {visits} entries");
        ask(&mut service, 1, &format!("put-job 1 0 60 1 tube=t{}\r\na\r\n", 100 * round));
        assert_eq!(service.next(2), Some(format!("RESERVED {} 1 a", round + 1)));
        service.state.check();
    }
    for tubes in [1, 10, TUBES] {
        service.put_many(0..30 + tubes, |job| format!("put-job {} 0 60 1 tube=t{}\r\na\r\n", job % 3, job % tubes));
        let ids: Vec<usize> = (0..30).map(|_| work(&mut service, 2).parse().expect("a number")).collect();
        assert!(ids[..10].is_sorted(), "the first priority comes in the order of puts: {ids:?}");
        service.state.check();
    }
}

/// Tubes that a limit of all of them together holds back cost no more than a step may, whatever is asked for.
#[test]
fn a_thousand_watched_tubes_behind_a_limit_cost_little() {
    const TUBES: usize = 1_000;
    let mut service = Service::without_store(Bounds::default());
    (0..TUBES).for_each(|tube| service.send(2, format!("watch t/{tube}\r\n").as_bytes()));
    service.output(2);
    service.put_many(0..TUBES, |job| format!("put-job 1 0 60 1 tube=t/{job}\r\na\r\n"));
    service.send(1, b"limit t/* 1 all\r\n");
    service.send(2, b"reserve-with-timeout 0\r\n");
    assert_eq!(service.next(2), Some("RESERVED 1 1 a".into()));
    service.put_many(0..900, |_| "put-job 1 0 60 1 tube=t/0 root=r root-ts=1785585600\r\na\r\n".into());
    service.send(1, b"root t/0 r 1785585601\r\n");
    for request in ["reserve-many 500 0\r\n", "reserve-with-timeout 0\r\n"] {
        let visits = visits(&mut service, 2, request);
        assert!(visits <= meter::MOST_IN_A_STEP, "{request:?} looks at {visits} entries");
    }
    service.state.check();
}

/// Each runner watches a shared tube and one of its own, so there is one set of watches for each runner.
#[test]
fn a_job_costs_the_same_for_one_set_of_watches_and_for_very_many() {
    const SETS: usize = 10_000;
    for pattern in ["common", "*/common"] {
        let mut service = Service::without_store(Bounds::default());
        for runner in 0..SETS {
            let lines = format!("watch {pattern}\r\nwatch own/{runner}\r\nignore default\r\nreserve\r\n");
            assert!(visits(&mut service, 10 + runner, &lines) <= 2 * FEW_VISITS, "a new set costs its watches");
        }
        let tube = pattern.replace('*', "a");
        for runner in 0..20 {
            let put = format!("put-job 1 0 60 1 tube={tube}\r\na\r\n");
            assert_eq!(ask(&mut service, 1, &put), format!("INSERTED {}", runner + 1));
            let told = service.output(10 + runner);
            assert!(told.windows(8).any(|word| word == b"RESERVED"), "{runner} has waited longest");
        }
        for runner in [9_000, 5_000] {
            let put = format!("put-job 1 0 60 1 tube=own/{runner}\r\na\r\n");
            ask(&mut service, 1, &put);
            assert!(service.output(10 + runner).windows(8).any(|word| word == b"RESERVED"), "it is its own");
        }
        for runner in 0..SETS {
            meter::begin_step();
            service.close(10 + runner);
            assert!(meter::begin_step() <= 2 * FEW_VISITS + 22, "a set that is left costs its watches");
        }
    }
}

#[test]
fn a_job_costs_the_same_among_very_many_groups() {
    const GROUPS: usize = 100_000;
    let mut service = Service::without_store(Bounds::default());
    service.put_many(0..GROUPS, |job| format!("put-job 1 0 60 1 group=g{job} tube=q/t\r\na\r\n"));
    service.put_many(0..64, |_| "put-job 1 0 60 1 tube=q/u\r\na\r\n".into());
    assert_eq!(ask(&mut service, 1, "use q/t\r\n"), "USING q/t");
    for settings in ["limit q/t 0", "limit q/t 1 each", "limit q/* 1 all", "limit q/* 0\r\nlimit group:* 1"] {
        service.send(1, format!("{settings}\r\n").as_bytes());
        (0..200).for_each(|_| service.tick());
        service.output(1);
        for (conn, pattern) in [(2, "q/*"), (3, "q/t")] {
            service.send(conn, format!("watch {pattern}\r\nignore default\r\nreserve-with-timeout 0\r\n").as_bytes());
            (0..9).for_each(|_| service.tick());
            let told = service.ask(conn, "");
            let id = told.rsplit("RESERVED ").next().and_then(|rest| rest.split(' ').next()).expect("a job");
            assert_eq!(ask(&mut service, conn, &format!("release {id} 1 0\r\n")), "RELEASED");
            (0..20).for_each(|_| drop(work(&mut service, conn)));
        }
        assert!(ask(&mut service, 1, "peek-ready\r\n").starts_with("FOUND "));
    }
}

/// Sets with a pattern share their data about its tubes.
#[test]
fn sets_over_very_many_tubes_are_small() {
    const TUBES: usize = 100_000;
    let mut service = Service::without_store(Bounds::default());
    service.put_many(0..TUBES, |tube| format!("put-job 1 0 60 1 tube=w{tube}/t\r\na\r\n"));
    let before = service.state.used_memory();
    for weight in 1..=60 {
        let lines = format!("watch */* {weight}\r\nignore default\r\nreserve-with-timeout 0\r\n");
        service.send(1 + weight, lines.as_bytes());
        while service.state.is_waiting(poolcounter_core::id::Id::from_index(1 + weight)) {
            meter::begin_step();
            service.tick();
            assert!(meter::begin_step() <= meter::MOST_IN_A_STEP, "it is built in slices");
        }
        service.output(1 + weight);
        (0..5).for_each(|_| drop(work(&mut service, 1 + weight)));
    }
    let taken = service.state.used_memory() - before;
    assert!(taken < 50 * TUBES, "{taken} bytes");
    (1..=60).for_each(|weight| service.close(1 + weight));
    for weight in 1..=20 {
        service.send(2, format!("watch a/* {weight}\r\nignore default\r\nreserve-with-timeout 0\r\n").as_bytes());
        (0..150).for_each(|_| service.tick());
        service.output(2);
    }
    service.close(2);
    // The times of 300 jobs that were reserved stay with their tubes.
    assert!(service.state.used_memory() < before + 300 * 500, "what they took is free again");
}

/// A limit of very many tubes together, and one of a group that is in all of them.
#[test]
fn limits_of_very_many_tubes_cost_little() {
    const TUBES: usize = 20_000;
    const RUNNERS: usize = 2_000;
    for limit in ["*/t 1 all", "group:g 1"] {
        let mut service = Service::without_store(Bounds::default());
        service.put_many(0..TUBES, |tube| format!("put-job 1 0 600 1 group=g tube=w{tube}/t\r\na\r\n"));
        service.send(1, format!("limit {limit}\r\n").as_bytes());
        (0..50).for_each(|_| service.tick());
        service.output(1);
        service.send(2, b"watch */*\r\nignore default\r\nreserve-with-timeout 0\r\n");
        (0..50).for_each(|_| service.tick());
        let told = service.ask(2, "");
        let mut id =
            told.rsplit("RESERVED ").next().and_then(|rest| rest.split(' ').next()).expect("a job").to_string();
        for runner in 0..RUNNERS {
            // The job of the first tube is reserved.
            let tube = runner + 1;
            service.send(10 + runner, format!("watch w{tube}/t\r\nignore default\r\nreserve\r\n").as_bytes());
            service.output(10 + runner);
        }
        // Each is served when the one before it has done its job.
        for runner in 0..RUNNERS {
            let conn = if runner == 0 { 2 } else { 9 + runner };
            assert!(visits(&mut service, conn, &format!("delete {id}\r\n")) <= meter::MOST_IN_A_STEP);
            let mut told = service.next(10 + runner);
            for _ in 0..100 {
                if told.is_some() {
                    break;
                }
                meter::begin_step();
                service.tick();
                assert!(meter::begin_step() <= meter::MOST_IN_A_STEP, "it goes on in slices");
                told = service.next(10 + runner);
            }
            let told = told.unwrap_or_else(|| panic!("{runner} waits longest"));
            id = told.split(' ').nth(1).expect("a number").to_string();
        }
    }
}

/// Patterns of one client cost the others little, however many arrangements of `*` a name has.
#[test]
fn a_tube_of_many_parts_is_looked_up_for_few_patterns() {
    let mut service = Service::without_store(Bounds::default());
    let arrangement = |bits: usize| {
        let parts: Vec<&str> = (0..16).map(|place| if bits >> place & 1 == 1 { "*" } else { "a" }).collect();
        parts.join("/")
    };
    for command in ["watch {}", "limit {} 9", "retry {} 5 1 1 1", "dead-letter {} dead", "pause-all {} 1"] {
        let mut told = BTreeSet::new();
        for bits in (1..1 << 16).step_by(if command.starts_with("watch") { 1 } else { 7 }) {
            let conn = 10 + bits / 500;
            service.send(conn, format!("{}\r\n", command.replace("{}", &arrangement(bits))).as_bytes());
            told.extend(service.next(conn).and_then(|reply| Some(reply.split(' ').next()?.to_string())));
        }
        assert!(told.len() > 1 && told.contains("OUT_OF_MEMORY"), "{command}: {told:?}");
    }
    service.pass(Span::from_secs(2));
    (10..150).for_each(|conn| service.send(conn, b"reserve-with-timeout 0\r\n"));
    let put = format!("put-job 1 0 60 1 tube={}\r\na\r\n", arrangement(0));
    let visits = visits(&mut service, 1, &put);
    assert!(visits <= 10 * 32, "{visits}");
    assert_eq!(service.next(1), Some("INSERTED 1".into()));
    // Five parts have no more arrangements than there is room for.
    service.send(1, b"watch */b/*/d/*\r\nwatch */*/*/*/*\r\n");
    assert_eq!([service.next(1), service.next(1)].map(Option::unwrap), ["WATCHING 2", "WATCHING 3"]);
    service.state.check();
}

/// Watchers of a tube are counted in slices.
#[test]
fn stats_of_a_tube_come_in_slices() {
    const SETS: usize = 20_000;
    let mut service = Service::without_store(Bounds::default());
    for n in 0..SETS {
        let wait = if n % 2 == 0 { "reserve\r\n" } else { "" };
        let common = if n % 4 < 2 { "*/common" } else { "a/common\r\nwatch a/*" };
        service.send(10 + n, format!("watch {common}\r\nwatch own/{n}\r\nignore default\r\n{wait}").as_bytes());
        service.output(10 + n);
    }
    service.send(1, b"use a/common\r\n");
    let tube = TubeName::parse(b"a/common").expect("is a name");
    let (mut watchers, mut next, mut slices) = (Watchers::new(tube), Some(0), 0);
    while let Some(first) = next {
        meter::begin_step();
        next = service.state.count_watchers(&mut watchers, first, 1_024);
        let visits = meter::begin_step();
        assert!(visits <= meter::MOST_IN_A_STEP, "{visits}");
        slices += 1;
    }
    assert!(slices > SETS / 1_024, "{slices}");
    let (_, stats) = service.state.tube_stats(&watchers, service.now).expect("it is in use");
    assert_eq!(stats[7..9], [("current-watching", SETS as u64), ("current-waiting", SETS as u64 / 2)]);
}

/// A runner holds very many jobs with one key and releases them, the last first: a put, and what moves such a job, costs
/// the same as with few. The leaf of a newer root job drops some of the superseded ones at once, and is put in any case.
#[test]
fn a_put_costs_the_same_for_one_job_with_its_key_and_for_very_many() {
    const JOBS: usize = 10_000;
    let mut service = Service::without_store(Bounds::default());
    let put = "put-job 1 0 600 1 key=k root=r root-ts=1\r\na\r\n";
    for id in 1..=JOBS {
        assert_eq!(ask(&mut service, 1, put), format!("INSERTED {id}"));
        assert_eq!(ask(&mut service, 1, "reserve\r\n"), format!("RESERVED {id} 1 a"));
    }
    for id in (1..=JOBS).rev() {
        assert_eq!(ask(&mut service, 1, &format!("release {id} 1 0\r\n")), "RELEASED");
    }
    service.state.check();
    assert_eq!(ask(&mut service, 1, put), "DUPLICATE 1");
    for id in [2, 1] {
        assert_eq!(ask(&mut service, 1, &format!("delete {id}\r\n")), "DELETED");
    }
    assert_eq!(ask(&mut service, 1, put), "DUPLICATE 3", "the lowest is told");
    let newer = "put-job 1 0 600 1 key=k root=r root-ts=2\r\nb\r\n";
    let looked_at = visits(&mut service, 2, newer);
    assert!(looked_at <= 64 + FEW_VISITS, "{looked_at} entries");
    assert_eq!(service.next(2), Some(format!("INSERTED {}", JOBS + 1)));
    let dropped = |service: &mut Service| {
        service.send(2, b"summary tube\r\n");
        let told = service.next(2).expect("it is answered");
        let count = |line: &str| line.trim().strip_prefix("superseded: ").map(|count| count.parse().expect("a number"));
        told.lines().find_map(count).unwrap_or(0)
    };
    assert_eq!(dropped(&mut service), 64);
    // All puts of a request together drop a bounded number, and at least one each.
    let many = format!("put-many 500\r\n{}", newer.repeat(500));
    let looked_at = visits(&mut service, 2, &many);
    assert!(looked_at <= meter::MOST_IN_A_STEP, "{looked_at} entries");
    let told: Vec<String> = std::iter::from_fn(|| service.next(2)).collect();
    assert!(told.len() == 500 && told.iter().all(|one| one.starts_with("INSERTED ")), "{:?}", told.last());
    let all = dropped(&mut service);
    assert!((64 + 1_024..=64 + 1_024 + 500).contains(&all), "{all}");
    service.state.check();
    // The rest is dropped when it would be reserved, and only then the live ones are left to refuse another.
    service.send(3, b"reserve-with-timeout 5\r\n");
    service.pass(Span::from_secs(1));
    assert_eq!(service.next(3), Some(format!("RESERVED {} 1 b", JOBS + 1)));
    assert_eq!(ask(&mut service, 2, newer), format!("DUPLICATE {}", JOBS + 2));
    service.state.check();
}

/// A slice of `stats-tube` takes the same time for each entry that it counts, whatever is watched.
#[test]
fn stats_of_a_tube_count_each_look_up() {
    const CONNS: usize = 1_024;
    let stage = |patterns: usize, watches: usize| {
        let mut service = Service::without_store(Bounds::default());
        for bits in 1..=patterns {
            let parts = [0, 1, 2, 3, 4].map(|place| if bits >> place & 1 == 1 { "*" } else { "a" });
            service.send(2, format!("watch {}\r\n", parts.join("/")).as_bytes());
        }
        service.send(2, b"reserve-with-timeout 0\r\n");
        let shared: String = (0..watches).map(|tube| format!("watch t{tube}\r\n")).collect();
        for conn in 0..CONNS {
            let own = format!("{shared}watch own/{conn}\r\nreserve-with-timeout 0\r\n");
            service.send(10 + conn, own.as_bytes());
        }
        service
    };
    let cost = |service: &mut Service| {
        let tube = TubeName::parse(b"a/a/a/a/a").expect("is a name");
        let (mut watchers, mut next, before) = (Watchers::new(tube), Some(0), service.state.visited);
        let begun = cpu_time();
        while let Some(first) = next {
            meter::begin_step();
            next = service.state.count_watchers(&mut watchers, first, 1_024);
        }
        (cpu_time() - begun).as_secs_f64() / (service.state.visited - before) as f64
    };
    let (mut few, mut many) = (stage(1, 1), stage(31, 15));
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [cost(&mut few), cost(&mut many)]).collect();
    let [few, many] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).fold(f64::MAX, f64::min));
    assert!(many < f64::from(MOST) * few, "an entry: {few:e} s, with 31 patterns {many:e} s");
}
