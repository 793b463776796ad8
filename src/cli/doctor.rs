//! `doctor`: checks for faults that keep the daemon of this machine from serving well, and prints remedies.

use super::command::Exit;
use super::config_command::{file_option, path_of};
use super::options::{self, DaemonSettings};
use super::report::{DENIED, NO_REPORTS, snapshots};
use super::servers::{Servers, TIMEOUTS};
use super::services::SERVICES;
use super::table::{Given, WordsAllowed};
use super::terminal::{aligned, print, printable};
use nix::sys::statvfs::statvfs;
use poolcounter_client::{Client, SILENCE_LIMIT, connect_unix};
use poolcounter_core::Address;
use poolcounter_core::text::plain;
use poolcounter_jobs::options::{JobsSettings, StoreKind};
use poolcounter_server::Keepalive;
use poolcounter_service::container::ServiceId;
use poolcounter_service::health::grouped;
use poolcounter_service::options::{Opt, assign};
use poolcounter_service::report::{Level, Snapshot};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use std::{env, fs};

/// Time limit of a connection attempt.
const PATIENCE: Duration = Duration::from_secs(1);
/// Number of descriptors below which the daemon of a fleet turns clients away on a busy day.
pub const ENOUGH_DESCRIPTORS: u64 = 65_535;
/// Free disk space in bytes below which jobs may soon not be stored.
const LITTLE_SPACE: u64 = 1 << 30;
/// Free disk space in bytes up to which jobs cannot be stored.
const NO_SPACE: u64 = (1 << 20) - 1;
/// Clock difference in seconds from which delays of jobs and ages are wrong.
const CLOCK_SKEW: f64 = 2.0;

/// Remedy for a missing permission.
const AS_USER: &str = ": run this as the daemon's user or as root";

/// Settings of the command.
#[derive(Default)]
pub struct DoctorSettings {
    config: Option<String>,
}

/// Options of the command.
pub const OPTIONS: &[Opt<DoctorSettings>] = &[Opt {
    doc: "Check the daemon with this configuration file (default: the options and the file of the daemon that \
              answers; if none answers, /etc/poolcounter.toml, if it exists).",
    ..file_option(|settings, value| assign(&mut settings.config, Ok(Some(value.into()))))
}];

/// Result of one check.
struct Finding(Level, &'static str, String);

fn ok(about: &'static str, sentence: impl Into<String>) -> Finding {
    Finding(Level::Ok, about, sentence.into())
}

fn warning(about: &'static str, sentence: impl Into<String>) -> Finding {
    Finding(Level::Warning, about, sentence.into())
}

fn critical(about: &'static str, sentence: impl Into<String>) -> Finding {
    Finding(Level::Critical, about, sentence.into())
}

/// Returns the sentence of a check that is well, or the warning.
fn judged(is_well: bool, about: &'static str, well: String, bad: String) -> Finding {
    if is_well { ok(about, well) } else { warning(about, bad) }
}

/// Runs the command. The status is 0 if all is well, 1 after a warning, and 2 after a critical one.
///
/// # Errors
///
/// Fails if the result cannot be printed.
pub fn run(given: &Given) -> Exit {
    let own = given.settings(OPTIONS, DoctorSettings::default())?;
    let running = if own.config.is_none() { of_running() } else { None };
    let (about, settings) = match (running, path_of(own.config)) {
        (Some(running), _) => running,
        (None, Some(path)) => (format!("{path} has no mistake"), DaemonSettings::of_file(&path)),
        (None, None) => {
            let about = "no daemon answers and there is no configuration file: these are the defaults";
            (about.into(), Ok(DaemonSettings::default()))
        }
    };
    let findings = match settings {
        Ok(settings) => of_daemon(ok("settings", about), &settings),
        Err(sentence) => {
            let rest = warning("settings", "the other checks need a file without mistakes");
            vec![critical("settings", sentence.replace('\n', "; ")), rest]
        }
    };
    let row = |Finding(level, about, sentence): &Finding| {
        vec![level.word().to_string(), (*about).to_string(), printable(plain(sentence).as_bytes())]
    };
    print(&(aligned(&findings.iter().map(row).collect::<Vec<_>>()).join("\n") + "\n"))?;
    Ok(ExitCode::from(findings.iter().map(|finding| finding.0).max().unwrap_or_default() as u8))
}

/// Returns the settings of the daemon that answers: the settings in the command line of its process, and in the file named
/// there. Relative paths begin at its directory, and the default place of its jobs is its own.
fn of_running() -> Option<(String, Result<DaemonSettings, String>)> {
    let client = Client::with(Servers::default().placement(), TIMEOUTS);
    let reports = snapshots(&client, 0).into_iter().filter_map(|(_, report)| report.ok());
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok();
    let (pid, line) = reports.map(|report| report.process.pid).find_map(|pid| Some((pid, line(pid)?)))?;
    let mut words = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).map(OsStr::from_bytes);
    words.next().filter(|program| program.to_string_lossy().contains("poolcounter"))?;
    let words: Vec<OsString> = words.filter(|word| *word != "serve").map(OsStr::to_owned).collect();
    let given = Given::read(&options::described(), WordsAllowed::None, &words).ok()?;
    let _ = env::set_current_dir(format!("/proc/{pid}/cwd"));
    let mut settings = DaemonSettings::of(&given).map_err(|failure| failure.sentence);
    if let Some(JobsSettings { store: StoreKind::Sqlite(path @ None), .. }) =
        settings.as_mut().ok().and_then(|settings| settings.services.get_mut())
    {
        *path = default_store(pid);
    }
    Some((format!("the daemon is process {pid}, and its options and file have no mistake"), settings))
}

