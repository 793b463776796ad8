//! The client library's members against our server, and against servers that fail.

use poolcounter_client::{
    Condition, Error, Fault, LeaseToken, Lost, MediaWiki, Member, MemberLoss, Members, NoMembers, Offered, Provider,
    Role, Source, TakeOutcome, Task, TaskResult, Timeouts, Wanted,
};
use poolcounter_testkit::daemon::{Client, PATIENCE, until};
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::strange::Strange;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// Long timeouts: a server on a busy machine is not dead.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };

fn members(address: &str) -> Members {
    Members::with(MediaWiki::new([address]), TIMEOUTS)
}

/// Returns a server, an operator's connection, and this many pools p1, p2 ... of the group g with two fixed members
/// each.
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

/// Returns the state of each member of a pool.
fn states(members: &Members, pool: &str) -> Vec<String> {
    let (_, answer) = members.members(pool).expect("is a name").remove(0);
    answer.expect("there is such a pool").into_iter().map(|row| row.state).collect()
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
fn a_take_states_its_conditions() {
    let (server, _operator) = server(2, "");
    let client = members(&server.address);
    let wanted = Wanted { member: Some("b1".into()), ..Wanted::default() };
    let named = one(client.take("p1", &wanted));
    assert_eq!(named.name(), b"b1");
    // The other pool of the group has more free members.
    let of_group = one(client.take_from(Source::Group(b"g"), &Wanted::default(), |_| {}));
    assert_eq!(of_group.pool(), b"p2");
    drop(of_group);
    let both = Wanted { count: Some(2), attributes: vec![("pool".into(), "2".into())], ..Wanted::default() };
    assert_eq!(taken(client.take("p2", &both)).len(), 2);
    assert_eq!(states(&client, "p2"), ["free", "free"]);
    let none = Wanted { attributes: vec![("pool".into(), "3".into())], ..Wanted::default() };
    assert_eq!(client.take("p2", &none).err(), Some(Error::Refused("NO_SUCH_MEMBER".into())));
    assert_eq!(client.take("", &Wanted::default()).err(), Some(Error::BadName));
    let unsendable = Wanted { attributes: vec![("token".into(), "3".into())], ..Wanted::default() };
    let rule = "an attribute has the name of an option";
    assert_eq!(client.take("p2", &unsendable).err(), Some(Error::BadArgument(rule.into())));
    let begun = Instant::now();
    let patient = Wanted { timeout: Duration::from_millis(50), ..wanted };
    assert!(matches!(client.take("p1", &patient), Ok(TakeOutcome::NoMembers(NoMembers::Timeout))));
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let pools = client.pools().remove(0).1.expect("it may be asked");
    assert_eq!(pools.iter().map(|pool| &*pool.name).collect::<Vec<_>>(), [b"p1", b"p2"]);
}

#[test]
fn a_loss_is_noticed_while_others_are_held() {
    let (server, mut operator) = server(1, "");
    let client = members(&server.address);
    let (first, second) = (one(client.take("p1", &Wanted::default())), one(client.take("p1", &Wanted::default())));
    assert_eq!((first.loss(), second.loss()), (None, None));
    assert_eq!(operator.ask(&format!("TAKEBACK {}", first.lease())), "OK");
    until("the loss", || first.loss() == Some(MemberLoss::Reported(Lost::TakenBack)));
    assert_eq!(second.loss(), None);
    assert_eq!(operator.ask(&format!("TAKEBACK {}", second.lease())), "OK");
    // Here the notice comes before the reply to another request.
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
    assert_eq!(other.give_back("p1", token, Condition::Ok), Err(Error::NotTaken));
    let member = one(other.take("p1", &Wanted { lease: Some(Duration::from_millis(300)), ..Wanted::default() }));
    thread::sleep(Duration::from_millis(150));
    assert_eq!(member.renew(), Ok(()));
    thread::sleep(Duration::from_millis(200));
    assert_eq!(member.loss(), None);
    until("the lease runs out", || member.loss() == Some(MemberLoss::Reported(Lost::Expired)));
    assert_eq!(member.renew(), Err(Error::NotTaken));
    assert_eq!(operator.ask("UTILIZATION p1").split(' ').nth(3), Some("0"));
}

#[test]
fn a_server_that_talks_nonsense_is_not_believed() {
    for answer in [&b"OK\n"[..], b"MEMBER 1 p\n", b"MEMBERS 1\nMEMBER 1 p m\n", b"!LOST 1 died\nhello\n", b"\n"] {
        let strange = Strange::start(answer);
        let client = members(&strange.address);
        let outcome = client.take("p", &Wanted::default());
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{}: {outcome:?}", answer.escape_ascii());
    }
}

/// The server says that it has taken the member back, and ends, while the client asks it to renew the lease.
#[test]
fn a_loss_reported_with_the_last_words_is_known() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("is bound").to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        let mut requests = BufReader::new(stream.try_clone().expect("a descriptor is free")).lines();
        requests.next().expect("it asks").expect("is text");
        stream.write_all(format!("MEMBER 1 p m token={}\n", "7".repeat(32)).as_bytes()).expect("is sent");
        requests.next().expect("it renews").expect("is text");
        stream.write_all(b"!LOST 1 taken_back by=ann for a look\n").expect("is sent");
    });
    let client = members(&address);
    let member = one(client.take("p", &Wanted { lease: Some(Duration::from_secs(30)), ..Wanted::default() }));
    assert!(member.renew().is_err());
    server.join().expect("it has answered");
    assert_eq!(member.loss(), Some(MemberLoss::Reported(Lost::TakenBack)));
    assert_eq!(member.taken_back_by().as_deref(), Some("ann: for a look"));
}

