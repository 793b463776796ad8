//! Members of a provider: their starts, the processes that they leave running, and the comparison with the server's, by
//! its list after a new connection, and by withdrawals during a drain, for which no other right is needed.

use super::{Job, RunningCommand, Work};
use crate::process::Process;
use crate::spawn::Variable;
use crate::terminal::printable;
use poolcounter_client::{Error, Offered, Provider, Task, TaskResult};
use poolcounter_protocol::members::wire::client::{describe_refusal, parse_named_member};
use std::time::{Duration, Instant};

/// Limit of characters shown of a faulty line.
const LINE_SHOWN: usize = 200;

impl Work<'_> {
    /// Continues a start once its first line is complete. `status` is set if the process has ended.
    pub(super) fn look_at_line(&mut self, index: usize, status: Option<u8>) {
        let command = &mut self.commands[index];
        let Job::Task(task @ Task::Start(_)) = command.job.clone() else { return };
        let line = match (command.process.first_line(), status) {
            // A command that fails has started nothing, whatever it printed.
            (_, Some(1..)) | (Ok(None), _) => return,
            (Ok(Some(line)), _) => line,
            (Err(fault), _) => return self.give_up(index, &fault),
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

/// Pause between two withdrawals during a drain, because the server does not notify about returned members.
const DRAIN_LOOKS: Duration = Duration::from_secs(1);

impl Work<'_> {
    /// Handles a new connection. Its session brings the members along.
    pub fn connect(&mut self, provider: Provider) {
        self.link = Some(Box::new(provider));
        self.connection += 1;
        self.next_withdrawal = self.is_draining.then(Instant::now);
        self.resume_cleanings();
        if !self.members.is_empty() || !self.unsaid.is_empty() {
            self.compare();
        }
    }

    /// Tells the server which cleanings go on, and ends cleanings that it does not want any more.
    fn resume_cleanings(&mut self) {
        for index in 0..self.commands.len() {
            let Job::Task(Task::Clean(name)) = self.commands[index].job.clone() else { continue };
            match self.tell(|provider| provider.cleaning(name)) {
                Ok(()) => self.commands[index].asked_by = Some(self.connection),
                Err(Error::Lost) => return,
                Err(_) => self.commands[index].process.terminate(),
            }
        }
    }

    /// Starts a drain: starts no more members, and stops each one once it is free.
    pub fn drain(&mut self) {
        self.is_draining = true;
        self.next_withdrawal = Some(Instant::now());
    }

    /// Stops members that the server does not list, because they have left the pool. Keeps all if the server refuses the
    /// list.
    fn compare(&mut self) {
        let listed = match self.tell(Provider::members) {
            Ok(listed) => listed,
            Err(Error::Refused(words)) if words.starts_with("NO_POOL") => Vec::new(),
            Err(_) => return,
        };
        let is_listed = |name: &[u8]| listed.iter().any(|member| member.name == name);
        let dead = std::mem::take(&mut self.unsaid).into_iter().filter(|name| is_listed(name));
        dead.for_each(|name| self.report_death(&name));
        let gone: Vec<_> = self.members().filter(|name| !is_listed(name)).map(Box::from).collect();
        gone.iter().for_each(|name| self.forsake(name));
    }

    /// Withdraws each member of a provider that drains, and stops the members that have left the pool: the server
    /// refuses to withdraw them. After a loss they are withdrawn on the next connection.
    pub(super) fn withdraw(&mut self) {
        let _ = self.tell(|provider| provider.set_capacity(Some(0)));
        let names: Vec<Box<[u8]>> = self.members().map(Box::from).collect();
        for name in names {
            let answer = self.tell(|provider| provider.withdraw(&name, false));
            if matches!(answer, Err(Error::Refused(words)) if words.starts_with("NO_")) {
                self.forsake(&name);
            }
        }
        self.next_withdrawal = self.link.as_ref().map(|_| Instant::now() + DRAIN_LOOKS);
    }

    /// Reports the death of a member to the server, or queues the report for the next connection.
    pub(super) fn report_death(&mut self, name: &[u8]) {
        if self.tell(|provider| provider.died(name)) == Err(Error::Lost) {
            self.unsaid.push(name.into());
        }
    }
}

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
