//! Work of a provider: its members, and the commands that run for them. Independent of the origin of tasks.

mod members;

use super::ProvideSettings;
use crate::process::{Keep, Launch, Launcher, Process};
use crate::spawn::Variable;
use crate::spawn::shell;
use crate::terminal::{printable, warn};
use members::{is_process_of, text_of, variable_of, with_last_line};
use nix::sys::signal::SigSet;
use poolcounter_client::{Error, Provider, Task, TaskResult};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

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
    /// Connection to the server; None while there is none.
    pub link: Option<Box<Provider>>,
    /// Members, each with true if it is being stopped.
    members: BTreeMap<Box<[u8]>, bool>,
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

impl<'a> Work<'a> {
    /// Returns the work of a provider without members. Commands get this signal mask.
    pub fn new(settings: &'a ProvideSettings, pool: &'a [u8], mask: SigSet) -> io::Result<Work<'a>> {
        Ok(Work {
            settings,
            pool,
            launcher: Launcher::new(mask)?,
            link: None,
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
        self.members.iter().filter(|(_, is_stopping)| !**is_stopping).map(|(name, _)| &**name)
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
        let deadlines = self.commands.iter().filter_map(|command| command.process.deadline());
        deadlines.chain(self.is_behind.then(Instant::now)).chain(self.next_withdrawal).min()
    }

    /// Closes the connection: results of its tasks are not sent any more.
    pub fn disconnect(&mut self) {
        self.link = None;
        self.connection += 1;
        self.next_withdrawal = None;
    }

    /// Sends a request. Without a connection, and when that is lost, the result is [`Error::Lost`].
    fn tell<T>(&mut self, request: impl FnOnce(&mut Provider) -> Result<T, Error>) -> Result<T, Error> {
        let answer = self.link.as_mut().map_or(Err(Error::Lost), |provider| request(provider));
        if matches!(answer, Err(Error::Lost)) {
            self.disconnect();
        }
        answer
    }

    /// Starts no more tasks, continues cleanings, and stops everything else: its members are withdrawn from the pool.
    pub fn end(&mut self) {
        self.is_ending = true;
        if !self.settings.start.is_empty() {
            // Prevents new starts in place of the withdrawn members.
            let _ = self.tell(|provider| provider.set_capacity(Some(0)));
        }
        let starts = self.commands.iter_mut().filter(|command| matches!(command.job, Job::Task(Task::Start(_))));
        starts.for_each(|command| command.process.terminate());
        let names: Vec<Box<[u8]>> = self.members().map(Box::from).collect();
        for name in names {
            // On a lost connection there are no members left.
            let _ = self.tell(|provider| provider.withdraw(&name, true));
            self.forsake(&name);
        }
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

    /// Performs the pending work, without waiting.
    pub fn go_on(&mut self) {
        let now = Instant::now();
        if self.next_withdrawal.is_some_and(|next| next <= now) {
            self.withdraw();
        }
        let has_ends = std::mem::take(&mut self.has_ends);
        let mut index = 0;
        while index < self.commands.len() {
            let command = &mut self.commands[index];
            command.process.read();
            if command.process.expire(now) {
                command.is_late = true;
                if matches!(command.job, Job::Task(Task::Start(_))) && !self.is_ending {
                    self.give_up(index, &self.too_late());
                }
            }
            let command = &mut self.commands[index];
            let status = if has_ends { command.process.status() } else { None };
            // The output before its end is available now.
            status.iter().for_each(|_| command.process.read());
            self.look_at_line(index, status);
            if let Some(status) = status {
                self.finish(index, status);
            }
            let process = &self.commands[index].process;
            let has_output = process.outputs().next().is_some();
            if process.is_running() || has_output && matches!(self.commands[index].job, Job::Member(_)) {
                index += 1;
            } else {
                self.commands.swap_remove(index);
            }
        }
        while self.has_room() {
            let Some(name) = self.to_stop.pop_front() else { break };
            self.begin(Task::Stop(name), None);
        }
        for left in (0..TASKS_PER_ROUND).rev() {
            self.is_behind = left == 0;
            if !self.has_room() || self.is_ending || self.link.is_none() {
                break;
            }
            let Ok(Some(task)) = self.tell(|provider| provider.next_task(Duration::ZERO)) else { break };
            self.begin(task, Some(self.connection));
        }
        self.is_behind &= self.has_room() && !self.is_ending;
    }

    /// Starts a task, or completes it at once if it needs no command.
    fn begin(&mut self, task: Task, asked_by: Option<u64>) {
        let is_it = |command: &&mut RunningCommand| command.job == Job::Task(task.clone());
        if let Some(command) = self.commands.iter_mut().find(is_it) {
            // The task is already in progress, without a request or for a lost connection.
            command.asked_by = asked_by.or(command.asked_by);
            return;
        }
        let command = match &task {
            Task::Start(_) if self.is_draining => return self.fail(&task, "the provider drains", asked_by),
            Task::Start(_) => &self.settings.start,
            Task::Stop(name) => {
                self.to_stop.retain(|waiting| waiting != name);
                self.members.get_mut(name).into_iter().for_each(|is_stopping| *is_stopping = true);
                &self.settings.stop
            }
            Task::Check(_) => &self.settings.check,
            Task::Clean(_) => &self.settings.clean,
        };
        if command.is_empty() {
            return self.finish_task(&task, Ok(()), asked_by);
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
            errors: if matches!(task, Task::Clean(_)) { Keep::Ends(TAIL) } else { Keep::Nothing },
            shows_errors: true,
            timeout: Some(self.settings.timeout),
            ..Launch::default()
        };
        match self.launcher.start(&launch) {
            Ok(process) => {
                self.commands.push(RunningCommand { job: Job::Task(task), process, asked_by, is_late: false });
            }
            Err(error) => {
                let reason = format!("cannot be run: {}", poolcounter_core::text::plain(&error.to_string()));
                self.warn(&format!("{} {reason}", text_of(&task)));
                match task {
                    Task::Start(_) => self.fail(&task, &reason, asked_by),
                    _ => self.finish_task(&task, Err(reason), asked_by),
                }
            }
        }
    }

    /// Handles the end of a command.
    fn finish(&mut self, index: usize, status: u8) {
        let RunningCommand { job, asked_by, is_late, .. } = &mut self.commands[index];
        let (asked_by, is_late) = (*asked_by, *is_late);
        let task = match std::mem::replace(job, Job::Nothing) {
            Job::Nothing => return,
            Job::Member(name) => {
                *job = Job::Member(name.clone());
                return self.member_ended(&name, status);
            }
            Job::Task(task) => task,
        };
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
            return self.fail(&task, &reason, asked_by);
        }
        // A late command that handles the signal and exits with 0 has still failed.
        let result = match (is_late, status) {
            (false, 0) => Ok(()),
            (false, status) => Err(with_last_line(&format!("status {status}"), &self.commands[index].process)),
            (true, _) => Err(with_last_line(&reason, &self.commands[index].process)),
        };
        self.finish_task(&task, result, asked_by);
    }

    /// Completes a task other than a start, which may have failed for a reason.
    fn finish_task(&mut self, task: &Task, result: Result<(), String>, asked_by: Option<u64>) {
        if let Task::Stop(name) = task {
            return self.stop_process(name, asked_by);
        }
        let (Task::Check(name) | Task::Clean(name)) = task else { return };
        let (has_failed, is_awaited) = (result.is_err(), asked_by == Some(self.connection));
        let result = result.map_or_else(TaskResult::Dead, |()| TaskResult::Done);
        let answered = self.answer(task, &result, asked_by);
        // After a refusal of the late result, the server no longer has the member.
        if is_awaited && (has_failed || matches!(answered, Err(Error::Refused(_)))) {
            self.forsake(name);
        }
        // The members of others are cleaned again.
        if answered == Err(Error::Lost) && has_failed && self.members.contains_key(name) {
            self.unsaid.push(name.clone());
        }
    }

    /// Continues after the end of the stop command of a member: ends the process left by its start as well.
    fn stop_process(&mut self, name: &[u8], asked_by: Option<u64>) {
        let process = self.commands.iter_mut().find(|command| is_process_of(command, name));
        match process {
            Some(command) if command.process.is_running() => {
                command.asked_by = asked_by;
                command.process.terminate();
            }
            process => {
                // Output of processes left behind is ignored.
                process.into_iter().for_each(|command| command.job = Job::Nothing);
                self.stopped(name, asked_by);
            }
        }
    }

    fn stopped(&mut self, name: &[u8], asked_by: Option<u64>) {
        self.members.remove(name);
        // A refusal means that the server has the member no longer.
        let _ = self.answer(&Task::Stop(name.into()), &TaskResult::Done, asked_by);
    }

    /// Returns true if the stop command of the member runs or is pending.
    fn is_at_stop(&self, name: &[u8]) -> bool {
        let stops = |job: &Job| matches!(job, Job::Task(Task::Stop(member)) if **member == *name);
        self.to_stop.iter().any(|member| **member == *name) || self.commands.iter().any(|command| stops(&command.job))
    }

    /// Schedules the stop of a member that is no longer in the pool.
    fn forsake(&mut self, name: &[u8]) {
        if let Some(is_stopping) = self.members.get_mut(name)
            && !std::mem::replace(is_stopping, true)
        {
            self.to_stop.push_back(name.into());
        }
    }

    fn fail(&mut self, task: &Task, reason: &str, asked_by: Option<u64>) {
        let _ = self.answer(task, &TaskResult::Failed(reason.into()), asked_by);
    }

    /// Sends a result on the connection that requested it, if it is still open.
    fn answer(&mut self, task: &Task, result: &TaskResult, asked_by: Option<u64>) -> Result<(), Error> {
        if asked_by == Some(self.connection) { self.tell(|provider| provider.answer(task, result)) } else { Ok(()) }
    }

    fn too_late(&self) -> String {
        format!("it took longer than {} s", self.settings.timeout.as_secs_f64())
    }

    fn warn(&self, sentence: &str) {
        warn(&format!("{}: {sentence}", printable(self.pool)));
    }
}
