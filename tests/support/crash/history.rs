//! What clients asked and were told, in order, and whether what was found after a crash can be what remains of it: every job
//! that was promised and not deleted exists exactly once and as it was promised to be, no job returns whose end was promised,
//! and numbers never repeat. What was asked without a reply may have happened or not.

use super::Told;
use super::registers::Registers;
use super::shape::{Change, Place, Retry, Shape};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Everything since the last crash.
#[derive(Default)]
pub struct History {
    asked: Vec<Asked>,
    steps: Vec<Step>,
    /// What was found after the last crash.
    standing: Found,
    /// No number up to this may be given to a new job.
    highest: u64,
    retries: BTreeMap<String, Retry>,
    /// The greatest number that anybody ever wrote for a root job: its older leaves may go at any time.
    newest: BTreeMap<String, u64>,
    /// The leaves among the jobs that were found, each with the name of its root job's register and the number that it has.
    leaves: BTreeMap<u64, (String, u64)>,
}

/// What was found by looking at everything.
#[derive(Clone, Default, Debug)]
pub struct Found {
    pub jobs: Vec<FoundJob>,
    pub registers: BTreeMap<String, String>,
    /// The greatest number that the look itself was given for a job of its own.
    pub highest: u64,
}

/// A job as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundJob {
    pub id: u64,
    pub shape: Shape,
    pub fixed: Fixed,
}

/// What of a job does not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// No two jobs are put with the same.
    pub body: Vec<u8>,
    pub ttr: u32,
    pub key: String,
    pub group: String,
}

struct Asked {
    client: usize,
    line: String,
    body: Vec<u8>,
    /// The put-many that it is a part of.
    many: Option<u64>,
    begun: usize,
    /// In milliseconds.
    at: u64,
    told: Option<(usize, u64, Told)>,
}

enum Step {
    Begun(usize),
    Told(usize),
    Lost(usize),
}

/// A job in the replay.
struct Job {
    fixed: Fixed,
    /// What it may be now. None is gone, or not there at all.
    possible: BTreeSet<Option<Shape>>,
    /// The name of its root job's register, and the number that it has for it.
    leaf: Option<(String, u64)>,
    holder: Option<usize>,
    /// When its end was promised: a position in the history.
    ended: Option<usize>,
}

/// Bodies with the numbers that they were seen with.
type Ids = BTreeMap<u64, Vec<u8>>;

impl History {
    /// A history of a server in which this was found before anything was asked. The tubes keep these settings.
    pub fn new(standing: Found, retries: BTreeMap<String, Retry>) -> History {
        let mut history = History { retries, ..History::default() };
        history.begin_anew(standing);
        history
    }

    /// A client sends a request, and is not told anything yet. Returns the number of the request.
    pub fn begin(&mut self, client: usize, line: &str, body: &[u8], many: Option<u64>, at: u64) -> usize {
        let number = self.asked.len();
        let (line, body, begun) = (line.to_string(), body.to_vec(), self.steps.len());
        self.asked.push(Asked { client, line, body, many, begun, at, told: None });
        self.steps.push(Step::Begun(number));
        number
    }

    /// The client of a request hears its reply.
    pub fn told(&mut self, number: usize, told: Told, at: u64) {
        self.asked[number].told = Some((self.steps.len(), at, told));
        self.steps.push(Step::Told(number));
    }

    /// The client's connection is lost, and the server goes on.
    pub fn lost(&mut self, client: usize) {
        self.steps.push(Step::Lost(client));
    }

    /// Compares all with what was found after a crash, from which the history goes on.
    ///
    /// # Errors
    ///
    /// When it cannot be.
    pub fn crashed(&mut self, found: Found, now: u64) -> Result<(), String> {
        let mut ids = self.ids()?;
        for job in &found.jobs {
            self.bind(&mut ids, job.id, &job.fixed.body)?;
        }
        self.check_ids(&ids)?;
        let mut replay = Replay::new(self, &ids, now);
        replay.play()?;
        let (jobs, registers) = (replay.jobs, replay.registers);
        check_jobs(&jobs, &found, &self.newest, now).map_err(|error| self.tell_of(&error, &ids))?;
        registers.check(&found.registers)?;
        self.check_many(&ids)?;
        self.leaves = jobs.into_iter().filter_map(|(id, job)| Some((id, job.leaf?))).collect();
        self.highest = ids.keys().next_back().copied().unwrap_or(0).max(self.highest).max(found.highest);
        self.begin_anew(found);
        Ok(())
    }

    /// Adds to an error what was asked and told of its job.
    fn tell_of(&self, error: &str, ids: &Ids) -> String {
        let id = error.split(' ').nth(1).unwrap_or_default();
        let body = id.parse().ok().and_then(|id: u64| ids.get(&id));
        let mut text = error.to_string();
        for Asked { client, line, body: other, begun, told, .. } in &self.asked {
            let is_named = line.split(' ').nth(1) == Some(id) && !line.starts_with("put");
            let is_told = told.as_ref().is_some_and(|(_, _, told)| told.line.split(' ').nth(1) == Some(id));
            if is_named || is_told || Some(other) == body {
                let told = told.as_ref().map(|(position, at, told)| (position, at, &told.line));
                text.push_str(&format!("\n{begun}: {client}> {line} = {told:?}"));
            }
        }
        text
    }

