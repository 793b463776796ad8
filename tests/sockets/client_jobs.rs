//! The client library's jobs against our server, against Debian's beanstalkd, and against servers that fail.

use poolcounter_client::{
    Error, Fault, JobExtras, JobState, LimitScope, NewJob, Producer, PutOutcome, Reservation, ReservedJob, Retry,
    Runner, SummaryBy, Timeouts, Until,
};
use poolcounter_testkit::beanstalkd::Beanstalkd;
use poolcounter_testkit::daemon::PATIENCE;
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::strange::scripted;
use std::thread;
use std::time::Duration;

/// Long timeouts: a server on a busy machine is not dead.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

fn producer(address: &str) -> Producer {
    Producer::new([address], TIMEOUTS)
}

fn runner(address: &str) -> Runner {
    Runner::new([address], TIMEOUTS)
}

fn in_tube(tube: &str, body: &str) -> NewJob {
    NewJob { tube: Some(tube.into()), ..NewJob::new(body) }
}

fn with(extras: JobExtras) -> NewJob {
    NewJob { extras, ..in_tube("a/b", "body") }
}

fn reserved(reservation: Result<Reservation, Error>) -> ReservedJob {
    match reservation {
        Ok(Reservation::Reserved(job)) => job,
        other => panic!("nothing is reserved: {other:?}"),
    }
}

/// Plays a scene against our server, and against beanstalkd if it is installed.
fn with_each(scene: fn(&str)) {
    scene(&Embedded::start("jobs").address);
    match Beanstalkd::program() {
        Some(program) => scene(&Beanstalkd::start(&program).address.to_string()),
        None => poolcounter_testkit::skipped("the library with beanstalkd, which is not installed"),
    }
}

#[test]
fn requests_of_beanstalkd_work_with_both_servers() {
    with_each(|address| {
        let (producer, mut runner) = (producer(address), runner(address));
        let PutOutcome::Inserted(first) = producer.put(&in_tube("mail", "first")).expect("is put") else {
            panic!("it was put")
        };
        producer.put(&NewJob::new(b"\r\n\0".to_vec())).expect("is put");
        producer.use_tube("mail").expect("is used");
        producer.put(&NewJob { pri: 5, ..NewJob::new("urgent") }).expect("is put");
        producer.put(&NewJob { delay: Duration::from_secs(3600), ..NewJob::new("later") }).expect("is put");
        assert_eq!(producer.peek_next(JobState::Delayed).expect("is asked").expect("there is one").1, b"later");
        assert_eq!(producer.peek(first), Ok(Some(b"first".to_vec())));

        assert_eq!(runner.watch("mail", None), Ok(2));
        let urgent = reserved(runner.reserve(AT_ONCE));
        assert_eq!(urgent.body, b"urgent");
        let status = runner.status(&urgent).expect("is there");
        assert_eq!((&*status.tube, status.state, status.pri, status.reserves), ("mail", JobState::Reserved, 5, 1));
        assert_eq!(runner.touch(&urgent), Ok(()));
        assert_eq!(runner.bury(&urgent, None), Ok(()));
        let next = reserved(runner.reserve(None));
        assert_eq!((next.id, runner.delete(&next)), (first, Ok(())));
        assert_eq!(reserved(runner.reserve(AT_ONCE)).body, b"\r\n\0");
        assert_eq!(runner.reserve(AT_ONCE), Ok(Reservation::TimedOut));
        assert_eq!(producer.kick(9), Ok(1));
        let again = reserved(runner.reserve(AT_ONCE));
        assert_eq!((again.id, runner.status(&again).expect("is there").pri), (urgent.id, 5));
        assert_eq!(runner.release(&again, Some(7), Duration::ZERO), Ok(()));
        assert_eq!(runner.delete(&again), Ok(()), "whoever has its number may delete it");
        assert_eq!(runner.delete(&again), Err(Error::Expired));
        assert_eq!(producer.kick_job(first), Ok(false));
        assert_eq!(producer.delete(first), Ok(false));

        assert_eq!(producer.pause("mail", Duration::from_secs(100)), Ok(true));
        let stats = producer.stats_tube("mail").expect("is asked").expect("there is one");
        assert!(stats.contains(&("pause".into(), "100".into())), "{stats:?}");
        assert_eq!(producer.pause("none", Duration::ZERO), Ok(false));
        assert_eq!(producer.stats_tube("none"), Ok(None));
        assert_eq!(producer.tubes(), Ok(vec!["default".into(), "mail".into()]));
        assert!(
            producer
                .stats()
                .expect("is asked")
                .iter()
                .any(|(name, value)| name == "current-jobs-delayed" && value == "1")
        );
        assert_eq!(runner.ignore("mail"), Ok(1));
        assert_eq!(runner.ignore("default"), Err(Error::Refused("NOT_IGNORED".into())));
        assert_eq!(producer.use_tube("a b"), Err(Error::BadArgument("the tube \"a b\": it must not have ' '".into())));
        assert_eq!(producer.put(&NewJob::new(vec![b'x'; 70_000])), Err(Error::Refused("JOB_TOO_BIG".into())));
        assert_eq!(producer.delete(first), Ok(false), "the connection goes on");
    });
}

