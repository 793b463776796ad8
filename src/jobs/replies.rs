//! Replies to connections: at once, after a commit, or as their output drains.

use super::JobQueue;
use super::sessions::{COPIED_BYTES, CRLF, Message, Promise, session_of};
use super::state::{Commit, Event, JobId, Reply, State};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_service::contract::Context;
use poolcounter_service::output::FULL_BYTES;
use std::sync::Arc;

/// Bytes behind the line of a reply.
pub(super) enum ReplyBody {
    None,
    /// The body of a job.
    Job(JobId),
    /// A text of the service.
    Text(Vec<u8>),
}

impl JobQueue {
    /// Passes on what the state says.
    pub(super) fn tell(&mut self, Event { conn, reply, after, about }: &Event, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, *conn);
        if let (Reply::Inserted(_) | Reply::Duplicate(_), Some(commit)) = (reply, after) {
            session.put = session.put.max(*commit);
        }
        if session.waits && !self.state.is_waiting(*conn) {
            session.waits = false;
            context.resume(*conn);
        }
        let body = if let Reply::Reserved(id) = reply { ReplyBody::Job(*id) } else { ReplyBody::None };
        let after = after.map(|commit| Promise { commit, about: about.map_or(0, |id| id.0) });
        self.say(*conn, body, after, context, |state, bytes, body_bytes| {
            let used = if *reply == Reply::Using { state.used_tube(*conn) } else { b"" };
            replies::write(bytes, reply, used, body_bytes);
        });
    }

    /// Adds a reply: the line that `head` writes, which is told how long the body is, and the body behind it. What there is no
    /// room for comes as the output drains.
    pub(super) fn say(
        &mut self,
        conn: ConnId,
        body: ReplyBody,
        after: Option<Promise>,
        context: &mut Context<'_>,
        head: impl FnOnce(&State, &mut Vec<u8>, usize),
    ) {
        let state = &self.state;
        let bytes = match &body {
            ReplyBody::None => None,
            ReplyBody::Job(id) => Some(state.body(*id).expect("a job is there when a connection is told of it")),
            ReplyBody::Text(text) => Some(&**text),
        };
        let len = bytes.map_or(0, <[u8]>::len);
        if len > FULL_BYTES || self.has_unsent(conn) || context.output.is_full(conn) {
            return self.say_later(conn, body, after, |state, bytes| head(state, bytes, len));
        }
        reply(conn, after, (state, &mut self.awaited), context, |output| {
            head(state, output, len);
            if let Some(bytes) = bytes {
                output.extend_from_slice(bytes);
                output.extend_from_slice(CRLF);
            }
        });
    }

    /// Keeps a reply for which there is no room now.
    fn say_later(
        &mut self,
        conn: ConnId,
        body: ReplyBody,
        after: Option<Promise>,
        write_head: impl FnOnce(&State, &mut Vec<u8>),
    ) {
        let mut head = Vec::new();
        write_head(&self.state, &mut head);
        let bytes = match &body {
            ReplyBody::None => None,
            ReplyBody::Job(id) => self.state.body(*id),
            ReplyBody::Text(text) => Some(&**text),
        };
        let mut rest = None;
        if let Some(bytes) = bytes {
            if bytes.len() <= COPIED_BYTES {
                head.extend_from_slice(bytes);
                head.extend_from_slice(CRLF);
            } else {
                rest = match body {
                    ReplyBody::None => None,
                    ReplyBody::Job(id) => self.state.share_body(id),
                    ReplyBody::Text(text) => Some(Arc::new(text.into_boxed_slice())),
                };
            }
        }
        let session = session_of(&mut self.sessions, conn);
        session.push(Message::new(head, rest, after));
        session.note_kept(&mut self.state.kept_bytes);
    }

    /// Writes what there was no room for, and returns whether that is all of it.
    pub(super) fn write_unsent(&mut self, conn: ConnId, context: &mut Context<'_>) -> bool {
        let JobQueue { state, sessions, awaited, .. } = self;
        let session = session_of(sessions, conn);
        while let Some(message) = session.unsent.front_mut() {
            if context.output.is_full(conn) {
                return false;
            }
            let head = std::mem::take(&mut message.head);
            if !head.is_empty() {
                reply(conn, message.after, (&*state, &mut *awaited), context, |bytes| bytes.extend_from_slice(&head));
            } else if message.write_piece(conn, context.output) {
                session.pop();
                session.note_kept(&mut state.kept_bytes);
            }
        }
        true
    }

    fn has_unsent(&self, conn: ConnId) -> bool {
        self.sessions.get(conn.index()).is_some_and(|session| !session.unsent.is_empty())
    }
}

/// Adds a reply that leaves once `after` is committed. Commits are done in their order, so that it does no harm to wait for the
/// last one for which a reply waits already.
fn reply(
    conn: ConnId,
    after: Option<Promise>,
    (state, awaited): (&State, &mut Commit),
    context: &mut Context<'_>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    match after.filter(|promise| promise.commit > state.last_committed()) {
        Some(Promise { commit, about }) => {
            *awaited = commit.max(*awaited);
            context.reply_after(conn, awaited.0, about, write);
        }
        None => context.output.reply(conn, write),
    }
}
