//! Another process takes over while the store is at work and connections wait.

use crate::contract::Stage;
use poolcounter_core::time::Span;

#[test]
fn upgrade_waits_for_the_commit_and_serves_nothing() {
    let mut stage = Stage::new();
    let [puts, quits, asks] = [stage.connect(), stage.connect(), stage.connect()];
    stage.send(puts, "PUT a\nGET 1\n");
    stage.world.send(quits, b"PUT b\nQUIT\n");
    stage.world.set_room(quits, 4);
    stage.settle();
    stage.world.pause(true);
    assert!(!stage.world.is_quiet());
    stage.send(asks, "GET 1\n");
    stage.send(puts, "PUT c\n");
    assert_eq!((stage.heard(asks), stage.store.queued()), (String::new(), 2));
    stage.commit();
    assert!(!stage.world.is_quiet());
    stage.commit();
    assert!(stage.world.is_quiet());
    assert_eq!((stage.heard(puts), stage.heard(asks)), ("STORED 1 a\nNONE\n".into(), String::new()));
    stage.world.upgrade();
    stage.settle();
    assert_eq!(stage.heard(asks), "TEXT 1 a\n");
    stage.commit();
    assert_eq!(stage.heard(puts), "STORED 3 c\n");
    // A connection that quits is closed in the new process, too, as soon as it has read.
    stage.world.send(quits, b"GET 1\n");
    stage.world.set_room(quits, 1_000);
    stage.settle();
    assert_eq!(stage.heard(quits), "STORED 2 b\nBYE\n");
    assert!(stage.world.is_ended(quits));
    stage.end(3);
}

#[test]
fn upgrade_that_is_given_up_leaves_no_trace() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.send(client, "PUT a\nWAIT 2 1000\nGET 1\n");
    stage.world.pause(true);
    stage.send(client, "PUT b\n");
    stage.world.advance(Span::from_secs(10));
    stage.commit();
    assert_eq!(stage.heard(client), "STORED 1 a\n");
    stage.world.pause(false);
    stage.settle();
    assert_eq!(stage.heard(client), "LATE\nTEXT 1 a\n");
    stage.commit();
    assert_eq!(stage.heard(client), "STORED 2 b\n");
    stage.end(1);
}

#[test]
fn wait_outlasts_an_upgrade() {
    let mut stage = Stage::new();
    let [waits, stays, late, other] = [stage.connect(), stage.connect(), stage.connect(), stage.connect()];
    stage.send(waits, "WAIT 2 60000\nGET 1\n");
    stage.world.send(stays, b"STAY 1 60000\nGET 1\n");
    stage.world.finish(stays);
    stage.send(late, "WAIT 1 1000\nGET 1\nGE");
    stage.send(other, "LATER 30000 z\nGET 1\n");
    let serves = stage.store.calls().serves;
    stage.world.upgrade_within(Span::from_secs(5));
    stage.settle();
    assert_eq!(stage.heard(late), "LATE\nNONE\n");
    assert_eq!(stage.store.calls().serves, serves + 1, "nobody else is served");
    assert_eq!([stage.heard(waits), stage.heard(stays), stage.heard(other)], ["", "", "OK\nNONE\n"]);
    stage.send(late, "T 1\n");
    assert_eq!(stage.heard(late), "NONE\n");
    stage.world.advance(Span::from_secs(30));
    stage.commit();
    assert_eq!(stage.heard(stays), "TEXT 1 z\nTEXT 1 z\n");
    assert!(stage.world.is_closed(stays));
    stage.world.upgrade();
    stage.send(waits, "GET 2\n");
    assert_eq!(stage.heard(waits), "");
    stage.world.finish(waits);
    stage.settle();
    assert_eq!(stage.heard(waits), "GONE\nTEXT 1 z\nNONE\n");
    stage.end(4);
}
