//! A command, and the jobs that it was given: touched while it runs, and told the server one by one.

use super::batch::{BatchAnswer, read_answer, write_line};
use super::fetch::{HeldJob, SlotConnections};
use super::plan::{Ending, Plan};
use super::tally::JobOutcome;
use crate::process::{Keep, Launch, Process};
use crate::run_child::OnLost;
use crate::spawn::Variable;
use crate::terminal::{printable, say, warn};
use log::Level;
use nix::sys::memfd::{MFdFlags, memfd_create};
use poolcounter_client::{Error, JobId, ReservedJob};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, Instant};

/// How often a job is touched in the time of its TTR, so that one that is late does no harm.
const TOUCHES: u32 = 3;
/// The longest TTR would be touched once in decades: a connection that is lost in silence is noticed sooner.
const LONGEST_TOUCH: Duration = Duration::from_secs(600);
/// What is kept of a command's output: as much as the server keeps of why a job failed, less the line that tells its status.
const TAIL: usize = 4000;

/// A command and its jobs.
pub struct CommandRun {
    jobs: Vec<HeldJob>,
    tube: String,
    process: Process,
    is_batch: bool,
    /// When it began with the present job.
    since: Instant,
    touch_at: Instant,
    is_late: bool,
    /// Whether others have been given jobs of it.
    is_lost: bool,
    /// Whether it was ended for the end of the runner.
    is_given_back: bool,
}

impl CommandRun {
    /// Starts the command for jobs of one tube, at least one. If that fails it returns them.
    pub fn start(plan: &Plan<'_>, mut jobs: Vec<HeldJob>) -> Result<CommandRun, (io::Error, Vec<HeldJob>)> {
        let is_batch = plan.settings.batch > 1;
        let tube = jobs[0].status.tube.clone();
        let words: Vec<_> = plan.command.iter().map(|word| filled(word, &tube)).collect();
        let variables = if is_batch { of_tube(&tube) } else { of_job(&jobs[0]) };
        let started = input_of(&mut jobs, is_batch).and_then(|input| {
            plan.launcher.start(&Launch {
                words: &words,
                variables: &variables,
                input: Some(input.as_fd()),
                keep: if is_batch { Keep::Lines } else { Keep::Tail(TAIL) },
                timeout: Some(plan.settings.timeout),
            })
        });
        let process = match started {
            Ok(process) => process,
            Err(error) => return Err((error, jobs)),
        };
        plan.tally.begin(jobs.len());
        let (since, touch_at) = (Instant::now(), Instant::now() + touch_interval(&jobs));
        let (is_late, is_lost, is_given_back) = (false, false, false);
        Ok(CommandRun { jobs, tube, process, is_batch, since, touch_at, is_late, is_lost, is_given_back })
    }

    /// The connections on which jobs of it are reserved.
    pub fn descriptors<'c>(&self, connections: &'c SlotConnections<'_>) -> Vec<BorrowedFd<'c>> {
        let has_open = |is_fetched| self.jobs.iter().any(|held| held.is_open && held.is_fetched == is_fetched);
        connections.descriptors(has_open(false), has_open(true))
    }

    fn has_open(&self) -> bool {
        self.jobs.iter().any(|held| held.is_open)
    }

