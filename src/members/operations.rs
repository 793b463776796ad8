//! Operations on members, for pages.

use super::Members;
use super::state::{Viewer, What};
use poolcounter_core::Span;
use poolcounter_core::text::unescaped;
use poolcounter_protocol::members::request::{Named, Request};
use poolcounter_protocol::members::wire::client::describe_refusal;
use poolcounter_protocol::members::wire::replies::write_what;
use poolcounter_service::contract::{Context, Operate, Operation, OperationError, OperationRequest, OperationResult};
use poolcounter_service::operations::descriptions;

/// Time for which the button keeps a member out of use.
const HOLD: Span = Span::from_secs(3600);

/// Request of an operation on a member, which may have a lease, and the text of its result.
type MemberOperation = (for<'a> fn(Named<'a>, Option<u64>) -> Option<Request<'a>>, &'static str);

/// Operations on a member.
const TABLE: [(Operation, MemberOperation); 4] = [
    (
        operation("repair", "take a member out of quarantine, and have it cleaned"),
        (|named, _| Some(Request::Repair { named, as_is: false }), "it is repaired"),
    ),
    (
        operation("takeback", "take a member away from its holder"),
        (|_, lease| Some(Request::TakeBack { lease: lease?, note: b"" }), "it is taken back"),
    ),
    (
        operation("free", "end the hold of a member, and have it cleaned"),
        (|named, _| Some(Request::Free(named)), "it is freed"),
    ),
    (
        operation("hold", "keep a member out of use for an hour, if it is in use from its return on"),
        (|named, _| Some(Request::Hold { named, span: HOLD, note: b"" }), "it is held for an hour"),
    ),
];

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

/// Names of the operations, each for the members in other states.
pub(super) const REPAIR: &[&str] = &[TABLE[0].0.name];
pub(super) const TAKE_BACK: &[&str] = &[TABLE[1].0.name];
pub(super) const FREE: &[&str] = &[TABLE[2].0.name];
pub(super) const HOLDS: &[&str] = &[TABLE[3].0.name];

const fn operation(name: &'static str, summary: &'static str) -> Operation {
    Operation { name, parameters: &["POOL", "MEMBER"], summary, is_on_pages: true, command: None }
}

impl Operate for Members {
    /// Runs an operation on `POOL MEMBER`, with names as pages show them. The result comes once the change is committed.
    fn operate(&mut self, request: &OperationRequest, context: &mut Context<'_>) -> Option<OperationResult> {
        let (_, (request_of, done)) = TABLE[request.operation.index()];
        let name = str::from_utf8(&request.argument).map(unescaped).unwrap_or_default();
        let Some(space) = name.iter().position(|byte| *byte == b' ') else {
            return Some(Err(OperationError::Malformed("this is not POOL MEMBER".into())));
        };
        let named = Named { pool: &name[..space], member: &name[space + 1..] };
        let peers = context.conns.peers;
        let row = self.state.member_named(named, Viewer { now: context.time.now, peer: &|conn| peers.peer(conn) });
        let lease = row.ok().and_then(|row| row.held).map(|(_, lease)| lease);
        let Some(asked) = request_of(named, lease) else { return Some(Err(not_held())) };
        let (conn, changes) = (request.from.conn, self.state.kept_changes());
        let answer = self.step(context, true, |state, step| {
            state.serve(conn, asked, step);
            // The answer is for the page, which is no connection of this service.
            let place = step.events.iter().position(|event| event.conn == conn)?;
            Some(step.events.remove(place).what)
        });
        match answer {
            Some(What::Ok) => {}
            Some(What::NotTaken) | None => return Some(Err(not_held())),
            Some(other) => return Some(Err(refusal_of(&other))),
        }
        let batch = self.keeping.batch().filter(|_| self.state.kept_changes() > changes);
        let Some(batch) = batch else { return Some(Ok(done.into())) };
        self.keeping.operations.push((batch, request.from, done));
        None
    }
}

fn not_held() -> OperationError {
    OperationError::Refused("no client holds this member".into())
}

fn refusal_of(what: &What) -> OperationError {
    let mut line = Vec::new();
    write_what(&mut line, what);
    let line = String::from_utf8_lossy(&line);
    let words = line.trim_end().trim_start_matches("ERROR ");
    OperationError::Refused(describe_refusal(words).unwrap_or_else(|| words.into()))
}
