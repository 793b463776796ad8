//! Tabs of the page: an overview, one for each service, and one for the daemon. A tab shows a part of the snapshot of all.

use super::INFO;
use poolcounter_service::report::snapshot::{ShownService, Snapshot};

/// Path of the overview without its slash, and that of the daemon's tab.
pub const OVERVIEW: &str = "overview";
pub const DAEMON: &str = "daemon";
/// Most curves of a service on the overview: the first ones tell most.
const CURVES: usize = 2;

/// Returns the word of a service in the path of its tab; empty if it has none.
pub fn word_of(service: &ShownService) -> String {
    service.title.to_lowercase()
}

/// Returns the part of a snapshot that the tab of this word shows; `None` if there is no such tab. The servers of a fleet stand on
/// each.
pub fn part_of(mut snapshot: Snapshot, word: &str) -> Option<Snapshot> {
    let Snapshot { services, history, .. } = &mut snapshot;
    let of_tab = services.iter().find(|service| word_of(service) == word).map(|service| service.name.clone());
    if of_tab.is_none() && ![OVERVIEW, DAEMON].contains(&word) {
        return None;
    }
    for service in services.iter_mut().filter(|service| service.name != INFO.name) {
        let is_shown = match &of_tab {
            Some(name) => service.name == *name,
            None => word == DAEMON && service.title.is_empty(),
        };
        if !is_shown {
            (service.tables, service.figures, service.matrix) = (Vec::new(), Vec::new(), None);
        }
    }
    let mut shown = 0;
    let mut of_service = None;
    history.series.retain(|series| {
        shown = if of_service.as_ref() == Some(&series.service) { shown + 1 } else { 1 };
        of_service = Some(series.service.clone());
        match &of_tab {
            Some(name) => series.service == *name,
            None => word == OVERVIEW && shown <= CURVES,
        }
    });
    snapshot.tab = Some(word.to_owned().into());
    Some(snapshot)
}
