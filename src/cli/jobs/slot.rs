//! One of the commands that a runner runs at a time: its connections, and what it is about. It has a thread of its own, which the
//! server may hold up.

use super::command_run::CommandRun;
use super::fetch::{HeldJob, SlotConnections};
use super::plan::{Ending, Plan, SlotSignals, poll_until};
use crate::servers::TIMEOUTS;
use crate::terminal::warn;
use poolcounter_client::{Error, Reservation, ReservedJob};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long it waits before it connects again; doubled each time that this fails, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the reply to a reserve may be looked for once the connection has something to say.
const GLANCE: Duration = Duration::from_millis(1);
/// How long a reserve waits for a job. A server that has not answered then hangs, or is gone in silence.
const RESERVE: Duration = Duration::from_secs(60);

/// A thread's connections, and what it does.
pub struct Slot<'a> {
    plan: &'a Plan<'a>,
    told: &'a SlotSignals,
    connections: SlotConnections<'a>,
    state: SlotState,
    /// Whether the connection has something to say.
    has_news: bool,
    /// What was last said about the connection, so that it is said once.
    complaint: String,
}

enum SlotState {
    /// It connects and reserves at this time.
    Down {
        until: Instant,
        pause: Duration,
    },
    /// A reserve is under way, whose answer comes by then.
    Waiting {
        until: Instant,
    },
    Running(Box<CommandRun>),
    /// It is over.
    Closed,
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
    /// It asks the first of these servers that answers.
    pub fn new(plan: &'a Plan<'a>, told: &'a SlotSignals, servers: &[String]) -> Slot<'a> {
        let state = SlotState::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
        let connections = SlotConnections::new(plan, servers);
        Slot { plan, told, connections, state, has_news: false, complaint: String::new() }
    }

    /// Reserves jobs and runs commands until it is told to end.
    ///
    /// # Errors
    ///
    /// When the server refuses what this runner is about.
    pub fn run(mut self) -> Result<(), RunnerStop> {
        loop {
            self.told.bell().silence();
            self.go_on(self.told.ending())?;
            if matches!(self.state, SlotState::Closed) {
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> io::Result<()> {
        let bell = self.told.bell().as_fd();
        let (until, connections, run) = match &self.state {
            SlotState::Down { until, .. } => (Some(*until), Vec::new(), None),
            SlotState::Waiting { until } => (Some(*until), self.connections.descriptors(true, false), None),
            SlotState::Running(run) => (run.next_deadline(), run.descriptors(&self.connections), Some(run)),
            SlotState::Closed => return Ok(()),
        };
        let count = connections.len();
        let outputs = run.into_iter().flat_map(|run| run.outputs());
        let polled: Vec<_> = connections.into_iter().chain([bell]).chain(outputs).collect();
        let ready = poll_until(until, &polled, run.and_then(|run| run.full_input()))?;
        self.has_news = ready[..count].contains(&true);
        Ok(())
    }

    fn go_on(&mut self, ending: Ending) -> Result<(), RunnerStop> {
        let has_news = std::mem::take(&mut self.has_news);
        let now = Instant::now();
        match &mut self.state {
            SlotState::Down { .. } | SlotState::Waiting { .. } if ending > Ending::No => self.close(),
            SlotState::Down { until, .. } if *until <= now => self.reserve()?,
            SlotState::Waiting { .. } if has_news => self.look_at_reply()?,
            SlotState::Waiting { until } if *until <= now => {
                self.connections.close();
                self.try_later("the server does not answer; it is tried again");
            }
            SlotState::Running(_) => self.look_after(has_news, ending)?,
            SlotState::Down { .. } | SlotState::Waiting { .. } | SlotState::Closed => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        // A job that has just been reserved is given back; a connection that closes would count as an attempt at it.
        let runner = &mut self.connections.waiting;
        if matches!(self.state, SlotState::Waiting { .. })
            && let Ok(Some(Reservation::Reserved(job))) = runner.reserved_within(GLANCE)
        {
            // If that fails, the connection is lost, and nothing more can be done.
            let _ = runner.release(&job, None, Duration::ZERO);
        }
        self.connections.close();
        self.state = SlotState::Closed;
    }

    /// Begins to wait for a job, on a new connection if there is none.
    fn reserve(&mut self) -> Result<(), RunnerStop> {
        match self.connections.set_up().and_then(|()| self.connections.waiting.begin_reserve(Some(RESERVE))) {
            Ok(()) => {
                if !self.complaint.is_empty() {
                    self.complain("it is connected again");
                    self.complaint.clear();
                }
                self.state = SlotState::Waiting { until: Instant::now() + RESERVE + TIMEOUTS.answer };
                Ok(())
            }
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => {
                self.try_later(&format!("{error}; it is tried again"));
                Ok(())
            }
            Err(error) => Err(RunnerStop::Refused(error)),
        }
    }

    fn try_later(&mut self, sentence: &str) {
        self.complain(sentence);
        let pause = if let SlotState::Down { pause, .. } = self.state { pause } else { SHORTEST_PAUSE };
        self.state = SlotState::Down { until: Instant::now() + pause, pause: (2 * pause).min(LONGEST_PAUSE) };
    }

    fn complain(&mut self, sentence: &str) {
        if self.complaint != sentence {
            self.complaint = sentence.into();
            warn(sentence);
        }
    }

    fn look_at_reply(&mut self) -> Result<(), RunnerStop> {
        match self.connections.waiting.reserved_within(GLANCE) {
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
    fn start(&mut self, job: ReservedJob) -> Result<(), RunnerStop> {
        // Otherwise its TTR is over already, or the connection is.
        let Ok(status) = self.connections.waiting.status(&job) else { return self.reserve() };
        self.told.is_running.store(true, Ordering::SeqCst);
        match CommandRun::start(self.plan, HeldJob::new(job, status, false)) {
            Ok(run) => self.state = SlotState::Running(Box::new(run)),
            // That is not the fault of the job, and may be over soon: no attempt is counted.
            Err(failed) => {
                let (error, held) = *failed;
                self.told.is_running.store(false, Ordering::SeqCst);
                let name = self.plan.command.first().map(|word| word.display().to_string()).unwrap_or_default();
                let delay = self.plan.settings.delay_of_failed();
                // Whatever comes of it, the connection is given up.
                let _ = self.connections.waiting.release(&held.job, Some(held.status.pri), delay);
                self.connections.close();
                self.state = SlotState::Down { until: Instant::now(), pause: LONGEST_PAUSE };
                self.try_later(&format!("{name} cannot be run: {error}; it is tried again"));
            }
        }
        Ok(())
    }

    fn look_after(&mut self, has_news: bool, ending: Ending) -> Result<(), RunnerStop> {
        let SlotState::Running(run) = &mut self.state else { return Ok(()) };
        if !run.go_on(self.plan, &mut self.connections, has_news, ending) {
            return Ok(());
        }
        self.told.is_running.store(false, Ordering::SeqCst);
        match ending {
            Ending::No => self.reserve(),
            _ => {
                self.state = SlotState::Down { until: Instant::now(), pause: SHORTEST_PAUSE };
                self.close();
                Ok(())
            }
        }
    }
}
