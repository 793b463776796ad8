mod support;
use support::world::World;
#[test]
fn smoke() {
    let mut w = World::new(Default::default());
    let a = w.connect();
    let b = w.connect();
    w.send(a, b"ACQ4ME k 1 5 5\n");
    w.send(b, b"ACQ4ME k 1 5 5\n");
    w.settle();
    assert_eq!(w.take_received(a), b"LOCKED\n");
    w.upgrade();
    w.advance(poolcounter::time::Span::from_millis(4999));
    assert_eq!(w.take_received(b), b"");
    w.advance(poolcounter::time::Span::from_millis(1));
    assert_eq!(w.take_received(b), b"TIMEOUT\n");
    w.finish(a);
    w.finish(b);
    w.settle();
    assert!(w.is_empty() && w.is_closed(a));
}
