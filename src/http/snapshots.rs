//! Snapshots for pages: of all services, and of one thing.

use super::recent::RecentOf;
use super::resource::Extent;
use super::samples::{INTERVAL, INTERVAL_OF_THINGS, KEPT, KEPT_OF_THINGS};
use super::{HOUR_INTERVAL, Http};
use poolcounter_core::time::Span;
use poolcounter_service::contract::Telemetry;
use poolcounter_service::report::Moment;
use poolcounter_service::report::snapshot::{Remembered, Snapshot};
use poolcounter_service::report::{Block, View};

impl Http {
    /// Returns the snapshot of all services, for the status page.
    pub(super) fn snapshot_of(&self, mut moment: Moment<'_>, extent: Extent, telemetry: &Telemetry<'_>) -> Snapshot {
        let (samples, interval, most) = match extent.range {
            Some(range) if range.points(INTERVAL) >= KEPT => (&self.hour, HOUR_INTERVAL, range.points(HOUR_INTERVAL)),
            Some(range) => (&self.samples, INTERVAL, range.points(INTERVAL)),
            None => (&self.samples, INTERVAL, KEPT - 1),
        };
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
        let (interval, most) = match moment.overview.services[0].report.series.is_empty() {
            true => (Span::ZERO, 0),
            false => (INTERVAL_OF_THINGS, KEPT_OF_THINGS - 1),
        };
        let values = |_, info| self.things.shown(&of, info, most);
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
