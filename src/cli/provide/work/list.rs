//! Comparison of the provider's members with the server's: by its list after a new connection, and by withdrawals during
//! a drain, for which no other right is needed.

use super::{Job, Work};
use poolcounter_client::{Error, Provider, Task};
use std::time::{Duration, Instant};

/// Pause between two withdrawals during a drain, because the server does not notify about returned members.
const DRAIN_LOOKS: Duration = Duration::from_secs(1);

impl Work<'_> {
    /// Handles a new connection. Its session brings the members along.
    pub fn connect(&mut self, provider: Provider) {
        self.link = Some(Box::new(provider));
        self.connection += 1;
        self.next_withdrawal = self.is_draining.then(Instant::now);
        self.resume_cleanings();
        if !self.members.is_empty() || !self.unsaid.is_empty() {
            self.compare();
        }
    }

    /// Tells the server which cleanings go on, and ends cleanings that it does not want any more.
    fn resume_cleanings(&mut self) {
        for index in 0..self.commands.len() {
            let Job::Task(Task::Clean(name)) = self.commands[index].job.clone() else { continue };
            match self.tell(|provider| provider.cleaning(name)) {
                Ok(()) => self.commands[index].asked_by = Some(self.connection),
                Err(Error::Lost) => return,
                Err(_) => self.commands[index].process.terminate(),
            }
        }
    }

    /// Starts a drain: starts no more members, and stops each one once it is free.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.next_withdrawal = Some(Instant::now());
    }

    /// Stops members that the server does not list, because they have left the pool. Keeps all if the server refuses the
    /// list.
    fn compare(&mut self) {
        let listed = match self.tell(Provider::members) {
            Ok(listed) => listed,
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => Vec::new(),
            Err(_) => return,
        };
        let is_listed = |name: &[u8]| listed.iter().any(|member| member.name == name);
        let dead = std::mem::take(&mut self.unsaid).into_iter().filter(|name| is_listed(name));
        dead.for_each(|name| self.report_death(&name));
        let gone: Vec<_> = self.members().filter(|name| !is_listed(name)).map(Box::from).collect();
        gone.iter().for_each(|name| self.forsake(name));
    }

    /// Withdraws each member of a provider that drains, and stops the members that have left the pool: the server
    /// refuses to withdraw them. After a loss they are withdrawn on the next connection.
    pub(super) fn withdraw(&mut self) {
        let _ = self.tell(|provider| provider.set_capacity(Some(0)));
        let names: Vec<Box<[u8]>> = self.members().map(Box::from).collect();
        for name in names {
            let answer = self.tell(|provider| provider.withdraw(&name, false));
            if matches!(answer, Err(Error::Refused(words)) if words.starts_with("NO_")) {
                self.forsake(&name);
            }
        }
        self.next_withdrawal = self.link.as_ref().map(|_| Instant::now() + DRAIN_LOOKS);
    }

    /// Reports the death of a member to the server, or queues the report for the next connection.
    pub(super) fn report_death(&mut self, name: &[u8]) {
        if self.tell(|provider| provider.died(name)) == Err(Error::Lost) {
            self.unsaid.push(name.into());
        }
    }
}
