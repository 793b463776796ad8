//! Access rules for the jobs. Keys are the names of tubes, of groups with `group:` before them, or patterns as clients
//! use them. A pattern includes another one if it matches that one as a name.

use super::JobQueue;
use super::sessions::session_of;
use super::state::{JobId, JobsOf, LimitOf, ManyEntry, Put, PutOptions, Reply, Reserve};
use poolcounter_core::ConnId;
use poolcounter_core::text::escaped;
use poolcounter_protocol::jobs::commands::{ADMIN, JobCommand, RESERVE};
use poolcounter_protocol::jobs::wire::Request;
use poolcounter_protocol::jobs::wire::schedule::is_schedule;
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_service::access::{Need, Takes};
use poolcounter_service::contract::Context;
use std::borrow::Cow;

/// Prefix of the name of a group. No tube's name can contain it.
const GROUP: &[u8] = b"group:";

/// Name of a tube, a pattern, or a group.
type Key<'a> = Cow<'a, [u8]>;

/// Objects that a request concerns.
enum About<'a> {
    /// The tube that the connection uses.
    Used,
    /// The tubes that it watches.
    Watched,
    /// The tube of a job, and perhaps another one; no permission is needed if there is no such job, or, with true, if the
    /// connection has reserved it.
    Job(JobId, Option<&'a [u8]>, bool),
    /// Tubes of these names or patterns, and groups. Without any: all tubes, or only the connection itself.
    Names(Vec<Key<'a>>),
    /// The tubes and groups of these puts.
    Puts(Vec<&'a Put>),
    /// The tube of a periodic job; no permission is needed if there is no such job.
    Schedule(&'a [u8]),
}

/// Returns the command of a request, whose row has the right that it needs, and the tubes and groups that it concerns.
/// None: it is answered in any case, as it gives something back or cannot be read. Each variant is matched with all its
/// fields, so that a new one with a tube or a group needs a decision here.
fn asked_for<'a>(item: &'a Item<'a>) -> Option<(JobCommand, About<'a>)> {
    let (command, request) = match item {
        Item::Put(put, _) if is_schedule(put) => return Some((JobCommand::SchedulePut, About::Puts(vec![put]))),
        Item::Put(put, _) => return Some((JobCommand::Put, About::Puts(vec![put]))),
        Item::PutMany(entries) => {
            let puts: Vec<&Put> = entries.iter().filter_map(put_of).collect();
            return (!puts.is_empty()).then_some((JobCommand::PutMany, About::Puts(puts)));
        }
        Item::Fail(..) | Item::Refused(_) => return None,
        Item::Request(command, request) => (*command, request),
    };
    let names = |names: &[&'a [u8]]| About::Names(names.iter().map(|name| Key::Borrowed(*name)).collect());
    let about = match request {
        Request::Root(name, _, _)
        | Request::Dropped(name)
        | Request::StatsTube(name)
        | Request::ListJobs(name, _, _, _)
        | Request::PauseTube(name, _) => names(&[name.bytes()]),
        Request::ListSettings(Some(pattern))
        | Request::KickAll(pattern, _)
        | Request::PauseAll(pattern, _)
        | Request::Retry(pattern, _)
        | Request::DeadLetter(pattern, None)
        | Request::Limit(LimitOf::Tubes(pattern), _)
        | Request::Clear(pattern, _)
        | Request::Cancel(JobsOf::Pattern(pattern)) => names(&[pattern.bytes()]),
        Request::DeadLetter(pattern, Some(name)) | Request::Move(JobsOf::Pattern(pattern), name, _) => {
            names(&[pattern.bytes(), name.bytes()])
        }
        Request::Limit(LimitOf::Group(group), _) => About::Names(vec![group_key(group)]),
        Request::Reserve(Reserve { timeout: _, many: _ }) => About::Watched,
        Request::PeekFirst(_) | Request::Kick(_) => About::Used,
        Request::ReserveJob(id)
        | Request::Peek(id)
        | Request::KickJob(id)
        | Request::SetJob(id, _)
        | Request::Cancel(JobsOf::Job(id)) => About::Job(*id, None, false),
        Request::Move(JobsOf::Job(id), name, _) => About::Job(*id, Some(name.bytes()), false),
        Request::Delete(id) | Request::StatsJob(id) => About::Job(*id, None, true),
        Request::ScheduleDelete(name) => About::Schedule(name),
        Request::Stats
        | Request::ListTubes
        | Request::ListSettings(None)
        | Request::Summary(_)
        | Request::ListSchedules
        | Request::Drain
        | Request::Undrain
        | Request::StoreCopy(_)
        | Request::Use(_)
        | Request::Watch(_, _)
        | Request::Ignore(_)
        | Request::ListTubeUsed
        | Request::ListTubesWatched
        | Request::Identify(_)
        | Request::Extensions => names(&[]),
        Request::Release(_, _, _) | Request::Bury(_, _) | Request::Touch(_) | Request::Begin(_) | Request::Quit => {
            return None;
        }
    };
    Some((command, about))
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
        let is_for_admins = matches!(item, Item::Request(command, _) if command.row().verb == Some(ADMIN));
        let is_refused = is_for_admins && !self.settings.admin && !context.conns.peers.is_local(conn);
        if is_refused {
            self.reply(conn, Reply::NotAllowed, context);
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
            self.reply(conn, Reply::NotAllowed, context);
        }
    }

    #[inline(never)]
    fn refuses_by_rule(&mut self, conn: ConnId, item: &mut Item<'_>, context: &mut Context<'_>) -> bool {
        let asked = asked_for(item).and_then(|(command, about)| Some((command, self.keys_about(conn, about)?)));
        let Some((command, names)) = asked else {
            context.count_request(conn);
            return false;
        };
        let may_wait = match &*item {
            Item::Request(_, Request::Reserve(reserve)) => Some(reserve.timeout != Some(0)),
            Item::Request(_, Request::ReserveJob(_)) => Some(false),
            _ => None,
        };
        let takes =
            may_wait.map(|may_wait| Takes { has: context.holds_of(|| self.state.holds(conn)), locks: 1, may_wait });
        let keys: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
        let denial = match context.check(conn, &Need { verb: command.row().verb, keys: &keys, takes }) {
            Err(denial) => denial,
            Ok(left) => {
                if let Item::Request(_, Request::Reserve(Reserve { timeout: _, many: Some(many) })) = item {
                    *many = u32::try_from(left).unwrap_or(u32::MAX).min(*many);
                }
                return false;
            }
        };
        // beanstalkd's reply for "try again later".
        let reply = if denial.is_limit() { Reply::OutOfMemory } else { Reply::NotAllowed };
        self.reply(conn, reply, context);
        true
    }

    /// Returns a request by which an operator changes something, behind the name and address of the client; None for
    /// other requests.
    #[inline]
    pub(super) fn act_of(&self, conn: ConnId, item: &Item<'_>, context: &Context<'_>) -> Option<String> {
        let manages = match item {
            Item::Request(_, Request::Reserve(_) | Request::Delete(_)) => false,
            Item::Request(command, _) => command.manages(),
            Item::Put(put, _) => is_schedule(put),
            _ => false,
        };
        if manages { self.words_of_act(conn, item, context) } else { None }
    }

    #[cold]
    fn words_of_act(&self, conn: ConnId, item: &Item<'_>, context: &Context<'_>) -> Option<String> {
        let (command, about) = asked_for(item)?;
        let mut words = vec![command.row().word.to_string()];
        let word = |name: &[u8]| escaped(name).to_string();
        match about {
            About::Job(id, other, _) => words.extend([id.to_string()].into_iter().chain(other.map(word))),
            About::Schedule(name) => words.push(word(name)),
            about => words.extend(self.keys_about(conn, about)?.iter().map(|key| word(key))),
        }
        let (name, peer) = (self.state.name_of(conn), context.conns.peers.peer(conn));
        let who = if name.is_empty() { peer } else { format!("{} at {peer}", escaped(name)) };
        Some(format!("{who}: {}", words.join(" ")))
    }

    /// Returns the tubes and groups that a request concerns; None if it needs no permission.
    fn keys_about<'s>(&'s self, conn: ConnId, about: About<'s>) -> Option<Vec<Key<'s>>> {
        let state = &self.state;
        Some(match about {
            About::Used => vec![state.used_tube(conn).into()],
            About::Watched => state.watches(conn).iter().map(|watch| Key::Borrowed(&*watch.pattern)).collect(),
            About::Job(id, _, true) if state.is_holder(conn, id) => return None,
            About::Job(id, other, _) => [state.tube_of(id)?].into_iter().chain(other).map(Key::Borrowed).collect(),
            About::Schedule(name) => vec![state.tube_of_schedule(name)?.into()],
            About::Names(names) => names,
            About::Puts(puts) => keys_of(&puts, state.used_tube(conn)),
        })
    }
}
