//! Following of the jobs by a standby: pages of the tables until all jobs and root jobs are copied, and behind that those
//! that each new batch has changed. Settings are few, and read at the take-over.
//!
//! The copy is at least as new as the batch of its point: rows may be newer, and are read again with the batch that has
//! changed them. The owner adds to the table `changed` in the transaction of each batch, with the number of the batch
//! before. Where that chain does not lead from the point to the last batch, everything is copied anew. Batches that
//! were visible are never lost while one run of the server lasts, so the copy counts for that run only.

use super::copy::JobCopy;
use super::load;
use super::messages::Followed;
use super::root_copy::{GivenRoots, RootCopy};
use super::session::{SqlSession, Trouble, number_of};
use super::statements as sql;
use crate::store::batch::{Batch, Row};
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

/// Number of jobs or root jobs that are read at once, at first and at most.
const FIRST_JOBS: usize = 16;
const MOST_JOBS: usize = 2048;
/// Number of batches that are followed at once, at most.
const MOST_BATCHES: usize = 1024;
/// Times of a reading, without that of a round trip, below which the next has more jobs, and above which it has fewer.
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(200);
/// Time after which a step reads nothing more: the owner may have died meanwhile.
const STEP: Duration = Duration::from_secs(1);
/// Pause after the database has refused to answer, or a standby has fallen behind.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Extent of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extent {
    /// Least and greatest number of a job; zeros without any.
    pub jobs: (u64, u64),
    /// Number of root jobs.
    pub roots: u64,
}

/// Copy of the jobs and root jobs that follows the database.
pub struct Following {
    copy: JobCopy,
    point: Option<Point>,
    /// Greatest number of a job that was copied by pages.
    copied_to: u64,
    /// True once the pages have reached the last job.
    is_whole: bool,
    roots: RootCopy,
    roots_to: RootsTo,
    given_roots: GivenRoots,
    /// True once jobs or root jobs are given to the loop.
    is_given: bool,
    /// Number of jobs or root jobs that are read at once.
    at_once: usize,
    /// Number of batches that are followed at once.
    batches: usize,
    /// Time of a round trip.
    trip: Duration,
    /// Jobs and root jobs that are to be read again, and the batch that the copy has then.
    left: Option<(Vec<i64>, Vec<Root>, u64)>,
    /// Number of bytes of jobs beyond which no more pages are copied.
    most: usize,
    rests_until: Option<Instant>,
    fault: String,
}

/// Tube and signature of a root job.
type Root = (String, Vec<u8>);

/// Progress of copying the root jobs.
#[derive(PartialEq, Eq)]
enum RootsTo {
    /// All up to this tube and signature are copied.
    Name(String, Vec<u8>),
    End,
    /// The owner is of an earlier version, which does not note the root jobs that it changes, or the copy is given away.
    Never,
}

/// State of the database at the last read; the copy is at least this new.
#[derive(Clone, PartialEq, Eq)]
struct Point {
    batch: u64,
    rewrites: i64,
    /// Start of the server.
    run: String,
    queue: String,
}

impl Following {
    /// Returns a copy of nothing, which grows to about `most` bytes.
    pub fn new(most: usize) -> Following {
        Following {
            copy: JobCopy::default(),
            point: None,
            copied_to: 0,
            is_whole: false,
            roots: RootCopy::default(),
            roots_to: RootsTo::Name(String::new(), Vec::new()),
            given_roots: GivenRoots::default(),
            is_given: false,
            at_once: FIRST_JOBS,
            batches: MOST_BATCHES,
            trip: Duration::ZERO,
            left: None,
            most,
            rests_until: None,
            fault: String::new(),
        }
    }

    /// Forgets all jobs and root jobs.
    pub fn forget(&mut self) {
        let Following { at_once, batches, trip, most, rests_until, .. } = *self;
        *self = Following {
            at_once,
            batches,
            trip,
            rests_until,
            fault: std::mem::take(&mut self.fault),
            ..Following::new(most)
        };
    }

