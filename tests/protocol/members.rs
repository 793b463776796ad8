//! Random histories of the members state machine in virtual time: its tables are checked after each step, and
//! everything is saved and restored now and then, or the process crashes and another one reads what was kept.

mod groups;
mod kept;
pub mod player;
mod promises;
mod starts;
mod wakes;

use player::Player;
use poolcounter_core::slices::PER_TICK;
use poolcounter_members::state::MOST_POOLS;
use poolcounter_testkit::seeds::{History, play, sum};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn random_histories_keep_the_tables_in_agreement() {
    let tallies = play("members", |history| play_random(history, 0));
    let (histories, tally) = (tallies.len(), sum(tallies));
    println!("{tally:?}");
    let unseen: Vec<&str> = EVERYTHING.split('|').filter(|word| !tally.contains_key(*word)).collect();
    assert!(histories < ENOUGH || unseen.is_empty(), "never told: {unseen:?}");
}

#[test]
fn random_restarts_keep_the_tables_in_agreement() {
    let tally = sum(play("members-restarts", |history| play_random(history, 1)));
    println!("{tally:?}");
    assert!(tally["RENEWED"] > 0 && tally["!LOST expired"] > 0, "leases outlive restarts");
}

/// Number of histories that contain every reply.
const ENOUGH: usize = 75;
/// Replies that random histories must contain: a test with fewer tests less.
const EVERYTHING: &str = "\
    OK|MEMBER|MEMBERS 2|RETURNED|RENEWED|NOT_TAKEN|QUEUE_FULL|LIMIT|!START|!STOP|!CHECK|!CLEAN|\
    NO_MEMBERS at_capacity|NO_MEMBERS starting|NO_MEMBERS no_provider|NO_MEMBERS timeout|NO_MEMBERS removed|\
    NO_MEMBERS cancelled|!LOST died|!LOST withdrawn|!LOST taken_back|!LOST held_too_long|!LOST provider_lost|\
    !LOST removed|!LOST expired|ERROR BAD_SYNTAX|ERROR NO_POOL|ERROR POOL_DIFFERS|ERROR POOL_FULL|\
    ERROR MEMBER_EXISTS|ERROR TOO_LATE|ERROR TOO_MANY|ERROR WAITING|ERROR NO_SUCH_MEMBER|ERROR BAD_START|\
    ERROR NOT_PROVIDER|ERROR NOT_WAITING";

const CONNECTIONS: usize = 8;

/// Plays a random history, with restarts as often as this number for each close of a connection.
fn play_random(History { seed, steps }: History, restarts: u64) -> BTreeMap<String, u64> {
    // Mostly small budgets, so that other events happen in the middle of background work.
    let budget = [2, 4, 6, PER_TICK][(seed % 4) as usize];
    // In some the service has no room for all members that are wanted.
    let most = [60, 60, 18, 10][(seed / 4 % 4) as usize];
    let mut player = Player::with_most(most, seed, budget);
    for pool in ["a", "b", "c"] {
        let settings = random_settings(&mut player);
        player.say(9, &format!("POOL {pool} 1 5{settings}"), true);
    }
    for _ in 0..steps {
        let conn = 1 + player.below(CONNECTIONS as u64) as usize;
        match player.below(40 + restarts) {
            0 => player.close(conn),
            1 => player.upgrade(),
            2..=7 => {
                let ms = [1, 50, 500, 3_000, 61_000][player.below(5) as usize];
                player.advance(Duration::from_millis(ms));
            }
            40 => _ = player.restart(Vec::new()),
            _ => {
                let line = random_line(&mut player, conn);
                player.say(conn, &line, true);
            }
        }
        player.drop_output();
    }
    let tally = std::mem::take(&mut player.tally);
    player.end();
    tally
}

/// Returns a pool of five members that one provider has offered, two of which a consumer holds (leases 1 and 2); one
/// member is stopped, lost or returned at a time.
fn five(settings: &str) -> Player {
    let mut player = Player::new(1, 2);
    player.say(OPERATOR, &format!("POOL p 0 5 cull_interval=0{settings}"), true);
    player.say(PROVIDER, "PROVIDE p", true);
    (1..=5).for_each(|n| player.say(PROVIDER, &format!("OFFER p m{n}"), true));
    (0..2).for_each(|_| player.say(CONSUMER, "TAKE p", true));
    // Another tick has begun, with a budget of its own.
    player.advance(TICK);
    player.drop_output();
    player
}

