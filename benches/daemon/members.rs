//! Cases of the members: against the bare limit, and the costs that grow with their number.

use super::cases::case;
use super::leases::{self, Takers};
use super::protocol::Protocol;
use super::report::{Case, Figure, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::{instructions, load};

use Program::{Limit, Ours};
use Wanted::{AtMost, Nothing, RatioAtLeast};

/// Rounds of the cases that take several seconds each.
const FEW_ROUNDS: usize = 3;
/// Number of members for "very many", and in a rehearsal.
const MILLION: usize = 1_000_000;
const REHEARSAL: usize = 100;

/// Returns all cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 64, 1_000].map(|clients| pair(clients, settings)).into();
    cases.extend([10, 100_000].map(|members| sizes(members, settings)));
    cases.push(queue(settings));
    cases.push(hand_over(settings));
    cases.extend([2, usize::MAX].map(|kinds| attributes(kinds, settings)));
    cases.push(cull(settings));
    let load = instructions::Load { protocol: Protocol::Members, depth: 1, rules: "", wanted: AtMost(3_300.0) };
    cases.extend(instructions::case("members, 1 client", load, settings));
    cases
}

/// Measures a take and a return of each client, with a member for each.
fn pair(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let measure = move |server: &Server| {
        leases::declare(server, clients, 1)?;
        load::play(server, clients, &mut Takers::new(clients), settings)
    };
    let name = format!("members, {clients} clients");
    case(Protocol::Members, name, &[Ours, Limit], speed(RatioAtLeast(0.95)), settings, measure)
}

/// Measures the same for few clients, among this number of members.
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

/// Measures clients that return their member and wait for the next in one packet.
fn queue(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(1_000);
    let measure = move |server: &Server| {
        leases::declare(server, MEMBERS, 1)?;
        let values = load::play(server, clients, &mut Takers::in_a_queue(clients), settings)?;
        // Two replies for each member that is handed over.
        Ok(vec![values[0] / 2.0, values[1] * 2.0])
    };
    let figures = [("members/s", Nothing), ("CPU us/member", Nothing)];
    let name = format!("{clients} wait for {MEMBERS} members");
    case(Protocol::Members, name, &[Ours], alone(figures), settings, measure)
}

/// Number of members for the waiters.
const MEMBERS: usize = 10;

fn hand_over(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(1_000);
    let figures = [("us to the next, median", Nothing), ("us to the next, p99", Nothing)];
    let measure = move |server: &Server| leases::hand_over(server, clients, MEMBERS, settings);
    case(Protocol::Members, format!("one of {clients} gets it"), &[Ours], alone(figures), settings, measure)
}

/// Measures members with an attribute that has this number of values.
fn attributes(kinds: usize, settings: &Settings) -> Case<'_> {
    let members = if settings.is_rehearsal { REHEARSAL } else { 10_000 };
    let kinds = kinds.min(members);
    let clients = settings.connections(64);
    let measure = move |server: &Server| {
        leases::declare(server, members, kinds)?;
        load::play(server, clients, &mut Takers::by_attribute(clients, kinds), settings)
    };
    let name = format!("{members} members, 1 of {kinds} fits");
    let wanted = RatioAtLeast(if kinds == members { 0.8 } else { 0.9 });
    case(Protocol::Members, name, &[Ours, Limit], speed(wanted), settings, measure)
}

fn cull(settings: &Settings) -> Case<'_> {
    let members = if settings.is_rehearsal { REHEARSAL } else { MILLION };
    let figures = [
        ("bytes/member, less name", AtMost(120.0)),
        ("others wait ms at most", Nothing),
        ("ms until all are stopped", Nothing),
        ("CPU us/member", Nothing),
    ];
    let measure = move |server: &Server| leases::cull(server, members);
    let case = case(Protocol::Members, format!("{members} members culled"), &[Ours], alone(figures), settings, measure);
    Case { rounds: case.rounds.min(FEW_ROUNDS), ..case }
}

fn speed(wanted: Wanted) -> Vec<Figure> {
    [("replies/s", wanted), ("CPU us/reply", Nothing)]
        .map(|(name, wanted)| Figure { name, wanted, against: Some(Limit) })
        .into()
}

fn alone<const N: usize>(figures: [(&'static str, Wanted); N]) -> Vec<Figure> {
    figures.map(|(name, wanted)| Figure { name, wanted, against: None }).into()
}
