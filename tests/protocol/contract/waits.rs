//! Connections that are not served before something else has happened.

use crate::contract::Stage;
use poolcounter_core::time::Span;

#[test]
fn waiting_connection_is_not_read_or_served() {
    let mut stage = Stage::new();
    let (waits, other) = (stage.connect(), stage.connect());
    stage.send(waits, "GET 1\nWAIT 1 60000\nGET 1\nPUT b\n");
    assert_eq!(stage.heard(waits), "NONE\n");
    let serves = stage.store.calls().serves;
    stage.send(waits, "GET 2\n");
    assert_eq!((stage.world.unread(waits), stage.store.calls().serves), (6, serves));
    // The loop sleeps until the timeout of the wait.
    let next = stage.world.next_work().expect("the wait has a timer");
    assert!(next > stage.world.now(), "it spins");
    stage.send(other, "PUT a\nGET 1\n");
    stage.commit();
    assert_eq!(stage.heard(other), "STORED 1 a\nNONE\n");
    assert_eq!(stage.heard(waits), "TEXT 1 a\nTEXT 1 a\n");
    stage.commit();
    assert_eq!(stage.heard(waits), "STORED 2 b\nNONE\n");
    assert_eq!(stage.world.next_work(), None);
    stage.end(2);
}

#[test]
fn seed_repeats_the_end_of_a_wait() {
    let wait = || {
        let mut stage = Stage::new();
        let clients = [stage.connect(), stage.connect(), stage.connect()];
        clients.iter().for_each(|client| stage.send(*client, "WAIT 1 10000\nGET 1\n"));
        stage.world.advance(Span::from_micros(9_999_999));
        clients.iter().for_each(|client| assert_eq!(stage.heard(*client), ""));
        let mut ends = Vec::new();
        while ends.len() < 3 {
            let late = stage.world.next_work().expect("somebody waits").since(stage.world.now());
            stage.world.advance(late);
            let heard = clients.iter().filter(|client| stage.heard(**client) == "LATE\nNONE\n").count();
            ends.extend(vec![stage.world.now(); heard]);
        }
        assert!(stage.world.now().as_micros() <= 15_000_000, "no wait takes half as long again");
        stage.end(3);
        ends
    };
    let ends = wait();
    assert_eq!(ends, wait());
    assert!(ends[0] < ends[2], "jitter spreads them");
}

#[test]
fn service_decides_about_a_half_closed_wait() {
    let mut stage = Stage::new();
    let [goes, stays] = [stage.connect(), stage.connect()];
    stage.send(goes, "WAIT 1 60000\nGET 1\n");
    stage.send(stays, "STAY 1 60000\nGET 1\nWAIT 9 60000\nGET 2\n");
    stage.world.finish(goes);
    stage.world.finish(stays);
    stage.settle();
    assert_eq!(stage.heard(goes), "GONE\nNONE\n");
    assert!(stage.world.is_closed(goes) && !stage.world.is_ended(stays));
    let putter = stage.connect();
    stage.send(putter, "PUT a\n");
    assert_eq!(stage.heard(stays), "");
    stage.commit();
    // The next wait of a half-closed connection ends with GONE, too.
    assert_eq!(stage.heard(stays), "TEXT 1 a\nTEXT 1 a\nGONE\nNONE\n");
    assert!(stage.world.is_closed(stays));
    // Connections that are half-closed when they begin to wait get their pending replies.
    let [goes, stays] = [stage.connect(), stage.connect()];
    for (client, line) in [(goes, "PUT b\nWAIT 3 60000\nGET 1\n"), (stays, "PUT c\nSTAY 3 60000\nGET 3\n")] {
        stage.world.send(client, line.as_bytes());
        stage.world.finish(client);
    }
    stage.settle();
    stage.commit();
    assert_eq!(stage.heard(goes), "STORED 2 b\nGONE\nTEXT 1 a\n");
    assert_eq!(stage.heard(stays), "STORED 3 c\nTEXT 3 c\nTEXT 3 c\n");
    assert!(stage.world.is_closed(goes) && stage.world.is_closed(stays));
    stage.end(5);
}

#[test]
fn reset_ends_a_wait_at_once() {
    let mut stage = Stage::new();
    let clients = [stage.connect(), stage.connect()];
    stage.send(clients[0], "WAIT 1 60000\nGET 1\n");
    stage.send(clients[1], "PUT a\nSTAY 2 60000\nGET 1\n");
    for client in clients {
        stage.world.reset(client);
    }
    stage.settle();
    assert!(clients.iter().all(|client| stage.world.is_closed(*client)));
    assert_eq!(stage.world.next_work(), None, "their timers are gone");
    // Other clients have their numbers when the commit is done and the time is over.
    let others = [stage.connect(), stage.connect()];
    others.iter().for_each(|client| stage.send(*client, "WAIT 2 100000\n"));
    stage.commit();
    stage.world.advance(Span::from_secs(95));
    others.iter().for_each(|client| assert_eq!(stage.heard(*client), ""));
    stage.world.advance(Span::from_secs(60));
    others.iter().for_each(|client| assert_eq!(stage.heard(*client), "LATE\n"));
    stage.end(4);
}

/// A commit, a timeout and a reset, all within one tick.
#[test]
fn wait_ends_once() {
    let mut stage = Stage::new();
    let (waits, putter) = (stage.connect(), stage.connect());
    for reset in [false, true] {
        stage.send(waits, &format!("WAIT {} 1\nPUT x\nGET 1\n", u64::from(reset) * 2 + 1));
        stage.send(putter, "PUT a\n");
        stage.store.commit_one();
        if reset {
            stage.world.reset(waits);
        }
        stage.world.advance(Span::from_secs(1));
        if !reset {
            assert_eq!(stage.heard(waits), "TEXT 1 a\n");
            stage.commit();
            assert_eq!(stage.heard(waits), "STORED 2 x\nTEXT 1 a\n");
        }
    }
    assert!(stage.world.is_closed(waits));
    stage.end(2);
}

/// The last phase that calls a service is the flush: a connection is found to be gone when it is written to.
#[test]
fn late_end_of_a_wait_resumes_next_tick() {
    let mut stage = Stage::new();
    let [quits, watches] = [stage.connect(), stage.connect()];
    stage.send(quits, "PUT a\nQUIT\n");
    stage.send(watches, "WAIT 0 60000\nGET 1\n");
    stage.commit();
    assert_eq!(stage.heard(watches), "LEFT\nTEXT 1 a\n");
    let [floods, watches] = [stage.connect(), stage.connect()];
    stage.send(watches, "WAIT 0 60000\nGET 1\n");
    stage.send(floods, "FILL 1000000\n");
    assert_eq!(stage.heard(watches), "LEFT\nTEXT 1 a\n");
    stage.end(4);
}
