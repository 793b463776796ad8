//! One of the jobs that a runner runs at a time: its connection, the job and its command. It waits for nothing.

use super::run::{Ending, Plan};
use crate::cli::process::{Keep, Launch, Process};
use crate::cli::run_child::OnLost;
use crate::cli::servers::TIMEOUTS;
use crate::cli::spawn::Variable;
use crate::cli::terminal::{printable, warn};
use crate::client::{Error, JobStatus, Reservation, ReservedJob, Runner};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long it waits before it connects again; doubled each time that this fails, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a job is touched in the time of its TTR, so that one that is late does no harm.
const TOUCHES: u32 = 3;
/// The longest TTR would be touched once in decades: a connection that is lost in silence is noticed sooner.
const LONGEST_TOUCH: Duration = Duration::from_secs(600);
/// What is kept of a command's output: as much as the server keeps of why a job failed, less the line that tells its status.
const TAIL: usize = 4000;
/// How long the reply to a reserve may be looked for once the connection has something to say.
const GLANCE: Duration = Duration::from_millis(1);

/// A connection, and what it is about.
pub struct Slot<'a> {
    plan: &'a Plan<'a>,
    runner: Runner,
    state: State,
    /// Whether the runner has its name and its watches.
    is_set_up: bool,
    /// Whether the connection has something to say.
    has_news: bool,
    /// What was last said about the connection, so that it is said once.
    complaint: String,
}

enum State {
    /// It connects and reserves at this time.
    Down {
        until: Instant,
        pause: Duration,
    },
    /// A reserve is under way.
    Waiting,
    Running(Box<RunningJob>),
    /// It is over.
    Closed,
}

/// A job and its command.
struct RunningJob {
    job: ReservedJob,
    status: JobStatus,
    process: Process,
    touch_at: Instant,
    is_late: bool,
    /// Whether others have been given the job.
    is_lost: bool,
    /// Whether it was ended for the end of the runner.
    is_given_back: bool,
}

/// Why a runner ends without being asked to.
pub enum RunnerStop {
    Refused(Error),
    System(io::Error),
}

impl From<io::Error> for RunnerStop {
    fn from(error: io::Error) -> Self {
        RunnerStop::System(error)
    }
}

