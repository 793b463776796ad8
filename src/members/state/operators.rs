//! What operators do with members: fixed ones come and go, some are repaired, some are held.

use super::members::Cause;
use super::*;

impl State {
    /// `ADD pool member [attr=value ...]`.
    pub(super) fn add(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let pool = self.find_pool(named.pool)?;
        if self.pool(pool).is_leaving {
            return Err(Refusal::NoPool);
        }
        let known = self.known_member(pool, named.member, step);
        self.check_room(pool, known)?;
        step.tell(conn, What::Ok);
        let id = self.create_member(pool, named.member, attributes, MemberOwner::Fixed, step);
        self.release_member(id, Cause::Other, step);
        Ok(())
    }

    /// `DEL pool member [NOW]`.
    pub(super) fn delete(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        now: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_fixed(named, step)?;
        step.tell(conn, What::Ok);
        self.let_go(id, now, step);
        Ok(())
    }

    fn find_fixed(&mut self, named: Named<'_>, step: &mut Step<'_, '_>) -> Result<MemberId, Refusal> {
        let id = self.find_member(named, step)?;
        if self.member(id).owner == MemberOwner::Fixed { Ok(id) } else { Err(Refusal::NoSuchMember) }
    }

    /// `REPAIR pool member`.
    pub(super) fn repair(&mut self, conn: ConnId, named: Named<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.find_member(named, step)?;
        step.tell(conn, What::Ok);
        if self.member(id).phase.kind() == PhaseKind::Quarantined {
            self.leave_state(id, step);
            self.release_member(id, Cause::Other, step);
        }
        Ok(())
    }

    /// `HOLD pool member seconds [note]`. A member that is not free is held as soon as it would be.
    pub(super) fn hold(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        span: Span,
        note: &[u8],
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_member(named, step)?;
        step.tell(conn, What::Ok);
        let (pool, member) = (self.pool(self.member(id).pool).name.clone(), self.member(id).name.clone());
        step.notices.push(Notice::Held { pool, member, span, note: note.into() });
        match self.member(id).phase.kind() {
            PhaseKind::Free | PhaseKind::Held => {
                self.leave_state(id, step);
                let timer = step.timers.arm(step.now + span, Timer::Phase(id));
                self.enter_state(id, MemberPhase::Held(timer));
            }
            PhaseKind::Stopping => {}
            _ => {
                self.holds.insert(id, span);
            }
        }
        Ok(())
    }

    /// `FREE pool member`.
    pub(super) fn free(&mut self, conn: ConnId, named: Named<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.find_member(named, step)?;
        step.tell(conn, What::Ok);
        if self.member(id).phase.kind() == PhaseKind::Held {
            self.leave_state(id, step);
            self.release_member(id, Cause::Other, step);
        }
        Ok(())
    }
}
