//! Snapshots for pages: of everything, and of one thing.

use super::recent::{CURVES, RecentOf};
use super::resource::Extent;
use super::samples::{INTERVAL, KEPT};
use super::{CURVES_TO_ADD, FOUND, HOUR_INTERVAL, Http};
use poolcounter_service::container::Others;
use poolcounter_service::contract::Context;
use poolcounter_service::report::snapshot::{Moment, Remembered, Snapshot, Values};
use poolcounter_service::report::{Overview, SeriesInfo, ServiceReport, View};

impl Http {
    /// Returns what the page shows.
    pub(super) fn snapshot_of(&self, mut moment: Moment<'_>, extent: Extent, others: &Others<'_>) -> Snapshot {
        let (samples, interval, most) = match extent.range {
            Some(range) if range.points(INTERVAL) >= KEPT => (&self.hour, HOUR_INTERVAL, range.points(HOUR_INTERVAL)),
            Some(range) => (&self.samples, INTERVAL, range.points(INTERVAL)),
            None => (&self.samples, INTERVAL, KEPT - 1),
        };
        let recent = self.narrow(&mut moment, extent, others);
        let values = |service, info| samples.shown(service, info, most);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        self.finished(Snapshot::of(&moment, extent.room(), &remembered), extent)
    }

    /// Returns what a page about one thing shows.
    pub(super) fn snapshot_of_view(
        &self,
        service: &str,
        thing: &[u8],
        extent: Extent,
        context: &Context<'_>,
    ) -> Option<Snapshot> {
        let (now, peers) = (context.now, context.peers);
        let views = match service {
            FOUND => context.others.find(thing, now, peers),
            service => context.others.view(service, thing, now, peers).into_iter().collect(),
        };
        let (services, views): (Vec<ServiceReport>, Vec<View>) = views.into_iter().unzip();
        // What is found in several services has no curves, and the same title.
        let View { title, values, interval, most, .. } = views.into_iter().next()?;
        let series: Vec<&SeriesInfo> = services[0].report.series.iter().map(|(info, _)| *info).collect();
        let values = |_, info: &'static SeriesInfo| {
            let place = series.iter().position(|other| std::ptr::eq(*other, info));
            Values::Rates(place.and_then(|place| values.get(place).cloned()).unwrap_or_default())
        };
        let mut moment = Moment::with(context, Overview { services });
        let recent = self.narrow(&mut moment, extent, context.others);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        let snapshot = Snapshot::of(&moment, extent.room(), &remembered);
        Some(Snapshot { title: Some(title), ..self.finished(snapshot, extent) })
    }

    /// Restricts the tables to the range.
    fn narrow(&self, moment: &mut Moment<'_>, extent: Extent, others: &Others<'_>) -> Vec<RecentOf> {
        let (Some(recent), Some(range)) = (&self.recent, extent.range) else { return Vec::new() };
        let curves = if extent.is_to_add { CURVES_TO_ADD } else { CURVES };
        recent.narrow(range, moment.now, &mut moment.overview.services, curves, |note| others.tally(note))
    }

    fn finished(&self, snapshot: Snapshot, extent: Extent) -> Snapshot {
        Snapshot { is_admin: self.is_admin, range: extent.range.map(|range| range.name.into()), ..snapshot }
    }
}
