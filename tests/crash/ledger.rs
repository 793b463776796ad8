//! The ledger of members on disks that fail, and in files that others remove.

use crate::jobs_crash::disk::Faults;
use crate::jobs_crash::vfs;
use poolcounter_service::contract::Wake;
use poolcounter_store::ledger::{self, Change, Event, FileLedger, Ledger, Row};
use poolcounter_store::sqlite::DatabaseFile;
use poolcounter_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than a store waits before it tries again.
const PATIENCE: Duration = Duration::from_secs(30);

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Ledger, and the wakes of its loop.
struct Desk {
    ledger: Box<dyn Ledger>,
    wakes: Receiver<()>,
}

impl Desk {
    fn of(mut ledger: Box<dyn Ledger>) -> Desk {
        let (sender, wakes) = channel();
        ledger.attach(Wake::new(move || {
            // A test that has ended needs no event.
            let _ = sender.send(());
        }));
        Desk { ledger, wakes }
    }

    fn open(place: &DatabaseFile) -> Desk {
        Desk::of(Box::new(FileLedger::open(place.clone()).expect("can be opened")))
    }

    fn next(&mut self) -> Event {
        loop {
            match self.ledger.next_event() {
                Some(event) => return event,
                None => self.wakes.recv_timeout(PATIENCE).expect("there is another event"),
            }
        }
    }

    fn expect(&mut self, event: &Event) {
        assert_eq!(self.next(), *event);
    }

    fn expect_failing(&mut self) {
        let event = self.next();
        assert!(matches!(event, Event::Failing(_)), "{event:?}");
    }

