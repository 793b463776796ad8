//! Effects: actions that a service requests outside of itself. The loop carries them out after the call, in order.

use super::operations::{OperationRequest, OperationResult, Requester};
use crate::id::ServiceId;
use crate::report::{Counted, Moment, Series, View};
use log::LevelFilter;
use poolcounter_core::{ConnId, Time};

/// Action that a service requests, carried out after its call has returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Serve a connection again after the end of its wait.
    Resume(ConnId),
    /// Close a connection of the service once its output is sent.
    End(ConnId),
    /// Refuse new requests in all services, or grant them again.
    RefuseNew(bool),
    /// Accept connections for this service, or refuse new connections so that clients use another server; open
    /// connections stay.
    Listen(ServiceId, bool),
    /// End the process, as soon as no work is in progress.
    EndProcess,
    /// Replace the process by the program on disk, with the settings of the file, as SIGUSR1 does. The result comes to
    /// [`Inquire::reload_ended`](crate::contract::Inquire::reload_ended).
    Reload,
    /// Set the log level; `None`: that of the start of the process.
    SetLogLevel(Option<LevelFilter>),
    /// Run an operation of a service.
    Operate(OperationRequest),
    /// Deliver the result of an operation for which [`Operate::operate`](crate::contract::Operate::operate) returned
    /// `None`.
    Done(Requester, OperationResult),
    /// Remember what an operator has done, as a sentence that begins with the operator, for the page of the daemon.
    Acted(String),
    /// Take a snapshot of all services and deliver it to [`Inquire::shown`](crate::contract::Inquire::shown).
    Show(Requester, Wanted),
}

/// Kind of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Figures of the other services.
    Telemetry,
    /// Reports of all services.
    Reports,
    /// Page about one thing of a service.
    View {
        /// Name of the service.
        service: String,
        /// Path of the thing.
        path: Vec<u8>,
    },
    /// Things of all services whose names contain this text.
    Search(Vec<u8>),
}

/// Snapshot of all services.
pub enum Shown<'a> {
    /// Reply to [`Wanted::Telemetry`].
    Telemetry(&'a Telemetry<'a>),
    /// Reply to [`Wanted::Reports`].
    Reports(Moment<'a>, &'a Telemetry<'a>),
    /// Reply to [`Wanted::View`] and [`Wanted::Search`]: the views, with their reports in the moment; empty if nothing
    /// was found.
    Views(Moment<'a>, Vec<View>, &'a Telemetry<'a>),
}

/// Callback for the series of services, with the name of the service.
pub type NoteSeries<'a> = dyn FnMut(&'static str, Series) + 'a;
/// Callback for the series of things, with the path of the thing.
pub type NoteThings<'a> = dyn FnMut(&[u8], Series) + 'a;

/// Callback for the counts of table rows, with the name of the service.
pub type NoteCounted<'a> = dyn FnMut(&'static str, Counted<'_>) + 'a;

/// Figures of all services except the reader. Collected only on demand, because that takes time.
pub struct Telemetry<'a> {
    /// First reason why the health check fails; `None` when healthy.
    pub unhealthy_reason: Option<&'static str>,
    /// Returns the same for one service, by its name; a disabled service is unhealthy. `None` if the service does not
    /// exist.
    pub health_of: &'a dyn Fn(&str) -> Option<Option<&'static str>>,
    /// Number of things that would be lost if the daemon ended now, by service.
    pub at_risk: &'a dyn Fn() -> Vec<(&'static str, u64)>,
    /// Passes on all series, in the order of the services: [`Observe::sample`](crate::contract::Observe::sample).
    pub sample: &'a dyn Fn(&mut NoteSeries<'_>),
    /// Passes on the series of things, each with the name of its service, a slash and its path:
    /// [`Observe::sample_things`](crate::contract::Observe::sample_things).
    pub sample_things: &'a dyn Fn(Time, &mut NoteThings<'_>),
    /// Passes on the counts of all table rows: [`Observe::tally`](crate::contract::Observe::tally).
    pub tally: &'a dyn Fn(&mut NoteCounted<'_>),
}
