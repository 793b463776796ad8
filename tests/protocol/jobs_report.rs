//! Reports of the jobs on the pages of metrics and status: wikis, types, tubes and runners.

use poolcounter_core::time::Span;
use poolcounter_http::HttpSettings;
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::options::{PartNames, ShowBodies};
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::world::{World, administered};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn ask(world: &mut World, client: usize, lines: &str) -> String {
    let output = world.ask(client, lines.replace('|', "\r\n").as_bytes());
    String::from_utf8(output).expect("is text").replace("\r\n", "|")
}

fn fetch(world: &mut World, path: &str) -> String {
    fetch_with(world, path, World::settle)
}

/// Runs ticks until everything is done, without comparing every table with every other, which takes long with many
/// tubes.
fn settle(world: &mut World) {
    (0..8).for_each(|_| world.tick_unchecked());
}

fn fetch_with(world: &mut World, path: &str, settle: fn(&mut World)) -> String {
    let page = request(world, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), settle);
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    page
}

fn request(world: &mut World, request: &str, settle: fn(&mut World)) -> String {
    let client = world.connect_to("http");
    world.send(client, request.as_bytes());
    settle(world);
    let page = String::from_utf8(world.take_received(client)).expect("is text");
    world.reset(client);
    settle(world);
    page
}

/// Returns the JSON of a page.
fn json(world: &mut World, path: &str) -> Value {
    let page = fetch_with(world, path, settle);
    serde_json::from_str(page.split_once("\r\n\r\n").expect("there is a body").1).expect("is JSON")
}

/// Returns the sum of a metric over its rows, and their number.
fn sum_of(page: &str, metric: &str) -> (u64, usize) {
    let values = page.lines().filter_map(|line| line.strip_prefix(metric)?.rsplit(' ').next());
    let values: Vec<u64> = values.map(|value| value.parse().expect("a number")).collect();
    (values.iter().sum(), values.len())
}

