//! Effects: operations with later results, snapshots of other services, and the lines that a service needs outside of
//! its directory.

use crate::contract::Stage;
use crate::contract::services::SERVICES;
use poolcounter_http::HttpSettings;
use poolcounter_service::container::AllSettings;
use std::collections::BTreeSet;

fn stage() -> Stage {
    let http = HttpSettings { is_admin: true, ..HttpSettings::default() };
    Stage::with(AllSettings::defaults(SERVICES).with(http))
}

/// Sends a POST as a page of this server does, and returns the client.
fn post(stage: &mut Stage, path: &str) -> usize {
    let client = stage.world.connect_to("http");
    stage.send(client, &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n"));
    client
}

fn command(stage: &mut Stage, line: &str) -> usize {
    let client = stage.world.connect_to("admin");
    stage.send(client, &format!("{line}\n"));
    client
}

/// Returns the status and the body of a response.
fn response(stage: &mut Stage, client: usize) -> (String, String) {
    let heard = stage.heard(client);
    let status = heard.split(' ').nth(1).unwrap_or_default().into();
    let body = heard.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.into())
}

#[test]
fn a_page_and_a_command_get_the_result_after_the_commit() {
    let mut stage = stage();
    let (page, operator) = (post(&mut stage, "/toy/store/a%20b"), command(&mut stage, "STORE c"));
    assert_eq!((stage.heard(page), stage.heard(operator)), (String::new(), String::new()));
    assert!(!stage.world.is_quiet(), "an upgrade waits for results");
    stage.commit();
    assert_eq!(response(&mut stage, page), ("200".into(), "stored 1\n".into()));
    stage.commit();
    assert_eq!(stage.heard(operator), "OK stored 2\n");
    assert_eq!(stage.store.texts(), ["a b", "c"]);
    stage.send(operator, "count\n");
    assert_eq!(stage.heard(operator), "OK 2\n");
}

#[test]
fn a_failed_store_is_reported_on_page_and_socket() {
    let mut stage = stage();
    let (page, operator) = (post(&mut stage, "/toy/store/a"), command(&mut stage, "STORE c"));
    stage.store.crash();
    stage.settle();
    assert_eq!(response(&mut stage, page), ("500".into(), "the store has crashed\n".into()));
    assert_eq!(stage.heard(operator), "ERROR the store has crashed\n");
}

/// The number of a closed connection may be another's by the time of the result.
#[test]
fn a_result_for_a_closed_connection_is_dropped() {
    let mut stage = stage();
    let (page, operator) = (post(&mut stage, "/toy/store/a"), command(&mut stage, "STORE c"));
    [page, operator].into_iter().for_each(|client| stage.world.reset(client));
    stage.settle();
    let others = [stage.world.connect_to("http"), stage.world.connect_to("admin")];
    stage.store.commit_all();
    stage.settle();
    assert!(others.into_iter().all(|client| stage.heard(client).is_empty()));
    assert_eq!(stage.store.texts(), ["a", "c"]);
}

#[test]
fn only_operations_of_the_tables_are_run() {
    let mut stage = stage();
    for (path, status, body) in [
        ("/toy/burn/a", "400", "unknown action burn\n"),
        ("/toy/count/", "400", "unknown action count\n"),
        ("/admin/drain/", "400", "unknown action drain\n"),
        ("/nothing/store/a", "404", "404 Not Found\n"),
    ] {
        let client = post(&mut stage, path);
        assert_eq!(response(&mut stage, client), (status.into(), body.into()), "{path}");
    }
    for (line, answer) in [
        ("KICK 1", "ERROR unknown command\n"),
        ("COUNTS", "ERROR unknown command; did you mean COUNT?\n"),
        ("STORE", "ERROR usage: STORE TEXT\n"),
        ("COUNT x", "ERROR usage: COUNT\n"),
    ] {
        let client = command(&mut stage, line);
        assert_eq!(stage.heard(client), answer, "{line}");
    }
}

#[test]
fn names_of_operations_are_unique() {
    let mut commands = BTreeSet::new();
    for info in SERVICES {
        let mut names = BTreeSet::new();
        for operation in info.operations {
            assert!(names.insert(operation.name), "{} has {} twice", info.name, operation.name);
            let command = operation.command.into_iter().all(|command| commands.insert(command));
            assert!(command, "{} is a command of another service", operation.name);
            assert!(operation.is_on_pages || operation.command.is_some(), "{} is offered nowhere", operation.name);
        }
    }
}

#[test]
fn a_service_sees_the_others_by_a_snapshot() {
    let mut stage = stage();
    let (client, holder) = (stage.connect(), stage.world.connect_to("pools"));
    stage.send(client, "RISK\nGET 1\n");
    assert_eq!(stage.heard(client), "RISK 0\nNONE\n");
    stage.send(holder, "ACQ4ME a 1 1 1\nACQ4ME b 1 1 1\n");
    stage.send(client, "RISK\n");
    assert_eq!(stage.heard(client), "RISK 2\n");
}
