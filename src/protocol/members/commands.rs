//! Table of the members' commands.

use crate::command::Verb;
use crate::commands;

/// Rights that a rule of access can give, by [`Verb`].
pub const VERBS: &[&str] = &["take", "provide", "read", "admin"];
/// Right to take members.
pub const TAKE: Verb = Verb(0);
/// Right to bring members, and to clean members of other providers.
pub const PROVIDE: Verb = Verb(1);
/// Right to see pools and members.
pub const READ: Verb = Verb(2);
/// Right to set up pools, and to administer members.
pub const ADMIN: Verb = Verb(3);

commands! {
    /// Command of the members. Answers of providers and cleaners to their tasks need no right: no other client has a
    /// task to answer.
    MemberCommand {
        Take = "TAKE", "<pool> [<timeout>] [<attribute>=<value> | <option>=<value>]...", Some(TAKE), "Waits for members of a pool.";
        TakeGroup = "TAKEGROUP", "<group> [<timeout>] [<attribute>=<value> | <option>=<value>]...", Some(TAKE), "Waits for members of any pool of a group.";
        Return = "RETURN", "<lease> [OK | FAIL]", None, "Gives a member back.";
        Renew = "RENEW", "<token> [<seconds>]", None, "Prolongs a lease.";
        Cancel = "CANCEL", "", None, "Ends the connection's wait.";
        Identify = "IDENTIFY", "<name>", None, "Names the connection.";
        Bye = "BYE", "", None, "Returns everything and ends the connection.";
        Provide = "PROVIDE", "<pool> [<capacity>] [session=<name>]", Some(PROVIDE), "Makes the connection a provider of a pool.";
        Clean = "CLEAN", "<pool>", Some(PROVIDE), "Makes the connection a cleaner of a pool.";
        Started = "STARTED", "<start> <member> [<attribute>=<value>]...", None, "Answers !START: the member has started.";
        Failed = "FAILED", "<start> [<text>]", None, "Answers !START: the start has failed.";
        Stopped = "STOPPED", "<member>", None, "Answers !STOP.";
        Alive = "ALIVE", "<member>", None, "Answers !CHECK: the member is well.";
        Dead = "DEAD", "<member> [<text>]", None, "Reports that a member has ended, or that its cleaning has failed.";
        Cleaned = "CLEANED", "<member>", None, "Answers !CLEAN: the member can be used again.";
        Cleaning = "CLEANING", "<member>", None, "Goes on with a cleaning over a new connection.";
        Offer = "OFFER", "<pool> <member> [<attribute>=<value>]...", Some(PROVIDE), "Adds a member that runs already.";
        Withdraw = "WITHDRAW", "<pool> <member> [NOW]", Some(PROVIDE), "Removes a member, once it is returned or at once.";
        Utilization = "UTILIZATION", "<pool>", Some(READ), "Shows the figures of a pool.";
        Members = "MEMBERS", "<pool> [after=<name>] [limit=<number>]", Some(READ), "Shows the members of a pool.";
        Waiters = "WAITERS", "<pool> [limit=<number>]", Some(READ), "Shows the waiters for a pool, in the order in which they are served.";
        History = "HISTORY", "<pool> <member>", Some(READ), "Shows the last holders of a fixed member, the last one first.";
        Pools = "POOLS", "", Some(READ), "Shows the pools.";
        Pool = "POOL", "<pool> <init> <max> [<setting>=<value>]...", Some(ADMIN), "Makes a pool.";
        Reconfigure = "RECONFIGURE", "<pool> <setting>=<value>...", Some(ADMIN), "Changes the settings of a pool.";
        RemovePool = "RMPOOL", "<pool> [GRACEFUL]", Some(ADMIN), "Removes a pool, at once or as its members come back.";
        RemoveGroup = "RMGROUP", "<group> [GRACEFUL]", Some(ADMIN), "Removes the pools of a group, at once or as their members come back.";
        Add = "ADD", "<pool> <member> [<attribute>=<value>]...", Some(ADMIN), "Adds a fixed member.";
        Delete = "DEL", "<pool> <member> [NOW]", Some(ADMIN), "Removes a member, once it is returned or at once.";
        Repair = "REPAIR", "<pool> <member> [as_is]", Some(ADMIN), "Takes a member out of quarantine, and has it cleaned unless as_is says otherwise.";
        Hold = "HOLD", "<pool> <member> <seconds> [<note>]", Some(ADMIN), "Keeps a member out of use for a time.";
        Free = "FREE", "<pool> <member>", Some(ADMIN), "Ends a hold.";
        TakeBack = "TAKEBACK", "<lease> [<note>]", Some(ADMIN), "Takes a member away from its holder.";
    }
}
