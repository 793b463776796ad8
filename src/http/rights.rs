//! What rules of access can say of the pages. Keys are paths.

use super::wire::{HttpRequest, Method, Status};
use poolcounter_core::id::ConnId;
use poolcounter_service::access::{Command, Need, Verb};
use poolcounter_service::contract::Context;

/// What can be asked for.
pub const VERBS: &[&str] = &["read", "act"];
const READ: Verb = Verb(0);
const ACT: Verb = Verb(1);

/// The methods.
pub const COMMANDS: &[Command] = &[
    Command { word: "GET", arguments: "<path>", verb: Some(READ), help: "Shows a page, metrics or JSON." },
    Command { word: "HEAD", arguments: "<path>", verb: Some(READ), help: "The same without the content." },
    Command { word: "POST", arguments: "<path>", verb: Some(ACT), help: "Does what a button of a page offers." },
];

/// Looks whether a connection may ask for this now, and returns what it is told if not.
pub(super) fn refusal_of(conn: ConnId, request: &HttpRequest<'_>, context: &mut Context<'_>) -> Option<Status> {
    if !context.has_rules() {
        return None;
    }
    // What is done, and with what, stands in the path; the query says how a page shows what its path is about. A field that names
    // something else cannot be added without a decision here.
    let HttpRequest { method, host: _, path, query: _, origin: _, site: _, connection: _ } = request;
    let verb = match method {
        Method::Post => ACT,
        Method::Get | Method::Head | Method::Other => READ,
    };
    let denial = context.check(conn, &Need { verb, keys: &[path.as_bytes()], takes: None }).err()?;
    Some(if denial.is_limit() { Status::TooManyRequests } else { Status::Forbidden })
}
