//! Sequences of operations, by the daemon and by the naive model of it.

use super::Choices;
use crate::support::model::{Limits, Service};
use crate::support::twin::{Action, Twin};

const CLIENTS: usize = 4;
const KEYS: [&str; 2] = ["k", "l"];
const NUMBERS: [&str; 5] = ["1", "2", "3", "0", "4294967296"];
const TIMEOUTS: [&str; 6] = ["", "0", "0.001", "1", "2.5", "60"];
const HOLDS: [&str; 4] = ["", "", " hold=1", " hold=0.002"];
const STATS: [&str; 4] = ["", " TYPES", " waiting_workers", " nothing"];
/// How often bytes are repeated in one go. The last is more lines than a turn takes, more bytes than one read, and with
/// `STATS` more output than may stay unsent.
const TIMES: [usize; 4] = [1, 1, 40, 700];
/// Time does not jump farther: a month.
const FAR_US: u64 = 30 * 86_400_000_000;

/// Does to both what the input says.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let limits = Limits {
        max_locks: choices.pick(&[4, 1, 2]),
        max_hold_us: choices.pick(&[None, Some(1_500_000)]),
        max_line: choices.pick(&[8192, 64]),
        ..Limits::USUAL
    };
    let mut twin = Twin::new(limits, "the input above shows this".into());
    let mut clients = 0..;
    let mut connect = |twin: &mut Twin| {
        twin.act(Action::Connect(Service::Pools));
        clients.next().expect("numbers do not end")
    };
    let mut slots: Vec<usize> = (0..CLIENTS).map(|_| connect(&mut twin)).collect();
    while !choices.is_empty() {
        let turn = choices.byte();
        let slot = usize::from(turn) % CLIENTS;
        let client = slots[slot];
        let action = match turn / 16 {
            0..=4 => Action::Send(client, acquire(&mut choices).into_bytes()),
            5 => Action::Send(client, b"RELEASE\n".to_vec()),
            6 => Action::Send(client, format!("RELEASE {}\n", choices.pick(&KEYS)).into_bytes()),
            7 => Action::Send(client, format!("STATS{}\n", choices.pick(&STATS)).into_bytes()),
            8 => {
                let len = usize::from(choices.byte());
                Action::Send(client, choices.bytes(len).repeat(TIMES[usize::from(turn) / CLIENTS % TIMES.len()]))
            }
            9 | 10 => Action::Pass(choices.number().min(FAR_US)),
            11 => Action::Finish(client),
            12 => Action::Reset(client),
            13 => Action::Room(client, choices.pick(&[0, 1, 7, 100, usize::MAX])),
            14 => Action::Upgrade,
            _ => Action::Settle,
        };
        let leaves = matches!(action, Action::Finish(_) | Action::Reset(_));
        twin.act(action);
        if leaves {
            slots[slot] = connect(&mut twin);
        }
    }
    slots.into_iter().for_each(|client| twin.act(Action::Finish(client)));
    // Whoever does not read is given up after some seconds.
    twin.act(Action::Pass(6_000_000));
    assert!(twin.is_empty(), "something is left of somebody");
}

fn acquire(choices: &mut Choices<'_>) -> String {
    let kind = choices.pick(&["ACQ4ME", "ACQ4ANY"]);
    let (key, workers, most) = (choices.pick(&KEYS), choices.pick(&NUMBERS), choices.pick(&NUMBERS));
    format!("{kind} {key} {workers} {most} {}{}\n", choices.pick(&TIMEOUTS), choices.pick(&HOLDS))
}
