//! The process and its machine: what `stats` tells of them, and a thread for what takes long. It asks the system, and knows no jobs.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::utsname::uname;
use std::thread;

/// A machine by the names that its system gives it.
pub struct Machine {
    /// Its name in the network.
    pub hostname: String,
    /// The version of its system.
    pub os: String,
    /// Its processor.
    pub platform: String,
}

impl Machine {
    /// Returns the machine that this runs on. What the system does not tell is empty.
    pub fn this() -> Machine {
        let Ok(names) = uname() else {
            return Machine { hostname: String::new(), os: String::new(), platform: String::new() };
        };
        let [hostname, os, platform] =
            [names.nodename(), names.version(), names.machine()].map(|name| name.to_string_lossy().into_owned());
        Machine { hostname, os, platform }
    }
}

/// Returns the processor time of this process in seconds: its own, and that of the system for it.
pub fn processor_time() -> [f64; 2] {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or([0.0; 2], |usage| [usage.user_time(), usage.system_time()].map(seconds))
}

/// Drops it on another thread: a million jobs take a while.
pub fn drop_aside(what: Box<dyn Send>) {
    // Without another thread it takes its time here.
    let _ = thread::Builder::new().name("jobs-drop".into()).spawn(move || drop(what));
}
