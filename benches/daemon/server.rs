//! The compared servers, each a process of its own on a loopback address.

use super::machine;
use super::protocol::{Protocol, noop};
use super::settings::Settings;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Argument that makes this very program the limit server, and arguments that select its protocol.
pub const LIMIT_ARGUMENT: &str = "--limit-server";
pub const FRAMES_ARGUMENT: &str = "--frames";
pub const JOBS_ARGUMENT: &str = "--jobs";
/// Backlog of the sockets that are passed to our daemon and to the limit: our daemon's default.
const BACKLOG: i32 = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
const POOLS_PORT: u16 = 7531;
const COUNTERS_PORT: u16 = 11215;
const MEMBERS_PORT: u16 = 7532;
const JOBS_PORT: u16 = 11300;

/// Program that can be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Our daemon.
    Ours,
    /// The server that keeps no locks.
    Limit,
    /// The original daemon, in C.
    C,
    /// A redis server, for context.
    Redis,
    /// The original of the counters.
    Yrmcds,
    /// The original of the jobs' protocol. It keeps them in memory, or syncs its log for each job.
    Beanstalkd,
    /// beanstalkd, which syncs its log now and then.
    BeanstalkdLazy,
    /// Our daemon with jobs in a file, in cases where `Ours` has them in a database.
    OursInSqlite,
    /// The field's usual queue, in the same database.
    SkipLocked,
    /// HAProxy before our daemon, in cases where `Ours` is our TLS terminator.
    HaProxy,
    /// stunnel before our daemon, in the same cases.
    Stunnel,
}

/// Running server; dropping it kills it.
pub struct Server {
    child: Child,
    /// Program of the server.
    pub program: Program,
    /// Protocol at its address.
    pub protocol: Protocol,
    /// Address on which it listens.
    pub address: SocketAddr,
}

impl Program {
    /// Returns the head of its column.
    pub fn name(self) -> &'static str {
        match self {
            Program::Ours => "ours",
            Program::Limit => "limit",
            Program::C => "C daemon",
            Program::Redis => "redis",
            Program::Yrmcds => "yrmcds",
            Program::Beanstalkd => "beanst.d",
            Program::BeanstalkdLazy => "b. -f50",
            Program::OursInSqlite => "sqlite",
            Program::SkipLocked => "skip l.",
            Program::HaProxy => "haproxy",
            Program::Stunnel => "stunnel",
        }
    }

    /// Returns the path of its file, if it is installed.
    pub fn path(self) -> Option<PathBuf> {
        match self {
            Program::Ours | Program::OursInSqlite => Some(env!("CARGO_BIN_EXE_poolcounter").into()),
            Program::Limit => env::current_exe().ok(),
            Program::C => find("poolcounterd"),
            Program::Redis => find("redis-server"),
            Program::Yrmcds => find("yrmcdsd"),
            Program::Beanstalkd | Program::BeanstalkdLazy => find("beanstalkd"),
            Program::SkipLocked => poolcounter_testkit::postgres::programs(),
            Program::HaProxy => find("haproxy"),
            Program::Stunnel => find("stunnel"),
        }
    }

    fn arguments(self, protocol: Protocol, address: SocketAddr) -> Vec<String> {
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let words: &[&str] = match (self, protocol) {
            (Program::Ours, Protocol::Lines)
            | (Program::OursInSqlite | Program::SkipLocked | Program::HaProxy | Program::Stunnel, _) => &[],
            (Program::Ours, Protocol::Frames) => &["--counter", "--counter-listen", &address.to_string()],
            (Program::Ours, Protocol::Members) => {
                &["--members", "--members-listen", &address.to_string(), "--members-store", "memory"]
            }
            (Program::Ours, Protocol::Jobs) => {
                &["--jobs", "--jobs-store", "memory", "--jobs-listen", &address.to_string()]
            }
            (Program::Limit, Protocol::Lines | Protocol::Members) => &[LIMIT_ARGUMENT],
            (Program::Limit, Protocol::Jobs) => &[LIMIT_ARGUMENT, JOBS_ARGUMENT],
            (Program::Beanstalkd | Program::BeanstalkdLazy, _) => &["-l", &ip, "-p", &port],
            (Program::Limit, Protocol::Frames) => &[LIMIT_ARGUMENT, FRAMES_ARGUMENT],
            (Program::C, _) => &["-l", &ip],
            (Program::Redis, _) => &["--bind", &ip, "--port", &port, "--save", "", "--appendonly", "no"],
            (Program::Yrmcds, _) => &["-f", "/dev/stdin"],
        };
        let further = if self == Program::Ours { env::var("BENCH_OPTIONS").unwrap_or_default() } else { String::new() };
        words.iter().copied().chain(further.split_whitespace()).map(String::from).collect()
    }

    /// Returns whether it takes its listening socket on the standard input, so that clients can connect before it has
    /// started.
    fn inherits_socket(self) -> bool {
        matches!(self, Program::Ours | Program::Limit)
    }
}