/// Returns the file in which a process keeps jobs by default; None if this user may not see that.
fn default_store(pid: u32) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let named = environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(b"STATE_DIRECTORY="));
    let folder = match named.and_then(|folders| folders.split(|byte| *byte == b':').next()) {
        Some(first) => PathBuf::from(OsStr::from_bytes(first)),
        None => fs::read_link(format!("/proc/{pid}/cwd")).ok()?,
    };
    Some(folder.join("jobs.db"))
}

/// Checks the daemon with these settings, and the disk of its jobs.
fn of_daemon(first: Finding, settings: &DaemonSettings) -> Vec<Finding> {
    let ports = ports(settings);
    let (told, drains) = daemon(&ports);
    let mut findings = vec![first];
    findings.extend(ports.iter().map(|port| about_port(port, drains)));
    findings.push(administration(settings));
    findings.extend(told);
    findings.push(keepalive_of(settings));
    findings.extend(store(settings));
    findings
}

/// Address of the settings: the name of its service, and the result of a connection attempt.
struct Port {
    service: &'static str,
    address: Address,
    connected: io::Result<()>,
}

/// Connects to each address of the settings.
fn ports(settings: &DaemonSettings) -> Vec<Port> {
    let addresses = ServiceId::all(SERVICES).flat_map(|id| {
        let service = id.info(SERVICES).name;
        settings.endpoints[id].addresses().into_iter().map(move |address| (service, address))
    });
    addresses.map(|(service, address)| Port { service, connected: connect(&address), address }).collect()
}

fn about_port(Port { service, address, connected }: &Port, drains: bool) -> Finding {
    let Err(error) = connected else { return ok("port", format!("{service} listen at {address}")) };
    let fault = format!("{service} cannot be reached at {address}: {error}");
    match error.kind() {
        ErrorKind::PermissionDenied => warning("port", fault + AS_USER),
        ErrorKind::TimedOut => critical("port", fault),
        _ if drains => critical("port", fault + ": the daemon drains"),
        _ => critical("port", fault + ": is the daemon started with these settings, or does it drain?"),
    }
}

/// Connects to an address, and sends nothing.
fn connect(address: &Address) -> io::Result<()> {
    match address {
        Address::Unix(path) => connect_unix(path, PATIENCE).map(drop),
        Address::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).map(drop),
        Address::Proxied(address) => connect(address),
    }
}

/// Checks the administration socket.
fn administration(settings: &DaemonSettings) -> Finding {
    let Some(Address::Unix(path)) = settings.addresses_of("admin").into_iter().next() else {
        return warning(
            "admin",
            "there is no administration socket: set admin = [\"unix:/run/poolcounter/admin.sock\"]",
        );
    };
    match fs::metadata(&path) {
        Ok(file) if file.permissions().mode() & 0o077 != 0 => {
            warning("admin", format!("{} can be opened by others: chmod 600 it", path.display()))
        }
        Ok(_) => ok("admin", format!("{} is for its user and root alone", path.display())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            warning("admin", format!("{}: {error}{AS_USER}", path.display()))
        }
        Err(error) => critical("admin", format!("{}: {error}", path.display())),
    }
}

