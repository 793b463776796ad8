//! Options of the toy.

use poolcounter_service::options::{Endpoint, Opt, assign, number};

/// Settings of the toy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ToySettings {
    /// Bound of the unread output of a connection, in bytes.
    pub output_bytes: usize,
}

impl Default for ToySettings {
    fn default() -> Self {
        ToySettings { output_bytes: super::OUTPUT_BYTES }
    }
}

/// Option of the addresses.
pub const LISTENING: &[Opt<Endpoint>] =
    &[Opt { long: "toy-listen", key: "toy.listen", hint: "ADDRESS", set: Endpoint::listen_on, ..Opt::BLANK }];

/// The other options.
pub const OPTIONS: &[Opt<ToySettings>] = &[Opt {
    long: "toy-output",
    key: "toy.output",
    hint: "BYTES",
    set: |settings, value| assign(&mut settings.output_bytes, number(value, 1..=1 << 20)),
    ..Opt::BLANK
}];