impl<'a> Slot<'a> {
    /// It connects when it goes on.
    pub fn new(plan: &'a Plan<'a>) -> Slot<'a> {
        let runner = Runner::new(plan.settings.servers.list(), TIMEOUTS);
        let state = State::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
        Slot { plan, runner, state, is_set_up: false, has_news: false, complaint: String::new() }
    }

    /// Returns whether it does nothing any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The connection has something to say.
    pub fn note_news(&mut self) {
        self.has_news = true;
    }

    /// The connection, while something may come.
    pub fn connection(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Running(run) if run.is_lost => None,
            State::Waiting | State::Running(_) => self.runner.descriptor(),
            State::Down { .. } | State::Closed => None,
        }
    }

    /// The output of the command, while there is some.
    pub fn output(&self) -> Option<BorrowedFd<'_>> {
        if let State::Running(run) = &self.state { run.process.output() } else { None }
    }

    /// When there is something to do without news.
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down { until, .. } => Some(*until),
            State::Running(run) => {
                let touch_at = (!run.is_lost).then_some(run.touch_at);
                run.process.deadline().into_iter().chain(touch_at).min()
            }
            State::Waiting | State::Closed => None,
        }
    }

    /// Does what there is to do. `has_ends` tells that a command may have ended.
    ///
    /// # Errors
    ///
    /// When the server refuses what this runner is about.
    pub fn go_on(&mut self, has_ends: bool, ending: Ending) -> Result<(), RunnerStop> {
        let has_news = std::mem::take(&mut self.has_news);
        match &mut self.state {
            State::Down { .. } | State::Waiting if ending > Ending::No => self.close(),
            State::Down { until, .. } if *until <= Instant::now() => self.reserve()?,
            State::Waiting if has_news => self.look_at_reply()?,
            State::Running(_) => self.look_after(has_ends, has_news, ending)?,
            State::Down { .. } | State::Waiting | State::Closed => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        // A job that has just been reserved is given back; a connection that closes would count as an attempt at it.
        if matches!(self.state, State::Waiting)
            && let Ok(Some(Reservation::Reserved(job))) = self.runner.reserved_within(GLANCE)
        {
            // If that fails, the connection is lost, and nothing more can be done.
            let _ = self.runner.release(&job, None, Duration::ZERO);
        }
        self.runner.close();
        self.state = State::Closed;
    }

    /// Begins to wait for a job, on a new connection if there is none.
    fn reserve(&mut self) -> Result<(), RunnerStop> {
        match self.try_reserve() {
            Ok(()) => {
                if !self.complaint.is_empty() {
                    self.complain("it is connected again");
                    self.complaint.clear();
                }
                self.state = State::Waiting;
                Ok(())
            }
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => {
                self.try_later(&format!("{error}; it is tried again"));
                Ok(())
            }
            Err(error) => Err(RunnerStop::Refused(error)),
        }
    }

    fn try_reserve(&mut self) -> Result<(), Error> {
        // What it was told once, it tells each new connection.
        if !self.is_set_up {
            if self.runner.is_extended()? {
                self.runner.identify(&self.plan.name)?;
            }
            for (pattern, weight) in &self.plan.watches {
                self.runner.watch(pattern, *weight)?;
            }
            if !self.plan.watches.iter().any(|(pattern, _)| *pattern == "default") {
                self.runner.ignore("default")?;
            }
            self.is_set_up = true;
        }
        self.runner.begin_reserve(None)
    }

    fn try_later(&mut self, sentence: &str) {
        self.complain(sentence);
        let pause = if let State::Down { pause, .. } = self.state { pause } else { SHORTEST_PAUSE };
        self.state = State::Down { until: Instant::now() + pause, pause: (2 * pause).min(LONGEST_PAUSE) };
    }

    fn complain(&mut self, sentence: &str) {
        if self.complaint != sentence {
            self.complaint = sentence.into();
            warn(sentence);
        }
    }

    fn look_at_reply(&mut self) -> Result<(), RunnerStop> {
        match self.runner.reserved_within(GLANCE) {
            Ok(None) => Ok(()),
            Ok(Some(Reservation::Reserved(job))) => self.start(job),
            Ok(Some(Reservation::TimedOut | Reservation::DeadlineSoon)) => self.reserve(),
            Err(Error::Lost) => {
                self.try_later("the connection is lost; it is tried again");
                Ok(())
            }
            Err(error) => Err(RunnerStop::Refused(error)),
        }
    }

    /// Runs the command for a job.
    fn start(&mut self, mut job: ReservedJob) -> Result<(), RunnerStop> {
        // Otherwise its TTR is over already, or the connection is.
        let Ok(status) = self.runner.status(&job) else { return self.reserve() };
        let body = std::mem::take(&mut job.body);
        let started = input_of(&body).and_then(|input| {
            self.plan.launcher.start(&Launch {
                words: self.plan.command,
                variables: &variables(&job, &status),
                input: Some(input.as_fd()),
                keep: Keep::Tail(TAIL),
                timeout: Some(self.plan.settings.timeout),
            })
        });
        match started {
            Ok(process) => {
                let touch_at = Instant::now() + touch_interval(&status);
                let run =
                    RunningJob { job, status, process, touch_at, is_late: false, is_lost: false, is_given_back: false };
                self.state = State::Running(Box::new(run));
            }
            // That is not the job's fault, and may be over soon: no attempt is counted.
            Err(error) => {
                let name = self.plan.command.first().map(|word| word.display().to_string()).unwrap_or_default();
                // Whatever comes of it, the connection is given up.
                let _ = self.runner.release(&job, Some(status.pri), self.plan.settings.delay_of_failed());
                self.runner.close();
                self.state = State::Down { until: Instant::now(), pause: LONGEST_PAUSE };
                self.try_later(&format!("{name} cannot be run: {error}; it is tried again"));
            }
        }
        Ok(())
    }

    fn look_after(&mut self, has_ends: bool, has_news: bool, ending: Ending) -> Result<(), RunnerStop> {
        let State::Running(run) = &mut self.state else { return Ok(()) };
        let now = Instant::now();
        run.process.read();
        if ending >= Ending::GiveBack && !run.is_given_back {
            run.is_given_back = true;
            run.process.terminate();
        }
        if ending == Ending::Kill {
            run.process.kill();
        }
        if run.process.expire(now) && !run.is_given_back && !run.is_lost {
            run.is_late = true;
        }
        // Nothing is to come now but the end of the connection.
        if !run.is_lost && (has_news || run.touch_at <= now) {
            match self.runner.touch(&run.job) {
                Ok(()) => run.touch_at = Instant::now() + touch_interval(&run.status),
                Err(error) => lose(run, &error, self.plan.settings.on_lost),
            }
        }
        let status = if has_ends { run.process.status() } else { None };
        if let Some(status) = status {
            // What it wrote before its end is here now.
            run.process.read();
            self.finish(status);
            match ending {
                Ending::No => self.reserve()?,
                _ => self.close(),
            }
        }
        Ok(())
    }

    /// Says what became of the job whose command has ended.
    fn finish(&mut self, status: u8) {
        let pause = State::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
        let State::Running(run) = std::mem::replace(&mut self.state, pause) else { return };
        if !run.is_lost
            && let Err(error) = self.tell(&run, status)
        {
            warn(&format!("job {}: {error}", run.job.id));
        }
    }

    fn tell(&mut self, run: &RunningJob, status: u8) -> Result<(), Error> {
        let (job, settings, pri) = (&run.job, self.plan.settings, Some(run.status.pri));
        if status == 0 && !run.is_late {
            return self.runner.delete(job);
        }
        if run.is_given_back {
            return self.runner.release(job, pri, Duration::ZERO);
        }
        let reason = match run.is_late {
            true => format!("its command took longer than {} s", settings.timeout.as_secs_f64()),
            false => format!("its command ended with status {status}"),
        };
        warn(&format!("job {} of {}: {reason}{}", job.id, run.status.tube, last_line(run.process.tail())));
        if !run.is_late && settings.bury_on.contains(&status) {
            return self.runner.bury(job, pri);
        }
        if !self.runner.is_extended()? {
            return self.runner.release(job, pri, settings.delay_of_failed());
        }
        let text = [reason.as_bytes(), b"\n", run.process.tail()].concat();
        self.runner.fail(job, pri, settings.delay_of_failed(), text).map(drop)
    }
}

