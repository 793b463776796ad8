//! beanstalkd, if it is installed: the reference for the behaviour that clients of the jobs expect.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// State of a listening socket in the kernel's table of sockets.
const LISTENS: &str = "0A";

/// A running beanstalkd, which keeps its jobs in memory.
pub struct Beanstalkd {
    child: Child,
    pub address: SocketAddr,
}

impl Beanstalkd {
    /// Returns the path of the installed program.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]);
        places.map(|place| place.join("beanstalkd")).find(|program| program.is_file())
    }

    /// Starts it on a free port.
    pub fn start(program: &Path) -> Beanstalkd {
        loop {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = free.local_addr().expect("has an address");
            drop(free);
            let mut command = Command::new(program);
            command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
            // Dropping this value ends the process, also after a panic.
            let mut beanstalkd = Beanstalkd { child, address };
            let deadline = Instant::now() + PATIENCE;
            // If another process took the port first, this one ends and the next port is tried.
            while beanstalkd.child.try_wait().expect("is our child").is_none() {
                if beanstalkd.listens() {
                    return beanstalkd;
                }
                assert!(Instant::now() < deadline, "beanstalkd does not listen");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Beanstalkd {
    /// Returns whether this very process listens on the port: for a moment another process may have it.
    fn listens(&self) -> bool {
        let port = format!(":{:04X}", self.address.port());
        let sockets = fs::read_to_string("/proc/net/tcp").expect("Linux tells");
        let rows = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut listening = rows.filter(|row| row.len() > 9 && row[1].ends_with(&port) && row[3] == LISTENS);
        let Ok(files) = fs::read_dir(format!("/proc/{}/fd", self.child.id())) else { return false };
        let own: Vec<PathBuf> = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok()).collect();
        listening.any(|row| own.contains(&PathBuf::from(format!("socket:[{}]", row[9]))))
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
