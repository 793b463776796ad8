//! Comparison of the provider's members with the server's: by its list after a new connection, and by withdrawals during
//! a drain, for which no other right is needed.

use super::{Job, Work};
use poolcounter_client::{Error, Provider, Task};
use std::time::{Duration, Instant};

/// Pause between two withdrawals during a drain, because the server does not notify about returned members.
const DRAIN_LOOKS: Duration = Duration::from_secs(1);

impl Work<'_> {
    /// Handles a new connection. Its session brings the members along.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost.
    pub fn connect(&mut self, provider: &mut Provider) -> Result<(), Error> {
        self.connection += 1;
        self.resume_cleanings(provider)?;
        self.next_withdrawal = self.is_draining.then(Instant::now);
        if self.members.is_empty() && self.unsaid.is_empty() { Ok(()) } else { self.compare(provider) }
    }

    /// Tells the server which cleanings go on, and ends cleanings that it does not want any more.
    fn resume_cleanings(&mut self, provider: &mut Provider) -> Result<(), Error> {
        for command in &mut self.commands {
            let Job::Task(Task::Clean(name)) = &command.job else { continue };
            match provider.cleaning(name) {
                Ok(()) => command.asked_by = Some(self.connection),
                Err(Error::Lost) => return Err(Error::Lost),
                Err(_) => command.process.terminate(),
            }
        }
        Ok(())
    }

    /// Starts a drain: starts no more members, and stops each one once it is free.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.next_withdrawal = Some(Instant::now());
    }

    /// Stops members that the server does not list, because they have left the pool. Keeps all if the server refuses the
    /// list.
    fn compare(&mut self, provider: &mut Provider) -> Result<(), Error> {
        let listed = match provider.members() {
            Ok(listed) => listed,
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => Vec::new(),
            refused => return unless_lost(refused.map(drop)),
        };
        let is_listed = |name: &[u8]| listed.iter().any(|member| member.name == name);
        for name in std::mem::take(&mut self.unsaid) {
            if is_listed(&name) {
                unless_lost(provider.died(&name))?;
            }
        }
        let gone: Vec<_> = self.members().filter(|name| !is_listed(name)).map(Box::from).collect();
        gone.iter().for_each(|name| self.forsake(name));
        Ok(())
    }

    /// Withdraws each member of a provider that drains, and stops the members that have left the pool: the server
    /// refuses to withdraw them.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost.
    pub(super) fn withdraw(&mut self, provider: &mut Provider) -> Result<(), Error> {
        unless_lost(provider.set_capacity(Some(0)))?;
        let mut gone = Vec::new();
        for (name, _) in self.members.iter().filter(|(_, own)| !own.is_stopping) {
            match provider.withdraw(name, false) {
                Err(Error::Refused(words)) if words.starts_with("NO_") => gone.push(name.clone()),
                answer => unless_lost(answer)?,
            }
        }
        gone.iter().for_each(|name| self.forsake(name));
        self.next_withdrawal = Some(Instant::now() + DRAIN_LOOKS);
        Ok(())
    }

    /// Reports the death of a member to the server, or queues the report for the next connection.
    pub(super) fn report_death(&mut self, name: &[u8], link: Option<&mut Provider>) -> Result<(), Error> {
        let told = link.map_or(Err(Error::Lost), |provider| unless_lost(provider.died(name)));
        if told.is_err() {
            self.unsaid.push(name.into());
        }
        told
    }
}

/// Ignores a refusal. Fails if the connection is lost.
pub(super) fn unless_lost(answer: Result<(), Error>) -> Result<(), Error> {
    if answer == Err(Error::Lost) { answer } else { Ok(()) }
}