/// Asks the daemon for its status, at the first address that replies. Returns whether it drains, too.
fn daemon(ports: &[Port]) -> (Vec<Finding>, bool) {
    let is_asked = |port: &&Port| {
        // The check of the port reports other addresses.
        port.service == "pools" && port.connected.is_ok() && !matches!(port.address, Address::Proxied(_))
    };
    let mut findings = Vec::new();
    for Port { address, .. } in ports.iter().filter(is_asked) {
        let servers = Servers::default().only(&address.to_string());
        for (_, report) in snapshots(&Client::with(servers.placement(), TIMEOUTS), 0) {
            match report {
                Ok(report) => {
                    findings.extend(about_report(&report));
                    return (findings, is_draining(&report));
                }
                Err(reason) if reason == DENIED || reason == NO_REPORTS => {
                    findings.push(warning("daemon", format!("{reason} at {address}")));
                }
                Err(reason) => findings.push(critical("daemon", format!("{reason} at {address}"))),
            }
        }
    }
    (findings, false)
}

/// Returns true if the administration tells of a drain.
fn is_draining(report: &Snapshot) -> bool {
    let mut figures = report.services.iter().flat_map(|service| &service.figures);
    figures.any(|figure| figure.name == "draining" && figure.value > 0.0)
}

fn about_report(report: &Snapshot) -> Vec<Finding> {
    let (own, version) = (env!("CARGO_PKG_VERSION"), &*report.version);
    let version = judged(
        version == own,
        "version",
        format!("daemon and commands are of version {own}"),
        format!("the daemon is of version {version}, the commands of {own}: poolcounter admin RELOAD loses no lock"),
    );
    let (open, most) = (report.process.open_fds, report.process.max_fds);
    let used = format!("{} of {} are open", grouped(open), grouped(most));
    let descriptors = match most < ENOUGH_DESCRIPTORS {
        true => warning("descriptors", format!("{used}: raise LimitNOFILE or ulimit -n to {ENOUGH_DESCRIPTORS}")),
        false => ok("descriptors", used),
    };
    let told = report.started_at + report.uptime;
    let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    let skew = (here - told).abs();
    let fault = "it was set after the daemon was started; reload the daemon";
    let clock = judged(
        skew <= CLOCK_SKEW,
        "clock",
        "the daemon's clock is right".into(),
        format!("the daemon's clock is {skew:.0} s from this one: {fault}"),
    );
    let mut findings = vec![version, descriptors, clock];
    if is_draining(report) {
        findings.push(warning("daemon", "it drains: new requests are refused until poolcounter admin UNDRAIN"));
    }
    for health in &report.health {
        for condition in health.conditions.iter().filter(|condition| condition.level == Level::Critical) {
            let help = if condition.command.is_empty() { "" } else { ": poolcounter " };
            let sentence = format!("{}: {}{help}{}", health.title, condition.sentence, condition.command);
            findings.push(critical("health", sentence));
        }
    }
    findings
}

/// Compares the time after which the daemon gives back the locks of a machine that is gone with the time after which a
/// holder notices that it is cut off.
fn keepalive_of(settings: &DaemonSettings) -> Finding {
    let Some(time) = settings.net.keepalive.map(Keepalive::total) else {
        return ok("keepalive", "a machine that is gone keeps its locks");
    };
    let (gone, limit) = (time.as_secs(), SILENCE_LIMIT.as_secs());
    let fault = format!("their holders notice that after {limit} s, too late for --on-lost: raise keepalive");
    judged(
        time > SILENCE_LIMIT,
        "keepalive",
        format!("a machine that is gone gives back its locks after {gone} s"),
        format!("locks are given back after {gone} s of silence, and {fault}"),
    )
}

/// Checks the disk of the jobs.
fn store(settings: &DaemonSettings) -> Vec<Finding> {
    let Some(store) = jobs_store(settings) else { return Vec::new() };
    match store {
        StoreKind::Memory => vec![warning("store", "jobs are in memory alone: they are lost when the daemon ends")],
        StoreKind::Sqlite(Some(path)) => vec![disk(folder_of(path))],
        StoreKind::Sqlite(None) => {
            vec![ok("store", "the place of jobs.db is known while the daemon runs: run doctor as root, without -c")]
        }
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(_) => vec![ok("store", "jobs are in PostgreSQL: poolcounter status tells of it")],
    }
}

/// Returns the store of the jobs, if they are on.
pub(super) fn jobs_store(settings: &DaemonSettings) -> Option<&StoreKind> {
    let is_enabled = ServiceId::named(SERVICES, "jobs").is_some_and(|id| settings.endpoints[id].is_enabled);
    settings.services.get::<JobsSettings>().filter(|_| is_enabled).map(|jobs| &jobs.store)
}

