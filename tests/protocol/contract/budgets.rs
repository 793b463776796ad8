//! A crowd takes several ticks, and nothing of it is lost.

use crate::contract::Stage;
use poolcounter_core::time::Span;
use poolcounter_service::loop_stats::Budget;

const CROWD: usize = 10_000;

fn crowd(stage: &mut Stage, text: &str) -> Vec<usize> {
    let clients: Vec<usize> = (0..CROWD).map(|_| stage.connect()).collect();
    clients.iter().for_each(|client| stage.world.send(*client, text.as_bytes()));
    stage.settle();
    clients
}

/// Runs ticks until the loop would sleep. Returns their number, and how often each budget was spent.
fn ticks(stage: &mut Stage) -> (usize, [u64; 3]) {
    let spent = |stage: &mut Stage| {
        [Budget::Timers, Budget::Writes, Budget::Ends].map(|budget| stage.world.pulse().spent(budget))
    };
    let (before, mut ticks) = (spent(stage), 0);
    loop {
        stage.world.tick();
        ticks += 1;
        if stage.is_asleep() {
            let after = spent(stage);
            return (ticks, [0, 1, 2].map(|n| after[n] - before[n]));
        }
    }
}

#[test]
fn timers_of_two_kinds_that_are_due_together() {
    let mut stage = Stage::new();
    let client = stage.connect();
    for _ in 0..CROWD / 500 {
        stage.send(client, &"LATER 1000 x\n".repeat(500));
    }
    let waits = crowd(&mut stage, "WAIT 100000 100\nGET 1\n");
    // The time is past the end of all waits, with the loop asleep until now.
    stage.world.upgrade_within(Span::from_secs(2));
    let (ticks, [timers, writes, _]) = ticks(&mut stage);
    assert!((5..1_000).contains(&ticks), "{ticks} ticks");
    assert_eq!(timers, 19, "20,000 timers, 1024 in a tick");
    assert!(writes >= 39, "10,000 replies, 256 in a tick");
    stage.store.commit_all();
    stage.settle();
    assert_eq!(stage.store.texts().len(), CROWD);
    for client in waits {
        assert_eq!(stage.heard(client), "LATE\nNONE\n");
    }
    stage.end(CROWD + 1);
}

#[test]
fn replies_that_one_commit_lets_go() {
    let mut stage = Stage::new();
    let clients = crowd(&mut stage, "PUT x\nGET 1\n");
    while stage.store.queued() > 1 {
        stage.store.commit_one();
    }
    stage.store.commit_all();
    let (ticks, [_, writes, _]) = ticks(&mut stage);
    assert!((40..50).contains(&ticks) && writes == 39, "{ticks} ticks, {writes} of them full");
    for client in clients {
        let heard = stage.heard(client);
        assert!(heard.starts_with("STORED ") && heard.ends_with("x\nNONE\n"), "{heard:?}");
    }
    stage.end(CROWD);
}

/// The numbers of closed connections are used again at once, while other connections still wait for their end.
#[test]
fn ends_that_come_together() {
    let mut stage = Stage::new();
    let clients = crowd(&mut stage, "PUT x\nWAIT 1 1000000\n");
    stage.store.commit_all();
    stage.settle();
    for (n, client) in clients.iter().enumerate() {
        if n % 3 == 0 {
            stage.world.reset(*client);
        } else {
            stage.world.send(*client, b"PUT y\nQUIT\n");
            stage.world.finish(*client);
        }
    }
    stage.world.tick();
    stage.store.commit_all();
    let mut newcomers = Vec::new();
    while !stage.is_asleep() {
        stage.world.tick();
        newcomers.extend((0..10).map(|_| stage.connect()));
    }
    assert!(newcomers.len() >= 100, "{} ticks", newcomers.len() / 10);
    assert!(stage.world.pulse().spent(Budget::Ends) >= 9);
    assert!(clients.iter().all(|client| stage.world.is_closed(*client)));
    assert_eq!(clients.iter().filter(|client| stage.heard(**client).ends_with(" y\nBYE\n")).count(), CROWD * 2 / 3);
    for client in &newcomers {
        assert!(!stage.world.is_ended(*client), "{client} was taken for one that is gone");
        stage.send(*client, "GET 1\n");
        assert_eq!(stage.heard(*client), "TEXT 1 x\n");
    }
    stage.end(CROWD + newcomers.len());
}
