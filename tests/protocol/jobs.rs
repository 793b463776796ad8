//! The jobs' state by its protocol, beyond the reach of the tests of conversations: slow commits and small bounds.

use poolcounter_core::count::SmallCount;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{
    Backoff, Bounds, History, JobId, Limit, Paused, Record, Saved, Scope, Setting, SettingKind, Until, Value,
};
use poolcounter_testkit::jobs::{Commits, Service, play_with};

/// A high rate keeps some starts together.
#[test]
fn high_rates_are_never_exceeded() {
    let mut service = Service::without_store(Bounds::default());
    play_with(&mut service, "1> limit default 640 per 64\n1< LIMIT 640");
    let mut starts = Vec::new();
    for second in 0..200_u64 {
        service.send(1, &b"put 0 0 99 1\r\na\r\n".repeat(30));
        service.output(1);
        let text = service.ask(2, "reserve-many 100 0\r\n");
        let count = text.matches("RESERVED ").count() as u64;
        for id in text.lines().filter_map(|line| line.strip_prefix("RESERVED ")) {
            let id = id.split(' ').next().expect("a number");
            service.send(2, format!("delete {id}\r\n").as_bytes());
        }
        service.output(2);
        starts.push(count);
        let first = starts.len().saturating_sub(64);
        assert!(starts[first..].iter().sum::<u64>() <= 640, "in second {second}");
        service.pass(Span::from_secs(1));
    }
    assert!(starts.iter().sum::<u64>() > 3 * 600, "{starts:?}");
    service.state.check();
}

/// Settings of tubes in the file are valid until a command changes them, and again when those in the file change.
#[test]
fn settings_of_the_file_count_until_a_command_overrides_them() {
    let mut service = Service::without_store(Bounds::default());
    let of_tubes = |kind, value| Setting { kind, of: b"*/a"[..].into(), value: Some(value) };
    let limit = |most, scope| of_tubes(SettingKind::Limit, Value::Limit(Limit { most, per: None, scope }));
    let dead = of_tubes(SettingKind::DeadLetter, Value::Text(b"dead"[..].into()));
    let retry = of_tubes(SettingKind::Retry, Value::Retry(Backoff { attempts: 1, ..Backoff::NONE }));
    let in_order = Some(Value::Limit(Limit { most: 1, per: None, scope: Scope::Ordered }));
    let group = Setting { kind: SettingKind::GroupLimit, of: b"g"[..].into(), value: in_order };
    let reserved = |service: &mut Service, most: usize| {
        let text = service.ask(9, "watch */a\r\nreserve-many 9 0\r\n");
        assert_eq!(text.matches("RESERVED ").count(), most, "{text}");
        (1..=6).for_each(|id| service.send(9, format!("begin {id}\r\n").as_bytes()));
        service.close(9);
    };
    service.send(1, &b"put-job 0 0 9 1 tube=x/a\r\na\r\nput-job 0 0 9 1 tube=y/a\r\na\r\n".repeat(3));
    service.output(1);
    reserved(&mut service, 6);
    service.set_from_file(&[limit(2, Scope::Each)]);
    reserved(&mut service, 4);
    play_with(&mut service, "2> limit */a 1 each\n2< LIMIT 1");
    service.hand_over();
    service.set_from_file(&[limit(2, Scope::Each)]);
    reserved(&mut service, 2);
    service.hand_over();
    service.set_from_file(&[limit(3, Scope::All), group.clone(), retry, dead]);
    reserved(&mut service, 3);
    service.state.check();
    let text = service.ask(3, "watch dead\r\nreserve-many 9 0\r\n");
    assert_eq!(text.matches("RESERVED ").count(), 3, "{text}: these had their only attempt");
    service.close(3);
    service.hand_over();
    service.set_from_file(&[group]);
    reserved(&mut service, 3);
    reserved(&mut service, 3);
    play_with(
        &mut service,
        "4> put-job 0 0 9 1 group=g\\r\\na\n4< INSERTED 7\n4> put-job 0 0 9 1 group=g\\r\\na\n4< INSERTED 8\n4> reserve-many 9 0\n4< RESERVED 7 1 a\n4< END",
    );
    service.hand_over();
    service.set_from_file(&[]);
    play_with(&mut service, "4> reserve-many 9 0\n4< RESERVED 8 1 a\n4< END");
    service.state.check();
}

#[test]
fn memory_has_a_bound() {
    let mut other = Service::without_store(Bounds::default());
    other.send(1, b"use a\r\nuse b\r\nwatch a\r\n");
    // Room for two small jobs.
    let bounds = Bounds { max_memory: 400 + other.state.used_memory(), ..Bounds::default() };
    let mut service = Service::new(bounds, Commits::AtOnce, 1);
    play_with(
        &mut service,
        r#"
        1> use a
        1< USING a
        1> use b
        1< USING b
        1> watch a
        1< WATCHING 2
        1> put 0 0 1 1\r\na
        1< INSERTED 1
        1> put-many 2\r\nput 0 0 1 1\r\na\r\nput 0 0 1 1\r\nb
        1< OUT_OF_MEMORY
        1> put 0 0 1 1\r\na
        1< INSERTED 2
        1> put 0 0 1 1\r\na
        1< OUT_OF_MEMORY
        "#,
    );
}

