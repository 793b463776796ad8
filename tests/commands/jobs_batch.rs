//! `poolcounter jobs run` as a farm uses it: batches of a tube, several servers, metrics.

use poolcounter_client::{JobState, NewJob, Producer, Retry, SummaryBy, SummaryRow};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_command::{Running, counts, errors, producer_at, server, until, wait_for, without_time};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

/// Retry after which the first failed attempt buries a job.
const ONE_ATTEMPT: Retry = Retry { attempts: 1, first: Duration::ZERO, factor: 1.0, max: Duration::ZERO };

/// Command that answers each line, and notes its input.
const ANSWER: &str = r#"echo "$0 $JOB_TUBE" >>begun
    while read -r id body; do
        printf '%s %s\n' "$id" "$body" >>ran
        case $body in
            fail) printf '%s\n' "$id fail no such page\nat all" >&3;;
            chat) echo "hello"; echo "$id done" >&3;;
            *) echo "$id done" >&3;;
        esac
    done"#;

fn put(producer: &Producer, tube: &str, bodies: &[&str]) {
    let jobs: Vec<_> = bodies.iter().map(|body| NewJob { tube: Some(tube.into()), ..NewJob::new(*body) }).collect();
    producer.put_many(&jobs).expect("are put").into_iter().for_each(|put| assert!(put.is_ok()));
}

/// Starts a runner of batches, whose script gets `name` as its name.
fn start(address: &str, options: &[&str], name: &str, script: &str) -> Running {
    Running::of(address, &[options, &["--", "sh", "-c", script, name]].concat())
}

#[test]
fn a_command_gets_jobs_of_one_tube_and_answers_each() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["1", "fail", "two\nlines \\n", "chat", "5"]);
    put(&producer, "b/t", &["6", "7"]);
    put(&producer, "b/mail", &["8"]);
    let options = ["--watch", "*/t:3", "--watch", "b/mail", "--batch", "4", "--delay", "100"];
    let running = start(&address, &options, "{wiki} {type} {tube}", ANSWER);
    let lines = ["1 1", "2 fail", r"3 two\nlines \\n", "4 chat", "5 5", "6 6", "7 7", "8 8"];
    running.expect_lines("ran", &lines);
    wait_for(&producer, [0, 0, 1, 0]);
    // Three tubes take turns, and one has a job more than a command takes.
    running.expect_lines("begun", &["a t a/t a/t", "a t a/t a/t", "b mail b/mail b/mail", "b t b/t b/t"]);
    assert_eq!(errors(&producer, JobState::Delayed), ["no such page\nat all"]);
    running.signal();
    let said = running.finish();
    let mut lines: Vec<_> = said.lines().map(without_time).collect();
    lines.sort();
    let mut wanted: Vec<_> = [1, 3, 4, 5].map(|id| format!("poolcounter: job {id} of a/t: done in T s")).into();
    wanted.push("poolcounter: job 2 of a/t: failed in T s: no such page: at all".into());
    wanted.extend([6, 7].map(|id| format!("poolcounter: job {id} of b/t: done in T s")));
    wanted.push("poolcounter: job 8 of b/mail: done in T s".into());
    wanted.insert(5, "poolcounter: a/t: hello".into());
    wanted.sort();
    assert_eq!(lines, wanted);
}

#[test]
fn unanswered_jobs_of_a_batch_cost_an_attempt_of_the_first_only() {
    let (_daemon, address, producer) = server(&[]);
    producer.retry("a/t", &ONE_ATTEMPT).expect("is set");
    put(&producer, "a/t", &["late", "poison", "good", "good"]);
    let script = "while read -r id body; do
            echo $id $body >>ran
            case $body in
                late) [ -e seen ] || { : >seen; echo $id release >&3; continue; };;
                poison) kill -9 $$;;
            esac
            echo $id done >&3
        done";
    let running = start(&address, &["a/t", "--batch", "10"], "", script);
    running.expect_lines("ran", &["1 late", "1 late", "2 poison", "3 good", "4 good"]);
    wait_for(&producer, [0, 0, 0, 1]);
    assert_eq!(errors(&producer, JobState::Buried), ["its command ended with status 137, before it answered\n"]);
}

