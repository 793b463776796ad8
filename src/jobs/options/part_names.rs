//! Words for the parts of tubes' names.

/// Longest word for a part of tubes' names, in bytes.
const LONGEST_PART_NAME: usize = 20;
/// Words that would give other tables, metrics or labels the same name.
const TAKEN: [&str; 6] = ["cmd", "current_jobs", "le", "runner", "store", "tube"];

/// Words for the first and the last part of tubes' names.
#[derive(Clone, Debug)]
pub struct PartNames {
    words: [String; 2],
    /// Number of words that were set; the rest are the defaults.
    set: usize,
}

impl PartialEq for PartNames {
    fn eq(&self, other: &Self) -> bool {
        self.words == other.words
    }
}

impl Eq for PartNames {}

impl Default for PartNames {
    fn default() -> Self {
        PartNames { words: ["wiki", "type"].map(String::from), set: 0 }
    }
}

impl PartNames {
    /// Returns both words.
    pub fn words(&self) -> &[String; 2] {
        &self.words
    }

    /// Reads both from a list with a comma.
    ///
    /// # Errors
    ///
    /// A description of the value that was expected.
    pub fn parse(list: &str) -> Result<PartNames, String> {
        let mut names = PartNames::default();
        names.add(list)?;
        names.check().map(|()| names)
    }

    /// Refuses one word without the other.
    pub fn check(&self) -> Result<(), String> {
        if self.set == 1 {
            Err(format!("jobs.part_names has {}, but no word for the last part", self.words[0]))
        } else {
            Ok(())
        }
    }

    /// Sets the next words, of a list with commas.
    pub(super) fn add(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',') {
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            let is_good = (1..=LONGEST_PART_NAME).contains(&word.len())
                && !word.starts_with('_')
                && word.bytes().all(is_word)
                && !TAKEN.contains(&word);
            if self.set == 2 || !is_good || self.words[..self.set].iter().any(|other| other == word) {
                let taken = TAKEN.join(", ");
                return Err(format!(
                    "two different words of a to z and _, of {LONGEST_PART_NAME} letters at most and none of {taken}"
                ));
            }
            self.words[self.set] = word.into();
            self.set += 1;
        }
        Ok(())
    }
}
