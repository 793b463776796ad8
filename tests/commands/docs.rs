//! What is written of options stands in their tables: the OPTIONS of the manual pages and the template of the configuration file are
//! made from them. `make docs` has this test write them; without that, it fails where they are stale.

use crate::pages::{DAEMON, PAGES, SETTINGS, at_root, read};
use poolcounter::SERVICES;
use poolcounter_cli::{COMMANDS, Command, MEMBER_REQUESTS, Opt, tables};
use poolcounter_server::health;
use poolcounter_service::access::Verb;
use poolcounter_service::options::TableDoc;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::web;
use std::collections::BTreeSet;
use std::{fs, process};

/// Set to have the files written.
const WRITE: &str = "WRITE_DOCS";

const METRICS: &str = "docs/metrics.md";
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

[[access]]
name = "all"
who = ["all"]
may = ["pools", "counters", "members", "jobs", "http", "admin"]
"#;

/// Chapters of the page of metrics: the heading, and what the names of their metrics begin with.
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
where each line shows a default.
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
who = [\"net:127.0.0.0/8\", \"user:root\"]
may = [\"pools\", \"jobs\", \"members\", \"http\", \"admin\"]
";

/// End of the page of settings.
const SETTINGS_END: &str = "\
.Sh SEE ALSO
.Xr poolcounter 1 ,
.Xr poolcounter 8
";

/// What begins and ends the part of a page that is made, with the name of the command in between.
const BEGIN: &str = ".\\\" Made by make docs: the options of ";
const END: &str = ".\\\" End of the options of ";

/// Marks around the commands of the services in the daemon's page.
const COMMANDS_BEGIN: &str = ".\\\" Made by make docs: the commands of the services.\n";
const COMMANDS_END: &str = ".\\\" End of the commands of the services.\n";

/// Marks around the synopsis of the daemon.
const SYNOPSIS_BEGIN: &str = ".\\\" Made by make docs: the synopsis of serve.\n";
const SYNOPSIS_END: &str = ".\\\" End of the synopsis of serve.\n";

/// Marks around the requests of `members`.
const REQUESTS_BEGIN: &str = ".\\\" Made by make docs: the requests of members.\n";
const REQUESTS_END: &str = ".\\\" End of the requests of members.\n";

/// What the template says before its settings.
const HEAD: &str = "\
# Settings of the poolcounter daemon, which poolcounter(8) describes. Each line shows the default; to change it, remove the
# \"# \" in front. What ARGS in /etc/default/poolcounter says counts more than this file.
#
# What is changed counts from the next reload on, which loses no lock. Without [[access]] at the end of this file, whoever can
# connect is served, and whoever can open the status page sees keys and addresses. What goes over a network is not encrypted,
# unless poolcounter tls stands before the daemon.
";

#[test]
fn options_and_commands_in_the_manual_are_those_of_the_tables() {
    keep(DAEMON, &with_synopsis(&with_commands(&with_options(&read(DAEMON), &COMMANDS[0]))));
    for page in PAGES {
        let own = COMMANDS.iter().filter(|command| page.commands.contains(&command.name));
        let own = own.filter(|command| own_options(command).next().is_some());
        let text = own.fold(read(page.path), |text, command| with_options(&text, command));
        let has_requests = page.commands.contains(&"members");
        keep(page.path, &if has_requests { with_requests(&text) } else { text });
    }
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
    let output = process::Command::new(Daemon::program()).arg("--check").arg("--config").arg(&file).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_template_is_made_of_the_tables() {
    keep(TEMPLATE, &template());
}

/// The page is made of what a daemon with all services serves.
#[test]
fn metrics_in_their_page_are_those_of_a_daemon() {
    let scratch = Scratch::new();
    let (config, store) = (scratch.file("settings.toml"), format!("sqlite:{}", scratch.file("jobs.db").display()));
    fs::write(&config, METRICS_SETTINGS).expect("there is room");
    let services = ["--counter", "--members", "--jobs"];
    let listening = ["counter", "members", "jobs"].map(|name| format!("--{name}-listen=127.0.0.1:0"));
    let admin = format!("unix:{}", scratch.file("admin.sock").display());
    let others = ["--jobs-store", &store, "--admin", &admin, "--config", config.to_str().expect("is text")];
    let options: Vec<&str> = services.into_iter().chain(listening.iter().map(String::as_str)).chain(others).collect();
    let (daemon, http) = web::start(&options);
    assert_eq!(daemon.connect().ask("ACQ4ME page:1 1 1"), "LOCKED");
    let mut runner = Client::to(daemon.jobs());
    assert_eq!(runner.ask("identify runner\r"), "IDENTIFIED runner\r");
    assert_eq!(runner.ask("put 0 0 60 1\r\na\r"), "INSERTED 1\r");
    assert_eq!(runner.ask("reserve\r"), "RESERVED 1 1\r");
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

/// The page with a table for each chapter.
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

/// The row of a metric, from its part of the page.
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

/// A default stands in the short text, for people, and in TOML.
#[test]
fn defaults_agree() {
    for option in (COMMANDS[0].options)() {
        let said = option.doc_short.split_once("(default: ").and_then(|(_, rest)| rest.strip_suffix(')'));
        if let Some(number) = said.filter(|said| said.parse::<u64>().is_ok()) {
            assert_eq!(number, option.default, "--{}", option.long);
        }
        assert!(option.is_hidden || !option.doc_long.is_empty(), "--{}", option.long);
    }
}

/// Writes the file, or asserts that it is as it would be written.
fn keep(path: &str, text: &str) {
    if std::env::var_os(WRITE).is_some() {
        fs::write(at_root(path), text).expect("can be written");
    } else {
        assert!(read(path) == text, "{path} is stale: make docs");
    }
}

/// The options of a command that its own section describes: all have help and version, and only the daemon's page says so there.
fn own_options(command: &Command) -> impl Iterator<Item = Opt<()>> {
    let is_daemon = command.name == COMMANDS[0].name;
    let options = command.shown_options().into_iter();
    options.filter(move |option| is_daemon || !["help", "version"].contains(&option.long))
}

/// The page with the command's options between their marks.
fn with_options(page: &str, command: &Command) -> String {
    let items: String = own_options(command).map(|option| item(&option)).collect();
    let (begin, end) = (format!("{BEGIN}{}.\n", command.name), format!("{END}{}.\n", command.name));
    between(page, &begin, &end, &format!(".Bl -tag -width Ds\n{items}.El\n"))
}

/// The daemon's page with the options of its synopsis, but those that stand alone.
fn with_synopsis(page: &str) -> String {
    let options = COMMANDS[0].shown_options().into_iter();
    let options = options.filter(|option| !["check", "help", "version"].contains(&option.long));
    let item = |option: Opt<()>| {
        let name = if option.short.is_empty() { format!("-{}", option.long) } else { option.short.into() };
        format!(".Op Fl {name} {}", markup(option.hint)).trim_end().to_string() + "\n"
    };
    between(page, SYNOPSIS_BEGIN, SYNOPSIS_END, &options.map(item).collect::<String>())
}

/// The page with some text between two marks.
fn between(page: &str, begin: &str, end: &str, text: &str) -> String {
    let (before, rest) = page.split_once(begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("the page lacks {end}"));
    format!("{before}{begin}{text}{end}{after}")
}

/// The page with the commands of each service, and the right that each needs. Those of the administration have a section of their own.
fn with_commands(page: &str) -> String {
    let mut text = String::new();
    for info in SERVICES.iter().filter(|info| !info.commands.is_empty()) {
        text += &format!(".Ss Commands of {}\n.Bl -tag -width Ds\n", info.name);
        for row in info.commands {
            let right = |verb: Verb| format!("{}:{}", info.name, info.verbs[usize::from(verb.0)]);
            let right = row.verb.map_or("no right is needed".into(), right);
            text += &format!(".It Ic {}{}\n{}\n.Pq {right}\n", row.word, arguments(row.arguments), row.help);
        }
        text += ".El\n";
    }
    between(page, COMMANDS_BEGIN, COMMANDS_END, &text)
}

/// The page with the requests of `members`.
fn with_requests(page: &str) -> String {
    let parameter = |text: &&str| {
        let plain = text.trim_matches(['[', ']']);
        let words = plain.split(' ').map(|word| match word {
            "..." => word.to_string(),
            _ if word == word.to_uppercase() => format!("Ar {}", word.to_lowercase()),
            _ => format!("Cm {}", word.replace('|', " | ")),
        });
        let words = words.collect::<Vec<_>>().join(" ");
        if plain == *text { words } else { format!("Op {words}") }
    };
    let items = MEMBER_REQUESTS.iter().map(|request| {
        let parameters: Vec<String> = request.parameters.iter().map(parameter).collect();
        let mut letters = request.summary.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!(".It Cm {} {}\n{first}{}.\n", request.word, parameters.join(" "), letters.as_str())
    });
    between(page, REQUESTS_BEGIN, REQUESTS_END, &format!(".Bl -tag -width Ds\n{}.El\n", items.collect::<String>()))
}

/// Arguments such as `<key> [who=<name>]...` in mdoc, with a space before each macro.
fn arguments(text: &str) -> String {
    let (mut markup, mut rest) = (String::new(), text);
    let mut is_glued = false;
    while !rest.is_empty() {
        let word = rest.trim_start();
        is_glued &= word.len() == rest.len();
        let len = match word.as_bytes()[0] {
            b'[' | b']' | b'|' => 1,
            b'<' => word.find('>').expect("closes") + 1,
            _ => word.find(['[', ']', '|', '<', ' ']).unwrap_or(word.len()),
        };
        let (token, left) = word.split_at(len);
        let glue = if is_glued && token != "]" { " Ns" } else { "" };
        markup += &match token {
            "[" => format!("{glue} Oo"),
            "]" => " Oc".into(),
            "|" | "..." => format!("{glue} {token}"),
            _ if token.starts_with('<') => format!("{glue} Ar {}", token.trim_matches(['<', '>'])),
            _ => format!("{glue} Cm \\&{token}"),
        };
        is_glued = token != "[";
        rest = left;
    }
    markup
}

/// One item of the list of options.
fn item(option: &Opt<()>) -> String {
    let value = markup(option.hint);
    let named = |name: String| format!("Fl {name}{}{value}", if value.is_empty() { "" } else { " " });
    let short = if option.short.is_empty() { String::new() } else { named(option.short.into()) + " , " };
    let text: String = option.doc_long.trim().lines().map(|line| format!("{}\n", line.trim())).collect();
    format!(".It {short}{}\n{text}", named(format!("-{}", option.long)))
}

/// A hint such as `IDLE[,INTERVAL]` or `warn|kill` in mdoc.
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

/// The page of settings: those of each service, those of the loop, and the tables.
fn page_of_settings() -> String {
    let options = (COMMANDS[0].options)();
    let mut rest = options.as_slice();
    let mut text = SETTINGS_HEAD.to_string();
    for service in SERVICES {
        let (own, others) = rest.split_at(service.listening.len() + (service.settings)().rows().len());
        text += &chapter(&service.name.to_uppercase(), own);
        rest = others;
    }
    text += &chapter("THE DAEMON", rest);
    text += ".Sh TABLES\nTables stand behind all other settings, and may be repeated.\n.Bl -tag -width Ds\n";
    for about in tables() {
        let example = about.example.replace('\\', "\\e");
        text += &format!(
            ".It Va [[{}]]\n{}\n.Bd -literal\n[[{}]]\n{example}\n.Ed\n",
            about.key,
            about.doc_short.replace(". ", ".\n"),
            about.key
        );
    }
    text + ".El\n.Sh EXAMPLES\n.Bd -literal -offset indent\n" + SETTINGS_EXAMPLE + ".Ed\n" + SETTINGS_END
}

/// The settings of one service, if it has some that can stand in a file.
fn chapter(heading: &str, options: &[Opt<()>]) -> String {
    let items: String = options.iter().filter(|option| !option.key.is_empty()).map(setting_item).collect();
    if items.is_empty() { items } else { format!(".Sh {heading}\n.Bl -tag -width Ds\n{items}.El\n") }
}

/// One setting: its name, the text of its option, and its value. Sections of the daemon's page are named as such.
fn setting_item(option: &Opt<()>) -> String {
    let line = |line: &str| match line.strip_prefix(".Sx ") {
        Some(section) => {
            let name = section.trim_end_matches(['.', ';', ',', ' ']);
            format!("{name} in\n.Xr poolcounter 8 {}\n", section[name.len()..].trim())
        }
        None => format!("{line}\n"),
    };
    let text: String = option.doc_long.trim().lines().map(|text| line(text.trim())).collect();
    let value = match (option.hint, option.repeats) {
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

/// The template: the settings of each service, then those of the loop.
fn template() -> String {
    let options = (COMMANDS[0].options)();
    let mut rest = options.as_slice();
    let mut text = HEAD.to_string();
    for service in SERVICES {
        let (own, others) = rest.split_at(service.listening.len() + (service.settings)().rows().len());
        text += "\n";
        text.extend(own.iter().map(setting));
        rest = others;
    }
    text += "\n";
    text.extend(rest.iter().map(setting));
    text.extend(tables().iter().map(table));
    text
}

/// The lines of one table. It stands behind all settings, as those that follow would belong to it.
fn table(about: &TableDoc) -> String {
    let lines: String = about.example.lines().map(|line| format!("#   {line}\n")).collect();
    format!("\n# {}\n# Tables stand behind all other settings.\n# [[{}]]\n{lines}", about.doc_short, about.key)
}

/// The lines of one setting; none if it cannot stand in a file.
fn setting(option: &Opt<()>) -> String {
    if option.key.is_empty() {
        return String::new();
    }
    let what = option.doc_short.split(" (default:").next().unwrap_or_default().replace("; repeatable", "");
    let unit = match option.hint {
        "SECONDS" | "BYTES" | "MEGABYTES" | "MICROSECONDS" => format!(" In {}.", option.hint.to_lowercase()),
        _ => String::new(),
    };
    let mut letters = what.chars();
    let what: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    format!("# {what}.{unit}\n# {} = {}\n", option.key, option.default)
}
