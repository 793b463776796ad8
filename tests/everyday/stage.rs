//! The daemon of a scene, with its stores, and what happens to them.

use super::events::CABLE;
use super::services::Store;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, wait_for_file};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::jobs_command::until;
use poolcounter_testkit::postgres::{self, Cluster};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::small_disk;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Pools whose members outlive a restart of the daemon, and pools of providers.
const SETTINGS: &str = "
[[members.pool]]
name = 'accounts'
max = 5
on_loss = 'ok'
clean_timeout = 600
fixed = ['leased', 'in-use', 'failed', 'held', 'dirty']

[[members.pool]]
name = 'ci'
max = 1
on_loss = 'ok'
clean_timeout = 600
fixed = ['a']

[[members.pool]]
name = 'free'
init = 1
max = 1

[[members.pool]]
name = 'used'
init = 1
max = 1
";

/// Keepalive of a daemon that clients of the tests' own find dead first, and of one that each client finds dead first.
pub const SOON: &str = "1,1,4";
pub const LATE: &str = "30,10,3";

/// Returns how long a cell of the page is waited for. If the page has none, what is seen soon is written.
pub fn patience(wanted: &str) -> Duration {
    if wanted.is_empty() { Duration::from_secs(8) } else { PATIENCE }
}

/// Returns how long something is waited for after an event, which is usually so long: a client finds a cut cable by
/// keepalive.
pub fn longest(event: &str, usual: Duration) -> Duration {
    if event == CABLE { 6 * PATIENCE } else { usual }
}

/// The daemon with all services, and its clients.
pub struct Stage {
    pub daemon: Option<Daemon>,
    /// Addresses of locks, counters, members, jobs and pages. A daemon that is started again has the same.
    addresses: [SocketAddr; 5],
    scratch: Scratch,
    store: Store,
    keepalive: &'static str,
    /// Whether the files of the stores are in a small file system, which ends with the daemon.
    is_small: bool,
    database: Option<Database>,
    /// Holders of all services, for events that meet them.
    pub holders: Vec<TcpStream>,
    pub waiters: Vec<TcpStream>,
    /// Clients that the event ends, so that they see nothing.
    pub are_holders_gone: bool,
    pub are_waiters_gone: bool,
    /// Requests by which the holders give back their locks and so on, in the order of `holders`.
    pub returns: Vec<Vec<u8>>,
}

struct Database {
    /// None if other scenes use it.
    own: Option<Cluster>,
    url: String,
}

impl Stage {
    pub fn new(keepalive: &'static str) -> Stage {
        Stage::with(keepalive, Store::File, false).expect("is possible everywhere")
    }

    /// Starts a daemon whose jobs are in this store, which is to fail or not. Returns None, with a report, if this
    /// machine has no such store.
    pub fn with(keepalive: &'static str, store: Store, is_to_fail: bool) -> Option<Stage> {
        let database = if store == Store::Postgres { Some(Database::start(is_to_fail)?) } else { None };
        let mut stage = Stage {
            daemon: None,
            addresses: [SocketAddr::from((own_ip(), 0)); 5],
            scratch: Scratch::new(),
            store,
            keepalive,
            is_small: is_to_fail && store == Store::File,
            database,
            holders: Vec::new(),
            waiters: Vec::new(),
            are_holders_gone: false,
            are_waiters_gone: false,
            returns: Vec::new(),
        };
        fs::create_dir(stage.files()).expect("can be made");
        if stage.is_small && small_disk::command_in(&stage.files()).is_none() {
            poolcounter_testkit::skipped("a full disk in everyday events, because this user may not mount one");
            return None;
        }
        stage.start();
        Some(stage)
    }

