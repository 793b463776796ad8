//! Requests and replies of clients, in order, and a check of the jobs found after a crash: every job that was promised
//! and not deleted exists exactly once and as promised, no job returns after its end was promised, and numbers never
//! repeat. A request without a reply may have been served or not.

use super::Response;
mod replay;

use super::shape::{Retry, Shape};
use replay::{Job, Replay};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Everything since the last crash.
#[derive(Default)]
pub struct History {
    pub(super) asked: Vec<Asked>,
    pub(super) steps: Vec<Step>,
    /// State found after the last crash.
    pub(super) standing: Found,
    /// Highest number so far; new jobs get higher numbers.
    highest: u64,
    pub(super) retries: BTreeMap<String, Retry>,
    /// Greatest number that any client ever wrote for each root job: older leaves may disappear at any time.
    pub(super) newest: BTreeMap<String, u64>,
    /// Leaves among the jobs found, each with the name of its root job's register and its number.
    pub(super) leaves: BTreeMap<u64, (String, u64)>,
}

/// Jobs and settings found in a server.
#[derive(Clone, Default, Debug)]
pub struct Found {
    pub jobs: Vec<FoundJob>,
    pub registers: BTreeMap<String, String>,
    /// Greatest number that the survey got for a job of its own.
    pub highest: u64,
}

/// Job found in a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundJob {
    pub id: u64,
    pub shape: Shape,
    pub fixed: Fixed,
}

/// Part of a job that does not change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// Body, unique among all jobs.
    pub body: Vec<u8>,
    pub ttr: u32,
    pub key: String,
    pub group: String,
}

/// Request of a client.
pub(super) struct Asked {
    pub client: usize,
    pub line: String,
    pub body: Vec<u8>,
    /// Number of the put-many that it is a part of.
    many: Option<u64>,
    /// Time of the request, as a position in the history.
    pub begun: usize,
    /// Time of the request, in milliseconds.
    pub at: u64,
    /// Reply, with its time as a position in the history and in milliseconds.
    pub told: Option<(usize, u64, Response)>,
}

/// Event, with the number of the request or the client.
pub(super) enum Step {
    Begun(usize),
    Answered(usize),
    Lost(usize),
}

/// Bodies by the numbers of their jobs in replies.
pub(super) type Ids = BTreeMap<u64, Vec<u8>>;

impl History {
    /// Returns the history of a server in which this was found before the first request. The tubes keep these settings.
    pub fn new(standing: Found, retries: BTreeMap<String, Retry>) -> History {
        let mut history = History { retries, ..History::default() };
        history.begin_anew(standing);
        history
    }

    /// Notes a request of a client, without a reply yet. Returns the number of the request.
    pub fn begin(&mut self, client: usize, line: &str, body: &[u8], many: Option<u64>, at: u64) -> usize {
        let number = self.asked.len();
        let (line, body, begun) = (line.to_string(), body.to_vec(), self.steps.len());
        self.asked.push(Asked { client, line, body, many, begun, at, told: None });
        self.steps.push(Step::Begun(number));
        number
    }

    /// Notes the reply to a request.
    pub fn told(&mut self, number: usize, told: Response, at: u64) {
        self.asked[number].told = Some((self.steps.len(), at, told));
        self.steps.push(Step::Answered(number));
    }

    /// Notes that a client's connection is lost, but not the server.
    pub fn lost(&mut self, client: usize) {
        self.steps.push(Step::Lost(client));
    }

    /// Compares the history with the state found after a crash, from which it continues.
    ///
    /// # Errors
    ///
    /// Describes the contradiction if that state is impossible.
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

    /// Adds to an error the requests and replies about its job.
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

    /// Returns the number of each job, as far as replies contain it.
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

    /// Checks that each job has one number, which is new if the job is, and was put by a client.
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

    /// Checks that the jobs of a put-many are all there, or none.
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

/// Checks that every job found is a possible one, and that every other job may be gone.
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
