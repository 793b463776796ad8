//! Everyday events: the tables of `docs/what-happens-when.md` are played, cell by cell.
//!
//! `WRITE_DOCS=1 cargo test --test everyday` writes what is seen into the tables. `SCENE=drains` plays only what has the
//! word in a heading or an event.

mod accounts;
mod clock;
mod events;
mod lent;
mod libraries;
mod page;
mod parties;
mod services;
mod stage;
mod wrappers;

use poolcounter_testkit::cut::can_fall_silent;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::thread;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/what-happens-when.md");

/// Heading of a table, and event of a row.
pub type Row = (&'static str, &'static str);

/// An event, and the rows of tables that tell what is seen.
pub struct Scene {
    /// In the order of the cells that are seen.
    pub rows: Vec<Row>,
    /// Returns the cells of each row. The cells of the page are its argument, so that it knows what to wait for; they are
    /// empty if the page has none. Cells that cannot be played on this machine are returned as they are.
    pub play: Play,
    /// Whether keepalive of the clients must end a connection, which takes half a minute.
    pub is_slow: bool,
}

type Play = Box<dyn FnOnce(&[Cells]) -> Vec<Cells> + Send>;

/// Cells of a row behind its event.
pub type Cells = Vec<String>;

/// Rows of the page.
type Page = BTreeMap<(String, String), Cells>;

/// Returns all scenes, in the order of the rows of each table.
fn scenes() -> Vec<Scene> {
    let of_daemon = [services::scenes(), clock::scenes(), accounts::scenes(), page::scenes()];
    let of_clients = [wrappers::scenes(), libraries::scenes(), lent::scenes()];
    of_daemon.into_iter().chain(of_clients).flatten().collect()
}

fn read_page() -> Page {
    let mut rows = Page::new();
    let mut heading = "";
    for line in fs::read_to_string(PAGE).expect("is readable").lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading).trim();
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let mut columns = row.split(" | ").map(str::to_string);
        let event = columns.next().expect("a row has columns");
        if event != "event" {
            rows.insert((heading.into(), event), columns.collect());
        }
    }
    rows
}

/// Plays scenes at once, and compares what is seen with the page.
fn check(scenes: impl Iterator<Item = Scene>) {
    let page = read_page();
    let word = std::env::var("SCENE").unwrap_or_default();
    let is_played = |scene: &Scene| scene.rows.iter().any(|row| row.0.contains(&word) || row.1.contains(&word));
    let is_possible = |scene: &Scene| !scene.rows.iter().any(|row| row.1.starts_with("the cable")) || can_fall_silent();
    let scenes = scenes.filter(is_played).filter(is_possible);
    let (are_ended, seen): (bool, Vec<(Row, Cells, Cells)>) = thread::scope(|scope| {
        let page = &page;
        let plays: Vec<_> = scenes
            .map(|scene| {
                scope.spawn(move || {
                    let cells = |(heading, event): &Row| page.get(&(heading.to_string(), event.to_string())).cloned();
                    let wanted: Vec<Cells> = scene.rows.iter().map(|row| cells(row).unwrap_or_default()).collect();
                    let seen = (scene.play)(&wanted);
                    scene.rows.into_iter().zip(wanted).zip(seen).map(|((row, wanted), seen)| (row, wanted, seen))
                })
            })
            .collect();
        // A scene that panics has said why.
        let ended: Vec<_> = plays.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (ended.iter().all(Result::is_ok), ended.into_iter().flatten().flatten().collect())
    });
    assert!(are_ended, "a scene has panicked");
    if std::env::var_os("WRITE_DOCS").is_some() {
        return write(&seen.into_iter().map(|(row, _, cells)| (row, cells)).collect());
    }
    let fault = |((heading, event), wanted, seen): &(Row, Cells, Cells)| {
        (wanted != seen).then(|| format!("{heading}: | {event} | {} |", seen.join(" | ")))
    };
    let faults: Vec<String> = seen.iter().filter_map(fault).collect();
    assert!(faults.is_empty(), "this was seen:\n{}", faults.join("\n"));
}

/// Writes the tables of the page anew: these rows as they were seen, and all others as they are.
fn write(seen: &BTreeMap<Row, Cells>) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _guard = WRITING.lock();
    let old = read_page();
    let rows: Vec<Row> = scenes().into_iter().flat_map(|scene| scene.rows).collect();
    let text = fs::read_to_string(PAGE).expect("is readable");
    let (mut heading, mut lines) = ("", Vec::new());
    for line in text.lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        let has_table = rows.iter().any(|row| row.0 == heading);
        if !has_table || !line.starts_with("| ") || line.starts_with("| event ") {
            lines.push(line.to_string());
        }
        if has_table && line.starts_with("|--") {
            for row @ (_, event) in rows.iter().filter(|row| row.0 == heading) {
                let kept = || old.get(&(heading.to_string(), event.to_string())).cloned();
                let cells = seen.get(row).cloned().or_else(kept).unwrap_or_default();
                lines.push(format!("| {event} | {} |", cells.join(" | ")));
            }
        }
    }
    fs::write(PAGE, lines.join("\n") + "\n").expect("can be written");
}

#[test]
fn each_row_of_the_page_is_played() {
    let mut played: Vec<(String, String)> =
        scenes().into_iter().flat_map(|scene| scene.rows).map(|(a, b)| (a.into(), b.into())).collect();
    played.sort();
    assert_eq!(read_page().into_keys().collect::<Vec<_>>(), played);
}

#[test]
fn services_do_what_the_page_tells() {
    check(services::scenes().into_iter().chain(clock::scenes()));
}

#[test]
fn accounts_and_readers_fare_as_the_page_tells() {
    check(accounts::scenes().into_iter().chain(page::scenes()));
}

#[test]
fn commands_end_as_the_page_tells() {
    check(wrappers::scenes().into_iter().filter(|scene| !scene.is_slow));
}

#[test]
fn client_libraries_see_what_the_page_tells() {
    check(libraries::scenes().into_iter().chain(lent::scenes()).filter(|scene| !scene.is_slow));
}

#[test]
fn commands_and_libraries_find_silence_by_keepalive() {
    check(scenes().into_iter().filter(|scene| scene.is_slow));
}
