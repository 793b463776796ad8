//! Return of memory to the system after a flood of jobs: the allocator keeps what is freed until it is told otherwise.

use super::JobQueue;
use super::process::return_memory_aside;
use super::state::Timer;
use poolcounter_core::{Span, TimerId};
use poolcounter_service::contract::Context;

/// Bytes that are too few to be returned.
const LEAST_BYTES: usize = 4 << 20;
/// Time between the fall of the used memory and the return, in which more may be freed.
const PAUSE: Span = Span::from_secs(1);

/// Memory that the allocator may keep beside what is used.
#[derive(Default)]
pub(super) struct Slack {
    /// Most bytes that jobs and connections used since the last return.
    most: usize,
    timer: Option<TimerId>,
}

impl Slack {
    /// Returns whether less than half of the most is used.
    fn has_fallen(&mut self, used: usize) -> bool {
        self.most = self.most.max(used);
        used < self.most / 2 && self.most - used >= LEAST_BYTES
    }

    /// Returns the number of armed timers.
    pub fn timers(&self) -> usize {
        usize::from(self.timer.is_some())
    }
}

impl JobQueue {
    /// Arms the timer of the return once the used memory has fallen by half.
    pub(super) fn note_memory(&mut self, context: &mut Context<'_>) {
        if self.slack.has_fallen(self.state.bytes_of_jobs()) && self.slack.timer.is_none() {
            self.slack.timer = Some(context.timers.typed().arm(context.time.now + PAUSE, Timer::Memory));
        }
    }

    /// Returns memory to the system, unless it is used again.
    pub(super) fn return_memory(&mut self) {
        self.slack.timer.take().into_iter().for_each(TimerId::fired);
        let used = self.state.bytes_of_jobs();
        if self.slack.has_fallen(used) {
            self.slack.most = used;
            return_memory_aside();
        }
    }
}
