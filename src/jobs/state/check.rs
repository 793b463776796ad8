//! Comparison of every table with every other.

use super::State;
use super::background::Task;
use super::ids::{FeedId, LaneId, TubeId};
use super::job::{Job, JobKey, JobPlacement, URGENT};
use super::sets::Turn;
use super::tube::Rank;
use poolcounter_core::{ConnId, Id, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Most comparisons of a pattern with a name in one check, which a rehearsal does beside a daemon that serves: clients
/// decide how many there would be of both. All else is compared in one pass.
const MOST_MATCHES: usize = 1 << 21;

/// Returns how often each key comes.
fn counted<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    keys.fold(BTreeMap::new(), |mut counts, key| {
        *counts.entry(key).or_default() += 1;
        counts
    })
}

/// Returns true if the budget allows as many more comparisons, and takes them from it.
fn may_match(budget: &mut usize, matches: usize) -> bool {
    let left = budget.checked_sub(matches);
    *budget = left.unwrap_or(*budget);
    left.is_some()
}

impl State {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        self.check_jobs();
        self.check_tubes();
        self.check_limits();
        self.check_sets();
        self.check_conns();
        self.check_commits();
        self.check_schedules();
        self.check_rates();
        self.background.check();
        self.roots.check();
        self.settings.check();
    }

    fn check_jobs(&self) {
        let jobs = || self.jobs.iter();
        self.jobs.check();
        let is_urgent = |(_, job): &(JobKey, &Job)| job.place == JobPlacement::Ready && job.pri < URGENT;
        let buried = jobs().filter(|(_, job)| job.place == JobPlacement::Buried);
        let buried: BTreeSet<_> = buried.map(|(_, job)| (job.buried_at(), job.id)).collect();
        let is_kept = self.bounds.bury_ttl != Span::FOREVER;
        assert_eq!(self.burials, if is_kept { buried } else { BTreeSet::new() }, "buried jobs by time");
        assert_eq!(self.tubes.urgent, jobs().filter(is_urgent).count() as u64, "urgent jobs");
        for (key, job) in jobs() {
            assert!(job.id.0 < self.next_id, "the next job has a new number");
            self.check_place(key, job);
        }
    }

    fn check_place(&self, key: JobKey, job: &Job) {
        let tube = &self.tubes[job.tube];
        assert!(tube.hidden.is_none(), "a hidden tube has no job");
        match job.place {
            // The tubes count these.
            JobPlacement::Pending | JobPlacement::Buried | JobPlacement::Nowhere => {}
            JobPlacement::Ready => {
                let group = self.jobs.group_of(key);
                let ready = group.map_or(&tube.ready, |group| &self.tubes[tube.by_group[&group]].ready);
                assert!(ready.contains(&Rank::new(job.pri, job.id)), "a ready job is in its bucket");
            }
            JobPlacement::Delayed => {
                assert!(tube.delayed.contains(&(job.at, job.id)), "a delayed job is in its tube");
            }
            JobPlacement::Reserved => {
                assert!(self.reservation_of(key).is_some(), "a reserved job is with its holder");
            }
        }
    }

    fn check_tubes(&self) {
        self.tubes.check();
        let by_place = counted(self.jobs.iter().map(|(_, job)| (job.tube, job.place)));
        let users = counted(self.conns.iter().map(|(_, conn)| conn.used));
        let watches = self.conns.iter().map(|(_, conn)| &conn.watches).chain(&self.background.left_watches);
        let watches = watches.flat_map(|watches| &watches.sorted);
        let watchers = counted(watches.filter_map(|watch| self.tubes.find(&watch.pattern)));
        for (id, tube) in self.tubes.iter() {
            let own = |place: JobPlacement| by_place.get(&(id, place)).copied().unwrap_or(0);
            let is_buried = |key: JobKey| self.jobs[key].place == JobPlacement::Buried && self.jobs[key].tube == id;
            assert!(tube.buried.iter(&self.jobs).all(is_buried), "buried jobs of a tube");
            let dead = tube.waiting.iter(&self.jobs).filter(|key| self.jobs.origin_of(*key).is_some());
            let dead: BTreeSet<_> = dead.map(|key| self.jobs[key].id).collect();
            assert_eq!(tube.dead, dead, "ready dead letters of a tube");
            assert_eq!(tube.buried.len as usize, own(JobPlacement::Buried), "buried jobs of a tube are counted");
            tube.delayed.check();
            assert_eq!(tube.delayed.len(), own(JobPlacement::Delayed), "delayed jobs of a tube");
            let delayed = tube.delayed.iter().filter_map(|(_, id)| self.jobs.find(*id));
            let retried = delayed.filter(|key| self.jobs.is_retried(*key)).count();
            assert_eq!(tube.retrying as usize, retried, "retried jobs of a tube are counted");
            assert_eq!(tube.reserved as usize, own(JobPlacement::Reserved), "reserved jobs of a tube");
            assert_eq!(tube.pending as usize, own(JobPlacement::Pending), "pending jobs of a tube");
            let since: Vec<_> = tube.waiting.iter(&self.jobs).map(|key| self.jobs[key].at).collect();
            assert!(since.is_sorted(), "ready jobs are in the order of their times");
            let ready = own(JobPlacement::Ready);
            assert_eq!([since.len(), tube.waiting.len as usize], [ready; 2], "ready jobs are linked, and counted");
            let age = tube.ready_since.filter(|_| self.tubes.lingering != Some(id));
            assert_eq!(age, since.first().map(|at| super::sums::age_of(*at)), "age of the first ready job");
            if self.background.has_no_sweeps() {
                assert_eq!(tube.paused, self.settings.pause_of(&tube.name), "a tube has the pause of its settings");
            }
            let of = |counts: &BTreeMap<TubeId, usize>| counts.get(&id).copied().unwrap_or(0);
            assert_eq!(tube.using as usize, of(&users), "connections that use a tube");
            assert_eq!(tube.watching as usize, of(&watchers), "connections that watch a tube");
        }
        let may_forget = self.tubes.first_hidden().is_some() || self.roots.len() > 0;
        assert!(
            !may_forget || self.background.forget.is_some() || self.background.has(Task::Forget),
            "root jobs and hidden tubes have a timer"
        );
    }

    fn check_limits(&self) {
        let limits = &self.limits;
        limits.check();
        let group_of = |key: JobKey| self.jobs.group_of(key).map(Id::index);
        let by_group = counted(self.jobs.iter().filter_map(|(key, _)| group_of(key)));
        let reserved = self.jobs.iter().filter(|(_, job)| job.place == JobPlacement::Reserved);
        let reserved = counted(reserved.filter_map(|(key, _)| group_of(key)));
        let delayed = self.jobs.iter().filter(|(_, job)| job.place == JobPlacement::Delayed && job.reserves.get() > 0);
        let retrying = counted(delayed.filter_map(|(key, _)| group_of(key)));
        for (index, group) in &limits.groups {
            let of = |counts: &BTreeMap<usize, usize>| counts.get(&index).copied().unwrap_or(0);
            assert_eq!(group.jobs as usize, of(&by_group), "jobs of a group");
            let gate = &limits.gates[group.gate.index()];
            assert_eq!(gate.reserved as usize, of(&reserved), "reserved jobs of a group");
            assert_eq!(gate.retrying as usize, of(&retrying), "jobs of a group that wait to be tried again");
            if self.background.has_no_sweeps() {
                let set = limits.gate_of_group(&group.name, &self.settings);
                assert_eq!((gate.limit, gate.is_ordered), (set.limit, set.is_ordered), "the limit of a group");
            }
        }
        let mut reserved = BTreeMap::new();
        for (_, tube) in self.tubes.iter() {
            tube.counted.iter().for_each(|gate| *reserved.entry(*gate).or_insert(0) += tube.reserved);
        }
        let mut budget = MOST_MATCHES;
        let shared = || limits.shared.iter().flatten();
        for (pattern, gate) in shared() {
            let counts = |tube: &super::tube::Tube| tube.counted.contains(gate);
            let of_gate = reserved.get(gate).copied().unwrap_or(0);
            assert_eq!(limits.gates[gate.index()].reserved, of_gate, "reserved jobs of a limit");
            if self.background.has_no_sweeps() && may_match(&mut budget, self.tubes.iter().count()) {
                let pattern = super::Pattern::parse(pattern).expect("only patterns are set");
                assert!(
                    self.tubes.iter().all(|(_, tube)| counts(tube) == pattern.matches(&tube.name)),
                    "a limit counts the tubes that its pattern matches"
                );
            }
        }
        if self.background.has_no_sweeps() {
            assert_eq!(limits.gates.len(), limits.groups.len() + shared().count(), "gates are counted");
        }
        let is_in_lane = |tube: &super::tube::Tube| {
            limits.lanes.get(tube.lane.index()).is_some_and(|lane| *tube.held == *lane.gates)
        };
        let in_lanes = self.tubes.iter().map(|(_, tube)| tube).filter(|tube| is_in_lane(tube));
        let in_lanes = counted(in_lanes.map(|tube| tube.lane.index()));
        for (index, lane) in &limits.lanes {
            assert_eq!(lane.tubes as usize, in_lanes.get(&index).copied().unwrap_or(0), "tubes of a lane");
        }
        for (id, gate) in &limits.gates {
            for (pri, since, bucket) in &gate.parked {
                assert_eq!(self.tubes[*bucket].parked, Some((*pri, *since)), "a parked bucket knows its position");
                assert!(gate.is_closed() || limits.opened.iter().any(|other| other.index() == id), "its gate holds it");
            }
        }
        let parked = self.tubes.iter().flat_map(|(_, tube)| tube.by_group.values());
        let parked = parked.filter(|bucket| self.tubes[**bucket].parked.is_some()).count();
        assert_eq!(parked, limits.gates.iter().map(|(_, gate)| gate.parked.len()).sum::<usize>(), "parked buckets");
    }

    fn check_sets(&self) {
        self.sets.check();
        self.feeds.check();
        let conns = counted(self.conns.iter().filter_map(|(_, conn)| conn.set));
        let giving: Vec<TubeId> =
            self.tubes.iter().map(|(tube, _)| tube).filter(|tube| self.has_some_to_give(*tube)).collect();
        let mut budget = MOST_MATCHES;
        for (id, set) in self.sets.iter() {
            assert_eq!(set.conns as usize, conns.get(&id).copied().unwrap_or(0), "connections of a set");
            let first = set.waiting.front().and_then(|conn| self.conns[conn].wait).map(|wait| wait.ticket);
            assert_eq!(set.watches.len(), set.turns.len(), "a watch has a turn");
            let is_registered = set.turns.iter().all(|turn| turn.ticket > 0);
            assert!(!set.is_registered || is_registered, "a registered set has a ticket at each feed");
            if let Some(giving) = &set.giving {
                let tubes = set.turns.iter().filter_map(|turn| self.feeds[turn.feed].tube);
                let own = tubes.filter_map(|tube| Some((self.tubes[tube].first?, tube)));
                assert_eq!(*giving, own.collect::<BTreeSet<_>>(), "a wide set has the tubes with a job to give");
            }
            for Turn { feed, ticket, .. } in &set.turns {
                let feed = &self.feeds[*feed];
                let is_watched = set.watches.binary_search_by(|watch| watch.pattern.cmp(&feed.pattern)).is_ok();
                assert!(is_watched && feed.sets.contains(&id), "a watch has its feed");
                assert_eq!(*ticket > 0, feed.waiters.contains(&(*ticket, id)), "a set has its ticket at the feed");
                assert!(first.is_none_or(|first| *ticket <= first), "a ticket is not behind the first connection");
                assert!(!set.is_built || feed.is_plain || feed.known == usize::MAX, "a feed knows all tubes");
            }
            if first.is_some() && self.sets.awake.of(id).is_none() && !self.is_shut && !self.has_news() {
                assert!(set.turns.iter().all(|turn| turn.ticket > 0), "a set waits for all its feeds");
                let is_watched = |tube: &TubeId| set.turns.iter().any(|turn| self.covers(turn.feed, *tube));
                let mut plain = set.turns.iter().filter_map(|turn| self.feeds[turn.feed].tube);
                assert!(!plain.any(|tube| self.has_some_to_give(tube)), "{id:?} waits for a job that is there");
                if may_match(&mut budget, giving.len() * set.turns.len()) {
                    let full = giving.iter().copied().find(is_watched);
                    assert_eq!(full, None, "{id:?} waits for a job that is there");
                }
            }
        }
        assert!(!self.has_news() || self.is_shut || self.background.has(Task::Serve), "news has a task");
        self.check_feeds();
    }

    fn check_feeds(&self) {
        self.sets.awake.check();
        self.feeds.fresh.check();
        self.limits.lanes.iter().for_each(|(_, lane)| lane.held.check());
        let mut budget = MOST_MATCHES;
        let tubes = self.tubes.iter().count();
        for (id, feed) in self.feeds.iter() {
            if feed.is_plain {
                assert_eq!(feed.tube, self.tubes.find(&feed.pattern), "the tube of a name");
                continue;
            }
            if !may_match(&mut budget, tubes) {
                continue;
            }
            let covered = self.tubes.iter().filter(|(tube, _)| self.covers(id, *tube)).map(|(tube, _)| tube);
            let known = covered.filter(|tube| tube.index() < feed.known);
            let own = known.filter_map(|tube| Some((self.tubes[tube].lane, self.tubes[tube].standing(tube)?)));
            let standings = feed.lanes.iter().flat_map(|(lane, list)| list.iter().map(|standing| (*lane, *standing)));
            assert!(own.collect::<BTreeSet<_>>().into_iter().eq(standings), "a feed has the tubes that it covers");
        }
        for (id, feed) in self.feeds.iter().filter(|(_, feed)| !feed.waiters.is_empty()) {
            let plain = feed.tube.filter(|tube| self.tubes[*tube].first.is_some()).map(|tube| self.tubes[tube].lane);
            let is_noted = |lane: &LaneId| {
                let held = &self.limits.lanes[lane.index()].held;
                self.limits.is_open(*lane) || held.of(id).is_some()
            };
            let waits = |ticket: u64, set: super::ids::SetId| {
                let first = self.sets[set].waiting.front().and_then(|conn| self.conns[conn].wait);
                first.is_some_and(|wait| wait.ticket >= ticket) && self.sets.awake.of(set).is_none()
            };
            let is_waited_for = || feed.waiters.iter().any(|(ticket, set)| waits(*ticket, *set));
            let held = |lane: &LaneId| self.limits.lanes[lane.index()].held.len();
            let matches = feed.lanes.keys().chain(&plain).map(held).sum();
            if !self.is_shut && !self.has_news() && may_match(&mut budget, matches) && is_waited_for() {
                assert!(feed.lanes.keys().chain(&plain).all(is_noted), "a limit knows of a feed that waits for it");
            }
        }
    }

    fn covers(&self, feed: FeedId, tube: TubeId) -> bool {
        let pattern = super::Pattern::parse(&self.feeds[feed].pattern).expect("only patterns are watched");
        pattern.matches(&self.tubes[tube].name)
    }

    /// Returns whether a tube has a job that neither a limit nor a pause holds back.
    fn has_some_to_give(&self, id: TubeId) -> bool {
        let tube = &self.tubes[id];
        let is_free = |group| !self.is_held_back(id, group);
        let has_free = !tube.ready.is_empty() && is_free(None);
        !tube.is_blocked() && (has_free || tube.by_group.keys().any(|group| is_free(Some(*group))))
    }

    fn check_conns(&self) {
        self.conns.check();
        let mut waiting = 0;
        for (id, conn) in self.conns.iter() {
            conn.held.check();
            for held in &conn.held {
                assert!(self.held_by(id, held.id).is_some(), "a connection holds only its own jobs");
            }
            waiting += u64::from(conn.wait.is_some());
        }
        for (id, set) in self.sets.iter() {
            let is_own = |conn: ConnId| self.conns[conn].set == Some(id) && self.conns[conn].wait.is_some();
            assert!(set.waiting.iter(&self.sets.links).all(is_own), "a waiting connection is in its set");
        }
        assert_eq!(self.sets.waiting, waiting, "waiting connections are counted");
        let is_given_back = !self.conns.has_orphans() || self.background.has(Task::Orphans);
        assert!(is_given_back, "a task returns the jobs of closed connections");
        let is_unwatched = self.background.left_watches.is_empty() || self.background.has(Task::Unwatch);
        assert!(is_unwatched, "a task removes the watches of closed connections");
        for (id, sweep) in self.background.sweeps() {
            assert!(self.background.has(Task::Sweep(id)), "a command under way has a task");
            let knows = |conn: ConnId| self.conns[conn].sweep == Some(id);
            assert!(sweep.conn.is_none_or(knows), "a command under way is known to its connection");
        }
    }
}
