//! Page of several daemons, made from given answers without threads and sockets: for tests of malicious ones.

use super::fetch::{HttpServer, read};
use super::{Fleet, INFO, LastAnswer, Watched};
use crate::resource::{Extent, Resource};
use crate::{metrics, page};
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::{NoProcessInfo, Process, Traffic};
use poolcounter_service::loop_stats::LoopStats;
use poolcounter_service::report::Moment;
use poolcounter_service::report::snapshot::{Remembered, Snapshot};
use poolcounter_service::report::{Overview, Report, ServiceReport};

/// Returns the page, its JSON and the metrics if the daemons, with these services, give these answers (head and body)
/// to the question for `path`; None if there is no such page, or all answers say so.
#[doc(hidden)]
pub fn shown(path: &str, services: &[&'static str], answers: &[&[u8]]) -> Option<[String; 3]> {
    let resource = Resource::at(path)?;
    let extent = Extent::of(resource, "");
    let (target, now) = (resource.target(extent.range)?, Time::START);
    let names = (0..answers.len()).filter_map(|n| HttpServer::parse(&format!("server{n}")));
    let mut fleet = Fleet::of(&names.collect::<Vec<_>>(), services);
    for (watched, answer) in fleet.servers.iter_mut().zip(answers) {
        watched.answer(&target, read(answer, services), now);
    }
    let (traffic, is_enabled) = (Traffic::default(), true);
    let report = Report { tables: vec![fleet.table(now)], ..Report::default() };
    let overview = Overview {
        services: vec![ServiceReport { name: INFO.name, title: "", option: "", traffic, is_enabled, report }],
    };
    let (loop_stats, usage) = (&LoopStats::default(), NoProcessInfo.usage());
    let moment =
        Moment { now, epoch: Span::ZERO, overview, loop_stats, health: Vec::new(), past: Vec::new(), usage, timers: 0 };
    let own = Snapshot::of(&moment, extent.room(), &Remembered::NOTHING);
    let merged = fleet.merged(&target, own, now)?.cut(extent.room());
    Some([page::render(&merged), merged.to_json(), metrics::render(&moment)])
}

impl Watched {
    /// Records an answer to a target.
    fn answer(&mut self, target: &str, told: Result<Option<Snapshot>, String>, now: Time) {
        self.told.insert(target.into(), LastAnswer { asked: now, at: now, snapshot: None });
        self.note(target, told, now);
    }
}
