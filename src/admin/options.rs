//! The option of the administration: where it listens.

use poolcounter_service::options::{Endpoint, Opt};

/// Settings of the administration: there are none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminSettings;

/// Where it listens: nowhere, until a path is named.
pub const LISTENING: &[Opt<Endpoint>] = &[Opt {
    long: "admin",
    key: "admin",
    default: "[]",
    hint: "unix:PATH",
    doc_short: "take the commands of poolcounter admin on such a socket, for this user and root alone; repeatable (default: off)",
    doc_long: "
            Take the commands of
            .Sx ADMINISTRATION
            on a socket at
            .Ar path ,
            which only the daemon's own user and root can open, whatever
            .Fl -socket-mode
            says.
            May be given several times.
            By default this is off.",
    repeats: true,
    set: |endpoint, value| {
        if !value.starts_with("unix:") {
            return Err(if value.starts_with('/') {
                format!("unix:PATH; use unix:{value}")
            } else {
                "unix:PATH".into()
            });
        }
        endpoint.is_enabled = true;
        endpoint.listen_on(value)
    },
    ..Opt::BLANK
}];
