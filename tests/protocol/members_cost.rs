//! A step looks at no more entries because others have more members, wait in greater numbers, or hold more: the meter
//! fails a step that looks at too many.

use super::members::player::Player;
use poolcounter_testkit::world::World;
use std::time::Duration;

const OPERATOR: usize = 0;
const PROVIDER: usize = 1;
const CONSUMER: usize = 2;
const OTHER: usize = 3;
/// Time after which there is a budget again for work in slices.
const TICK: Duration = Duration::from_millis(20);
/// Number of the first of many connections.
const MANY: usize = 10;

/// Sends a line, and returns the output to the connection in that step.
fn ask(player: &mut Player, conn: usize, line: &str) -> String {
    player.drop_output();
    say(player, conn, line);
    player.told(conn)
}

fn say(player: &mut Player, conn: usize, line: &str) {
    player.say(conn, line, true);
}

/// Returns the number of lines that were told.
fn lines(player: &Player) -> usize {
    player.lines_from(0).iter().sum()
}

/// Takes a member, and returns it to its pool. Returns its name.
fn borrow(player: &mut Player, conn: usize, line: &str) -> String {
    let taken = ask(player, conn, line);
    let words: Vec<&str> = taken.split(' ').collect();
    let ["MEMBER", lease, _, member, ..] = words[..] else { panic!("{line}: {taken}") };
    assert_eq!(ask(player, conn, &format!("RETURN {lease}")), "RETURNED");
    member.into()
}

/// Returns fixed members, the first of which has an attribute that no other has, and each another one an attribute of
/// its own.
fn crowd(members: usize) -> Player {
    let mut player = Player::for_crowds();
    say(&mut player, OPERATOR, &format!("POOL p 0 {} queue=100000", 2 * members));
    say(&mut player, OPERATOR, "ADD p first os=linux side=left half=both gpu=1");
    for n in 0..members {
        let side = ["side=left half=one", "side=right half=both"][n % 2];
        say(&mut player, OPERATOR, &format!("ADD p m{n} os=linux {side} id={n}"));
    }
    player
}

#[test]
fn a_take_by_attributes_finds_the_one_that_has_them_among_many() {
    let mut player = crowd(100_000);
    let first = ["gpu=1", "os=linux gpu=1", "gpu=1 side=left", "side=left half=both"];
    for filter in first {
        assert_eq!(borrow(&mut player, CONSUMER, &format!("TAKE p 0 {filter}")), "first");
    }
    assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0 os=linux id=777"), "m777");
    // The last to come are handed out first.
    assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0 side=right id=99999"), "m99999");
    assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0 side=right"), "m99999");
    assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0"), "m99999");
    for filter in ["os=bsd", "os=linux id=none", "gpu=1 side=right", "half=one side=right"] {
        assert_eq!(ask(&mut player, CONSUMER, &format!("TAKE p 9 {filter}")), "ERROR NO_SUCH_MEMBER", "{filter}");
    }
    assert!(ask(&mut player, CONSUMER, "TAKE p 0 gpu=1").starts_with("MEMBER "));
    for filter in first {
        assert_eq!(ask(&mut player, OTHER, &format!("TAKE p 0 {filter}")), "NO_MEMBERS at_capacity", "{filter}");
    }
}

#[test]
fn a_waiter_for_several_costs_others_little() {
    let mut player = crowd(100_000);
    // A member that is in use may be returned later.
    say(&mut player, OPERATOR, "ADD p second os=linux side=left half=both gpu=1");
    say(&mut player, MANY, "TAKE p 0 member=second");
    let waiters = ["n=2 gpu=1", "n=2 side=left half=both", "n=2 gpu=1 os=linux"];
    for waiter in waiters {
        say(&mut player, OTHER, &format!("TAKE p 600 {waiter}"));
        for _ in 0..100 {
            assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0"), "m99999", "{waiter}");
            assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0 id=5"), "m5", "{waiter}");
            say(&mut player, CONSUMER, "TAKE p 0 id=99999");
            say(&mut player, CONSUMER, "BYE");
            player.advance(TICK);
        }
        assert_eq!(ask(&mut player, CONSUMER, "TAKE p 0 gpu=1"), "NO_MEMBERS at_capacity", "it is reserved");
        say(&mut player, CONSUMER, "TAKE p 600 gpu=1");
        player.drop_output();
        assert_eq!(ask(&mut player, OTHER, "CANCEL"), "NO_MEMBERS cancelled");
        assert!(player.told(CONSUMER).starts_with("MEMBER "), "what was reserved goes on");
        say(&mut player, CONSUMER, "BYE");
        player.advance(TICK);
        // The member is behind the others again.
        assert_eq!(borrow(&mut player, CONSUMER, "TAKE p 0 id=99999"), "m99999");
    }
}