    fn begin_anew(&mut self, found: Found) {
        let highest = found.jobs.iter().map(|job| job.id).max().unwrap_or(0);
        self.highest = self.highest.max(highest).max(found.highest);
        self.standing = found;
        self.asked.clear();
        self.steps.clear();
    }

    /// Which job has which number, as far as somebody was told.
    fn ids(&self) -> Result<Ids, String> {
        let mut ids: Ids = self.standing.jobs.iter().map(|job| (job.id, job.fixed.body.clone())).collect();
        for asked in &self.asked {
            let Some((_, _, told)) = &asked.told else { continue };
            if let Some(id) = told.number("INSERTED") {
                self.bind(&mut ids, id, &asked.body)?;
            }
            for word in ["RESERVED", "FOUND"] {
                if let Some(id) = told.number(word) {
                    self.bind(&mut ids, id, &told.body)?;
                }
            }
        }
        Ok(ids)
    }

    fn bind(&self, ids: &mut Ids, id: u64, body: &[u8]) -> Result<(), String> {
        match ids.insert(id, body.to_vec()) {
            Some(other) if other != body => {
                Err(format!("job {id} is both {} and {}", other.escape_ascii(), body.escape_ascii()))
            }
            _ => Ok(()),
        }
    }

    /// Each job has one number, which is new if the job is, and was put by somebody.
    fn check_ids(&self, ids: &Ids) -> Result<(), String> {
        let mut by_body: HashMap<&[u8], u64> = HashMap::new();
        let standing: BTreeSet<u64> = self.standing.jobs.iter().map(|job| job.id).collect();
        let put: HashMap<&[u8], ()> = self.puts().map(|asked| (&*asked.body, ())).collect();
        for (id, body) in ids {
            if let Some(other) = by_body.insert(body, *id) {
                return Err(format!("{} is both job {other} and job {id}", body.escape_ascii()));
            }
            if standing.contains(id) {
                continue;
            }
            if !put.contains_key(&**body) {
                return Err(format!("job {id} was not put since the last crash: {}", body.escape_ascii()));
            }
            if *id <= self.highest {
                return Err(format!("the number {id} comes again: there was a job {}", self.highest));
            }
        }
        Ok(())
    }

    fn puts(&self) -> impl Iterator<Item = &Asked> {
        self.asked.iter().filter(|asked| asked.line.starts_with("put"))
    }

    /// The jobs of a put-many are all there, or none.
    fn check_many(&self, ids: &Ids) -> Result<(), String> {
        let known: BTreeSet<&[u8]> = ids.values().map(|body| &**body).collect();
        let mut groups: BTreeMap<u64, [usize; 2]> = BTreeMap::new();
        for asked in self.puts() {
            if let Some(many) = asked.many {
                groups.entry(many).or_default()[usize::from(known.contains(&*asked.body))] += 1;
            }
        }
        match groups.values().find(|[absent, present]| *absent > 0 && *present > 0) {
            Some([absent, present]) => Err(format!("{present} jobs of a put-many are there and {absent} are not")),
            None => Ok(()),
        }
    }
}

/// Every job that was found is one of those that may be there, and every other may be gone.
fn check_jobs(
    jobs: &BTreeMap<u64, Job>,
    found: &Found,
    newest: &BTreeMap<String, u64>,
    now: u64,
) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for FoundJob { id, shape, fixed } in &found.jobs {
        if !seen.insert(id) {
            return Err(format!("job {id} is there twice"));
        }
        let job = jobs.get(id).expect("each number that was found is of a job that was put");
        if job.fixed != *fixed {
            return Err(format!("job {id} is {fixed:?} instead of {:?}", job.fixed));
        }
        if !job.possible.iter().flatten().any(|possible| possible.may_be(shape, now)) {
            return Err(format!("job {id} is {shape:?}, which is none of {:?}", job.possible));
        }
    }
    for (id, job) in jobs {
        let may_be_superseded =
            job.leaf.as_ref().is_some_and(|(root, number)| newest.get(root).is_some_and(|newest| newest > number));
        if !seen.contains(id) && !job.possible.contains(&None) && !may_be_superseded {
            return Err(format!("job {id} is lost, which is one of {:?}", job.possible));
        }
    }
    Ok(())
}

/// Goes through a history, and keeps of each job what it may be.
struct Replay<'a> {
    history: &'a mut History,
    ids_of: HashMap<Vec<u8>, u64>,
    jobs: BTreeMap<u64, Job>,
    registers: Registers,
    /// Tubes that may have had jobs that nobody saw.
    unseen: BTreeSet<String>,
    now: u64,
}

