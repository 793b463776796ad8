//! A service that is asked for its report after a few lines: for the tests of the reports.

use super::Report;
use crate::id::{ConnId, Id};
use crate::loop_stats::LoopStats;
use crate::output::Output;
use crate::random::Random;
use crate::registry::Services;
use crate::service::{Context, Input, NoProcess, Peers, Traffic};
use crate::time::{Span, Time};
use crate::wheel::Wheel;

/// Has connections of a service say a line each, at these times, and returns its report at `now`.
pub fn report_after_lines(
    service: &str,
    lines: impl Iterator<Item = (Time, usize, String)>,
    now: Time,
    traffic: &Traffic,
    peers: &dyn Peers,
) -> Report {
    let (mut wheel, mut output, mut random) = (Wheel::default(), Output::default(), Random::from_seed(0));
    let mut services = Services::default();
    let id = services.named(service).expect("is in the registry");
    let (service, _, others) = services.split(id);
    for (now, conn, line) in lines {
        let mut context = Context {
            now,
            epoch: Span::ZERO,
            id,
            timers: wheel.own(id.owner()),
            random: &mut random,
            output: &mut output,
            resumed: &mut Vec::new(),
            traffic,
            peers,
            process: &NoProcess,
            loop_stats: &LoopStats::default(),
            others: &others,
        };
        service.serve(ConnId::from_index(conn), Input { bytes: line.as_bytes(), seen: 0 }, &mut context);
    }
    service.report(now, traffic, peers)
}
