//! Denials of rules in the handover to another process.

use super::{Access, Counts, Denial};
use poolcounter_core::Count;
use serde::{Deserialize, Serialize};

/// Counters of a rule in a handover: its name (None: no rule), and the denials by the name of the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedCounts {
    rule: Option<String>,
    denied: Vec<(String, Count)>,
}

impl Access {
    /// Returns the denials, for the handover.
    pub fn save(&self) -> Vec<SavedCounts> {
        let names = self.rules.iter().map(|rule| Some(rule.name.clone())).chain([None]);
        let denied = |counts: &Counts| {
            Denial::ALL.into_iter().map(|denial| (denial.name().into(), counts.denied[denial as usize])).collect()
        };
        names.zip(&self.counts).map(|(rule, counts)| SavedCounts { rule, denied: denied(counts) }).collect()
    }

    /// Continues the counters of the rules that still exist.
    pub(super) fn restore_counts(&mut self, saved: &[SavedCounts]) {
        for SavedCounts { rule, denied } in saved {
            let at = match rule {
                None => Some(self.rules.len()),
                Some(name) => self.rules.iter().position(|rule| rule.name == *name),
            };
            let Some(counts) = at.and_then(|at| self.counts.get_mut(at)) else { continue };
            for denial in Denial::ALL {
                let known = denied.iter().find(|(name, _)| name == denial.name());
                counts.denied[denial as usize] = known.map_or(Count::ZERO, |(_, count)| *count);
            }
        }
    }
}

/// Returns true if the process that saved this had rules.
pub fn had_rules(saved: &[SavedCounts]) -> bool {
    saved.iter().any(|counts| counts.rule.is_some())
}
