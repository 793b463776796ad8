//! The table of cases: programs that take part, measurements, and goals for our daemon.

use super::memory::Idleness;
use super::players::{Mixed, Turns};
use super::protocol::Protocol;
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::timers::Due;
use super::{churn, deaths, instructions, load, memory, scraping, stampede, timers};
use std::io;
use std::path::Path;
use std::process::Command;

use Program::{C, Limit, Ours, Redis};
use Wanted::{AtMost, Nothing, RatioAtLeast, RatioAtMost};

/// Rounds of the cases that take several seconds each.
const FEW_ROUNDS: usize = 3;

/// Rule that allows what the clients do, and a rule with every limit.
const RULE: &str = "[[access]]\nname = \"all\"\nwho = [\"all\"]\nmay = [\"pools:Article:*\"]\n";
const EVERY_LIMIT: &str = "[[access]]\nname = \"all\"\nwho = [\"all\"]\nmay = [\"pools:Article:*\"]
max_connections = 20000\nmax_locks = 1000\nmax_waits = 10000\nmax_requests = 1000000\nmax_memory = 100000000\n";

/// Returns all cases, in the order of the table. Their sizes are limited by the system.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 64, 1_000, 10_000].map(|clients| pair(clients, settings)).into();
    cases.push(churn(settings));
    cases.push(pipeline(settings));
    cases.extend([64, 1_000].map(|clients| hot(clients, settings)));
    cases.push(mixed(settings));
    cases.push(stampede(settings));
    cases.push(deaths(settings));
    cases.extend([64, 10_000].map(|clients| scraped(clients, settings)));
    cases.extend([Due::Spread, Due::AtOnce].map(|due| timers(due, settings)));
    cases.extend([Idleness::Idle, Idleness::WaitForOne, Idleness::WaitForOwn].map(|what| memory(what, settings)));
    let load = |depth, rules| instructions::Load { protocol: Protocol::Lines, depth, rules, wanted: Nothing };
    let at_most = |most, load| instructions::Load { wanted: AtMost(most), ..load };
    let loads = [
        ("pair, 1 client", at_most(1_900.0, load(1, ""))),
        ("32 pairs a packet", at_most(560.0, load(32, ""))),
        ("a rule", load(1, RULE)),
        ("a rule, 32 pairs", load(32, RULE)),
        ("every limit", load(1, EVERY_LIMIT)),
        ("every limit, 32 pairs", load(32, EVERY_LIMIT)),
    ];
    cases.extend(loads.into_iter().filter_map(|(what, load)| instructions::case(what, load, settings)));
    cases
}

fn pair(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let figures = speed("replies/s", RatioAtLeast(0.95), "CPU us/reply", RatioAtMost(1.05));
    case(
        Protocol::Lines,
        format!("pair, {clients} clients"),
        &[Ours, Limit, C, Redis],
        figures,
        settings,
        move |server| load::play(server, clients, &mut Turns::pairs(server.program, clients), settings),
    )
}

fn churn(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(64);
    let mut figures = speed("connections/s", RatioAtLeast(1.0), "CPU us/connection", Nothing);
    figures.push(Figure { name: "slowest connect ms", wanted: AtMost(50.0), against: Some(Limit) });
    figures.push(Figure { name: "slowest lock ms", wanted: Nothing, against: Some(Limit) });
    case(Protocol::Lines, format!("churn, {clients} at a time"), &[Ours, Limit, C], figures, settings, move |server| {
        churn::measure(server, clients, settings)
    })
}

fn pipeline(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(64);
    let figures = speed("replies/s", RatioAtLeast(0.75), "CPU us/reply", Nothing);
    // The C daemon loses all but the first line of a packet.
    case(
        Protocol::Lines,
        format!("pipeline of 32 pairs, {clients}"),
        &[Ours, Limit],
        figures,
        settings,
        move |server| load::play(server, clients, &mut Turns::pipelines(clients, 32), settings),
    )
}

fn hot(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let mut figures = speed("replies/s", RatioAtLeast(1.0), "CPU us/reply", Nothing);
    figures.iter_mut().for_each(|figure| figure.against = Some(C));
    let play = move |server: &Server| load::play(server, clients, &mut Turns::hot(server.program, clients), settings);
    case(Protocol::Lines, format!("hot key, {clients} clients"), &[Ours, Limit, C], figures, settings, play)
}

fn mixed(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(64);
    let figures = speed("replies/s", RatioAtLeast(0.85), "CPU us/reply", Nothing);
    case(Protocol::Lines, format!("mixed, {clients} clients"), &[Ours, Limit, C], figures, settings, move |server| {
        load::play(server, clients, &mut Mixed::new(clients, 1_000), settings)
    })
}

