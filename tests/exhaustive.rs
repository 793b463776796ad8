//! Every short history of a few clients over one key, against the naive model: where random histories may miss a case, these
//! leave none out.

mod support;

use support::model::Limits;
use support::twin::{Action, Twin};

const LIMITS: Limits = Limits { max_locks: 4, max_hold_us: None, max_line: 8192 };
const SECOND_US: u64 = 1_000_000;

/// What one client does, or time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Letter {
    /// The client says a line.
    Says(usize, &'static str),
    /// The client leaves, and another connects in its place.
    Leaves(usize),
    /// As long passes as anybody may wait.
    Pass,
}

/// Two clients who may ask in both ways.
#[test]
fn two_clients_in_five_steps() {
    all_histories(2, &["ACQ4ME k 1 9 1\n", "ACQ4ANY k 1 9 1\n", "RELEASE\n"], 5);
}

#[test]
fn two_clients_in_six_steps() {
    all_histories(2, &["ACQ4ANY k 1 9 1\n", "RELEASE\n"], 6);
}

/// Three clients: two may wait for the third, in either order.
#[test]
fn three_clients_in_five_steps() {
    all_histories(3, &["ACQ4ANY k 1 9 1\n", "RELEASE\n"], 5);
}

/// Three clients: those who want to work go first when one is lost, in the order in which they came.
#[test]
fn three_clients_in_five_steps_without_release() {
    all_histories(3, &["ACQ4ME k 1 9 1\n", "ACQ4ANY k 1 9 1\n"], 5);
}

/// Holds that end just when waits do, and a queue that is full.
#[test]
fn two_clients_with_limited_holds_in_five_steps() {
    all_histories(2, &["ACQ4ME k 1 3 2 hold=1\n", "ACQ4ANY k 1 3 1\n", "RELEASE k\n"], 5);
}

/// Plays every history of so many letters. Clients are alike, so a client does nothing before the one before it has.
fn all_histories(clients: usize, lines: &[&'static str], len: usize) {
    let mut alphabet = vec![Letter::Pass];
    for client in 0..clients {
        alphabet.extend(lines.iter().map(|line| Letter::Says(client, line)));
        alphabet.push(Letter::Leaves(client));
    }
    let mut played = 0;
    extend(&mut Vec::new(), &alphabet, len, &mut |history| {
        play(clients, history);
        played += 1;
    });
    println!("{played} histories of {clients} clients, {len} letters each, from an alphabet of {}", alphabet.len());
}

/// Adds each letter that says something new to a history, until it is long enough.
fn extend(history: &mut Vec<Letter>, alphabet: &[Letter], len: usize, play: &mut impl FnMut(&[Letter])) {
    if history.len() == len {
        return play(history);
    }
    for letter in alphabet {
        if is_new(history, *letter) {
            history.push(*letter);
            extend(history, alphabet, len, play);
            history.pop();
        }
    }
}

/// Whether a history with this letter differs from every shorter one, and from every one with the clients' parts exchanged.
fn is_new(history: &[Letter], letter: Letter) -> bool {
    let last_of = |client| history.iter().rev().find(|letter| client_of(**letter) == Some(client));
    match letter {
        // Nobody holds or waits yet.
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

fn play(clients: usize, history: &[Letter]) {
    let mut twin = Twin::new(LIMITS, String::new());
    let mut numbers: Vec<usize> = (0..clients).collect();
    numbers.iter().for_each(|_| twin.act(Action::Connect));
    for letter in history {
        match *letter {
            Letter::Pass => twin.act(Action::Pass(SECOND_US)),
            Letter::Says(client, line) => {
                twin.act(Action::Send(numbers[client], line.into()));
                twin.act(Action::Settle);
            }
            Letter::Leaves(client) => {
                twin.act(Action::Finish(numbers[client]));
                twin.act(Action::Settle);
                numbers[client] = twin.received().len();
                twin.act(Action::Connect);
            }
        }
    }
    // What was counted is compared as well, some time after it happened.
    twin.act(Action::Pass(1));
    twin.act(Action::Send(numbers[0], b"STATS FULL\nSTATS TYPES\n".to_vec()));
    numbers.iter().for_each(|number| twin.act(Action::Finish(*number)));
    twin.act(Action::Settle);
    assert!(twin.is_empty(), "something is left of somebody who is gone");
}
