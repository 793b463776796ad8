//! Copies of the store: the request, and the reply once a copy is complete.

use crate::JobQueue;
use crate::commands::JobCommand;
use crate::state::Reply;
use crate::store::Copying;
use poolcounter_core::ConnId;
use poolcounter_service::contract::{Context, Then};

impl JobQueue {
    /// Asks the store for a copy of itself, and returns the next action of the connection.
    pub(crate) fn begin_copy(&mut self, conn: ConnId, name: &[u8], context: &mut Context<'_>) -> Option<Then> {
        let obstacle = match self.driver.copy {
            Some(_) => Some("another copy is being made"),
            None => self.is_store_failing(context.time.now).then_some("their store fails"),
        };
        if let Some(obstacle) = obstacle {
            log::warn!("the jobs were not copied: {obstacle}");
            self.reply(conn, Reply::InternalError, context);
            return None;
        }
        match self.store.copy(name) {
            Copying::Begun => {
                self.driver.copy = Some(Some(conn));
                return Some(Then::Wait);
            }
            Copying::BadName => {
                self.reply(conn, Reply::Refused(JobCommand::StoreCopy.wrong_form()), context);
            }
            Copying::Impossible => self.reply(conn, Reply::NotFound, context),
        }
        None
    }

    /// Answers the connection that waits for a copy with an error if the store fails. The copy may be made later.
    pub(super) fn give_up_copy(&mut self, context: &mut Context<'_>) {
        if self.is_store_failing(context.time.now)
            && let Some(conn) = self.driver.copy.as_mut().and_then(Option::take)
        {
            self.reply(conn, Reply::InternalError, context);
            context.resume(conn);
        }
    }

    pub(super) fn report_copied(&mut self, result: &Result<u64, String>, context: &mut Context<'_>) {
        let conn = self.driver.copy.take().flatten();
        if let Err(sentence) = result {
            log::warn!("the jobs were not copied: {sentence}");
        }
        if let Some(conn) = conn {
            self.reply(conn, result.as_ref().map_or(Reply::InternalError, |bytes| Reply::Copied(*bytes)), context);
            context.resume(conn);
        }
    }
}
