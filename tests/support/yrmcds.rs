//! yrmcds, where it is installed: what it does is what clients of the counters are used to.

use super::place::Place;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 11215;
const PATIENCE: Duration = Duration::from_secs(10);

/// A running yrmcds, with files of its own.
pub struct Yrmcds {
    child: Child,
    pub address: SocketAddr,
    _place: Place,
}

impl Yrmcds {
    /// Where it is installed.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> =
            std::env::split_paths(&path).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]).collect();
        let programs = ["yrmcdsd", "yrmcds"].map(|name| places.iter().map(move |place| place.join(name)));
        programs.into_iter().flatten().find(|program| program.is_file())
    }

    /// Starts it on local addresses of its own: it serves on one, and is its own master on the other.
    pub fn start(program: &Path) -> Yrmcds {
        loop {
            let [address, master] = free_addresses();
            let place = Place::new();
            let config = format!(
                "virtual_ip = \"{}\"\nbind_ip = \"{}\"\ntemp_dir = \"{}\"\nbuckets = 1000\nworkers = 2\n\
                 memory_limit = 16M\nlog.threshold = error\ncounter.enable = true\ncounter.buckets = 1000\n",
                master.ip(),
                address.ip(),
                place.file("").display()
            );
            fs::write(place.file("yrmcds.conf"), config).expect("can be written");
            let mut command = Command::new(program);
            command.arg("-f").arg(place.file("yrmcds.conf")).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().expect("the program runs");
            let deadline = Instant::now() + PATIENCE;
            // When another process was faster, this one ends and the next addresses are tried.
            while child.try_wait().expect("is our child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return Yrmcds { child, address, _place: place };
                }
                assert!(Instant::now() < deadline, "yrmcds does not listen");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Yrmcds {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two addresses on which nobody listens, different in each call and most likely in each process.
fn free_addresses() -> [SocketAddr; 2] {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let place = std::process::id() % 200;
    let is_free = |address: &SocketAddr| TcpListener::bind(address).is_ok();
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let (high, low) = ((n / 120) as u8, (n % 120 * 2 + 2) as u8);
        let addresses =
            [low, low + 1].map(|low| SocketAddr::from((Ipv4Addr::new(127, 20 + place as u8, 100 + high, low), PORT)));
        if addresses.iter().all(is_free) {
            return addresses;
        }
    }
}
