//! Handover of a process that keeps its connections, and leaves only its listeners to the successor: a terminator of
//! TLS.

use super::check::be_expendable;
use super::{Handover, Preamble, Program, READY, SavedPort, StateFile, adopt};
use crate::clock::Clock;
use crate::listener::Listener;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, RawFd};

/// Placeholder for the name of a service.
const NAME: &str = "tls";

impl StateFile {
    /// Returns a handover of these listeners and the program's path, with its descriptors.
    ///
    /// # Errors
    ///
    /// The system's error, such as for lack of memory.
    pub fn of_listeners<'a>(
        listeners: impl Iterator<Item = &'a Listener>,
        program: &Program,
    ) -> io::Result<(StateFile, Vec<RawFd>)> {
        let ports = listeners.map(|listener| SavedPort { service: NAME.into(), listener: listener.save() });
        let preamble = Preamble {
            clock: Clock::start(),
            ports: ports.collect(),
            sockets: Vec::new(),
            program: Some(OsString::from(program.path())),
            config: None,
        };
        let state = preamble.write(|_| Ok(()))?;
        Ok((state, preamble.descriptors().collect()))
    }
}

impl Handover {
    /// Returns the listeners of the handover, and the path of the program.
    ///
    /// # Errors
    ///
    /// One sentence with the missing part.
    pub fn into_listeners(self) -> Result<(Vec<Listener>, Option<Program>), String> {
        let Preamble { ports, program, .. } = self.preamble;
        let restore = |SavedPort { listener, .. }| Listener::restore(adopt(listener.fd)?, listener);
        let listeners: io::Result<Vec<Listener>> = ports.into_iter().map(restore).collect();
        Ok((listeners.map_err(|error| format!("cannot take over: {error}"))?, program.map(Program::at)))
    }
}

/// Runs the child of a rehearsal: reads the handover on the standard input, and prints that this program could take
/// over.
///
/// # Errors
///
/// One sentence with the reason.
pub fn check_listeners() -> Result<(), String> {
    be_expendable();
    let stdin =
        io::stdin().as_fd().try_clone_to_owned().map_err(|error| format!("the handover cannot be read: {error}"))?;
    Handover::read(std::fs::File::from(stdin))?;
    print!("{READY}");
    Ok(())
}
