//! Periodic jobs: the times at which they are put, and what becomes of them when the clock is set, when a daemon was off,
//! and when a job still waits.

use poolcounter::SERVICES;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Bounds, Setting, SettingKind, Value};
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::jobs::{Commits, Service, play_with};
use poolcounter_testkit::world::{EPOCH, World};

const HOUR: u64 = 3600;
/// 2026-03-28 12:00 in UTC, less the time at which the simulation begins.
const NOON: u64 = 1_774_699_200 - 1_000;

fn service() -> Service {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.set_wall(Span::from_secs(NOON));
    service
}

/// Lets seconds pass, takes all jobs of the tube `t` and returns their number.
fn put_in(service: &mut Service, seconds: u64) -> usize {
    service.pass(Span::from_secs(seconds));
    taken(service)
}

fn taken(service: &mut Service) -> usize {
    let text = service.ask(9, "watch t\r\nignore default\r\nreserve-many 1000 0\r\n");
    for line in text.lines().filter(|line| line.starts_with("RESERVED ")) {
        let id = line.split(' ').nth(1).expect("it has a number");
        service.send(9, format!("delete {id}\r\n").as_bytes());
    }
    service.output(9);
    service.state.check();
    text.matches("RESERVED ").count()
}

fn listed(service: &mut Service) -> String {
    service.send(8, b"list-schedules\r\n");
    service.next(8).expect("is answered")
}

fn schedule(service: &mut Service, times: &str) {
    service.send(1, format!("schedule-put n 5 60 1 tube=t {times}\r\np\r\n").as_bytes());
    assert_eq!(service.next(1).as_deref(), Some("SCHEDULED"), "{times}");
}

#[test]
fn both_changes_of_summer_time_put_one_job() {
    for (noon, skips) in [(NOON, 14), (1_792_843_200 - 1_000, 15)] {
        let mut service = service();
        service.set_wall(Span::from_secs(noon));
        schedule(&mut service, "timezone=Europe/Berlin cron=30 2 * * *");
        // The nights to Sunday, Monday and Tuesday.
        assert_eq!(put_in(&mut service, skips * HOUR), 1, "in the night in which the clock is changed");
        assert_eq!(put_in(&mut service, 24 * HOUR), 1);
        assert_eq!(put_in(&mut service, 24 * HOUR), 1);
    }
}

#[test]
fn clock_set_back_puts_nothing_twice() {
    for times in ["cron=*/10 * * * *", "every=600", "missed=once cron=*/10 * * * *"] {
        let mut service = service();
        schedule(&mut service, times);
        assert_eq!(put_in(&mut service, 600), 1, "{times}");
        for back in [60, 500, 599] {
            service.set_wall(Span::from_secs(NOON - back));
            assert_eq!(put_in(&mut service, back), 0, "{times}: back by {back} s");
        }
        service.set_wall(Span::from_secs(NOON - 1200));
        assert_eq!(put_in(&mut service, 10), 0, "{times}");
    }
}

#[test]
fn clock_set_forward_and_back_again_loses_no_time() {
    let mut service = service();
    schedule(&mut service, "timezone=Europe/Berlin cron=30 2 * * *");
    service.set_wall(Span::from_secs(NOON + 40_000 * HOUR));
    assert_eq!(put_in(&mut service, 1), 0, "it was missed");
    service.set_wall(Span::from_secs(NOON));
    assert_eq!(put_in(&mut service, 24 * HOUR), 1);
}

#[test]
fn missed_times_are_skipped_or_made_up_for_once() {
    for (missed, jobs) in [("skip", 0), ("once", 1)] {
        let mut service = service();
        schedule(&mut service, &format!("missed={missed} cron=@daily"));
        service.set_wall(Span::from_secs(NOON + 10 * 24 * HOUR + HOUR));
        assert_eq!(put_in(&mut service, 1), jobs, "{missed}");
        let text = listed(&mut service);
        assert!(text.contains("skipped: 1"), "{missed}: {text}");
        service.hand_over();
        assert_eq!(put_in(&mut service, 10 * HOUR), 0, "{missed}");
        assert_eq!(put_in(&mut service, HOUR), 1, "{missed}: the next is on time");
    }
}

#[test]
fn a_time_of_less_than_a_minute_ago_is_not_missed() {
    let mut service = service();
    schedule(&mut service, "cron=@hourly");
    service.set_wall(Span::from_secs(NOON + HOUR + 50));
    assert_eq!(put_in(&mut service, 1), 1);
    assert_eq!(put_in(&mut service, HOUR), 1);
}