const OPERATOR: usize = 0;
const PROVIDER: usize = 1;
const CONSUMER: usize = 2;
const OTHER: usize = 3;
const TICK: Duration = Duration::from_millis(20);

/// Sends a line, and returns the output to the connection.
fn ask(player: &mut Player, conn: usize, line: &str) -> String {
    player.say(conn, line, true);
    player.heard(conn).join(" | ")
}

#[test]
fn a_name_is_free_as_soon_as_its_pool_is_removed() {
    let mut player = five("");
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL p"), "OK");
    assert_eq!(ask(&mut player, OTHER, "TAKE p"), "ERROR NO_POOL");
    assert_eq!(ask(&mut player, OTHER, "POOL p 0 1"), "OK");
    player.upgrade();
    assert_eq!(ask(&mut player, OTHER, "TAKE p"), "NO_MEMBERS no_provider");
    player.advance(TICK);
    let told = player.heard(CONSUMER).join(" ");
    assert!([1, 2].iter().all(|lease| told.matches(&format!("!LOST {lease} removed")).count() == 1), "{told}");
    let stops = player.heard(PROVIDER);
    assert!(stops.len() >= 3 && stops.iter().all(|line| line.starts_with("!STOP p m")), "{stops:?}");
    assert_eq!(ask(&mut player, PROVIDER, "PROVIDE p"), "OK");
    assert_eq!(ask(&mut player, PROVIDER, "STOPPED m3"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "UTILIZATION p").matches(" 0").count(), 7);
    player.end();
}

#[test]
fn no_more_than_max_are_handed_out_though_more_are_free() {
    for settings in ["", " order=fifo"] {
        let mut player = five(settings);
        assert_eq!(ask(&mut player, OPERATOR, "RECONFIGURE p max=3"), "OK");
        let taken = ask(&mut player, OTHER, "TAKE p");
        assert!(taken.starts_with("MEMBER 3 p "), "{settings}: {taken}");
        assert_eq!(ask(&mut player, OTHER, "TAKE p"), "NO_MEMBERS at_capacity");
        player.upgrade();
        assert_eq!(ask(&mut player, OTHER, "TAKE p"), "NO_MEMBERS at_capacity");
        player.advance(TICK);
        assert!(ask(&mut player, OPERATOR, "UTILIZATION p").contains(" in_use 3 free 0 "));
        player.end();
    }
}

#[test]
fn a_member_of_a_lost_holder_is_returned_by_nobody() {
    let mut player = five(" on_loss=ok");
    (0..3).for_each(|_| player.say(CONSUMER, "TAKE p", true));
    player.advance(TICK);
    player.drop_output();
    player.close(CONSUMER);
    assert!(ask(&mut player, OPERATOR, "MEMBERS p").contains(" in_use 10.0.0.2:5 "), "the address is remembered");
    // Another connection has its number.
    assert_eq!(ask(&mut player, CONSUMER, "RETURN 5"), "NOT_TAKEN");
    player.upgrade();
    player.advance(TICK);
    assert!(ask(&mut player, OPERATOR, "UTILIZATION p").contains(" in_use 0 free 5 "));
    player.end();
}

#[test]
fn pools_have_a_bound() {
    let mut player = Player::new(1, PER_TICK);
    player.without_checks(|player| {
        for n in 0..MOST_POOLS {
            assert_eq!(ask(player, OPERATOR, &format!("POOL p{n} 0 1")), "OK");
        }
        assert_eq!(ask(player, OPERATOR, "POOL more 0 1"), "ERROR TOO_MANY");
        assert_eq!(ask(player, OPERATOR, "POOL p7 0 1"), "OK", "it is there");
        assert_eq!(ask(player, OPERATOR, "RMPOOL p7"), "OK");
        assert_eq!(ask(player, OPERATOR, "POOL more 0 1"), "OK");
        for n in (0..MOST_POOLS).filter(|n| *n != 7) {
            player.say(OPERATOR, &format!("RMPOOL p{n}"), true);
        }
    });
    player.end();
}

