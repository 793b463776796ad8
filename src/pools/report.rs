//! What the pools tell operators in one piece, as plain values.

use super::Pools;
use crate::report::{self, Holder, HotKey, Key, Type};
use crate::service::Peers;
use crate::sketch;
use crate::stats::Pools as Stat;
use crate::time::Time;

/// How many keys or holders a list of the report has at most.
pub const MOST_ROWS: usize = 20;

impl Pools {
    /// How the pools stand, without allocating.
    pub(super) fn standing(&self) -> report::Sample {
        let state = &self.state;
        report::Sample {
            acquired: state.count_of(Stat::TotalAcquired),
            refused: state.count_of(Stat::FullQueues),
            working: state.working(),
            waiting: state.waiting(),
        }
    }

    /// The pools as they are now, and what has happened in them. Each list has [`MOST_ROWS`] rows at most, but for that of
    /// the types, of which there are 257 at most; keys are cut to [`sketch::KEY_BYTES`].
    pub(super) fn tables(&self, now: Time, peers: &dyn Peers) -> report::Pools {
        let state = &self.state;
        report::Pools {
            types: state.types().into_iter().map(report_type).collect(),
            busiest: (state.busiest(MOST_ROWS).into_iter())
                .map(|busy| Key {
                    key: sketch::cut(busy.key).into(),
                    working: busy.working,
                    waiting: busy.waiting,
                    oldest: now.since(busy.since),
                })
                .collect(),
            hottest: (state.hottest(MOST_ROWS, now).into_iter())
                .map(|hot| HotKey { key: hot.key.into(), refusals: hot.refusals, waits: hot.waits })
                .collect(),
            hottest_error: state.hottest_error(now),
            holders: (state.longest_holders(MOST_ROWS).into_iter())
                .map(|client| Holder {
                    key: sketch::cut(client.key).into(),
                    peer: peers.peer(client.conn),
                    age: now.since(client.since),
                })
                .collect(),
        }
    }
}

fn report_type(one: &super::Type) -> Type {
    Type {
        name: one.name.clone(),
        working: one.working(),
        waiting: one.waiting(),
        acquired: one.acquired,
        done: one.done,
        full: one.full,
        timeouts: one.timeouts,
        waits: one.waits.clone(),
        holds: one.holds.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConnId, Id};
    use crate::output::Output;
    use crate::pulse::Pulse;
    use crate::random::Random;
    use crate::registry::Services;
    use crate::report::Report;
    use crate::service::{Context, Input, Traffic};
    use crate::time::Span;
    use crate::wheel::Wheel;

    struct Numbers;

    impl Peers for Numbers {
        fn peer(&self, conn: ConnId) -> String {
            format!("peer{}", conn.index())
        }
    }

    fn at(seconds: u64) -> Time {
        Time::START + Span::from_secs(seconds)
    }

    /// Has each connection say a line at a second of its own, and reports some time afterwards.
    fn report_after(lines: &[&str], seconds: u64) -> Report {
        let (mut wheel, mut output, mut random) = (Wheel::default(), Output::default(), Random::from_seed(0));
        let mut services = Services::default();
        let id = services.named("pools").expect("is in the registry");
        let (entry, others) = services.split(id);
        let traffic = Traffic { connect_errors: 7, ..Traffic::default() };
        for (n, line) in lines.iter().enumerate() {
            let mut context = Context {
                now: at(n as u64),
                epoch: Span::ZERO,
                id,
                timers: wheel.own(id.owner()),
                random: &mut random,
                output: &mut output,
                resumed: &mut Vec::new(),
                traffic: &traffic,
                peers: &Numbers,
                pulse: &Pulse::default(),
                others: &others,
            };
            entry.service.serve(ConnId::from_index(n), Input { bytes: line.as_bytes(), seen: 0 }, &mut context);
        }
        entry.service.report(at(seconds), &traffic, &Numbers)
    }

    #[test]
    fn a_report_tells_who_holds_what() {
        let report = report_after(
            &[
                "ACQ4ME a:1 1 9 9\n",
                "ACQ4ME b:2 1 2 9\n",
                "ACQ4ANY b:2 1 2 9\n",
                "ACQ4ME b:2 1 2 9\n",
                "ACQ4ME a:1 1 9 0\n",
                "ACQ4ME a:3 1 9 0\nRELEASE\n",
            ],
            10,
        );
        let figure = |name| report.figures.iter().find(|(row, _)| row.name == name).map(|(_, value)| *value);
        assert_eq!((figure("processing_workers"), figure("connect_errors")), (Some(2), Some(7)));
        let report = report.pools.expect("pools have tables");
        let types: Vec<_> = report.types.iter().map(|one| (&one.name[..], one.acquired, one.timeouts)).collect();
        assert_eq!(types, [(&b"a"[..], 2, 1), (b"b", 1, 0)]);
        let busiest: Vec<_> = report.busiest.iter().map(|key| (&key.key[..], key.working, key.waiting)).collect();
        assert_eq!(busiest, [(&b"b:2"[..], 1, 1), (b"a:1", 1, 0)]);
        assert_eq!(report.busiest[0].oldest, Span::from_secs(9));
        let hottest: Vec<_> = report.hottest.iter().map(|hot| (&hot.key[..], hot.refusals, hot.waits)).collect();
        assert_eq!((hottest, report.hottest_error), (vec![(&b"b:2"[..], 1, 1), (b"a:1", 1, 0)], 0));
        let holders: Vec<_> = report.holders.iter().map(|holder| (&holder.peer[..], holder.age)).collect();
        assert_eq!(holders, [("peer0", Span::from_secs(10)), ("peer1", Span::from_secs(9))]);
    }

    #[test]
    fn a_report_has_a_bound() {
        let lines: Vec<String> = (0..100).map(|n| format!("ACQ4ME {n}{} 1 9 0\n", "k".repeat(2_000))).collect();
        let report = report_after(&lines.iter().map(String::as_str).collect::<Vec<_>>(), 100);
        let report = report.pools.expect("pools have tables");
        assert_eq!((report.busiest.len(), report.holders.len()), (MOST_ROWS, MOST_ROWS));
        assert!(report.busiest.iter().all(|key| key.key.len() == sketch::KEY_BYTES));
        assert!(report.holders.iter().map(|holder| holder.age).is_sorted_by(|one, next| one > next));
    }
}
