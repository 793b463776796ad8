//! Copies of the store: asked for, and told of when they are there.

use crate::JobQueue;
use crate::replies::ReplyBody;
use crate::state::{Event, Refusal, Reply};
use crate::store::Copying;
use poolcounter_core::id::ConnId;
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_service::contract::{Context, Then};

impl JobQueue {
    /// Asks the store for a copy of itself, and returns what the connection does next.
    pub(crate) fn begin_copy(&mut self, conn: ConnId, name: &[u8], context: &mut Context<'_>) -> Option<Then> {
        if self.driver.copy.is_some() {
            log::warn!("the jobs were not copied: another copy is being made");
            self.say(conn, ReplyBody::None, None, context, |_, out, _| replies::write_internal_error(out));
            return None;
        }
        match self.store.copy(name) {
            Copying::Begun => {
                self.driver.copy = Some(Some(conn));
                return Some(Then::Wait);
            }
            Copying::BadName => {
                let reply = Reply::Refused(Refusal::BadFormat);
                self.tell(&Event { conn, reply, after: None, about: None }, context);
            }
            Copying::Impossible => self.tell_nothing(conn, context),
        }
        None
    }

    pub(super) fn tell_copied(&mut self, result: &Result<u64, String>, context: &mut Context<'_>) {
        let conn = self.driver.copy.take().flatten();
        let write = |out: &mut Vec<u8>| match result {
            Ok(bytes) => replies::write_copied(out, *bytes),
            Err(_) => replies::write_internal_error(out),
        };
        if let Err(sentence) = result {
            log::warn!("the jobs were not copied: {sentence}");
        }
        let Some(conn) = conn else { return };
        self.say(conn, ReplyBody::None, None, context, |_, out, _| write(out));
        context.resume(conn);
    }
}
