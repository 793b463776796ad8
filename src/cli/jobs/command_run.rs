//! A command and its jobs, one at a time: fed to it, touched while it runs, and settled by its answers or its end.

use super::fetch::{HeldJob, Pace, SlotConnections};
use super::input::{BatchAnswer, CommandInput, file_of, read_answer};
use super::outcomes::{Fate, Outcomes};
use super::plan::{Ending, Plan};
use super::words::{all_of_wiki, filled, of_job, of_tube, wiki_of};
use crate::process::{Keep, Launch, Process};
use crate::run_child::OnLost;
use crate::terminal::{printable, warn};
use poolcounter_client::{Error, JobId, ReservedJob};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Number of touches within a TTR, so that a late one does no harm.
const TOUCHES: u32 = 3;
/// Longest time between touches: bounds the time until a cancelled job, or a silently lost connection, is noticed.
const LONGEST_TOUCH: Duration = Duration::from_secs(5);
/// Bytes kept of the end of a command's output: the server's limit of a failure reason, less the line with the exit
/// status.
const TAIL: usize = 4000;
/// Time limit for taking jobs back after the connection was lost, and the pause between two attempts.
const TAKE_BACK: Duration = Duration::from_secs(10);
const TAKE_BACK_EVERY: Duration = Duration::from_millis(250);

/// Command and its jobs.
pub struct CommandRun<'a> {
    plan: &'a Plan<'a>,
    tube: String,
    process: Process,
    /// Pipe from which it reads jobs, one at a time; None if it has its only job, or gets no more.
    input: Option<CommandInput>,
    is_batch: bool,
    /// Job in progress.
    present: Option<HeldJob>,
    /// Jobs reserved for it but not passed to it yet.
    ahead: VecDeque<HeldJob>,
    pace: Pace,
    /// Jobs with a known outcome.
    outcomes: Outcomes<'a>,
    /// Start of the job in progress.
    since: Instant,
    touch_at: Instant,
    /// Connection that stays open until the command has ended: true for the connection that fetches more jobs.
    kept: Option<bool>,
    /// Time at which the connection was lost, and time of the next attempt to take the jobs back.
    lost: Option<(Instant, Instant)>,
    is_late: bool,
    /// True if another runner has got the job in progress.
    is_lost: bool,
    /// True if it was ended because the runner ends.
    is_given_back: bool,
    has_ended: bool,
}

