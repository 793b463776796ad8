//! Upgrades that operators ask for over the administration socket.

use poolcounter_testkit::daemon::{Client, Daemon, install_program, install_waiting_program, wait_for_file};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::process::Command;

/// A reload that an operator asks for during another one has a result of its own, from the settings of its time.
#[test]
fn reload_during_another_has_its_own_result() {
    for fails in [false, true] {
        let scratch = Scratch::new();
        let (program, settings) = (scratch.file("poolcounter"), scratch.file("settings"));
        let socket = scratch.file("admin.sock");
        fs::write(&settings, "max_locks = 1\n").expect("can be written");
        install_program(&program);
        let mut command = Command::new(&program);
        command.args(["-l", "127.0.0.1:0", "--admin", &format!("unix:{}", socket.display()), "--config"]);
        let daemon = Daemon::run(command.arg(&settings));
        install_waiting_program(&program);
        let mut operators = [(); 3].map(|()| Client::at(&socket));
        assert_eq!(operators[0].ask("RELOAD"), "WAIT for the new program");
        wait_for_file(&program.with_extension("read"));
        fs::write(&settings, "max_locks = 0\n").expect("can be written");
        assert_eq!(operators[1].ask("RELOAD"), "WAIT for the new program");
        assert_eq!(operators[2].ask("RELOAD"), "WAIT for the new program");
        if fails {
            fs::write(program.with_extension("bad"), "").expect("can be written");
        }
        fs::write(program.with_extension("go"), "").expect("can be written");
        let first = operators[0].line();
        let wanted = if fails { "ERROR no upgrade: " } else { "OK poolcounter " };
        assert!(first.starts_with(wanted) && !first.contains("max_locks"), "{first}");
        let [_, second, third] = &mut operators;
        for line in [second.line(), third.line()] {
            assert!(line.starts_with("ERROR no upgrade: ") && line.contains("settings:1: max_locks: "), "{line}");
        }
        assert_eq!(second.ask("LOG info"), "OK", "it is served again");
        assert_eq!(daemon.connect().ask("ACQ4ME a 1 1 0"), "LOCKED");
    }
}
