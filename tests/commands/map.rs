//! The map of the code names exactly the modules of each crate.

use super::tidy::{Source, is_within, sources};

#[test]
fn map_of_the_code_is_complete_and_true() {
    let map = include_str!("../../src/README.md");
    let crates = map.split("\n## ").find(|part| part.starts_with("Crates\n")).expect("is there");
    let faults: Vec<String> =
        crates.split("\n### ").skip(1).flat_map(|section| faults_in(section, &sources())).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn faults_of_a_map_are_found() {
    let sources = ["a", "a/x", "a/x/part", "b", "b/y"].map(|module| Source::new(module, ""));
    let faults = |rows: &str| faults_in(&format!("a, b: two crates\n| module | what it is |\n{rows}"), &sources);
    assert_eq!(faults("| `lib`, `x::part` | `z` |\n| `b::y` | |\n"), [""; 0]);
    assert_eq!(faults("| `x`, `a::y` | |\n"), ["a::y is no module of a, b", "b/y is not named"]);
}

/// Returns the faults of a section, which begins with the names of its crates.
fn faults_in(section: &str, sources: &[Source]) -> Vec<String> {
    let heading = section.split([':', '\n']).next().unwrap_or_default();
    let crates: Vec<&str> = heading.split(", ").collect();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names: Vec<&str> = rows.flat_map(|names| names.split('`').step_by(2)).collect();
    // Paths that a name may mean.
    let paths = |name: &str| -> Vec<String> {
        let path = name.replace("::", "/");
        let of_crate = |own: &&str| if name == "lib" { own.to_string() } else { format!("{own}/{path}") };
        crates.iter().map(of_crate).chain([path.clone()]).collect()
    };
    let is_there = |path: &String| sources.iter().any(|source| is_within(&source.module, path));
    let unknown = names.iter().filter(|name| !paths(name).iter().any(is_there));
    let unknown = unknown.map(|name| format!("{name} is no module of {heading}"));
    let is_named = |module: &str| names.iter().flat_map(|name| paths(name)).any(|path| is_within(&path, module));
    let modules = sources.iter().map(|source| &*source.module).filter(|module| {
        module.split_once('/').is_some_and(|(own, rest)| crates.contains(&own) && !rest.contains('/'))
    });
    let unnamed = modules.filter(|module| !is_named(module)).map(|module| format!("{module} is not named"));
    unknown.chain(unnamed).collect()
}