#[test]
fn summaries_show_wikis_types_tubes_and_runners() {
    let mut world = World::of_administrators();
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    for (tube, options, count) in [("enwiki/mail", "", 3), ("dewiki/mail", "", 2), ("dewiki/links", " key=k", 4)] {
        for _ in 0..count {
            ask(&mut world, producer, &format!("put-job 5 0 60 1 tube={tube}{options}|a|"));
        }
    }
    ask(
        &mut world,
        producer,
        "put-job 5 60 60 1 tube=enwiki/mail|a|put-job 5 0 60 1 tube=dewiki/links root=S root-ts=2|a|",
    );
    ask(&mut world, producer, "put-job 5 0 60 1 tube=dewiki/links root=S root-ts=1|a|");
    world.advance(Span::from_secs(3));
    ask(
        &mut world,
        runner,
        "identify host-1|watch */mail|ignore default|reserve|reserve|bury 1 0|bury 4 0|reserve|delete 2|",
    );
    world.advance(Span::from_secs(7));
    let page = fetch(&mut world, "/metrics");
    for line in [
        "poolcounter_jobs_wiki_ready{wiki=\"enwiki\"} 1",
        "poolcounter_jobs_wiki_ready{wiki=\"dewiki\"} 3",
        "poolcounter_jobs_wiki_delayed{wiki=\"enwiki\"} 1",
        "poolcounter_jobs_type_ready{type=\"mail\"} 2",
        "poolcounter_jobs_type_ready{type=\"links\"} 2",
        "poolcounter_jobs_type_buried{type=\"mail\"} 2",
        "poolcounter_jobs_type_put_total{type=\"mail\"} 6",
        "poolcounter_jobs_type_reserves_total{type=\"mail\"} 3",
        "poolcounter_jobs_type_deletes_total{type=\"mail\"} 1",
        "poolcounter_jobs_type_duplicates_total{type=\"links\"} 3",
        "poolcounter_jobs_type_superseded_total{type=\"links\"} 1",
        "poolcounter_jobs_type_oldest_ready_seconds{type=\"mail\"} 10",
        "poolcounter_jobs_oldest_ready_seconds 10",
        "poolcounter_jobs_type_pickup_seconds_count{type=\"mail\"} 3",
        "poolcounter_jobs_type_pickup_seconds_sum{type=\"mail\"} 9",
        "poolcounter_jobs_tube_ready{tube=\"dewiki/links\"} 2",
        "poolcounter_jobs_tube_oldest_ready_seconds{tube=\"enwiki/mail\"} 10",
        "poolcounter_jobs_runner_connections{runner=\"host-1\"} 1",
        "poolcounter_jobs_runner_reserved{runner=\"host-1\"} 0",
        "poolcounter_jobs_store_uncommitted 0",
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
    let status = fetch(&mut world, "/status.json");
    for piece in
        ["\"wikis\":[{\"name\":\"dewiki\",\"ready\":3,", "\"runners\":[{\"name\":\"host-1\",\"connections\":1,"]
    {
        assert!(status.contains(piece), "{piece} is not in {status}");
    }
    // The report is the same after an upgrade, and still after the tubes are gone.
    ask(&mut world, producer, "clear */*|");
    world.upgrade();
    world.settle();
    let page = fetch(&mut world, "/metrics");
    for line in [
        "poolcounter_jobs_type_put_total{type=\"mail\"} 6",
        "poolcounter_jobs_type_ready{type=\"mail\"} 0",
        "poolcounter_jobs_type_superseded_total{type=\"links\"} 1",
        "poolcounter_jobs_type_pickup_seconds_count{type=\"mail\"} 3",
    ] {
        assert!(page.lines().any(|own| own == line), "{line} is not in\n{page}");
    }
}

/// The words of a setting stand in metrics, tables, titles and paths.
#[test]
fn parts_of_names_are_called_by_words_of_the_operator() {
    let part_names = PartNames::parse("app,task").expect("are two words");
    let settings = JobsSettings { part_names, ..JobsSettings::default() };
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(settings));
    let producer = world.connect_to("jobs");
    ask(&mut world, producer, "put-job 5 0 60 1 tube=shop/x/mail|a|");
    let metrics = fetch(&mut world, "/metrics");
    for line in
        ["poolcounter_jobs_app_ready{app=\"shop\"} 1", "poolcounter_jobs_task_pickup_seconds_count{task=\"mail\"} 0"]
    {
        assert!(metrics.lines().any(|own| own == line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("wiki") && !metrics.contains("jobs_type"), "{metrics}");
    let status = json(&mut world, "/status.json");
    assert!(
        status["jobs"]["apps"].is_array() && status["jobs"]["tasks"].is_array() && status["jobs"]["wikis"].is_null()
    );
    assert_eq!(json(&mut world, "/jobs/app/shop.json")["title"], "App shop");
    assert!(fetch(&mut world, "/jobs/matrix").contains("<a href=\"/jobs/task/mail\">mail</a>"));
    ask(&mut world, producer, "watch shop/x/mail|reserve|bury 1 5|");
    let buried = fetch(&mut world, "/jobs/buried");
    assert!(buried.contains(">task</th>") && !buried.contains("last part"), "{buried}");
    let gone = request(&mut world, "GET /jobs/wiki/shop HTTP/1.1\r\nHost: localhost\r\n\r\n", settle);
    assert!(gone.starts_with("HTTP/1.1 404 "), "{gone}");
}

/// With 20,000 tubes a page stays within its bounds of length and of time.
#[test]
fn a_page_about_many_tubes_has_a_bound() {
    const TUBES: usize = 20_000;
    let mut world = World::of_administrators();
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    let ask = |world: &mut World, client: usize, lines: &str| {
        world.send(client, lines.replace('|', "\r\n").as_bytes());
        settle(world);
    };
    for first in (0..TUBES).step_by(100) {
        let put = |tube: usize| format!("put-job 5 0 60 1 tube=w{}/t{}|a|", tube / 25, tube % 25);
        ask(&mut world, producer, &(first..first + 100).map(put).collect::<String>());
    }
    // A set of watches covers the tubes slice by slice.
    world.send(runner, b"watch */*\r\nreserve-many 1000 0\r\n");
    (0..500).for_each(|_| world.tick_unchecked_after(Span::from_millis(2)));
    for path in ["/metrics", "/status.json", "/jobs"] {
        let least = (0..5).map(|_| {
            let start = Instant::now();
            let page = fetch_with(&mut world, path, settle);
            assert!(page.len() < 2 << 20, "{path} has {} bytes", page.len());
            start.elapsed()
        });
        let least = least.min().expect("there are some");
        println!("{path} with {TUBES} tubes: {least:?}");
        // A page takes some ten milliseconds; a busy machine may add the rest.
        assert!(least < Duration::from_millis(500), "{path} takes {least:?}");
    }
    let page = fetch_with(&mut world, "/metrics", settle);
    let ready = page.lines().filter_map(|line| line.strip_prefix("poolcounter_jobs_type_ready{")?.split(' ').nth(1));
    let ready: u64 = ready.map(|count| count.parse::<u64>().expect("a number")).sum();
    assert_eq!(ready, TUBES as u64 - 1_000, "counts are of all");
}

/// The matrix shows 20 of 30 wikis and 12 of 15 types, and the sums of the others; together these are all jobs.
#[test]
fn the_matrix_has_the_worst_and_the_sums_of_the_rest() {
    let mut world = World::of_administrators();
    let producer = world.connect_to("jobs");
    for wiki in (0..30).rev() {
        for kind in (0..15).filter(|kind| (wiki + kind) % 3 > 0) {
            ask(&mut world, producer, &format!("put-job 5 0 60 1 tube=w{wiki}/x/t{kind}|a|"));
        }
        world.advance(Span::from_secs(2));
    }
    let status = json(&mut world, "/status.json");
    let matrix = &status["services"][3]["matrix"];
    assert_eq!((&matrix["more_rows"], &matrix["more_columns"]), (&json!(10), &json!(3)));
    let rows = matrix["rows"].as_array().expect("a list");
    assert_eq!((rows.len(), &rows[0]["name"], &rows[19]["name"]), (20, &json!("w29"), &json!("w10")));
    assert_eq!(rows[0]["values"][13], json!([10, 60.0]), "of all types");
    let count = |heat: &Value| heat[0].as_u64().unwrap_or(0);
    let lines = || rows.iter().map(|row| &row["values"]).chain([&matrix["others"]]);
    for column in 0..14 {
        assert_eq!(lines().map(|line| count(&line[column])).sum::<u64>(), count(&matrix["all"][column]), "{column}");
    }
    for line in lines().chain([&matrix["all"]]) {
        assert_eq!((0..13).map(|column| count(&line[column])).sum::<u64>(), count(&line[13]), "{line}");
    }
    assert_eq!(matrix["all"][13], json!([300, 60.0]));
    assert_eq!(matrix["others"][13], json!([100, 20.0]));
    let whole = json(&mut world, "/jobs/matrix.json");
    assert_eq!(whole["services"][0]["matrix"]["rows"].as_array().map(Vec::len), Some(30));
    let page = fetch(&mut world, "/jobs/matrix");
    assert!(page.contains("<a href=\"/jobs/wiki/w3\">w3</a>") && page.contains("<td class=\"h1\">10 <i>60 s</i></td>"));
}

#[test]
fn a_wiki_and_a_type_have_a_page_with_their_last_hour() {
    let mut world = World::of_administrators();
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    ask(&mut world, producer, "retry */* 1 0 1 0|");
    for id in 1..=40 {
        ask(&mut world, producer, &"put-job 5 0 60 1 tube=enwiki/mail|a|".repeat(3));
        ask(&mut world, runner, "identify host-1|watch enwiki/*|reserve|");
        let told = if id == 1 { "fail 1 0 0 3|why|" } else { &format!("delete {id}|") };
        ask(&mut world, runner, told);
        world.advance(Span::from_secs(60));
    }
    for path in ["/jobs/wiki/enwiki.json", "/jobs/type/mail.json"] {
        let view = json(&mut world, path);
        let curve = |place: usize| {
            let values = view["history"]["series"][place]["values"].as_array().expect("a list");
            values.iter().map(|value| value.as_f64().expect("a number")).collect::<Vec<_>>()
        };
        let [ready, lag, put, done] = [0, 1, 2, 3].map(curve);
        assert!((80..=81).contains(&ready.len()), "{path}: each half minute since the start");
        assert!(ready.is_sorted() && *ready.last().expect("there are some") == 80.0, "{ready:?}");
        assert!(lag[79] > 0.0, "{lag:?}");
        assert_eq!(put.iter().sum::<f64>(), 2.0 * 120.0, "{path}: jobs a minute in half minutes");
        assert!((76.0..=80.0).contains(&done.iter().sum::<f64>()), "{done:?}");
        assert_eq!(view["jobs"]["buried"][0]["error"], "why");
        let tube = &view["jobs"]["tubes"][0];
        assert_eq!([&tube["failures"], &tube["error"], &tube["retrying"]], [&json!(1), &json!("why"), &json!(0)]);
    }
    let before = json(&mut world, "/jobs/wiki/enwiki.json");
    world.upgrade();
    world.settle();
    let after = json(&mut world, "/jobs/wiki/enwiki.json");
    assert_eq!(before["history"]["series"][2], after["history"]["series"][2], "an upgrade forgets nothing");
    assert_eq!(after["jobs"]["tubes"][0]["failures"], 1);
    assert_eq!(after["jobs"]["tubes"][0]["error"], "why");
    let told = [&before, &after].map(|view| [&view["jobs"]["buried"][0]["buried"], &view["jobs"]["wikis"][0]["run"]]);
    assert_eq!(told[0], told[1], "since when a job is buried, and how long others ran");
    assert!(told[0][0].as_f64().is_some_and(|seconds| seconds >= 2300.0), "{told:?}");
    ask(&mut world, runner, "reserve|");
    world.advance(Span::from_secs(5));
    let status = json(&mut world, "/status.json");
    let now = &status["jobs"]["runners"][0];
    let told = ["name", "tube", "busy", "failures"].map(|name| &now[name]);
    assert_eq!(told, [&json!("host-1"), &json!("enwiki/mail"), &json!(5.0), &json!(1)]);
    assert_eq!(json(&mut world, "/jobs/runner/host-1.json")["jobs"]["connections"][0]["state"], "works");
    for path in ["/jobs/wiki/nowiki", "/jobs/nothing", "/nothing", "/nothing/wiki/enwiki", "/jobs/wiki/%65nwiki/x"] {
        let page = request(&mut world, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), settle);
        assert!(page.starts_with("HTTP/1.1 404 "), "{path}: {page}");
    }
    fetch(&mut world, "/jobs/wiki/%65nwiki");
}

/// Buried jobs that failed alike are one row; a tube and a job have pages, with the commands that help.
#[test]
fn a_tube_and_a_job_have_a_page() {
    let settings = AllSettings::defaults(poolcounter::SERVICES);
    let of_jobs = JobsSettings { show_bodies: ShowBodies::All, ..JobsSettings::default() };
    let mut world = World::with(settings.with(of_jobs));
    let [producer, runner] = [world.connect_to("jobs"), world.connect_to("jobs")];
    ask(&mut world, producer, "retry */* 1 0 1 0|");
    ask(&mut world, producer, &"put-job 5 0 60 9 tube=enwiki/mail|{\"a\":[1]}|".repeat(4));
    ask(&mut world, runner, "identify host-1|watch enwiki/*|");
    for (id, error) in [(1, "exit 12\nno space\n"), (2, "exit 3\nno space\n")] {
        ask(&mut world, runner, "reserve|");
        assert_eq!(ask(&mut world, runner, &format!("fail {id} 0 0 {}|{error}|", error.len())), "BURIED|");
        world.advance(Span::from_secs(10));
    }
    ask(&mut world, runner, "reserve|");
    let view = json(&mut world, "/jobs/tube/enwiki%2Fmail.json");
    assert_eq!(view["jobs"]["settings"][0]["of"], "*/*");
    let jobs = &view["jobs"];
    assert_eq!((&view["title"], &jobs["ready_jobs"][0]["id"]), (&json!("Tube enwiki/mail"), &json!("4")));
    let working = ["runner", "job", "state"].map(|name| &jobs["connections"][0][name]);
    assert_eq!(working, [&json!("host-1"), &json!("3"), &json!("works")]);
    let group = ["part", "jobs", "first", "last", "job", "error"].map(|name| &jobs["errors"][0][name]);
    let [part, error] = [json!("mail"), json!("exit 3 … no space")];
    assert_eq!(group, [&part, &json!(2), &json!(20.0), &json!(10.0), &json!("2"), &error]);
    assert_eq!(jobs["errors"].as_array().map(Vec::len), Some(1));
    assert_eq!(json(&mut world, "/jobs/buried.json")["jobs"]["errors"], jobs["errors"]);
    assert!(view["commands"].as_array().is_some_and(|all| all.contains(&json!("jobs kick enwiki/mail"))), "{view}");

    let job = json(&mut world, "/jobs/job/1.json");
    let row = ["tube", "state", "for", "reserves", "attempts", "id"].map(|name| &job["jobs"]["job"][0][name]);
    assert_eq!(row, [&json!("enwiki/mail"), &json!("buried"), &json!(20.0), &json!(1), &json!(1), &json!("1")]);
    let texts: Vec<(&str, &str)> = (job["blocks"].as_array().into_iter().flatten())
        .filter_map(|block| Some((block["title"].as_str()?, block["text"].as_str()?)))
        .collect();
    assert_eq!(texts, [("Last error", "exit 12\nno space\n"), ("Body", "{\n  \"a\": [\n    1\n  ]\n}")]);
    assert!(fetch(&mut world, "/jobs/job/1").contains("<pre>exit 12\nno space\n</pre>"));
    assert_eq!(json(&mut world, "/jobs/job/3.json")["jobs"]["job"][0]["id"], Value::Null, "it has no buttons");
    for path in ["/jobs/job/99", "/jobs/job/x", "/jobs/tube/nothing"] {
        let page = request(&mut world, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), settle);
        assert!(page.starts_with("HTTP/1.1 404 "), "{path}: {page}");
    }
}

