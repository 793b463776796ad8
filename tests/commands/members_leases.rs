//! Leases from the shell that last over several steps: `take --keep`, and `members renew` and `members return` by the
//! token. Takes that wait through a restart or a cut, and the messages for refused ones.

use super::members_shell::{UNTIL_EOF, lines_of, provide, server_with, start_program, states, take, wait_for};
use super::pty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::{Client, Daemon, until, wait};
use poolcounter_testkit::original::nowhere;
use poolcounter_testkit::running::{Ended, Running};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::tls::Certificates;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn variables(printed: &str) -> BTreeMap<&str, &str> {
    printed.lines().map(|line| line.split_once('=').expect("is NAME=VALUE")).collect()
}

#[test]
fn a_member_is_kept_from_one_step_to_the_next() {
    let (server, mut operator) = server_with("0 2 on_loss=ok", &["a region=eu", "b region=us"]);
    let members = |words: &[&str]| start_program(&[&["members", "-s", &server.address], words].concat()).finish();
    let run = |words: &[&str]| start_program(&[&["take", "-s", &server.address], words].concat()).finish();
    let kept = run(&["p", "--keep", "--lease", "600", "--format", "env", "-a", "region=us"]);
    assert_eq!((kept.status, &*kept.stderr), (Some(0), ""));
    let told = variables(&kept.stdout);
    assert_eq!(
        told.keys().copied().collect::<Vec<_>>(),
        ["POOL_ATTR_region", "POOL_LEASE", "POOL_MEMBER", "POOL_NAME", "POOL_TOKEN"]
    );
    assert_eq!((told["POOL_MEMBER"], told["POOL_ATTR_region"], told["POOL_NAME"]), ("b", "us", "p"));
    wait_for(&mut operator, "a free b in_use");
    let token = told["POOL_TOKEN"];
    for words in [&["renew", "p", token][..], &["renew", "p", token, "900"], &["return", "p", token, "fail"]] {
        assert_eq!(members(words), Ended::silent(0), "{words:?}");
    }
    wait_for(&mut operator, "a free b quarantined");
    for words in [&["renew", "p", token][..], &["return", "p", token]] {
        let ended = members(words);
        let sentence = "there is no such lease: it was returned, has run out or was taken back";
        assert_eq!((ended.status, ended.stderr), (Some(76), format!("poolcounter: p: {sentence}\n")));
    }
    for words in [
        &["return", "p", "17"][..],
        &["return", "p", token, "well"],
        &["return", "p", "ok", token],
        &["return", "p", &format!("{token}0")],
        &["renew", "p", token, "x"],
        &["renew", "p"],
    ] {
        let ended = members(words);
        assert!(ended.status == Some(64) && !ended.stderr.contains(token), "{ended:?}");
    }

    let kept = run(&["p", "--keep", "--lease", "0.3", "--format", "json"]);
    let object: serde_json::Value = serde_json::from_str(&kept.stdout).expect("is JSON");
    assert_eq!((&object["POOL_MEMBER"], &object["POOL_ATTR_region"]), (&"a".into(), &"eu".into()));
    wait_for(&mut operator, "a free b quarantined");
    for words in [
        &["p", "--keep", "--format", "sh"][..],
        &["p", "--keep", "--lease", "9"],
        &["p", "--keep", "--lease", "9", "--", "true"],
        &["p", "--keep", "--lease", "9", "--format", "xml"],
        &["p", "--format", "json", "--", "true"],
    ] {
        assert_eq!(run(words).status, Some(64), "{words:?}");
    }
    assert_eq!(states(&mut operator), "a free b quarantined");
}

/// Runs a script of a shell in a directory, with the program as `$take`.
fn run_in(scratch: &Scratch, server: &str, script: &str) -> Ended {
    let take = format!("{} take -s {server} p --keep --lease 600", Daemon::program());
    Running::start(Command::new("sh").args(["-c", script]).env("take", take).current_dir(scratch.file(""))).finish()
}

