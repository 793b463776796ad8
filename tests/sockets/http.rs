//! Metrics and the status page, on the real daemon.

use poolcounter_core::time::Span;
use poolcounter_service::output::FULL_BYTES;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::frames;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::web::{Response, Web, fetch, request, start};
use poolcounter_testkit::world::World;
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PAGES: [(&str, &str); 6] = [
    ("/", "text/html; charset=utf-8"),
    ("/locks", "text/html; charset=utf-8"),
    ("/overview.json", "application/json"),
    ("/status.json", "application/json"),
    ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ("/healthz", "text/plain; charset=utf-8"),
];

#[test]
fn every_page_is_served() {
    let (_daemon, address) = start(&[]);
    let mut web = Web::to(address);
    for (path, content_type) in PAGES {
        let page = web.get(path);
        assert_eq!((page.status, page.headers["content-type"].as_str()), (200, content_type), "{path}");
        assert_eq!(page.headers["cache-control"], "no-store");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert!(!page.headers.contains_key("connection"), "{path}: the connection stays");
        web.send(request(path).replace("GET", "HEAD").as_bytes());
        let head = web.head();
        assert_eq!((head.status, &head.headers["content-type"]), (200, &page.headers["content-type"]), "{path}");
        let lengths = [&head, &page].map(|it| it.headers["content-length"].parse::<usize>().expect("a number"));
        assert!(lengths[0].abs_diff(lengths[1]) < 500, "{path}: {lengths:?}");
    }
    assert_eq!(web.get("/healthz").text(), "ok\n");
    for (service, status, text) in [("pools", 200, "ok\n"), ("jobs", 503, "it is off\n"), ("x", 404, "404 Not Found\n")]
    {
        let health = web.get(&format!("/healthz?service={service}"));
        assert_eq!((health.status, health.text()), (status, text), "{service}");
    }
}

#[test]
fn requests_may_be_pipelined_and_cut() {
    let (_daemon, address) = start(&[]);
    let mut web = Web::to(address);
    let paths = ["/healthz", "/metrics", "/nowhere", "/status.json"];
    web.send(paths.map(request).concat().repeat(50).as_bytes());
    for n in 0..200 {
        let response = web.response();
        assert_eq!(response.status, if n % 4 == 2 { 404 } else { 200 }, "response {n}");
        let begin = ["ok", "# HELP", "404", "{\"version\""][n % 4];
        assert!(response.text().starts_with(begin), "response {n}: {}", response.text());
    }
    for byte in format!("\r\n{}{}", request("/healthz"), request("/metrics")).bytes() {
        web.send(&[byte]);
    }
    assert_eq!(web.response().text(), "ok\n");
    assert!(web.response().text().contains("poolcounter_build_info{version="));
}

/// Starts a daemon whose pages have buttons, with this many buried jobs in a file.
fn start_with_buried(jobs: u64, scratch: &Scratch) -> (Daemon, SocketAddr) {
    let store = format!("sqlite:{}", scratch.file("jobs.db").display());
    let (daemon, address) = start(&["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", &store, "--http-admin"]);
    let mut client = JobsClient::to(daemon.jobs());
    for id in 1..=jobs {
        assert_eq!(client.put("0 0 60", b"a"), format!("INSERTED {id}"));
        client.send(b"reserve\r\n");
        assert_eq!(client.line(), format!("RESERVED {id} 1"));
        client.body(1);
        assert_eq!(client.ask(&format!("bury {id} 0")), "BURIED");
    }
    (daemon, address)
}

fn post(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n{more}\r\n")
}

/// The store commits after the turn of an action's request.
#[test]
fn response_to_an_action_is_its_result_and_comes_before_the_next() {
    let scratch = Scratch::new();
    let (daemon, address) = start_with_buried(4, &scratch);
    let mut web = Web::to(address);
    let all = [post("/jobs/kick/1", ""), request("/healthz"), post("/jobs/delete/2", ""), post("/jobs/kick/2", "")];
    web.send(all.concat().as_bytes());
    for (status, words) in
        [(200, "job 1 is kicked"), (200, "ok"), (200, "job 2 is deleted"), (404, "there is no job 2")]
    {
        let response = web.response();
        assert_eq!((response.status, response.text()), (status, &*format!("{words}\n")));
    }
    // An action of a client that disconnects is done, and its result is not sent to another.
    Web::to(address).send(post("/jobs/delete/3", "").as_bytes());
    let mut last = Web::to(address);
    last.send(format!("{}{}", post("/jobs/delete/4", "Connection: close\r\n"), request("/healthz")).as_bytes());
    let response = last.response();
    assert_eq!((response.status, response.text()), (200, "job 4 is deleted\n"));
    assert!(last.is_over(), "it has asked for that");
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!([2, 3, 4].map(|id| client.ask(&format!("stats-job {id}"))), ["NOT_FOUND"; 3]);
    assert_eq!(client.ask("kick-job 1"), "NOT_FOUND", "it is ready");
}