/// A table has the count of a figure, or its rate where the range has no counts.
#[test]
fn a_figure_is_shown_once() {
    let mut world = World::of_administrators();
    let producer = world.connect_to("jobs");
    ask(&mut world, producer, "put-job 5 0 60 1 tube=w/links|x|");
    world.advance(Span::from_secs(10));
    for (path, table, rates) in [
        ("/jobs.json?range=1m", "tubes", true),
        ("/jobs.json?range=start", "tubes", false),
        ("/jobs/tube/w%2Flinks.json?range=5m", "tubes", true),
    ] {
        let row = &json(&mut world, path)["jobs"][table][0];
        let has = |name: &str| row.get(name).is_some();
        let names = [("put", "put_rate"), ("reserves", "reserve_rate"), ("deletes", "delete_rate")];
        for (count, rate) in names {
            assert_eq!((has(count), has(rate)), (!rates, rates), "{path} {table} {count}: {row}");
        }
        assert!(has("reserved"), "{row}");
    }
    assert!(json(&mut world, "/status.json?range=1m")["jobs"]["tubes"][0].get("put_rate").is_some());
}

/// A job links to the page of its root job.
#[test]
fn a_root_job_has_a_page() {
    let mut world = World::of_administrators();
    let producer = world.connect_to("jobs");
    ask(&mut world, producer, "put-job 5 0 60 1 tube=w/links root=a/b root-ts=7|x|");
    world.advance(Span::from_secs(9));
    ask(&mut world, producer, "put-job 5 0 60 1 tube=w/links root=a/b root-ts=8|x|");
    world.advance(Span::from_secs(5));
    let view = json(&mut world, "/jobs/root/w%2Flinks%20a%2Fb.json");
    let root = &view["jobs"]["root"][0];
    assert_eq!((&root["tube"], &root["newest"]), (&json!("w/links"), &json!("8")), "{view}");
    assert!(root["changed"].as_f64().is_some_and(|changed| (5.0..9.0).contains(&changed)), "{view}");
    assert!(view["commands"].as_array().is_some_and(|all| all.contains(&json!("jobs list w/links ready"))), "{view}");
    let job = json(&mut world, "/jobs/job/1.json");
    assert_eq!(job["jobs"]["job"][0]["root"], json!("w/links a/b"));
    for path in ["/jobs/root/w", "/jobs/root/w%2Flinks%20none"] {
        let page = request(&mut world, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), settle);
        assert!(page.starts_with("HTTP/1.1 404 "), "{path}: {page}");
    }
}