#[test]
fn jobs_ahead_of_a_killed_runner_cost_no_attempt() {
    let (_daemon, address, producer) = server(&[]);
    producer.retry("a/t", &ONE_ATTEMPT).expect("is set");
    put(&producer, "a/t", &["1", "hang", "3", "4"]);
    let script = "while read -r id body; do
            echo $body >>ran
            [ $body != hang ] || until [ -e go ]; do sleep 0.02; done
            echo $id done >&3
        done";
    let mut running = start(&address, &["a/t", "--batch", "10", "--name", "r1"], "", script);
    running.expect_lines("ran", &["1", "hang"]);
    until("two are reserved ahead", || counts(&producer) == [0, 3, 0, 0]);
    running.running.child.kill().expect("the process is there");
    // The command keeps the connection open until its end.
    fs::write(running.scratch.file("go"), "").expect("can be written");
    wait_for(&producer, [2, 0, 0, 1]);
    let errors = errors(&producer, JobState::Buried);
    assert!(errors[0].starts_with("the runner r1 at ") && errors[0].contains(" was lost after "), "{errors:?}");
    let ready = producer.list_jobs("a/t", JobState::Ready, 9, None).expect("is asked").expect("there are some");
    assert!(ready.iter().all(|job| job.attempts == 0 && job.error.is_empty()), "{ready:?}");
}

#[test]
fn a_batch_is_touched_while_it_runs_and_what_is_left_is_given_back() {
    let (_daemon, address, producer) = server(&[]);
    producer.retry("a/t", &ONE_ATTEMPT).expect("is set");
    for body in ["1", "2", "3"] {
        producer.put(&NewJob { ttr: Duration::from_secs(1), ..NewJob::new(body) }).expect("is put");
    }
    let script = "read -r id body; echo $id done >&3; sleep 2.5; echo >>late; sleep 1000";
    let running = start(&address, &["a/t", "--batch", "3", "--grace", "0"], "", script);
    running.expect_lines("late", &[""]);
    assert_eq!(counts(&producer), [0, 2, 0, 0], "the first is done, and no TTR has run out");
    running.signal();
    let said = running.finish();
    let mut lines: Vec<_> = said.lines().map(without_time).collect();
    lines.sort();
    let given_back = [2, 3].map(|id| format!("poolcounter: job {id} of a/t: given back after T s"));
    assert_eq!(lines[1..], given_back, "{said}");
    assert_eq!(counts(&producer), [2, 0, 0, 0]);
}

#[test]
fn a_command_has_its_time_for_each_answer() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["1", "2", "3", "4", "5", "hang", "7"]);
    let script = "while read -r id body; do [ $body != hang ] || sleep 1000; sleep 0.3; echo $id done >&3; done";
    let running = start(&address, &["a/t", "--batch", "10", "--timeout", "1", "--delay", "100"], "", script);
    wait_for(&producer, [0, 0, 1, 0]);
    assert_eq!(errors(&producer, JobState::Delayed), ["its command took longer than 1 s, before it answered\n"]);
    drop(running);
}

#[test]
fn a_command_gets_one_job_at_a_time_and_idle_workers_take_part() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["x"; 8]);
    // A second line would put another job into one process while others are idle.
    let script = "while read -r id body; do echo $id $$ >>begun; sleep 1.2; echo $id done >&3; done";
    let running = start(&address, &["a/t", "--batch", "50", "-n", "4"], "", script);
    let begun = || fs::read_to_string(running.scratch.file("begun")).unwrap_or_default();
    until("four are begun", || begun().lines().count() == 4);
    assert_eq!(counts(&producer), [4, 4, 0, 0], "nothing is reserved ahead of the first answer");
    until("each does another", || begun().lines().count() == 8);
    // Finished jobs are reported together, a moment later.
    until("the first four are deleted", || counts(&producer)[..2] == [0, 4]);
    wait_for(&producer, [0; 4]);
    let mut processes: Vec<_> =
        begun().lines().map(|line| line.split(' ').nth(1).expect("two words").to_string()).collect();
    processes.sort();
    processes.dedup();
    assert_eq!(processes.len(), 4, "each process has done two: {}", begun());
    running.signal();
    running.finish();
}

