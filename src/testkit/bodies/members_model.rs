//! Sequences of lines about members of providers, by the members service and by the naive model of it.

use crate::members_twin::{MembersTwin, answer_to};
use crate::random::Random;

const CLIENTS: usize = 5;
const MEMBERS: [&str; 5] = ["m1", "m2", "m3", "m4", "m5"];
/// Spans of time, odd so that few things are due at once.
const SPANS_MS: [u64; 8] = [7, 61, 173, 509, 1_013, 3_011, 7_001, 60_013];
const TIMEOUTS: [&str; 7] = ["", "", "0", "0.211", "2.003", "9.001", "101.009"];
/// Traits of a pool that differ from the defaults; at most one of each line.
const TRAITS: [&[&str]; 9] = [
    &["", " order=fifo"],
    &["", " queue=1", " queue=0"],
    &["", " start_timeout=1.117"],
    &["", " stop_timeout=0.337"],
    &["", " max_age=1.019 cull_interval=2.029"],
    &["", " min_free=1"],
    &["", " on_loss=ok", " on_loss=ok loss_delay=0.727"],
    &["", " check_interval=1.409 check_timeout=0.251"],
    &["", " provider_grace=2.417"],
];

/// Applies the input to the service and to the model.
pub fn run(data: &[u8]) {
    play(data);
}

/// Plays the input, and returns whether it was played to its end.
pub fn play(data: &[u8]) -> bool {
    let mut choices = Random::of_choices(data);
    let mut twin = MembersTwin::new();
    let mut slots: Vec<usize> = (0..CLIENTS).map(|_| twin.connect()).collect();
    for (pool, group) in [("a", " group=g"), ("b", " group=g")] {
        let line = format!(
            "POOL {pool} {} {}{group}{}",
            choices.pick(&[0, 1, 2]),
            choices.pick(&[3, 2, 4]),
            traits(&mut choices)
        );
        twin.say(slots[0], &line);
        twin.pass(1);
    }
    // In some histories most takes are for the group, and most members are started for them.
    let is_grouped = choices.byte().is_multiple_of(3);
    while !choices.is_used_up() && !twin.is_tied {
        let slot = usize::from(choices.byte()) % CLIENTS;
        match choices.byte() % 24 {
            0 => {
                twin.close(slots[slot]);
                slots[slot] = twin.connect();
            }
            1 => twin.upgrade(),
            2..=5 => twin.pass(choices.pick(&SPANS_MS)),
            _ => {
                let line = line(&mut choices, &mut twin, slots[slot], is_grouped);
                twin.say(slots[slot], &line);
                for slot in &mut slots {
                    *slot = twin.connected(*slot);
                }
            }
        }
        twin.pass(1 + u64::from(choices.byte()) % 16);
    }
    twin.end();
    !twin.is_tied
}

fn traits(choices: &mut Random) -> String {
    let mut text = String::new();
    for of in TRAITS {
        // Half of all pools keep the default of this trait.
        if choices.byte().is_multiple_of(2) {
            text += choices.pick(of);
        }
    }
    text
}

fn line(choices: &mut Random, twin: &mut MembersTwin, client: usize, is_grouped: bool) -> String {
    if !choices.byte().is_multiple_of(4)
        && let Some(answer) = answer(choices, twin, client)
    {
        return answer;
    }
    let pool = if is_grouped { choices.pick(&["a", "b"]) } else { choices.pick(&["a", "a", "a", "b"]) };
    let member = choices.pick(&MEMBERS);
    let what = choices.byte() % 24;
    match what {
        5..=9 | 16.. if is_grouped && choices.byte().is_multiple_of(2) => {
            if what < 16 {
                provide(choices, pool)
            } else {
                wait_for_group(choices)
            }
        }
        0 => format!("RECONFIGURE {pool} init={} max={}", choices.pick(&[0, 1, 2]), choices.pick(&[2, 3, 4, 1])),
        1 => format!("RECONFIGURE {pool} queue={}", choices.pick(&[0, 1, 50])),
        2 if choices.byte().is_multiple_of(8) => format!("RMPOOL {pool}{}", choices.pick(&["", " GRACEFUL"])),
        2 => format!("POOL {pool} 1 3 group=g"),
        3 | 4 => provide(choices, pool),
        5..=7 => format!("OFFER {pool} {member}"),
        8 => choices.pick(&["CANCEL", "BYE"]).into(),
        9 if choices.byte().is_multiple_of(2) => wait_for_group(choices),
        9 => format!("TAKEGROUP g 0{}", choices.pick(&["", " n=1", " n=2"])),
        10..=15 => format!("RETURN {}{}", lease(choices, twin, client), choices.pick(&["", "", " OK", " FAIL"])),
        _ => {
            let options = ["", "", "", "", " n=1", " n=2", " n=3", " pri=0", " pri=9"];
            let option = choices.pick(&options);
            let named = if choices.byte().is_multiple_of(8) { format!(" member={member}") } else { option.into() };
            format!("TAKE {pool} {}{named}", choices.pick(&TIMEOUTS)).replace("  ", " ").trim_end().into()
        }
    }
}

fn provide(choices: &mut Random, pool: &str) -> String {
    let (capacity, session) =
        (choices.pick(&["", "", " 1", " 2", " 0"]), choices.pick(&["", " session=s", " session=t"]));
    format!("PROVIDE {pool}{capacity}{session}")
}

fn wait_for_group(choices: &mut Random) -> String {
    let option = choices.pick(&["", "", " n=1", " pri=0", " pri=9", " n=2", " n=3 pri=4"]);
    format!("TAKEGROUP g {}{option}", choices.pick(&["2.003", "9.001", "101.009"]))
}

/// Returns the number of a lease, mostly of the client's latest lease.
fn lease(choices: &mut Random, twin: &MembersTwin, client: usize) -> u64 {
    let known = twin.leases.iter().rev().filter(|(of, _)| *of == client);
    let lately: Vec<u64> = known.take(4).map(|(_, number)| *number).collect();
    if lately.is_empty() { 1 } else { choices.pick(&lately) }
}

/// Returns a line of a provider, mostly the expected one.
fn answer(choices: &mut Random, twin: &mut MembersTwin, client: usize) -> Option<String> {
    let asked = twin.asked.get_mut(&client).filter(|asked| !asked.is_empty())?;
    let line = asked.swap_remove(usize::from(choices.byte()) % asked.len());
    let is_usual = choices.byte() % 8 > 1;
    let member = if is_usual && line.starts_with("!START") { choices.pick(&MEMBERS) } else { "" };
    Some(answer_to(&line, is_usual, member))
}