impl<'a> Replay<'a> {
    fn new(history: &'a mut History, ids: &Ids, now: u64) -> Replay<'a> {
        let ids_of = ids.iter().map(|(id, body)| (body.clone(), *id)).collect();
        let standing = history.standing.jobs.iter().map(|FoundJob { id, shape, fixed }| {
            let possible = [Some(shape.clone())].into();
            let leaf = history.leaves.get(id).cloned();
            (*id, Job { fixed: fixed.clone(), possible, leaf, holder: None, ended: None })
        });
        let (jobs, registers) = (standing.collect(), Registers::of(&history.standing.registers));
        Replay { history, ids_of, jobs, registers, unseen: BTreeSet::new(), now }
    }

    fn play(&mut self) -> Result<(), String> {
        for position in 0..self.history.steps.len() {
            match self.history.steps[position] {
                Step::Begun(number) => self.begun(number)?,
                Step::Told(number) => self.told(number)?,
                Step::Lost(client) => {
                    let held = self.jobs.iter().filter(|(_, job)| job.holder == Some(client));
                    for id in held.map(|(id, _)| *id).collect::<Vec<_>>() {
                        self.change(id, &Change::Lose, (0, self.now), false);
                    }
                }
            }
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
            // Whether or not the reply left, the job may have.
            ("reserve-job", Outcome::Unknown) => self.change(id, &Change::Reserve, span, false),
            ("kick-job", _) => self.change(id, &Change::Kick, span, outcome == Outcome::Done),
            ("kick-all" | "clear", _) => self.sweep(&words, span, reply.as_ref(), told),
            ("root", _) => {
                let name = words[..3].join(" ");
                note_newest(&mut self.history.newest, &name, number_at(3));
                self.registers.write(&name, words[3].into(), client, begun, told);
                // It may be told of what another wrote.
                if let Some(newest) = reply.as_ref().and_then(|reply| reply.number("ROOT")) {
                    self.registers.write(&name, newest.to_string(), client, begun, told);
                }
            }
            ("limit" | "retry" | "dead-letter" | "pause-tube", _) => {
                self.registers.write(&words[..2].join(" "), words[2..].join(" "), client, begun, told);
            }
            _ => {}
        }
        Ok(())
    }

    /// What a client is given, or kept out by, was committed before.
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

    fn put(&mut self, number: usize, words: &[&str], span: (u64, u64), reply: Option<&Told>) -> Result<(), String> {
        let Put { pri, delay, ttr, tube, key, group, leaf } = Put::parse(words);
        let asked = &self.history.asked[number];
        if let Some((name, timestamp)) = &leaf {
            // A newer leaf raises its root job.
            let told = asked.told.as_ref().filter(|(_, _, told)| told.number("INSERTED").is_some());
            let told = told.map(|(position, ..)| *position);
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
        // Once it has a number that was seen, it is committed.
        let place = Place::after(delay, span.0, span.1);
        let shape = Shape { tube, pri, delay, attempts: 0, error: String::new(), place };
        let fixed = Fixed { body: asked.body.clone(), ttr, key, group };
        self.jobs.insert(id, Job { fixed, possible: [Some(shape)].into(), leaf, holder: None, ended: None });
        Ok(())
    }

    /// The job that keeps another out is committed, and has its key.
    fn check_duplicate(&self, id: u64, words: &[&str]) -> Result<(), String> {
        let Put { key, .. } = Put::parse(words);
        match self.jobs.get(&id) {
            Some(job) if job.fixed.key == key => Ok(()),
            Some(job) => Err(format!("job {id} has the key {} and keeps {key} out", job.fixed.key)),
            None => Err(format!("job {id} keeps another out, and nobody put it")),
        }
    }

    /// A job ends, which is promised at some position, or may end.
    fn end(&mut self, id: u64, told: Option<usize>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if told.is_some() {
            job.possible.clear();
            job.ended = job.ended.or(told);
        }
        job.possible.insert(None);
    }

    /// The holder of a job gives it back in some way, or may.
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

    /// All jobs of a tube are kicked or cleared, or those in one state. When as many were as can be, all of them were.
    fn sweep(&mut self, words: &[&str], span: (u64, u64), reply: Option<&Told>, told: Option<usize>) {
        let is_kick = words[0] == "kick-all";
        let is_meant = |shape: &Shape| {
            let state = match shape.place {
                Place::Ready => "ready",
                Place::Delayed(..) => "delayed",
                Place::Buried => "buried",
            };
            let in_state = if is_kick { state != "ready" } else { words.get(2).is_none_or(|word| *word == state) };
            shape.tube == words[1] && in_state
        };
        let may_be_meant = |job: &Job| job.possible.iter().flatten().any(is_meant);
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

/// What a reply says of what was asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There was none, or one that tells nothing.
    Unknown,
    Refused,
}

impl Outcome {
    fn of(reply: Option<&Told>) -> Outcome {
        let Some(reply) = reply else { return Outcome::Unknown };
        match reply.line.split(' ').next().unwrap_or_default() {
            "INTERNAL_ERROR" => Outcome::Unknown,
            "NOT_FOUND" | "OUT_OF_MEMORY" | "SUPERSEDED" | "DUPLICATE" | "DRAINING" => Outcome::Refused,
            _ => Outcome::Done,
        }
    }
}

/// The words of a put.
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
    let known = newest.entry(name.into()).or_default();
    *known = number.max(*known);
}
