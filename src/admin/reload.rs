//! Reload: the connections that wait for its result.

use super::{Admin, wire};
use poolcounter_core::ConnId;
use poolcounter_service::contract::{Context, Effect, OperationRequest, OperationResult};
use serde::{Deserialize, Serialize};

/// Connections that wait for the result of a reload.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Reloads {
    /// Connections whose reload has not begun, because another is under way, whose settings may be older than the
    /// request.
    pub asked: Vec<ConnId>,
    /// Connections whose reload is under way.
    pub begun: Vec<ConnId>,
}

impl Reloads {
    /// Removes a closed connection. Its reload goes on.
    pub fn forget(&mut self, conn: ConnId) {
        self.asked.retain(|waiting| *waiting != conn);
        self.begun.retain(|waiting| *waiting != conn);
    }

    /// Returns true if no connection waits.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.begun.is_empty()
    }
}

impl Admin {
    /// Handles `RELOAD`: asks for a reload. The reply follows with the result, after the exchange of the process.
    pub(super) fn reload_for(
        &mut self,
        asked: &OperationRequest,
        context: &mut Context<'_>,
    ) -> Option<OperationResult> {
        let from = asked.from;
        self.end_pending(from);
        self.reloads.asked.push(from.conn);
        context.output.reply_lines(from.conn, |bytes| wire::write_line(bytes, wire::WAIT, &"for the new program"));
        context.effects.push(Effect::Reload);
        None
    }
}
