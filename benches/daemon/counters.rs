//! Cases of the counters, compared with the bare limit and with yrmcds, which has the same protocol.

use super::cases::case;
use super::million::{self, Holders};
use super::players::Turns;
use super::protocol::Protocol;
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::{instructions, load};
use std::io;

use Program::{Limit, Ours, Yrmcds};
use Wanted::{AtMost, Nothing, RatioAtLeast, RatioAtMost};

/// Rounds of the cases that take several seconds each.
const FEW_ROUNDS: usize = 3;
/// Requests that a pipelining client has under way.
const DEPTH: usize = 32;
/// Lengths of names: shorter and longer than a pointer to one, and the length that malloc rounds up most.
const NAMES_BYTES: [usize; 4] = [8, 16, 25, 32];

/// Returns all cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 64, 1_000].map(|clients| pair(clients, settings)).into();
    cases.extend([1, 64, 1_000].map(|clients| pipeline(clients, settings)));
    cases.push(dump(settings));
    cases.push(grow(settings));
    cases.push(close(settings));
    cases.extend(NAMES_BYTES.map(|name_bytes| memory(name_bytes, settings)));
    cases.push(idle(settings));
    cases.extend(
        [(1, 15_000), (2, 15_000), (4, 15_000), (1_000, 1_000)].map(|(each, clients)| holders(each, clients, settings)),
    );
    let load = instructions::Load { protocol: Protocol::Frames, depth: 1, rules: "", wanted: Nothing };
    cases.extend(instructions::case("counters, 1 client", load, settings));
    cases
}

fn pair(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let name = format!("counters, {clients} clients");
    case(Protocol::Frames, name, &[Ours, Limit, Yrmcds], speed(RatioAtLeast(0.95)), settings, move |server| {
        play(server, clients, 1, settings)
    })
}

fn pipeline(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let name = format!("counters, {clients}, {DEPTH} deep");
    case(Protocol::Frames, name, &[Ours, Limit, Yrmcds], speed(Nothing), settings, move |server| {
        play(server, clients, DEPTH, settings)
    })
}

/// Returns the figures for replies per second and for the processor time of each, against both.
fn speed(wanted: Wanted) -> Vec<Figure> {
    [
        ("replies/s", wanted, Limit),
        ("replies/s, by yrmcds", Nothing, Yrmcds),
        ("CPU us/reply", Nothing, Limit),
        ("CPU us/reply, by yrmcds", RatioAtMost(0.5), Yrmcds),
    ]
    .map(|(name, wanted, against)| Figure { name, wanted, against: Some(against) })
    .into()
}

fn play(server: &Server, clients: usize, depth: usize, settings: &Settings) -> io::Result<Values> {
    let values = load::play(server, clients, &mut Turns::counters(clients, depth), settings)?;
    Ok(vec![values[0], values[0], values[1], values[1]])
}

fn dump(settings: &Settings) -> Case<'_> {
    let count = million::size(settings);
    let figures = against_yrmcds([("ms", Nothing), ("CPU ms", Nothing), ("peak KiB more", Nothing)]);
    let measure = move |server: &Server| million::dump(server, count);
    few(case(Protocol::Frames, format!("Dump of {count} counters"), &[Ours, Yrmcds], figures, settings, measure))
}

fn grow(settings: &Settings) -> Case<'_> {
    let count = 2 * million::size(settings);
    let figures = against_yrmcds([("slowest of 1000 pairs, ms", Nothing), ("pairs/s", Nothing)]);
    let measure = move |server: &Server| million::grow(server, count);
    few(case(Protocol::Frames, format!("growth to {count} counters"), &[Ours, Yrmcds], figures, settings, measure))
}

fn close(settings: &Settings) -> Case<'_> {
    let count = million::size(settings);
    let figures = against_yrmcds([("others wait ms at most", Nothing), ("ms until all is back", Nothing)]);
    let measure = move |server: &Server| million::close(server, count);
    few(case(Protocol::Frames, format!("counters, close with {count}"), &[Ours, Yrmcds], figures, settings, measure))
}

fn memory(name_bytes: usize, settings: &Settings) -> Case<'_> {
    let count = million::size(settings);
    let figures = against_yrmcds([("bytes/counter, less name", AtMost(64.0))]);
    let measure = move |server: &Server| million::memory(server, count, name_bytes);
    few(case(
        Protocol::Frames,
        format!("{count} counters, {name_bytes} B names"),
        &[Ours, Yrmcds],
        figures,
        settings,
        measure,
    ))
}

fn idle(settings: &Settings) -> Case<'_> {
    let clients = settings.connections(15_000);
    let figures = against_yrmcds([("bytes/connection", AtMost(200.0))]);
    let measure = move |server: &Server| million::idle(server, clients);
    few(case(Protocol::Frames, format!("counters, {clients} idle"), &[Ours, Yrmcds], figures, settings, measure))
}

fn holders(each: usize, clients: usize, settings: &Settings) -> Case<'_> {
    let holders = Holders { clients: settings.connections(clients), each };
    let figures = against_yrmcds([("bytes/holding", AtMost(32.0))]);
    let measure = move |server: &Server| million::holdings(server, holders);
    few(case(
        Protocol::Frames,
        format!("counters, {} hold {each}", holders.clients),
        &[Ours, Yrmcds],
        figures,
        settings,
        measure,
    ))
}

fn against_yrmcds<const N: usize>(figures: [(&'static str, Wanted); N]) -> Vec<Figure> {
    figures.map(|(name, wanted)| Figure { name, wanted, against: Some(Yrmcds) }).into()
}

fn few(case: Case<'_>) -> Case<'_> {
    Case { rounds: case.rounds.min(FEW_ROUNDS), ..case }
}
