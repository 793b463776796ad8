//! Daemons whose pages are shown as one. Each view asks each daemon once, and waits until all have answered or time is
//! over: a daemon without an answer is left out of the view, and the table of the servers says why.
//!
//! A view has a thread that waits for the threads with its questions and merges the answers, so the loop gets only
//! finished views.

mod fetch;

use super::resource::Resource;
use super::{HttpSettings, INFO, PendingPage};
use fetch::Told;
use poolcounter_service::contract::Wake;
use poolcounter_service::operations::PendingOperations;
use poolcounter_service::report::{Cell, Snapshot, Table, table};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Limit of views under way: enough for a few viewers, and a bound of threads and memory.
const MOST_VIEWS: usize = 16;

/// Daemons whose pages are shown as one, and the views that wait for them.
pub(crate) struct Fleet {
    /// The daemons, and the services that are shown.
    settings: HttpSettings,
    /// Pages that wait for their view.
    pub waiting: PendingOperations<PendingPage>,
    finished: (Sender<FinishedView>, Receiver<FinishedView>),
}

/// Number of a view, and its content; None if no daemon knows the thing, or the view has failed.
type FinishedView = (u64, Option<Snapshot>);

impl Fleet {
    /// Returns the fleet of the daemons in these settings.
    pub fn of(settings: HttpSettings) -> Fleet {
        Fleet { settings, waiting: PendingOperations::default(), finished: channel() }
    }

    /// Asks all daemons for the content of a page, to be added to `own`, and calls `wake` once the view is finished.
    /// Returns the page if there are too many views, or the system has no thread left.
    pub fn ask(&mut self, page: PendingPage, own: Snapshot, wake: &Wake) -> Option<PendingPage> {
        let Some(target) = page.target.clone().filter(|_| self.waiting.count() < MOST_VIEWS) else { return Some(page) };
        let (settings, finished, wake) = (self.settings.clone(), self.finished.0.clone(), wake.clone());
        let is_view = matches!(page.resource, Resource::View(..));
        let number = self.waiting.begin(page.conn, page);
        let spawned = fetch::spawn(move || {
            let merged = || shown(own, &settings.servers, fetch::ask_all(&settings, &target), is_view);
            // A fault in a view gives its place back, too.
            let content = catch_unwind(AssertUnwindSafe(merged)).unwrap_or_default();
            // The fleet may have ended meanwhile.
            _ = finished.send((number, content));
            wake.wake();
        });
        spawned.err().and_then(|_| self.waiting.end(number)).map(|(_, page)| page)
    }

    /// Returns the pages of finished views, each with its content; None if no daemon knows the thing, or the view
    /// has failed. Pages whose connection is closed are left out.
    pub fn take_finished(&mut self) -> Vec<(PendingPage, Option<Snapshot>)> {
        // A view finishes once, so there are at most as many as views under way.
        let finished = self.finished.1.try_iter().filter_map(|(number, content)| {
            let (conn, page) = self.waiting.end(number)?;
            conn.map(|_| (page, content))
        });
        finished.collect()
    }
}

/// Returns `own` with the answers of the daemons; None if all of them have answered that they do not know the thing.
fn shown(mut own: Snapshot, servers: &[String], answers: Vec<Told>, is_view: bool) -> Option<Snapshot> {
    if answers.iter().all(|answer| matches!(answer, Ok(None))) {
        return None;
    }
    let table = servers_table(servers.iter().zip(&answers));
    own.services.iter_mut().filter(|own| own.name == INFO.name).for_each(|own| own.tables = vec![table.clone()]);
    let told = servers.iter().zip(answers).filter_map(|(server, answer)| Some((server, answer.ok()??)));
    told.enumerate().for_each(|(earlier, (server, told))| own.add(server, earlier, told));
    if is_view && own.title.is_none() {
        own.title = Some("No server that answers has such an entry.".into());
    }
    Some(own)
}

