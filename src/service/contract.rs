//! The contract between the loop and a service. The loop passes in received bytes, the current time and disconnects; the service
//! writes replies to [`Context::output`], for any connection.
//!
//! A service is called in the middle of a tick and never calls back. For each connection the order is: [`Service::serve`]
//! any number of times, then [`Service::close`] once, after which the service must not know the connection any more.
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
//! | [`Inquire`] | results of what the service itself has asked of others |
//! | [`Inspect`] | tests and rehearsals |
//!
//! # Effects
//!
//! A service reaches no other service, no connection and not the process. It adds an [`Effect`] to [`Context::effects`], and the
//! loop carries that out when the call has returned. Results arrive in [`Inquire`].
//!
//! # Replies that come later
//!
//! | the service wants | it |
//! |---|---|
//! | to answer when something else has happened, and to serve nothing of the connection before | returns [`Then::Wait`], and later calls [`Context::resume`] |
//! | to answer now what may leave only after its store has committed | writes with [`Context::reply_after`], and calls [`Context::release_up_to`] in [`Service::completed`] |
//! | to write to a store | collects changes and hands them over in [`Service::commit`], once a tick |
//!
//! A store works in a thread of its own and owns no state of the service. It says that it has finished something by the
//! [`Wake`] that the service got in [`Lifecycle::attach`]; [`Service::completed`] is called in the next tick.

pub mod context;
pub mod effects;
pub mod operations;
pub mod settings;

pub use crate::peer::{Credentials, GONE, NoPeers, NoProcessInfo, Peers, Process, ProcessUsage, Traffic};
pub use context::{CallTime, Called, Conns, Context, Wake};
pub use effects::{Effect, Shown, Telemetry, Wanted};
pub use operations::{Operation, OperationError, OperationRequest, OperationResult, Operations, Requester};
pub use poolcounter_core::record::Unreadable;

use crate::access::{Command, Holds};
use crate::health::{ConditionInfo, Look};
use crate::options::{Endpoint, Opt};
use crate::report::{Counted, Report, Series, View};
use poolcounter_core::id::ConnId;
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::Due;
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
    /// Options for the addresses.
    pub listening: &'static [Opt<Endpoint>],
    /// True when the service listens on Unix sockets alone, which only the daemon's own user and root can open, whatever the
    /// permissions of other sockets are.
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
    /// Most unsent output, in bytes. A connection beyond it does not read, and is closed.
    pub output_bytes: usize,
    /// Longest time without a request served or a reply read. `None`: no limit, because the connection may hold something.
    pub idle: Option<Span>,
}

/// Service of the daemon, as the tick calls it.
pub trait Service: Lifecycle + Handover + Observe + Operate + Inquire + Inspect + Send {
    /// Returns the bounds on connections. Called once.
    fn caps(&self) -> Caps;

    /// Serves requests from the front of `input`, in order, [`REQUESTS_PER_TURN`] at most, and stops when the connection's
    /// output is full. Bytes that are not consumed come again, with more behind them: a request whose answer is too long for one
    /// turn stays in the input until all of the answer is written.
    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served;

