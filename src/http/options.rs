//! The options of the status page.

use crate::options::{Endpoint, Opt};

/// What the options of the status page say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HttpSettings {}

/// Where the pages are served: nowhere, until an address is named.
pub const LISTENING: &[Opt<Endpoint>] = &[Opt {
    long: "http",
    key: "http",
    hint: "ADDRESS",
    help: "serve metrics and a status page on such an address; repeatable (default: off; the port is 7580)",
    repeats: true,
    set: |endpoint, value| {
        endpoint.is_enabled = true;
        endpoint.listen_on(value)
    },
    ..Opt::BLANK
}];

/// The other options.
pub const OPTIONS: &[Opt<HttpSettings>] = &[];
