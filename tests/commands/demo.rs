//! `poolcounter demo`: all services with traffic, until a signal.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Demo that runs. It ends with the test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the server in the printed command that begins so.
fn server(printed: &str, command: &str) -> SocketAddr {
    let line = printed.lines().find(|line| line.trim().starts_with(command)).expect(command);
    let server = line.split(' ').skip_while(|word| *word != "-s").nth(1).expect("it names a server");
    server.parse().expect("it is an address")
}

/// Asks until the reply is as expected.
fn wait_for(client: &mut Client, request: &str, is_expected: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let reply = client.ask(request);
        if is_expected(&reply) {
            return;
        }
        assert!(Instant::now() < deadline, "{request}: {reply}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn demo_serves_until_a_signal() {
    let mut command = Command::new(Daemon::program());
    let mut demo = Demo(command.arg("demo").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it runs"));
    let mut lines = BufReader::new(demo.0.stdout.take().expect("is piped")).lines();
    let mut printed = String::new();
    while !printed.contains("Ctrl-C") {
        printed += &(lines.next().expect("more is printed").expect("is text") + "\n");
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
        let output = Command::new(Daemon::program()).args(line.split(' ')).stdin(Stdio::null()).output();
        let output = output.expect("it runs");
        let is_status = line.starts_with("status");
        assert!(is_status || output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    kill(Pid::from_raw(demo.0.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(demo.0.wait().expect("it ends").success());
    assert!(TcpStream::connect(pools).is_err());
}
