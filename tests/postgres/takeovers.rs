//! Take-overs: the new owner has what the database has.

use super::{Stage, is_serving, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::postgres::{Cluster, shared};
use poolcounter_testkit::random::Random;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

const TUBES: [&str; 4] = ["a/mail", "b/mail", "a/page", "plain"];

/// Starts two daemons, the second of which stands by, with further options.
fn pair<'a>(cluster: &'a Cluster, options: &'static [&'static str]) -> Stage<'a> {
    let mut stage = Stage::new(cluster, 1);
    stage.options = options;
    stage.add();
    stage
}

/// Ends the owner and waits for the other. Starts another in place of the first.
fn take_over(stage: &mut Stage<'_>, owner: usize, signal: Signal) {
    let other = 1 - owner;
    stage.daemons[owner].signal(signal);
    let address = stage.daemons[other].jobs();
    until(|| is_serving(address), "the standby serves");
    stage.daemons[owner] = stage.start(owner, "127.0.0.1:0");
}

/// Compares all values of each job of a daemon, and of each root job, with the database.
fn compare(stage: &Stage<'_>, daemon: usize) -> usize {
    let rows = stage.cluster.query(
        &stage.schema,
        "SELECT id || '|' || tube || '|' || pri || '|' || delay || '|' || ttr || '|' || reserves || '|' || timeouts || '|' || \
         releases || '|' || buries || '|' || kicks || '|' || CASE WHEN buried = 1 THEN 'buried' \
         WHEN coalesce(delayed_until, 0) > extract(epoch FROM clock_timestamp()) * 1000000 THEN 'delayed' ELSE 'ready' END \
         || '|' || convert_from(coalesce(key, ''), 'UTF8') || '|' || convert_from(coalesce(job_group, ''), 'UTF8') || '|' \
         || convert_from(coalesce(error, ''), 'UTF8') || '|' || convert_from(body, 'UTF8') FROM job ORDER BY id",
    );
    let mut client = JobsClient::to(stage.daemons[daemon].jobs());
    let mut listed = BTreeMap::new();
    for tube in TUBES {
        for state in ["ready", "delayed", "buried"] {
            listed.extend(list(&mut client, tube, state));
        }
    }
    assert_eq!(listed.len(), rows.len(), "{listed:?} {rows:?}");
    for row in &rows {
        let id = row.split('|').next().expect("it has a number");
        let (found, stats) = client.text(&format!("stats-job {id}"));
        assert!(found.starts_with("OK"), "job {id}: {found}");
        let value = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("{name}: {stats}")).trim_matches('"').to_string()
        };
        let names =
            ["id", "tube", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks", "state"];
        let mut values: Vec<String> = names.map(value).into();
        values.extend(listed[id].clone());
        values.push(client.text(&format!("peek {id}")).1);
        assert_eq!(&values.join("|"), row);
    }
    let roots = "SELECT tube || ' ' || convert_from(signature, 'UTF8') || ' ' || split_part(convert_from(value, 'UTF8'), ' ', 1) FROM root ORDER BY 1";
    for root in stage.cluster.query(&stage.schema, roots) {
        let (name, newest) = root.rsplit_once(' ').expect("three words");
        assert_eq!(client.ask(&format!("root {name} 0")), format!("ROOT {newest}"));
    }
    rows.len()
}

/// Returns key, group and error of the jobs of a tube in a state.
fn list(client: &mut JobsClient, tube: &str, state: &str) -> BTreeMap<String, Vec<String>> {
    let mut jobs = BTreeMap::new();
    let mut last = String::new();
    let (_, text) = client.text(&format!("list-jobs {tube} {state} 1000"));
    for line in text.lines() {
        let Some((name, value)) = line.trim_start_matches("- ").trim().split_once(": ") else { continue };
        let value = value.trim_matches('"');
        if name == "id" {
            last = value.into();
            jobs.insert(last.clone(), vec![String::new(); 3]);
        }
        if let Some(place) = ["key", "group", "error"].iter().position(|other| *other == name) {
            jobs.get_mut(&last).expect("its number comes first")[place] = value.into();
        }
    }
    jobs
}

/// Puts, reserves and changes jobs, like clients.
fn work(client: &mut JobsClient, random: &mut Random, requests: usize) {
    for serial in 0..requests {
        let tube = random.pick(&TUBES);
        let (delay, pri) = (random.pick(&[0, 0, 1000]), random.below(5));
        match random.below(13) {
            0..4 => {
                let len = if random.once_in(20) { 40_000 } else { random.below(400) };
                let body = format!("{serial}-{}", "x".repeat(len));
                let options = match random.below(4) {
                    0 => format!(" key=k{}", random.next()),
                    1 => format!(" group=g{}", random.below(3)),
                    2 => format!(" root=r root-ts={}", random.below(10)),
                    _ => String::new(),
                };
                client.send(
                    format!("put-job {pri} {delay} 60 {} tube={tube}{options}\r\n{body}\r\n", body.len()).as_bytes(),
                );
                client.line();
            }
            4..9 => {
                client.send(b"reserve-with-timeout 0\r\n");
                let line = client.line();
                let Some(rest) = line.trim_end().strip_prefix("RESERVED ") else { continue };
                client.line();
                let id = rest.split(' ').next().expect("a number");
                let then = match random.below(6) {
                    0 => format!("release {id} {pri} {delay}"),
                    1 => format!("bury {id} {pri}"),
                    2 => format!("fail {id} {pri} 0 5\r\nwrong"),
                    3 => continue,
                    _ => format!("delete {id}"),
                };
                client.send(format!("{then}\r\n").as_bytes());
                client.line();
            }
            9 => {
                client.send(format!("use {tube}\r\nkick {}\r\n", random.below(4)).as_bytes());
                client.line();
                client.line();
            }
            10 if random.once_in(10) => {
                client.send(format!("clear {tube}\r\n").as_bytes());
                client.line();
            }
            11 => {
                client.send(format!("root {tube} s{} {}\r\n", random.below(40), random.below(1000)).as_bytes());
                client.line();
            }
            _ => thread::sleep(Duration::from_millis(random.below(20) as u64)),
        }
    }
}

