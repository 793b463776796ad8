//! Documents: README.md and the pages of docs. Their commands are run and print the lines in the document; their
//! settings and links are checked. The conversations of docs/protocols are played in `tests/protocol/conversations.rs`.

use crate::pages::{self, at_root, read};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_command::without_time;
use poolcounter_testkit::original::installed;
use poolcounter_testkit::running::{self, Ended};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Bounds of README.md, so that a newcomer reads it.
const README_BYTES: usize = 10_000;
const README_LINES: usize = 200;

/// Languages of blocks that are neither run nor checked: they build, install, or are for other programs.
const SKIPPED: &[&str] = &["sh", "php", "ini", "groovy", "python", "text", "dockerfile", "sql", "js", "java", "perl"];

/// Heading of the last chapter of each page.
const LAST_CHAPTER: &str = "What can go wrong";

/// See [`sentences_are_plain`].
const RIDDLES: &[&str] = &[
    " is told ",
    " tells of ",
    " likewise",
    " surplus",
    "What comes of it, in",
    "then again, and the server that renders it loses its power",
    "under work of which one copy would have been enough",
    "let only those reach the port who may",
    "The command line counts more",
    "where each setting stands with its default",
    "the same list, in the same words",
    "A reply comes once the disk has what it promises",
    "A lost disk loses all",
    "It is plain tables without scripts",
    "needs an account for itself alone",
    "One that cannot be emptied is kept out",
    "counts as it was given last",
    "one line on the standard error says what, and the status is 1; else",
    "Nothing is listened on, so this tells neither",
    "of which there is a newer one would be dropped",
    "of those that are about as late",
    "after its last tube is none any more",
    "it is only counted what",
    "that are alike in what is shown",
    "Something began at",
    "that knows no reports",
    "Of what comes and goes between two looks",
    "It is enough that one does the work",
    "reckoned as 64 bytes",
    "asks for nothing: the daemon stands by",
    "They have no names of options of a take",
    "is mended, and names you unless",
    "**Those who may.**",
    "only proxies may be able to",
];

/// Messages of the program that have a plainer form.
const UNPLAIN_MESSAGES: &[&str] = &[
    "show what goes on at servers",
    "have the daemon on this machine take",
    "this needs no name",
    "after so many looks",
    "so many members, all or none",
    "who changes more is not read",
    "what makes the tables",
    "have buttons on the pages",
    "the command line counts more",
    "is no command (see",
    "this is no request",
    "this is not how to",
    "is surplus\\",
    "is no option;",
    ": this is missing",
    "Those with the most jobs come first",
    "the one whose time to run ends first",
    "is not a member's name and attributes",
];

/// Document: its path below the root, and its text.
struct Document {
    path: String,
    text: String,
}

/// Fenced block: its language, and its lines.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

/// Returns README.md, the other documents of the root, and the pages of docs.
fn documents() -> Vec<Document> {
    let mut paths: Vec<String> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(String::from).into();
    for directory in ["docs", "docs/protocols"] {
        let mut pages: Vec<String> = fs::read_dir(at_root(directory))
            .expect("the directory lies beside the manifest")
            .map(|entry| entry.expect("it can be read").file_name().into_string().expect("is text"))
            .filter(|name| name.ends_with(".md"))
            .map(|name| format!("{directory}/{name}"))
            .collect();
        pages.sort();
        paths.extend(pages);
    }
    paths.into_iter().map(|path| Document { text: read(&path), path }).collect()
}

impl Document {
    fn blocks(&self) -> Vec<Block<'_>> {
        let fenced = self.text.split("```").skip(1).step_by(2);
        fenced
            .map(|block| block.split_once('\n').expect("a fence is a line"))
            .map(|(language, text)| Block { language, text })
            .collect()
    }

    fn blocks_of(&self, language: &str) -> Vec<Block<'_>> {
        self.blocks().into_iter().filter(|block| block.language == language).collect()
    }

    /// Returns its headings, without headings in blocks.
    fn headings(&self) -> Vec<&str> {
        let prose = self.text.split("```").step_by(2);
        prose
            .flat_map(str::lines)
            .filter(|line| line.starts_with('#'))
            .map(|line| line.trim_matches(['#', ' ']))
            .collect()
    }
}

