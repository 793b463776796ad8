//! `poolcounter demo`: all services with traffic, until a signal.

use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, until};
use poolcounter_testkit::running::{Running, run};
use std::net::{SocketAddr, TcpStream};

/// Returns the server in the printed command that begins so.
fn server(printed: &str, command: &str) -> SocketAddr {
    let line = printed.lines().find(|line| line.trim().starts_with(command)).expect(command);
    let server = line.split(' ').skip_while(|word| *word != "-s").nth(1).expect("it names a server");
    server.parse().expect("it is an address")
}

/// Asks until the reply is as expected.
fn wait_for(client: &mut Client, request: &str, is_expected: impl Fn(&str) -> bool) {
    until(request, || is_expected(&client.ask(request)));
}

#[test]
fn demo_serves_until_a_signal() {
    let mut demo = Running::program(&["demo"]);
    let mut printed = String::new();
    while !printed.contains("Ctrl-C") {
        assert!(printed.lines().count() < 200, "{printed}");
        printed += &(demo.line() + "\n");
    }
    let pools = server(&printed, "poolcounter holders");
    wait_for(&mut Client::to(pools), "STATS total_acquired", |reply| reply != "total_acquired: 0");
    let members = server(&printed, "poolcounter members");
    wait_for(&mut Client::to(members), "UTILIZATION accounts", |reply| reply.contains("in_use 2"));
    let jobs = server(&printed, "poolcounter jobs");
    wait_for(&mut Client::to(jobs), "schedule-delete report\r", |reply| reply == "DELETED\r");
    let tried = printed.lines().filter_map(|line| line.strip_prefix("  poolcounter ")).filter(|line| {
        // Others wait for a terminal, or for longer than a test should.
        !line.starts_with("top") && !line.starts_with("take") && !line.contains(" list ")
    });
    for line in tried {
        let ended = run(&line.split(' ').collect::<Vec<_>>());
        assert!(line.starts_with("status") || ended.status == Some(0), "{line}: {ended:?}");
    }
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.finish().status, Some(0));
    assert!(TcpStream::connect(pools).is_err());
}
