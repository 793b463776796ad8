//! Use of the system by the benchmarks: cores, descriptors, and measurements of processes.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::time::Duration;

/// Unit in which the kernel counts the times of ended children.
const TICKS_A_SECOND: u64 = 100;
/// Positions in /proc/PID/stat, behind the name, of the parent and of the times of ended children.
const PARENT: usize = 1;
const USER: usize = 13;
const SYSTEM: usize = 14;

/// Cores of the servers and of the load: two different ones, if there are two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    server: usize,
    load: usize,
}

impl Cores {
    /// Returns the first two cores that this process may use; None if it has only one.
    pub fn choose() -> Option<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        Some(Cores { server: cores.next()?, load: cores.next()? })
    }

    /// Runs `start` on the servers' core, so that the processes it starts stay there, and returns to the load's core.
    pub fn on_server_core<R>(self, start: impl FnOnce() -> R) -> io::Result<R> {
        pin_to(self.server)?;
        let started = start();
        pin_to(self.load)?;
        Ok(started)
    }
}

fn pin_to(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &cores)?)
}

/// Raises the limit of descriptors as far as the system allows, and returns it. Children inherit it.
pub fn raise_descriptor_limit() -> io::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(most as usize)
}

/// Returns the processor time of all threads of a process so far, in user space and in the kernel.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    time_of_threads(pid, |_| true)
}

/// Returns the processor time of the threads that have this name.
pub fn thread_time(pid: u32, name: &str) -> io::Result<Duration> {
    time_of_threads(pid, |other| other == name)
}

/// Returns the processor time of a process and of all its descendants, including ended ones.
pub fn family_time(pid: u32) -> io::Result<Duration> {
    let fields = |pid: u32| -> Option<Vec<String>> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(stat.rsplit_once(')')?.1.split_whitespace().map(String::from).collect())
    };
    let own = fields(pid).ok_or_else(|| io::Error::other("no stat"))?;
    let ticks: u64 = [USER, SYSTEM].iter().filter_map(|place| own.get(*place)?.parse::<u64>().ok()).sum();
    let mut total = cpu_time(pid)? + Duration::from_millis(ticks * 1000 / TICKS_A_SECOND);
    for entry in fs::read_dir("/proc")? {
        let Some(child) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if fields(child).is_some_and(|fields| fields.get(PARENT) == Some(&pid.to_string())) {
            // A child that has ended since counts in the next call.
            total += cpu_time(child).unwrap_or_default();
        }
    }
    Ok(total)
}

fn time_of_threads(pid: u32, is_meant: impl Fn(&str) -> bool) -> io::Result<Duration> {
    let mut total = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path();
        if !is_meant(fs::read_to_string(path.join("comm"))?.trim_end()) {
            continue;
        }
        let schedstat = fs::read_to_string(path.join("schedstat"))?;
        total += schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(total))
}

/// Returns the resident memory of a process in bytes, without the kernel's memory for its sockets.
pub fn resident(pid: u32) -> io::Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no Rss in smaps_rollup"))
}

/// Returns the highest resident memory of a process in bytes since its start, or since the last call.
pub fn peak(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    // The value 5 resets the mark to the present resident memory.
    fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmHWM in status"))
}
