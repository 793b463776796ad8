//! The contract between the loop and a service, proved with a toy service over a fake store: replies that come later,
//! waits, half-closes, crashes of the store, an upgrade during a commit, caps and budgets. In the simulator, where the
//! store commits when the test says so, and over sockets, where it has a thread.

mod browsers;
mod budgets;
mod commits;
mod effects;
mod services;
mod sockets;
mod toy;
mod upgrades;
mod waits;

use poolcounter_service::container::AllSettings;
use poolcounter_testkit::world::World;
use services::SERVICES;
use toy::store::Store;

/// A server with the toy, and its store.
struct Stage {
    world: World,
    store: Store,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(AllSettings::defaults(SERVICES))
    }

    fn with(settings: AllSettings) -> Stage {
        let store = Store::install();
        Stage { world: World::of(SERVICES, settings), store }
    }

    fn connect(&mut self) -> usize {
        self.world.connect_to("toy")
    }

    /// Sends a text of a client, and does everything that can be done at once.
    fn send(&mut self, client: usize, text: &str) {
        self.world.send(client, text.as_bytes());
        self.settle();
    }

    /// Finishes all work that can be done at once.
    fn settle(&mut self) {
        self.world.settle();
        assert!(self.is_asleep(), "the loop spins");
    }

    /// Commits the oldest batch of the store, and notifies the service.
    fn commit(&mut self) {
        assert!(self.store.commit_one(), "there is something to commit");
        self.settle();
    }

    /// Returns the output to a client since the last call.
    fn heard(&mut self, client: usize) -> String {
        String::from_utf8(self.world.take_received(client)).expect("the toy speaks plain text")
    }

    /// Returns whether the loop would sleep now.
    fn is_asleep(&self) -> bool {
        self.world.next_work().is_none_or(|at| at > self.world.now())
    }

    /// Resets all clients, and checks that nothing is left, and that each connection was closed once.
    fn end(&mut self, clients: usize) {
        for client in 0..clients {
            self.world.reset(client);
        }
        self.settle();
        self.store.commit_all();
        self.settle();
        assert!(self.world.is_empty(), "something is left of a connection");
        assert_eq!(self.store.calls().closes, clients as u64, "the service is told once of each end");
    }
}
