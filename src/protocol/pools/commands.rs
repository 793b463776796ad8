//! Table of the pools' commands.

use crate::command::Verb;
use crate::commands;

/// The rights that a rule of access can give, by [`Verb`].
pub const VERBS: &[&str] = &["acquire", "stats"];
/// To wait for locks and hold them.
pub const ACQUIRE: Verb = Verb(0);
/// To see what there is.
pub const STATS: Verb = Verb(1);

commands! {
    /// Command of the pools.
    PoolCommand {
        Acq4Me = "ACQ4ME", "<key> <workers> <maxqueue> <timeout> [hold=<seconds>] [who=<name>] [also=<key>:<workers>:<maxqueue>]...", Some(ACQUIRE),
            "Waits for a lock, to do the work for oneself.";
        Acq4Any = "ACQ4ANY", "<key> <workers> <maxqueue> <timeout> [hold=<seconds>] [who=<name>] [also=<key>:<workers>:<maxqueue>]...", Some(ACQUIRE),
            "Waits for a lock, or for somebody else to finish the work.";
        Release = "RELEASE", "[<key>]", None, "Gives the newest lock back, or the newest on a key.";
        Stats = "STATS", "[FULL | <name> | TYPES | FIELDS | KEYS [<number>] | HOLDERS <key> | REPORT [<rows>]]", Some(STATS),
            "Shows statistics, keys, holders, or the report of every service.";
    }
}
