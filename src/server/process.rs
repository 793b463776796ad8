//! Figures of the process from the system: processor time, memory, descriptors.

use log::LevelFilter;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeVal;
use poolcounter_service::contract::{Process, ProcessUsage};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Level that an administrator has set, as a number; [`AS_STARTED`] without one.
static LOG_LEVEL: AtomicUsize = AtomicUsize::new(AS_STARTED);
/// Larger than any level.
const AS_STARTED: usize = usize::MAX;

/// Returns the log level that an administrator has set; None for that of the start.
pub fn log_level() -> Option<LevelFilter> {
    let level = LOG_LEVEL.load(Ordering::Relaxed);
    LevelFilter::iter().find(|known| *known as usize == level)
}

/// The process, as Linux describes it.
pub struct System;

impl Process for System {
    fn usage(&self) -> ProcessUsage {
        let micros = |time: TimeVal| u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0);
        let cpu =
            getrusage(UsageWho::RUSAGE_SELF).map_or(0, |used| micros(used.user_time()) + micros(used.system_time()));
        ProcessUsage {
            pid: std::process::id(),
            cpu: cpu as f64 / 1e6,
            resident_bytes: resident_bytes(),
            open_fds: open_fds(),
            max_fds: self.max_fds(),
        }
    }

    fn max_fds(&self) -> u64 {
        getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft)
    }

    fn set_log_level(&self, level: Option<LevelFilter>) {
        LOG_LEVEL.store(level.map_or(AS_STARTED, |level| level as usize), Ordering::Relaxed);
        if let Some(level) = level {
            log::set_max_level(log::max_level().max(level));
        }
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the number of open descriptors. Linux reports it as the size of the directory since version 6.2. Before,
/// each descriptor is an entry to be read: some milliseconds for ten thousand.
fn open_fds() -> u64 {
    const DIRECTORY: &str = "/proc/self/fd";
    match fs::metadata(DIRECTORY).map_or(0, |directory| directory.len()) {
        // One of the entries is the descriptor that reads the directory.
        0 => fs::read_dir(DIRECTORY).map_or(0, |entries| entries.count().saturating_sub(1) as u64),
        len => len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_reports_usage_of_this_process() {
        let before = System.usage();
        assert!(
            before.resident_bytes > 500_000 && before.open_fds >= 3 && before.max_fds > before.open_fds,
            "{before:?}"
        );
        let files: Vec<_> = (0..20).map(|_| fs::File::open("/dev/null").expect("is there")).collect();
        // Other tests run at the same time, and may close files.
        assert!(System.usage().open_fds + 10 > before.open_fds + files.len() as u64);
    }
}
