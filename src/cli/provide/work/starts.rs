//! Starts of members, and the processes that they leave running.

use super::{Job, Work, is_process_of};
use crate::process::FirstLine;
use crate::terminal::printable;
use poolcounter_client::{Error, Offered, Task, TaskResult};
use poolcounter_protocol::members::wire::client::{describe_refusal, parse_named_member};

/// Limit of characters shown of a faulty line.
const LINE_SHOWN: usize = 200;

impl Work<'_> {
    /// Continues a start once its first line is complete. `status` is set if the process has ended.
    pub(super) fn look_at_line(&mut self, index: usize, status: Option<u8>) {
        let command = &mut self.commands[index];
        let Job::Task(task @ Task::Start(_)) = command.job.clone() else { return };
        let line = match (command.process.first_line(), status) {
            // A command that fails has started nothing, whatever it printed.
            (_, Some(1..)) | (FirstLine::Open, _) => return,
            (FirstLine::Whole(line), _) => line,
            (FirstLine::TooLong, _) => return self.give_up(index, "its first line has more than 8192 bytes"),
        };
        let asked_by = command.asked_by;
        let (name, pairs) = match parse_named_member(&line) {
            Ok(named) => named,
            Err(rule) => {
                let sentence = format!("its first line, {}, is not NAME [ATTRIBUTE=VALUE ...]: {rule}", shown(&line));
                return self.give_up(index, &sentence);
            }
        };
        if self.members.contains_key(name) {
            return self.give_up(index, "there is a member of that name already");
        }
        let attributes: Vec<_> = pairs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let offered = Offered { name: name.to_vec(), attributes };
        let is_awaited = asked_by == Some(self.connection);
        let answered = self.answer(&task, &TaskResult::Started(offered), asked_by);
        let name: Box<[u8]> = name.into();
        if let Err(Error::Refused(words)) = &answered
            && !words.starts_with("TOO_LATE")
        {
            // The other member of this name stays: the stop command must not run for it.
            let reason = describe_refusal(words).unwrap_or_else(|| words.clone());
            self.commands[index].asked_by = None;
            return self.give_up(index, &format!("the server refuses it, as {reason}: {}", shown(&line)));
        }
        self.commands[index].job = Job::Member(name.clone());
        self.commands[index].process.renew(None);
        self.members.insert(name.clone(), false);
        if !is_awaited || self.is_ending {
            self.forsake(&name);
        }
    }

    /// Fails a start whose command may still run.
    pub(super) fn give_up(&mut self, index: usize, reason: &str) {
        let command = &mut self.commands[index];
        let Job::Task(task) = std::mem::replace(&mut command.job, Job::Nothing) else { return };
        command.process.terminate();
        let asked_by = command.asked_by;
        self.warn(&format!("--start: {reason}"));
        self.fail(&task, reason, asked_by);
    }

    /// Handles the end of a process that has started a member. The member has failed, or runs in another process.
    pub(super) fn member_ended(&mut self, name: &[u8], status: u8) {
        let Some(&is_stopping) = self.members.get(name) else { return };
        if is_stopping && !self.is_at_stop(name) {
            let process = self.commands.iter_mut().find(|command| is_process_of(command, name));
            let asked_by = process.and_then(|command| {
                command.job = Job::Nothing;
                command.asked_by
            });
            return self.stopped(name, asked_by);
        }
        if is_stopping || status == 0 {
            return;
        }
        self.warn(&format!("the member {} is dead: its process ended with status {status}", printable(name)));
        self.forsake(name);
        self.report_death(name);
    }
}

/// Returns the start of a line for the standard error.
fn shown(line: &[u8]) -> String {
    let text = printable(line);
    let shown: String = text.chars().take(LINE_SHOWN).collect();
    let dots = if shown.len() < text.len() { "..." } else { "" };
    format!("\"{shown}{dots}\"")
}
