//! Replies that wait for a commit.

use crate::contract::toy::OUTPUT_BYTES;
use crate::contract::{SERVICES, Stage};
use poolcounter_core::time::Span;
use poolcounter_service::container::{AllSettings, ServiceId};
use poolcounter_service::loop_stats::Budget;
use poolcounter_service::output::FULL_BYTES;

#[test]
fn replies_leave_in_order_after_their_commits() {
    let mut stage = Stage::new();
    let (one, other) = (stage.connect(), stage.connect());
    stage.send(one, "GET 1\nPUT a\nGET 1\nPUT b\nGET 7\n");
    assert_eq!(stage.heard(one), "NONE\n");
    // Other clients are served meanwhile, and later commits queue behind this one.
    stage.send(other, "GET 1\n");
    assert_eq!(stage.heard(other), "NONE\n");
    stage.send(one, "PUT c\nGET 1\n");
    assert_eq!((stage.heard(one), stage.store.queued()), (String::new(), 2));
    stage.commit();
    assert_eq!(stage.heard(one), "STORED 1 a\nNONE\nSTORED 2 b\nNONE\n");
    stage.send(other, "GET 1\n");
    assert_eq!(stage.heard(other), "TEXT 1 a\n");
    stage.commit();
    assert_eq!(stage.heard(one), "STORED 3 c\nNONE\n");
    assert_eq!(stage.store.texts(), ["a", "b", "c"]);
    stage.end(2);
}

#[test]
fn changes_of_a_tick_are_one_commit() {
    let mut stage = Stage::new();
    let clients: Vec<usize> = (0..100).map(|_| stage.connect()).collect();
    clients.iter().for_each(|client| stage.world.send(*client, b"PUT x\n"));
    stage.settle();
    assert_eq!(stage.store.calls().commits, 1);
    stage.commit();
    for client in clients {
        assert_eq!(stage.heard(client), format!("STORED {} x\n", client + 1));
    }
    stage.end(100);
}

#[test]
fn lost_commit_is_reported_instead_of_its_replies() {
    let mut stage = Stage::new();
    let (one, other) = (stage.connect(), stage.connect());
    stage.send(one, "PUT a\nGET 1\n");
    stage.send(one, "PUT b\nGET 1\n");
    stage.send(other, "PUT c\nPUT d\nGET 1\n");
    stage.store.commit_one();
    stage.store.crash();
    stage.settle();
    assert_eq!(stage.heard(one), "STORED 1 a\nNONE\nLOST\nNONE\n");
    assert_eq!(stage.heard(other), "LOST\nLOST\nNONE\n");
    // The numbers of lost texts are used again.
    stage.send(other, "PUT e\n");
    stage.commit();
    assert_eq!(stage.heard(other), "STORED 2 e\n");
    assert_eq!(stage.store.texts(), ["a", "e"]);
    stage.end(2);
}

#[test]
fn half_close_waits_for_held_replies() {
    let mut stage = Stage::new();
    let [one, other] = [stage.connect(), stage.connect()];
    stage.world.send(one, b"PUT a\nGET 1\n");
    stage.world.finish(one);
    stage.send(other, "PUT b\nQUIT\nGET 1\n");
    stage.world.advance(Span::from_secs(60));
    assert!(!stage.world.is_ended(one) && !stage.world.is_ended(other), "the replies are still owed");
    stage.commit();
    assert_eq!(stage.heard(one), "STORED 1 a\nNONE\n");
    assert!(stage.world.is_closed(one));
    assert_eq!(stage.heard(other), "STORED 2 b\nBYE\n");
    // The other has not closed its side.
    assert!(stage.world.is_ended(other) && !stage.world.is_closed(other));
    stage.end(2);
}

#[test]
fn quitting_client_that_never_reads_is_forgotten() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.world.set_room(client, 3);
    stage.send(client, &format!("GET 1\nPUT {}\nFILL 10000\nQUIT\n", "x".repeat(1_000)));
    stage.world.advance(Span::from_secs(60));
    assert_eq!(stage.store.calls().closes, 0);
    stage.commit();
    assert_eq!(stage.store.calls().closes, 1, "nothing is owed any more");
    stage.world.advance(Span::from_secs(60));
    assert!(stage.world.is_closed(client), "it took too long to read its last replies");
    stage.end(1);
}

#[test]
fn completion_for_a_closed_connection_is_dropped() {
    let mut stage = Stage::new();
    let first = stage.connect();
    stage.send(first, "PUT a\nGET 1\n");
    stage.world.reset(first);
    stage.settle();
    assert!(stage.world.is_closed(first), "nobody waits for a commit to close what is lost");
    // Another connection gets its number, and none of its replies.
    let second = stage.connect();
    assert_eq!(stage.world.id_of(second), stage.world.id_of(first));
    stage.send(second, "PUT b\n");
    stage.commit();
    assert_eq!(stage.heard(second), "");
    stage.commit();
    assert_eq!(stage.heard(second), "STORED 2 b\n");
    stage.send(second, "PUT c\n");
    stage.world.reset(second);
    stage.settle();
    let third = stage.connect();
    stage.send(third, "GET 2\nPUT d\n");
    stage.store.crash();
    stage.settle();
    assert_eq!(stage.heard(third), "TEXT 2 b\nLOST\n");
    stage.end(3);
}

