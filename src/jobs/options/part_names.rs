//! Words for the parts of tubes' names.

/// Longest word for a part of tubes' names, in bytes.
const LONGEST_PART_NAME: usize = 20;
/// Words that would give other tables, metrics or labels the same name.
const TAKEN: [&str; 6] = ["cmd", "current_jobs", "le", "runner", "store", "tube"];

/// Words for the first and the last part of tubes' names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartNames(pub [String; 2]);

impl Default for PartNames {
    fn default() -> Self {
        PartNames(["wiki", "type"].map(String::from))
    }
}

impl PartNames {
    /// Reads both words, with a comma between them.
    ///
    /// # Errors
    ///
    /// A description of the value that was expected.
    pub fn parse(list: &str) -> Result<PartNames, String> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let is_word = |word: &str| {
            (1..=LONGEST_PART_NAME).contains(&word.len())
                && !word.starts_with('_')
                && word.bytes().all(is_letter)
                && !TAKEN.contains(&word)
        };
        let words = list.split_once(',').filter(|(first, last)| first != last && is_word(first) && is_word(last));
        let wanted = || {
            let taken = TAKEN.join(", ");
            format!("two different words of a to z and _, of {LONGEST_PART_NAME} letters at most and none of {taken}")
        };
        words.map(|(first, last)| PartNames([first.into(), last.into()])).ok_or_else(wanted)
    }
}
