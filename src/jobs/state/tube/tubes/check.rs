//! Comparison of the tables of tubes, buckets and sums with each other.

use super::Tubes;
use crate::state::ids::{BucketId, TubeId};
use crate::state::tube::{Bucket, Rank};
use std::collections::BTreeSet;

impl Tubes {
    pub(super) fn check_buckets(&self, id: TubeId) {
        let tube = &self[id];
        let firsts = tube.by_group.values().map(|bucket| (self[*bucket].ready.first().copied(), *bucket));
        let firsts: BTreeSet<_> =
            firsts.map(|(rank, bucket)| (rank.expect("a bucket of a group has a job"), bucket)).collect();
        assert_eq!(tube.firsts, firsts, "`firsts` has the first job of each group");
        let is_open = |(_, bucket): &&(Rank, BucketId)| self[*bucket].parked.is_none();
        assert_eq!(
            tube.open,
            firsts.iter().filter(is_open).copied().collect(),
            "`open` has the first jobs of buckets that are not parked"
        );
        for (group, bucket) in &tube.by_group {
            let Bucket { tube, group: own, ready, .. } = &self[*bucket];
            assert_eq!((*tube, own), (id, group), "a bucket knows its tube and its group");
            ready.check();
        }
        tube.ready.check();
        let open = tube.open.first().map(|(rank, _)| rank);
        let first = tube.ready.first().into_iter().chain(open).min().copied();
        assert_eq!(tube.first, first.filter(|_| !tube.is_blocked()), "a tube gives its first open job");
        let standing = tube.standing(id).map(|(pri, ..)| pri);
        assert_eq!(standing, tube.first.map(Rank::pri), "a tube stands at the priority of its first job");
        assert!(tube.stamps.is_sorted_by(|(worse, _), (better, _)| worse > better), "better priorities come later");
    }

    pub(super) fn check_sums(&self) {
        let mut total = [0; 4];
        let parts: usize = self.iter().map(|(_, tube)| tube.sums.len()).sum();
        assert_eq!(self.sums.iter().map(|(_, sum)| sum.len()).sum::<usize>(), parts, "tubes are in sums");
        for (id, sum) in self.sums.iter() {
            let own = || sum.tubes().map(|tube| (tube, &self[tube]));
            assert!(own().all(|(_, tube)| tube.sums.contains(&id)), "a sum has only its own tubes");
            let mut counts = [0; 4];
            for (_, tube) in own() {
                counts.iter_mut().zip(tube.counts()).for_each(|(sum, count)| *sum += count);
            }
            let part = self.part(sum);
            assert!(self.find_sum(sum.by, part.name).is_some_and(|found| std::ptr::eq(found, sum)), "a sum is found");
            assert_eq!(part.counts, counts, "the jobs of {}", part.name.escape_ascii());
            let retrying = own().map(|(_, tube)| tube.retrying).sum::<u64>();
            assert_eq!(part.retrying, retrying, "retried jobs of {} are counted", part.name.escape_ascii());
            let ages = own().filter(|_| sum.own.is_some()).filter_map(|(id, tube)| Some((tube.ready_since?, id)));
            let listed = sum.own.iter().flat_map(|own| own.ages.iter().copied());
            assert!(listed.eq(ages.collect::<BTreeSet<_>>()), "a sum has the ages of its tubes");
            total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        // Each job counts for its first and its last part.
        assert_eq!(self.counts.map(|count| 2 * count), total, "the jobs of all tubes");
    }
}
