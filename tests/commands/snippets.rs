//! The README's lock in each language: it works when the lock is free, and does not when the queue is full.

use crate::pages::{at_root, read};
use poolcounter_client::{Client, Error, Limits, MediaWiki, Outcome, Purpose};
use poolcounter_testkit::daemon::{Client as Line, Daemon};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// Language of a block, the command that runs it, the name of its file, and the text before and after it.
type Language = (&'static str, &'static [&'static str], &'static str, &'static str, &'static str);

/// The work of each is to make the file `worked`.
const LANGUAGES: &[Language] = &[
    ("sh", &["sh"], "snippet.sh", "", ""),
    ("php", &["php"], "snippet.php", "<?php\nfunction work() { touch('worked'); }\n", ""),
    ("python", &["python3"], "snippet.py", "import poolcounter\ndef work(): open('worked', 'w').close()\n", ""),
    ("js", &["node"], "snippet.js", "const work = async () => require('node:fs').writeFileSync('worked', '');\n", ""),
    ("go", &["go", "run"], "snippet.go", GO_BEGIN, GO_END),
];

const GO_BEGIN: &str = "\
package main
import (\"bufio\"; \"fmt\"; \"net\"; \"os\")
func work() { os.WriteFile(\"worked\", nil, 0o600) }
func run() error {
";
const GO_END: &str = "return nil }\nfunc main() { if err := run(); err != nil { panic(err) } }\n";

#[test]
fn readme_locks_in_each_language() {
    for language in LANGUAGES {
        let daemon = Daemon::start(&[]);
        let Some(has_worked) = run(language, daemon.address) else {
            skipped(&format!("README's snippet in {}: {} is not installed", language.0, language.1[0]));
            continue;
        };
        assert!(has_worked, "{}: the lock is free", language.0);
        let mut client = daemon.connect();
        client.wait_for_stat("processing_workers", 0);
        assert_eq!(client.stat("total_acquired"), 1, "{}", language.0);
        let _crowd = crowd(&daemon);
        assert_eq!(run(language, daemon.address), Some(false), "{}: the queue is full", language.0);
        assert_eq!(client.stat("full_queues"), 1, "{}", language.0);
    }
}

/// Fills the queue: ten clients hold the lock or wait, the most that the snippets allow.
fn crowd(daemon: &Daemon) -> Vec<Line> {
    let mut crowd: Vec<Line> = (0..10).map(|_| daemon.connect()).collect();
    crowd.iter_mut().for_each(|client| client.send(b"ACQ4ME report 1 10 60\n"));
    daemon.connect().wait_for_stat("waiting_workers", 9);
    crowd
}

/// Runs the snippet at this server. Returns whether it has done the work, or `None` if the language is not installed.
fn run((name, command, file, before, after): &Language, server: SocketAddr) -> Option<bool> {
    let scratch = Scratch::new();
    let snippet = snippet(name)
        .replace("poolcounter exec", &format!("{} exec --server {server}", Daemon::program()))
        .replace("./work", "touch worked")
        .replace("localhost:7531", &server.to_string())
        .replace("'localhost', 7531", &format!("'{}', {}", server.ip(), server.port()))
        .replace("7531, \"localhost\"", &format!("{}, \"{}\"", server.port(), server.ip()))
        .replace("Pools(\"localhost\")", &format!("Pools(\"{server}\")"));
    fs::write(scratch.file(file), format!("{before}{snippet}{after}")).expect("there is room");
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).arg(file).current_dir(scratch.file(""));
    program.env("PYTHONPATH", at_root("contrib/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = program.output().ok()?;
    let has_worked = scratch.file("worked").exists();
    assert!(output.status.success() || !has_worked, "{name}: {output:?}");
    Some(has_worked)
}

/// Returns the README's block of a language.
fn snippet(language: &str) -> String {
    let readme = read("README.md");
    let (_, chapter) = readme.split_once("\n## A lock in your language\n").expect("it is there");
    let (_, block) = chapter.split_once(&format!("```{language}\n")).expect("has a block");
    block.split_once("```").expect("ends").0.into()
}

/// Takes a lock in Rust by the lines of the README.
fn rust_snippet(server: String, mut work: impl FnMut()) -> Result<(), Error> {
    let client = Client::new(MediaWiki::new([server]));
    let limits =
        Limits { workers: 1, max_queue: 10, timeout: Duration::from_secs(5), hold: None, at_least: Duration::ZERO };
    if let Outcome::Locked(_lock) = client.acquire(Purpose::Me, "report", &limits)? {
        work();
    }
    Ok(())
}

#[test]
fn readme_locks_in_rust() {
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let shown = bare(&snippet("rust")).replace("[\"localhost\".into()]", "[server]");
    assert!(bare(include_str!("snippets.rs")).contains(&shown), "{shown}");
    let daemon = Daemon::start(&[]);
    let mut times = 0;
    rust_snippet(daemon.address.to_string(), || times += 1).expect("the daemon answers");
    assert_eq!(times, 1, "the lock is free");
    daemon.connect().wait_for_stat("processing_workers", 0);
    let _crowd = crowd(&daemon);
    rust_snippet(daemon.address.to_string(), || times += 1).expect("the daemon answers");
    assert_eq!(times, 1, "the queue is full");
}
