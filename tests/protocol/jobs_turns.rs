//! Turns among tubes: of one watch, and of several.

use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::jobs::{Commits, Service};

/// One wiki has many jobs, and others have one each: the last of the others is reserved within one turn of all.
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
