//! The services, locks with a least time, and the stores of jobs: how a client takes what they lend, and what their
//! replies mean.

use super::events::{EVENTS, Event};
use super::parties::{Parties, Scenery};
use super::stage::{SOON, Stage};
use super::{Cells, Scene};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::frames;
use std::net::SocketAddr;
use std::thread;

/// A service as a client sees it.
pub struct Service {
    /// Heading of its table.
    pub heading: &'static str,
    /// Its name.
    pub kind: &'static str,
    /// Where its jobs are, if it is that of jobs. All other services are beside jobs in a file.
    pub store: Store,
    /// Returns its address.
    pub address: fn(&Daemon) -> SocketAddr,
    /// Requests of an operator at the start, and the replies.
    pub prepare: (&'static [u8], &'static [u8]),
    /// Returns the request of a client that waits up to so many seconds.
    pub take: fn(wait_seconds: u32) -> Vec<u8>,
    /// Request that tells what a new client would get, where a take would disturb others.
    pub probe: Option<&'static [u8]>,
    /// Returns the request by which a holder gives back what the reply `taken` gave it.
    pub give_back: fn(taken: &[u8]) -> Vec<u8>,
    /// Result for a client that does not wait while another one has what the service lends.
    pub taken: &'static str,
    /// Beginnings of replies, and what they tell the client.
    pub replies: &'static [(&'static [u8], &'static str)],
    /// Whether a client can wait.
    pub has_waits: bool,
    /// Whether the daemon keeps what a holder gives back. Events that meet the daemon find it kept.
    pub is_kept: bool,
    /// Request of a client that adds another job.
    pub put: Option<&'static [u8]>,
}

/// Place of the jobs.
#[derive(Clone, Copy, PartialEq)]
pub enum Store {
    File,
    Memory,
    Postgres,
}

/// A holder's request succeeded.
pub const TAKEN: &str = "gets it";
/// Another client has it, and this one does not wait.
pub const TAKEN_BY_ANOTHER: &str = "is refused: it is taken";
/// There is no job for this client, which does not wait.
const NO_JOB: &str = "finds none";
/// A holder gave back what it still had.
pub const GIVEN_BACK: &str = "gave it back";
/// The store cannot be written.
const NOT_STORED: &str = "is refused: it cannot be stored";
/// The store cannot be written, so a request is done later or never.
pub const DOES_NOT_KNOW: &str = "hears that the store fails";

const REPLIES_OF_LOCKS: &[(&[u8], &str)] = &[
    (b"LOCKED", TAKEN),
    (b"TIMEOUT", TAKEN_BY_ANOTHER),
    (b"ERROR DRAINING", "is refused: the daemon drains"),
    (b"RELEASED", GIVEN_BACK),
];

pub const SERVICES: &[Service] = &[
    Service {
        heading: "Locks",
        kind: "pools",
        store: Store::File,
        address: |daemon| daemon.address,
        prepare: (b"", b""),
        probe: None,
        take: |wait_seconds| format!("ACQ4ME k 1 9 {wait_seconds}\n").into_bytes(),
        give_back: |_| b"RELEASE k\n".to_vec(),
        taken: TAKEN_BY_ANOTHER,
        replies: REPLIES_OF_LOCKS,
        has_waits: true,
        is_kept: false,
        put: None,
    },
    Service {
        heading: "Locks with a least time",
        kind: "pools",
        store: Store::File,
        address: |daemon| daemon.address,
        prepare: (b"", b""),
        // Without a least time of its own, so that a look leaves nothing behind.
        probe: Some(b"ACQ4ME kept 1 9 0\n"),
        take: |wait_seconds| format!("ACQ4ME kept 1 9 {wait_seconds} keep=600\n").into_bytes(),
        give_back: |_| b"RELEASE kept\n".to_vec(),
        taken: TAKEN_BY_ANOTHER,
        replies: REPLIES_OF_LOCKS,
        has_waits: true,
        is_kept: true,
        put: None,
    },
    Service {
        heading: "Units of counters",
        kind: "counters",
        store: Store::File,
        address: Daemon::counters,
        prepare: (b"", b""),
        probe: None,
        take: |_| frames::acquire(1, 1, b"c"),
        give_back: |_| frames::release(1, b"c"),
        taken: TAKEN_BY_ANOTHER,
        replies: &[(&[0x91, 2, 0], TAKEN), (&[0x91, 2, 0x21], TAKEN_BY_ANOTHER), (&[0x91, 3, 0], GIVEN_BACK)],
        has_waits: false,
        is_kept: false,
        put: None,
    },
    Service {
        heading: "Members",
        kind: "members",
        store: Store::File,
        address: Daemon::members,
        prepare: (b"POOL p 0 1 on_loss=ok\nADD p m\n", b"OK\nOK\n"),
        probe: None,
        take: |wait_seconds| format!("TAKE p {wait_seconds}\n").into_bytes(),
        give_back: |taken| [b"RETURN ", word(taken, 1), b"\n"].concat(),
        taken: TAKEN_BY_ANOTHER,
        replies: &[
            (b"MEMBER ", TAKEN),
            (b"NO_MEMBERS", TAKEN_BY_ANOTHER),
            (b"ERROR DRAINING", "is refused: the daemon drains"),
            (b"ERROR NOT_KEPT", NOT_STORED),
            (b"RETURNED", GIVEN_BACK),
        ],
        has_waits: true,
        is_kept: false,
        put: None,
    },
    jobs("Jobs", Store::File),
    jobs("Jobs in PostgreSQL", Store::Postgres),
    jobs("Jobs in memory", Store::Memory),
];

