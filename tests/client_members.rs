//! The client library's members against our server, and against servers that fail.

mod support;

use poolcounter::client::{
    Condition, Error, LeaseToken, Lost, MediaWiki, Member, MemberLoss, Members, NoMembers, Offered, Provider,
    TakeOutcome, Task, TaskResult, Timeouts, Wanted,
};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};
use support::daemon::{Client, PATIENCE};
use support::embedded::Embedded;

/// A server on a busy machine is not dead.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };

fn members(address: &str) -> Members {
    Members::with(MediaWiki::new([address]), TIMEOUTS)
}

/// A server, an operator's connection, and this many pools p1, p2 ... of the group g with two fixed members each.
fn server(pools: u32, settings: &str) -> (Embedded, Client) {
    let server = Embedded::start("members");
    let mut operator = Client::to(server.address.parse().expect("is an address"));
    for pool in 1..=pools {
        assert_eq!(operator.ask(&format!("POOL p{pool} 0 2 group=g {settings}")), "OK");
        for member in ["a", "b"] {
            assert_eq!(operator.ask(&format!("ADD p{pool} {member}{pool} pool={pool}")), "OK");
        }
    }
    (server, operator)
}

fn taken(outcome: Result<TakeOutcome<'_>, Error>) -> Vec<Member<'_>> {
    match outcome {
        Ok(TakeOutcome::Taken(taken)) => taken,
        other => panic!("nothing is taken: {other:?}"),
    }
}

fn one(outcome: Result<TakeOutcome<'_>, Error>) -> Member<'_> {
    let mut taken = taken(outcome);
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}

/// The state of each member of a pool.
fn states(members: &Members, pool: &str) -> Vec<String> {
    let (_, answer) = members.members(pool).expect("is a name").remove(0);
    let rows = answer.expect("the server answers").expect("there is such a pool");
    rows.into_iter().map(|row| row.state).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come true");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn members_are_given_back_when_they_are_dropped() {
    let (server, _operator) = server(1, "");
    let client = members(&server.address);
    let first = one(client.take("p1", &Wanted::default()));
    assert_eq!((first.pool(), first.attributes().next()), (&b"p1"[..], Some((&b"pool"[..], &b"1"[..]))));
    let second = one(client.take("p1", &Wanted::default()));
    assert!(second.lease() > first.lease() && second.name() != first.name());
    assert!(matches!(client.take("p1", &Wanted::default()), Ok(TakeOutcome::NoMembers(NoMembers::AtCapacity))));
    drop(first);
    assert_eq!(second.give_back(Condition::Fail), Ok(()));
    let mut left = states(&client, "p1");
    left.sort();
    assert_eq!(left, ["free", "quarantined"]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _member = one(client.take("p1", &Wanted::default()));
        panic!("this is meant to be");
    }));
    assert!(panicked.is_err());
    assert_eq!(states(&client, "p1"), ["quarantined", "quarantined"]);
}

#[test]
fn a_take_says_what_it_wants() {
    let (server, _operator) = server(2, "");
    let client = members(&server.address);
    let wanted = Wanted { member: Some("b1".into()), ..Wanted::default() };
    let named = one(client.take("p1", &wanted));
    assert_eq!(named.name(), b"b1");
    // The other pool of the group has more free ones.
    let of_group = one(client.take_from_group("g", &Wanted::default()));
    assert_eq!(of_group.pool(), b"p2");
    drop(of_group);
    let both = Wanted { count: Some(2), attributes: vec![("pool".into(), "2".into())], ..Wanted::default() };
    assert_eq!(taken(client.take("p2", &both)).len(), 2);
    assert_eq!(states(&client, "p2"), ["free", "free"]);
    let none = Wanted { attributes: vec![("pool".into(), "3".into())], ..Wanted::default() };
    assert_eq!(client.take("p2", &none).err(), Some(Error::Refused("NO_SUCH_MEMBER".into())));
    assert_eq!(client.take("", &Wanted::default()).err(), Some(Error::BadName));
    let unsendable = Wanted { attributes: vec![("token".into(), "3".into())], ..Wanted::default() };
    assert_eq!(client.take("p2", &unsendable).err(), Some(Error::BadName));
    let begun = Instant::now();
    let patient = Wanted { timeout: Duration::from_millis(50), ..wanted };
    assert!(matches!(client.take("p1", &patient), Ok(TakeOutcome::NoMembers(NoMembers::Timeout))));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let pools = client.pools().remove(0).1.expect("the server answers").expect("it may be asked");
    assert_eq!(pools.iter().map(|pool| &*pool.name).collect::<Vec<_>>(), [b"p1", b"p2"]);
}

