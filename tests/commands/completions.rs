//! Completions of the shells behind the program's name, each tried in the shell itself.

use crate::pty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_cli::COMMANDS;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::running::{end_of, print};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the script that the program prints for a shell.
fn script(shell: &str) -> String {
    print(&["completions", shell])
}

/// Returns whether a shell is installed; reports if it is not.
fn has(shell: &str) -> bool {
    let found = Command::new(shell).args(["-c", "exit 0"]).status().is_ok_and(|status| status.success());
    if !found {
        skipped(&format!("completions of {shell}, because it is not installed"));
    }
    found
}

/// Returns the lines that the program prints for the words before the cursor, with the word at the cursor last.
fn reply(words: &[&str], server: &str) -> Vec<String> {
    let mut command = Command::new(Daemon::program());
    let ended = end_of(command.args(["completions", "of", "--"]).args(words).env("POOLCOUNTER_SERVERS", server));
    assert!(ended.status == Some(0) && ended.stderr.is_empty(), "{words:?}: {ended:?}");
    ended.stdout.lines().map(String::from).collect()
}

/// Returns the words that the program offers.
fn offered(words: &[&str], server: &str) -> Vec<String> {
    let lines = reply(words, server);
    let words = lines.iter().skip(1).map(|line| line.split('\t').next().unwrap_or_default().to_string());
    words.collect()
}

#[test]
fn every_command_and_option_is_known() {
    for command in COMMANDS {
        assert!(offered(&[command.name], "").iter().any(|word| word == command.name), "{}", command.name);
        for option in (command.options)() {
            let name = format!("--{}", option.long);
            let is_offered = offered(&[command.name, &name], "").contains(&name);
            assert_ne!(is_offered, option.is_hidden, "{} {name}", command.name);
        }
    }
}

#[test]
fn scripts_have_the_form_of_their_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        if has(shell) {
            let mut check = Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let check = check.as_mut().expect("it runs");
            check.stdin.take().expect("is piped").write_all(script.as_bytes()).expect("is read");
            let mut said = String::new();
            check.stderr.take().expect("is piped").read_to_string(&mut said).expect("is text");
            assert!(check.wait().expect("ends").success() && said.is_empty(), "{shell}: {said}");
        }
    }
}

/// Creates the working directory of the shells, with files to complete.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    fs::write(scratch.file("my file"), "").expect("can be written");
    fs::create_dir(scratch.file("other")).expect("can be made");
    scratch
}

/// Returns a search path on which the program is `poolcounter`.
fn path_to_program() -> (Scratch, String) {
    let directory = Scratch::new();
    symlink(Daemon::program(), directory.file("poolcounter")).expect("can be made");
    let path = format!("{}:/usr/bin:/bin", directory.file("").display());
    (directory, path)
}