#[test]
fn actions_under_way_have_their_results_over_an_upgrade() {
    const JOBS: u64 = 60;
    let scratch = Scratch::new();
    let (mut daemon, address) = start_with_buried(JOBS, &scratch);
    let mut webs: Vec<Web> = (0..3).map(|_| Web::to(address)).collect();
    let jobs_of = |n: usize| (1..=JOBS).filter(move |id| *id as usize % 3 == n);
    let delete = |id: u64| post(&format!("/jobs/delete/{id}"), "");
    let text_of = |told: &Response| String::from_utf8_lossy(&told.body).into_owned();
    for (n, web) in webs.iter_mut().enumerate() {
        web.send(jobs_of(n).map(delete).collect::<String>().as_bytes());
    }
    daemon.upgrade();
    for (n, web) in webs.iter_mut().enumerate() {
        let told: Vec<Response> = jobs_of(n).map(|_| web.response()).collect();
        for (id, mut told) in jobs_of(n).zip(told) {
            let begun = Instant::now();
            // A request that the previous process has not begun may come while the next one reads the jobs.
            while told.status == 409 && text_of(&told).contains("are being read") && begun.elapsed() < PATIENCE {
                web.send(delete(id).as_bytes());
                told = web.response();
            }
            assert_eq!(told.status, 200, "{}", text_of(&told));
        }
        assert_eq!(web.get("/healthz").status, 200);
    }
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.stat("stats", "current-jobs-buried"), "0");
}