#[test]
fn a_runner_waits_and_is_warned() {
    with_each(|address| {
        let mut runner = runner(address);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| self::runner(address).reserve(None));
            let put = NewJob { ttr: Duration::from_secs(1), ..NewJob::new("short") };
            producer(address).put(&put).expect("is put");
            reserved(waiting.join().expect("does not panic"));
        });
        // The runner has disconnected, so the job is ready again.
        let short = reserved(runner.reserve(None));
        assert_eq!(runner.reserve(None), Ok(Reservation::DeadlineSoon));
        runner.delete(&short).expect("is still ours");
        runner.begin_reserve(None).expect("is sent");
        assert_eq!(runner.reserved_within(Duration::from_millis(1)), Ok(None));
        assert_eq!(runner.reserve(None), Err(Error::Refused("a reserve is under way".into())));
        producer(address).put(&NewJob::new("late")).expect("is put");
        let late = runner.reserved_within(PATIENCE).map(|reply| reply.expect("comes in time"));
        assert_eq!(runner.delete(&reserved(late)), Ok(()));
    });
}

#[test]
fn a_beanstalkd_is_distinguished_from_our_server() {
    let Some(program) = Beanstalkd::program() else {
        return poolcounter_testkit::skipped("the library with beanstalkd, which is not installed");
    };
    let beanstalkd = Beanstalkd::start(&program);
    let address = beanstalkd.address.to_string();
    let (producer, mut runner) = (producer(&address), runner(&address));
    assert_eq!((producer.is_extended(), runner.is_extended()), (Ok(false), Ok(false)));
    let keyed = with(JobExtras { key: Some(b"k".to_vec()), ..JobExtras::default() });
    let error = producer.put(&keyed).expect_err("it knows no keys");
    assert_eq!(error, Error::NoExtension("put-job"));
    assert_eq!(error.to_string(), "the server does not know put-job: it is a plain beanstalkd");
    assert_eq!(producer.put_many(&[NewJob::new("x")]), Err(Error::NoExtension("put-many")));
    assert_eq!(producer.root("a", "s", 1), Err(Error::NoExtension("root")));
    assert_eq!(producer.limit("a", 1, None, LimitScope::Each), Err(Error::NoExtension("limit")));
    assert_eq!(producer.summary(SummaryBy::Wiki), Err(Error::NoExtension("summary")));
    assert_eq!(producer.list_jobs("a", JobState::Ready, 1, None), Err(Error::NoExtension("list-jobs")));
    assert_eq!(producer.pause("*/a", Duration::ZERO), Err(Error::NoExtension("pause-all")));
    assert_eq!(runner.watch("*/a", None), Err(Error::NoExtension("watch with a pattern")));
    assert_eq!(runner.watch("a", Some(2)), Err(Error::NoExtension("watch with a weight")));
    assert_eq!(runner.identify("me"), Err(Error::NoExtension("identify")));
    producer.put(&NewJob::new("x")).expect("nothing was sent that it does not know");
    let job = reserved(runner.reserve(AT_ONCE));
    assert_eq!(runner.fail(&job, None, Duration::ZERO, "why"), Err(Error::NoExtension("fail")));
    assert_eq!(runner.delete(&job), Ok(()));
}

