//! Fixed members: their addition and removal by operators and by the configuration file. Each is in one pool, and a pool
//! with fixed members has no providers.

use super::background;
use super::lifecycle::Cause;
use super::pool_changes::{DeclaredMember, NOT_CHECKED, checks_of};
use super::{
    Answer, Attributes, ConnId, MemberId, MemberOwner, Named, Notice, PoolId, Refusal, Span, State, Step, Timer,
    TimerId, What,
};
use std::sync::Arc;

/// Time after which fixed members that were refused are tried again.
const TRY_AGAIN: Span = Span::from_secs(1);

/// Fixed members of the configuration file that their pools cannot have yet, as when a pool that is being removed still
/// has them.
#[derive(Default)]
pub(super) struct RefusedMembers {
    members: Vec<(Arc<[u8]>, DeclaredMember)>,
    /// Timer while there are some.
    pub timer: Option<TimerId>,
}

impl State {
    /// `ADD pool member [attr=value ...]`.
    pub(super) fn add(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let pool = self.lasting_pool(named.pool)?;
        self.check_fixed(pool, named.member, step)?;
        step.tell(conn, What::Ok);
        self.add_fixed(pool, named.member, attributes, step);
        Ok(())
    }

    /// Checks that a pool can have a new fixed member of this name.
    pub(super) fn check_fixed(&mut self, pool: PoolId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        if self.agents.is_provided(pool) || self.members.in_pool(pool).is_provided() {
            return Err(Refusal::BadSyntax("the pool has providers, and so no fixed members"));
        }
        if checks_of(&self.pool(pool).settings).is_some() {
            return Err(Refusal::BadSyntax(NOT_CHECKED));
        }
        let mut known = self.members.find_fixed(name);
        if let Some(id) = known.take_if(|id| self.pool(self.member(*id).pool).is_removed) {
            self.reconcile_member(id, step);
        }
        self.check_room(pool, known)
    }

    /// Adds a fixed member that was checked, and frees it.
    pub(super) fn add_fixed(
        &mut self,
        pool: PoolId,
        name: &[u8],
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> MemberId {
        let id = self.create_member(pool, name, attributes, MemberOwner::Fixed, step);
        if !self.apply_unknown(id, step) {
            self.release_member(id, Cause::Other, step);
        }
        id
    }

    /// `DEL pool member [NOW]`.
    pub(super) fn delete(&mut self, conn: ConnId, named: Named<'_>, now: bool, step: &mut Step<'_, '_>) -> Answer {
        let id = self.find_member(named)?;
        if self.member(id).owner != MemberOwner::Fixed {
            return Err(Refusal::NoSuchMember);
        }
        step.tell(conn, What::Ok);
        let by = self.who(conn, step);
        self.withdraw_member(id, now, by, step);
        Ok(())
    }

    /// Adds a fixed member of the configuration file to a pool, or tries it again later.
    pub(super) fn configure_member(&mut self, pool: &Arc<[u8]>, declared: DeclaredMember, step: &mut Step<'_, '_>) {
        if let Err(why) = self.try_to_configure(pool, &declared, step) {
            let (pool, member) = (pool.clone(), Some(declared.name.clone()));
            step.notices.push(Notice::NotDeclared { pool: pool.clone(), member, why });
            self.refused.add(pool, declared, step);
        }
    }

    /// Adds the fixed members that were refused, or tries them again later. Nothing is said a second time.
    pub(super) fn declare_refused(&mut self, step: &mut Step<'_, '_>) {
        for (pool, declared) in self.refused.take() {
            step.timers.charge(background::COST);
            if !matches!(self.try_to_configure(&pool, &declared, step), Ok(()) | Err(Refusal::NoPool)) {
                self.refused.add(pool, declared, step);
            }
        }
    }

    /// Adds a fixed member of the configuration file to a pool, or gives the pool's own its attributes.
    ///
    /// # Errors
    ///
    /// Fails if the pool cannot have it, or is not there any more.
    fn try_to_configure(&mut self, pool: &[u8], declared: &DeclaredMember, step: &mut Step<'_, '_>) -> Answer {
        let pool = self.lasting_pool(pool)?;
        let own = self.members.find_fixed(&declared.name).filter(|id| self.member(*id).pool == pool);
        let id = match own {
            Some(id) => {
                // It may have been marked to leave at its return.
                self.members.set_leaving(id, false);
                let attributes = self.members.attributes(id).map_or(&[][..], |attributes| attributes.as_slice());
                if attributes != declared.attributes {
                    self.members.set_attributes(id, declared.attributes.clone());
                    self.pools.reconsider(pool);
                }
                id
            }
            None => {
                self.check_fixed(pool, &declared.name, step)?;
                self.add_fixed(pool, &declared.name, declared.attributes.clone(), step)
            }
        };
        self.members.set_from_file(id, true);
        Ok(())
    }
}

impl RefusedMembers {
    /// Adds a member with the name of its pool.
    fn add(&mut self, pool: Arc<[u8]>, member: DeclaredMember, step: &mut Step<'_, '_>) {
        self.members.push((pool, member));
        self.timer.get_or_insert_with(|| step.timers.arm(step.now + TRY_AGAIN, Timer::Declare));
    }

    /// Takes all members, once the timer has fired.
    fn take(&mut self) -> Vec<(Arc<[u8]>, DeclaredMember)> {
        self.timer.take().into_iter().for_each(TimerId::fired);
        std::mem::take(&mut self.members)
    }

    /// Forgets all members.
    pub fn end(&mut self, step: &mut Step<'_, '_>) {
        self.members.clear();
        self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
    }
}