fn one_of<'a>(player: &mut Player, choices: &[&'a str]) -> &'a str {
    choices[player.below(choices.len() as u64) as usize]
}

fn random_line(player: &mut Player, conn: usize) -> String {
    let pool = one_of(player, &["a", "a", "a", "b", "c"]);
    let member = one_of(player, &["m1", "m2", "m3", "m4", "m5", "m6", "m7"]);
    let attributes = one_of(player, &["", "", " x=1", " x=2 y=1"]);
    if player.below(30) == 0 {
        return format!("POOL {pool} 1 4{}", random_settings(player));
    }
    if let Some(answer) = player.some_answer(conn, member, attributes) {
        return answer;
    }
    let lease = player.some_lease(conn);
    let token = player.some_token();
    let timeout = one_of(player, &["", "0", "0.2", "5", "100"]);
    match player.below(24) {
        1 => format!("RECONFIGURE {pool}{}", random_settings(player)),
        2 => {
            let (init, max) = (player.below(3), 1 + player.below(6));
            format!("RECONFIGURE {pool} init={init} max={max}")
        }
        3 if player.below(20) == 0 => format!("RMPOOL {pool}{}", one_of(player, &["", " GRACEFUL"])),
        3 if player.below(20) == 0 => format!("RMGROUP g{}", one_of(player, &["", " GRACEFUL"])),
        3 | 4 => {
            let (capacity, session) = (one_of(player, &["", " 1", " 3", " 0"]), one_of(player, &["", " session=s"]));
            format!("PROVIDE {pool}{capacity}{session}")
        }
        5 => one_of(player, &["CLEAN a", "CLEAN b", "OFFER a m1", "OFFER b m2 x=2", "OFFER a m3"]).into(),
        6 => format!("OFFER {pool} {member}{attributes}"),
        7 => format!("WITHDRAW {pool} {member}{}", one_of(player, &["", " NOW"])),
        8 => format!("ADD {pool} {member}{attributes}"),
        9 => format!("DEL {pool} {member}{}", one_of(player, &["", " NOW"])),
        10 => format!("HOLD {pool} {member} {}", one_of(player, &["0", "1", "60"])),
        11 => format!("{} {pool} {member}", one_of(player, &["FREE", "REPAIR", "HISTORY"])),
        12 => format!("TAKEBACK {lease}"),
        13 => format!("RETURN {token}{}", one_of(player, &["", " FAIL"])),
        14 => format!("RENEW {token} {}", 1 + player.below(100)),
        15 => one_of(player, &["CANCEL", "CANCEL", "IDENTIFY me"]).into(),
        16 => {
            format!("{} {member}", one_of(player, &["STOPPED", "DEAD", "ALIVE", "CLEANED", "CLEANING", "STARTED 9999"]))
        }
        17 => one_of(player, &["MEMBERS a", "POOLS", "UTILIZATION a", "MEMBERS b after=m2 limit=2"]).into(),
        0 | 18 | 19 => format!("RETURN {lease}{}", one_of(player, &["", " OK", " FAIL"])),
        _ => {
            let from = if player.below(4) == 0 { "TAKEGROUP g".into() } else { format!("TAKE {pool}") };
            let options =
                ["", "", "", " n=1", " n=2", " n=2", " n=3", " x=1", " x=2 n=2", " pri=0", " lease=3", " member=m2"];
            format!("{from} {timeout}{}", one_of(player, &options))
        }
    }
}

const SETTINGS: &str = "\
    group=g|group=|order=fifo|queue=2|queue=0|start_timeout=1|stop_timeout=0.3|max_age=1|cull_interval=2|\
    max_lifetime=4 lifetime_jitter=1|max_uses=2|grow_at=1|min_free=1|max_hold=2|warn_hold=1|per_client=1|\
    per_client=2|on_loss=ok|on_loss=ok loss_delay=1|check_interval=1|check_on_take=0.5|check_timeout=0.2|\
    clean_timeout=1|clean_timeout=1 clean_parallel=1|clean_timeout=0|provider_grace=2|provider_grace=0|\
    repair_after=1";

