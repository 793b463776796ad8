//! Operations of the administration itself. The commands of services are in the services' own tables.

use super::Admin;
use poolcounter_service::contract::{Context, Operate, Operation, OperationRequest, OperationResult};
use poolcounter_service::operations::{descriptions, operation_table};

type Run = fn(&mut Admin, &OperationRequest, &mut Context<'_>) -> Option<OperationResult>;

/// Every operation, with the function that runs it.
const TABLE: [(Operation, Run); 4] = operation_table!(
    "reload", "RELOAD", [], "run the program on disk in place of the daemon, with the settings of the file"
        => Admin::reload_for;
    "drain", "DRAIN", [], "refuse new claims, wait until all are given back, and end the daemon" => Admin::drain_for;
    "undrain", "UNDRAIN", [], "cancel a drain" => |admin, _, context| Some(admin.undrain(context));
    "log", "LOG", ["warn|info|debug|trace|default"], "set the log level until a restart"
        => |admin, request, context| Some(admin.set_log_level(&request.argument, context));
);

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

impl Operate for Admin {
    fn operate(&mut self, request: &OperationRequest, context: &mut Context<'_>) -> Option<OperationResult> {
        let (_, run) = TABLE[request.operation.index()];
        run(self, request, context)
    }
}
