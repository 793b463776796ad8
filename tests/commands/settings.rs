//! Files of the package: its settings name every existing setting, each with its default, and are checked before use.

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use poolcounter::SERVICES;
use poolcounter_cli::{COMMANDS, DaemonSettings, Given, WordsAllowed, tables};
use poolcounter_service::container::ServiceId;
use poolcounter_testkit::daemon::{Daemon, install, install_program};
use poolcounter_testkit::running::{end_of, print, run};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/debian/poolcounter.toml");

/// Settings without a value that stands for their absence: their line does not show the default.
const WITHOUT_DEFAULT: &[&str] = &["admin"];

/// Returns the lines that are settings with a `# ` in front: the key, and the line without that.
fn settings() -> Vec<(String, String)> {
    let text = fs::read_to_string(FILE).expect("the file is there");
    let set: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(set, ["admin = [\"unix:/run/poolcounter/admin.sock\"]"], "the package sets nothing else");
    let lines = text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    let key_of = |line: &str| {
        let (key, _) = line.split_once(" = ")?;
        (!key.contains(' ')).then(|| key.to_string())
    };
    lines.filter_map(|line| Some((key_of(line)?, line.to_string()))).collect()
}

/// The unit checks the same arguments before a start and a reload.
#[test]
fn unit_checks_settings_before_they_count() {
    let unit = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/debian/poolcounter.service"));
    let unit = unit.expect("the file is there");
    let commands = |key: &str| -> Vec<&str> { unit.lines().filter_map(|line| line.strip_prefix(key)).collect() };
    let started = commands("ExecStart=");
    let (program, arguments) = started[0].split_once(' ').expect("it has arguments");
    let check = format!("{program} --check {arguments}");
    assert_eq!(commands("ExecStartPre="), [&check]);
    assert_eq!(commands("ExecReload="), [&check, "/bin/kill -USR1 $MAINPID"]);
}

