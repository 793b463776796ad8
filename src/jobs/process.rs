//! The process and its machine, as `stats` shows them. It asks the system, and knows no
//! jobs.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::utsname::uname;

/// Returns the host name of this machine, the version of its system and the architecture of its processor; empty if they
/// are unknown.
pub fn machine() -> [String; 3] {
    let Ok(names) = uname() else { return <[String; 3]>::default() };
    [names.nodename(), names.version(), names.machine()].map(|name| name.to_string_lossy().into_owned())
}

/// Returns the processor time of this process in seconds: its own, and that of the system for it.
pub fn processor_time() -> [f64; 2] {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or([0.0; 2], |usage| [usage.user_time(), usage.system_time()].map(seconds))
}

/// Returns memory that is free to the system, on another thread: a gigabyte takes a while. Only the allocator of glibc
/// knows how.
pub fn return_memory_aside() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = std::thread::Builder::new().name("jobs-memory".into()).spawn(trim);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator is asked by a function of C")]
fn trim() {
    // SAFETY: any thread may call it at any time; it changes nothing that is allocated.
    unsafe { nix::libc::malloc_trim(0) };
}
