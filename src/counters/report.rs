//! Report of the counters: the busiest, those nearest to their maximum, and the holders of one.

use super::CountersService;
use super::state::{CLIENTS_LOOKED_AT, LevelOf, SLOTS_LOOKED_AT};
use memchr::memmem::Finder;
use poolcounter_core::text::{title_of, unescaped};
use poolcounter_core::{Time, top_keys};
use poolcounter_service::contract::{Observe, Peers, Traffic};
use poolcounter_service::report::Emphasis::{Alarm, Caution, Work};
use poolcounter_service::report::tables::client_of;
use poolcounter_service::report::{Cell, Look, Report, Series, SeriesInfo, Table, View, table};
use std::cmp::Reverse;

/// Most counters in a table, and most holders.
const MOST_ROWS: usize = 20;
const MOST_HOLDERS: usize = 100;
/// Share of its maximum, in percent, from which a counter is near to it.
const NEAR: u64 = 80;

/// Path of the pages about each counter, and helps of columns that several tables have.
const COUNTERS: &str = "/counters/counter/";
const NAME: &str = "Name of the counter, as clients send it.";
const UNITS: &str = "Units held now.";
const MAXIMUM: &str = "Maximum in the last request for units.";

fn busiest_table<'a>(counters: impl IntoIterator<Item = LevelOf<'a>>) -> Table {
    table!(LevelOf<'_>, "busiest", "Busiest counters", counters;
        "name", "counter", Name to(COUNTERS), NAME, |level| name_of(level.name);
        "units", "units", Number marked(Work), UNITS, |level| level.units;
        "peak", "peak", Number, "Most units held at a time in this interval.", |level| level.peak;
        "maximum", "maximum", Number, MAXIMUM, |level| level.maximum;
    )
    .empty("No client holds units of a counter. A first one: poolcounter counter acquire NAME 1 10 -- COMMAND")
}

static UNITS_HELD: SeriesInfo = SeriesInfo::level("holdings", "Holdings of counters", "holdings", Work);
static REFUSED: SeriesInfo = SeriesInfo::rate("refused", "Refused by counters", Alarm);

impl Observe for CountersService {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    fn at_risk(&self) -> u64 {
        self.state.holdings()
    }

    fn report(&self, _: Time, traffic: &Traffic, _: &dyn Peers) -> Report {
        Report { figures: self.figures(traffic).rows().collect(), tables: self.tables(), ..Report::default() }
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        let refusals = &self.state.refusals;
        note((&UNITS_HELD, self.state.holdings()));
        note((&REFUSED, refusals.at_maximum.get().saturating_add(refusals.for_memory.get())));
    }

    /// Returns the page of one object: `counter/NAME`, `client/CLIENT` or `find/TEXT`, with names escaped as on other
    /// pages.
    fn view(&self, path: &[u8], _: Time, peers: &dyn Peers) -> Option<View> {
        let at = path.iter().position(|byte| *byte == b'/')?;
        let text = str::from_utf8(&path[at + 1..]).unwrap_or_default();
        let mut name = if text.is_empty() { path[at + 1..].to_vec() } else { unescaped(text) };
        let (word, tables) = match &path[..at] {
            b"counter" => {
                if let Some(whole) = self.completed(&name, text) {
                    name = whole.to_vec();
                }
                ("Counter", self.tables_of_counter(&name, peers))
            }
            b"client" => ("Client", vec![self.holdings_of_client(text, peers)]),
            b"find" => {
                let finder = Finder::new(&name);
                let found = self.busiest(|level| finder.find(level.name).is_some());
                ("Search:", vec![found.titled("Counters").empty("No counter in use matches.")])
            }
            _ => return None,
        };
        let title = title_of(word, &name);
        Some(View { title, report: Report { tables, ..Report::default() }, ..View::default() })
    }
}

impl CountersService {
    /// Returns the tables, each of at most [`MOST_ROWS`] rows.
    fn tables(&self) -> Vec<Table> {
        let share = |level: &LevelOf<'_>| u64::from(level.units) * 100 / u64::from(level.maximum.unwrap_or(0).max(1));
        let is_near = |level: &LevelOf<'_>| level.maximum.is_some() && share(level) >= NEAR;
        let nearest = self.state.largest(MOST_ROWS, is_near, |level| (Reverse(share(level)), Reverse(level.units)));
        let nearest = table!(LevelOf<'_>, "nearest", "Counters near their maximum", nearest;
            "name", "counter", Name to(COUNTERS), NAME, |level| name_of(level.name);
            "share", "percent", Number marked(Caution), "Share of the maximum that is held, in percent.", |level| share(level);
            "units", "units", Number, UNITS, |level| level.units;
            "maximum", "maximum", Number, MAXIMUM, |level| level.maximum;
        );
        let nearest = nearest.help("Counters with 80 % or more of their maximum held.");
        vec![self.busiest(|_| true), nearest.empty("No counter is near its maximum.")]
    }

