//! beanstalkd, if it is installed: the reference for the behaviour that clients of the jobs expect.

use super::original::{Original, free_port, installed};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The original of the jobs, which keeps its jobs in memory.
pub struct Beanstalkd;

impl Beanstalkd {
    /// Returns the path of the installed program.
    pub fn program() -> Option<PathBuf> {
        installed(&["beanstalkd"])
    }

    /// Starts it on a free port.
    pub fn start(program: &Path) -> Original {
        Original::serve(|| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(Ipv4Addr::LOCALHOST)));
            let mut command = Command::new(program);
            command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
            (command, address, None)
        })
    }
}