    /// The output of the command, while there is some.
    pub fn output(&self) -> Option<BorrowedFd<'_>> {
        self.process.output()
    }

    /// When there is something to do without news.
    pub fn next_deadline(&self) -> Option<Instant> {
        let touch_at = self.has_open().then_some(self.touch_at);
        self.process.deadline().into_iter().chain(touch_at).min()
    }

    /// Does what there is to do, and returns whether it is over. `has_news` tells that a connection has something to say.
    pub fn go_on(
        &mut self,
        plan: &Plan<'_>,
        connections: &mut SlotConnections<'_>,
        has_news: bool,
        ending: Ending,
    ) -> bool {
        self.process.read();
        self.take_answers(plan, connections);
        if ending >= Ending::GiveBack && !self.is_given_back {
            self.is_given_back = true;
            self.process.terminate();
        }
        if ending == Ending::Kill {
            self.process.kill();
        }
        let now = Instant::now();
        if self.process.expire(now) && !self.is_given_back && !self.is_lost {
            self.is_late = true;
        }
        // Nothing is to come now but the end of a connection.
        if self.has_open() && (has_news || self.touch_at <= now) {
            self.touch(plan, connections);
        }
        let Some(status) = self.process.status() else { return false };
        // What it wrote before its end is here now.
        self.process.read();
        self.take_answers(plan, connections);
        self.settle(plan, connections, status);
        true
    }

    /// Tells the server what the command has answered.
    fn take_answers(&mut self, plan: &Plan<'_>, connections: &mut SlotConnections<'_>) {
        let mut done = Vec::new();
        let lines = self.process.take_lines();
        for line in &lines {
            let Some(answer) = read_answer(line) else {
                warn(&format!("{}: {}", self.tube, printable(line)));
                continue;
            };
            let id = answer.id();
            let Some(index) = self.jobs.iter().position(|held| held.is_open && held.job.id == id) else {
                warn(&format!("{}: an answer to job {id}, which is not open", self.tube));
                continue;
            };
            self.process.renew(plan.settings.timeout);
            match answer {
                BatchAnswer::Done(_) => done.push(index),
                BatchAnswer::Failed(_, reason) => self.fail(plan, connections, index, &reason, None),
                BatchAnswer::Released(_) => self.give_back(plan, connections, index),
            }
        }
        self.delete(plan, connections, &done);
    }

    /// Deletes jobs that are done, those of a connection at once.
    fn delete(&mut self, plan: &Plan<'_>, connections: &mut SlotConnections<'_>, done: &[usize]) {
        if done.is_empty() {
            return;
        }
        let took = self.since.elapsed() / u32::try_from(done.len()).unwrap_or(u32::MAX);
        for (is_fetched, runner) in connections.both() {
            let indices = done.iter().copied().filter(|index| self.jobs[*index].is_fetched == is_fetched);
            let indices: Vec<_> = indices.collect();
            let jobs: Vec<_> = indices.iter().map(|index| &self.jobs[*index].job).collect();
            let told = match runner.delete_many(&jobs) {
                Ok(told) => told,
                Err(error) => {
                    let sentence = error.to_string();
                    indices.iter().for_each(|index| self.close(plan, *index, JobOutcome::Lost, &sentence, took));
                    continue;
                }
            };
            for (index, told) in indices.into_iter().zip(told) {
                match told {
                    Ok(()) => self.close(plan, index, JobOutcome::Done, "", took),
                    Err(error) => self.close(plan, index, JobOutcome::Lost, &error.to_string(), took),
                }
            }
        }
        self.since = Instant::now();
    }

    /// A job has failed. With a status, that of its command, it is buried if that is wanted.
    fn fail(
        &mut self,
        plan: &Plan<'_>,
        connections: &mut SlotConnections<'_>,
        index: usize,
        text: &[u8],
        status: Option<u8>,
    ) {
        let (settings, held) = (plan.settings, &self.jobs[index]);
        let (runner, pri, delay) = (connections.of(held), Some(held.status.pri), settings.delay_of_failed());
        let is_buried = status.is_some_and(|status| settings.bury_on.contains(&status));
        let told = match is_buried {
            true => runner.fail_and_bury(&held.job, pri, text),
            false => runner.fail(&held.job, pri, delay, text).map(drop),
        };
        let mut reason = first_and_last_line(text);
        let said = match told {
            Err(Error::NoExtension(_)) => {
                reason += "; the server does not keep that";
                if is_buried { runner.bury(&held.job, pri) } else { runner.release(&held.job, pri, delay) }
            }
            said => said,
        };
        let took = self.since.elapsed();
        self.since = Instant::now();
        match said {
            Ok(()) => self.close(plan, index, JobOutcome::Failed, &reason, took),
            Err(error) => self.close(plan, index, JobOutcome::Lost, &format!("{error}; {reason}"), took),
        }
    }

    /// A job is given back, which is no attempt at it.
    fn give_back(&mut self, plan: &Plan<'_>, connections: &mut SlotConnections<'_>, index: usize) {
        let held = &self.jobs[index];
        let released = connections.of(held).release(&held.job, Some(held.status.pri), Duration::ZERO);
        let took = self.since.elapsed();
        match released {
            Ok(()) => self.close(plan, index, JobOutcome::GivenBack, "", took),
            Err(error) => self.close(plan, index, JobOutcome::Lost, &error.to_string(), took),
        }
    }

    /// The command has ended: says what became of the jobs that are open.
    fn settle(&mut self, plan: &Plan<'_>, connections: &mut SlotConnections<'_>, status: u8) {
        let open: Vec<_> = (0..self.jobs.len()).filter(|index| self.jobs[*index].is_open).collect();
        if !self.is_batch && status == 0 && !self.is_late {
            return self.delete(plan, connections, &open);
        }
        let mut reason = match self.is_late {
            true => format!("its command took longer than {} s", plan.settings.timeout.as_secs_f64()),
            false => format!("its command ended with status {status}"),
        };
        if self.is_batch {
            reason += ", before it answered";
        }
        let text = [reason.as_bytes(), b"\n", self.process.tail()].concat();
        for (position, index) in open.into_iter().enumerate() {
            // It worked on the first of those that it has not answered; it did nothing about the others. It has not failed if it was
            // ended because of jobs that are lost.
            match position == 0 && !self.is_given_back && !self.is_lost {
                true => self.fail(plan, connections, index, &text, (!self.is_late).then_some(status)),
                false => self.give_back(plan, connections, index),
            }
        }
    }

    fn touch(&mut self, plan: &Plan<'_>, connections: &mut SlotConnections<'_>) {
        for (is_fetched, runner) in connections.both() {
            let jobs = self.jobs.iter().enumerate().filter(|(_, held)| held.is_open && held.is_fetched == is_fetched);
            let (indices, jobs): (Vec<_>, Vec<_>) = jobs.map(|(index, held)| (index, &held.job)).unzip();
            let lost: Vec<(usize, Error)> = match runner.touch_many(&jobs) {
                Ok(told) => {
                    indices.into_iter().zip(told).filter_map(|(index, told)| Some((index, told.err()?))).collect()
                }
                Err(error) => indices.into_iter().map(|index| (index, error.clone())).collect(),
            };
            for (index, error) in lost {
                self.lose(plan, index, &error);
            }
        }
        self.touch_at = Instant::now() + touch_interval(&self.jobs);
    }

    /// Others have been given the job.
    fn lose(&mut self, plan: &Plan<'_>, index: usize, error: &Error) {
        self.is_lost = true;
        let consequence = match plan.settings.on_lost {
            OnLost::Warn => "its command runs on",
            OnLost::Term => {
                self.process.terminate();
                "its command is terminated"
            }
            OnLost::Kill => {
                self.process.kill();
                "its command is killed"
            }
        };
        self.close(plan, index, JobOutcome::Lost, &format!("{error}; {consequence}"), self.since.elapsed());
    }

    /// The server has been told, or does not want to know: counts and logs it.
    fn close(&mut self, plan: &Plan<'_>, index: usize, outcome: JobOutcome, words: &str, took: Duration) {
        let held = &mut self.jobs[index];
        held.is_open = false;
        plan.tally.end(kind_of(&self.tube), outcome, took);
        let job = format!("job {} of {}", held.job.id, self.tube);
        let seconds = took.as_secs_f64();
        match outcome {
            JobOutcome::Done if !plan.settings.is_quiet => say(Level::Info, &format!("{job}: done in {seconds:.3} s")),
            JobOutcome::GivenBack if !plan.settings.is_quiet => {
                say(Level::Info, &format!("{job}: given back after {seconds:.3} s"));
            }
            JobOutcome::Done | JobOutcome::GivenBack => {}
            JobOutcome::Failed => warn(&format!("{job}: failed in {seconds:.3} s: {words}")),
            JobOutcome::Lost => warn(&format!("{job}: lost after {seconds:.3} s: {words}")),
        }
    }
}