const fn jobs(heading: &'static str, store: Store) -> Service {
    Service {
        heading,
        kind: "jobs",
        store,
        address: Daemon::jobs,
        prepare: (b"put 0 0 600 1\r\nj\r\n", b"INSERTED 1\r\n"),
        probe: Some(b"peek-ready\r\n"),
        take: |wait_seconds| format!("reserve-with-timeout {wait_seconds}\r\n").into_bytes(),
        give_back: |taken| [b"delete ", word(taken, 1), b"\r\n"].concat(),
        taken: NO_JOB,
        replies: &[
            (b"RESERVED ", TAKEN),
            (b"TIMED_OUT", NO_JOB),
            (b"FOUND ", TAKEN),
            (b"NOT_FOUND", NO_JOB),
            (b"DRAINING", "is refused: the daemon drains"),
            (b"DELETED", GIVEN_BACK),
            (b"INSERTED ", "puts it"),
            (b"OUT_OF_MEMORY", NOT_STORED),
            (b"INTERNAL_ERROR", DOES_NOT_KNOW),
        ],
        has_waits: true,
        is_kept: false,
        put: Some(b"put 0 0 600 1\r\nk\r\n"),
    }
}

/// Returns a word of a line.
fn word(line: &[u8], index: usize) -> &[u8] {
    line.split(|byte| b" \r\n".contains(byte)).nth(index).unwrap_or_default()
}

/// Returns a scene for each event and store, with the rows of its services.
pub fn scenes() -> Vec<Scene> {
    let stores = [Store::File, Store::Postgres, Store::Memory];
    let each = stores.into_iter().flat_map(|store| EVENTS.iter().map(move |event| (event, store)));
    let scene = |(event, store): (&'static Event, Store)| Scene {
        rows: services_in(store).map(|service| (service.heading, event.name)).collect(),
        play: Box::new(move |wanted| play(event, store, wanted)),
        is_slow: false,
    };
    each.filter(|(event, store)| event.meets(*store)).map(scene).collect()
}

fn services_in(store: Store) -> impl Iterator<Item = &'static Service> {
    SERVICES.iter().filter(move |service| service.store == store)
}

/// Plays an event for all services of a daemon at once.
fn play(event: &Event, store: Store, wanted: &[Cells]) -> Vec<Cells> {
    let Some(mut stage) = Stage::with(SOON, store, event.harms_the_store()) else { return wanted.to_vec() };
    let mut all: Vec<Parties<'_>> = services_in(store).map(|service| stage.take_part(service)).collect();
    if event.meets_the_daemon() {
        all.iter_mut().for_each(Parties::begin_to_keep);
    }
    (event.act)(&mut stage);
    let (are_holders_gone, are_waiters_gone) = (stage.are_holders_gone, stage.are_waiters_gone);
    thread::scope(|scope| {
        let looks = all.iter_mut().zip(wanted).map(|(parties, wanted)| {
            let address = stage.address_of(parties.service.address);
            scope.spawn(move || parties.see(Scenery { address, are_holders_gone, are_waiters_gone }, wanted))
        });
        let looks: Vec<_> = looks.collect();
        looks.into_iter().map(|look| look.join().expect("a look comes to its end")).collect()
    })
}
