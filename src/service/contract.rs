//! The contract between the loop and a service. The loop brings bytes, the time and the fact that a connection is gone;
//! the service answers through [`Context::output`], to any connection.
//!
//! A service is called in the middle of a tick and never calls back. For each connection the order is: [`Service::serve`]
//! any number of times, then [`Service::close`] once, after which the service must not know the connection any more.
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
//! [`Wake`] that the service got in [`Service::attach`]; [`Service::completed`] is called in the next tick.

pub use crate::acts::{Act, Acted, Asker, NotDone};
pub use crate::peer::{Credentials, GONE, NoProcessInfo, NoPeers, Peers, Process, ProcessUsage, Traffic};

use crate::access::{Access, Command, Holds};
use crate::container::{Others, ServiceId};
use crate::loop_stats::LoopStats;
use crate::options::{Endpoint, Opt};
use crate::output::Output;
use crate::report::{Counted, Report, Series, View};
use crate::settings::ServiceSettings;
use poolcounter_core::id::ConnId;
use poolcounter_core::random::Random;
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Due, OwnTimers};
use std::io;
use std::sync::Arc;

pub use poolcounter_core::record::Unreadable;

/// What there is to know of a service before it is made: its line in the registry.
pub struct Info {
    /// What it is called in messages, metrics and the handover.
    pub name: &'static str,
    /// The port of addresses that name none.
    pub port: u16,
    /// Whether it listens without being asked to.
    pub is_enabled: bool,
    /// How many connections it has at a time unless the operator says otherwise.
    pub max_connections: u64,
    /// Whether it writes to a store, and so has [`Service::commit`] called in each tick.
    pub has_store: bool,
    /// Begins the line of the log that names its addresses: `the counters are at`.
    pub announcement: &'static str,
    /// The options that say where it listens.
    pub listening: &'static [Opt<Endpoint>],
    /// Whether it listens on Unix sockets alone, which only the daemon's own user and root can open, whatever the others' permissions.
    pub is_private: bool,
    /// What it can be asked for, each of which may be allowed or not: the names that rules have for it, of which one bit each is kept.
    pub verbs: &'static [&'static str],
    /// Table of its commands.
    pub commands: &'static [Command],
    /// What a connection is told that no rule allows, before it is closed.
    pub refusal: &'static [u8],
    /// Returns what its other options set, as it is by default, and what makes the service.
    pub settings: fn() -> Box<dyn ServiceSettings>,
}

/// What bounds the connections of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// The longest request that is read as a whole, in bytes. A longer body is consumed piece by piece, as it comes.
    pub request_bytes: usize,
    /// A connection that does not read and has more unsent output than this, in bytes, is closed.
    pub output_bytes: usize,
    /// How long a connection may go on without a request served or a reply read. None: as long as its peer is there, for it may
    /// hold something.
    pub idle: Option<Span>,
}

/// What one port of the daemon speaks.
pub trait Service: Send {
    /// Returns what bounds its connections. The loop asks once.
    fn caps(&self) -> Caps;

