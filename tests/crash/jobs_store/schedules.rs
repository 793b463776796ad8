//! Periodic jobs of an owner that dies at the moment at which one is due: the next one puts it, unless it was put.

use crate::jobs_store::losing::{Fate, LosingStore};
use crate::stored::{self, StoredSettings};
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::world::{EPOCH, World};

const SERVICES: &[&Info] = &[&stored::INFO];
/// Bound of the steps until a request is answered.
const MOST_STEPS: usize = 1000;

fn server(epoch: Span) -> World {
    let settings = StoredSettings(JobsSettings { admin: true, ..JobsSettings::default() });
    let mut world = World::at(SERVICES, AllSettings::defaults(SERVICES).with(settings), epoch);
    world.begin().expect("the store can be read");
    world
}

/// Sends requests, and returns what comes until the disk has nothing to do.
fn ask(world: &mut World, disk: &LosingStore, text: &str) -> String {
    let conn = world.connect_to("jobs");
    world.send(conn, text.replace('|', "\r\n").as_bytes());
    for _ in 0..MOST_STEPS {
        world.settle();
        if !disk.meet(Fate::Succeed) {
            break;
        }
    }
    String::from_utf8(world.take_received(conn).into_iter().collect()).expect("is text")
}

#[test]
fn a_job_that_is_due_at_the_moment_of_a_crash_is_put_once() {
    for (times, until_s, down_s) in
        [("every=60", 60, 5), ("cron=* * * * *", 60, 5), ("missed=once cron=@hourly", 3600, 1_800)]
    {
        for is_written in [true, false] {
            let disk = LosingStore::install();
            let mut world = server(EPOCH);
            let told = ask(&mut world, &disk, &format!("schedule-put n 5 60 1 tube=t {times}|p|"));
            assert_eq!(told, "SCHEDULED\r\n");
            // The batch with the job and the note of its time is under way.
            world.advance(Span::from_secs(until_s));
            world.settle();
            disk.crash(is_written);
            let epoch = EPOCH + Span::from_micros(world.now().as_micros()) + Span::from_secs(down_s);
            drop(world);
            let mut world = server(epoch);
            world.advance(Span::from_secs(2));
            // The disk commits meanwhile.
            ask(&mut world, &disk, "list-tubes|");
            let told = ask(&mut world, &disk, "stats-tube t|");
            let ready = told.lines().find_map(|line| line.strip_prefix("current-jobs-ready: "));
            assert_eq!(ready, Some("1"), "{times}, {is_written}: {told}");
        }
    }
}