fn random_settings(player: &mut Player) -> String {
    let settings: Vec<&str> = SETTINGS.split('|').collect();
    let mut text = String::new();
    for _ in 0..player.below(5) {
        let setting = one_of(player, &settings);
        if setting.split(' ').all(|pair| !text.contains(&pair[..=pair.find('=').unwrap_or(0)])) {
            text += &format!(" {setting}");
        }
    }
    text
}

#[test]
fn provider_of_a_removed_pool_joins_another_afterwards() {
    let mut player = five("");
    assert_eq!(ask(&mut player, OPERATOR, "POOL q 0 2"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL p"), "OK");
    player.upgrade();
    assert!(ask(&mut player, PROVIDER, "PROVIDE q").contains("ERROR BAD_SYNTAX"), "its members are not stopped yet");
    for _ in 0..20 {
        player.advance(TICK);
    }
    let told = ask(&mut player, PROVIDER, "PROVIDE q");
    assert!(told.ends_with("OK"), "{told}");
    player.end();
}

#[test]
fn provider_joins_the_new_pool_of_that_name() {
    let mut player = five("");
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL p"), "OK");
    assert_eq!(ask(&mut player, OTHER, "POOL p 0 1"), "OK");
    player.upgrade();
    for _ in 0..20 {
        player.advance(TICK);
    }
    let told = ask(&mut player, PROVIDER, "PROVIDE p");
    assert!(told.ends_with("OK"), "{told}");
    let told = ask(&mut player, PROVIDER, "OFFER p fresh");
    assert!(told.ends_with("OK"), "{told}");
    let told = ask(&mut player, OTHER, "TAKE p");
    assert!(told.starts_with("MEMBER"), "{told}");
    player.end();
}

#[test]
fn provider_with_a_queued_task_is_dropped_once() {
    let mut player = Player::new(1, 2);
    for line in ["POOL z 0 9 cull_interval=0 provider_grace=0", "POOL p 0 5 cull_interval=0"] {
        assert_eq!(ask(&mut player, OPERATOR, line), "OK");
    }
    player.say(4, "PROVIDE z", true);
    (1..=6).for_each(|n| player.say(4, &format!("OFFER z z{n}"), true));
    assert_eq!(ask(&mut player, PROVIDER, "PROVIDE p session=s"), "OK");
    (1..=2).for_each(|n| player.say(PROVIDER, &format!("OFFER p m{n}"), true));
    for _ in 0..5 {
        player.advance(TICK);
    }
    player.drop_output();
    // The budget of the tick is used up by the members of another pool.
    player.close(4);
    assert_eq!(ask(&mut player, OPERATOR, "RECONFIGURE p max=1"), "OK");
    for (conn, line) in
        [(OTHER, "PROVIDE p session=s"), (OPERATOR, "RMPOOL p GRACEFUL"), (OTHER, "DEAD m1"), (OTHER, "DEAD m2")]
    {
        ask(&mut player, conn, line);
    }
    for _ in 0..20 {
        player.advance(TICK);
    }
    player.end();
}

#[test]
fn provider_of_a_removed_pool_may_close() {
    let mut player = five("");
    assert_eq!(ask(&mut player, OPERATOR, "POOL q 0 2"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL p"), "OK");
    player.close(PROVIDER);
    player.end();
}

/// Each of the members is looked at again, one in a tick.
#[test]
fn a_walk_over_many_members_keeps_nobody_waiting() {
    let mut player = Player::new(1, 2);
    player.say(OPERATOR, "POOL p 0 40", true);
    (1..=20).for_each(|n| player.say(OPERATOR, &format!("ADD p m{n}"), true));
    player.say(OPERATOR, "ADD p first gpu=1", true);
    player.say(CONSUMER, "TAKE p 0 gpu=1", true);
    player.say(OTHER, "TAKE p 600 n=2 gpu=1", true);
    player.say(4, "TAKE p 600 gpu=1", true);
    player.say(OPERATOR, "RECONFIGURE p max_hold=900", true);
    // It is kept for the first waiter, and then goes on to the other one.
    player.say(OPERATOR, "ADD p second gpu=1", true);
    player.say(OTHER, "CANCEL", true);
    (0..4).for_each(|_| player.tick());
    assert!(player.heard(4).iter().any(|line| line.contains(" p second ")));
    player.end();
}
