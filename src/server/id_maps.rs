//! Ids of users and groups that the system reports unchanged. In a user namespace all users without an id of their own
//! there have the same one, the overflow id.

use std::fs;
use std::sync::LazyLock;

/// Overflow id of systems that do not report theirs.
const USUAL_OVERFLOW: u32 = 65_534;
/// Number of possible ids: `u32::MAX` itself is not an id.
const ALL_IDS: u64 = u32::MAX as u64;

/// Ids that stand for users and groups without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdMaps {
    /// None if every user has an id.
    no_user: Option<u32>,
    /// None if every group has an id.
    no_group: Option<u32>,
}

impl IdMaps {
    fn read() -> IdMaps {
        let overflow = |map: &str, overflow: &str| {
            // A map that cannot be read may be a partial one.
            let is_whole = fs::read_to_string(map).is_ok_and(|map| is_whole(&map));
            let id = || fs::read_to_string(overflow).ok()?.trim().parse().ok();
            (!is_whole).then(|| id().unwrap_or(USUAL_OVERFLOW))
        };
        IdMaps {
            no_user: overflow("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"),
            no_group: overflow("/proc/self/gid_map", "/proc/sys/kernel/overflowgid"),
        }
    }

    /// Returns the id of a user; None if the number stands for users without one.
    pub fn uid(self, uid: u32) -> Option<u32> {
        Some(uid).filter(|_| self.no_user != Some(uid))
    }

    /// Returns the id of a group; None if the number stands for groups without one.
    pub fn gid(self, gid: u32) -> Option<u32> {
        Some(gid).filter(|_| self.no_group != Some(gid))
    }

    /// Returns whether every user and every group has an id.
    fn are_whole(self) -> bool {
        self.no_user.is_none() && self.no_group.is_none()
    }
}

/// Returns the maps of the namespace of this process, as they were at the first call. They never change.
pub fn here() -> IdMaps {
    static HERE: LazyLock<IdMaps> = LazyLock::new(IdMaps::read);
    *HERE
}

/// Returns whether the system reports the user and group of every local client.
pub fn tells_all_users() -> bool {
    here().are_whole()
}

/// Returns whether a map includes all ids: its lines have the first id within, the first outside, and their number.
fn is_whole(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= ALL_IDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_map_of_all_ids_is_whole() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(is_whole("0 0 4294967294\n4294967294 5 1\n"));
        assert!(!is_whole("0 0 1\n65533 65533 1\n"));
        assert!(!is_whole("0 100000 65536\n"));
        assert!(!is_whole(""));
    }

    #[test]
    fn overflow_id_is_unknown_under_a_short_map() {
        let whole = IdMaps { no_user: None, no_group: None };
        assert_eq!((whole.uid(65_534), whole.gid(65_534), whole.are_whole()), (Some(65_534), Some(65_534), true));
        let short = IdMaps { no_user: Some(65_534), ..whole };
        assert_eq!((short.uid(65_534), short.uid(0), short.are_whole()), (None, Some(0), false));
        assert_eq!(short.gid(65_534), Some(65_534));
    }
}
