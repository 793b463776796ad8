//! Report of the pools, as tables and series.

use super::state::{CeilingInUse, KEYS_LOOKED_AT, WhichKeys};
use super::{BusyKey, ClaimInfo, PoolsService, WorkType};
use poolcounter_core::text::escaped;
use poolcounter_core::top_keys::TopKey;
use poolcounter_core::{Count, Figures, Span, Time, top_keys};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_service::contract::{Observe, Peers, Traffic};
use poolcounter_service::report::Emphasis::{self, Alarm, Caution, Work};
use poolcounter_service::report::{Cell, Counted, Look, Report, Series, SeriesInfo, Table, View, table};
use std::cmp::Reverse;

/// Most keys or holders in a list of the report.
pub const MOST_ROWS: usize = 20;
/// Number of keys with curves: those with the most refusals and waits lately.
const MOST_CURVES: usize = 64;

/// Path prefixes of the pages about each key, type of work and client.
pub(super) const KEYS: &str = "/pools/key/";
pub(super) const TYPES_PATH: &str = "/pools/type/";
pub(super) const CLIENTS: &str = "/pools/client/";

/// Helps of columns that several tables have.
pub(super) const KEY: &str = "Key, as clients send it.";
pub(super) const PEER: &str = "Address of the client.";
pub(super) const WHO: &str = "Name that the client gave (who=).";
pub(super) const AGE: &str = "Time for which the client has held the lock or waited for it.";
pub(super) const WORKING: &str = "Locks held.";
pub(super) const WAITING: &str = "Requests that wait.";

pub(super) fn types_table<'a>(types: impl IntoIterator<Item = &'a WorkType>) -> Table {
    table!(&WorkType, "types", "First parts of keys", types;
        "name", "first part", Name to(TYPES_PATH) label("type"),
            "Part of the key before its first colon; other for those that came when there were too many.",
            |one| Cell::text(&one.name);
        "acquired", "acquired", Number counts("type_acquired") marked(Work), "Locks granted, by type of work.",
            |one| one.acquired;
        "working", "working", Number each("type_working"), "Locks held, by type of work.", |one| one.working();
        "waiting", "waiting", Number each("type_waiting") marked(Caution), "Requests that wait, by type of work.",
            |one| one.waiting();
        "done", "done", Number counts("type_done"), "Waits that ended in DONE, by type of work.", |one| one.done;
        "full", "full", Number counts("type_full") marked(Alarm), "QUEUE_FULL replies, by type of work.", |one| one.full;
        "timeouts", "timeouts", Number counts("type_timeouts") marked(Alarm), "TIMEOUT replies, by type of work.",
            |one| one.timeouts;
        "lost", "lost", Number counts("type_lost") marked(Alarm),
            "Locks that ended with their connection, by type of work.", |one| one.lost;
        "expired", "expired", Number counts("type_expired") marked(Alarm),
            "Locks whose hold was over, by type of work.", |one| one.expired;
        "given_up", "given up", Number counts("type_given_up"), "Waits that clients gave up, by type of work.",
            |one| one.given_up;
        "wait", "wait", Times each("wait"), "Waiting time of requests that had to wait, by type of work.",
            |one| one.waits.clone();
        "hold", "hold", Times each("hold"), "Time for which locks were held, by type of work.", |one| one.holds.clone();
    )
    .help("Part of the key before its first colon: the type of work, or the wiki.")
    .empty("No lock has been asked for since the start. A first one: poolcounter exec --key KEY -- COMMAND")
    .of_kinds()
}

static ACQUIRED: SeriesInfo = SeriesInfo::rate("acquired", "Locks granted", Emphasis::None);
static HELD: SeriesInfo = SeriesInfo::level("working", "Working", "locks held", Work);
static WAITERS: SeriesInfo = SeriesInfo::level("waiting", "Waiting", "requests", Caution);
static TIMEOUTS: SeriesInfo = SeriesInfo::rate("timeouts", "Timeouts", Alarm);
static REFUSED: SeriesInfo = SeriesInfo::rate("refused", "Refused, queue full", Alarm);

