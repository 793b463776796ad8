//! The purpose of the product in figures: a model of a farm whose most wanted page is edited, without locks, with the C
//! daemon's locks, and with ours. `make farm` prints the table, which benches/README.md shows.

mod modelled;
mod pool_server;
mod processors;
mod servers;
mod tally;

use modelled::Modelled;
use pool_server::{CDaemon, Ours, PoolServer};
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;
use poolcounter_pools::ceiling::{Ceiling, Shedding};
use poolcounter_testkit::original::Original;
use poolcounter_testkit::player::play;
use poolcounter_testkit::protocol::Protocol;
use poolcounter_testkit::script::Script;
use poolcounter_testkit::seeds;
use poolcounter_testkit::sockets::Sockets;
use processors::Processors;
use servers::{Farm, Page, SECOND};
use std::time::Duration;
use tally::{FIGURES, NEVER, Tally};

/// Seed of the table in benches/README.md.
const SEED: u64 = 2_009;
/// Longest time until the C daemon answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Farm with or without a server of locks.
struct Column {
    name: &'static str,
    pool: fn() -> Option<Box<dyn PoolServer>>,
}

const COLUMNS: [Column; 4] = [
    Column { name: "no pool", pool: || None },
    Column { name: "C daemon", pool: || Some(Box::new(CDaemon::default())) },
    Column { name: "poolcounter", pool: || Some(Box::new(Ours::new(settings()))) },
    Column { name: "shedding", pool: || Some(Box::new(Ours::new(shedding()))) },
];

/// Returns settings with a limit of holds that is longer than a rendering.
fn settings() -> PoolsSettings {
    PoolsSettings { max_hold: Span::from_secs(20), ..PoolsSettings::default() }
}

/// Returns such settings with shedding: new requests are refused once the oldest waiter has waited for more than a
/// second during a second.
fn shedding() -> PoolsSettings {
    let second = Span::from_secs(1);
    let shedding = Shedding { after: second, interval: second, is_shadow: false };
    PoolsSettings { ceilings: vec![Ceiling { shedding: Some(shedding), ..Ceiling::new(b"*") }], ..settings() }
}

/// Returns the results of each farm.
fn play_farms(loses_power: bool, seed: u64) -> Vec<Tally> {
    COLUMNS.iter().map(|column| Farm::new((column.pool)(), loses_power, seed).run()).collect()
}

