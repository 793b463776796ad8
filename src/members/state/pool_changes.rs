//! Declaration, change and removal of pools, by requests and by the configuration file.

use super::{Answer, DONE, MOST_POOLS, Member, News, Notice, Pool, PoolId, State, Step, Task, background};
use poolcounter_core::Span;
use poolcounter_protocol::members::pool_settings::{Change, Key, Settings};
use poolcounter_protocol::members::request::{Attributes, Refusal};
use std::collections::HashSet;
use std::sync::Arc;

/// A pool of the configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredPool {
    /// Name.
    pub name: Arc<[u8]>,
    /// Settings.
    pub settings: Settings,
    /// Fixed members, each name once, and at most as many as `max`.
    pub fixed: Vec<DeclaredMember>,
}

/// A fixed member of the configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredMember {
    /// Name.
    pub name: Arc<[u8]>,
    /// Attributes.
    pub attributes: Attributes,
}

/// Reason for which a pool cannot have both fixed members and checks.
pub const NOT_CHECKED: &str = "fixed members are not checked, because they have no provider; a cleaner can test them";

/// Returns the first setting by which members are checked, if there is one.
pub fn checks_of(settings: &Settings) -> Option<Key> {
    let of = [(Key::check_interval, settings.check_interval), (Key::check_on_take, settings.check_on_take)];
    of.into_iter().find(|(_, span)| *span > Span::ZERO).map(|(key, _)| key)
}

impl State {
    /// `POOL name init max [key=value ...]`.
    pub(super) fn declare(&mut self, name: &[u8], changes: &[Change], step: &mut Step<'_, '_>) -> Answer {
        let settings = Settings::default().with(changes).map_err(Refusal::BadSettings)?;
        match self.pools.find(name) {
            Ok(known) if self.pool(known).is_leaving || self.pool(known).settings != settings => {
                return Err(Refusal::PoolDiffers);
            }
            Ok(_) => {}
            Err(_) if self.pools.len() >= MOST_POOLS => return Err(Refusal::TooMany),
            Err(_) => {
                self.create_pool(name.into(), settings, step);
            }
        }
        DONE
    }

    pub(super) fn create_pool(&mut self, name: Arc<[u8]>, settings: Settings, step: &mut Step<'_, '_>) -> PoolId {
        let interval = settings.cull_interval;
        let id = self.pools.create(name, settings);
        self.join_group(id);
        self.pools.arm_cull(id, interval, step);
        self.pools.touch(id);
        id
    }

    /// `RECONFIGURE name key=value ...`.
    pub(super) fn reconfigure(&mut self, name: &[u8], changes: &[Change], step: &mut Step<'_, '_>) -> Answer {
        let id = self.pools.find(name)?;
        let settings = self.pool(id).settings.with(changes).map_err(Refusal::BadSettings)?;
        if self.members.is_fixed(id) == Some(true) && checks_of(&settings).is_some() {
            return Err(Refusal::BadSyntax(NOT_CHECKED));
        }
        self.change(id, settings, step);
        DONE
    }

    /// Sets other settings of a pool.
    fn change(&mut self, id: PoolId, settings: Settings, step: &mut Step<'_, '_>) {
        let before = std::mem::replace(&mut self.pools.marked(id).settings, settings);
        self.apply_timing(id, &before, step);
        if before.group != self.pool(id).settings.group {
            self.leave_group(id);
            if !self.pool(id).is_leaving {
                self.join_group(id);
            }
        }
        self.pools.get_mut(id).excess = self.queued(id).saturating_sub(self.pool(id).settings.queue);
        if self.shorten_queue(id, step) {
            self.background.push(Task::Pool(id));
        }
        self.pools.reconsider(id);
    }

    /// Times culling, lifetimes, checks and holds by new settings. Requests that agents must answer in time keep their
    /// timers.
    fn apply_timing(&mut self, id: PoolId, before: &Settings, step: &mut Step<'_, '_>) {
        let after = &self.pool(id).settings;
        let lives = (before.max_lifetime, before.lifetime_jitter) != (after.max_lifetime, after.lifetime_jitter);
        let checks = before.check_interval != after.check_interval;
        let holds = (before.max_hold, before.warn_hold) != (after.max_hold, after.warn_hold);
        let interval = after.cull_interval;
        if before.cull_interval != interval {
            self.pools.arm_cull(id, interval, step);
        }
        if lives || checks || holds {
            self.begin_walk(id, step);
        }
    }

