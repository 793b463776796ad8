//! What rules of access can say of the jobs. Keys are the names of tubes, or patterns as clients have them: what a pattern stands for
//! that another matches as a name is part of what that one stands for.

use super::JobQueue;
use super::state::{JobId, LimitOf};
use super::telling::Body;
use super::wire::stream::Item;
use super::wire::{Request, replies};
use crate::access::{Need, Verb};
use crate::id::ConnId;
use crate::service::Context;

/// What can be asked for.
pub const VERBS: &[&str] = &["put", "reserve", "read", "manage", "admin"];
const PUT: Verb = Verb(0);
const RESERVE: Verb = Verb(1);
const READ: Verb = Verb(2);
const MANAGE: Verb = Verb(3);
const ADMIN: Verb = Verb(4);

/// What each command asks for. Those about a job that its connection has reserved are free: it was allowed that.
pub const COMMANDS: &[(&str, Option<Verb>)] = &[
    ("use", None),
    ("put", Some(PUT)),
    ("put-job", Some(PUT)),
    ("put-many", Some(PUT)),
    ("root", Some(PUT)),
    ("watch", None),
    ("ignore", None),
    ("reserve", Some(RESERVE)),
    ("reserve-with-timeout", Some(RESERVE)),
    ("reserve-many", Some(RESERVE)),
    ("reserve-job", Some(RESERVE)),
    ("delete", Some(RESERVE)),
    ("release", None),
    ("bury", None),
    ("fail", None),
    ("touch", None),
    ("peek", Some(READ)),
    ("peek-ready", Some(READ)),
    ("peek-delayed", Some(READ)),
    ("peek-buried", Some(READ)),
    ("stats", Some(READ)),
    ("stats-job", Some(READ)),
    ("stats-tube", Some(READ)),
    ("list-tubes", Some(READ)),
    ("list-tube-used", None),
    ("list-tubes-watched", None),
    ("list-jobs", Some(READ)),
    ("summary", Some(READ)),
    ("kick", Some(MANAGE)),
    ("kick-job", Some(MANAGE)),
    ("kick-all", Some(MANAGE)),
    ("pause-tube", Some(MANAGE)),
    ("limit", Some(MANAGE)),
    ("retry", Some(MANAGE)),
    ("dead-letter", Some(MANAGE)),
    ("clear", Some(ADMIN)),
    ("drain", Some(ADMIN)),
    ("undrain", Some(ADMIN)),
    ("store-copy", Some(ADMIN)),
    ("identify", None),
    ("extensions", None),
    ("quit", None),
];

/// What a request is about.
enum About<'a> {
    /// All that there is.
    All,
    /// The tube that the connection uses.
    Used,
    /// The tubes that it watches.
    Watched,
    /// The tube of a job; nothing is needed if there is no such job.
    Job(JobId),
    /// The same, unless the connection has reserved it.
    OthersJob(JobId),
    /// Tubes of this name or pattern.
    Tubes(&'a [u8]),
    /// Tubes of this, and that.
    Both(&'a [u8], &'a [u8]),
}

/// Returns what a request asks for, and of which tubes; None if that is free.
fn asked_for<'a>(item: &Item<'a>) -> Option<(Verb, About<'a>)> {
    let request = match item {
        Item::Put(..) | Item::PutMany(_) => return Some((PUT, About::Used)),
        Item::Fail(..) | Item::Refused(_) => return None,
        Item::Request(request) => request,
    };
    Some(match request {
        Request::Root(tube, ..) => (PUT, About::Tubes(tube.bytes())),
        Request::Reserve(_) => (RESERVE, About::Watched),
        Request::ReserveJob(id) => (RESERVE, About::Job(*id)),
        Request::Delete(id) => (RESERVE, About::OthersJob(*id)),
        Request::Peek(id) | Request::StatsJob(id) => (READ, About::Job(*id)),
        Request::PeekFirst(_) => (READ, About::Used),
        Request::StatsTube(tube) | Request::ListJobs(tube, ..) => (READ, About::Tubes(tube.bytes())),
        Request::Stats | Request::ListTubes | Request::Summary(_) => (READ, About::All),
        Request::Kick(_) => (MANAGE, About::Used),
        Request::KickJob(id) => (MANAGE, About::Job(*id)),
        Request::PauseTube(pattern, _)
        | Request::Retry(pattern, _)
        | Request::KickAll(pattern)
        | Request::DeadLetter(pattern, None)
        | Request::Limit(LimitOf::Each(pattern) | LimitOf::All(pattern), _) => (MANAGE, About::Tubes(pattern.bytes())),
        Request::DeadLetter(pattern, Some(tube)) => (MANAGE, About::Both(pattern.bytes(), tube.bytes())),
        Request::Limit(LimitOf::Group(_), _) => (MANAGE, About::All),
        Request::Clear(pattern, _) => (ADMIN, About::Tubes(pattern.bytes())),
        Request::Drain | Request::Undrain | Request::StoreCopy(_) => (ADMIN, About::All),
        Request::Use(_)
        | Request::Watch(..)
        | Request::Ignore(_)
        | Request::Release(..)
        | Request::Bury(..)
        | Request::Touch(_)
        | Request::ListTubeUsed
        | Request::ListTubesWatched
        | Request::Identify(_)
        | Request::Extensions
        | Request::Quit => return None,
    })
}

impl JobQueue {
    /// Looks whether a connection may ask for this now, and tells it if not. Without rules, only what is for administrators is asked about.
    #[inline]
    pub(super) fn refuses(&mut self, conn: ConnId, item: &Item<'_>, context: &mut Context<'_>) -> bool {
        if context.has_rules() {
            return self.refuses_by_rule(conn, item, context);
        }
        let is_for_admins = matches!(item, Item::Request(request) if request.is_for_admins());
        let is_refused = is_for_admins && !self.is_open_to_admins && !context.peers.is_local(conn);
        if is_refused {
            self.say(conn, Body::None, None, context, |_, bytes, _| replies::write_not_allowed(bytes));
        }
        is_refused
    }

    #[inline(never)]
    fn refuses_by_rule(&mut self, conn: ConnId, item: &Item<'_>, context: &mut Context<'_>) -> bool {
        let Some((verb, about)) = asked_for(item) else { return false };
        let takes = matches!(item, Item::Request(Request::Reserve(_) | Request::ReserveJob(_)));
        let takes = takes.then(|| context.holds_of(|| self.state.holds(conn)));
        let tubes: Vec<&[u8]> = match about {
            About::All => Vec::new(),
            About::Used => vec![self.state.used_tube(conn)],
            About::Watched => self.state.watches(conn).iter().map(|watch| &*watch.pattern).collect(),
            About::OthersJob(id) if self.state.has_reserved(conn, id) => return false,
            About::Job(id) | About::OthersJob(id) => match self.state.tube_of(id) {
                Some(tube) => vec![tube],
                None => return false,
            },
            About::Tubes(name) => vec![name],
            About::Both(one, other) => vec![one, other],
        };
        let Err(denial) = context.check(conn, &Need { verb, keys: &tubes, takes }) else { return false };
        self.say(conn, Body::None, None, context, |_, bytes, _| match denial.is_limit() {
            // What beanstalkd says when it is to be tried again later.
            true => replies::write_too_much(bytes),
            false => replies::write_not_allowed(bytes),
        });
        true
    }
}
