//! Three independent daemons, and clients that share 2,000 keys between them: the placement of keys, and the locks and
//! keys when one daemon is killed and when it comes back.

use poolcounter_client::{Client, Error, Limits, Lock, MediaWiki, Outcome, Placement, Purpose, Timeouts};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use std::process::Command;

const KEYS: usize = 2_000;
const ONE: Limits = Limits {
    workers: 1,
    max_queue: 10,
    timeout: std::time::Duration::ZERO,
    hold: None,
    at_least: std::time::Duration::ZERO,
};
/// Options that let one client hold every key; it has one connection to each daemon.
const MANY_LOCKS: [&str; 2] = ["--max-locks", "1024"];

fn client(placement: &Placement) -> Client {
    Client::with(placement.clone(), Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE })
}

fn key(number: usize) -> String {
    format!("enwiki:ArticleView:{number}")
}

/// Returns the lock on each key that `client` gets; None for keys that are held.
fn lock_all(client: &Client) -> Vec<Option<Lock<'_>>> {
    let lock = |number| match client.acquire(Purpose::Me, key(number), &ONE) {
        Ok(Outcome::Locked(lock)) => Some(lock),
        Ok(Outcome::Timeout) => None,
        other => panic!("{other:?}"),
    };
    (0..KEYS).map(lock).collect()
}

/// Returns the number of locks of each daemon, by its place in the configuration; None for a dead one.
fn locks_of(client: &Client) -> Vec<Option<usize>> {
    let locks = |(_, stats): (_, Result<poolcounter_core::stats::Figures<Stat>, _>)| {
        Some(stats.ok()?.of(Stat::ProcessingWorkers) as usize)
    };
    client.stats().into_iter().map(locks).collect()
}

/// Returns the number of keys that have each server at this place of their order.
fn placed(orders: &[Vec<usize>], place: usize) -> Vec<usize> {
    (0..3).map(|server| orders.iter().filter(|order| order[place] == server).count()).collect()
}

#[test]
fn lost_daemons_keys_move_to_other_daemons() {
    let mut daemons: Vec<Daemon> = (0..3).map(|_| Daemon::start(&MANY_LOCKS)).collect();
    let addresses: Vec<String> = daemons.iter().map(|daemon| daemon.address.to_string()).collect();
    let placement = Placement::from(MediaWiki::new(&addresses));
    let orders: Vec<Vec<usize>> = (0..KEYS).map(|number| placement.order(key(number).as_bytes())).collect();

    // Every daemon has a third of the keys, and no client gets a held key.
    let (first, second) = (client(&placement), client(&placement));
    let mut held = lock_all(&first);
    assert!(held.iter().all(Option::is_some));
    let shares = placed(&orders, 0);
    assert!(shares.iter().all(|share| (600..740).contains(share)), "{shares:?}");
    assert_eq!(locks_of(&first), shares.iter().copied().map(Some).collect::<Vec<_>>());
    assert!(lock_all(&second).iter().all(Option::is_none));

    // One is killed. Its keys can be locked at the next server, although their holders still work; other keys cannot.
    drop(daemons.remove(1));
    let taken = lock_all(&second);
    let is_lost = |number: usize| orders[number][0] == 1;
    assert!((0..KEYS).all(|number| taken[number].is_some() == is_lost(number)));
    let inherited: Vec<_> = orders.iter().filter(|order| order[0] == 1).cloned().collect();
    let more = placed(&inherited, 1);
    println!("{shares:?} keys; when the second is lost, {more:?} more");
    assert_eq!(locks_of(&second), [Some(shares[0] + more[0]), None, Some(shares[2] + more[2])]);

    // The daemon comes back empty. Its clients get keys that are held at the next server.
    let restarted = Daemon::run(Command::new(Daemon::program()).args(["-l", &addresses[1]]).args(MANY_LOCKS));
    let third = client(&placement);
    let taken_again = lock_all(&third);
    assert!((0..KEYS).all(|number| taken_again[number].is_some() == is_lost(number)));
    assert_eq!(locks_of(&third)[1], Some(shares[1]));

    // Each holder is notified upon release. The locks of the other daemons are not affected.
    for (number, lock) in held.iter_mut().enumerate() {
        let released = lock.take().expect("was locked").release();
        assert_eq!(released, if is_lost(number) { Err(Error::Lost) } else { Ok(()) });
    }
    let release = |lock: Option<Lock<'_>>| lock.map_or(Ok(()), Lock::release);
    assert!(taken.into_iter().chain(taken_again).map(release).all(|released| released.is_ok()));
    assert_eq!(locks_of(&third), [Some(0); 3]);
    drop(restarted);
}
