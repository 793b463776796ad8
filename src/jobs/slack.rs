//! Return of memory to the system after a flood of jobs: the allocator keeps what is freed until it is told otherwise.

use super::JobQueue;
use super::process::return_memory_aside;
use super::state::Timer;
use poolcounter_core::time::Span;
use poolcounter_core::wheel::TimerId;
use poolcounter_service::contract::Context;

/// Bytes that are too few to be returned.
const LEAST_BYTES: usize = 4 << 20;
/// Change of the memory of jobs after which all memory is looked at again.
const NOTICED_BYTES: usize = 64 << 10;
/// Number of ticks after which it is looked at in any case.
const LOOKED_AT_AFTER: u32 = 64;
/// Time between the fall of the used memory and the return, in which more may be freed.
const PAUSE: Span = Span::from_secs(1);

/// Memory that the allocator may keep beside what is used.
#[derive(Default)]
pub(super) struct Slack {
    /// Most bytes that were used since the last return.
    most: usize,
    /// Memory of jobs at the last look, and the number of ticks since.
    seen: usize,
    ticks: u32,
    timer: Option<TimerId>,
}

impl Slack {
    /// Returns whether less than half of the most is used.
    fn has_fallen(&mut self, used: usize) -> bool {
        self.most = self.most.max(used);
        used < self.most / 2 && self.most - used >= LEAST_BYTES
    }

    /// Returns whether it is time to look at all memory, as that takes longer than to look at that of jobs.
    fn is_due(&mut self, of_jobs: usize) -> bool {
        self.ticks += 1;
        let is_due = self.ticks >= LOOKED_AT_AFTER || self.seen.abs_diff(of_jobs) >= NOTICED_BYTES;
        if is_due {
            (self.seen, self.ticks) = (of_jobs, 0);
        }
        is_due
    }

    /// Returns the number of armed timers.
    pub fn timers(&self) -> usize {
        usize::from(self.timer.is_some())
    }
}

impl JobQueue {
    /// Arms the timer of the return once the used memory has fallen by half.
    pub(super) fn note_memory(&mut self, context: &mut Context<'_>) {
        if !self.slack.is_due(self.state.bytes_of_jobs()) {
            return;
        }
        if self.slack.has_fallen(self.state.used_memory()) && self.slack.timer.is_none() {
            self.slack.timer = Some(context.timers.typed().arm(context.time.now + PAUSE, Timer::Memory));
        }
    }

    /// Returns memory to the system, unless it is used again.
    pub(super) fn return_memory(&mut self) {
        self.slack.timer.take().into_iter().for_each(TimerId::fired);
        let used = self.state.used_memory();
        if self.slack.has_fallen(used) {
            self.slack.most = used;
            return_memory_aside();
        }
    }
}
