//! Replies to connections: at once, after a commit, or as their output drains.

use super::JobQueue;
use super::sessions::{COPIED_BYTES, CRLF, Message, Slot, session_of};
use super::state::{Commit, Event, JobId, Reply, State};
use poolcounter_core::{ConnId, Id};
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_service::contract::Context;
use poolcounter_service::output::{FULL_BYTES, Promise};
use std::sync::Arc;

/// Bytes that follow the line of a reply.
pub(super) enum ReplyBody {
    None,
    /// The body of a job.
    Job(JobId),
    /// A text of the service.
    Text(Vec<u8>),
}

impl JobQueue {
    /// Sends a reply that waits for no commit.
    pub(super) fn reply(&mut self, conn: ConnId, reply: Reply, context: &mut Context<'_>) {
        self.send(&Event::new(conn, reply, None), context);
    }

    /// Sends a reply of the state.
    #[inline]
    pub(super) fn send(&mut self, event: &Event, context: &mut Context<'_>) {
        let Event { conn, reply, after, .. } = event;
        let is_plain = after.is_none() && self.sessions.get(conn.index()).is_some_and(Slot::is_plain);
        let body = if let Reply::Reserved(id) = reply { self.state.body(*id) } else { None };
        let len = body.map_or(0, <[u8]>::len);
        if !is_plain || *reply == Reply::Using || len > FULL_BYTES || context.output.is_full(*conn) {
            return self.send_any(event, context);
        }
        context.output.reply(*conn, |bytes| {
            replies::write(bytes, reply, b"", len);
            add_body(bytes, body);
        });
    }

    fn send_any(&mut self, Event { conn, reply, after, about, follows }: &Event, context: &mut Context<'_>) {
        let slot = session_of(&mut self.sessions, *conn);
        if let (Reply::Inserted(_) | Reply::Duplicate(..), Some(commit)) = (reply, after) {
            slot.put = slot.put.max(*commit);
        }
        if let Some(session) = slot.begun()
            && session.waits
            && !self.state.is_waiting(*conn)
        {
            session.waits = false;
            context.resume(*conn);
        }
        let body = if let Reply::Reserved(id) = reply { ReplyBody::Job(*id) } else { ReplyBody::None };
        let about = about.map_or(0, |id| id.0);
        let after = after.map(|commit| Promise { commit: commit.0, about, follows: *follows });
        self.add_reply(*conn, body, after, context, |state, bytes, body_bytes| {
            let used = if *reply == Reply::Using { state.used_tube(*conn) } else { b"" };
            replies::write(bytes, reply, used, body_bytes);
        });
    }

    /// Adds a reply: the line that `head` writes, with the length of the body, and the body behind it. Bytes that
    /// exceed the room of the output follow as it drains.
    pub(super) fn add_reply(
        &mut self,
        conn: ConnId,
        body: ReplyBody,
        after: Option<Promise>,
        context: &mut Context<'_>,
        head: impl FnOnce(&State, &mut Vec<u8>, usize),
    ) {
        let JobQueue { state, sessions, awaited, .. } = self;
        let bytes = match &body {
            ReplyBody::None => None,
            ReplyBody::Job(id) => Some(state.body(*id).expect("a job is there when a connection is told of it")),
            ReplyBody::Text(text) => Some(&**text),
        };
        let len = bytes.map_or(0, <[u8]>::len);
        // All replies to a request are in one place, so that one can replace them.
        let follows = after.is_some_and(|promise| promise.follows);
        let slot = session_of(sessions, conn);
        let has_unsent = slot.begun().is_some_and(|session| !session.unsent.is_empty());
        if !has_unsent && (follows || len <= FULL_BYTES && !context.output.is_full(conn)) {
            return reply(conn, after, (state, awaited), context, |output| {
                head(state, output, len);
                add_body(output, bytes);
            });
        }
        // The output has no room for it now.
        let mut line = Vec::new();
        head(state, &mut line, len);
        let is_short = len <= COPIED_BYTES;
        add_body(&mut line, bytes.filter(|_| is_short));
        let rest = match body {
            ReplyBody::Job(id) if !is_short => state.share_body(id),
            ReplyBody::Text(text) if !is_short => Some(Arc::new(text.into_boxed_slice())),
            _ => None,
        };
        slot.push(Message::new(line, rest, after));
        slot.note_kept(&mut state.kept_bytes);
    }

    /// Writes queued replies, and returns whether that is all of them.
    pub(super) fn write_unsent(&mut self, conn: ConnId, context: &mut Context<'_>) -> bool {
        let JobQueue { state, sessions, awaited, .. } = self;
        let Some(session) = session_of(sessions, conn).begun() else { return true };
        while let Some(message) = session.unsent.front_mut() {
            if context.output.is_full(conn) && !message.follows() {
                return false;
            }
            let head = std::mem::take(&mut message.head);
            let is_written = if head.is_empty() {
                message.write_piece(conn, context.output)
            } else {
                reply(conn, message.after, (&*state, &mut *awaited), context, |bytes| bytes.extend_from_slice(&head));
                message.body.is_none()
            };
            if is_written {
                session.pop();
                session.note_kept(&mut state.kept_bytes);
            }
        }
        true
    }
}

/// Adds the body of a reply, if it has one.
fn add_body(bytes: &mut Vec<u8>, body: Option<&[u8]>) {
    if let Some(body) = body {
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(CRLF);
    }
}

/// Adds a reply that leaves once `after` is committed. Commits are done in order, so a reply may also wait for a later
/// commit for which another reply waits already.
fn reply(
    conn: ConnId,
    after: Option<Promise>,
    (state, awaited): (&State, &mut Commit),
    context: &mut Context<'_>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    match after.filter(|promise| Commit(promise.commit) > state.last_committed()) {
        Some(promise) => {
            *awaited = Commit(promise.commit).max(*awaited);
            context.reply_after(conn, Promise { commit: awaited.0, ..promise }, write);
        }
        None => context.output.reply(conn, write),
    }
}