fn servers_table<'a>(servers: impl Iterator<Item = (&'a String, &'a Told)>) -> Table {
    let rows = servers.map(|(server, answer)| (server, answer, answer.iter().flatten().next()));
    let clients = |told: &Snapshot| told.services.iter().map(|it| it.traffic.open).fold(0, u64::saturating_add);
    table!((&String, &Told, Option<&Snapshot>), "servers", "Servers", rows;
        "server", "server", Name to("http://"), "Link to the server's own page.", |(server, ..)| Cell::text(server);
        "state", "state", Text, "Answers, or the reason why there is no answer.",
            |(_, answer, _)| Cell::text(answer.as_ref().err().map_or("answers", String::as_str));
        "up", "up", Seconds, "Time since its start.", |(.., told)| told.map(|told| Cell::Seconds(told.uptime));
        "clients", "clients", Number, "Connections to the services of this page.", |(.., told)| told.map(clients);
        "memory", "memory", Bytes, "Resident memory of the server.",
            |(.., told)| told.map(|told| told.process.resident_bytes);
        "version", "version", Text, "Its version.", |(.., told)| told.map(|told| Cell::text(&*told.version));
    )
    .help("A server that does not answer within a second is left out of all sums and tables.")
    .empty("No servers.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Extent;
    use crate::snapshots::tests::{of_overview, overview};
    use crate::wire::{AfterResponse, Method};
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_service::report::LoopStats;
    use poolcounter_service::report::room::{MOST_ROWS, Room};
    use poolcounter_service::report::snapshot::Remembered;

    fn page(conn: usize) -> PendingPage {
        PendingPage {
            conn: ConnId::from_index(conn),
            resource: Resource::Json,
            service: None,
            target: Some("/status.json".into()),
            extent: Extent { range: None, rows: MOST_ROWS },
            is_local: false,
            method: Method::Get,
            connection: AfterResponse::Stays,
        }
    }

    fn snapshot() -> Snapshot {
        let overview = overview(2, |n| format!("kind{n}").into_bytes());
        let room = Room { rows: MOST_ROWS, bytes: usize::MAX };
        Snapshot::of(&of_overview(overview, &LoopStats::default()), room, &Remembered::NOTHING)
    }

    /// Returns a view of a page about one thing, for which two daemons tell this.
    fn view(told: [Told; 2]) -> Option<Snapshot> {
        shown(snapshot(), &["a".into(), "b".into()], told.into(), true)
    }

    #[test]
    fn silent_daemon_is_left_out() {
        let told = || Ok(Some(Snapshot { services: Vec::new(), ..snapshot() }));
        let states = |view: &Snapshot| -> Vec<Vec<Cell>> {
            let own = view.services.iter().find(|service| service.name == INFO.name).expect("is shown");
            own.tables[0].check();
            own.tables[0].rows.iter().map(|row| row[..2].to_vec()).collect()
        };
        let row = |cells: [&str; 2]| cells.map(Cell::text).to_vec();
        let both = view([told(), told()]).expect("is known");
        assert_eq!(states(&both), [["a", "answers"], ["b", "answers"]].map(row));
        let one = view([told(), Err("gone".into())]).expect("is known");
        assert_eq!(states(&one), [["a", "answers"], ["b", "gone"]].map(row));
    }

    #[test]
    fn things_that_no_daemon_knows_are_not_found() {
        assert!(view([Ok(None), Ok(None)]).is_none());
        let view = view([Ok(None), Err("gone".into())]).expect("one has not said so");
        assert_eq!(view.title.as_deref(), Some("No server that answers has such an entry."));
    }

    #[test]
    fn views_under_way_are_limited() {
        let (woken, wakes) = channel();
        let wake = Wake::new(move || woken.send(()).expect("the test waits"));
        let mut fleet = Fleet::of(HttpSettings { servers: vec!["[::1]".into()], ..HttpSettings::default() });
        for conn in 0..MOST_VIEWS {
            assert!(fleet.ask(page(conn), snapshot(), &wake).is_none(), "{conn}");
        }
        fleet.waiting.forget(ConnId::from_index(3));
        assert!(fleet.ask(page(99), snapshot(), &wake).is_some(), "a thread is at work for the one that is gone");
        wakes.iter().take(MOST_VIEWS).for_each(drop);
        let mut conns: Vec<_> = fleet.take_finished().into_iter().map(|(page, _)| page.conn.index()).collect();
        conns.sort_unstable();
        assert_eq!(conns, (0..MOST_VIEWS).filter(|conn| *conn != 3).collect::<Vec<_>>());
        assert!(fleet.waiting.count() == 0);
    }
}