    /// Removes a pool, at once or as its members are returned.
    pub(super) fn remove(&mut self, id: PoolId, graceful: bool, step: &mut Step<'_, '_>) {
        self.pools.marked(id).is_leaving = true;
        self.pools.set_supply(id, self.supply_of(id));
        self.members.set_group(id, None);
        if let Some(group) = self.pool(id).group {
            self.pools.touch_group(group);
        }
        if !graceful {
            // It is not visible any more, and its name is free.
            self.leave_group(id);
            self.pools.unname(id);
        }
        self.begin_walk(id, step);
    }

    /// Removes the agents of a pool that is dropped, as far as the budget lasts. Returns whether there are more.
    pub(super) fn drop_agents(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while let Some(agent) = self.agents.first_in_pool(id) {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.agents.remove(agent, step);
        }
        false
    }

    /// Drops a pool without members, starts and agents.
    pub(super) fn drop_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        self.leave_group(id);
        self.pools.remove(id, step);
    }

    /// Puts a pool into the group of its settings, if they name one.
    fn join_group(&mut self, pool: PoolId) {
        if let Some(name) = self.pool(pool).settings.group.clone() {
            self.pools.join_group(pool, &name);
            self.members.set_group(pool, self.pool(pool).group);
            self.pools.reconsider(pool);
        }
    }

    /// Removes a pool from its group. A group without pools is removed, and its waiters are refused.
    fn leave_group(&mut self, pool: PoolId) {
        let Some(group) = self.pools.leave_group(pool) else { return };
        self.members.set_group(pool, None);
        // Waiters of the group have nothing kept here any more, and want starts elsewhere.
        self.pools.reconsider(pool);
        self.pools.touch_group(group);
    }

    /// Applies the pools and fixed members of the configuration file, each name once. Pools of requests stay, unless
    /// they have the name of a declared one.
    pub fn configure(&mut self, declared: Vec<DeclaredPool>, step: &mut Step<'_, '_>) {
        let names: HashSet<&[u8]> = declared.iter().map(|pool| &*pool.name).collect();
        let is_gone = |pool: &Pool| pool.is_from_file && !names.contains(&*pool.name);
        let gone: Vec<PoolId> = self.pools.after(None).filter(|id| is_gone(self.pool(*id))).collect();
        for id in gone {
            self.pools.marked(id).is_from_file = false;
            self.remove(id, true, step);
        }
        self.refused.clear();
        self.refused_timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        let declared: Vec<(Option<PoolId>, DeclaredPool)> =
            declared.into_iter().map(|pool| (self.configure_pool(&pool, step), pool)).collect();
        // This makes room for new members.
        self.settle(step);
        for (_, pool) in declared.into_iter().filter(|(id, _)| id.is_some()) {
            let members = pool.fixed.into_iter().map(|member| (pool.name.clone(), member));
            self.declare_members(members.collect(), true, step);
        }
        self.settle(step);
    }

    /// Makes or changes a pool of the configuration file, and withdraws the fixed members that the file no longer has.
    fn configure_pool(&mut self, declared: &DeclaredPool, step: &mut Step<'_, '_>) -> Option<PoolId> {
        let DeclaredPool { name, settings, fixed } = declared;
        let id = match self.pools.find(name) {
            Ok(id) => {
                self.revive(id);
                if self.pool(id).settings != *settings {
                    self.change(id, settings.clone(), step);
                }
                id
            }
            Err(_) if self.pools.len() >= MOST_POOLS => {
                let (pool, news) = (name.clone(), News::NotDeclared(Refusal::TooMany));
                step.notices.push(Notice { pool, member: None, by: String::new(), news });
                return None;
            }
            Err(_) => self.create_pool(name.clone(), settings.clone(), step),
        };
        self.pools.marked(id).is_from_file = true;
        self.withdraw_undeclared(id, fixed, step);
        Some(id)
    }

    /// Keeps a pool that was being removed.
    fn revive(&mut self, id: PoolId) {
        if self.pool(id).is_leaving {
            self.pools.marked(id).is_leaving = false;
            self.leave_group(id);
            self.join_group(id);
            self.pools.touch(id);
        }
    }

    /// Withdraws the fixed members that are not in the file any more.
    fn withdraw_undeclared(&mut self, id: PoolId, fixed: &[DeclaredMember], step: &mut Step<'_, '_>) {
        let names: HashSet<&[u8]> = fixed.iter().map(|member| &*member.name).collect();
        let is_gone = |member: &Member| member.is_from_file && !names.contains(&*member.name);
        let gone = self.members.in_pool(id).all().filter(|member| is_gone(self.member(*member)));
        for id in gone.collect::<Vec<_>>() {
            self.keep_unknown(id, step);
            self.members.marked(id).is_from_file = false;
            self.withdraw_member(id, false, String::new(), step);
        }
    }
}