#[test]
fn malformed_requests_are_answered_with_a_reason() {
    let (_daemon, address) = start(&[]);
    let mut web = Web::to(address);
    assert_eq!(web.get("/nowhere").status, 404);
    web.send(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    let refused = web.response();
    assert_eq!((refused.status, refused.headers["allow"].as_str()), (405, "GET, HEAD"));
    web.send(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(web.response().status, 404);
    assert_eq!(web.get("/healthz").status, 200, "these are no reason to part");
    for (input, status) in [
        ("GARBAGE\r\n\r\n".to_string(), 400),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n".into(), 413),
        (format!("GET /{}", "x".repeat(9000)), 431),
        (format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(100)), 431),
        ("GET / HTTP/3.0\r\n\r\n".into(), 505),
    ] {
        let mut web = Web::to(address);
        web.send(input.as_bytes());
        let response = web.response();
        assert_eq!((response.status, response.headers["connection"].as_str()), (status, "close"), "{input:?}");
        assert!(web.is_over(), "{input:?}");
    }
}

/// A foreign page, whose name was pointed to this machine, must not read this one.
#[test]
fn only_requests_with_its_name_are_answered() {
    let (_daemon, address) = start(&["--http-host", "Status.example.org"]);
    let mut web = Web::to(address);
    for (line, status) in [
        ("HTTP/1.1\r\nHost: evil.example\r\n", 421),
        ("HTTP/1.1\r\nHost:\r\n", 421),
        ("HTTP/1.1\r\nHost: status.example.org:7580\r\n", 200),
        ("HTTP/1.1\r\nHost: [::1]:7580\r\n", 200),
        ("HTTP/1.0\r\nConnection: keep-alive\r\nHost: evil.example\r\n", 421),
        ("HTTP/1.0\r\nConnection: keep-alive\r\n", 200),
    ] {
        for path in ["/", "/metrics", "/status.json", "/healthz"] {
            web.send(format!("GET {path} {line}\r\n").as_bytes());
            let response = web.response();
            assert_eq!(response.status, status, "{path} {line:?}");
            assert_eq!(response.text().contains("--http-host"), status == 421, "{path} {line:?}");
        }
    }
    web.send(b"GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(web.response().status, 421, "the target counts more than the header");
}

#[test]
fn the_client_decides_whether_the_connection_stays() {
    let (_daemon, address) = start(&[]);
    for (head, stays) in [
        ("HTTP/1.0\r\n", None),
        ("HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", None),
        ("HTTP/1.0\r\nConnection: keep-alive\r\n", Some("keep-alive")),
    ] {
        let mut web = Web::to(address);
        web.send(format!("GET /healthz {head}\r\n").as_bytes());
        let response = web.response();
        assert_eq!(response.headers["connection"], stays.unwrap_or("close"), "{head:?}");
        match stays {
            None => assert!(web.is_over(), "{head:?}"),
            Some(_) => assert_eq!(web.get("/healthz").status, 200),
        }
    }
    let mut web = Web::to(address);
    web.send(request("/healthz").as_bytes());
    web.stream().shutdown(std::net::Shutdown::Write).expect("is connected");
    assert_eq!(web.response().text(), "ok\n", "whoever only closes its side is answered");
    assert!(web.is_over());
}

#[test]
fn a_client_that_does_not_read_costs_little() {
    let (daemon, address) = start(&[]);
    let mut other = Web::to(address);
    let before = (other.get("/metrics"), daemon.memory()).1;
    let deaf = Web::to(address);
    let requests = 20_000;
    let mut writer = deaf.stream().try_clone().expect("a second handle");
    let sending = thread::spawn(move || {
        writer.write_all(request("/status.json").repeat(requests).as_bytes()).expect("is sent in the end");
    });
    thread::sleep(Duration::from_millis(300));
    for _ in 0..20 {
        assert_eq!(other.get("/healthz").status, 200);
        assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED");
    }
    let grown = daemon.memory().saturating_sub(before);
    assert!(grown < 16 * FULL_BYTES as u64, "{grown} bytes for somebody who does not read");
    assert!(other.get("/metrics").metric("poolcounter_budget_spent_total{budget=\"output\"}") > 0.0);
    let mut deaf = deaf;
    for n in 0..requests {
        assert_eq!(deaf.response().status, 200, "response {n}");
    }
    sending.join().expect("everything was sent");
}

#[test]
fn partial_requests_cost_little_and_there_are_only_so_many() {
    let (daemon, address) = start(&[]);
    let mut clients: Vec<Web> = (0..100).map(|_| Web::to(address)).collect();
    for client in &mut clients {
        client.send(format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(7_000)).as_bytes());
    }
    let mut late = Web::to(address);
    assert_eq!(late.get("/healthz").text(), "ok\n");
    assert!(clients.iter_mut().any(Web::is_over), "there are only as many as there may be");
    assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED", "which is nothing to the pools");
    let last = clients.last_mut().expect("there are a hundred");
    last.send(b"\r\nHost: localhost\r\n\r\n");
    assert_eq!(last.response().status, 200, "patience is answered");
}

#[test]
fn metrics_count_what_happens() {
    let (daemon, address) = start(&[]);
    let (mut holder, mut waiter) = (daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME ArticleView:x 1 2 5"), "LOCKED");
    waiter.send(b"ACQ4ME ArticleView:x 1 2 60\n");
    assert_eq!(daemon.connect().ask("ACQ4ME ArticleView:x 1 2 0"), "QUEUE_FULL");
    holder.wait_for_stat("waiting_workers", 1);
    let mut web = Web::to(address);
    let page = web.get("/metrics");
    for (name, value) in [
        ("poolcounter_pools_acquired_total", 1.0),
        ("poolcounter_pools_full_queues_total", 1.0),
        ("poolcounter_pools_processing_workers", 1.0),
        ("poolcounter_pools_waiting_workers", 1.0),
        ("poolcounter_connections{service=\"http\"}", 1.0),
    ] {
        assert_eq!(page.metric(name), value, "{name}");
    }
    let with_waiter = page.metric("poolcounter_timers");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    assert_eq!(waiter.line(), "LOCKED");
    let page = web.get("/metrics");
    assert!(page.metric("poolcounter_timers") < with_waiter, "its timeout is gone");
    assert!(page.metric("poolcounter_pools_waiting_seconds_total") > 0.0);
    assert!(page.metric("poolcounter_received_bytes_total{service=\"pools\"}") >= 100.0);
    assert!(page.metric("poolcounter_sent_bytes_total{service=\"http\"}") >= 1_000.0);
    assert!(page.metric("poolcounter_tick_seconds_count") >= 5.0);
    assert!(page.metric("process_resident_memory_bytes") >= 500_000.0);
    let (open, most) = (page.metric("process_open_fds"), page.metric("process_max_fds"));
    assert!((6.0..200.0).contains(&open) && most > open, "{open} of {most}");
    let later = Web::to(address);
    assert_eq!(web.get("/metrics").metric("process_open_fds"), open + 1.0, "it is asked at each scrape");
    drop(later);
    assert!(web.get("/metrics").metric("process_cpu_seconds_total") > 0.0);
    let (started, uptime) = (page.metric("process_start_time_seconds"), page.metric("poolcounter_uptime_seconds"));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970").as_secs_f64();
    assert!((now - started - uptime).abs() < 30.0, "{started} + {uptime} is not {now}");
}

#[test]
fn an_ended_condition_has_no_command_on_the_page() {
    let (daemon, address) = start(&["--warn-hold", "0.2", "--status-after", "0.1"]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME backup 1 9 9"), "LOCKED");
    let locks = || json(address, "/status.json")["health"][0].clone();
    let wait_until = |level: &str| {
        let deadline = Instant::now() + PATIENCE;
        while locks()["level"] != level || locks()["conditions"][0].is_null() {
            assert!(Instant::now() < deadline, "{}", locks());
            thread::sleep(Duration::from_millis(100));
        }
        locks()["conditions"][0].clone()
    };
    let on = wait_until("warning");
    assert!(on["until"].is_null() && on["badness"].as_f64() > Some(1.0), "{on}");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let ended = wait_until("ok");
    assert!(ended["until"].as_f64() > on["since"].as_f64() && ended["command"] == "", "{ended}");
    assert!(ended["sentence"].as_str().is_some_and(|it| it.starts_with("not now; was: backup: ")), "{ended}");
    let page = fetch(address, "/locks");
    assert!(page.text().contains("not now; was: ") && !page.text().contains("RELEASE-LOCK"), "{}", page.text());
}

#[test]
fn connections_and_history_survive_an_upgrade() {
    let (mut daemon, address) = start(&[]);
    let mut client = daemon.connect();
    let mut web = Web::to(address);
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
    let ticks = web.get("/metrics").metric("poolcounter_tick_seconds_count");
    let request = request("/metrics");
    let (begin, end) = request.split_at(20);
    web.send(begin.as_bytes());
    daemon.upgrade();
    web.send(end.as_bytes());
    let page = web.response();
    assert_eq!(page.metric("poolcounter_pools_acquired_total"), 1.0);
    assert!(page.metric("poolcounter_tick_seconds_count") > ticks);
    assert!(page.metric("poolcounter_connections_opened_total{service=\"http\"}") == 1.0);
    assert_eq!(fetch(address, "/healthz").text(), "ok\n", "the listener is still there");
}

/// A daemon without requests does not wake up for the page.
#[test]
fn an_idle_daemon_sleeps() {
    let (daemon, address) = start(&[]);
    let mut web = Web::to(address);
    assert_eq!(web.get("/metrics").status, 200);
    let wakeups = |daemon: &Daemon| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).expect("Linux tells");
        line.trim().parse().expect("a number")
    };
    // The daemon looks at its health once more.
    thread::sleep(Duration::from_millis(1_500));
    let before = wakeups(&daemon);
    thread::sleep(Duration::from_millis(4_000));
    assert_eq!(wakeups(&daemon), before);
}

/// The policy allows the browser only the page's own script and style.
#[test]
fn the_policy_names_the_pages_script_and_style() {
    let (_daemon, address) = start(&[]);
    let page = fetch(address, "/");
    let policy = &page.headers["content-security-policy"];
    for (directive, tag) in [("script-src", "script"), ("style-src", "style")] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let content = page.text().split(&open).nth(1).and_then(|rest| rest.split(&close).next()).expect("is there");
        let wanted = format!("{directive} 'sha256-{}';", sha256(content.as_bytes()));
        assert!(policy.contains(&wanted), "{policy} has not {wanted}");
    }
    assert!(policy.starts_with("default-src 'none';"));
}

