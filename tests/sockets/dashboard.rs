//! Files for operators besides the daemon: every query of the Grafana dashboard is sent to a Prometheus that scrapes a
//! daemon under load, and the containers start the daemon with existing options.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::frames;
use poolcounter_testkit::running::end_of;
use poolcounter_testkit::scratch::Scratch;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until Prometheus has two scrapes of everything.
const SCRAPING: Duration = Duration::from_secs(40);
/// Values that replace Grafana's variables here.
const VARIABLES: [(&str, &str); 3] = [("$__rate_interval", "20s"), ("$job", "poolcounter"), ("$instance", ".*")];

/// Prometheus, which is ended with the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes this address each second; None if it is not installed.
    fn start(scratch: &Scratch, scraped: SocketAddr) -> Option<Prometheus> {
        let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
        let config = scratch.file("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: poolcounter\n    static_configs:\n      - targets: [ '{scraped}' ]\n"
        );
        fs::write(&config, text).expect("is written");
        let data = scratch.file("prometheus-data");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={address}"));
        match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            child => Some(Prometheus { child: child.expect("the program runs"), address }),
        }
    }

    /// Returns the present values of a query, as text; none while Prometheus does not answer.
    fn query(&self, query: &str) -> Result<Vec<String>, String> {
        let mut stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("is sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("is text");
        let (head, body) = response.split_once("\r\n\r\n").ok_or("no response")?;
        let body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {head}\n{body}"))?;
        if body["status"] != "success" {
            return Err(body["error"].to_string());
        }
        let results = body["data"]["result"].as_array().into_iter().flatten();
        Ok(results.filter_map(|result| result["value"][1].as_str().map(String::from)).collect())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the queries of all panels, with the names of these.
fn queries() -> Vec<(String, String)> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/grafana-dashboard.json"));
    let dashboard: Value = serde_json::from_str(&text.expect("lies in the repository")).expect("is JSON");
    let panels = dashboard["panels"].as_array().expect("a list");
    let queries = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().expect("each has a title");
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (title.to_string(), target["expr"].as_str().expect("a query").to_string()))
    });
    queries.collect()
}

fn substituted(query: &str) -> String {
    VARIABLES.iter().fold(query.to_string(), |query, (name, value)| query.replace(name, value))
}

/// Clients of each service, for a little of every request.
struct Load {
    holder: Client,
    waiter: Client,
    counters: CounterClient,
    members: Client,
    taker: Client,
    jobs: Client,
}

impl Load {
    fn on(daemon: &Daemon) -> Load {
        let mut members = Client::to(daemon.members());
        members.send(b"POOL browsers 0 1\nADD browsers one\n");
        (0..2).for_each(|_| drop(members.line()));
        Load {
            holder: daemon.connect(),
            waiter: daemon.connect(),
            counters: CounterClient::to(daemon.counters()),
            members,
            taker: Client::to(daemon.members()),
            jobs: Client::to(daemon.jobs()),
        }
    }

    fn go_on(&mut self) {
        for kind in ["ArticleView", "Search"] {
            assert_eq!(self.holder.ask(&format!("ACQ4ANY {kind}:k 1 2 9")), "LOCKED");
            assert_eq!(self.waiter.ask(&format!("ACQ4ANY {kind}:k 1 1 9")), "QUEUE_FULL");
            for (command, answer) in [("ACQ4ANY", "DONE"), ("ACQ4ME", "LOCKED")] {
                self.waiter.send(format!("{command} {kind}:k 1 2 9\n").as_bytes());
                self.holder.wait_for_stat("waiting_workers", 1);
                assert_eq!(self.holder.ask("RELEASE"), "RELEASED");
                assert_eq!(self.waiter.line(), answer);
                if answer == "DONE" {
                    assert_eq!(self.holder.ask(&format!("ACQ4ANY {kind}:k 1 2 9")), "LOCKED");
                }
            }
            assert_eq!(self.waiter.ask("RELEASE"), "RELEASED");
        }
        self.counters.ask(&frames::acquire(1, 10, b"units"));
        self.counters.ask(&frames::release(1, b"units"));
        let lease_of = |taken: String| taken.split(' ').nth(1).expect("is free").to_string();
        let lease = lease_of(self.members.ask("TAKE browsers 0"));
        self.taker.send(b"TAKE browsers 9\n");
        while !self.members.ask("UTILIZATION browsers").contains(" queued 1 ") {}
        self.members.ask(&format!("RETURN {lease}"));
        let lease = lease_of(self.taker.line());
        self.taker.ask(&format!("RETURN {lease}"));
        self.jobs.send(b"use enwiki/mail\r\nput 1 0 60 1\r\na\r\nwatch enwiki/mail\r\nreserve\r\n");
        let reserved = (0..4).map(|_| self.jobs.line()).last().expect("there are answers");
        let id = reserved.split(' ').nth(1).expect("a job was put").to_string();
        self.jobs.line();
        self.jobs.ask(&format!("delete {id}\r"));
    }
}

