//! Every history of so many letters: what the exhaustive tests play.

/// Adds each letter that says something new to a history, until it is long enough, and plays each that is.
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
