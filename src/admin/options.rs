//! Option of the administration: its addresses.

use poolcounter_service::options::{Endpoint, Opt};

/// Settings of the administration; empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminSettings;

/// Option of its addresses; none by default.
pub const LISTENING: &[Opt<Endpoint>] = &[Opt {
    long: "admin",
    key: "admin",
    default: "[]",
    hint: "unix:PATH",
    doc_short: "accept commands of poolcounter admin on this socket, from the daemon's user and root only; repeatable (default: off)",
    doc_long: "
            Accept the commands of
            .Xr poolcounter-admin 1
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
