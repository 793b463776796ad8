//! Operations on the jobs, for pages.

use super::JobQueue;
use super::buried_groups::group_of;
use super::state::{JobId, JobState, State, Step};
use super::store::Ownership;
use poolcounter_core::text::escaped;
use poolcounter_service::contract::{Context, Operate, Operation, OperationError, OperationRequest, OperationResult};
use poolcounter_service::operations::descriptions;

/// Change of a buried job, the verb of its result, and whether it is made to all jobs that failed in the same way.
type JobOperation = (fn(&mut State, JobId, &mut Step<'_, '_>), &'static str, bool);

/// Number of buried jobs whose groups are compared, and of jobs that one operation changes: a longer step would keep the
/// other clients waiting.
const MOST_COMPARED: usize = 2048;
const MOST_CHANGED: usize = 256;

/// Operations on a buried job, and on the jobs that failed in the same way.
const TABLE: [(Operation, JobOperation); 4] = [
    (operation("kick", "make a buried job ready again"), (State::kick_buried, "kicked", false)),
    (operation("delete", "delete a buried job"), (State::delete_buried, "deleted", false)),
    (
        operation("kick-group", "make the buried jobs ready again that failed as this one"),
        (State::kick_buried, "kicked", true),
    ),
    (
        operation("delete-group", "delete the buried jobs that failed as this one"),
        (State::delete_buried, "deleted", true),
    ),
];

const fn operation(name: &'static str, summary: &'static str) -> Operation {
    Operation { name, parameters: &["JOB"], summary, is_on_pages: true, command: None }
}

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

impl Operate for JobQueue {
    /// Runs an operation. The result comes once the change is committed.
    fn operate(&mut self, request: &OperationRequest, context: &mut Context<'_>) -> Option<OperationResult> {
        let (_, operation) = TABLE[request.operation.index()];
        let done = match self.change_buried(operation, &request.argument, context) {
            Ok(done) => done,
            Err(error) => return Some(Err(error)),
        };
        match self.state.last_uncommitted() {
            None => Some(Ok(done)),
            Some(commit) => {
                self.driver.operations.push((commit, request.from, done));
                None
            }
        }
    }
}

impl JobQueue {
    fn change_buried(
        &mut self,
        (change, done, is_of_group): JobOperation,
        job: &[u8],
        context: &mut Context<'_>,
    ) -> OperationResult {
        let no_job = || OperationError::NotFound(format!("there is no job {}", escaped(job)));
        let id = std::str::from_utf8(job).ok().and_then(|job| job.parse().ok()).map(JobId).ok_or_else(no_job)?;
        match self.store.ownership() {
            Ownership::Owns => {}
            Ownership::Reads => return Err(OperationError::Refused("the jobs are being read".into())),
            Ownership::GoesOn | Ownership::Lapsed | Ownership::Expired => {
                return Err(OperationError::Refused("the database of the jobs does not answer".into()));
            }
            _ => return Err(OperationError::Refused("another daemon has the jobs, and this one stands by".into())),
        }
        if self.is_store_failing(context.time.now) {
            return Err(OperationError::Refused("the store of the jobs fails".into()));
        }
        let state = self.state.state_of(id).ok_or_else(no_job)?;
        if state != JobState::Buried {
            return Err(OperationError::Refused(format!("job {id} is {}, not buried", state.word())));
        }
        if !is_of_group {
            self.step(context, |state, step| change(state, id, step));
            return Ok(format!("job {id} is {done}"));
        }
        let group = group_of(&self.state.buried(MOST_COMPARED, context.time.now), id);
        let (now, later) = group.split_at(group.len().min(MOST_CHANGED));
        self.step(context, |state, step| now.iter().for_each(|id| change(state, *id, step)));
        let more = if later.is_empty() { String::new() } else { format!("; {} are left", later.len()) };
        Ok(format!("{} jobs are {done}{more}", now.len()))
    }
}
