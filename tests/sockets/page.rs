//! One page of several daemons: its totals, and its handling of daemons that are dead, slow or other servers.

use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use poolcounter_testkit::running::{Ended, run};
use poolcounter_testkit::web::{Response, fetch, page_of, start};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Requests a page until the condition is true, and returns the response: on a busy machine a daemon may take longer than
/// the page waits for it.
fn fetch_until(page: SocketAddr, path: &str, is_so: impl Fn(&Response) -> bool) -> Response {
    let begun = Instant::now();
    loop {
        let response = fetch(page, path);
        if is_so(&response) {
            return response;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", response.text());
        thread::sleep(Duration::from_millis(100));
    }
}

/// Requests the page's JSON until the condition is true, and returns it.
fn wait_until(page: &Daemon, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let json = |response: &Response| serde_json::from_str(response.text()).expect("is JSON");
    json(&fetch_until(page.address, path, |response| is_so(&json(response))))
}

/// Requests the page's JSON until all daemons have answered in time, and returns it.
fn of_all(page: &Daemon, path: &str) -> Value {
    let answers = |server: &Value| server["state"] == "answers";
    wait_until(page, path, |told| told["http"]["servers"].as_array().is_some_and(|all| all.iter().all(answers)))
}

fn row<'a>(told: &'a Value, service: &str, table: &str, column: &str, value: &str) -> &'a Value {
    let rows = told[service][table].as_array();
    rows.and_then(|rows| rows.iter().find(|row| row[column] == value)).unwrap_or(&Value::Null)
}

fn state_of(told: &Value, server: SocketAddr) -> &Value {
    row(told, "http", "servers", "server", &server.to_string())
}

