//! Commands of the program: one table, used by the start, `help` and the tests.

use super::command::{Command, Exit, Failure, command, first_word, requests_of, requests_of_option};
use super::services::SERVICES;
use super::table::{self, Given, WordsAllowed};
use super::terminal::print;
#[cfg(feature = "top")]
use super::top;
use super::{
    admin, completions, config_command, counter, demo, doctor, exec, holders, jobs, members, options, page, provide,
    serve, stats, status, take, tls,
};
use poolcounter_service::options::Opt;
use std::ffi::{OsStr, OsString};

/// Table of commands. The first is the default.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        summary: "run the daemon (default)",
        options: options::described,
        words: WordsAllowed::None,
        run: serve::run,
        ..Command::BLANK
    },
    command!(exec "exec", "--key KEY [options] [--] COMMAND [ARGUMENT ...]", "run a command under a lock of a pool",
        words: WordsAllowed::Last),
    command!(status "status", "[options]",
        "print the health of servers; the exit status for monitoring is 0, 1 or 2", words: WordsAllowed::None),
    command!(doctor "doctor", "[options]",
        "check the local daemon and machine for problems, and print remedies", words: WordsAllowed::None),
    command!(config_command "config", "[options]",
        "print the settings of a configuration file and the origin of each", words: WordsAllowed::None),
    command!(stats "stats", "[options] [SERVICE | FULL | NAME | KEYS [N] | TYPES | HOLDERS KEY | FIELDS]",
        "print the reports of servers, of all services or of one", first_words: stats::first_words),
    #[cfg(feature = "top")]
    command!(top "top", "[options]", "live view of one or more servers", words: WordsAllowed::None),
    command!(holders "holders", "[options] KEY", "print the holders and waiters of a pool of locks"),
    command!(counter "counter", "[options] REQUEST", "make a request to servers of the yrmcds counter protocol",
        list: || requests_of(counter::REQUESTS)),
    command!(take "take",
        "[options] POOL -- COMMAND [ARGUMENT ...]\n       \
         poolcounter take [options] --group GROUP -- COMMAND [ARGUMENT ...]\n       \
         poolcounter take [options] --keep --lease SECONDS --format sh|env|json POOL",
        "run a command with a member of a pool",
        notes: "The command finds in its environment:\n    \
                POOL_MEMBER     the member's name\n    \
                POOL_ATTR_name  its attribute of that name\n    \
                POOL_LEASE      the number of the lease, higher than of any before\n\
                If it ends with status 0 the member is returned as it was, else as failed.\n\
                The status is 75 if no member comes."),
    command!(provide "provide",
        "--start COMMAND [options] POOL\n       poolcounter provide --clean COMMAND [options] POOL",
        "start, stop and clean the members of a pool with commands"),
    command!(members "members", "[options] [POOL]\n       poolcounter members [options] REQUEST",
        "list, inspect and manage pools of members", list: members::list),
    command!(jobs "jobs", "[options] REQUEST",
        "put jobs into a queue, run a command for each, inspect and manage them",
        list: || requests_of(jobs::REQUESTS),
        notes: "A STATE is ready, reserved, delayed or buried. In a PATTERN, * is one part of a tube's name: */sendMail.\n\
                \"poolcounter help jobs REQUEST\" prints the options of a request.",
        requests: jobs::COMMANDS),
    command!(admin "admin", "[options] COMMAND",
        "administer the local daemon: release a lock, set a ceiling, drain, change the log level", list: admin::list),
    command!(page "page", "--server HOST[:PORT] [--server ...] [options]",
        "serve one status page of several daemons", words: WordsAllowed::None),
    command!(demo "demo", "", "run a daemon with all services, in memory, and clients that use it",
        words: WordsAllowed::None),
    command!(tls "tls", "--listen IP:PORT --to ADDRESS --cert FILE --key FILE [options]",
        "accept TLS connections, and pass their content on to a server", words: WordsAllowed::None),
    Command {
        name: "completions",
        usage: "bash | zsh | fish",
        summary: "print the completion script of a shell",
        first_words: completions::first_words,
        run: |given| completions::run(given, COMMANDS),
        ..Command::BLANK
    },
    Command {
        name: "help",
        usage: "[command]",
        summary: "print this help, or the help of a command",
        first_words: || COMMANDS.iter().map(|command| command.name).collect(),
        run: help,
        ..Command::BLANK
    },
];