    /// Returns all rows, once they were read.
    fn rows(&mut self) -> Rows {
        let mut all = Rows::new();
        loop {
            match self.next() {
                Event::Rows(rows) => all.extend(rows),
                Event::Opened => return all,
                other => panic!("{other:?}"),
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) -> u64 {
        self.ledger.write(vec![Change { key: key.into(), value: Some(value.into()) }])
    }
}

fn file(scratch: &Scratch) -> DatabaseFile {
    DatabaseFile { path: scratch.file("members.db"), vfs: None }
}

fn row(key: &str, value: &str) -> Row {
    (key.into(), value.into())
}

#[test]
fn rows_are_there_after_a_restart() {
    let scratch = Scratch::new();
    let mut desk = Desk::open(&file(&scratch));
    assert_eq!(desk.rows(), Rows::new());
    let many = (0..1500).map(|n| row(&format!("{n:04}"), &"x".repeat(400)));
    let whole = desk.ledger.replace(many.collect());
    desk.expect(&Event::Committed(whole));
    desk.ledger.write(vec![Change { key: "0001".into(), value: None }]);
    desk.set("0002", "");
    // The end commits what waits.
    desk.ledger.end();
    drop(desk);
    let rows = Desk::open(&file(&scratch)).rows();
    assert_eq!((rows.len(), rows.get(&b"0001"[..]), rows[&b"0002"[..]].len()), (1499, None, 0));
}

#[test]
fn writes_during_a_commit_share_the_next() {
    let scratch = Scratch::new();
    let mut desk = Desk::open(&file(&scratch));
    // Before everything is read, they wait.
    assert_eq!((desk.set("a", "1"), desk.set("b", "2")), (1, 1));
    desk.expect(&Event::Opened);
    assert_eq!((desk.set("a", "3"), desk.set("b", "4")), (2, 2));
    desk.expect(&Event::Committed(1));
    assert_eq!((desk.set("a", "5"), desk.ledger.replace(vec![row("c", "6")])), (3, 3));
    desk.expect(&Event::Committed(2));
    desk.expect(&Event::Committed(3));
    desk.ledger.end();
    drop(desk);
    assert_eq!(Desk::open(&file(&scratch)).rows(), Rows::from([row("c", "6")]));
}

#[test]
fn a_file_has_one_daemon() {
    let scratch = Scratch::new();
    let place = file(&scratch);
    let mut first = Desk::open(&place);
    first.rows();
    let refused = ledger::open(&place.path).err().expect("it is refused");
    assert_eq!(refused, format!("another daemon keeps its members there, the process {}", std::process::id()));
    // A successor waits for the release, and writes everything anew.
    let mut second = Desk::of(ledger::take_over(&place.path));
    second.expect_failing();
    first.set("a", "1");
    first.ledger.end();
    drop(first);
    second.expect(&Event::Works);
    second.expect(&Event::Opened);
    let whole = second.ledger.replace(vec![row("b", "2")]);
    second.expect(&Event::Committed(whole));
    second.ledger.end();
    drop(second);
    assert_eq!(Desk::open(&place).rows(), Rows::from([row("b", "2")]));
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let scratch = Scratch::new();
    let place = file(&scratch);
    fs::write(&place.path, "no database, but longer than its head would be").expect("can be written");
    let mut desk = Desk::open(&place);
    let event = desk.next();
    assert!(matches!(event, Event::Unreadable(_)), "{event:?}");
    desk.set("a", "1");
    desk.ledger.end();
    drop(desk);
    assert!(fs::read_to_string(&place.path).expect("is there").starts_with("no database"));
}

#[test]
fn a_full_disk_delays_a_commit() {
    let (scratch, (disk, vfs)) = (Scratch::new(), vfs::new_disk(1));
    let mut desk = Desk::open(&DatabaseFile { vfs: Some(vfs), ..file(&scratch) });
    desk.rows();
    disk.fail(Faults { full: 1, ..Faults::default() });
    let commit = desk.set("a", "1");
    desk.expect_failing();
    disk.heal();
    desk.expect(&Event::Works);
    desk.expect(&Event::Committed(commit));
}

#[test]
fn everything_is_written_anew_after_a_lost_sync_or_file() {
    let (scratch, (disk, vfs)) = (Scratch::new(), vfs::new_disk(1));
    let place = DatabaseFile { vfs: Some(vfs), ..file(&scratch) };
    let mut desk = Desk::open(&place);
    desk.rows();
    let faults: [&dyn Fn(); 3] = [
        &|| disk.fail(Faults { sync: 1, ..Faults::default() }),
        &|| disk.fail(Faults { write: 1, ..Faults::default() }),
        &|| fs::remove_file(&place.path).expect("is there"),
    ];
    for (fault, is_lost) in faults.into_iter().zip([true, false, true]) {
        fault();
        let commit = desk.set("a", "1");
        desk.expect_failing();
        disk.heal();
        let (mut commit, mut event) = (commit, desk.next());
        assert!(!is_lost || event == Event::Rewrite, "{event:?}");
        // Each further try may meet the fault before the disk heals, and lose the file once more.
        while event == Event::Rewrite {
            commit = desk.ledger.replace(vec![row("a", "2")]);
            event = desk.next();
        }
        assert_eq!(event, Event::Works);
        desk.expect(&Event::Committed(commit));
    }
    // The end asks, too.
    fs::remove_file(&place.path).expect("is there");
    desk.ledger.end();
    desk.expect_failing();
    desk.expect(&Event::Rewrite);
    desk.ledger.replace(vec![row("b", "3")]);
    desk.ledger.end();
    drop(desk);
    assert_eq!(Desk::open(&place).rows(), Rows::from([row("b", "3")]));
}

/// Cuts the power after each number of writes and syncs: committed rows are there, and a commit under way is there as a
/// whole or not at all.
#[test]
fn a_cut_at_any_write_loses_no_commit() {
    for actions in 0.. {
        let (scratch, (disk, vfs)) = (Scratch::new(), vfs::new_disk(actions as u64));
        let place = DatabaseFile { vfs: Some(vfs), ..file(&scratch) };
        disk.cut_after(actions);
        let (kept, under_way) = play(&place);
        let was_cut = !disk.is_on();
        disk.power_on();
        let rows = Desk::open(&place).rows();
        assert!(rows == kept || under_way.as_ref() == Some(&rows), "cut after {actions}: {rows:?}, and {kept:?}");
        if !was_cut {
            assert!(actions > 20, "there was nothing to cut");
            return;
        }
    }
}

/// Writes until a fault. Returns the committed rows, and the rows with the commit under way.
fn play(place: &DatabaseFile) -> (Rows, Option<Rows>) {
    let (mut kept, mut next) = (Rows::new(), Rows::new());
    let Ok(ledger) = FileLedger::open(place.clone()) else { return (kept, None) };
    let mut desk = Desk::of(Box::new(ledger));
    if desk.next() != Event::Opened {
        return (kept, None);
    }
    for n in 0..6_u8 {
        let commit = if n == 3 {
            next = (0..9).map(|key| (vec![key], vec![n; 900])).collect();
            desk.ledger.replace(next.clone().into_iter().collect())
        } else {
            next.insert(vec![n, n], vec![n]);
            next.remove(&vec![n - n % 2]);
            let gone = Change { key: vec![n - n % 2], value: None };
            desk.ledger.write(vec![Change { key: vec![n, n], value: Some(vec![n]) }, gone])
        };
        if desk.next() != Event::Committed(commit) {
            return (kept, Some(next));
        }
        kept = next.clone();
    }
    desk.ledger.end();
    (kept, None)
}
