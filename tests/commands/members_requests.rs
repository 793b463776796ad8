//! Requests of operators with `poolcounter members`, their refusals, and the list of waiters.

use super::members_shell::{server, server_with, start_program, wait_for};
use poolcounter_cli::MEMBER_REQUESTS;
use poolcounter_client::{MediaWiki, Placement, own_user};
use poolcounter_testkit::original::nowhere;
use poolcounter_testkit::strange::Strange;

#[test]
fn each_request_has_its_effect() {
    let (server, mut operator) = server("0 1");
    let members = |words: &[&str]| {
        let ended = start_program(&[&["members", "-s", &server.address], words].concat()).finish();
        assert_eq!(ended.stdout, "", "{words:?}");
        (ended.status, ended.stderr)
    };
    let done = (Some(0), String::new());
    assert_eq!(members(&["pool", "acc", "0", "3", "on_loss=ok", "max_hold=600"]), done);
    assert_eq!(members(&["pool", "acc", "0", "3", "on_loss=ok", "max_hold=600"]), done, "it is so");
    assert_eq!(operator.ask("POOL acc 0 3 on_loss=ok max_hold=600"), "OK");
    assert_eq!(members(&["reconfigure", "acc", "max=4", "queue=7"]), done);
    assert!(operator.ask("UTILIZATION acc").starts_with("max 4 "));
    assert_eq!(members(&["add", "p", "m 1", "os=android", "note=a b"]), done);
    let taken = operator.ask("TAKE p 0 os=android note=a%20b");
    assert!(taken.contains(" p m%201 "), "{taken}");
    let lease = taken.split(' ').nth(1).expect("has a lease");
    assert_eq!(members(&["takeback", "p", lease, "it hangs"]), done);
    let lost = operator.line();
    let begins = lost.starts_with(&format!("!LOST {lease} taken_back by={}", own_user()));
    assert!(begins && lost.ends_with(" it hangs"), "{lost}");
    wait_for(&mut operator, "m%201 quarantined");
    assert_eq!(members(&["repair", "p", "m 1"]), done);
    wait_for(&mut operator, "m%201 free");
    assert_eq!(members(&["hold", "p", "m 1", "600", "is dusted"]), done);
    wait_for(&mut operator, "m%201 held");
    assert_eq!(members(&["free", "p", "m 1"]), done);
    wait_for(&mut operator, "m%201 free");
    let ended = start_program(&["members", "-s", &server.address, "history", "p", "m 1", "--json"]).finish();
    let by = format!("\"how\":\"taken_back\",\"by\":\"{}\"", own_user());
    assert!(ended.stdout.contains(&by), "{}", ended.stdout);
    assert_eq!(members(&["repair", "p", "m 1", "--as-is"]), done);
    assert!(operator.ask("TAKE p").starts_with("MEMBER "));
    assert_eq!(members(&["del", "p", "m 1", "now"]), done);
    assert!(operator.line().ends_with(" withdrawn"));
    wait_for(&mut operator, "");
    assert_eq!(members(&["reconfigure", "acc", "group=g"]), done);
    assert_eq!(members(&["rmgroup", "g", "graceful"]), done);
    assert_eq!(operator.ask("UTILIZATION acc"), "ERROR NO_POOL");
    assert_eq!(members(&["rmpool", "p"]), done);
}

/// The pool has its server by its name; the other one, which is listed first, has a pool of this name as well.
#[test]
fn the_members_are_listed_where_they_are_changed() {
    let (mut other, mut own) = (server("0 2"), server("0 2"));
    let names = [&other.0.address, &own.0.address].map(String::from);
    if Placement::from(MediaWiki::new(names)).order(b"p")[0] == 0 {
        std::mem::swap(&mut other, &mut own);
    }
    let members = |words: &[&str]| {
        let ended =
            start_program(&[&["members", "-s", &other.0.address, "-s", &own.0.address], words].concat()).finish();
        (ended.status, ended.stdout, ended.stderr)
    };
    let operator = &mut own.1;
    assert_eq!(operator.ask("ADD p m%201"), "OK");
    let taken = operator.ask("TAKE p 0");
    let lease = taken.split(' ').nth(1).expect("has a lease");
    assert_eq!(members(&["takeback", "p", "--member", "m 1"]), (Some(0), String::new(), String::new()));
    assert_eq!(operator.line(), format!("!LOST {lease} taken_back by={}", own_user()));
    wait_for(operator, "m%201 quarantined");
    assert_eq!(members(&["repair", "p", "--all"]), (Some(0), "repaired: 1\n".into(), String::new()));
    wait_for(operator, "m%201 free");
}

#[test]
fn a_refusal_of_the_first_line_of_a_connection_is_named() {
    let server = Strange::start("ERROR DENIED\n").address;
    let ended = start_program(&["take", "-s", &server, "--name", "ci", "-t", "0", "p", "--", "true"]).finish();
    assert_eq!((ended.status, ended.stderr.contains("(DENIED)")), (Some(76), true), "{}", ended.stderr);
}

/// Also of commands that ask each server.
#[test]
fn a_refusal_exits_with_76() {
    let server = Strange::start("ERROR DENIED\n").address;
    for words in [&["members"][..], &["members", "p"], &["members", "p", "--waiting"], &["holders", "k"], &["stats"]] {
        let ended = start_program(&[words, &["-s", &server]].concat()).finish();
        assert_eq!((ended.status, ended.stderr.contains("DENIED")), (Some(76), true), "{words:?}: {}", ended.stderr);
    }
}