#[test]
fn a_list_without_an_end_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("is bound").to_string();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        while stream.write_all(b"m1 free - 0.000 0.000 0\n").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let timeouts = Timeouts { answer: Duration::from_millis(200), ..TIMEOUTS };
    let begun = Instant::now();
    let (_, rows) = Members::with(MediaWiki::new([&address]), timeouts).members("p").expect("is a name").remove(0);
    let Err(Error::Unavailable(failures)) = rows else { panic!("the reply has no end") };
    assert_eq!(failures[0].1.fault, Fault::Silent);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_provider_offers_and_withdraws_what_runs_already() {
    let server = Embedded::start("members");
    let mut operator = Client::to(server.address.parse().expect("is an address"));
    let connect = || Provider::connect(MediaWiki::new([&*server.address]), TIMEOUTS, "p 1", Role::Provider(None));
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
    until("the loss", || member.loss() == Some(MemberLoss::Reported(Lost::Withdrawn)));
    assert_eq!(provider.next_task(Duration::from_millis(20)), Ok(None));
    assert!(matches!(client.take("p 1", &Wanted::default()), Ok(TakeOutcome::NoMembers(NoMembers::Starting))));
    let task = provider.next_task(PATIENCE).expect("is connected").expect("there is one");
    assert!(matches!(task, Task::Start(_)), "{task:?}");
    assert_eq!(provider.answer(&task, &TaskResult::Failed("no\nroom".into())), Ok(()));
    drop(server);
    assert_eq!(provider.died("m"), Err(Error::Lost));
}

fn refused(words: &str) -> Result<(), Error> {
    Err(Error::Refused(words.into()))
}

/// Two cleaners share the work, and a member that cannot be cleaned goes into quarantine.
#[test]
fn a_cleaner_cleans_the_members_of_others() {
    let (server, _operator) = server(1, "clean_timeout=60 clean_attempts=1");
    let client = members(&server.address);
    let connect = |pool: &str| Provider::connect(MediaWiki::new([&*server.address]), TIMEOUTS, pool, Role::Cleaner);
    assert_eq!(connect("q").err(), Some(Error::Refused("NO_POOL".into())));
    let mut first = connect("p1").expect("there is such a pool");
    assert_eq!(first.next_task(Duration::ZERO), Ok(None));
    let member = one(client.take("p1", &Wanted { member: Some("a1".into()), ..Wanted::default() }));
    member.give_back(Condition::Ok).expect("is taken");
    let clean = |name: &str| Task::Clean(name.as_bytes().into());
    assert_eq!(first.next_task(PATIENCE), Ok(Some(clean("a1"))));
    let mut second = connect("p1").expect("there is such a pool");
    assert_eq!(second.next_task(Duration::ZERO), Ok(None));
    assert_eq!(states(&client, "p1"), ["cleaning", "free"]);
    assert_eq!(first.answer(&clean("a1"), &TaskResult::Done), Ok(()));
    drop(first);
    assert_eq!(states(&client, "p1"), ["free", "free"]);
    // From here on it works by itself, until the server ends.
    let cleaner = thread::spawn(move || {
        let mut cleaned = Vec::new();
        let ended = second.serve(|task| {
            cleaned.push(task.clone());
            if *task == clean("a1") { TaskResult::Done } else { TaskResult::Dead(String::new()) }
        });
        (cleaned, ended.err())
    });
    for name in ["a1", "b1"] {
        let member = one(client.take("p1", &Wanted { member: Some(name.into()), ..Wanted::default() }));
        member.give_back(Condition::Ok).expect("is taken");
    }
    until("both are cleaned", || states(&client, "p1") == ["free", "quarantined"]);
    drop(server);
    assert_eq!(cleaner.join().expect("does not panic"), (vec![clean("a1"), clean("b1")], Some(Error::Lost)));
}

