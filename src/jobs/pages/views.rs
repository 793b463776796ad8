//! Pages about one thing: a first or last part of tubes' names, a tube, a job, a root job, a runner, all buried jobs,
//! the whole matrix.

use super::job_tables;
use super::report::{MOST_ROWS, page};
use super::tables::{self, BuriedGroup, OF_GROUP};
use crate::JobQueue;
use crate::buried_groups::key_of;
use crate::health::pattern_of;
use crate::options::ShowBodies;
use crate::state::queries::JobStats;
use crate::state::{JobId, JobState, Origin, Pattern, SumBy};
use memchr::memmem::Finder;
use poolcounter_core::text::{title_of, unescaped};
use poolcounter_core::{Span, Time};
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Block, Emphasis, Report, Series, SeriesInfo, Table, View};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Largest matrix, in first parts and last parts: as many as a person can search through.
const MOST_PARTS: [usize; 2] = [1000, 64];

/// Number of ready jobs on the page of a tube.
const SHOWN_READY: usize = 20;

/// Number of buried jobs that the page about them groups by error.
const MOST_GROUPED: usize = 2048;

/// Note of a sum without curves.
const NOT_FOLLOWED: &str = "Only the 256 with the most puts are followed with curves.";

static READY: SeriesInfo = SeriesInfo::level("ready", "Ready", "jobs", Emphasis::Caution);
static LAG: SeriesInfo = SeriesInfo::level("lag", "Oldest ready", "seconds", Emphasis::Alarm);
static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Put", unit: "per minute", is_rate: true, emphasis: Emphasis::None };
static DONE: SeriesInfo =
    SeriesInfo { name: "done", title: "Deleted", unit: "per minute", is_rate: true, emphasis: Emphasis::Work };