    /// Has what the operator has set take effect beside what is there: called once, after [`Service::restore`] if that is called, and
    /// before any connection is served; but not where the settings could not be read, so that what was set before stays.
    fn configure(&mut self, _context: &mut Context<'_>) {}

    /// Opens what it keeps, and reads it unless that was restored: called once, after [`Service::configure`] and before any
    /// connection is served; never in a rehearsal. `listens` is false where nobody can connect: then what was not in use before
    /// is to be left alone.
    ///
    /// # Errors
    ///
    /// One sentence that says why it cannot serve.
    fn begin(&mut self, _listens: bool, _context: &mut Context<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Serves requests from the front of `input`, in order, [`REQUESTS_PER_TURN`] at most, and stops when the connection's
    /// output is full. Bytes that it does not consume are brought again, with more behind them: so a request whose answer is
    /// too long for one turn stays in the input until all of the answer is given.
    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served;

    /// The peer of a connection that waits ([`Then::Wait`]) has closed its sending side. The connection goes on until it has
    /// its replies, unless the service ends the wait now. Called at least once in each such wait, also where the side was closed
    /// before it began; the service may have ended the wait a moment ago.
    fn hangup(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// A timer of the service is due; `due.key()` says what it was armed for.
    fn expire(&mut self, due: Due, context: &mut Context<'_>);

    /// Does what an operator has asked for: on a page, as a column of a table offers it ([`crate::report::ColumnUnit::Key`]), or with a
    /// command of the administration. Returns the result, or None if the result comes later in [`Context::results`]. A result is
    /// final: what a store keeps is committed.
    fn act(&mut self, act: &Act, _context: &mut Context<'_>) -> Option<Acted> {
        Some(Err(NotDone::no_action(&act.action)))
    }

    /// Takes the result of an [`Act`] that the service has asked for. The connection that asked may be closed by now.
    fn acted(&mut self, _asker: Asker, _result: &Acted, _context: &mut Context<'_>) {}

    /// The connection is gone: forgets it, and gives back all that it held; bit by bit, if that is very much. Called once, in any
    /// phase but the last: also while nothing else is served, before an upgrade.
    fn close(&mut self, conn: ConnId, context: &mut Context<'_>);

    /// Takes what wakes the loop, for the thread of the store. Called before anything else, if there is a loop to wake.
    fn attach(&mut self, _wake: Wake) {}

    /// Hands to the store what was collected in this tick. Called in a tick in which another method of a service with a
    /// store was called, after all is served and expired and before output is sent.
    fn commit(&mut self, _context: &mut Context<'_>) {}

    /// The store has finished something.
    fn completed(&mut self, _context: &mut Context<'_>) {}

    /// An upgrade waits for [`Service::is_quiet`], and no timer of the service is fired meanwhile: brings to an end what would need
    /// one. May be called several times.
    fn quiesce(&mut self, _context: &mut Context<'_>) {}

    /// The operator asks with a signal that nothing new is taken, until a restart: what is there already is served to its end.
    fn drain(&mut self, _context: &mut Context<'_>) {}

    /// The daemon is to end once [`Service::at_risk`] is zero: grants nothing to requests that come from now on, or grants again what
    /// they ask for. What waits already is served to its end.
    fn refuse_new(&mut self, _refuses: bool, _context: &mut Context<'_>) {}

    /// Returns what a connection holds and waits for. Whenever that changes, the connection is being served or told so.
    fn usage_of(&self, _conn: ConnId) -> Holds {
        Holds::default()
    }

    /// Drops what a connection waits for or provides and its rule of access does not include, and tells it that a wait is denied. What it
    /// holds stays. Called once for each connection in a process that takes over, where there are rules: after [`Service::configure`].
    fn recheck(&mut self, _conn: ConnId, _context: &mut Context<'_>) {}

    /// Returns how many locks count for rules of access without a connection, by the names of the rules. Whenever that changes, the
    /// service says so: [`Access::note_leases`]. One service alone has such.
    fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        Vec::new()
    }

    /// Returns how many bytes are kept for a connection outside of the loop's buffers: of a request that is not all there, and of an answer
    /// under way. Asked at the end of a turn, where some rule limits memory.
    fn kept_bytes(&self, _conn: ConnId) -> usize {
        0
    }

    /// Returns how much clients hold or wait for that would be lost if the daemon ended now.
    fn at_risk(&self) -> u64 {
        0
    }

    /// Returns why clients should be sent elsewhere, in a few words; None if they are served.
    fn unhealthy_reason(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether nothing is under way that a process which takes over could not go on with, such as a commit. Nothing
    /// is served while an upgrade waits for this; [`Service::commit`] and [`Service::completed`] are called.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Looks at the other services, for those who look back; returns when to do so again. Nobody wakes up for it.
    fn observe(&mut self, _others: &Others<'_>, _now: Time) -> Time {
        Time::NEVER
    }

    /// Returns what it has to tell its operators, as [`crate::report`] says; the series come from [`Service::sample`].
    fn report(&self, now: Time, traffic: &Traffic, peers: &dyn Peers) -> Report;

    /// Returns what there is to tell of one thing, which it names by a path that begins with its own name in the addresses of pages; None
    /// if there is no such thing. `find/TEXT` is what has that text in its name. It is made in one piece, and so looks at a bounded
    /// number of things.
    fn view(&self, _path: &[u8], _now: Time, _peers: &dyn Peers) -> Option<View> {
        None
    }

    /// Notes each value that is remembered for a curve, always the same ones in the same order: little enough for every few
    /// seconds.
    fn sample(&self, _note: &mut dyn FnMut(Series)) {}

    /// Notes what was counted of the rows of its tables since the start, for those who tell of the last minutes: little enough for
    /// every few seconds. What of a row is not noted is shown since the start.
    fn tally(&self, _note: &mut dyn FnMut(Counted<'_>)) {}

    /// Returns the version of what [`Service::save`] writes. What is written cannot change without another.
    fn saved_version(&self) -> u16;

    /// Writes everything that it knows, for a process that takes over. Connections keep their ids.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()>;

    /// Goes on from what another process saved. Called once, before any connection is served. Connections that waited still do;
    /// one that is resumed here gets a turn, whether it waits or not.
    ///
    /// # Errors
    ///
    /// When this is not what [`Service::save`] writes in this version, nor what it wrote in the version before.
    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable>;

    /// Fails wherever [`Service::restore`] would. What it knows afterwards does not matter, so it need not take as much memory. It
    /// must leave a store alone: that belongs to the process that serves. The first turns of connections follow, but no commit.
    ///
    /// # Errors
    ///
    /// The same.
    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore(version, saved, context)
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    fn check(&self);

    /// Returns whether nothing is held, waited for or remembered of any connection.
    fn is_empty(&self) -> bool;

    /// Returns how many of its timers are armed on no connection's behalf, and so may outlast them all.
    fn background_timers(&self) -> usize {
        0
    }
}

/// How many requests of one connection are served before it is another's turn. A few microseconds each, so that the
/// greediest client delays the others by less than a millisecond.
pub const REQUESTS_PER_TURN: usize = 512;

/// What a connection has to be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// Everything that was received and not consumed.
    pub bytes: &'a [u8],
    /// How many of the first bytes the service has seen before, when it found them to be no whole request: it need not look for the
    /// end of one among them again.
    pub seen: usize,
}

/// What a service may use while it is called.
pub struct Context<'a> {
    /// The time after the request was received, so that a wait that starts now cannot end early.
    pub now: Time,
    /// The time of day at [`Time::START`], since 1970. It is read once: no change of the date disturbs a running server.
    pub epoch: Span,
    /// The service's place in the registry.
    pub id: ServiceId,
    /// The service's timers.
    pub timers: OwnTimers<'a>,
    /// Random numbers, which a simulation replays.
    pub random: &'a mut Random,
    /// Replies, by connection.
    pub output: &'a mut Output,
    /// Connections that are to be served again.
    pub resumed: &'a mut Vec<ConnId>,
    /// Connections of this service that are to end.
    pub ended: &'a mut Vec<ConnId>,
    /// What is to be done in other services once this one returns.
    pub acts: &'a mut Vec<Act>,
    /// Results of acts of which [`Service::act`] has returned none.
    pub results: &'a mut Vec<(Asker, Acted)>,
    /// What is to be done with the daemon once this service returns.
    pub orders: &'a mut DaemonCommands,
    /// What happened to the service's connections.
    pub traffic: &'a Traffic,
    /// Who is at the other end of each.
    pub peers: &'a dyn Peers,
    /// What the system tells of the process.
    pub process: &'a dyn Process,
    /// What the loop knows of itself.
    pub loop_stats: &'a LoopStats,
    /// The other services.
    pub others: &'a Others<'a>,
    /// Who may ask for what.
    pub access: &'a mut Access,
}

/// What a service asks of the whole daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DaemonCommands {
    /// Every service is to refuse what is new, or to grant it again: [`Service::refuse_new`].
    pub refuse_new: Option<bool>,
    /// The daemon is to end, as soon as nothing is under way.
    pub end: bool,
}

impl Context<'_> {
    /// Ends the wait of a connection: it is served again, in this tick if this comes from [`Service::completed`], else in the next.
    /// If it does not wait, it has a turn, perhaps with nothing to serve.
    pub fn resume(&mut self, conn: ConnId) {
        self.resumed.push(conn);
    }

    /// Ends a connection of this service: nothing more of it is served, and it is closed once its output is sent. In this tick
    /// [`Service::close`] is called for it.
    pub fn end(&mut self, conn: ConnId) {
        self.ended.push(conn);
    }

    /// Adds one reply, as [`Output::reply`] does, that leaves only once the commit with this number is done. What the connection
    /// is told later leaves behind it. Commits are numbered by the service, in the order in which they are done, and a reply never
    /// waits for one before that of the last reply: what is done earlier can be told at once or with the next. `about` is a number
    /// that the service gives to what it promises, for [`Context::reword`]; zero if to nothing.
    pub fn reply_after(&mut self, conn: ConnId, commit: u64, about: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.output.reply_after(conn, self.id, (commit, about), write);
    }

    /// Lets the replies leave that wait for this commit or one before it.
    pub fn release_up_to(&mut self, commit: u64) {
        self.output.release_up_to(self.id, commit);
    }

    /// Has `write` say something else in place of those replies that wait for which `which` returns true; it gets the commit that
    /// one waits for, and what that is about. They go on to wait.
    pub fn reword(&mut self, which: impl Fn(u64, u64) -> bool, write: impl Fn(&mut Vec<u8>)) {
        self.output.reword(self.id, which, write);
    }

    /// Has `write` say something else in place of each reply that waits for this commit or one before it, and lets it leave:
    /// the store has failed.
    pub fn replace_up_to(&mut self, commit: u64, write: impl Fn(&mut Vec<u8>)) {
        self.output.replace_up_to(self.id, commit, write);
    }
}

/// Wakes the loop from another thread, on behalf of one service.
#[derive(Clone)]
pub struct Wake(Arc<dyn Fn() + Send + Sync>);

impl Wake {
    /// Makes it of what it does.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Wake(Arc::new(wake))
    }

    /// Has [`Service::completed`] called soon. It does no harm to ask twice, or after the end.
    pub fn wake(&self) {
        (self.0)();
    }
}

/// What came of a call to [`Service::serve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// How many bytes of the input are done with.
    pub consumed: usize,
    /// What to do next.
    pub then: Then,
}

/// What the loop does with a connection after it was served.
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

/// The version of a service's part in the handovers of version 0.9.0, where each was one piece.
pub const IN_ONE_PIECE: u16 = 0;
