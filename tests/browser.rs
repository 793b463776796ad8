//! The status page in a browser: `make test-browser`. It leaves screenshots in the directory of the tests' files.
//!
//! The checks compare the text of the document after the script has run.

use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::web::{page_of, start};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Names of the browser's program.
const BROWSERS: [&str; 2] = ["chromium", "chromium-browser"];
const DESKTOP: (u32, u32) = (1280, 1500);
const PHONE: (u32, u32) = (390, 2300);
/// Sizes of the pictures of README and documents.
const PICTURE: (u32, u32) = (1280, 880);
const PICTURE_OF_FARM: (u32, u32) = (1280, 1300);

#[test]
#[ignore = "needs a browser: make test-browser"]
fn the_page_shows_all_services() {
    let (daemon, address) = start(&["--counter", "--counter-listen", "127.0.0.1:0"]);
    let home = format!("http://{address}/");
    look(&home, "overview-light", DESKTOP, &[]);
    let url = format!("{home}locks");
    let text = dump(&url);
    assert!(
        text.contains("No lock has been asked for since the start.") && text.contains("id=\"health-text\">live<"),
        "{text}"
    );
    look(&url, "empty-light", DESKTOP, &[]);

    let _clients = busy_clients(&daemon);
    let text = dump(&url);
    for shown in ["ArticleView", "Thumbnail:Big_4.svg", "127.0.0.1:", "All figures of pools", "queue full"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    look(&url, "busy-light", DESKTOP, &[]);
    look(&url, "busy-dark", DESKTOP, &[DARK]);
    look(&url, "busy-phone", PHONE, &[]);
    look(&url, "busy-phone-dark", PHONE, &[DARK]);
    look(&url, "busy-without-script", DESKTOP, &[NO_SCRIPT]);
    look(&home, "busy-overview", DESKTOP, &[]);
    look(&home, "busy-overview-without-script", DESKTOP, &[NO_SCRIPT]);
    look(&format!("{home}daemon"), "busy-daemon", DESKTOP, &[]);
    let off = look(&format!("{home}jobs"), "busy-off", DESKTOP, &[]);
    assert_eq!(off["off"], "This service is off. The option --jobs turns it on.", "{off}");
}

/// All clients request one key, while the rest is as always: the page names it in the most visible places.
#[test]
#[ignore = "needs a browser: make test-browser"]
fn a_stampede_is_seen() {
    let (daemon, address) = start(&["--status-after", "1", "--warn-refusals", "1"]);
    let home = format!("http://{address}/");
    let url = format!("{home}locks");
    look(&url, "young-light", DESKTOP, &[]);
    let kinds = ["ArticleView", "Search", "FileRender", "parse-cache"];
    let calm = (0..40).map(|n| {
        thread::sleep(Duration::from_millis(200));
        ask(&daemon, format!("{}:Calm_{n}", kinds[n % 4]).as_bytes())
    });
    let calm: Vec<Client> = calm.collect();
    let before = look(&url, "calm-light", DESKTOP, &["hover=#table-pools-busiest"]);
    assert_eq!((&before["alarm"], &before["red"]), (&"".into(), &0.into()), "nothing refuses");
    assert_eq!(before["frozen"], serde_json::json!(["table-pools-busiest"]));
    let mut crowd: Vec<Client> = (0..60).map(|_| daemon.connect()).collect();
    for _ in 0..5 {
        crowd.iter_mut().for_each(|client| client.send(b"ACQ4ANY FileRender:Stampede 2 30 600\n"));
        thread::sleep(Duration::from_millis(1_000));
    }
    let page = look(&url, "incident-light", DESKTOP, &["press=ArrowLeft,ArrowLeft"]);
    let (title, alarm) = (page["title"].as_str().unwrap_or_default(), page["alarm"].as_str().unwrap_or_default());
    assert!(
        title.starts_with("(1) Locks: FileRender:Stampede refuses ") && alarm.contains("FileRender:Stampede"),
        "{page}"
    );
    assert_eq!(
        (&page["tables"]["table-pools-types"][0], &page["tables"]["table-pools-busiest"][0]),
        (&"FileRender".into(), &"FileRender:Stampede".into())
    );
    assert!(page["red"].as_u64().is_some_and(|red| red > 0), "{page}");
    let pointed = |n: usize| page["cards"][n][1].as_str().unwrap_or_default()[..8].to_string();
    assert!(
        pointed(0).matches(':').count() == 2 && pointed(0) == pointed(4),
        "the plots are pointed at in step: {page}"
    );
    take_picture_of_crowd(&url, &mut crowd);
    look(&home, "incident-overview", DESKTOP, &[]);
    look(&home, "incident-overview-phone", PHONE, &[DARK]);
    for (name, size, options) in [
        ("dark", DESKTOP, &[DARK][..]),
        ("forced", DESKTOP, &["forced"]),
        ("400", (400, 2600), &[]),
        ("800", (800, 2000), &[]),
        ("1280", (1280, 1300), &[]),
        ("1920", (1920, 1300), &[]),
        ("2560", (2560, 1300), &[]),
        ("filtered", DESKTOP, &["type=stampede"]),
        ("hour", DESKTOP, &["click=#ranges a:nth-child(3)"]),
        ("without-script", DESKTOP, &[NO_SCRIPT]),
    ] {
        look(&url, &format!("incident-{name}"), size, options);
    }
    let view = look(&format!("{home}pools/key/FileRender:Stampede"), "incident-key", DESKTOP, &[]);
    assert_eq!(view["tables"]["table-pools-claims"].as_array().map(Vec::len), Some(10), "the first ones");
    look(&format!("{home}pools/type/FileRender"), "incident-type", DESKTOP, &[]);
    look(&format!("{home}pools/client/127.0.0.1"), "incident-client", DESKTOP, &[]);
    look(&format!("{home}find/stamp"), "incident-found", DESKTOP, &[]);
    drop((calm, crowd));
    let stop = format!("stop={}", daemon.pid());
    let stale = look(&url, "stale-light", DESKTOP, &[&stop]);
    let resumed =
        Command::new("kill").args(["-CONT", &daemon.pid().to_string()]).status().expect("every system has it");
    assert!(resumed.success() && stale["title"].as_str().is_some_and(|title| title.starts_with("(stale) ")), "{stale}");
}

/// Takes the picture of the README while the crowd still makes requests.
fn take_picture_of_crowd(url: &str, crowd: &mut [Client]) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                crowd.iter_mut().for_each(|client| client.send(b"ACQ4ANY FileRender:Stampede 2 30 600\n"));
                thread::sleep(Duration::from_millis(500));
            }
        });
        thread::sleep(Duration::from_secs(5));
        look(url, "page", PICTURE, &[]);
    });
}

