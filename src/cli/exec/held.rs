//! Locks that are held by the commands of which this one is a part: another one of the same key would wait for itself.

use crate::spawn::{Variable, stat_of};
use nix::unistd::getppid;
use std::os::unix::ffi::OsStringExt;
use std::{env, process};

/// Environment variable with the locks that `exec` holds for its command, and the inherited locks. Each line is a
/// process id, the servers and the key.
const VARIABLE: &str = "POOLCOUNTER_HELD";

/// Locks of the processes from which this one descends.
pub struct HeldByAncestors(Vec<u8>);

impl HeldByAncestors {
    /// Reads the environment.
    pub fn inherited() -> HeldByAncestors {
        HeldByAncestors(env::var_os(VARIABLE).map(OsStringExt::into_vec).unwrap_or_default())
    }

    /// Returns the number of locks of this key that ancestors hold. A process that has outlived its `exec`, such as one
    /// in the background, has the variable too, but no such ancestor.
    pub fn count(&self, servers: &[String], key: &[u8]) -> usize {
        let wanted = lock(servers, key);
        let ancestors = self.0.split(|byte| *byte == b'\n').filter_map(|line| {
            let pid = line.strip_suffix(&wanted[..])?;
            std::str::from_utf8(pid).ok()?.parse().ok()
        });
        let ancestors: Vec<u32> = ancestors.collect();
        if ancestors.is_empty() { 0 } else { lineage().filter(|pid| ancestors.contains(pid)).count() }
    }

    /// Returns the variable for a command for which this process holds a lock of each of these keys.
    pub fn with<'a>(&self, servers: &[String], keys: impl Iterator<Item = &'a [u8]>) -> Variable {
        let own = keys.flat_map(|key| [process::id().to_string().as_bytes(), &lock(servers, key), b"\n"].concat());
        (VARIABLE.as_bytes().to_vec(), own.chain(self.0.iter().copied()).collect())
    }
}

/// Returns a line without its process id.
fn lock(servers: &[String], key: &[u8]) -> Vec<u8> {
    [b" ", servers.join(",").as_bytes(), b" ", key].concat()
}

/// Returns the process ids of the parent, its parent and so on, as far as this process can see them.
fn lineage() -> impl Iterator<Item = u32> {
    let parent = u32::try_from(getppid().as_raw()).ok();
    let parent_of = |pid: &u32| stat_of(&pid.to_string()).map(|(_, parent, _)| parent);
    std::iter::successors(parent, parent_of).take_while(|pid| *pid != 0)
}