impl JobQueue {
    /// Returns the page of one thing: `WORD/NAME` with the word for the first or the last part, `tube/NAME`, `job/ID`,
    /// `root/TUBE SIGNATURE`, `runner/NAME`, `find/TEXT`, `buried` or `matrix`.
    pub(crate) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        if let Some(slash) = path.iter().position(|byte| *byte == b'/') {
            let (kind, name) = (&path[..slash], &path[slash + 1..]);
            let is_part = |by: &SumBy| self.settings.part_names.0[*by as usize].as_bytes() == kind;
            if let Some(by) = SumBy::ALL.into_iter().find(is_part) {
                return self.view_of_sum(by, name, now);
            }
            return match kind {
                b"find" => Some(self.view_of_search(name, now)),
                b"runner" => Some(self.view_of_runner(name, now, peers)),
                b"tube" => self.view_of_tube(name, now, peers),
                b"root" => self.view_of_root(name, now),
                b"job" => self.view_of_job(JobId(str::from_utf8(name).ok()?.parse().ok()?), now),
                _ => None,
            };
        }
        match path {
            b"buried" => {
                let tables = self.buried_tables(MOST_GROUPED, MOST_ROWS, now).into();
                Some(page("Buried jobs".into(), tables, vec!["jobs kick --all".into()]))
            }
            b"matrix" => {
                let matrix = Some(self.matrix(MOST_PARTS, now));
                Some(View { title: "Jobs".into(), report: Report { matrix, ..Report::default() }, ..View::default() })
            }
            _ => None,
        }
    }

    fn view_of_sum(&self, by: SumBy, name: &[u8], now: Time) -> Option<View> {
        let (summary, tubes) = self.state.sum_with_tubes(by, name, MOST_ROWS, now)?;
        let note = (!self.state.is_followed(by, name)).then(|| NOT_FOLLOWED.to_string());
        let [put, deleted] = summary.tally.puts_and_deletes();
        let levels = [summary.counts[0], summary.oldest_ready.as_micros() / 1_000_000, put, deleted];
        let part = &self.settings.part_names.0[by as usize];
        let pattern = pattern_like(by, name, tubes.first().map_or(name, |(tube, _)| tube));
        let buried = self.state.buried_of(by, name, MOST_ROWS, now);
        let tables = vec![
            tables::tubes(tubes, now),
            self.settings.part_names.errors(&[], &groups_of(&buried)),
            job_tables::buried(&buried),
            Table { note, ..self.settings.part_names.part(by as usize, vec![(name.to_vec(), summary)], now) },
            self.settings_of(&pattern, now),
        ];
        let commands = quoted(&pattern).map_or(Vec::new(), |pattern| commands_with(&pattern));
        let mut view = page(title_of(&(part[..1].to_ascii_uppercase() + &part[1..]), name), tables, commands);
        view.report.series = series_of(levels).into();
        Some(view)
    }

    /// Returns groups of buried jobs by error, of at most `grouped` jobs, and rows of the `most` that were buried last
    /// in their tubes.
    pub(crate) fn buried_tables(&self, grouped: usize, most: usize, now: Time) -> [Table; 2] {
        let buried = self.state.buried(grouped, now);
        let note = (buried.len() == grouped).then(|| format!("Only the first {grouped} jobs are examined."));
        let groups = Table { note, ..self.settings.part_names.errors(OF_GROUP, &groups_of(&buried)) };
        [groups, job_tables::buried(&buried[..most.min(buried.len())])]
    }

    fn view_of_tube(&self, name: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let summary = self.state.summary_of_tube_named(name, now)?;
        let buried = self.state.buried_of_tube(name, MOST_ROWS, now);
        let tables = vec![
            tables::tubes(vec![summary], now),
            job_tables::ready_jobs(&self.state.ready_of_tube(name, SHOWN_READY, now)),
            tables::connections(self.state.conns_on_tube(name, MOST_ROWS, now), false, peers),
            self.settings.part_names.errors(&[], &groups_of(&buried)),
            job_tables::buried(&buried),
            self.settings_of(name, now),
        ];
        let commands = quoted(name).map_or(Vec::new(), |tube| commands_with(&tube));
        Some(page(title_of("Tube", name), tables, commands))
    }

    /// Returns the runners, parts, tubes and root jobs with a text in their names.
    fn view_of_search(&self, text: &[u8], now: Time) -> View {
        let name = unescaped(&String::from_utf8_lossy(text));
        let finder = Finder::new(&name);
        let has = |name: &[u8]| finder.find(name).is_some();
        let roots = self.state.roots().filter(|(tube, signature)| has(tube) || has(signature)).take(MOST_ROWS);
        let roots = job_tables::roots(&roots.collect::<Vec<_>>());
        let tables = self.tables_of_names(&has, now).into_iter().chain([roots]);
        let tables = tables.map(|table| Table { empty: "".into(), ..table }).collect();
        page(title_of("Search:", &name), tables, Vec::new())
    }

    /// Returns the settings that apply to the tubes of a pattern.
    fn settings_of(&self, pattern: &[u8], now: Time) -> Table {
        let settings = Pattern::parse(pattern).map(|of| self.state.settings_from(Some(of), 0, MOST_GROUPED, now).0);
        job_tables::settings(&settings.unwrap_or_default())
    }

    fn view_of_job(&self, id: JobId, now: Time) -> Option<View> {
        let shown @ (job, _) = self.state.job_with_span(id, now)?;
        let tables = vec![job_tables::job(shown)];
        let mut blocks = Vec::new();
        if !job.error.is_empty() {
            blocks.push(Block::of("Last error", job.error, false));
        }
        if let Some(Origin { tube, attempts, .. }) = job.origin {
            let tube = String::from_utf8_lossy(tube);
            let text = format!("{tube}, {attempts} attempts, {} s ago", job.origin_age);
            blocks.push(Block::of("Dead letter of", text.as_bytes(), false));
        }
        if self.settings.show_bodies != ShowBodies::None {
            let is_private = self.settings.show_bodies == ShowBodies::Local;
            blocks.push(Block::of("Body", self.state.body(id)?, is_private));
        }
        let commands = match job.state {
            JobState::Buried => vec![format!("jobs kick {id}"), format!("jobs show {id}"), format!("jobs delete {id}")],
            _ => vec![format!("jobs show {id}"), format!("jobs delete {id}")],
        };
        Some(View { blocks, ..page(format!("Job {id}"), tables, commands) })
    }

    /// Returns the page of the root job of this tube and signature, with a space between them.
    fn view_of_root(&self, name: &[u8], now: Time) -> Option<View> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let (tube, signature) = (&name[..space], &name[space + 1..]);
        let (newest, changed) = self.state.newest_of_root(tube, signature, now)?;
        let commands = quoted(tube).map(|tube| format!("jobs list {tube} ready")).into_iter().collect();
        Some(page(
            title_of("Root job", signature),
            vec![job_tables::root((tube, signature, newest, changed))],
            commands,
        ))
    }

    fn view_of_runner(&self, name: &[u8], now: Time, peers: &dyn Peers) -> View {
        let tables = vec![tables::connections(self.state.conns_of_runner(name, MOST_ROWS, now), true, peers)];
        page(title_of("Runner", name), tables, Vec::new())
    }
}

/// Returns the groups of buried jobs, the largest first.
fn groups_of<'a>(buried: &'a [(JobStats<'a>, Span)]) -> Vec<BuriedGroup<'a>> {
    let mut groups: BTreeMap<(&[u8], Vec<u8>), BuriedGroup<'_>> = BTreeMap::new();
    for (job, span) in buried {
        let (part, error) = key_of(job);
        let new = BuriedGroup { part, jobs: 0, first: *span, last: (job, *span) };
        let group = groups.entry((part, error)).or_insert(new);
        group.jobs += 1;
        group.first = group.first.max(*span);
        if *span < group.last.1 {
            group.last = (job, *span);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| Reverse(group.jobs));
    groups
}

/// Returns the pattern of tubes like this one, with the same first or last part.
fn pattern_like(by: SumBy, name: &[u8], tube: &[u8]) -> Vec<u8> {
    match by {
        SumBy::FirstPart => [name, &b"/*".repeat(tube.iter().filter(|byte| **byte == b'/').count())].concat(),
        SumBy::LastPart => pattern_of(tube, name),
    }
}

/// Returns the commands that help with the tubes of a pattern, as it is typed.
fn commands_with(pattern: &str) -> Vec<String> {
    let words = [("run", " -- COMMAND"), ("kick", ""), ("pause", " 600"), ("limit", " 4"), ("retry", " 10")];
    words.map(|(word, behind)| format!("jobs {word} {pattern}{behind}")).into()
}

pub(crate) fn series_of([ready, oldest, put, deleted]: [u64; 4]) -> [Series; 4] {
    [(&READY, ready), (&LAG, oldest), (&PUT, put), (&DONE, deleted)]
}