/// A FIFO without a writer would keep a command waiting, and a device has no end.
#[test]
fn only_regular_files_are_read() {
    let scratch = Scratch::new();
    let fifo = scratch.file("fifo");
    mkfifo(&fifo, Mode::S_IRUSR).expect("can be made");
    for file in [fifo.to_str().expect("is text"), "/dev/zero"] {
        for words in [
            &["--check", "-c", file][..],
            &["-c", file],
            &["config", "-c", file],
            &["doctor", "-c", file],
            &["admin", "-c", file, "UNDRAIN"],
            &["tls", "--check", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1", "--cert", file, "--key", file],
            &["stats", "-s", "tls:localhost", "--tls", file],
        ] {
            let ended = end_of(Command::new("timeout").args(["20", Daemon::program()]).args(words));
            let told = ended.stdout + &ended.stderr;
            assert!(told.contains(&format!("{file}: ")) && told.contains("not a regular file"), "{words:?}: {told}");
        }
    }
}

/// Files with settings that have no effect, and the sentences about them.
const IDLE: &[(&str, &[&str])] = &[
    (
        "[[members.pool]]\nname = 'p'\nmax = 1\n",
        &["members.pool is set, but members.enable is not: that service is off"],
    ),
    (
        "jobs.port = 0\njobs.warn_age = 9\n[[jobs.limit]]\npattern = '*/a'\nnumber = 2\n",
        &["jobs.port, jobs.warn_age and jobs.limit are set, but jobs.enable is not: that service is off"],
    ),
    ("counter.buckets = 9\n", &["counter.buckets is set, but counter.enable is not: that service is off"]),
    (
        "http_host = 'a'\nhttp_admin = true\n",
        &["http_host and http_admin are set, but http is not: that service is off"],
    ),
    (
        "max_hold = 9\nwarn_hold = 9\n[[pools.ceiling]]\nkey = 'a:*'\nhold = 10\n[[pools.ceiling]]\nkey = 'a:b'\nhold = 1\n",
        &[
            "warn_hold is set, but max_hold is not longer",
            "pools.ceiling a:*: hold is set, but max_hold is not longer",
            "pools.ceiling a:b has no effect, because pools.ceiling a:* before it has its keys",
        ],
    ),
    (
        "members.enable = true\nmembers.listen = '127.0.0.1:0'\nmembers.store = 'memory'\nmembers.port = 9\n\
         [[members.pool]]\nname = 'p'\nmax = 1\nfixed = ['a']\ninit = 1\nmin_free = 1\n\
         [[members.pool]]\nname = 'q'\nmax = 2\nfixed = ['b']\ncheck_timeout = 9\nmax_hold = 5\nwarn_hold = 5\nloss_delay = 5\n",
        &[
            "members.port is set, but no address needs it",
            "members.pool p: init, min_free are set, but max leaves room for the fixed members alone, and these are not started",
            "members.pool q: check_timeout is set, but neither check_interval nor check_on_take is",
            "members.pool q: loss_delay is set, but on_loss is not ok",
            "members.pool q: warn_hold is set, but max_hold is not longer",
        ],
    ),
    (
        "jobs.enable = true\njobs.listen = '127.0.0.1:0'\njobs.store = 'memory'\njobs.required = true\njobs.warn_age = 9\njobs.alarm_age = 9\n",
        &["jobs.required is set, but jobs.store is memory", "jobs.warn_age is set, but jobs.alarm_age is not longer"],
    ),
    ("", &[]),
    ("jobs.enable = false\njobs.port = 9\ncounter.enable = true\ncounter.port = 0\ncounter.buckets = 9\n", &[]),
    (
        "max_hold = 9\nwarn_hold = 8\n[[pools.ceiling]]\nkey = 'a:b'\nhold = 8\n[[pools.ceiling]]\nkey = 'a:*'\nhold = 1\n",
        &[],
    ),
    (
        "members.enable = true\nmembers.listen = ['127.0.0.1', '127.0.0.2:0']\nmembers.port = 0\n\
         [[members.pool]]\nname = 'p'\nmax = 2\ncheck_on_take = 9\ncheck_timeout = 9\non_loss = 'ok'\nloss_delay = 1\n",
        &[],
    ),
];

/// Such settings are no mistakes: the check names them, and succeeds.
#[test]
fn settings_without_effect_are_warnings() {
    let scratch = Scratch::new();
    let path = scratch.file("settings").display().to_string();
    for (text, sentences) in IDLE {
        fs::write(&path, text).expect("can be written");
        let check = run(&["--check", "-c", &path]);
        let lines: Vec<String> = sentences.iter().map(|sentence| format!("poolcounter: {sentence}\n")).collect();
        assert_eq!((check.status, check.stderr), (Some(0), lines.concat()), "{text}");
    }
    let said = run(&["--check", "--members-max", "9"]).stderr;
    assert_eq!(said, "poolcounter: members.max is set, but members.enable is not: that service is off\n");
}

#[test]
fn start_and_reload_log_settings_without_effect() {
    let scratch = Scratch::new();
    let path = scratch.file("settings").display().to_string();
    for (text, sentences) in IDLE {
        fs::write(&path, text).expect("can be written");
        let mut daemon = Daemon::start(&["-c", &path]);
        for starts in 1..=2 {
            for sentence in *sentences {
                let times = daemon.lines.iter().filter(|line| line.contains(sentence)).count();
                assert_eq!(times, starts, "{sentence}: {:#?}", daemon.lines);
            }
            let is_quiet =
                !daemon.lines.iter().any(|line| line.contains(" is set, but ") || line.contains(" are set, but "));
            assert_eq!(is_quiet, sentences.is_empty(), "{:#?}", daemon.lines);
            daemon.upgrade();
        }
    }
}

/// The init script, with another program, user and paths than the package has.
struct InitScript {
    scratch: Scratch,
    path: PathBuf,
}

impl InitScript {
    /// Returns None on systems where such a script cannot run.
    fn new() -> Option<InitScript> {
        let needs = ["/lib/lsb/init-functions", "/sbin/start-stop-daemon", "/usr/bin/setpriv"];
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        if !is_root || !needs.iter().all(|path| Path::new(path).exists()) {
            skipped("the init script, because that takes root and Debian's start-stop-daemon");
            return None;
        }
        let scratch = Scratch::new();
        let (program, path) = (scratch.file("poolcounter"), scratch.file("init"));
        install_program(&program);
        let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/debian/poolcounter.init"));
        let mut text = text.expect("the file is there");
        for (name, value) in [
            ("DAEMON", program.display().to_string()),
            ("PROGRAM", program.display().to_string()),
            ("PIDFILE", scratch.file("pid").display().to_string()),
            ("LOG", scratch.file("log").display().to_string()),
            ("CONFIG", scratch.file("conf").display().to_string()),
            ("RUN_AS", "root".into()),
        ] {
            let line = text.lines().find(|line| line.starts_with(&format!("{name}="))).expect("is there").to_string();
            text = text.replacen(&line, &format!("{name}={value}"), 1);
        }
        // No process notifies start-stop-daemon of the end of the daemon, so it waits for its timeout.
        let text =
            text.replace("--notify-timeout 10", "--notify-timeout 2").replace("/etc/default/poolcounter", "/nowhere");
        install(&path, text.as_bytes());
        Some(InitScript { scratch, path })
    }

    /// Runs an action, and returns whether it succeeded, and its standard error.
    fn run(&self, action: &str) -> (bool, String) {
        // The daemon outlives it, and must not keep a pipe open.
        let said = self.scratch.file("said");
        let file = File::create(&said).expect("can be written");
        let mut command = Command::new(&self.path);
        let status = command.arg(action).stdout(Stdio::null()).stderr(file).status().expect("it runs");
        (status.success(), fs::read_to_string(said).expect("is text"))
    }
}

impl Drop for InitScript {
    fn drop(&mut self) {
        self.run("stop");
    }
}

#[test]
fn init_script_prints_mistakes() {
    let Some(script) = InitScript::new() else { return };
    let configure = |text: &str| fs::write(script.scratch.file("conf"), text).expect("can be written");
    configure("listen = '127.0.0.1:0'\nmax_lokcs = 1\n");
    let (works, said) = script.run("start");
    assert!(!works && said.contains("conf:2: there is no setting max_lokcs; did you mean max_locks?"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    configure(&format!("listen = '{}'\n", taken.local_addr().expect("an address")));
    let (works, said) = script.run("start");
    assert!(!works && said.contains("Address already in use"), "{said}");

    configure("listen = '127.0.0.1:0'\n");
    assert_eq!(script.run("start"), (true, String::new()));
    configure("listen = '127.0.0.1:0'\nmax_locks = 'many'\n");
    let (works, said) = script.run("reload");
    assert!(!works && said.contains("conf:2: max_locks: \"many\" is not a number"), "{said}");
    configure("listen = '127.0.0.1:0'\nmax_locks = 2\n");
    assert_eq!(script.run("reload"), (true, String::new()));
    assert_eq!(script.run("stop"), (true, String::new()));
}

#[test]
fn every_setting_is_there_once() {
    let mut named: Vec<String> = settings().into_iter().map(|(key, _)| key).collect();
    let options = (COMMANDS[0].options)();
    let mut known: Vec<&str> = options.iter().map(|option| option.key).filter(|key| !key.is_empty()).collect();
    named.sort();
    known.sort_unstable();
    assert_eq!(named, known, "the lines of {FILE}, and the table of options");
}

/// Each name of a setting in the documents and in the help can stand in a file.
#[test]
fn documented_settings_are_the_settings_of_a_file() {
    let root = env!("CARGO_MANIFEST_DIR");
    let manuals = crate::pages::all();
    let documents = ["README.md", "SECURITY.md", "contrib/mediawiki/README.md"].into_iter().chain(manuals);
    let mut texts: Vec<String> =
        documents.map(|path| fs::read_to_string(format!("{root}/{path}")).expect(path)).collect();
    let pages =
        fs::read_dir(format!("{root}/docs")).expect("is a directory").map(|entry| entry.expect("is read").path());
    texts.extend(pages.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).expect("is text")));
    texts.push(print(&["serve", "--help"]));
    let options = (COMMANDS[0].options)();
    let tables = tables();
    let known: Vec<&str> =
        options.iter().map(|option| option.key).chain(tables.iter().map(|table| table.key)).collect();
    let mut named = 0;
    for text in &texts {
        let words = text
            .split(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c))
            .map(|word| word.trim_end_matches('.'));
        let in_sections = ["counter.", "members.", "jobs."];
        for word in words.filter(|word| in_sections.iter().any(|section| word.starts_with(section))) {
            // Names of files.
            let is_other = [".db", ".prom", ".md", ".service"].iter().any(|end| word.ends_with(end));
            assert!(is_other || known.contains(&word), "{word} is documented, and is no setting");
            named += usize::from(!is_other);
        }
    }
    assert!(named > 5, "{named}");
}

