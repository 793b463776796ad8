//! Requests of clients of the counters: frames that make sense, and frames that do not.

use super::frames::{acquire, dump, frame, get, release, stats};
use super::random::Random;

/// Kind of a frame.
#[derive(Clone, Copy)]
enum Frame {
    Acquire,
    Release,
    Get,
    Dump,
    Stats,
    Noop,
    Odd,
    Long,
}

const FRAMES: [(Frame, usize); 8] = [
    (Frame::Acquire, 20),
    (Frame::Release, 12),
    (Frame::Get, 4),
    (Frame::Dump, 4),
    (Frame::Stats, 3),
    (Frame::Noop, 1),
    (Frame::Odd, 2),
    (Frame::Long, 1),
];
const NUMBERS: [u32; 8] = [1, 1, 2, 3, 7, 0x7fff_ffff, 0xffff_fffe, 0xffff_ffff];
const MAXIMA: [u32; 6] = [1, 5, 10, 10, 0x8000_0000, 0xffff_ffff];
/// Lengths of bodies: about the length that is kept of a body, the length of one read, and the maximum length.
const LENGTHS: [usize; 8] = [65_544, 65_545, 65_546, 70_000, 131_080, 200_000, 1 << 20, (1 << 20) + 1];

/// Random generator of frames.
pub struct Counting {
    frames: Vec<(Frame, usize)>,
    names: usize,
    maximum: u32,
}

impl Counting {
    /// Returns a generator with random weights; kinds with weight 0 never occur.
    pub fn new(random: &mut Random) -> Self {
        Counting { frames: random.swarm(&FRAMES), names: random.pick(&[1, 2, 3, 5, 6]), maximum: random.pick(&MAXIMA) }
    }

    /// Returns one frame.
    pub fn frame(&self, random: &mut Random) -> Vec<u8> {
        let name = self.name(random);
        match random.weigh(&self.frames) {
            Frame::Acquire => {
                let maximum = if random.once_in(4) { random.pick(&MAXIMA) } else { self.maximum };
                let resources = if random.once_in(3) { random.pick(&NUMBERS) } else { 1 };
                acquire(resources, maximum, &name)
            }
            Frame::Release => release(random.pick(&[0, 1, 1, 2, 3, 0xffff_ffff]), &name),
            Frame::Get => get(&name),
            Frame::Dump => dump(),
            Frame::Stats => stats(),
            Frame::Noop => frame(0x00, &name[..random.below(name.len())]),
            Frame::Odd => odd(random, &name),
            Frame::Long => long(random, &name),
        }
    }

    fn name(&self, random: &mut Random) -> Vec<u8> {
        match random.below(self.names) {
            0 => b"foo".to_vec(),
            1 => b"\0".to_vec(),
            2 => b"\xff\n ".to_vec(),
            3 => b"FOO".to_vec(),
            4 => b"conflicts".to_vec(),
            _ => b"a-long-name".repeat(300),
        }
    }
}

/// Returns a frame that differs from a good one in some byte, or is not as long as it should be.
fn odd(random: &mut Random, name: &[u8]) -> Vec<u8> {
    let body = acquire(1, 5, name)[12..].to_vec();
    let body = &body[..random.below(body.len() + 1)];
    let mut odd = frame(random.pick(&[0x00, 0x01, 0x02, 0x02, 0x03, 0x04, 0x10, 0x11, 0x12, 0xff]), body);
    if random.once_in(2) {
        odd[0] = random.pick(&[0x91, 0x00, 0x80]);
    }
    odd[8..12].copy_from_slice(&(random.next() as u32).to_be_bytes());
    odd
}

fn long(random: &mut Random, name: &[u8]) -> Vec<u8> {
    let mut whole =
        random.pick(&[acquire(1, 5, name), release(1, name), get(name), dump(), frame(0x55, name)].each_ref()).clone();
    whole.resize(12 + random.pick(&LENGTHS), 0x90);
    let body = (whole.len() - 12) as u32;
    whole[4..8].copy_from_slice(&body.to_be_bytes());
    whole
}