fn stampede(settings: &Settings) -> Case<'_> {
    let waiters = settings.connections(10_000);
    let figures = speed("ms to last DONE", RatioAtMost(1.15), "CPU us/DONE", Nothing);
    case(Protocol::Lines, format!("stampede of {waiters}"), &[Ours, Limit, C], figures, settings, move |server| {
        stampede::measure(server, waiters, settings)
    })
}

fn deaths(settings: &Settings) -> Case<'_> {
    let count = settings.connections(15_000);
    let figures = [("others wait, p99 ms", AtMost(5.0)), ("at most, ms", Nothing)];
    let figures = figures.map(|(name, wanted)| Figure { name, wanted, against: Some(C) }).into();
    let measure = move |server: &Server| deaths::measure(server, count);
    case(Protocol::Lines, format!("{count} die at once"), &[Ours, Limit, C], figures, settings, measure)
}

fn scraped(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let figures = [
        ("replies/s", Nothing),
        ("replies/s scraped", Nothing),
        ("replies/s lost, %", AtMost(3.0)),
        ("CPU us/reply, + %", AtMost(3.0)),
    ];
    Case {
        name: format!("pair, {clients}, scraped"),
        programs: vec![Ours],
        rounds: settings.rounds,
        figures: figures.map(|(name, wanted)| Figure { name, wanted, against: None }).into(),
        measure: Box::new(move |_| scraping::measure(clients, settings)),
    }
}

fn timers(due: Due, settings: &Settings) -> Case<'_> {
    let (waiters, when) = match due {
        Due::Spread => (settings.connections(15_000), "in a second"),
        Due::AtOnce => (settings.connections(10_000), "at once"),
    };
    let p99 = if due == Due::Spread { AtMost(5.0) } else { Nothing };
    let figures =
        [("early", AtMost(0.0)), ("late ms, median", Nothing), ("late ms, p99", p99), ("late ms, most", Nothing)];
    let figures = figures.map(|(name, wanted)| Figure { name, wanted, against: None }).into();
    let programs: &[Program] = match due {
        Due::Spread if !settings.is_rehearsal => &[Ours, C],
        // The C daemon knows whole seconds only.
        Due::Spread | Due::AtOnce => &[Ours],
    };
    let measure = move |server: &Server| timers::measure(server, waiters, due, settings);
    let rounds = settings.rounds.min(FEW_ROUNDS);
    Case { rounds, ..case(Protocol::Lines, format!("{waiters} timers {when}"), programs, figures, settings, measure) }
}

fn memory(idleness: Idleness, settings: &Settings) -> Case<'_> {
    let (_, count) = memory::population(15_000, idleness, settings);
    let (what, most, programs): (_, _, &[Program]) = match idleness {
        Idleness::Idle => ("idle", 100.0, &[Ours, Limit, C]),
        Idleness::WaitForOne => ("wait for one key", 300.0, &[Ours, C]),
        Idleness::WaitForOwn => ("wait for own keys", 300.0, &[Ours, C]),
    };
    let figures = vec![Figure { name: "bytes/connection", wanted: AtMost(most), against: None }];
    let measure = move |server: &Server| memory::measure(server, 15_000, idleness, settings);
    let rounds = settings.rounds.min(FEW_ROUNDS);
    Case { rounds, ..case(Protocol::Lines, format!("{count} {what}"), programs, figures, settings, measure) }
}

/// Returns the figures for a speed and its cost.
fn speed(fast: &'static str, wanted: Wanted, cost: &'static str, wanted_cost: Wanted) -> Vec<Figure> {
    [(fast, wanted), (cost, wanted_cost)].map(|(name, wanted)| Figure { name, wanted, against: Some(Limit) }).into()
}

/// Returns a case with a new server for each round.
pub fn case<'a>(
    protocol: Protocol,
    name: String,
    programs: &[Program],
    figures: Vec<Figure>,
    settings: &'a Settings,
    measure: impl Fn(&Server) -> io::Result<Values> + 'a,
) -> Case<'a> {
    let measure = move |program| measure(&Server::start(program, protocol, settings)?);
    let programs = installed(programs);
    Case { name, programs, rounds: settings.rounds, figures, measure: Box::new(measure) }
}

/// Returns the installed programs.
pub fn installed(programs: &[Program]) -> Vec<Program> {
    programs.iter().copied().filter(|program| program.path().is_some()).collect()
}

/// Returns whether a program that is no server is installed.
pub fn is_installed(program: &str) -> bool {
    Command::new(Path::new(program)).arg("--version").output().is_ok()
}
