//! yrmcds, if it is installed: the reference for the behaviour that clients of the counters expect.

use super::original::{Original, free_port, installed};
use super::scratch::Scratch;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Address on which it serves. Its own master is at 127.0.0.1; it insists that these two differ.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The original of the counters, with files of its own.
pub struct Yrmcds;

impl Yrmcds {
    /// Returns the path of the installed program.
    pub fn program() -> Option<PathBuf> {
        installed(&["yrmcdsd", "yrmcds"])
    }

    /// Starts it on ports of its own.
    pub fn start(program: &Path) -> Original {
        Original::serve(|| {
            let [port, memcache, replication] = [(); 3].map(|()| free_port(Ipv4Addr::UNSPECIFIED));
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
            command.arg("-f").arg(scratch.file("yrmcds.conf"));
            (command, SocketAddr::from((ADDRESS, port)), Some(scratch))
        })
    }
}
