//! The original daemons, if they are installed: the references for the behaviour that clients expect.

use super::scratch::Scratch;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The only port on which the C daemon listens.
const PORT: u16 = 7531;
const PATIENCE: Duration = Duration::from_secs(10);
/// State of a listening socket in the kernel's table of sockets.
const LISTENS: &str = "0A";

/// A running original.
pub struct Original {
    child: Child,
    pub address: SocketAddr,
    _files: Option<Scratch>,
}

/// Command that starts an original, its address, and its files.
pub type Prepared = (Command, SocketAddr, Option<Scratch>);

impl Original {
    /// Returns the path of the C daemon.
    pub fn program() -> Option<PathBuf> {
        installed(&["poolcounterd"])
    }

    /// Starts the C daemon on a local address of its own.
    pub fn start(program: &Path) -> Original {
        Original::serve(|| {
            let address = free_address();
            let mut command = Command::new(program);
            command.args(["-l", &address.ip().to_string()]);
            (command, address, None)
        })
    }

    /// Starts an original. If another process takes its port first, the original ends, and the next port is tried.
    pub fn serve(prepare: impl Fn() -> Prepared) -> Original {
        loop {
            let (mut command, address, files) = prepare();
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs");
            // Dropping this value ends the process, also after a panic.
            let mut original = Original { child, address, _files: files };
            let deadline = Instant::now() + PATIENCE;
            while original.child.try_wait().expect("is our child").is_none() {
                if original.listens() {
                    return original;
                }
                assert!(Instant::now() < deadline, "nothing listens at {address}");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

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

impl Drop for Original {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the first of these programs that is installed.
pub fn installed(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/sbin".into()]).collect();
    let mut programs = names.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    programs.find(|program| program.is_file())
}

/// Returns a port that was unused just now.
pub fn free_port(ip: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((ip, 0)).expect("a free port");
    listener.local_addr().expect("has an address").port()
}

/// Returns a local address at which nothing listened just now.
pub fn nowhere() -> String {
    format!("127.0.0.1:{}", free_port(Ipv4Addr::LOCALHOST))
}

/// Returns an unused local address, different in each call and most likely in each process.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = std::process::id() % 200;
        let ip = Ipv4Addr::new(127, 20 + place as u8, (n / 250) as u8, (n % 250 + 2) as u8);
        let address = SocketAddr::from((ip, PORT));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}
