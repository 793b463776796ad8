//! Pages for the loop.

use super::link::{LONG_ANSWER_TIME, Link};
use super::load;
use super::messages::{Answer, Cursor};
use super::reading::Reading;
use super::renewals::Renewals;
use super::session::{Trouble, number_of};
use super::statements as sql;
use crate::store::batch::Row;
use crate::store::page::Page;

impl Link {
    /// Reads a page.
    pub(super) fn read(&mut self, cursor: Cursor, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let mut page = Page::default();
        let Cursor::After(after) = cursor else {
            self.extent = self.read_settings(&mut page, renewals)?;
            self.read_roots(&mut page, renewals)?;
            return Ok(Answer::Page(page, Cursor::After(0)));
        };
        let reading = self.reading.take().filter(|reading| reading.last == after);
        let (reading, mut page) = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            let mut reading = match reading {
                Some(reading) => reading,
                None => Reading::begin(session, after).await?,
            };
            page.is_last = reading.fill(&mut page.rows).await?;
            Ok((reading, page))
        })?;
        let last = reading.last;
        // No other daemon adds jobs meanwhile.
        page.is_last |= last >= self.extent.1;
        page.share = self.share(last);
        self.reading = Some(reading).filter(|_| !page.is_last);
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Returns the share of the jobs that was read with the job of this number.
    fn share(&self, last: u64) -> f64 {
        let (first, end) = self.extent;
        (last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
    }

    /// Reads the settings, which are few, and returns the least and the greatest number of a job.
    fn read_settings(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<(u64, u64), Trouble> {
        let (settings, extent, row) = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            let client = &session.client;
            let settings = client.query(sql::SETTINGS, &[]).await?;
            Ok((settings, client.query_one(sql::EXTENT, &[]).await?, session.look().await?))
        })?;
        // The copy may have begun and ended since this daemon has connected.
        load::refuse_part(&settings)?;
        page.rows.rows.push(Row::NextId(row.next_id));
        settings.iter().try_for_each(|row| load::add_setting(&mut page.rows, row))?;
        let number = |column, name| number_of(extent.try_get(column)?, name);
        Ok((number(0, "number of a job")?, number(1, "number of a job")?))
    }

    /// Adds the root jobs.
    fn read_roots(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<(), Trouble> {
        let roots = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
            Ok(session.client.query(sql::ROOTS, &[]).await?)
        })?;
        roots.iter().try_for_each(|row| load::add_root(&mut page.rows, row))?;
        Ok(())
    }
}
