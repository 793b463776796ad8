//! PostgreSQL server of the tests' own, with Debian's programs: it listens on this machine only, keeps its data in a
//! temporary directory, and ends with the process of the tests.

use poolcounter_jobs::postgres::Place;
pub use poolcounter_jobs::postgres::init_db;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a server to start, and for a statement.
const PATIENCE: Duration = Duration::from_secs(60);
/// Directory of Debian's programs, by version.
const PROGRAMS: &str = "/usr/lib/postgresql";

/// A server.
pub struct Cluster {
    pub port: u16,
    pub directory: PathBuf,
    settings: Vec<String>,
    child: std::sync::Mutex<Option<Child>>,
}

/// Returns the directory of the newest version's programs; None if there are none.
pub fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(PROGRAMS).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = versions.filter_map(|version| version.parse::<u32>().ok()).max()?;
    Some(Path::new(PROGRAMS).join(newest.to_string()).join("bin")).filter(|bin| bin.join("initdb").exists())
}

/// Returns a server that all tests of this process share and that syncs nothing; None, with a report, if there are no
/// programs.
pub fn shared() -> Option<&'static Cluster> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    SHARED.get_or_init(|| own(&["fsync=off"])).as_ref()
}

/// Returns a new server with these settings; None, with a report, if there are no programs.
pub fn own(settings: &[&str]) -> Option<Cluster> {
    if programs().is_none() {
        super::skipped("jobs in PostgreSQL: Debian's package postgresql is not installed");
        return None;
    }
    Some(Cluster::start(settings))
}