#[test]
fn readme_is_short_and_names_the_oldest_compiler() {
    let readme = read("README.md");
    assert!(readme.len() <= README_BYTES, "{} bytes", readme.len());
    assert!(readme.lines().count() <= README_LINES, "{} lines", readme.lines().count());
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    assert!(readme.contains(&format!("Rust {} or newer", version.expect("it is there"))));
}

#[test]
fn pages_name_their_readers_and_their_errors() {
    for page in documents().into_iter().filter(|page| page.path.starts_with("docs/")) {
        let second = page.text.split("\n\n").nth(1).unwrap_or_default();
        assert!(second.starts_with("**For** "), "{} does not begin with whom it is for", page.path);
        let last = page.text.split("\n## ").last().and_then(|chapter| chapter.lines().next());
        assert_eq!(last, Some(LAST_CHAPTER), "the last chapter of {}", page.path);
    }
}

/// Documents and manuals avoid expressions that have a plainer form.
#[test]
fn sentences_are_plain() {
    let manuals = pages::all().map(|path| Document { text: read(path), path: path.into() });
    for Document { path, text } in documents().into_iter().chain(manuals) {
        let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        for phrase in RIDDLES {
            assert!(!text.contains(phrase), "{path}: {phrase}");
        }
    }
}

#[test]
fn messages_are_plain() {
    let mut directories = vec![PathBuf::from(at_root("src"))];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("is a directory") {
            let path = entry.expect("is readable").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("is text");
                for phrase in UNPLAIN_MESSAGES {
                    assert!(!text.contains(phrase), "{}: {phrase}", path.display());
                }
            }
        }
    }
}

/// Every alert stands in the table of the operators' page, and no other.
#[test]
fn alerts_are_explained() {
    let rules = read("contrib/prometheus-rules.yaml");
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let page = read("docs/operations.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| row.split('`')).filter(|word| word.starts_with("PoolCounter"));
    assert_eq!(named.collect::<BTreeSet<&str>>(), alerts);
    let runbooks =
        rules.lines().filter_map(|line| line.trim().strip_prefix("runbook: \"docs/operations.md#")?.strip_suffix('"'));
    let runbooks: Vec<&str> = runbooks.collect();
    assert_eq!(runbooks.len(), alerts.len(), "each alert has a runbook");
    let page = Document { path: "docs/operations.md".into(), text: page };
    for runbook in runbooks {
        assert!(page.headings().into_iter().any(|heading| anchor(heading) == runbook), "{runbook}");
    }
}

/// Links to files, and to headings.
#[test]
fn links_lead_somewhere() {
    for page in documents() {
        for link in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let directory = Path::new(&page.path).parent().expect("is a file");
            let target = if path.is_empty() { page.path.clone().into() } else { directory.join(path) };
            let target = target.to_str().expect("is text").to_string();
            assert!(fs::metadata(at_root(&target)).is_ok(), "{}: {link}", page.path);
            if !heading.is_empty() {
                let target = Document { text: read(&target), path: target };
                let leads = target.headings().into_iter().any(|known| anchor(known) == heading);
                assert!(leads, "{}: {link}", page.path);
            }
        }
    }
}

/// Returns the anchor of a heading in links.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_block_is_tested_or_skipped() {
    for page in documents() {
        let mut skipped_languages = BTreeSet::new();
        for Block { language, text } in page.blocks() {
            match language {
                // These are run and checked by the tests below, and played as conversations.
                "console" | "toml" | "conversation" => {}
                // These are run in `snippets`.
                "php" | "python" | "js" | "go" | "rust" if page.path == "README.md" => {}
                "yaml" if text.starts_with("scrape_configs:") => check_scrape_config(text),
                "yaml" => _ = skipped_languages.insert(language),
                _ if SKIPPED.contains(&language) => _ = skipped_languages.insert(language),
                other => panic!("{}: there is no test for {other}: {text}", page.path),
            }
        }
        if !skipped_languages.is_empty() {
            let languages: Vec<&str> = skipped_languages.into_iter().collect();
            skipped(&format!("of {}, blocks of {}: they are for other programs", page.path, languages.join(", ")));
        }
    }
}

fn check_scrape_config(text: &str) {
    let scratch = Scratch::new();
    let file = scratch.file("prometheus.yml");
    fs::write(&file, text).expect("there is room");
    match Command::new("promtool").args(["check", "config"]).arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{}", said(&output)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skipped("the configurations of Prometheus in documents, because promtool is not installed");
        }
        Err(error) => panic!("promtool cannot be run: {error}"),
    }
}

