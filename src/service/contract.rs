//! The contract between the loop and a service. The loop passes in received bytes, the current time and disconnects;
//! the service writes replies to [`Context::output`], for any connection.
//!
//! A service is called in the middle of a tick and never calls back. For each connection the order is:
//! [`Service::open`] once, [`Service::serve`] any number of times, then [`Service::close`] once, after which the
//! service must not know the connection any more.
//!
//! # Traits
//!
//! | trait | caller |
//! |---|---|
//! | [`Service`] | the tick: requests, timers, disconnects, commits |
//! | [`Lifecycle`] | start, reload, upgrade and stop |
//! | [`Handover`] | the upgrade: the state that outlives the process |
//! | [`Observe`] | metrics, pages, `stats`, the health check |
//! | [`Operate`] | operators, through pages and the administration |
//! | [`Inquire`] | results of the service's own requests to other services |
//! | [`Inspect`] | tests and rehearsals |
//!
//! # Effects
//!
//! A service has no access to other services, to connections or to the process. It adds an [`Effect`] to
//! [`Context::effects`], and the loop carries it out after the call. Results arrive in [`Inquire`].
//!
//! # Replies that come later
//!
//! | the service wants | it |
//! |---|---|
//! | to reply later, and serve nothing before | returns [`Then::Wait`], then calls [`Context::resume`] |
//! | to reply with a snapshot of all services | returns [`Then::Show`] unless [`Input::may_show`], then asks by [`Effect::Show`] |
//! | to reply after a commit | uses [`Context::reply_after`], then [`Context::release_up_to`] in [`Service::completed`] |
//! | to write to a store | collects changes and passes them on in [`Service::commit`], once a tick |
//!
//! A store works in a thread of its own and owns no state of the service. It says that it has finished something by the
//! [`Wake`] that the service got in [`Lifecycle::attach`]; [`Service::completed`] is called in the next tick.

mod checks;
pub mod context;
pub mod effects;
pub mod operations;
pub mod settings;
pub mod turns;

pub use crate::peer::{Credentials, GONE, NoPeers, NoProcessInfo, Peers, Process, ProcessUsage, Traffic};
pub use context::{CallTime, Called, Conns, Context, Wake};
pub use effects::{Effect, Shown, Telemetry, Wanted};
pub use operations::{Operation, OperationError, OperationRequest, OperationResult, Operations, Requester};
pub use poolcounter_core::record::Unreadable;
pub use turns::{Input, Served, Then};

use crate::access::{Command, Holds};
use crate::health::{ConditionInfo, Look};
use crate::options::{Endpoint, Opt};
use crate::report::{Counted, Report, Series, View};
use poolcounter_core::{ConnId, Due, Reader, Span, Time, Writer};
use settings::ServiceSettings;
use std::io;
use std::sync::Arc;

/// Static description of a service; its entry in the list.
pub struct Info {
    /// Name in messages, metrics and the handover.
    pub name: &'static str,
    /// Port of addresses that name none.
    pub port: u16,
    /// True when the service listens by default.
    pub is_enabled: bool,
    /// Default limit of open connections.
    pub max_connections: u64,
    /// True when the service writes to a store: [`Service::commit`] is called in each tick.
    pub has_store: bool,
    /// Title in lines about its health: `Locks`; empty if it has none.
    pub title: &'static str,
    /// Conditions of its health.
    pub conditions: &'static [&'static ConditionInfo],
    /// First words of the log line that names the addresses: `the counters are at`.
    pub announcement: &'static str,
    /// Options for the addresses. The first turns the service on, unless it is enabled by default.
    pub listening: &'static [Opt<Endpoint>],
    /// True when the service listens on Unix sockets alone, which only the daemon's own user and root can open,
    /// whatever the permissions of other sockets are.
    pub is_private: bool,
    /// Names of permissions in access rules, at most 32.
    pub verbs: &'static [&'static str],
    /// Table of its commands; empty for the service that takes the operations of all as its commands.
    pub commands: &'static [Command],
    /// Bytes sent to a connection that no access rule admits, before it is closed.
    pub refusal: &'static [u8],
    /// Returns the default settings, which make the service.
    pub settings: fn() -> Box<dyn ServiceSettings>,
    /// Operations for operators.
    pub operations: &'static [Operation],
}