/// A shell that evaluates the printed lines gets names and values as they are, and runs nothing of them.
#[test]
fn a_shell_takes_values_for_values() {
    let names = ["$(touch${IFS}ran)", "`touch${IFS}ran`", "x;touch${IFS}ran", "it's&", "a\tb\\\u{1b}[31m", "~/*"];
    let members = names.map(|name| format!("{name} note={name}"));
    let (server, mut operator) = server_with("0 9 order=fifo on_loss=ok", &members.each_ref().map(|member| &**member));
    let scratch = Scratch::new();
    for name in names {
        let script =
            "lease=$($take --format sh) || exit; eval \"$lease\"; printf '%s|%s' \"$POOL_MEMBER\" \"$POOL_ATTR_note\"";
        let ended = run_in(&scratch, &server.address, script);
        let stdout = format!("{name}|{name}");
        assert_eq!(ended, Ended { stdout, ..Ended::silent(0) });
    }
    assert!(!scratch.file("ran").exists());
    let ended = run_in(&scratch, &server.address, "lease=$($take --format sh -t 0) || exit; echo goes on");
    assert_eq!((ended.status, &*ended.stdout), (Some(75), ""));
    assert_eq!(states(&mut operator).matches(" in_use").count(), names.len());
}

#[test]
fn a_member_that_no_line_carries_is_returned() {
    let (server, mut operator) = server_with("0 2 on_loss=ok", &["a\rPATH=."]);
    let scratch = Scratch::new();
    let ended = run_in(&scratch, &server.address, "$take --format env");
    let sentence =
        r#"--format env cannot carry the invisible characters in POOL_MEMBER="a\u{d}PATH=."; sh and json can"#;
    let stderr = format!("poolcounter: p: {sentence}\n");
    assert_eq!(ended, Ended { stderr, ..Ended::silent(1) });
    wait_for(&mut operator, "a\rPATH=. free");
    assert_eq!(run_in(&scratch, &server.address, "$take --format json | grep -c 'a.rPATH'").stdout, "1\n");
}

#[test]
fn a_terminal_shows_invisible_characters_as_escapes() {
    let (server, _operator) = server_with("0 9", &["a\u{1b}[31m note=\u{1b}c", "b\u{1b}c"]);
    for format in [&[][..], &["--format", "sh"]] {
        let terminal = pty::open();
        let take = ["take", "-s", &server.address, "p", "--keep", "--lease", "60"];
        let mut command = Command::new(Daemon::program());
        command.args([&take, format].concat()).stdout(Stdio::from(terminal.slave));
        let mut child = command.spawn().expect("the program runs");
        drop(command);
        let mut shown = Vec::new();
        // The read fails when the last descriptor of the other side is closed.
        let _ = File::from(terminal.master).read_to_end(&mut shown);
        let shown = String::from_utf8(shown).expect("is text");
        assert!(wait(&mut child).success() && shown.contains(r"\u{1b}") && !shown.contains('\u{1b}'), "{shown:?}");
    }
}

#[test]
fn a_kept_member_is_renewed_and_returned_over_tls() {
    let Some(certificates) = Certificates::new() else { return };
    let scratch = Scratch::new();
    let socket = scratch.file("members").display().to_string();
    let listen = format!("proxy:unix:{socket}");
    let file = settings(&scratch);
    let _daemon = Daemon::start(&["--members", "--members-listen", &listen, "--config", &file]);
    let terminator = certificates.terminator(&format!("unix:{socket}"), &[]);
    let (address, ca) = (format!("tls:127.0.0.1:{}", terminator.address.port()), certificates.path("ca.pem"));
    let run = |words: &[&str]| {
        let ended = start_program(&[words, &["-s", &address, "--tls", &ca]].concat()).finish();
        assert_eq!((ended.status, &*ended.stderr), (Some(0), ""), "{words:?}");
        ended.stdout
    };
    let kept = run(&["take", "p", "--keep", "--lease", "600", "--format", "env", "-n", "2"]);
    let told = variables(&kept);
    assert_eq!(run(&["members", "p"]).matches(" in_use ").count(), 2);
    for token in [told["POOL_TOKEN_1"], told["POOL_TOKEN_2"]] {
        run(&["members", "renew", "p", token]);
        run(&["members", "return", "p", token]);
    }
    assert_eq!(run(&["members", "p"]).matches(" free ").count(), 2);
}

