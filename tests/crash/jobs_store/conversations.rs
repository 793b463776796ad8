//! The conversations of `tests/conversations/jobs_store.txt`, whose head has the words for the store.

use crate::jobs_store::Stage;
use crate::jobs_store::store::SlowStore;
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_testkit::player::play_file;
use poolcounter_testkit::protocol::Protocol;
use poolcounter_testkit::script::Scenario;
use poolcounter_testkit::virtual_target::VirtualTarget;
use poolcounter_testkit::world::World;

#[test]
fn replies_and_commits_come_as_the_script_says() {
    play_file("tests/conversations/jobs_store.txt", Protocol::Jobs, |Scenario { options, .. }| {
        let store_timeout = match options.as_slice() {
            [] => Span::FOREVER,
            [option, seconds] if option == "--jobs-store-timeout" => {
                Span::from_secs(seconds.parse().expect("is a number"))
            }
            _ => panic!("the only option is that of the timeout: {options:?}"),
        };
        let Stage { world, store } = Stage::with(JobsSettings { store_timeout, ..JobsSettings::default() });
        VirtualTarget::of(Protocol::Jobs, world, Box::new(move |world, words| happen(world, &store, words)))
    });
}

fn happen(world: &mut World, store: &SlowStore, words: &str) -> Result<bool, String> {
    let is_so = match words {
        "commit" => store.commit_one(),
        "idle" => !store.commit_one(),
        "roll back" => store.roll_back(),
        "quiet" => world.connections.is_quiet(),
        "busy" => !world.connections.is_quiet(),
        "rest" => world.come_to_rest(),
        "no rest" => !world.come_to_rest(),
        _ => {
            match words {
                "fails" => store.fail(true),
                "works" => store.fail(false),
                "pause" => world.connections.pause(true),
                "resume" => world.connections.pause(false),
                "go on" => world.go_on(),
                "upgrade" => world.upgrade(),
                "commit all" | "end" => {
                    while store.commit_one() {
                        world.settle();
                    }
                }
                _ => return Err(format!("\"{words}\" is nothing that happens to a store")),
            }
            true
        }
    };
    if is_so { Ok(false) } else { Err("it is not so".into()) }
}
