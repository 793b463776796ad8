//! One body per target, and how they read their input.

pub mod counters_model;
pub mod counters_stream;
pub mod counters_wire;
pub mod http;
pub mod jobs_model;
pub mod jobs_stream;
pub mod jobs_wire;
pub mod members_model;
pub mod members_stream;
pub mod members_wire;
pub mod pools_model;
pub mod pools_stream;
pub mod pools_wire;
pub mod wheel;

/// Reads choices from the fuzzer's bytes. When these are used up, everything is zero.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// The choices in these bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Choices(data)
    }

    /// Whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// The next bytes, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number from any range: a mantissa of one byte, and its shift in another.
    pub fn number(&mut self) -> u64 {
        u64::from(self.byte()) << (self.byte() % 56)
    }

    /// One of some things.
    pub fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[usize::from(self.byte()) % things.len()]
    }
}

/// However a stream is cut, however slowly the replies are read, and whether the end comes with the last bytes or later:
/// the replies are the same. `converse` sends it in chunks of some sizes, and takes so many bytes after each.
fn assert_same_when_cut(data: &[u8], converse: impl Fn(&[u8], &mut dyn FnMut() -> usize, usize) -> Vec<u8>) {
    let whole = converse(data, &mut || usize::MAX, usize::MAX).escape_ascii().to_string();
    for room in [usize::MAX, data.len() % 32] {
        let mut sizes = data.iter().map(|byte| usize::from(byte % 8)).cycle();
        let cut = converse(data, &mut || sizes.next().unwrap_or(1), room).escape_ascii().to_string();
        assert_eq!(whole, cut, "cut, with room for {room} bytes of reply after each chunk");
    }
}
