//! What a provider does: its members, and the commands that run for them. It does not know how tasks come.

mod list;
mod starts;

use super::ProvideSettings;
use crate::process::{Keep, Launch, Launcher, Process, shell};
use crate::spawn::Variable;
use crate::terminal::{printable, warn};
use nix::sys::signal::SigSet;
use poolcounter_client::{Error, Provider, Task, TaskResult};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// So many commands run at a time besides the members themselves; other tasks wait. It is far below what a user may run.
const MOST_COMMANDS: usize = 256;

/// So many tasks are begun before signals and commands are looked at again.
const TASKS_PER_ROUND: usize = 100;

/// The members of a provider, and its commands.
pub struct Work<'a> {
    settings: &'a ProvideSettings,
    pool: &'a [u8],
    launcher: Launcher,
    members: BTreeMap<Box<[u8]>, Own>,
    commands: Vec<Command>,
    /// Members to be stopped without being asked to.
    to_stop: VecDeque<Box<[u8]>>,
    /// Which connection it is, so that no other hears of its tasks.
    connection: u64,
    /// Whether some child may have ended since the last look.
    has_ends: bool,
    /// Whether there may be more tasks than were looked at in the last round.
    is_behind: bool,
    is_ending: bool,
    is_draining: bool,
    /// Time at which the members are compared with the server's list, while there is a connection.
    next_look: Option<Instant>,
    /// Members that have died, which the server has not heard of.
    unsaid: Vec<Box<[u8]>>,
}

/// A member.
struct Own {
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether it is being stopped.
    is_stopping: bool,
    /// Set when the server has it as a member of this connection.
    is_adopted: bool,
    /// Set when it leaves the pool once it is free.
    is_withdrawn: bool,
}

/// A command that runs, or has left something running that holds its output.
struct Command {
    job: Job,
    process: Process,
    /// The connection that asked for it; None if none did.
    asked_by: Option<u64>,
    /// Whether it took too long.
    is_late: bool,
}

/// What a command is for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Job {
    Task(Task),
    /// It has started this member, and may be its process.
    Member(Box<[u8]>),
    /// Nobody wants to hear how it ends.
    Nothing,
}

/// The connection, while there is one. The error is that it is lost.
type Link<'l> = Option<&'l mut Provider>;

