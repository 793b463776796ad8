//! Access rules of the pages. Keys are paths.

use super::wire::{HttpRequest, Method, Status};
use poolcounter_core::ConnId;
use poolcounter_service::access::{Command, Need, Verb};
use poolcounter_service::contract::Context;

/// Names of the permissions.
pub const VERBS: &[&str] = &["read", "act"];
const READ: Verb = Verb(0);
const ACT: Verb = Verb(1);

/// HTTP methods.
pub const COMMANDS: &[Command] = &[
    Command { word: "GET", arguments: "<path>", verb: Some(READ), help: "Shows a page, metrics or JSON." },
    Command { word: "HEAD", arguments: "<path>", verb: Some(READ), help: "Like GET, without the content." },
    Command { word: "POST", arguments: "<path>", verb: Some(ACT), help: "Runs the operation of a button of a page." },
];

/// Checks a request against the access rules, and returns the status of the refusal, if any.
pub(super) fn refusal_of(conn: ConnId, request: &HttpRequest<'_>, context: &mut Context<'_>) -> Option<Status> {
    if !context.has_rules() {
        return None;
    }
    // The path identifies the operation and its argument; the query only changes the presentation of a page. The
    // pattern lists all fields, so that a new one needs a decision here.
    let HttpRequest { method, host: _, path, query: _, origin: _, site: _, is_forwarded: _, connection: _ } = request;
    let verb = match method {
        Method::Post => ACT,
        Method::Get | Method::Head | Method::Other => READ,
    };
    let denial = context.check(conn, &Need { verb: Some(verb), keys: &[path.as_bytes()], takes: None }).err()?;
    Some(if denial.is_limit() { Status::TooManyRequests } else { Status::Forbidden })
}