static KEY_REFUSED: SeriesInfo = SeriesInfo::level("refused", "Refused", "per second", Alarm);

impl Observe for PoolsService {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    fn report(&self, now: Time, traffic: &Traffic, peers: &dyn Peers) -> Report {
        let figures = self.figures(now, traffic).rows().collect();
        Report { figures, tables: self.tables(now, peers), ..Report::default() }
    }

    fn view(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, now, peers)
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        note((&ACQUIRED, self.state.count_of(Stat::TotalAcquired)));
        note((&REFUSED, self.state.count_of(Stat::FullQueues)));
        note((&HELD, self.state.working()));
        note((&WAITERS, self.state.waiting()));
        note((&TIMEOUTS, self.state.timeouts()));
    }

    /// Notes the values of the keys with the most refusals and waits lately, of which their pages show curves.
    fn sample_things(&self, now: Time, note: &mut dyn FnMut(&[u8], Series)) {
        for hot in self.state.hottest(MOST_CURVES, now) {
            let path = [b"key/", escaped(hot.key).as_bytes()].concat();
            self.series_of_key(hot.key).into_iter().for_each(|series| note(&path, series));
        }
    }

    /// Notes the counts of each type of work, in the order of the columns.
    fn tally(&self, note: &mut dyn FnMut(Counted<'_>)) {
        for one in self.state.types_in_use() {
            let counts = [one.acquired, one.done, one.full, one.timeouts, one.lost, one.expired, one.given_up];
            let counts = &counts.map(Count::get);
            note(Counted { table: "types", name: &one.name, counts, times: &[&one.waits, &one.holds] });
        }
    }

    fn at_risk(&self) -> u64 {
        self.state.working() + self.state.waiting()
    }
}

impl PoolsService {
    /// Returns the figures of the state, and of the connections' traffic.
    pub fn figures(&self, now: Time, traffic: &Traffic) -> Figures<Stat> {
        let mut figures = self.state.figures();
        figures.set(Stat::Uptime, now.since(self.started).as_micros());
        figures.set(Stat::ConnectErrors, traffic.connect_errors.get());
        figures.set(Stat::FailedSends, traffic.failed_sends.get());
        figures
    }

    /// Returns the series of a key: its locks and waits, and its refusals in a second.
    pub(super) fn series_of_key(&self, key: &[u8]) -> [Series; 3] {
        let (working, waiting) = self.state.busy_key(key).map_or((0, 0), |busy| (busy.working, busy.waiting));
        let refused = self.refusals.rate_of(key).round() as u64;
        [(&HELD, working.into()), (&WAITERS, waiting.into()), (&KEY_REFUSED, refused)]
    }

    /// Returns the tables of the pools. Each has at most [`MOST_ROWS`] rows, but that of the types has at most 257;
    /// keys are cut to [`top_keys::KEY_BYTES`].
    fn tables(&self, now: Time, peers: &dyn Peers) -> Vec<Table> {
        let holders = table!(ClaimInfo<'_>, "holders", "Longest holders", self.state.longest_holders(MOST_ROWS);
            "key", "key", Name to(KEYS), KEY, |claim| Cell::text(top_keys::truncated(claim.key));
            "peer", "client", Address to(CLIENTS), PEER, |claim| Cell::client(claim.conn, peers);
            "who", "who", Name to(CLIENTS), WHO, |claim| who_of(claim);
            "age", "for", Seconds largest("oldest_holder", "Time for which the oldest lock has been held."), AGE,
                |claim| now.since(claim.since);
        );
        vec![
            types_table(self.state.types()),
            self.busiest(WhichKeys::All, now),
            self.hottest(|_| true, now),
            holders.empty("No client holds a lock."),
            ceilings_table(self.state.ceilings()),
        ]
    }