fn worker(stage: &Stage<'_>, owner: usize) -> JobsClient {
    let mut client = JobsClient::to(stage.daemons[owner].jobs());
    for tube in TUBES {
        // No delay ends while a daemon is compared with the database.
        client.send(format!("watch {tube}\r\nretry {tube} 10 1000 1 1000\r\n").as_bytes());
        client.line();
        client.line();
    }
    client
}

/// Random histories, at the end of which the standby takes over at a random moment; sometimes its link is cut or held.
#[test]
fn standby_has_what_the_database_has() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &["--jobs-admin"]);
    let mut random = Random::new(std::process::id().into());
    let (mut owner, mut most) = (0, 0);
    for round in 0..8 {
        let standby = 1 - owner;
        let trouble = random.below(4);
        let mut client = worker(&stage, owner);
        work(&mut client, &mut random, 150);
        match trouble {
            0 => stage.proxies[standby].turn_to(cluster.port),
            1 => stage.proxies[standby].hold(true),
            _ => {}
        }
        work(&mut client, &mut random, 300);
        if trouble == 1 {
            thread::sleep(Duration::from_secs(1));
            stage.proxies[standby].hold(false);
        }
        let signal = if round % 4 == 3 { Signal::SIGKILL } else { Signal::SIGTERM };
        take_over(&mut stage, owner, signal);
        owner = standby;
        most = most.max(compare(&stage, owner));
    }
    assert!(most > 50, "{most}");
}

/// Makes settings and root jobs: the version is in their values.
fn set(client: &mut JobsClient, version: u64) {
    for (request, wanted) in [
        (format!("limit a/* {version}"), format!("LIMIT {version}")),
        (format!("retry b/* {version} 0 1 0"), "RETRY".into()),
        (format!("dead-letter b/* dead/{version}"), format!("DEAD_LETTER dead/{version}")),
        (format!("pause-all p/* {}", 1000 * version), "PAUSED".into()),
    ] {
        assert_eq!(client.ask(&request), wanted, "{request}");
    }
    for root in 0..100 * version {
        let newest = 1000 * version + root;
        assert_eq!(client.ask(&format!("root a/t s{root} {newest}")), format!("ROOT {newest}"));
    }
}

/// Asserts that a daemon goes by the settings and root jobs of this version.
fn assert_set(daemon: &Daemon, version: u64) {
    let mut client = JobsClient::to(daemon.jobs());
    for root in 0..100 * version {
        assert_eq!(client.ask(&format!("root a/t s{root} 0")), format!("ROOT {}", 1000 * version + root));
    }
    let leaf = |timestamp: u64| format!("put-job 0 0 60 1 tube=a/t root=s7 root-ts={timestamp}\r\nx");
    assert_eq!(client.ask(&leaf(1000 * version + 6)), "SUPERSEDED");
    for _ in 0..=version {
        assert!(client.ask(&leaf(1000 * version + 7)).starts_with("INSERTED"));
    }
    client.ask("watch a/t\r\nignore default");
    client.line();
    for _ in 0..version {
        assert!(client.ask("reserve-with-timeout 0").starts_with("RESERVED"));
        client.line();
    }
    assert_eq!(client.ask("reserve-with-timeout 0"), "TIMED_OUT", "the limit is {version}");
    let put = client.ask("put-job 0 0 60 1 tube=b/t\r\nx");
    let id = put.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{put}"));
    for attempt in 1..=version {
        assert_eq!(client.ask(&format!("reserve-job {id}")), format!("RESERVED {id} 1"));
        client.line();
        let told = client.ask(&format!("fail {id} 0 0 0\r\n"));
        assert_eq!(told, if attempt == version { "BURIED" } else { "RELEASED" }, "{attempt} of {version}");
    }
    assert!(client.text(&format!("stats-job {id}")).1.contains(&format!("tube: \"dead/{version}\"")));
    assert!(client.ask("put-job 0 0 60 1 tube=p/t\r\nx").starts_with("INSERTED"));
    let stats = client.text("stats-tube p/t").1;
    let pause = stats.lines().find_map(|line| line.strip_prefix("pause: ")).expect("it is there");
    assert_eq!(pause, (1000 * version).to_string());
    client.ask("clear *\r\nclear */*");
}

#[test]
fn settings_and_root_jobs_are_taken_over() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &["--jobs-admin"]);
    let mut owner = 0;
    for version in 1..4 {
        set(&mut JobsClient::to(stage.daemons[owner].jobs()), version);
        let signal = if version == 2 { Signal::SIGKILL } else { Signal::SIGTERM };
        take_over(&mut stage, owner, signal);
        owner = 1 - owner;
        assert_set(&stage.daemons[owner], version);
    }
}
