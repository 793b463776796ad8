//! Sequences of operations by clients of the counters, by the daemon and by the naive model of it.

use super::{CLIENTS, Choices, act, some_bytes};
use crate::frames::frame;
use crate::model::{Limits, Service};
use crate::twin::{Action, Twin};

const NAMES: [&[u8]; 3] = [b"k", b"l", b"conflicts"];
const NUMBERS: [u32; 6] = [1, 2, 3, 0, 0x8000_0000, 0xffff_ffff];
/// Number of repetitions of the bytes in one go. The last is more requests than a turn takes, more bytes than one read,
/// and with Stats or Dump more output than may stay unsent.
const TIMES: [usize; 4] = [1, 1, 40, 700];
/// Lengths of bodies: about the length that is kept of a body, the length of one read, and the maximum length.
const LENGTHS: [usize; 6] = [65_545, 65_546, 131_080, 200_000, 1 << 20, (1 << 20) + 1];
/// Longest jump of time: a hundred intervals.
const FAR_US: u64 = 1_000_000_000;

/// Applies the input to the daemon and to the model.
pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    let max_memory = choices.pick(&[1 << 30, 200, 300]);
    let limits = Limits { interval_us: 10_000_000, max_memory, ..Limits::USUAL };
    let mut twin = Twin::new(limits);
    act(&mut twin, Service::Counters, FAR_US, &mut choices, |turn, choices| match turn / 16 {
        0..=6 => request(choices),
        7 => {
            let times = TIMES[usize::from(turn) / CLIENTS % TIMES.len()];
            let request = request(choices);
            if request.len() < 100 { request.repeat(times) } else { request }
        }
        _ => some_bytes(turn, choices),
    });
    // Clients that do not read are disconnected after some seconds, and counters stay until their interval is over.
    twin.act(Action::Pass(20_000_000));
    assert!(twin.is_empty(), "something is left of somebody");
}

fn request(choices: &mut Choices<'_>) -> Vec<u8> {
    let kind = choices.byte();
    let name = choices.pick(&NAMES);
    let name = [&(name.len() as u16).to_be_bytes()[..], name].concat();
    match kind % 16 {
        0..=5 => {
            let (resources, maximum) = (choices.pick(&NUMBERS), choices.pick(&NUMBERS));
            frame(0x02, &[&resources.to_be_bytes()[..], &maximum.to_be_bytes(), &name].concat())
        }
        6..=8 => frame(0x03, &[&choices.pick(&NUMBERS).to_be_bytes()[..], &name].concat()),
        9 => frame(0x01, &name),
        10 | 11 => frame(0x11, b""),
        12 => frame(0x10, b""),
        13 => frame(choices.byte(), &name),
        14 => {
            let mut body = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &name].concat();
            body.resize(choices.pick(&LENGTHS), 0);
            frame(choices.pick(&[0x02, 0x11, 0x00]), &body)
        }
        _ => frame(0x00, b"")[..usize::from(choices.byte() % 12)].to_vec(),
    }
}
