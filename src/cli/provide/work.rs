//! Work of a provider: its members, and the commands that run for them. Independent of the origin of tasks.

mod list;
mod starts;
mod words;

use super::ProvideSettings;
use crate::process::{Errors, Keep, Launch, Launcher, Process};
use crate::spawn::Variable;
use crate::spawn::shell;
use crate::terminal::{printable, warn};
use list::unless_lost;
use nix::sys::signal::SigSet;
use poolcounter_client::{Error, Provider, Task, TaskResult};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use words::{is_process_of, text_of, variable_of, with_last_line};

/// Limit of commands that run at a time besides members; further tasks wait. Far below the limit of a user's processes.
const MOST_COMMANDS: usize = 256;

/// Bytes kept of the end of the output of a cleaning, of which the last line is sent.
const TAIL: usize = 1024;

/// Limit of tasks started before signals and commands are handled again.
const TASKS_PER_ROUND: usize = 100;

/// Members of a provider, and its commands.
pub struct Work<'a> {
    settings: &'a ProvideSettings,
    pool: &'a [u8],
    launcher: Launcher,
    members: BTreeMap<Box<[u8]>, Own>,
    commands: Vec<RunningCommand>,
    /// Members to stop without a task.
    to_stop: VecDeque<Box<[u8]>>,
    /// Number of the current connection, so that results are not sent on another one.
    connection: u64,
    /// True if a child may have ended since the last check.
    pub has_ends: bool,
    /// True if there may be more tasks than were handled in the last round.
    is_behind: bool,
    /// True if it was asked to end.
    pub is_ending: bool,
    /// True if it starts no more members.
    pub is_draining: bool,
    /// Time at which the members are withdrawn again; None unless it drains, and without a connection.
    next_withdrawal: Option<Instant>,
    /// Members that have died, not reported to the server yet.
    unsaid: Vec<Box<[u8]>>,
}

/// Member of this provider.
struct Own {
    /// True if it is being stopped.
    is_stopping: bool,
}

/// Command that runs, or has left a process behind that holds its output.
struct RunningCommand {
    job: Job,
    process: Process,
    /// Number of the connection that requested it; None if none did.
    asked_by: Option<u64>,
    /// True if it exceeded its time limit.
    is_late: bool,
}

/// Purpose of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Job {
    Task(Task),
    /// Member that the command has started, and whose process it may be.
    Member(Box<[u8]>),
    /// No purpose: its end is ignored.
    Nothing,
}

/// Connection, while there is one. Errors mean that it is lost.
type OpenLink<'l> = Option<&'l mut Provider>;

