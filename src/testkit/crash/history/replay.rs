//! Replay of the requests and replies of clients, which keeps all possible states of each job in the store.

use super::super::Response;
use super::super::registers::Registers;
use super::super::shape::{Change, Place, Shape};
use super::{Asked, Fixed, FoundJob, History, Ids, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A job in the replay.
pub(super) struct Job {
    pub fixed: Fixed,
    /// Possible states now. None stands for a job that is gone, or was never there.
    pub possible: BTreeSet<Option<Shape>>,
    /// Name of its root job's register, and its number there.
    pub leaf: Option<(String, u64)>,
    /// Client that has put it, and the time of its put, as a position in the history; None if it was there before.
    put: Option<(usize, usize)>,
    holder: Option<usize>,
    /// Time at which its end was promised, as a position in the history.
    ended: Option<usize>,
}

/// Replay of a history, with the possible states of each job.
pub(super) struct Replay<'a> {
    history: &'a mut History,
    ids_of: HashMap<Vec<u8>, u64>,
    pub jobs: BTreeMap<u64, Job>,
    pub registers: Registers,
    /// Sweeps without a reply, with their clients and times: a server may serve the requests of a lost connection long
    /// after its client has continued on another.
    loose: Vec<(usize, usize, String)>,
    /// Tubes that may have had jobs without a known number.
    unseen: BTreeSet<String>,
    now: u64,
}

