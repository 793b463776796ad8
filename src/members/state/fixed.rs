//! Fixed members: their addition and removal by operators and by the configuration file. Each is in one pool, and a pool
//! with fixed members has no providers.

use super::background;
use super::pool_changes::{DeclaredMember, NOT_CHECKED, checks_of};
use super::{
    Answer, Attributes, ConnId, DONE, MemberId, Named, News, Notice, PoolId, Refusal, Span, State, Step, Timer, TimerId,
};
use std::sync::Arc;

/// Time after which fixed members that were refused are tried again.
const TRY_AGAIN: Span = Span::from_secs(1);

impl State {
    /// `ADD pool member [attr=value ...]`.
    pub(super) fn add(&mut self, named: Named<'_>, attributes: Attributes, step: &mut Step<'_, '_>) -> Answer {
        let pool = self.lasting_pool(named.pool)?;
        self.check_fixed(pool, named.member, step)?;
        self.add_fixed(pool, named.member, attributes, step);
        DONE
    }

    /// Checks that a pool can have a new fixed member of this name.
    pub(super) fn check_fixed(&mut self, pool: PoolId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        if self.agents.is_provided(pool) || self.members.is_fixed(pool) == Some(false) {
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
    fn add_fixed(&mut self, pool: PoolId, name: &[u8], attributes: Attributes, step: &mut Step<'_, '_>) -> MemberId {
        let id = self.create_member(pool, name, attributes, None, step);
        if !self.apply_unknown(id, step) {
            self.release_member(id, step);
        }
        id
    }

    /// `DEL pool member [NOW]`.
    pub(super) fn delete(&mut self, conn: ConnId, named: Named<'_>, now: bool, step: &mut Step<'_, '_>) -> Answer {
        let id = self.find_member(named)?;
        if self.member(id).owner.is_some() {
            return Err(Refusal::NoSuchMember);
        }
        let by = self.who(conn, step);
        self.withdraw_member(id, now, by, step);
        DONE
    }

    /// Adds fixed members of the configuration file to their pools. A member that its pool cannot have yet, as when a pool
    /// that is being removed still has it, is tried again later; that is said the first time.
    pub(super) fn declare_members(
        &mut self,
        members: Vec<(Arc<[u8]>, DeclaredMember)>,
        is_first: bool,
        step: &mut Step<'_, '_>,
    ) {
        for (pool, declared) in members {
            let Err(why) = self.try_to_add(&pool, &declared, step) else { continue };
            if is_first {
                let (pool, member, news) = (pool.clone(), Some(declared.name.clone()), News::NotDeclared(why));
                step.notices.push(Notice { pool, member, by: String::new(), news });
            } else if why == Refusal::NoPool {
                continue;
            }
            self.refused.push((pool, declared));
            self.refused_timer.get_or_insert_with(|| step.timers.arm(step.now + TRY_AGAIN, Timer::Declare));
        }
    }

    /// Tries the fixed members that were refused again.
    pub(super) fn declare_refused(&mut self, step: &mut Step<'_, '_>) {
        self.refused_timer.take().into_iter().for_each(TimerId::fired);
        let refused = std::mem::take(&mut self.refused);
        // Lossless: members are counted by 32 bits.
        step.timers.charge(refused.len() as u32 * background::COST);
        self.declare_members(refused, false, step);
    }

    /// Adds a fixed member of the configuration file to a pool, or gives the pool's own its attributes.
    ///
    /// # Errors
    ///
    /// Fails if the pool cannot have it, or is not there any more.
    fn try_to_add(&mut self, pool: &[u8], declared: &DeclaredMember, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let pool = self.lasting_pool(pool)?;
        let own = self.members.find_fixed(&declared.name).filter(|id| self.member(*id).pool == pool);
        let id = match own {
            Some(id) => {
                // It may have been marked to leave at its return.
                self.members.marked(id).is_leaving = false;
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
        self.members.marked(id).is_from_file = true;
        Ok(())
    }
}
