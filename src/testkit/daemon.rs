//! The real program as a process: started on a free port, and ended with its test.

use crate::protocol::Protocol;
use crate::scratch::Scratch;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait, longer than anything takes on a busy machine; a test that waits longer fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Longest latency of requests that are answered at once.
pub const PROMPT: Duration = Duration::from_secs(2);

/// A running daemon.
pub struct Daemon {
    child: Child,
    /// Unread lines of its log.
    log: Receiver<String>,
    /// Lines of the log that were read.
    pub lines: Vec<String>,
    /// First TCP address on which it listens.
    pub address: SocketAddr,
    /// Directory of the files that have no place in its settings.
    _state: Scratch,
}

/// One connection to a daemon that awaits its replies.
pub struct Client<S = TcpStream> {
    pub(crate) reader: BufReader<S>,
}

/// Gives a client of another protocol, which has a [`Client`] as its only field, the methods of that.
macro_rules! derefs_to_client {
    ($name:ty) => {
        impl std::ops::Deref for $name {
            type Target = Client;

            fn deref(&self) -> &Client {
                &self.0
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Client {
                &mut self.0
            }
        }
    };
}

pub(crate) use derefs_to_client;

impl Daemon {
    /// Returns the path of the tested program: `TESTED_PROGRAM`, or the program in the directory above the tests.
    pub fn program() -> &'static str {
        static PROGRAM: OnceLock<String> = OnceLock::new();
        PROGRAM.get_or_init(|| {
            if let Ok(program) = std::env::var("TESTED_PROGRAM") {
                return program;
            }
            let this = std::env::current_exe().expect("the system says which program this is");
            let program = this.ancestors().nth(2).expect("it is built below the program").join("poolcounter");
            program.into_os_string().into_string().expect("is text")
        })
    }

    /// Starts it on a free port of 127.0.0.1, with these options.
    pub fn start(options: &[&str]) -> Daemon {
        Daemon::run(Command::new(Self::program()).args(["-l", "127.0.0.1:0"]).args(options))
    }

    /// Starts it with counters too, on another free port.
    pub fn start_with_counters(options: &[&str]) -> Daemon {
        Daemon::start(&[&["--counter", "--counter-listen", "127.0.0.1:0"], options].concat())
    }

    /// Returns the address of the counters.
    pub fn counters(&self) -> SocketAddr {
        self.address_of(Protocol::Counters)
    }

    /// Starts it with the service of a protocol.
    pub fn speaking(protocol: Protocol, options: &[&str]) -> Daemon {
        match protocol {
            Protocol::Pools => Daemon::start(options),
            Protocol::Counters => Daemon::start_with_counters(options),
            Protocol::Members => Daemon::start_with_members(options),
            Protocol::Jobs => Daemon::start_with_jobs(options),
        }
    }

    /// Returns the address of the service of a protocol.
    pub fn address_of(&self, protocol: Protocol) -> SocketAddr {
        if protocol == Protocol::Pools {
            return self.address;
        }
        let words = format!("the {} are at ", protocol.kind());
        let line = self.lines.iter().find_map(|line| line.split_once(&words));
        line.and_then(|(_, address)| address.parse().ok()).expect("it was started with that service, on one port")
    }

    /// Starts it with jobs too, on another free port, in memory unless the options say otherwise.
    pub fn start_with_jobs(options: &[&str]) -> Daemon {
        let memory: &[&str] = if options.contains(&"--jobs-store") { &[] } else { &["--jobs-store", "memory"] };
        Daemon::start(&[&["--jobs", "--jobs-listen", "127.0.0.1:0"], memory, options].concat())
    }

    /// Returns the address of the jobs.
    pub fn jobs(&self) -> SocketAddr {
        self.address_of(Protocol::Jobs)
    }

    /// Starts it with members too, on another free port.
    pub fn start_with_members(options: &[&str]) -> Daemon {
        Daemon::start(&[&["--members", "--members-listen", "127.0.0.1:0"], options].concat())
    }

    /// Returns the address of the members.
    pub fn members(&self) -> SocketAddr {
        self.address_of(Protocol::Members)
    }

    /// Starts the daemon with this command. Members are kept in memory unless it says otherwise. Files without a place
    /// in its settings are in its working directory, if the command has one, else in a directory of its own.
    pub fn run(command: &mut Command) -> Daemon {
        let has = |option: &str| command.get_args().any(|word| word == option);
        if has("--members") && !has("--members-store") {
            command.args(["--members-store", "memory"]);
        }
        let state = Scratch::new();
        if command.get_current_dir().is_none() {
            command.env("STATE_DIRECTORY", state.file(""));
        }
        let mut child = command.stderr(Stdio::piped()).env_remove("RUST_LOG").spawn().expect("the program runs");
        let stderr = BufReader::new(child.stderr.take().expect("is piped"));
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(line);
            }
        });
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut daemon = Daemon { child, log, lines: Vec::new(), address, _state: state };
        let start = daemon.wait_for_log(" listens on ");
        let addresses = start.rsplit(" listens on ").next().unwrap_or_default();
        daemon.address =
            addresses.split_whitespace().find_map(|word| word.trim_end_matches(',').parse().ok()).unwrap_or(address);
        daemon
    }

    /// Connects a client.
    pub fn connect(&self) -> Client {
        Client::to(self.address)
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("the process is there");
    }

    /// Waits for the next line of its log that contains `text`, and returns it.
    pub fn wait_for_log(&mut self, text: &str) -> String {
        loop {
            let line =
                self.log.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{text:?} is not in {:#?}", self.lines));
            self.lines.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Returns the lines of the log since the last call.
    pub fn new_log(&mut self) -> Vec<String> {
        self.log.try_iter().collect()
    }

    /// Replaces its program, which was started from `path`, and waits until the new one has taken over.
    pub fn upgrade(&mut self) {
        self.signal(Signal::SIGUSR1);
        self.wait_for_log("has taken over");
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// Returns its anonymous resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process is there");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells");
        line.trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("is sent");
    }

    /// Waits for the next line, and returns it.
    pub fn line(&mut self) -> String {
        self.try_line().expect("a line comes")
    }

    /// Returns the next line, which is empty at the end.
    pub fn try_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line.trim_end_matches('\n').to_string())
    }

    /// Sends a request, and returns the first line of its reply.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(format!("{request}\n").as_bytes());
        self.line()
    }

    /// Waits for this number of bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).expect("all of it comes");
        bytes
    }

    /// Returns everything up to the end of the connection.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).expect("the connection ends");
        text
    }
}

