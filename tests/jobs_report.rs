//! What the jobs tell operators on the pages of metrics and status: wikis, types, tubes and runners.

mod support;

use poolcounter::jobs::JobsSettings;
use poolcounter::registry::AllSettings;
use poolcounter::time::Span;
use std::time::{Duration, Instant};
use support::world::World;

fn ask(world: &mut World, client: usize, lines: &str) -> String {
    world.send(client, lines.replace('|', "\r\n").as_bytes());
    world.settle();
    String::from_utf8(world.take_received(client)).expect("is text").replace("\r\n", "|")
}

fn fetch(world: &mut World, path: &str) -> String {
    fetch_with(world, path, World::settle)
}

/// Has everything done without comparing every table with every other after it, which takes long with many tubes.
fn settle(world: &mut World) {
    (0..8).for_each(|_| world.tick_unchecked());
}

fn fetch_with(world: &mut World, path: &str, settle: fn(&mut World)) -> String {
    let client = world.connect_to("http");
    world.send(client, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    settle(world);
    let page = String::from_utf8(world.take_received(client)).expect("is text");
    world.reset(client);
    settle(world);
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    page
}

fn new_world() -> World {
    World::with(AllSettings::default().with(JobsSettings { admin: true, ..JobsSettings::default() }))
}

#[test]
fn wikis_types_tubes_and_runners_are_told() {
    let mut world = new_world();
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    for (tube, options, count) in [("enwiki/mail", "", 3), ("dewiki/mail", "", 2), ("dewiki/links", " key=k", 4)] {
        for _ in 0..count {
            ask(&mut world, producer, &format!("put-job 5 0 60 1 tube={tube}{options}|a|"));
        }
    }
    ask(
        &mut world,
        producer,
        "put-job 5 60 60 1 tube=enwiki/mail|a|put-job 5 0 60 1 tube=dewiki/links root=S root-ts=2|a|",
    );
    ask(&mut world, producer, "put-job 5 0 60 1 tube=dewiki/links root=S root-ts=1|a|");
    world.advance(Span::from_secs(3));
    ask(
        &mut world,
        runner,
        "identify host-1|watch */mail|ignore default|reserve|reserve|bury 1 0|bury 4 0|reserve|delete 2|",
    );
    world.advance(Span::from_secs(7));
    let page = fetch(&mut world, "/metrics");
    for line in [
        "poolcounter_jobs_wiki_ready{wiki=\"enwiki\"} 1",
        "poolcounter_jobs_wiki_ready{wiki=\"dewiki\"} 3",
        "poolcounter_jobs_wiki_delayed{wiki=\"enwiki\"} 1",
        "poolcounter_jobs_type_ready{type=\"mail\"} 2",
        "poolcounter_jobs_type_ready{type=\"links\"} 2",
        "poolcounter_jobs_type_buried{type=\"mail\"} 2",
        "poolcounter_jobs_type_put_total{type=\"mail\"} 6",
        "poolcounter_jobs_type_reserves_total{type=\"mail\"} 3",
        "poolcounter_jobs_type_deletes_total{type=\"mail\"} 1",
        "poolcounter_jobs_type_duplicates_total{type=\"links\"} 3",
        "poolcounter_jobs_type_superseded_total{type=\"links\"} 1",
        "poolcounter_jobs_type_oldest_ready_seconds{type=\"mail\"} 10",
        "poolcounter_jobs_oldest_ready_seconds 10",
        "poolcounter_jobs_type_pickup_seconds_count{type=\"mail\"} 3",
        "poolcounter_jobs_type_pickup_seconds_sum{type=\"mail\"} 9",
        "poolcounter_jobs_tube_ready{tube=\"dewiki/links\"} 2",
        "poolcounter_jobs_tube_oldest_ready_seconds{tube=\"enwiki/mail\"} 10",
        "poolcounter_jobs_runner_connections{runner=\"host-1\"} 1",
        "poolcounter_jobs_runner_reserved{runner=\"host-1\"} 0",
        "poolcounter_jobs_store_uncommitted 0",
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
    let status = fetch(&mut world, "/status.json");
    for piece in
        ["\"wikis\":[{\"name\":\"dewiki\",\"ready\":3,", "\"runners\":[{\"name\":\"host-1\",\"connections\":1,"]
    {
        assert!(status.contains(piece), "{piece} is not in {status}");
    }
    // The same after an upgrade, and still when the tubes are none any more.
    ask(&mut world, producer, "clear */*|");
    world.upgrade();
    world.settle();
    let page = fetch(&mut world, "/metrics");
    for line in [
        "poolcounter_jobs_type_put_total{type=\"mail\"} 6",
        "poolcounter_jobs_type_ready{type=\"mail\"} 0",
        "poolcounter_jobs_type_superseded_total{type=\"links\"} 1",
        "poolcounter_jobs_type_pickup_seconds_count{type=\"mail\"} 3",
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
}

/// With 20,000 tubes a page is no longer than there is room for, and takes no longer to make than others can wait.
#[test]
fn a_page_about_many_tubes_has_a_bound() {
    const TUBES: usize = 20_000;
    let mut world = new_world();
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    let ask = |world: &mut World, client: usize, lines: &str| {
        world.send(client, lines.replace('|', "\r\n").as_bytes());
        settle(world);
    };
    for first in (0..TUBES).step_by(100) {
        let put = |tube: usize| format!("put-job 5 0 60 1 tube=w{}/t{}|a|", tube / 25, tube % 25);
        ask(&mut world, producer, &(first..first + 100).map(put).collect::<String>());
    }
    // A set of watches covers so many tubes slice by slice.
    world.send(runner, b"watch */*\r\nreserve-many 1000 0\r\n");
    (0..500).for_each(|_| world.tick_unchecked_after(Span::from_millis(2)));
    for path in ["/metrics", "/status.json", "/"] {
        let least = (0..5).map(|_| {
            let start = Instant::now();
            let page = fetch_with(&mut world, path, settle);
            assert!(page.len() < 2 << 20, "{path} has {} bytes", page.len());
            start.elapsed()
        });
        let least = least.min().expect("there are some");
        println!("{path} with {TUBES} tubes: {least:?}");
        // Some ten milliseconds; more is what a busy machine may add.
        assert!(least < Duration::from_millis(500), "{path} takes {least:?}");
    }
    let page = fetch_with(&mut world, "/metrics", settle);
    let ready = page.lines().filter_map(|line| line.strip_prefix("poolcounter_jobs_type_ready{")?.split(' ').nth(1));
    let ready: u64 = ready.map(|count| count.parse::<u64>().expect("a number")).sum();
    assert_eq!(ready, TUBES as u64 - 1_000, "counts are of all");
}
