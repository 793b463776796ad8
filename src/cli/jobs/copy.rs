//! `jobs copy`: writes all jobs of one store to another, which is empty, while no daemon uses either. The target is
//! marked until it has everything, so that no daemon serves a part.

use poolcounter_core::Span;
use poolcounter_jobs::options::absolute;
use poolcounter_jobs::state::{Body, Commit, Saved, Stored};
use poolcounter_jobs::store::{Jobs, Ownership, PageOrder, Store, Verdict, Visit};
use poolcounter_jobs::{JobsSettings, StoreKind, store_of_copy};
use poolcounter_service::contract::Wake;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a batch.
const BATCH_BYTES: usize = 2 << 20;
/// Approximate bytes of a job beside its body.
const JOB_BYTES: usize = 256;
/// Longest wait for a database whose owner may have died: the lease of 5 seconds, and the time to connect.
const LEASE_TIME: Duration = Duration::from_secs(8);
/// Start of the times of both stores: 1980, before the delays of any job, which are copied as they are.
const START: Span = Span::from_secs(315_532_800);
/// Time between two looks at a store that reports nothing.
const LOOK: Duration = Duration::from_millis(100);

/// Store that this process has alone.
pub struct Place {
    name: String,
    /// Path of its file; None of a database.
    file: Option<PathBuf>,
    store: Box<dyn Store<Jobs>>,
    /// Page that is being visited.
    page: Option<PageOrder>,
    /// Last batch.
    last: u64,
}

/// Copies all jobs, and returns their number.
///
/// # Errors
///
/// One sentence with the place and the reason.
pub fn copy(mut source: Place, mut target: Place) -> Result<u64, String> {
    if source.name == target.name {
        return Err(format!("{} cannot be copied to itself", source.name));
    }
    if source.file.as_ref().is_some_and(|file| !file.exists()) {
        return Err(source.said("there is no such file"));
    }
    source.load()?;
    source.await_page()?;
    target.load()?;
    target.refuse_contents()?;
    target.store.add(Stored::Unfinished(true));
    target.commit()?;
    fill(&mut target, &mut source)
}

/// Writes everything to an empty store, and removes its mark with the last batch.
fn fill(target: &mut Place, source: &mut Place) -> Result<u64, String> {
    let (mut jobs, mut bytes, mut first_free) = (0, 0, 1);
    let mut has_more = true;
    while has_more {
        has_more = source.visit(&mut |saved| {
            match saved {
                Saved::Meta { next_id, .. } => first_free = next_id,
                Saved::Setting(setting) => target.store.add(Stored::Setting(setting)),
                Saved::Root(tube, signature, newest, changed) => {
                    target.store.add(Stored::Root(tube, signature, newest, changed));
                }
                Saved::Job(record, body, ..) => {
                    (jobs, bytes) = (jobs + 1, bytes + JOB_BYTES + body.len());
                    target.store.add(Stored::Put(record, &mut Body::Own(body.into())));
                }
                _ => return Err("a record is of no store"),
            }
            Ok(())
        })?;
        if bytes >= BATCH_BYTES {
            target.commit()?;
            bytes = 0;
        }
    }
    target.store.add(Stored::NextId(first_free));
    target.store.add(Stored::Unfinished(false));
    target.commit()?;
    Ok(jobs)
}

impl Place {
    /// Returns a place that is not open yet.
    ///
    /// # Errors
    ///
    /// The accepted forms.
    pub fn parse(text: &str) -> Result<Place, String> {
        let kind = StoreKind::parse(text).map_err(|forms| format!("\"{text}\" is not {forms}"))?;
        if kind == StoreKind::Memory {
            return Err("jobs in memory end with the daemon, and are not copied".into());
        }
        let file = if let StoreKind::Sqlite(path) = &kind { Some(absolute(path)) } else { None };
        let store = store_of_copy(&JobsSettings { store: kind, ..JobsSettings::default() });
        Ok(Place { name: store.place(), file, store, page: None, last: 0 })
    }

    /// Returns the name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the store, which a daemon that runs does not allow.
    fn load(&mut self) -> Result<(), String> {
        let reader = thread::current();
        self.store.attach(Wake::new(move || reader.unpark()));
        let loaded = self.store.load(START);
        loaded.map_err(|sentence| self.said(&sentence))
    }

    /// Waits for the next event. Any fault ends the copy.
    fn event(&mut self) -> Result<Verdict, String> {
        let begun = Instant::now();
        loop {
            let verdict = self.store.verdict();
            let health = self.store.health().unwrap_or_default();
            if let Some(fault) = health.fault {
                return Err(self.said(&fault));
            }
            match verdict {
                Some(Verdict::Lost(sentence)) => return Err(self.said(&sentence)),
                Some(verdict) => return Ok(verdict),
                None if self.store.ownership() == Ownership::StandsBy && begun.elapsed() > LEASE_TIME => {
                    let owner = health.owner.map(|owner| owner.address).unwrap_or_default();
                    return Err(self.said(&format!("the daemon {owner} serves its jobs; stop it first")));
                }
                None => thread::park_timeout(LOOK),
            }
        }
    }

    /// Waits until there is a page to be visited, and returns it.
    fn await_page(&mut self) -> Result<PageOrder, String> {
        if let Some(page) = self.page {
            return Ok(page);
        }
        match self.event()? {
            Verdict::Page(page) => Ok(*self.page.insert(page)),
            _ => Err(self.said("it has changed meanwhile")),
        }
    }

    /// Visits the next records, and returns whether more follow.
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let page = self.await_page()?;
        let is_over = self.store.visit_page(visit).map_err(|sentence| self.said(&sentence))?;
        self.page = self.page.filter(|_| !is_over);
        Ok(!(is_over && page.is_last))
    }

    /// Reads the store, and refuses it if anything was ever kept in it.
    fn refuse_contents(&mut self) -> Result<(), String> {
        let (mut last, mut is_used) = (0, false);
        let mut look = |saved: Saved<'_>| {
            match saved {
                Saved::Meta { next_id, committed, .. } => {
                    last = committed.0;
                    is_used |= next_id > 1;
                }
                _ => is_used = true,
            }
            Ok(())
        };
        while self.visit(&mut look)? {}
        self.last = last;
        if is_used { Err(self.said("it has jobs or settings already, and was not changed")) } else { Ok(()) }
    }

    /// Commits the added changes.
    fn commit(&mut self) -> Result<(), String> {
        self.last += 1;
        self.store.commit(Commit(self.last));
        match self.event()? {
            Verdict::Committed(_) => Ok(()),
            _ => Err(self.said("it was changed by another program")),
        }
    }

    fn said(&self, sentence: &str) -> String {
        format!("{}: {sentence}", self.name)
    }
}
