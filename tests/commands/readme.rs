//! What the README says is so: its commands are run, and say what stands there; its settings and its programs are checked. What
//! cannot run here is told.

use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_command::without_time;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};

const README: &str = include_str!("../../README.md");

/// How long it may be, so that a newcomer reads it: 16 kB.
const LONGEST: usize = 16 * 1024;

/// A block of the README: its language, and its lines.
struct Block {
    language: &'static str,
    text: &'static str,
}

fn blocks() -> Vec<Block> {
    let fenced = README.split("```").skip(1).step_by(2);
    fenced
        .map(|block| block.split_once('\n').expect("a fence is a line"))
        .map(|(language, text)| Block { language, text })
        .collect()
}

#[test]
fn it_is_short_and_names_the_oldest_compiler() {
    assert!(README.len() <= LONGEST, "{} bytes", README.len());
    let manifest = include_str!("../../Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    assert!(README.contains(&format!("Rust {} or newer", version.expect("it is there"))));
}

/// Links to files, and to headings of the same page.
#[test]
fn its_links_lead_somewhere() {
    let anchors: Vec<String> = README.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    for link in README.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        if path.is_empty() {
            assert!(anchors.iter().any(|anchor| anchor == heading), "{link}");
        } else if !path.contains("://") {
            let file = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
            let there = fs::metadata(&file).is_ok();
            assert!(there, "{link}");
            if !heading.is_empty() {
                let text = fs::read_to_string(file).expect("is text");
                let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
                assert!(headings.map(anchor).any(|anchor| anchor == heading), "{link}");
            }
        }
    }
}

/// What a heading is called in links.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_block_is_tested_or_skipped() {
    for Block { language, text } in blocks() {
        match language {
            // Run by the tests below, and compiled with the library's documentation.
            "console" | "toml" | "rust,no_run" => {}
            "sh" | "dockerfile" => skipped(&format!("of the README, {}: it builds or installs", first_line(text))),
            "php" => skipped(&format!("of the README, {}: it is for MediaWiki", first_line(text))),
            "yaml" => check_scrape_config(text),
            other => panic!("there is no test for {other}: {text}"),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn check_scrape_config(text: &str) {
    let scratch = Scratch::new();
    let file = scratch.file("prometheus.yml");
    fs::write(&file, text).expect("there is room");
    match Command::new("promtool").args(["check", "config"]).arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skipped("the README's configuration of Prometheus, because promtool is not installed");
        }
        Err(error) => panic!("promtool cannot be run: {error}"),
    }
}

#[test]
fn the_settings_are_well_formed() {
    let scratch = Scratch::new();
    for Block { text, .. } in blocks().into_iter().filter(|block| block.language == "toml") {
        let file = scratch.file("settings.toml");
        fs::write(&file, text).expect("there is room");
        let output =
            Command::new(Daemon::program()).args(["--check", "--config"]).arg(&file).output().expect("it runs");
        assert!(output.status.success(), "{text}{}", said(&output));
    }
}

/// Each block is a script for a new daemon. What runs in the background may speak at any moment, so that lines of such
/// a block are compared without their order.
#[test]
fn the_commands_say_what_stands_there() {
    for Block { text, .. } in blocks().into_iter().filter(|block| block.language == "console") {
        if text.contains("| nc ") && !is_installed("nc") {
            skipped(&format!("of the README, {}: nc is not installed", first_line(text)));
            continue;
        }
        let (commands, wanted): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("$ "));
        let (got, wanted) = (run(&commands), wanted.join("\n"));
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(|line| without_holder(&without_time(line))).collect();
            if commands.iter().any(|command| command.ends_with(" &")) {
                lines.sort();
            }
            lines
        };
        assert_eq!(lines(&got), lines(&wanted), "{text}");
    }
}

/// The port of a holder and its age are others each time.
fn without_holder(line: &str) -> String {
    line.split_once(" at 127.0.0.1:").map_or_else(|| line.to_string(), |(who, _)| format!("{who} at HOLDER"))
}

/// Runs commands as a script, and returns what they said, as if the daemon were where the README has it. Its pools of members are
/// those of the README. A provider runs until the others have ended and nothing is cleaned any more.
fn run(commands: &[&str]) -> String {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    let pools = blocks().into_iter().find(|block| block.text.contains("[[members.pool]]")).expect("there are some");
    fs::write(&file, pools.text).expect("there is room");
    let members = ["--members-listen", "127.0.0.1:0", "--config", &file.display().to_string()];
    let jobs = ["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory"];
    let daemon = Daemon::start_with_counters(&[&members[..], &jobs].concat());
    let (counters, members, jobs) = (daemon.counters(), daemon.members(), daemon.jobs());
    let program = Daemon::program();
    let (mut script, mut end) = (String::new(), String::new());
    for command in commands {
        let command =
            command.trim_start_matches("$ ").replace("localhost 7531", &format!("127.0.0.1 {}", daemon.address.port()));
        let mut command = command.replace("poolcounter counter ", &format!("{program} counter --server {counters} "));
        command = command.replace("poolcounter jobs ", &format!("{program} jobs --server {jobs} "));
        for name in ["exec", "stats"] {
            let with_server = format!("{program} {name} --server {} ", daemon.address);
            command = command.replace(&format!("poolcounter {name} "), &with_server);
        }
        for name in ["take", "provide", "members"] {
            let with_server = format!("{program} {name} --server {members} ");
            command = command.replace(&format!("poolcounter {name} "), &with_server);
        }
        script += &format!("{command}\n");
        if command.contains(" provide ") {
            let is_cleaning = format!("{program} members --server {members} accounts | grep -q cleaning");
            end = format!("while {is_cleaning}; do sleep 0.05; done\nkill $provider\n");
            script += "provider=$!\n";
        }
    }
    script += &format!("{end}wait\n");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &format!("exec 2>&1\n{script}")]).stdin(Stdio::null()).output().expect("a shell");
    said(&output).replace(&daemon.address.to_string(), "localhost")
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).expect("is text")
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
