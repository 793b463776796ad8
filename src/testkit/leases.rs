//! Leases of a members conversation in scripts: numbers from 1 on, and tokens as $1, $2. On the wire numbers begin at
//! the time of day, and tokens are random.

/// Known leases of one conversation.
#[derive(Default)]
pub struct Leases {
    /// Number on the wire of lease 1, once it is known.
    first: Option<u64>,
    tokens: Vec<String>,
}

impl Leases {
    /// Translates the lines of a client from the script's numbers and tokens to the numbers and tokens on the wire.
    pub fn said(&self, bytes: &[u8]) -> Vec<u8> {
        self.each_line(bytes, |words| {
            let is_named = matches!(words.first(), Some(&("RETURN" | "TAKEBACK" | "RENEW")));
            let change = |(n, word): (usize, &&str)| match (n, word.strip_prefix('$')) {
                (1, Some(token)) if is_named => self.token(token).unwrap_or_else(|| word.to_string()),
                (1, None) if is_named => self.shifted(word, |first, number| first + number - 1),
                _ => word.to_string(),
            };
            words.iter().enumerate().map(change).collect()
        })
    }

    /// Translates a reply from numbers and tokens on the wire to the script's.
    pub fn told(&mut self, reply: &[u8]) -> Vec<u8> {
        self.learn(reply);
        self.each_line(reply, |words| {
            let is_named = matches!(words.first(), Some(&("MEMBER" | "!LOST")));
            let change = |(n, word): (usize, &&str)| match word.strip_prefix("token=") {
                Some(token) => {
                    let known = self.tokens.iter().position(|known| known == token);
                    known.map_or(word.to_string(), |at| format!("token=${}", at + 1))
                }
                None if n == 1 && is_named => self.shifted(word, |first, number| (number + 1).saturating_sub(first)),
                None => word.to_string(),
            };
            words.iter().enumerate().map(change).collect()
        })
    }

    fn learn(&mut self, reply: &[u8]) {
        let text = String::from_utf8_lossy(reply);
        let words: Vec<&str> = text.split(' ').collect();
        if let ["MEMBER", number, ..] = words[..] {
            self.first = self.first.or(number.parse().ok());
        }
        for token in words.iter().filter_map(|word| word.strip_prefix("token=")) {
            if token.len() == 32 && !self.tokens.iter().any(|known| known == token) {
                self.tokens.push(token.into());
            }
        }
    }

    fn token(&self, name: &str) -> Option<String> {
        self.tokens.get(name.parse::<usize>().ok()?.checked_sub(1)?).cloned()
    }

    fn shifted(&self, word: &str, shift: impl Fn(u64, u64) -> u64) -> String {
        let is_short = word.len() < 20;
        match (self.first, word.parse()) {
            (Some(first), Ok(number)) if is_short && number > 0 => shift(first, number).to_string(),
            _ => word.into(),
        }
    }

    /// Changes the words of each line. Bytes that are not text stay as they are.
    fn each_line(&self, bytes: &[u8], change: impl Fn(&[&str]) -> Vec<String>) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(bytes) else { return bytes.to_vec() };
        let lines = text.split('\n').map(|line| change(&line.split(' ').collect::<Vec<_>>()).join(" "));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    }
}