#[test]
#[ignore = "needs a browser: make test-browser"]
fn a_great_many_are_folded() {
    let (daemon, address) = start(&["--max-locks", "200", "--counter", "--counter-listen", "127.0.0.1:0"]);
    let home = format!("http://{address}/");
    let url = format!("{home}locks");
    let mut clients: Vec<Client> = (0..100).map(|_| daemon.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let lines: String =
            (0..200).map(|k| format!("ACQ4ME Type{}:item_{n}_{k} 1 1 0\n", (n * 200 + k) % 300)).collect();
        client.send(lines.as_bytes());
        (0..200).for_each(|_| assert_eq!(client.line(), "LOCKED"));
    }
    let page = look(&url, "many-light", DESKTOP, &[]);
    let rows = |page: &serde_json::Value, table: &str| page["tables"][table].as_array().map_or(0, Vec::len);
    assert_eq!((rows(&page, "table-pools-types"), rows(&page, "table-pools-busiest")), (20, 10));
    let page = look(&url, "many-unfolded", (1400, 2000), &["click=#tables section.wide button.fold"]);
    assert_eq!(rows(&page, "table-pools-types"), 257);
    look(&url, "many-without-script", DESKTOP, &[NO_SCRIPT]);
    look(&format!("{home}find/item_7_"), "many-found", DESKTOP, &[]);
}