    /// Starts the daemon, or starts it again with the same settings and files.
    pub fn start(&mut self) {
        let files = self.files();
        let jobs = match (self.store, &self.database) {
            (Store::Postgres, Some(database)) => database.url.clone(),
            (Store::Memory, _) => "memory".into(),
            _ => format!("sqlite:{}", files.join("jobs.db").display()),
        };
        let members = format!("sqlite:{}", files.join("members.db").display());
        let admin = format!("unix:{}", self.scratch.file("admin.sock").display());
        let config = self.scratch.file("toml");
        fs::write(&config, SETTINGS).expect("can be written");
        let [locks, counters, members_at, jobs_at, pages] = self.addresses.map(|address| address.to_string());
        let small = if self.is_small { small_disk::command_in(&files) } else { None };
        let mut command = match small {
            Some(mut command) => {
                command.arg(Daemon::program());
                command
            }
            None => Command::new(Daemon::program()),
        };
        command.arg("--config").arg(config).args(["-l", &locks, "--keepalive", self.keepalive]);
        command.args(["--admin", &admin, "--http", &pages, "--counter", "--counter-listen", &counters]);
        command.args(["--members", "--members-listen", &members_at, "--members-store", &members]);
        command.args(["--jobs", "--jobs-listen", &jobs_at, "--jobs-store", &jobs, "--jobs-store-timeout", "2"]);
        let daemon = Daemon::run(&mut command);
        let page = daemon.lines.iter().find_map(|line| line.split_once("the status page are at "));
        let page = page.and_then(|(_, address)| address.parse().ok()).expect("is said");
        self.addresses = [daemon.address, daemon.counters(), daemon.members(), daemon.jobs(), page];
        self.daemon = Some(daemon);
    }

    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("it runs")
    }

    /// Returns where a service is now; None if the daemon is gone.
    pub fn address_of(&self, address: fn(&Daemon) -> SocketAddr) -> Option<SocketAddr> {
        self.daemon.as_ref().map(address)
    }

    /// Returns where the page is; None if the daemon is gone.
    pub fn page(&self) -> Option<SocketAddr> {
        self.daemon.as_ref().map(|_| self.addresses[4])
    }

    /// Directory of the files of jobs and members.
    fn files(&self) -> PathBuf {
        self.scratch.file("files")
    }

    /// Asks for an operation of the administration.
    pub fn operate(&self, request: &str) {
        let mut socket = UnixStream::connect(self.scratch.file("admin.sock")).expect("connects");
        socket.write_all(format!("{request}\n").as_bytes()).expect("is sent");
        let mut reply = [0; 1];
        socket.read_exact(&mut reply).expect("a reply comes");
    }

    /// Fills the disk, and writes to the stores until they have no room left.
    pub fn fill_disk(&mut self) {
        let files = self.files();
        let files = small_disk::seen_by(self.daemon(), &files);
        let mut number = 0;
        let mut fill = || {
            number += 1;
            small_disk::fill(&files.join(format!("filler{number}")));
        };
        let (mut jobs, mut members) = (JobsClient::to(self.daemon().jobs()), Client::to(self.daemon().members()));
        assert_eq!((members.ask("POOL room 0 1"), members.ask("ADD room spare")), ("OK".into(), "OK".into()));
        jobs.ask("use aside");
        // One store may leave room to the other.
        until("neither store has room", || {
            fill();
            let are_jobs_full = jobs.put("0 0 600", b"x") == "OUT_OF_MEMORY";
            let taken = members.ask("TAKE room");
            let lease = taken.strip_prefix("MEMBER ").and_then(|rest| rest.split(' ').next());
            let are_members_full = lease.is_none_or(|lease| members.ask(&format!("RETURN {lease}")) != "RETURNED");
            are_jobs_full && are_members_full
        });
    }

    /// Removes the files of the stores under the daemon.
    pub fn remove_files(&self) {
        for file in fs::read_dir(self.files()).expect("is there") {
            fs::remove_file(file.expect("is readable").path()).expect("is ours");
        }
    }

    /// Waits until the files are there again. Those of members are looked after when something is kept.
    pub fn wait_for_files(&mut self) {
        assert_eq!(Client::to(self.daemon().members()).ask("POOL later 0 1"), "OK");
        for file in ["jobs.db", "members.db"] {
            wait_for_file(&self.files().join(file));
        }
    }

    pub fn end_database(&mut self) {
        let database = self.database.as_ref().and_then(|database| database.own.as_ref());
        database.expect("is of this scene").kill();
    }
}

/// Returns an address of this machine that no other stage has, so that nothing else gets a port of it.
fn own_ip() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [.., a, b] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, a | 128, b, NEXT.fetch_add(1, Ordering::Relaxed) as u8 + 1)
}

impl Database {
    fn start(is_to_fail: bool) -> Option<Database> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = if is_to_fail { Some(postgres::own(&["fsync=off"])?) } else { None };
        let cluster = match &own {
            Some(own) => own,
            None => postgres::shared()?,
        };
        let url = cluster.url(&format!("everyday_{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        Some(Database { own, url })
    }
}
