//! Budgets of code lines: without comments, blank lines, and tests inside of sources. A change that needs more removes
//! as much elsewhere, or says why in the commit that raises the number here.

use std::fs;
use std::path::{Path, PathBuf};

/// Name, prefixes of its paths, prefix of paths that do not count, maximum of code lines now, and the aim.
type Budget = (&'static str, &'static [&'static str], &'static str, usize, usize);

const BUDGETS: &[Budget] = &[
    ("src without testkit", &["src/"], "src/testkit/", 60_773, 60_000),
    ("members", &["src/members/"], "-", 8_351, 6_500),
    ("jobs", &["src/jobs/", "src/store"], "-", 16_843, 15_500),
    ("stores", &["src/store", "src/jobs/store", "src/jobs/sqlite", "src/jobs/postgres"], "-", 5_587, 4_500),
    ("cli", &["src/cli/"], "-", 9_206, 9_500),
    ("testkit", &["src/testkit/"], "-", 10_984, 9_000),
    ("tests", &["tests/"], "-", 34_604, 33_000),
];

#[test]
fn code_lines_are_within_their_budgets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    list(&root.join("src"), &mut files);
    list(&root.join("tests"), &mut files);
    let count = |path: &PathBuf| {
        let name = path.strip_prefix(root).expect("is below the root").to_string_lossy().into_owned();
        (name, code_lines(&fs::read_to_string(path).expect("is text")))
    };
    let counted: Vec<(String, usize)> = files.iter().map(count).collect();
    let mut faults = Vec::new();
    for (name, prefixes, except, most, aim) in BUDGETS {
        let is_own = |path: &str| prefixes.iter().any(|prefix| path.starts_with(prefix)) && !path.starts_with(except);
        let lines: usize = counted.iter().filter(|(path, _)| is_own(path)).map(|(_, lines)| lines).sum();
        println!("{name}: {lines} code lines of {most}, aim {aim}");
        if lines > *most {
            faults.push(format!("{name} has {lines} code lines, and the budget is {most}: remove some"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Adds the Rust files below a directory.
pub fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).expect("is readable").map(|entry| entry.expect("is readable").path()) {
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the number of lines that are code, outside of items for tests.
fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let (mut is_in_comment, mut at, mut code) = (false, 0, 0);
    while at < lines.len() {
        let line = lines[at].trim_start();
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
            at = end_of_item(&lines, at + 1) + 1;
            continue;
        }
        let is_comment = is_in_comment || line.starts_with("//") || line.starts_with("/*");
        code += usize::from(!is_comment && !line.is_empty());
        is_in_comment = (is_in_comment || line.starts_with("/*")) && !line.contains("*/");
        at += 1;
    }
    code
}

/// Returns the index of the last line of the item that follows attributes: its own, or that of its closing brace.
fn end_of_item(lines: &[&str], from: usize) -> usize {
    let is_before = |line: &str| line.is_empty() || line.trim_start().starts_with("#[");
    let Some(first) = (from..lines.len()).find(|at| !is_before(lines[*at])) else { return lines.len() };
    let indent = &lines[first][..lines[first].len() - lines[first].trim_start().len()];
    let is_end = |line: &str| line.strip_prefix(indent).is_some_and(|rest| ["}", "};", "},"].contains(&rest));
    match lines[first].ends_with(';') || lines[first].ends_with("},") {
        true => first,
        false => (first..lines.len()).find(|at| is_end(lines[*at])).unwrap_or(first),
    }
}

#[test]
fn comments_blanks_and_tests_are_no_code() {
    let text = "//! A.\n\nuse a;\n/* b\nc\n*/\nfn d() {\n    // e\n}\n#[cfg(test)]\nuse f;\n#[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\nfn h() {}\n";
    assert_eq!(code_lines(text), 4);
}