    /// Handles the half-close of a connection that waits ([`Then::Wait`]). The connection goes on until it has its replies, unless the
    /// service ends the wait now. Called at least once in each such wait, also where the side was closed before it began; the service
    /// may have ended the wait a moment ago.
    fn hangup(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Handles a timer of the service that is due; `due.key()` is the key that it was armed with.
    fn expire(&mut self, due: Due, context: &mut Context<'_>);

    /// Forgets a connection that is gone, and gives back all that it held; in slices, if that is very much. Called once, in any
    /// phase but the last: also while nothing else is served, before an upgrade.
    fn close(&mut self, conn: ConnId, context: &mut Context<'_>);

    /// Hands to the store what was collected in this tick. Called in a tick in which another method of a service with a
    /// store was called, after all is served and expired and before output is sent.
    fn commit(&mut self, _context: &mut Context<'_>) {}

    /// Takes what the store has finished.
    fn completed(&mut self, _context: &mut Context<'_>) {}

    /// Returns what a connection holds and waits for. Called after each turn of the connection, where some rule limits that.
    fn usage_of(&self, _conn: ConnId) -> Holds {
        Holds::default()
    }

    /// Returns the number of bytes kept for a connection outside of the loop's buffers: of an unfinished request, and of an answer
    /// under way. Called after each turn of the connection, where some rule limits memory.
    fn kept_bytes(&self, _conn: ConnId) -> usize {
        0
    }
}

/// Start, reload, upgrade and stop of a service.
pub trait Lifecycle {
    /// Takes what wakes the loop, for the thread of the store. Called before anything else, if there is a loop to wake.
    fn attach(&mut self, _wake: Wake) {}

    /// Applies the settings to the (possibly restored) state. Called once, before the first connection is served; skipped when the
    /// configuration could not be read, so that the previous settings stay.
    fn configure(&mut self, _context: &mut Context<'_>) {}

    /// Opens the store, and reads it unless its content was restored. Called once, after [`Lifecycle::configure`] and before any
    /// connection is served; never in a rehearsal. `listens` is false where nobody can connect: a store that was not in use before
    /// then stays closed.
    ///
    /// # Errors
    ///
    /// One sentence that says why the service cannot start.
    fn begin(&mut self, _listens: bool, _context: &mut Context<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Drops what a connection waits for or provides and its rule of access does not include, and answers a wait as denied. What the
    /// connection holds stays. Called once for each connection in a process that takes over, where there are rules: after
    /// [`Lifecycle::configure`].
    fn recheck(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Returns the number of locks that count for rules of access without a connection, by the names of the rules. A change is noted
    /// with [`Access::note_leases`](crate::access::Access::note_leases).
    fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        Vec::new()
    }

    /// Stops taking new work until a restart, as an operator asks with a signal; existing work is served to its end.
    fn drain(&mut self, _context: &mut Context<'_>) {}

    /// Refuses new requests, or grants them again: the daemon ends once [`Observe::at_risk`] is zero. What waits already is served to
    /// its end.
    fn refuse_new(&mut self, _refuses: bool, _context: &mut Context<'_>) {}

    /// Takes nothing new that would need a commit, or takes it again: an upgrade waits for [`Lifecycle::is_settled`]. All else is served
    /// meanwhile, other services above all. May be called several times.
    fn settle(&mut self, _settles: bool, _context: &mut Context<'_>) {}

    /// Returns true when nothing is under way that takes longer than a call of [`Lifecycle::quiesce`].
    fn is_settled(&self) -> bool {
        self.is_quiet()
    }

    /// Finishes what would need a timer: an upgrade waits for [`Lifecycle::is_quiet`], and no timer fires meanwhile. May be called
    /// several times.
    fn quiesce(&mut self, _context: &mut Context<'_>) {}

    /// Returns true when nothing is under way that a process which takes over could not continue, such as a commit. Nothing is served
    /// from [`Lifecycle::quiesce`] on; if this is not so then, everything is served again.
    fn is_quiet(&self) -> bool {
        true
    }
}

/// State of a service in the handover to another process.
pub trait Handover {
    /// Returns the version of what [`Handover::save`] writes. A change of the format needs another.
    fn version(&self) -> u16;

    /// Writes the whole state, for a process that takes over. Connections keep their ids.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()>;

    /// Continues from what another process saved. Called once, before any connection is served. Connections that waited still do;
    /// one that is resumed here gets a turn, whether it waits or not.
    ///
    /// # Errors
    ///
    /// When this is not what [`Handover::save`] writes in this version, nor what it wrote in an earlier one.
    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable>;

    /// Fails wherever [`Handover::restore`] would. The state afterwards does not matter, so it need not take as much memory. A store is
    /// left alone: it belongs to the process that serves. The first turns of connections follow, but no commit.
    ///
    /// # Errors
    ///
    /// The same.
    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore(version, saved, context)
    }

    /// Returns whether [`Handover::restore`] could not go on from what was rehearsed, but from all that the other process has: that has
    /// left a part where this one does not look for it.
    fn needs_all(&self) -> bool {
        false
    }

    /// Decides whether the next [`Handover::save`] writes all, or what suffices for a process with the same settings.
    fn hand_over_all(&mut self, _is_asked: bool) {}
}

/// Figures of a service for operators.
pub trait Observe {
    /// Returns statistics and tables, as [`crate::report`] describes; the series come from [`Observe::sample`].
    fn report(&self, now: Time, traffic: &Traffic, peers: &dyn Peers) -> Report;

    /// Returns the page about one thing, named by a path that begins with its own name in the addresses of pages; `None` if there is no
    /// such thing. `find/TEXT` lists the things with that text in their names. It is made in one piece, and so looks at a bounded
    /// number of things.
    fn view(&self, _path: &[u8], _now: Time, _peers: &dyn Peers) -> Option<View> {
        None
    }

    /// Notes each value that is kept for a curve, always the same ones in the same order. Called every few seconds.
    fn sample(&self, _note: &mut dyn FnMut(Series)) {}

    /// Notes the values that are kept for the curves of things with views of their own, by the paths of these. Called twice a minute.
    /// Counts begin with those from when the thing began to be noted.
    fn sample_things(&self, _now: Time, _note: &mut dyn FnMut(&[u8], Series)) {}

    /// Notes the counts of table rows since the start, for pages about the last minutes. Rows that are not noted show totals since the
    /// start. Called every few seconds.
    fn tally(&self, _note: &mut dyn FnMut(Counted<'_>)) {}

    /// Notes the conditions that hold, and how the service stands. Called once a second at most; looks at a bounded number of things.
    fn look(&mut self, _look: &mut Look<'_>) {}

    /// Returns why the health check fails, in a few words; `None` when healthy.
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
    /// Runs an operation for an operator. Returns the result, or `None` if it comes later in [`Effect::Done`]. A result is final: what a
    /// store keeps is committed. Called for the rows of [`Info::operations`] alone.
    fn operate(&mut self, request: &OperationRequest, _context: &mut Context<'_>) -> Option<OperationResult> {
        unreachable!("{:?} is in no table", request.operation)
    }
}

/// Results of what a service has asked of others by effects.
pub trait Inquire {
    /// Takes the operations of all services, for a service through which operators ask for them. Called once, before anything else.
    fn know_operations(&mut self, _operations: &Operations) {}

    /// Takes the result of [`Effect::Operate`]. The connection that asked may be closed by now.
    fn operation_done(&mut self, _from: Requester, _result: &OperationResult, _context: &mut Context<'_>) {}

    /// Takes the answer to [`Effect::Show`]. It arrives before any other call of the service.
    fn shown(&mut self, _from: Requester, _shown: Shown<'_>, _context: &mut Context<'_>) {}

    /// Samples the figures of the other services for curves; returns when to do so again. The loop does not wake up for it: what no call
    /// has changed is as it was.
    fn watch(&mut self, _telemetry: &Telemetry<'_>, _now: Time) -> Time {
        Time::NEVER
    }
}

/// Consistency of a service, for tests and rehearsals.
pub trait Inspect {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    fn check(&self);

    /// Returns true when nothing is held, waited for or remembered of any connection.
    fn is_empty(&self) -> bool;

    /// Returns the number of armed timers that belong to no connection, and so may outlast them all.
    fn background_timers(&self) -> usize {
        0
    }
}

/// Most requests of one connection served before it is another's turn. They take a few microseconds each, so that the
/// greediest client delays the others by less than a millisecond.
pub const REQUESTS_PER_TURN: usize = 512;

/// Bytes of a connection that are not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// Everything that was received and not consumed.
    pub bytes: &'a [u8],
    /// Number of the first bytes in which the service has found no whole request before: it need not look for the end of one among them
    /// again.
    pub seen: usize,
}

/// Result of [`Service::serve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Number of bytes of the input that are done with.
    pub consumed: usize,
    /// The next step.
    pub then: Then,
}

/// Next step for a connection that was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The rest of the input is no whole request: wait for more bytes.
    Read,
    /// The rest may hold whole requests: serve again in the next tick.
    Serve,
    /// The rest may hold whole requests, but nothing is served or read before [`Context::resume`].
    Wait,
    /// Send what is unsent, then close.
    Close,
}

/// Version of a service's part in the handovers of version 0.9.0, where each was one piece.
pub const IN_ONE_PIECE: u16 = 0;
