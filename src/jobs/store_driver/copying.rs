//! Copies of the store: the request, and the reply once a copy is complete.

use crate::JobQueue;
use crate::commands::JobCommand;
use crate::replies::ReplyBody;
use crate::state::{Event, Reply};
use crate::store::Copying;
use poolcounter_core::id::ConnId;
use poolcounter_protocol::jobs::wire::replies;
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
            self.add_reply(conn, ReplyBody::None, None, context, |_, out, _| replies::write_internal_error(out));
            return None;
        }
        match self.store.copy(name) {
            Copying::Begun => {
                self.driver.copy = Some(Some(conn));
                return Some(Then::Wait);
            }
            Copying::BadName => {
                let reply = Reply::Refused(JobCommand::StoreCopy.wrong_form());
                self.send(&Event::new(conn, reply, None), context);
            }
            Copying::Impossible => self.reply_not_found(conn, context),
        }
        None
    }

    /// Answers the connection that waits for a copy with an error if the store fails. The copy may be made later.
    pub(super) fn give_up_copy(&mut self, context: &mut Context<'_>) {
        if self.is_store_failing(context.time.now)
            && let Some(conn) = self.driver.copy.as_mut().and_then(Option::take)
        {
            self.reply_copied(conn, replies::write_internal_error, context);
        }
    }

    fn reply_copied(&mut self, conn: ConnId, write: impl Fn(&mut Vec<u8>), context: &mut Context<'_>) {
        self.add_reply(conn, ReplyBody::None, None, context, |_, out, _| write(out));
        context.resume(conn);
    }

    pub(super) fn report_copied(&mut self, result: &Result<u64, String>, context: &mut Context<'_>) {
        let conn = self.driver.copy.take().flatten();
        let write = |out: &mut Vec<u8>| match result {
            Ok(bytes) => replies::write_copied(out, *bytes),
            Err(_) => replies::write_internal_error(out),
        };
        if let Err(sentence) = result {
            log::warn!("the jobs were not copied: {sentence}");
        }
        if let Some(conn) = conn {
            self.reply_copied(conn, write, context);
        }
    }
}