/// More first parts than a report examines: the job is found by its last part, which is among the first.
#[test]
fn the_oldest_job_of_very_many_wikis_is_found() {
    const TUBES: usize = 33_000;
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES));
    let client = world.connect_to("jobs");
    for first in (0..TUBES).step_by(500) {
        let put = |n| format!("use w{n}/mail\r\nput 1 9999 9 1\r\nx\r\n");
        world.send(client, (first..first + 500).map(put).collect::<String>().as_bytes());
        settle(&mut world);
        world.take_received(client);
    }
    world.send(client, b"put 1 0 9 1\r\nx\r\n");
    settle(&mut world);
    assert_eq!(world.take_received(client), format!("INSERTED {}\r\n", TUBES + 1).as_bytes());
    world.tick_unchecked_after(Span::from_secs(300));
    world.send(client, b"stats\r\n");
    settle(&mut world);
    let stats = String::from_utf8(world.take_received(client)).expect("is text");
    let oldest = stats.lines().find_map(|line| line.strip_prefix("oldest-ready: ")).expect("is a figure");
    assert!(oldest.starts_with("300"), "{oldest}");
}

/// With 700 wikis, those with the most puts have metrics of their own and the others share one; no count ever falls.
#[test]
fn metrics_have_a_bounded_number_of_names() {
    const WIKIS: usize = 700;
    let mut world = World::of_administrators();
    let producer = world.connect_to("jobs");
    let put = |world: &mut World, wiki: usize, count: usize| {
        world.send(producer, format!("put-job 5 0 60 1 tube=w{wiki}/t\r\na\r\n").repeat(count).as_bytes());
        (0..4).for_each(|_| world.tick_unchecked());
    };
    (0..WIKIS).for_each(|wiki| put(&mut world, wiki, 1));
    let page = fetch_with(&mut world, "/metrics", settle);
    assert_eq!(sum_of(&page, "poolcounter_jobs_wiki_ready{"), (WIKIS as u64, 257));
    assert_eq!(sum_of(&page, "poolcounter_jobs_wiki_put_total{"), (WIKIS as u64, 257));
    let other = |page: &str| sum_of(page, "poolcounter_jobs_wiki_put_total{wiki=\"other\"}").0;
    let before = other(&page);
    assert_eq!(before, WIKIS as u64 - 255, "the tube default is followed, too");
    put(&mut world, WIKIS - 1, 9);
    world.advance(Span::from_secs(60));
    // A survey of so many sums takes two steps.
    world.send(producer, b"use default\r\n");
    world.advance(Span::from_secs(1));
    put(&mut world, WIKIS - 1, 5);
    let page = fetch_with(&mut world, "/metrics", settle);
    assert_eq!(sum_of(&page, "poolcounter_jobs_wiki_put_total{wiki=\"w699\"}"), (15, 1), "it is followed now");
    assert_eq!(other(&page), before + 9);
    assert_eq!(sum_of(&page, "poolcounter_jobs_wiki_ready{"), (WIKIS as u64 + 14, 257));
    assert!(page.contains("poolcounter_jobs_wiki_oldest_ready_seconds{wiki=\"other\"} 6"), "{page}");
    assert!(!page.contains("poolcounter_jobs_tube_pickup"), "there is no room for so many");
    world.settle();
}