    /// Returns the table of the busiest of some keys.
    pub(super) fn busiest(&self, which: WhichKeys<'_>, now: Time) -> Table {
        let mut keys = self.state.busiest(MOST_ROWS, which);
        // In this order, most keys stay in their rows from one look to the next.
        keys.sort_by_key(|busy| (Reverse((busy.working + busy.waiting).ilog2()), busy.key));
        let note = (self.state.keys() > KEYS_LOOKED_AT).then(|| {
            format!("There are {} keys; only {KEYS_LOOKED_AT} and the hottest ones are searched.", self.state.keys())
        });
        let busiest = table!(BusyKey<'_>, "busiest", "Busiest keys now", keys;
            "key", "key", Name to(KEYS), KEY, |busy| Cell::text(top_keys::truncated(busy.key));
            "working", "working", Number, WORKING, |busy| busy.working;
            "waiting", "waiting", Number marked(Caution), WAITING, |busy| busy.waiting;
            "oldest", "oldest", Seconds, "Age of the oldest lock or wait.", |busy| now.since(busy.since);
        );
        let busiest = busiest.help("Sorted by load in powers of two, then by name.");
        Table { note, ..busiest.empty("No client holds or waits for a lock.") }
    }

    /// Returns the table of the hottest of some keys.
    pub(super) fn hottest(&self, include: impl Fn(&[u8]) -> bool, now: Time) -> Table {
        let hottest = self.state.hottest(usize::MAX, now).into_iter().filter(|hot| include(hot.key)).take(MOST_ROWS);
        let error = self.state.top_keys.error(now);
        let note = (error > 0).then(|| format!("The real counts of a key may be higher by up to {error}."));
        let hottest = table!(TopKey<'_>, "hottest", "Hottest keys of the last hour", hottest;
            "key", "key", Name to(KEYS), KEY, |hot| Cell::text(hot.key);
            "refuse_rate", "refused/min", Number marked(Alarm),
                "Requests refused in a minute, as in the last ten seconds.",
                |hot| (self.refusals.rate_of(hot.key) * 60.0).round() as u64;
            "refusals", "refused lately", Number,
                "Requests refused in about the last hour: QUEUE_FULL and TIMEOUT. An event of 30 minutes ago counts half.",
                |hot| hot.refusals;
            "waits", "waited lately", Number, "Requests that had to wait in about the last hour.", |hot| hot.waits;
        );
        Table { note, ..hottest.empty("No request was refused or had to wait.") }
    }
}

/// Returns the cell with the name that the client of a claim gave.
pub(super) fn who_of(claim: &ClaimInfo<'_>) -> Cell {
    if claim.who.is_empty() { Cell::Nothing } else { Cell::text(claim.who) }
}