impl<'a> Replay<'a> {
    /// Returns the replay of a history whose jobs have these numbers.
    pub fn new(history: &'a mut History, ids: &Ids, now: u64) -> Replay<'a> {
        let ids_of = ids.iter().map(|(id, body)| (body.clone(), *id)).collect();
        let standing = history.standing.jobs.iter().map(|FoundJob { id, shape, fixed }| {
            let possible = [Some(shape.clone())].into();
            let leaf = history.leaves.get(id).cloned();
            (*id, Job { fixed: fixed.clone(), possible, leaf, put: None, holder: None, ended: None })
        });
        let (jobs, registers) = (standing.collect(), Registers::of(&history.standing.registers));
        Replay { history, ids_of, jobs, registers, loose: Vec::new(), unseen: BTreeSet::new(), now }
    }

    /// Replays the whole history.
    ///
    /// # Errors
    ///
    /// Describes the contradiction if replies contradict each other.
    pub fn play(&mut self) -> Result<(), String> {
        for position in 0..self.history.steps.len() {
            match self.history.steps[position] {
                Step::Begun(number) => self.begun(number)?,
                Step::Answered(number) => self.told(number)?,
                Step::Lost(client) => {
                    let held = self.jobs.iter().filter(|(_, job)| job.holder == Some(client));
                    for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
                        self.change(id, &Change::Lose, (0, self.now), false);
                    }
                }
            }
        }
        for id in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.sweep_late(id);
        }
        Ok(())
    }

    fn begun(&mut self, number: usize) -> Result<(), String> {
        let asked = &self.history.asked[number];
        let (line, client, begun) = (asked.line.clone(), asked.client, asked.begun);
        let heard = asked.told.as_ref().map(|(position, at, told)| (*position, *at, told.clone()));
        let reply = heard.as_ref().map(|(_, _, told)| told.clone());
        let span = (asked.at, heard.as_ref().map_or(self.now, |(_, at, _)| *at));
        let outcome = Outcome::of(reply.as_ref());
        let words: Vec<&str> = line.split(' ').collect();
        let number_at = |n: usize| words.get(n).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let pri_at = |n: usize| number_at(n) as u32;
        let id = number_at(1);
        let told = heard.as_ref().map(|(position, ..)| *position).filter(|_| outcome == Outcome::Done);
        match (words[0], outcome) {
            ("put" | "put-job", _) => self.put(number, &words, span, reply.as_ref())?,
            (_, Outcome::Refused) => {}
            ("delete", _) => self.end(id, told),
            ("release", _) => self.change_held(id, &Change::Release(pri_at(2), pri_at(3)), span, outcome),
            ("bury", _) => self.change_held(id, &Change::Bury(pri_at(2)), span, outcome),
            ("fail", _) => {
                let text = String::from_utf8_lossy(&self.history.asked[number].body).into_owned();
                self.change_held(id, &Change::Fail(pri_at(2), pri_at(3), text), span, outcome);
            }
            // Without a reply, the job may still have been reserved.
            ("reserve-job", Outcome::Unknown) => self.change(id, &Change::Reserve, span, false),
            ("kick-job", _) => self.change(id, &Change::Kick, span, outcome == Outcome::Done),
            ("kick-all" | "clear", outcome) => {
                self.sweep(&words, span, reply.as_ref(), told);
                if outcome == Outcome::Unknown {
                    self.loose.push((client, begun, line));
                }
            }
            ("root", _) => {
                let name = words[..3].join(" ");
                note_newest(&mut self.history.newest, &name, number_at(3));
                self.registers.write(&name, words[3].into(), client, begun, told);
                // The reply may have the number of another client's write.
                if let Some(newest) = reply.as_ref().and_then(|reply| reply.number("ROOT")) {
                    self.registers.write(&name, newest.to_string(), client, begun, told);
                }
            }
            ("limit" | "retry" | "dead-letter" | "pause-all", _) => {
                self.registers.write(&words[..2].join(" "), words[2..].join(" "), client, begun, told);
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks a reply: a job that was reserved for a client, or refused its duplicate, was committed before.
    fn told(&mut self, number: usize) -> Result<(), String> {
        let Asked { client, line, begun, told: Some((_, _, told)), .. } = &self.history.asked[number] else {
            return Ok(());
        };
        let (client, begun) = (*client, *begun);
        if let Some(id) = told.number("DUPLICATE") {
            return self.check_duplicate(id, &line.split(' ').collect::<Vec<_>>());
        }
        let Some(id) = told.number("RESERVED") else { return Ok(()) };
        let job = self.jobs.get_mut(&id).ok_or_else(|| format!("job {id} was given away before it was put"))?;
        if job.ended.is_some_and(|ended| ended < begun) {
            return Err(format!("job {id} is given away, though it was deleted"));
        }
        job.holder = Some(client);
        self.change(id, &Change::Reserve, (0, self.now), true);
        Ok(())
    }

    fn put(&mut self, number: usize, words: &[&str], span: (u64, u64), reply: Option<&Response>) -> Result<(), String> {
        let Put { pri, delay, ttr, tube, key, group, leaf } = Put::parse(words);
        let asked = &self.history.asked[number];
        if let Some((name, timestamp)) = &leaf {
            // A newer leaf raises its root job.
            let told = asked.told.as_ref().and_then(|(at, _, told)| told.number("INSERTED").map(|_| *at));
            self.registers.write(name, timestamp.to_string(), asked.client, asked.begun, told);
            note_newest(&mut self.history.newest, name, *timestamp);
        }
        let Some(id) = self.ids_of.get(&asked.body).copied() else {
            if Outcome::of(reply) == Outcome::Unknown {
                self.unseen.insert(tube);
            }
            return Ok(());
        };
        if Outcome::of(reply) == Outcome::Refused {
            return Err(format!("job {id} is there, though its put was answered with {reply:?}"));
        }
        // A job whose number is known is committed.
        let place = Place::after(delay, span.0, span.1);
        let shape = Shape { tube, pri, delay, attempts: 0, error: String::new(), origin: String::new(), place };
        let fixed = Fixed { body: asked.body.clone(), ttr, key, group };
        let put = Some((asked.client, asked.begun));
        self.jobs.insert(id, Job { fixed, possible: [Some(shape)].into(), leaf, put, holder: None, ended: None });
        self.sweep_late(id);
        Ok(())
    }

    /// Checks that the job that blocked another is committed, and has its key.
    fn check_duplicate(&self, id: u64, words: &[&str]) -> Result<(), String> {
        let Put { key, .. } = Put::parse(words);
        match self.jobs.get(&id) {
            Some(job) if job.fixed.key == key => Ok(()),
            Some(job) => Err(format!("job {id} has the key {} and keeps {key} out", job.fixed.key)),
            None => Err(format!("job {id} keeps another out, and nobody put it")),
        }
    }

    /// Ends a job: certainly at the position `told` of a reply, or possibly for None.
    fn end(&mut self, id: u64, told: Option<usize>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if told.is_some() {
            job.possible.clear();
            job.ended = job.ended.or(told);
        }
        job.possible.insert(None);
    }

    /// Applies a change by the holder of a job that ends its reservation, certainly or possibly.
    fn change_held(&mut self, id: u64, change: &Change, span: (u64, u64), outcome: Outcome) {
        self.change(id, change, span, outcome == Outcome::Done);
        if outcome == Outcome::Done {
            self.jobs.entry(id).and_modify(|job| job.holder = None);
        }
    }

    fn change(&mut self, id: u64, change: &Change, span: (u64, u64), is_done: bool) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let mut changed: BTreeSet<Option<Shape>> = BTreeSet::new();
        for possible in &job.possible {
            match possible {
                Some(shape) => changed.extend(shape.changed(change, span, &self.history.retries).into_iter().map(Some)),
                // It may have been deleted by another in the meantime.
                None => _ = changed.insert(None),
            }
        }
        if !is_done {
            changed.append(&mut job.possible);
        }
        job.possible = changed;
    }

    /// Applies a kick or clear of a tube's jobs, or of its jobs in one state. If the reply counts as many as possible,
    /// all were changed.
    fn sweep(&mut self, words: &[&str], span: (u64, u64), reply: Option<&Response>, told: Option<usize>) {
        let is_kick = words[0] == "kick-all";
        let may_be_meant = |job: &Job| job.possible.iter().flatten().any(|shape| is_swept(words, shape));
        let meant: Vec<u64> = self.jobs.iter().filter(|(_, job)| may_be_meant(job)).map(|(id, _)| *id).collect();
        let count = reply.and_then(|reply| reply.number(if is_kick { "KICKED" } else { "CLEARED" }));
        let is_done = count == Some(meant.len() as u64) && !self.unseen.contains(words[1]);
        for id in meant {
            if is_kick {
                self.change(id, &Change::Kick, span, is_done);
            } else {
                self.end(id, told.filter(|_| is_done));
            }
        }
    }
}

impl Replay<'_> {
    /// Applies unanswered sweeps that may come to a job in its present state. Sweeps that its own client has sent before
    /// its put do not.
    fn sweep_late(&mut self, id: u64) {
        for (client, begun, line) in self.loose.clone() {
            let words: Vec<&str> = line.split(' ').collect();
            let may_follow = |job: &&Job| job.put.is_none_or(|(other, put)| other != client || put < begun);
            let Some(job) = self.jobs.get(&id).filter(may_follow) else { continue };
            if job.possible.iter().flatten().any(|shape| is_swept(&words, shape)) {
                match words[0] {
                    "clear" => self.end(id, None),
                    _ => self.change(id, &Change::Kick, (0, self.now), false),
                }
            }
        }
    }
}