#[test]
fn a_member_finds_its_waiter_among_many() {
    let mut player = crowd(16_000);
    let waiters = 10_000;
    // Each waits for a member of its own, for one that does not exist, or for several of them.
    for n in 0..waiters {
        say(&mut player, CONSUMER, &format!("TAKE p 0 id={n}"));
    }
    for n in 0..waiters {
        let count = if n % 10 == 0 { " n=2" } else { "" };
        say(&mut player, MANY + n, &format!("TAKE p 600 os=linux id={n}{count}"));
    }
    player.drop_output();
    assert_eq!(ask(&mut player, OPERATOR, "ADD p none os=bsd"), "OK");
    for n in [1, 5_555, 9_999] {
        let taken = ask(&mut player, OPERATOR, &format!("ADD p other{n} os=linux id={n} gpu=2"));
        assert_eq!(taken, "OK");
        assert!(player.told(MANY + n).contains(&format!(" p other{n} ")), "{}", player.told(MANY + n));
    }
    assert_eq!(borrow(&mut player, OTHER, "TAKE p 0 id=15999"), "m15999");
    // All members are returned at once.
    player.drop_output();
    say(&mut player, CONSUMER, "BYE");
    player.advance(Duration::from_secs(1));
    let served = player.lines_from(MANY).iter().sum::<usize>();
    assert_eq!(served, waiters - waiters / 10 - 3);
    (0..waiters).for_each(|n| player.close(MANY + n));
}

#[test]
fn waiters_that_cannot_be_served_cost_a_start_little() {
    let mut player = Player::for_crowds();
    say(&mut player, OPERATOR, "POOL p 0 200000 queue=100000");
    say(&mut player, PROVIDER, "PROVIDE p 0");
    (0..10_000).for_each(|n| say(&mut player, MANY + n, "TAKE p 60 os=bsd"));
    say(&mut player, PROVIDER, "PROVIDE p 1000");
    for n in 0..1_000 {
        player.drop_output();
        say(&mut player, PROVIDER, &format!("STARTED {} m{n} os=linux", n + 1));
    }
    // None was served, and all time out at once.
    player.advance(Duration::from_secs(61));
}

#[test]
fn waiters_for_several_leave_at_once() {
    for is_same in [true, false] {
        let mut player = crowd(16_000);
        let waiters = 4_000;
        for n in 0..waiters {
            let filter = if is_same { "id=0".into() } else { format!("id={n}") };
            say(&mut player, MANY + n, &format!("TAKE p 600 n=2 {filter}"));
        }
        player.drop_output();
        for n in 0..waiters {
            player.close(MANY + n);
        }
        assert_eq!(lines(&player), 0);
        // A waiter that waits long enough comes first.
        for n in 0..waiters {
            say(&mut player, MANY + n, &format!("TAKE p 100 n=2 id={n}"));
        }
        player.advance(Duration::from_secs(101));
        assert_eq!(lines(&player), waiters);
    }
}

#[test]
fn a_pool_is_changed_while_many_wait() {
    let mut player = crowd(16_000);
    for n in 0..10_000 {
        say(&mut player, CONSUMER, &format!("TAKE p 0 id={n}"));
        say(&mut player, MANY + n, &format!("TAKE p 600 os=linux id={n}"));
    }
    player.drop_output();
    say(&mut player, OPERATOR, "RECONFIGURE p max=99999");
    say(&mut player, OPERATOR, "RECONFIGURE p min_free=0 order=fifo");
    player.advance(Duration::from_secs(1));
    assert_eq!(lines(&player), 2);
}

#[test]
fn a_pool_is_removed_for_which_many_wait() {
    for graceful in ["", " GRACEFUL"] {
        let mut player = crowd(1_000);
        for n in 0..1_000 {
            say(&mut player, CONSUMER, &format!("TAKE p 0 id={n}"));
        }
        (0..10_000).for_each(|n| say(&mut player, MANY + n, &format!("TAKE p 600 os=linux id={}", n % 1_000)));
        player.drop_output();
        say(&mut player, OPERATOR, &format!("RMPOOL p{graceful}"));
        player.advance(TICK);
        let refused = player.lines_from(MANY).iter().sum::<usize>();
        assert_eq!(refused, 10_000);
        player.close(CONSUMER);
        player.advance(TICK);
        assert_eq!(ask(&mut player, OTHER, "TAKE p"), "ERROR NO_POOL");
    }
}

