//! `doctor` and `config`: what they print, and their exit statuses.

use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::process::{Command, Output};

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(Daemon::program()).args(words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("is text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_daemon_that_is_well_and_one_that_is_gone_are_told() {
    let daemon = Daemon::start(&[]);
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    let jobs = scratch.file("jobs.db");
    let text = format!("listen = [\"{}\"]\njobs.store = \"sqlite:{}\"\n", daemon.address, jobs.display());
    fs::write(&file, text).expect("can be written");
    let path = file.to_str().expect("is text");
    let (status, told, _) = run(&["doctor", "-c", path]);
    assert!(matches!(status, Some(0 | 1)), "{told}");
    let lines: Vec<_> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        format!("ok settings {path} has no mistake"),
        format!("ok port pools listen at {}", daemon.address),
        format!("ok version daemon and commands are of version {}", env!("CARGO_PKG_VERSION")),
        "ok clock the daemon's clock is right".into(),
    ] {
        assert!(lines.contains(&line), "{line} is not in {told}");
    }
    assert!(!told.contains("space"), "the jobs are off: {told}");
    drop(daemon);
    let more = format!("{}jobs.enable = true\n", fs::read_to_string(&file).expect("is there"));
    fs::write(&file, more).expect("can be written");
    let (status, told, _) = run(&["doctor", "-c", path]);
    assert!(status == Some(2) && told.contains("pools cannot be reached at "), "{told}");
    assert!(told.contains(" to be on the disk"), "{told}");
    assert_eq!(fs::read_dir(scratch.file("")).expect("is there").count(), 1, "nothing is left behind");
    fs::write(&file, "listn = 1\n").expect("can be written");
    let (status, told, _) = run(&["doctor", "-c", path]);
    assert!(status == Some(2) && told.contains("did you mean listen?"), "{told}");
}

#[test]
fn settings_are_printed_with_their_origin() {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, "# mine\nmax_hold = 7\n").expect("can be written");
    let path = file.to_str().expect("is text");
    let (status, told, _) = run(&["config", "--changed", "-c", path]);
    assert_eq!(
        (status, told.split_whitespace().collect::<Vec<_>>().join(" ")),
        (Some(0), format!("max_hold = 7 # {path}:2"))
    );
    // What is printed is a file of the same settings.
    let (_, all, _) = run(&["config", "-c", path]);
    fs::write(&file, all).expect("can be written");
    assert_eq!(run(&["--check", "-c", path]).0, Some(0));
    fs::write(&file, "max_hold = 'x'\n").expect("can be written");
    let (status, told, error) = run(&["config", "-c", path]);
    assert!(status == Some(1) && told.is_empty() && error.contains("settings.toml:1: max_hold"), "{error}");
}
