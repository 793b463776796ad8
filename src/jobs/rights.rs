//! Access rules for the jobs. Keys are the names of tubes, of groups with `group:` before them, or patterns as clients
//! use them. A pattern includes another one if it matches that one as a name.

use super::JobQueue;
use super::replies::ReplyBody;
use super::sessions::session_of;
use super::state::{JobId, JobsOf, LimitOf, ManyEntry, Put, PutOptions, Reserve};
use poolcounter_core::id::ConnId;
use poolcounter_protocol::jobs::commands::{JobCommand, RESERVE};
use poolcounter_protocol::jobs::name::TubeName;
use poolcounter_protocol::jobs::wire::schedule::is_schedule;
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_protocol::jobs::wire::{Request, replies};
use poolcounter_service::access::{Denial, Need, Takes};
use poolcounter_service::contract::Context;
use std::borrow::Cow;

/// Prefix of the name of a group. No tube's name can contain it.
const GROUP: &[u8] = b"group:";

/// Name of a tube, a pattern, or a group.
type Key<'a> = Cow<'a, [u8]>;

/// Objects that a request concerns.
enum About<'a> {
    /// All tubes.
    All,
    /// The tube that the connection uses.
    Used,
    /// The tubes that it watches.
    Watched,
    /// The tube of a job; no permission is needed if there is no such job.
    Job(JobId),
    /// The tube of a job, and another one; no permission is needed if there is no such job.
    JobAnd(JobId, &'a [u8]),
    /// The tube of a job; no permission is needed if the connection has reserved it.
    OthersJob(JobId),
    /// Tubes of these names or patterns, and groups.
    Names(Vec<Key<'a>>),
    /// The tubes and groups of these puts.
    Puts(Vec<&'a Put>),
    /// The tube of a periodic job; no permission is needed if there is no such job.
    Schedule(&'a [u8]),
    /// Only the connection itself.
    Itself,
}

/// Returns the command of a request, whose row has the right that it needs, and the tubes and groups that it concerns.
/// None: it is answered in any case, as it gives something back or cannot be read. Each variant is matched with all its fields, so that a new one with a tube or a group needs a decision here.
fn asked_for<'a>(item: &'a Item<'a>) -> Option<(JobCommand, About<'a>)> {
    let request = match item {
        Item::Put(put, _) if is_schedule(put) => return Some((JobCommand::SchedulePut, About::Puts(vec![put]))),
        Item::Put(put, _) => return Some((JobCommand::Put, About::Puts(vec![put]))),
        Item::PutMany(entries) => {
            let puts: Vec<&Put> = entries.iter().filter_map(put_of).collect();
            return (!puts.is_empty()).then_some((JobCommand::PutMany, About::Puts(puts)));
        }
        Item::Fail(..) | Item::Refused(_) => return None,
        Item::Request(request) => request,
    };
    let tube = |name: &'a [u8]| About::Names(vec![name.into()]);
    Some(match request {
        Request::Root(name, _, _) => (JobCommand::Root, tube(name.bytes())),
        Request::Dropped(name) => (JobCommand::Dropped, tube(name.bytes())),
        Request::Reserve(Reserve { timeout: _, many: _ }) => (JobCommand::Reserve, About::Watched),
        Request::ReserveJob(id) => (JobCommand::ReserveJob, About::Job(*id)),
        Request::Delete(id) => (JobCommand::Delete, About::OthersJob(*id)),
        Request::Peek(id) => (JobCommand::Peek, About::Job(*id)),
        Request::PeekFirst(_) => (JobCommand::PeekReady, About::Used),
        Request::StatsJob(id) => (JobCommand::StatsJob, About::OthersJob(*id)),
        Request::StatsTube(name) => (JobCommand::StatsTube, tube(name.bytes())),
        Request::ListJobs(name, _, _, _) => (JobCommand::ListJobs, tube(name.bytes())),
        Request::Stats => (JobCommand::Stats, About::All),
        Request::ListTubes => (JobCommand::ListTubes, About::All),
        Request::ListSettings(None) => (JobCommand::ListSettings, About::All),
        Request::ListSettings(Some(pattern)) => (JobCommand::ListSettings, tube(pattern.bytes())),
        Request::Summary(_) => (JobCommand::Summary, About::All),
        Request::Kick(_) => (JobCommand::Kick, About::Used),
        Request::KickJob(id) => (JobCommand::KickJob, About::Job(*id)),
        Request::KickAll(pattern, _) => (JobCommand::KickAll, tube(pattern.bytes())),
        Request::PauseTube(name, _) => (JobCommand::PauseTube, tube(name.bytes())),
        Request::PauseAll(pattern, _) => (JobCommand::PauseAll, tube(pattern.bytes())),
        Request::Retry(pattern, _) => (JobCommand::Retry, tube(pattern.bytes())),
        Request::DeadLetter(pattern, name) => {
            let names = [Some(pattern.bytes()), name.map(TubeName::bytes)];
            (JobCommand::DeadLetter, About::Names(names.into_iter().flatten().map(Key::Borrowed).collect()))
        }
        Request::Limit(LimitOf::Each(pattern) | LimitOf::All(pattern), _, _) => {
            (JobCommand::Limit, tube(pattern.bytes()))
        }
        Request::Limit(LimitOf::Group(group) | LimitOf::Ordered(group), _, _) => {
            (JobCommand::Limit, About::Names(vec![group_key(group)]))
        }
        Request::Clear(pattern, _) => (JobCommand::Clear, tube(pattern.bytes())),
        Request::Move(JobsOf::Job(id), name, _) => (JobCommand::Move, About::JobAnd(*id, name.bytes())),
        Request::Move(JobsOf::Pattern(pattern), name, _) => {
            (JobCommand::Move, About::Names(vec![pattern.bytes().into(), name.bytes().into()]))
        }
        Request::SetJob(id, _) => (JobCommand::SetJob, About::Job(*id)),
        Request::Cancel(JobsOf::Job(id)) => (JobCommand::Cancel, About::Job(*id)),
        Request::Cancel(JobsOf::Pattern(pattern)) => (JobCommand::Cancel, tube(pattern.bytes())),
        Request::ScheduleDelete(name) => (JobCommand::ScheduleDelete, About::Schedule(name)),
        Request::ListSchedules => (JobCommand::ListSchedules, About::All),
        Request::Drain => (JobCommand::Drain, About::All),
        Request::Undrain => (JobCommand::Undrain, About::All),
        Request::StoreCopy(_) => (JobCommand::StoreCopy, About::All),
        Request::Use(_) => (JobCommand::Use, About::Itself),
        Request::Watch(_, _) => (JobCommand::Watch, About::Itself),
        Request::Ignore(_) => (JobCommand::Ignore, About::Itself),
        Request::ListTubeUsed => (JobCommand::ListTubeUsed, About::Itself),
        Request::ListTubesWatched => (JobCommand::ListTubesWatched, About::Itself),
        Request::Identify(_) => (JobCommand::Identify, About::Itself),
        Request::Extensions => (JobCommand::Extensions, About::Itself),
        Request::Release(_, _, _) | Request::Bury(_, _) | Request::Touch(_) | Request::Begin(_) | Request::Quit => {
            return None;
        }
    })
}

fn put_of(entry: &ManyEntry) -> Option<&Put> {
    match entry {
        ManyEntry::Put(put, _) => Some(put),
        ManyEntry::Refused(_) => None,
    }
}

fn group_key<'a>(group: &[u8]) -> Key<'a> {
    [GROUP, group].concat().into()
}

/// Returns the tubes and groups of some puts of a connection that uses the tube `used`; each once.
fn keys_of<'a>(puts: &[&'a Put], used: &'a [u8]) -> Vec<Key<'a>> {
    let mut keys = Vec::with_capacity(puts.len());
    for Put { pri: _, delay: _, ttr: _, options } in puts {
        let Some(options) = options else {
            keys.push(Key::Borrowed(used));
            continue;
        };
        // A root job belongs to the tube into which its leaf is put.
        let PutOptions { tube, key: _, until: _, keep: _, root: _, group, schedule: _ } = &**options;
        keys.push(Key::Borrowed(if tube.is_empty() { used } else { tube }));
        keys.extend((!group.is_empty()).then(|| group_key(group)));
    }
    // A thousand puts go to a few tubes.
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl JobQueue {
    /// Refuses a request that the connection may not send now; a reserve of many jobs is cut to the allowed number.
    /// Without rules, only requests for administrators are checked.
    #[inline]
    pub(super) fn refuses(&mut self, conn: ConnId, item: &mut Item<'_>, context: &mut Context<'_>) -> bool {
        if context.has_rules() {
            return self.refuses_by_rule(conn, item, context);
        }
        let is_for_admins = matches!(item, Item::Request(request) if request.is_for_admins());
        let is_refused = is_for_admins && !self.is_open_to_admins && !context.conns.is_local(conn);
        if is_refused {
            self.add_reply(conn, ReplyBody::None, None, context, |_, bytes, _| replies::write_not_allowed(bytes));
        }
        is_refused
    }

    /// Ends the wait of a connection that watches tubes which its rule does not include any more.
    pub(super) fn drop_denied(&mut self, conn: ConnId, context: &mut Context<'_>) {
        if self.state.holds(conn).waits == 0 {
            return;
        }
        let patterns: Vec<&[u8]> = self.state.watches(conn).iter().map(|watch| &*watch.pattern).collect();
        if !context.includes(conn, RESERVE, &patterns) && self.state.deny_wait(conn) {
            if std::mem::take(&mut session_of(&mut self.sessions, conn).waits) {
                context.resume(conn);
            }
            self.add_reply(conn, ReplyBody::None, None, context, |_, bytes, _| replies::write_not_allowed(bytes));
        }
    }

    #[inline(never)]
    fn refuses_by_rule(&mut self, conn: ConnId, item: &mut Item<'_>, context: &mut Context<'_>) -> bool {
        let Some((command, about)) = asked_for(item) else {
            context.count_request(conn);
            return false;
        };
        let may_wait = match &*item {
            Item::Request(Request::Reserve(reserve)) => Some(reserve.timeout != Some(0)),
            Item::Request(Request::ReserveJob(_)) => Some(false),
            _ => None,
        };
        let takes =
            may_wait.map(|may_wait| Takes { has: context.holds_of(|| self.state.holds(conn)), locks: 1, may_wait });
        let names: Vec<Key<'_>> = match about {
            About::All | About::Itself => Vec::new(),
            About::Used => vec![self.state.used_tube(conn).into()],
            About::Watched => self.state.watches(conn).iter().map(|watch| Key::Borrowed(&*watch.pattern)).collect(),
            About::OthersJob(id) if self.state.has_reserved(conn, id) => {
                context.count_request(conn);
                return false;
            }
            About::Job(_) | About::JobAnd(..) | About::OthersJob(_) | About::Schedule(_) => {
                match self.tube_of(&about) {
                    Some(tube) => {
                        let other = if let About::JobAnd(_, other) = about { Some(other) } else { None };
                        std::iter::once(tube).chain(other).map(Key::Borrowed).collect()
                    }
                    None => {
                        context.count_request(conn);
                        return false;
                    }
                }
            }
            About::Names(names) => names,
            About::Puts(puts) => keys_of(&puts, self.state.used_tube(conn)),
        };
        let keys: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
        let denial = match context.check(conn, &Need { verb: command.row().verb, keys: &keys, takes }) {
            Err(denial) => denial,
            Ok(left) => {
                if let Item::Request(Request::Reserve(Reserve { timeout: _, many: Some(many) })) = item {
                    *many = u32::try_from(left).unwrap_or(u32::MAX).min(*many);
                }
                return false;
            }
        };
        self.deny(conn, denial, context);
        true
    }

    /// Returns the tube of a job, or of a periodic job.
    fn tube_of(&self, about: &About<'_>) -> Option<&[u8]> {
        match *about {
            About::Job(id) | About::JobAnd(id, _) | About::OthersJob(id) => self.state.tube_of(id),
            About::Schedule(name) => self.state.tube_of_schedule(name),
            _ => None,
        }
    }

    fn deny(&mut self, conn: ConnId, denial: Denial, context: &mut Context<'_>) {
        self.add_reply(conn, ReplyBody::None, None, context, |_, bytes, _| match denial.is_limit() {
            // beanstalkd's reply for "try again later".
            true => replies::write_too_much(bytes),
            false => replies::write_not_allowed(bytes),
        });
    }
}
