//! The memory of the process, as the system reports it.

use std::fs;

/// Returns the resident memory of the process in bytes; zero where the system does not report it.
pub fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
