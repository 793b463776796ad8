//! The manual page says all that the tables of the code say, and nothing more.

use poolcounter::cli::OPTIONS;
use poolcounter::stats::{Counters, Pools, Stat};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/poolcounter.8");

#[test]
fn every_option_is_described_and_no_other_is_named() {
    let names = OPTIONS.iter().flat_map(|option| [option.short.to_string(), format!("-{}", option.long)]);
    let known: BTreeSet<String> = names.filter(|name| !name.is_empty()).collect();
    let page = page();
    let described: BTreeSet<String> =
        section(&page, "OPTIONS").filter(|line| line.starts_with(".It ")).flat_map(flags).collect();
    assert_eq!(described, known, "the items of OPTIONS, and the table of options");
    let named: BTreeSet<String> = page.lines().flat_map(flags).collect();
    assert_eq!(named, known, "the options that the page names, and the table of options");
}

#[test]
fn every_statistic_is_described_in_order() {
    let page = page();
    let described = |name| section(&page, name).filter_map(|line| line.strip_prefix(".It Va ")).collect::<Vec<&str>>();
    assert_eq!(described("STATISTICS"), names::<Pools>());
    assert_eq!(described("COUNTERS"), names::<Counters>());
}

fn names<S: Stat>() -> Vec<&'static str> {
    S::ALL.iter().map(|stat| stat.row().name).collect()
}

#[test]
fn the_markup_is_sound() {
    match Command::new("mandoc").args(["-Tlint", "-Wwarning", PAGE]).output() {
        Ok(lint) => assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout)),
        // Not with a macro, whose output would be kept back.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            writeln!(std::io::stderr(), "skipped: the markup of the manual, because mandoc is not installed")
                .expect("the standard error is open");
        }
        Err(error) => panic!("mandoc cannot be run: {error}"),
    }
}

fn page() -> String {
    std::fs::read_to_string(PAGE).expect("the manual lies beside the manifest")
}

fn section<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!(".Sh {name}");
    page.lines().skip_while(move |line| *line != heading).skip(1).take_while(|line| !line.starts_with(".Sh "))
}

/// What stands behind each `Fl` macro of a line, up to the next macro.
fn flags(line: &str) -> Vec<String> {
    let mut flags = Vec::new();
    let mut in_flag = false;
    for word in line.strip_prefix('.').unwrap_or_default().split_whitespace() {
        let is_macro = matches!(word.as_bytes(), [b'A'..=b'Z', b'a'..=b'z']);
        let is_punctuation = !word.contains(|c: char| c.is_alphanumeric());
        if is_macro {
            in_flag = word == "Fl";
        } else if in_flag && !is_punctuation {
            flags.push(word.to_string());
        }
    }
    flags
}