/// One of three daemons is dead: the page names it, and shows the other two.
#[test]
#[ignore = "needs a browser: make test-browser"]
fn several_daemons_are_one_page() {
    let started: Vec<_> =
        (0..3).map(|_| start(&["--members", "--members-listen", "127.0.0.1:0", "--status-after", "1"])).collect();
    let addresses: Vec<_> = started.iter().map(|(_, address)| *address).collect();
    let page = page_of(&addresses);
    let url = format!("http://{}/", page.address);
    let clients: Vec<_> = started.iter().map(|(daemon, _)| (busy_clients(daemon), busy_members(daemon))).collect();
    let all = look(&url, "several-light", (1400, 1800), &["wait=4000"]);
    let alarm = all["alarm"].as_str().unwrap_or_default();
    // Refusals are over by now; quarantines last.
    assert!(alarm.contains("Members") && alarm.contains("quarantined"), "{all}");
    let mut daemons = started.into_iter().map(|(daemon, _)| daemon);
    drop(daemons.next());
    let dead = look(&url, "several-one-dead", (1400, 1800), &["wait=5000"]);
    let (title, alarm) = (dead["title"].as_str().unwrap_or_default(), dead["alarm"].as_str().unwrap_or_default());
    assert!(title.contains("Servers: no answer from "), "{dead}");
    assert!(alarm.contains(&format!("no answer from {}: ", addresses[0])), "{dead}");
    look(&url, "several-one-dead-dark", (800, 1800), &[DARK]);
    look(&url, "several-one-dead-phone", PHONE, &[]);
    look(&url, "several-without-script", DESKTOP, &[NO_SCRIPT]);
    look(&format!("{url}pools/type/ArticleView"), "several-type", DESKTOP, &[]);
    drop((daemons.collect::<Vec<_>>(), clients));
}

#[test]
#[ignore = "needs a browser: make test-browser"]
fn hostile_keys_are_only_text() {
    let (daemon, address) = start(&[]);
    let url = format!("http://{address}/locks");
    let keys: [&[u8]; 5] = [
        b"<script>document.title='broken'</script>:x",
        b"</script><img/src=x/onerror=document.title='broken'>:y",
        b"bad\xff\xfe\x1b[2J:\xc3(",
        "\u{202e}turned:日本語".as_bytes(),
        &[b"long:".as_slice(), &b"w".repeat(4000)].concat(),
    ];
    let _clients: Vec<Client> = keys.iter().flat_map(|key| [ask(&daemon, key), ask(&daemon, key)]).collect();
    let text = dump(&url);
    let text = text.split("id=\"app\"").nth(1).expect("the page has one");
    let shown = text.split("<script").next().expect("there is something before");
    assert!(shown.contains("&lt;script&gt;document.title='broken'&lt;/script&gt;:x"), "{shown}");
    assert!(shown.contains("bad\\xff\\xfe\\u{1b}[2J"), "{shown}");
    assert!(!shown.contains("<img"), "{shown}");
    assert!(!dump(&url).contains("<title>broken"), "a key was run");
    look(&url, "hostile-light", DESKTOP, &[]);
    look(&url, "hostile-phone", PHONE, &[]);
    look(&url, "hostile-without-script", DESKTOP, &[NO_SCRIPT]);
}