#[test]
fn program_offers_words() {
    let options = ["--members", "--members-listen", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0"];
    let daemon = Daemon::start(&[&options[..], &["--jobs-store", "memory"]].concat());
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME page:Main 1 1"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME plain 1 1"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME $(reboot) 1 1"), "LOCKED");
    let mut client = Client::to(daemon.members());
    assert_eq!([client.ask("POOL phones 0 1"), client.ask("ADD phones phone-1")], ["OK", "OK"]);
    let mut client = Client::to(daemon.jobs());
    assert_eq!(client.ask("use enwiki/sendMail\r"), "USING enwiki/sendMail\r");
    let [pools, members, jobs] = [daemon.address, daemon.members(), daemon.jobs()].map(|address| address.to_string());
    for (words, server, expected) in [
        (&["e"][..], "", &["exec"][..]),
        (&["s"], "", &["serve", "status", "stats"]),
        (&["no-command", ""], "", &[]),
        (&["admin", "LOG", "d"], "", &["debug", "default"]),
        (&["admin", "log", "t"], "", &["trace"]),
        (&["jobs", "-s", "h:1", "summary", "t"], "", &["type", "tube"]),
        (&["jobs", "list", "t", "b"], "", &["buried"]),
        (&["holders", ""], &pools, &["page:Main", "plain"]),
        (&["holders", "-s", &pools, ""], "", &["page:Main", "plain"]),
        (&["holders", &format!("--server={pools}"), "page:"], "", &["page:Main"]),
        (&["exec", "--key", "pl"], &pools, &["plain"]),
        (&["exec", "--key=pl"], &pools, &["--key=plain"]),
        (&["members", "p"], &members, &["pool", "phones"]),
        (&["members", "-s", &members, "repair", "phones", ""], "", &["phone-1"]),
        (&["take", ""], &members, &["phones"]),
        (&["jobs", "kick", "en"], &jobs, &["enwiki/sendMail"]),
        (&["--max-l"], "", &["--max-locks", "--max-line"]),
        (&["serve", "--max-l"], "", &["--max-locks", "--max-line"]),
        (&["exec", "--on-lost", ""], "", &["warn", "term", "kill"]),
        (&["exec", "--on-lost="], "", &["--on-lost=warn", "--on-lost=term", "--on-lost=kill"]),
        (&["counter", "get", ""], "", &[]),
        (&["counter", "a"], "", &["acquire"]),
        (&["help", "st"], "", &["status", "stats"]),
        (&["stats", "-s", "host", "--j"], "", &["--json"]),
        (&["stats", "--", "FU"], "", &["FULL"]),
        (&["stats", "mem"], "", &["members"]),
        (&["stats", "--", "--j"], "", &[]),
        (&["counter", "acquire", "n", "1", "2", "x"], "", &[]),
    ] {
        let mut offered = offered(words, if server.is_empty() { "127.0.0.1:1" } else { server });
        if words[0] == "holders" {
            offered.sort();
        }
        assert_eq!(offered, expected, "{words:?}");
    }
    for (words, expected) in [
        (&["-c", ""][..], "file"),
        (&["--config=a"], "file"),
        (&["exec", "-k", "k", "--", "l"], "command 4"),
        (&["exec", "-k", "k", "l"], "command 3"),
        (&["exec", "--key=k", "-a", "ls", "--on-l"], "command 3"),
        (&["exec", "-k", "k", "--", "ls", "--on-l"], "command 4"),
        (&["counter", "acquire", "n", "1", "2", "--", "ls", "a"], "command 6"),
        (&["exec", "-k", "k", "--on-l"], "words"),
    ] {
        assert_eq!(reply(words, "127.0.0.1:1")[0], expected, "{words:?}");
    }
    // A server that says nothing is not waited for.
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let begun = Instant::now();
    let server = silent.local_addr().expect("is bound").to_string();
    assert_eq!(offered(&["jobs", "kick", "en"], &server), [""; 0]);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// Shell at a terminal.
struct Interactive {
    child: Child,
    terminal: File,
    shown: String,
    _program: Scratch,
}

impl Interactive {
    fn start(command: &[&str], scratch: &Scratch, setup: &str) -> Interactive {
        let pair = pty::open_with(200, 50);
        let (program, path) = path_to_program();
        let stdio = || Stdio::from(pair.slave.try_clone().expect("a second handle"));
        // The timeout ends a shell that waits in vain, and so the terminal.
        let child = Command::new("timeout")
            .args(["--foreground", "--kill-after=1", "60"])
            .args(command)
            .current_dir(scratch.file(""))
            .env_clear()
            .envs([("TERM", "vt100"), ("PATH", path.as_str()), ("HOME", "/nowhere"), ("LC_ALL", "C.UTF-8")])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("it runs");
        let mut shell =
            Interactive { child, terminal: File::from(pair.master), shown: String::new(), _program: program };
        shell.send(&format!("{setup}\necho 're''ady'\n"));
        shell.wait_for("ready");
        shell
    }

    fn send(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).expect("is read");
    }

    /// Returns everything that is shown up to this text.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let mut bytes = [0; 4096];
            let len = self.terminal.read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {}", self.shown));
            self.shown += &String::from_utf8_lossy(&bytes[..len]);
        }
    }

    /// Returns the words of a line after the tabulator was pressed behind it.
    fn complete(&mut self, line: &str) -> Vec<String> {
        // The inserted beginning of the line makes the rest arguments of the command that prints them.
        self.send(&format!("{line}\t\x01printf '<%s>\\n' 'be''gin' \x05 'en''d'\n"));
        self.wait_for("<begin>");
        let printed = self.wait_for("<end>");
        let words = printed.split(['\r', '\n']).filter_map(|line| line.strip_prefix('<')?.strip_suffix('>'));
        words.filter(|word| *word != "end").map(String::from).collect()
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        // A shell that is about to wait for input may overlook the signal, which `timeout` passes on, but not the end
        // of its terminal.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGHUP);
        self.terminal = File::open("/dev/null").expect("is there");
        let _ = self.child.wait();
    }
}

