//! The provider's members compared with those that the server lists: after a connection was made, and while they are drained.

use super::Work;
use poolcounter_client::{Error, Offered, Provider};
use std::time::{Duration, Instant};

/// Pause between two looks of a provider that drains: the server does not tell that a member has come back.
const DRAIN_LOOKS: Duration = Duration::from_secs(1);
/// Pause between two looks of a provider whose session the server does not know, until its former connection is given up there.
const OTHER_LOOKS: Duration = Duration::from_secs(5);

impl Work<'_> {
    /// A connection was made. Its session brings the members along; a server that knows no sessions is offered them, once it has
    /// noticed that their connection is lost.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub fn connect(&mut self, provider: &mut Provider) -> Result<(), Error> {
        self.connection += 1;
        for own in self.members.values_mut() {
            (own.is_adopted, own.is_withdrawn) = (provider.has_session(), false);
        }
        let is_new = self.members.is_empty() && self.unsaid.is_empty();
        if is_new && !self.is_draining { Ok(()) } else { self.look(provider) }
    }

    /// Begins no start any more, and has each member stopped as soon as nobody has it.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.next_look = Some(Instant::now());
    }

    /// Stops members that the server does not list: they have left the pool. The others are kept, whatever the server answers.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub(super) fn look(&mut self, provider: &mut Provider) -> Result<(), Error> {
        if self.is_draining {
            unless_lost(provider.set_capacity(Some(0)))?;
            for (name, own) in self.members.iter_mut().filter(|(_, own)| !own.is_stopping && !own.is_withdrawn) {
                own.is_withdrawn = unless_lost(provider.withdraw(name, false))?;
            }
        }
        let listed = match provider.members() {
            Ok(listed) => listed,
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => Vec::new(),
            refused => return unless_lost(refused.map(drop)).map(drop),
        };
        let state_of = |name: &[u8]| listed.iter().find(|member| member.name == name).map(|member| &*member.state);
        for name in std::mem::take(&mut self.unsaid) {
            if state_of(&name).is_some() {
                unless_lost(provider.died(&name))?;
            }
        }
        let mut gone = Vec::new();
        for (name, own) in self.members.iter_mut().filter(|(_, own)| !own.is_stopping) {
            match state_of(name) {
                None => gone.push(name.clone()),
                Some("orphaned") if !own.is_adopted => {
                    let offered = Offered { name: name.to_vec(), attributes: own.attributes.clone() };
                    own.is_adopted = unless_lost(provider.offer(&offered))?;
                }
                Some(_) => {}
            }
        }
        gone.iter().for_each(|name| self.forsake(name));
        let is_unsure = self.members.values().any(|own| !own.is_adopted && !own.is_stopping);
        let pause = if self.is_draining { Some(DRAIN_LOOKS) } else { is_unsure.then_some(OTHER_LOOKS) };
        self.next_look = pause.map(|pause| Instant::now() + pause);
        Ok(())
    }

    /// Tells the server that a member has died, or has that told once there is a connection again.
    pub(super) fn report_death(&mut self, name: &[u8], link: Option<&mut Provider>) -> Result<(), Error> {
        let told = link.map_or(Err(Error::Lost), |provider| unless_lost(provider.died(name)));
        if told.is_err() {
            self.unsaid.push(name.into());
        }
        told.map(drop)
    }
}

/// Returns whether a request was done. The error is that the connection is lost.
fn unless_lost(answer: Result<(), Error>) -> Result<bool, Error> {
    match answer {
        Err(Error::Lost) => Err(Error::Lost),
        answer => Ok(answer.is_ok()),
    }
}