impl Server {
    /// Starts a server on its core.
    pub fn start(program: Program, protocol: Protocol, settings: &Settings) -> io::Result<Server> {
        Server::run(&[], program, protocol, &[], settings)
    }

    /// Starts a server of the pools with further options.
    pub fn start_with(program: Program, options: &[String], settings: &Settings) -> io::Result<Server> {
        Server::run(&[], program, Protocol::Lines, options, settings)
    }

    /// Starts a server of the jobs that keeps them in this directory.
    pub fn start_durable(program: Program, directory: &Path, settings: &Settings) -> io::Result<Server> {
        let path = directory.display();
        let options = match program {
            Program::Ours => return Server::start_with_store(&format!("sqlite:{path}/jobs.db"), settings),
            Program::Beanstalkd => vec!["-b".into(), path.to_string(), "-f0".into()],
            // These are the defaults of its options.
            _ => vec!["-b".into(), path.to_string(), "-f50".into()],
        };
        Server::run(&[], program, Protocol::Jobs, &options, settings)
    }

    /// Starts our daemon with jobs in this store.
    pub fn start_with_store(store: &str, settings: &Settings) -> io::Result<Server> {
        Server::run(&[], Program::Ours, Protocol::Jobs, &["--jobs-store".into(), store.into()], settings)
    }

    /// Starts our daemon with jobs in this directory, and its status page at this address.
    pub fn start_durable_with_http(directory: &Path, http: SocketAddr, settings: &Settings) -> io::Result<Server> {
        let store = format!("sqlite:{}/jobs.db", directory.display());
        let options = ["--jobs-store", &store, "--http", &http.to_string()].map(String::from);
        Server::run(&[], Program::Ours, Protocol::Jobs, &options, settings)
    }

    /// Starts a server inside another program, such as valgrind.
    pub fn start_under(
        wrapper: &[&str],
        program: Program,
        protocol: Protocol,
        options: &[String],
        settings: &Settings,
    ) -> io::Result<Server> {
        Server::run(wrapper, program, protocol, options, settings)
    }