/// Groups of commands in the overview.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Locks", &["exec", "holders"]),
    ("Members", &["take", "provide", "members"]),
    ("Jobs", &["jobs"]),
    ("Counters", &["counter"]),
    ("See", &["status", "top", "stats", "page", "demo"]),
    ("Operate", &["serve", "admin", "config", "doctor", "tls"]),
    ("Shell", &["completions", "help"]),
];

/// Width of the usages of requests; the purpose of a longer one is in the next line.
const USAGE_WIDTH: usize = 38;

/// Examples in the overview; the first is the daemon's.
const EXAMPLES: [(&str, &str); 3] = [
    ("poolcounter --jobs --http 127.0.0.1", "run the daemon, with a job queue and its status page"),
    ("poolcounter exec --key backup -- ./backup", "run a command on one machine at a time"),
    ("poolcounter jobs run '*/sendMail' -- ./send-mail", "run a command for each job of these tubes"),
];

/// Runs the command in the arguments (without the name of the program).
///
/// # Errors
///
/// Fails if it cannot.
pub fn run(arguments: &[OsString]) -> Exit {
    let (whole, arguments, is_named) = choose(arguments)?;
    let read = |command: &Command, options: &[Opt<()>]| {
        Given::read(options, command.words, arguments)
            .map_err(|sentence| Failure::misuse(sentence).with_help(command.name))
    };
    // Options may come before the request.
    let mut given = read(whole, &whole.all_options())?;
    let word = given.words[..given.words_before_dashes].first().cloned();
    let request = word.as_ref().and_then(|word| whole.request(word));
    let command = request.unwrap_or(whole);
    let options = (command.options)();
    given = read(command, &options)?;
    if request.is_some() {
        given.words.remove(0);
        given.words_before_dashes -= 1;
    }
    let asks = |long| options.iter().position(|option| option.long == long).is_some_and(|row| given.has(row));
    if asks("help") {
        print(&if is_named { help_of(whole, word.as_deref()) } else { overview() })
    } else if asks("version") {
        print(concat!("poolcounter ", env!("CARGO_PKG_VERSION"), "\n"))
    } else {
        let known = whole.known_words();
        let asked = word.and_then(|word| known.iter().find(|known| word == known.as_str()));
        let topic = match asked {
            _ if whole.name == "help" => String::new(),
            Some(request) => format!("{} {request}", whole.name),
            None => whole.name.into(),
        };
        check_options(whole, &options, &given, asked.map_or("POOL", String::as_str))
            .and_then(|()| (command.run)(&given))
            .map_err(|failure| failure.with_help(&topic))
    }
}

/// Checks that the options given are for this request. The requests of some commands check their own options.
fn check_options(whole: &Command, options: &[Opt<()>], given: &Given, request: &str) -> Result<(), Failure> {
    let given = options.iter().enumerate().filter(|(row, _)| given.has(*row) && whole.requests.is_empty());
    let mut named = given.filter_map(|(_, option)| Some((option.long, requests_of_option(option)?)));
    match named.find(|(_, requests)| !requests.contains(&request)) {
        Some((option, requests)) => Err(Failure::misuse(format!("--{option} is for {}", requests.join(" ")))),
        None => Ok(()),
    }
}

/// Returns the command, its arguments, and true if the first argument names it.
fn choose(arguments: &[OsString]) -> Result<(&'static Command, &[OsString], bool), Failure> {
    match arguments {
        [name, rest @ ..] if !name.as_encoded_bytes().starts_with(b"-") => {
            Ok((find(name).map_err(|failure| failure.with_help(""))?, rest, true))
        }
        _ => Ok((&COMMANDS[0], arguments, false)),
    }
}

