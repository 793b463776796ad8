//! Documents that are made from the tables of options: the OPTIONS of the manual pages and the template of the
//! configuration file. `make docs` lets this test write them; without that, it fails when they are stale.

use crate::pages::{DAEMON, PAGES, SETTINGS, at_root, read};
use poolcounter::SERVICES;
use poolcounter_cli::{COMMANDS, Command, MEMBER_REQUESTS, Opt, daemon_options, tables};
use poolcounter_core::stats::Stat;
use poolcounter_protocol::command::Command as ProtocolCommand;
use poolcounter_protocol::counters::stats::CounterStat;
use poolcounter_protocol::pools::stats::PoolStat;
use poolcounter_server::health;
use poolcounter_service::access::Verb;
use poolcounter_service::options::TableDoc;
use poolcounter_testkit::daemon::{Client, Daemon, until};
use poolcounter_testkit::running::run;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::web;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

/// Environment variable that lets the test write the files.
const WRITE: &str = "WRITE_DOCS";

pub const METRICS: &str = "docs/metrics.md";
const TEMPLATE: &str = "debian/poolcounter.toml";

const OPERATIONS: &str = "docs/operations.md";

/// Marks around the table of conditions in their page.
const CONDITIONS_BEGIN: &str = "<!-- Made by make docs: the conditions. -->\n";
const CONDITIONS_END: &str = "<!-- End of the conditions. -->\n";

/// Marks around the tables of metrics in their page.
const METRICS_BEGIN: &str = "<!-- Made by make docs: the metrics. -->\n";
const METRICS_END: &str = "<!-- End of the metrics. -->\n";

/// Settings with which every metric has a line.
const METRICS_SETTINGS: &str = r#"
[[members.pool]]
name = "accounts"
max = 1
fixed = ["ci-01"]

[[pools.ceiling]]
key = "page:*"
workers = 2

[[jobs.schedule]]
name = "often"
every = 1
tube = "enwiki/cleanUp"
body = "all"

[[access]]
name = "all"
who = ["all"]
may = ["pools", "counters", "members", "jobs", "http", "admin"]
"#;

/// Chapters of the page of metrics: the heading, and the prefix of the names of their metrics.
const METRICS_CHAPTERS: [(&str, &str); 7] = [
    ("Locks", "poolcounter_pools_"),
    ("Counters", "poolcounter_counters_"),
    ("Members", "poolcounter_members_"),
    ("Jobs", "poolcounter_jobs_"),
    ("Rules of access", "poolcounter_access_"),
    ("Administration", "poolcounter_admin_"),
    ("The daemon and its process", ""),
];

/// Beginning of the page of settings.
const SETTINGS_HEAD: &str = "\
.\\\" Made by make docs.
.Dd November 23, 2026
.Dt POOLCOUNTER.TOML 5
.Os
.Sh NAME
.Nm poolcounter.toml
.Nd settings of the poolcounter daemon
.Sh DESCRIPTION
The file that
.Xr poolcounter 8
reads with
.Fl -config
is in TOML.
Debian's package has it as
.Pa /etc/poolcounter.toml ,
whose comments show the defaults.
.Pp
Settings of a service stand in its section:
.Fl -jobs-port
is
.Va jobs.port ,
and
.Fl -jobs
is
.Va jobs.enable = true .
A value is written as on the command line, in quotes or, if it is a number, without.
Command-line options override the file.
.Pp
A reload, with
.Dv SIGUSR1 ,
reads all of it again and loses no lock; see
.Xr poolcounter 8 ,
SIGNALS.
.Dl poolcounter --check --config FILE
prints all mistakes of a file with their lines.
";