/// Returns a file that has the body of the job, or a line for each, from its beginning on: unlike a pipe, it needs nobody to go on
/// writing to it.
fn input_of(jobs: &mut [HeldJob], is_batch: bool) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MFdFlags::MFD_CLOEXEC)?);
    for held in jobs {
        // It is not needed any more, and there may be many.
        let body = std::mem::take(&mut held.job.body);
        if is_batch {
            let mut line = Vec::new();
            write_line(held.job.id, &body, &mut line);
            file.write_all(&line)?;
        } else {
            file.write_all(&body)?;
        }
    }
    file.rewind()?;
    Ok(file)
}

/// When the first of those whose outcome is open must be touched.
fn touch_interval(jobs: &[HeldJob]) -> Duration {
    let open = jobs.iter().filter(|held| held.is_open);
    open.map(|held| held.status.ttr / TOUCHES).min().unwrap_or(LONGEST_TOUCH).min(LONGEST_TOUCH)
}

/// The first part of a tube's name.
fn wiki_of(tube: &str) -> &str {
    tube.split('/').next().unwrap_or_default()
}

/// The last part of a tube's name.
fn kind_of(tube: &str) -> &str {
    tube.rsplit('/').next().unwrap_or_default()
}

/// Returns a word of the command with the names in their places. Names of tubes have no braces, so none is replaced twice.
fn filled(word: &OsStr, tube: &str) -> OsString {
    let mut bytes = word.as_bytes().to_vec();
    for (place, name) in [("{wiki}", wiki_of(tube)), ("{type}", kind_of(tube)), ("{tube}", tube)] {
        let mut from = 0;
        while let Some(at) = bytes[from..].windows(place.len()).position(|window| window == place.as_bytes()) {
            bytes.splice(from + at..from + at + place.len(), name.bytes());
            from += at + name.len();
        }
    }
    OsString::from_vec(bytes)
}