#[test]
#[ignore = "needs a browser: make test-browser"]
fn pools_of_members_are_shown() {
    let (daemon, address) = start(&["--members", "--members-listen", "127.0.0.1:0"]);
    let url = format!("http://{address}/members");
    let clients = busy_members(&daemon);
    let text = dump(&url);
    let all = format!("<dt>clients</dt><dd>{}</dd>", clients.len());
    assert!(text.contains(&all), "{all} is not in {text}");
    for shown in ["accounts", "phones", "browsers", "quarantined", "All figures of members"] {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    look(&url, "members-light", DESKTOP, &[]);
    look(&url, "members-dark", DESKTOP, &[DARK]);
    look(&url, "members-phone", PHONE, &[]);
    look(&url, "members-without-script", DESKTOP, &[NO_SCRIPT]);
}

/// Buttons take one member, and all members of a table, out of quarantine.
#[test]
#[ignore = "needs a browser: make test-browser"]
fn members_are_repaired_by_a_click() {
    let (daemon, address) = start(&["--members", "--members-listen", "127.0.0.1:0", "--http-admin"]);
    let mut client = Client::to(daemon.members());
    assert_eq!(client.ask("POOL p 0 4"), "OK");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(client.ask(&format!("ADD p {name}")), "OK");
        let taken = client.ask("TAKE p 0");
        let lease = taken.split(' ').nth(1).expect("has a lease");
        assert_eq!(client.ask(&format!("RETURN {lease} FAIL")), "RETURNED");
    }
    let url = format!("http://{address}/members/pool/p");
    let table = "#table-members-members";
    let one = format!("{table} tbody tr:first-child td button | {table} .confirm button:first-child");
    look(&url, "members-repair", (1400, 1300), &[&format!("click={one}"), "wait=500"]);
    assert_eq!(client.ask("UTILIZATION p").split(' ').nth(5), Some("1"), "{}", client.ask("UTILIZATION p"));
    let all =
        "#of-table-members-members p.all-repair > button | #of-table-members-members p.all .confirm button:first-child";
    let repaired = look(&url, "members-repair-all", (1400, 1300), &[&format!("click={all}"), "wait=500"]);
    assert!(repaired["acts"].as_str().is_some_and(|acts| acts.contains("3 of 3 done")), "{repaired}");
}

#[test]
#[ignore = "needs a browser: make test-browser"]
fn hostile_names_of_pools_are_only_text() {
    let (daemon, address) = start(&["--members", "--members-listen", "127.0.0.1:0"]);
    let url = format!("http://{address}/members");
    let names: [&[u8]; 5] = [
        b"<script>document.title='broken'</script>",
        b"</script><img/src=x/onerror=document.title='broken'>",
        b"bad\xff\xfe\x1b[2J:\xc3(",
        "\u{202e}turned:日本語".as_bytes(),
        &b"w".repeat(255),
    ];
    let mut client = Client::to(daemon.members());
    for name in names {
        client.send(&[b"POOL ", name, b" 0 2 group=", name, b"\nADD ", name, b" ", name, b"\n"].concat());
        assert_eq!((client.line(), client.line()), ("OK".into(), "OK".into()));
        client.send(&[b"TAKE ", name, b"\n"].concat());
        // The names are not valid text.
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            client.stream().read_exact(&mut byte).expect("a line comes");
            line.extend_from_slice(&byte);
        }
        assert!(line.starts_with(b"MEMBER "));
    }
    let text = dump(&url);
    let text = text.split("id=\"app\"").nth(1).expect("the page has one");
    let shown = text.split("<script").next().expect("there is something before");
    assert!(shown.contains("&lt;script&gt;document.title='broken'&lt;/script&gt;"), "{shown}");
    assert!(shown.contains("bad\\xff\\xfe\\u{1b}[2J"), "{shown}");
    assert!(!shown.contains("<img"), "{shown}");
    assert!(!dump(&url).contains("<title>broken"), "a name was run");
    look(&url, "hostile-members-light", DESKTOP, &[]);
    look(&url, "hostile-members-phone", PHONE, &[]);
}

