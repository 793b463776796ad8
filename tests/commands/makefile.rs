//! Messages and actions of `make` when something is missing.

use poolcounter_testkit::daemon::install;
use poolcounter_testkit::original::installed;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Makes a target with these programs, which are shell scripts, and the few that every system has.
fn make(target: &str, programs: &[(&str, &str)]) -> Option<Output> {
    let Some(make) = installed(&["make"]) else {
        skipped("the targets of the Makefile, because make is not installed");
        return None;
    };
    let scratch = Scratch::new();
    for name in ["sh", "mkdir", "sort", "sed"] {
        symlink(installed(&[name]).expect("every system has it"), scratch.file(name)).expect("a new file");
    }
    for (name, script) in programs {
        install(&scratch.file(name), format!("#!/bin/sh\n{script}\n").as_bytes());
    }
    let mut command = Command::new(make);
    command.args(["--no-print-directory", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/Makefile"), target]);
    command.env_clear().env("PATH", scratch.file("")).env("CARGO_TARGET_DIR", scratch.file("target"));
    fs::create_dir(scratch.file("within")).expect("can be made");
    Some(command.current_dir(scratch.file("within")).output().expect("it runs"))
}

#[test]
fn skipped_tests_are_listed_at_the_end() {
    let cargo = "[ $TESTS_SKIPPED ] || exit 0; echo testing; for one in b a b; do echo $one >>$TESTS_SKIPPED; done";
    for (end, status) in [("", Some(0)), ("; exit 101", Some(2))] {
        let Some(output) = make("test", &[("cargo", &format!("{cargo}{end}"))]) else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), status, "{said}");
        let programs = format!("cargo test --workspace --no-run\n{}", "testing\n".repeat(10));
        assert_eq!(said, format!("{programs}not tested here: a\nnot tested here: b\n"));
    }
}

#[test]
fn package_needs_root_only_for_missing_parts() {
    let missing = [("dpkg", "exit 1"), ("dpkg-buildpackage", "echo it is built"), ("apt-get", "echo apt-get \"$@\"")];
    let (root, user) = (("id", "echo 0"), ("id", "echo 1000"));
    let said = |programs: &[(&str, &str)]| {
        let output = make("deb", programs)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((output.status.success(), text(&output.stdout), text(&output.stderr)))
    };
    let Some((worked, stdout, _)) = said(&[&missing[..], &[root]].concat()) else { return };
    assert!(worked && stdout.contains("\napt-get install -y ") && stdout.ends_with("it is built\n"), "{stdout}");

    let sudo = ("sudo", "echo as root: \"$@\"");
    let (worked, stdout, _) = said(&[&missing[..], &[user, sudo]].concat()).expect("make is there");
    assert!(
        worked && stdout.contains("\nas root: apt-get install -y ") && stdout.ends_with("it is built\n"),
        "{stdout}"
    );

    let (worked, stdout, stderr) = said(&[&missing[..], &[user]].concat()).expect("make is there");
    assert!(!worked && !stdout.contains("it is built"), "{stdout}");
    assert!(
        stderr.contains("only root can install: apt-get install --no-install-recommends build-essential "),
        "{stderr}"
    );

    let there = [("dpkg", "exit 0"), missing[1], user];
    let (worked, stdout, _) = said(&there).expect("make is there");
    assert!(worked && stdout.ends_with("it is built\n") && !stdout.contains("as root"), "{stdout}");
}

/// Checks that the documents of a directory link only to files that are installed as well.
fn check_links(directory: &Path) {
    for entry in fs::read_dir(directory).expect("it is installed") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            check_links(&path);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).expect("it is text");
            for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                assert!(link.contains("://") || directory.join(link).exists(), "{}: {link}", path.display());
            }
        }
    }
}

/// Existing settings stay; the units name the program and the settings of this installation.
#[test]
fn installation_has_settings_and_units() {
    let Some(make) = installed(&["make"]) else { return };
    let scratch = Scratch::new();
    let (target, root) = (scratch.file("target"), scratch.file("root"));
    fs::create_dir_all(target.join("release")).expect("can be made");
    install(&target.join("release/poolcounter"), b"#!/bin/sh\necho \"$@\"\n");
    let install_with = |settings: &str| {
        let mut command = Command::new(&make);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", &target);
        let output = command.args(["install", settings]).arg(format!("DESTDIR={}", root.display())).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    install_with("PREFIX=/opt");
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/debian/poolcounter.toml");
    let template = fs::read_to_string(template).expect("it is text");
    assert_eq!(read("etc/poolcounter.toml"), template);
    let unit = read("opt/lib/systemd/system/poolcounter.service");
    assert!(unit.contains("\nExecStart=/opt/sbin/poolcounter --config /etc/poolcounter.toml $ARGS\n"), "{unit}");
    assert!(!unit.contains("/usr/bin/poolcounter"), "{unit}");
    assert!(
        read("opt/lib/systemd/system/poolcounter-tls.service")
            .contains("\nExecStart=/opt/sbin/poolcounter tls $ARGS\n")
    );
    check_links(&root.join("opt/share/doc/poolcounter"));

    fs::write(root.join("etc/poolcounter.toml"), "max_hold = 60\n").expect("can be written");
    install_with("PREFIX=/opt");
    assert_eq!(read("etc/poolcounter.toml"), "max_hold = 60\n");
    assert_eq!(read("opt/share/poolcounter/poolcounter.toml"), template);
}
