//! Table of the connections, and of the jobs that those held that are gone.

use super::super::ids::TubeId;
use super::super::job::JobId;
use super::super::tally::Rates;
use super::super::watches::Watches;
use super::{Conn, Held};
use poolcounter_core::count::{Count, first_before};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::wheel::TimerId;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// Every connection, and what those held that are gone.
pub(in crate::state) struct Conns {
    all: Vec<Option<Box<Conn>>>,
    last_serial: u32,
    /// Number of those that have put a job, and of those that have reserved one.
    roles: (usize, usize),
    /// Jobs that connections held that are gone, by their serials.
    orphans: BTreeMap<u32, Orphans>,
}

/// Jobs that a connection held that is gone.
struct Orphans {
    held: Held,
    /// True when the connection had said who it was.
    is_identified: bool,
}

impl Default for Conns {
    fn default() -> Self {
        // Lossless: it is below the largest value.
        Conns {
            all: Vec::new(),
            last_serial: first_before(u32::MAX.into()) as u32,
            roles: (0, 0),
            orphans: BTreeMap::new(),
        }
    }
}

impl Conns {
    /// Returns a connection, if it has begun and is not gone.
    pub fn get(&self, id: ConnId) -> Option<&Conn> {
        self.all.get(id.index())?.as_deref()
    }

    /// Returns the same to be changed.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.all.get_mut(id.index())?.as_deref_mut()
    }

    /// Returns every connection.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        let conns = self.all.iter().enumerate();
        conns.filter_map(|(index, conn)| Some((ConnId::from_index(index), conn.as_deref()?)))
    }

    /// Returns the connections in so many places at most from this one on, and the place of those behind them.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = (ConnId, &Conn)>, Option<usize>) {
        let end = first.saturating_add(most);
        let conns = self.all.iter().enumerate().take(end).skip(first);
        let conns = conns.filter_map(|(index, conn)| Some((ConnId::from_index(index), conn.as_deref()?)));
        (conns, (end < self.all.len()).then_some(end))
    }

    /// Returns how many places the table has.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a connection that holds nothing.
    pub fn insert(&mut self, id: ConnId, used: TubeId, watches: Watches) -> &mut Conn {
        if self.all.len() <= id.index() {
            self.all.resize_with(id.index() + 1, || None);
        }
        self.last_serial = self.last_serial.wrapping_add(1);
        self.all[id.index()].insert(Box::new(Conn {
            serial: self.last_serial,
            used,
            watches,
            set: None,
            held: Held::new(),
            wait: None,
            timer: None,
            sweep: None,
            name: Box::default(),
            is_producer: false,
            is_worker: false,
            rates: Rates::default(),
            failures: Count::default(),
        }))
    }

    /// Removes a connection that has begun.
    pub fn remove(&mut self, id: ConnId) -> Box<Conn> {
        let conn = self.all[id.index()].take().expect("only a connection that has begun is removed");
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        self.roles.0 -= usize::from(conn.is_producer);
        self.roles.1 -= usize::from(conn.is_worker);
        conn
    }

    /// Notes that a connection has put a job.
    pub fn note_producer(&mut self, id: ConnId) {
        self.roles.0 += usize::from(!std::mem::replace(&mut self[id].is_producer, true));
    }

    /// Notes that a connection has reserved a job.
    pub fn note_worker(&mut self, id: ConnId) {
        self.roles.1 += usize::from(!std::mem::replace(&mut self[id].is_worker, true));
    }

    /// Returns the number of connections that have put a job, and of those that have reserved one.
    pub fn producers_and_workers(&self) -> (usize, usize) {
        self.roles
    }

    /// Takes the jobs of a connection that is about to be removed. Returns whether there are any.
    pub fn orphan(&mut self, id: ConnId) -> bool {
        let conn = &mut self[id];
        let (serial, is_identified, held) = (conn.serial, conn.is_identified(), std::mem::take(&mut conn.held));
        let has_some = !held.is_empty();
        if has_some {
            self.orphans.insert(serial, Orphans { held, is_identified });
        }
        has_some
    }

    /// Returns whether connections that are gone held jobs which were not given back yet.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Returns the job that is given back next, of the connection that has been gone for longest.
    pub(super) fn next_orphan(&mut self) -> Option<JobId> {
        while let Some(first) = self.orphans.first_entry() {
            match first.get().held.first_key_value() {
                Some(((_, job), _)) => return Some(*job),
                None => drop(first.remove()),
            }
        }
        None
    }

    /// Returns the jobs that this connection holds, or held if it is gone.
    pub fn held(&self, id: ConnId, serial: u32) -> Option<&Held> {
        let orphaned = self.orphans.get(&serial).map(|orphans| &orphans.held);
        orphaned.or_else(|| self.get(id).filter(|conn| conn.serial == serial).map(|conn| &conn.held))
    }

    /// Returns the same to be changed.
    pub fn held_of(&mut self, (id, serial): (ConnId, u32)) -> &mut Held {
        match self.all.get_mut(id.index()) {
            Some(Some(conn)) if conn.serial == serial && !self.orphans.contains_key(&serial) => &mut conn.held,
            _ => &mut self.orphans.get_mut(&serial).expect("what is reserved is held by somebody, or was").held,
        }
    }

    /// Returns whether a holder of jobs has said who it is, or had before it was gone.
    pub fn is_identified(&self, (id, serial): (ConnId, u32)) -> bool {
        match self.orphans.get(&serial) {
            Some(orphans) => orphans.is_identified,
            None => self.get(id).is_some_and(|conn| conn.serial == serial && conn.is_identified()),
        }
    }

    /// Returns everything that connections hold, or held if they are gone.
    pub fn all_held(&self) -> impl Iterator<Item = &Held> {
        self.iter().map(|(_, conn)| &conn.held).chain(self.orphans.values().map(|orphans| &orphans.held))
    }

    /// Returns the timers of connections, which are taken out.
    pub fn take_timers(&mut self) -> impl Iterator<Item = TimerId> {
        self.all.iter_mut().flatten().filter_map(|conn| conn.timer.take())
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        assert!(self.all.last().is_none_or(Option::is_some), "the table ends with a connection");
        let number = |has: fn(&Conn) -> bool| self.iter().filter(|(_, conn)| has(conn)).count();
        let roles = (number(|conn| conn.is_producer), number(|conn| conn.is_worker));
        assert_eq!(self.roles, roles, "producers and workers");
        for (_, conn) in self.iter() {
            assert!(!self.orphans.contains_key(&conn.serial), "a connection that is there holds its own jobs");
            assert!(conn.held.is_empty() || conn.timer.is_some(), "a TTR has no timer");
            let is_timed = conn.wait.is_none_or(|wait| wait.until.is_none() || conn.timer.is_some());
            assert!(is_timed, "a wait has no timer");
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
