//! Table of the connections, and of the jobs of connections that have ended.

use super::super::Step;
use super::super::ids::{SetId, TubeId};
use super::super::job::JobId;
use super::super::watches::Watches;
use super::{Conn, Held, HeldJob};
use poolcounter_core::count::first_before;
use poolcounter_core::{ConnId, Id, Metered as _, Time, TimerId};
use std::cmp::Ordering::{Greater, Less};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

/// Number of jobs of a lost connection that are sorted at the cost of one return: fewer than that would allow, because
/// the step that ends a connection visits its watches as well.
const SORTED_AT_ONCE: usize = super::super::background::COST as usize / 2;

/// Table of every connection, and of the jobs of connections that have ended.
pub(in crate::state) struct Conns {
    all: Vec<Slot>,
    /// Every connection that has not changed anything yet.
    idle: Conn,
    /// Number of idle connections.
    pub idle_count: usize,
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

/// Position of the table.
enum Slot {
    Free,
    /// A connection that uses and watches `default`, and has no data of its own.
    Idle,
    Used(Box<Conn>),
}

impl Slot {
    fn used_mut(&mut self) -> Option<&mut Conn> {
        if let Slot::Used(conn) = self { Some(conn) } else { None }
    }
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
            idle: Conn { watches: Watches::of_default(), ..Conn::default() },
            idle_count: 0,
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
        self.conn_in(self.all.get(id.index())?)
    }

    fn conn_in<'a>(&'a self, slot: &'a Slot) -> Option<&'a Conn> {
        match slot {
            Slot::Free => None,
            Slot::Idle => Some(&self.idle),
            Slot::Used(conn) => Some(conn),
        }
    }

    /// Returns a connection for changes.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        if self.is_idle(id) {
            self.idle_count -= 1;
            return Some(self.insert(id, self.idle.used, Watches::of_default()));
        }
        self.all.get_mut(id.index())?.used_mut()
    }

    /// Returns whether a connection has not changed anything yet.
    pub fn is_idle(&self, id: ConnId) -> bool {
        matches!(self.all.get(id.index()), Some(Slot::Idle))
    }

    /// Returns every connection.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        let conns = self.all.iter().enumerate();
        conns.filter_map(|(index, slot)| Some((ConnId::from_index(index), self.conn_in(slot)?)))
    }

    /// Returns the connections at the `most` positions from `first` on, and the next position.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = (ConnId, &Conn)>, Option<usize>) {
        let end = first.saturating_add(most);
        let conns = self.all.iter().enumerate().take(end).skip(first);
        let conns = conns.filter_map(|(index, slot)| Some((ConnId::from_index(index), self.conn_in(slot)?)));
        (conns, (end < self.all.len()).then_some(end))
    }

    /// Adds a connection that uses and watches the tube `default`.
    pub fn insert_idle(&mut self, id: ConnId, default: TubeId) {
        self.idle.used = default;
        self.idle_count += 1;
        *self.slot(id) = Slot::Idle;
    }

    /// Adds a connection without jobs.
    pub fn insert(&mut self, id: ConnId, used: TubeId, watches: Watches) -> &mut Conn {
        // The number 0 is that of idle connections.
        self.last_serial = self.last_serial.wrapping_add(1).max(1);
        self.loose.insert(id);
        self.watch_bytes += watches.bytes;
        let conn = Conn { serial: self.last_serial, used, watches, is_in_order: true, ..Conn::default() };
        let slot = self.slot(id);
        *slot = Slot::Used(Box::new(conn));
        slot.used_mut().expect("it was just added")
    }

    fn slot(&mut self, id: ConnId) -> &mut Slot {
        if self.all.len() <= id.index() {
            self.all.resize_with(id.index() + 1, || Slot::Free);
        }
        &mut self.all[id.index()]
    }

    /// Removes a connection, and returns its data; None if it was idle.
    pub fn remove(&mut self, id: ConnId) -> Option<Box<Conn>> {
        let slot = std::mem::replace(&mut self.all[id.index()], Slot::Free);
        while self.all.last().is_some_and(|slot| matches!(slot, Slot::Free)) {
            self.all.pop();
        }
        let Slot::Used(conn) = slot else {
            self.idle_count -= usize::from(matches!(slot, Slot::Idle));
            return None;
        };
        self.roles.0 -= usize::from(conn.is_producer);
        self.roles.1 -= usize::from(conn.is_worker);
        self.loose.remove(&id);
        self.watch_bytes -= conn.watches.bytes;
        Some(conn)
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
        if set.is_none() && self[id].set.is_none() {
            return None;
        }
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
            Some(Slot::Used(conn)) if conn.serial == serial && !self.orphans.contains_key(&serial) => &mut conn.held,
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
        self.all.iter_mut().filter_map(|slot| slot.used_mut()?.timer.take())
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert!(!matches!(self.all.last(), Some(Slot::Free)), "the table ends with a connection");
        let idle = self.all.iter().filter(|slot| matches!(slot, Slot::Idle)).count();
        assert_eq!(self.idle_count, idle, "idle connections are counted");
        let number = |has: fn(&Conn) -> bool| self.iter().filter(|(_, conn)| has(conn)).count();
        let roles = (number(|conn| conn.is_producer), number(|conn| conn.is_worker));
        assert_eq!(self.roles, roles, "producers and workers are counted");
        let used = || self.iter().filter(|(id, _)| !self.is_idle(*id));
        let loose = used().filter(|(_, conn)| conn.set.is_none()).map(|(id, _)| id);
        assert!(loose.eq(self.loose.iter().copied()), "a loose connection has no set");
        let watch_bytes: usize = used().map(|(_, conn)| conn.watches.bytes).sum();
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

    #[inline]
    fn index(&self, id: ConnId) -> &Conn {
        self.get(id).expect("a connection is opened before its first request")
    }
}

impl IndexMut<ConnId> for Conns {
    #[inline]
    fn index_mut(&mut self, id: ConnId) -> &mut Conn {
        self.get_mut(id).expect("a connection is opened before its first request")
    }
}
