//! The bodies of the fuzz targets, over the fuzzer's corpus and over variations of it.

use poolcounter_testkit::random::Random;
use poolcounter_testkit::{bodies, seeds};
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

/// Name and body of a fuzz target.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 16] = [
    ("http", bodies::http::run),
    ("fleet", bodies::fleet::run),
    ("pools_wire", bodies::pools_wire::run),
    ("pools_stream", bodies::streams::pools),
    ("pools_model", bodies::simulation::pools),
    ("counters_wire", bodies::counters_wire::run),
    ("counters_stream", bodies::streams::counters),
    ("counters_model", bodies::simulation::counters),
    ("jobs_wire", bodies::jobs_wire::run),
    ("jobs_stream", bodies::streams::jobs),
    ("jobs_model", bodies::jobs_model::run),
    ("members_wire", bodies::members_wire::run),
    ("members_stream", bodies::streams::members),
    ("members_model", bodies::members_model::run),
    ("proxy", bodies::proxy::run),
    ("wheel", bodies::wheel::run),
];

/// Returns the inputs of each target that the corpus has.
fn corpus() -> Vec<Vec<Vec<u8>>> {
    let inputs_of = |(target, _): &Target| {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
        if !directory.exists() {
            // A package of cargo has no directory with a manifest of its own.
            poolcounter_testkit::skipped("the inputs of the fuzz targets, because they are not in the package");
            return Vec::new();
        }
        let files = fs::read_dir(&directory).expect("is readable").map(|file| file.expect("is readable").path());
        let mut inputs: Vec<Vec<u8>> = files.map(|path| fs::read(path).expect("is readable")).collect();
        // The order of the files differs between machines, and the variations must not.
        inputs.sort();
        assert!(inputs.len() >= 10, "{target} has few inputs");
        inputs
    };
    TARGETS.iter().map(inputs_of).collect()
}

/// Runs a body in a thread of its own, as some count from near the largest numbers in all of their thread.
fn run((target, body): Target, input: &[u8]) {
    let run = || {
        let _shown = Shown { target, input };
        body(input);
    };
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic));
}

#[test]
fn inputs_of_the_corpus_do_no_harm() {
    for (target, inputs) in TARGETS.into_iter().zip(corpus()) {
        inputs.iter().for_each(|input| run(target, input));
    }
}

/// Each history varies one input of each target.
#[test]
fn random_variations_do_no_harm() {
    let corpus = corpus();
    seeds::play("corpus", |history| {
        let mut random = Random::new(history.seed);
        for (target, inputs) in TARGETS.into_iter().zip(&corpus).filter(|(_, inputs)| !inputs.is_empty()) {
            let mut input = inputs[random.below(inputs.len())].clone();
            input.extend_from_slice(&inputs[random.below(inputs.len())]);
            for _ in 0..1 + random.below(4) {
                let at = random.below(input.len().max(1)).min(input.len().saturating_sub(1));
                if let Some(byte) = input.get_mut(at) {
                    *byte = random.below(256) as u8;
                }
            }
            run(target, &input);
        }
    });
}

/// Input that is printed when it makes the test fail.
struct Shown<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{} failed on \"{}\"", self.target, self.input.escape_ascii());
        }
    }
}
