//! Table of the connections, and of the jobs of connections that have ended.

use super::super::Step;
use super::super::ids::{SetId, TubeId};
use super::super::job::JobId;
use super::super::tally::Rates;
use super::super::watches::Watches;
use super::{Conn, Held, HeldJob};
use poolcounter_core::count::{Count, first_before};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::Time;
use poolcounter_core::wheel::TimerId;
use std::cmp::Ordering::{Greater, Less};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// Number of jobs of a lost connection that are sorted at the cost of one return: fewer than that would allow, because
/// the step that ends a connection visits its watches as well.
const SORTED_AT_ONCE: usize = super::super::background::COST as usize / 2;

/// Table of every connection, and of the jobs of connections that have ended.
pub(in crate::state) struct Conns {
    all: Vec<Option<Box<Conn>>>,
    last_serial: u32,
    /// Number of connections that have put a job, and of connections that have reserved one.
    pub roles: (usize, usize),
    /// Jobs of connections that have ended, by their serials.
    orphans: BTreeMap<u32, Orphans>,
    /// Connections without a set of watches.
    loose: BTreeSet<ConnId>,
    /// Bytes of the watches of connections.
    pub watch_bytes: usize,
}

/// Jobs of a connection that has ended.
struct Orphans {
    held: Held,
    /// True if they were reserved in the order of `held`. Otherwise they have to be put in order.
    is_in_order: bool,
    /// Jobs already sorted by reservation, and the last entry of `held` that has been sorted in.
    order: BTreeSet<(Time, JobId)>,
    ordered: Option<HeldJob>,
    /// True if the connection had identified itself.
    is_identified: bool,
    /// Its address, behind the name with which it had.
    runner: Box<str>,
}

impl Orphans {
    /// Returns the job that was reserved first, once all are in order; before that, puts a few more in order.
    fn next(&mut self) -> Option<JobId> {
        if self.is_in_order {
            return self.held.first().map(|held| held.id);
        }
        let last = self.ordered;
        let is_behind = |held: &HeldJob| if last.is_some_and(|last| *held <= last) { Less } else { Greater };
        let ordered = self.order.len();
        for held in self.held.range_by(is_behind).take(SORTED_AT_ONCE).metered() {
            self.order.insert((held.since, held.id));
            self.ordered = Some(*held);
        }
        if self.order.len() > ordered { None } else { self.order.pop_first().map(|(_, job)| job) }
    }
}

impl Default for Conns {
    fn default() -> Self {
        // Lossless: it is below the largest value.
        Conns {
            all: Vec::new(),
            last_serial: first_before(u32::MAX.into()) as u32,
            roles: (0, 0),
            orphans: BTreeMap::new(),
            loose: BTreeSet::new(),
            watch_bytes: 0,
        }
    }
}

