//! Options of `take`, as one table.

use crate::run_child::{Lifetime, grace, lost_exit, on_lost, process_group};
use crate::servers::{A_SERVER, Servers, has_part, server_option, tls_option};
use crate::table::one_of;
use crate::wait::NO_LIMIT;
use poolcounter_client::Wanted;
use poolcounter_protocol::members::wire::client::check_attribute;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds, seconds_from};
use std::time::Duration;

/// Settings of the command.
#[derive(Default)]
pub struct TakeSettings {
    /// Members to take, and the timeout of the wait.
    pub wanted: Wanted,
    /// Group to take from, instead of a pool.
    pub group: Option<Vec<u8>>,
    /// Name of the holder, in place of its address.
    pub name: Option<Vec<u8>>,
    /// Exit statuses that mean that a member failed; if empty, all but 0.
    pub fail_on: Vec<u8>,
    /// True if variables are printed and the members stay taken.
    pub keeps: bool,
    /// Format of the printed variables, if set: sh, env or json.
    pub format: Option<&'static str>,
    /// Servers to ask.
    pub servers: Servers,
    /// True if the request is repeated while no server replies, until the timeout.
    pub retries: bool,
    /// Lifetime of the command.
    pub lifetime: Lifetime,
}

/// Options of the command.
pub const OPTIONS: &[Opt<TakeSettings>] = option_table!(TakeSettings;
    "-t, --timeout SECONDS",
        "Maximum time to wait for a member, also while the queue of the pool is full or the daemon drains; 0: do not \
         wait (default: without limit, and the command ends with status 79 if the queue is full or the daemon drains). \
         Decimals are allowed. The command gives up a server that does not answer 11 seconds after that time, because \
         a member may be checked first, or for 10 to 20 seconds during it, and a server that does not accept the \
         connection after 2 seconds.",
        |settings, value| assign(&mut settings.wanted.timeout, seconds(value));
    => Opt::of_bytes("-g, --group GROUP",
        "Take from any pool of this group, instead of one pool. The pool with the most free members is used, or else \
         the first that has one. Where several servers share the pools, only the pools of the group's own server are \
         used.",
        |settings, value| assign(&mut settings.group, Ok(Some(value.into()))));
    => Opt::<TakeSettings>::of_bytes("-a, --attr NAME=VALUE",
        "Take only a member with this attribute; repeatable.",
        |settings, value| {
            let equals = value.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
            let at = equals.ok_or("an attribute: NAME=VALUE")?;
            let (name, value) = (&value[..at], &value[at + 1..]);
            let wrong = |rule| format!("an attribute that a member can have: {rule}");
            check_attribute(name, value).map_err(wrong)?;
            settings.wanted.attributes.push((name.to_vec(), value.to_vec()));
            Ok(())
        }).repeated();
    => Opt::of_bytes("--member NAME", "Take only the member of this name.", |settings, value| {
        assign(&mut settings.wanted.member, Ok(Some(value.into())))
    });
    "--pri 0..9",
        "Priority of the wait: waiters with a lower number are served first, equal ones in the order of their arrival \
         (default: 5). A waiter of more than a minute counts as 0.",
        |settings, value| assign(&mut settings.wanted.priority, number(value, 0..=9));
    "-n, --count N",
        "Take N members, all or none (default: 1). The environment has POOL_MEMBERS and POOL_LEASES then, with a space \
         between two, and for each member from 1 on its number in the names: POOL_MEMBER_1, POOL_LEASE_1, POOL_TOKEN_1 \
         and POOL_ATTR_1_name. Names without a number have the values of the first member. All are returned in the \
         same way.",
        |settings, value| assign(&mut settings.wanted.count, number(value, 1..=u32::MAX).map(Some));
    "--fail-on STATUS",
        "Return the member as failed only if the command ends with this status; repeatable (default: all but 0).",
        |settings, value| { settings.fail_on.push(number(value, 0..=u8::MAX)?); Ok(()) }, repeated();
    "--lease SECONDS",
        "Keep the member for this time even if the connection is lost, or this process ends. While the command runs, \
         the lease is renewed each third of that time, on a new connection if needed; it ends with the command.",
        |settings, value| assign(&mut settings.wanted.lease, seconds_from(Duration::ZERO, value).map(Some));
    "--keep",
        "Run no command: print the variables of its environment, one a line, and leave the member taken. The member \
         stays taken for the time of --lease, which is required; members renew and members return go on from there. \
         Unless the output is a terminal, --format is required.",
        |settings, _| assign(&mut settings.keeps, Ok(true));
    "--format sh|env|json",
        "Output of --keep: sh for eval in a shell, env for a file such as $GITHUB_ENV, or json for one JSON object. \
         With sh, the output is lines NAME=VALUE that are quoted for a shell. A script should assign the output, check \
         the exit status, and only then use eval: an eval of the command itself would go on without a member, because \
         the status of an empty eval is 0. With env, the lines are not quoted, and no shell may read them, because \
         values come from providers. A value with control characters, other invisible characters or bytes that are not \
         UTF-8 is refused then, and the member is returned. On a terminal, invisible characters are escaped.",
        |settings, value| assign(&mut settings.format, one_of(value, &["sh", "env", "json"].map(|word| (word, Some(word)))));
    => Opt::of_bytes("--name NAME",
        "Name of the holder in lists of members (default: its address).",
        |settings, value| assign(&mut settings.name, Ok(Some(value.into()))));
    => server_option(A_SERVER); => tls_option();
    "--retry",
        "Ask again until the timeout is over while no server answers. The command asks twice a second at first, and \
         every four seconds in the end, until the time of --timeout is over. A server that was restarted does not know \
         the place in its queue.",
        |settings, _| assign(&mut settings.retries, Ok(true));
    => on_lost(
        "Action when a member is lost while the command runs: only warn, or also terminate or kill it (default: \
         warn). A member is lost when it has died, was withdrawn or taken back, or its connection is gone and it \
         cannot be had back within a minute, as after a restart of the server.",
    );
    => lost_exit(); => process_group(); => grace();
);

impl TakeSettings {
    /// Returns the settings without any option.
    pub fn usual() -> TakeSettings {
        TakeSettings { wanted: Wanted { timeout: NO_LIMIT, ..Wanted::default() }, ..TakeSettings::default() }
    }

    /// Returns true if the request is repeated while the queue is full or the server drains: there is a time to wait.
    pub fn is_patient(&self) -> bool {
        self.retries || self.wanted.timeout < NO_LIMIT
    }

    /// Returns true if a command with this exit status leaves its members as failed.
    pub fn is_failure(&self, status: u8) -> bool {
        if self.fail_on.is_empty() { status != 0 } else { self.fail_on.contains(&status) }
    }
}

has_part!(TakeSettings, servers: Servers);
has_part!(TakeSettings, lifetime: Lifetime);
