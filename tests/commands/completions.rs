//! Completions of the shells behind the program's name, each tried in the shell itself.

use crate::pty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_cli::COMMANDS;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the script that the program prints for a shell.
fn script(shell: &str) -> String {
    let output = Command::new(Daemon::program()).args(["completions", shell]).output().expect("the program runs");
    assert!(output.status.success() && output.stderr.is_empty());
    String::from_utf8(output.stdout).expect("is text")
}

/// Returns whether a shell is installed; reports if it is not.
fn has(shell: &str) -> bool {
    let found = Command::new(shell).args(["-c", "exit 0"]).status().is_ok_and(|status| status.success());
    if !found {
        skipped(&format!("completions of {shell}, because it is not installed"));
    }
    found
}

#[test]
fn every_command_and_option_is_known() {
    for shell in ["bash", "zsh", "fish"] {
        let script = script(shell);
        for command in COMMANDS {
            assert!(script.contains(command.name), "{shell}: {}", command.name);
            for option in (command.options)() {
                let name = if shell == "fish" { format!("-l {} ", option.long) } else { format!("--{}", option.long) };
                assert_ne!(script.contains(&name), option.is_hidden, "{shell}: {name}");
            }
        }
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

/// Prints names of the kinds that completions ask for.
const NAMES: &str = "#!/bin/sh
case \"$2 $3\" in
    keys*) echo page:Main; echo plain ;;
    pools*) echo phones ;;
    'members phones') echo phone-1 ;;
    tubes*) echo enwiki/sendMail ;;
esac
";

#[test]
fn names_are_those_of_servers() {
    let options = ["--members", "--members-listen", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0"];
    let daemon = Daemon::start(&[&options[..], &["--jobs-store", "memory"]].concat());
    let names = |kind: &[&str], server: &str| {
        let mut command = Command::new(Daemon::program());
        let output =
            command.arg("completions").args(kind).env("POOLCOUNTER_SERVERS", server).output().expect("it runs");
        assert!(output.status.success() && output.stderr.is_empty(), "{kind:?}: {output:?}");
        String::from_utf8(output.stdout).expect("is text")
    };
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME page:Main 1 1"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME $(reboot) 1 1"), "LOCKED");
    assert_eq!(names(&["keys"], &daemon.address.to_string()), "page:Main\n");
    let mut client = Client::to(daemon.members());
    assert_eq!([client.ask("POOL phones 0 1"), client.ask("ADD phones phone-1")], ["OK", "OK"]);
    assert_eq!(names(&["pools"], &daemon.members().to_string()), "phones\n");
    assert_eq!(names(&["members", "phones"], &daemon.members().to_string()), "phone-1\n");
    let mut client = Client::to(daemon.jobs());
    assert_eq!(client.ask("use enwiki/sendMail\r"), "USING enwiki/sendMail\r");
    assert_eq!(names(&["tubes"], &daemon.jobs().to_string()), "default\nenwiki/sendMail\n");
    // Without a server, and with a silent server, nothing is said.
    assert_eq!(names(&["keys"], "127.0.0.1:1"), "");
    let silent = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let begun = Instant::now();
    assert_eq!(names(&["tubes"], &silent.local_addr().expect("is bound").to_string()), "");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn bash_offers_words() {
    if !has("bash") {
        return;
    }
    let script = script("bash");
    for (words, expected) in [
        (&["e"][..], &["exec"][..]),
        (&["s"], &["serve", "status", "stats"]),
        (&["admin", "LOG", "d"], &["debug", "default"]),
        (&["admin", "log", "t"], &["trace"]),
        (&["jobs", "-s", "h", ":", "1", "summary", "t"], &["type", "tube"]),
        (&["jobs", "list", "t", "b"], &["buried"]),
        (&["holders", ""], &["page:Main", "plain"]),
        (&["holders", "page", ":", "M"], &["Main"]),
        (&["exec", "--key", "pl"], &["plain"]),
        (&["members", "p"], &["pool", "phones"]),
        (&["members", "-s", "h", "repair", "phones", ""], &["phone-1"]),
        (&["take", ""], &["phones"]),
        (&["jobs", "kick", "en"], &["enwiki/sendMail"]),
        (&["--max-l"], &["--max-locks", "--max-line"]),
        (&["--check"], &["--check"]),
        (&["exec", "--on-lost", ""], &["warn", "term", "kill"]),
        (&["exec", "--on-lost", "=", "t"], &["term"]),
        (&["exec", "--on-lost", "="], &["warn", "term", "kill"]),
        (&["exec", "--on-lost=t"], &["--on-lost=term"]),
        (&["counter", "get", ""], &[]),
        (&["counter", "a"], &["acquire"]),
        (&["help", "st"], &["status", "stats"]),
        (&["help", "stats"], &["stats"]),
        (&["stats", "-s", "host", "--j"], &["--json"]),
        (&["stats", "--", "FU"], &["FULL"]),
        (&["stats", "mem"], &["members"]),
        (&["stats", "--", "--j"], &[]),
        // The command that is run, once; then its own words.
        (&["exec", "-k", "k", "--", "poolc-"], &["poolc-test"]),
        (&["exec", "-k", "k", "poolc-"], &["poolc-test"]),
        (&["exec", "--key", "=", "k", "-a", "poolc-"], &["poolc-test"]),
        (&["exec", "-k", "k", "--", "ls", "poolc-"], &[]),
        (&["exec", "-k", "k", "--", "ls", "--on-l"], &[]),
        (&["exec", "-k", "k", "ls", "--on-l"], &[]),
        (&["counter", "acquire", "n", "1", "2", "--", "poolc-"], &["poolc-test"]),
        (&["counter", "acquire", "n", "1", "2", "--", "ls", "poolc-"], &[]),
    ] {
        let scratch = scratch();
        // The command is in two directories.
        for directory in ["one", "two"] {
            let path = scratch.file(directory);
            fs::create_dir(&path).expect("can be made");
            poolcounter_testkit::daemon::install(&path.join("poolc-test"), b"#!/bin/sh\n");
            poolcounter_testkit::daemon::install(&path.join("poolcounter"), NAMES.as_bytes());
        }
        let test = format!(
            "PATH={}:{}:$PATH\n{script}\nCOMP_WORDS=(poolcounter \"$@\") COMP_CWORD=$#\n_poolcounter\n\
             ((${{#COMPREPLY[@]}})) && printf '%s\\n' \"${{COMPREPLY[@]}}\"; true",
            scratch.file("one").display(),
            scratch.file("two").display()
        );
        let output = Command::new("bash").args(["-c", &test, "bash"]).args(words).output().expect("it runs");
        let offered = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(offered.lines().collect::<Vec<_>>(), expected, "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Shell at a terminal.
struct Interactive {
    child: Child,
    terminal: File,
    shown: String,
}

impl Interactive {
    fn start(command: &[&str], scratch: &Scratch, setup: &str) -> Interactive {
        let pair = pty::open_with(200, 50);
        let stdio = || Stdio::from(pair.slave.try_clone().expect("a second handle"));
        // The timeout ends a shell that waits in vain, and so the terminal.
        let child = Command::new("timeout")
            .args(["--foreground", "--kill-after=1", "60"])
            .args(command)
            .current_dir(scratch.file(""))
            .env_clear()
            .envs([("TERM", "vt100"), ("PATH", "/usr/bin:/bin"), ("HOME", "/nowhere"), ("LC_ALL", "C.UTF-8")])
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("it runs");
        let mut shell = Interactive { child, terminal: File::from(pair.master), shown: String::new() };
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
    let offered = |line: &str| {
        let output = Command::new("fish")
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