/// Writes a file that declares the pool p with two fixed members, and returns its path.
fn settings(scratch: &Scratch) -> String {
    let file = scratch.file("settings.toml");
    let text = "[[members.pool]]\nname = \"p\"\nmax = 2\nfixed = [\"a\", \"b\"]\non_loss = \"ok\"\n";
    fs::write(&file, text).expect("there is room");
    file.display().to_string()
}

/// All members are in quarantine after ordinary failures: a take says so, at once and while it waits.
#[test]
fn a_refused_take_names_the_number_in_quarantine() {
    let (server, mut operator) = server_with("0 2 group=g", &["a", "b"]);
    assert_eq!(take(&server, &[], "false").finish().status, Some(1));
    assert_eq!(take(&server, &[], "false").finish().status, Some(1));
    wait_for(&mut operator, "a quarantined b quarantined");
    let group = start_program(&["take", "-s", &server.address, "-g", "g", "-t", "0", "--", "true"]).finish();
    for (ended, source) in [(take(&server, &["-t", "0"], "true").finish(), "p"), (group, "g")] {
        let sentence = format!(
            "poolcounter: {source}: all members are in use or kept out (2 in quarantine, held back or orphaned)\n"
        );
        assert_eq!((ended.status, ended.stderr), (Some(75), sentence));
    }
    let ended = take(&server, &["-t", "1.5"], "true").finish();
    let lines = [
        "waiting; all members are in use or kept out (2 in quarantine, held back or orphaned)",
        "no member came free in time (2 in quarantine, held back or orphaned)",
    ];
    assert_eq!(ended.stderr, lines.map(|line| format!("poolcounter: p: {line}\n")).concat());
    let members = |words: &[&str]| start_program(&[&["members", "-s", &server.address], words].concat()).finish();
    assert_eq!(members(&["repair", "p", "--all"]).stdout, "repaired: 2\n");
    wait_for(&mut operator, "a free b free");
    let kept = ["take", "-s", &server.address, "p", "--member", "a", "--keep", "--lease", "60", "--format", "json"];
    assert_eq!(start_program(&kept).finish().status, Some(0));
    let few = take(&server, &["-t", "0", "-n", "2"], "true").finish();
    assert_eq!(
        few.stderr,
        "poolcounter: p: not enough of the members that are wanted are free, or the daemon drains\n"
    );
    assert_eq!(members(&["takeback", "p", "--member", "a", "is needed"]).status, Some(0));
    assert_eq!(members(&["takeback", "p", "--member", "a"]).status, Some(76), "it is not in use any more");
    assert_eq!(members(&["p", "--all"]).status, Some(64));
}

#[test]
fn refusals_of_a_take_are_sentences() {
    let (server, _operator) = server_with("0 1", &["m"]);
    let refused = |words: &[&str]| {
        let ended = start_program(&[&["take", "-s", &server.address], words, &["--", "true"]].concat()).finish();
        (ended.status, ended.stderr)
    };
    for (words, status, sentence) in [
        (&["q"][..], 76, "q: there is no such pool (NO_POOL)"),
        (&["p", "--member", "zz"], 76, "p: there is no such member (NO_SUCH_MEMBER)"),
        (&["p", "-a", "x=1"], 76, "p: there is no such member (NO_SUCH_MEMBER)"),
        (&["p", "-a", "x=1", "-a", "x=2"], 64, "p: an attribute is given twice (see poolcounter help take)"),
        (&["p", "-n", "2"], 76, "p: this is more than the pool or the server can have (TOO_MANY)"),
        (
            &["p", "-a", "member=a"],
            64,
            "--attr: \"member=a\" is not an attribute that a member can have: an attribute has the name of an option (see poolcounter help take)",
        ),
    ] {
        assert_eq!(refused(words), (Some(status), format!("poolcounter: {sentence}\n")), "{words:?}");
    }
}

