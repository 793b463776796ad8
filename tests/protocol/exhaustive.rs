//! Every short history of a few clients over one key or one counter, against the naive model: random histories may miss
//! a case, and these leave none out.

use poolcounter_testkit::frames;
use poolcounter_testkit::histories::extend;
use poolcounter_testkit::model::{Limits, Service};
use poolcounter_testkit::twin::{Action, Twin};

/// Timeout of all waits.
const SECOND_US: u64 = 1_000_000;
/// An interval of the counters.
const INTERVAL_US: u64 = 10 * SECOND_US;

/// Requests of the histories.
struct Language<'a> {
    service: Service,
    requests: &'a [Vec<u8>],
    /// Request at the end for all counts.
    last: &'a [u8],
    /// Microseconds of one step of time.
    pass_us: u64,
}

/// Action of one client, or a step of time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letter {
    /// The client sends one of the requests.
    Says(usize, usize),
    /// The client disconnects, and another connects in its place.
    Leaves(usize),
    /// Time passes.
    Pass,
}

/// Two clients with both kinds of requests.
#[test]
fn two_clients_in_five_steps() {
    all_lines(2, &["ACQ4ME k 1 9 1\n", "ACQ4ANY k 1 9 1\n", "RELEASE\n"], 5);
}

#[test]
fn two_clients_in_six_steps() {
    all_lines(2, &["ACQ4ANY k 1 9 1\n", "RELEASE\n"], 6);
}

/// Three clients: two may wait for the third, in either order.
#[test]
fn three_clients_in_five_steps() {
    all_lines(3, &["ACQ4ANY k 1 9 1\n", "RELEASE\n"], 5);
}

/// Three clients: waiters with ACQ4ME go first when a holder is lost, in the order in which they came.
#[test]
fn three_clients_in_five_steps_without_release() {
    all_lines(3, &["ACQ4ME k 1 9 1\n", "ACQ4ANY k 1 9 1\n"], 5);
}

/// Holds that end just when waits do, and a queue that is full.
#[test]
fn two_clients_with_limited_holds_in_five_steps() {
    all_lines(2, &["ACQ4ME k 1 3 2 hold=1\n", "ACQ4ANY k 1 3 1\n", "RELEASE k\n"], 5);
}

/// Locks that are kept after their holders have ended, released or lost.
#[test]
fn two_clients_with_kept_locks_in_five_steps() {
    all_lines(2, &["ACQ4ME k 1 3 2 keep=1\n", "ACQ4ANY k 1 3 2 keep=2 hold=3\n", "RELEASE\n"], 5);
}

/// Three clients that want several locks at once: two limits that they share in turn, and none that all share.
#[test]
fn three_clients_with_several_keys_in_five_steps() {
    all_lines(3, &["ACQ4ME a 1 9 1 also=b:1:9\n", "ACQ4ANY b 1 9 1 also=c:1:9\n", "RELEASE\n"], 5);
}

/// Two clients with two claims each: a release may serve one or two claims at once.
#[test]
fn two_clients_with_several_keys_in_five_steps() {
    all_lines(2, &["ACQ4ME a 1 9 1 also=b:2:9 also=c:1:9 hold=1\n", "ACQ4ME c 1 3 2\n", "RELEASE a\n"], 5);
}

/// Two clients of one counter, whose interval may end at any point.
#[test]
fn two_clients_of_a_counter_in_five_steps() {
    all_counts(2, &[frames::acquire(1, 2, b"k"), frames::release(1, b"k"), frames::get(b"k")], 5);
}

/// Units that are released, and their next holders.
#[test]
fn two_clients_of_a_counter_in_six_steps() {
    all_counts(2, &[frames::acquire(2, 3, b"k"), frames::release(1, b"k")], 6);
}

/// A Dump is right, in whatever order counters come and go.
#[test]
fn two_clients_of_two_counters_in_five_steps() {
    all_counts(2, &[frames::acquire(1, 1, b"k"), frames::acquire(1, 2, b"l"), frames::dump()], 5);
}

#[test]
fn three_clients_of_a_counter_in_five_steps() {
    all_counts(3, &[frames::acquire(1, 2, b"k"), frames::release(0, b"k")], 5);
}

fn all_counts(clients: usize, requests: &[Vec<u8>], len: usize) {
    let last = [frames::dump(), frames::stats()].concat();
    let language = Language { service: Service::Counters, requests, last: &last, pass_us: INTERVAL_US };
    all_histories(clients, &language, len);
}

fn all_lines(clients: usize, lines: &[&str], len: usize) {
    let requests: Vec<Vec<u8>> = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
    let last = b"STATS FULL\nSTATS TYPES\n";
    let language = Language { service: Service::Pools, requests: &requests, last, pass_us: SECOND_US };
    all_histories(clients, &language, len);
}

/// Plays every history of `len` letters. Clients are alike, so a client does nothing before the one before it has.
fn all_histories(clients: usize, language: &Language<'_>, len: usize) {
    let mut alphabet = vec![Letter::Pass];
    for client in 0..clients {
        alphabet.extend((0..language.requests.len()).map(|n| Letter::Says(client, n)));
        alphabet.push(Letter::Leaves(client));
    }
    let mut played = 0;
    extend(&mut Vec::new(), &alphabet, len, is_new, &mut |history| {
        play(clients, language, history);
        played += 1;
    });
    println!("{played} histories of {clients} clients, {len} letters each, from an alphabet of {}", alphabet.len());
}

/// Returns whether a history with this letter differs from every shorter history, and from every history with the
/// clients' parts exchanged.
fn is_new(history: &[Letter], letter: Letter) -> bool {
    let last_of = |client| history.iter().rev().find(|letter| client_of(**letter) == Some(client));
    match letter {
        // Time matters once a client has sent something.
        Letter::Pass => history.iter().any(|letter| client_of(*letter).is_some()),
        Letter::Leaves(client) => matches!(last_of(client), Some(Letter::Says(..))),
        Letter::Says(client, _) => client == 0 || last_of(client - 1).is_some(),
    }
}

fn client_of(letter: Letter) -> Option<usize> {
    match letter {
        Letter::Says(client, _) | Letter::Leaves(client) => Some(client),
        Letter::Pass => None,
    }
}

fn play(clients: usize, language: &Language<'_>, history: &[Letter]) {
    let limits = Limits { interval_us: INTERVAL_US, ..Limits::USUAL };
    let mut twin = Twin::new(limits);
    let connect = Action::Connect(language.service);
    let mut numbers: Vec<usize> = (0..clients).collect();
    numbers.iter().for_each(|_| twin.act(connect.clone()));
    for letter in history {
        match *letter {
            Letter::Pass => twin.act(Action::Pass(language.pass_us)),
            Letter::Says(client, request) => {
                twin.act(Action::Send(numbers[client], language.requests[request].clone()));
                twin.act(Action::Settle);
            }
            Letter::Leaves(client) => {
                twin.act(Action::Finish(numbers[client]));
                twin.act(Action::Settle);
                numbers[client] = twin.received().len();
                twin.act(connect.clone());
            }
        }
    }
    // Counts are compared as well, some time after the events.
    twin.act(Action::Pass(1));
    twin.act(Action::Send(numbers[0], language.last.to_vec()));
    numbers.iter().for_each(|number| twin.act(Action::Finish(*number)));
    twin.act(Action::Settle);
    // Counters stay until their interval is over.
    twin.act(Action::Pass(INTERVAL_US));
    assert!(twin.is_empty(), "something is left of somebody who is gone");
}