impl Cluster {
    /// Starts a new cluster with these settings.
    pub fn start(settings: &[&str]) -> Cluster {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("poolcounter-pg-{}-{number}", std::process::id()));
        remove_leftovers();
        fs::create_dir_all(&directory).expect("can be made");
        give_to_server(&directory);
        let data = directory.join("data");
        let mut init = program("initdb");
        init.args(["-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
        let output = init.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Cluster::of(directory, settings)
    }

    /// Starts a replica of another server, which follows it.
    pub fn replica(of: &Cluster, settings: &[&str]) -> Cluster {
        let directory = of.directory.with_extension("replica");
        fs::create_dir_all(&directory).expect("can be made");
        give_to_server(&directory);
        let mut copy = program("pg_basebackup");
        copy.args("-h 127.0.0.1 -U postgres -R -X stream -c fast -p".split(' ')).arg(of.port.to_string());
        let output = copy.arg("-D").arg(directory.join("data")).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Cluster::of(directory, settings)
    }

    fn of(directory: PathBuf, settings: &[&str]) -> Cluster {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free").port();
        let settings = settings.iter().map(ToString::to_string).collect();
        let cluster = Cluster { port, directory, settings, child: Default::default() };
        cluster.run();
        cluster
    }

    /// Runs the server, and waits until it answers.
    pub fn run(&self) {
        let mut command = program("postgres");
        command.arg("-D").arg(self.directory.join("data")).args(["-p", &self.port.to_string()]);
        let directory = self.directory.display();
        let base = [
            "listen_addresses=127.0.0.1".into(),
            format!("unix_socket_directories={directory}"),
            "max_connections=200".into(),
            "shared_buffers=64MB".into(),
            "timezone=UTC".into(),
        ];
        base.iter().chain(&self.settings).for_each(|setting| _ = command.args(["-c", setting]));
        let log = fs::File::create(self.directory.join("log")).expect("can be made");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // The server ends with the thread that started it, which must outlive the first test that asks for it.
        let (sender, started) = channel();
        thread::spawn(move || {
            sender.send(command.spawn().expect("it runs")).expect("is waited for");
            loop {
                thread::park();
            }
        });
        *self.child.lock().expect("no holder panics") = Some(started.recv().expect("it was started"));
        let deadline = Instant::now() + PATIENCE;
        while self.try_query("postgres", "SELECT 1").is_err() {
            let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not begin: {}", log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends the server at once, as a machine that loses its power would.
    pub fn kill(&self) {
        let child = self.child.lock().expect("no holder panics").take();
        if let Some(mut child) = child {
            let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("is one"));
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT).expect("it runs");
            child.wait().expect("it ends");
        }
    }

    /// Returns the process of the server.
    pub fn pid(&self) -> u32 {
        self.child.lock().expect("no holder panics").as_ref().expect("it runs").id()
    }

    /// Creates a schema with the tables, unless it exists, and returns the URL with which a daemon uses it.
    pub fn url(&self, schema: &str) -> String {
        let made = self.try_query("postgres", &format!("CREATE SCHEMA {schema}"));
        let url = self.url_at(schema, self.port);
        match std::env::var("TESTED_PROGRAM") {
            _ if made.is_err() => {}
            // Another version has tables of another format.
            Ok(program) => {
                let made = Command::new(program).args(["jobs", "init-db", "--run", &url]).status();
                assert!(made.expect("the program runs").success());
            }
            Err(_) => init_db(&place_of(&url)).expect("they can be made"),
        }
        url
    }

    /// Returns the URL with which a daemon uses a schema through another port.
    pub fn url_at(&self, schema: &str, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable&options=-csearch_path%3D{schema}")
    }

    /// Promotes a replica, and returns once it is a server. No statement waits for that: replay would cancel it.
    pub fn promote(&self) {
        self.query("postgres", "SELECT pg_promote(false)");
        let deadline = Instant::now() + PATIENCE;
        let is_server = || self.try_query("postgres", "SELECT pg_is_in_recovery()").is_ok_and(|told| told == ["f"]);
        while !is_server() {
            assert!(Instant::now() < deadline, "the replica is not promoted");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a statement, and returns the first column of its result.
    pub fn query(&self, schema: &str, sql: &str) -> Vec<String> {
        self.try_query(schema, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Sends a statement that may fail, and returns the first column of its result.
    pub fn try_query(&self, schema: &str, sql: &str) -> Result<Vec<String>, String> {
        let mut place = place_of(&self.url_at(schema, self.port));
        // The server may be a replica, which takes no commits.
        place.config.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::Any);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there is room");
        runtime.block_on(async {
            let asked = async {
                let (client, connection) = place.config.connect(place.tls.clone()).await?;
                tokio::spawn(connection);
                client.simple_query(sql).await
            };
            let asked = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| "it takes too long".to_string())?;
            let messages = asked.map_err(|error| format!("{error:?}"))?;
            Ok(messages
                .iter()
                .filter_map(|message| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_string()),
                    _ => None,
                })
                .collect())
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the connection parameters of a URL in the form of the option.
pub fn place_of(url: &str) -> Place {
    Place::parse(url).expect("it is one")
}

/// Returns a program of PostgreSQL, which refuses to be run by root.
fn program(name: &str) -> Command {
    as_server(&programs().expect("is asked first").join(name))
}

/// Returns a program run by the user of the server; it ends with the thread that started it.
pub fn as_server(path: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = unprivileged() {
        command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
    }
    command.args(["--pdeathsig", "QUIT", "--"]).arg(path);
    command.current_dir("/");
    command
}

/// Makes the user of the server the owner of a file or directory.
pub fn give_to_server(path: &Path) {
    if let Some(user) = unprivileged() {
        chown(path, Some(user), Some(user)).expect("root may give it away");
    }
}

/// Returns the number of an unprivileged user if this is root.
fn unprivileged() -> Option<u32> {
    const NOBODY: u32 = 65534;
    let own = fs::metadata("/proc/self").expect("there is one").uid();
    (own == 0).then_some(NOBODY)
}

/// Removes the leftovers of earlier processes that could not remove them.
fn remove_leftovers() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("poolcounter-pg-").and_then(|rest| rest.split(['-', '.']).next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
