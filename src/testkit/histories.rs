//! Every history of a given number of letters, for the exhaustive tests.

/// Plays every extension of a history to `len` letters. A history is extended only by letters for which `is_new` is
/// true.
pub fn extend<L: Copy>(
    history: &mut Vec<L>,
    alphabet: &[L],
    len: usize,
    is_new: fn(&[L], L) -> bool,
    play: &mut impl FnMut(&[L]),
) {
    if history.len() == len {
        return play(history);
    }
    for letter in alphabet {
        if is_new(history, *letter) {
            history.push(*letter);
            extend(history, alphabet, len, is_new, play);
            history.pop();
        }
    }
}
