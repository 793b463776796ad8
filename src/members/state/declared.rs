//! Pools and fixed members that the configuration file declares: what differs is changed, what the file no longer has is removed.

use super::members::Cause;
use super::*;

/// A pool as the configuration file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredPool {
    /// Its name.
    pub name: Arc<[u8]>,
    /// Its settings.
    pub settings: Settings,
    /// Its fixed members, each name once, and no more than there may be.
    pub fixed: Vec<DeclaredMember>,
}

/// A fixed member as the configuration file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredMember {
    /// Its name.
    pub name: Arc<[u8]>,
    /// Its attributes.
    pub attributes: Attributes,
}

impl State {
    /// Has the pools and fixed members of the file be those that are declared, each name once. What others have declared stays,
    /// unless it has the name of one of these.
    pub fn configure(&mut self, declared: Vec<DeclaredPool>, step: &mut Step<'_, '_>) {
        let names: HashSet<Arc<[u8]>> = declared.iter().map(|pool| pool.name.clone()).collect();
        let gone = self.order.iter().filter(|(name, id)| self.pool(**id).is_from_file && !names.contains(*name));
        let gone: Vec<PoolId> = gone.map(|(_, id)| *id).collect();
        for id in gone {
            self.pool_mut(id).is_from_file = false;
            self.remove(id, true, step);
        }
        // So that there is room for those that are added.
        self.settle(step);
        for pool in declared {
            self.configure_pool(pool, step);
        }
        self.settle(step);
    }

    fn configure_pool(&mut self, declared: DeclaredPool, step: &mut Step<'_, '_>) {
        let DeclaredPool { name, settings, fixed } = declared;
        let id = match self.find_pool(&name) {
            Ok(id) => {
                self.revive(id, step);
                if self.pool(id).settings != settings {
                    self.change(id, settings, step);
                }
                id
            }
            Err(_) if self.pools.len() >= MOST_POOLS => {
                return step.notices.push(Notice::NotDeclared { pool: name, member: None, why: Refusal::TooMany });
            }
            Err(_) => self.create_pool(name, settings, step),
        };
        self.pool_mut(id).is_from_file = true;
        self.drop_undeclared(id, &fixed, step);
        self.settle(step);
        for member in fixed {
            if let Err(why) = self.configure_member(id, &member, step) {
                let pool = self.pool(id).name.clone();
                step.notices.push(Notice::NotDeclared { pool, member: Some(member.name), why });
            }
        }
    }

    /// Has a pool go on that was being removed.
    fn revive(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        if !std::mem::take(&mut self.pool_mut(id).is_leaving) {
            return;
        }
        self.leave_group(id, step);
        self.join_group(id, self.pool(id).settings.group.clone().as_ref());
        self.touch(id);
    }

    /// Has the fixed members leave that were in the file and are no longer.
    fn drop_undeclared(&mut self, id: PoolId, fixed: &[DeclaredMember], step: &mut Step<'_, '_>) {
        let names: HashSet<&[u8]> = fixed.iter().map(|member| &*member.name).collect();
        let members = self.pool(id).members.iter();
        let gone = members.filter(|(name, id)| self.member(**id).is_from_file && !names.contains(&***name));
        let gone: Vec<MemberId> = gone.map(|(_, id)| *id).collect();
        for id in gone {
            self.members[id.index()].is_from_file = false;
            self.let_go(id, false, step);
        }
    }

    fn configure_member(
        &mut self,
        pool: PoolId,
        declared: &DeclaredMember,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let known = self.known_member(pool, &declared.name, step);
        let own = known.filter(|id| self.member(*id).owner == MemberOwner::Fixed);
        let id = match own {
            Some(id) => {
                // It may have been about to leave when it is returned.
                self.members[id.index()].is_leaving = false;
                let attributes = self.attributes_of(id).map_or(&[][..], |attributes| attributes.as_slice());
                if attributes != declared.attributes {
                    self.set_attributes(id, declared.attributes.clone());
                    self.pool_mut(pool).is_to_reconsider = true;
                    self.touch(pool);
                }
                id
            }
            None => {
                self.check_room(pool, known)?;
                let id =
                    self.create_member(pool, &declared.name, declared.attributes.clone(), MemberOwner::Fixed, step);
                self.release_member(id, Cause::Other, step);
                id
            }
        };
        self.members[id.index()].is_from_file = true;
        Ok(())
    }
}
