//! Every short history of a few clients of one pool of members, against the naive model: random histories may miss a
//! case, and these leave none out.

use poolcounter_testkit::histories::extend;
use poolcounter_testkit::members_twin::{MembersTwin, answer_to};
use poolcounter_testkit::seeds::is_exploring;

/// Step of time, in ms: between the shorter and the longer of the timeouts below.
const PASS_MS: u64 = 1_003;

/// Action of one client, or a step of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Letter {
    /// The client sends this line.
    Says(usize, &'static str),
    /// The client returns its last lease: OK or FAIL.
    Returns(usize, &'static str),
    /// The client answers its oldest unanswered request, with success or not.
    Answers(usize, bool),
    /// The client disconnects, and another connects in its place.
    Leaves(usize),
    /// Another process takes over.
    Upgrade,
    /// Time passes.
    Pass,
}

use Letter::{Answers, Leaves, Pass, Returns, Says, Upgrade};

/// Beginning of the histories: lines with their clients.
type Opening = &'static [(usize, &'static str)];

/// Two consumers may both wait for one member.
#[test]
fn two_consumers_of_one_member() {
    let opening: Opening = &[(2, "POOL p 0 1 on_loss=ok loss_delay=0.509"), (2, "PROVIDE p 0"), (2, "OFFER p f")];
    let each = |client| [Says(client, "TAKE p 1.507"), Returns(client, "OK"), Leaves(client)];
    all_histories(opening, &[&each(0)[..], &each(1), &[Pass]].concat(), 6);
}

/// Failed or lost members are stopped, and not handed out.
#[test]
fn two_consumers_who_may_fail() {
    let opening: Opening =
        &[(2, "POOL p 0 2 stop_timeout=1.509 queue=1"), (2, "PROVIDE p 0"), (2, "OFFER p f"), (2, "OFFER p g")];
    let each = |client| [Says(client, "TAKE p 0.503"), Returns(client, "FAIL"), Leaves(client)];
    all_histories(opening, &[&each(0)[..], &each(1), &[Says(1, "TAKE p"), Pass]].concat(), 5);
}

/// Takes for several members, beside takes for one.
#[test]
fn two_consumers_of_several_members() {
    let opening: Opening = &[(2, "POOL p 0 2"), (2, "PROVIDE p 0"), (2, "OFFER p f"), (2, "OFFER p g")];
    let each = |client| [Says(client, "TAKE p 1.507 n=2"), Says(client, "TAKE p 1.511"), Returns(client, "OK")];
    all_histories(opening, &[&each(0)[..], &each(1), &[Says(1, "CANCEL"), Leaves(0), Pass]].concat(), 5);
}

/// A provider and a consumer: starts that succeed or fail, members that are replaced, the loss of either.
#[test]
fn a_provider_and_a_consumer() {
    let opening: Opening = &[(2, "POOL p 0 1 start_timeout=2.503 stop_timeout=1.709"), (0, "PROVIDE p")];
    let letters =
        [Answers(0, true), Answers(0, false), Leaves(0), Says(1, "TAKE p 1.507"), Returns(1, "FAIL"), Leaves(1), Pass];
    all_histories(opening, &letters, 5);
}

/// Two providers: the choice for a start, the losses with each, and adoptions.
#[test]
fn two_providers_with_grace() {
    let opening: Opening =
        &[(2, "POOL p 1 2 provider_grace=1.409 on_loss=ok"), (0, "PROVIDE p 1"), (0, "STARTED 1 m"), (2, "TAKE p")];
    let letters = [
        Leaves(0),
        Says(0, "PROVIDE p"),
        Answers(0, true),
        Says(1, "PROVIDE p"),
        Says(1, "OFFER p m"),
        Leaves(1),
        Returns(2, "OK"),
        Pass,
    ];
    all_histories(opening, &letters, 5);
}

/// A provider whose connection is replaced by one of its session, while it is there or after it was lost.
#[test]
fn two_connections_of_a_session() {
    let opening: Opening = &[
        (2, "POOL p 1 2 provider_grace=1.409 stop_timeout=1.709"),
        (0, "PROVIDE p 1 session=s"),
        (0, "STARTED 1 m"),
        (2, "TAKE p"),
    ];
    let letters = [
        Leaves(0),
        Says(0, "PROVIDE p session=s"),
        Says(1, "PROVIDE p 1 session=s"),
        Answers(0, false),
        Answers(1, true),
        Returns(2, "FAIL"),
        Upgrade,
        Pass,
    ];
    all_histories(opening, &letters, 5);
}