impl<'a> CommandRun<'a> {
    /// Starts the command for a job, which the server gives to nobody else before its end, even if this process is
    /// killed. Returns the job with the error on failure.
    pub fn start(
        plan: &'a Plan<'a>,
        mut held: HeldJob,
        connections: &SlotConnections<'_>,
    ) -> Result<CommandRun<'a>, Box<(io::Error, HeldJob)>> {
        let is_batch = plan.settings.batch > 1;
        let tube = held.status.tube.clone();
        let origin = held.status.origin.as_deref().unwrap_or(&tube);
        let words: Vec<_> = plan.command.iter().map(|word| filled(word, &tube, origin)).collect();
        let variables = if is_batch { of_tube(&tube) } else { of_job(&held) };
        let launch = |input: BorrowedFd<'_>| {
            plan.launcher.start(&Launch {
                words: &words,
                variables: &variables,
                input: Some(input),
                keep: if is_batch { Keep::Lines } else { Keep::Ends(TAIL) },
                errors: Keep::Ends(TAIL),
                shows_errors: is_batch,
                has_answers: is_batch,
                connections: &connections.descriptors(!held.is_fetched, held.is_fetched),
                timeout: Some(plan.settings.timeout),
            })
        };
        let started = match is_batch {
            true => CommandInput::new().and_then(|(its, input)| Ok((launch(its.as_fd())?, Some(input)))),
            false => file_of(&held.job.body).and_then(|file| Ok((launch(file.as_fd())?, None))),
        };
        let (process, mut input) = match started {
            Ok(started) => started,
            Err(error) => return Err(Box::new((error, held))),
        };
        plan.tally.begin(1);
        if let Some(input) = &mut input {
            input.add(&held.job);
        }
        // The body is no longer needed.
        held.job.body = Vec::new();
        let kept = Some(held.is_fetched);
        let mut run = CommandRun {
            plan,
            outcomes: Outcomes::new(plan, &tube),
            tube,
            process,
            input,
            is_batch,
            present: Some(held),
            ahead: VecDeque::new(),
            pace: Pace::begin(),
            since: Instant::now(),
            touch_at: Instant::now(),
            kept,
            lost: None,
            is_late: false,
            is_lost: false,
            is_given_back: false,
            has_ended: false,
        };
        run.touch_at += run.touch_interval();
        Ok(run)
    }

    fn held(&self) -> impl Iterator<Item = &HeldJob> {
        self.present.iter().chain(&self.ahead)
    }

    /// Returns the descriptors of the connections on which its jobs are reserved.
    pub fn descriptors<'c>(&self, connections: &'c SlotConnections<'_>) -> Vec<BorrowedFd<'c>> {
        let has = |is_fetched| self.lost.is_none() && self.held().any(|held| held.is_fetched == is_fetched);
        connections.descriptors(has(false), has(true))
    }

    /// Lets the server give the job in progress to nobody else before the command has ended, even if this process is
    /// killed.
    fn keep_open(&mut self, connections: &SlotConnections<'_>) {
        let kept = self.present.as_ref().filter(|_| self.lost.is_none()).map(|held| held.is_fetched);
        if kept != self.kept {
            self.kept = kept;
            self.process.keep_open(&connections.descriptors(kept == Some(false), kept == Some(true)));
        }
    }

    /// Returns the open outputs of the command.
    pub fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.process.outputs()
    }

    /// Returns the command's input if unsent jobs wait for room in the pipe.
    pub fn full_input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|input| input.has_more()).map(AsFd::as_fd)
    }

    /// Returns the time of the next action without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let touch_at = (self.lost.is_none() && self.held().next().is_some()).then_some(self.touch_at);
        let tell_at = self.outcomes.tell_at.filter(|_| self.lost.is_none());
        let take_back_at = self.lost.map(|(_, at)| at);
        self.process.deadline().into_iter().chain(touch_at).chain(tell_at).chain(take_back_at).min()
    }

    /// Performs the pending work, and returns true at the end. `has_news`: a connection has input.
    pub fn go_on(&mut self, connections: &mut SlotConnections<'_>, has_news: bool, ending: Ending) -> bool {
        self.read(connections);
        if ending >= Ending::Finish {
            self.stop_feeding();
        }
        if ending >= Ending::GiveBack && !self.is_given_back {
            self.is_given_back = true;
            self.process.terminate();
        }
        if ending == Ending::Kill {
            self.process.kill();
        }
        if self.process.expire(Instant::now()) && !self.is_given_back && !self.is_lost {
            self.is_late = true;
        }
        if let Some(status) = self.process.status() {
            // The output before its end is available now.
            self.read(connections);
            self.settle(status);
        }
        let now = Instant::now();
        self.take_back(connections, now, ending);
        // The only input possible now is the end of a connection.
        if self.lost.is_none() && self.held().next().is_some() && (has_news || self.touch_at <= now) {
            self.touch(connections);
        }
        self.feed(connections);
        self.keep_open(connections);
        if self.lost.is_none() && (self.present.is_none() || self.outcomes.tell_at.is_some_and(|at| at <= now)) {
            let told = self.outcomes.tell(connections);
            told.unwrap_or_else(|_| self.begin_to_take_back(connections));
        }
        self.has_ended && self.outcomes.is_empty()
    }

    /// Reads the command's outputs: passes on its output and its errors, and handles its answers.
    fn read(&mut self, connections: &mut SlotConnections<'_>) {
        self.process.read();
        for line in self.process.take_lines() {
            self.pass_on(&line);
        }
        for line in self.process.take_answers() {
            match read_answer(&line) {
                Some((id, answer)) => self.take_answer(connections, id, answer),
                None => warn(&format!("{}: unknown answer of the command: {}", self.tube, printable(&line))),
            }
        }
    }

    fn pass_on(&self, line: &[u8]) {
        let hint = read_answer(line).map_or("", |_| " (answers are read from descriptor 3)");
        warn(&format!("{}: {}{hint}", self.tube, printable(line)));
    }

    fn take_answer(&mut self, connections: &mut SlotConnections<'_>, id: JobId, answer: BatchAnswer) {
        let Some(held) = self.present.take_if(|held| held.job.id == id) else {
            return warn(&format!("{}: the command answers job {id}, which it does not have", self.tube));
        };
        let took = self.since.elapsed();
        self.process.renew(Some(self.plan.settings.timeout));
        self.process.forget_errors();
        self.pace.note(took);
        let fate = match answer {
            BatchAnswer::Done(rest) => {
                self.plan.rests.end(wiki_of(&self.tube));
                if let Some(time) = rest {
                    let tube = self.tube.clone();
                    self.rest(connections, &tube, time);
                }
                Fate::Done
            }
            BatchAnswer::Failed(text) => Fate::Failed { text, is_last: false },
            BatchAnswer::Buried(text) => Fate::Failed { text, is_last: true },
            BatchAnswer::Released(None) => Fate::GivenBack(Duration::ZERO),
            BatchAnswer::Released(Some(asked)) => {
                let time = self.plan.rests.begin(wiki_of(&self.tube), asked, Instant::now());
                self.rest(connections, &all_of_wiki(&self.tube), time);
                Fate::GivenBack(time)
            }
        };
        self.outcomes.add(held, fate, took);
    }

    /// Pauses tubes; the command gets no more of their jobs.
    fn rest(&mut self, connections: &mut SlotConnections<'_>, pattern: &str, time: Duration) {
        self.stop_feeding();
        if let Err(error) = connections.waiting.pause(pattern, time) {
            warn(&format!("{pattern} cannot rest for {} s: {error}", time.as_secs_f64()));
        }
    }

    /// Releases the jobs reserved ahead. The command gets no more jobs.
    fn stop_feeding(&mut self) {
        for held in self.ahead.drain(..) {
            self.outcomes.add(held, Fate::GivenBack(Duration::ZERO), Duration::ZERO);
        }
        if let Some(input) = &mut self.input {
            input.is_last = true;
        }
    }

    /// Passes the next job to the command once it is idle, and reserves more jobs while it is busy.
    fn feed(&mut self, connections: &mut SlotConnections<'_>) {
        let most = self.plan.settings.batch;
        let is_fed = self.input.as_ref().is_some_and(|input| !input.is_last);
        if self.lost.is_none() && self.present.is_none() && is_fed && self.pace.given < most {
            let window = self.pace.window().min(most - self.pace.given);
            let next = self.begin_next(connections, window);
            let Some(input) = &mut self.input else { return };
            if let Some(mut held) = next {
                input.add(&held.job);
                input.write();
                held.job.body = Vec::new();
                (self.present, self.since) = (Some(held), Instant::now());
                self.pace.given += 1;
                let ahead = self.ahead.len() as u32;
                if ahead < window / 2 {
                    let more = connections.fetch(&self.tube, window - 1 - ahead);
                    self.plan.tally.begin(more.len());
                    self.ahead.extend(more);
                }
                self.touch_at = self.touch_at.min(Instant::now() + self.touch_interval());
            } else if self.lost.is_none() {
                input.is_last = true;
            }
        }
        let Some(input) = &mut self.input else { return };
        input.write();
        if !input.has_more() && (input.is_last || self.pace.given >= most) {
            self.input = None;
        }
    }

    /// Begins the next job that is still reserved, and returns it; reserves up to `window` if none is left. Without `begin`
    /// in its protocol, a server counts each reserved job as begun.
    fn begin_next(&mut self, connections: &mut SlotConnections<'_>, window: u32) -> Option<HeldJob> {
        loop {
            if self.ahead.is_empty() {
                self.ahead.extend(connections.fetch(&self.tube, window));
                self.plan.tally.begin(self.ahead.len());
            }
            let held = self.ahead.pop_front()?;
            match connections.of(&held).begin(&held.job) {
                Ok(()) | Err(Error::NoExtension(_)) => return Some(held),
                Err(Error::Lost | Error::Unavailable(_)) => {
                    self.ahead.push_front(held);
                    self.begin_to_take_back(connections);
                    return None;
                }
                Err(error) => self.outcomes.lose(&held, &error.to_string(), Duration::ZERO),
            }
        }
    }

    /// Decides the outcome of its jobs after its end.
    fn settle(&mut self, status: u8) {
        (self.has_ended, self.input) = (true, None);
        if self.is_batch {
            let rest = self.process.take_rest();
            if !rest.is_empty() {
                self.pass_on(&rest);
            }
        }
        self.stop_feeding();
        let Some(held) = self.present.take() else { return };
        let took = self.since.elapsed();
        if !self.is_batch && status == 0 && !self.is_late {
            return self.outcomes.add(held, Fate::Done, took);
        }
        // A command that was ended has not failed.
        if self.is_given_back || self.is_lost {
            return self.outcomes.add(held, Fate::GivenBack(Duration::ZERO), took);
        }
        let mut reason = match self.is_late {
            true => format!("its command took longer than {} s", self.plan.settings.timeout.as_secs_f64()),
            false => format!("its command ended with status {status}"),
        };
        if self.is_batch {
            reason += ", before it answered";
        }
        let text = [reason.as_bytes(), b"\n", &self.process.tail()].concat();
        let is_last = !self.is_late && self.plan.settings.bury_on.contains(&status);
        self.outcomes.add(held, Fate::Failed { text, is_last }, took);
    }

    fn touch(&mut self, connections: &mut SlotConnections<'_>) {
        self.touch_at = Instant::now() + self.touch_interval();
        let (mut expired, mut is_connected) = (Vec::new(), true);
        for (is_fetched, runner) in connections.both() {
            let jobs: Vec<&ReservedJob> =
                self.held().filter(|held| held.is_fetched == is_fetched).map(|held| &held.job).collect();
            match runner.touch_many(&jobs) {
                Ok(told) => expired.extend(jobs.iter().zip(told).filter_map(|(job, told)| Some((job.id, told.err()?)))),
                Err(_) => is_connected = false,
            }
        }
        if !is_connected {
            return self.begin_to_take_back(connections);
        }
        for (id, error) in expired {
            self.present.take_if(|held| held.job.id == id).iter().for_each(|held| self.lose(held, &error));
            // The command has not received these jobs yet.
            let (gone, left): (VecDeque<_>, _) = self.ahead.drain(..).partition(|held| held.job.id == id);
            self.ahead = left;
            gone.iter().for_each(|held| self.outcomes.lose(held, &error.to_string(), Duration::ZERO));
        }
    }

    /// Returns the time between two touches of its jobs.
    fn touch_interval(&self) -> Duration {
        let intervals = self.held().map(|held| held.status.ttr / TOUCHES);
        intervals.min().unwrap_or(LONGEST_TOUCH).min(LONGEST_TOUCH)
    }

    /// Handles the loss of the connection. The command runs on, because its answer counts once its job is taken back.
    fn begin_to_take_back(&mut self, connections: &mut SlotConnections<'_>) {
        let now = Instant::now();
        self.lost = Some((now, now));
        // The server gives the job to a new connection only once the old one is closed everywhere.
        self.kept = None;
        self.process.keep_open(&[]);
        for held in self.ahead.drain(..) {
            // If this fails, other runners get the job anyway.
            let _ = connections.of(&held).release(&held.job, Some(held.status.pri), Duration::ZERO);
            self.outcomes.lose(&held, "the connection was lost; its command was not given it", Duration::ZERO);
        }
        connections.close();
    }

    fn take_back(&mut self, connections: &mut SlotConnections<'_>, now: Instant, ending: Ending) {
        let Some((since, at)) = self.lost else { return };
        if now < at {
            return;
        }
        let result = self.try_take_back(connections);
        if result.is_err() && now < since + TAKE_BACK && ending < Ending::GiveBack {
            self.lost = Some((since, now + TAKE_BACK_EVERY));
            return connections.close();
        }
        self.lost = None;
        if result.is_err() {
            let error = Error::Lost;
            self.outcomes.lose_all(&error.to_string());
            if let Some(held) = self.present.take() {
                self.lose(&held, &error);
            }
        }
    }

    fn try_take_back(&mut self, connections: &mut SlotConnections<'_>) -> Result<(), Error> {
        self.outcomes.take_back(connections)?;
        if let Some(held) = &mut self.present
            && !connections.take_back(held)?
            && let Some(held) = self.present.take()
        {
            self.lose(&held, &Error::Lost);
        }
        Ok(())
    }

    /// Handles the loss of the job in progress, to another runner or because it was cancelled.
    fn lose(&mut self, held: &HeldJob, error: &Error) {
        self.is_lost = true;
        self.stop_feeding();
        let consequence = match self.plan.settings.on_lost {
            _ if matches!(error, Error::Cancelled(_)) => {
                self.process.terminate_within(self.plan.settings.grace);
                "its command is terminated"
            }
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
        let took = self.since.elapsed();
        self.outcomes.lose(held, &format!("{error}; {consequence}"), took);
    }
}
