//! Random clients of the pools and the counters, against the naive model of them: see the body that is played.

use poolcounter_testkit::bodies::simulation;
use poolcounter_testkit::frames;
use poolcounter_testkit::model::Service;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{play, sum};
use poolcounter_testkit::twin::Twin;
use std::collections::BTreeMap;

/// Number of histories that contain every reply.
const ENOUGH: usize = 64;

/// Every reply of the pools.
const REPLIES: &str = "LOCKED|DONE|RELEASED|QUEUE_FULL|TIMEOUT|LOCK_HELD|NOT_LOCKED|ERROR WAIT_FOR_RESPONSE|\
    ERROR BAD_SYNTAX|ERROR KEEP_OVER_HOLD|ERROR BAD_COMMAND|ERROR WRONG_STAT|ERROR LINE_TOO_LONG|uptime|\
    total processing time|total_acquired|ArticleView";

/// Every reply of the counters: the opcode and the status.
const FRAMES: &str = "00 00|00 04|01 00|01 01|01 04|02 00|02 04|02 21|02 82|03 00|03 01|03 04|03 22|10 00|11 00|12 81";

#[test]
fn random_clients_find_daemon_and_model_agree() {
    let tallies =
        play("simulation", |history| tally(&simulation::play(Random::new(history.seed), history.steps, None)));
    let (histories, tally) = (tallies.len(), sum(tallies));
    println!("replies compared: {tally:?}");
    if histories >= ENOUGH {
        let mut replies = REPLIES.split('|').chain(FRAMES.split('|'));
        assert_eq!(replies.find(|reply| !tally.contains_key(*reply)), None, "was never seen");
    }
}

/// Counts the received replies by their beginnings.
fn tally(twin: &Twin) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for line in twin.received_of(Service::Pools).flat_map(|received| received.split(|byte| *byte == b'\n')) {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if let Some(reply) = REPLIES.split('|').find(|reply| reply.as_bytes() == name) {
            *tally.entry(reply.into()).or_default() += 1;
        }
    }
    for reply in twin.received_of(Service::Counters).flat_map(frames::replies) {
        *tally.entry(format!("{:02x} {:02x}", reply[1], reply[2])).or_default() += 1;
    }
    tally
}