    /// Returns the table of the busiest of some counters.
    fn busiest(&self, include: impl Fn(&LevelOf<'_>) -> bool) -> Table {
        let is_held = |level: &LevelOf<'_>| level.units > 0 && include(level);
        let busiest = self.state.largest(MOST_ROWS, is_held, |level| Reverse(level.units));
        let is_cut = self.state.slots() > SLOTS_LOOKED_AT;
        let note = is_cut.then(|| format!("Only the first {SLOTS_LOOKED_AT} counters are searched."));
        Table { note, ..busiest_table(busiest) }
    }

    /// Returns the busiest counter that begins with a name which a table has cut, unless one has just that name.
    fn completed(&self, name: &[u8], text: &str) -> Option<&[u8]> {
        let beginning = text.strip_suffix('…').filter(|_| self.state.level_of(name).is_none())?;
        self.state.name_beginning(&unescaped(beginning))
    }

    /// Returns the tables of a counter: its units, and their holders.
    fn tables_of_counter(&self, name: &[u8], peers: &dyn Peers) -> Vec<Table> {
        let level = self.state.level_of(name).filter(|level| level.units > 0);
        let holders = self.state.holders_of(name).map(|(conn, units)| (Cell::client(conn, peers), name, units));
        vec![busiest_table(level), self.holders(holders)]
    }

    /// Returns the table of the holdings of a client: of one connection, or of all from an address.
    fn holdings_of_client(&self, text: &str, peers: &dyn Peers) -> Table {
        let one = client_of(text, peers);
        let address = text.rsplit_once('@').map_or(text, |(address, _)| address);
        let is_it =
            |peer: &str| peer.strip_prefix(address).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
        let all = self.state.holders().filter(|_| one.is_none()).map(|conn| (conn, peers.peer(conn)));
        let conns = one.map(|conn| (conn, peers.peer(conn))).into_iter().chain(all.filter(|(_, peer)| is_it(peer)));
        self.holders(conns.flat_map(|(conn, peer)| {
            let held = self.state.holdings_of(conn);
            held.map(move |(name, units)| (Cell::client_at(peer.clone(), conn), name, units))
        }))
    }

    /// Returns the table of the first of these holders.
    fn holders<'a>(&self, holders: impl Iterator<Item = (Cell, &'a [u8], u32)>) -> Table {
        let holders = table!((Cell, &[u8], u32), "holders", "Holders", holders.take(MOST_HOLDERS);
            "peer", "client", Address to("/counters/client/"), "Address of the client.", |(client, ..)| client.clone();
            "name", "counter", Name to(COUNTERS), NAME, |(_, name, _)| name_of(name);
            "units", "units", Number marked(Work), UNITS, |(.., units)| *units;
        );
        let note = if holders.rows.len() == MOST_HOLDERS {
            Some(format!("Only the first {MOST_HOLDERS} are shown."))
        } else {
            let is_cut = self.state.holders().count() == CLIENTS_LOOKED_AT;
            is_cut.then(|| format!("Only the first {CLIENTS_LOOKED_AT} connections are searched."))
        };
        Table { note, ..holders.empty("No client holds units of this counter.") }
    }
}

