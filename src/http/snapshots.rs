//! Snapshots for pages: of all services, and of one thing.

use super::Http;
use super::recent::{Range, RecentOf};
use super::resource::Extent;
use super::samples::Samples;
use poolcounter_core::time::Span;
use poolcounter_service::contract::Telemetry;
use poolcounter_service::report::Moment;
use poolcounter_service::report::snapshot::{Remembered, Snapshot};
use poolcounter_service::report::{Block, View};

/// Returns the first samples that cover a range, with their interval, and the number of values in the range.
fn first_within(all: [&Samples; 2], range: Option<Range>) -> (&Samples, Span, usize) {
    let mut within = all.into_iter().filter_map(|samples| Some((samples, samples.within(range)?)));
    let (samples, (interval, most)) = within.next().expect("the last ones cover the longest range");
    (samples, interval, most)
}

impl Http {
    /// Returns the snapshot of all services, for the status page.
    pub(super) fn snapshot_of(&self, mut moment: Moment<'_>, extent: Extent, telemetry: &Telemetry<'_>) -> Snapshot {
        let (samples, interval, most) = first_within([&self.samples, &self.hour], extent.range);
        let recent = self.narrow(&mut moment, extent, telemetry);
        let values = |service: &'static str, info| samples.shown(service.as_bytes(), info, most);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        self.finished(Snapshot::of(&moment, extent.room(), &remembered), extent)
    }

    /// Returns the snapshot for a page about one thing, with private texts if the browser is local; `None` if nothing
    /// was found.
    pub(super) fn snapshot_of_views(
        &self,
        mut moment: Moment<'_>,
        views: Vec<View>,
        extent: Extent,
        telemetry: &Telemetry<'_>,
        is_local: bool,
    ) -> Option<Snapshot> {
        // A search in several services has no curves, and all views have the same title.
        let is_one = views.len() == 1;
        let View { title, of, commands, blocks, .. } = views.into_iter().next()?;
        let tab = moment.overview.services.first().filter(|service| is_one && !service.title.is_empty());
        let tab = tab.map(|service| service.title.to_lowercase().into());
        let all = if extent.range.is_some() { [&self.things, &self.things_hour] } else { [&self.things_hour; 2] };
        let (samples, interval, most) = first_within(all, extent.range);
        let values = |_, info| samples.shown(&of, info, most);
        let recent = self.narrow(&mut moment, extent, telemetry);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        let snapshot = Snapshot::of(&moment, extent.room(), &remembered);
        let blocks = blocks.iter().filter(|block| is_local || !block.is_private).map(Block::shown).collect();
        Some(Snapshot { title: Some(title), tab, commands, blocks, ..self.finished(snapshot, extent) })
    }

    /// Restricts the tables to the range.
    fn narrow(&self, moment: &mut Moment<'_>, extent: Extent, telemetry: &Telemetry<'_>) -> Vec<RecentOf> {
        let (Some(recent), Some(range)) = (&self.recent, extent.range) else { return Vec::new() };
        recent.narrow(range, moment.now, &mut moment.overview.services, |note| (telemetry.tally)(note))
    }

    fn finished(&self, snapshot: Snapshot, extent: Extent) -> Snapshot {
        Snapshot { is_admin: self.is_admin, range: extent.range.map(|range| range.name.into()), ..snapshot }
    }
}
