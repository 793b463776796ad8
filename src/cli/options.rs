//! Options of the daemon: each service's options, and the loop's. Parsing, `--help`, the configuration file and the
//! manual's test use them as one table.

mod idle;
mod values;

pub(super) use values::keepalive;

use super::command::Failure;
use super::table::{self, Given};
use super::{access, config, endpoint};
use crate::services::SERVICES;
use poolcounter_core::{Address, Span};
use poolcounter_server as net;
use poolcounter_service::access::Rule;
use poolcounter_service::container::{AllSettings, PerService, ServiceId};
use poolcounter_service::contract::Info;
use poolcounter_service::health::HealthSettings;
use poolcounter_service::options::{Endpoint, Misplaced, Opt, Table, TableDoc, assign, number, option_table, seconds};
use std::collections::BTreeSet;
use values::{mode, verbosity};

/// Permissions of sockets that only the daemon's own user and root can open.
const PRIVATE_MODE: u32 = 0o600;

/// Settings of the daemon.
#[derive(Clone, PartialEq, Debug)]
pub struct DaemonSettings {
    /// Path of the configuration file.
    config: Option<String>,
    /// Content of the configuration file.
    pub config_text: Option<String>,
    /// Addresses and limits of each service.
    pub endpoints: PerService<Endpoint>,
    /// Settings of each service.
    pub services: AllSettings,
    /// Options of listeners.
    pub net: net::Options,
    /// Time for which the loop polls for requests before it sleeps.
    pub busy_poll: Span,
    /// Settings of the health conditions.
    pub health: HealthSettings,
    /// True if the settings are only to be checked.
    pub is_check: bool,
    /// True if only to check whether this program could take over from a running daemon.
    pub is_rehearsal: bool,
    /// Number of `-v` options.
    pub verbosity: u8,
    /// Access rules.
    pub rules: Vec<Rule>,
    /// Keys of the options and tables of services that were set.
    pub set_keys: BTreeSet<&'static str>,
}

