//! Values of options of the loop.

use poolcounter_server::Keepalive;
use poolcounter_service::options::{flag, number};
use std::time::Duration;

/// Returns permissions in octal.
pub fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "an octal mode from 0 to 777, or umask".into())
}

/// Returns the verbosity. Each option on the command line adds one; in a file, where a key is unique, the value can be
/// a number.
pub fn verbosity(text: &str, more: u8) -> Result<u8, String> {
    match flag(text) {
        Ok(true) => Ok(more),
        Ok(false) => Ok(0),
        Err(_) => number(text, 0..=2).map_err(|_| "true, false or a number from 0 to 2".into()),
    }
}

/// Returns the settings of keepalive; None if it is off.
pub fn keepalive(text: &str) -> Result<Option<Keepalive>, String> {
    if text == "off" {
        return Ok(None);
    }
    let wanted = || "IDLE[,INTERVAL[,PROBES]] (at most 32767,32767,127) or off".to_string();
    let defaults = Keepalive::default();
    let mut parts = text.split(',');
    let mut next = |max| parts.next().map(|part| number(part, 1..=max).map_err(|_| wanted())).transpose();
    let idle = next(32767)?.map_or(defaults.idle, |s| Duration::from_secs(u64::from(s)));
    let interval = next(32767)?.map_or(defaults.interval, |s| Duration::from_secs(u64::from(s)));
    let probes = next(127_u32)?.unwrap_or(defaults.probes);
    if parts.next().is_some() {
        return Err(wanted());
    }
    Ok(Some(Keepalive { idle, interval, probes }))
}