/// Bounds on the connections of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Longest request that is read as a whole, in bytes. A longer body is consumed in pieces, as it arrives.
    pub request_bytes: usize,
    /// Limit of unsent output, in bytes. A connection beyond it is closed, because its peer does not read.
    pub output_bytes: usize,
    /// Time limit without a request served or a reply read. `None`: no limit, because the connection may hold
    /// something.
    pub idle: Option<Span>,
}

/// Service of the daemon, as the tick calls it.
pub trait Service: Lifecycle + Handover + Observe + Operate + Inquire + Inspect + Send {
    /// Returns the bounds on connections. Called once.
    fn caps(&self) -> Caps;

    /// Notes a connection that was accepted and has a place. Not called for connections that are handed over.
    fn open(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Serves requests from the front of `input`, in order, at most [`REQUESTS_PER_TURN`], and stops when the
    /// connection's output is full. Bytes that are not consumed come again, with more behind them: a request whose
    /// reply is too long for one turn stays in the input until the whole reply is written.
    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served;

    /// Handles the half-close of a connection that waits ([`Then::Wait`]). The connection stays open until it has its
    /// replies, unless the service ends the wait now. Called at least once in each such wait, even if the half-close
    /// came before it; the service may just have ended the wait.
    fn hangup(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Handles a timer of the service that is due; `due.key()` is the key that it was armed with.
    fn expire(&mut self, due: Due, context: &mut Context<'_>);

    /// Removes a connection that is gone, and releases everything that it held, in slices if that is very much. Called
    /// once, in any phase but the last: even while nothing else is served, before an upgrade.
    fn close(&mut self, conn: ConnId, context: &mut Context<'_>);

    /// Returns whether nothing is left of a connection that was closed: its id is not used again before that.
    fn has_forgotten(&self, _conn: ConnId) -> bool {
        true
    }

    /// Passes the changes collected in this tick to the store. Called in each tick in which another method of a service
    /// with a store was called, after all serving and timers and before output is sent.
    fn commit(&mut self, _context: &mut Context<'_>) {}

    /// Processes the results of the store.
    fn completed(&mut self, _context: &mut Context<'_>) {}

    /// Returns the usage of a connection. Called after each turn of the connection, if some rule limits it.
    fn usage_of(&self, _conn: ConnId) -> Holds {
        Holds::default()
    }

    /// Returns the number of bytes kept for a connection outside of the loop's buffers: of an unfinished request, and
    /// of a reply in progress. Called after each turn of the connection, if some rule limits memory.
    fn kept_bytes(&self, _conn: ConnId) -> usize {
        0
    }
}

/// Start, reload, upgrade and stop of a service.
pub trait Lifecycle {
    /// Takes what wakes the loop, for the thread of the store. Called before anything else, if there is a loop to wake.
    fn attach(&mut self, _wake: Wake) {}

    /// Applies the settings to the (possibly restored) state. Called once, before the first connection is served;
    /// skipped when the configuration could not be read, so that the previous settings stay.
    fn configure(&mut self, _context: &mut Context<'_>) {}

    /// Opens the store, and reads it unless its content was restored. Called once, after [`Lifecycle::configure`] and
    /// before any connection is served; never in a rehearsal. `listens` is false if the service has no address: a store
    /// that was not in use before then stays closed.
    ///
    /// # Errors
    ///
    /// One sentence with the reason for which the service cannot start.
    fn begin(&mut self, _listens: bool, _context: &mut Context<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Drops waits and provider roles of a connection that its access rule does not include, and answers the waits as
    /// denied. Locks that the connection holds stay. Called once for each connection after a handover, if there are
    /// rules, after [`Lifecycle::configure`].
    fn recheck(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Returns the number of locks that count for access rules without a connection, by the names of the rules. Changes
    /// are reported with [`Access::note_leases`](crate::access::Access::note_leases).
    fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        Vec::new()
    }

    /// Stops accepting new work until a restart, as requested by an operator's signal; existing work is served to its
    /// end.
    fn drain(&mut self, _context: &mut Context<'_>) {}

    /// Refuses new requests, or accepts them again: the daemon ends once [`Observe::at_risk`] is zero. Waiting requests
    /// are served to their end.
    fn refuse_new(&mut self, _refuses: bool, _context: &mut Context<'_>) {}

    /// Stops accepting requests that would need a commit, or accepts them again: an upgrade waits for
    /// [`Lifecycle::is_settled`]. Everything else is served meanwhile, including other services. May be called several
    /// times.
    fn settle(&mut self, _settles: bool, _context: &mut Context<'_>) {}

    /// Returns true if no work is in progress that takes longer than a call of [`Lifecycle::quiesce`].
    fn is_settled(&self) -> bool {
        self.is_quiet()
    }

    /// Stops reading requests that would need a commit: the daemon ends once [`Lifecycle::is_finished`], or a few
    /// seconds later. Everything else is served until then.
    fn finish(&mut self, _context: &mut Context<'_>) {}

    /// Returns true if no work is in progress that the end of the daemon waits for.
    fn is_finished(&self) -> bool {
        true
    }

    /// Finishes work that would need a timer: an upgrade waits for [`Lifecycle::is_quiet`], and no timer fires
    /// meanwhile. May be called several times.
    fn quiesce(&mut self, _context: &mut Context<'_>) {}

    /// Returns true if no work is in progress that a process which takes over could not continue, such as a commit.
    /// From [`Lifecycle::quiesce`] on nothing is served; if this is still false then, serving resumes.
    fn is_quiet(&self) -> bool {
        true
    }
}

/// State of a service in the handover to another process.
pub trait Handover {
    /// Writes the whole state, for a process that takes over. Connections keep their ids. A change of the format needs
    /// another version of the handover.
    ///
    /// # Errors
    ///
    /// Fails if the state cannot be written.
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()>;

    /// Takes the state that another process saved. Called once, before any connection is served. Connections that
    /// waited still wait; a connection that is resumed here gets a turn in any case.
    ///
    /// # Errors
    ///
    /// Fails if the data is not in a format that it reads.
    fn restore(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable>;

    /// Reads a slice of what [`Handover::restore`] has kept because it takes long to read. Returns true when nothing is
    /// left. Called after it, once a tick. Until then the service is neither configured nor served nor observed, and
    /// none of its timers fires; its clients wait, and clients of other services do not. Connections that end meanwhile
    /// are closed afterwards. A snapshot for operators, and a timer, make it read the rest at once.
    ///
    /// # Errors
    ///
    /// Fails like [`Handover::restore`].
    fn restore_more(&mut self, _context: &mut Context<'_>) -> Result<bool, Unreadable> {
        Ok(true)
    }

    /// Fails in the same cases as [`Handover::restore`], with [`Handover::restore_more`] after it. The state afterwards
    /// does not matter. Leaves the store alone, which belongs to the serving process. The first turns of connections follow, but
    /// no commit. The serving process goes on meanwhile, so a refusal may depend only on facts that it does not change.
    ///
    /// # Errors
    ///
    /// The errors of [`Handover::restore`], and a refusal to continue with the settings of this process.
    fn rehearse(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore(saved, context)
    }
}

/// Figures of a service for operators.
pub trait Observe {
    /// Returns statistics and tables, as [`crate::report`] describes; the series come from [`Observe::sample`].
    fn report(&self, _now: Time, _traffic: &Traffic, _peers: &dyn Peers) -> Report {
        Report::default()
    }

    /// Returns the page about one thing, selected by a path that starts with the kind of the thing; `None` if it does
    /// not exist. `find/TEXT` lists the things with that text in their names. Made in one piece, so it may visit only a
    /// bounded number of things.
    fn view(&self, _path: &[u8], _now: Time, _peers: &dyn Peers) -> Option<View> {
        None
    }

    /// Reports each value that is kept for a curve, always the same values in the same order. Called every few seconds.
    fn sample(&self, _note: &mut dyn FnMut(Series)) {}

    /// Reports the values that are kept for the curves of things with pages of their own, by their paths. Called
    /// every few seconds. Counts are since the start of their recording.
    fn sample_things(&self, _now: Time, _note: &mut dyn FnMut(&[u8], Series)) {}

    /// Reports the counts of table rows since the start, for pages about the last minutes. Rows that are not reported
    /// show totals since the start. Called every few seconds.
    fn tally(&self, _note: &mut dyn FnMut(Counted<'_>)) {}

    /// Reports the conditions that hold, and a sentence about the state of the service. Called at most once a second;
    /// visits a bounded number of things.
    fn look(&mut self, _look: &mut Look<'_>) {}

    /// Returns the reason for which the health check fails, in a few words; `None` if healthy.
    fn unhealthy_reason(&self) -> Option<&'static str> {
        None
    }

    /// Returns the number of things held or waited for that would be lost if the daemon ended now.
    fn at_risk(&self) -> u64 {
        0
    }
}

/// Operations of a service.
pub trait Operate {
    /// Runs an operation for an operator. Returns the result, or `None` if it follows in [`Effect::Done`]. A result is
    /// final: changes to a store are committed. Called only for the rows of [`Info::operations`].
    fn operate(&mut self, request: &OperationRequest, _context: &mut Context<'_>) -> Option<OperationResult> {
        unreachable!("{:?} is in no table", request.operation)
    }
}

/// Results of the service's own requests to other services, made by effects.
pub trait Inquire {
    /// Receives the operations of all services, if operators send them through this service. Called once, before
    /// anything else.
    fn know_operations(&mut self, _operations: &Operations) {}

    /// Receives the result of [`Effect::Operate`]. The requesting connection may be closed by now.
    fn operation_done(&mut self, _from: Requester, _result: &OperationResult, _context: &mut Context<'_>) {}

    /// Receives the snapshot of [`Effect::Show`], before any other call of the service.
    fn shown(&mut self, _from: Requester, _shown: Shown<'_>, _context: &mut Context<'_>) {}

    /// Notes that the reload begins that was asked for by [`Effect::Reload`] or a signal. Its settings are read from now on,
    /// so a request that comes later is for the next reload.
    fn reload_begins(&mut self) {}

    /// Receives the result of a reload, in the new process if it has replaced the old one.
    fn reload_ended(&mut self, _result: &OperationResult, _context: &mut Context<'_>) {}

    /// Samples the figures of the other services for curves; returns the time of the next call. The loop does not wake
    /// up for it: without calls no value changes.
    fn watch(&mut self, _telemetry: &Telemetry<'_>, _now: Time) -> Time {
        Time::NEVER
    }
}

/// Consistency of a service, for tests and rehearsals.
pub trait Inspect {
    /// Checks the tables against each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    fn check(&self);

    /// Returns true if no data about any connection is left.
    fn is_empty(&self) -> bool;

    /// Returns the number of armed timers that belong to no connection, and so may outlive them all.
    fn background_timers(&self) -> usize {
        0
    }
}

/// Limit of requests of one connection served before other connections have their turn. A request takes a few
/// microseconds, so the busiest client delays other clients by less than a millisecond.
pub const REQUESTS_PER_TURN: usize = 512;