/// Others have been given the job.
fn lose(run: &mut RunningJob, error: &Error, on_lost: OnLost) {
    run.is_lost = true;
    let consequence = match on_lost {
        OnLost::Warn => "its command runs on",
        OnLost::Term => {
            run.process.terminate();
            "its command is terminated"
        }
        OnLost::Kill => {
            run.process.kill();
            "its command is killed"
        }
    };
    warn(&format!("job {} of {}: {error}; {consequence}", run.job.id, run.status.tube));
}

/// Returns a file that has this body, from its beginning on: unlike a pipe, it needs nobody to go on writing to it.
fn input_of(body: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    Ok(file)
}

fn touch_interval(status: &JobStatus) -> Duration {
    (status.ttr / TOUCHES).min(LONGEST_TOUCH)
}

fn variables(job: &ReservedJob, status: &JobStatus) -> Vec<Variable> {
    let variable = |name: &str, value: String| (name.as_bytes().to_vec(), value.into_bytes());
    vec![
        variable("JOB_ID", job.id.to_string()),
        variable("JOB_TUBE", status.tube.clone()),
        variable("JOB_PRI", status.pri.to_string()),
        variable("JOB_AGE", status.age.as_secs().to_string()),
        variable("JOB_TTR", status.ttr.as_secs().to_string()),
        variable("JOB_RESERVES", status.reserves.to_string()),
        variable("JOB_TIMEOUTS", status.timeouts.to_string()),
        variable("JOB_RELEASES", status.releases.to_string()),
    ]
}

/// The last line of an output behind a colon, if there is one.
fn last_line(tail: &[u8]) -> String {
    let line = tail.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if line.is_empty() { String::new() } else { format!(": {}", printable(line)) }
}