#[test]
fn reset_after_a_half_close_closes_at_once() {
    let mut stage = Stage::new();
    let [holds, quits] = [stage.connect(), stage.connect()];
    stage.world.send(holds, b"PUT a\n");
    stage.world.finish(holds);
    stage.send(quits, "PUT b\nQUIT\n");
    stage.world.reset(holds);
    stage.world.reset(quits);
    stage.settle();
    assert!(stage.world.is_closed(holds) && stage.world.is_closed(quits));
    stage.commit();
    stage.end(2);
}

/// Held output counts as unsent: the requests behind it are left unread until the store is done.
#[test]
fn held_output_presses_back() {
    let mut stage = Stage::new();
    let client = stage.connect();
    let request = format!("PUT {}\n", "x".repeat(1_000));
    stage.send(client, &request.repeat(500));
    assert!(stage.world.unread(client) > 300_000, "{} bytes are not read", stage.world.unread(client));
    assert!(stage.world.pulse().spent(Budget::Output) > 0);
    let mut received = String::new();
    let mut commits = 0;
    while stage.store.queued() > 0 {
        commits += 1;
        stage.commit();
        received += &stage.heard(client);
    }
    assert!(commits >= 500_000 / (2 * FULL_BYTES), "{commits} commits");
    let replies: Vec<&str> = received.lines().collect();
    assert_eq!(replies.len(), 500);
    assert!(replies.iter().enumerate().all(|(n, reply)| reply.starts_with(&format!("STORED {} xx", n + 1))));
    stage.end(1);
}

/// A client that waits for the store does not count as a slow reader.
#[test]
fn slow_store_costs_no_replies() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.world.send(client, format!("PUT {}\n", "x".repeat(1_000)).repeat(100).as_bytes());
    stage.world.finish(client);
    stage.settle();
    stage.world.advance(Span::from_secs(60));
    assert!(!stage.world.is_closed(client), "the store is at fault, not the client");
    while stage.store.queued() > 0 {
        stage.commit();
    }
    assert_eq!(stage.heard(client).lines().filter(|reply| reply.starts_with("STORED")).count(), 100);
    assert!(stage.world.is_closed(client));
    // A client that does not read its replies is closed as usual.
    let client = stage.connect();
    stage.world.set_room(client, 10);
    stage.world.send(client, format!("PUT {}\n", "x".repeat(1_000)).repeat(100).as_bytes());
    stage.world.finish(client);
    stage.settle();
    stage.world.advance(Span::from_secs(7));
    stage.commit();
    stage.world.advance(Span::from_secs(10));
    assert!(stage.world.is_closed(client));
    stage.end(2);
}

#[test]
fn each_service_has_its_own_output_cap() {
    let mut stage = Stage::new();
    let clients = [stage.connect(), stage.connect(), stage.connect()];
    clients.iter().for_each(|client| stage.world.set_room(*client, 0));
    stage.send(clients[0], &format!("FILL {OUTPUT_BYTES}\n"));
    assert!(!stage.world.is_closed(clients[0]));
    stage.send(clients[1], &format!("FILL {}\n", OUTPUT_BYTES + 1));
    assert!(stage.world.is_closed(clients[1]));
    // Held output counts.
    stage.send(clients[2], &format!("PUT a\nFILL {OUTPUT_BYTES}\n"));
    assert!(stage.world.is_closed(clients[2]));
    stage.commit();
    stage.world.set_room(clients[0], usize::MAX);
    stage.settle();
    assert_eq!(stage.heard(clients[0]).len(), OUTPUT_BYTES);
    stage.end(3);
}

#[test]
fn line_of_the_registry_brings_options() {
    let mut settings = AllSettings::defaults(SERVICES);
    let toy = ServiceId::all(SERVICES).last().expect("it is the last of the list");
    let own = &mut settings[toy];
    let rows = own.rows();
    let row = rows.iter().position(|row| row.long == "toy-output").expect("is one of its rows");
    assert_eq!(own.set(row, "0"), Err("a number from 1 to 1048576".into()));
    assert_eq!(own.set(row, "1000"), Ok(()));
    let mut stage = Stage::with(settings);
    let clients = [stage.connect(), stage.connect()];
    for (client, bytes) in clients.into_iter().zip([1000, 1001]) {
        stage.world.set_room(client, 0);
        stage.send(client, &format!("FILL {bytes}\n"));
        assert_eq!(stage.world.is_closed(client), bytes > 1000, "{bytes}");
    }
    stage.end(clients.len());
}