#[test]
fn a_schedule_goes_on_in_another_process() {
    let mut service = service();
    schedule(&mut service, "every=100");
    service.pass(Span::from_secs(60));
    service.hand_over();
    assert_eq!(put_in(&mut service, 39), 0);
    assert_eq!(put_in(&mut service, 1), 1);
    service.hand_over();
    assert_eq!(put_in(&mut service, 99), 0);
    schedule(&mut service, "every=100");
    assert_eq!(put_in(&mut service, 1), 1, "it was set as it is, and goes on");
    service.pass(Span::from_secs(50));
    schedule(&mut service, "every=70");
    assert_eq!(put_in(&mut service, 69), 0, "it was changed, and begins anew");
    assert_eq!(put_in(&mut service, 1), 1);
}

#[test]
fn schedules_of_the_file_count_until_a_command_overrides_them() {
    let mut service = service();
    let of_file = |every| {
        let definition = format!("5 60 1 tube=t every={every}\np").into_bytes();
        [Setting { kind: SettingKind::Schedule, of: b"n"[..].into(), value: Some(Value::Text(definition.into())) }]
    };
    service.set_from_file(&of_file(10));
    assert!(listed(&mut service).contains("origin: file"));
    assert_eq!(put_in(&mut service, 10), 1);
    schedule(&mut service, "every=50");
    assert!(listed(&mut service).contains("origin: command"));
    service.set_from_file(&of_file(10));
    assert_eq!(put_in(&mut service, 49), 0);
    service.set_from_file(&of_file(20));
    assert_eq!(put_in(&mut service, 20), 1);
    play_with(&mut service, "3> list-settings t\n3<~ - setting: schedule-put; of: \"n\"; origin: file");
    service.set_from_file(&[]);
    assert_eq!(put_in(&mut service, 60), 0);
    assert!(!listed(&mut service).contains("name"));
}

#[test]
fn nothing_is_put_while_puts_are_refused_or_there_is_no_room() {
    let mut service = Service::new(Bounds { max_memory: 40_000, ..Bounds::default() }, Commits::AtOnce, 1);
    schedule(&mut service, "every=10");
    play_with(&mut service, "2> drain\n2< DRAINING");
    assert_eq!(put_in(&mut service, 25), 0);
    assert!(listed(&mut service).contains("skipped: 2"));
    play_with(&mut service, "2> undrain\n2< ACCEPTING");
    assert_eq!(put_in(&mut service, 5), 1);
    service.send(2, &b"put 0 0 9 1\r\nx\r\n".repeat(500));
    assert!(service.output(2).ends_with(b"OUT_OF_MEMORY\r\n"));
    assert_eq!(put_in(&mut service, 10), 0);
}

/// All that are due together are put in slices, each once.
#[test]
fn a_thousand_schedules_are_put_together() {
    let mut service = service();
    for number in 0..1001 {
        service.send(1, format!("schedule-put n{number} 5 60 1 tube=t every=10\r\np\r\n").as_bytes());
    }
    let text = String::from_utf8(service.output(1)).expect("is text");
    assert_eq!((text.matches("SCHEDULED").count(), text.matches("OUT_OF_MEMORY").count()), (1000, 1));
    assert_eq!(put_in(&mut service, 11), 1000);
}

#[test]
fn an_upgrade_keeps_the_times_of_schedules() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let client = world.connect_to("jobs");
    let times = ["missed=once every=3600", "missed=once cron=0 13 * * *"];
    for (name, times) in times.iter().enumerate() {
        let line = format!("schedule-put n{name} 5 60 1 tube=t {times}\r\np\r\n");
        assert_eq!(world.ask(client, line.as_bytes()), b"SCHEDULED\r\n");
    }
    world.advance(Span::from_secs(1800));
    world.upgrade();
    world.advance(Span::from_secs(1790));
    assert_eq!(world.ask(client, b"stats-tube t\r\n"), b"NOT_FOUND\r\n");
    world.advance(Span::from_secs(20));
    let told = world.tell(client, "stats-tube t\r\nlist-schedules\r\n");
    assert!(told.contains("current-jobs-ready: 2") && told.matches("skipped: 0").count() == 2, "{told}");
}

/// The clock of the loop is seen though nothing else happens.
#[test]
fn a_clock_that_is_set_is_seen_by_an_idle_loop() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let client = world.connect_to("jobs");
    let line = b"schedule-put n 5 60 1 tube=t missed=once cron=0 13 * * *\r\np\r\n";
    assert_eq!(world.ask(client, line), b"SCHEDULED\r\n");
    world.set_clock(EPOCH + Span::from_secs(7200));
    world.advance(Span::from_secs(3));
    let told = world.tell(client, "stats-tube t\r\n");
    assert!(told.contains("current-jobs-ready: 1"), "{told}");
}
