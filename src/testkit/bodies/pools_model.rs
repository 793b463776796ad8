//! Sequences of operations, by the daemon and by the naive model of it.

use super::{CLIENTS, Choices, act, some_bytes};
use crate::model::{Limits, Service};
use crate::twin::{Action, Twin};

const KEYS: [&str; 2] = ["k", "l"];
const NUMBERS: [&str; 5] = ["1", "2", "3", "0", "4294967296"];
const TIMEOUTS: [&str; 6] = ["", "0", "0.001", "1", "2.5", "60"];
const HOLDS: [&str; 4] = ["", "", " hold=1", " hold=0.002"];
const STATS: [&str; 4] = ["", " TYPES", " waiting_workers", " nothing"];
/// Number of repetitions of the bytes in one go. The last is more lines than a turn takes, more bytes than one read,
/// and with `STATS` more output than may stay unsent.
const TIMES: [usize; 4] = [1, 1, 40, 700];
/// Longest jump of time: a month.
const FAR_US: u64 = 30 * 86_400_000_000;

/// Applies the input to the daemon and to the model.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits {
        max_locks: choices.pick(&[4, 1, 2]),
        max_hold_us: choices.pick(&[None, Some(1_500_000)]),
        max_line: choices.pick(&[8192, 64]),
        ..Limits::USUAL
    };
    let mut twin = Twin::new(limits);
    act(&mut twin, Service::Pools, FAR_US, &mut choices, |turn, choices| match turn / 16 {
        0..=4 => acquire(choices).into_bytes(),
        5 => b"RELEASE\n".to_vec(),
        6 => format!("RELEASE {}\n", choices.pick(&KEYS)).into_bytes(),
        7 => format!("STATS{}\n", choices.pick(&STATS)).into_bytes(),
        _ => some_bytes(turn, choices).repeat(TIMES[usize::from(turn) / CLIENTS % TIMES.len()]),
    });
    // Clients that do not read are disconnected after some seconds.
    twin.act(Action::Pass(6_000_000));
    assert!(twin.is_empty(), "something is left of somebody");
}

fn acquire(choices: &mut Choices<'_>) -> String {
    let kind = choices.pick(&["ACQ4ME", "ACQ4ANY"]);
    let (key, workers, most) = (choices.pick(&KEYS), choices.pick(&NUMBERS), choices.pick(&NUMBERS));
    format!("{kind} {key} {workers} {most} {}{}\n", choices.pick(&TIMEOUTS), choices.pick(&HOLDS))
}
