//! Tabs of the page: an overview, one for each service, and one for the daemon. A tab shows a part of the whole
//! snapshot.

use super::INFO;
use poolcounter_service::report::{Column, Snapshot, Table};

/// Words of the overview and of the daemon's tab, in their paths.
pub const OVERVIEW: &str = "overview";
pub const DAEMON: &str = "daemon";
/// End of the names of columns with the rate of the last minute; the count has the same name without it, or its plural.
const RATE: &str = "_rate";
/// Limit of a service's curves on the overview: the first ones are the most important.
const CURVES: usize = 2;

/// Returns the part of a snapshot that the tab of this word shows; `None` if the tab does not exist. Every tab shows
/// the servers of a fleet.
pub fn part_of(mut snapshot: Snapshot, word: &str) -> Option<Snapshot> {
    let Snapshot { services, history, .. } = &mut snapshot;
    let of_tab =
        services.iter().find(|service| service.title.to_lowercase() == word).map(|service| service.name.clone());
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

/// Removes columns so that each figure is shown once: its count, or the rate of the last minute in tables without
/// counts of the chosen range.
pub fn show_figures_once(snapshot: &mut Snapshot) {
    let is_range = snapshot.range.is_some();
    for table in snapshot.services.iter_mut().flat_map(|service| &mut service.tables) {
        let has_counts = table.recent.is_some() || !is_range;
        let rates: Vec<_> = table.columns.iter().filter_map(|column| column.name.strip_suffix(RATE)).collect();
        let is_other = |column: &Column| match column.name.strip_suffix(RATE) {
            Some(figure) => has_counts && table.columns.iter().any(|column| is_count_of(column, figure)),
            None => !has_counts && rates.iter().any(|figure| is_count_of(column, figure)),
        };
        let kept: Vec<bool> = table.columns.iter().map(|column| !is_other(column)).collect();
        keep_columns(table, &kept);
    }
}

fn is_count_of(column: &Column, figure: &str) -> bool {
    column.is_counter && column.name.strip_prefix(figure).is_some_and(|end| ["", "s"].contains(&end))
}

fn keep_columns(table: &mut Table, kept: &[bool]) {
    let mut columns = kept.iter();
    table.columns.retain(|_| *columns.next().unwrap_or(&true));
    for row in &mut table.rows {
        let mut cells = kept.iter();
        row.retain(|_| *cells.next().unwrap_or(&true));
    }
}