#[test]
fn a_loss_is_noticed_while_others_are_held() {
    let (server, mut operator) = server(1, "");
    let client = members(&server.address);
    let (first, second) = (one(client.take("p1", &Wanted::default())), one(client.take("p1", &Wanted::default())));
    assert_eq!((first.loss(), second.loss()), (None, None));
    assert_eq!(operator.ask(&format!("TAKEBACK {}", first.lease())), "OK");
    until("the loss", || first.loss() == Some(MemberLoss::Told(Lost::TakenBack)));
    assert_eq!(second.loss(), None);
    assert_eq!(operator.ask(&format!("TAKEBACK {}", second.lease())), "OK");
    // Here the notice comes before the reply to something else.
    assert_eq!(states(&client, "p1"), ["quarantined", "quarantined"]);
    assert_eq!(first.give_back(Condition::Ok), Err(Error::MemberLost(Lost::TakenBack)));
    assert_eq!(second.give_back(Condition::Ok), Err(Error::MemberLost(Lost::TakenBack)));
    drop(server);
}

#[test]
fn a_lease_is_a_matter_of_its_token() {
    let (server, mut operator) = server(1, "on_loss=ok");
    let leased = Wanted { lease: Some(Duration::from_secs(600)), ..Wanted::default() };
    let token = {
        let client = members(&server.address);
        one(client.take("p1", &leased)).keep().expect("it has a token")
    };
    let other = members(&server.address);
    let mut held = states(&other, "p1");
    held.sort();
    assert_eq!(held, ["free", "in_use"], "the connection is gone, the lease is not");
    let token = LeaseToken::parse(&token.to_string()).expect("is written so");
    assert_eq!(other.renew("p1", token, Some(Duration::from_secs(5))), Ok(()));
    assert_eq!(other.give_back("p1", token, Condition::Ok), Ok(()));
    assert_eq!(other.give_back("p1", token, Condition::Ok), Err(Error::Expired));
    let member = one(other.take("p1", &Wanted { lease: Some(Duration::from_millis(300)), ..Wanted::default() }));
    thread::sleep(Duration::from_millis(150));
    assert_eq!(member.renew(), Ok(()));
    thread::sleep(Duration::from_millis(200));
    assert_eq!(member.loss(), None);
    until("the lease runs out", || member.loss() == Some(MemberLoss::Told(Lost::Expired)));
    assert_eq!(member.renew(), Err(Error::Expired));
    assert_eq!(operator.ask("UTILIZATION p1").split(' ').nth(3), Some("0"));
}

#[test]
fn a_server_that_talks_nonsense_is_not_believed() {
    for answer in [&b"OK\n"[..], b"MEMBER 1 p\n", b"MEMBERS 1\nMEMBER 1 p m\n", b"!LOST 1 died\nhello\n", b"\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("is bound").to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client connects");
            let asked = stream.read(&mut [0; 1024]).expect("it asks");
            assert!(asked > 0);
            // It may have heard enough.
            let _ = stream.write_all(answer);
            let _ = stream.read(&mut [0]);
        });
        let client = members(&address);
        let outcome = client.take("p", &Wanted::default());
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{}: {outcome:?}", answer.escape_ascii());
    }
}

#[test]
fn a_provider_offers_and_withdraws_what_runs_already() {
    let server = Embedded::start("members");
    let mut operator = Client::to(server.address.parse().expect("is an address"));
    let connect = || Provider::connect(MediaWiki::new([&*server.address]), TIMEOUTS, "p 1", None);
    assert_eq!(connect().err(), Some(Error::Refused("NO_POOL".into())));
    assert_eq!(operator.ask("POOL p%201 0 2"), "OK");
    let mut provider = connect().expect("there is one now");
    let offered = |name: &str| Offered { name: name.into(), attributes: vec![("url".into(), "a b=c".into())] };
    assert_eq!(provider.offer(&offered("m")), Ok(()));
    assert_eq!(provider.offer(&offered("m")), Err(Error::Refused("MEMBER_EXISTS".into())));
    assert_eq!(provider.offer(&offered("!m")), Err(Error::BadName));
    let client = members(&server.address);
    let member = one(client.take("p 1", &Wanted::default()));
    assert_eq!(member.attributes().next(), Some((&b"url"[..], &b"a%20b=c"[..])));
    assert_eq!(provider.members().expect("it may be asked").len(), 1);
    assert_eq!(provider.withdraw("m", true), Ok(()));
    until("the loss", || member.loss() == Some(MemberLoss::Told(Lost::Withdrawn)));
    assert_eq!(provider.next_task(Duration::from_millis(20)), Ok(None));
    assert!(matches!(client.take("p 1", &Wanted::default()), Ok(TakeOutcome::NoMembers(NoMembers::Starting))));
    let task = provider.next_task(PATIENCE).expect("is connected").expect("there is one");
    assert!(matches!(task, Task::Start(_)), "{task:?}");
    assert_eq!(provider.answer(&task, &TaskResult::Failed("no\nroom".into())), Ok(()));
    drop(server);
    assert_eq!(provider.died("m"), Err(Error::Lost));
}