impl Client<UnixStream> {
    /// Connects to a local socket.
    pub fn at(path: &Path) -> Client<UnixStream> {
        let stream = UnixStream::connect(path).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        Client { reader: BufReader::new(stream) }
    }
}

impl Client {
    /// Connects to the daemon at this address.
    pub fn to(address: SocketAddr) -> Client {
        Client::of(TcpStream::connect(address).expect("connects"))
    }

    /// Connects to the daemon at this address from one of the machine's own addresses, such as 127.0.0.2.
    pub fn from(ip: Ipv4Addr, address: SocketAddr) -> Client {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((ip, 0)).into()).expect("is the machine's own");
        socket.connect(&address.into()).expect("connects");
        Client::of(socket.into())
    }

    /// Returns a client on this connection.
    pub fn of(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.set_nodelay(true).expect("an option");
        Client { reader: BufReader::new(stream) }
    }

    /// Returns the value of one statistic.
    pub fn stat(&mut self, name: &str) -> u64 {
        let line = self.ask(&format!("STATS {name}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    /// Waits until a statistic has this value.
    pub fn wait_for_stat(&mut self, name: &str, value: u64) {
        until(&format!("{name} = {value}"), || self.stat(name) == value);
    }

    /// Closes the sending side.
    pub fn finish(&mut self) {
        self.stream().shutdown(Shutdown::Write).expect("is connected");
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }

    /// Ends the connection by a reset instead of an orderly close.
    pub fn reset(self) {
        socket2::SockRef::from(self.stream()).set_linger(Some(Duration::ZERO)).expect("an option");
    }
}

/// Waits until a process has ended by itself.
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("is our child") {
            return status;
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("it does not end");
}

/// Waits until a condition is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come true");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Asserts that another client's requests are answered promptly while a client misbehaves, and returns the longest
/// latency. The daemon answers in well under a millisecond; a busy machine may add the rest.
pub fn serves_promptly(requests: usize, mut ask: impl FnMut()) -> Duration {
    let asked = (0..requests).map(|_| {
        let begun = Instant::now();
        ask();
        begun.elapsed()
    });
    let slowest = asked.max().unwrap_or_default();
    assert!(slowest < PROMPT, "others waited for {slowest:?}");
    slowest
}

/// Waits until there is a file at `path`.
pub fn wait_for_file(path: &Path) {
    until(&path.display().to_string(), || path.exists());
}

/// Raises the limit of open files of this process, and of the daemons that it starts, to the hard limit, and returns
/// it.
pub fn raise_descriptor_limit() -> usize {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("every process has one");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("up to the hard limit everybody may");
    most as usize
}

/// Puts the program at `path`, as an installation does: the new file replaces the old one at once.
pub fn install_program(path: &Path) {
    install(path, &fs::read(Daemon::program()).expect("is readable"));
}

/// Puts a program at `path` whose rehearsal, when it has read all, makes the file `PATH.read`, and ends once there is a
/// file `PATH.go`. If there is a file `PATH.bad`, it removes that and fails.
pub fn install_waiting_program(path: &Path) {
    let (program, path_text) = (Daemon::program(), path.display());
    let script = format!(
        "#!/bin/sh
case \"$*\" in *--check-handover*) ;; *) exec {program} \"$@\" ;; esac
{program} \"$@\"
touch {path_text}.read
until [ -e {path_text}.go ]; do sleep 0.02; done
[ ! -e {path_text}.bad ] || {{ rm {path_text}.bad; echo out of order; }}
"
    );
    install(path, script.as_bytes());
}

/// Puts an executable file at `path`. Another process writes the file: a child that a test forks meanwhile would have it
/// open for writing, and it could not be run then.
pub fn install(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    let mut command = Command::new("install");
    let mut writer = command.args(["-m", "755", "/dev/stdin"]).arg(&new).stdin(Stdio::piped()).spawn().expect("runs");
    writer.stdin.take().expect("is piped").write_all(content).expect("is read");
    assert!(writer.wait().expect("is our child").success(), "{} is not written", new.display());
    fs::rename(&new, path).expect("can be renamed");
}
