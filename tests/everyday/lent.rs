//! Programs that hold a member or a job by a client library: that of Rust, within this process, or that of Python.

use super::events::{CABLE, EVENTS, Event};
use super::libraries::{TIMEOUTS, ask, is_common, scene, start_all, watch};
use super::parties::NO_SERVER;
use super::services::{TAKEN, TAKEN_BY_ANOTHER};
use super::stage::{LATE, Stage};
use super::{Cells, Scene};
use poolcounter_client::{MediaWiki, Members, NewJob, Producer, Reservation, Runner, TakeOutcome, Wanted};
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::{Client, Daemon};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

const HEADING: &str = "Client libraries with members and jobs";

/// Prints the loss of its member for each line of its input.
const HOLDING_PROGRAM: (&str, &str) = (
    "python3",
    "
import sys
from poolcounter import Members

member = Members(sys.argv[1]).take('python')
for _ in sys.stdin:
    print(member.lost, flush=True)
",
);

/// Returns a scene for each event.
pub fn scenes() -> Vec<Scene> {
    let events = EVENTS.iter().filter(|event| is_common(event) && event.meets_the_daemon());
    events.map(|event| scene(HEADING, event, play)).collect()
}

/// Plays an event for both libraries at once, and returns the row that is seen.
fn play(event: &Event, wanted: &[String]) -> Cells {
    let mut stage = Stage::new(LATE);
    let daemon = stage.daemon.as_ref().expect("it runs");
    let addresses = [daemon.members(), daemon.jobs()];
    let mut operator = Client::to(addresses[0]);
    for pool in ["rust", "python"] {
        assert_eq!(operator.ask(&format!("POOL {pool} 0 1 on_loss=ok")), "OK");
        assert_eq!(operator.ask(&format!("ADD {pool} {pool}-1")), "OK");
    }
    let producer = Producer::new([addresses[1].to_string()], TIMEOUTS);
    let _ = producer.put(&NewJob::new("j")).expect("there is room");
    let proxies = addresses.map(CutProxy::to);
    // A proxy passes on no end of a connection.
    let [members_at, jobs_at] = if event.name == CABLE { [0, 1].map(|n| proxies[n].address) } else { addresses };

    let members = Members::with(MediaWiki::new([members_at.to_string()]), TIMEOUTS);
    let wish = Wanted { resume: true, ..Wanted::default() };
    let Ok(TakeOutcome::Taken(taken)) = members.take("rust", &wish) else { panic!("it is free") };
    let mut runner = Runner::new([jobs_at.to_string()], TIMEOUTS);
    let Ok(Reservation::Reserved(job)) = runner.reserve(None) else { panic!("there is one") };
    let mut programs = start_all(&[HOLDING_PROGRAM], members_at);

    let mut look = |daemon: [Option<SocketAddr>; 2]| {
        let cell = |is_lost: bool, next: &str| {
            format!("{}; the next {next}", if is_lost { "knows the loss" } else { "knows of no loss" })
        };
        // The member is had back by it, if it can be.
        let _ = taken[0].renew();
        let rust = cell(taken[0].loss().is_some(), next_member(daemon[0], "rust"));
        let job = cell(runner.touch(&job).is_err(), next_job(daemon[1]));
        let of_python = programs.iter_mut().map(|program| {
            program.child.stdin.as_mut().expect("is piped").write_all(b"\n").expect("it runs");
            cell(program.line() != "None", next_member(daemon[0], "python"))
        });
        [rust, job].into_iter().chain(of_python).collect::<Vec<String>>()
    };
    let before = look(addresses.map(Some));
    let is_held = |cell: &String| cell.starts_with("knows of no loss; the next ") && !cell.ends_with(TAKEN);
    assert!(before.iter().all(is_held), "{before:?}");
    (event.act)(&mut stage);
    proxies.iter().filter(|_| event.name == CABLE).for_each(CutProxy::fall_silent);
    let at = [stage.address_of(Daemon::members), stage.address_of(Daemon::jobs)];
    watch(event, wanted, || look(at))
}

/// Returns what a client sees that takes the pool's member, and gives it back.
fn next_member(daemon: Option<SocketAddr>, pool: &str) -> &'static str {
    let reply = daemon.and_then(|at| Some(ask(&mut TcpStream::connect(at).ok()?, &format!("TAKE {pool} 0\n"))));
    match reply.as_deref() {
        None => NO_SERVER,
        Some(reply) if reply.starts_with("MEMBER ") => TAKEN,
        Some(reply) if reply.starts_with("NO_MEMBERS ") => TAKEN_BY_ANOTHER,
        Some(other) => panic!("a newcomer hears {other:?}"),
    }
}

/// Returns what a client would see that asks for a job.
fn next_job(daemon: Option<SocketAddr>) -> &'static str {
    let reply = daemon.and_then(|at| Some(ask(&mut TcpStream::connect(at).ok()?, "peek-ready\r\n")));
    match reply.as_deref() {
        None => NO_SERVER,
        Some("NOT_FOUND") => "finds none",
        Some(reply) if reply.starts_with("FOUND ") => TAKEN,
        Some(other) => panic!("a newcomer hears {other:?}"),
    }
}