fn of_tube(tube: &str) -> Vec<Variable> {
    let variable = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    vec![variable("JOB_TUBE", tube), variable("JOB_WIKI", wiki_of(tube)), variable("JOB_TYPE", kind_of(tube))]
}

fn of_job(held: &HeldJob) -> Vec<Variable> {
    let HeldJob { job: ReservedJob { id, .. }, status, .. } = held;
    let JobId(id) = id;
    let variable = |name: &str, value: u64| (name.as_bytes().to_vec(), value.to_string().into_bytes());
    let mut variables = of_tube(&status.tube);
    variables.extend([
        variable("JOB_ID", *id),
        variable("JOB_PRI", status.pri.into()),
        variable("JOB_AGE", status.age.as_secs()),
        variable("JOB_TTR", status.ttr.as_secs()),
        variable("JOB_RESERVES", status.reserves),
        variable("JOB_TIMEOUTS", status.timeouts),
        variable("JOB_RELEASES", status.releases),
    ]);
    variables
}

/// The first line of a text, and its last behind a colon, if there is another.
fn first_and_last_line(text: &[u8]) -> String {
    let mut lines = text.trim_ascii_end().split(|byte| *byte == b'\n');
    let first = printable(lines.next().unwrap_or_default());
    lines.next_back().map(|last| format!("{first}: {}", printable(last))).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in() {
        for (word, tube, filled_in) in [
            ("--wiki={wiki}", "enwiki/refreshLinks", "--wiki=enwiki"),
            ("{tube}: {type}{type} {wiki", "enwiki/a/b", "enwiki/a/b: bb {wiki"),
            ("{wiki}.{type}", "default", "default.default"),
            ("{", "a/b", "{"),
        ] {
            assert_eq!(filled(OsStr::new(word), tube), OsStr::new(filled_in));
        }
    }
}