#[test]
fn a_take_waits_through_a_restart() {
    let scratch = Scratch::new();
    let file = settings(&scratch);
    let address = nowhere();
    let start = || Daemon::start(&["--members", "--members-listen", &address, "--config", &file]);
    let run = |options: &[&str], script: &str| {
        let words = [&["take", "p", "-s", &address], options, &["--", "sh", "-c", script]].concat();
        start_program(&words)
    };
    assert_eq!(run(&["--retry", "-t", "0.2"], "true").finish().status, Some(69));
    let early = run(&["--retry", "-t", "30", "-n", "2"], "echo $POOL_MEMBERS");
    let daemon = start();
    assert_eq!(early.finish().stdout.len(), "a b\n".len());
    // A take waits in the queue when the daemon is restarted.
    let mut holder = run(&["-n", "2"], UNTIL_EOF);
    assert_eq!(holder.line(), "runs");
    let (patient, other) = (run(&["--retry", "--member", "b"], "echo $POOL_MEMBER"), run(&[], "true"));
    let mut client = Client::to(address.parse().expect("is an address"));
    until("both wait", || client.ask("UTILIZATION p").contains(" queued 2 "));
    drop((daemon, client));
    assert_eq!(other.finish().status, Some(69));
    let _daemon = start();
    assert_eq!(patient.finish().stdout, "b\n");
}

/// The connection is cut without the daemon's notice. The lease continues over another, and the loss is reported there.
#[test]
fn a_leased_take_goes_on_over_a_new_connection() {
    let (server, _operator) = server_with("0 2 on_loss=ok", &[]);
    let scratch = Scratch::new();
    let provider = provide(&server, &scratch, "echo $$ > pid; echo m; exec sleep 1000", &["--capacity", "1"]);
    let proxy = CutProxy::to(server.address.parse().expect("is an address"));
    let through = |script: &str| {
        let address = proxy.address.to_string();
        start_program(&["take", "p", "-s", &address, "--lease", "6", "--on-lost", "term", "--", "sh", "-c", script])
    };
    let mut run = through("echo runs; exec cat");
    assert_eq!(run.line(), "runs");
    proxy.cut();
    thread::sleep(Duration::from_millis(1500));
    let begun = Instant::now();
    let pid = lines_of(&scratch.file("pid"))[0].parse().expect("is a number");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("is ours");
    wait(&mut run.child);
    let ended = run.finish();
    assert_eq!(ended.status, Some(143), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(6), "before the lease runs out");
    drop(provider);
}

/// A keeper renews a lease until a process has ended, or the lease is lost.
#[test]
fn a_keeper_renews_a_lease() {
    let (server, mut operator) = server_with("0 1", &["m"]);
    let taken = operator.ask("TAKE p 0 lease=600");
    let token = taken.rsplit("token=").next().expect("it has a token");
    let mut child = Command::new("sleep").arg("1000").spawn().expect("there is sleep");
    let process = child.id().to_string();
    let renew = ["members", "-s", &server.address, "renew", "p", token, "9000", "--every", "0.1"];
    let keeper = start_program(&[&renew[..], &["--until-exit", &process]].concat());
    until("it is renewed", || {
        operator.send(b"MEMBERS p\n");
        let line = operator.line();
        assert_eq!(operator.line(), "");
        line.contains(" expires=8999.") || line.contains(" expires=9000.")
    });
    child.kill().and_then(|()| child.wait()).expect("it is a child");
    assert_eq!(keeper.finish().status, Some(0));
    let keeper = start_program(&renew);
    assert_eq!(operator.ask(&format!("RETURN {token}")), "RETURNED");
    let ended = keeper.finish();
    let sentence = "there is no such lease: it was returned, has run out or was taken back";
    assert_eq!((ended.status, ended.stderr), (Some(76), format!("poolcounter: p: {sentence}\n")));
    assert_eq!(start_program(&["members", "-s", &server.address, "--every", "1"]).finish().status, Some(64));
}
