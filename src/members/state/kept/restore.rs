//! Reading of the rows after a start, once the configuration was applied.

use super::super::cleaning::CLEANER_GRACE;
use super::{
    Agent, KeptMember, KeptPool, Lease, MemberId, OF_MEMBER, OF_NUMBER, OF_POOL, OF_TOKEN, OF_VERSION, Phase, Reason,
    SavedMember, State, Step, Timer, VERSION,
};
use crate::state::{LeaseToken, MOST_POOLS};
use poolcounter_core::{Span, Time};
use poolcounter_protocol::members::request::Token;
use poolcounter_store::ledger;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Time for which a fixed member that no pool has is remembered.
const REMEMBERED: Span = Span::from_secs(30 * 24 * 60 * 60);

/// Summary of what was read, for the log.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct RestoredKept {
    /// Leases that go on.
    pub leased: usize,
    /// Members whose holders are awaited.
    pub awaited: usize,
    /// Members in quarantine, held or kept out after a loss.
    pub kept_out: usize,
    /// Members that are to be cleaned.
    pub to_clean: usize,
    /// Members that no pool has.
    pub unknown: Vec<Arc<[u8]>>,
}

/// All rows, read and not applied.
#[derive(Default)]
struct Rows {
    number: u64,
    pools: Vec<KeptPool>,
    members: Vec<KeptMember>,
    provided: Vec<(Token, KeptMember)>,
}

impl Rows {
    fn read(rows: &[ledger::Row]) -> Result<Rows, String> {
        let mut all = Rows::default();
        let version = rows.iter().find(|(key, _)| *key == [OF_VERSION]).map(|(_, value)| &**value);
        if !rows.is_empty() && version != Some(&[VERSION]) {
            return Err("another version of this program has written it".into());
        }
        for (key, value) in rows {
            let (kind, name) = key.split_first().ok_or("a row has no key")?;
            match *kind {
                OF_NUMBER => all.number = read(value)?,
                OF_POOL => all.pools.push(read(value)?),
                OF_MEMBER => all.members.push(read(value)?),
                OF_TOKEN => all.provided.push((name.try_into().map_err(|_| "a token is cut off")?, read(value)?)),
                _ => {}
            }
        }
        Ok(all)
    }
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    postcard::from_bytes(value).map_err(|error| format!("a row is damaged: {error}"))
}

impl State {
    /// Applies the rows of a ledger.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read. Then nothing is applied.
    pub fn restore_kept(&mut self, rows: &[ledger::Row], step: &mut Step<'_, '_>) -> Result<RestoredKept, String> {
        let all = Rows::read(rows)?;
        let mut report = RestoredKept::default();
        self.leases.number_from(all.number);
        let mut leaving = Vec::new();
        for KeptPool { name, settings, is_leaving } in all.pools {
            match self.pools.find(&name) {
                Err(_) if self.pools.len() < MOST_POOLS && settings.check().is_ok() => {
                    let id = self.create_pool(name, settings, step);
                    leaving.extend(is_leaving.then_some(id));
                }
                _ => self.pools.marks.add(&name),
            }
        }
        for kept in all.members {
            self.restore_member(kept, &mut report, step);
        }
        for (token, kept) in all.provided {
            if self.restore_provided(kept, &mut report, step).is_none() {
                self.leases.marks.add(&token);
            }
        }
        leaving.into_iter().for_each(|id| self.remove(id, true, step));
        self.settle(step);
        Ok(report)
    }

    /// Applies the row of a fixed member, or remembers it if no pool has the member.
    fn restore_member(&mut self, kept: KeptMember, report: &mut RestoredKept, step: &mut Step<'_, '_>) {
        let name = kept.name().clone();
        let id = match (self.members.find_fixed(&name), self.pools.find(&kept.pool)) {
            (Some(id), _) => Some(id),
            (None, Ok(pool)) if kept.is_added() && self.check_fixed(pool, &name, step).is_ok() => {
                let attributes = kept.saved.attributes.clone().unwrap_or_default();
                Some(self.create_member(pool, &name, attributes, None, step))
            }
            _ => None,
        };
        match id {
            Some(id) => self.apply(id, kept, report, step),
            None => {
                let now = self.moment(step.now);
                let since = kept.unknown_since.unwrap_or(now);
                if !kept.is_plain() && now < since.saturating_add(REMEMBERED.as_micros()) {
                    report.unknown.push(name.clone());
                    self.kept.unknown.insert(name.clone(), KeptMember { unknown_since: Some(since), ..kept }.into());
                }
                self.members.marks.add(&name);
            }
        }
    }