    fn run(
        wrapper: &[&str],
        program: Program,
        protocol: Protocol,
        options: &[String],
        settings: &Settings,
    ) -> io::Result<Server> {
        let path = program.path().ok_or_else(|| io::Error::other(format!("{} is not installed", program.name())))?;
        let listener = listen()?;
        let address = match (program, protocol) {
            (Program::C, _) => SocketAddr::new(unused_ip().into(), POOLS_PORT),
            (Program::Ours, Protocol::Frames) => SocketAddr::new(unused_ip().into(), COUNTERS_PORT),
            (Program::Ours, Protocol::Members) => SocketAddr::new(unused_ip().into(), MEMBERS_PORT),
            (Program::Ours | Program::Beanstalkd | Program::BeanstalkdLazy, Protocol::Jobs) => {
                SocketAddr::new(unused_ip().into(), JOBS_PORT)
            }
            _ => listener.local_addr()?,
        };
        let mut words: Vec<OsString> = wrapper.iter().map(OsString::from).collect();
        words.push(path.into());
        let arguments = program.arguments(protocol, address);
        words.extend(arguments.iter().chain(options).map(OsString::from));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::null());
        command.stderr(if wrapper.is_empty() { Stdio::null() } else { Stdio::piped() });
        if program.inherits_socket() {
            command.stdin(OwnedFd::from(listener));
        } else {
            command.stdin(if program == Program::Yrmcds { Stdio::piped() } else { Stdio::null() });
            drop(listener);
        }
        let mut child = match settings.cores {
            Some(cores) => cores.on_server_core(|| command.spawn())??,
            None => command.spawn()?,
        };
        // The command keeps the listening socket open in this process too, until it is dropped.
        drop(command);
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(yrmcds_settings(address)?.as_bytes())?;
        }
        let mut server = Server { child, program, protocol, address };
        server.await_start()?;
        Ok(server)
    }

    /// Returns a request that has one reply and changes nothing.
    pub fn greeting(&self) -> Vec<u8> {
        match (self.program, self.protocol) {
            (_, Protocol::Frames) => noop(),
            (_, Protocol::Members) => b"UTILIZATION p\n".to_vec(),
            (_, Protocol::Jobs) => b"list-tube-used\r\n".to_vec(),
            (Program::Redis, Protocol::Lines) => b"PING\r\n".to_vec(),
            (_, Protocol::Lines) => b"STATS UPTIME\n".to_vec(),
        }
    }

    /// Returns the processor time that it has used.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        machine::cpu_time(self.child.id())
    }

    /// Returns the processor time that its threads of this name have used.
    pub fn thread_time(&self, name: &str) -> io::Result<Duration> {
        machine::thread_time(self.child.id(), name)
    }

    /// Returns its resident memory in bytes.
    pub fn resident(&self) -> io::Result<u64> {
        machine::resident(self.child.id())
    }

    /// Returns its highest resident memory in bytes since the last call.
    pub fn peak(&self) -> io::Result<u64> {
        machine::peak(self.child.id())
    }

    /// Starts an upgrade to the program on the disk.
    pub fn upgrade(&self) -> io::Result<()> {
        Ok(kill(Pid::from_raw(self.child.id() as i32), Signal::SIGUSR1)?)
    }

    /// Asks it to end, and returns the standard error of it and its wrapper.
    pub fn stop(mut self) -> io::Result<String> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)?;
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other("it does not end"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            stderr.read_to_string(&mut said)?;
        }
        Ok(said)
    }

    fn await_start(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = TcpStream::connect(self.address) {
            if Instant::now() > deadline || self.child.try_wait()?.is_some() {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a socket on a free port. The options that connections inherit are the same for every program.
fn listen() -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Returns a loopback address of this process's own: the C daemon's port is fixed.
fn unused_ip() -> Ipv4Addr {
    static STARTED: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high.max(1), low, STARTED.fetch_add(1, Ordering::Relaxed).clamp(1, 254))
}

/// Returns the settings of yrmcds. It binds both addresses, which must differ, with three ports each; the counters' is
/// that of `address`. The number of workers is Debian's.
fn yrmcds_settings(address: SocketAddr) -> io::Result<String> {
    let [port, repl_port] = [listen()?, listen()?].map(|listener| listener.local_addr().map(|address| address.port()));
    let lines = [
        format!("virtual_ip = {}", address.ip()),
        format!("bind_ip = {}", unused_ip()),
        format!("port = {}", port?),
        format!("repl_port = {}", repl_port?),
        format!("temp_dir = {:?}", env::temp_dir()),
        "buckets = 10000".into(),
        "workers = 10".into(),
        "counter.enable = true".into(),
        format!("counter.port = {}\n", address.port()),
    ];
    Ok(lines.join("\n"))
}

fn find(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}
