//! Operations of the toy. The result comes once the store has committed.

use super::Toy;
use poolcounter_service::contract::{
    Context, Effect, Operation, OperationError, OperationRequest, OperationResult, Requester,
};
use poolcounter_service::operations::descriptions;

type Run = fn(&mut Toy, &OperationRequest) -> Option<OperationResult>;

const TABLE: [(Operation, Run); 2] = [
    (
        Operation {
            name: "store",
            parameters: &["TEXT"],
            summary: "store a text",
            is_on_pages: true,
            command: Some("STORE"),
        },
        Toy::store_text,
    ),
    (
        Operation {
            name: "count",
            parameters: &[],
            summary: "count the texts",
            is_on_pages: false,
            command: Some("COUNT"),
        },
        |toy, _| Some(Ok(toy.state.len().to_string())),
    ),
];

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

/// Operation that waits for its commit, and its result then.
pub struct Underway {
    commit: u64,
    from: Requester,
    done: String,
}

impl Toy {
    pub fn run_operation(&mut self, request: &OperationRequest) -> Option<OperationResult> {
        let (_, run) = TABLE[request.operation.index()];
        run(self, request)
    }

    fn store_text(&mut self, request: &OperationRequest) -> Option<OperationResult> {
        let Ok(text) = std::str::from_utf8(&request.argument) else {
            return Some(Err(OperationError::Malformed("this is no text".into())));
        };
        let (number, commit) = self.state.collect(text);
        self.underway.push(Underway { commit, from: request.from, done: format!("stored {number}") });
        None
    }

    /// Ends the operations that wait for this commit or one before it.
    pub fn end_operations(&mut self, last: u64, is_committed: bool, context: &mut Context<'_>) {
        for Underway { from, done, .. } in self.underway.extract_if(.., |one| one.commit <= last) {
            let lost = || OperationError::Unknown("the store has crashed".into());
            context.effects.push(Effect::Done(from, if is_committed { Ok(done) } else { Err(lost()) }));
        }
    }
}
