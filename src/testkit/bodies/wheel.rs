//! The timer wheel beside a sorted map.

use crate::random::Random;
use poolcounter_core::wheel::LAST_TICK;
use poolcounter_core::{ConnId, Id, Owner, Span, Time, TimerId, Wheel};
use std::collections::BTreeMap;

const OWNER: Owner = Owner(0);

/// Arms, cancels and turns as the input says.
pub fn run(data: &[u8]) {
    let mut choices = Random::of_choices(data);
    let mut wheel = Wheel::default();
    // Timers by the tick in which they fire, and their number.
    let mut model: BTreeMap<(u64, usize), TimerId> = BTreeMap::new();
    let mut now = Time::START;
    let mut turned_to = 0;
    for number in 0.. {
        if choices.is_used_up() {
            break;
        }
        let turn = choices.byte();
        match turn % 4 {
            0 | 1 => {
                // Some deadlines are long past.
                let from = if turn / 4 % 4 == 3 { Time::START } else { now };
                let at = from + Span::from_micros(choices.shifted());
                let id = wheel.of(OWNER).arm(at, ConnId::from_index(number));
                model.insert((at.as_micros().div_ceil(1_000).clamp(turned_to, LAST_TICK), number), id);
            }
            2 => {
                let nth = usize::from(choices.byte()) % model.len().max(1);
                if let Some(key) = model.keys().nth(nth).copied() {
                    let id = model.remove(&key).expect("was there a moment ago");
                    assert_eq!(wheel.deadline(&id), Time::from_micros(key.0 * 1_000));
                    wheel.of::<ConnId>(OWNER).cancel(id);
                }
            }
            _ => {
                now = now + Span::from_micros(choices.shifted());
                turned_to = (now.as_micros() / 1_000).min(LAST_TICK);
                fire(&mut wheel, &mut model, now);
            }
        }
        wheel.check();
        let earliest = model.keys().next().map(|(tick, _)| Time::from_micros(tick * 1_000));
        assert!(wheel.next().is_some() == earliest.is_some() && wheel.next() <= earliest);
    }
    fire(&mut wheel, &mut model, Time::from_micros(u64::MAX));
    assert!(wheel.is_empty() && wheel.next().is_none());
}

/// Fires the due timers of both, and compares them tick by tick.
fn fire(wheel: &mut Wheel, model: &mut BTreeMap<(u64, usize), TimerId>, now: Time) {
    let later = model.split_off(&(now.as_micros() / 1_000 + 1, 0));
    let due = std::mem::replace(model, later);
    let mut fired: Vec<usize> = Vec::new();
    while let Some(due) = wheel.expire(now) {
        fired.push(due.key::<ConnId>().index());
    }
    let ticks: BTreeMap<usize, u64> = due.keys().map(|(tick, number)| (*number, *tick)).collect();
    assert!(fired.iter().map(|number| ticks.get(number)).is_sorted(), "timers fire in the order of their ticks");
    fired.sort_unstable();
    assert!(fired.iter().copied().eq(ticks.into_keys()), "those that are due fire, and no others");
    due.into_values().for_each(TimerId::fired);
}
