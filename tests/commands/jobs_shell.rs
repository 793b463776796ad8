//! `poolcounter jobs` as processes, with the real daemon and with Debian's beanstalkd: puts, output, runs of a runner
//! and the fate of the jobs.

use nix::sys::signal::Signal;
use poolcounter_client::{JobId, JobState, NewJob, PutOutcome};
use poolcounter_testkit::beanstalkd::Beanstalkd;
use poolcounter_testkit::daemon::{Client, Daemon, wait};
use poolcounter_testkit::jobs_command::{
    Ended, Running, counts, errors, jobs, jobs_with_input, producer_at, server, until, wait_for, without_time,
};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::strange::Strange;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

#[test]
fn jobs_are_put_and_looked_at() {
    let (_daemon, address, _producer) = server(&[]);
    let jobs = |arguments: &[&str]| jobs(&address, arguments);
    assert_eq!(
        jobs(&["put", "a/t", "hello", "--pri", "7", "--ttr", "9", "--key", "k", "--group", "g"]),
        "INSERTED 1\n"
    );
    assert_eq!(jobs(&["put", "a/t", "hello", "--key=k"]), "DUPLICATE 1\n");
    let put = |arguments: &[&str], input: &[u8]| jobs_with_input(&address, arguments, input).stdout;
    assert_eq!(put(&["put", "a/t", "--delay", "100"], b"of two\nlines\n"), "INSERTED 2\n");
    let lines: String = (0..2500).map(|n| format!("{n}\n")).collect();
    let said = put(&["put", "b/t", "--lines"], format!("{lines}last").as_bytes());
    assert_eq!((said.lines().count(), said.lines().last()), (2501, Some("INSERTED 2503")));
    assert_eq!((&*jobs(&["peek", "2503"]), &*jobs(&["peek", "b/t"])), ("last", "0"));
    assert_eq!(jobs(&["peek", "a/t", "delayed"]), "of two\nlines\n");
    assert_eq!(jobs(&["bury", "1"]), "");
    let list = jobs(&["list", "a/t", "buried"]);
    assert_eq!(
        list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).next_back().expect("a row"),
        ["1", "0", "7", "0", "k", "g", "-"]
    );
    let json = jobs(&["list", "b/t", "--limit", "2", "--after", "3", "-j"]);
    assert!(json.starts_with(r#"[{"server":""#) && json.contains(r#"","jobs":[{"id":4,"#), "{json}");
    assert!(json.matches(r#""id""#).count() == 2 && json.contains(r#""key":null"#), "{json}");
    assert_eq!(jobs(&["kick", "1"]), "");
    assert_eq!(jobs(&["kick", "a/*"]), "KICKED 0\n", "a delayed job keeps its delay");
    assert_eq!(jobs(&["kick", "a/*", "delayed"]), "KICKED 1\n");
    let summary = jobs(&["summary"]);
    let row: Vec<&str> = summary.lines().last().expect("a row").split_whitespace().collect();
    assert_eq!(row[..5], ["t", "2503", "0", "0", "0"], "{summary}");
    assert!(jobs(&["summary", "wiki", "--json"]).contains(r#"{"name":"b","ready":2501,"reserved":0"#));
    assert!(jobs(&["stats", "1"]).contains("\npri: 7\n") && jobs(&["stats"]).starts_with("current-jobs-urgent: 1\n"));
    assert!(jobs(&["stats", "a/t", "--json"]).contains(r#"","stats":{"name":"a/t","current-jobs-urgent":1,"#));
    assert_eq!(jobs(&["delete", "1"]), "");
    assert_eq!(jobs(&["pause", "*/t", "60"]), "");
    assert_eq!(jobs(&["clear", "*/t"]), "CLEARED 2502\n");
    assert_eq!(jobs(&["put", "day", "hello", "--key=monday", "--key-for=86400"]), "INSERTED 2504\n");
    assert!(jobs(&["show", "2504"]).contains("\nkey-left: 86"));
    assert_eq!(jobs(&["bury", "2504"]), "");
    assert_eq!(jobs(&["put", "day", "hello", "--key=monday"]), "DUPLICATE 2504 buried\n");
}

#[test]
fn jobs_are_moved_and_changed() {
    let (_daemon, address, producer) = server(&[]);
    let put = |tube: &str| producer.put(&NewJob { tube: Some(tube.into()), ..NewJob::new("x") }).expect("is put");
    assert_eq!(["a/t", "b/t"].map(put), [1, 2].map(|id| PutOutcome::Inserted(JobId(id))));
    let jobs = |arguments: &[&str]| jobs_with_input(&address, arguments, b"");
    assert_eq!(jobs(&["move", "*/t", "c/t"]).stdout, "MOVED 2\n");
    assert_eq!(jobs(&["move", "1", "a/t", "ready"]).stdout, "MOVED 1\n");
    assert_eq!(jobs(&["set", "1", "pri=7", "delay=90", "ttr=5"]).status, Some(0));
    let status = producer.status(JobId(1)).expect("is asked").expect("is there");
    assert_eq!(
        (&*status.tube, status.state, status.pri, status.ttr),
        ("a/t", JobState::Delayed, 7, Duration::from_secs(5))
    );
    for (arguments, wanted) in [
        (&["move", "9", "a/t"][..], "9: NOT_FOUND"),
        (&["cancel", "1"], "1: NOT_FOUND"),
        (&["set", "9", "pri=1"], "9: NOT_FOUND"),
        (&["set", "1", "color=1"], "\"color=1\" is not pri=N, delay=SECONDS or ttr=SECONDS"),
    ] {
        let ended = jobs(arguments);
        assert!(ended.status != Some(0) && ended.stderr.contains(wanted), "{ended:?}");
    }
}

#[test]
fn jobs_are_put_periodically() {
    let (_daemon, address, _producer) = server(&[]);
    let jobs = |arguments: &[&str]| jobs(&address, arguments);
    let nightly = ["schedule", "put", "nightly", "a/t", "all", "--cron", "30 2 * * *"];
    assert_eq!(jobs(&[&nightly[..], &["--timezone", "Europe/Berlin", "--missed", "once"]].concat()), "");
    assert_eq!(jobs(&["schedule", "put", "often", "b/t", "x", "--every", "1", "--key=k", "--pri=3", "--ttr=9"]), "");
    until("a job is put", || jobs(&["summary", "tube"]).contains("b/t"));
    let rows = jobs(&["schedule"]);
    let row = |number: usize| rows.lines().nth(number).expect("a row").split_whitespace().collect::<Vec<_>>();
    assert_eq!(row(0), ["NAME", "TUBE", "TIMES", "ZONE", "MISSED", "NEXT_S", "LAST_S", "SKIPPED", "ORIGIN"]);
    assert_eq!(row(1)[..9], ["nightly", "a/t", "30", "2", "*", "*", "*", "Europe/Berlin", "once"], "{rows}");
    assert_eq!(row(2)[..7], ["often", "b/t", "every", "1", "s", "-", "skip"], "{rows}");
    let json = jobs(&["schedule", "-j"]);
    assert!(json.contains(r#","schedules":[{"name":"nightly","tube":"a/t","cron":"30 2 * * *","#), "{json}");
    assert!(json.contains(r#""key":"k","pri":3,"ttr":9,"bytes":1,"next":"#), "{json}");
    assert_eq!(jobs(&["schedule", "delete", "often"]), "");
    for (arguments, sentence) in [
        (&["schedule", "delete", "often"][..], "often: NOT_FOUND"),
        (&["schedule", "put", "n", "t", "x"], "jobs schedule put needs either --cron or --every"),
        (&["schedule", "put", "n", "t", "x", "--cron", "0 0 31 2 *"], "there is no such day"),
        (&["schedule", "put", "n", "t", "x", "--cron=@daily", "--timezone=Berlin"], "there is no such zone"),
        (&["schedule", "put", "n", "t", "x", "--every=9", "--timezone=UTC"], "--timezone goes together with --cron"),
        (&["schedule", "put", "a b", "t", "x", "--every=9"], "the name \"a b\": it must not have ' '"),
    ] {
        let ended = jobs_with_input(&address, arguments, b"");
        assert!(ended.status != Some(0) && ended.stderr.contains(sentence), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn the_command_of_a_cancelled_job_is_ended() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob { tube: Some("a/t".into()), ..NewJob::new("x") }).expect("is put");
    let script = "trap '' TERM; echo begun >>ran; if [ $JOB_ID = 1 ]; then sleep 600 & wait; fi";
    let running = Running::start(&address, &["--grace", "1", "--on-lost", "warn"], script);
    running.expect_lines("ran", &["begun"]);
    assert_eq!(jobs(&address, &["cancel", "a/*"]), "CANCELLED 1\n");
    producer.put(&NewJob { tube: Some("a/t".into()), ..NewJob::new("x") }).expect("is put");
    // The slot is free only once the command has been killed.
    running.expect_lines("ran", &["begun", "begun"]);
    wait_for(&producer, [0, 0, 0, 0]);
    running.signal();
    let said = running.finish();
    assert!(said.contains("job 1 of a/t: lost after ") && said.contains(": cancelled by "), "{said}");
}

#[test]
fn a_queue_is_drained_and_copied() {
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.file("jobs.db").display());
    let (_daemon, address, _producer) = server(&["--jobs-store", &store]);
    assert_eq!(jobs(&address, &["drain"]), "");
    let refused = jobs_with_input(&address, &["put", "a/t", "x"], b"");
    assert_eq!((refused.status, &*refused.stderr), (Some(75), "poolcounter: the server refuses: DRAINING\n"));
    assert_eq!(jobs(&address, &["undrain"]), "");
    assert_eq!(jobs(&address, &["put", "a/t", "x"]), "INSERTED 1\n");
    let copied = jobs(&address, &["store-copy", "copy.db"]);
    let bytes = fs::metadata(scratch.file("copy.db")).expect("is there").len();
    assert_eq!(copied, format!("COPIED {bytes}\n"));
    let again = jobs_with_input(&address, &["store-copy", "copy.db"], b"");
    assert!(again.status == Some(1) && again.stderr.starts_with("poolcounter: copy.db: it exists, "), "{again:?}");
    let elsewhere = jobs_with_input(&address, &["store-copy", "../copy.db"], b"");
    assert!(elsewhere.status == Some(64) && elsewhere.stderr.contains("NAME has no slash, "), "{elsewhere:?}");
    let (_daemon, address, _producer) = server(&[]);
    let none = jobs_with_input(&address, &["store-copy", "copy.db"], b"");
    assert!(none.status == Some(1) && none.stderr.contains("no file of jobs"), "{none:?}");
}

#[test]
fn a_dead_letter_is_run_with_its_origin() {
    let (_daemon, address, producer) = server(&[]);
    assert_eq!(jobs(&address, &["retry", "enwiki/mail", "1"]), "");
    assert_eq!(jobs(&address, &["dead-letter", "enwiki/mail", "a/t"]), "");
    producer.put(&NewJob { tube: Some("enwiki/mail".into()), ..NewJob::new("x") }).expect("is put");
    let failing = Running::watching("enwiki/mail", &address, &[], "exit 1");
    wait_for(&producer, [1, 0, 0, 0]);
    failing.signal();
    failing.finish();
    let running = Running::watching("a/t", &address, &[], "echo $JOB_TUBE $JOB_ORIGIN $JOB_WIKI $JOB_TYPE >>ran");
    running.expect_lines("ran", &["a/t enwiki/mail enwiki mail"]);
    running.signal();
    running.finish();
}

#[test]
fn settings_are_printed() {
    let (_daemon, address, _producer) = server(&[]);
    let jobs = |arguments: &[&str]| jobs(&address, arguments);
    for rate in [&["limit", "c/t", "5", "per", "60", "all"][..], &["limit", "group:db8", "5", "per", "60"]] {
        assert_eq!(jobs(rate), "");
    }
    for setting in [&["limit", "*/t", "4"][..], &["limit", "group:db7", "2"], &["pause", "a/*", "600"]] {
        assert_eq!(jobs(setting), "");
    }
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = jobs(&["limit"]).lines().map(words).collect();
    let limits = ["OF VALUE LEFT_S ORIGIN", "*/t 4 each - command", "group:db7 2 - command"];
    let rates = ["c/t 5 per 60 all - command", "group:db8 5 per 60 - command"];
    assert_eq!(lines, [&limits[..], &rates].concat());
    let paused = jobs(&["pause", "-j"]);
    assert!(paused.contains(r#""of":"a/*","#) && paused.contains(r#""value":"600","#), "{paused}");
}

#[test]
fn all_lines_that_are_put_are_printed() {
    let (_daemon, address, producer) = server(&["--jobs-max-size", "5"]);
    let ended = jobs_with_input(&address, &["put", "a/t", "--lines"], b"a\ntoo long\nb\n");
    let refused = "line 2: JOB_TOO_BIG: 8 bytes, at most 5 (jobs.max_size)";
    assert_eq!((ended.status, &*ended.stderr), (Some(76), &*format!("poolcounter: {refused}; 3 lines were sent\n")));
    assert_eq!(ended.stdout, format!("INSERTED 1\n{refused}\nINSERTED 2\n"));
    assert_eq!(counts(&producer), [2, 0, 0, 0]);
}

#[test]
fn lines_are_put_even_if_nobody_reads_their_numbers() {
    let (_daemon, address, producer) = server(&[]);
    let (_, unread) = std::io::pipe().expect("a pipe");
    let mut command = Command::new(Daemon::program());
    command.args(["jobs", "-s", &address, "put", "a/t", "--lines"]).stdin(Stdio::piped()).stdout(unread);
    let mut child = command.spawn().expect("the program runs");
    let mut stdin = child.stdin.take().expect("is piped");
    stdin.write_all(&b"x\n".repeat(3000)).expect("it reads all of them");
    drop(stdin);
    assert_eq!(wait(&mut child).code(), Some(0));
    assert_eq!(counts(&producer), [3000, 0, 0, 0]);
}

#[test]
fn a_body_that_cannot_be_printed_is_a_failure() {
    let (_daemon, address, _producer) = server(&[]);
    assert_eq!(jobs(&address, &["put", "a/t", "x"]), "INSERTED 1\n");
    let full = fs::File::options().write(true).open("/dev/full").expect("is a device");
    let peek = Command::new(Daemon::program()).args(["jobs", "-s", &address, "peek", "1"]).stdout(full).output();
    let peek = peek.expect("the program runs");
    assert_eq!(peek.status.code(), Some(1), "{}", String::from_utf8_lossy(&peek.stderr));
}

#[test]
fn faults_are_named() {
    let (_daemon, address, _producer) = server(&["--jobs-max-size", "5"]);
    for (arguments, status, said) in [
        (&["peek", "1"][..], 1, "1: NOT_FOUND"),
        (&["delete", "x"], 64, "\"x\" is not the number of a job"),
        (&["put", "größe", "x"], 64, "the tube \"größe\": it must not have 'ö'"),
        (&["put", "a", "x", "--key", "a b"], 64, "the key \"a b\": it must not have ' '"),
        (&["limit", "group:", "2"], 64, "the group \"\": it is empty"),
        (&["put", "a", "too long"], 76, "the server refuses: JOB_TOO_BIG: 8 bytes, at most 5 (jobs.max_size)"),
        (&["put", "a", "x", "-n", "2"], 64, "unknown option -n"),
        (&["put", "a", "x", "--root", "s"], 64, "--root and --root-ts go together"),
        (&["put", "a", "x", "--key-for", "5"], 64, "--key-for needs --key, and does not go together with --root"),
        (
            &["put", "a", "x", "--key-for", "5", "--key", "k", "--root", "s", "--root-ts", "1"],
            64,
            "--key-for needs --key, and does not go together with --root",
        ),
        (&["put", "a", "x", "--key", "k", "--key-for", "0"], 64, "--key-for: \"0\" is not a number of seconds above 0"),
        (&["list", "a", "waiting"], 64, "\"waiting\" is not ready, reserved, delayed or buried"),
        (&["summary", "x"], 64, "summary is by wiki, type, tube or runner"),
        (&["pause", "a", "long"], 64, "\"long\" is not a number of seconds"),
        (&["run", "a"], 64, "run needs tubes or patterns, and a command behind --"),
        (&["run", "a=0", "--", "true"], 64, "a=0: the weight is not a number from 1 to 1000"),
        (
            &["run", "mail-*", "--", "true"],
            64,
            "the pattern \"mail-*\": a * is a whole part between slashes, as in */sendMail",
        ),
        (
            &["run", "a", "--name", "x y", "--", "true"],
            64,
            "--name: \"x y\" is not a name: 1 to 64 bytes without spaces and line ends",
        ),
        (&["peek", "a", "--", "true"], 64, "only \"run\" runs a command"),
        (&["fly"], 64, "unknown request \"fly\""),
        (&["kcik"], 64, "unknown request \"kcik\"; did you mean kick?"),
        (&[], 64, "no request is named"),
        (&["peek"], 64, "usage: poolcounter jobs peek ID | TUBE [STATE]"),
    ] {
        let ended = jobs_with_input(&address, arguments, b"");
        let help = match (status, arguments) {
            (64, ["fly" | "kcik"] | []) => " (see poolcounter help jobs)".into(),
            (64, [request, ..]) => format!(" (see poolcounter help jobs {request})"),
            _ => String::new(),
        };
        let said = format!("poolcounter: {said}{help}\n");
        assert_eq!((ended.status, ended.stderr), (Some(status), said), "{arguments:?}");
    }
    assert_eq!(jobs_with_input("127.0.0.1:1", &["peek", "1"], b"").status, Some(69));
    for (server, arguments, status) in [
        (&*address, &["show", "9", "-j"][..], 1),
        (&address, &["list", "none", "-j"], 1),
        ("127.0.0.1:1", &["stats", "-j"], 69),
    ] {
        let ended = jobs_with_input(server, arguments, b"");
        assert_eq!((ended.status, &*ended.stderr), (Some(status), ""), "{arguments:?}");
        assert!(ended.stdout.starts_with("[{") && ended.stdout.contains("\"error\":\""), "{}", ended.stdout);
    }
}

#[test]
fn the_exit_status_decides() {
    let (_daemon, address, producer) = server(&[]);
    let script = "body=$(cat); echo \"$JOB_ID $JOB_TUBE $JOB_PRI $JOB_TTR $JOB_RESERVES $POOL_MEMBER $body\" >>ran
        case $body in
            fail) echo first; echo reason >&2; exit 3;;
            die) kill -9 $$;;
            bury) echo in vain >&2; exit 65;;
            flood) yes | head -c 20000000; echo the end; exit 1;;
            deaf) exec 0<&-; exit 0;;
        esac";
    for body in ["good", "fail", "die", "bury", "flood", "deaf"] {
        producer.put(&NewJob { pri: 5, ..NewJob::new(body) }).expect("is put");
    }
    let running = Running::watching("*/t=2", &address, &["--delay", "100", "--bury-on", "65"], script);
    wait_for(&producer, [0, 0, 3, 1]);
    let bodies = ["good", "fail", "die", "bury", "flood", "deaf"];
    let lines: Vec<String> = bodies.iter().zip(1..).map(|(body, id)| format!("{id} a/t 5 60 1 kept {body}")).collect();
    running.expect_lines("ran", &lines.iter().map(|line| &**line).collect::<Vec<_>>());
    let [failed, died, flooded] = &errors(&producer, JobState::Delayed)[..] else { panic!("three have failed") };
    assert_eq!(failed, "its command ended with status 3\nreason\n");
    assert_eq!(died, "its command ended with status 137\n");
    assert!(flooded.starts_with("its command ended with status 1\n") && flooded.ends_with("y\ny\nthe end\n"));
    assert!((4000..=4096).contains(&flooded.len()), "{}", flooded.len());
    assert_eq!(errors(&producer, JobState::Buried), ["its command ended with status 65\nin vain\n"]);
    let failures: f64 = producer
        .summary(poolcounter_client::SummaryBy::Tube)
        .expect("is asked")
        .iter()
        .filter_map(|row| row.figure("failures"))
        .sum();
    assert!((failures - 4.0).abs() < 0.5, "each that has failed counts, the buried one, too: {failures}");
    running.signal();
    let said = running.finish();
    let lines: Vec<String> = said.lines().map(without_time).collect();
    assert_eq!(lines[0], "poolcounter: job 1 of a/t: done in T s");
    assert_eq!(lines[1], "poolcounter: job 2 of a/t: failed in T s: its command ended with status 3: reason");
    assert_eq!(lines.len(), 6, "{said}");
}

#[test]
fn a_failed_job_is_shown_with_its_error_and_kicked() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob::new("a body\nof two lines")).expect("is put");
    producer.put(&NewJob { tube: Some("7".into()), ..NewJob::new("x") }).expect("is put");
    let script = "echo first >&2; echo middle >&2; echo last >&2; exit 3";
    let running = Running::watching("a/t", &address, &["--bury-on", "3"], script);
    wait_for(&producer, [0, 0, 0, 1]);
    running.signal();
    running.finish();
    let jobs = |arguments: &[&str]| jobs(&address, arguments);
    let error = "its command ended with status 3\n    first\n    middle\n    last\n";
    let shown = jobs(&["show", "1"]);
    assert!(shown.contains("\nstate: buried\n") && shown.contains("\nattempts: 1\n"), "{shown}");
    assert!(shown.contains(&format!("\nerror:\n    {error}body:\n    a body\n    of two lines\n")), "{shown}");
    assert!(jobs(&["show", "1", "-j"]).contains(r#""body":"a body\nof two lines""#));
    assert!(!jobs(&["show", "2"]).contains("error"));
    let list = jobs(&["list", "a/t", "buried"]);
    assert!(list.ends_with("its command ended with status 3: first: last\n"), "{list}");
    assert_eq!(jobs(&["list", "a/t", "buried", "--error"]), format!("job 1, attempts 1:\n    {error}"));
    assert_eq!(jobs(&["list", "7", "--error"]), "");
    assert_eq!(jobs(&["bury", "2"]), "");
    assert_eq!(jobs(&["kick", "--all", "7"]), "KICKED 1\n", "it is no number of a job");
    assert_eq!(jobs(&["bury", "2"]), "");
    assert_eq!(jobs(&["kick", "--all"]), "KICKED 2\n");
    assert_eq!(jobs_with_input(&address, &["show", "9"], b"").stderr, "poolcounter: 9: NOT_FOUND\n");
}

#[test]
fn failed_jobs_of_all_states_are_listed() {
    let (_daemon, address, producer) = server(&[]);
    let mut beanstalk = Client::to(address.parse().expect("is an address"));
    // Jobs 1 to 3 fail and are buried, delayed and ready; the others of the tube have not failed.
    drop(producer.put_many(&[(); 3].map(|()| NewJob::new("x"))).expect("are put"));
    assert_eq!(beanstalk.ask("watch a/t\r"), "WATCHING 2\r");
    for (id, end) in [(1, "0 0 1 bury"), (2, "0 600 1"), (3, "0 0 1")] {
        beanstalk.send(b"reserve\r\n");
        assert_eq!(beanstalk.line(), format!("RESERVED {id} 1\r"));
        assert_eq!(beanstalk.line(), "x\r");
        beanstalk.send(format!("fail {id} {end}\r\nx\r\n").as_bytes());
        beanstalk.line();
    }
    assert_eq!(beanstalk.ask("kick-job 3\r"), "KICKED\r", "it is ready");
    let fresh: Vec<NewJob> = (0..1200).map(|_| NewJob::new("y")).collect();
    fresh.chunks(600).for_each(|jobs| drop(producer.put_many(jobs).expect("are put")));
    let jobs = |arguments: &[&str]| jobs(&address, arguments);
    let of = |list: String| -> Vec<String> {
        list.lines().filter_map(|line| Some(line.split_once(", attempts ")?.0.into())).collect()
    };
    assert_eq!(of(jobs(&["list", "a/t", "--error"])), ["job 1", "job 2", "job 3"]);
    assert_eq!(of(jobs(&["list", "a/t", "--error", "--limit", "1"])), ["job 1"]);
    assert_eq!(of(jobs(&["list", "a/t", "--error", "--limit", "1", "--after", "1"])), ["job 2"]);
    assert_eq!(of(jobs(&["list", "a/t", "delayed", "--error"])), ["job 2"]);
    assert_eq!(jobs_with_input(&address, &["list", "none", "--error"], b"").stderr, "poolcounter: none: NOT_FOUND\n");
}

/// Starts a daemon with this rule for all clients, and returns it with the address of its jobs.
fn guarded(rule: &str) -> (Daemon, String) {
    let scratch = Scratch::new();
    let config = scratch.file("toml");
    fs::write(&config, format!("[[access]]\nwho = [\"all\"]\n{rule}\n")).expect("can be written");
    let daemon = Daemon::start_with_jobs(&["--config", config.to_str().expect("is text")]);
    let address = daemon.jobs().to_string();
    (daemon, address)
}

#[test]
fn a_runner_needs_only_the_right_to_reserve() {
    let (_daemon, address) = guarded("may = [\"jobs:put\", \"jobs:reserve\"]");
    for options in [&[][..], &["--batch", "9"]] {
        for body in ["a", "b"] {
            jobs(&address, &["put", "a/t", body]);
        }
        let script = match options {
            [] => "cat >>ran; echo >>ran",
            _ => "while read -r id body; do echo $body >>ran; echo $id done >&3; done",
        };
        let running = Running::start(&address, options, script);
        running.expect_lines("ran", &["a", "b"]);
        running.signal();
        let said = running.finish();
        assert_eq!(said.matches(": done in ").count(), 2, "{said}");
    }
}

/// The rule allows one job at a time, which another client has at first.
#[test]
fn a_runner_waits_while_a_limit_is_reached() {
    let (_daemon, address) = guarded("may = [\"jobs\"]\nmax_locks = 1");
    jobs(&address, &["put", "b/t", "x"]);
    jobs(&address, &["put", "a/t", "y"]);
    let mut other = Client::to(address.parse().expect("is an address"));
    assert_eq!(other.ask("reserve-job 1\r"), "RESERVED 1 1\r");
    assert_eq!(other.line(), "x\r");
    let mut running = Running::start(&address, &[], "cat >>ran; echo >>ran");
    let mut said = BufReader::new(running.running.child.stderr.take().expect("is piped")).lines().map_while(Result::ok);
    let complaint = "poolcounter: the server refuses: OUT_OF_MEMORY; it is tried again";
    assert_eq!(said.next().as_deref(), Some(complaint));
    assert_eq!(other.ask("delete 1\r"), "DELETED\r");
    running.expect_lines("ran", &["y"]);
    running.signal();
    assert_eq!(wait(&mut running.running.child).code(), Some(0));
    assert_eq!(said.next().as_deref(), Some("poolcounter: the server accepts requests again"));
}

#[test]
fn a_runner_whose_requests_are_refused_says_so() {
    let server = Strange::answering(|line| match line.split(u8::is_ascii_whitespace).next() {
        Some(b"extensions") => b"UNKNOWN_COMMAND\r\n".into(),
        Some(b"watch" | b"ignore") => b"WATCHING 1\r\n".into(),
        Some(b"reserve-with-timeout") => b"RESERVED 1 1\r\nx\r\n".into(),
        _ => b"NOT_ALLOWED\r\n".into(),
    });
    let ended = jobs_with_input(&server.address, &["run", "a/t", "--", "true"], b"");
    let stderr = "poolcounter: the server refuses: NOT_ALLOWED\n".into();
    assert_eq!(ended, Ended { stderr, ..Ended::silent(76) });
}

#[test]
fn a_job_is_touched_as_long_as_its_command_runs() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob { ttr: Duration::from_secs(1), ..NewJob::new(vec![b'x'; 65_000]) }).expect("is put");
    let running = Running::start(&address, &["-q"], "sleep 2.5; wc -c >>ran");
    running.expect_lines("ran", &["65000"]);
    wait_for(&producer, [0; 4]);
    assert!(producer.stats().expect("is asked").contains(&("job-timeouts".into(), "0".into())));
    running.signal();
    assert_eq!(running.finish(), "");
}

#[test]
fn a_job_whose_time_is_over_is_lost() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob { ttr: Duration::from_secs(1), ..NewJob::new("x") }).expect("is put");
    let mut running = Running::start(&address, &[], "echo begun >>ran; sleep 1000");
    running.expect_lines("ran", &["begun"]);
    running.running.signal(Signal::SIGSTOP);
    wait_for(&producer, [0, 0, 1, 0]);
    assert!(matches!(producer.delete(JobId(1)), Ok(true)));
    running.running.signal(Signal::SIGCONT);
    let said = running.running.error_line();
    assert!(
        said.contains(": lost after ") && said.contains("its time was over, or it was taken away or deleted"),
        "{said}"
    );
}

#[test]
fn a_command_that_hangs_is_ended() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob::new("x")).expect("is put");
    // The child of the command hangs, too.
    let running = Running::start(&address, &["--timeout", "0.2", "--delay", "100"], "echo busy; sleep 1000 & wait");
    wait_for(&producer, [0, 0, 1, 0]);
    assert_eq!(errors(&producer, JobState::Delayed), ["its command took longer than 0.2 s\nbusy\n"]);
    running.signal();
    let said = running.finish();
    assert_eq!(
        without_time(said.trim_end()),
        "poolcounter: job 1 of a/t: failed in T s: its command took longer than 0.2 s: busy"
    );
}

#[test]
fn several_run_at_a_time_and_finish_after_sigterm() {
    let (_daemon, address, producer) = server(&[]);
    for _ in 0..5 {
        producer.put(&NewJob::new("x")).expect("is put");
    }
    let script = "echo $JOB_ID >>begun; until [ -e go ]; do sleep 0.02; done; echo $JOB_ID >>ended";
    let running = Running::start(&address, &["-q", "-n", "3", "--name", "three"], script);
    running.expect_lines("begun", &["1", "2", "3"]);
    let summary = jobs(&address, &["summary", "runner"]);
    let row: Vec<&str> = summary.lines().last().expect("a row").split_whitespace().collect();
    assert_eq!(row[..3], ["three", "3", "0"], "{summary}");
    running.signal();
    thread::sleep(Duration::from_millis(50));
    fs::write(running.scratch.file("go"), "").expect("can be written");
    running.expect_lines("ended", &["1", "2", "3"]);
    assert_eq!(running.finish(), "");
    assert_eq!(counts(&producer), [2, 0, 0, 0], "it has taken no more");
}

#[test]
fn jobs_that_do_not_finish_are_given_back() {
    for (options, signals) in [(&["--grace", "0", "-q"][..], 1), (&["-q"], 2)] {
        let (_daemon, address, producer) = server(&[]);
        producer
            .retry(
                "a/t",
                &poolcounter_client::Retry { attempts: 1, first: Duration::ZERO, factor: 1.0, max: Duration::ZERO },
            )
            .expect("is set");
        producer.put(&NewJob::new("x")).expect("is put");
        let running = Running::start(&address, options, "echo >>begun; sleep 1000");
        running.expect_lines("begun", &[""]);
        for _ in 0..signals {
            running.signal();
            // Two signals at the same time are one.
            thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(running.finish(), "");
        assert_eq!(counts(&producer), [1, 0, 0, 0], "that was no attempt, after which it would be buried");
    }
}

#[test]
fn a_command_that_cannot_be_run_costs_no_attempt() {
    let (_daemon, address, producer) = server(&[]);
    producer.put(&NewJob::new("x")).expect("is put");
    let running = Running::of(&address, &["a/t", "--delay", "100", "--", "/does/not/exist"]);
    wait_for(&producer, [0, 0, 1, 0]);
    running.signal();
    let said = running.finish();
    assert!(said.contains("/does/not/exist cannot be run: No such file or directory"), "{said}");
    assert_eq!(errors(&producer, JobState::Delayed), [""]);
}

#[test]
fn a_beanstalkd_will_do() {
    let Some(program) = Beanstalkd::program() else {
        return poolcounter_testkit::skipped("jobs with beanstalkd, which is not installed");
    };
    let beanstalkd = Beanstalkd::start(&program);
    let address = beanstalkd.address.to_string();
    assert_eq!(jobs(&address, &["put", "a/t", "good"]), "INSERTED 1\n");
    assert_eq!(
        jobs_with_input(&address, &["put", "a/t", "--lines"], b"bad\nbury\n").stdout,
        "INSERTED 2\nINSERTED 3\n"
    );
    assert_eq!(jobs(&address, &["peek", "a/t"]), "good");
    let keyed = jobs_with_input(&address, &["put", "a/t", "x", "--key", "k"], b"");
    let said = "poolcounter: the server does not know put-job: it is a plain beanstalkd\n";
    assert_eq!((keyed.status, &*keyed.stderr), (Some(76), said));
    let summary = jobs_with_input(&address, &["summary"], b"");
    assert_eq!(summary.stderr, "poolcounter: the server does not know summary: it is a plain beanstalkd\n");
    let pattern = jobs_with_input(&address, &["run", "*/t", "--", "true"], b"");
    let said = "poolcounter: the server does not know watch with a pattern: it is a plain beanstalkd\n";
    assert_eq!((pattern.status, &*pattern.stderr), (Some(76), said));
    let producer = producer_at(&address);
    let script = "body=$(cat); echo $JOB_ID $body >>ran; [ $body != bury ] || exit 65; [ $body = good ]";
    let running = Running::start(&address, &["--delay", "100", "--bury-on", "65"], script);
    running.expect_lines("ran", &["1 good", "2 bad", "3 bury"]);
    wait_for(&producer, [0, 0, 1, 1]);
    let refused = jobs_with_input(&address, &["kick", "a/t", "delayed"], b"");
    let said = "poolcounter: this server kicks delayed jobs only if none is buried (see poolcounter help jobs kick)\n";
    assert_eq!((refused.status, &*refused.stderr), (Some(64), said));
    assert_eq!(jobs(&address, &["kick", "a/t"]), "KICKED 1\n");
    running.expect_lines("ran", &["1 good", "2 bad", "3 bury", "3 bury"]);
    assert!(matches!(producer.put(&NewJob::new("good")), Ok(PutOutcome::Inserted(_))));
    running.expect_lines("ran", &["1 good", "2 bad", "3 bury", "3 bury", "4 good"]);
    running.signal();
    let said = running.finish();
    assert!(said.contains("its command ended with status 65; the server does not keep that"), "{said}");
}