fn find(name: &OsString) -> Result<&'static Command, Failure> {
    let command = COMMANDS.iter().find(|command| name == command.name);
    let names = COMMANDS.iter().map(|command| command.name);
    command.ok_or_else(|| Failure::unknown("command", &name.to_string_lossy(), names))
}

fn help(given: &Given) -> Exit {
    match given.words.as_slice() {
        [] => print(&overview()),
        [name] => print(&help_of(find(name)?, None)),
        [name, word] if find(name)?.known_words().iter().any(|known| word.eq_ignore_ascii_case(known)) => {
            print(&help_of(find(name)?, Some(word)))
        }
        [_, extra, ..] => Err(Failure::misuse(format!("unexpected argument \"{}\"", extra.to_string_lossy()))),
    }
}

/// Returns the help of a command, or only of its request with this first word. The options of the daemon stand under
/// headings.
fn help_of(command: &Command, word: Option<&OsStr>) -> String {
    let command = word.and_then(|word| command.request(word)).unwrap_or(command);
    let Command { name, usage, summary, notes, .. } = command;
    let requests = (command.list)();
    let is_meant = |usage: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(first_word(usage)));
    if let Some((usage, purpose)) = requests.iter().find(|(usage, _)| is_meant(usage)) {
        let brief = format!("{}.\n\nUsage: poolcounter {name} [options] {usage}", capitalise(purpose));
        return table::usage(&command.options_for(first_word(usage)), &brief);
    }
    let mut brief = format!("{}.\n\nUsage: poolcounter {name} {usage}", capitalise(summary));
    let lines = requests.iter().map(|(usage, purpose)| {
        let gap = if usage.len() > USAGE_WIDTH { format!("\n{:1$}", "", USAGE_WIDTH + 4) } else { String::new() };
        format!("\n    {usage:<USAGE_WIDTH$}{gap} {purpose}")
    });
    if !requests.is_empty() {
        let what = capitalise(&usage.rsplit(' ').next().unwrap_or_default().to_lowercase());
        brief += &format!("\n\n{what}s:{}", lines.collect::<String>());
    }
    if !notes.is_empty() {
        brief += &format!("\n\n{notes}");
    }
    if command.name != COMMANDS[0].name {
        return table::usage(&(command.options)(), &brief);
    }
    let group = |(name, options): &(&str, Vec<Opt<()>>)| format!("\n{}:\n{}", heading_of(name), table::lines(options));
    let groups: String = options::groups().iter().filter(|(_, options)| !options.is_empty()).map(group).collect();
    format!("{brief}\n\nExample:\n{}{groups}", example(&EXAMPLES[0]))
}

/// Returns the heading of a group of the daemon's options.
fn heading_of(name: &str) -> &str {
    match SERVICES.iter().find(|info| info.name == name) {
        Some(info) if !info.title.is_empty() => info.title,
        Some(_) if name == "http" => "Pages",
        Some(_) => "Administration",
        None => "Network, status, file",
    }
}

/// Returns the text of `help`: examples, and all commands in groups.
fn overview() -> String {
    let examples: String = EXAMPLES.iter().map(example).collect();
    let line = |command: &Command| format!("    {:<12}{}\n", command.name, command.summary);
    let group = |(heading, names): &(&str, &[&str])| {
        let commands = names.iter().filter_map(|name| COMMANDS.iter().find(|command| command.name == *name));
        format!("{heading}:\n{}", commands.map(line).collect::<String>())
    };
    format!(
        "Usage: poolcounter [serve] [options]\n       poolcounter COMMAND ...\n\n\
         Locks, counters, members and jobs for a fleet of servers: the daemon, and commands for its clients.\n\n\
         Examples:\n{examples}\n{}\n\
         \"poolcounter help COMMAND\" prints the options of a command, \"poolcounter help serve\" those of the daemon.\n",
        GROUPS.iter().map(group).collect::<String>()
    )
}

fn example((line, purpose): &(&str, &str)) -> String {
    format!("    {line:<50}{purpose}\n")
}

fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