#[test]
fn every_option_of_a_job_counts() {
    let server = Embedded::start("jobs");
    let producer = producer(&server.address);
    assert_eq!(producer.is_extended(), Ok(true));
    let keyed = with(JobExtras { key: Some(b"k".to_vec()), until: Until::Deleted, ..JobExtras::default() });
    let PutOutcome::Inserted(id) = producer.put(&keyed).expect("is put") else { panic!("it was put") };
    assert_eq!(producer.put(&keyed), Ok(PutOutcome::Duplicate(id)));
    assert_eq!(producer.root("a/b", "pages", 20), Ok(20));
    assert_eq!(producer.root("a/b", "pages", 10), Ok(20));
    let leaf = |timestamp| with(JobExtras { root: Some((b"pages".to_vec(), timestamp)), ..JobExtras::default() });
    assert_eq!(producer.put(&leaf(19)), Ok(PutOutcome::Superseded));
    let bad = [
        JobExtras { key: Some(b"a b".to_vec()), ..JobExtras::default() },
        JobExtras { key: Some(Vec::new()), ..JobExtras::default() },
        JobExtras { group: Some(vec![b'x'; 65]), ..JobExtras::default() },
        JobExtras { root: Some((vec![b'\n'], 1)), ..JobExtras::default() },
    ];
    for extras in bad {
        assert!(matches!(producer.put(&with(extras)), Err(Error::BadArgument(_))));
    }
    let outcomes = producer.put_many(&[keyed.clone(), leaf(21), in_tube("c/b", "x"), leaf(3)]).expect("is asked");
    assert!(
        matches!(
            outcomes[..],
            [
                Ok(PutOutcome::Duplicate(_)),
                Ok(PutOutcome::Inserted(_)),
                Ok(PutOutcome::Inserted(_)),
                Ok(PutOutcome::Superseded)
            ]
        ),
        "{outcomes:?}"
    );
    assert_eq!(producer.put_many(&[]), Err(Error::Refused("BAD_FORMAT".into())));
    let too_long = vec![NewJob::new(vec![b'x'; 20 << 10]); 1000];
    assert_eq!(producer.put_many(&too_long), Err(Error::Refused("JOB_TOO_BIG".into())));
    let listed = producer.list_jobs("a/b", JobState::Ready, 1000, None).expect("is asked").expect("there are some");
    assert_eq!((listed.len(), listed[0].id, &*listed[0].key), (2, id, "k"));
    let after = producer.list_jobs("a/b", JobState::Ready, 1000, Some(id)).expect("is asked").expect("is there");
    assert_eq!(after, listed[1..]);
    assert_eq!(producer.list_jobs("none", JobState::Ready, 1, None), Ok(None));
    let summary = producer.summary(SummaryBy::Type).expect("is asked");
    let of_b = summary.iter().find(|row| row.name == "b").expect("has jobs");
    assert_eq!(
        (of_b.figure("ready"), of_b.figure("duplicates"), of_b.figure("put-rate-1").is_some()),
        (Some(3.0), Some(2.0), true)
    );
    assert_eq!(producer.clear("*/b", None), Ok(3));
}

#[test]
fn runners_reserve_by_pattern_and_fail_with_a_reason() {
    let server = Embedded::start("jobs");
    let (producer, mut runner) = (producer(&server.address), runner(&server.address));
    runner.identify("runner-1").expect("is told");
    runner.watch("*/mail", Some(3)).expect("is watched");
    runner.ignore("default").expect("another is watched");
    let retry = Retry { attempts: 2, first: Duration::ZERO, factor: 2.0, max: Duration::from_secs_f64(0.5) };
    producer.retry("*/*", &retry).expect("is set");
    producer.dead_letter("x/mail", Some("dead")).expect("is set");
    producer.limit("group:g", 1, None, LimitScope::Each).expect("is set");
    producer.limit("group:o", 1, None, LimitScope::Ordered).expect("is set");
    for (what, scope) in [("x/mail", LimitScope::Ordered), ("group:o", LimitScope::All)] {
        let refused = producer.limit(what, 1, None, scope).expect_err("it has no such scope");
        assert!(matches!(&refused, Error::Refused(words) if words.starts_with("BAD_FORMAT")), "{refused:?}");
    }
    let grouped = NewJob {
        extras: JobExtras { group: Some(b"g".to_vec()), ..JobExtras::default() },
        ..in_tube("x/mail", "grouped")
    };
    producer.put_many(&[grouped.clone(), grouped, in_tube("y/mail", "free")]).expect("are put");
    let Ok(Reservation::Reserved(jobs)) = runner.reserve_many(9, Duration::ZERO) else { panic!("there are some") };
    assert_eq!(jobs.len(), 2, "the group has one at a time");
    assert_eq!(runner.reserve_many(9, Duration::ZERO), Ok(Reservation::TimedOut));
    let rows = producer.summary(SummaryBy::Runner).expect("is asked");
    assert_eq!(rows.iter().find(|row| row.name == "runner-1").expect("has a row").figure("reserved"), Some(2.0));
    let grouped = jobs.iter().find(|job| job.body == b"grouped").expect("is one of them");
    assert_eq!(runner.begin(grouped), Ok(()));
    assert_eq!(runner.fail(grouped, None, Duration::ZERO, "first\nline"), Ok(false));
    assert_eq!(runner.begin(grouped), Err(Error::Expired));
    assert_eq!(runner.fail(grouped, None, Duration::ZERO, "x"), Err(Error::Expired), "it is not ours any more");
    let again = runner.reserve_job(grouped.id).expect("is asked").expect("is ready");
    assert_eq!(runner.fail(&again, Some(1), Duration::ZERO, vec![b'x'; 9000]), Ok(true), "that was the last attempt");
    let dead = producer.list_jobs("dead", JobState::Ready, 9, None).expect("is asked").expect("is there");
    assert_eq!((dead[0].id, dead[0].error.len()), (grouped.id, 4096));
    assert_eq!(runner.reserve_job(grouped.id).map(|job| job.is_some()), Ok(true), "whatever is watched");
    assert_eq!(producer.kick_all("*/*", Some(JobState::Buried)), Ok(0));
    assert_eq!(producer.pause("*/mail", Duration::from_secs(60)), Ok(true));
    assert_eq!(runner.reserve(AT_ONCE), Ok(Reservation::TimedOut));
}

