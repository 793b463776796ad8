//! Packed form of the leases, in the order of their numbers. A lease leaves out values that it shares with the one
//! before.

use super::members::index_of;
use super::*;
use poolcounter_core::record::{
    BlockWriter, push_bytes, push_difference, push_number, take_array, take_bytes, take_difference, take_number,
};

/// Bits of the form of a holder; the bits above are the flags of a lease.
const HOLDER: u8 = 0x7;
const IS_REPORTED: u8 = 1 << 3;
const HAS_TOKEN: u8 = 1 << 4;
/// It counts for a rule.
const HAS_RULE: u8 = 1 << 5;
/// It is of another connection than the one before.
const HAS_CONN: u8 = 1 << 6;

/// Forms of a holder: the lease's own connection, the holder of the lease before, or another one.
const OF_CONN: u8 = 0;
const AS_BEFORE: u8 = 1;
const NAME: u8 = 2;
const ADDRESS: u8 = 3;
const OTHER_CONN: u8 = 4;

/// Lease of a handover.
pub(in crate::state) struct SavedLease {
    pub number: u64,
    pub member: MemberId,
    pub conn: Option<ConnId>,
    /// Holding of a connection that has ended.
    pub left: Option<HoldingId>,
    pub holder: Holder,
    pub since: Time,
    pub is_reported: bool,
    pub token: Option<(Token, Span, Time)>,
}

/// Values of the lease before.
#[derive(Default)]
struct LeasePacker<'a> {
    /// Lowest number of the next lease.
    next: u64,
    member: u64,
    since: u64,
    conn: u64,
    holder: Option<&'a Holder>,
    rule: Option<&'a Arc<str>>,
}

/// Reader of the leases.
#[derive(Default)]
pub(in crate::state) struct LeaseUnpacker {
    next: u64,
    member: u64,
    since: u64,
    conn: u64,
    holder: Option<Holder>,
    rule: Option<Arc<str>>,
}

impl State {
    /// Writes all leases.
    pub(super) fn save_leases(&self, out: &mut Writer<'_>, numbers: &MemberNumbers) -> io::Result<()> {
        let mut leases: Vec<(u64, LeaseId)> = self.leases.iter().map(|(id, lease)| (lease.number, id)).collect();
        leases.sort_unstable();
        let (mut packer, mut blocks) = (LeasePacker::default(), BlockWriter::default());
        for (_, id) in leases {
            let member = numbers.of(self.leases.get(id).member);
            blocks.put(out, |bytes| packer.pack(bytes, &self.leases, id, member))?;
        }
        blocks.end(out)
    }
}

impl<'a> LeasePacker<'a> {
    fn pack(&mut self, bytes: &mut Vec<u8>, leases: &'a Leases, id: LeaseId, member: MemberId) {
        let lease = leases.get(id);
        let (member, since, token) = (member.index() as u64, lease.since.as_micros(), lease.token.as_deref());
        // Odd numbers are of connections, even ones of holdings whose connection has ended.
        let conn = match (leases.conn_of(id), lease.holding) {
            (Some(conn), _) => 2 * conn.index() as u64 + 1,
            (None, Some(left)) => 2 * left.index() as u64 + 2,
            (None, None) => 0,
        };
        let holder = match &lease.holder {
            Holder::Connection(conn) if leases.conn_of(id) == Some(*conn) => OF_CONN,
            holder if self.holder == Some(holder) => AS_BEFORE,
            Holder::Name(_) => NAME,
            Holder::Address(_) => ADDRESS,
            Holder::Connection(_) => OTHER_CONN,
        };
        let rule = token.and_then(|token| token.rule.as_ref());
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        let flags = holder
            | flag(IS_REPORTED, lease.is_reported)
            | flag(HAS_TOKEN, token.is_some())
            | flag(HAS_RULE, rule.is_some())
            | flag(HAS_CONN, conn != self.conn);
        bytes.push(flags);
        push_number(bytes, lease.number - self.next);
        push_difference(bytes, member, self.member);
        push_difference(bytes, since, self.since);
        if conn != self.conn {
            push_number(bytes, conn);
        }
        match &lease.holder {
            Holder::Name(name) | Holder::Address(name) if holder != AS_BEFORE => {
                push_bytes(bytes, name);
            }
            Holder::Connection(conn) if holder == OTHER_CONN => push_number(bytes, conn.index() as u64),
            _ => {}
        }
        if let Some(token) = token {
            bytes.extend_from_slice(&token.token);
            push_number(bytes, token.span.as_micros());
            push_difference(bytes, token.until.as_micros(), since);
        }
        match rule {
            Some(rule) if self.rule == Some(rule) => push_number(bytes, 0),
            Some(rule) => {
                push_number(bytes, 1);
                push_bytes(bytes, rule.as_bytes());
            }
            None => {}
        }
        let (holder, rule) = (Some(&lease.holder), rule.or(self.rule));
        *self = LeasePacker { next: lease.number + 1, member, since, conn, holder, rule };
    }
}

impl LeaseUnpacker {
    /// Removes the next lease from the front of `bytes`. Returns it, and the rule that it counts for if there is one;
    /// None if there is no lease.
    pub fn unpack(&mut self, bytes: &mut &[u8]) -> Option<(SavedLease, Option<Arc<str>>)> {
        let [flags] = take_array(bytes)?;
        let has = |flag| flags & flag != 0;
        let number = self.next.checked_add(take_number(bytes)?)?;
        self.next = number.checked_add(1)?;
        self.member = take_difference(bytes, self.member)?;
        self.since = take_difference(bytes, self.since)?;
        if has(HAS_CONN) {
            self.conn = take_number(bytes)?;
        }
        let (conn, left) = match self.conn {
            0 => (None, None),
            odd if odd % 2 == 1 => (Some(ConnId::from_index(index_of(odd / 2)?)), None),
            even => (None, Some(HoldingId::from_index(index_of(even / 2 - 1)?))),
        };
        let holder = match flags & HOLDER {
            OF_CONN => Holder::Connection(conn?),
            AS_BEFORE => self.holder.clone()?,
            NAME => Holder::Name(take_bytes(bytes)?.into()),
            ADDRESS => Holder::Address(take_bytes(bytes)?.into()),
            OTHER_CONN => Holder::Connection(ConnId::from_index(index_of(take_number(bytes)?)?)),
            _ => return None,
        };
        self.holder = Some(holder.clone());
        let since = Time::from_micros(self.since);
        let token = if has(HAS_TOKEN) {
            let (token, span) = (take_array(bytes)?, Span::from_micros(take_number(bytes)?));
            Some((token, span, Time::from_micros(take_difference(bytes, self.since)?)))
        } else {
            None
        };
        if has(HAS_RULE) {
            match take_number(bytes)? {
                0 => {}
                1 => self.rule = Some(str::from_utf8(take_bytes(bytes)?).ok()?.into()),
                _ => return None,
            }
        }
        let rule = if has(HAS_RULE) && has(HAS_TOKEN) { Some(self.rule.clone()?) } else { None };
        let member = MemberId::from_index(index_of(self.member)?);
        let is_reported = has(IS_REPORTED);
        Some((SavedLease { number, member, conn, left, holder, since, is_reported, token }, rule))
    }
}
