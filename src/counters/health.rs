//! Conditions of the counters: a maximum that refuses requests, and memory that is used up.

use super::CountersService;
use poolcounter_core::time::Span;
use poolcounter_service::health::{Condition, ConditionInfo, Look, TOTAL, grouped, in_words, name_of, quoted};

static MEMORY: ConditionInfo = ConditionInfo::critical(
    "memory",
    "Requests were refused in the last minute because counters use all of counter.max_memory.",
);
static REFUSES: ConditionInfo = ConditionInfo::warning(
    "refuses",
    "More requests than counter.warn_refusals were refused in the last minute, because the maximum is in use.",
);

/// Time for which the counter of a refusal is named, and the number of names.
const MINUTE: Span = Span::from_secs(60);
const MOST_NAMES: usize = 3;

pub(super) static CONDITIONS: &[&ConditionInfo] = &[&MEMORY, &REFUSES];

impl CountersService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let refusals = self.state.refusals();
        let ([refused, full], within) =
            self.minute.growth(look.now, [refusals.at_maximum.get(), refusals.for_memory.get()]);
        let within = in_words(within.max(Span::from_secs(1)));
        let before = std::mem::replace(&mut self.refused.0, refusals.at_maximum.get());
        if refusals.at_maximum.get() > before {
            self.refused.1.insert(refusals.last.clone(), look.now);
        }
        self.refused.1.retain(|_, at| look.now.since(*at) <= MINUTE);
        if full > 0 {
            let sentence =
                format!("counters are refused: {} requests in the last {within}, as memory is used up", grouped(full));
            look.note(Condition { badness: TOTAL, ..Condition::of_service(&MEMORY, "/counters", sentence) });
        }
        if refused > self.warn_refusals {
            let name = &refusals.last;
            let names: Vec<String> = self.refused.1.keys().take(MOST_NAMES).map(|name| name_of(name)).collect();
            let more = match self.refused.1.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let (names, refused_text) = (names.join(", "), grouped(refused));
            let sentence = format!("{refused_text} requests refused in the last {within}, for {names}{more}");
            let condition = Condition::about(&REFUSES, "/counters/counter/", name, sentence)
                .helped_by(quoted(name).map(|name| format!("counter get {name}")));
            // The counter of the last refusal changes all the time; the condition is the same.
            look.note(
                Condition { subject: Vec::new(), ..condition }.measured(refused as f64, self.warn_refusals as f64),
            );
        }
        let refused = if refused == 0 { "nothing".into() } else { grouped(refused) };
        look.standing = format!(
            "{} counters, {} holdings; {refused} refused in the last minute",
            grouped(self.state.len() as u64),
            grouped(self.state.holdings())
        );
    }
}
