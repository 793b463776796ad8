//! Conditions of the counters: a maximum that refuses, memory that is used up.

use super::CountersService;
use poolcounter_core::time::Span;
use poolcounter_service::health::{Condition, ConditionInfo, Level, Look, grouped, in_words, name_of, path_of, quoted};

pub(super) static CONDITIONS: [ConditionInfo; 2] = [
    ConditionInfo {
        name: "memory",
        level: Level::Critical,
        meaning: "Requests were refused in the last minute because counters take all of counter.max_memory.",
        has_label: false,
    },
    ConditionInfo {
        name: "refuses",
        level: Level::Warning,
        meaning: "More requests than counter.warn_refusals were refused in the last minute, as the maximum is in use.",
        has_label: false,
    },
];

static MEMORY: &ConditionInfo = &CONDITIONS[0];
static REFUSES: &ConditionInfo = &CONDITIONS[1];

impl CountersService {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let refusals = self.state.refusals();
        let ([refused, full], within) =
            self.minute.growth(look.now, [refusals.at_maximum.get(), refusals.for_memory.get()]);
        let within = in_words(within.max(Span::from_secs(1)));
        if full > 0 {
            let sentence =
                format!("counters are refused: {} requests in the last {within}, as memory is used up", grouped(full));
            let (subject, link, command) = (Vec::new(), "/".into(), String::new());
            look.note(Condition { info: MEMORY, subject, sentence, link, command, waiting: full });
        }
        if refused > self.warn_refusals {
            let name = &refusals.last;
            let last = name_of(name);
            let sentence =
                format!("{} requests refused in the last {within}, the last one for {last}", grouped(refused));
            let (link, command) = (path_of("/counters/counter/", name), format!("counter get {}", quoted(&last)));
            look.note(Condition { info: REFUSES, subject: Vec::new(), sentence, link, command, waiting: refused });
        }
        let refused = if refused == 0 { "nothing".into() } else { grouped(refused) };
        look.standing = format!(
            "{} counters, {} holdings; {refused} refused in the last minute",
            grouped(self.state.len() as u64),
            grouped(self.state.holdings())
        );
    }
}
