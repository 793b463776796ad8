//! Everyday events: the tables of `docs/what-happens-when.md` are played, cell by cell.

mod accounts;
mod events;
mod libraries;
mod parties;
mod services;
mod wrappers;

use events::EVENTS;
use parties::Stage;
use services::SERVICES;
use std::collections::BTreeMap;
use std::fs;
use std::thread;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/what-happens-when.md");

/// Tables of commands and client libraries.
const OTHER_TABLES: [&str; 3] = [wrappers::HEADING, libraries::HEADING, libraries::WAITING];

/// Cells of the page, by service, event and party.
type Cells = BTreeMap<(String, String), Vec<String>>;

/// Returns the cells of all tables whose heading is the name of a service, and of the tables of commands and libraries.
fn cells_of(page: &str) -> Cells {
    let mut cells = Cells::new();
    let mut service = "";
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            service = heading;
        }
        let Some(row) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let mut columns = row.split(" | ").map(str::to_string);
        let event = columns.next().expect("a row has columns");
        let mut headings = SERVICES.iter().map(|known| known.heading).chain(OTHER_TABLES);
        let is_table = headings.any(|known| known == service);
        if is_table && event != "event" {
            cells.insert((service.to_string(), event), columns.collect());
        }
    }
    cells
}

/// Plays an event for all services at once, and returns the rows that are not as the page has them.
fn play(event: &events::Event, cells: &Cells) -> Vec<String> {
    let mut stage = Stage::new();
    let mut parties = SERVICES.iter().map(|service| stage.take_part(service)).collect::<Vec<_>>();
    if event.name.starts_with("the daemon") {
        parties.iter_mut().for_each(parties::Parties::begin_to_keep);
    }
    (event.act)(&mut stage);
    let mut faults = Vec::new();
    for (service, mut parties) in SERVICES.iter().zip(parties) {
        let key = (service.heading.to_string(), event.name.to_string());
        let Some(wanted) = cells.get(&key) else {
            faults.push(format!("{}: no row: {}", service.heading, event.name));
            continue;
        };
        let seen = parties.see(&stage, wanted);
        if seen != *wanted {
            faults.push(format!("{}: | {} | {} |", service.heading, event.name, seen.join(" | ")));
        }
    }
    faults
}

#[test]
fn everyday_events_are_as_the_page_tells() {
    let cells = cells_of(&fs::read_to_string(PAGE).expect("is readable"));
    let of_libraries = libraries::events(EVENTS).count() + libraries::events_of_waiters(EVENTS).count();
    let rows = EVENTS.len() * SERVICES.len() + wrappers::EVENTS.len() + of_libraries;
    assert_eq!(cells.len(), rows, "each event is in the table of each service, and no other");
    let faults: Vec<String> = thread::scope(|scope| {
        let plays: Vec<_> = EVENTS.iter().map(|event| scope.spawn(|| play(event, &cells))).collect();
        plays.into_iter().flat_map(|play| play.join().expect("a scene comes to its end")).collect()
    });
    assert!(faults.is_empty(), "this was seen:\n{}", faults.join("\n"));
}

#[test]
fn commands_end_as_the_page_tells() {
    play_table(wrappers::HEADING, wrappers::EVENTS.iter().map(|event| (event.name, event)), wrappers::play);
}

#[test]
fn client_libraries_see_what_the_page_tells() {
    play_table(libraries::HEADING, libraries::events(EVENTS).map(|event| (event.name, event)), libraries::play);
}

#[test]
fn waiting_client_libraries_see_what_the_page_tells() {
    let events = libraries::events_of_waiters(EVENTS).map(|event| (event.name, event));
    play_table(libraries::WAITING, events, libraries::play_waiters);
}

/// Plays all events of a table at once. A play returns the row that is seen, if it is not that of the page.
fn play_table<'a, E: Sync + 'a>(
    heading: &str,
    events: impl Iterator<Item = (&'a str, &'a E)>,
    play: fn(&E, &[String]) -> Option<String>,
) {
    let cells = cells_of(&fs::read_to_string(PAGE).expect("is readable"));
    let faults: Vec<String> = thread::scope(|scope| {
        let cells = &cells;
        let plays = events.map(|(name, event)| {
            let row = cells.get(&(heading.to_string(), name.to_string())).expect("has a row");
            scope.spawn(move || play(event, row))
        });
        let plays: Vec<_> = plays.collect();
        plays.into_iter().filter_map(|play| play.join().expect("a scene comes to its end")).collect()
    });
    assert!(faults.is_empty(), "this was seen:\n{}", faults.join("\n"));
}