#[test]
fn every_line_shows_the_default() {
    let scratch = Scratch::new();
    let path = scratch.file("settings");
    let read = |text: &str| {
        fs::write(&path, text).expect("can be written");
        let arguments = ["-c".into(), path.clone().into_os_string()];
        let given = Given::read(&(COMMANDS[0].options)(), WordsAllowed::None, &arguments).expect("is well-formed");
        let mut settings = DaemonSettings::of(&given).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        // The settings are compared, not the text.
        settings.config_text = None;
        settings.set_keys.clear();
        settings
    };
    let default = read("");
    for (key, line) in settings() {
        let set = read(&line);
        match key.strip_suffix("listen") {
            // A given address differs from a default one, even if it is the same.
            Some(_) => {
                let addresses = |settings: &DaemonSettings| {
                    ServiceId::all(SERVICES).map(|service| settings.endpoints[service].addresses()).collect::<Vec<_>>()
                };
                assert_eq!(addresses(&set), addresses(&default), "{line}");
                assert_ne!(set, default, "{line}");
            }
            None => assert_eq!(set == default, !WITHOUT_DEFAULT.contains(&&*key), "{line}"),
        }
    }
    let all: Vec<String> = settings().into_iter().map(|(_, line)| line).collect();
    read(&all.join("\n"));
}
