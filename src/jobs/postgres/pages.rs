//! Pages for the loop, from the copy of a standby and from the database, and the following of the jobs.

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
        if !following.is_due() {
            return None;
        }
        match within(&self.runtime, ANSWER_TIME, following.step(session)) {
            Ok(followed) => return Some(followed),
            Err(Trouble::Failed(error)) if !is_over(&error) => following.rest(&said(&error)),
            Err(_) => {
                following.be_slower();
                self.end_sessions();
            }
        }
        None
    }

    /// Reads a page, from the copy of a standby or from the database.
    pub(super) fn read(&mut self, cursor: Cursor, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let mut page = Page::default();
        let Cursor::After(after) = cursor else {
            self.range = self.read_start(&mut page, renewals)?;
            self.follow_to_end(renewals);
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
        page.is_last |= last >= self.range.1;
        page.share = self.share(last);
        self.reading = Some(reading).filter(|_| !page.is_last);
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Returns the share of the jobs that was read with the job of this number.
    fn share(&self, last: u64) -> f64 {
        let (first, end) = self.range;
        (last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
    }

    /// Brings the copy of the jobs to the state of the database, which no other daemon changes any more. A copy that
    /// cannot be brought there counts for nothing, and the jobs are read.
    fn follow_to_end(&mut self, renewals: &mut Renewals<'_>) {
        let Some(mut following) = self.following.take() else { return };
        let range = self.range;
        let ended = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| following.end(session, range));
        if ended.is_err() {
            following.forget();
        }
        self.following = Some(following);
    }

    /// Reads the settings and root jobs, and returns the least and the greatest number of a job.
    fn read_start(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<(u64, u64), Trouble> {
        let (settings, roots, range, row) = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            let client = &session.client;
            let settings = client.query(sql::SETTINGS, &[]).await?;
            let roots = client.query(sql::ROOTS, &[]).await?;
            let range = client.query_one(sql::RANGE, &[]).await?;
            Ok((settings, roots, range, session.look().await?))
        })?;
        load::add_next_id(&mut page.rows, row.next_id);
        settings.iter().try_for_each(|row| load::add_setting(&mut page.rows, row))?;
        roots.iter().try_for_each(|row| load::add_root(&mut page.rows, row))?;
        let number = |column| number_of(range.try_get(column)?, "number of a job");
        Ok((number(0)?, number(1)?))
    }
}
