//! The child of a rehearsal: its input and its output.

use super::environment::set_process_name;
use super::{EXPENDABLE, Handover, OOM_SCORE, Preamble, READY, Rehearsed};
use crate::connections;
use poolcounter_core::{ConnId, Reader, Writer};
use poolcounter_service::container::Services;
use std::collections::HashSet;
use std::env;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;

/// Runs the child of a rehearsal: restores the handover on the standard input, and prints that this program could take
/// over. `config` is the text of the configuration file that the services were made with.
///
/// # Errors
///
/// One sentence with the reason.
pub fn check(services: Services, config: Option<String>, is_config_empty: bool) -> Result<(), String> {
    be_expendable();
    let stdin = || io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let stdin = || stdin().map_err(|error| format!("the handover cannot be read: {error}"));
    let Handover { preamble: Preamble { clock, ports, sockets, .. }, mut rest } = Handover::read(stdin()?)?;
    if let Some(port) = ports.iter().find(|port| services.named(&port.service).is_none()) {
        return Err(format!("this program has no service {}", port.service));
    }
    let mut sockets: HashSet<ConnId> = sockets.iter().map(|socket| socket.id).collect();
    let (time, mut rest) = ((clock.now(), clock.epoch()), Reader::new(&mut rest));
    let had_rules = connections::rehearse(services, &mut rest, time, |id| sockets.remove(&id))
        .map_err(|error| error.to_string())?;
    if had_rules && is_config_empty {
        // An editor may be about to write it. Without its rules every client might send every request.
        return Err("the configuration file is empty, and there are rules of access".into());
    }
    append(&mut stdin()?, &Rehearsed { config })
        .map_err(|error| format!("the configuration cannot be appended to the handover: {error}"))?;
    print!("{READY}");
    Ok(())
}

/// Makes the system end this child rather than the daemon if memory is short.
pub(super) fn be_expendable() {
    // A system without this file needs no such setting.
    let _ = fs::write(OOM_SCORE, EXPENDABLE);
    env::args_os().next().iter().for_each(set_process_name);
}

fn append(file: &mut File, rehearsed: &Rehearsed) -> io::Result<()> {
    file.seek(SeekFrom::End(0))?;
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).put(rehearsed)?;
    file.write_all(&bytes)
}
