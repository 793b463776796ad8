//! The sources keep to the architecture: who knows whom, who touches the outside world, and how long a file may be.

use std::fs;
use std::path::Path;

/// What the adapter of a service may import besides what is its own.
const CONTRACT: &[&str] = &[
    "access",
    "count",
    "bounded_log",
    "browser",
    "lines",
    "service",
    "settings",
    "options",
    "record",
    "registry",
    "report",
    "output",
    "loop_stats",
    "random",
    "wheel",
    "stats",
    "text",
    "id",
    "time",
];

/// Who may import whom. A row is for a module and all below it that have no row of their own; imports within a row are free.
/// The adapters of services may also import all of [`CONTRACT`].
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    (
        "cli",
        &[
            "access",
            "admin",
            "admin/wire",
            "http",
            "http/fleet/fetch",
            "http/options",
            "jobs/options",
            "jobs/postgres",
            "net",
            "client",
            "registry",
            "service",
            "options",
            "address",
            "pools",
            "counters",
            "members",
            "pools/wire",
            "counters/wire",
            "members/wire",
            "pools/stats",
            "stats",
            "tls",
            "id",
            "text",
            "time",
        ],
    ),
    ("tls", &["bounded_log", "net", "address", "list", "pem", "proxy", "wheel", "id", "time"]),
    ("pem", &[]),
    (
        "client",
        &[
            "pools/stats",
            "counters/stats",
            "pools/request",
            "counters/request",
            "members/request",
            "members/pool_settings",
            "jobs/request",
            "pools/wire",
            "counters/wire",
            "members/wire",
            "jobs/wire",
            "pem",
            "stats",
            "time",
        ],
    ),
    (
        "net",
        &[
            "access",
            "bounded_log",
            "address",
            "registry",
            "service",
            "record",
            "loop_stats",
            "histogram",
            "output",
            "proxy",
            "random",
            "wheel",
            "list",
            "id",
            "time",
        ],
    ),
    (
        "registry",
        &[
            "pools", "counters", "members", "jobs", "http", "admin", "report", "service", "settings", "wheel", "id",
            "time",
        ],
    ),
    ("http", &["http/fleet/fetch", "http/host", "http/options", "http/wire", "histogram"]),
    ("http/host", &[]),
    ("admin", &["admin/options", "admin/wire", "pools/wire"]),
    ("admin/options", &["options"]),
    ("admin/wire", &[]),
    ("http/fleet/fetch", &["access", "http/wire", "registry", "report", "service"]),
    ("http/options", &["http/fleet/fetch", "options"]),
    ("http/wire", &[]),
    ("pools/request", &["time"]),
    ("counters/request", &[]),
    ("jobs/request", &[]),
    (
        "pools",
        &["pools/ceiling", "pools/stats", "pools/options", "pools/request", "pools/state", "pools/wire", "top_keys"],
    ),
    ("pools/ceiling", &["glob", "time"]),
    (
        "counters",
        &["counters/stats", "counters/options", "counters/request", "counters/state", "counters/wire", "top_keys"],
    ),
    (
        "members",
        &[
            "top_keys",
            "members/options",
            "members/pool_settings",
            "members/request",
            "members/state",
            "members/wire",
            "members/stats",
            "pools/wire",
        ],
    ),
    ("members/pool_settings", &["members/request", "time"]),
    ("members/request", &["members/pool_settings", "time"]),
    (
        "members/state",
        &[
            "access",
            "members/pool_settings",
            "members/request",
            "members/stats",
            "service",
            "record",
            "random",
            "wheel",
            "names",
            "list",
            "histogram",
            "stats",
            "id",
            "time",
        ],
    ),
    ("members/wire", &["members/pool_settings", "members/request", "members/state", "pools/wire", "decimal", "time"]),
    ("members/stats", &["histogram", "stats"]),
    ("members/options", &["options", "members/state"]),
    ("pools/options", &["options", "pools/ceiling", "time"]),
    (
        "pools/state",
        &[
            "count",
            "access",
            "pools/ceiling",
            "pools/stats",
            "pools/options",
            "pools/request",
            "service",
            "record",
            "wheel",
            "names",
            "list",
            "top_keys",
            "histogram",
            "stats",
            "id",
            "time",
        ],
    ),
    ("pools/wire", &["pools/stats", "pools/request", "pools/state", "decimal", "stats", "time"]),
    ("counters/options", &["options", "time"]),
    (
        "counters/state",
        &[
            "counters/stats",
            "counters/options",
            "counters/request",
            "service",
            "record",
            "wheel",
            "names",
            "stats",
            "id",
            "time",
        ],
    ),
    ("counters/wire", &["counters/stats", "counters/request", "stats"]),
    (
        "jobs",
        &[
            "jobs/options",
            "jobs/postgres",
            "jobs/request",
            "jobs/sqlite",
            "jobs/state",
            "jobs/store",
            "jobs/wire",
            "stats",
        ],
    ),
    ("jobs/options", &["jobs/postgres", "jobs/state", "options", "time"]),
    ("jobs/postgres", &["bounded_log", "jobs", "jobs/state", "jobs/store", "random", "service", "time"]),
    ("jobs/sqlite", &["bounded_log", "jobs", "jobs/state", "jobs/store", "service", "time"]),
    ("jobs/store", &["bounded_log", "count", "jobs", "jobs/state", "histogram", "service", "time"]),
    (
        "jobs/state",
        &[
            "access",
            "jobs",
            "jobs/request",
            "wheel",
            "names",
            "list",
            "random",
            "histogram",
            "stats",
            "count",
            "id",
            "time",
        ],
    ),
    ("jobs/wire", &["browser", "jobs", "jobs/request", "jobs/state", "record", "stats", "time"]),
    ("pools/stats", &["stats"]),
    ("counters/stats", &["stats"]),
    ("record", &[]),
    ("settings", &["options", "service"]),
    ("options", &["address", "decimal", "time"]),
    ("address", &[]),
    ("decimal", &["time"]),
    (
        "service",
        &[
            "count",
            "access",
            "options",
            "settings",
            "registry",
            "record",
            "report",
            "output",
            "loop_stats",
            "random",
            "text",
            "wheel",
            "id",
            "time",
        ],
    ),
    ("loop_stats", &["count", "histogram", "time"]),
    ("output", &["list", "text", "id"]),
    ("wheel", &["list", "id", "time"]),
    ("top_keys", &["count", "names", "id", "time"]),
    ("names", &["id"]),
    ("list", &["id"]),
    ("stats", &["count", "time"]),
    ("text", &[]),
    ("histogram", &["count", "time"]),
    ("report", &["histogram", "loop_stats", "service", "stats", "text", "id", "time"]),
    ("id", &[]),
    ("count", &[]),
    ("bounded_log", &["count", "time"]),
    ("access", &["count", "bounded_log", "glob", "report", "service", "text", "id", "time"]),
    ("glob", &[]),
    ("browser", &[]),
    ("lines", &["browser", "pools/wire", "service", "id"]),
    ("proxy", &[]),
    ("random", &["time"]),
    ("time", &[]),
    ("lib", &[]),
];

