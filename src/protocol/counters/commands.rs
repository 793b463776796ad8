//! Table of the counters' commands.

use crate::command::Verb;
use crate::commands;

/// Rights that a rule of access can give, by [`Verb`].
pub const VERBS: &[&str] = &["acquire", "read"];
/// Right to hold units.
pub const ACQUIRE: Verb = Verb(0);
/// Right to see counters.
pub const READ: Verb = Verb(1);

commands! {
    /// Command of the counters; the second byte of a frame is its opcode.
    Opcode, byte: u8 {
        Noop = "Noop", "", None, "Does nothing.", 0x00;
        Get = "Get", "<name>", Some(READ), "Shows the units of a counter that are held.", 0x01;
        Acquire = "Acquire", "<resources> <maximum> <name>", Some(ACQUIRE), "Takes units, if no more than the maximum are held then.", 0x02;
        Release = "Release", "<resources> <name>", None, "Gives units back.", 0x03;
        Stats = "Stats", "", Some(READ), "Shows statistics.", 0x10;
        Dump = "Dump", "", Some(READ), "Shows every counter.", 0x11;
    }
}

impl Opcode {
    /// Returns the command of an opcode.
    pub fn of(byte: u8) -> Option<Opcode> {
        Opcode::ALL.iter().copied().find(|opcode| opcode.byte() == byte)
    }
}
