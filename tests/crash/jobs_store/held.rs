//! Connections whose replies are held until a commit: resets, slow readers, many requests, and actions of pages.

use crate::jobs_store::Stage;
use crate::jobs_store::store::SlowStore;
use crate::stored::{self, StoredSettings};
use poolcounter_core::time::Span;
use poolcounter_http::{self as http, HttpSettings};
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_service::report::Budget;
use poolcounter_testkit::world::World;

#[test]
fn reset_after_a_half_close_closes_at_once() {
    let mut stage = Stage::new();
    let [holds, quits] = [stage.connect(), stage.connect()];
    stage.send(holds, "put 0 0 9 1|a|");
    stage.world.finish(holds);
    stage.send(quits, "put 0 0 9 1|b|quit|");
    assert!(!stage.world.is_closed(holds) && !stage.world.is_closed(quits), "replies are owed");
    [holds, quits].into_iter().for_each(|client| stage.world.reset(client));
    stage.world.settle();
    assert!(stage.world.is_closed(holds) && stage.world.is_closed(quits));
    stage.commit_all();
}

#[test]
fn quitting_client_that_never_reads_is_forgotten() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.world.set_room(client, 3);
    stage.send(client, "put 0 0 9 1|a|quit|");
    stage.world.advance(Span::from_secs(60));
    assert!(!stage.world.is_closed(client), "the store is at fault, not the client");
    stage.commit();
    stage.world.advance(Span::from_secs(60));
    assert!(stage.world.is_closed(client), "it took too long to read its last replies");
}

/// Held output counts as unsent: the requests behind it are left unread until the store is done.
#[test]
fn held_output_presses_back() {
    const REQUESTS: usize = 10_000;
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.send(client, &"put 0 0 9 1|a|list-tube-used|".repeat(REQUESTS));
    assert!(stage.world.unread(client) > 100_000, "{} bytes are not read", stage.world.unread(client));
    assert!(stage.world.connections.loop_stats().spent(Budget::Output) > 0);
    let (mut told, mut commits) = (String::new(), 0);
    while stage.store.commit_one() {
        commits += 1;
        stage.world.settle();
        told += &stage.heard(client);
    }
    assert!(commits >= 3, "{commits}");
    let wanted: String = (1..=REQUESTS).map(|id| format!("INSERTED {id}|USING default|")).collect();
    assert!(told == wanted, "each is answered in its order");
}

/// A page has the result of an action once it is durable, or learns that nobody knows it.
#[test]
fn action_of_a_page_waits_for_its_commit() {
    const SERVICES: &[&Info] = &[&http::INFO, &stored::INFO];
    let (store, jobs) =
        (SlowStore::install(), JobsSettings { store_timeout: Span::from_secs(3), ..Default::default() });
    let settings = AllSettings::defaults(SERVICES).with(HttpSettings { is_admin: true, ..HttpSettings::default() });
    let mut stage = Stage { world: World::of(SERVICES, settings.with(StoredSettings(jobs))), store };
    let producer = stage.connect();
    for id in 1..=3 {
        stage.ask(producer, "put 0 0 9 1|a|reserve|");
        assert_eq!(stage.ask(producer, &format!("bury {id} 0|")), "BURIED|");
    }
    let [done, failed, gone] = [(); 3].map(|()| stage.world.connect_to("http"));
    let delete = |id| format!("POST /jobs/delete/{id} HTTP/1.1|Host: localhost|Origin: http://localhost||");
    stage.send(done, &delete(1));
    assert_eq!(stage.heard(done), "");
    assert!(!stage.world.connections.is_quiet(), "an upgrade waits for results");
    stage.commit();
    let told = stage.heard(done);
    assert!(told.starts_with("HTTP/1.1 200 ") && told.ends_with("||job 1 is deleted\n"), "{told}");
    stage.send(gone, &delete(2));
    stage.world.reset(gone);
    stage.world.settle();
    // The number of a closed connection may be another's by the time of the result.
    let next = stage.world.connect_to("http");
    stage.commit_all();
    assert_eq!(stage.heard(next), "");
    assert_eq!(stage.ask(producer, "peek 2|"), "NOT_FOUND|");
    stage.send(failed, &delete(3));
    stage.store.fail(true);
    stage.world.advance(Span::from_secs(6));
    let told = stage.heard(failed);
    assert!(told.starts_with("HTTP/1.1 500 ") && told.contains("it is not known whether this is done"), "{told}");
}