/// Options of the loop. Keys in the file are the names of options with underscores, in a section for options that start
/// with the name of a service.
const LOOP: &[Opt<DaemonSettings>] = option_table!(DaemonSettings;
    "-c, --config FILE",
        "Read settings from a TOML file; command-line options override it. In the file --max-hold is max_hold, \
         --jobs-port is jobs.port, and --jobs is jobs.enable = true; see poolcounter.toml(5).",
        |settings, value| assign(&mut settings.config, Ok(Some(value.into())));
    "--backlog N",
        "Maximum number of connections that wait to be accepted, from 1 to 2147483647 (default: 4096). The limit of \
         the system, net.core.somaxconn, applies as well.",
        |settings, value| assign(&mut settings.net.backlog, number(value, 1..=i32::MAX)), in_file("backlog", "4096");
    "--socket-mode MODE",
        "Permissions of unix: sockets, in octal from 0 to 777, or umask (default: umask). With umask the sockets have \
         the permissions of the process's umask.",
        |settings, value| {
            let mode = if value == "umask" { Ok(None) } else { mode(value).map(Some) };
            assign(&mut settings.net.mode, mode)
        }, in_file("socket_mode", r#""umask""#);
    "--keepalive IDLE[,INTERVAL[,PROBES]]",
        "Seconds of silence, seconds between probes, and probes after which a peer counts as dead; or off (default: \
         60,10,6). After IDLE seconds of silence on a TCP connection, the daemon probes the peer every INTERVAL \
         seconds, and closes the connection when PROBES of them went unanswered. In this way a machine that died gives \
         back its locks. The daemon gives up after the same total time a peer that leaves a reply unacknowledged, or \
         does not read although its side of the connection is full. The seconds go from 1 to 32767, the probes from 1 \
         to 127; a value that is left out keeps its default. off sends no probes. A client notices after 30 seconds \
         that it is cut off, so a shorter total time gives its lock to another client before exec --on-lost acts.",
        |settings, value| assign(&mut settings.net.keepalive, keepalive(value)), in_file("keepalive", r#""60,10,6""#);
    "--busy-poll MICROSECONDS",
        "Time for which the daemon polls for requests before it sleeps, from 0 to 1000000 (default: 0). Replies are \
         faster, because the daemon need not be woken up, but a processor is always busy. This pays off where a core \
         is free and few clients pass a lock around quickly.",
        |settings, value| assign(&mut settings.busy_poll, number(value, 0..=1_000_000).map(Span::from_micros)),
        in_file("busy_poll", "0");
    "--status-after SECONDS", "Time for which a condition must hold before the status shows it (default: 5).",
        |settings, value| assign(&mut settings.health.after, seconds(value).map(Span::from)),
        in_file("status.after", "5");
    "--status-over SECONDS", "Time for which a condition must not hold before the status ends it (default: 60).",
        |settings, value| assign(&mut settings.health.over, seconds(value).map(Span::from)),
        in_file("status.over", "60");
    "--status-busy PERCENT",
        "Share of busy time in the last minute, in percent, above which the status is critical; 100: never (default: \
         80).",
        |settings, value| assign(&mut settings.health.busy, number(value, 1..=100)), in_file("status.busy", "80");
    "--check",
        "Only check the options and the configuration file, and print the mistakes. The output has all mistakes of the \
         file, of a table in [[ and ]] the first one, 20 at most, each with its line and, where that is known, the \
         right form. The exit status is 0 without mistakes, 1 with mistakes, and 64 if an option is wrong. Settings \
         that have no effect are printed as warnings, also in the log at start and reload; they do not change the \
         status. The check does not bind, so it cannot detect addresses that are in use or not local, and does not \
         know the sockets of a supervisor.",
        |settings, _| assign(&mut settings.is_check, Ok(true));
    "--check-handover", "Only check that the state on standard input can be taken over, as an upgrade does first.",
        |settings, _| assign(&mut settings.is_rehearsal, Ok(true)), hidden();
    "-v, --verbose",
        "Log connections, with peer and service; when given twice, or 2 in a file, also each line in and out. RUST_LOG \
         overrides it.",
        |settings, value| {
            let more = settings.verbosity.saturating_add(1);
            assign(&mut settings.verbosity, verbosity(value, more))
        }, in_file("verbose", "0");
);

impl Default for DaemonSettings {
    fn default() -> Self {
        DaemonSettings {
            config: None,
            config_text: None,
            endpoints: PerService::each(SERVICES, endpoint::default_of),
            services: AllSettings::defaults(SERVICES),
            net: net::Options::default(),
            busy_poll: Span::ZERO,
            health: HealthSettings::default(),
            is_check: false,
            is_rehearsal: false,
            verbosity: 0,
            rules: Vec::new(),
            set_keys: BTreeSet::new(),
        }
    }
}

impl DaemonSettings {
    /// Returns the settings of a command line and of the configuration file in it.
    ///
    /// # Errors
    ///
    /// One line per mistake. The status is that of misuse if any is on the command line.
    pub fn of(given: &Given) -> Result<DaemonSettings, Failure> {
        let mut settings = DaemonSettings::default();
        settings.apply(given);
        let text = settings.config.map(|path| config::read(&path)).transpose()?;
        DaemonSettings::with_file(given, text)
    }

    /// Returns the settings of a command line and of a configuration file with the content `text`. Fails as
    /// [`DaemonSettings::of`] does.
    pub fn with_file(given: &Given, text: Option<String>) -> Result<DaemonSettings, Failure> {
        let (mut settings, mut options) = (DaemonSettings::default(), DaemonSettings::default());
        let mut mistakes = options.apply(given);
        let is_misuse = !mistakes.is_empty();
        if let (Some(path), Some(text)) = (options.config, &text) {
            let applied = config::apply(&path, text, &schema(&described(), &tables()), given, &mut settings);
            mistakes.extend(applied.err());
        }
        settings.apply(given);
        if mistakes.is_empty() {
            mistakes.extend(endpoint::check(&settings.endpoints).err());
            mistakes.extend(ServiceId::all(SERVICES).filter_map(|id| settings.services[id].check().err()));
        }
        if !mistakes.is_empty() {
            let sentence = mistakes.join("\n");
            return Err(if is_misuse { Failure::misuse(sentence) } else { sentence.into() });
        }
        settings.config_text = text;
        Ok(settings)
    }

    /// Returns the settings of a configuration file.
    ///
    /// # Errors
    ///
    /// One sentence about the fault.
    pub fn of_file(path: &str) -> Result<DaemonSettings, String> {
        let (text, mut settings) = (config::read(path)?, DaemonSettings::default());
        config::apply(path, &text, &schema(&described(), &tables()), &Given::default(), &mut settings)?;
        Ok(settings)
    }

    /// Returns the addresses of a service.
    pub fn addresses_of(&self, service: &str) -> Vec<Address> {
        ServiceId::named(SERVICES, service).map_or(Vec::new(), |id| self.endpoints[id].addresses())
    }

    /// Returns the settings of a command line without the configuration file.
    ///
    /// # Errors
    ///
    /// One line per invalid value.
    pub fn without_file(given: &Given) -> Result<DaemonSettings, Failure> {
        let mut settings = DaemonSettings::default();
        let mistakes = settings.apply(given);
        if mistakes.is_empty() { Ok(settings) } else { Err(Failure::misuse(mistakes.join("\n"))) }
    }

    /// Returns the sum of the connections that the services allow. A service without a limit does not count.
    pub fn connections(&self) -> u64 {
        let on = ServiceId::all(SERVICES).map(|id| &self.endpoints[id]).filter(|endpoint| endpoint.is_enabled);
        on.map(|endpoint| endpoint.max_connections).filter(|most| *most < u64::MAX).fold(0, u64::saturating_add)
    }

    /// Returns the policy of the loop.
    pub fn policy(&self) -> net::Policy {
        let max_connections = self.endpoints.map(|endpoint| endpoint.max_connections);
        net::Policy { max_connections, busy_poll: self.busy_poll, health: self.health, rules: Some(self.rules.clone()) }
    }

    /// Returns the options of listeners for a service.
    pub fn net_of(&self, service: ServiceId) -> net::Options {
        let mode = if service.info(SERVICES).is_private { Some(PRIVATE_MODE) } else { self.net.mode };
        net::Options { mode, ..self.net }
    }

    /// Applies a command line, and returns a sentence for each invalid value.
    fn apply(&mut self, given: &Given) -> Vec<String> {
        let rows = described();
        given.apply_with(|row| rows[row].long, |row, value| self.set(row, &value.to_string_lossy()))
    }

    /// Sets the option at this index of [`described`]. The error describes valid values.
    fn set(&mut self, mut row: usize, value: &str) -> Result<(), String> {
        for id in ServiceId::all(SERVICES) {
            let listening = id.info(SERVICES).listening;
            if let Some(option) = listening.get(row) {
                self.set_keys.insert(option.key);
                return (option.set)(&mut self.endpoints[id], value);
            }
            row -= listening.len();
            let own = self.services[id].rows();
            if let Some(option) = own.get(row) {
                self.set_keys.insert(option.key);
                return self.services[id].set(row, value);
            }
            row -= own.len();
        }
        (LOOP[row].set)(self, value)
    }

    /// Applies a table, described by this index of [`tables`].
    fn add(&mut self, mut row: usize, table: &Table) -> Result<(), Misplaced> {
        for id in ServiceId::all(SERVICES) {
            let own = self.services[id].tables();
            if let Some(about) = own.get(row) {
                self.set_keys.insert(about.key);
                return self.services[id].add(row, table);
            }
            row -= own.len();
        }
        (access::TABLES[row].add)(&mut self.rules, table)
    }
}

/// Returns the schema of the configuration file.
fn schema<'a>(rows: &'a [Opt<()>], tables: &'a [TableDoc]) -> config::Schema<'a, DaemonSettings> {
    config::Schema { rows, set: DaemonSettings::set, tables, add: DaemonSettings::add }
}

/// Returns the tables that a configuration file may contain several times: each service's tables, then the loop's.
pub fn tables() -> Vec<TableDoc> {
    let services = SERVICES.iter().flat_map(|info| (info.settings)().tables());
    services.chain(access::TABLES.iter().map(|table| table.about)).collect()
}

/// Returns all options without their setters: each service's options, then the loop's.
pub fn described() -> Vec<Opt<()>> {
    groups().into_iter().flat_map(|(_, options)| options).collect()
}

/// Returns the options by service, each with its name, then the loop's options as `daemon`.
pub fn groups() -> Vec<(&'static str, Vec<Opt<()>>)> {
    let of_service = |info: &&'static Info| {
        let listening = info.listening.iter().map(Opt::describe);
        (info.name, listening.chain((info.settings)().rows()).collect())
    };
    let services = SERVICES.iter().map(of_service);
    services.chain([("daemon", table::described(LOOP))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WordsAllowed;
    use poolcounter_counters::CountersSettings;
    use poolcounter_jobs::JobsSettings;
    use poolcounter_jobs::options::{PartNames, Queue, ShowBodies, StoreKind, Warnings};
    use poolcounter_pools::PoolsSettings;
    use poolcounter_server::Keepalive;
    use std::ffi::OsString;
    use std::time::Duration;

    fn parse(line: &str) -> Result<DaemonSettings, String> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let given = Given::read(&described(), WordsAllowed::None, &arguments)?;
        DaemonSettings::of(&given).map_err(|failure| failure.sentence)
    }

    fn id(name: &str) -> ServiceId {
        ServiceId::named(SERVICES, name).expect("is in the registry")
    }

    fn texts(settings: &DaemonSettings) -> Vec<String> {
        settings.endpoints[id("pools")].addresses().iter().map(Address::to_string).collect()
    }

    #[test]
    fn without_options_it_serves_the_local_machine() {
        let settings = parse("").expect("is well-formed");
        assert_eq!(settings, DaemonSettings::default());
        assert_eq!(texts(&settings), ["127.0.0.1:7531", "[::1]:7531"]);
    }

    #[test]
    fn options_set_their_settings() {
        let line = "-l 10.0.0.1 --listen unix:/run/p -p 99 --backlog 7 --socket-mode 660 --keepalive 5,2 \
                    --max-connections 10 --busy-poll 50 --status-after 1 --status-over 2 --status-busy 3 --max-locks 2 --max-hold 1.5 --max-line 100 -v -vv \
                    --warn-hold 0 --warn-refusals 7 \
                    --counter --counter-listen ::1 --counter-port 98 --counter-max-connections 11 \
                    --counter-buckets 12 --counter-stats-interval 13 --counter-max-memory 14 --counter-warn-refusals 15 \
                    --jobs --jobs-listen ::1 --jobs-port 97 --jobs-max-connections 15 --jobs-store sqlite:/d/j \
                    --jobs-required --jobs-name wiki --jobs-store-timeout 1.5 --jobs-store-queue 19,20 --jobs-max-size 16 --jobs-max-memory 17 --jobs-max-tubes 18 --jobs-admin --jobs-part-names app,task \
                    --jobs-show-bodies none --jobs-bury-ttl 23 \
                    --jobs-warn-age 21 --jobs-alarm-age 22 --jobs-warn-hold 0 --jobs-warn-failures 0.25 --http ::1 --http 10.0.0.1:80";
        let settings = parse(line).expect("is well-formed");
        assert_eq!(texts(&settings), ["10.0.0.1:99", "unix:/run/p"]);
        let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(2), probes: 6 };
        assert_eq!(settings.net, net::Options { backlog: 7, keepalive: Some(keepalive), mode: Some(0o660) });
        let (max_hold, warn_hold) = (Span::from_millis(1_500), Span::FOREVER);
        let ceilings = Vec::new();
        let pools = PoolsSettings { max_locks: 2, max_hold, max_line: 100, warn_hold, warn_refusals: 7, ceilings };
        let counters =
            CountersSettings { buckets: 12, interval: Span::from_secs(13), max_memory: 14 << 20, warn_refusals: 15 };
        let jobs = JobsSettings {
            required: true,
            max_size: 16,
            max_memory: 17 << 20,
            max_tubes: 18,
            admin: true,
            store: StoreKind::Sqlite(Some("/d/j".into())),
            name: "wiki".into(),
            store_timeout: Span::from_millis(1_500),
            queue: Queue { changes: 19, bytes: 20 << 20 },
            part_names: PartNames::parse("app,task").expect("are two words"),
            show_bodies: ShowBodies::None,
            bury_ttl: Span::from_secs(23),
            warnings: Warnings {
                age: Span::from_secs(21),
                alarm_age: Span::from_secs(22),
                hold: Span::FOREVER,
                failures: 250,
            },
            of_tubes: Vec::new(),
        };
        assert_eq!(settings.services, AllSettings::defaults(SERVICES).with(pools).with(counters).with(jobs));
        let most = ["pools", "counters", "jobs", "http"].map(|name| settings.policy().max_connections[id(name)]);
        assert_eq!(most, [10, 11, 15, 100]);
        let http = &settings.endpoints[id("http")];
        let addresses: Vec<String> = http.addresses().iter().map(Address::to_string).collect();
        assert!(http.is_enabled && addresses == ["[::1]:7580", "10.0.0.1:80"], "{addresses:?}");
        assert_eq!(settings.busy_poll, Span::from_micros(50));
        let [after, over] = [1, 2].map(Span::from_secs);
        assert_eq!(settings.health, HealthSettings { after, over, busy: 3, ..HealthSettings::default() });
        let counters = Endpoint { is_enabled: true, listen: vec!["::1".into()], port: 98, max_connections: 11 };
        assert_eq!(settings.endpoints[id("counters")], counters);
        assert_eq!(settings.verbosity, 3);
        assert_eq!(parse("--keepalive off").expect("is well-formed").net.keepalive, None);
    }

    #[test]
    fn wrong_options_are_named() {
        for (line, named) in [
            ("-l 10.0.0.1 -l 10.0.0.1", "10.0.0.1:7531 is listed twice"),
            ("--counter --counter-port 7531", "127.0.0.1:7531 is listed twice"),
            ("-l 10.0.0.1 -l 0.0.0.0", "cannot listen on both 10.0.0.1:7531 and 0.0.0.0:7531"),
            ("-l unix:/a -l unix:/a", "unix:/a is listed twice"),
            ("-l nowhere", "--listen: \"nowhere\" is not an address"),
            ("--port 65536", "--port: \"65536\" is not a number from 0 to 65535"),
            ("--backlog 0", "--backlog: \"0\""),
            ("--socket-mode 9", "--socket-mode: \"9\""),
            ("--keepalive 1,2,3,4", "--keepalive: \"1,2,3,4\""),
            ("--keepalive 0", "--keepalive: \"0\""),
            ("--busy-poll -1", "--busy-poll: \"-1\""),
            ("--max-hold x", "--max-hold: \"x\" is not a number of seconds"),
            ("--max-line 1", "--max-line: \"1\""),
            ("--counter-stats-interval 9", "--counter-stats-interval: \"9\""),
            ("--counter-listen x", "--counter-listen: \"x\" is not an address"),
            ("--jobs-store disk", "--jobs-store: \"disk\" is not sqlite:PATH, postgres:URL or memory"),
            ("--jobs-max-size 536870913", "--jobs-max-size: \"536870913\" is not a number from 1 to 536870912"),
            ("--jobs-part-names app", "--jobs-part-names: \"app\" is not two different words of a to z and _"),
            ("--jobs-part-names app,app", "--jobs-part-names: \"app,app\" is not two different words of a to z and _"),
            ("--jobs-part-names app,Task", "--jobs-part-names: \"app,Task\" is not two different words"),
            ("--jobs-part-names tube,task", "and none of cmd, current_jobs, le, runner, store, tube"),
            ("--http-host a:80", "--http-host: \"a:80\" is not the name of a host, without a port"),
            ("--frobnicate", "frobnicate"),
            ("surplus", "unexpected argument \"surplus\""),
            ("-p", "-p needs a value"),
            (
                "-l localhost",
                "--listen: \"localhost\" is not an address: names of hosts are not resolved; use 127.0.0.1",
            ),
            ("--http 7580", "--http: \"7580\" is not an address; use 127.0.0.1:7580"),
            ("--members-listen localhost:1", "use 127.0.0.1:1"),
            ("--jobs-listen /run/j", "use unix:/run/j"),
            ("--admin /run/a", "use unix:/run/a"),
            ("--jobs-store Memory", "use memory"),
            ("--jobs-store /var/jobs.db", "use sqlite:/var/jobs.db"),
            ("--job", "unknown option --job; did you mean --jobs?"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(named) && !error.contains('\n'), "{line}: {error}");
        }
    }

    #[test]
    fn addresses_that_only_look_alike_are_free() {
        for line in
            ["-l 127.0.0.1:0 -l 127.0.0.1:0", "-l 0.0.0.0 -l ::", "-l 0.0.0.0 -l 10.0.0.1:1", "--counter-port 7531"]
        {
            assert_eq!(parse(line).map(|_| ()), Ok(()), "{line}");
        }
        let of_length = |len: usize| parse(&format!("-l unix:/{}", "x".repeat(len - 1))).map(|_| ());
        assert_eq!(of_length(107), Ok(()));
        assert!(of_length(108).expect_err("is too long").ends_with("is not a path of at most 107 bytes"));
    }

    /// Option names and configuration keys correspond one to one.
    #[test]
    fn names_in_the_file_follow_from_those_of_options() {
        let only_given = ["config", "check", "check-handover", "version", "help"];
        for option in described() {
            let rule = option.key.strip_suffix(".enable").unwrap_or(option.key).replace(['.', '_'], "-");
            assert!(rule == option.long || only_given.contains(&option.long), "--{}: {}", option.long, option.key);
        }
    }

    #[test]
    fn everything_can_stand_in_a_file() {
        let text = "listen = ['10.0.0.1', 'unix:/run/p']\nport = 99\nbacklog = 7\nsocket_mode = 660\n".to_string()
            + "keepalive = '5,2'\nmax_connections = 1_0\nbusy_poll = 50\nmax_locks = 2\nmax_hold = 1.5\n"
            + "max_line = 100\nhttp = '10.0.0.1:80'\nhttp_host = ['A.b', 'c']\nhttp_admin = true\nadmin = 'unix:/run/a'\nverbose = 2\nwarn_hold = 0\nwarn_refusals = 7\n"
            + "counter.enable = true\ncounter.listen = '::1'\ncounter.port = 98\ncounter.max_connections = 11\n"
            + "counter.buckets = 12\ncounter.stats_interval = 13\ncounter.max_memory = 14\n"
            + "jobs.enable = true\njobs.listen = '::1'\njobs.port = 96\njobs.max_connections = 15\n"
            + "jobs.store = 'memory'\njobs.store_timeout = 1.5\njobs.store_queue = '19,20'\njobs.max_size = 16\njobs.max_memory = 17\njobs.max_tubes = 18\n"
            + "jobs.name = 'wiki'\njobs.required = true\njobs.admin = true\njobs.part_names = 'app,task'\n"
            + "members.enable = true\nmembers.listen = '::1'\nmembers.port = 97\nmembers.max_connections = 15\n"
            + "members.max = 16\nmembers.admin = false\nmembers.warn_wait = 23\ncounter.warn_refusals = 15\n"
            + "members.store = 'sqlite:/d/m'\nmembers.restart_grace = 24\n"
            + "status.after = 1\nstatus.over = 2\nstatus.busy = 3\n"
            + "jobs.show_bodies = \"none\"\njobs.bury_ttl = 23\njobs.warn_age = 21\njobs.alarm_age = 22\njobs.warn_hold = 0\njobs.warn_failures = 0.25\n";
        let mut settings = DaemonSettings::default();
        let mistakes = config::apply_text(&text, &schema(&described(), &tables()), &Given::default(), &mut settings);
        assert_eq!(mistakes, []);
        let line = "-l 10.0.0.1 -l unix:/run/p -p 99 --backlog 7 --socket-mode 660 --keepalive 5,2 \
                    --max-connections 10 --busy-poll 50 --status-after 1 --status-over 2 --status-busy 3 --max-locks 2 --max-hold 1.5 --max-line 100 --http 10.0.0.1:80 --http-host a.b --http-host c --http-admin --admin unix:/run/a -vv \
                    --warn-hold 0 --warn-refusals 7 \
                    --counter --counter-listen ::1 --counter-port 98 --counter-max-connections 11 \
                    --counter-buckets 12 --counter-stats-interval 13 --counter-max-memory 14 --counter-warn-refusals 15 --members-warn-wait 23 \
                    --jobs-show-bodies none --jobs-bury-ttl 23 \
                    --jobs-warn-age 21 --jobs-alarm-age 22 --jobs-warn-hold 0 --jobs-warn-failures 0.25 \
                    --jobs --jobs-listen ::1 --jobs-port 96 --jobs-max-connections 15 --jobs-store memory \
                    --jobs-required --jobs-name wiki --jobs-store-timeout 1.5 --jobs-store-queue 19,20 --jobs-max-size 16 --jobs-max-memory 17 --jobs-max-tubes 18 --jobs-admin --jobs-part-names app,task \
                    --members --members-listen ::1 --members-port 97 --members-max-connections 15 --members-max 16 \
                    --members-store sqlite:/d/m --members-restart-grace 24 --members-admin false";
        assert_eq!(settings, parse(line).expect("is well-formed"));
        assert_eq!(text.lines().count(), described().iter().filter(|option| !option.key.is_empty()).count());
    }
}