/// Returns whether a `kick-all` or a `clear` applies to a job in this state.
fn is_swept(words: &[&str], shape: &Shape) -> bool {
    let state = match shape.place {
        Place::Ready => "ready",
        Place::Delayed(..) => "delayed",
        Place::Buried => "buried",
    };
    let in_state = match words[0] {
        "kick-all" => state != "ready",
        _ => words.get(2).is_none_or(|word| *word == state),
    };
    shape.tube == words[1] && in_state
}

/// Outcome of a request, by its reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// No reply, or a reply that leaves the outcome open.
    Unknown,
    Refused,
}

impl Outcome {
    fn of(reply: Option<&Response>) -> Outcome {
        let Some(reply) = reply else { return Outcome::Unknown };
        match reply.line.split(' ').next().unwrap_or_default() {
            "INTERNAL_ERROR" => Outcome::Unknown,
            "NOT_FOUND" | "OUT_OF_MEMORY" | "SUPERSEDED" | "DUPLICATE" | "DRAINING" => Outcome::Refused,
            _ => Outcome::Done,
        }
    }
}

/// Words of a put.
struct Put {
    pri: u32,
    delay: u32,
    ttr: u32,
    tube: String,
    key: String,
    group: String,
    leaf: Option<(String, u64)>,
}

impl Put {
    fn parse(words: &[&str]) -> Put {
        let number = |n: usize| words[n].parse().expect("the tests put numbers");
        let option = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map(str::to_string)
        };
        let tube = option("tube").unwrap_or_else(|| "default".into());
        let timestamp = option("root-ts").and_then(|number| number.parse().ok());
        let leaf = option("root").zip(timestamp).map(|(root, number)| (format!("root {tube} {root}"), number));
        let (key, group) = (option("key").unwrap_or_default(), option("group").unwrap_or_default());
        Put { pri: number(1), delay: number(2), ttr: number(3), tube, key, group, leaf }
    }
}

fn note_newest(newest: &mut BTreeMap<String, u64>, name: &str, number: u64) {
    newest.entry(name.into()).and_modify(|known| *known = number.max(*known)).or_insert(number);
}
