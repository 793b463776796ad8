//! The manual pages describe everything in the tables of the code, and nothing more.

use crate::pages::{self, DAEMON, PAGES, SETTINGS, at_root, read};
use poolcounter_cli::{COMMANDS, Command as Subcommand, Opt};
use poolcounter_members::state::Key;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::process::Command;

#[test]
fn every_option_is_described_and_no_other_is_named() {
    let page = read(DAEMON);
    let known = options(&COMMANDS[0]);
    assert_eq!(described(&page, "OPTIONS"), known, "the items of OPTIONS, and the table of options");
    assert_eq!(named(page.lines()), known, "the options that the page names, and the table of options");
}

#[test]
fn every_command_is_described_with_its_options() {
    let general: BTreeSet<String> = ["V", "-version", "h", "-help"].map(String::from).into();
    // The options that all have, and those of commands that ask servers.
    let common = general.iter().cloned().chain(["s", "-server", "-tls"].map(String::from)).collect();
    assert_eq!(named(section(&read(PAGES[0].path), "DESCRIPTION")), common, "the options that are described once");
    // The daemon has a page of its own, and the options of `help` are common to all commands.
    for command in COMMANDS[1..].iter().filter(|command| command.name != "help") {
        let page = PAGES.iter().find(|page| page.commands.contains(&command.name));
        let page = read(page.unwrap_or_else(|| panic!("no page describes {}", command.name)).path);
        let own: BTreeSet<String> = options(command).difference(&general).cloned().collect();
        let heading = command.name.to_uppercase();
        assert!(section(&page, &heading).next().is_some(), "there is no section {heading}");
        assert_eq!(described(&page, &heading), own, "the items of {heading}, and the table of its options");
        assert_eq!(named(section(&page, &heading)), own, "the options that {heading} names, and the table");
        let start = format!(".Cm {}", command.name);
        let synopsis: Vec<&str> = section(&page, "SYNOPSIS").collect();
        let is_name = |line: &&str| line.starts_with(".Nm");
        let synopsis =
            synopsis.split(is_name).filter(|lines| lines.first().is_some_and(|line| line.starts_with(&start)));
        let synopsis = synopsis.flatten().copied();
        let long_for = |short: &String| {
            command
                .shown_options()
                .iter()
                .find(|option| option.short == short)
                .map(|option| format!("-{}", option.long))
        };
        let named: BTreeSet<String> =
            named(synopsis).iter().map(|name| long_for(name).unwrap_or(name.clone())).collect();
        let long: BTreeSet<String> = own.iter().filter(|name| name.starts_with('-')).cloned().collect();
        assert_eq!(named, long, "the options in the synopsis of {}", command.name);
    }
}

#[test]
fn every_setting_of_a_pool_of_members_is_described_in_order() {
    let page = read(SETTINGS);
    let items = section(&page, "TABLES").skip_while(|line| *line != ".It Va [[members.pool]]");
    let described: Vec<&str> = items.filter_map(|line| line.strip_prefix(".It Cm ")).collect();
    let known: Vec<&str> = Key::ALL.iter().map(|key| key.name()).collect();
    assert_eq!(described, known);
}

#[test]
fn sections_of_the_daemons_page_exist_if_the_page_of_settings_names_them() {
    let (daemon, settings) = (read(DAEMON), read(SETTINGS));
    let before: Vec<&str> =
        settings.lines().filter_map(|line| line.split_once(" in poolcounter(8)")).map(|(l, _)| l).collect();
    let named: BTreeSet<&str> = before.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert!(!named.is_empty());
    for name in named {
        assert!(section(&daemon, name).next().is_some(), "there is no section {name}");
    }
}

#[test]
fn the_markup_is_sound() {
    for page in pages::all().map(at_root) {
        for (formatter, arguments) in
            [("mandoc", &["-Tlint", "-Wwarning"][..]), ("groff", &["-mandoc", "-Tutf8", "-ww", "-z"])]
        {
            match Command::new(formatter).args(arguments).arg(&page).output() {
                Ok(output) => {
                    let said = [output.stdout, output.stderr].concat();
                    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    poolcounter_testkit::skipped(&format!("the manual with {formatter}, because it is not installed"));
                }
                Err(error) => panic!("{formatter} cannot be run: {error}"),
            }
        }
    }
}

/// Returns the names of a command's shown options as the pages write them: without the first hyphen.
fn options(command: &Subcommand) -> BTreeSet<String> {
    let names = |option: &Opt<()>| [option.short.to_string(), format!("-{}", option.long)];
    command.shown_options().iter().flat_map(names).filter(|name| !name.is_empty()).collect()
}

/// Returns the options that a section has items for.
fn described(page: &str, heading: &str) -> BTreeSet<String> {
    named(section(page, heading).filter(|line| line.starts_with(".It ")))
}

fn named<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    lines.flat_map(flags).collect()
}

fn section<'a>(page: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!(".Sh {name}");
    page.lines().skip_while(move |line| *line != heading).skip(1).take_while(|line| !line.starts_with(".Sh "))
}

/// Returns the words behind each `Fl` macro of a line, up to the next macro.
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
