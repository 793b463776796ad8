//! The commands of the program: one table, which the start, `help` and the tests read.

use super::admin;
use super::command::{Command, Failure};
use super::completions;
use super::config_command;
use super::counter;
use super::doctor;
use super::exec;
use super::holders;
use super::jobs;
use super::members;
use super::options;
use super::page;
use super::provide;
use super::serve;
use super::stats;
use super::status;
use super::table::{self, Given, WordsAllowed};
use super::take;
use super::terminal::print;
use super::tls;
#[cfg(feature = "top")]
use super::top;
use poolcounter_service::options::Opt;
use std::ffi::OsString;
use std::process::ExitCode;

/// The table. The first is for those who name none.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "serve",
        usage: "[options]",
        summary: "run the daemon (default)",
        options: options::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: serve::run,
    },
    Command {
        name: "exec",
        usage: "--key KEY [options] [--] COMMAND [ARGUMENT ...]",
        summary: "run a command under a lock of a pool",
        options: exec::described,
        words: WordsAllowed::Last,
        first_words: Vec::new,
        list: String::new,
        run: exec::run,
    },
    Command {
        name: "status",
        usage: "[options]",
        summary: "print whether something is wrong, for people and for monitoring: the status is 0, 1 or 2",
        options: status::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: status::run,
    },
    Command {
        name: "doctor",
        usage: "[options]",
        summary: "look for what keeps the daemon of this machine from serving well, and say what to do",
        options: doctor::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: doctor::run,
    },
    Command {
        name: "config",
        usage: "[options]",
        summary: "print the settings of a configuration file, each with where it comes from",
        options: config_command::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: config_command::run,
    },
    Command {
        name: "stats",
        usage: "[options] [SERVICE | FULL | NAME | KEYS [N] | TYPES | HOLDERS KEY | FIELDS]",
        summary: "print what servers report of all services, or of one",
        options: stats::described,
        words: WordsAllowed::Anywhere,
        first_words: stats::first_words,
        list: String::new,
        run: stats::run,
    },
    #[cfg(feature = "top")]
    Command {
        name: "top",
        usage: "[options]",
        summary: "live view of one or more servers",
        options: top::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: top::run,
    },
    Command {
        name: "holders",
        usage: "[options] KEY",
        summary: "print who holds the locks of a pool, and who waits",
        options: holders::described,
        words: WordsAllowed::Anywhere,
        first_words: Vec::new,
        list: String::new,
        run: holders::run,
    },
    Command {
        name: "watch",
        usage: "[options] KEY",
        summary: "follow who holds the locks of a pool, and who waits",
        options: holders::described_watch,
        words: WordsAllowed::Anywhere,
        first_words: Vec::new,
        list: String::new,
        run: holders::run_watch,
    },
    Command {
        name: "counter",
        usage: "[options] REQUEST\n\n\
                Requests:\n    \
                noop\n    \
                get NAME\n    \
                acquire NAME RESOURCES MAXIMUM [-- COMMAND [ARGUMENT ...]]\n    \
                release NAME RESOURCES\n    \
                stats\n    \
                dump",
        summary: "make a request to servers of the yrmcds counter protocol",
        options: counter::described,
        words: WordsAllowed::Anywhere,
        first_words: counter::first_words,
        list: String::new,
        run: counter::run,
    },
    Command {
        name: "take",
        usage: "[options] POOL -- COMMAND [ARGUMENT ...]\n       \
                poolcounter take [options] --group GROUP -- COMMAND [ARGUMENT ...]\n       \
                poolcounter take [options] --keep --lease SECONDS POOL\n\n\
                The command finds in its environment:\n    \
                POOL_MEMBER     the member's name\n    \
                POOL_ATTR_name  its attribute of that name\n    \
                POOL_LEASE      the number of the lease, higher than of any before\n\
                If it ends with status 0 the member is returned as it was, else as failed.\n\
                The status is 75 if no member comes",
        summary: "run a command with a member of a pool",
        options: take::described,
        words: WordsAllowed::Anywhere,
        first_words: Vec::new,
        list: String::new,
        run: take::run,
    },
    Command {
        name: "provide",
        usage: "--start COMMAND [options] POOL\n       \
                poolcounter provide --clean COMMAND [options] POOL",
        summary: "start, stop and clean the members of a pool with commands",
        options: provide::described,
        words: WordsAllowed::Anywhere,
        first_words: Vec::new,
        list: String::new,
        run: provide::run,
    },
    Command {
        name: "members",
        usage: "[options] [POOL]\n       poolcounter members [options] REQUEST\n\nRequests:\n",
        summary: "print the pools of members, or the members of one, and look after them",
        options: members::described,
        words: WordsAllowed::Anywhere,
        first_words: members::first_words,
        list: members::list,
        run: members::run,
    },
    Command {
        name: "jobs",
        usage: "[options] REQUEST\n\n\
                Requests:\n    \
                put TUBE [BODY]              the body is an argument, or the standard input\n    \
                run PATTERN[:WEIGHT] ... -- COMMAND [ARGUMENT ...]\n    \
                peek ID | TUBE [STATE]       the body of a job, or of a tube's next\n    \
                show ID                      a job with its history, error and body\n    \
                kick ID | PATTERN | --all    buried and delayed jobs are ready again\n    \
                bury ID\n    \
                delete ID\n    \
                summary [wiki | type | tube | runner]\n    \
                list TUBE [STATE]\n    \
                stats [ID | TUBE]\n    \
                clear PATTERN [STATE]        delete all jobs that nobody has reserved\n    \
                pause PATTERN SECONDS        nothing is reserved for so long; 0 ends that\n    \
                retry PATTERN ATTEMPTS [FIRST [FACTOR [MAX]]]\n    \
                limit PATTERN N [each | all], or limit group:NAME N\n    \
                dead-letter PATTERN [TUBE]\n    \
                init-db URL                  print (or with --run, execute) the SQL for --jobs-store postgres:URL\n\n\
                A STATE is ready, reserved, delayed or buried. In a PATTERN, * is one part of a tube's name: */sendMail.",
        summary: "put jobs into a queue, run a command for each, or look after them",
        options: jobs::described,
        words: WordsAllowed::Anywhere,
        first_words: jobs::first_words,
        list: String::new,
        run: jobs::run,
    },
    Command {
        name: "admin",
        usage: "[options] COMMAND\n\nCommands:\n",
        summary: "administer the local daemon: release a lock, set a ceiling, drain, change the log level",
        options: admin::described,
        words: WordsAllowed::Anywhere,
        first_words: admin::first_words,
        list: admin::list,
        run: admin::run,
    },
    Command {
        name: "page",
        usage: "--server HOST[:PORT] [--server ...] [options]",
        summary: "serve one status page of several daemons",
        options: page::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: page::run,
    },
    Command {
        name: "tls",
        usage: "--listen IP:PORT --to ADDRESS --cert FILE --key FILE [options]",
        summary: "take TLS connections, and pass on what is in them to a server",
        options: tls::described,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        run: tls::run,
    },
    Command {
        name: "completions",
        usage: "bash | zsh | fish",
        summary: "print what a shell completes",
        options: completions::described,
        words: WordsAllowed::Anywhere,
        first_words: completions::first_words,
        list: String::new,
        run: |given| completions::run(given, COMMANDS),
    },
    Command {
        name: "help",
        usage: "[command]",
        summary: "print the help, of a command if one is named",
        options: || vec![Opt::HELP, Opt::VERSION],
        words: WordsAllowed::Anywhere,
        first_words: || COMMANDS.iter().map(|command| command.name).collect(),
        list: String::new,
        run: help,
    },
];

