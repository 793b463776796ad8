//! The client for Python: its own tests, which start daemons of this build.

use super::jobs_clients::python;
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::skipped;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python");

#[test]
fn tests_of_the_package_pass() {
    let is_there = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_there {
        return skipped("the client for Python, because python3 is not installed");
    }
    // The suite itself reports that the fixture is not tested without pytest.
    let python = python("pytest", &["pytest", "pytest-xdist"]).unwrap_or(PathBuf::from("python3"));
    let mut tests = Command::new(python);
    tests.args(["-m", "unittest", "discover", "-t", ".", "-s", "tests"]).current_dir(PACKAGE);
    tests.env("POOLCOUNTER_PROGRAM", Daemon::program()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = tests.output().expect("it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn package_has_the_version_of_the_daemon() {
    let text = fs::read_to_string(Path::new(PACKAGE).join("poolcounter/__init__.py")).expect("it is there");
    let version = format!("__version__ = \"{}\"\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "not {version}");
}