#[test]
fn daemons_are_added_up() {
    let ((one, at_one), (other, at_other)) = (start(&[]), start(&[]));
    let mut clients: Vec<_> = [&one, &one, &other].map(Daemon::connect).into();
    for (client, key) in clients.iter_mut().zip(["T:a", "T:b.json", "T:c"]) {
        assert_eq!(client.ask(&format!("ACQ4ME {key} 1 5 5")), "LOCKED");
    }
    let page = page_of(&[at_one, at_other]);
    let told = wait_until(&page, "/status.json", |told| told["pools"]["types"][0]["working"] == 3);
    assert_eq!(
        (&told["pools"]["types"][0]["name"], told["pools"]["types"].as_array().map(Vec::len)),
        (&"T".into(), Some(1))
    );
    for (key, server) in [("T:a", at_one), ("T:b.json", at_one), ("T:c", at_other)] {
        assert_eq!(row(&told, "pools", "busiest", "key", key)["server"], server.to_string(), "{key}");
    }
    let services = told["services"].as_array().expect("is a list");
    let pools = services.iter().find(|service| service["name"] == "pools").expect("is used");
    assert_eq!((pools["connections"].as_u64(), services[0]["name"].as_str()), (Some(3), Some("http")));
    assert!(told["history"]["series"].as_array().is_some_and(|series| !series.is_empty()));

    // A view covers all daemons, too.
    let key = of_all(&page, "/pools/key/T:c.json");
    assert_eq!(
        (&key["title"], &key["pools"]["claims"][0]["server"]),
        (&"Key T:c".into(), &at_other.to_string().into())
    );
    let view = of_all(&page, "/pools/type/T.json");
    let claims = view["pools"]["claims"].as_array().map(Vec::len);
    assert_eq!((&view["pools"]["types"][0]["working"], claims), (&3.into(), Some(3)), "{view}");
    let found = of_all(&page, "/find/T:.json");
    assert!(found.to_string().contains("T:a") && found.to_string().contains("T:c"), "{found}");
    fetch_until(page.address, "/nowhere/x", |page| page.status == 404);
    assert_eq!(fetch(page.address, "/healthz").text(), "ok\n");

    // The document is the same page as of one daemon, with the same policy, and a name that ends like JSON has one.
    let link = "<a href=\"/pools/key/T%3Ab%2Ejson\">T:b.json</a>";
    let document = fetch_until(page.address, "/locks", |page| page.text().contains(link));
    let own = fetch(at_one, "/");
    assert_eq!(document.headers["content-security-policy"], own.headers["content-security-policy"]);
    assert!(document.text().contains(&format!("<a href=\"http://{at_other}/\">{at_other}</a>")));
    for address in [page.address, at_one] {
        let page = fetch_until(address, "/pools/key/T%3Ab%2Ejson", |page| page.text().contains("Key T:b.json"));
        assert_eq!((page.status, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
        let told = fetch(address, "/pools/key/T%3Ab%2Ejson.json?range=start");
        assert_eq!(told.headers["content-type"], "application/json");
    }
}

#[test]
fn one_dies_and_returns() {
    let ((one, at_one), (other, at_other)) = (start(&[]), start(&[]));
    let mut clients = [one.connect(), other.connect()];
    clients.iter_mut().for_each(|client| assert_eq!(client.ask("ACQ4ME T:a 1 5 5"), "LOCKED"));
    let page = page_of(&[at_one, at_other]);
    assert_eq!(of_all(&page, "/status.json")["pools"]["types"][0]["working"], 2);
    drop(other);
    let told = wait_until(&page, "/status.json", |told| state_of(told, at_one)["state"] == "answers");
    assert!(state_of(&told, at_other)["state"].to_string().contains("refused"), "{told}");
    assert_eq!(told["pools"]["types"][0]["working"], 1, "it is left out at once");
    let back = Daemon::start(&["--http", &at_other.to_string()]);
    assert_eq!(back.connect().ask("ACQ4ME T:b 1 5 5"), "LOCKED");
    of_all(&page, "/status.json");
}

/// Starts a server that handles each connection with `serve`, for ever; its thread ends with the test.
fn strange(serve: impl Fn(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("has one");
    thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| serve(&mut stream)));
    address
}

#[test]
fn strange_servers_harm_nobody() {
    let (daemon, at) = start(&[]);
    assert_eq!(daemon.connect().ask("ACQ4ME T:a 1 5 5"), "LOCKED");
    let read_request = |stream: &mut TcpStream| _ = stream.read(&mut [0; 4096]);
    let hung = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at_hung = hung.local_addr().expect("has one");
    let garbage = strange(move |stream| {
        read_request(stream);
        let _ = stream.write_all(&[0xff; 5000]);
    });
    let endless = strange(move |stream| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'['; 65_536]).is_ok() {}
    });
    let trickling = strange(move |stream| {
        while stream.write_all(b"H").is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let wrong = strange(move |stream| {
        read_request(stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"version\":\"1\"}");
    });
    let all = [at, at_hung, garbage, endless, trickling, wrong];
    let page = page_of(&all);
    let late = "does not answer in time";
    let states = [
        "answers",
        late,
        "no status page answers there: is it the address of its --http?",
        "its answer is too long",
        late,
        "its status cannot be read: ",
    ];
    let begun = Instant::now();
    let told = wait_until(&page, "/status.json", |told| {
        assert!(begun.elapsed() >= Duration::from_millis(900), "two of them were not waited for");
        all.iter().zip(states).all(|(server, state)| state_of(told, *server)["state"].to_string().contains(state))
    });
    assert_eq!(told["pools"]["types"][0]["name"], "T", "{told}");
    assert!(page.memory() < 64 << 20, "{} bytes", page.memory());
    drop(hung);
}

#[test]
fn a_page_of_nothing_is_refused() {
    let run = |arguments: &[&str]| {
        let Ended { status, stderr, .. } = run(&[&["page"], arguments].concat());
        assert_ne!(status, Some(0));
        stderr
    };
    assert!(run(&[]).contains("no --server is named"));
    assert!(run(&["--server", "https://a"]).contains("\"https://a\" is not a host"));
    let (daemon, _) = start(&[]);
    let taken = run(&["--server", "a", "--http", &daemon.address.to_string()]);
    assert!(taken.contains("cannot listen on "), "{taken}");
    daemon.signal(Signal::SIGTERM);
}