/// A provider that is late with a check loses the checked member, and nothing else.
#[test]
fn a_late_answer_does_not_end_a_provider() {
    let server = Embedded::start("members");
    let client = members(&server.address);
    let settings = [("check_interval", "0.05"), ("check_timeout", "0.1"), ("stop_timeout", "0.1")];
    client.operator().declare("p", 1, 2, &settings).expect("is a pool");
    let mut provider = Provider::connect(MediaWiki::new([&*server.address]), TIMEOUTS, "p", Role::Provider(None))
        .expect("there is one");
    thread::spawn(move || {
        provider.serve(|task| match task {
            Task::Start(id) => TaskResult::Started(Offered { name: format!("m{id}").into(), attributes: vec![] }),
            Task::Check(name) if **name == *b"m1" => {
                thread::sleep(Duration::from_millis(600));
                TaskResult::Done
            }
            _ => TaskResult::Done,
        })
    });
    let names = || {
        let (_, answer) = client.members("p").expect("is a name").remove(0);
        answer.expect("there is such a pool").into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    // While the provider is late it answers nothing else: the next start waits for it.
    until("it is replaced", || names() == [b"m2"]);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(names(), [b"m2"], "the provider is still there");
}

#[test]
fn an_operator_declares_changes_and_takes_back() {
    let (server, mut shell) = server(0, "");
    let client = members(&server.address).named("ci job-7").expect("is a name");
    assert_eq!(members(&server.address).named("").err(), Some(Error::BadName));
    let operator = client.operator();
    assert_eq!(operator.declare("a b", 0, 3, &[("group", "boards 1"), ("max_hold", "600")]), Ok(()));
    assert_eq!(operator.declare("a b", 0, 3, &[("max_hold", "600.0"), ("group", "boards 1")]), Ok(()));
    let differs = operator.declare("a b", 0, 3, &[]);
    assert!(matches!(&differs, Err(Error::Refused(words)) if words.starts_with("POOL_DIFFERS")), "{differs:?}");
    let unknown = operator.reconfigure("a b", &[("colour", "red")]);
    assert!(matches!(&unknown, Err(Error::Refused(words)) if words.starts_with("BAD_SYNTAX")), "{unknown:?}");
    assert_eq!(operator.declare("c", 0, 1, &[("group", "x\ny")]), Err(Error::BadName));
    assert_eq!(operator.declare("", 0, 1, &[]), Err(Error::BadName));
    let offered = |name: &str| Offered { name: name.into(), attributes: vec![("os".into(), "a b".into())] };
    for name in ["m 1", "m2", "m3"] {
        assert_eq!(operator.add("a b", &offered(name)), Ok(()));
    }
    assert_eq!(operator.add("a b", &offered("m4")), refused("POOL_FULL"));
    assert_eq!(operator.add("q", &offered("m4")), refused("NO_POOL"));
    assert_eq!(operator.reconfigure("a b", &[("max", "4"), ("group", "")]), Ok(()));
    assert_eq!(operator.add("a b", &offered("m2")), refused("MEMBER_EXISTS"));

    let both = Wanted { count: Some(2), attributes: vec![("os".into(), "a b".into())], ..Wanted::default() };
    let mut held = taken(client.take("a b", &both));
    shell.send(b"MEMBERS a%20b\n");
    let mut lines = vec![shell.line(), shell.line(), shell.line()];
    assert_eq!(shell.line(), "");
    lines.retain(|line| line.contains(" in_use ci%20job-7 "));
    assert_eq!(lines.len(), 2, "the holder has the name that it has given itself");

    let lost = held.remove(0);
    assert_eq!(operator.take_back("a b", lost.lease(), "for a\nrelease"), Ok(()));
    assert_eq!(operator.take_back("a b", lost.lease(), ""), Err(Error::NotTaken));
    until("the loss", || lost.loss() == Some(MemberLoss::Reported(Lost::TakenBack)));
    let name = String::from_utf8(lost.name().to_vec()).expect("is text").replace("%20", " ");
    assert_eq!(operator.repair("a b", &name, false), Ok(()));
    assert_eq!(operator.hold("a b", &name, Duration::from_secs(600), "its battery is low"), Ok(()));
    let mut now = states(&client, "a b");
    now.sort();
    assert_eq!(now, ["free", "held", "in_use"]);
    assert_eq!(operator.free("a b", &name), Ok(()));
    assert_eq!(operator.delete("a b", &name, false), Ok(()));
    assert_eq!(operator.free("a b", &name), refused("NO_SUCH_MEMBER"));
    assert_eq!(operator.delete("a b", held[0].name(), true), Ok(()));
    until("the loss", || held[0].loss() == Some(MemberLoss::Reported(Lost::Withdrawn)));
    assert_eq!(operator.remove("a b", true), Ok(()));
    assert_eq!(operator.remove("a b", false), refused("NO_POOL"));
}

#[test]
fn a_server_that_does_not_know_names_is_passed_over() {
    let strange = Strange::start(b"ERROR BAD_COMMAND\n");
    let client = members(&strange.address).named("me").expect("is a name");
    let outcome = client.take("p", &Wanted::default());
    assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
}
