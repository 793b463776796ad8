//! The jobs service by its protocol, in virtual time and without sockets.

mod support;

use poolcounter::jobs::state::Bounds;
use support::jobs::{Commits, Service, play, play_with};

#[test]
fn jobs_are_put_reserved_and_deleted() {
    play(
        r#"
        1> use a/b
        1< USING a/b
        1> put 5 0 10 3\r\nabc
        1< INSERTED 1
        1> put 3 0 10 0\r\n
        1< INSERTED 2
        1> peek-ready
        1< FOUND 2 0 
        1> peek 1
        1< FOUND 1 3 abc
        2> watch a/b
        2< WATCHING 2
        2> reserve
        2< RESERVED 2 0 
        2> reserve-with-timeout 0
        2< RESERVED 1 3 abc
        1> delete 1
        1< NOT_FOUND
        2> delete 1
        2< DELETED
        2> delete 1
        2< NOT_FOUND
        2> release 2 7 0
        2< RELEASED
        1> stats-job 2
        1<~ id: 2; tube: "a/b"; state: ready; pri: 7; releases: 1; reserves: 1; file: 0
        1> delete 2
        1< DELETED
        1> reserve-job 2
        1< NOT_FOUND
        2> ignore default
        2< WATCHING 1
        2> ignore a/b
        2< NOT_IGNORED
        2> ignore never-watched
        2< WATCHING 1
        1> list-tube-used
        1< USING a/b
        1> list-tubes
        1<~ - default; - a/b
        2> list-tubes-watched
        2<~ - a/b
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn the_lowest_priority_comes_first_then_the_lowest_number_over_all_tubes() {
    play(
        r#"
        1> use a
        1< USING a
        1> put 5 0 10 1\r\na
        1< INSERTED 1
        1> use b
        1< USING b
        1> put 4 0 10 1\r\nb
        1< INSERTED 2
        1> put 5 0 10 1\r\nc
        1< INSERTED 3
        1> use a
        1< USING a
        1> put 5 0 10 1\r\nd
        1< INSERTED 4
        2> watch a
        2< WATCHING 2
        2> watch b
        2< WATCHING 3
        2> reserve-many 10 0
        2< RESERVED 2 1 b
        2< RESERVED 1 1 a
        2< RESERVED 3 1 c
        2< RESERVED 4 1 d
        2< END
        2> reserve-many 10 0
        2< TIMED_OUT
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn who_has_waited_longest_is_served() {
    play(
        r#"
        1> reserve
        2> watch */x
        2< WATCHING 2
        2> reserve-with-timeout 5
        3> reserve
        4> put 0 0 10 1\r\na
        4< INSERTED 1
        1< RESERVED 1 1 a
        2<
        4> put 0 0 10 1\r\nb
        4< INSERTED 2
        2< RESERVED 2 1 b
        3<
        1> reserve-with-timeout 2
        +1s
        1<
        +1s
        1< TIMED_OUT
        3~
        3< TIMED_OUT
        1x
        4> stats-job 1
        4<~ state: ready; reserves: 1; timeouts: 0
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn a_ttr_runs_out_and_warns_before() {
    play(
        r#"
        1> put 0 0 3 1\r\na
        1< INSERTED 1
        2> reserve
        2< RESERVED 1 1 a
        +1s
        2> touch 1
        2< TOUCHED
        2> reserve
        +1999ms
        2<
        +2ms
        2< DEADLINE_SOON
        2> reserve
        2< DEADLINE_SOON
        2> stats-job 1
        2<~ state: reserved; time-left: 0; age: 3
        +998ms
        2> touch 1
        2< TOUCHED
        +3s
        2> touch 1
        2< NOT_FOUND
        1> stats-job 1
        1<~ state: ready; timeouts: 1; time-left: 0
        1> put 0 0 0 1\r\nb
        1< INSERTED 2
        1> stats-job 2
        1<~ ttr: 1
        2> reserve-job 2
        2< RESERVED 2 1 b
        1> reserve
        1< RESERVED 1 1 a
        2> reserve-with-timeout 0
        2< DEADLINE_SOON
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn delays_end_in_time() {
    play(
        r#"
        1> put 0 2 10 1\r\na
        1< INSERTED 1
        1> put 0 1 10 1\r\nb
        1< INSERTED 2
        1> peek-delayed
        1< FOUND 2 1 b
        1> reserve-with-timeout 9
        +999ms
        1<
        +1ms
        1< RESERVED 2 1 b
        1> stats-job 1
        1<~ state: delayed; time-left: 1; delay: 2
        1> release 2 0 1
        1< RELEASED
        1> kick-job 2
        1< KICKED
        1> kick-job 2
        1< NOT_FOUND
        1> kick 5
        1< KICKED 1
        1> kick 5
        1< KICKED 0
        1> stats-tube default
        1<~ current-jobs-urgent: 2; current-jobs-ready: 2; total-jobs: 2; current-using: 1; current-watching: 1
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn buried_jobs_are_kicked_oldest_first_and_before_delayed_ones() {
    play(
        r#"
        1> put 0 0 10 1\r\na
        1< INSERTED 1
        1> put 0 0 10 1\r\nb
        1< INSERTED 2
        1> put 0 50 10 1\r\nc
        1< INSERTED 3
        1> reserve-many 2 0
        1< RESERVED 1 1 a
        1< RESERVED 2 1 b
        1< END
        1> bury 2 9
        1< BURIED
        1> bury 1 9
        1< BURIED
        1> bury 1 9
        1< NOT_FOUND
        1> peek-buried
        1< FOUND 2 1 b
        1> kick 1
        1< KICKED 1
        1> stats-job 2
        1<~ state: ready; pri: 9; buries: 1; kicks: 1
        1> reserve-job 1
        1< RESERVED 1 1 a
        1> release 1 0 0
        1< RELEASED
        1> kick 9
        1< KICKED 1
        1> stats-job 3
        1<~ state: ready; kicks: 1
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn paused_tubes_give_no_jobs() {
    play(
        r#"
        1> pause-tube nix 5
        1< NOT_FOUND
        1> put 0 0 10 1\r\na
        1< INSERTED 1
        1> pause-tube default 5
        1< PAUSED
        1> stats-tube default
        1<~ pause: 5; pause-time-left: 5; cmd-pause-tube: 1
        2> reserve
        +4999ms
        2<
        +1ms
        2< RESERVED 1 1 a
        2> release 1 0 0
        2< RELEASED
        1> pause-tube */x 60
        1< PAUSED
        1> pause-tube default 60
        1< PAUSED
        1> use b/x
        1< USING b/x
        1> put 0 0 10 1\r\nb
        1< INSERTED 2
        2> watch b/x
        2< WATCHING 2
        2> reserve
        1> pause-tube default 0
        1< PAUSED
        2< RESERVED 1 1 a
        2> reserve
        +60s
        2< DEADLINE_SOON
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn keys_keep_duplicates_out() {
    play(
        r#"
        1> put-job 0 0 10 1 tube=t key=k\r\na
        1< INSERTED 1
        1> put-job 0 0 10 1 tube=t key=k\r\nb
        1< DUPLICATE 1
        1> put-job 0 0 10 1 tube=u key=k\r\nb
        1< INSERTED 2
        2> watch t
        2< WATCHING 2
        2> reserve
        2< RESERVED 1 1 a
        1> put-job 0 0 10 1 tube=t key=k until=deleted\r\nb
        1< INSERTED 3
        2> release 1 0 0
        2< RELEASED
        1> put-job 0 0 10 1 tube=t key=k\r\nc
        1< DUPLICATE 1
        1> delete 1
        1< DELETED
        2> reserve
        2< RESERVED 3 1 b
        1> put-job 0 0 10 1 tube=t key=k\r\nc
        1< DUPLICATE 3
        2> bury 3 0
        2< BURIED
        1> put-job 0 0 10 1 tube=t key=k\r\nc
        1< DUPLICATE 3
        2> delete 3
        2< DELETED
        1> put-job 0 0 10 1 tube=t key=k\r\nc
        1< INSERTED 4
        1> summary tube
        1<~ duplicates: 4
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn a_newer_root_job_cancels_the_leaves_of_the_older() {
    play(
        r#"
        1> root t S 5
        1< ROOT 5
        1> root t S 3
        1< ROOT 5
        1> put-job 0 0 10 1 tube=t root=S root-ts=4\r\na
        1< SUPERSEDED
        1> put-job 0 0 10 1 tube=t root=S root-ts=5\r\na
        1< INSERTED 1
        1> put-job 0 0 10 1 tube=t root=S root-ts=5\r\nb
        1< INSERTED 2
        1> put-job 0 0 10 1 tube=t root=S root-ts=5\r\nb
        1< INSERTED 3
        1> reserve-job 3
        1< RESERVED 3 1 b
        1> bury 3 0
        1< BURIED
        1> put-job 9 0 10 1 tube=t root=S root-ts=6\r\nc
        1< INSERTED 4
        1> list-jobs t ready 10
        1<~ - id: 1; superseded: true; - id: 4
        1> reserve-job 1
        1< NOT_FOUND
        1> peek 1
        1< NOT_FOUND
        1> reserve-job 3
        1< RESERVED 3 1 b
        2> watch t
        2< WATCHING 2
        2> reserve
        2< RESERVED 4 1 c
        2> reserve-with-timeout 0
        2< TIMED_OUT
        1> stats-tube t
        1<~ current-jobs-ready: 0; current-jobs-reserved: 2
        1> summary tube
        1<~ superseded: 3
        1> root t S 5
        1< ROOT 6
        +2419201s
        1< 
        1> root t S 1
        1< ROOT 1
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn limits_hold_tubes_and_groups_back() {
    play(
        r#"
        1> limit */x 1
        1< LIMIT 1
        1> limit */* 2 all
        1< LIMIT 2
        1> put-many 6\r\nput-job 0 0 99 1 tube=a/x\r\n1\r\nput-job 0 0 99 1 tube=a/x\r\n2\r\nput-job 0 0 99 1 tube=b/x\r\n3\r\nput-job 0 0 99 1 tube=b/y\r\n4\r\nput-job 0 0 99 1 tube=c\r\n5\r\nput-job 0 0 99 1 tube=b/x\r\n6
        1< INSERTED 1
        1< INSERTED 2
        1< INSERTED 3
        1< INSERTED 4
        1< INSERTED 5
        1< INSERTED 6
        2> watch */*
        2< WATCHING 2
        2> reserve-many 9 0
        2< RESERVED 1 1 1
        2< RESERVED 3 1 3
        2< END
        1> reserve-job 4
        1< NOT_FOUND
        1> limit b/y 0
        1< LIMIT 0
        2> reserve-many 9 0
        2< RESERVED 4 1 4
        2< END
        2> reserve
        2<
        1> limit */* 9 all
        1< LIMIT 9
        2<
        1> limit a/x 0
        1< LIMIT 0
        2< RESERVED 2 1 2
        2> delete 3
        2< DELETED
        2> reserve
        2< RESERVED 6 1 6
        "#,
        Commits::AtOnce,
    );
    play(
        r#"
        1> limit group:s1 1
        1< LIMIT 1
        1> put-job 0 0 99 1 group=s1\r\n1
        1< INSERTED 1
        1> put-job 0 0 99 1 group=s1\r\n2
        1< INSERTED 2
        1> put-job 5 0 99 1 group=s2\r\n3
        1< INSERTED 3
        1> put 9 0 99 1\r\n4
        1< INSERTED 4
        1> peek-ready
        1< FOUND 1 1 1
        2> reserve-many 9 0
        2< RESERVED 1 1 1
        2< RESERVED 3 1 3
        2< RESERVED 4 1 4
        2< END
        1> peek-ready
        1< FOUND 2 1 2
        2> reserve
        1> limit group:* 1
        1< LIMIT 1
        2x
        1> reserve-many 9 0
        1< RESERVED 1 1 1
        1< RESERVED 3 1 3
        1< RESERVED 4 1 4
        1< END
        1> limit group:s1 0
        1< LIMIT 0
        1> reserve
        1< RESERVED 2 1 2
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn attempts_back_off_and_end_in_a_dead_letter_tube() {
    play(
        r#"
        1> retry default 3 10 2 15
        1< RETRY
        1> put 7 0 10 1\r\na
        1< INSERTED 1
        1> reserve
        1< RESERVED 1 1 a
        1> fail 1 3 0 4\r\noops
        1< RELEASED
        1> list-jobs default delayed 5
        1<~ - id: 1; pri: 3; attempts: 1; error: "oops"
        +8999ms
        1> peek-ready
        1< NOT_FOUND
        +2002ms
        2> reserve
        2< RESERVED 1 1 a
        2x
        1> stats-job 1
        1<~ state: delayed; releases: 1; timeouts: 0
        1> kick 1
        1< KICKED 1
        1> reserve
        1< RESERVED 1 1 a
        1> fail 1 3 60 0\r\n
        1< RELEASED
        +59s
        1> peek-ready
        1< NOT_FOUND
        +1s
        1> reserve
        1< RESERVED 1 1 a
        +10s
        1> stats-job 1
        1<~ state: delayed; timeouts: 1
        +17s
        1> reserve
        1< RESERVED 1 1 a
        1> fail 1 3 0 1\r\nx
        1< BURIED
        1> stats-job 1
        1<~ state: buried; buries: 1
        1> dead-letter default dead
        1< DEAD_LETTER dead
        1> retry default 1 0 1 0
        1< RETRY
        1> kick 1
        1< KICKED 1
        1> reserve
        1< RESERVED 1 1 a
        1> fail 1 3 0 1\r\ny
        1< BURIED
        1> list-jobs dead ready 5
        1<~ - id: 1; attempts: 0; error: "y"
        1> fail 1 1 1 1\r\nz
        1< NOT_FOUND
        1> dead-letter default
        1< DEAD_LETTER
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn commands_for_many_tubes_go_through_all() {
    play(
        r#"
        1> use a/x
        1< USING a/x
        1> put 0 0 10 1\r\na
        1< INSERTED 1
        1> put 0 9 10 1\r\nb
        1< INSERTED 2
        1> use b/x
        1< USING b/x
        1> put 0 9 10 1\r\nc
        1< INSERTED 3
        1> kick-all a/*
        1< KICKED 1
        1> clear */x delayed
        1< CLEARED 1
        1> clear nix
        1< CLEARED 0
        1> reserve-job 1
        1< RESERVED 1 1 a
        1> clear */x
        1< CLEARED 1
        1> summary
        1<~ - name: "a"; reserved: 1; - name: "b"
        1> summary type
        1<~ - name: "x"; - name: "default"
        1> identify me
        1< IDENTIFIED me
        1> summary runner
        1<~ - name: "me"; connections: 1; reserved: 1
        1> drain
        1< DRAINING
        1> put 0 0 1 1\r\nx
        1< DRAINING
        1> undrain
        1< ACCEPTING
        1> extensions
        1<~ - put; - put-job; - put-job:root-ts; - store-copy
        1> stats
        1<~ current-jobs-reserved: 1; cmd-put: 4; total-jobs: 3; version: ""; duplicates: 0
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn replies_that_promise_wait_for_their_commit_and_jobs_are_visible_after_it() {
    play(
        r#"
        2> reserve
        1> put-job 0 0 10 1 key=k\r\na
        1> list-tube-used
        1<
        2<
        take
        3> put-job 0 0 10 1 key=k\r\nb
        3> peek 1
        3> delete 1
        3<
        finish
        1< INSERTED 1
        1< USING default
        2< RESERVED 1 1 a
        3< DUPLICATE 1
        3< NOT_FOUND
        3< NOT_FOUND
        2> touch 1
        2< TOUCHED
        2> release 1 5 0
        2> reserve
        2<
        commit
        2< RELEASED
        2< RESERVED 1 1 a
        2> delete 1
        2<
        2> delete 1
        commit
        2< DELETED
        2< NOT_FOUND
        1> root t s 5
        1> put-job 0 0 1 1 tube=t root=s root-ts=4\r\na
        1<
        commit
        1< ROOT 5
        1< SUPERSEDED
        1> put 0 1 10 1\r\na
        +3s
        1<
        commit
        1< INSERTED 2
        1> peek-ready
        1< FOUND 2 1 a
        "#,
        Commits::Later,
    );
}

#[test]
fn a_hand_over_loses_nothing() {
    play(
        r#"
        1> identify me
        1< IDENTIFIED me
        1> limit */x 1
        1< LIMIT 1
        1> retry */x 3 1 1 1
        1< RETRY
        1> put-job 0 0 10 1 tube=a/x key=k group=g root=r root-ts=3\r\na
        1< INSERTED 1
        1> put-job 0 0 10 1 tube=a/x\r\nb
        1< INSERTED 2
        2> watch */x 3
        2< WATCHING 2
        2> reserve
        2< RESERVED 1 1 a
        2> reserve-with-timeout 5
        1> pause-tube b/* 60
        1< PAUSED
        restart
        2<
        +5s
        2< TIMED_OUT
        2> reserve
        1> put-job 0 0 10 1 tube=a/x key=k\r\nb
        1< INSERTED 3
        1> put-job 0 0 10 1 tube=a/x root=r root-ts=2\r\nb
        1< SUPERSEDED
        2<
        +4s
        2< DEADLINE_SOON
        +1s
        2> reserve
        2< RESERVED 2 1 b
        2> list-tubes-watched
        2<~ - default; - */x
        "#,
        Commits::AtOnce,
    );
}

#[test]
fn bounds_are_kept() {
    let bounds = Bounds { max_size: 10, max_tubes: 3, max_memory: 400 };
    let mut service = Service::new(bounds, Commits::AtOnce, 1);
    play_with(
        &mut service,
        r#"
        1> put 0 0 1 11\r\n12345678901
        1< JOB_TOO_BIG
        1> use a
        1< USING a
        1> use b
        1< USING b
        1> watch a
        1< WATCHING 2
        1> watch c
        1< OUT_OF_MEMORY
        1> put-job 0 0 1 1 tube=c\r\na
        1< OUT_OF_MEMORY
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

/// One wiki with many jobs, others with one each: the last of the others is reserved within one turn of all.
#[test]
fn tubes_take_turns() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    let mut put = |tube: String, count: usize| {
        let one = format!("put-job 9 0 100 1 tube={tube}\r\na\r\n");
        service.send(1, one.repeat(count).as_bytes());
    };
    put("big/t".into(), 5_000);
    (0..699).for_each(|wiki| put(format!("w{wiki}/t"), 1));
    service.send(2, b"watch */*\r\nignore default\r\n");
    let mut seen = std::collections::BTreeSet::new();
    service.output(2);
    for _ in 0..700 {
        service.send(2, b"reserve\r\n");
        let reply = service.next(2).expect("there are jobs");
        let id: usize = reply.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number");
        seen.insert(id.max(5_000));
    }
    assert_eq!(seen.len(), 700, "one turn of all serves each");
}

/// Watches share turns by their weights, whatever the number of their tubes.
#[test]
fn weights_share_the_turns() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    for tube in ["a/1", "a/2", "b/1"] {
        service.send(1, format!("put-job 9 0 100 1 tube={tube}\r\n{}\r\n", &tube[..1]).repeat(1_000).as_bytes());
    }
    service.send(2, b"watch a/* 1\r\nwatch b/1 3\r\nignore default\r\nreserve-many 800 0\r\n");
    let output = service.output(2);
    let count = |tube: &[u8]| output.windows(3).filter(|three| three == &[tube, b"\r\n"].concat()).count();
    assert_eq!((count(b"a"), count(b"b")), (200, 600));
    service.state.check();
}

/// More leaves of a superseded root job than one turn may drop: the answer comes when it is known that nothing is left.
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