/// The graceful request comes while the first one is at work.
#[test]
fn a_group_removed_at_once_is_not_kept_by_a_graceful_request() {
    let mut player = Player::for_crowds();
    for n in 0..6_000 {
        say(&mut player, OPERATOR, &format!("POOL p{n} 0 1 group=g"));
        say(&mut player, OPERATOR, &format!("ADD p{n} m{n}"));
        assert!(ask(&mut player, CONSUMER, &format!("TAKE p{n}")).starts_with("MEMBER "));
    }
    player.drop_output();
    ["RMGROUP g", "RMGROUP g GRACEFUL"].iter().for_each(|line| say(&mut player, OPERATOR, line));
    player.advance(Duration::from_secs(5));
    assert_eq!(player.told(CONSUMER).matches("!LOST ").count(), 6_000);
}

#[test]
fn a_connection_holds_members_of_many_pools() {
    let mut player = Player::for_crowds();
    let pools = 10_000;
    for n in 0..pools {
        say(&mut player, OPERATOR, &format!("POOL p{n} 0 2 per_client=1"));
        say(&mut player, OPERATOR, &format!("ADD p{n} m{n} os=linux"));
        assert!(ask(&mut player, CONSUMER, &format!("TAKE p{n}")).starts_with("MEMBER "));
    }
    for n in [0, pools / 2, pools - 1] {
        assert_eq!(ask(&mut player, CONSUMER, &format!("TAKE p{n}")), "LIMIT");
        assert_eq!(ask(&mut player, OPERATOR, &format!("DEL p{n} m{n} NOW")), "OK");
        assert_eq!(ask(&mut player, OPERATOR, &format!("ADD p{n} m{n}")), "OK");
        borrow(&mut player, CONSUMER, &format!("TAKE p{n}"));
    }
    player.close(CONSUMER);
    player.advance(Duration::from_secs(60));
}

#[test]
fn members_are_lost_with_their_provider() {
    for settings in [" provider_grace=0", " provider_grace=9"] {
        let mut player = Player::for_crowds();
        let members = 100_000;
        say(&mut player, OPERATOR, &format!("POOL p 0 {members} cull_interval=0 queue=100000{settings}"));
        say(&mut player, PROVIDER, "PROVIDE p");
        (0..members).for_each(|n| say(&mut player, PROVIDER, &format!("OFFER p m{n} os=linux id={n}")));
        (0..5_000).for_each(|n| say(&mut player, MANY + n, &format!("TAKE p 600 os=bsd id={n}")));
        player.close(PROVIDER);
        player.drop_output();
        for filter in ["", "os=linux", "os=linux id=70000"] {
            say(&mut player, CONSUMER, &format!("TAKE p 0 {filter}"));
        }
        player.advance(Duration::from_secs(20));
        let told = player.told(CONSUMER);
        let answers = ["MEMBER ", "NO_MEMBERS "].map(|word| told.lines().filter(|line| line.starts_with(word)).count());
        assert_eq!(answers.iter().sum::<usize>(), 3, "{told}");
        assert_eq!(answers[0], told.matches(" provider_lost").count(), "{told}");
    }
}

#[test]
fn many_members_are_cleaned_by_another_when_their_cleaner_is_lost() {
    let mut player = Player::for_crowds();
    let members = 4_096;
    say(&mut player, OPERATOR, &format!("POOL p 0 9000 cull_interval=0 clean_timeout=60 clean_parallel={members}"));
    (0..members).for_each(|n| say(&mut player, OPERATOR, &format!("ADD p m{n}")));
    say(&mut player, PROVIDER, "CLEAN p");
    (0..members).for_each(|_| say(&mut player, CONSUMER, "TAKE p"));
    say(&mut player, CONSUMER, "BYE");
    player.advance(Duration::from_secs(1));
    let cleaned = player.told(PROVIDER).matches("!CLEAN p ").count();
    player.drop_output();
    player.close(PROVIDER);
    player.advance(Duration::from_secs(1));
    say(&mut player, OTHER, "CLEAN p");
    player.advance(Duration::from_secs(1));
    assert_eq!(player.told(OTHER).matches("!CLEAN p ").count(), cleaned);
    assert!(cleaned >= 1_000, "{cleaned}");
}