#[test]
fn refusals_of_requests_are_sentences() {
    let (server, _operator) = server_with("0 1", &["m"]);
    let members = |words: &[&str]| start_program(&[&["members", "-s", &server.address], words].concat()).finish();
    for (words, status, sentence) in [
        (&["repair", "q", "m"][..], 76, "q m: there is no such pool (NO_POOL)"),
        (&["repair", "p", "x"], 76, "p x: there is no such member (NO_SUCH_MEMBER)"),
        (&["add", "p", "n"], 76, "p n: the pool has as many members as it may have (POOL_FULL)"),
        (&["rmpool", "", "now"], 64, "the last parameter: \"now\" is not graceful"),
        (&["rmpool", ""], 64, ": a name or value cannot be sent: it has 1 to 255 bytes, no line end and no NUL"),
        (&["hold", "p", "m", "long"], 64, "SECONDS: \"long\" is not a number of seconds"),
        (&["hold", "p", "m", "2h"], 64, "SECONDS: \"2h\" is not a number of seconds; use 7200"),
        (&["hold", "p", "m"], 64, "hold needs POOL MEMBER SECONDS [NOTE]"),
        (&["repair", "p", "m", "n"], 64, "repair needs POOL MEMBER"),
        (&["reconfigure", "p", "max"], 64, "a setting: \"max\" is not KEY=VALUE"),
        (&["repear", "p", "m"], 64, "unknown request \"repear\"; did you mean repair?"),
        (&["--waiting"], 64, "--waiting needs a pool"),
        (&["--waiting", "p", "q"], 64, "--waiting is about one pool"),
    ] {
        let ended = members(words);
        let help = match (status, words[0]) {
            (64, "repear" | "--waiting") => " (see poolcounter help members)".into(),
            (64, request) => format!(" (see poolcounter help members {request})"),
            _ => String::new(),
        };
        assert_eq!(
            (ended.status, ended.stderr),
            (Some(status), format!("poolcounter: {sentence}{help}\n")),
            "{words:?}"
        );
    }
    let differs = members(&["pool", "p", "0", "2"]);
    assert_eq!(differs.status, Some(76));
    assert!(differs.stderr.starts_with("poolcounter: p 0: there is such a pool, with other settings (POOL_DIFFERS "));
    let json = members(&["-j", "repair", "q", "m"]);
    let expected = "{\"error\":\"q m: there is no such pool (NO_POOL)\",\"pool\":\"q\",\"request\":\"repair\"}\n";
    let sorted = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("is JSON");
    assert_eq!((json.status, sorted(&json.stdout), &*json.stderr), (Some(76), sorted(expected), ""));
    let json = members(&["-j", "repair", "p", "m"]);
    assert_eq!((json.status, &sorted(&json.stdout)["error"]), (Some(0), &serde_json::Value::Null));
    let nowhere = nowhere();
    assert_eq!(start_program(&["members", "-s", &nowhere, "repair", "p", "m"]).finish().status, Some(69));
}

/// A single word is a pool, even if it is the name of a request.
#[test]
fn a_pool_may_be_called_as_a_request_is() {
    let (server, mut operator) = server("0 1");
    assert_eq!(operator.ask("POOL free 0 1"), "OK");
    assert_eq!(operator.ask("ADD free m"), "OK");
    let ended = start_program(&["members", "-s", &server.address, "free"]).finish();
    assert!(ended.stdout.lines().nth(1).is_some_and(|line| line.starts_with("m ")), "{ended:?}");
}

#[test]
fn the_help_names_each_request() {
    let help = start_program(&["help", "members"]).finish().stdout;
    for (usage, ..) in MEMBER_REQUESTS {
        assert!(help.contains(&format!("    {usage}")), "{usage}: {help}");
    }
}

#[test]
fn waiters_and_reasons_of_quarantine_are_shown() {
    let members = |server: &str, words: &[&str]| start_program(&[&["members", "-s", server], words].concat()).finish();
    let waiters = Strange::start("1 ci-7 12.500 0 1 region=us member=m\n2 10.0.0.5:99 3.000 5 2\n\n").address;
    let printed = members(&waiters, &["p", "--waiting"]).stdout;
    let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PLACE", "WAITER", "WAITED", "PRI", "COUNT", "ATTRIBUTES"]);
    assert_eq!(rows[1], ["1", "ci-7", "12", "s", "0", "1", "region=us", "member=m"]);
    assert_eq!(rows[2], ["2", "10.0.0.5:99", "3.0", "s", "5", "2", "-"]);
    let json = members(&waiters, &["p", "--waiting", "--json"]).stdout;
    assert!(json.contains("\"attributes\":{\"region\":\"us\",\"member\":\"m\"}"), "{json}");

    let list = Strange::start(
        "a in_use ci-7 9.000 0.000 3 held=2.500 lease=17\nb quarantined - 9.000 1.000 3 why=returned%20failed by=ci-8 since=1.000\n\n",
    );
    let printed = members(&list.address, &["p"]).stdout;
    let row = |n: usize| printed.lines().nth(n).expect("has a row").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row(0), "MEMBER STATE HOLDER AGE IDLE USES HELD_FOR LEASE EXPIRES WHY");
    assert_eq!(row(1), "a in_use ci-7 9.0 s 0 s 3 2.5 s 17 - -");
    assert_eq!(row(2), "b quarantined - 9.0 s 1.0 s 3 - - - returned failed (by ci-8, 1.0 s ago)");

    let old = Strange::start("ERROR BAD_COMMAND\n").address;
    let ended = members(&old, &["p", "--waiting"]);
    let sentence = format!(
        "poolcounter: {old}: the server does not know this: it is older, or another service answers there (BAD_COMMAND)\n"
    );
    assert_eq!((ended.status, ended.stderr), (Some(76), sentence));
}
