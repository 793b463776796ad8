//! What the benchmarks ask of the system: cores, descriptors, and what it says of itself and of a process.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::process::Command;
use std::time::Duration;

/// In what units the kernel tells the times of children that have ended.
const TICKS_A_SECOND: u64 = 100;
/// Where /proc/PID/stat has, behind the name, the parent and the times of children that have ended.
const PARENT: usize = 1;
const USER: usize = 13;
const SYSTEM: usize = 14;

/// Where the servers run and where the load comes from: two different cores, where there are two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    server: usize,
    load: usize,
}

impl Cores {
    /// The first two cores that this process may use, or none when it has one only.
    pub fn choose() -> Option<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        Some(Cores { server: cores.next()?, load: cores.next()? })
    }

    /// Runs `start` on the servers' core, so that what it starts stays there, and comes back to the load's core.
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

/// Takes as many descriptors as the system gives, and tells how many that is. Children inherit it.
pub fn raise_descriptor_limit() -> io::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(most as usize)
}

/// The processor time of all threads of a process so far, in user space and in the kernel.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    time_of_threads(pid, |_| true)
}

/// The same, of those threads that have this name.
pub fn thread_time(pid: u32, name: &str) -> io::Result<Duration> {
    time_of_threads(pid, |other| other == name)
}

/// The processor time of a process and of all that it has started, also of what has ended since.
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
            // If it has ended since, it counts with the next question.
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

/// The resident memory of a process in bytes. The kernel's own, for its sockets, is not in it.
pub fn resident(pid: u32) -> io::Result<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no Rss in smaps_rollup"))
}

/// The highest resident memory of a process in bytes since its start, or since the last call.
pub fn peak(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    // The word for: set the mark back to what is resident now.
    fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("no VmHWM in status"))
}

/// The day, the processor and the kernel, for the head of the table.
pub fn describe() -> String {
    let day = Command::new("date").args(["-u", "+%F %H:%M UTC"]).output();
    let day = day.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()).unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_matches([' ', '\t', ':']);
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{day}, {count} x {model}, Linux {}", kernel.trim())
}

/// How busy the machine is: the mean number of threads that want to run, over the last minute.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_string()
}
