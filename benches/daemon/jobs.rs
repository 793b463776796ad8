//! Cases of the jobs, compared with the bare limit and with beanstalkd, which has the same protocol.

use super::cases::case;
use super::protocol::Protocol;
use super::queues::{self, Cycle, Filling};
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::{instructions, load};
use std::io;

use Program::{Beanstalkd, Limit, Ours};
use Wanted::{AtMost, Nothing, RatioAtLeast, RatioAtMost};

/// Rounds of the cases that take several seconds each.
const FEW_ROUNDS: usize = 3;
/// Number of tubes of a service that has one for each wiki and type.
const TUBES: usize = 20_000;
/// Jobs a second of a round: more than any load reserves, so that none finds the queue empty.
const STOCK_PER_SECOND: f64 = 700_000.0;
const MILLION: usize = 1_000_000;

/// Returns all cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 16, 64].map(|clients| put(clients, settings)).into();
    cases.extend([1, 16, 64].map(|clients| reserve(clients, settings)));
    cases.push(tubes(settings));
    cases.push(priorities(settings));
    cases.push(pipeline(settings));
    cases.push(delayed(settings));
    cases.push(waiting(settings));
    cases.extend([0, 100].map(|body_bytes| memory(body_bytes, settings)));
    let load = instructions::Load { protocol: Protocol::Jobs, depth: 1, rules: "", wanted: AtMost(3_800.0) };
    cases.extend(instructions::case("jobs, 1 client", load, settings));
    cases
}

fn put(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    jobs(format!("jobs, put, {clients} clients"), speed("jobs/s", "CPU us/job"), settings, move |server| {
        Ok(per_job(&load::play(server, clients, &mut Cycle::puts(clients), settings)?, 1))
    })
}

fn reserve(clients: usize, settings: &Settings) -> Case<'_> {
    let (clients, stock) = (settings.connections(clients), stock(settings));
    let name = format!("jobs, reserve + delete, {clients}");
    jobs(name, speed("jobs/s", "CPU us/job"), settings, move |server| {
        queues::fill(server, &Filling { jobs: stock, ..Filling::default() })?;
        Ok(per_job(&load::play(server, clients, &mut Cycle::reserves(clients), settings)?, 2))
    })
}

fn tubes(settings: &Settings) -> Case<'_> {
    let (clients, tubes) = (settings.connections(64), size(TUBES, settings));
    let figures = vec![
        Figure { name: "jobs/s", wanted: RatioAtLeast(1.5), against: Some(Beanstalkd) },
        Figure { name: "CPU us/job", wanted: RatioAtMost(0.7), against: Some(Beanstalkd) },
        Figure { name: "slower than with one, %", wanted: AtMost(5.0), against: None },
    ];
    let measure = move |server: &Server| queues::with_tubes(server, tubes, clients, settings);
    case(Protocol::Jobs, format!("jobs, {tubes} tubes, {clients}"), &[Ours, Beanstalkd], figures, settings, measure)
}

fn priorities(settings: &Settings) -> Case<'_> {
    let (clients, stock) = (settings.connections(64), stock(settings));
    let name = format!("jobs, random priorities, {clients}");
    jobs(name, speed("jobs/s", "CPU us/job"), settings, move |server| {
        queues::fill(server, &Filling { jobs: stock, has_priorities: true, ..Filling::default() })?;
        Ok(per_job(&load::play(server, clients, &mut Cycle::with_priorities(clients), settings)?, 3))
    })
}

fn pipeline(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(64);
    let figures = vec![
        Figure { name: "jobs/s", wanted: RatioAtLeast(0.6), against: Some(Limit) },
        Figure { name: "CPU us/job", wanted: Nothing, against: Some(Limit) },
    ];
    let measure = move |server: &Server| {
        let mut cycle = Cycle::with_priorities(clients).pipelined(32);
        let values = per_job(&load::play(server, clients, &mut cycle, settings)?, 3);
        Ok(vec![values[0], values[2]])
    };
    case(Protocol::Jobs, format!("jobs, 32 in a packet, {clients}"), &[Ours, Limit], figures, settings, measure)
}

