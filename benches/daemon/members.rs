//! The cases of the members: against the bare limit, and what grows with their number.

use super::cases::{case, is_installed};
use super::leases::{self, Takers};
use super::protocol::Protocol;
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::{instructions, load};
use std::io;

use Program::{Limit, Ours};
use Wanted::{AtMost, Nothing, RatioAtLeast};

/// Rounds of the cases that take several seconds each.
const FEW_ROUNDS: usize = 3;
/// How many members are very many, and how many in a run that only shows that a case works.
const MILLION: usize = 1_000_000;
const REHEARSAL: usize = 100;

/// All cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 64, 1_000].map(|clients| pair(clients, settings)).into();
    cases.extend([10, 100_000].map(|members| sizes(members, settings)));
    cases.push(queue(settings));
    cases.push(hand_over(settings));
    cases.extend([2, usize::MAX].map(|kinds| attributes(kinds, settings)));
    cases.push(cull(settings));
    cases.extend(is_installed("valgrind").then(|| instructions(settings)));
    cases
}

/// A take and a return of each client, and a member for each.
fn pair(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let measure = move |server: &Server| {
        leases::declare(server, clients, 1)?;
        load::play(server, clients, &mut Takers::new(clients), settings)
    };
    let name = format!("members, {clients} clients");
    case(Protocol::Members, name, &[Ours, Limit], speed(RatioAtLeast(0.95)), settings, measure)
}

/// The same of few clients, among so many members.
fn sizes(members: usize, settings: &Settings) -> Case<'_> {
    let members = if settings.is_rehearsal { members.min(REHEARSAL) } else { members };
    let clients = settings.connections(10);
    let measure = move |server: &Server| {
        leases::declare(server, members, 1)?;
        load::play(server, clients, &mut Takers::new(clients), settings)
    };
    let name = format!("{members} members, {clients} clients");
    case(Protocol::Members, name, &[Ours, Limit], speed(RatioAtLeast(0.95)), settings, measure)
}

/// Each client returns its member and waits for the next in one packet.
fn queue(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(1_000);
    let measure = move |server: &Server| {
        leases::declare(server, MEMBERS, 1)?;
        let values = load::play(server, clients, &mut Takers::in_a_queue(clients), settings)?;
        // Two replies for each that is handed over.
        Ok(vec![values[0] / 2.0, values[1] * 2.0])
    };
    let figures = [("members/s", Nothing), ("CPU us/member", Nothing)];
    let name = format!("{clients} wait for {MEMBERS} members");
    case(Protocol::Members, name, &[Ours], alone(figures), settings, measure)
}

/// How many members those have who wait.
const MEMBERS: usize = 10;

fn hand_over(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(1_000);
    let figures = [("us to the next, median", Nothing), ("us to the next, p99", Nothing)];
    let measure = move |server: &Server| leases::hand_over(server, clients, MEMBERS, settings);
    case(Protocol::Members, format!("one of {clients} gets it"), &[Ours], alone(figures), settings, measure)
}

/// Members with an attribute that has so many values.
fn attributes(kinds: usize, settings: &Settings) -> Case<'_> {
    let members = if settings.is_rehearsal { REHEARSAL } else { 10_000 };
    let kinds = kinds.min(members);
    let clients = settings.connections(64);
    let measure = move |server: &Server| {
        leases::declare(server, members, kinds)?;
        load::play(server, clients, &mut Takers::by_attribute(clients, kinds), settings)
    };
    let name = format!("{members} members, 1 of {kinds} fits");
    case(Protocol::Members, name, &[Ours, Limit], speed(Nothing), settings, measure)
}

fn cull(settings: &Settings) -> Case<'_> {
    let members = if settings.is_rehearsal { REHEARSAL } else { MILLION };
    let figures = [
        ("bytes/member, less name", AtMost(100.0)),
        ("others wait ms at most", Nothing),
        ("ms until all are stopped", Nothing),
        ("CPU us/member", Nothing),
    ];
    let measure = move |server: &Server| leases::cull(server, members);
    let case = case(Protocol::Members, format!("{members} members culled"), &[Ours], alone(figures), settings, measure);
    Case { rounds: case.rounds.min(FEW_ROUNDS), ..case }
}

fn instructions(settings: &Settings) -> Case<'_> {
    let pairs = if settings.is_rehearsal { 10 } else { 5_000 };
    let programs = if settings.is_rehearsal { vec![Ours] } else { vec![Ours, Limit] };
    let measure =
        move |program| -> io::Result<Values> { instructions::measure(program, Protocol::Members, pairs, settings) };
    let figures = vec![Figure { name: "instructions/reply", wanted: Nothing, against: Some(Limit) }];
    Case { name: "user space, members, 1 client".into(), programs, rounds: 1, figures, measure: Box::new(measure) }
}

fn speed(wanted: Wanted) -> Vec<Figure> {
    [("replies/s", wanted), ("CPU us/reply", Nothing)]
        .map(|(name, wanted)| Figure { name, wanted, against: Some(Limit) })
        .into()
}

fn alone<const N: usize>(figures: [(&'static str, Wanted); N]) -> Vec<Figure> {
    figures.map(|(name, wanted)| Figure { name, wanted, against: None }).into()
}