#[test]
fn settings_are_well_formed() {
    let scratch = Scratch::new();
    for page in documents() {
        for Block { text, .. } in page.blocks_of("toml") {
            let file = scratch.file("settings.toml");
            // This file is only on the machines of a reader.
            let text = text.replace("sslrootcert=/etc/poolcounter-db.pem", "sslrootcert=system");
            fs::write(&file, &text).expect("there is room");
            let Ended { status, stderr, .. } = running::run(&["--check", "--config", file.to_str().expect("is text")]);
            assert_eq!(status, Some(0), "{}: {text}{stderr}", page.path);
            // A reader takes these as a whole file; other blocks are parts of a file.
            if text.contains("[[members.pool]]") {
                assert_eq!(stderr, "", "{}: {text}", page.path);
            }
        }
    }
}

/// Runs each block as a script for a new daemon. Lines of a block with a command in the background are compared without
/// their order.
#[test]
fn commands_print_the_lines_that_stand_there() {
    for page in documents() {
        let settings = page.blocks_of("toml").into_iter().find(|block| block.text.contains("[[members.pool]]"));
        let settings = settings.map_or("", |block| block.text);
        for Block { text, .. } in page.blocks_of("console") {
            if text.contains("| nc ") && !is_installed("nc") {
                skipped(&format!("a block of {}: nc is not installed", page.path));
                continue;
            }
            let (commands, wanted): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("$ "));
            let (got, wanted) = (run(settings, &commands), wanted.join("\n"));
            let lines = |text: &str| {
                let mut lines: Vec<String> = text.lines().map(|line| without_holder(&without_time(line))).collect();
                if commands.iter().any(|command| command.ends_with(" &")) {
                    lines.sort();
                }
                lines
            };
            assert_eq!(lines(&got), lines(&wanted), "{}: {text}", page.path);
        }
    }
}

/// Masks the port of a holder and its age, which differ in each run.
fn without_holder(line: &str) -> String {
    line.split_once(" at 127.0.0.1:").map_or_else(|| line.to_string(), |(who, _)| format!("{who} at HOLDER"))
}

/// Runs commands as a script, and returns their output, with the daemon at the default ports. A provider runs until the
/// other commands have ended and no member is being cleaned.
fn run(settings: &str, commands: &[&str]) -> String {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, settings).expect("there is room");
    let socket = format!("unix:{}", scratch.file("admin.sock").display());
    let members = ["--members", "--members-listen", "127.0.0.1:0", "--config", &file.display().to_string()];
    let jobs = ["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory"];
    let daemon = Daemon::start_with_counters(&[&members[..], &jobs, &["--admin", &socket]].concat());
    let program = Daemon::program();
    let server = |address: &dyn ToString| format!("--server {}", address.to_string());
    let of_command = [
        ("counter", server(&daemon.counters())),
        ("jobs", server(&daemon.jobs())),
        ("exec", server(&daemon.address)),
        ("stats", server(&daemon.address)),
        ("holders", server(&daemon.address)),
        ("take", server(&daemon.members())),
        ("provide", server(&daemon.members())),
        ("members", server(&daemon.members())),
        ("admin", format!("--admin {socket}")),
    ];
    let (mut script, mut end) = (String::new(), String::new());
    for command in commands {
        let mut command =
            command.trim_start_matches("$ ").replace("localhost 7531", &format!("127.0.0.1 {}", daemon.address.port()));
        for (name, server) in &of_command {
            command = command.replace(&format!("poolcounter {name} "), &format!("{program} {name} {server} "));
        }
        script += &format!("{command}\n");
        if command.contains(" provide ") {
            let members = daemon.members();
            let is_cleaning = format!("{program} members --server {members} accounts | grep -q cleaning");
            end = format!("while {is_cleaning}; do sleep 0.05; done\nkill $provider\n");
            script += "provider=$!\n";
        }
    }
    script += &format!("{end}wait\n");
    let mut shell = Command::new("sh");
    let output =
        shell.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(scratch.file("")).stdin(Stdio::null()).output();
    let output = output.expect("a shell");
    let addresses = [daemon.address, daemon.counters(), daemon.jobs(), daemon.members()];
    addresses.iter().fold(said(&output), |said, address| said.replace(&address.to_string(), "localhost"))
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).expect("is text")
}

fn is_installed(program: &str) -> bool {
    installed(&[program]).is_some()
}
