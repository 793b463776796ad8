//! Succession: the mark of its store that a process leaves to the next one, and the start with it.

use crate::JobQueue;
use crate::store::{HandedOver, Ownership};
use poolcounter_service::contract::{Context, Unreadable};

impl JobQueue {
    /// Opens the store, and starts to read it unless the previous process has handed everything over.
    pub(crate) fn begin_store(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        if !listens && self.driver.handed_over.is_none() {
            return Ok(());
        }
        (self.driver.has_begun, self.driver.wall) = (true, context.time.wall);
        self.watcher.begin(&self.state, context.time.now);
        if let Some(handed_over) = self.driver.handed_over.take() {
            match std::mem::take(&mut self.driver.are_left) {
                true => {
                    self.driver.has_settings = true;
                    self.store.read_on(context.time.wall, handed_over);
                }
                false => self.store.go_on(context.time.wall, handed_over),
            }
            self.await_end_of_lease(context);
            // Waiting connections may be given jobs now that could not be given out before the handover.
            self.step(context, |_, _| {});
            return Ok(());
        }
        let place = self.store.place();
        let loaded = self.store.load(context.time.wall);
        loaded.map_err(|sentence| format!("the jobs cannot be kept in {place}: {sentence}"))?;
        if self.store.ownership() == Ownership::Damaged {
            let sentence = self.store.health().and_then(|health| health.fault).unwrap_or_default();
            if self.settings.required {
                return Err(format!("the jobs in {place} cannot be read, and are required: {sentence}"));
            }
            self.lose_damaged(&sentence, context);
        }
        if self.store.is_immediate() {
            log::info!("the jobs are kept in memory, and end with the daemon");
        }
        Ok(())
    }

    /// Returns the handover of the store for a successor; None if it was never opened.
    pub(crate) fn handed_over(&self) -> Option<HandedOver> {
        if !self.driver.has_begun || self.store.ownership().is_away() {
            return None;
        }
        let mut handed_over = self.store.hand_over(self.state.last_committed().0, self.state.next_id());
        handed_over.is_whole &= self.state.last_uncommitted().is_none();
        Some(handed_over)
    }

    /// Returns whether the jobs are left in the store for a successor; if not, all are handed over.
    pub(crate) fn leaves_jobs(&self) -> bool {
        let is_behind = self.state.last_uncommitted().is_some() && self.store.may_be_left();
        self.handed_over().is_some() && !is_behind && self.store.can_be_read_on()
    }

    /// Returns the identity of the store; None if it was never opened, or cannot be read. A store that is not in use
    /// stays so, and a standby may come to own its store.
    pub(crate) fn store_in_use(&self) -> Option<String> {
        let is_in_use = self.driver.has_begun && self.store.ownership() != Ownership::Damaged;
        is_in_use.then(|| self.store.identity())
    }

    /// Refuses to continue if the previous process has opened another store than that of the settings.
    pub(crate) fn refuse_other_store(&self) -> Result<(), Unreadable> {
        let own = self.store.identity();
        match self.driver.former_store.as_ref().filter(|former| **former != own) {
            None => Ok(()),
            Some(former) => Err(Unreadable(format!(
                "the jobs are in {former}, and jobs.store names {own}: a running daemon does not move them; \
                 stop it, run poolcounter jobs copy FROM TO, and start it"
            ))),
        }
    }
}
