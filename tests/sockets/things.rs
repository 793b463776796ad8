//! Pages about one thing, and the search for things: what they show of each service.

use poolcounter_testkit::daemon::{Client, PATIENCE};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::web::{Web, fetch, start};
use serde_json::Value;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

const ALL: &[&str] = &[
    "--members",
    "--members-listen",
    "127.0.0.1:0",
    "--jobs",
    "--jobs-listen",
    "127.0.0.1:0",
    "--jobs-store",
    "memory",
    "--http-admin",
];

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(fetch(address, path).text()).expect("is JSON")
}

/// Returns the first cells of a table, or the cells of another column.
fn column(told: &Value, service: &str, table: &str, name: &str) -> Vec<String> {
    let rows = told[service][table].as_array().into_iter().flatten();
    rows.map(|row| row[name].as_str().unwrap_or("-").to_string()).collect()
}

/// Requests the JSON of a page until the condition is true, and returns it.
fn wait_until(address: SocketAddr, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let told = json(address, path);
        if is_so(&told) {
            return told;
        }
        assert!(begun.elapsed() < PATIENCE, "{told}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn search_finds_things_of_every_service() {
    let (daemon, address) = start(ALL);
    let mut members = Client::to(daemon.members());
    for line in ["POOL phones 0 3", "ADD phones pixel-7", "ADD phones pixel-8"] {
        assert_eq!(members.ask(line), "OK", "{line}");
    }
    assert!(members.ask("TAKE phones 0 member=pixel-8").starts_with("MEMBER "));
    let mut jobs = JobsClient::to(daemon.jobs());
    for n in 0..100 {
        assert!(jobs.ask(&format!("use wiki{n}/other")).starts_with("USING "));
        assert!(jobs.put("0 0 60", b"busier").starts_with("INSERTED "));
    }
    jobs.send(b"put-job 0 0 60 1 tube=dewiki/refreshLinks root=Template:A root-ts=5\r\na\r\n");
    assert!(jobs.line().starts_with("INSERTED "));
    assert_eq!(jobs.ask("identify runner-of-mail"), "IDENTIFIED runner-of-mail");

    let found = json(address, "/find/pixel.json");
    assert_eq!(column(&found, "members", "members", "name"), ["pixel-7", "pixel-8"]);
    assert_eq!(column(&found, "members", "members", "pool"), ["phones", "phones"]);
    assert_eq!(column(&json(address, "/find/phon.json"), "members", "pools", "name"), ["phones"]);
    let holder = found["members"]["members"][1]["holder"].as_str().expect("is held").to_string();
    let found = json(address, &format!("/find/{holder}.json"));
    assert_eq!(column(&found, "members", "members", "name"), ["pixel-8"], "{holder} has it");
    let found = json(address, "/find/refreshL.json");
    assert_eq!(column(&found, "jobs", "types", "name"), ["refreshLinks"]);
    assert_eq!(column(&found, "jobs", "tubes", "name"), ["dewiki/refreshLinks"], "with the fewest jobs of all");
    assert_eq!(column(&found, "jobs", "roots", "root"), ["dewiki/refreshLinks Template:A"]);
    assert_eq!(column(&json(address, "/find/dewiki.json"), "jobs", "wikis", "name"), ["dewiki"]);
    assert_eq!(column(&json(address, "/find/of-mail.json"), "jobs", "runners", "name"), ["runner-of-mail"]);
    assert_eq!(fetch(address, "/find/phones").status, 200);
}

#[test]
fn member_has_a_page_with_its_leases() {
    let (daemon, address) = start(ALL);
    let mut client = Client::to(daemon.members());
    for line in ["POOL p 0 3", "ADD p a.b"] {
        assert_eq!(client.ask(line), "OK", "{line}");
    }
    let lease = |taken: String| taken.split(' ').nth(1).expect("has a lease").to_string();
    let first = lease(client.ask("TAKE p 0"));
    assert_eq!(client.ask(&format!("RETURN {first}")), "RETURNED");
    let second = lease(client.ask("TAKE p 0"));
    assert_eq!(client.ask("HOLD p a.b 60 broken screen"), "OK");
    let link = json(address, "/members/pool/p.json")["members"]["members"][0]["name_key"].clone();
    assert_eq!(link, "p a.b");
    let view = json(address, "/members/member/p%20a%2Eb.json");
    assert_eq!(view["title"], "Member a.b of pool p");
    let row = &view["members"]["members"][0];
    assert_eq!((&row["state"], &row["hold"], &row["why"]), (&"in_use".into(), &60.0.into(), &"broken screen".into()));
    assert_eq!(column(&view, "members", "leases", "lease"), [second, first]);
    assert_eq!(column(&view, "members", "leases", "how"), ["lasts", "returned"]);
    for path in ["/members/member/p", "/members/member/p%20x", "/members/member/x%20a"] {
        assert_eq!(fetch(address, path).status, 404, "{path}");
    }
}

#[test]
fn runners_that_are_gone_are_listed() {
    let (daemon, address) = start(ALL);
    let runners = ["one", "two"].map(|name| {
        let mut runner = JobsClient::to(daemon.jobs());
        assert_eq!(runner.ask(&format!("identify {name}")), format!("IDENTIFIED {name}"));
        assert_eq!(runner.ask("reserve-with-timeout 0"), "TIMED_OUT");
        runner
    });
    assert_eq!(column(&json(address, "/jobs.json"), "jobs", "gone", "name"), [""; 0]);
    runners[0].stream().shutdown(std::net::Shutdown::Both).expect("is connected");
    let told = wait_until(address, "/jobs.json", |told| !column(told, "jobs", "gone", "name").is_empty());
    assert_eq!(column(&told, "jobs", "gone", "name"), ["one"]);
    assert!(column(&told, "jobs", "gone", "peer")[0].starts_with("127.0.0.1:"), "{told}");
    let mut again = JobsClient::to(daemon.jobs());
    assert_eq!(again.ask("identify one"), "IDENTIFIED one");
    assert_eq!(again.ask("reserve-with-timeout 0"), "TIMED_OUT");
    assert_eq!(column(&json(address, "/jobs.json"), "jobs", "gone", "name"), [""; 0], "it is back");
}

/// Each member has the buttons for its state.
#[test]
fn buttons_change_the_states_of_members() {
    let (daemon, address) = start(ALL);
    let mut client = Client::to(daemon.members());
    for line in ["POOL p 0 2", "ADD p a", "ADD p b%20c"] {
        assert_eq!(client.ask(line), "OK", "{line}");
    }
    let lease = |taken: String| taken.split(' ').nth(1).map(String::from).expect("has a lease");
    let taken = client.ask("TAKE p 0");
    let is_first = taken.contains(" p a");
    assert_eq!(client.ask(&format!("RETURN {} FAIL", lease(taken))), "RETURNED");
    let _ = client.ask("TAKE p 0");
    let (out, held) = if is_first { ("p a", "p b%20c") } else { ("p b%20c", "p a") };
    let post = |operation: &str, name: &str| {
        let (mut web, path) = (Web::to(address), name.replace('%', "%25").replace(' ', "%20"));
        let path = format!("/members/{operation}/{path}");
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
        web.send(head.as_bytes());
        let response = web.response();
        (response.status, response.text().trim_end().to_string())
    };
    let buttons = || {
        let view = json(address, "/members/pool/p.json");
        ["repair", "takeback", "free", "keep"].map(|name| {
            let rows = view["members"]["members"].as_array().expect("is a list");
            rows.iter().filter_map(|row| row[name].as_str()).map(String::from).collect::<Vec<_>>()
        })
    };
    assert_eq!(buttons(), [vec![out.to_string()], vec![held.to_string()], vec![], vec![held.to_string()]]);
    let done = |words: &str| (200, words.to_string());
    let refused = (409, "no client holds this member".to_string());
    assert_eq!(post("takeback", out), refused);
    assert_eq!(post("repair", out), done("it is repaired"));
    assert_eq!(post("hold", out), done("it is held for an hour"));
    assert_eq!(buttons()[2], [out]);
    assert_eq!(post("free", out), done("it is freed"));
    assert_eq!(post("takeback", held), done("it is taken back"));
    assert!(client.line().contains(" taken_back by=127.0.0.1:"));
    assert_eq!(post("repair", "p x").0, 409);
    assert_eq!(post("repair", "x").0, 400);
    let acts = column(&json(address, "/status.json"), "http", "acts", "act");
    let what: Vec<_> = acts.iter().filter_map(|act| act.split(", by a button: ").nth(1)).collect();
    let done = [format!("takeback {held}"), format!("free {out}"), format!("hold {out}"), format!("repair {out}")];
    assert_eq!(what, done.map(|act| format!("members {act}")), "what was refused is not there");
}

/// A refused request, and a pool that is declared again, are no acts.
#[test]
fn acts_of_operators_are_listed() {
    let (daemon, address) = start(ALL);
    let (mut client, mut jobs) = (Client::to(daemon.members()), JobsClient::to(daemon.jobs()));
    for line in ["IDENTIFY ann", "POOL p 0 2", "POOL p 0 2", "ADD p a", "HOLD p a 60"] {
        assert_eq!(client.ask(line), "OK", "{line}");
    }
    assert!(client.ask("HOLD p b 60").starts_with("ERROR "));
    for (line, answer) in
        [("identify bob", "IDENTIFIED bob"), ("kick-job 9", "NOT_FOUND"), ("pause-all a/* 9", "PAUSED")]
    {
        assert_eq!(jobs.ask(line), answer);
    }
    let acts = column(&json(address, "/status.json"), "http", "acts", "act");
    let [pause, hold, add] = &acts[..] else { panic!("{acts:?}") };
    assert!(pause.starts_with("bob at 127.0.0.1:") && pause.ends_with(": pause-all a/*"), "{pause}");
    assert_eq!([hold, add], ["ann: HOLD p a 60", "ann: ADD p a"]);
}

/// The rate of refusals is as high at any second of a flood, and the page says who asks.
#[test]
fn page_of_a_hot_key_says_who_asks() {
    let (daemon, address) = start(ALL);
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.connect()).collect();
    assert_eq!(clients[0].ask("ACQ4ME hot 1 3 9 who=web1"), "LOCKED");
    clients[1].send(b"ACQ4ME hot 1 3 9 who=web2\n");
    clients[2].send(b"ACQ4ME hot 1 3 9 who=web2\n");
    wait_until(address, "/pools/key/hot.json", |told| told["pools"]["claims"].as_array().map(Vec::len) == Some(3));
    for _ in 0..20 {
        assert_eq!(clients[3].ask("ACQ4ME hot 1 3 9 who=web3"), "QUEUE_FULL");
    }
    let is_refusing = |told: &Value| told["pools"]["hottest"][0]["refuse_rate"].as_u64().is_some_and(|rate| rate >= 60);
    let view = wait_until(address, "/pools/key/hot.json", is_refusing);
    assert_eq!(column(&view, "pools", "askers", "who"), ["web2", "web1"]);
    let limits = &view["pools"]["limits"][0];
    assert_eq!((&limits["workers"], &limits["max_queue"], &limits["timeout"]), (&1.into(), &3.into(), &9.0.into()));
    assert!(limits["wait"]["p50"].is_null(), "no wait has ended: {limits}");
    assert!(view["pools"]["askers"][0]["longest"].as_f64().is_some_and(|wait| wait > 0.0), "{view}");
    assert!(view["pools"]["askers"][1]["longest"].is_null(), "{view}");
    assert_eq!(view["history"]["series"].as_array().map(Vec::len), Some(3));
    assert!(view["pools"]["claims"][0].get("key").is_none(), "the title has it");
    let lock = view["pools"]["claims"][0]["lock"].as_str().expect("is held").to_string();
    assert!(lock.starts_with("hot 127.0.0.1:") && view["pools"]["claims"][1]["lock"].is_null());
    let mut web = Web::to(address);
    let path = lock.replace(' ', "%20");
    let request =
        format!("POST /pools/release-lock/{path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
    web.send(request.as_bytes());
    let response = web.response();
    assert_eq!((response.status, response.text()), (200, "1 lock taken away\n"));
    assert_eq!(clients[1].line(), "LOCKED");
    wait_until(address, "/pools/key/hot.json", |told| told["pools"]["limits"][0]["wait"]["p50"].is_f64());
}