#[test]
fn short_jobs_are_reserved_ahead_and_given_back_at_the_end() {
    let (_daemon, address, producer) = server(&["--jobs-max-size", "3000000"]);
    let large = "y".repeat(2_000_000);
    put(&producer, "a/t", &["1", &large, "3", "hang", "5", "6"]);
    let script = "while read -r id body; do
            case $body in hang) until [ -e go ]; do sleep 0.02; done;; esac
            echo $id ${#body} >>ran; echo $id done >&3
        done";
    let running = start(&address, &["a/t", "--batch", "50"], "", script);
    until("it hangs", || counts(&producer) == [0, 3, 0, 0]);
    running.signal();
    wait_for(&producer, [2, 1, 0, 0]);
    fs::write(running.scratch.file("go"), "").expect("can be written");
    wait_for(&producer, [2, 0, 0, 0]);
    running.expect_lines("ran", &["1 1", "2 2000000", "3 1", "4 4"]);
    running.finish();
}

/// The output of a job is no answer, with or without the end of a line; and processes that it starts may live on.
#[test]
fn answers_have_a_descriptor_of_their_own() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["1", "2", "3"]);
    let script = "while read -r id body; do
            printf 'no newline'; [ $body != 2 ] || { echo; echo 3 done; }
            [ $body != 3 ] || sleep 1000 &
            echo $id done >&3
        done; echo why it ended >&2; exit 1";
    let running = start(&address, &["a/t", "--batch", "5"], "", script);
    wait_for(&producer, [0; 4]);
    put(&producer, "a/t", &["4"]);
    wait_for(&producer, [0; 4]);
    running.signal();
    let said = running.finish();
    for line in ["no newlineno newline", "3 done (answers are read from descriptor 3)", "no newline"] {
        assert!(said.lines().any(|known| known == format!("poolcounter: a/t: {line}")), "{line}: {said}");
    }
    assert_eq!((said.matches(": done in").count(), said.matches("failed").count()), (4, 0), "{said}");
    assert!(said.lines().any(|line| line == "why it ended"), "{said}");
}

#[test]
fn the_end_of_the_standard_error_is_the_reason() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["1", "2"]);
    let script = "while read -r id body; do
            echo of $body >&2; [ $body = 2 ] && { yes at >&2 | head -c 9000; echo PHP died >&2; exit 1; }
            echo $id done >&3
        done";
    let script = script.replace("yes at >&2 | head -c 9000", "yes at | head -n 3000 >&2");
    let running = start(&address, &["a/t", "--batch", "5", "--delay", "100"], "", &script);
    wait_for(&producer, [0, 0, 1, 0]);
    let [error] = &errors(&producer, JobState::Delayed)[..] else { panic!("one has failed") };
    assert!(error.starts_with("its command ended with status 1, before it answered\nof 2\n"), "{error}");
    assert!(error.ends_with("at\nPHP died\n") && error.len() <= 4096, "{error}");
    drop(running);
}

#[test]
fn a_tube_or_a_wiki_rests_when_its_command_says_so() {
    let (_daemon, address, producer) = server(&[]);
    producer.retry("*/*", &ONE_ATTEMPT).expect("is set");
    put(&producer, "a/t", &["1", "2"]);
    put(&producer, "b/t", &["3"]);
    put(&producer, "b/u", &["4"]);
    put(&producer, "c/t", &["5"]);
    let script = "while read -r id body; do
            echo $body >>ran
            case $JOB_WIKI in a) echo $id done 100 >&3;; b) echo $id release 50 >&3;; *) echo $id done >&3;; esac
        done";
    let running = start(&address, &["*/*", "--batch", "5"], "", script);
    // Either tube of b may be first.
    until("three have run", || {
        fs::read_to_string(running.scratch.file("ran")).unwrap_or_default().lines().count() == 3
    });
    let figure = |tube: &str, name: &str| {
        let stats = producer.stats_tube(tube).expect("is asked").unwrap_or_default();
        stats.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| value.parse::<u64>().expect("is a number"))
    };
    until("b rests", || figure("b/t", "pause-time-left") > 0 && figure("b/u", "pause-time-left") > 0);
    until("a rests", || figure("a/t", "pause-time-left") > 50);
    assert_eq!(figure("a/t", "current-jobs-ready"), 1);
    until("one is delayed", || figure("b/t", "current-jobs-delayed") + figure("b/u", "current-jobs-delayed") == 1);
    assert!(figure("b/t", "pause-time-left") <= 50);
    running.signal();
    let said = running.finish();
    assert!(!said.contains("failed"), "it was no attempt: {said}");
}