#[test]
fn many_members_are_checked_in_time() {
    let mut player = Player::for_crowds();
    let members = 2_000;
    say(&mut player, OPERATOR, &format!("POOL p 0 {members} cull_interval=0 check_interval=10 check_timeout=5"));
    say(&mut player, PROVIDER, "PROVIDE p");
    (0..members).for_each(|n| say(&mut player, PROVIDER, &format!("OFFER p m{n}")));
    player.advance(Duration::from_millis(9_500));
    for _ in 0..3 {
        player.drop_output();
        player.advance(Duration::from_secs(1));
        let asked = player.told(PROVIDER);
        let asked: Vec<&str> = asked.lines().filter_map(|line| line.strip_prefix("!CHECK p ")).collect();
        assert_eq!(asked.len(), members, "all are checked when they are due");
        asked.iter().for_each(|member| assert_eq!(ask(&mut player, PROVIDER, &format!("ALIVE {member}")), "OK"));
        player.advance(Duration::from_secs(9));
    }
}

/// Requests in one packet: as many as are served in a turn.
const PACKET: usize = 512;

/// Returns a world with this many pools of a group.
fn grouped(pools: usize, settings: &str) -> (World, usize) {
    let mut world = World::of_administrators();
    let operator = world.connect_to("members");
    let lines: Vec<String> = (0..pools).map(|n| format!("POOL p{n} 0 2 group=g{settings}\n")).collect();
    lines.chunks(PACKET).for_each(|lines| _ = world.ask(operator, lines.concat().as_bytes()));
    (world, operator)
}

/// Sends the same line as often as a packet has requests, and returns the lines of the answers.
fn packet(world: &mut World, client: usize, line: &str) -> Vec<String> {
    let answers = world.ask(client, format!("{line}\n").repeat(PACKET).as_bytes());
    String::from_utf8(answers).expect("is text").lines().map(String::from).collect()
}

#[test]
fn takes_from_a_group_cost_little_however_many_pools() {
    let pools = 10_000;
    let (mut world, operator) = grouped(pools, "");
    let consumer = world.connect_to("members");
    assert_eq!(packet(&mut world, consumer, "TAKEGROUP g"), vec!["NO_MEMBERS no_provider"; PACKET]);
    assert_eq!(packet(&mut world, consumer, "TAKEGROUP g 0 n=99999"), vec!["ERROR TOO_MANY"; PACKET]);
    world.ask(operator, format!("ADD p{} m\n", pools / 2).as_bytes());
    let taken = packet(&mut world, consumer, "TAKEGROUP g");
    assert!(taken[0].starts_with("MEMBER ") && taken[1..].iter().all(|answer| answer == "NO_MEMBERS at_capacity"));
    // Waiters come and leave, in each pool and for the group.
    let waiters: Vec<usize> = (0..300).map(|_| world.connect_to("members")).collect();
    waiters.iter().for_each(|waiter| world.send(*waiter, b"TAKEGROUP g 600\n"));
    world.settle();
    assert!(packet(&mut world, operator, "UTILIZATION p0")[0].contains(" queued 300 "));
    waiters.iter().for_each(|waiter| world.reset(*waiter));
    world.settle();
    let removals: Vec<String> = (0..pools).map(|n| format!("RMPOOL p{n}\n")).collect();
    removals.chunks(PACKET).for_each(|lines| _ = world.ask(operator, lines.concat().as_bytes()));
    world.settle();
    assert_eq!(packet(&mut world, operator, "TAKEGROUP g"), vec!["ERROR NO_POOL"; PACKET]);
}

#[test]
fn a_turn_has_one_search_in_many_pools() {
    let (mut world, _) = grouped(4_000, "");
    let consumer = world.connect_to("members");
    assert_eq!(packet(&mut world, consumer, "TAKEGROUP g 9 os=linux"), vec!["ERROR NO_SUCH_MEMBER"; PACKET]);
}

#[test]
fn takes_of_full_groups_cost_little_however_many_pools() {
    let (mut world, _) = grouped(10_000, " queue=0");
    let consumer = world.connect_to("members");
    assert_eq!(packet(&mut world, consumer, "TAKEGROUP g 9"), vec!["QUEUE_FULL"; PACKET]);
}

/// Returns a pool of many providers, with this capacity each.
fn provided(providers: usize, capacity: usize) -> Player {
    let mut player = Player::for_crowds();
    say(&mut player, OPERATOR, &format!("POOL p 0 {} queue=100000 provider_grace=0", 2 * providers * capacity));
    (0..providers).for_each(|n| say(&mut player, MANY + n, &format!("PROVIDE p {capacity}")));
    player.drop_output();
    player
}