/// Tubes without jobs, which are remembered for a while, exceeded the present bound.
#[test]
fn a_new_tube_forgets_a_bounded_number_of_others() {
    let mut service = Service::without_store(Bounds::default());
    for n in 0..1_000 {
        service.send(1, format!("use t{n}\r\nput 0 0 1 0\r\n\r\ndelete {}\r\nuse default\r\n", n + 1).as_bytes());
        while service.next(1).is_some() {}
    }
    let tubes = |service: &Service| {
        let mut tubes = 0;
        service.state.save(false, &mut |saved| tubes += usize::from(matches!(saved, Saved::Tube(..))));
        tubes
    };
    assert_eq!(tubes(&service), 1_001);
    service.hand_over_to(Bounds { max_tubes: 3, ..Bounds::default() });
    for n in 1..=3 {
        service.send(1, b"use new\r\nuse default\r\nuse newer\r\nuse default\r\n");
        let told: Vec<String> = std::iter::from_fn(|| service.next(1)).collect();
        assert_eq!(told, ["USING new", "USING default", "USING newer", "USING default"], "{n}");
    }
    assert!((500..980).contains(&tubes(&service)), "{}", tubes(&service));
    (0..40).for_each(|n| service.send(1, format!("use u{n}\r\nuse default\r\n").as_bytes()));
    assert_eq!(tubes(&service), 3);
}

#[test]
fn a_connection_has_so_many_watches_at_most() {
    let mut service = Service::new(Bounds::default(), Commits::Never, 1);
    for count in 2..=1024 {
        service.send(1, format!("watch */t{count}\r\n").as_bytes());
        assert_eq!(service.next(1), Some(format!("WATCHING {count}")));
    }
    service.send(1, b"watch */one-more\r\nwatch */t7 5\r\n");
    assert_eq!(service.next(1), Some("OUT_OF_MEMORY".into()));
    assert_eq!(service.next(1), Some("WATCHING 1024".into()));
}

/// A superseded root job has more leaves than one turn may drop: the reply comes once it is known that nothing is left.
#[test]
fn many_superseded_leaves_are_dropped_in_slices() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.send(1, b"put-job 1 0 9 1 tube=t root=S root-ts=1\r\na\r\n".repeat(5_000).as_slice());
    service.output(1);
    play_with(
        &mut service,
        r#"
        1> put-job 2 0 9 1 tube=t\r\nb
        1< INSERTED 5001
        1> root t S 2
        1< ROOT 2
        2> watch t
        2< WATCHING 2
        2> reserve-with-timeout 0
        2<
        3> reserve-with-timeout 0
        3< TIMED_OUT
        +20ms
        2< RESERVED 5001 1 b
        1> summary tube
        1<~ - name: "t"; ready: 0; superseded: 5000
        1> put-job 1 9 9 1 tube=t root=S root-ts=2\r\na
        1< INSERTED 5002
        "#,
    );
    service.send(1, b"put-job 1 0 9 1 tube=t root=S root-ts=2\r\na\r\n".repeat(5_000).as_slice());
    service.output(1);
    play_with(
        &mut service,
        r#"
        1> root t S 3
        1< ROOT 3
        2> reserve-with-timeout 0
        2<
        +20ms
        2< TIMED_OUT
        1> list-jobs t delayed 5
        1<~ - id: 5002; superseded: true
        "#,
    );
}

/// Returns a job whose counts are at their maximum.
fn worn_job(id: u64) -> Record<'static> {
    let most = SmallCount::MAX;
    Record {
        id: JobId(id),
        tube: b"default",
        pri: 1,
        delay: 0,
        ttr: 1,
        created: 0,
        delayed: None,
        is_buried: false,
        reserves: most,
        history: History { timeouts: most, releases: most, buries: most, kicks: most, attempts: most },
        key: b"",
        until: Until::Reserved,
        root: None,
        group: b"",
        origin: None,
        error: b"",
    }
}

/// A store may contain any counts, and so may a handover.
#[test]
fn figures_of_a_job_stay_at_their_end() {
    let mut service = Service::without_store(Bounds::default());
    service.restore(Saved::Job(worn_job(1), b"a", None, None));
    play_with(
        &mut service,
        r#"
        1> retry default 0 0 1 0
        1< RETRY
        1> reserve
        1< RESERVED 1 1 a
        1> release 1 1 0
        1< RELEASED
        1> reserve
        1< RESERVED 1 1 a
        1> bury 1 1
        1< BURIED
        1> kick-job 1
        1< KICKED
        1> reserve
        1< RESERVED 1 1 a
        1> fail 1 1 0 2\r\nno
        1< RELEASED
        1> reserve
        1< RESERVED 1 1 a
        +2s
        restart
        1> stats-job 1
        1<~ reserves: 4294967295; timeouts: 4294967295; releases: 4294967295; buries: 4294967295; kicks: 4294967295
        "#,
    );
}

