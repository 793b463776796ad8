//! Modules of a crate import each other in one direction only. Each module counts together with all below it; parent
//! and child are excepted.

use super::tidy::{Source, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::iter;

/// Path of a module, which begins with the name of its crate.
type Module<'a> = Vec<&'a str>;

#[test]
fn modules_do_not_import_in_a_circle() {
    let circles = imports_in_circles(&sources());
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
}

#[test]
fn circles_are_found() {
    let found = |sources: &[(&str, &str)]| {
        imports_in_circles(&sources.iter().map(|(module, text)| Source::new(module, text)).collect::<Vec<_>>())
    };
    let both = ["src/c/a imports src/c/b", "src/c/b imports src/c/a"];
    assert_eq!(found(&[("c/a", "use super::b::X;"), ("c/b", "fn f() -> crate::a::Y {}")]), both);
    assert_eq!(found(&[("c/a", "use crate::{X, b};"), ("c/b/d", "use crate::{b::Z,\n a::{X, Y}};")]), both);
    // An imported module is a name for the modules below it.
    let by_name =
        [("c/a", "use crate::n;\nn::b::f();"), ("c/n/b", "use crate::n;\nn::e::f();"), ("c/n/e", "super::b::f()")];
    assert_eq!(found(&by_name), ["src/c/n/b imports src/c/n/e", "src/c/n/e imports src/c/n/b"]);
    let through_another =
        [("c/a", "use super::b::X;"), ("c/b", "use super::d;"), ("c/d", "use super::a;"), ("c/e", "use super::a;")];
    assert_eq!(found(&through_another).len(), 3);
    let family =
        [("c", "use a::X;"), ("c/a", "use crate::X;\nuse b::Y;"), ("c/a/b", "use super::Y;"), ("c/e", "use super::a;")];
    assert_eq!(found(&family), [""; 0]);
}

/// Returns the imports that are in a circle, or between two of them.
fn imports_in_circles(sources: &[Source]) -> Vec<String> {
    let paths: Vec<Module<'_>> = sources.iter().map(|source| source.module.split('/').collect()).collect();
    let modules = paths.iter().flat_map(|path| (1..=path.len()).map(|length| path[..length].to_vec())).collect();
    let mut imports = BTreeSet::new();
    for (path, source) in paths.iter().zip(sources) {
        for imported in imports_of(path, &source.code, &modules) {
            let common = path.iter().zip(&imported).take_while(|(one, other)| one == other).count();
            // The path of a child begins with that of its parent.
            if common < path.len() && common < imported.len() {
                imports.insert((path[..=common].to_vec(), imported[..=common].to_vec()));
            }
        }
    }
    loop {
        let importers: BTreeSet<_> = imports.iter().map(|(importer, _)| importer.clone()).collect();
        let imported: BTreeSet<_> = imports.iter().map(|(_, imported)| imported.clone()).collect();
        let before = imports.len();
        imports.retain(|(one, other)| imported.contains(one) && importers.contains(other));
        if imports.len() == before {
            let sentence = |(one, other): (Module<'_>, Module<'_>)| {
                format!("src/{} imports src/{}", one.join("/"), other.join("/"))
            };
            return imports.into_iter().map(sentence).collect();
        }
    }
}

/// Returns the modules of its crate that a module names in paths: from the crate, from a parent, or by an imported
/// name.
fn imports_of<'a>(path: &Module<'a>, code: &'a [String], modules: &BTreeSet<Module<'a>>) -> BTreeSet<Module<'a>> {
    let mut scope = BTreeMap::from([("crate", path[..1].to_vec()), ("super", path[..path.len() - 1].to_vec())]);
    let mut imports = BTreeSet::new();
    // Modules before each brace of the paths in which the token is; None for names of other things.
    let mut braces: Vec<Option<Module<'_>>> = Vec::new();
    let (mut module, mut is_continued) = (None::<Module<'_>>, false);
    for token in code.iter().flat_map(|line| tokens(line)) {
        match token {
            "::" => {}
            "{" if is_continued => braces.push(module.take()),
            "{" | "," => module = None,
            "}" => module = braces.pop().and(None),
            ";" => braces.clear(),
            word => {
                module = match if is_continued { module } else { braces.last().cloned().flatten() } {
                    Some(mut outer) if word == "super" => outer.pop().map(|_| outer),
                    Some(outer) => Some([&outer[..], &[word]].concat()).filter(|inner| modules.contains(inner)),
                    None if is_continued || !braces.is_empty() => None,
                    None => scope.get(word).cloned(),
                };
                if let Some(module) = module.as_ref().filter(|module| module.len() > 1) {
                    scope.insert(module[module.len() - 1], module.clone());
                    imports.insert(module.clone());
                }
            }
        }
        is_continued = token == "::";
    }
    imports
}

/// Returns the words, the pairs of colons, and each brace, comma and semicolon.
fn tokens(mut line: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    iter::from_fn(move || {
        line = line.trim_start_matches(|c| !is_word(c) && !"{},;:".contains(c));
        let end = if line.starts_with("::") { 2 } else { line.find(|c| !is_word(c)).unwrap_or(line.len()).max(1) };
        let (token, rest) = line.split_at_checked(end)?;
        line = rest;
        Some(token)
    })
}
