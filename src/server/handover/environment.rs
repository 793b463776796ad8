//! Environment of the successor, and its name.

use super::{CONSUMED_VARIABLES, VARIABLE};
use log::debug;
use nix::sys::prctl;
use std::ffi::{CString, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::{env, io, process};

/// Returns the variables for the successor: the variables of this process, and the descriptors of the state and of the
/// program.
pub fn environment_with(state: RawFd, executable: RawFd) -> io::Result<Vec<CString>> {
    let others = env::vars_os().filter(|(name, _)| !CONSUMED_VARIABLES.iter().any(|spent| name == spent));
    let ours = (OsString::from(VARIABLE), OsString::from(format!("{}:{state}:{executable}", process::id())));
    let pair = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        c_string(name)
    };
    others.chain([ours]).map(pair).collect()
}

/// Returns a text for system calls. Fails if it has a zero byte.
pub fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}

/// Names the process after this path: the system has named it after the descriptor.
pub fn set_process_name(path: &OsString) {
    let name = Path::new(path).file_name().and_then(|name| CString::new(name.as_bytes()).ok());
    // The system cuts it to its limit. If this fails, tools that look for the process by its name may not find it.
    if let Some(Err(error)) = name.map(|name| prctl::set_name(&name)) {
        debug!("the process has the name of a descriptor: {error}");
    }
}