/// Returns the directory of a file.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn disk(folder: &Path) -> Finding {
    match statvfs(folder) {
        Ok(about) => space(about.blocks_available().saturating_mul(about.fragment_size()), folder),
        Err(error) => critical("space", format!("{}: {error}", folder.display())),
    }
}

fn space(free: u64, folder: &Path) -> Finding {
    let sentence = format!("{} MiB are free in {}", grouped(free >> 20), folder.display());
    match free {
        0..=NO_SPACE => critical("space", sentence + ": make room"),
        _ if free < LITTLE_SPACE => warning("space", sentence + ": make room"),
        _ => ok("space", sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_service::peer::ProcessUsage;
    use poolcounter_service::report::ShownCondition;
    use poolcounter_service::report::snapshot::{ShownFigure, ShownHealth, ShownService};

    #[test]
    fn a_keepalive_shorter_than_the_clients_is_reported() {
        let of = |keepalive| {
            let mut settings = DaemonSettings::default();
            settings.net.keepalive = keepalive;
            keepalive_of(&settings)
        };
        let secs = Duration::from_secs;
        let short = Keepalive { idle: secs(15), interval: secs(5), probes: 3 };
        for (keepalive, level) in [
            (None, Level::Ok),
            (Some(Keepalive::default()), Level::Ok),
            (Some(Keepalive { idle: secs(16), ..short }), Level::Ok),
            (Some(short), Level::Warning),
            (Some(Keepalive { idle: secs(10), ..short }), Level::Warning),
        ] {
            let Finding(found, _, sentence) = of(keepalive);
            assert_eq!(found, level, "{sentence}");
        }
    }

    #[test]
    fn another_version_with_few_descriptors_is_reported() {
        let process = ProcessUsage { open_fds: 9, max_fds: 1024, ..ProcessUsage::default() };
        let report = Snapshot { version: "0.1".into(), process, ..Snapshot::default() };
        let levels: Vec<_> = about_report(&report).iter().map(|finding| (finding.0, finding.1)).collect();
        assert_eq!(levels, ["version", "descriptors", "clock"].map(|about| (Level::Warning, about)));
    }

    #[test]
    fn a_drain_and_critical_conditions_of_a_report_are_findings() {
        let condition = |level, command: &str| ShownCondition {
            name: "c".into(),
            level,
            subject: String::new(),
            sentence: "s".into(),
            badness: 1.0,
            since: 1.0,
            until: None,
            link: "/".into(),
            command: command.into(),
        };
        let conditions = [(Level::Critical, "jobs summary"), (Level::Warning, ""), (Level::Critical, "")];
        let conditions = conditions.map(|(level, command)| condition(level, command)).into();
        let (level, sentence) = (Level::Critical, String::new());
        let health = vec![ShownHealth { title: "Jobs".into(), level, sentence, conditions, more: 0 }];
        let figure = ShownFigure { name: "draining".into(), value: 1.0, ..ShownFigure::default() };
        let services = vec![ShownService { figures: vec![figure], ..ShownService::default() }];
        let report = Snapshot { services, health, ..Snapshot::default() };
        let told: Vec<_> =
            about_report(&report).into_iter().skip(3).map(|Finding(level, _, told)| (level, told)).collect();
        let critical = |told: &str| (Level::Critical, told.to_string());
        assert_eq!(told[1..], [critical("Jobs: s: poolcounter jobs summary"), critical("Jobs: s")]);
        assert!(told[0].0 == Level::Warning && told[0].1.starts_with("it drains"), "{told:?}");
        assert!(!is_draining(&Snapshot::default()));
    }

    #[test]
    fn a_remedy_fits_the_fault() {
        let error = |kind| Err(io::Error::from(kind));
        let port = |kind| Port { service: "admin", address: Address::Unix("/s".into()), connected: error(kind) };
        for (kind, drains, level, remedy) in [
            (ErrorKind::PermissionDenied, false, Level::Warning, AS_USER),
            (ErrorKind::ConnectionRefused, true, Level::Critical, ": the daemon drains"),
            (ErrorKind::ConnectionRefused, false, Level::Critical, "with these settings, or does it drain?"),
        ] {
            let Finding(found, _, sentence) = about_port(&port(kind), drains);
            assert!(found == level && sentence.ends_with(remedy), "{sentence}");
        }
        assert_eq!(
            [0, 5 << 20, 5 << 30].map(|free| space(free, Path::new("/d")).0),
            [Level::Critical, Level::Warning, Level::Ok]
        );
    }
}