/// A take that waits for a group: it goes where a member can be started, and anew when that changes.
#[test]
fn a_wait_for_a_group() {
    let opening: Opening = &[
        (2, "POOL a 0 1 group=g start_timeout=0.709"),
        (2, "POOL b 0 2 group=g start_timeout=0.809"),
        (0, "PROVIDE a"),
        (1, "PROVIDE b 1"),
    ];
    let letters = [
        Says(2, "TAKEGROUP g 1.507"),
        Returns(2, "FAIL"),
        Answers(0, true),
        Answers(0, false),
        Answers(1, true),
        Answers(1, false),
        Leaves(1),
        Pass,
    ];
    all_histories(opening, &letters, 5);
}

/// Two takes that wait for a group, or one for the group and one for a pool of it: starts that end are first those of
/// the takes for the group.
#[test]
fn several_waits_for_a_group() {
    let opening: Opening = &[
        (2, "POOL a 0 1 group=g start_timeout=0.709"),
        (2, "POOL b 0 2 group=g start_timeout=0.809"),
        (0, "PROVIDE a"),
        (3, "PROVIDE b"),
    ];
    let letters = [
        Says(1, "TAKEGROUP g 1.507"),
        Says(2, "TAKEGROUP g 1.511"),
        Says(2, "TAKE b 1.511"),
        Answers(0, true),
        Answers(0, false),
        Answers(3, true),
        Answers(3, false),
        Pass,
    ];
    all_histories(opening, &letters, 5);
}

/// A pool that is changed and removed under its clients, with an upgrade at any moment.
#[test]
fn an_operator() {
    let opening: Opening = &[(2, "POOL p 1 2"), (0, "PROVIDE p"), (0, "STARTED 1 m")];
    let letters = [
        Says(2, "RECONFIGURE p init=0 max=1 queue=0"),
        Says(2, "RMPOOL p GRACEFUL"),
        Says(2, "RMPOOL p"),
        Says(2, "POOL p 1 2"),
        Answers(0, true),
        Says(1, "TAKE p 1.507"),
        Returns(1, "OK"),
        Upgrade,
    ];
    all_histories(opening, &letters, 5);
}

/// Plays every history of `len` letters in which each letter is new. Most faults show in fewer letters, so a test run
/// stops one letter earlier, which takes a tenth of the time.
fn all_histories(opening: Opening, alphabet: &[Letter], len: usize) {
    let len = if is_exploring() { len } else { len - 1 };
    let mut played = 0;
    extend(&mut Vec::new(), alphabet, len, is_new, &mut |history| {
        play(opening, history);
        played += 1;
    });
    println!("{played} histories of {len} letters each, from an alphabet of {}", alphabet.len());
    assert!(played > 0, "none is worth playing");
}

/// Returns whether a history with this letter differs from every shorter one.
fn is_new(history: &[Letter], letter: Letter) -> bool {
    let says = |client: usize, word: &str| {
        let is_it = |letter: &Letter| matches!(letter, Says(of, line) if *of == client && line.starts_with(word));
        history.iter().rev().take_while(|letter| **letter != Leaves(client)).any(is_it)
    };
    match letter {
        // A repetition changes nothing more.
        Leaves(_) | Upgrade => history.last() != Some(&letter),
        // There is one in some openings.
        Returns(2, _) => !history.contains(&letter),
        Returns(client, _) | Says(client, "CANCEL") => says(client, "TAKE"),
        Says(..) | Answers(..) | Pass => true,
    }
}

fn play(opening: Opening, history: &[Letter]) {
    let mut twin = MembersTwin::new();
    let mut clients: Vec<usize> = (0..4).map(|_| twin.connect()).collect();
    for (client, line) in opening {
        twin.say(clients[*client], line);
        // No two events begin at the same moment, so little is due at once.
        twin.pass(1);
    }
    for letter in history {
        match *letter {
            Says(client, line) => twin.say(clients[client], line),
            Returns(client, condition) => {
                let last = twin.leases.iter().rev().find(|(of, _)| *of == clients[client]).map(|(_, number)| *number);
                twin.say(clients[client], &format!("RETURN {} {condition}", last.unwrap_or(1)));
            }
            Answers(client, is_good) => {
                if let Some(request) = twin.asked.get_mut(&clients[client]).filter(|asked| !asked.is_empty()) {
                    let request = request.remove(0);
                    let started = format!("m{}", request.split(' ').nth(2).unwrap_or_default());
                    twin.say(clients[client], &answer_to(&request, is_good, &started));
                }
            }
            Leaves(client) => {
                twin.close(clients[client]);
                clients[client] = twin.connect();
            }
            Upgrade => twin.upgrade(),
            Pass => twin.pass(PASS_MS),
        }
        for client in &mut clients {
            *client = twin.connected(*client);
        }
        twin.pass(1);
    }
    twin.end();
}
