//! The store as the service calls it.

use super::*;

impl Store for Postgres {
    fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    fn place(&self) -> String {
        self.name.clone()
    }

    /// Begins; what is there comes in pages, once this process has the queue.
    fn load(&mut self, epoch: Span) -> Result<(), String> {
        self.set_epoch(epoch);
        self.start(None)?;
        let Some(line) = &self.line else { return Ok(()) };
        let deadline = Instant::now() + self.backend.patience;
        while let Ok(told) = line.told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if let StoreEvent::Refused(sentence) = told {
                return Err(sentence);
            }
            let is_first_word = !matches!(told, StoreEvent::Clock(_));
            self.told.push_back(told);
            if is_first_word {
                break;
            }
        }
        // What it has said now waits for the first tick.
        self.wake.iter().for_each(Wake::wake);
        Ok(())
    }

    fn go_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.set_epoch(epoch);
        self.standing = Role::GoesOn;
        self.begun = (self.backend.clock)();
        self.handed_over = handed_over.clone();
        self.start(Some(handed_over)).unwrap_or_else(|sentence| self.fail(&sentence));
    }

    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        if self.standing == Role::GoesOn {
            return self.handed_over.with_next_id(next_id);
        }
        let mark = Mark { opening: self.holder.epoch, batch, next_id };
        self.holder.hand_over(mark, self.rewrite.is_none())
    }

    fn ownership(&self) -> Ownership {
        match self.standing {
            // What it has read may be lost with the database.
            Role::Reads if !self.is_failing() => Ownership::Reads,
            Role::StandsBy | Role::Reads => Ownership::StandsBy,
            Role::GoesOn | Role::Owns => {
                let now = (self.backend.clock)();
                match self.trusted_until() {
                    until if now >= until + LEASE_BEYOND_TRUST => Ownership::Expired,
                    _ if self.standing == Role::GoesOn => Ownership::GoesOn,
                    until if now >= until => Ownership::Lapsed,
                    _ => Ownership::Owns,
                }
            }
        }
    }

    fn expires_in(&self) -> Option<Span> {
        let is_held = matches!(self.standing, Role::GoesOn | Role::Owns);
        let left = (self.trusted_until() + LEASE_BEYOND_TRUST).since((self.backend.clock)());
        (is_held && left > Span::ZERO).then_some(left)
    }

    fn visit_page(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let Some(page) = &mut self.page else { return Ok(true) };
        let visited = page.visit(self.epoch, visit);
        match &visited {
            Ok(false) => {}
            Ok(true) => {
                if page.is_last {
                    self.standing = Role::Owns;
                    log::info!("the jobs are served here");
                }
                self.page = None;
                self.wish(Wish::PageTaken);
            }
            Err(sentence) => {
                self.page = None;
                self.wish(Wish::Unreadable(sentence.clone()));
            }
        }
        visited
    }

    fn is_busy(&self) -> bool {
        let is_beginning = matches!(self.standing, Role::Reads | Role::GoesOn);
        self.under_way.is_some() || self.looks_left > 0 || self.rewrite.is_some() || is_beginning
    }

    fn is_failing(&self) -> bool {
        self.fault.reason().is_some()
    }

    fn may_be_left(&self) -> bool {
        matches!(self.standing, Role::GoesOn | Role::Owns)
            && self.is_failing()
            && (self.backend.clock)().since(self.failed_at) >= STUCK_AFTER
    }

    fn batch_bytes(&self) -> usize {
        self.rate.batch_bytes()
    }

    fn add(&mut self, change: Stored<'_>) {
        self.collected.add(change, self.epoch);
    }

    fn commit(&mut self, commit: crate::state::Commit) {
        let mut batch = std::mem::take(&mut self.collected);
        batch.commit = commit;
        self.under_way = Some(batch.rows.len() as u64);
        self.wish(Wish::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let batch = std::mem::take(&mut self.collected);
        let Some(number) = self.rewrite else { return };
        self.wish(Wish::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let told = self.told.pop_front().or_else(|| self.line.as_ref()?.told.try_recv().ok());
        if told.is_none() && self.looks_left > 0 {
            self.looks_left -= 1;
            // The tick of the next look comes at once.
            self.wake.iter().filter(|_| self.looks_left > 0).for_each(Wake::wake);
        }
        self.take(told?)
    }

    fn health(&self) -> Option<Health> {
        let Holder { address, epoch, since, .. } = self.holder.clone();
        // Exact to a microsecond, which is more than it says.
        let since = ((since * 1e6) as i64).saturating_sub(signed(self.epoch));
        let owner = Some(OwnerHealth { is_self: self.ownership() == Ownership::Owns, address, epoch, since });
        Some(Health { fault: self.fault.reason().map(Into::into), owner, ..self.health.clone() })
    }
}