/// The cost of a page does not depend on the number of jobs. Rounds take turns, and the best of each counts.
#[test]
fn a_page_costs_the_same_for_few_and_many_jobs() {
    let [mut few, mut many] = [10, 10_000].map(|jobs| {
        let mut world = World::of_administrators();
        let producer = world.connect_to("jobs");
        for tube in 0..20 {
            for _ in (0..jobs).step_by(10) {
                let one = format!("put-job 5 0 60 1 tube=w{tube}/t\r\na\r\n");
                world.send(producer, one.repeat(10).as_bytes());
                (0..2).for_each(|_| world.tick_unchecked());
            }
        }
        assert!(
            fetch_with(&mut world, "/metrics", settle)
                .contains(&format!("_jobs_type_ready{{type=\"t\"}} {}\n", 20 * jobs))
        );
        world
    });
    for path in ["/metrics", "/status.json", "/jobs/type/t.json"] {
        let timed = |world: &mut World| {
            let start = Instant::now();
            fetch_with(world, path, settle);
            start.elapsed()
        };
        let rounds: Vec<[Duration; 2]> = (0..20).map(|_| [timed(&mut few), timed(&mut many)]).collect();
        let [few, many] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).min().expect("there are some"));
        println!("{path}: {few:?} with 200 jobs, {many:?} with 200,000");
        // Work that grew with the jobs would be a thousand times as much.
        assert!(many < 10 * few, "{path}: {few:?}, {many:?}");
    }
}

