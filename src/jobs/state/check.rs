//! Every table compared with every other.

use super::State;
use super::background::Task;
use super::job::{Job, JobKey, JobPlacement, URGENT};
use super::sets::{Entry, SetId};
use super::settings::gates_of;
use super::sweeps::ALL_STATES;
use super::tube::{BucketId, Cover, Rank, TubeId};
use poolcounter_core::id::{ConnId, Id};

impl State {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.check_jobs();
        self.check_tubes();
        self.check_limits();
        self.check_sets();
        self.check_conns();
        self.check_commits();
        self.roots.check();
        self.settings.check();
    }

    fn check_jobs(&self) {
        let jobs = || self.jobs.iter();
        let of = |place: JobPlacement| jobs().filter(move |(_, job)| job.place == place).count() as u64;
        self.jobs.check();
        for (state, place) in ALL_STATES.into_iter().zip([
            JobPlacement::Ready,
            JobPlacement::Reserved,
            JobPlacement::Delayed,
            JobPlacement::Buried,
        ]) {
            assert_eq!(self.count_in(state), of(place), "{} jobs", state.word());
        }
        let is_urgent = |(_, job): &(JobKey, &Job)| job.place == JobPlacement::Ready && job.pri < URGENT;
        assert_eq!(self.tubes.urgent(), jobs().filter(is_urgent).count() as u64, "urgent jobs");
        for (key, job) in jobs() {
            assert!(job.id.0 < self.next_id, "a number would be given out twice");
            self.check_place(key, job);
        }
    }

    fn check_place(&self, key: JobKey, job: &Job) {
        let tube = &self.tubes[job.tube];
        assert!(tube.hidden.is_none(), "a hidden tube has a job");
        match job.place {
            JobPlacement::Pending => {}
            JobPlacement::Ready => {
                let bucket = job.group().map_or(tube.main, |group| tube.by_group[&group]);
                let rank = Rank::new(job.pri, job.id);
                assert!(self.tubes[bucket].ready.contains(&rank), "a ready job is in no bucket");
            }
            JobPlacement::Delayed => {
                assert!(tube.delayed.contains(&(job.at, job.id)), "a delayed job is not in its tube");
            }
            JobPlacement::Reserved => {
                let (conn, serial) = job.holder();
                let is_held = self.conns.held(conn, serial).is_some_and(|held| held.contains_key(&(job.at, job.id)));
                assert!(is_held, "a reserved job is not with its holder");
            }
            JobPlacement::Buried => {
                assert!(tube.buried.iter(&self.jobs).any(|buried| buried == key), "a buried job is lost");
            }
        }
    }

    fn check_tubes(&self) {
        self.tubes.check();
        for (id, tube) in self.tubes.iter() {
            let own =
                |place: JobPlacement| self.jobs.iter().filter(|(_, job)| job.tube == id && job.place == place).count();
            assert_eq!(tube.waiting.iter(&self.jobs).count(), own(JobPlacement::Ready), "ready jobs of a tube");
            assert_eq!(tube.waiting.len() as usize, own(JobPlacement::Ready), "ready jobs of a tube are counted");
            assert_eq!(tube.buried.len() as usize, own(JobPlacement::Buried), "buried jobs of a tube");
            assert_eq!(tube.delayed.len(), own(JobPlacement::Delayed), "delayed jobs of a tube");
            assert_eq!(tube.reserved as usize, own(JobPlacement::Reserved), "reserved jobs of a tube");
            assert_eq!(tube.pending as usize, own(JobPlacement::Pending), "pending jobs of a tube");
            let since: Vec<_> = tube.waiting.iter(&self.jobs).map(|key| self.jobs[key].at).collect();
            assert!(since.is_sorted(), "ready jobs are in the order in which they became so");
            assert_eq!(tube.ready_since, since.first().map(|at| super::sums::age_of(*at)), "the age of a tube");
            if self.background.has_no_sweeps() {
                assert_eq!(tube.paused, self.settings.pause_of(&tube.name), "a tube knows of its pause");
            }
            let conns = || self.conns.iter().map(|(_, conn)| conn);
            assert_eq!(tube.using as usize, conns().filter(|conn| conn.used == id).count(), "who uses a tube");
            let watches = |conn: &super::conns::Conn| conn.watches.iter().any(|watch| watch.pattern == tube.name);
            assert_eq!(tube.watching as usize, conns().filter(|conn| watches(conn)).count(), "who watches a tube");
        }
        let may_forget = self.tubes.first_hidden().is_some() || self.roots.len() > 0;
        assert!(!may_forget || self.background.will_forget(), "what is to be forgotten has a timer");
    }

    fn check_limits(&self) {
        let limits = &self.limits;
        limits.check();
        for (index, group) in &limits.groups {
            let own = |job: &Job| job.group().is_some_and(|group| group.index() == index);
            let count = |place: Option<JobPlacement>| {
                self.jobs.iter().filter(|(_, job)| own(job) && place.is_none_or(|place| job.place == place)).count()
            };
            assert_eq!(group.jobs as usize, count(None), "jobs of a group");
            let gate = &limits.gates[group.gate.index()];
            assert_eq!(gate.reserved as usize, count(Some(JobPlacement::Reserved)), "reserved jobs of a group");
            if self.background.has_no_sweeps() {
                assert_eq!(gate.limit, limits.limit_of_group(&group.name), "the limit of a group");
            }
        }
        for (gate, pattern) in gates_of(&limits.of_tubes) {
            let counts = |tube: &super::tube::Tube| tube.counted.contains(&gate);
            let reserved: u32 = self.tubes.iter().filter(|(_, tube)| counts(tube)).map(|(_, tube)| tube.reserved).sum();
            assert_eq!(limits.gates[gate.index()].reserved, reserved, "reserved jobs of a limit");
            if self.background.has_no_sweeps() {
                let pattern = super::Pattern::parse(pattern).expect("only patterns are set");
                assert!(
                    self.tubes.iter().all(|(_, tube)| counts(tube) == pattern.matches(&tube.name)),
                    "who is counted"
                );
            }
        }
        if self.background.has_no_sweeps() {
            assert_eq!(limits.gates.len(), limits.groups.len() + gates_of(&limits.of_tubes).len(), "gates");
        }
        for (index, lane) in &limits.lanes {
            let buckets = self.tubes.iter().flat_map(|(_, tube)| tube.buckets());
            let own = buckets.filter(|bucket| self.tubes[*bucket].lane.index() == index);
            assert_eq!(lane.buckets as usize, own.count(), "buckets of a lane");
        }
    }

    fn check_sets(&self) {
        self.sets.check();
        for (id, set) in self.sets.iter() {
            let conns = self.conns.iter().filter(|(_, conn)| conn.set == Some(id));
            assert_eq!(set.conns as usize, conns.count(), "connections of a set");
            if self.sets.is_dropped(id) {
                continue;
            }
            set.check(|lane| self.limits.is_open(lane));
            let mut seen = 0;
            for (tube, bucket, cover) in self.seen_by(id) {
                let Some(shown) = self.tubes[bucket].shown else { continue };
                seen += 1;
                let entry = Entry::new(shown, cover.stamp, bucket);
                let entries = &set.lanes[&(cover.turn, self.tubes[bucket].lane)];
                assert!(entries.contains(&entry), "a set does not see what it covers");
                assert!(super::Pattern::parse(&set.watches[usize::from(cover.turn)].pattern).is_some(), "{tube:?}");
            }
            let entries: usize = set.lanes.values().map(std::collections::BTreeSet::len).sum();
            assert_eq!(entries, seen, "a set sees what it does not cover");
            let is_pending = self.sets.awake().contains(&id);
            assert!(
                set.waiting.is_empty() || set.front().is_none() || is_pending || self.is_shut,
                "somebody waits for a job that is there"
            );
        }
        let is_served_later = !self.sets.awake().is_empty() || self.sets.is_dropping();
        assert!(!is_served_later || self.background.has(Task::Serve), "those who wait are served later");
        for (id, tube) in self.tubes.iter() {
            for (set, _) in self.sets.covering(&tube.name) {
                let knows = tube.covers.iter().filter(|cover| cover.set == set).count();
                let is_known = self.sets[set].built.is_known_to(id.index());
                assert_eq!(knows, usize::from(is_known), "{id:?} and the sets that cover it");
            }
        }
    }

    /// Returns the buckets of the tubes that a set covers.
    fn seen_by(&self, set: SetId) -> impl Iterator<Item = (TubeId, BucketId, Cover)> {
        let covered = self.tubes.iter().filter_map(move |(id, tube)| {
            let cover = tube.covers.iter().find(|cover| cover.set == set)?;
            Some((id, tube, *cover))
        });
        covered.flat_map(|(id, tube, cover)| tube.buckets().map(move |bucket| (id, bucket, cover)))
    }

    fn check_conns(&self) {
        self.conns.check();
        let mut waiting = 0;
        for (id, conn) in self.conns.iter() {
            for (_, job) in conn.held.keys() {
                assert!(self.held_by(id, *job).is_some(), "a connection has a job that is not its own");
            }
            if conn.wait.is_some() {
                waiting += 1;
                let set = conn.set.expect("a connection that waits has a set");
                assert!(self.sets.has_waiting(set, id), "a connection that waits is not in its set");
            }
        }
        assert_eq!(self.sets.waiting(), waiting, "connections that wait");
        let is_given_back = !self.conns.has_orphans() || self.background.has(Task::Orphans);
        assert!(is_given_back, "what connections held that are gone is given back");
        for (id, sweep) in self.background.sweeps() {
            assert!(self.background.has(Task::Sweep(id)), "a command goes on");
            let knows = |conn: ConnId| self.conns[conn].sweep == Some(id);
            assert!(sweep.conn.is_none_or(knows), "a command under way is not its connection's");
        }
    }
}