impl<'a> Work<'a> {
    /// Nothing is done yet. Commands get this signal mask.
    pub fn new(settings: &'a ProvideSettings, pool: &'a [u8], mask: SigSet) -> io::Result<Work<'a>> {
        Ok(Work {
            settings,
            pool,
            launcher: Launcher::guarded(mask)?,
            members: BTreeMap::new(),
            commands: Vec::new(),
            to_stop: VecDeque::new(),
            connection: 0,
            has_ends: false,
            is_behind: false,
            is_ending: false,
            is_draining: false,
            next_look: None,
            unsaid: Vec::new(),
        })
    }

    /// Some child may have ended.
    pub fn note_ends(&mut self) {
        self.has_ends = true;
    }

    /// Returns the members that are not being stopped.
    pub fn members(&self) -> impl Iterator<Item = &[u8]> {
        self.members.iter().filter(|(_, own)| !own.is_stopping).map(|(name, _)| &**name)
    }

    /// Whether another command can be started.
    pub fn has_room(&self) -> bool {
        let is_short = |command: &&Command| command.process.is_running() && !matches!(command.job, Job::Member(_));
        self.commands.iter().filter(is_short).count() < MOST_COMMANDS
    }

    /// The outputs that are to be read.
    pub fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.commands.iter().filter_map(|command| command.process.output())
    }

    /// When there is something to do without news.
    pub fn next_deadline(&self) -> Option<Instant> {
        let at_once = self.is_behind.then(Instant::now);
        self.commands.iter().filter_map(|command| command.process.deadline()).chain(at_once).chain(self.next_look).min()
    }

    /// The connection is lost: nobody hears how commands end that it asked for.
    pub fn disconnect(&mut self) {
        self.connection += 1;
        self.next_look = None;
    }

    /// Begins nothing any more, goes on with what is being cleaned, and has everything else stopped.
    pub fn end(&mut self) {
        self.is_ending = true;
        let starts = self.commands.iter_mut().filter(|command| matches!(command.job, Job::Task(Task::Start(_))));
        starts.for_each(|command| command.process.terminate());
        let names: Vec<Box<[u8]>> = self.members().map(Box::from).collect();
        names.iter().for_each(|name| self.forsake(name));
    }

    /// Whether the connection waits for a member of others to be cleaned.
    pub fn is_cleaning_for_others(&self) -> bool {
        let is_others = |job: &Job| matches!(job, Job::Task(Task::Clean(name)) if !self.members.contains_key(name));
        self.commands.iter().any(|command| command.asked_by == Some(self.connection) && is_others(&command.job))
    }

    /// Whether it was asked to end.
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns whether it begins no start any more.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether nothing is left to be stopped.
    pub fn is_over(&self) -> bool {
        self.members.is_empty() && !self.commands.iter().any(|command| command.process.is_running())
    }

    /// Kills whatever runs.
    pub fn kill_all(&mut self) {
        self.commands.iter_mut().for_each(|command| command.process.kill());
    }

    /// Does what there is to do, without waiting.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub fn go_on(&mut self, mut link: Link<'_>) -> Result<(), Error> {
        let now = Instant::now();
        if let Some(provider) = link.as_deref_mut()
            && self.next_look.is_some_and(|next| next <= now)
        {
            self.look(provider)?;
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
            // What it wrote before its end is here now.
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

    /// Begins a task, or does it at once if no command is needed.
    fn begin(&mut self, task: Task, asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
        let is_it = |command: &&mut Command| command.job == Job::Task(task.clone());
        if let Some(command) = self.commands.iter_mut().find(is_it) {
            // It is on its way already: nobody has asked for it, or a connection that is lost.
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
            return self.finish_task(&task, 0, asked_by, link);
        }
        let variables: [Variable; 2] = [(b"POOL_NAME".to_vec(), self.pool.to_vec()), variable_of(&task)];
        let is_start = matches!(task, Task::Start(_));
        let launch = Launch {
            words: &shell(command),
            variables: &variables,
            keep: if is_start { Keep::FirstLine } else { Keep::Nothing },
            timeout: Some(self.settings.timeout),
            ..Launch::default()
        };
        match self.launcher.start(&launch) {
            Ok(process) => {
                self.commands.push(Command { job: Job::Task(task), process, asked_by, is_late: false });
                Ok(())
            }
            Err(error) => {
                self.warn(&format!("{} cannot be run: {error}", text_of(&task)));
                match task {
                    Task::Start(_) => self.fail(&task, &format!("cannot be run: {error}"), asked_by, link),
                    _ => self.finish_task(&task, u8::MAX, asked_by, link),
                }
            }
        }
    }

    /// A command has ended.
    fn finish(&mut self, index: usize, status: u8, mut link: Link<'_>) -> Result<(), Error> {
        let Command { job, asked_by, is_late, .. } = &mut self.commands[index];
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
                match is_start {
                    true => self.fail(&task, &reason, asked_by, link.take()),
                    // One that catches the signal and ends as if it were done, is not.
                    false => self.finish_task(&task, if is_late { u8::MAX } else { status }, asked_by, link),
                }
            }
        }
    }

    /// A task that is no start is done, with this status.
    fn finish_task(&mut self, task: &Task, status: u8, asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
        if let Task::Stop(name) = task {
            return self.stop_process(name, asked_by, link);
        }
        let (Task::Check(name) | Task::Clean(name)) = task else { return Ok(()) };
        let result = if status == 0 { TaskResult::Done } else { TaskResult::Dead };
        let answered = self.answer(task, &result, asked_by, link);
        // The server no longer has it if the answer is too late.
        let is_gone = matches!(answered, Err(Error::Refused(_))) || result == TaskResult::Dead;
        if is_gone && asked_by == Some(self.connection) {
            self.forsake(name);
        }
        if answered == Err(Error::Lost) && result == TaskResult::Dead {
            self.unsaid.push(name.clone());
        }
        answered.or_else(|error| if error == Error::Lost { Err(error) } else { Ok(()) })
    }

    /// The command that stops a member is done, if there is one. What its start has left running is ended, too.
    fn stop_process(&mut self, name: &[u8], asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
        let process = self.commands.iter_mut().find(|command| is_process_of(command, name));
        match process {
            Some(command) if command.process.is_running() => {
                command.asked_by = asked_by;
                command.process.terminate();
                Ok(())
            }
            process => {
                // Nothing reads what others still write there.
                process.into_iter().for_each(|command| command.job = Job::Nothing);
                self.stopped(name, asked_by, link)
            }
        }
    }

    fn stopped(&mut self, name: &[u8], asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
        self.members.remove(name);
        match self.answer(&Task::Stop(name.into()), &TaskResult::Done, asked_by, link) {
            Err(Error::Lost) => Err(Error::Lost),
            _ => Ok(()),
        }
    }

    /// Whether the command that stops the member runs, or is still to be run.
    fn is_at_stop(&self, name: &[u8]) -> bool {
        let stops = |job: &Job| matches!(job, Job::Task(Task::Stop(member)) if **member == *name);
        self.to_stop.iter().any(|member| **member == *name) || self.commands.iter().any(|command| stops(&command.job))
    }

    /// Has a member stopped that is no longer in the pool.
    fn forsake(&mut self, name: &[u8]) {
        if let Some(own) = self.members.get_mut(name).filter(|own| !own.is_stopping) {
            own.is_stopping = true;
            self.to_stop.push_back(name.into());
        }
    }

    fn fail(&mut self, task: &Task, reason: &str, asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
        match self.answer(task, &TaskResult::Failed(reason.into()), asked_by, link) {
            Err(Error::Lost) => Err(Error::Lost),
            _ => Ok(()),
        }
    }

    /// Answers on the connection that asked, if it is still there.
    fn answer(&self, task: &Task, result: &TaskResult, asked_by: Option<u64>, link: Link<'_>) -> Result<(), Error> {
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

fn is_process_of(command: &Command, name: &[u8]) -> bool {
    matches!(&command.job, Job::Member(member) if **member == *name)
}

fn variable_of(task: &Task) -> Variable {
    match task {
        Task::Start(id) => (b"POOL_START_ID".to_vec(), id.to_string().into()),
        Task::Stop(member) | Task::Check(member) | Task::Clean(member) => (b"POOL_MEMBER".to_vec(), member.to_vec()),
    }
}

fn text_of(task: &Task) -> String {
    match task {
        Task::Start(_) => "--start".into(),
        Task::Stop(member) => format!("--stop of {}", printable(member)),
        Task::Check(member) => format!("--check of {}", printable(member)),
        Task::Clean(member) => format!("--clean of {}", printable(member)),
    }
}