#[test]
fn buttons_are_for_admins_and_pages_of_this_server() {
    let post = |path: &str, more: &str| format!("POST {path} HTTP/1.1\r\nHost: localhost:7580\r\n{more}\r\n");
    let own = "Origin: http://localhost:7580\r\nContent-Length: 0\r\n";
    let bury = |world: &mut World| {
        let runner = world.connect_to("jobs");
        ask(world, runner, &"put 1 0 9 1|a|".repeat(3));
        ask(world, runner, "reserve-many 3 0|bury 1 0|bury 2 0|");
        runner
    };
    let mut world = World::of_administrators();
    let runner = bury(&mut world);
    let refused = request(&mut world, &post("/jobs/kick/1", own), World::settle);
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(!fetch(&mut world, "/jobs").contains("<form"));
    assert!(ask(&mut world, runner, "stats-job 1|").contains("state: buried"));

    let settings = AllSettings::defaults(poolcounter::SERVICES).with(JobsSettings::default());
    let mut world = World::with(settings.with(HttpSettings { is_admin: true, ..HttpSettings::default() }));
    let runner = bury(&mut world);
    let long = format!("{}Content-Length: 1025\r\n", own.split_once("Content").expect("it has one").0);
    for (more, status) in [
        ("", 403),
        ("Origin: null\r\n", 403),
        ("Origin: http://localhost\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: http://localhost:7580\r\nSec-Fetch-Site: cross-site\r\n", 403),
        (&long, 413),
    ] {
        let refused = request(&mut world, &post("/jobs/kick/1", more), World::settle);
        assert!(refused.starts_with(&format!("HTTP/1.1 {status} ")), "{more}: {refused}");
    }
    let get = request(&mut world, "GET /jobs/kick/1 HTTP/1.1\r\nHost: localhost\r\n\r\n", World::settle);
    assert!(get.starts_with("HTTP/1.1 404 "), "{get}");
    for (path, status) in [("/", 405), ("/metrics", 405), ("/jobs/wiki/default.json", 404)] {
        let refused = request(&mut world, &post(path, own), World::settle);
        assert!(refused.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {refused}");
    }
    assert!(ask(&mut world, runner, "stats-job 1|").contains("state: buried"));
    let page = fetch(&mut world, "/jobs");
    assert!(page.contains("<form method=\"post\" action=\"/jobs/kick/1\">") && page.contains("form-action 'self'"));
    assert!(page.contains("<a href=\"/jobs/job/1\">1</a>"), "a number leads to its page");

    for (path, status, words) in [
        ("/jobs/kick/1", "200 OK", "job 1 is kicked"),
        ("/jobs/kick/1", "409 Conflict", "job 1 is ready, not buried"),
        ("/jobs/delete/2", "200 OK", "job 2 is deleted"),
        ("/jobs/delete/2", "404 Not Found", "there is no job 2"),
        ("/jobs/delete/3", "409 Conflict", "job 3 is reserved, not buried"),
        ("/jobs/delete/99", "404 Not Found", "there is no job 99"),
        ("/jobs/kick/x", "404 Not Found", "there is no job x"),
        ("/jobs/burn/1", "400 Bad Request", "unknown action burn"),
        ("/counters/burn/1", "400 Bad Request", "unknown action burn"),
        ("/pools/release-lock/a%20b", "404 Not Found", "no client of that address has a lock of that key"),
        ("/queues/kick/1", "404 Not Found", "404 Not Found"),
    ] {
        let done = request(&mut world, &post(path, &format!("{own}Sec-Fetch-Site: same-origin\r\n")), World::settle);
        let is_so =
            done.starts_with(&format!("HTTP/1.1 {status}\r\n")) && done.ends_with(&format!("\r\n\r\n{words}\n"));
        assert!(is_so, "{path}: {done}");
    }
    let told = ask(&mut world, runner, "stats-job 1|stats-job 2|stats-job 3|");
    assert!(
        told.contains("state: ready") && told.contains("|NOT_FOUND|") && told.contains("state: reserved"),
        "{told}"
    );

    // Errors that differ in numbers alone are one group.
    ask(&mut world, runner, "delete 3|put 1 0 9 1|a|put 1 0 9 1|b|put 1 0 9 1|c|reserve-many 4 0|");
    for (id, error) in [(1, "line 7"), (4, "line 8"), (5, "line 9"), (6, "another")] {
        let buried = ask(&mut world, runner, &format!("fail {id} 1 0 {} bury|{error}|", error.len()));
        assert!(buried.contains("BURIED"), "{buried}");
    }
    let page = fetch(&mut world, "/jobs");
    assert!(page.contains("action=\"/jobs/kick-group/") && page.contains("action=\"/jobs/delete-group/6\""), "{page}");
    for (path, status, words) in [
        ("/jobs/kick-group/1", "200 OK", "3 jobs are kicked"),
        ("/jobs/kick-group/4", "409 Conflict", "job 4 is ready, not buried"),
        ("/jobs/delete-group/6", "200 OK", "1 jobs are deleted"),
        ("/jobs/delete-group/6", "404 Not Found", "there is no job 6"),
    ] {
        let done = request(&mut world, &post(path, &format!("{own}Sec-Fetch-Site: same-origin\r\n")), World::settle);
        let is_so =
            done.starts_with(&format!("HTTP/1.1 {status}\r\n")) && done.ends_with(&format!("\r\n\r\n{words}\n"));
        assert!(is_so, "{path}: {done}");
    }
}

/// As with beanstalkd, which counts a connection once it is accepted.
#[test]
fn silent_connections_use_and_watch_the_first_tube() {
    let mut world = World::of_administrators();
    let silent = world.connect_to("jobs");
    let client = world.connect_to("jobs");
    let told = |world: &mut World, wanted: usize| {
        let text = ask(world, client, "stats-tube default|");
        for name in ["current-using", "current-watching"] {
            assert!(text.contains(&format!("{name}: {wanted}\n")), "{text}");
        }
    };
    told(&mut world, 2);
    world.upgrade();
    told(&mut world, 2);
    world.reset(silent);
    world.settle();
    told(&mut world, 1);
}

/// A group has the buried jobs of all tubes, and the pages of a tube or a wiki have only some.
#[test]
fn only_the_table_of_all_acts_on_groups() {
    let settings = administered().with(HttpSettings { is_admin: true, ..HttpSettings::default() });
    let mut world = World::with(settings);
    let runner = world.connect_to("jobs");
    ask(&mut world, runner, "watch */mail|put-job 1 0 9 1 tube=dewiki/mail|a|reserve|fail 1 1 0 4 bury|same|");
    for (path, acts) in [("/jobs", true), ("/jobs/tube/dewiki%2Fmail", false), ("/jobs/wiki/dewiki", false)] {
        let page = request(&mut world, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"), World::settle);
        assert!(page.contains("same"), "{path}: {page}");
        assert_eq!(page.contains("[\"kick-group\",\"delete-group\"]"), acts, "{path}");
    }
}

#[test]
fn search_finds_root_jobs_beside_many_keys() {
    let mut world = World::of_administrators();
    let runner = world.connect_to("jobs");
    ask(&mut world, runner, "put-job 1 0 9 1 tube=w/links root=needle root-ts=1|a|");
    for chunk in 0..70 {
        let put = |n: i32| format!("put-job 1 0 9 1 tube=t key=k{} for=60|a|", chunk * 500 + n);
        ask(&mut world, runner, &(0..500).map(put).collect::<String>());
    }
    assert!(json(&mut world, "/find/needle.json").to_string().contains("w/links needle"));
}
