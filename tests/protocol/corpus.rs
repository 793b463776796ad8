//! The bodies of the fuzz targets, over the fuzzer's corpus and over variations of it.

use poolcounter_testkit::random::Random;
use std::fs;
use std::path::Path;

/// Number of variations of the inputs.
const VARIATIONS: usize = 500;

fn play(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    if !directory.exists() {
        // A package of cargo has no directory with a manifest of its own.
        return poolcounter_testkit::skipped(&format!(
            "the inputs of the fuzz target {target}, because they are not in the package"
        ));
    }
    let files = fs::read_dir(&directory).expect("is readable").map(|file| file.expect("is readable").path());
    let mut inputs: Vec<Vec<u8>> = files.map(|path| fs::read(path).expect("is readable")).collect();
    // The order of the files differs between machines, and the variations must not.
    inputs.sort();
    assert!(inputs.len() >= 10, "{target} has few inputs");
    let run = |input: &[u8]| {
        let _shown = Shown { target, input };
        run(input);
    };
    inputs.iter().for_each(|input| run(input));
    let mut random = Random::new(1);
    for _ in 0..VARIATIONS {
        let mut input = inputs[random.below(inputs.len())].clone();
        input.extend_from_slice(&inputs[random.below(inputs.len())]);
        for _ in 0..1 + random.below(4) {
            let at = random.below(input.len().max(1)).min(input.len().saturating_sub(1));
            if let Some(byte) = input.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
        run(&input);
    }
}

/// Input that is printed when it makes the test fail.
struct Shown<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed on \"{}\"", self.target, self.input.escape_ascii());
        }
    }
}

#[test]
fn http() {
    play("http", poolcounter_testkit::bodies::http::run);
}

#[test]
fn fleet() {
    play("fleet", poolcounter_testkit::bodies::fleet::run);
}

#[test]
fn pools_wire() {
    play("pools_wire", poolcounter_testkit::bodies::pools_wire::run);
}

#[test]
fn pools_stream() {
    play("pools_stream", poolcounter_testkit::bodies::pools_stream::run);
}

#[test]
fn pools_model() {
    play("pools_model", poolcounter_testkit::bodies::pools_model::run);
}

#[test]
fn counters_wire() {
    play("counters_wire", poolcounter_testkit::bodies::counters_wire::run);
}

#[test]
fn counters_stream() {
    play("counters_stream", poolcounter_testkit::bodies::counters_stream::run);
}

#[test]
fn counters_model() {
    play("counters_model", poolcounter_testkit::bodies::counters_model::run);
}

#[test]
fn jobs_wire() {
    play("jobs_wire", poolcounter_testkit::bodies::jobs_wire::run);
}

#[test]
fn jobs_stream() {
    play("jobs_stream", poolcounter_testkit::bodies::jobs_stream::run);
}

#[test]
fn jobs_model() {
    play("jobs_model", poolcounter_testkit::bodies::jobs_model::run);
}

#[test]
fn members_wire() {
    play("members_wire", poolcounter_testkit::bodies::members_wire::run);
}

#[test]
fn members_stream() {
    play("members_stream", poolcounter_testkit::bodies::members_stream::run);
}

#[test]
fn members_model() {
    play("members_model", poolcounter_testkit::bodies::members_model::run);
}

#[test]
fn proxy() {
    play("proxy", poolcounter_testkit::bodies::proxy::run);
}

#[test]
fn wheel() {
    play("wheel", poolcounter_testkit::bodies::wheel::run);
}
