//! Documentation names its nouns: pronouns in doc comments that have none are counted.
//!
//! A doc comment is each run of lines that begin with `///` or `//!`, below `src`. These are counted:
//!
//! - `those` and `such`, if a word of [`FUNCTION_WORDS`], a punctuation mark or the end follows. `such as`, `such a` and
//!   `such an` do not count.
//! - `others`, always.
//! - `one that`.

use crate::budgets::list;
use std::fs;
use std::path::Path;

/// Maximum of these pronouns.
const MOST: usize = 60;

/// Words that are no noun and no adjective: a pronoun before one of them stands alone.
const FUNCTION_WORDS: &[&str] = &[
    "a", "about", "above", "after", "also", "among", "an", "and", "are", "as", "at", "because", "become", "before",
    "behind", "below", "beside", "beyond", "but", "by", "can", "cannot", "come", "do", "does", "each", "else", "end",
    "for", "from", "get", "go", "had", "has", "have", "if", "in", "into", "is", "it", "may", "must", "need", "no",
    "not", "of", "on", "once", "only", "or", "over", "since", "so", "stay", "than", "that", "the", "then", "there",
    "they", "to", "too", "under", "until", "up", "was", "were", "when", "where", "which", "while", "who", "whose",
    "will", "with", "without", "would",
];

#[test]
fn pronouns_in_documentation_have_nouns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    list(&root.join("src"), &mut files);
    let mut found = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("is text");
        found.extend(bare(&text).into_iter().map(|words| format!("{}: {words}", path.display())));
    }
    println!("{}\n{} pronouns in documentation have no noun", found.join("\n"), found.len());
    assert!(found.len() <= MOST, "{} pronouns in documentation have no noun, {MOST} are the maximum", found.len());
}

/// Returns each pronoun without its noun in the doc comments of a source, with the next word.
fn bare(text: &str) -> Vec<String> {
    let mut comments = vec![String::new()];
    for line in text.lines().map(str::trim_start) {
        match line.strip_prefix("///").or(line.strip_prefix("//!")) {
            Some(rest) => *comments.last_mut().expect("there is one") += &format!("{rest} "),
            None => comments.push(String::new()),
        }
    }
    let mut found = Vec::new();
    for comment in comments {
        let words: Vec<&str> = comment.split_whitespace().chain([""]).collect();
        for pair in words.windows(2) {
            let (word, next) = (pair[0].trim_matches(['(', '`', '"']).to_lowercase(), pair[1]);
            let stands_alone = FUNCTION_WORDS.contains(&next.trim_end_matches(['.', ',', ';', ':'])) || next.is_empty();
            let is_bare = match &*word {
                "those" => stands_alone,
                "such" => stands_alone && !["as", "a", "an"].contains(&next),
                "one" => next == "that",
                word => ["those", "such", "others"].contains(&word.trim_end_matches(['.', ',', ';', ':', ')', '`'])),
            };
            if is_bare {
                found.push(format!("{word} {next}"));
            }
        }
    }
    found
}

#[test]
fn pronouns_alone_are_found() {
    let text =
        "/// Those that\n/// wait, and such, or such as these.\nx\n/// One that is. Others. Those jobs, such a job\n";
    assert_eq!(bare(text), ["those that", "such, or", "one that", "others. Those"]);
}
