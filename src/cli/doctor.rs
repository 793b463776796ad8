//! `doctor`: looks for what keeps the daemon of this machine from serving well, and says what to do.

use super::command::Failure;
use super::config_command::{file_option, path_of};
use super::options::DaemonSettings;
use super::report::{self, Answer};
use super::servers::{Servers, TIMEOUTS};
use super::services::SERVICES;
use super::table::Given;
use super::terminal::{aligned, print, printable};
use nix::sys::statvfs::statvfs;
use poolcounter_client::Client;
use poolcounter_core::address::Address;
use poolcounter_jobs::options::{JobsSettings, StoreKind};
use poolcounter_service::container::ServiceId;
use poolcounter_service::health::{Level, grouped};
use poolcounter_service::options::{Opt, assign};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Time that a connection may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Descriptors that are enough for a busy day.
const ENOUGH_DESCRIPTORS: u64 = 65_535;
/// Free space of a disk below which jobs may soon not be kept, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;
/// Writes of which the median is told, and the time above which each durable put is slow.
const SYNCS: usize = 9;
const SLOW_SYNC: Duration = Duration::from_millis(20);
/// Difference of two clocks from which on delays of jobs and ages are wrong, in seconds.
const CLOCK_SKEW: f64 = 2.0;

/// Settings that the options make.
#[derive(Default)]
struct DoctorSettings {
    config: Option<String>,
}

/// The options.
const OPTIONS: &[Opt<DoctorSettings>] =
    &[file_option(|settings, value| assign(&mut settings.config, Ok(Some(value.into())))), Opt::VERSION, Opt::HELP];

/// One thing that was looked at.
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

/// The command. The status is 0 when all is well, 1 with a warning, and 2 when something is critical.
///
/// # Errors
///
/// When nothing can be printed.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut options = DoctorSettings::default();
    given.apply(OPTIONS, &mut options)?;
    let path = path_of(options.config);
    let (settings, first) = match path.as_deref().map(|path| (path, DaemonSettings::of_file(path))) {
        None => {
            (DaemonSettings::default(), ok("settings", "there is no configuration file: the defaults are looked at"))
        }
        Some((path, Ok(settings))) => (settings, ok("settings", format!("{path} has no mistake"))),
        Some((_, Err(sentence))) => (DaemonSettings::default(), critical("settings", sentence.replace('\n', "; "))),
    };
    let mut findings = vec![first];
    findings.extend(listeners(&settings));
    findings.push(administration(&settings));
    findings.extend(daemon(&settings));
    findings.push(backlog(settings.net.backlog, fs::read_to_string("/proc/sys/net/core/somaxconn").ok()));
    findings.extend(store(&settings));
    let row = |Finding(level, about, sentence): &Finding| {
        vec![level.word().to_string(), (*about).to_string(), printable(sentence.as_bytes())]
    };
    print(&(aligned(&findings.iter().map(row).collect::<Vec<_>>()).join("\n") + "\n"))?;
    Ok(ExitCode::from(findings.iter().map(|finding| finding.0).max().unwrap_or_default() as u8))
}

/// Looks whether something listens at each address of the settings.
fn listeners(settings: &DaemonSettings) -> Vec<Finding> {
    let addresses = ServiceId::all(SERVICES).flat_map(|id| {
        let name = id.info(SERVICES).name;
        settings.endpoints[id].addresses().into_iter().map(move |address| (name, address))
    });
    let look = |(name, address): (&str, Address)| {
        let connected = connect(&address);
        match connected {
            Ok(()) => ok("port", format!("{name} listen at {address}")),
            Err(error) => critical(
                "port",
                format!("{name} cannot be reached at {address}: {error}: is the daemon started with these settings?"),
            ),
        }
    };
    addresses.map(look).collect()
}

/// Connects to an address, and says nothing there.
fn connect(address: &Address) -> std::io::Result<()> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        Address::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE).map(drop),
        Address::Proxied(address) => connect(address),
    }
}

/// Looks at the socket for administrators.
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
        Err(error) => critical("admin", format!("{}: {error}", path.display())),
    }
}

/// Asks the daemon about itself.
fn daemon(settings: &DaemonSettings) -> Vec<Finding> {
    let is_plain = |address: &Address| !matches!(address, Address::Proxied(_));
    let Some(address) = settings.addresses_of("pools").into_iter().find(is_plain) else { return Vec::new() };
    let servers = Servers::default().only(&address.to_string());
    let client = Client::with(servers.placement(), TIMEOUTS);
    match report::ask(&client, 0).into_iter().next() {
        Some((_, Ok(Answer::Report(report)))) => about_report(&report),
        Some((_, Ok(Answer::Refused))) => {
            vec![warning("daemon", "it tells nothing of itself: it is another daemon, or an older release")]
        }
        // The port says why.
        _ => Vec::new(),
    }
}

