//! Settings of pools in the configuration file that have no effect.

use crate::options::MembersSettings;
use crate::state::DeclaredPool;
use poolcounter_core::Span;
use poolcounter_core::text::escaped;
use poolcounter_protocol::members::pool_settings::{Key, OnLoss, Settings};

/// Settings about members of providers, which have no effect in a pool that fixed members fill.
const OF_PROVIDED: &[Key] = &[
    Key::init,
    Key::start_timeout,
    Key::stop_timeout,
    Key::max_age,
    Key::cull_interval,
    Key::max_lifetime,
    Key::lifetime_jitter,
    Key::max_uses,
    Key::grow_at,
    Key::min_free,
    Key::check_timeout,
    Key::provider_grace,
];

/// Setting that others leave without effect: the state of the others in words, and whether they are in it.
type Needy = (Key, &'static str, fn(&Settings) -> bool);

const NEEDY: &[Needy] = &[
    (Key::max_age, "cull_interval is 0", |it| it.cull_interval == Span::ZERO),
    (Key::check_timeout, "neither check_interval nor check_on_take is", |it| {
        it.check_interval == Span::ZERO && it.check_on_take == Span::ZERO
    }),
    (Key::loss_delay, "on_loss is not ok", |it| it.on_loss != OnLoss::Ok),
    (Key::clean_parallel, "clean_timeout is not", |it| it.clean_timeout == Span::ZERO),
    (Key::clean_attempts, "clean_timeout is not", |it| it.clean_timeout == Span::ZERO),
    (Key::warn_hold, "max_hold is not longer", |it| it.max_hold > Span::ZERO && it.max_hold <= it.warn_hold),
];

/// Returns a sentence for each reason for which settings of a pool have no effect.
pub fn idle(settings: &MembersSettings) -> Vec<String> {
    settings.pools.iter().flat_map(idle_in).collect()
}

fn idle_in(pool: &DeclaredPool) -> Vec<String> {
    let DeclaredPool { name, settings, fixed } = pool;
    let default = Settings::default();
    let is_set = |key: &Key| settings.differs(*key, &default);
    let is_full = fixed.len() as u64 >= u64::from(settings.max);
    let of_provided: Vec<Key> = OF_PROVIDED.iter().copied().filter(|key| is_full && is_set(key)).collect();
    let needy = NEEDY.iter().filter(|(key, _, lacks)| is_set(key) && !of_provided.contains(key) && lacks(settings));
    let mut sentences: Vec<String> =
        needy.map(|(key, others, _)| format!("{} is set, but {others}", key.name())).collect();
    if let [_, ..] = &*of_provided {
        let names: Vec<&str> = of_provided.iter().map(|key| key.name()).collect();
        let are = if names.len() == 1 { "is" } else { "are" };
        let why = "max leaves room for the fixed members alone, and these are not started";
        sentences.push(format!("{} {are} set, but {why}", names.join(", ")));
    }
    sentences.iter().map(|sentence| format!("members.pool {}: {sentence}", escaped(name))).collect()
}