/// Lines that both shells complete alike, with their last word afterwards.
const LINES: &[(&str, &str)] = &[
    ("poolcounter comp", "completions"),
    ("poolcounter --busy-p", "--busy-poll"),
    ("poolcounter -c my", "my file"),
    ("poolcounter -c my\\ f", "my file"),
    ("poolcounter -c 'my", "my file"),
    ("poolcounter --config oth", "other"),
    ("poolcounter --config=my", "--config=my file"),
    ("poolcounter exec --on-lost=te", "--on-lost=term"),
    ("poolcounter exec --on-lost te", "term"),
    ("poolcounter exec -k k --on-l", "--on-lost"),
    ("poolcounter counter acq", "acquire"),
    ("poolcounter exec -k k -- mkfif", "mkfifo"),
    ("poolcounter exec -k k mkfif", "mkfifo"),
    ("poolcounter exec -k k -- cat my", "my file"),
    ("poolcounter exec -k k -- cat --on-l", "--on-l"),
    ("poolcounter counter acquire n 1 2 -- mkfif", "mkfifo"),
    ("poolcounter counter acquire n 1 2 -- cat my", "my file"),
    ("poolcounter stats -- --js", "--js"),
];

fn completes(shell: &mut Interactive) {
    for (line, expected) in LINES {
        let words = shell.complete(line);
        // A shell may show the slash of a directory until the next word begins.
        let last = words.last().map(|word| word.trim_end_matches('/'));
        assert_eq!(last, Some(*expected), "{line}: {words:?}");
    }
}

#[test]
fn bash_completes_at_a_terminal() {
    if !has("bash") {
        return;
    }
    let scratch = scratch();
    fs::write(scratch.file("script"), script("bash")).expect("can be written");
    let setup = "bind 'set enable-bracketed-paste off'; PS1='$ '; . ./script; rm script";
    let mut shell = Interactive::start(&["bash", "--norc", "--noprofile", "-i"], &scratch, setup);
    completes(&mut shell);
}

#[test]
fn zsh_completes_at_a_terminal() {
    if !has("zsh") {
        return;
    }
    let scratch = scratch();
    let functions = Scratch::new();
    fs::write(functions.file("_poolcounter"), script("zsh")).expect("can be written");
    let setup = format!(
        "unset zle_bracketed_paste; PS1='$ '; bindkey -e; setopt no_beep; fpath=({} $fpath); autoload -Uz compinit; compinit -u -D",
        Path::new(&functions.file("")).display()
    );
    let mut shell = Interactive::start(&["zsh", "-f", "-i"], &scratch, &setup);
    completes(&mut shell);
}

#[test]
fn fish_completes() {
    if !has("fish") {
        return;
    }
    let scratch = scratch();
    fs::write(scratch.file("script"), script("fish")).expect("can be written");
    let (_program, path) = path_to_program();
    let offered = |line: &str| {
        let output = Command::new("fish")
            .env("PATH", &path)
            // No daemon of this machine is to complete a key.
            .env("POOLCOUNTER_SERVERS", "127.0.0.1:1")
            .args(["--no-config", "-c", "source script; complete -C $argv[1]", line])
            .current_dir(scratch.file(""))
            .output()
            .expect("it runs");
        assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        let offered = String::from_utf8_lossy(&output.stdout).into_owned();
        offered.lines().map(|line| line.split('\t').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
    };
    for (line, expected) in [
        ("poolcounter comp", &["completions"][..]),
        ("poolcounterd comp", &["completions"]),
        ("poolcounter --busy-p", &["--busy-poll"]),
        ("poolcounter --check", &["--check"]),
        ("poolcounter -c my", &["my\\ file", "my file"]),
        ("poolcounter exec --on-lost ", &["kill", "term", "warn"]),
        ("poolcounter exec --on-lost=te", &["--on-lost=term"]),
        ("poolcounter exec --key ", &[]),
        ("poolcounter counter acq", &["acquire"]),
        ("poolcounter exec -k k -- mkfif", &["mkfifo"]),
        ("poolcounter exec -k k mkfif", &["mkfifo"]),
        ("poolcounter exec --key=k mkfif", &["mkfifo"]),
        ("poolcounter exec -k k -- cat oth", &["other/"]),
        ("poolcounter exec -k k -- cat --on-l", &[]),
        ("poolcounter exec -k k cat --on-l", &[]),
        ("poolcounter counter acquire n 1 2 -- mkfif", &["mkfifo"]),
        ("poolcounter counter acquire n 1 2 -- cat oth", &["other/"]),
        ("poolcounter counter acquire n 1 2 mkfif", &[]),
        ("poolcounter stats -- --js", &[]),
    ] {
        let offered = offered(line);
        match expected {
            // Versions differ in whether they quote it.
            ["my\\ file", _] => assert!(offered.len() == 1 && expected.contains(&&*offered[0]), "{line}: {offered:?}"),
            _ => assert_eq!(offered, expected, "{line}"),
        }
    }
}