const ADAPTERS: &[&str] = &["pools", "counters", "members", "jobs", "http", "admin"];

/// Sockets, files, clocks and threads: what a state machine must not know.
const OUTSIDE_WORLD: &[&str] = &[
    "std::net",
    "std::os",
    "std::fs",
    "std::thread",
    "mio",
    "socket2",
    "nix",
    "Instant",
    "SystemTime",
    "clock_gettime",
];
/// Who may know it.
const WORLDLY: &[&str] = &[
    "net",
    "client",
    "cli",
    "address",
    "http/fleet/fetch",
    "http/host",
    "jobs/loading",
    "jobs/options",
    "jobs/postgres",
    "jobs/process",
    "jobs/sqlite",
    // Addresses alone, as values.
    "access",
    "proxy",
    "tls",
    "pem",
];

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &["net/handover", "tls/upgrade"];

const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// How many lines a file may have before its tests.
const LONG: usize = 400;
/// Files that may be longer, because what is in them belongs together, and how long these may be.
const LONGER: (&[&str], usize) =
    (&["service", "pools/state", "counters/state", "members/state", "net/server", "net/listener"], 500);

/// A source file.
struct Source {
    /// Its module, with slashes: `pools/wire`.
    module: String,
    /// Its lines before its tests, with comments left empty.
    code: Vec<String>,
}