#[test]
fn a_wiki_with_escapes_in_its_name_gets_it_whole() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "zh+3Fh+20b/t", &["x"]);
    let script = "read -r id body; echo \"$0|$JOB_WIKI|$JOB_TUBE|$JOB_TYPE\" >ran; echo $id done >&3";
    let running = start(&address, &["*/t", "--batch", "2"], "--wiki={wiki} {tube}", script);
    running.expect_lines("ran", &["--wiki=zh?h b zh+3Fh+20b/t|zh?h b|zh+3Fh+20b/t|t"]);
    running.signal();
    running.finish();
}

/// The answer is accepted, although the connection was lost while the command worked.
#[test]
fn a_restart_of_the_server_runs_no_job_twice() {
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.file("jobs.db").display());
    let (daemon, address, producer) = server(&["--jobs-store", &store]);
    put(&producer, "a/t", &["1", "2"]);
    let script =
        "while read -r id body; do echo $body >>ran; until [ -e go ]; do sleep 0.02; done; echo $id done >&3; done";
    let running = start(&address, &["a/t", "--batch", "5"], "", script);
    let single = start(&address, &["b/t"], "", "echo >>ran; until [ -e go ]; do sleep 0.02; done");
    put(&producer, "b/t", &["3"]);
    running.expect_lines("ran", &["1"]);
    single.expect_lines("ran", &[""]);
    daemon.signal(nix::sys::signal::Signal::SIGKILL);
    drop(daemon);
    thread::sleep(Duration::from_millis(300));
    let _daemon = Daemon::start(&["--jobs", "--jobs-store", &store, "--jobs-listen", &address]);
    fs::write(running.scratch.file("go"), "").expect("can be written");
    fs::write(single.scratch.file("go"), "").expect("can be written");
    let producer = producer_at(&address);
    wait_for(&producer, [0; 4]);
    let is_zero = |map: Vec<(String, String)>| {
        map.contains(&("current-jobs-ready".into(), "0".into()))
            && map.contains(&("current-jobs-reserved".into(), "0".into()))
    };
    until("the third", || producer.stats_tube("b/t").expect("is asked").is_none_or(is_zero));
    running.expect_lines("ran", &["1", "2"]);
    single.expect_lines("ran", &[""]);
    for running in [running, single] {
        running.signal();
        let said = running.finish();
        assert!(!said.contains(": lost after"), "{said}");
    }
}

#[test]
fn a_server_that_hangs_holds_up_no_other() {
    let (_daemon, address, producer) = server(&[]);
    let hangs = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let hung = hangs.local_addr().expect("has an address").to_string();
    let running = start(&hung, &["-s", &address, "--each-server", "-q", "a/t"], "", "cat >>ran; echo >>ran");
    let (asking, _) = hangs.accept().expect("it connects");
    for body in ["1", "2", "3"] {
        producer.put(&NewJob::new(body)).expect("is put");
        wait_for(&producer, [0; 4]);
    }
    // The runner still waits for the first reply of that server, unless this machine is slower than its patience.
    let mut greeting = [0; 12];
    asking.set_nonblocking(true).expect("can be set");
    assert_eq!(asking.peek(&mut greeting).ok(), Some(greeting.len()));
    assert_eq!(&greeting, b"extensions\r\n");
    running.expect_lines("ran", &["1", "2", "3"]);
    running.signal();
    running.finish();
}

#[test]
fn each_server_is_served() {
    let servers = [server(&[]), server(&[])];
    let options = ["-s", &servers[1].1, "--each-server", "*/t", "--batch", "5"];
    let running = start(&servers[0].1, &options, "", ANSWER);
    for (_, _, producer) in &servers {
        put(producer, "a/t", &["x", "y"]);
    }
    for (_, _, producer) in &servers {
        wait_for(producer, [0; 4]);
    }
    running.expect_lines("ran", &["1 x", "1 x", "2 y", "2 y"]);
}

