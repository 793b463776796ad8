//! Table of the pools' commands.

use crate::command::Verb;
use crate::commands;

/// Rights that a rule of access can give, by [`Verb`].
pub const VERBS: &[&str] = &["acquire", "stats"];
/// Right to wait for locks and hold them.
pub const ACQUIRE: Verb = Verb(0);
/// Right to see keys and statistics.
pub const STATS: Verb = Verb(1);

commands! {
    /// Command of the pools.
    PoolCommand {
        Acq4Me = "ACQ4ME", "<key> <workers> <maxqueue> <timeout> [hold=<seconds>] [keep=<seconds>] [who=<name>] [also=<key>:<workers>:<maxqueue>]...", Some(ACQUIRE),
            "Waits for a lock; the work must be done by this client.";
        Acq4Any = "ACQ4ANY", "<key> <workers> <maxqueue> <timeout> [hold=<seconds>] [keep=<seconds>] [who=<name>] [also=<key>:<workers>:<maxqueue>]...", Some(ACQUIRE),
            "Waits for a lock, or until another client has finished the work.";
        Release = "RELEASE", "[<key>]", None, "Releases the newest lock, or the newest on a key.";
        Stats = "STATS", "[FULL | <name> | TYPES | FIELDS | KEYS [<number>] | HOLDERS <key> | REPORT [<rows>]]", Some(STATS),
            "Shows statistics, keys, holders, or the report of every service.";
    }
}
