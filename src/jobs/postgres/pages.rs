//! Pages for the loop, from the copy of a standby and from the database, and the following of the jobs.

use super::following::{Extent, Following};
use super::link::{LONG_ANSWER_TIME, Link};
use super::load;
use super::messages::{Answer, Cursor, Followed};
use super::place::said;
use super::reading::Reading;
use super::renewals::Renewals;
use super::session::{ANSWER_TIME, Trouble, is_over, number_of, within};
use super::statements as sql;
use crate::store::page::Page;

impl Link {
    /// Brings the copy of the jobs closer to the database, and returns how far it is; None if it does not follow now.
    pub fn follow(&mut self) -> Option<Followed> {
        let (following, session) = (self.following.as_mut()?, self.session.as_ref()?);
        following.forget_given();
        if !following.is_due() {
            return None;
        }
        match within(&self.runtime, ANSWER_TIME, following.step(session)) {
            Ok(followed) => return Some(followed),
            Err(Trouble::Failed(error)) if !is_over(&error) => following.rest(&said(&error)),
            Err(trouble) => {
                following.be_slower();
                // A standby that only looks at the owner sees in any case when that has died.
                if let Trouble::TooLate = trouble {
                    following.rest("the database does not answer in time");
                }
                self.end_sessions();
            }
        }
        None
    }

    /// Reads a page, from the copy of a standby or from the database.
    pub(super) fn read(&mut self, cursor: Cursor, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let mut page = Page::default();
        let Cursor::After(after) = cursor else {
            self.extent = self.read_settings(&mut page, renewals)?;
            self.follow_to_end(renewals);
            self.read_roots(&mut page, renewals)?;
            return Ok(Answer::Page(page, Cursor::After(0)));
        };
        let after = match self.following.as_mut().and_then(|following| following.give(&mut page.rows)) {
            Some((last, false)) if page.rows.rows.is_empty() => last.max(after),
            Some((last, is_last)) => {
                page.is_last = is_last;
                page.share = self.share(last);
                return Ok(Answer::Page(page, Cursor::After(last)));
            }
            None => after,
        };
        let reading = self.reading.take().filter(|reading| reading.last == after);
        let read = self.run_long(self.page_time, renewals, |session, _| async move {
            let mut reading = match reading {
                Some(reading) => reading,
                None => Reading::begin(session, after).await?,
            };
            page.is_last = reading.fill(&mut page.rows).await?;
            Ok((reading, page))
        });
        // A page with a job of a gigabyte may need more time.
        self.page_time = if let Err(Trouble::TooLate) = read { self.page_time * 2 } else { LONG_ANSWER_TIME };
        let (reading, mut page) = read?;
        let last = reading.last;
        // No other daemon adds jobs meanwhile.
        page.is_last |= last >= self.extent.jobs.1;
        page.share = self.share(last);
        self.reading = Some(reading).filter(|_| !page.is_last);
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Returns the share of the jobs that was read with the job of this number.
    fn share(&self, last: u64) -> f64 {
        let (first, end) = self.extent.jobs;
        (last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
    }

    /// Brings the copy of the jobs to the state of the database, which no other daemon changes any more. A copy that
    /// cannot be brought there counts for nothing, and the jobs are read.
    fn follow_to_end(&mut self, renewals: &mut Renewals<'_>) {
        let Some(mut following) = self.following.take() else { return };
        let extent = self.extent;
        let ended = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| following.end(session, extent));
        if ended.is_err() {
            following.forget();
        }
        self.following = Some(following);
    }

    /// Reads the settings, which are few, and returns the extent of the other tables.
    fn read_settings(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<Extent, Trouble> {
        let (settings, extent, row) = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            let client = &session.client;
            let settings = client.query(sql::SETTINGS, &[]).await?;
            Ok((settings, client.query_one(sql::EXTENT, &[]).await?, session.look().await?))
        })?;
        // The copy may have begun and ended since this daemon has connected.
        load::refuse_part(&settings)?;
        load::add_next_id(&mut page.rows, row.next_id);
        settings.iter().try_for_each(|row| load::add_setting(&mut page.rows, row))?;
        let number = |column, name| number_of(extent.try_get(column)?, name);
        let jobs = (number(0, "number of a job")?, number(1, "number of a job")?);
        Ok(Extent { jobs, roots: number(2, "number of root jobs")? })
    }

    /// Adds the root jobs, from the copy of a standby or from the database.
    fn read_roots(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<(), Trouble> {
        if self.following.as_mut().is_some_and(Following::give_roots) {
            return Ok(());
        }
        let roots = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            Ok(session.client.query(sql::ROOTS, &[]).await?)
        })?;
        roots.iter().try_for_each(|row| load::add_root(&mut page.rows, row))?;
        Ok(())
    }
}