/// Names that are meant to break out of every page. None has a space, which ends a name in protocols of lines.
const HOSTILE: [&[u8]; 8] = [
    b"<script>alert(1)</script>",
    b"</script><img/src=x/onerror=alert(2)>",
    b"\"><b>'&amp;`${x}",
    b"bad\xff\xfe\xc3(",
    b"ctl\x01\x08\t\x0b\x1b[2J\x7f\xc2\x9b",
    "\u{202e}turned\u{200b}\u{2066}\u{feff}\u{2028}".as_bytes(),
    b"{{label=\"x\"}}\\n\\",
    b"--><!--]]>\x1f",
];
/// Characters that no page may contain unescaped, besides ends of lines and tabs of its own.
const UNSEEN: [char; 12] = [
    '\u{0}', '\u{1}', '\u{8}', '\u{b}', '\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{200b}', '\u{2066}', '\u{feff}',
    '\u{2028}',
];

/// Returns a world in which everything with a name has each hostile name.
fn hostile_world() -> World {
    let mut world = World::of_administrators();
    world.begin().expect("nothing is kept anywhere");
    for name in HOSTILE.iter().copied().chain([&b"nul\0and\nline"[..]]) {
        let of_lines = !name.contains(&0);
        let say = |world: &mut World, service: &str, parts: &[&[u8]]| {
            let client = world.connect_to(service);
            world.send(client, &parts.concat());
            world.settle();
            world.take_received(client)
        };
        let units = [frames::acquire(2, 9, name), frames::acquire(1, 1, name)].concat();
        assert_eq!(say(&mut world, "counters", &[&units])[2], 0);
        if !of_lines {
            // The second line of such a name is a request of its own; the protocol of jobs takes any byte but those
            // that end a word.
            let told = say(&mut world, "members", &[b"POOL nul\0 0 1\n"]);
            assert!(told.starts_with(b"ERROR"), "{}", told.escape_ascii());
            continue;
        }
        for key in [name, &[name, b":", name].concat()] {
            for _ in 0..2 {
                say(&mut world, "pools", &[b"ACQ4ME ", key, b" 1 2 9 who=", name, b"\n"]);
            }
            assert_eq!(say(&mut world, "pools", &[b"ACQ4ME ", key, b" 1 2 9\n"]), b"QUEUE_FULL\n");
        }
        let provider: [&[&[u8]]; 3] = [
            &[b"POOL ", name, b" 0 3 max_hold=9 group=", name, b"\n"],
            &[b"PROVIDE ", name, b" 3\n"],
            &[b"OFFER ", name, b" ", name, b" ", name, b"=", name, b"\n"],
        ];
        let consumer: [&[&[u8]]; 2] = [&[b"IDENTIFY ", name, b"\n"], &[b"TAKE ", name, b" 1\n"]];
        for lines in [&provider[..], &consumer, &[&[b"TAKEGROUP ", name, b" 1\n"]]] {
            let lines: Vec<Vec<u8>> = lines.iter().map(|line| line.concat()).collect();
            let told = say(&mut world, "members", &[&lines.concat()]);
            assert!(!told.windows(5).any(|word| word == b"ERROR"), "{}", told.escape_ascii());
        }
        // Names of jobs have no control characters; errors have any.
        let any = name;
        let name: Vec<u8> = name.iter().copied().filter(|byte| !byte.is_ascii_control()).collect();
        let name = &name[..name.len().min(60)];
        let put: &[&[u8]] =
            &[b"put-job 1 0 60 2 tube=a/t group=", name, b" key=", name, b" root=", name, b" root-ts=1\r\n", name];
        let body = [&put[..put.len() - 1].concat()[..], &name[..2], b"\r\n"].concat();
        let end = [&b"identify "[..], name, b"\r\nwatch a/t\r\nreserve\r\n"].concat();
        let runner = world.connect_to("jobs");
        world.send(runner, &[&body[..], &end[..], b"put 1 0 60 0\r\n\r\n"].concat());
        world.settle();
        let told = world.take_received(runner);
        let at = told.windows(9).position(|word| word == b"RESERVED ").expect("a job is reserved");
        let id: Vec<u8> = told[at + 9..].iter().copied().take_while(u8::is_ascii_digit).collect();
        let fail = [b"fail ", &id[..], b" ", format!("{}", any.len()).as_bytes(), b"\r\n", any, b"\r\n"].concat();
        world.send(
            runner,
            &[&fail[..], b"reserve-job ", &id, b"\r\nbury ", &id, b" 1\r\nreserve-with-timeout 60\r\n"].concat(),
        );
        world.settle();
    }
    world.advance(Span::from_secs(7));
    world
}