#[test]
#[ignore = "needs a browser: make test-browser"]
fn a_farm_of_wikis_is_seen() {
    let options = ["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory", "--http-admin"];
    let (daemon, address) = start(&options);
    let home = format!("http://{address}/");
    let url = format!("{home}jobs");
    let farm = Farm::start(&daemon);
    // The ages and the curves need this time.
    thread::sleep(Duration::from_secs(75));
    let text = dump(&url);
    for shown in
        ["Ready jobs by wiki and type", "enwiki", "refreshLinks", " more", "runner-3", "works on", "it has no template"]
    {
        assert!(text.contains(shown), "{shown} is not in {text}");
    }
    assert!(text.matches("<button").count() > 20, "buried jobs have buttons");
    for (name, size, options) in [("light", DESKTOP, &[][..]), ("phone-dark", PHONE, &[DARK])] {
        look(&url, &format!("farm-{name}"), size, options);
        look(&format!("{home}jobs/matrix"), &format!("farm-matrix-{name}"), size, options);
        look(&format!("{home}jobs/wiki/enwiki"), &format!("farm-wiki-{name}"), size, options);
    }
    look(&format!("{home}jobs/matrix"), "farm", PICTURE_OF_FARM, &[]);
    look(&format!("{home}jobs/runner/runner-3"), "farm-runner-light", DESKTOP, &[]);
    let buried = format!("{home}jobs/buried");
    for (name, click, wanted) in [
        ("asked", "click=#table-jobs-buried button + button", "This cannot be undone."),
        ("done", "click=#table-jobs-buried button + button | .confirm button", "is deleted"),
    ] {
        let page = look(&buried, &format!("farm-buried-{name}"), DESKTOP, &[click]);
        let first = page["tables"]["table-jobs-buried"][0].as_str().unwrap_or_default();
        assert!(first.contains(wanted), "{name}: {page}");
    }
    let acted =
        look(&url, "farm-acted", DESKTOP, &["click=#ranges a:nth-child(2) | p.all button | p.all .confirm button"]);
    assert!(acted["acts"].as_str().is_some_and(|acts| acts.contains(" done")), "{acted}");
    let marks = acted["marks"].as_array().into_iter().flatten().filter_map(|mark| mark.as_str());
    assert!(marks.clone().any(|mark| mark.contains("ready")), "{acted}");
    assert!(acted["jumps"][0].as_str().is_some_and(|jump| jump.starts_with("#of-matrix ")), "the matrix is first");
    look(&format!("{home}jobs/tube/dewiki%2FThumbnailRender"), "farm-tube", DESKTOP, &[]);
    look(&url, "farm-without-script", DESKTOP, &[NO_SCRIPT]);
    let text = dump(&format!("{home}jobs/type/type10Update"));
    assert!(text.contains("Type type10Update") && text.contains("wiki/type10Update"), "{text}");
    farm.stop();
}

/// 700 wikis with 60 types of jobs, whose runners keep up with some of them.
struct Farm {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Farm {
    fn start(daemon: &Daemon) -> Farm {
        let is_over = Arc::new(AtomicBool::new(false));
        let (address, over) = (daemon.jobs(), || Arc::clone(&is_over));
        let mut producer = JobsClient::to(address);
        assert_eq!(producer.ask("retry */* 1 0 1 0"), "RETRY");
        for n in 0..12 {
            let options = format!("put-job 9 0 60 1 tube={}/ThumbnailRender key=File:{n}.svg", wiki(n % 4));
            assert!(producer.ask(&format!("{options}\r\na")).starts_with("INSERTED"));
        }
        let mut failing = JobsClient::to(address);
        assert_eq!(failing.ask("watch */ThumbnailRender"), "WATCHING 2");
        for _ in 0..12 {
            let id = take(&mut failing).expect("it was put before");
            let text = "RuntimeException: it has no template";
            assert_eq!(failing.ask(&format!("fail {id} 9 0 {}\r\n{text}", text.len())), "BURIED");
        }
        let mut threads = vec![thread::spawn({
            let is_over = over();
            move || {
                (0..).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(|round| put_some(&mut producer, round));
            }
        })];
        for n in 0..8 {
            let (is_over, mut runner) = (over(), JobsClient::to(address));
            let watch = ["*/sendMail", "*/refreshLinks", "enwiki/*", "*/htmlCacheUpdate"][n % 4];
            runner.ask(&format!("identify runner-{n}"));
            runner.ask(&format!("watch {watch}"));
            threads.push(thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let Some(id) = take(&mut runner) else { continue };
                    thread::sleep(Duration::from_millis(if n == 3 { 5_000 } else { 3 }));
                    runner.ask(&format!("delete {id}"));
                }
            }));
        }
        Farm { is_over, threads }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("it has not failed"));
    }
}