#[test]
fn the_dashboard_shows_a_daemon_under_load() {
    let queries = queries();
    assert!(queries.len() > 40, "{}", queries.len());
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.file("jobs.db").display());
    let services = ["--counter", "--counter-listen", "127.0.0.1:0", "--members", "--members-listen", "127.0.0.1:0"];
    let rest = ["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", &store, "--http", "127.0.0.1:0"];
    let daemon = Daemon::start(&[&services[..], &rest].concat());
    let line = daemon.lines.iter().find(|line| line.contains("the status page are at ")).expect("it is said");
    let scraped = line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("an address");
    let Some(prometheus) = Prometheus::start(&scratch, scraped) else {
        return poolcounter_testkit::skipped(
            "the queries of the Grafana dashboard, because prometheus is not installed",
        );
    };
    let mut load = Load::on(&daemon);
    let deadline = Instant::now() + SCRAPING;
    loop {
        load.go_on();
        let has_no_data = |(title, query): &&(String, String)| {
            let values = prometheus.query(&substituted(query));
            let is_wrong = values.as_ref().map_or(true, |values| values.iter().all(|value| value == "NaN"));
            is_wrong.then(|| format!("{title}: {query}: {values:?}"))
        };
        let empty: Vec<String> = queries.iter().filter_map(|query| has_no_data(&query)).collect();
        if empty.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "without data:\n{}", empty.join("\n"));
        thread::sleep(Duration::from_millis(500));
    }
}

/// The files for containers start the daemon with well-formed options.
#[test]
fn containers_start_the_daemon_with_options_that_there_are() {
    let file = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib").join(name);
        fs::read_to_string(path).expect("lies in the repository")
    };
    let compose = file("compose.yaml");
    let options: Vec<&str> = compose.lines().filter_map(|line| line.strip_prefix("      - --")).collect();
    assert!(options.len() > 5, "{options:?}");
    let dockerfile = file("Dockerfile");
    let command = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).expect("the image has a command");
    let command: Vec<String> = serde_json::from_str(command).expect("a list");
    let kubernetes = file("kubernetes.yaml");
    let image = format!("image: poolcounter:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(kubernetes.matches("image: ").count(), kubernetes.matches(&image).count(), "not each one is {image}");
    let lists = kubernetes.split("args:\n").skip(1).map(|list| {
        let items = list.lines().map_while(|line| line.trim_start().strip_prefix("- --"));
        items.map(|option| format!("--{option}")).collect::<Vec<_>>()
    });
    let lists: Vec<_> = lists.collect();
    assert!(lists.len() == 3 && lists.iter().all(|list| list.len() > 4), "{lists:?}");
    for arguments in [vec![options.iter().map(|option| format!("--{option}")).collect(), command], lists].concat() {
        let checked = end_of(Command::new(Daemon::program()).arg("--check").args(&arguments));
        assert_eq!(checked.status, Some(0), "{arguments:?}: {checked:?}");
    }
    let copied = dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with('-'));
    let sources = copied.flat_map(|line| line.rsplit_once(' ').expect("two places").0.split(' '));
    for source in sources {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(source).exists(), "there is no {source}");
    }
}
