//! The contract over sockets, with a store that has a thread and wakes the loop.

use crate::contract::SERVICES;
use crate::contract::toy::store::{Store, Worker};
use poolcounter_testkit::daemon::{Client, until};
use poolcounter_testkit::embedded::Embedded;
use std::time::Duration;

/// A server, its store and the store's thread, which end in this order.
struct Stage {
    server: Embedded,
    _worker: Worker,
    store: Store,
}

impl Stage {
    fn new() -> Stage {
        let store = Store::install();
        Stage { _worker: store.work(), server: Embedded::of(SERVICES, "toy"), store }
    }

    fn connect(&self) -> Client {
        Client::to(self.server.address.parse().expect("is an address"))
    }

    /// Waits until a condition is true.
    fn until(&self, what: &str, is_so: impl Fn(&Store) -> bool) {
        until(what, || is_so(&self.store));
    }
}

#[test]
fn replies_come_when_the_thread_has_committed() {
    let stage = Stage::new();
    let (mut puts, mut waits) = (stage.connect(), stage.connect());
    waits.send(b"WAIT 200 60000\nGET 200\n");
    for n in 1..=200 {
        puts.send(format!("PUT text\nGET {n}\n").as_bytes());
        assert_eq!([puts.line(), puts.line()], [format!("STORED {n} text"), "NONE".into()]);
    }
    assert_eq!([waits.line(), waits.line()], ["TEXT 200 text", "TEXT 200 text"]);
    // Very many requests at once, more than may be unsent.
    puts.send(format!("PUT {}\n", "x".repeat(1_000)).repeat(1_000).as_bytes());
    for n in 201..=1_200 {
        assert!(puts.line().starts_with(&format!("STORED {n} x")));
    }
    assert!(stage.store.calls().commits < 700, "what comes together is committed together");
}

#[test]
fn stuck_store_delays_only_its_clients() {
    let stage = Stage::new();
    stage.store.stick(true);
    let [mut puts, mut quits, mut stays, mut goes, mut asks] = [(); 5].map(|()| stage.connect());
    puts.send(b"PUT a\nGET 1\n");
    puts.finish();
    stage.until("the commit begins", |store| store.queued() == 1);
    quits.send(b"PUT b\nQUIT\n");
    stage.until("the commit begins", |store| store.queued() == 2);
    for (client, word) in [(&mut stays, "STAY"), (&mut goes, "WAIT")] {
        client.send(format!("{word} 2 60000\nGET 1\n").as_bytes());
        client.finish();
    }
    asks.send(b"GET 1\n");
    assert_eq!([asks.line(), goes.rest()], ["NONE", "GONE\nNONE\n"]);
    assert_eq!(stage.store.calls().closes, 1, "only who would not wait is closed");
    // The loop sleeps meanwhile, and makes no calls.
    let calls = stage.store.calls();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stage.store.calls(), calls);
    stage.store.stick(false);
    assert_eq!(puts.rest(), "STORED 1 a\nNONE\n");
    assert_eq!(quits.rest(), "STORED 2 b\nBYE\n");
    assert_eq!(stays.rest(), "TEXT 2 b\nTEXT 1 a\n");
}

#[test]
fn reset_ends_at_once_under_a_stuck_store() {
    let stage = Stage::new();
    stage.store.stick(true);
    let clients = ["PUT a\n", "STAY 9 60000\nGET 1\n", "PUT b\nQUIT\n"].map(|text| {
        let mut client = stage.connect();
        client.send(text.as_bytes());
        client
    });
    stage.until("all are served", |store| store.calls().serves >= 3 && store.queued() >= 1);
    for (n, client) in clients.into_iter().enumerate() {
        client.reset();
        stage.until("it is closed", |store| store.calls().closes == n as u64 + 1);
    }
    // Their numbers are used again when the commits are done.
    let mut others = [(); 3].map(|()| stage.connect());
    others.iter_mut().for_each(|client| client.send(b"GET 1\nPUT c\n"));
    others.iter_mut().for_each(|client| assert_eq!(client.line(), "NONE"));
    stage.store.stick(false);
    others.iter_mut().for_each(|client| {
        let line = client.line();
        assert!(line.starts_with("STORED ") && line.ends_with(" c"), "{line:?}");
        client.finish();
        assert_eq!(client.rest(), "");
    });
    assert_eq!(stage.store.calls().closes, 6);
}

#[test]
fn all_waiters_hear_of_a_store_crash() {
    let stage = Stage::new();
    for round in 0..50 {
        stage.store.stick(true);
        let mut clients = [(); 4].map(|()| stage.connect());
        clients.iter_mut().for_each(|client| client.send(b"PUT a\nGET 1\n"));
        // Some of them come before the crash, some after it, and some in the middle of it.
        stage.until("some are served", |store| store.queued() > 0);
        stage.store.crash();
        stage.store.stick(false);
        for client in &mut clients {
            let reply = client.line();
            assert!(reply == "LOST" || reply.starts_with("STORED "), "round {round}: {reply:?}");
            let there = client.line();
            assert!(["NONE", "TEXT 1 a"].contains(&&*there), "round {round}: {there:?}");
            client.finish();
            assert_eq!(client.rest(), "");
        }
    }
    let mut client = stage.connect();
    client.send(b"PUT last\n");
    assert_eq!(client.line(), format!("STORED {} last", stage.store.texts().len()));
}