/// Does what the arguments say, which are without the program's name.
///
/// # Errors
///
/// When it cannot.
pub fn run(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let (command, arguments) = choose(arguments)?;
    let options = (command.options)();
    let given = Given::read(&options, command.words, arguments).map_err(|sentence| misused(command, &sentence))?;
    let asks = |long| options.iter().position(|option| option.long == long).is_some_and(|row| given.has(row));
    if asks("help") {
        print(&help_of(command))
    } else if asks("version") {
        print(concat!("poolcounter ", env!("CARGO_PKG_VERSION"), "\n"))
    } else {
        (command.run)(&given)
    }
}

/// The command that the first argument names, and the arguments for it.
fn choose(arguments: &[OsString]) -> Result<(&'static Command, &[OsString]), Failure> {
    match arguments {
        [name, rest @ ..] if !name.as_encoded_bytes().starts_with(b"-") => Ok((find(name)?, rest)),
        _ => Ok((&COMMANDS[0], arguments)),
    }
}

fn find(name: &OsString) -> Result<&'static Command, Failure> {
    let command = COMMANDS.iter().find(|command| name == command.name);
    let names = COMMANDS.iter().map(|command| command.name);
    command.ok_or_else(|| Failure::unknown("command", &name.to_string_lossy(), names, "poolcounter help"))
}

fn help(given: &Given) -> Result<ExitCode, Failure> {
    match given.words.as_slice() {
        [] => print(&help_of(&COMMANDS[0])),
        [name] => print(&help_of(find(name)?)),
        [_, extra, ..] => {
            Err(Failure::misuse(format!("unexpected argument \"{}\" (see poolcounter help)", extra.to_string_lossy())))
        }
    }
}

/// Returns the text of a command's help.
fn help_of(command: &Command) -> String {
    let brief = match is_first(command) {
        true => format!(
            "Usage: poolcounter {}\n       poolcounter COMMAND ...\n\n\
             Keeps a fleet of servers from stampeding: a PoolCounter daemon.\n\n{}",
            command.usage,
            overview()
        ),
        false => {
            let Command { name, usage, summary, list, .. } = command;
            format!("Usage: poolcounter {name} {usage}{}\n\n{}.", list(), capitalise(summary))
        }
    };
    table::usage(&(command.options)(), &brief)
}

fn misused(command: &Command, sentence: &str) -> Failure {
    let help = if is_first(command) { "--help".into() } else { format!("poolcounter help {}", command.name) };
    Failure::misuse(format!("{sentence} (see {help})"))
}

/// Returns whether it is the command of those who name none.
fn is_first(command: &Command) -> bool {
    command.name == COMMANDS[0].name
}

fn overview() -> String {
    let lines = COMMANDS.iter().map(|command| format!("    {:<14}{}\n", command.name, command.summary));
    format!("Commands:\n{}", lines.collect::<String>().trim_end_matches('\n'))
}

fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