/// Reserves a job, if one is ready soon.
fn take(client: &mut JobsClient) -> Option<String> {
    let reply = client.ask("reserve-with-timeout 1");
    let (id, len) = reply.strip_prefix("RESERVED ")?.split_once(' ').expect("a number and a length");
    client.body(len.parse().expect("a length"));
    Some(id.into())
}

/// Puts some jobs: into the tubes of some wikis at the beginning, into changing ones later.
fn put_some(producer: &mut JobsClient, round: usize) {
    let (mut lines, mut count) = (String::new(), 0);
    for tube in 0..700 * 60 {
        let (place, kind) = (tube / 60, tube % 60);
        let is_first = round < 60 && place * 37 % 60 == round;
        // Large wikis and some types have more, and not every wiki has every type.
        let is_missing = place > 40 && (place * 31 + kind * 17) % 7 > 1;
        if is_missing || !is_first && !(tube + round * 61).is_multiple_of(997) {
            continue;
        }
        let many = 1 + 200 / (1 + place) / (1 + kind % 9) + (tube % 11) / 10 * 3;
        lines += &format!("put-job 9 0 60 1 tube={}/{}\r\na\r\n", wiki(place), kind_of(kind)).repeat(many);
        count += many;
    }
    producer.send(lines.as_bytes());
    (0..count).for_each(|_| assert!(producer.line().starts_with("INSERTED")));
    thread::sleep(Duration::from_secs(1));
}

fn wiki(n: usize) -> String {
    const LARGE: [&str; 8] =
        ["enwiki", "commonswiki", "wikidatawiki", "dewiki", "frwiki", "jawiki", "zh_min_nanwiki", "be_x_oldwiki"];
    LARGE.get(n).map_or_else(|| format!("w{n}wiki"), ToString::to_string)
}

fn kind_of(n: usize) -> String {
    const KNOWN: [&str; 10] = [
        "refreshLinks",
        "htmlCacheUpdate",
        "cirrusSearchLinksUpdatePrioritized",
        "sendMail",
        "recentChangesUpdate",
        "ThumbnailRender",
        "wikibase-addUsagesForPage",
        "webVideoTranscode",
        "LocalRenameUserJob",
        "enotifNotify",
    ];
    KNOWN.get(n).map_or_else(|| format!("type{n}Update"), ToString::to_string)
}