#[test]
fn starts_cost_little_however_many_providers() {
    let (providers, capacity) = (5_000, 4);
    let mut player = provided(providers, capacity);
    say(&mut player, OPERATOR, &format!("RECONFIGURE p init={}", providers * capacity));
    let at_once = lines(&player);
    assert!(at_once < 4096, "{at_once} starts in a step");
    player.advance(Duration::from_secs(1));
    assert_eq!(lines(&player), 1 + providers * capacity, "each is asked for as many as it has room for");
    // All are full now, and takes find no provider.
    player.drop_output();
    (0..PACKET).for_each(|_| say(&mut player, CONSUMER, "TAKE p"));
    assert_eq!(lines(&player), PACKET);
    // Half of the providers leave, and the pool is removed with the other half.
    (0..providers / 2).for_each(|n| player.close(MANY + n));
    player.advance(TICK);
    say(&mut player, OPERATOR, "RMPOOL p");
    player.advance(Duration::from_secs(1));
    assert_eq!(ask(&mut player, CONSUMER, "TAKE p"), "ERROR NO_POOL");
    say(&mut player, OPERATOR, "POOL q 0 1");
    assert_eq!(ask(&mut player, MANY + providers - 1, "PROVIDE q"), "OK", "its pool is gone");
}

#[test]
fn cleaners_share_the_work_however_many() {
    let cleaners = 5_000;
    let mut player = Player::for_crowds();
    say(&mut player, OPERATOR, "POOL p 0 1000 clean_timeout=60 clean_parallel=1000");
    (0..cleaners).for_each(|n| say(&mut player, MANY + n, "CLEAN p"));
    for n in 0..1_000 {
        say(&mut player, OPERATOR, &format!("ADD p m{n}"));
        say(&mut player, CONSUMER, "TAKE p");
    }
    player.drop_output();
    say(&mut player, CONSUMER, "BYE");
    player.advance(Duration::from_secs(1));
    assert_eq!(player.lines_from(MANY).len(), 1_000, "each is asked to clean one");
}

#[test]
fn a_take_from_a_group_looks_at_few_pools() {
    const POOLS: usize = 6_000;
    let mut player = Player::for_crowds();
    for n in 0..POOLS {
        say(&mut player, OPERATOR, &format!("POOL p{n} 0 3 group=g"));
        let kind = if n == 4_000 { "gpu" } else { "cpu" };
        say(&mut player, OPERATOR, &format!("ADD p{n} m{n} os=linux kind={kind}"));
    }
    assert_eq!(borrow(&mut player, CONSUMER, "TAKEGROUP g 0 kind=gpu"), "m4000");
    assert_eq!(borrow(&mut player, CONSUMER, "TAKEGROUP g 0 os=linux kind=gpu"), "m4000");
    assert_eq!(borrow(&mut player, CONSUMER, "TAKEGROUP g 0 member=m5000"), "m5000");
    for filter in ["kind=tpu", "member=m6000", "member=m4000 kind=cpu"] {
        assert_eq!(ask(&mut player, CONSUMER, &format!("TAKEGROUP g 9 {filter}")), "ERROR NO_SUCH_MEMBER", "{filter}");
    }
    say(&mut player, OPERATOR, "POOL other 0 1 group=h");
    say(&mut player, OPERATOR, "ADD other only os=linux");
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP h 0 os=linux kind=gpu"), "ERROR NO_SUCH_MEMBER");
    assert!(ask(&mut player, OTHER, "TAKEGROUP h 0 os=linux").contains(" only "));
    assert_eq!(ask(&mut player, CONSUMER, "TAKEGROUP h 0 os=linux"), "NO_MEMBERS at_capacity");
    say(&mut player, OPERATOR, "ADD p9 more kind=gpu");
    say(&mut player, OPERATOR, "ADD p9 spare");
    assert_eq!(borrow(&mut player, CONSUMER, "TAKEGROUP g 0 kind=gpu"), "more", "its pool has most free");
    say(&mut player, OPERATOR, "DEL p9 more");
    assert!(ask(&mut player, CONSUMER, "TAKEGROUP g 0 kind=gpu").contains(" m4000 "));
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP g 0 kind=gpu"), "NO_MEMBERS at_capacity");
    say(&mut player, OPERATOR, "RECONFIGURE p4000 group=");
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP g 0 kind=gpu"), "ERROR NO_SUCH_MEMBER");
    // An attribute of many pools, of which none has a free member.
    for n in 0..100 {
        say(&mut player, OPERATOR, &format!("ADD p{n} board{n} kind=board"));
        assert!(ask(&mut player, CONSUMER, "TAKEGROUP g 0 kind=board").contains(&format!(" board{n} ")));
    }
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP g 0 kind=board"), "NO_MEMBERS at_capacity");
}