/// The time of day was set back after a put, and an upgrade follows: the job and its root job are older than those that
/// are put next.
#[test]
fn jobs_of_a_store_that_seem_to_be_put_later_are_ready_at_once() {
    let mut service = Service::without_store(Bounds::default());
    let later = 4_600_000_000;
    let job = Record { created: later, root: Some((b"r", 5)), ..worn_job(1) };
    service.read([Saved::Root(b"default", b"r", 5, later), Saved::Job(job, b"a", None, None)]);
    play_with(
        &mut service,
        r#"
        +1s
        1> put-job 1 0 60 1 root=q root-ts=5\r\nb
        1< INSERTED 2
        restart
        1> reserve
        1< RESERVED 1 1 a
        1> reserve
        1< RESERVED 2 1 b
        "#,
    );
}

/// A tube is paused in the store, and a client uses it and leaves while its jobs are not read yet: after a start, and in
/// the successor of an upgrade.
#[test]
fn a_pause_outlives_a_client_that_comes_before_the_jobs_are_read() {
    for is_upgrade in [false, true] {
        let mut service = Service::without_store(Bounds::default());
        let until = service.now + Span::from_secs(60);
        let value = Some(Value::Pause(Paused { until, seconds: 60, ends_with_tube: true }));
        let pause = Saved::Setting(Setting { kind: SettingKind::Pause, of: b"a"[..].into(), value });
        if is_upgrade {
            service.state.begin_reading();
            service.restore(pause);
        } else {
            service.read_on(pause);
        }
        play_with(
            &mut service,
            r#"
            2> use a
            2< USING a
            2x
            3> watch a
            3< WATCHING 2
            3> ignore a
            3< WATCHING 1
            "#,
        );
        let job = Record { tube: b"a", ..worn_job(1) };
        service.read_on(Saved::Job(job, b"x", None, None));
        service.end_reading();
        play_with(
            &mut service,
            r#"
            1> watch a
            1< WATCHING 2
            1> reserve-with-timeout 0
            1< TIMED_OUT
            1> stats-tube a
            1<~ current-jobs-ready: 1; pause: 60
            +60s
            1> reserve-with-timeout 0
            1< RESERVED 1 1 x
            1> pause-tube a 60
            1< PAUSED
            1> delete 1
            1< DELETED
            1> ignore a
            1< WATCHING 1
            1> put-job 1 0 60 1 tube=a\r\ny
            1< INSERTED 2
            1> stats-tube a
            1<~ pause: 0
            "#,
        );
    }
}

/// Puts, or fails, as one near the limit of memory, whatever comes with the puts: tubes, sums, root jobs and groups.
#[test]
fn puts_of_one_request_have_room_together() {
    type Options = fn(usize) -> String;
    let kinds: [(&str, Options); 4] = [
        ("tubes", |n| format!("tube=wiki-of-a-long-name-{n}/type-of-a-long-name-{n}")),
        ("roots", |n| format!("tube=t{n} root=signature-{n} root-ts=1")),
        ("groups", |n| format!("group=group-of-a-long-name-{n}")),
        ("keys", |n| format!("key=key-of-a-long-name-{n} root=same root-ts=1 group=same")),
    ];
    for (kind, options) in kinds {
        let put = |n| format!("put-job 1 0 60 1 {}\r\na\r\n", options(n));
        let request = format!("put-many 300\r\n{}", (0..300).map(put).collect::<String>());
        let (mut inserted, mut refused) = (0, 0);
        for max_memory in (20_000..2_000_000).step_by(20_000) {
            let mut service = Service::without_store(Bounds { max_memory, ..Bounds::default() });
            service.send(1, request.as_bytes());
            let told: Vec<String> = std::iter::from_fn(|| service.next(1)).collect();
            let is_refused = told == ["OUT_OF_MEMORY"];
            let is_inserted = told.len() == 300 && told.iter().all(|one| one.starts_with("INSERTED "));
            assert!(is_refused || is_inserted, "{kind}, {max_memory}: {:?} of {}", told.last(), told.len());
            let used = service.state.used_memory();
            assert!(used <= max_memory, "{kind}: {used} of {max_memory}");
            (inserted, refused) = (inserted + usize::from(is_inserted), refused + usize::from(is_refused));
        }
        assert!(inserted > 0 && refused > 0, "{kind}: {inserted} and {refused}");
    }
}