fn name_of(name: &[u8]) -> Cell {
    Cell::text(top_keys::truncated(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcquireUnits, CountersSettings, CountersStep};
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::meter;
    use poolcounter_core::text::visible;
    use poolcounter_core::time::Span;
    use poolcounter_core::wheel::{Owner, Wheel};
    use poolcounter_service::container::tests::Numbered;
    use poolcounter_service::report::tables::NAME_BYTES;

    fn held() -> CountersService {
        let mut service = CountersService::new(CountersSettings::default());
        for (conn, name, resources, maximum) in [
            (1, &b"idle"[..], 1, 100),
            (2, b"full", 9, 10),
            (3, b"full", 1, 10),
            (3, b"busy", 50, 1_000),
            (4, b"full", 1, 10),
        ] {
            acquire_one(&mut service, conn, AcquireUnits { name, resources, maximum });
        }
        service
    }

    fn acquire(service: &mut CountersService, conn: usize, counters: impl Iterator<Item = (String, u32)>) {
        for (name, resources) in counters {
            acquire_one(service, conn, AcquireUnits { name: name.as_bytes(), resources, maximum: 10 });
        }
    }

    fn acquire_one(service: &mut CountersService, conn: usize, units: AcquireUnits<'_>) {
        let mut wheel = Wheel::default();
        let mut timers = wheel.own(Owner(0));
        let mut step = CountersStep { now: Time::START, epoch: Span::ZERO, timers: timers.typed() };
        let _ = service.state.acquire(ConnId::from_index(conn), units, &mut step);
    }

    fn names(table: &Table) -> Vec<String> {
        let name = |cell: &Cell| match cell {
            Cell::Text(name) => name.clone(),
            Cell::Client(client) => client.address.clone(),
            other => format!("{other:?}"),
        };
        table.check();
        table.rows.iter().map(|row| name(&row[0])).collect()
    }

    #[test]
    fn busiest_and_the_fullest_counters_are_listed() {
        let tables = held().tables();
        assert_eq!(names(&tables[0]), ["busy", "full", "idle"]);
        assert_eq!(names(&tables[1]), ["full"]);
        assert_eq!(tables[1].rows[0][1..], [Cell::Number(100), Cell::Number(10), Cell::Number(10)]);
    }

    #[test]
    fn holders_of_units_are_listed() {
        let view = |path: &str| held().view(path.as_bytes(), Time::START, &Numbered).map(|view| view.report.tables);
        let tables = view("counter/full").expect("there are such views");
        assert_eq!(
            (names(&tables[0]), names(&tables[1])),
            (vec!["full".into()], vec!["10.0.0.2:7".into(), "10.0.0.3:7".into()])
        );
        assert_eq!(names(&view("client/10.0.0.3").expect("is one")[0]), ["10.0.0.3:7", "10.0.0.3:7"]);
        assert_eq!(names(&view("find/u").expect("is one")[0]), ["busy", "full"]);
        assert!(view("other/x").is_none() && view("counter").is_none());
        let note = |view: Option<Vec<Table>>| view.expect("is one").pop().expect("has tables").note;
        assert_eq!((note(view("counter/full")), note(view("client/10.0.0.3"))), (None, None), "nothing is left out");
    }

    /// Tables cut long names, and search a part of the counters; each has its page all the same.
    #[test]
    fn every_counter_has_a_page() {
        let mut service = CountersService::new(CountersSettings::default());
        let long = |end: &str| format!("{}{end}", "n".repeat(300));
        let others = (0..SLOTS_LOOKED_AT).map(|n| (format!("other-{n}"), 1));
        acquire(
            &mut service,
            1,
            [(long("a"), 1), (long("b"), 2)].into_iter().chain(others).chain([("last".into(), 1)]),
        );
        let shown = |name: &str| {
            let view = service.view(format!("counter/{name}").as_bytes(), Time::START, &Numbered).expect("is one");
            let tables = view.report.tables;
            (tables[0].rows.first().map(|row| row[1].clone()), names(&tables[1]))
        };
        let units = |units| Some(Cell::Number(units));
        let holder = vec!["10.0.0.1:7".to_string()];
        assert_eq!(shown("last"), (units(1), holder.clone()), "beyond the slots that are searched");
        assert_eq!(shown(&long("a")), (units(1), holder.clone()));
        let cut = visible(long("").as_bytes(), NAME_BYTES);
        assert!(cut.ends_with('…'));
        assert_eq!(shown(&cut), (units(2), holder), "the busiest that begins so");
        assert_eq!(shown("none…"), (None, Vec::new()));
    }

    /// Holdings of other counters, and holdings beyond the rows of the table, are not visited.
    #[test]
    fn page_visits_few_holdings() {
        let mut service = CountersService::new(CountersSettings::default());
        acquire(&mut service, 1, (0..10_000).map(|n| (format!("counter-{n}"), 1)));
        for path in ["counter/counter-9999", "client/10.0.0.1", "client/10.0.0.1:7@1", "counter/none"] {
            meter::begin_step();
            service.view(path.as_bytes(), Time::START, &Numbered).expect("is one");
            meter::end_step();
        }
    }
}