fn delayed(settings: &Settings) -> Case<'_> {
    let count = size(MILLION, settings);
    let figures = against_beanstalkd(["ms until all are ready", "others wait ms at most", "CPU us/job"], [Nothing; 3]);
    let measure = move |server: &Server| queues::delayed(server, count, settings);
    few(case(Protocol::Jobs, format!("jobs, {count} due at once"), &[Ours, Beanstalkd], figures, settings, measure))
}

fn waiting(settings: &Settings) -> Case<'_> {
    let count = settings.connections(10_000);
    let figures = against_beanstalkd(["ms to last RESERVED", "CPU us/job"], [Nothing, RatioAtMost(0.7)]);
    let measure = move |server: &Server| queues::waiting(server, count);
    few(case(Protocol::Jobs, format!("jobs, {count} wait"), &[Ours, Beanstalkd], figures, settings, measure))
}

fn memory(body_bytes: usize, settings: &Settings) -> Case<'_> {
    let count = size(MILLION, settings);
    let mut figures = against_beanstalkd(["resident bytes/job", "less the body"], [RatioAtMost(0.7), Nothing]);
    if body_bytes == 100 {
        figures[0].wanted = AtMost(210.0);
    }
    let name = format!("{count} jobs, {body_bytes} B bodies");
    few(case(Protocol::Jobs, name, &[Ours, Beanstalkd], figures, settings, move |server| {
        let before = server.resident()?;
        queues::fill(server, &Filling { jobs: count, body_bytes, ..Filling::default() })?;
        let bytes = server.resident()?.saturating_sub(before) as f64 / count as f64;
        Ok(vec![bytes, bytes - body_bytes as f64])
    }))
}

/// Returns a case with a bare limit.
fn jobs<'a>(
    name: String,
    figures: Vec<Figure>,
    settings: &'a Settings,
    measure: impl Fn(&Server) -> io::Result<Values> + 'a,
) -> Case<'a> {
    case(Protocol::Jobs, name, &[Ours, Limit, Beanstalkd], figures, settings, measure)
}

/// Returns the figures for the speed, compared with the bare limit and with beanstalkd, one of which must be met, and
/// for its cost. They are the first figures of a measurement.
fn speed(fast: &'static str, cost: &'static str) -> Vec<Figure> {
    vec![
        Figure { name: fast, wanted: RatioAtLeast(1.5), against: Some(Beanstalkd) },
        Figure { name: "or near the limit", wanted: RatioAtLeast(0.95), against: Some(Limit) },
        Figure { name: cost, wanted: RatioAtMost(0.7), against: Some(Beanstalkd) },
    ]
}

/// Returns the jobs a second, twice for the two comparisons, and the time for each, of a load with `replies` replies a
/// job.
pub fn per_job(values: &[f64], replies: u32) -> Values {
    let (speed, cost) = (values[0] / f64::from(replies), values[1] * f64::from(replies));
    vec![speed, speed, cost]
}

/// Returns the number of jobs for a round and the time before it.
pub fn stock(settings: &Settings) -> usize {
    (settings.time.as_secs_f64() * 1.25 * STOCK_PER_SECOND) as usize
}

pub fn size(many: usize, settings: &Settings) -> usize {
    if settings.is_rehearsal { 1_000 } else { many }
}

fn against_beanstalkd<const N: usize>(names: [&'static str; N], wanted: [Wanted; N]) -> Vec<Figure> {
    let figures = names.into_iter().zip(wanted);
    figures.map(|(name, wanted)| Figure { name, wanted, against: Some(Beanstalkd) }).collect()
}

pub fn few(case: Case<'_>) -> Case<'_> {
    Case { rounds: case.rounds.min(FEW_ROUNDS), ..case }
}
