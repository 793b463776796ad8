//! Every table compared with every other.

use super::State;
use super::job::{Job, JobKey, JobPlacement, URGENT};
use super::sets::Entry;
use super::settings::gates_of;
use super::tube::{Rank, TubeId};
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
        assert_eq!(self.settings.ends.len(), self.settings.pauses.iter().count(), "each pause has an end");
    }

    fn check_jobs(&self) {
        let jobs = || self.jobs.iter();
        let of = |place: JobPlacement| jobs().filter(move |(_, job)| job.place == place).count() as u64;
        assert_eq!(self.jobs.len(), jobs().count(), "the table of jobs counts them");
        assert_eq!(self.jobs.bytes(), jobs().map(|(_, job)| job.bytes()).sum::<usize>(), "their bytes are reckoned");
        assert_eq!(self.ready, of(JobPlacement::Ready), "ready jobs");
        assert_eq!(self.delayed, of(JobPlacement::Delayed), "delayed jobs");
        assert_eq!(self.buried, of(JobPlacement::Buried), "buried jobs");
        assert_eq!(self.reserved, of(JobPlacement::Reserved), "reserved jobs");
        let is_urgent = |(_, job): &(JobKey, &Job)| job.place == JobPlacement::Ready && job.pri < URGENT;
        assert_eq!(self.urgent, jobs().filter(is_urgent).count() as u64, "urgent jobs");
        assert_eq!(self.jobs.keys(), jobs().filter(|(_, job)| job.holds_key()).count(), "keys that are held");
        for (key, job) in jobs() {
            assert_eq!(self.jobs.find(job.id), Some(key), "a job is found by its number");
            assert!(job.is_placed && job.id.0 < self.next_id && job.ttr > 0, "a job is not as it should be");
            self.check_place(key, job);
            if job.holds_key() {
                let holder =
                    self.jobs.holder_of(job.tube, job.key(), |_| true).expect("a key that is held has a holder");
                assert!(self.jobs[holder].id <= job.id, "the lowest number holds the key");
            }
        }
    }

    fn check_place(&self, key: JobKey, job: &Job) {
        let tube = &self.tubes[job.tube.index()];
        assert!(tube.hidden.is_none(), "a hidden tube has a job");
        match job.place {
            JobPlacement::Pending => {}
            JobPlacement::Ready => {
                let bucket = job.group().map_or(tube.main, |group| tube.by_group[&group]);
                let rank = Rank::new(job.pri, job.id);
                assert!(self.buckets[bucket.index()].ready.contains(&rank), "a ready job is in no bucket");
            }
            JobPlacement::Delayed => {
                assert!(tube.delayed.contains(&(job.at, job.id)), "a delayed job is not in its tube");
            }
            JobPlacement::Reserved => {
                let (conn, serial) = job.holder();
                let conn = self.conns.get(conn.index()).and_then(Option::as_ref).filter(|conn| conn.serial == serial);
                let held = conn.map(|conn| &conn.held).or_else(|| self.orphans.get(&serial));
                let is_held = held.is_some_and(|held| held.contains_key(&(job.at, job.id)));
                assert!(is_held, "a reserved job is not with its holder");
            }
            JobPlacement::Buried => {
                assert!(tube.buried.iter(&self.jobs).any(|buried| buried == key), "a buried job is lost");
            }
        }
    }

    fn check_tubes(&self) {
        assert_eq!(self.tubes.len(), self.tube_names.len(), "each tube has a name");
        for (index, tube) in &self.tubes {
            let id = TubeId::from_index(index);
            assert_eq!(self.find_tube(&tube.name), Some(id), "a tube is found by its name");
            assert_eq!(tube.hidden.is_some(), tube.is_unused(), "a tube is hidden while it is unused");
            assert!(tube.hidden.is_none_or(|since| self.hidden.contains(&(since, id))), "a hidden tube is in the list");
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
            assert_eq!(tube.delay_timer.is_some(), !tube.delayed.is_empty(), "delays have a timer");
            self.check_buckets(id);
            if self.sweeps.is_empty() {
                assert_eq!(tube.paused, self.settings.pause_of(&tube.name), "a tube knows of its pause");
            }
            let conns = || self.conns.iter().flatten();
            assert_eq!(tube.using as usize, conns().filter(|conn| conn.used == id).count(), "who uses a tube");
            let watches = |conn: &super::Conn| conn.watches.iter().any(|watch| watch.pattern == tube.name);
            assert_eq!(tube.watching as usize, conns().filter(|conn| watches(conn)).count(), "who watches a tube");
        }
        for (index, sum) in &self.sums.all {
            let own = |tube: &&super::Tube| tube.sums.iter().any(|sum| sum.index() == index);
            let mut counts = [0; 4];
            for tube in self.tubes.iter().map(|(_, tube)| tube).filter(own) {
                counts.iter_mut().zip(super::queries::counts_of(tube)).for_each(|(sum, count)| *sum += count);
            }
            assert_eq!(sum.counts, counts, "the jobs of {}", sum.name.escape_ascii());
            let tubes = || {
                self.tubes.iter().filter(|(_, tube)| own(tube)).map(|(place, tube)| (TubeId::from_index(place), tube))
            };
            assert!(sum.tubes.iter().copied().eq(tubes().map(|(id, _)| id)), "the tubes of a sum");
            let ages = tubes().filter_map(|(id, tube)| Some((tube.ready_since?, id)));
            assert!(sum.ages.iter().copied().eq(ages.collect::<std::collections::BTreeSet<_>>()), "the ages of a sum");
        }
        self.sums.check();
        assert_eq!(self.hidden.len(), self.tubes.iter().filter(|(_, tube)| tube.hidden.is_some()).count());
        assert_eq!(
            self.forget_timer.is_some(),
            !self.hidden.is_empty() || self.roots.len() > 0 || self.forget_timer.is_some()
        );
    }

    fn check_buckets(&self, id: TubeId) {
        let tube = &self.tubes[id.index()];
        let mut shown = 0;
        for bucket in tube.by_group.values().chain([&tube.main]) {
            let bucket = &self.buckets[bucket.index()];
            assert_eq!(bucket.tube, id, "a bucket knows its tube");
            assert!(bucket.group.is_none() || !bucket.ready.is_empty(), "an empty bucket is left");
            let first = if tube.is_blocked() { None } else { bucket.ready.first().copied() };
            assert_eq!(bucket.shown, first, "the sets see the first job of a bucket that is not blocked");
            shown += u32::from(bucket.shown.is_some());
        }
        assert_eq!(tube.shown, shown, "buckets that are seen");
    }

    fn check_limits(&self) {
        let limits = &self.limits;
        for (index, group) in &limits.groups {
            let own = |job: &Job| job.group().is_some_and(|group| group.index() == index);
            let count = |place: Option<JobPlacement>| {
                self.jobs.iter().filter(|(_, job)| own(job) && place.is_none_or(|place| job.place == place)).count()
            };
            assert_eq!(group.jobs as usize, count(None), "jobs of a group");
            let gate = &limits.gates[group.gate.index()];
            assert_eq!(gate.reserved as usize, count(Some(JobPlacement::Reserved)), "reserved jobs of a group");
            if self.sweeps.is_empty() {
                assert_eq!(gate.limit, limits.limit_of_group(&group.name), "the limit of a group");
            }
        }
        for (gate, pattern) in gates_of(&limits.of_tubes) {
            let counts = |tube: &super::Tube| tube.counted.contains(&gate);
            let reserved: u32 = self.tubes.iter().filter(|(_, tube)| counts(tube)).map(|(_, tube)| tube.reserved).sum();
            assert_eq!(limits.gates[gate.index()].reserved, reserved, "reserved jobs of a limit");
            if self.sweeps.is_empty() {
                let pattern = super::Pattern::parse(pattern).expect("only patterns are set");
                assert!(
                    self.tubes.iter().all(|(_, tube)| counts(tube) == pattern.matches(&tube.name)),
                    "who is counted"
                );
            }
        }
        if self.sweeps.is_empty() {
            assert_eq!(limits.gates.len(), limits.groups.len() + gates_of(&limits.of_tubes).len(), "gates");
        }
        for (index, lane) in &limits.lanes {
            let closed = lane.gates.iter().filter(|gate| limits.gates[gate.index()].is_closed()).count();
            assert_eq!(lane.closed as usize, closed, "closed gates of a lane");
            let own = |bucket: &super::Bucket| bucket.lane.index() == index;
            assert_eq!(lane.buckets as usize, self.buckets.iter().filter(|(_, bucket)| own(bucket)).count(), "buckets");
        }
    }

    fn check_sets(&self) {
        for (index, set) in &self.sets {
            let conns = self.conns.iter().flatten().filter(|conn| conn.set.is_some_and(|set| set.index() == index));
            assert_eq!(set.conns as usize, conns.count(), "connections of a set");
            if self.dropped_sets.iter().any(|dropped| dropped.index() == index) {
                continue;
            }
            assert_eq!(set.conns == 0, self.idle_sets.iter().any(|idle| idle.index() == index), "idle sets");
            set.check(|lane| self.limits.is_open(lane));
            let mut seen = 0;
            for (tube, bucket, cover) in self.seen_by(index) {
                let Some(shown) = self.buckets[bucket].shown else { continue };
                seen += 1;
                let entry = Entry::new(shown, cover.stamp, super::tube::BucketId::from_index(bucket));
                let entries = &set.lanes[&(cover.turn, self.buckets[bucket].lane)];
                assert!(entries.contains(&entry), "a set does not see what it covers");
                assert!(super::Pattern::parse(&set.watches[usize::from(cover.turn)].pattern).is_some(), "{tube:?}");
            }
            let entries: usize = set.lanes.values().map(std::collections::BTreeSet::len).sum();
            assert_eq!(entries, seen, "a set sees what it does not cover");
            let is_pending = self.awake.iter().any(|awake| awake.index() == index);
            assert!(
                set.waiting.is_empty() || set.front().is_none() || is_pending || self.is_shut,
                "somebody waits for a job that is there"
            );
        }
        let is_served_later = !self.awake.is_empty() || !self.dropped_sets.is_empty();
        assert!(!is_served_later || self.serve_timer.is_some(), "those who wait are served later");
        for (index, tube) in &self.tubes {
            for (set, _) in self.watched.matching(&tube.name).flatten() {
                let knows = tube.covers.iter().filter(|cover| cover.set == *set).count();
                let is_known = self.sets[set.index()].built.is_known_to(index);
                assert_eq!(knows, usize::from(is_known), "tube {index} and the sets that cover it");
            }
        }
    }

    /// Returns the buckets of the tubes that a set covers.
    fn seen_by(&self, set: usize) -> impl Iterator<Item = (TubeId, usize, super::tube::Cover)> {
        let covered = self.tubes.iter().filter_map(move |(index, tube)| {
            let cover = tube.covers.iter().find(|cover| cover.set.index() == set)?;
            Some((TubeId::from_index(index), tube, *cover))
        });
        covered.flat_map(|(id, tube, cover)| {
            tube.by_group.values().chain([&tube.main]).map(move |bucket| (id, bucket.index(), cover))
        })
    }

    fn check_conns(&self) {
        let conns = self.conns.iter().enumerate().filter_map(|(index, conn)| Some((index, conn.as_ref()?)));
        let mut waiting = 0;
        for (index, conn) in conns {
            let id = ConnId::from_index(index);
            for (_, job) in conn.held.keys() {
                assert!(self.held_by(id, *job).is_some(), "a connection has a job that is not its own");
            }
            assert!(conn.held.is_empty() || conn.timer.is_some(), "a TTR has no timer");
            if let Some(wait) = conn.wait {
                waiting += 1;
                let set = &self.sets[conn.set.expect("a connection that waits has a set").index()];
                assert!(set.waiting.iter(&self.waiting_links).any(|other| other == id), "nobody knows who waits");
                assert!(wait.until.is_none() || conn.timer.is_some(), "a wait has no timer");
            }
        }
        assert_eq!(self.waiting, waiting, "connections that wait");
        let in_sets: u64 = self.sets.iter().map(|(_, set)| u64::from(set.waiting.len())).sum();
        assert_eq!(self.waiting, in_sets, "connections that wait in sets");
        for (index, sweep) in &self.sweeps {
            let knows = |conn: ConnId| self.conn_ref(conn).sweep.is_some_and(|sweep| sweep.index() == index);
            assert!(sweep.conn.is_none_or(knows), "a command under way is not its connection's");
        }
    }
}
