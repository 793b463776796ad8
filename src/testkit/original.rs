//! The C daemon, if it is installed: the reference for the behaviour that clients expect.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The only port on which the C daemon listens.
const PORT: u16 = 7531;
const PATIENCE: Duration = Duration::from_secs(10);

/// A running C daemon.
pub struct Original {
    child: Child,
    pub address: SocketAddr,
}

impl Original {
    /// Returns the path of the installed program.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]);
        places.map(|place| place.join("poolcounterd")).find(|program| program.is_file())
    }

    /// Starts it on a local address of its own.
    pub fn start(program: &Path) -> Original {
        loop {
            let address = free_address();
            let mut command = Command::new(program);
            command.args(["-l", &address.ip().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("the program runs");
            let deadline = Instant::now() + PATIENCE;
            // If another process took the port first, this one ends and the next address is tried.
            while child.try_wait().expect("is our child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Original { child, address };
                }
                assert!(Instant::now() < deadline, "the C daemon does not listen");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
