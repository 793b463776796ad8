//! The README and the first lines of each document have short sentences.

use std::fs;
use std::path::Path;

/// Maximum of words in a sentence.
const MOST_WORDS: usize = 25;
/// Lines of a document that a reader sees first. Of the README all lines count.
const FIRST_LINES: usize = 40;

#[test]
fn first_screens_have_short_sentences() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut long = Vec::new();
    for (folder, lines) in [(".", usize::MAX), ("docs", FIRST_LINES), ("docs/protocols", FIRST_LINES)] {
        for entry in fs::read_dir(root.join(folder)).expect("is a folder") {
            let path = entry.expect("is readable").path();
            let is_read = match folder {
                "." => path.ends_with("README.md"),
                _ => path.extension().is_some_and(|extension| extension == "md"),
            };
            if is_read {
                let text = fs::read_to_string(&path).expect("is text");
                let found = long_sentences(&text, lines);
                long.extend(found.into_iter().map(|sentence| format!("{}: {sentence}", path.display())));
            }
        }
    }
    assert!(long.is_empty(), "\nlonger than {MOST_WORDS} words:\n{}\n", long.join("\n"));
}

/// Returns the sentences of the first lines that are too long. Code, links and headings do not count.
fn long_sentences(text: &str, lines: usize) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let mut is_code = false;
    for line in text.lines().take(lines).map(str::trim) {
        is_code ^= line.starts_with("```");
        let begins = line.is_empty() || line.starts_with(['#', '|', '-', '*']) || line.starts_with("```");
        if begins || line.starts_with(|first: char| first.is_ascii_digit()) {
            sentences.push(String::new());
        }
        if is_code || line.starts_with('#') {
            continue;
        }
        for word in without_code_and_links(line).split(' ') {
            let sentence = sentences.last_mut().expect("there is one");
            match word {
                "|" => sentences.push(String::new()),
                word if word.ends_with(['.', '!', '?', ':', ';']) => {
                    *sentence += word;
                    sentences.push(String::new());
                }
                word if word.contains(|c: char| c.is_alphanumeric()) => *sentence += &format!("{word} "),
                _ => {}
            }
        }
    }
    sentences.retain(|sentence| sentence.split_whitespace().count() > MOST_WORDS);
    sentences
}

/// Returns a line with a word in place of each code, and without the targets of links.
fn without_code_and_links(line: &str) -> String {
    let texts = line.split('`').enumerate().map(|(n, text)| if n % 2 == 1 { "code" } else { text });
    let line = texts.collect::<String>();
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |line, part| line + part.split_once(')').map_or("", |(_, rest)| rest))
}

#[test]
fn long_sentences_are_found() {
    let words = |count: usize| vec!["word"; count].join(" ");
    let text = format!("# Title\n{}.\n{}.\n\n```sh\n{}\n```\n", words(25), words(26), words(30));
    assert_eq!(long_sentences(&text, usize::MAX), [format!("{}.", words(26))]);
    assert_eq!(long_sentences(&text, 2), [""; 0]);
    let linked = format!("{} [word](an address) `some code`.", words(23));
    assert_eq!(long_sentences(&linked, usize::MAX), [""; 0]);
    assert_eq!(long_sentences(&format!("{}\n{}", words(13), words(13)), usize::MAX).len(), 1);
}