/// What a package of cargo does not have: directories that it leaves out, or that have a manifest of their own.
const UNPACKED: &[&str] = &["fuzz/", ".ci/"];

/// The tests are in the package, so they must be able to do without the rest.
#[test]
fn tests_are_built_from_what_is_packed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![root.join("tests"), root.join("benches"), root.join("src")];
    let mut faults = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("is readable") {
            let path = entry.expect("is readable").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("is text");
                let needs = |line: &&str| {
                    let is_built_in = line.starts_with("#[path = ") || line.contains("include_");
                    is_built_in && UNPACKED.iter().any(|place| line.contains(&format!("../{place}")))
                };
                faults.extend(text.lines().filter(needs).map(|line| format!("{}: {line}", path.display())));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_sources_are_tidy() {
    let mut sources = Vec::new();
    read_all(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), "", &mut sources);
    let faults: Vec<String> = sources.iter().flat_map(Source::faults).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    for (row, _) in MAY_IMPORT {
        assert!(
            sources.iter().any(|source| source.module == *row),
            "the table has a row for {row}, which is no module"
        );
    }
}

#[test]
fn what_is_not_tidy_is_found() {
    let faults_of = |module: &str, text: &str| Source::new(module, text).faults();
    assert_eq!(
        faults_of(
            "pools/state",
            "use crate::time::Time;\n// use crate::net::Clock;\n\nuse crate::net::{Clock, Readiness};\n"
        ),
        ["src/pools/state, line 4: pools/state must not import net"]
    );
    assert_eq!(
        faults_of("pools/state/check", "use super::Pool;\nfn f(w: super::super::wire::Line) {}\n"),
        ["src/pools/state/check, line 2: pools/state must not import pools/wire"]
    );
    assert_eq!(
        faults_of("registry", "use crate::pools::{\n    Pools, state,\n};\n"),
        ["src/registry, line 1: registry must not import pools/state"]
    );
    assert_eq!(
        faults_of("output", "use std::time::Instant;\n"),
        [
            "src/output, line 1: Instant belongs to net, client, cli, address, http/fleet/fetch, http/host, jobs/loading, jobs/options, jobs/postgres, jobs/process, jobs/sqlite, access, proxy, tls, pem"
        ]
    );
    assert_eq!(
        faults_of("list", "    unsafe { f() }\n"),
        ["src/list, line 1: unsafe belongs to net/handover, tls/upgrade"]
    );
    assert_eq!(faults_of("cli/serve", "todo!()\n"), ["src/cli/serve, line 1: todo! is not finished"]);
    assert_eq!(faults_of("novel", ""), ["src/novel: the table does not say what novel may import"]);
    assert_eq!(faults_of("id", &"\n".repeat(401)), ["src/id: 401 lines before the tests, 400 are enough"]);
    assert_eq!(
        faults_of("wheel", "#![deny(unsafe_code)]\n#[cfg(test)]\nmod tests {\n    use crate::net;\n}\n"),
        [""; 0]
    );
}

impl Source {
    fn new(module: &str, text: &str) -> Self {
        let until = |end| text.find(end).unwrap_or(text.len());
        let tests = until("#[cfg(test)]\nmod tests").min(until("#[cfg(test)]\npub mod tests"));
        let text = &text[..tests];
        let without_comment = |line: &str| if line.trim_start().starts_with("//") { "" } else { line }.to_string();
        Source { module: module.into(), code: text.lines().map(without_comment).collect() }
    }

