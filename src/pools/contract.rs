//! The contract of the pools service beside the tick: life cycle, handover, inquiries, checks.

use super::PoolsService;
use super::state::PoolsState;
use poolcounter_core::{ConnId, Reader, Writer, meter};
use poolcounter_service::contract::{
    Context, Effect, Handover, Inquire, Inspect, Lifecycle, Requester, Shown, Unreadable,
};
use poolcounter_service::report::{MOST_ROWS, Remembered, Room, Snapshot};
use std::io;

/// Largest tables in an answer to `STATS REPORT`: they fit into the room that the output of a full connection still
/// has.
const REPORT_ROOM: Room = Room { rows: MOST_ROWS, bytes: 500_000 };

impl Lifecycle for PoolsService {
    fn begin(&mut self, _: bool, context: &mut Context<'_>) -> Result<(), String> {
        self.started = context.time.started;
        Ok(())
    }

    fn recheck(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.drop_denied(conn, context);
    }

    fn refuse_new(&mut self, refuses: bool, context: &mut Context<'_>) {
        self.state.refuses_new = refuses;
        // MediaWiki works without the lock after an error, but asks the next server if it cannot connect.
        context.effects.push(Effect::Listen(context.called.id, !refuses));
    }

    fn is_settled(&self) -> bool {
        self.state.is_settled()
    }

    fn quiesce(&mut self, context: &mut Context<'_>) {
        // An upgrade waits until there is nothing; what ends just before it is not in slices.
        meter::exempt(|| self.step(context, PoolsState::finish));
        self.end_turn(context.output);
    }
}

impl Handover for PoolsService {
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()> {
        self.state.save(out, &context.timers.typed())
    }

    fn restore(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.state.restore(saved, context.time.now, &mut context.timers.typed())
    }
}

impl Inquire for PoolsService {
    fn shown(&mut self, from: Requester, shown: Shown<'_>, context: &mut Context<'_>) {
        if let Shown::Reports(moment, _) = shown {
            // Lossless: the number was made from a number of rows.
            let room = Room { rows: REPORT_ROOM.rows.min(from.number as usize), ..REPORT_ROOM };
            let snapshot = Snapshot::of(&moment, room, &Remembered::NOTHING);
            context.output.reply_lines(from.conn, |bytes| {
                snapshot.write_lines(bytes);
                bytes.extend_from_slice(b"\n\n");
            });
            context.resume(from.conn);
        }
    }
}

impl Inspect for PoolsService {
    fn check(&self) {
        self.state.check();
        assert!(self.search.iter().all(|(conn, _)| self.listing.contains(conn)), "a search is of a list under way");
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && self.search.is_none() && self.listing.is_empty()
    }
}
