//! Words about tasks and their commands.

use super::{Job, RunningCommand};
use crate::process::Process;
use crate::spawn::Variable;
use crate::terminal::printable;
use poolcounter_client::Task;

/// Returns a reason with the last line of the output of a process behind it.
pub(super) fn with_last_line(reason: &str, process: &Process) -> String {
    let tail = process.tail();
    match tail.trim_ascii().rsplit(|byte| *byte == b'\n').next().map(<[u8]>::trim_ascii) {
        None | Some([]) => reason.into(),
        Some(line) => format!("{reason}: {}", printable(line)),
    }
}

/// Returns the variable of the environment that names the object of a task.
pub(super) fn variable_of(task: &Task) -> Variable {
    match task {
        Task::Start(id) => (b"POOL_START_ID".to_vec(), id.to_string().into()),
        Task::Stop(member) | Task::Check(member) | Task::Clean(member) => (b"POOL_MEMBER".to_vec(), member.to_vec()),
    }
}

/// Returns the option of a task's command, with the member.
pub(super) fn text_of(task: &Task) -> String {
    match task {
        Task::Start(_) => "--start".into(),
        Task::Stop(member) => format!("--stop of {}", printable(member)),
        Task::Check(member) => format!("--check of {}", printable(member)),
        Task::Clean(member) => format!("--clean of {}", printable(member)),
    }
}

/// Returns whether a command is the process of a member.
pub(super) fn is_process_of(command: &RunningCommand, name: &[u8]) -> bool {
    matches!(&command.job, Job::Member(member) if **member == *name)
}