impl Conns {
    /// Returns the number of positions in the table.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns a connection, if it was added and has not ended.
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.all.get(id.index())?.as_deref()
    }

    /// Returns a connection for changes.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.all.get_mut(id.index())?.as_deref_mut()
    }

    /// Returns every connection.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        let conns = self.all.iter().enumerate();
        conns.filter_map(|(index, conn)| Some((ConnId::from_index(index), conn.as_deref()?)))
    }

    /// Returns the connections at the `most` positions from `first` on, and the next position.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = (ConnId, &Conn)>, Option<usize>) {
        let end = first.saturating_add(most);
        let conns = self.all.iter().enumerate().take(end).skip(first);
        let conns = conns.filter_map(|(index, conn)| Some((ConnId::from_index(index), conn.as_deref()?)));
        (conns, (end < self.all.len()).then_some(end))
    }

    /// Adds a connection without jobs.
    pub fn insert(&mut self, id: ConnId, used: TubeId, watches: Watches) -> &mut Conn {
        if self.all.len() <= id.index() {
            self.all.resize_with(id.index() + 1, || None);
        }
        self.last_serial = self.last_serial.wrapping_add(1);
        self.loose.insert(id);
        self.watch_bytes += watches.bytes;
        self.all[id.index()].insert(Box::new(Conn {
            serial: self.last_serial,
            used,
            watches,
            set: None,
            held: Held::default(),
            wait: None,
            timer: None,
            last_reserved: Time::START,
            is_in_order: true,
            sweep: None,
            name: Box::default(),
            is_producer: false,
            is_worker: false,
            rates: Rates::default(),
            failures: Count::default(),
        }))
    }

    /// Removes a connection.
    pub fn remove(&mut self, id: ConnId) -> Box<Conn> {
        let conn = self.all[id.index()].take().expect("only a connection that has begun is removed");
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        self.roles.0 -= usize::from(conn.is_producer);
        self.roles.1 -= usize::from(conn.is_worker);
        self.loose.remove(&id);
        self.watch_bytes -= conn.watches.bytes;
        conn
    }

    /// Changes the watches of a connection.
    pub fn change_watches(&mut self, id: ConnId, change: impl FnOnce(&mut Watches)) {
        let watches = &mut self[id].watches;
        let before = watches.bytes;
        change(watches);
        let after = watches.bytes;
        self.watch_bytes = self.watch_bytes - before + after;
    }

    /// Gives a connection a set of watches, or takes it.
    pub fn set_set(&mut self, id: ConnId, set: Option<SetId>) -> Option<SetId> {
        let _ = if set.is_none() { self.loose.insert(id) } else { self.loose.remove(&id) };
        std::mem::replace(&mut self[id].set, set)
    }

    /// Returns the first connection from this place on that has no set of watches.
    pub fn next_loose(&self, first: usize) -> Option<ConnId> {
        self.loose.range(ConnId::from_index(first)..).next().copied()
    }

    /// Notes that a connection has put a job.
    pub fn note_producer(&mut self, id: ConnId) {
        self.roles.0 += usize::from(!std::mem::replace(&mut self[id].is_producer, true));
    }

    /// Notes that a connection has reserved a job.
    pub fn note_worker(&mut self, id: ConnId) {
        self.roles.1 += usize::from(!std::mem::replace(&mut self[id].is_worker, true));
    }

    /// Keeps the jobs of a connection that will be removed as orphans. Returns whether there are any.
    pub fn orphan(&mut self, id: ConnId, step: &Step<'_, '_>) -> bool {
        let conn = &mut self[id];
        let (serial, is_identified, is_in_order) = (conn.serial, conn.is_identified(), conn.is_in_order);
        let held = std::mem::take(&mut conn.held);
        let has_some = !held.is_empty();
        if has_some {
            let (order, ordered) = (BTreeSet::new(), None);
            let name = String::from_utf8_lossy(&conn.name);
            let runner = format!("{name} at {}", (step.peer)(id)).trim_start().into();
            self.orphans.insert(serial, Orphans { held, is_in_order, order, ordered, is_identified, runner });
        }
        has_some
    }

    /// Returns whether connections that have ended held jobs which are not given back yet.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Returns the next job to give back, of the connection that ended first; None while its jobs are being sorted, a
    /// few with each call.
    pub(super) fn next_orphan(&mut self) -> Option<JobId> {
        self.orphans.first_entry()?.get_mut().next()
    }

    /// Forgets the connection that has been gone for longest if it holds nothing any more.
    pub(super) fn forget_orphans(&mut self) {
        while let Some(first) = self.orphans.first_entry()
            && first.get().held.is_empty()
        {
            first.remove();
        }
    }

    /// Returns the jobs that a connection holds, or held before its end.
    pub fn held(&self, id: ConnId, serial: u32) -> Option<&Held> {
        let orphaned = self.orphans.get(&serial).map(|orphans| &orphans.held);
        orphaned.or_else(|| self.get(id).filter(|conn| conn.serial == serial).map(|conn| &conn.held))
    }

    /// Returns the same for changes.
    pub fn held_of(&mut self, (id, serial): (ConnId, u32)) -> &mut Held {
        match self.all.get_mut(id.index()) {
            Some(Some(conn)) if conn.serial == serial && !self.orphans.contains_key(&serial) => &mut conn.held,
            _ => &mut self.orphans.get_mut(&serial).expect("what is reserved is held by somebody, or was").held,
        }
    }

    /// Returns the address of a connection that has ended and held jobs, behind its name.
    pub fn lost_runner(&self, serial: u32) -> &str {
        self.orphans.get(&serial).map_or("", |orphans| &orphans.runner)
    }

    /// Returns whether a holder of jobs has identified itself, even if it has ended.
    pub fn is_identified(&self, (id, serial): (ConnId, u32)) -> bool {
        match self.orphans.get(&serial) {
            Some(orphans) => orphans.is_identified,
            None => self.get(id).is_some_and(|conn| conn.serial == serial && conn.is_identified()),
        }
    }

    /// Returns the jobs of all connections, including connections that have ended.
    pub fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.iter().map(|(_, conn)| &conn.held).chain(self.orphans.values().map(|orphans| &orphans.held))
    }

    /// Takes out and returns the timers of connections.
    pub fn take_timers(&mut self) -> impl Iterator<Item = TimerId> {
        self.all.iter_mut().flatten().filter_map(|conn| conn.timer.take())
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert!(self.all.last().is_none_or(Option::is_some), "the table ends with a connection");
        let number = |has: fn(&Conn) -> bool| self.iter().filter(|(_, conn)| has(conn)).count();
        let roles = (number(|conn| conn.is_producer), number(|conn| conn.is_worker));
        assert_eq!(self.roles, roles, "producers and workers are counted");
        let loose = self.iter().filter(|(_, conn)| conn.set.is_none()).map(|(id, _)| id);
        assert!(loose.eq(self.loose.iter().copied()), "a loose connection has no set");
        let watch_bytes: usize = self.iter().map(|(_, conn)| conn.watches.bytes).sum();
        assert_eq!(self.watch_bytes, watch_bytes, "bytes of watches are counted");
        for (_, conn) in self.iter() {
            assert!(!self.orphans.contains_key(&conn.serial), "a connection that is there holds its own jobs");
            assert!(conn.held.is_empty() || conn.timer.is_some(), "a held job has a timer");
            let is_timed = conn.wait.is_none_or(|wait| wait.until.is_none() || conn.timer.is_some());
            assert!(is_timed, "a wait has a timer");
        }
    }
}

impl Index<ConnId> for Conns {
    type Output = Conn;

    fn index(&self, id: ConnId) -> &Conn {
        self.get(id).expect("a connection is opened before its first request")
    }
}

impl IndexMut<ConnId> for Conns {
    fn index_mut(&mut self, id: ConnId) -> &mut Conn {
        self.get_mut(id).expect("a connection is opened before its first request")
    }
}