    /// Each fault with its place, in one line.
    fn faults(&self) -> Vec<String> {
        let Some((row, allowed)) = row_of(&self.module) else {
            return vec![format!("src/{0}: the table does not say what {0} may import", self.module)];
        };
        let mut faults = Vec::new();
        for (line, target) in self.imports() {
            match row_of(&target) {
                Some((target, _)) if target == row || allowed.contains(&target) => {}
                Some((target, _)) if ADAPTERS.contains(&row) && CONTRACT.contains(&target) => {}
                Some((target, _)) => faults.push(self.fault(line, &format!("{row} must not import {target}"))),
                None => faults.push(self.fault(line, &format!("the table does not know {target:?}"))),
            }
        }
        // A list in braces is one fault.
        faults.dedup();
        faults.extend(self.misplaced(OUTSIDE_WORLD, WORLDLY));
        faults.extend(self.misplaced(&["unsafe"], UNSAFE));
        for word in UNFINISHED {
            faults.extend(self.lines_with(word).map(|line| self.fault(line, &format!("{word} is not finished"))));
        }
        let (lines, most) = (self.code.len(), if LONGER.0.contains(&&*self.module) { LONGER.1 } else { LONG });
        if lines > most {
            faults.push(format!("src/{}: {lines} lines before the tests, {most} are enough", self.module));
        }
        faults
    }

    fn fault(&self, line: usize, what: &str) -> String {
        format!("src/{}, line {line}: {what}", self.module)
    }

    fn misplaced(&self, words: &[&str], homes: &[&str]) -> Vec<String> {
        if homes.iter().any(|home| is_within(&self.module, home)) {
            return Vec::new();
        }
        let fault = |word| move |line| self.fault(line, &format!("{word} belongs to {}", homes.join(", ")));
        words.iter().flat_map(|word| self.lines_with(word).map(fault(word))).collect()
    }

    fn lines_with(&self, word: &str) -> impl Iterator<Item = usize> {
        let has_word = move |line: &str| starts_of(line, word).any(|at| !continues(&line[at + word.len()..]));
        self.code.iter().enumerate().filter(move |(_, line)| has_word(line)).map(|(index, _)| index + 1)
    }

    /// The line of each path that begins at the crate or at the parent module, and the module that it leads to.
    fn imports(&self) -> Vec<(usize, String)> {
        let text = self.code.join("\n");
        let mut imports = Vec::new();
        for root in ["crate::", "super::", "poolcounter::"] {
            for at in starts_of(&text, root).filter(|at| !text[..*at].ends_with("::")) {
                let line = text[..at].matches('\n').count() + 1;
                imports.extend(self.targets(&text[at..]).into_iter().map(|target| (line, target)));
            }
        }
        imports
    }

    /// Where a path leads; to several places if it ends with a list in braces.
    fn targets(&self, path: &str) -> Vec<String> {
        let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(path.len());
        let mut module: Vec<&str> = self.module.split('/').collect();
        for segment in path[..end].split("::") {
            match segment {
                "crate" | "poolcounter" => module.clear(),
                "super" => drop(module.pop()),
                "" => {}
                name => module.push(name),
            }
        }
        let module = module.join("/");
        match path[end..].strip_prefix('{').and_then(|list| list.split('}').next()) {
            Some(list) => {
                list.split(',').map(|name| format!("{module}/{}", name.trim()).trim_matches('/').into()).collect()
            }
            None => vec![module],
        }
    }
}

/// The longest row of the table that a module or something in it belongs to.
fn row_of(path: &str) -> Option<(&'static str, &'static [&'static str])> {
    let rows = MAY_IMPORT.iter().filter(|(row, _)| is_within(path, row));
    rows.max_by_key(|(row, _)| row.len()).copied()
}

fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where `word` stands in `text` and is not the end of a longer word.
fn starts_of(text: &str, word: &str) -> impl Iterator<Item = usize> {
    let is_start = |at: &usize| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    text.match_indices(word).map(|(at, _)| at).filter(is_start)
}

/// Whether a word that ends before `rest` goes on in it.
fn continues(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn read_all(directory: &Path, prefix: &str, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("the sources have plain names");
        let module = format!("{prefix}{name}");
        if path.is_dir() {
            read_all(&path, &format!("{module}/"), sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("the sources can be read");
            sources.push(Source::new(module.strip_suffix("/mod").unwrap_or(&module), &text));
        }
    }
}