/// Collects every string in a JSON value; of the texts of blocks, which have line feeds and tabs, each piece between
/// these.
fn strings(value: &serde_json::Value, all: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => all.push(text.clone()),
        serde_json::Value::Object(fields) if fields.len() == 2 && fields.contains_key("text") => {
            let texts = fields.values().filter_map(|text| text.as_str());
            all.extend(texts.flat_map(|text| text.split(['\n', '\t'])).map(String::from));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, all)),
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            all.push(name.clone());
            strings(value, all);
        }),
        _ => {}
    }
}

/// Checks every page that links reach from the first, its JSON, and the metrics, when everything has hostile names.
#[test]
fn hostile_names_of_every_kind_are_text_in_every_page() {
    let mut world = hostile_world();
    let mut ask = |path: &str| {
        let client = world.connect_to("http");
        world.send(client, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes());
        world.settle();
        let answer = String::from_utf8(world.take_received(client)).expect("every answer is text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("has a head");
        (head[9..12].parse::<u16>().expect("is a status"), body.to_string())
    };
    let first = ["/", "/?range=1h", "/jobs/matrix", "/jobs/buried"].map(String::from);
    let (mut kinds, mut seen) = (BTreeSet::new(), BTreeSet::from(first.clone()));
    let (mut paths, mut texts) = (Vec::from(first), Vec::new());
    while let Some(path) = paths.pop() {
        let (status, page) = ask(&path);
        assert!(status == 200 || status == 404, "{path}: {status}");
        if status == 404 {
            // The target of a link may be gone by now, such as a key without holders.
            continue;
        }
        assert_eq!(page.matches("<script").count(), 2, "{path}: the page's own");
        assert!(!page.contains(UNSEEN), "{path}: something that cannot be seen");
        let (markup, data) = page.split_once(r#"id="status">"#).expect("has its data");
        let (data, rest) = data.split_once("</script>").expect("the data end");
        let raw = ["<img", "<b>", "<!--]", "onerror=alert(2)>"];
        let found = raw.iter().find(|raw| markup.contains(**raw) || rest.contains(**raw));
        assert!(found.is_none() && !data.contains('<'), "{path}: {found:?} is markup");
        let data: serde_json::Value = serde_json::from_str(data).expect("is JSON");
        strings(&data, &mut texts);
        for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            if link.starts_with('/')
                && !link.contains("range=")
                && !["/status.json", "/metrics"].contains(&link)
                && seen.insert(link.to_string())
            {
                assert!(link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/%-_.".contains(&byte)), "{link}");
                kinds.insert(link.split('/').take(3).collect::<Vec<_>>().join("/"));
                paths.push(link.to_string());
            }
        }
        if path.len() > 1 && !path.contains('?') {
            let (status, json) = ask(&format!("{path}.json"));
            assert_eq!(status, 200, "{path}.json");
            strings(&serde_json::from_str(&json).unwrap_or_else(|error| panic!("{path}: {error}")), &mut texts);
        }
    }
    let status: serde_json::Value = serde_json::from_str(&ask("/status.json").1).expect("is JSON");
    strings(&status, &mut texts);
    let holders = status["pools"]["holders"].as_array().expect("is a list");
    let keys: BTreeSet<&str> = holders.iter().map(|row| row["key"].as_str().expect("is text")).collect();
    assert_eq!(keys.len(), 2 * HOSTILE.len(), "{keys:#?}");
    for shown in ["<script>alert(1)</script>", r"bad\xff\xfe\xc3(", r"\u{202e}turned\u{200b}\u{2066}\u{feff}\u{2028}"] {
        assert!(keys.contains(shown) && keys.contains(&*format!("{shown}:{shown}")), "{shown}: {keys:#?}");
    }
    for key in keys {
        let path = format!("/pools/key/{}", percent_encoded(key));
        assert_eq!(ask(&path).0, 200, "{key}");
        let (status, view) = ask(&format!("{path}.json"));
        let view: serde_json::Value = serde_json::from_str(&view).expect("is JSON");
        let claims = view["pools"]["claims"].as_array().map(Vec::len);
        let title = format!("Key {key}");
        assert_eq!((status, claims, view["title"].as_str()), (200, Some(2), Some(&*title)), "it is found by this text");
    }
    assert!(!texts.iter().any(|text| text.contains(UNSEEN) || text.contains(['\n', '\t'])), "a text in the JSON");
    for shown in ["<script>alert(1)</script>", r"bad\xff\xfe\xc3(", r"\u{202e}turned\u{200b}", r"nul\u{0}and\u{a}line"]
    {
        assert!(texts.iter().any(|text| text.contains(shown)), "{shown} is shown nowhere");
    }
    let known =
        ["counters/client", "counters/counter", "jobs/job", "jobs/root", "jobs/runner", "jobs/tube", "jobs/type"];
    let known = known.into_iter().chain([
        "jobs/wiki",
        "members/member",
        "members/pool",
        "pools/client",
        "pools/key",
        "pools/type",
    ]);
    let tabs = ["locks", "counters", "members", "jobs", "daemon"];
    let known = known.chain(tabs).map(|kind| format!("/{kind}"));
    assert_eq!(kinds, known.collect(), "kinds of pages that links lead to");
    let (_, metrics) = ask("/metrics");
    assert!(!metrics.contains(UNSEEN) && metrics.ends_with('\n'));
    for label in
        [r#"<script>alert(1)</script>"#, r"bad\\xff\\xfe\\xc3(", r#"\"><b>'&amp;`${x}"#, r#"{{label=\"x\"}}\\\\n\\\\"#]
    {
        let line = format!("poolcounter_pools_type_working{{type=\"{label}\"}} 1\n");
        assert!(metrics.contains(&line), "{line}");
    }
    for line in metrics.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(["poolcounter_", "process_"].iter().any(|begin| name.starts_with(begin)), "{line}");
        assert!(value.parse::<f64>().is_ok() && name.contains('{') == name.ends_with('}'), "{line}");
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn json(address: SocketAddr, path: &str) -> serde_json::Value {
    serde_json::from_str(fetch(address, path).text()).expect("is JSON")
}

#[test]
fn one_thing_has_a_page_of_its_own() {
    let (daemon, address) = start(&["--counter", "--counter-listen", "127.0.0.1:0"]);
    let mut clients: Vec<Client> = (0..4).map(|_| daemon.connect()).collect();
    assert_eq!(clients[0].ask("ACQ4ME Page:a 1 3 60 who=web1@host:7"), "LOCKED");
    clients[1].send(b"ACQ4ANY Page:a 1 3 60\n");
    clients[0].wait_for_stat("waiting_workers", 1);
    clients[2].send(b"ACQ4ME Page:a 1 3 60 who=web2\n");
    clients[0].wait_for_stat("waiting_workers", 2);
    assert_eq!(clients[3].ask("ACQ4ME Other:c 1 1 0"), "LOCKED");
    let claims = |path: &str| -> Vec<(u64, String, String)> {
        let view = json(address, path);
        let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap_or("-").to_string();
        let rows = view["pools"]["claims"].as_array().expect("is a list");
        rows.iter()
            .map(|row| (row["place"].as_u64().expect("a number"), text(row, "state"), text(row, "who")))
            .collect()
    };
    let row = |place, state: &str, who: &str| (place, state.to_string(), who.to_string());
    let wanted =
        [row(1, "works", "web1@host:7"), row(1, "waits for the lock", "web2"), row(2, "waits for the work", "-")];
    assert_eq!(claims("/pools/key/Page:a.json"), wanted);
    assert_eq!(claims("/pools/client/web1%40host%3A7.json"), wanted[..1]);
    assert_eq!(claims("/pools/client/127.0.0.1.json").len(), 4, "all of a machine");
    assert_eq!(claims("/pools/key/nobody.json"), []);
    let key = json(address, "/pools/key/Page:a.json")["pools"]["claims"][1]["peer_key"].as_str().map(percent_encoded);
    assert_eq!(claims(&format!("/pools/client/{}.json", key.expect("is there"))), wanted[1..2]);
    let view = json(address, "/pools/type/Page.json");
    assert_eq!((&view["pools"]["types"][0]["acquired"], &view["title"]), (&1.into(), &"Keys of Page".into()));
    assert_eq!(
        (&view["pools"]["busiest"][0]["waiting"], view["pools"]["busiest"].as_array().map(Vec::len)),
        (&2.into(), Some(1))
    );
    let found = json(address, "/find/age.json");
    assert_eq!(
        (&found["pools"]["busiest"][0]["key"], found["counters"]["busiest"].as_array().map(Vec::len)),
        (&"Page:a".into(), Some(0))
    );
    for path in ["/pools/type/Nothing", "/pools/other/x", "/pools/key", "/http/key/x", "/members/pool/x"] {
        assert_eq!(fetch(address, path).status, 404, "{path}");
    }
    assert_eq!(fetch(address, "/pools/key/Page:a").status, 200);
}

/// The page of a pool shows its waiters, and why members are not handed out, with the commands that help.
#[test]
fn a_pool_of_members_has_a_page() {
    let (daemon, address) = start(&["--members", "--members-listen", "127.0.0.1:0"]);
    let mut clients: Vec<Client> = (0..3).map(|_| Client::to(daemon.members())).collect();
    for line in ["POOL p 0 3 warn_hold=0.001", "ADD p a", "ADD p b", "ADD p c os=ios"] {
        assert_eq!(clients[0].ask(line), "OK", "{line}");
    }
    assert_eq!(clients[0].ask("HOLD p b 60 broken screen"), "OK");
    let taken = clients[1].ask("TAKE p 0 os=ios");
    assert!(taken.starts_with("MEMBER ") && taken.contains(" p c"), "{taken}");
    let other = clients[1].ask("TAKE p 0");
    assert!(other.starts_with("MEMBER ") && other.ends_with(" p a"), "{other}");
    clients[2].send(b"TAKE p 60 os=ios pri=5\n");
    thread::sleep(Duration::from_millis(50));
    let view = json(address, "/members/pool/p.json");
    let waiter = ["place", "wants", "count", "pri"].map(|name| &view["members"]["waiters"][0][name]);
    let wanted = serde_json::json!([1, "os=ios", 1, 5]);
    assert_eq!(serde_json::json!(waiter), wanted, "{view}");
    let row = |n: usize| &view["members"]["members"][n];
    assert_eq!(row(2)["attributes"], "os=ios");
    assert_eq!((&row(1)["state"], &row(1)["why"]), (&"held".into(), &"broken screen".into()));
    assert!(row(1)["out"].as_f64().is_some_and(|seconds| seconds > 0.0) && row(1)["held"].is_null());
    assert!(row(0)["held"].as_f64().zip(row(0)["long"].as_f64()).is_some_and(|(held, long)| long < held), "{}", row(0));
    let commands: Vec<&str> = view["commands"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
    assert!(commands.contains(&"members free p b") && commands[1].starts_with("members takeback p --member "));
    assert_eq!(view["history"]["series"].as_array().map(Vec::len), Some(2));
}

/// The body of a job may be confidential: a proxy on this machine may pass on requests of all the world.
#[test]
fn bodies_of_jobs_are_for_browsers_of_this_machine() {
    for (options, is_shown) in [(&[][..], [true, false]), (&["--jobs-show-bodies", "none"], [false, false])] {
        let all = [&["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory"], options].concat();
        let (daemon, address) = start(&all);
        let mut client = Client::to(daemon.jobs());
        assert_eq!(client.ask("put 0 0 60 6\r\nsecret\r"), "INSERTED 1\r");
        for (more, is_shown) in ["", "X-Forwarded-For: 10.0.0.1\r\n"].iter().zip(is_shown) {
            let request = format!("GET /jobs/job/1.json HTTP/1.0\r\nHost: localhost\r\n{more}\r\n");
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.write_all(request.as_bytes()).expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("it is text");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            assert_eq!(answer.contains("secret"), is_shown, "{options:?} {more}: {answer}");
        }
    }
}

/// A range shows only recent counts.
#[test]
fn counts_are_of_the_range() {
    let (daemon, address) = start(&[]);
    let mut client = daemon.connect();
    for _ in 0..7 {
        assert_eq!((client.ask("ACQ4ME Page:a 1 1 0"), client.ask("RELEASE")), ("LOCKED".into(), "RELEASED".into()));
    }
    for (path, range) in
        [("/status.json", None), ("/status.json?range=5m", Some("5m")), ("/status.json?range=never", None)]
    {
        let status = json(address, path);
        let heading = &status["services"][0]["tables"][0];
        assert_eq!(
            (status["range"].as_str(), heading["recent"]["seconds"].is_number()),
            (range, range.is_some()),
            "{path}"
        );
        assert_eq!(status["pools"]["types"][0]["acquired"], 7, "{path}");
    }
    let page = fetch(address, "/?range=1h");
    assert!(page.text().contains("<strong>the last hour</strong>") && page.text().contains("\"range\":\"1h\""));
    assert!(
        fetch(address, "/").text().contains("<strong>the last minute</strong>"),
        "without a word it is the shortest"
    );
}

/// Rows that are hidden before a click are not sent before it.
#[test]
fn a_page_with_many_types_is_light() {
    let (daemon, address) = start(&["--max-locks", "300"]);
    let mut client = daemon.connect();
    (0..300).for_each(|n| assert_eq!(client.ask(&format!("ACQ4ME Type{n}:item 1 1 0")), "LOCKED"));
    let rows = |page: &str| page.matches("<td><a href=\"/pools/type/").count();
    let page = fetch(address, "/locks");
    assert!(page.body.len() < 100 * 1024, "{} bytes", page.body.len());
    assert_eq!(rows(page.text()), 20);
    assert!(page.text().contains("<p>There are 237 more. <a href=\"?range=1m&amp;rows=300\">Show all.</a></p>"));
    assert_eq!(rows(fetch(address, "/locks?range=1m&rows=300").text()), 257);
    for (query, count) in [("", 257), ("?rows=7", 7), ("?rows=9999", 257), ("?rows=x", 257)] {
        let status = json(address, &format!("/status.json{query}"));
        let heading = &status["services"][0]["tables"][0];
        assert_eq!(status["pools"]["types"].as_array().map(Vec::len), Some(count), "{query}");
        assert_eq!(heading["more"], 257 - count, "{query}");
    }
}

/// The counts of each row are noted in the order of the columns: with all of them noted at the start, none are left in
/// a range.
#[test]
fn ranges_are_of_every_service() {
    let (daemon, address) = start(&[
        "--members",
        "--members-listen",
        "127.0.0.1:0",
        "--jobs",
        "--jobs-listen",
        "127.0.0.1:0",
        "--jobs-store",
        "memory",
    ]);
    let mut members = Client::to(daemon.members());
    for line in ["POOL a 0 3", "ADD a m1"] {
        assert_eq!(members.ask(line), "OK");
    }
    let lease = members.ask("TAKE a").split(' ').nth(1).expect("it is free").to_string();
    assert_eq!(members.ask(&format!("RETURN {lease}")), "RETURNED");
    let mut jobs = JobsClient::to(daemon.jobs());
    assert!(jobs.ask("use enwiki/refreshLinks").starts_with("USING"));
    assert!(jobs.put("0 0 60", b"x").starts_with("INSERTED"));
    for (table, name, counted) in
        [("members/pools", "a", "takes"), ("jobs/wikis", "enwiki", "put"), ("jobs/types", "refreshLinks", "put")]
    {
        let (service, table) = table.split_once('/').expect("has both");
        for (range, is_recent) in [("1m", true), ("start", false)] {
            let status = json(address, &format!("/status.json?range={range}"));
            let services = status["services"].as_array().expect("is a list");
            let told = services.iter().find(|it| it["name"] == service).expect("is there");
            let heading = told["tables"].as_array().and_then(|all| all.iter().find(|it| it["name"] == table));
            assert_eq!(heading.expect("is there")["recent"]["seconds"].is_number(), is_recent, "{table}");
            assert_eq!(
                (&status[service][table][0]["name"], &status[service][table][0][counted]),
                (&name.into(), &1.into())
            );
        }
    }
    let row = &json(address, "/jobs.json?range=1m")["jobs"]["wikis"][0];
    assert_eq!((&row["put"], row.get("put_rate")), (&1.into(), None), "a figure is shown once: {row}");
}

/// Connects clients whose keys are meant to break out of every page.
fn hostile_clients(daemon: &Daemon) -> Vec<Client> {
    let keys: [&[u8]; 8] = [
        b"<script>alert(1)</script>:x",
        b"</script><img/src=x/onerror=alert(2)>:<b>",
        b"\"quoted\\\":'x'",
        b"bad\xff\xfe:\xc3(",
        b"ctl\x01\x1b[2J\r:\x7f",
        "\u{202e}turned:日本語".as_bytes(),
        b"{{label=\"x\"}}:%s",
        b"--><!--:]]>",
    ];
    let ask = |key: &&[u8]| {
        let mut client = daemon.connect();
        client.send(&[b"ACQ4ME ", *key, b" 1 1 0\n"].concat());
        assert_eq!(client.line(), "LOCKED");
        let mut other = daemon.connect();
        other.send(&[b"ACQ4ME ", *key, b" 1 1 0\n"].concat());
        assert_eq!(other.line(), "QUEUE_FULL");
        client
    };
    keys.iter().map(ask).collect()
}

/// Returns the complaints of `promtool`, if it is installed.
fn promtool(arguments: &[&str], input: &str) -> Option<String> {
    let complaints = filter("promtool", arguments, input.as_bytes());
    if complaints.is_none() {
        poolcounter_testkit::skipped(&format!("promtool {}, because it is not installed", arguments.join(" ")));
    }
    complaints
}

/// Returns the output of a program, if it is installed.
fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        child => child.expect("the program runs"),
    };
    child.stdin.take().expect("is piped").write_all(input).expect("is read");
    let output = child.wait_with_output().expect("the program ends");
    let printed = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(printed).expect("is text"))
}

/// Prometheus understands the metrics, and the recommended alerts, which use existing metrics.
#[test]
fn the_metrics_and_alerts_are_sound() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/prometheus-rules.yaml");
    let rules = fs::read_to_string(file).expect("lies in the repository");
    let (daemon, address) = start(&[]);
    let _clients = hostile_clients(&daemon);
    let page = fetch(address, "/metrics");
    if let Some(complaints) = promtool(&["check", "metrics"], page.text()) {
        assert_eq!(complaints, "");
    }
    let words: Vec<&str> = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let is_metric = |word: &&&str| word.starts_with("poolcounter_") || word.starts_with("process_");
    let named: Vec<&&str> = words.iter().filter(is_metric).collect();
    assert!(named.len() >= 8, "{named:?}");
    for name in named {
        let (line, kind) = (name.to_string(), format!("# TYPE {} ", name.trim_end_matches("_bucket")));
        let is_told = |it: &str| it.starts_with(&line) || it.starts_with(&kind);
        assert!(page.text().lines().any(is_told), "there is no {name}");
    }
    let alerts = rules.matches("- alert: ").count();
    assert_eq!(rules.matches("severity: ").count(), alerts, "each has a severity");
    for shown in rules.split("$value").skip(1) {
        assert!(shown.starts_with(" | humanize"), "a value is shown raw: {:?}", shown.lines().next());
    }
    if let Some(verdict) = promtool(&["check", "rules", file], "") {
        assert!(verdict.contains(&format!("SUCCESS: {alerts} rules found")), "{verdict}");
    }
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets/alerts.yaml");
    if let Some(verdict) = promtool(&["test", "rules", cases], "") {
        assert!(verdict.contains("SUCCESS") && !verdict.contains("FAILED"), "{verdict}");
    }
}

/// Returns the SHA-256 of some bytes, in Base64.
fn sha256(bytes: &[u8]) -> String {
    let printed = filter("sha256sum", &[], bytes).expect("every system has it");
    let hex = printed.split_whitespace().next().expect("a word").as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit");
    let bytes: Vec<u32> = hex.chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect();
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().chain(&[0, 0]).take(3).fold(0, |bits, byte| bits << 8 | byte);
        let digits = (0..4).map(|n| alphabet[(bits >> (18 - 6 * n)) as usize % 64]);
        text.extend(digits.take(group.len() + 1));
    }
    text + &"=".repeat(2 - (bytes.len() + 2) % 3)
}

/// Connections without a request are closed, at the latest when others come; those that hold something are not.
#[test]
fn silent_connections_shut_nobody_out() {
    let mut world = World::new(Default::default());
    let [silent, dripping, asking] = [(); 3].map(|()| world.connect_to("http"));
    let holder = world.connect();
    for second in 0..30 {
        assert_eq!([silent, dripping].map(|client| world.is_closed(client)), [second >= 10; 2], "{second}");
        world.send(dripping, b"G");
        world.send(
            asking,
            b"HEAD /healthz HTTP/1.1
Host: localhost

",
        );
        world.advance(Span::from_secs(1));
        assert!(!world.is_closed(asking) && !world.take_received(asking).is_empty());
    }
    world.advance(Span::from_secs(10));
    assert!(world.is_closed(asking) && !world.is_closed(holder));
}
