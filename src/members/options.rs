//! Options of the members: limits, pools, and permission for operators.

mod store;

pub use store::StoreKind;

use super::state::DeclaredPool;
use poolcounter_core::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, flag, listening, number, option_table, seconds};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Settings of the members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MembersSettings {
    /// Most members, starts under way and waiters together.
    pub most: usize,
    /// True if every connection may send requests for operators, false if none may; None allows connections from the
    /// same machine.
    pub admin: Option<bool>,
    /// Wait of a take that is worth a condition; zero for none.
    pub warn_wait: Span,
    /// Place where members are kept over a restart.
    pub store: StoreKind,
    /// Time for which the holders of before a restart are awaited.
    pub restart_grace: Span,
    /// Pools of the configuration file.
    pub pools: Vec<DeclaredPool>,
    /// Places of their fixed members in that file.
    pub fixed_at: Places,
}

/// Positions in a file, by name. Settings with other positions are equal all the same.
#[derive(Clone, Eq, Debug, Default)]
pub struct Places(pub(crate) BTreeMap<Arc<[u8]>, usize>);

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Default for MembersSettings {
    fn default() -> Self {
        MembersSettings {
            most: 1 << 20,
            admin: None,
            warn_wait: Span::from_secs(60),
            store: StoreKind::Sqlite(None),
            restart_grace: Span::from_secs(60),
            pools: Vec::new(),
            fixed_at: Places::default(),
        }
    }
}

/// Listening options of the members.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "members",
    "members",
    port 7532,
    "Serve the members protocol too: pools of members that providers start and stop, and that consumers take for \
     exclusive use. See SERVICES in poolcounter(8)."
);

/// The other options.
pub const OPTIONS: &[Opt<MembersSettings>] = option_table!(MembersSettings;
    "--members-max N",
        "Maximum of members, starts under way and waiting takes together (default: 1048576). Requests that need more \
         are answered with ERROR TOO_MANY.",
        |settings, value| assign(&mut settings.most, number(value, 1..=100_000_000)), in_file("members.max", "1048576");
    "--members-admin WHO",
        "Clients that may declare, change and remove pools and fixed members, and take members back: all (true), none \
         (false), or clients on this machine (local) (default: local).",
        |settings, value| assign(&mut settings.admin, admin(value)), in_file("members.admin", r#""local""#);
    "--members-warn-wait SECONDS",
        "Time after which the status warns of a waiting take; 0: never (default: 60).",
        |settings, value| assign(&mut settings.warn_wait, seconds(value).map(Span::from)),
        in_file("members.warn_wait", "60");
    "--members-store STORE",
        "Store of what must outlive a restart of fixed members and leases with a token: sqlite:PATH or memory \
         (default: members.db in $STATE_DIRECTORY or the working directory). sqlite:PATH keeps it in a file of SQLite, \
         which is made if it does not exist. memory keeps it for as long as the daemon runs, upgrades included: after \
         a restart every fixed member is free.",
        |settings, value| assign(&mut settings.store, StoreKind::parse(value)),
        in_file("members.store", r#""sqlite:""#);
    "--members-restart-grace SECONDS",
        "Time after a restart for which a fixed member is kept for a holder that was connected before it (default: \
         60). The holder takes it back with RENEW; later the member counts as lost with its holder.",
        |settings, value| assign(&mut settings.restart_grace, seconds(value).map(Span::from)),
        in_file("members.restart_grace", "60"),
        idle_if(|settings| (settings.store == StoreKind::Memory).then_some("members.store is memory"));
);

fn admin(text: &str) -> Result<Option<bool>, String> {
    match text {
        "local" => Ok(None),
        _ => flag(text).map(Some).map_err(|_| "true, false or local".into()),
    }
}
