//! Operations of the administration itself. The commands of services are in the services' own tables.

use super::Admin;
use poolcounter_service::contract::{Context, Operation, OperationRequest, OperationResult};
use poolcounter_service::operations::descriptions;

type Run = fn(&mut Admin, &OperationRequest, &mut Context<'_>) -> Option<OperationResult>;

/// Every operation, with the function that runs it.
const TABLE: [(Operation, Run); 4] = [
    (
        Operation {
            name: "reload",
            parameters: &[],
            summary: "run the program on disk in place of the daemon, with the settings of the file",
            is_on_pages: false,
            command: Some("RELOAD"),
        },
        |admin, request, context| {
            admin.reload_for(request.from, context);
            None
        },
    ),
    (
        Operation {
            name: "drain",
            parameters: &[],
            summary: "refuse new claims, wait until all are given back, and end the daemon",
            is_on_pages: false,
            command: Some("DRAIN"),
        },
        |admin, request, context| {
            admin.drain_for(request.from, context);
            None
        },
    ),
    (
        Operation {
            name: "undrain",
            parameters: &[],
            summary: "cancel a drain",
            is_on_pages: false,
            command: Some("UNDRAIN"),
        },
        |admin, _, context| Some(admin.undrain(context)),
    ),
    (
        Operation {
            name: "log",
            parameters: &["warn|info|debug|trace|default"],
            summary: "set the log level until a restart",
            is_on_pages: false,
            command: Some("LOG"),
        },
        |admin, request, context| Some(admin.set_log_level(&request.argument, context)),
    ),
];

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

impl Admin {
    /// Runs an operation.
    pub(super) fn run_operation(
        &mut self,
        request: &OperationRequest,
        context: &mut Context<'_>,
    ) -> Option<OperationResult> {
        let (_, run) = TABLE[request.operation.index()];
        run(self, request, context)
    }
}
