//! SipHash-1-3 of a whole name at once. The standard library's works on pieces, and takes twice as long for short
//! names.

/// Returns the hash of these bytes with these keys.
#[inline]
pub fn siphash(keys: [u64; 2], bytes: &[u8]) -> u64 {
    let [a, b] = keys;
    let mut state =
        [a ^ 0x736f_6d65_7073_6575, b ^ 0x646f_7261_6e64_6f6d, a ^ 0x6c79_6765_6e65_7261, b ^ 0x7465_6462_7974_6573];
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        mix(&mut state, u64::from_le_bytes(*word));
    }
    // The lowest byte of the length is above the at most seven remaining bytes.
    let rest = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(&mut state, (bytes.len() as u64) << 56 | rest);
    state[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut state));
    state.into_iter().fold(0, |hash, word| hash ^ word)
}

fn mix(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

#[inline]
fn round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32).wrapping_add(*d);
    *c = c.wrapping_add(*b);
    *d = d.rotate_left(21) ^ *a;
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    #[test]
    fn hashes_equal_those_of_the_standard_library() {
        for len in 0..300_usize {
            let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            let mut hasher = DefaultHasher::new();
            hasher.write(&bytes);
            assert_eq!(siphash([0, 0], &bytes), hasher.finish(), "of {len} bytes");
        }
    }

    /// First of the reference's test vectors for SipHash-1-3 with its usual key.
    #[test]
    fn depends_on_the_keys() {
        let keys = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash(keys, b"").to_le_bytes(), [0xdc, 0xc4, 0x0f, 0x05, 0x58, 0x01, 0xac, 0xab]);
    }
}