/// Returns the table of these ceilings.
pub(super) fn ceilings_table<'a>(ceilings: impl IntoIterator<Item = &'a CeilingInUse>) -> Table {
    let number = |number: u32| (number < u32::MAX).then_some(number);
    let time = |span| (span < Span::FOREVER).then_some(span);
    table!(&CeilingInUse, "ceilings", "Ceilings", ceilings;
        "key", "keys", Name to(KEYS) label("pattern"), "Pattern of the keys.", |of| Cell::text(&of.ceiling.pattern);
        "workers", "workers", Number, "Locks of a key at a time.", |of| number(of.ceiling.workers);
        "max_queue", "max_queue", Number, "Locks and waits of a key at a time.", |of| number(of.ceiling.max_queue);
        "timeout", "timeout", Seconds, "Longest wait of a request.", |of| time(of.ceiling.timeout);
        "hold", "hold", Seconds, "Longest time for which a lock is held.", |of| time(of.ceiling.hold);
        "shed_after", "sheds after", Seconds, "Wait of the oldest waiter from which on requests are refused.",
            |of| of.ceiling.shedding.and_then(|shedding| time(shedding.after));
        "lowered", "lowered", Number counts("ceiling_lowered") marked(Caution),
            "Requests lowered because they asked for more than their ceiling allows.", |of| of.lowered;
        "shed", "shed", Number counts("ceiling_shed") marked(Alarm),
            "Requests refused because the oldest waiter had waited for too long.", |of| of.shed;
        "would_shed", "would shed", Number counts("ceiling_would_shed") marked(Caution),
            "Requests that would have been shed without shed_shadow.", |of| of.would_shed;
    )
    .help("Upper limits of requests. Requests lowered to them, and requests shed, are counted since the last start or upgrade.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_service::container::tests::{Numbered, report_after_lines};

    fn at(seconds: u64) -> Time {
        Time::START + Span::from_secs(seconds)
    }

    /// Sends each line on a connection and at a second of its own, and returns a report some time afterwards.
    fn report_after(lines: &[&str], seconds: u64) -> Report {
        let traffic = Traffic { connect_errors: 7.into(), ..Traffic::default() };
        let lines = lines.iter().enumerate().map(|(n, line)| (at(n as u64), n, line.to_string()));
        report_after_lines(&crate::INFO, lines, at(seconds), &traffic, &Numbered)
    }

    #[test]
    fn report_lists_holders_of_each_pool() {
        let report = report_after(
            &[
                "ACQ4ME a:1 1 9 9\n",
                "ACQ4ME b:2 1 2 9 who=web1:7\n",
                "ACQ4ANY b:2 1 2 9\n",
                "ACQ4ME b:2 1 2 9\n",
                "ACQ4ME a:1 1 9 0\n",
                "ACQ4ME a:3 1 9 0\nRELEASE\n",
            ],
            10,
        );
        let figure = |name| report.figures.iter().find(|(row, _)| row.name == name).map(|(_, value)| *value);
        assert_eq!((figure("processing_workers"), figure("connect_errors")), (Some(2), Some(7)));
        report.tables.iter().for_each(Table::check);
        let name = |text: &str| Cell::text(text);
        let (number, age) = (Cell::Number, |s| Cell::time(Span::from_secs(s)));
        let names: Vec<&str> = report.tables.iter().map(|table| &*table.name).collect();
        assert_eq!(names, ["types", "busiest", "hottest", "holders", "ceilings"]);
        let rows = |table: usize| &report.tables[table].rows;
        let types: Vec<_> = rows(0).iter().map(|row| [&row[0], &row[1], &row[6]]).collect();
        assert_eq!(types, [[&name("a"), &number(2), &number(1)], [&name("b"), &number(1), &number(0)]]);
        let busiest = [("b:2", 1, 9), ("a:1", 0, 10)];
        let busiest = busiest.map(|(key, waiting, s)| vec![name(key), number(1), number(waiting), age(s)]);
        assert_eq!(*rows(1), busiest);
        let hottest = [("b:2", 1, 1), ("a:1", 1, 0)];
        let row = |(key, refusals, waits)| vec![name(key), number(0), number(refusals), number(waits)];
        assert_eq!(*rows(2), hottest.map(row), "nothing is over yet");
        assert_eq!(report.tables[2].note, None);
        let holders = [("a:1", 0, Cell::Nothing, 10), ("b:2", 1, name("web1:7"), 9)];
        let peer = |n| Cell::client(ConnId::from_index(n), &Numbered);
        let holders = holders.map(|(key, n, who, s)| vec![name(key), peer(n), who, age(s)]);
        assert_eq!(*rows(3), holders);
    }

    #[test]
    fn report_has_a_bound() {
        let lines: Vec<String> = (0..100).map(|n| format!("ACQ4ME {n}{} 1 9 0\n", "k".repeat(2_000))).collect();
        let report = report_after(&lines.iter().map(String::as_str).collect::<Vec<_>>(), 100);
        for table in [1, 3] {
            let rows = &report.tables[table].rows;
            assert_eq!(rows.len(), MOST_ROWS);
            assert!(rows.iter().all(|row| matches!(&row[0], Cell::Text(key) if key.len() == 203)));
        }
        let age = |row: &Vec<Cell>| if let Cell::Seconds(age) = row[3] { age } else { 0.0 };
        assert!(report.tables[3].rows.iter().map(age).is_sorted_by(|one, next| one > next));
    }
}