#[test]
fn a_lost_connection_is_made_anew_with_the_same_watches() {
    let server = Embedded::start("jobs");
    let (producer, mut runner) = (producer(&server.address), runner(&server.address));
    for tube in ["a", "b"] {
        producer.put(&in_tube(tube, tube)).expect("is put");
        runner.watch(tube, None).expect("is watched");
    }
    runner.ignore("default").expect("others are watched");
    runner.ignore("a").expect("another is watched");
    producer.use_tube("b").expect("is used");
    let held = reserved(runner.reserve(AT_ONCE));
    assert_eq!(held.body, b"b");
    let address = server.address.clone();
    drop(server);
    assert_eq!(runner.delete(&held), Err(Error::Lost));
    let Err(Error::Unavailable(failures)) = runner.reserve(AT_ONCE) else { panic!("there is no server") };
    assert!(matches!(failures[0].1.fault, Fault::Unreachable(..)), "{failures:?}");
    let _server = Embedded::start_on(&address, "jobs");
    // The first put may still notice that the old connection is lost.
    let put = producer.put(&NewJob::new("new")).or_else(|_| producer.put(&NewJob::new("new")));
    put.expect("is put into the tube that was in use");
    producer.put(&in_tube("a", "not watched")).expect("is put");
    let new = reserved(runner.reserve(AT_ONCE));
    assert_eq!(new.body, b"new");
    assert_eq!(runner.reserve(AT_ONCE), Ok(Reservation::TimedOut));
    assert_eq!(runner.touch(&held), Err(Error::Lost), "its connection is gone");
    assert_eq!(runner.touch(&new), Ok(()));
}

#[test]
fn nonsense_ends_a_connection_and_nothing_else() {
    for answer in [
        "RESERVED 1\r\n",
        "RESERVED 1 5\r\nabcdefg",
        "RESERVED 1 99999999999\r\n",
        "RESERVED x 1\r\na\r\n",
        "TIMED_OUT\n",
        "HELLO\r\n",
        "OK 5\r\n",
        "",
    ] {
        let address = scripted(&["UNKNOWN_COMMAND\r\n", answer]);
        let mut runner = runner(&address);
        assert_eq!(runner.reserve(AT_ONCE), Err(Error::Lost), "{answer:?}");
    }
    let garbled = runner(&scripted(&["HTTP/1.1 400 Bad Request\r\n"])).reserve(AT_ONCE);
    assert!(matches!(garbled, Err(Error::Unavailable(failures)) if failures[0].1.fault == Fault::Garbled));
    for words in ["NOT_ALLOWED", "OUT_OF_MEMORY"] {
        let refused = runner(&scripted(&[&format!("{words}\r\n")])).reserve(AT_ONCE);
        assert_eq!(refused, Err(Error::Refused(words.into())), "not even the extensions may be asked for");
    }
    let server = Embedded::start("jobs");
    let mut runner = Runner::new([scripted(&["NOT_ALLOWED\r\n"]), server.address.clone()], TIMEOUTS);
    assert_eq!(runner.reserve(AT_ONCE), Ok(Reservation::TimedOut), "another server may allow it");
    let mut runner = Runner::new([scripted(&["INTERNAL_ERROR\r\n"]), server.address.clone()], TIMEOUTS);
    assert_eq!(runner.reserve(AT_ONCE), Ok(Reservation::TimedOut), "the one that stands by is passed over");
}