#[test]
fn a_runner_of_batches_outlives_its_server() {
    let (daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["x", "y"]);
    let script = "while read -r id body; do echo $body >>ran; [ -e go ] || sleep 1000; echo $id done >&3; done";
    let running = start(&address, &["a/t", "--batch", "5"], "", script);
    running.expect_lines("ran", &["x"]);
    drop(daemon);
    fs::write(running.scratch.file("go"), "").expect("can be written");
    let _daemon = Daemon::start(&["--jobs", "--jobs-store", "memory", "--jobs-listen", &address]);
    let producer = producer_at(&address);
    put(&producer, "a/t", &["v", "w"]);
    running.expect_lines("ran", &["v", "w", "x"]);
    wait_for(&producer, [0; 4]);
    running.signal();
    let said = running.finish();
    let lost = ": the connection was lost, with all that it held; its command is terminated";
    let lines: Vec<_> = said.lines().map(without_time).collect();
    assert!(lines.contains(&format!("poolcounter: job 1 of a/t: lost after T s{lost}")), "{said}");
}

/// The connection that takes batches is not used, and not checked, until there is one.
#[test]
fn a_runner_that_waits_sleeps_after_a_restart() {
    let (daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["x", "y"]);
    let running = start(&address, &["a/t", "--batch", "5"], "", ANSWER);
    running.expect_lines("ran", &["1 x", "2 y"]);
    wait_for(&producer, [0; 4]);
    drop(daemon);
    let _daemon = Daemon::start(&["--jobs", "--jobs-store", "memory", "--jobs-listen", &address]);
    let producer = producer_at(&address);
    let is_waiting = |row: &SummaryRow| row.figure("waiting") == Some(1.0);
    until("it waits again", || producer.summary(SummaryBy::Runner).expect("is asked").iter().any(is_waiting));
    let before = wakes(running.running.pid());
    thread::sleep(Duration::from_millis(300));
    let woken = wakes(running.running.pid()) - before;
    assert!(woken < 10, "a connection that is closed keeps it busy: {woken}");
}

/// Returns how often the threads of a process have slept.
fn wakes(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let count = |task: std::io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    tasks.filter_map(count).sum()
}

#[test]
fn metrics_are_a_file() {
    let (_daemon, address, producer) = server(&[]);
    put(&producer, "a/t", &["x", "fail", "z"]);
    put(&producer, "a/mail", &["x"]);
    let options = ["*/*", "--batch", "5", "--name", "r1", "--delay", "100", "--textfile", "jobs.prom"];
    let running = start(&address, &options, "", ANSWER);
    wait_for(&producer, [0, 0, 1, 0]);
    let file = running.scratch.file("jobs.prom");
    until("the file at the start", || file.exists());
    running.expect_lines("ran", &["1 x", "2 fail", "3 z", "4 x"]);
    let is_zero = |map: Vec<(String, String)>| map.contains(&("current-jobs-reserved".into(), "0".into()));
    until("the mail", || producer.stats_tube("a/mail").expect("is asked").is_none_or(is_zero));
    let pid = running.running.pid();
    running.signal();
    let Running { running, scratch } = running;
    assert_eq!(running.finish().status, Some(0));
    let text = fs::read_to_string(&file).expect("it is written at the end");
    for line in [
        "poolcounter_runner_running{runner=\"r1\"} 0",
        "poolcounter_runner_jobs_total{runner=\"r1\",type=\"t\",outcome=\"done\"} 2",
        "poolcounter_runner_jobs_total{runner=\"r1\",type=\"t\",outcome=\"failed\"} 1",
        "poolcounter_runner_jobs_total{runner=\"r1\",type=\"mail\",outcome=\"done\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
    }
    let new = scratch.file(&format!("jobs.prom.{pid}"));
    assert!(!new.exists(), "what was written is renamed");
}

#[test]
fn beanstalkd_gives_batches_too() {
    let Some(program) = poolcounter_testkit::beanstalkd::Beanstalkd::program() else {
        return poolcounter_testkit::skipped("batches with beanstalkd, which is not installed");
    };
    let beanstalkd = poolcounter_testkit::beanstalkd::Beanstalkd::start(&program);
    let address = beanstalkd.address.to_string();
    let producer = producer_at(&address);
    for body in ["x", "fail", "z"] {
        producer.put(&NewJob::new(body)).expect("is put");
    }
    let running = start(&address, &["a/t", "--batch", "5", "--delay", "100"], "", ANSWER);
    running.expect_lines("ran", &["1 x", "2 fail", "3 z"]);
    running.expect_lines("begun", &[" a/t"]);
    wait_for(&producer, [0, 0, 1, 0]);
}
