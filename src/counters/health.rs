//! Conditions of the counters: a maximum that refuses requests, and memory that is used up.

use super::CountersService;
use poolcounter_core::{Count, Span};
use poolcounter_service::health::{TOTAL, grouped, in_words, name_of, quoted};
use poolcounter_service::report::{Condition, Look, conditions};

/// Time for which the counter of a refusal is named, and the number of names.
const MINUTE: Span = Span::from_secs(60);
const MOST_NAMES: usize = 3;

conditions! {
    pub(super) static CONDITIONS;
    MEMORY = critical "memory",
        "Requests were refused in the last minute because counters use all of counter.max_memory.";
    REFUSES = warning "refuses",
        "More requests than counter.warn_refusals were refused in the last minute, because the maximum is in use.";
}

impl CountersService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let refusals = &self.state.refusals;
        let counts = [refusals.at_maximum, refusals.for_memory].map(Count::get);
        let ([refused, full], within) = self.minute.growth(look.now, counts);
        // A refusal that is counted has its name.
        self.refused.retain(|_, at| look.now.since(*at) <= within.max(MINUTE));
        let within = in_words(within.max(Span::from_secs(1)));
        self.refused.extend(std::mem::take(&mut self.state.refusals.names).into_iter().map(|name| (name, look.now)));
        if full > 0 {
            let sentence =
                format!("counters are refused: {} requests in the last {within}, as memory is used up", grouped(full));
            look.note(Condition { badness: TOTAL, ..Condition::of_service(&MEMORY, "/counters", sentence) });
        }
        if refused > self.warn_refusals {
            let names: Vec<String> = self.refused.keys().take(MOST_NAMES).map(|name| name_of(name)).collect();
            // Not all are noted.
            let more = if self.refused.len() > names.len() { " and more" } else { "" };
            let (names, refused_text) = (names.join(", "), grouped(refused));
            let sentence = format!("{refused_text} requests refused in the last {within}, for {names}{more}");
            let first = self.refused.keys().next().map_or(&[][..], |name| name);
            let condition = Condition::about(&REFUSES, "/counters/counter/", first, sentence)
                .helped_by(quoted(first).map(|name| format!("counter get {name}")));
            // The counters of refusals change all the time; the condition is the same.
            look.note(
                Condition { subject: Vec::new(), ..condition }.measured(refused as f64, self.warn_refusals as f64),
            );
        }
        let refused = if refused == 0 { "nothing".into() } else { grouped(refused) };
        let (counters, holdings) = (grouped(self.state.len() as u64), grouped(self.state.holdings()));
        look.standing = format!("counters: {counters}, holdings: {holdings}; {refused} refused in the last minute");
    }
}
