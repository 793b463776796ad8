//! The client library's counters against our server, and against servers that fail.

use poolcounter_client::{Counters, Error, Failure, Fault, MediaWiki, OfEach, Timeouts, Units, Usage};
use poolcounter_protocol::counters::stats::CounterStat as Stat;
use poolcounter_testkit::daemon::{PATIENCE, until};
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::strange::Strange;
use std::time::Duration;

/// Long timeouts: a server on a busy machine is not dead.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };

fn counters(address: &str) -> Counters {
    Counters::with(MediaWiki::new([address]), TIMEOUTS)
}

fn units<'a>(counters: &'a Counters, name: &str, resources: u32) -> Units<'a> {
    counters.acquire(name, resources, 10).expect("the server answers").expect("there are enough")
}

fn only<T>(mut answers: OfEach<T>) -> Result<T, Error> {
    assert_eq!(answers.len(), 1);
    answers.remove(0).1
}

#[test]
fn units_are_given_back_when_they_are_dropped() {
    let server = Embedded::start("counters");
    let (one, two) = (counters(&server.address), counters(&server.address));
    assert_eq!(one.get("c"), Ok(None));
    let (a, b) = (units(&one, "c", 3), units(&one, "c", 4));
    assert!(two.acquire("c", 4, 10).expect("the server answers").is_none(), "7 of 10 are held");
    assert_eq!(two.get("c"), Ok(Some(7)));
    let c = units(&two, "c", 3);
    a.release().expect("were held until now");
    drop(b);
    assert_eq!(one.get("c"), Ok(Some(3)));
    c.release().expect("were held until now");
    assert_eq!(one.get("c"), Ok(Some(0)));
}

#[test]
fn units_end_with_their_client() {
    let server = Embedded::start("counters");
    let (one, two) = (counters(&server.address), counters(&server.address));
    // The destructors do not run, as in a process that is killed.
    std::mem::forget(units(&one, "c", 3));
    assert_eq!(two.get("c"), Ok(Some(3)));
    drop(one);
    until("the end of the units", || two.get("c") == Ok(Some(0)));
}

#[test]
fn dump_has_every_counter() {
    let server = Embedded::start("counters");
    let client = counters(&server.address);
    assert_eq!(only(client.noop()), Ok(()));
    assert_eq!(only(client.dump()), Ok(Vec::new()));
    units(&client, "a", 5).release().expect("were held until now");
    let _held: Vec<_> = (0..3_000).map(|n| units(&client, &format!("b{n}"), 2)).collect();
    let mut dumped = only(client.dump()).expect("the server answers");
    dumped.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(dumped.len(), 3_001);
    assert_eq!(dumped[0], Usage { name: b"a".to_vec(), consumption: 0, peak: 5 });
    assert!(dumped[1..].iter().all(|usage| usage.consumption == 2 && usage.peak == 2));
    let stats = only(client.stats()).expect("the server answers");
    assert_eq!([stats.of(Stat::Objects), stats.of(Stat::Acquire), stats.of(Stat::Noop)], [3_001, 3_001, 1]);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let server = Embedded::start("counters");
    let client = counters(&server.address);
    let long = "n".repeat(65_535);
    let held = units(&client, &long, 1);
    assert_eq!(client.get(format!("{long}n")), Err(Error::BadName));
    assert_eq!(client.get(""), Err(Error::BadName));
    for (resources, maximum) in [(0, 1), (2, 1)] {
        let refused = client.acquire("c", resources, maximum).map(|_| ());
        assert_eq!(refused, Err(Error::Refused("04 Invalid arguments".into())));
    }
    held.release().expect("the connection is as it was");
}

#[test]
fn restarted_server_knows_nothing_of_earlier_units() {
    let mut server = Embedded::start("counters");
    let address = server.address.clone();
    let client = counters(&address);
    let lost = units(&client, "c", 3);
    drop(server);
    server = Embedded::start_on(&address, "counters");
    let held = units(&client, "c", 4);
    assert_eq!(lost.release(), Err(Error::Lost));
    assert_eq!(client.get("c"), Ok(Some(4)));
    held.release().expect("were held until now");
    drop(server);
    assert!(matches!(client.get("c"), Err(Error::Unavailable(_))));
}

/// Returns the error when the only server, which is named by its address, has this fault.
fn unavailable(address: &str, fault: Fault) -> Error {
    Error::Unavailable(vec![(address.into(), Failure { address: address.into(), fault })])
}

#[test]
fn garbage_is_no_answer() {
    let head = |bytes: [u8; 12]| bytes.to_vec();
    for answer in [
        b"HTTP/1.1 400 Bad Request".to_vec(),
        head([0x90, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        head([0x91, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        head([0x91, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        head([0x91, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
        // A success without its number, and a refusal that Get does not have.
        head([0x91, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        head([0x91, 1, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let address = Strange::start(answer.clone()).address;
        let garbled = unavailable(&address, Fault::Garbled);
        assert_eq!(counters(&address).get("c"), Err(garbled), "{}", answer.escape_ascii());
    }
}

#[test]
fn truncated_answer_is_none() {
    let whole = [0x91, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9];
    assert_eq!(counters(&Strange::start(whole).address).get("c"), Ok(Some(9)));
    for len in [0, 11, 15] {
        let address = Strange::start(&whole[..len]).address;
        let short = Timeouts { answer: Duration::from_millis(50), ..TIMEOUTS };
        let silent = unavailable(&address, Fault::Silent);
        assert_eq!(Counters::with(MediaWiki::new([address]), short).get("c"), Err(silent), "{len} bytes");
    }
}
