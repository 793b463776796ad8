//! The sources keep to the architecture: modules with access to the outside world, and lengths of files. The crates
//! define the dependencies.

use std::fs;
use std::path::Path;

/// Sockets, files, clocks and threads, which a state machine must not use.
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
/// Modules that may use them.
const WORLDLY: &[&str] = &[
    "server",
    "client",
    "cli",
    "core/address",
    "http/fleet/fetch",
    "http/host",
    "jobs/loading",
    "jobs/options",
    "jobs/postgres",
    "jobs/process",
    // Addresses alone, as values.
    "service/access",
    "store",
    "core/proxy",
    "tls",
    "core/file",
];

/// Modules that may contain `unsafe`.
const UNSAFE: &[&str] = &["cli/spawn", "jobs/process", "server/handover", "tls/terminator/upgrade"];

const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];

/// Maximum number of lines of a file before its tests.
const LONG: usize = 400;
/// Files that may be longer, because their contents belong together, and their maximum.
const LONGER: (&[&str], usize) = (
    &[
        "pools/state",
        "counters/state",
        "members",
        "members/state",
        "members/state/agents",
        "members/state/leases",
        "members/state/lifecycle",
        "members/state/members",
        "members/state/pools",
        "members/state/saved",
        "members/state/waiters",
        "protocol/members/wire",
        "jobs/state/commits",
        "jobs/postgres/owner",
        "server/server",
        "server/listener",
        "cli/jobs/command_run",
        "client/jobs/producer",
    ],
    510,
);

/// Source file.
pub struct Source {
    /// Module of the file, with slashes: `pools/wire`.
    pub module: String,
    /// Lines before its tests, with comments left empty.
    pub code: Vec<String>,
}

/// Directories that a package of cargo lacks: it leaves them out, or they have a manifest of their own.
const UNPACKED: &[&str] = &["fuzz/", ".ci/"];

/// The tests are in the package, so they must work without the rest.
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

/// A published crate carries both licences, not the path of them.
#[test]
fn crates_carry_the_licences() {
    for directory in fs::read_dir("src").unwrap() {
        let directory = directory.unwrap().path();
        if !directory.join("Cargo.toml").exists() || directory.ends_with("testkit") {
            continue;
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let text = fs::read_to_string(directory.join(licence)).unwrap();
            assert_eq!(text, fs::read_to_string(licence).unwrap(), "{}", directory.display());
        }
    }
}

#[test]
fn sources_are_tidy() {
    let sources = sources();
    let faults: Vec<String> = sources.iter().flat_map(Source::faults).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    for place in WORLDLY.iter().chain(UNSAFE).chain(LONGER.0) {
        assert!(sources.iter().any(|source| source.module == *place), "{place} is no module");
    }
}

/// Words that open a riddle: a comment begins with its subject or with a verb.
const RIDDLES: &[&str] = &[
    "What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Has", "Have", "How", "Nobody", "Nothing", "Does", "Why",
    "Which", "Those", "Of",
];

#[test]
fn comments_open_with_their_subject() {
    let mut directories: Vec<_> = ["src", "tests", "benches", "fuzz/src", "fuzz/fuzz_targets"]
        .map(|place| Path::new(env!("CARGO_MANIFEST_DIR")).join(place))
        .into();
    let mut faults = Vec::new();
    while let Some(directory) = directories.pop() {
        // The package has no fuzz targets.
        for path in fs::read_dir(directory).into_iter().flatten().map(|entry| entry.expect("is readable").path()) {
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("is text");
                faults
                    .extend(riddles_in(&text).iter().map(|(n, line)| format!("{}, line {n}: {line}", path.display())));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    assert_eq!(riddles_in("/// What it is.\n/// How so.\nx();\n// Returns\n// what it is.\n//\n// Has it.\n").len(), 2);
}

/// Returns the lines, with their numbers, in which a paragraph of a comment opens with one of [`RIDDLES`].
fn riddles_in(text: &str) -> Vec<(usize, &str)> {
    let mut is_inside = false;
    let mut riddles = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        let opens =
            comment.is_some_and(|words| !is_inside && RIDDLES.contains(&words.split(' ').next().unwrap_or_default()));
        if opens {
            riddles.push((n + 1, line.trim()));
        }
        is_inside = comment.is_some_and(|words| !words.is_empty());
    }
    riddles
}

#[test]
fn untidy_sources_are_found() {
    let faults_of = |module: &str, text: &str| Source::new(module, text).faults();
    assert_eq!(
        faults_of("output", "use std::time::Instant;\n"),
        [&*format!("src/output, line 1: Instant belongs to {}", WORLDLY.join(", "))]
    );
    assert_eq!(
        faults_of("list", "    unsafe { f() }\n"),
        [&*format!("src/list, line 1: unsafe belongs to {}", UNSAFE.join(", "))]
    );
    assert_eq!(faults_of("cli/serve", "todo!()\n"), ["src/cli/serve, line 1: todo! is not finished"]);
    assert_eq!(faults_of("list", "use super::*;\n"), ["src/list, line 1: each imported name is written out"]);
    assert_eq!(faults_of("id", &"\n".repeat(401)), ["src/id: 401 lines before the tests, 400 are enough"]);
    assert_eq!(
        faults_of("wheel", "#![deny(unsafe_code)]\n#[cfg(test)]\nmod tests {\n    use crate::net;\n}\n"),
        [""; 0]
    );
}

impl Source {
    pub fn new(module: &str, text: &str) -> Self {
        let until = |end| text.find(end).unwrap_or(text.len());
        let tests = until("#[cfg(test)]\nmod tests").min(until("#[cfg(test)]\npub mod tests"));
        let text = &text[..tests];
        let without_comment = |line: &str| if line.trim_start().starts_with("//") { "" } else { line }.to_string();
        Source { module: module.into(), code: text.lines().map(without_comment).collect() }
    }

    /// Returns each fault with its place, in one line.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        faults.extend(self.misplaced(OUTSIDE_WORLD, WORLDLY));
        faults.extend(self.misplaced(&["unsafe"], UNSAFE));
        for word in UNFINISHED {
            faults.extend(self.lines_with(word).map(|line| self.fault(line, &format!("{word} is not finished"))));
        }
        if !self.module.ends_with("/tests") {
            let is_glob = |line: &str| line.starts_with("use ") && line.ends_with("::*;");
            let globs = self.code.iter().zip(1..).filter(|(line, _)| is_glob(line));
            faults.extend(globs.map(|(_, line)| self.fault(line, "each imported name is written out")));
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
}

/// Returns whether a path is that of a module or of one below it.
pub fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the positions of `word` in `text` at which it is not the end of a longer word.
fn starts_of(text: &str, word: &str) -> impl Iterator<Item = usize> {
    let is_start = |at: &usize| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    text.match_indices(word).map(|(at, _)| at).filter(is_start)
}

/// Returns whether a word that ends before `rest` continues in it.
fn continues(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Returns all sources but the files of the tests.
pub fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    read_all(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), "", &mut sources);
    sources
}

fn read_all(directory: &Path, prefix: &str, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("the sources can be listed") {
        let path = entry.expect("the sources can be listed").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("the sources have plain names");
        let module = format!("{prefix}{name}");
        if path.ends_with("src/testkit") {
            // These files belong to the tests.
        } else if path.is_dir() {
            read_all(&path, &format!("{module}/"), sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("the sources can be read");
            let of_directory = module.strip_suffix("/mod").or(module.strip_suffix("/lib"));
            sources.push(Source::new(of_directory.unwrap_or(&module), &text));
        }
    }
}
