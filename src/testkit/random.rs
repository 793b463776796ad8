//! Random numbers that a seed repeats on every machine: splitmix64; and the choices of a fuzzer.

/// A source of numbers.
pub struct Random {
    state: u64,
    /// Bytes from which the numbers are read instead; zeros follow the last one.
    choices: Option<std::vec::IntoIter<u8>>,
}

impl Random {
    /// Returns the source whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Random { state: seed, choices: None }
    }

    /// Returns the source whose numbers are read from these bytes.
    pub fn of_choices(bytes: &[u8]) -> Self {
        Random { state: 0, choices: Some(Vec::from(bytes).into_iter()) }
    }

    /// Returns whether all bytes are read.
    pub fn is_used_up(&self) -> bool {
        self.choices.as_ref().is_some_and(|choices| choices.len() == 0)
    }

    /// Returns any number.
    pub fn next(&mut self) -> u64 {
        self.number(8)
    }

    /// Returns any number, from so many bytes of the choices.
    fn number(&mut self, bytes: u32) -> u64 {
        if let Some(choices) = &mut self.choices {
            return (0..bytes).fold(0, |number, _| number << 8 | u64::from(choices.next().unwrap_or(0)));
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns any byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// Returns the next bytes of the choices, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.choices.iter_mut().flat_map(|choices| choices.take(len)).collect()
    }

    /// Returns a number from any range: a mantissa of one byte, and its shift in another.
    pub fn shifted(&mut self) -> u64 {
        u64::from(self.byte()) << (self.byte() % 56)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number((end - 1).max(1).ilog(256) + 1) % end as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of several things, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    /// Returns one of the things by their weights, the sum of which is not 0.
    pub fn weigh<T: Copy>(&mut self, things: &[(T, usize)]) -> T {
        let mut rest = self.below(things.iter().map(|(_, weight)| weight).sum());
        for (thing, weight) in things {
            if rest < *weight {
                return *thing;
            }
            rest -= weight;
        }
        unreachable!("the rest is less than the sum of the weights");
    }

    /// Returns the same things with random weights, so that each seed has some that never happen and some that happen
    /// often. The first keeps at least its weight.
    pub fn swarm<T: Copy>(&mut self, things: &[(T, usize)]) -> Vec<(T, usize)> {
        let mut swarm: Vec<_> =
            things.iter().map(|(thing, weight)| (*thing, weight * self.pick(&[0, 1, 1, 2, 5]))).collect();
        swarm[0].1 += things[0].1;
        swarm
    }
}

/// Returns the number in the environment variable `name`, in decimal or after 0x in hexadecimal, else `default`.
pub fn setting(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.unwrap_or_else(|_| panic!("{name}: \"{text}\" is no number"))
}