    /// Applies what is remembered of a fixed member that is added again. Returns false if nothing is.
    pub(in crate::state) fn apply_unknown(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        let name = self.member(id).name.clone();
        let kept = self.kept.unknown.remove(&name).and_then(Arc::into_inner);
        kept.map(|kept| self.apply(id, kept, &mut RestoredKept::default(), step)).is_some()
    }

    /// Puts a member that is free, or in no queue, into the phase that it had.
    fn apply(&mut self, id: MemberId, kept: KeptMember, report: &mut RestoredKept, step: &mut Step<'_, '_>) {
        let (pool, wall) = (self.member(id).pool, self.kept.wall);
        // No time is before the boot of the machine.
        let mut saved = kept.saved.map_times(|at| Time::from_micros(at.as_micros().saturating_sub(wall.as_micros())));
        let cleans = self.pool(pool).settings.clean_timeout > Span::ZERO;
        self.leave_state(id, step);
        self.pools.touch(pool);
        self.members.mark(id);
        let (phase, until, reason) = (saved.member.phase, saved.until, saved.beside.reason.take());
        match phase {
            Phase::InUse if saved.lease.is_some() => self.await_holder(&mut saved, report, step),
            Phase::Cleaning | Phase::CleanLater if cleans => {
                report.to_clean += 1;
                saved.beside.failed.iter_mut().for_each(|failed| failed.by = None);
                let why = "it was being cleaned before a restart; it is cleaned again";
                let later = until.zip(reason).filter(|_| phase == Phase::CleanLater);
                let (until, (_, reason)) =
                    later.unwrap_or_else(|| (step.now, (step.now, Reason::new(why, String::new()))));
                saved.member.phase = Phase::CleanLater;
                saved.until = Some(until.max(step.now + CLEANER_GRACE));
                saved.beside.reason = Some((step.now, reason));
            }
            Phase::Quarantined | Phase::Held | Phase::Delayed => {
                report.kept_out += 1;
                saved.until = until.map(|until| until.max(step.now));
                saved.beside.reason = reason.or_else(|| Some((step.now, Reason::new("", String::new()))));
            }
            _ => {
                report.to_clean += usize::from(phase == Phase::Unclean);
                saved.member.phase = Phase::Orphaned;
                (saved.until, saved.beside.failed, saved.lease) = (None, None, None);
            }
        }
        // A row that contradicts itself says nothing but the member's name.
        self.resume(id, saved, step);
        match self.phase_of(id) {
            Phase::Orphaned if Phase::CLEANED.contains(&phase) => self.return_member(id, step),
            Phase::Orphaned => _ = self.release_member(id, step),
            _ => {}
        }
    }

    /// Lets the lease of a record go on: for the rest of the time of its token, else until its holder has had time to come
    /// back.
    fn await_holder(&self, saved: &mut SavedMember, report: &mut RestoredKept, step: &mut Step<'_, '_>) {
        let Some(Lease { token, holder, .. }) = &mut saved.lease else { return };
        let mut unknown = || LeaseToken { token: step.random.bytes(), span: Span::ZERO, until: step.now, rule: None };
        let token = token.get_or_insert_with(|| unknown().into());
        if token.span > Span::ZERO {
            report.leased += 1;
            token.until = token.until.max(step.now);
            return;
        }
        report.awaited += 1;
        token.until = step.now + self.kept.grace;
        saved.beside.reason = holder.as_ref().map(|holder| (step.now, Reason::awaits(holder)));
    }

    /// Leases a member of a provider again, which is awaited for the grace of its pool. Returns None if it cannot be.
    fn restore_provided(&mut self, kept: KeptMember, report: &mut RestoredKept, step: &mut Step<'_, '_>) -> Option<()> {
        let pool = self.pools.find(&kept.pool).ok()?;
        let grace = self.pool(pool).settings.provider_grace;
        let is_known = self.members.find_named(pool, kept.name()).or(self.members.find_fixed(kept.name())).is_some();
        let may_have = grace > Span::ZERO && self.members.is_fixed(pool) != Some(true) && self.has_slot(pool);
        (kept.saved.lease.is_some() && may_have && !is_known && self.has_room()).then_some(())?;
        let known = kept.session.as_deref().and_then(|session| self.agents.of_session(pool, session));
        let agent = match known {
            Some(agent) => agent,
            None => {
                let timer = step.timers.arm(step.now + grace, Timer::Grace(self.agents.next_id()));
                let (grace, session) = (Some(timer), kept.session.clone());
                self.agents.insert(Agent { pool, provides: true, grace, session, ..Agent::default() })?
            }
        };
        let attributes = kept.saved.attributes.clone().unwrap_or_default();
        let id = self.create_member(pool, kept.name(), attributes, Some(agent), step);
        self.apply(id, kept, report, step);
        Some(())
    }
}
