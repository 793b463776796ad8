//! yrmcds, if it is installed: the reference for the behaviour that clients of the counters expect.

use super::scratch::Scratch;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Address on which it serves. Its own master is at 127.0.0.1; it insists that these two differ.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: Duration = Duration::from_secs(10);

/// A running yrmcds, with files of its own.
pub struct Yrmcds {
    child: Child,
    pub address: SocketAddr,
    _scratch: Scratch,
}

impl Yrmcds {
    /// Returns the path of the installed program.
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places: Vec<PathBuf> =
            std::env::split_paths(&path).chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/sbin")]).collect();
        let programs = ["yrmcdsd", "yrmcds"].map(|name| places.iter().map(move |place| place.join(name)));
        programs.into_iter().flatten().find(|program| program.is_file())
    }

    /// Starts it on ports of its own.
    pub fn start(program: &Path) -> Yrmcds {
        loop {
            let [port, memcache, replication] = free_ports();
            let address = SocketAddr::from((ADDRESS, port));
            let scratch = Scratch::new();
            let config = format!(
                "virtual_ip = \"{}\"\nbind_ip = \"{ADDRESS}\"\ntemp_dir = \"{}\"\nport = {memcache}\n\
                 repl_port = {replication}\nbuckets = 1000\nworkers = 2\nmemory_limit = 16M\n\
                 log.threshold = error\ncounter.enable = true\ncounter.port = {port}\ncounter.buckets = 1000\n",
                Ipv4Addr::LOCALHOST,
                scratch.file("").display()
            );
            fs::write(scratch.file("yrmcds.conf"), config).expect("can be written");
            let mut command = Command::new(program);
            command.arg("-f").arg(scratch.file("yrmcds.conf")).stdout(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().expect("the program runs");
            // Dropping this value ends the process, also after a panic.
            let mut yrmcds = Yrmcds { child, address, _scratch: scratch };
            let deadline = Instant::now() + PATIENCE;
            // If another process took a port first, this one ends and other ports are tried.
            while yrmcds.child.try_wait().expect("is our child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return yrmcds;
                }
                assert!(Instant::now() < deadline, "yrmcds does not listen");
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Yrmcds {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns ports that were unused just now.
fn free_ports() -> [u16; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("has an address").port())
}