fn about_report(report: &Value) -> Vec<Finding> {
    let (own, version) = (env!("CARGO_PKG_VERSION"), report["version"].as_str().unwrap_or_default());
    let version = match version == own {
        true => ok("version", format!("daemon and commands are of version {own}")),
        false => warning(
            "version",
            format!(
                "the daemon is of version {version}, the commands of {own}: reload the daemon, which loses no lock"
            ),
        ),
    };
    let number = |name: &str| report["process"][name].as_u64().unwrap_or(0);
    let (open, most) = (number("open_fds"), number("max_fds"));
    let used = format!("{} of {} are open", grouped(open), grouped(most));
    let descriptors = match most < ENOUGH_DESCRIPTORS {
        true => warning("descriptors", format!("{used}: raise LimitNOFILE or ulimit -n to {ENOUGH_DESCRIPTORS}")),
        false => ok("descriptors", used),
    };
    let told = report["started_at"].as_f64().unwrap_or(0.0) + report["uptime"].as_f64().unwrap_or(0.0);
    let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
    let skew = (here - told).abs();
    let clock = match skew > CLOCK_SKEW {
        true => warning(
            "clock",
            format!(
                "the daemon's clock is {skew:.0} s from this one: it was set after the daemon was started; reload the daemon"
            ),
        ),
        false => ok("clock", "the daemon's clock is right"),
    };
    vec![version, descriptors, clock]
}

/// Compares the queue of connections with the limit of the system.
fn backlog(wanted: i32, system: Option<String>) -> Finding {
    let Some(most) = system.and_then(|text| text.trim().parse::<i32>().ok()) else {
        return ok("backlog", "the limit of the system is not known");
    };
    match most < wanted {
        true => warning(
            "backlog",
            format!("{most} connections may wait to be accepted, not {wanted}: sysctl net.core.somaxconn={wanted}"),
        ),
        false => ok("backlog", format!("{wanted} connections may wait to be accepted")),
    }
}

/// Looks at the disk of the jobs.
fn store(settings: &DaemonSettings) -> Vec<Finding> {
    let is_enabled = ServiceId::named(SERVICES, "jobs").is_some_and(|id| settings.endpoints[id].is_enabled);
    let Some(jobs) = settings.services.get::<JobsSettings>().filter(|_| is_enabled) else { return Vec::new() };
    match &jobs.store {
        StoreKind::Memory => vec![warning("store", "jobs are in memory alone: they are lost when the daemon ends")],
        StoreKind::Sqlite(Some(path)) => disk(path),
        StoreKind::Sqlite(None) => vec![ok("store", "jobs.db is where the daemon was started")],
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(_) => vec![ok("store", "jobs are in PostgreSQL: poolcounter status tells of it")],
    }
}

fn disk(path: &Path) -> Vec<Finding> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let space = match statvfs(folder) {
        Ok(about) => {
            let free = about.blocks_available().saturating_mul(about.fragment_size());
            let sentence = format!("{} MiB are free in {}", grouped(free >> 20), folder.display());
            if free < LITTLE_SPACE { warning("space", sentence + ": make room") } else { ok("space", sentence) }
        }
        Err(error) => critical("space", format!("{}: {error}", folder.display())),
    };
    let sync = match sync_time(folder) {
        Ok(time) if time > SLOW_SYNC => warning(
            "sync",
            format!("a write takes {} ms to be on the disk: each durable put waits for one", time.as_millis()),
        ),
        Ok(time) => ok("sync", format!("a write takes {:.1} ms to be on the disk", time.as_secs_f64() * 1e3)),
        Err(error) => warning("sync", format!("{}: {error}: run this as the daemon's user", folder.display())),
    };
    vec![space, sync]
}

/// Returns the median time that a small write takes to be durable. Its file is removed.
fn sync_time(folder: &Path) -> std::io::Result<Duration> {
    let path: PathBuf = folder.join(format!(".poolcounter-doctor-{}", std::process::id()));
    let measure = || {
        let mut file = File::create_new(&path)?;
        let mut times = Vec::new();
        for _ in 0..SYNCS {
            let start = Instant::now();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[SYNCS / 2])
    };
    let time = measure();
    let _ = fs::remove_file(&path);
    time
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_queue_is_told() {
        assert_eq!(backlog(4096, Some("4096\n".into())).0, Level::Ok);
        let Finding(level, _, sentence) = backlog(4096, Some("128\n".into()));
        assert_eq!(level, Level::Warning);
        assert!(sentence.ends_with("sysctl net.core.somaxconn=4096"), "{sentence}");
        assert_eq!(backlog(4096, None).0, Level::Ok);
    }

    #[test]
    fn an_older_daemon_with_few_descriptors_is_told() {
        let report = serde_json::json!({"version": "0.1", "process": {"open_fds": 9, "max_fds": 1024}, "started_at": 1.0, "uptime": 1.0});
        let levels: Vec<_> = about_report(&report).iter().map(|finding| (finding.0, finding.1)).collect();
        assert_eq!(levels, ["version", "descriptors", "clock"].map(|about| (Level::Warning, about)));
    }
}