    /// Forgets the copy if some of its jobs were given away.
    pub fn forget_given(&mut self) {
        if self.is_given {
            self.forget();
        }
    }

    /// Returns whether the database may be asked.
    pub fn is_due(&self) -> bool {
        self.rests_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Makes the next readings smaller, because the last had no answer in time.
    pub fn be_slower(&mut self) {
        (self.at_once, self.batches) = ((self.at_once / 8).max(1), (self.batches / 8).max(1));
    }

    /// Pauses, because the database refuses to answer for this reason.
    pub fn rest(&mut self, why: &str) {
        self.rests_until = Some(Instant::now() + REFUSED_PAUSE);
        if self.fault != why {
            log::warn!("the standby does not follow the jobs: {why}; a take-over would read them all");
            self.fault = why.into();
        }
    }

    /// Follows a few batches, or copies a page. If it is given up, the next one goes on with what is left.
    pub async fn step(&mut self, session: &SqlSession) -> Result<Followed, Trouble> {
        let begun = Instant::now();
        let last = self.look(session).await?;
        let behind = self.catch_up(session, last).await?;
        let has_room = self.copy.bytes() + self.roots.bytes() < self.most;
        if behind == 0 && has_room {
            if self.is_whole {
                self.copy_roots(session).await?;
            } else {
                self.copy_page(session).await?;
            }
        }
        self.fault.clear();
        let has_roots = !matches!(self.roots_to, RootsTo::Name(..));
        let is_copied = self.is_whole && has_roots || !has_room;
        // The database has as much time for others.
        let pause = (behind > 0 || !is_copied).then(|| begun.elapsed());
        Ok(Followed { jobs: self.copy.len() as u64, behind, is_copied, pause })
    }

    /// Follows the batches up to the last, behind which no other comes. A copy that is said to be whole must have the
    /// extent of the tables.
    pub async fn end(&mut self, session: &SqlSession, extent: Extent) -> Result<(), Trouble> {
        if self.is_given || self.point.is_none() {
            self.forget();
            return Ok(());
        }
        let last = self.look(session).await?;
        while self.catch_up(session, last).await? > 0 {}
        let has_all_roots = self.roots_to != RootsTo::End || self.roots.len() as u64 == extent.roots;
        if self.is_whole && (self.copy.range() != extent.jobs || !has_all_roots) {
            log::error!("the copy of the jobs is not what the database has: all are read");
            self.forget();
        }
        if self.copied_to > 0 {
            let (jobs, roots) = (self.copy.len(), self.roots.len());
            log::info!("{jobs} jobs were copied before the take-over, and {roots} root jobs");
        }
        Ok(())
    }

    /// Begins to give the root jobs, and returns true if all were copied.
    pub fn give_roots(&mut self) -> bool {
        if self.roots_to != RootsTo::End {
            return false;
        }
        (self.is_given, self.roots_to) = (true, RootsTo::Never);
        self.given_roots = self.roots.take();
        true
    }

    /// Moves the next root jobs to a page, or the next jobs behind the last of them. Returns the number up to which the
    /// page has all jobs, and true if the copy was whole and is used up; None if nothing is copied.
    pub fn give(&mut self, page: &mut Batch) -> Option<(u64, bool)> {
        self.given_roots.give(page);
        if !page.rows.is_empty() {
            return Some((0, false));
        }
        if self.copied_to == 0 {
            return None;
        }
        self.is_given = true;
        let given = self.copy.give(page);
        let (to, is_whole) = (self.copied_to, self.is_whole);
        if self.copy.len() > 0 {
            return given.map(|last| (last, false));
        }
        self.forget();
        Some((given.unwrap_or(to), is_whole))
    }

    /// Returns the last batch of the database. If the copy does not belong to this database, it begins anew.
    async fn look(&mut self, session: &SqlSession) -> Result<u64, Trouble> {
        let statement = session.prepared(sql::POINT).await?;
        let begun = Instant::now();
        let row = session.client.query_one(&statement, &[]).await?;
        self.trip = begun.elapsed();
        let batch = number_of(row.try_get(0)?, "batch of the owner")?;
        let now = Point { batch, rewrites: row.try_get(1)?, run: row.try_get(2)?, queue: row.try_get(3)? };
        let is_same = self.point.as_ref().is_some_and(|point| Point { batch, ..point.clone() } == now);
        if !is_same || self.point.as_ref().is_some_and(|point| point.batch > batch) {
            self.forget();
            self.point = Some(now);
        }
        Ok(batch)
    }

    /// Reads again some of what the batches up to this one have changed, and returns the number of batches that are not
    /// in the copy.
    async fn catch_up(&mut self, session: &SqlSession, last: u64) -> Result<u64, Trouble> {
        let begun = Instant::now();
        if self.left.is_none() {
            self.find_changes(session, last).await?;
        }
        while begun.elapsed() < STEP
            && let Some((jobs, roots, reached)) = &mut self.left
        {
            let many = self.at_once;
            if !jobs.is_empty() {
                let some = jobs[jobs.len().saturating_sub(many)..].to_vec();
                self.read_changed_jobs(session, &some).await?;
            } else if !roots.is_empty() && self.roots_to != RootsTo::Never {
                let some = roots[roots.len().saturating_sub(many)..].to_vec();
                self.read_changed_roots(session, &some).await?;
            } else {
                let reached = *reached;
                self.left = None;
                self.point.iter_mut().for_each(|point| point.batch = reached);
            }
        }
        Ok(self.point.as_ref().map_or(0, |point| last.saturating_sub(point.batch)))
    }

    /// Finds what some of the batches up to this one have changed.
    async fn find_changes(&mut self, session: &SqlSession, last: u64) -> Result<(), Trouble> {
        let Some(mut at) = self.point.as_ref().map(|point| point.batch).filter(|at| *at < last) else { return Ok(()) };
        // Lossless: it is a thousand.
        let params: [&(dyn ToSql + Sync); 3] = [&at.cast_signed(), &last.cast_signed(), &(self.batches as i64)];
        let rows = session.client.query(&session.prepared(sql::CHANGES).await?, &params).await?;
        self.batches = (self.batches * 2).min(MOST_BATCHES);
        let mut changed: Vec<i64> = Vec::new();
        let mut roots: Vec<Root> = Vec::new();
        for row in &rows {
            if number_of(row.try_get(1)?, "batch before a change")? != at {
                break;
            }
            at = number_of(row.try_get(0)?, "batch of a change")?;
            let ids: Vec<i64> = row.try_get(2)?;
            // Pages have all that comes behind.
            changed.extend(ids.into_iter().filter(|id| self.is_whole || id.cast_unsigned() <= self.copied_to));
            let (tubes, signatures): (Option<Vec<String>>, Option<Vec<Vec<u8>>>) = (row.try_get(3)?, row.try_get(4)?);
            match tubes.zip(signatures) {
                Some((tubes, signatures)) => roots.extend(tubes.into_iter().zip(signatures)),
                None => (self.roots, self.roots_to) = (RootCopy::default(), RootsTo::Never),
            }
            if changed.len() + roots.len() >= MOST_JOBS {
                break;
            }
        }
        if self.point.as_ref().is_none_or(|point| point.batch >= at) {
            // The chain does not lead on. It may break again soon, as where an owner of an earlier version notes
            // nothing.
            let point = self.point.take();
            self.forget();
            self.rests_until = Some(Instant::now() + REFUSED_PAUSE);
            self.point = point.map(|point| Point { batch: last, ..point });
            return Ok(());
        }
        changed.sort_unstable();
        changed.dedup();
        roots.sort_unstable();
        roots.dedup();
        self.left = Some((changed, roots, at));
        Ok(())
    }

    /// Reads these jobs again, which are the last of those left.
    async fn read_changed_jobs(&mut self, session: &SqlSession, some: &[i64]) -> Result<(), Trouble> {
        let read = self.read(session, sql::THESE_JOBS, &[&some], load::add_job).await?;
        some.iter().for_each(|id| self.copy.remove(id.cast_unsigned()));
        self.copy.add(read);
        self.left.iter_mut().for_each(|(jobs, ..)| jobs.truncate(jobs.len() - some.len()));
        Ok(())
    }

    /// Reads these root jobs again, which are the last of those left. Pages may come to some of them later, which does no
    /// harm.
    async fn read_changed_roots(&mut self, session: &SqlSession, some: &[Root]) -> Result<(), Trouble> {
        let (tubes, signatures): (Vec<&str>, Vec<&[u8]>) =
            some.iter().map(|(tube, signature)| (tube.as_str(), signature.as_slice())).unzip();
        let read = self.read(session, sql::THESE_ROOTS, &[&tubes, &signatures], load::add_root).await?;
        some.iter().for_each(|(tube, signature)| self.roots.remove(tube.as_bytes(), signature));
        self.roots.add(&read);
        self.left.iter_mut().for_each(|(_, roots, _)| roots.truncate(roots.len() - some.len()));
        Ok(())
    }

    /// Copies the next root jobs, unless all are copied.
    async fn copy_roots(&mut self, session: &SqlSession) -> Result<(), Trouble> {
        let RootsTo::Name(tube, signature) = &self.roots_to else { return Ok(()) };
        let (tube, signature, many) = (tube.clone(), signature.clone(), self.at_once);
        // Lossless: it is a few thousand.
        let params: [&(dyn ToSql + Sync); 3] = [&tube, &signature, &(many as i64)];
        let page = self.read(session, sql::NEXT_ROOTS, &params, load::add_root).await?;
        self.roots_to = match page.rows.last() {
            Some(Row::Root(tube, signature, ..)) if page.rows.len() == many => {
                RootsTo::Name(String::from_utf8_lossy(page.text(*tube)).into_owned(), page.text(*signature).to_vec())
            }
            _ => RootsTo::End,
        };
        self.roots.add(&page);
        Ok(())
    }

    async fn copy_page(&mut self, session: &SqlSession) -> Result<(), Trouble> {
        let many = self.at_once;
        // Lossless: it is a few thousand.
        let params: [&(dyn ToSql + Sync); 2] = [&self.copied_to.cast_signed(), &(many as i64)];
        let page = self.read(session, sql::NEXT_JOBS, &params, load::add_job).await?;
        self.is_whole = page.rows.len() < many;
        let last =
            page.rows.iter().rev().find_map(|row| if let Row::Put(job, _) = row { Some(job.id.0) } else { None });
        self.copied_to = self.copied_to.max(last.unwrap_or(1));
        self.copy.add(page);
        Ok(())
    }

    /// Reads jobs or root jobs, and adapts the number for the next time.
    async fn read<T>(
        &mut self,
        session: &SqlSession,
        statement: &'static str,
        params: &[&(dyn ToSql + Sync)],
        add: impl Fn(&mut Batch, &tokio_postgres::Row) -> Result<T, Error>,
    ) -> Result<Batch, Error> {
        let mut page = Batch::default();
        let statement = session.prepared(statement).await?;
        let begun = Instant::now();
        let mut rows = pin!(session.client.query_raw(&statement, params.iter().copied()).await?);
        while let Some(row) = poll_fn(|context| rows.as_mut().poll_next(context)).await.transpose()? {
            add(&mut page, &row)?;
        }
        let is_full = page.rows.len() * 2 > self.at_once;
        match begun.elapsed().saturating_sub(self.trip) {
            took if took < SHORT && is_full => self.at_once = (self.at_once * 2).min(MOST_JOBS),
            took if took > LONG => self.at_once = (self.at_once / 2).max(1),
            _ => {}
        }
        Ok(page)
    }
}