/// Declares pools of all kinds, some of whose members are in use, started, cleaned, in quarantine or waited for.
fn busy_members(daemon: &Daemon) -> Vec<Client> {
    let connect = || Client::to(daemon.members());
    let mut operator = connect();
    for (pool, members, settings) in [
        ("accounts", 12, "clean_timeout=600 on_loss=ok"),
        ("phones", 5, "group=devices"),
        ("boards", 3, "group=devices"),
    ] {
        assert_eq!(operator.ask(&format!("POOL {pool} 0 {members} {settings}")), "OK");
        (1..=members).for_each(|n| assert_eq!(operator.ask(&format!("ADD {pool} {pool}-{n}")), "OK"));
    }
    assert_eq!(operator.ask("POOL browsers 2 6"), "OK");
    let mut provider = connect();
    assert_eq!(provider.ask("PROVIDE browsers"), "OK");
    for (line, port) in [provider.line(), provider.line()].iter().zip(9001..) {
        let id = line.split(' ').nth(2).expect("it is to start one");
        assert_eq!(provider.ask(&format!("STARTED {id} 10.0.0.5:{port}")), "OK");
    }
    let mut clients = Vec::new();
    for n in 0..40 {
        let mut client = connect();
        assert_eq!(client.ask(&format!("IDENTIFY job-{n}")), "OK");
        client.send(format!("TAKE {} 600\n", ["accounts", "phones", "browsers", "boards"][n % 4]).as_bytes());
        if n < 12 && n != 2 {
            let line = client.line();
            let lease = line.split(' ').nth(1).expect("it is free").to_string();
            if n % 3 == 0 {
                let condition = if n == 9 { "FAIL" } else { "OK" };
                assert_eq!(client.ask(&format!("RETURN {lease} {condition}")), "RETURNED");
            }
        }
        clients.push(client);
        thread::sleep(Duration::from_millis(100));
    }
    clients.extend([operator, provider]);
    clients
}

const DARK: &str = "dark";
const NO_SCRIPT: &str = "noscript";

/// Connects clients of several types of work, some of whom wait or were refused. It takes some seconds, for the plots.
fn busy_clients(daemon: &Daemon) -> Vec<Client> {
    let mut clients = Vec::new();
    for n in 0..6 {
        clients.push(ask(daemon, format!("Thumbnail:Big_{n}.svg").as_bytes()));
    }
    for (kind, many) in [("ArticleView", 60), ("Search", 25), ("FileRender", 9), ("parse-cache", 4)] {
        for n in 0..many {
            let mut client = ask(daemon, format!("{kind}:Page_{}", n * n % 17).as_bytes());
            client.send(b"RELEASE\n");
            client.line();
            if n % 5 == 0 {
                client.send(format!("ACQ4ANY {kind}:Page_{} 1 4 60\n", n % 7).as_bytes());
            }
            clients.push(client);
            thread::sleep(Duration::from_millis(100));
        }
    }
    clients
}

/// Returns a client after its request for a lock, which may have been refused.
fn ask(daemon: &Daemon, key: &[u8]) -> Client {
    let mut client = daemon.connect();
    client.send(&[b"ACQ4ME ", key, b" 1 2 0\n"].concat());
    client.line();
    client
}

/// Returns the document after its script has run for some seconds.
fn dump(url: &str) -> String {
    let output = browse(&["--virtual-time-budget=5000", "--dump-dom", url]);
    String::from_utf8(output.stdout).expect("documents are text")
}

/// Opens the page in a window of this size, takes a screenshot, and returns its state. Fails with any complaint: of
/// axe-core, of html-validate, or of the browser about the script.
fn look(url: &str, name: &str, (width, height): (u32, u32), options: &[&str]) -> serde_json::Value {
    let file = pictures().join(name).with_extension("png");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser.cjs");
    let mut command = Command::new("node");
    command.arg(script).arg(url).args([format!("width={width}"), format!("height={height}")]).args(options);
    command.arg(format!("picture={}", file.display())).env("BROWSER", browser());
    let output = command.output().expect("make test-browser installs node");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    println!("{}", file.display());
    serde_json::from_slice(&output.stdout).expect("it says how the page stands")
}

fn pictures() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&directory).expect("there is room");
    directory
}

fn browse(arguments: &[&str]) -> Output {
    // Root, in a container for tests, has no sandbox.
    let fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
    let output = Command::new(browser()).args(fixed).args(arguments).output().expect("the browser runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn browser() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).flat_map(|place| BROWSERS.map(|name| place.join(name)));
    places.find(|file| file.is_file()).expect("make test-browser installs one")
}
