//! Replies that are held until a commit of their service.

use super::Output;
use super::buffer::{HeldReply, Promise};
use crate::id::ServiceId;
use poolcounter_core::{ConnId, Id};

/// Entry of the queue of held replies.
pub(super) struct PendingReply {
    service: ServiceId,
    commit: u64,
    about: u64,
    conn: ConnId,
    /// Number of the reply ([`HeldReply::number`]). The connection was closed if it lacks the reply.
    number: u64,
}

impl Output {
    /// Adds one reply that is held until the commit of its promise is done. That must not be earlier than the commit of
    /// the service's previous reply.
    pub fn reply_after(
        &mut self,
        conn: ConnId,
        service: ServiceId,
        Promise { commit, about, follows }: Promise,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        debug_assert!(self.is_latest(service, commit), "commits are numbered in the order in which they are done");
        self.numbers += 1;
        let number = self.numbers;
        let buffer = self.buffer_of(conn);
        let start = buffer.bytes.len();
        write(&mut buffer.bytes);
        buffer.replies += 1;
        buffer.held.push_back(HeldReply { number, follows, start, end: buffer.bytes.len() });
        self.pending.push_back(PendingReply { service, commit, about, conn, number });
        self.touch(conn);
    }

    /// Releases the replies held until this commit of the service or an earlier one.
    pub fn release_up_to(&mut self, service: ServiceId, commit: u64) {
        while let Some(pending) = self.pop_pending(service, commit) {
            if let Some(buffer) = self.buffer_mut(pending.conn)
                && buffer.held.front().is_some_and(|held| held.number == pending.number)
            {
                buffer.held.pop_front();
                self.touch(pending.conn);
            }
        }
    }

    /// Replaces each reply held until this commit of the service or an earlier one by the bytes that `write` appends,
    /// and releases it.
    pub fn replace_up_to(&mut self, service: ServiceId, commit: u64, write: impl Fn(&mut Vec<u8>)) {
        self.reword(service, |until, _| until <= commit, false, write);
        self.release_up_to(service, commit);
    }

    /// Replaces held replies of a service by the bytes that `write` appends, and releases them. `which` says for which
    /// commit and `about`. With `whole`, one reply replaces all replies to the same request.
    pub fn reword(
        &mut self,
        service: ServiceId,
        which: impl Fn(u64, u64) -> bool,
        whole: bool,
        write: impl Fn(&mut Vec<u8>),
    ) {
        let mut text = Vec::new();
        write(&mut text);
        let is_meant = |pending: &&PendingReply| pending.service == service && which(pending.commit, pending.about);
        let meant = self.pending.iter().filter(is_meant);
        let mut meant: Vec<(ConnId, u64)> = meant.map(|pending| (pending.conn, pending.number)).collect();
        meant.sort_unstable_by_key(|(conn, number)| (conn.index(), *number));
        // Rewords all replies of a connection at once, because the bytes behind a reply must be moved.
        for of_one in meant.chunk_by(|(one, _), (other, _)| one == other) {
            let numbers: Vec<u64> = of_one.iter().map(|(_, number)| *number).collect();
            if let Some(buffer) = self.buffer_mut(of_one[0].0) {
                buffer.reword(&numbers, &text, whole);
                self.touch(of_one[0].0);
            }
        }
    }

    /// Replaces the first held reply of a connection and everything behind it by the bytes that `write` appends.
    /// Returns true if any reply was held.
    pub fn cut_held(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if !self.is_held_for(conn) {
            return false;
        }
        let buffer = self.buffer_of(conn);
        let start = buffer.sendable();
        // The entries in `pending` become stale, as for a closed connection.
        buffer.held.clear();
        buffer.bytes.truncate(start);
        self.reply(conn, write);
        true
    }

    /// Returns true if any reply is held.
    pub fn is_held(&self) -> bool {
        self.buffers.iter().chain([&self.turn]).any(|buffer| !buffer.held.is_empty())
    }

    /// Returns true if a reply to this connection is held.
    pub fn is_held_for(&self, conn: ConnId) -> bool {
        self.owned_by(conn).is_some_and(|buffer| !buffer.held.is_empty())
    }

    /// Returns true if no reply waits for a later commit of the service.
    fn is_latest(&self, service: ServiceId, commit: u64) -> bool {
        let last = self.pending.iter().rev().find(|pending| pending.service == service);
        last.is_none_or(|last| last.commit <= commit)
    }

    /// Removes and returns the first reply held until this commit of the service or an earlier one.
    fn pop_pending(&mut self, service: ServiceId, commit: u64) -> Option<PendingReply> {
        let is_due = |pending: &PendingReply| pending.service == service && pending.commit <= commit;
        // With a single service that has a store, this is the first entry.
        let first = self.pending.iter().position(|pending| pending.service == service)?;
        is_due(&self.pending[first]).then(|| self.pending.remove(first)).flatten()
    }
}
