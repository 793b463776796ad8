//! Unmodified clients of beanstalkd with the jobs service. They are fetched from their registries once and kept in the
//! directory of build results.

use poolcounter_testkit::daemon::Daemon;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory of the clients.
const KEPT: &str = env!("CARGO_TARGET_TMPDIR");
/// Directory of their scripts.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// Returns whether the command could be run and has succeeded.
fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs the script of a client, with a daemon of its own.
fn play(command: &mut Command) {
    let daemon = Daemon::start_with_jobs(&[]);
    let output = command.arg(daemon.jobs().port().to_string()).output().expect("the client runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// Returns the Python of an environment that has these packages, if they are available.
pub fn python(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let place = Path::new(KEPT).join(name);
    let python = place.join("bin/python");
    let has_all = || succeeds(Command::new(&python).args(["-m", "pip", "show"]).args(packages));
    if !has_all() {
        let is_made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place));
        let is_made = is_made && succeeds(Command::new(&python).args(["-m", "pip", "install"]).args(packages));
        if !is_made {
            poolcounter_testkit::skipped(&format!("{}, because pip cannot fetch it", packages[0]));
            return None;
        }
    }
    Some(python)
}

/// Returns the directory of a package of npm with its dependencies, if it is available.
fn node(package: &str) -> Option<PathBuf> {
    let place = Path::new(KEPT).join(format!("node-{package}"));
    let modules = place.join("node_modules");
    if !modules.join(package).exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&place).arg(package);
        if !succeeds(&mut npm) {
            poolcounter_testkit::skipped(&format!("{package}, because npm cannot fetch it"));
            return None;
        }
    }
    Some(modules)
}

#[test]
fn greenstalk() {
    let Some(python) = python("greenstalk", &["greenstalk"]) else { return };
    play(Command::new(python).arg(format!("{SCRIPTS}/greenstalk_client.py")));
}

/// Runs the client's own test suite, which exists only in its source.
#[test]
fn pystalkd() {
    let Some(python) = python("pystalkd", &["pystalkd", "pyyaml"]) else { return };
    let place = Path::new(KEPT).join("pystalkd-source");
    let suite = place.join("pystalkd-1.3.0/test.py");
    if !suite.exists() {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "pystalkd==1.3.0", "--dest"]);
        let is_there = succeeds(pip.arg(&place));
        let archive = place.join("pystalkd-1.3.0.tar.gz");
        if !is_there || !succeeds(Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&place)) {
            return poolcounter_testkit::skipped("the tests of pystalkd, because pip cannot fetch them");
        }
    }
    let directory = suite.parent().expect("it lies in a directory");
    let mut command = Command::new(python);
    play(command.arg(format!("{SCRIPTS}/pystalkd_suite.py")).current_dir(directory).env("PYTHONPATH", directory));
}

#[test]
fn jackd() {
    let Some(modules) = node("jackd") else { return };
    play(Command::new("node").arg(format!("{SCRIPTS}/jackd_client.js")).env("NODE_PATH", modules));
}

#[test]
fn fivebeans() {
    let Some(modules) = node("fivebeans") else { return };
    play(Command::new("node").arg(format!("{SCRIPTS}/fivebeans_client.js")).env("NODE_PATH", modules));
}

/// Runs the crates beanstalkc and beanstalkd, in a package of their own, so that ours does not depend on them.
#[test]
fn rust_crates() {
    let place = Path::new(KEPT).join("rust-clients");
    std::fs::create_dir_all(place.join("src")).expect("can be made");
    std::fs::copy(format!("{SCRIPTS}/rust_clients.rs"), place.join("src/main.rs")).expect("can be copied");
    let manifest = "[package]\nname = \"rust-clients\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
                    beanstalkc = \"1.0.0\"\nbeanstalkd = \"0.4.1\"\n\n[workspace]\n";
    std::fs::write(place.join("Cargo.toml"), manifest).expect("can be written");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["fetch", "--manifest-path"]).arg(place.join("Cargo.toml"));
    if !succeeds(&mut cargo) {
        return poolcounter_testkit::skipped("the crates beanstalkc and beanstalkd, because cargo cannot fetch them");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--target-dir"]).arg(place.join("target")).current_dir(&place);
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    play(&mut Command::new(place.join("target/debug/rust-clients")));
}

#[test]
fn beaneater() {
    if !succeeds(Command::new("ruby").args(["-e", "require 'beaneater'"])) {
        return poolcounter_testkit::skipped("beaneater, because Debian's ruby-beaneater is not installed");
    }
    play(Command::new("ruby").arg(format!("{SCRIPTS}/beaneater_client.rb")));
}