impl<'a> Work<'a> {
    /// Returns the work of a provider without members. Commands get this signal mask.
    pub fn new(settings: &'a ProvideSettings, pool: &'a [u8], mask: SigSet) -> io::Result<Work<'a>> {
        Ok(Work {
            settings,
            pool,
            launcher: Launcher::new(mask)?,
            members: BTreeMap::new(),
            commands: Vec::new(),
            to_stop: VecDeque::new(),
            connection: 0,
            has_ends: false,
            is_behind: false,
            is_ending: false,
            is_draining: false,
            next_withdrawal: None,
            unsaid: Vec::new(),
        })
    }

    /// Returns the members that are not being stopped.
    pub fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.members.iter().filter(|(_, own)| !own.is_stopping).map(|(name, _)| &**name)
    }

    /// Returns true if another command can be started.
    pub fn has_room(&self) -> bool {
        let is_short =
            |command: &&RunningCommand| command.process.is_running() && !matches!(command.job, Job::Member(_));
        self.commands.iter().filter(is_short).count() < MOST_COMMANDS
    }

    /// Returns the outputs to poll.
    pub fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.commands.iter().flat_map(|command| command.process.outputs())
    }

    /// Returns the time of the next action without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let at_once = self.is_behind.then(Instant::now);
        self.commands
            .iter()
            .filter_map(|command| command.process.deadline())
            .chain(at_once)
            .chain(self.next_withdrawal)
            .min()
    }

    /// Handles the loss of the connection: results of its tasks are not sent any more.
    pub fn disconnect(&mut self) {
        self.connection += 1;
        self.next_withdrawal = None;
    }

    /// Starts no more tasks, continues cleanings, and stops everything else.
    pub fn end(&mut self) {
        self.is_ending = true;
        let starts = self.commands.iter_mut().filter(|command| matches!(command.job, Job::Task(Task::Start(_))));
        starts.for_each(|command| command.process.terminate());
        let names: Vec<Box<[u8]>> = self.members().map(Box::from).collect();
        names.iter().for_each(|name| self.forsake(name));
    }

    /// Returns true if the connection waits for the cleaning of another provider's member.
    pub fn is_cleaning_for_others(&self) -> bool {
        let is_others = |job: &Job| matches!(job, Job::Task(Task::Clean(name)) if !self.members.contains_key(name));
        self.commands.iter().any(|command| command.asked_by == Some(self.connection) && is_others(&command.job))
    }

    /// Returns true if no members and no commands are left.
    pub fn is_over(&self) -> bool {
        self.members.is_empty() && !self.commands.iter().any(|command| command.process.is_running())
    }

    /// Kills all commands.
    pub fn kill_all(&mut self) {
        self.commands.iter_mut().for_each(|command| command.process.kill());
    }

    /// Performs the pending work, without waiting. Fails if the connection is lost.
    pub fn go_on(&mut self, mut link: OpenLink<'_>) -> Result<(), Error> {
        let now = Instant::now();
        if self.next_withdrawal.is_some_and(|next| next <= now) {
            match link.as_deref_mut() {
                Some(provider) => self.withdraw(provider)?,
                // They are withdrawn on the next connection.
                None => self.next_withdrawal = None,
            }
        }
        let has_ends = std::mem::take(&mut self.has_ends);
        let mut index = 0;
        while index < self.commands.len() {
            let command = &mut self.commands[index];
            command.process.read();
            if command.process.expire(now) {
                command.is_late = true;
                if matches!(command.job, Job::Task(Task::Start(_))) && !self.is_ending {
                    self.give_up(index, &self.too_late(), link.as_deref_mut())?;
                }
            }
            let command = &mut self.commands[index];
            let status = if has_ends { command.process.status() } else { None };
            // The output before its end is available now.
            status.iter().for_each(|_| command.process.read());
            self.look_at_line(index, status, link.as_deref_mut())?;
            if let Some(status) = status {
                self.finish(index, status, link.as_deref_mut())?;
            }
            let process = &self.commands[index].process;
            if process.is_running() || process.output().is_some() && matches!(self.commands[index].job, Job::Member(_))
            {
                index += 1;
            } else {
                self.commands.swap_remove(index);
            }
        }
        while self.has_room() {
            let Some(name) = self.to_stop.pop_front() else { break };
            self.begin(Task::Stop(name), None, None)?;
        }
        for left in (0..TASKS_PER_ROUND).rev() {
            self.is_behind = left == 0;
            if !self.has_room() || self.is_ending {
                break;
            }
            let Some(provider) = link.as_deref_mut() else { break };
            let Some(task) = provider.next_task(Duration::ZERO)? else { break };
            self.begin(task, Some(self.connection), link.as_deref_mut())?;
        }
        self.is_behind &= self.has_room() && !self.is_ending;
        Ok(())
    }

    /// Starts a task, or completes it at once if it needs no command.
    fn begin(&mut self, task: Task, asked_by: Option<u64>, link: OpenLink<'_>) -> Result<(), Error> {
        let is_it = |command: &&mut RunningCommand| command.job == Job::Task(task.clone());
        if let Some(command) = self.commands.iter_mut().find(is_it) {
            // The task is already in progress, without a request or for a lost connection.
            command.asked_by = asked_by.or(command.asked_by);
            return Ok(());
        }
        let command = match &task {
            Task::Start(_) if self.is_draining => return self.fail(&task, "the provider drains", asked_by, link),
            Task::Start(_) => &self.settings.start,
            Task::Stop(name) => {
                self.to_stop.retain(|waiting| waiting != name);
                self.members.get_mut(name).into_iter().for_each(|own| own.is_stopping = true);
                &self.settings.stop
            }
            Task::Check(_) => &self.settings.check,
            Task::Clean(_) => &self.settings.clean,
        };
        if command.is_empty() {
            return self.finish_task(&task, Ok(()), asked_by, link);
        }
        let variables: [Variable; 2] = [(b"POOL_NAME".to_vec(), self.pool.to_vec()), variable_of(&task)];
        let launch = Launch {
            words: &shell(command),
            variables: &variables,
            keep: match task {
                Task::Start(_) => Keep::FirstLine,
                Task::Clean(_) => Keep::Ends(TAIL),
                _ => Keep::Nothing,
            },
            errors: if matches!(task, Task::Clean(_)) { Errors::PassedOn(TAIL) } else { Errors::Inherited },
            timeout: Some(self.settings.timeout),
            ..Launch::default()
        };
        match self.launcher.start(&launch) {
            Ok(process) => {
                self.commands.push(RunningCommand { job: Job::Task(task), process, asked_by, is_late: false });
                Ok(())
            }
            Err(error) => {
                let reason = format!("cannot be run: {}", poolcounter_core::text::plain(&error.to_string()));
                self.warn(&format!("{} {reason}", text_of(&task)));
                match task {
                    Task::Start(_) => self.fail(&task, &reason, asked_by, link),
                    _ => self.finish_task(&task, Err(reason), asked_by, link),
                }
            }
        }
    }

    /// Handles the end of a command.
    fn finish(&mut self, index: usize, status: u8, mut link: OpenLink<'_>) -> Result<(), Error> {
        let RunningCommand { job, asked_by, is_late, .. } = &mut self.commands[index];
        let (asked_by, is_late) = (*asked_by, *is_late);
        if let Job::Member(name) = job {
            let name = name.clone();
            return self.member_ended(&name, status, link);
        }
        match std::mem::replace(job, Job::Nothing) {
            Job::Nothing | Job::Member(_) => Ok(()),
            Job::Task(task) => {
                let reason = match is_late {
                    true => self.too_late(),
                    false if status == 0 => "it has printed no name".into(),
                    false => format!("it ended with status {status}"),
                };
                let is_start = matches!(task, Task::Start(_));
                if !self.is_ending && (is_start || is_late || status != 0) {
                    self.warn(&format!("{}: {reason}", text_of(&task)));
                }
                if is_start {
                    return self.fail(&task, &reason, asked_by, link.take());
                }
                // A late command that handles the signal and exits with 0 has still failed.
                let result = match (is_late, status) {
                    (false, 0) => Ok(()),
                    (false, status) => Err(with_last_line(&format!("status {status}"), &self.commands[index].process)),
                    (true, _) => Err(with_last_line(&reason, &self.commands[index].process)),
                };
                self.finish_task(&task, result, asked_by, link)
            }
        }
    }

    /// Completes a task other than a start, which may have failed for a reason.
    fn finish_task(
        &mut self,
        task: &Task,
        result: Result<(), String>,
        asked_by: Option<u64>,
        link: OpenLink<'_>,
    ) -> Result<(), Error> {
        if let Task::Stop(name) = task {
            return self.stop_process(name, asked_by, link);
        }
        let (Task::Check(name) | Task::Clean(name)) = task else { return Ok(()) };
        let has_failed = result.is_err();
        let result = result.map_or_else(TaskResult::Dead, |()| TaskResult::Done);
        let answered = self.answer(task, &result, asked_by, link);
        // After a refusal of the late result, the server no longer has the member.
        let is_gone = matches!(answered, Err(Error::Refused(_))) || has_failed;
        if is_gone && asked_by == Some(self.connection) {
            self.forsake(name);
        }
        // The members of others are cleaned again.
        if answered == Err(Error::Lost) && has_failed && self.members.contains_key(name) {
            self.unsaid.push(name.clone());
        }
        unless_lost(answered)
    }

    /// Continues after the end of the stop command of a member: ends the process left by its start as well.
    fn stop_process(&mut self, name: &[u8], asked_by: Option<u64>, link: OpenLink<'_>) -> Result<(), Error> {
        let process = self.commands.iter_mut().find(|command| is_process_of(command, name));
        match process {
            Some(command) if command.process.is_running() => {
                command.asked_by = asked_by;
                command.process.terminate();
                Ok(())
            }
            process => {
                // Output of processes left behind is ignored.
                process.into_iter().for_each(|command| command.job = Job::Nothing);
                self.stopped(name, asked_by, link)
            }
        }
    }

    fn stopped(&mut self, name: &[u8], asked_by: Option<u64>, link: OpenLink<'_>) -> Result<(), Error> {
        self.members.remove(name);
        unless_lost(self.answer(&Task::Stop(name.into()), &TaskResult::Done, asked_by, link))
    }

    /// Returns true if the stop command of the member runs or is pending.
    fn is_at_stop(&self, name: &[u8]) -> bool {
        let stops = |job: &Job| matches!(job, Job::Task(Task::Stop(member)) if **member == *name);
        self.to_stop.iter().any(|member| **member == *name) || self.commands.iter().any(|command| stops(&command.job))
    }

    /// Schedules the stop of a member that is no longer in the pool.
    fn forsake(&mut self, name: &[u8]) {
        if let Some(own) = self.members.get_mut(name).filter(|own| !own.is_stopping) {
            own.is_stopping = true;
            self.to_stop.push_back(name.into());
        }
    }

    fn fail(&mut self, task: &Task, reason: &str, asked_by: Option<u64>, link: OpenLink<'_>) -> Result<(), Error> {
        unless_lost(self.answer(task, &TaskResult::Failed(reason.into()), asked_by, link))
    }

    /// Sends a result on the connection that requested it, if it is still open.
    fn answer(&self, task: &Task, result: &TaskResult, asked_by: Option<u64>, link: OpenLink<'_>) -> Result<(), Error> {
        match link {
            Some(provider) if asked_by == Some(self.connection) => provider.answer(task, result),
            _ => Ok(()),
        }
    }

    fn too_late(&self) -> String {
        format!("it took longer than {} s", self.settings.timeout.as_secs_f64())
    }

    fn warn(&self, sentence: &str) {
        warn(&format!("{}: {sentence}", printable(self.pool)));
    }
}