/// Returns the first rows of one half of the table, under its title.
fn rows(count: usize, title: &str, tallies: &[Tally]) -> String {
    let figures: Vec<_> = tallies.iter().map(Tally::figures).collect();
    let row = |n: usize| {
        let cells: Vec<&str> = figures.iter().map(|figures| &*figures[n].1).collect();
        let name = if n == 0 { format!("{title}, {}", figures[0][n].0) } else { figures[0][n].0.into() };
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    (0..count).map(row).collect()
}

#[test]
fn documented_table_is_that_of_the_model() {
    let names = COLUMNS.map(|column| column.name).join(" | ");
    let table = format!(
        "| | {names} |\n{}|\n{}{}",
        "|---".repeat(COLUMNS.len() + 1),
        rows(FIGURES, "**edited**", &play_farms(false, SEED)),
        // The first rows of the second half are enough.
        rows(3, "**and the renderer dies**", &play_farms(true, SEED)),
    );
    println!("{table}");
    assert!(include_str!("../../../benches/README.md").contains(&table), "benches/README.md has other figures");
}

#[test]
fn random_farms_fare_alike() {
    seeds::play("farm", |history| {
        check_edit(&play_farms(false, history.seed));
        check_power_loss(&play_farms(true, history.seed));
    });
}

/// Checks the edit. Without locks every worker renders the page, until the whole farm is busy with it. With locks one
/// worker renders it, and readers of other pages notice nothing.
fn check_edit(tallies: &[Tally]) {
    let [without, original, ours, shedding] = tallies else { panic!("a farm for each column") };
    check_stampede(without);
    assert_eq!(ours.figures(), original.figures(), "as long as nothing fails, ours does what the C daemon does");
    assert!((4 * SECOND..5 * SECOND).contains(&ours.recovery()), "{:?}", ours.figures());
    assert!(ours.needless_renderings() <= 5, "{:?}", ours.figures());
    assert_eq!(ours.failed, 0, "{:?}", ours.figures());
    assert!(ours.p99(Page::Other) < SECOND / 10, "{:?}", ours.figures());
    assert!(shedding.recovery() < 5 * SECOND && shedding.failed == 0, "{:?}", shedding.figures());
    check_shedding(shedding, ours);
}

/// Checks the loss of power. With the C daemon, the lock of a machine without power is never released, and the page
/// stays stale.
fn check_power_loss(tallies: &[Tally]) {
    let [without, original, ours, shedding] = tallies else { panic!("a farm for each column") };
    check_stampede(without);
    assert_eq!(original.recovery(), NEVER, "{:?}", original.figures());
    assert!((20 * SECOND..26 * SECOND).contains(&ours.recovery()), "{:?}", ours.figures());
    assert!(ours.needless_renderings() <= 6, "{:?}", ours.figures());
    assert!(4 * ours.failed < original.failed && 4 * ours.stale < original.stale, "{:?}", ours.figures());
    assert!(ours.p99(Page::Other) < SECOND / 10, "{:?}", ours.figures());
    assert!((20 * SECOND..26 * SECOND).contains(&shedding.recovery()), "{:?}", shedding.figures());
    assert!(4 * shedding.failed < 3 * ours.failed, "{:?}", shedding.figures());
    check_shedding(shedding, ours);
}

/// Checks that fewer workers wait with shedding, and that its only cost is more stale copies.
fn check_shedding(shedding: &Tally, ours: &Tally) {
    assert!(4 * shedding.most_waiting < 3 * ours.most_waiting, "{:?}", shedding.figures());
    assert!(shedding.needless_renderings() <= 6, "{:?}", shedding.figures());
    assert!(shedding.p99(Page::Other) < SECOND / 10, "{:?}", shedding.figures());
}

fn check_stampede(without: &Tally) {
    assert!(without.recovery() > 40 * SECOND, "{:?}", without.figures());
    assert!(without.needless_renderings() > 1_500, "{:?}", without.figures());
    assert!(without.wasted() > 5_000 * SECOND, "{:?}", without.figures());
    assert!(without.failed > 100_000, "{:?}", without.figures());
    assert_eq!(without.p99(Page::Other), NEVER, "{:?}", without.figures());
}

#[test]
fn model_of_the_c_daemon_replies_like_it() {
    let script = Script::parse("tests/protocol/farm/locks.txt", Protocol::Pools, include_str!("locks.txt"))
        .unwrap_or_else(|wrong| panic!("{wrong}"));
    for scenario in &script.scenarios {
        play(&script, scenario, &mut Modelled::default()).unwrap_or_else(|wrong| panic!("the model: {wrong}"));
    }
    let Some(program) = Original::program() else {
        return poolcounter_testkit::skipped("the model of the C daemon against that, which is not installed");
    };
    for scenario in &script.scenarios {
        let original = Original::start(&program);
        let mut sockets =
            Sockets::new(Protocol::Pools, original.address, PATIENCE).of_an_original(Duration::from_millis(0));
        play(&script, scenario, &mut sockets).unwrap_or_else(|wrong| panic!("the C daemon: {wrong}"));
    }
}

#[test]
fn processors_are_shared_equally() {
    let mut processors = Processors::new(SECOND);
    // Twice as many jobs as there are processors run half as fast, and the last alone.
    for job in 1..=2 * processors::PROCESSORS {
        processors.begin(job, job * SECOND, SECOND);
    }
    let mut ends = Vec::new();
    while let Some(end) = processors.next_end() {
        while processors.take_ended(end).is_some() {
            ends.push((end - SECOND) / SECOND);
        }
    }
    assert_eq!(ends[..3], [2, 3, 5]);
    assert_eq!(ends.last(), Some(&40));
}