/// Example on the page of settings.
const SETTINGS_EXAMPLE: &str = "\
listen = [\"10.0.0.5\", \"unix:/run/poolcounter/pools.sock\"]
socket_mode = 660
max_hold = 300
http = [\"127.0.0.1\"]
admin = [\"unix:/run/poolcounter/admin.sock\"]

jobs.enable = true
jobs.listen = [\"10.0.0.5\"]
jobs.max_size = 1048576

members.enable = true

[[members.pool]]
name = \"phones\"
max = 5
fixed = [\"phone-1\", { name = \"phone-2\", os = \"android\" }]

[[pools.ceiling]]
key = \"ArticleView:*\"
workers = 2
max_queue = 50

[[access]]
name = \"web\"
who = [\"net:10.0.0.0/8\"]
may = [\"pools:acquire\", \"jobs:put\", \"jobs:reserve\", \"members:take\"]

[[access]]
who = [\"net:127.0.0.0/8\", \"net:::1\", \"user:root\"]
may = [\"pools\", \"jobs\", \"members\", \"http\", \"admin\"]
";

/// End of the page of settings.
const SETTINGS_END: &str = "\
.Sh SEE ALSO
.Xr poolcounter 1 ,
.Xr poolcounter 8
";

/// Marks around the part of a page that is made, with the name of the command in between.
const BEGIN: &str = ".\\\" Made by make docs: the options of ";
const END: &str = ".\\\" End of the options of ";

/// Marks around the commands of a service in the document of its protocol.
const COMMANDS_BEGIN: &str = "<!-- Made by make docs: the commands. -->\n";
const COMMANDS_END: &str = "<!-- End of the commands. -->\n";

/// Services with commands, and the documents of their protocols. The commands of `admin` stand in a manual page.
const PROTOCOLS: [(&str, &str); 5] = [
    ("pools", "docs/protocols/pools.md"),
    ("counters", "docs/protocols/counters.md"),
    ("members", "docs/protocols/members.md"),
    ("jobs", "docs/protocols/jobs.md"),
    ("http", "docs/status-page.md"),
];

/// Marks around the statistics that a protocol has replies for.
const STATISTICS_BEGIN: &str = "<!-- Made by make docs: the statistics. -->\n";
const STATISTICS_END: &str = "<!-- End of the statistics. -->\n";

/// Marks around the synopsis of the daemon.
const SYNOPSIS_BEGIN: &str = ".\\\" Made by make docs: the synopsis of serve.\n";
const SYNOPSIS_END: &str = ".\\\" End of the synopsis of serve.\n";

/// Marks around the requests of `members`.
const REQUESTS_BEGIN: &str = ".\\\" Made by make docs: the requests of members.\n";
const REQUESTS_END: &str = ".\\\" End of the requests of members.\n";

/// Settings of the package that differ from the defaults: the first incident needs the administration.
const PACKAGE: &[(&str, &str)] = &[("admin", "[\"unix:/run/poolcounter/admin.sock\"]")];

/// Beginning of the template, before its settings.
const HEAD: &str = "\
# Settings of the poolcounter daemon; see poolcounter.toml(5). A line with \"# \" in front shows a default; to change it, remove
# the \"# \". The arguments in ARGS of /etc/default/poolcounter override this file.
#
# Changes take effect at the next reload, which loses no lock. Without [[access]] at the end of this file, every client that can
# connect is served, and every reader of the status page sees keys and addresses. Connections over a network are not encrypted,
# unless poolcounter tls stands before the daemon.
";

#[test]
fn options_and_commands_in_the_manual_are_those_of_the_tables() {
    keep(DAEMON, &with_synopsis(&with_daemon_options(&read(DAEMON))));
    for page in PAGES {
        let all = COMMANDS.iter().flat_map(|command| command.requests.iter().chain([command]));
        let own = all.filter(|command| page.commands.contains(&command.name));
        let own = own.filter(|command| own_options(command).next().is_some());
        let text = own.fold(read(page.path), |text, command| with_options(&text, command));
        let has_requests = page.commands.contains(&"members");
        keep(page.path, &if has_requests { with_requests(&text) } else { text });
    }
}

#[test]
fn commands_in_the_documents_of_protocols_are_those_of_the_tables() {
    for info in SERVICES.iter().filter(|info| !info.commands.is_empty()) {
        let (_, path) = PROTOCOLS.iter().find(|(name, _)| *name == info.name).expect("each has a document");
        let row = |row: &ProtocolCommand| {
            let right = |verb: Verb| format!("`{}:{}`", info.name, info.verbs[usize::from(verb.0)]);
            let command = format!("{} {}", row.word, row.arguments.replace(['<', '>'], "").replace('|', "\\|"));
            format!("| `{}` | {} | {} |\n", command.trim_end(), row.help, row.verb.map_or("none".into(), right))
        };
        let rows: String = info.commands.iter().map(row).collect();
        let text = format!("\n| command | meaning | right |\n|---|---|---|\n{rows}\n");
        keep(path, &between(&read(path), COMMANDS_BEGIN, COMMANDS_END, &text));
    }
}

#[test]
fn statistics_in_the_documents_of_protocols_are_those_of_the_tables() {
    keep_statistics::<PoolStat>("docs/protocols/pools.md");
    keep_statistics::<CounterStat>("docs/protocols/counters.md");
}

fn keep_statistics<S: Stat>(path: &str) {
    let row = |stat: &S| format!("| `{}` | {} |\n", stat.row().name, stat.row().help);
    let rows: String = S::ALL.iter().map(row).collect();
    let text = format!("\n| statistic | meaning |\n|---|---|\n{rows}\n");
    keep(path, &between(&read(path), STATISTICS_BEGIN, STATISTICS_END, &text));
}

#[test]
fn the_page_of_settings_is_made_of_the_tables() {
    keep(SETTINGS, &page_of_settings());
}

#[test]
fn the_example_of_settings_is_well_formed() {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, SETTINGS_EXAMPLE).expect("there is room");
    let ended = run(&["--check", "--config", file.to_str().expect("is text")]);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}

#[test]
fn the_template_is_made_of_the_tables() {
    keep(TEMPLATE, &template());
}

/// Starts a daemon with all services, in which every metric has a line as long as the last value lives.
pub fn everything() -> (Daemon, SocketAddr, impl Sized) {
    let scratch = Scratch::new();
    let (config, store) = (scratch.file("settings.toml"), format!("sqlite:{}", scratch.file("jobs.db").display()));
    fs::write(&config, METRICS_SETTINGS).expect("there is room");
    let services = ["--counter", "--members", "--jobs"];
    let listening = ["counter", "members", "jobs"].map(|name| format!("--{name}-listen=127.0.0.1:0"));
    let admin = format!("unix:{}", scratch.file("admin.sock").display());
    let others = ["--jobs-store", &store, "--admin", &admin, "--config", config.to_str().expect("is text")];
    let options: Vec<&str> = services.into_iter().chain(listening.iter().map(String::as_str)).chain(others).collect();
    let (daemon, http) = web::start(&options);
    let mut worker = daemon.connect();
    assert_eq!(worker.ask("ACQ4ME page:1 1 1"), "LOCKED");
    let mut runner = Client::to(daemon.jobs());
    assert_eq!(runner.ask("identify runner\r"), "IDENTIFIED runner\r");
    assert!(runner.ask("put 0 0 60 1\r\na\r").starts_with("INSERTED "));
    assert!(runner.ask("reserve\r").starts_with("RESERVED "));
    (daemon, http, (worker, runner, scratch))
}

#[test]
fn metrics_in_their_page_are_those_of_a_daemon() {
    let (daemon, http, _clients) = everything();
    assert_eq!(Client::to(daemon.members()).ask("HOLD accounts ci-01 600"), "OK");
    let seen_later = ["poolcounter_condition{", "poolcounter_jobs_schedule_last_seconds{"];
    until("metrics of a condition and of a job that was put periodically", || {
        let metrics = web::fetch(http, "/metrics");
        seen_later.iter().all(|metric| metrics.text().contains(metric))
    });
    keep(METRICS, &with_metrics(&read(METRICS), web::fetch(http, "/metrics").text()));
}

#[test]
fn conditions_in_their_page_are_those_of_the_services() {
    let services = SERVICES.iter().filter(|info| !info.title.is_empty()).map(|info| (info.title, info.conditions));
    let all = services.chain([(health::TITLE, health::CONDITIONS)]);
    let mut text = String::from("\n| service | condition | level | meaning |\n|---|---|---|---|\n");
    for (title, info) in all.flat_map(|(title, conditions)| conditions.iter().map(move |info| (title, info))) {
        text += &format!("| {title} | `{}` | {} | {} |\n", info.name, info.level.word(), info.meaning);
    }
    keep(OPERATIONS, &between(&read(OPERATIONS), CONDITIONS_BEGIN, CONDITIONS_END, &format!("{text}\n")));
}

/// Returns the page with a table for each chapter.
fn with_metrics(page: &str, metrics: &str) -> String {
    let mut rest: Vec<&str> = metrics.split("# HELP ").skip(1).collect();
    let mut text = String::new();
    for (heading, prefix) in METRICS_CHAPTERS {
        let (own, others): (Vec<&str>, Vec<&str>) = rest.into_iter().partition(|family| family.starts_with(prefix));
        text += &format!("\n## {heading}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
        text.extend(own.into_iter().map(metric));
        rest = others;
    }
    between(page, METRICS_BEGIN, METRICS_END, &format!("{text}\n"))
}

/// Returns the row of a metric, from its part of the page.
fn metric(family: &str) -> String {
    let mut lines = family.lines();
    let (name, help) = lines.next().and_then(|line| line.split_once(' ')).expect("a name and its help");
    let kind = lines.next().and_then(|line| line.rsplit(' ').next()).expect("the type");
    let labels = lines.filter_map(|line| line.split_once('{')?.1.rsplit_once('}').map(|(labels, _)| labels));
    let names = labels.flat_map(|labels| labels.split("\",")).filter_map(|label| label.split('=').next());
    let names: BTreeSet<&str> = names.filter(|name| *name != "le").collect();
    let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<String>>().join(", ");
    format!("| `{name}` | {kind} | {names} | {help} |\n")
}

/// Each default stands in the short text, for people, and in TOML.
#[test]
fn defaults_agree() {
    for option in (COMMANDS[0].options)() {
        let said = option.summary().split_once("(default: ").and_then(|(_, rest)| rest.strip_suffix(')'));
        if let Some(number) = said.filter(|said| said.parse::<u64>().is_ok()) {
            assert_eq!(number, option.default, "--{}", option.long);
        }
        assert!(option.is_hidden || !option.doc.is_empty(), "--{}", option.long);
    }
}

/// Returns whether the tests write the files.
pub fn writes() -> bool {
    std::env::var_os(WRITE).is_some()
}

/// Writes the file, or asserts that it is as it would be written.
fn keep(path: &str, text: &str) {
    if writes() {
        fs::write(at_root(path), text).expect("can be written");
    } else {
        assert!(read(path) == text, "{path} is stale: make docs");
    }
}

/// Returns the options that the section of a command describes: all commands have help and version, and only the
/// daemon's page lists these.
fn own_options(command: &Command) -> impl Iterator<Item = Opt<()>> {
    let is_daemon = command.name == COMMANDS[0].name;
    let options = (command.options)().into_iter().filter(|option| !option.is_hidden);
    options.filter(move |option| is_daemon || !["help", "version"].contains(&option.long))
}

/// Returns the page with the command's options between their marks.
fn with_options(page: &str, command: &Command) -> String {
    let items: String = own_options(command).map(|option| item(&option)).collect();
    let (begin, end) = (format!("{BEGIN}{}.\n", command.name), format!("{END}{}.\n", command.name));
    between(page, &begin, &end, &format!(".Bl -tag -width Ds\n{items}.El\n"))
}

/// Returns the daemon's page with its options in groups. The page of settings has the whole text of those that can
/// stand in a file.
fn with_daemon_options(page: &str) -> String {
    let item = |option: &Opt<()>| {
        if option.key.is_empty() { item(option) } else { item_with(option, option.summary()) }
    };
    let group = |(name, options): (&str, Vec<Opt<()>>)| {
        let items: String = options.iter().filter(|option| !option.is_hidden).map(item).collect();
        format!(".Ss {}\n.Bl -tag -width Ds\n{items}.El\n", capitalised(name))
    };
    let text: String = groups().into_iter().map(group).collect();
    between(page, &format!("{BEGIN}serve.\n"), &format!("{END}serve.\n"), &text)
}

/// Returns the daemon's page with the options of its synopsis, but those that stand alone.
fn with_synopsis(page: &str) -> String {
    let options = COMMANDS[0].shown_options().into_iter();
    let options = options.filter(|option| !["check", "help", "version"].contains(&option.long));
    let item = |option: &Opt<()>| {
        let name = if option.short.is_empty() { format!("-{}", option.long) } else { option.short.into() };
        format!("Oo Fl {name} {}", markup(option.hint)).trim_end().to_string() + " Oc"
    };
    let items: Vec<String> = options.map(|option| item(&option)).collect();
    let lines: String = items.chunks(3).map(|items| format!(".{}\n", items.join(" "))).collect();
    between(page, SYNOPSIS_BEGIN, SYNOPSIS_END, &lines)
}

/// Returns the page with some text between two marks.
fn between(page: &str, begin: &str, end: &str, text: &str) -> String {
    let (before, rest) = page.split_once(begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("the page lacks {end}"));
    format!("{before}{begin}{text}{end}{after}")
}

/// Returns the page with the requests of `members`.
fn with_requests(page: &str) -> String {
    let parameter = |text: &str| {
        let plain = text.trim_matches(['[', ']']);
        let words = plain.split(' ').map(|word| match word {
            "..." => word.to_string(),
            _ if word == word.to_uppercase() => format!("Ar {}", word.to_lowercase()),
            _ => format!("Cm {}", word.replace('|', " | ")),
        });
        let words = words.collect::<Vec<_>>().join(" ");
        if plain == text { words } else { format!("Op {words}") }
    };
    let items = MEMBER_REQUESTS.iter().map(|(usage, summary, _)| {
        // The dots belong to the parameter before them.
        let usage = usage.replace(" ...", "_...");
        let (word, parameters) = usage.split_once(' ').expect("has parameters");
        let parameters: Vec<String> = parameters.split(' ').map(|text| parameter(&text.replace('_', " "))).collect();
        format!(".It Cm {word} {}\n{}.\n", parameters.join(" "), capitalised(summary))
    });
    between(page, REQUESTS_BEGIN, REQUESTS_END, &format!(".Bl -tag -width Ds\n{}.El\n", items.collect::<String>()))
}

/// Returns one item of the list of options.
fn item(option: &Opt<()>) -> String {
    item_with(option, option.doc)
}

fn item_with(option: &Opt<()>, text: &str) -> String {
    let value = markup(option.hint);
    let named = |name: String| format!("Fl {name}{}{value}", if value.is_empty() { "" } else { " " });
    let short = if option.short.is_empty() { String::new() } else { named(option.short.into()) + " , " };
    format!(".It {short}{}\n{}", named(format!("-{}", option.long)), lines_of_plain(text))
}

/// Returns a hint such as `IDLE[,INTERVAL]` or `warn|kill` in mdoc.
fn markup(hint: &str) -> String {
    if hint.contains('|') {
        return format!("Cm {}", hint.replace('|', " | "));
    }
    let parts = hint.trim_end_matches(']').split('[').filter(|part| !part.is_empty());
    let markup = |part: &str| match part.chars().next() {
        Some(mark @ (',' | ':')) => format!("Oo {mark} Ns Ar {}", part[1..].to_lowercase()),
        _ => format!("Ar {}", part.to_lowercase()),
    };
    let open = parts.map(markup).collect::<Vec<_>>().join(" Ns ");
    let close = " Oc".repeat(hint.matches('[').count());
    open + &close
}

/// Returns the page of settings: those of each service, those of the loop, and the tables.
fn page_of_settings() -> String {
    let chapters = groups().into_iter().map(|(name, options)| chapter(&name.to_uppercase(), &options));
    let mut text = SETTINGS_HEAD.to_string() + &chapters.collect::<String>();
    text += ".Sh TABLES\nTables stand behind all other settings, and may be repeated.\n.Bl -tag -width Ds\n";
    for about in tables() {
        let example = about.example.replace('\\', "\\e");
        let (key, long) = (about.key, lines_of(about.doc_long));
        let short = about.doc_short.replace(". ", ".\n");
        text += &format!(".It Va [[{key}]]\n{short}\n{long}.Bd -literal\n[[{key}]]\n{example}.Ed\n");
    }
    text + ".El\n.Sh EXAMPLES\n.Bd -literal -offset indent\n" + SETTINGS_EXAMPLE + ".Ed\n" + SETTINGS_END
}

/// Returns the options of the daemon in groups, each with its heading.
fn groups() -> Vec<(&'static str, Vec<Opt<()>>)> {
    let mut groups = daemon_options();
    groups.retain(|(_, options)| !options.is_empty());
    let heading = |(name, options)| (if name == "daemon" { "the daemon" } else { name }, options);
    groups.into_iter().map(heading).collect()
}

/// Returns the text of a table in the language of manual pages, without its indentation. The program is named, as a
/// page has a name of its own.
fn lines_of(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix(".Nm") {
        Some(rest) => format!(".Nm poolcounter{rest}\n"),
        None => format!("{line}\n"),
    };
    text.trim().lines().map(|text| line(text.trim())).collect()
}

/// Returns plain text in the language of manual pages, each sentence in a line.
fn lines_of_plain(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace("--", "\\-\\-").replace(". ", ".\n");
    text.trim_end_matches('.').to_string() + ".\n"
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Returns the settings of one service; empty if none of them can stand in a file.
fn chapter(heading: &str, options: &[Opt<()>]) -> String {
    let items: String = options.iter().filter(|option| !option.key.is_empty()).map(setting_item).collect();
    if items.is_empty() { items } else { format!(".Sh {heading}\n.Bl -tag -width Ds\n{items}.El\n") }
}

/// Returns one setting: its name, the text of its option, and its value.
fn setting_item(option: &Opt<()>) -> String {
    let text = lines_of_plain(option.doc);
    let value = match (option.hint, option.repeats) {
        ("", _) if option.default == "0" => "true or false, or a number from 0 to 2".into(),
        ("", _) => "true or false".into(),
        ("N", _) => "a number".into(),
        (hint, true) => format!("one, or a list, of {}", hint.to_lowercase()),
        (hint, false) => hint.to_lowercase(),
    };
    let (value, default) = (value.replace('[', "\\&["), option.default.replace('"', "\\(dq"));
    format!(
        ".It Va {}\n{text}.br\nValue: {value}.\nDefault, or example:\n.Li {default} .\nOption:\n.Fl -{} .\n",
        option.key, option.long
    )
}

/// Returns the template: the settings of each service, then those of the loop.
fn template() -> String {
    let mut text = HEAD.to_string();
    for (_, options) in groups() {
        text += "\n";
        text.extend(options.iter().map(setting));
    }
    text.extend(tables().iter().map(table));
    text
}

/// Returns the lines of one table. It stands behind all settings, because those behind it would belong to it.
fn table(about: &TableDoc) -> String {
    let lines: String = about.example.lines().map(|line| format!("#   {line}\n")).collect();
    format!("\n# {}\n# Tables stand behind all other settings.\n# [[{}]]\n{lines}", about.doc_short, about.key)
}

/// Returns the lines of one setting; none if it cannot stand in a file.
fn setting(option: &Opt<()>) -> String {
    if option.key.is_empty() {
        return String::new();
    }
    let what = option.summary().split(" (default:").next().unwrap_or_default().replace("; repeatable", "");
    let unit = match option.hint {
        "SECONDS" | "BYTES" | "MEGABYTES" | "MICROSECONDS" => format!(" In {}.", option.hint.to_lowercase()),
        _ => String::new(),
    };
    match PACKAGE.iter().find(|(key, _)| *key == option.key) {
        Some((key, value)) => {
            format!("# {what}.{unit} The default without this file is {}.\n{key} = {value}\n", option.default)
        }
        None => format!("# {what}.{unit}\n# {} = {}\n", option.key, option.default),
    }
}
