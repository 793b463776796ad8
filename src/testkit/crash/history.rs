//! What clients asked and were told, in order, and whether what was found after a crash can be what remains of it: every job
//! that was promised and not deleted exists exactly once and as it was promised to be, no job returns whose end was promised,
//! and numbers never repeat. What was asked without a reply may have happened or not.

use super::Told;
mod replay;

use super::shape::{Retry, Shape};
use replay::{Job, Replay};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Everything since the last crash.
#[derive(Default)]
pub struct History {
    pub(super) asked: Vec<Asked>,
    pub(super) steps: Vec<Step>,
    /// What was found after the last crash.
    pub(super) standing: Found,
    /// No number up to this may be given to a new job.
    highest: u64,
    pub(super) retries: BTreeMap<String, Retry>,
    /// The greatest number that anybody ever wrote for a root job: its older leaves may go at any time.
    pub(super) newest: BTreeMap<String, u64>,
    /// The leaves among the jobs that were found, each with the name of its root job's register and the number that it has.
    pub(super) leaves: BTreeMap<u64, (String, u64)>,
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

/// What a client asked.
pub(super) struct Asked {
    pub client: usize,
    pub line: String,
    pub body: Vec<u8>,
    /// The put-many that it is a part of.
    many: Option<u64>,
    /// When that was, as a position in the history.
    pub begun: usize,
    /// The same in milliseconds.
    pub at: u64,
    /// What it was told, and when.
    pub told: Option<(usize, u64, Told)>,
}

/// What happened, by number of the request or the client.
pub(super) enum Step {
    Begun(usize),
    Told(usize),
    Lost(usize),
}

/// Bodies with the numbers that they were seen with.
pub(super) type Ids = BTreeMap<u64, Vec<u8>>;

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
