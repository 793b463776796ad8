//! Option of the administration: its addresses.

use poolcounter_service::options::{Endpoint, Opt, option_table};

/// Settings of the administration; empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AdminSettings;

/// Option of its addresses; none by default.
pub const LISTENING: &[Opt<Endpoint>] = option_table!(Endpoint;
    "--admin unix:PATH",
        "Accept the commands of poolcounter admin on this socket, from the daemon's user and root only; repeatable \
         (default: off). Only these two users can open the socket, whatever --socket-mode says.",
        |endpoint, value| {
            if !value.starts_with("unix:") {
                return Err(if value.starts_with('/') {
                    format!("unix:PATH; use unix:{value}")
                } else {
                    "unix:PATH".into()
                });
            }
            endpoint.is_enabled = true;
            endpoint.listen_on(value)
        }, in_file("admin", "[]"), repeated();
);
