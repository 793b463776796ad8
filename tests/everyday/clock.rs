//! The clock of the daemon is set. That is played in virtual time: no test may set the clock of its machine.

use super::parties::{CUT_OFF, WAITS};
use super::services::{GIVEN_BACK, SERVICES, Service, Store};
use super::{Cells, Scene};
use poolcounter_core::time::Span;
use poolcounter_testkit::world::{EPOCH, World};

const HOUR: u64 = 3_600_000_000;

const EVENTS: [(&str, Span); 2] = [
    ("the clock is set forward by an hour", Span::from_micros(EPOCH.as_micros() + HOUR)),
    ("the clock is set back by an hour", Span::from_micros(EPOCH.as_micros() - HOUR)),
];

/// Returns the scenes of the services whose jobs are in no database, which has a clock of its own.
pub fn scenes() -> Vec<Scene> {
    let scene = |(name, wall): (&'static str, Span)| {
        let services = SERVICES.iter().filter(|service| service.store != Store::Postgres);
        let rows = services.clone().map(|service| (service.heading, name)).collect();
        Scene { rows, play: Box::new(move |_| services.map(|service| play(service, wall)).collect()), is_slow: false }
    };
    EVENTS.map(scene).into()
}

fn play(service: &Service, wall: Span) -> Cells {
    let mut world = World::of_administrators();
    let client = |world: &mut World, request: &[u8]| {
        let client = world.connect_to(service.kind);
        world.send(client, request);
        world.settle();
        client
    };
    client(&mut world, service.prepare.0);
    let holder = client(&mut world, &(service.take)(0));
    let give_back = (service.give_back)(&world.take_received(holder));
    if service.is_kept {
        world.ask(holder, &give_back);
    }
    let waiter = service.has_waits.then(|| client(&mut world, &(service.take)(600)));
    world.set_clock(wall);
    world.advance(Span::from_secs(300));
    let see = |world: &mut World, client: usize| -> String {
        let received = world.take_received(client);
        match service.replies.iter().find(|(beginning, _)| received.starts_with(beginning)) {
            Some((_, meaning)) => (*meaning).into(),
            None if world.is_ended(client) => CUT_OFF.into(),
            None => WAITS.into(),
        }
    };
    let waiter = waiter.map_or("-".into(), |waiter| see(&mut world, waiter));
    let newcomer = client(&mut world, &(service.take)(0));
    let newcomer = see(&mut world, newcomer);
    let holder = match service.is_kept {
        true => "-".into(),
        false => {
            world.send(holder, &give_back);
            world.settle();
            let told = see(&mut world, holder);
            if told == GIVEN_BACK { "has it".into() } else { told }
        }
    };
    let mut seen = vec![holder, waiter, newcomer];
    if let Some(put) = service.put {
        let producer = client(&mut world, put);
        seen.push(see(&mut world, producer));
    }
    seen
}
