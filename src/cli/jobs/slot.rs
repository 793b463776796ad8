//! Slot of a runner, which runs one command at a time: its connections and its state. It has its own thread, because
//! the server may block it.

use super::command_run::CommandRun;
use super::failure;
use super::fetch::{HeldJob, SlotConnections, is_limit};
use super::plan::{Ending, Plan, SlotSignals};
use crate::command::Failure;
use crate::servers::TIMEOUTS;
use crate::wait::{Outage, poll_until};
use poolcounter_client::{Error, Reservation, ReservedJob};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time limit for reading the reply to a reserve once the connection has input.
const GLANCE: Duration = Duration::from_millis(1);
/// Timeout of a reserve. A server that has not replied by then hangs, or is gone silently.
const RESERVE: Duration = Duration::from_secs(60);

/// Slot: the connections of a thread, and its state.
pub struct Slot<'a> {
    plan: &'a Plan<'a>,
    told: &'a SlotSignals,
    connections: SlotConnections<'a>,
    state: SlotState<'a>,
    /// True if the connection has input.
    has_news: bool,
    outage: Outage,
    /// True if the last reply was a refusal that may pass.
    is_refused: bool,
}

enum SlotState<'a> {
    /// Not connected; connects and reserves at this time.
    Down(Instant),
    /// Reserving; the reply must come by this time.
    Waiting(Instant),
    Running(Box<CommandRun<'a>>),
    /// Ended.
    Closed,
}

impl<'a> Slot<'a> {
    /// Returns a slot for the first of these servers that replies.
    pub fn new(plan: &'a Plan<'a>, told: &'a SlotSignals, servers: &[String]) -> Slot<'a> {
        let state = SlotState::Down(Instant::now());
        let connections = SlotConnections::new(plan, servers);
        Slot { plan, told, connections, state, has_news: false, outage: Outage::new(String::new()), is_refused: false }
    }

    /// Reserves jobs and runs commands until the runner ends.
    ///
    /// # Errors
    ///
    /// Fails if the server refuses the watches or requests of this runner.
    pub fn run(mut self) -> Result<(), Failure> {
        loop {
            self.told.bell.silence();
            self.go_on(self.told.ending())?;
            if matches!(self.state, SlotState::Closed) {
                return Ok(());
            }
            self.wait().map_err(Failure::no_commands)?;
        }
    }

    /// Waits until there is work.
    fn wait(&mut self) -> io::Result<()> {
        let bell = self.told.bell.as_fd();
        let (until, connections, run) = match &self.state {
            SlotState::Down(until) => (Some(*until), Vec::new(), None),
            SlotState::Waiting(until) => (Some(*until), self.connections.descriptors(true, false), None),
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

    fn go_on(&mut self, ending: Ending) -> Result<(), Failure> {
        let has_news = std::mem::take(&mut self.has_news);
        let now = Instant::now();
        match &mut self.state {
            SlotState::Down(_) | SlotState::Waiting(_) if ending > Ending::No => self.close(),
            SlotState::Down(until) if *until <= now => self.reserve()?,
            SlotState::Waiting(_) if has_news => self.look_at_reply()?,
            SlotState::Waiting(until) if *until <= now => {
                self.connections.close();
                self.try_later("the server does not answer");
            }
            SlotState::Running(_) => self.look_after(has_news, ending)?,
            SlotState::Down(_) | SlotState::Waiting(_) | SlotState::Closed => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        // A job reserved just now is released; closing the connection would count as an attempt.
        let runner = &mut self.connections.waiting;
        if matches!(self.state, SlotState::Waiting(_))
            && let Ok(Some(Reservation::Reserved(job))) = runner.reserved_within(GLANCE)
        {
            // If this fails, the connection is lost, which is all that can be done.
            let _ = runner.release(&job, None, Duration::ZERO);
        }
        self.connections.close();
        self.state = SlotState::Closed;
    }

    /// Starts a reserve, on a new connection if necessary.
    fn reserve(&mut self) -> Result<(), Failure> {
        match self.connections.set_up().and_then(|()| self.connections.waiting.begin_reserve(Some(RESERVE))) {
            Ok(()) => {
                // After a refusal only the next reply shows that it has passed.
                if !self.is_refused {
                    self.recover("it is connected again");
                }
                self.state = SlotState::Waiting(Instant::now() + RESERVE + TIMEOUTS.answer);
                Ok(())
            }
            Err(error) => self.handle(error),
        }
    }

    /// Handles an error of the server: tries again later if it may pass, else ends the runner.
    fn handle(&mut self, error: Error) -> Result<(), Failure> {
        match error {
            Error::Lost => self.try_later("the connection is lost"),
            Error::Unavailable(_) => self.try_later(&error.to_string()),
            error if is_limit(&error) => {
                self.is_refused = true;
                self.try_later(&error.to_string());
            }
            error => return Err(failure(error)),
        }
        Ok(())
    }

    fn try_later(&mut self, sentence: &str) {
        self.state = SlotState::Down(self.outage.try_later(sentence));
    }

    /// Notes that the server accepts requests, and says so after a complaint.
    fn recover(&mut self, sentence: &str) {
        self.is_refused = false;
        self.outage.recover(sentence);
    }

    fn look_at_reply(&mut self) -> Result<(), Failure> {
        let reply = match self.connections.waiting.reserved_within(GLANCE) {
            Ok(None) => return Ok(()),
            Ok(Some(reply)) => reply,
            Err(error) => return self.handle(error),
        };
        self.recover("the server accepts requests again");
        match reply {
            Reservation::Reserved(job) => self.start(job),
            Reservation::TimedOut | Reservation::DeadlineSoon => self.reserve(),
        }
    }

    /// Starts the command for a job.
    fn start(&mut self, job: ReservedJob) -> Result<(), Failure> {
        let status = match self.connections.waiting.status(&job) {
            Ok(status) => status,
            // Its TTR is over.
            Err(Error::Expired) => return self.reserve(),
            Err(error) => {
                // Without its priority it cannot be released.
                self.connections.close();
                return self.handle(error);
            }
        };
        self.told.is_running.store(true, Ordering::SeqCst);
        match CommandRun::start(self.plan, HeldJob::new(job, status, false), &self.connections) {
            Ok(run) => self.state = SlotState::Running(Box::new(run)),
            // This is no fault of the job, and may be temporary: it does not count as an attempt.
            Err(failed) => {
                let (error, held) = *failed;
                self.told.is_running.store(false, Ordering::SeqCst);
                let name = self.plan.command.first().map(|word| word.display().to_string()).unwrap_or_default();
                let delay = self.plan.settings.delay;
                // Ignores the result, because the connection is closed next.
                let _ = self.connections.waiting.release(&held.job, Some(held.status.pri), delay);
                self.connections.close();
                let until = self.outage.try_much_later(&format!("{name} cannot be run: {error}"));
                self.state = SlotState::Down(until);
            }
        }
        Ok(())
    }

    fn look_after(&mut self, has_news: bool, ending: Ending) -> Result<(), Failure> {
        let SlotState::Running(run) = &mut self.state else { return Ok(()) };
        if !run.go_on(&mut self.connections, has_news, ending) {
            return Ok(());
        }
        self.told.is_running.store(false, Ordering::SeqCst);
        match ending {
            Ending::No => self.reserve(),
            _ => {
                self.state = SlotState::Down(Instant::now());
                self.close();
                Ok(())
            }
        }
    }
}
