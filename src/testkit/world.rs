//! The loop and its services without sockets and without a clock: streams are kept in memory, and time passes when the
//! test says so. Everything above the sockets is the daemon's own code.

use poolcounter::SERVICES;
use poolcounter_core::{ConnId, Id, Random, Reader, Span, Time, Unreadable, Writer};
use poolcounter_counters::CountersSettings;
use poolcounter_jobs::JobsSettings;
use poolcounter_members::MembersSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_server::{Connections, Host, Readiness, Stream, rehearse};
use poolcounter_service::access::Rule;
use poolcounter_service::container::{AllSettings, PerService, Services};
use poolcounter_service::contract::{Info, Wake};
use poolcounter_service::health::HealthLine;
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bound of the ticks until the loop rests: no test has so much to do, and a loop that goes on for longer spins.
const TICKS_TO_SETTLE: usize = 10_000;

/// Time for which a server goes on with a damaged handover.
const DAMAGED_FOR: Span = Span::from_secs(60);

/// Time of day at the start: noon, at the end of August 2026.
pub const EPOCH: Span = Span::from_secs(1_788_177_600);

/// Connection between a client and the server.
#[derive(Default)]
struct Link {
    /// Number of its client.
    client: usize,
    /// Address of the client, for rules of access.
    ip: Option<IpAddr>,
    /// True if the server cannot find out the address of the client.
    is_unknown: bool,
    to_server: VecDeque<u8>,
    to_client: Vec<u8>,
    /// Number of bytes that the client's side takes before it is full.
    room: usize,
    /// True if the client will send no more.
    finished: bool,
    /// True if the client has reset the connection.
    reset: bool,
    /// True if the server will send no more.
    server_finished: bool,
    /// Number of server's ends: two for the moment of an upgrade, none once the connection is dropped.
    pipes: u32,
}

/// Server's end of a link.
pub struct Pipe(Rc<RefCell<Link>>);

impl Pipe {
    fn new(link: &Rc<RefCell<Link>>) -> Pipe {
        link.borrow_mut().pipes += 1;
        Pipe(link.clone())
    }
}

/// Client's end of a link.
struct Client {
    link: Rc<RefCell<Link>>,
    id: ConnId,
}

/// A server and its clients, in which time stands still until the test moves it.
pub struct World {
    list: Vec<&'static Info>,
    settings: AllSettings,
    rules: Option<Vec<Rule>>,
    places: Option<PerService<u64>>,
    /// Time of day at the start, as the next server knows it.
    epoch: Span,
    /// Time of day at the start by the clock as it is set now, if it was set.
    wall: Option<Span>,
    /// The daemon's own part, for what needs no clock.
    pub connections: Connections<Pipe>,
    clients: Vec<Client>,
    now: Rc<Cell<Time>>,
    /// Span by which the clock advances each time it is read.
    step: Span,
    /// Number of servers so far, each with random numbers of its own.
    servers: u64,
    /// Bit for each service whose store has finished something since the last tick.
    woken: Arc<AtomicU32>,
}

impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut link = self.0.borrow_mut();
        match link.to_server.len() {
            _ if link.reset => Err(ErrorKind::ConnectionReset.into()),
            0 if link.finished => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
            // As a socket does, and a queue would not: reads all that is there, as far as there is room.
            len => {
                let len = len.min(bytes.len());
                link.to_server.drain(..len).zip(bytes).for_each(|(sent, byte)| *byte = sent);
                Ok(len)
            }
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut link = self.0.borrow_mut();
        match link.room.min(bytes.len()) {
            _ if link.reset => Err(ErrorKind::BrokenPipe.into()),
            0 => Err(ErrorKind::WouldBlock.into()),
            len => {
                link.room -= len;
                link.to_client.extend_from_slice(&bytes[..len]);
                Ok(len)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Pipe {
    fn finish(&mut self) -> io::Result<()> {
        self.0.borrow_mut().server_finished = true;
        Ok(())
    }

    fn peer(&self) -> io::Result<String> {
        Ok(format!("client:{}", self.0.borrow().client))
    }

    fn ip(&self) -> Option<IpAddr> {
        self.0.borrow().ip
    }

    fn is_known(&self) -> bool {
        !self.0.borrow().is_unknown
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.0.borrow_mut().pipes -= 1;
    }
}

impl Host for World {
    type Stream = Pipe;

    fn connections(&mut self) -> &mut Connections<Pipe> {
        &mut self.connections
    }

    fn clock(&self) -> impl Fn() -> Time + use<> {
        let (now, step) = (self.now.clone(), self.step);
        move || now.replace(now.get() + step)
    }

    fn wall(&self) -> impl Fn() -> Option<Span> + use<> {
        let wall = self.wall;
        move || wall
    }

    fn wait(&mut self, _: Time) -> io::Result<()> {
        let woken = self.woken.swap(0, Ordering::Relaxed);
        let ids = self.connections.services().ids();
        ids.filter(|id| woken >> id.index() & 1 != 0).for_each(|id| self.connections.mark_completed(id));
        Ok(())
    }

    fn accept(&mut self) {}
}

/// Returns settings by which all clients are administrators, with few buckets, so that a server is made quickly.
pub fn administered() -> AllSettings {
    AllSettings::defaults(SERVICES)
        .with(CountersSettings { buckets: 16, ..CountersSettings::default() })
        .with(MembersSettings { admin: Some(true), ..MembersSettings::default() })
        .with(JobsSettings { admin: true, ..JobsSettings::default() })
}

impl World {
    /// Returns a server without clients, at the time of its start, with these settings for the pools.
    pub fn new(pools: PoolsSettings) -> Self {
        World::with(AllSettings::defaults(SERVICES).with(pools))
    }

    /// Returns a server without clients, which will all be administrators, at the time of its start.
    pub fn of_administrators() -> Self {
        World::with(administered())
    }

    /// Returns a server without clients, at the time of its start.
    pub fn with(settings: AllSettings) -> Self {
        World::of(SERVICES, settings)
    }

    /// Returns a server of these services, without clients, at the time of its start.
    pub fn of(list: &[&'static Info], settings: AllSettings) -> Self {
        World::at(list, settings, EPOCH)
    }

    /// Returns a server of these services, without clients, that starts at this time of day.
    pub fn at(list: &[&'static Info], settings: AllSettings, epoch: Span) -> Self {
        World::begun(list, settings, epoch, (Time::START, 0))
    }

    /// Returns a server that starts when another one has crashed.
    pub fn after(crashed: &World, settings: AllSettings) -> Self {
        let epoch = crashed.wall.unwrap_or(crashed.epoch);
        World::begun(&crashed.list, settings, epoch, (crashed.now(), crashed.servers + 1))
    }

    fn begun(list: &[&'static Info], settings: AllSettings, epoch: Span, (now, former): (Time, u64)) -> Self {
        // No test here has a disk.
        let settings = settings.in_memory();
        let connections = Connections::new(Services::of(list, &settings), epoch, Random::from_seed(former));
        let mut world = World {
            list: list.to_vec(),
            settings,
            rules: Some(Vec::new()),
            places: None,
            epoch,
            wall: None,
            connections,
            clients: Vec::new(),
            now: Rc::new(Cell::new(now)),
            step: Span::ZERO,
            woken: Arc::default(),
            servers: former + 1,
        };
        world.attach();
        world.connections.configure(now);
        world
    }

    /// Attaches the stores of the services, with a bit of `woken` by which each wakes the loop.
    fn attach(&mut self) {
        let woken = &self.woken;
        self.connections.services().attach(|id| {
            let woken = woken.clone();
            Wake::new(move || {
                woken.fetch_or(1 << id.index(), Ordering::Relaxed);
            })
        });
    }

    /// Opens the stores of the services.
    ///
    /// # Errors
    ///
    /// The message of the first service that fails.
    pub fn begin(&mut self) -> Result<(), String> {
        let now = self.now();
        self.connections.begin(|_| true, now)
    }

    /// Sets the settings of the servers from the next upgrade on.
    pub fn set(&mut self, settings: AllSettings) {
        self.settings = settings.in_memory();
    }

    /// Sets the access rules.
    pub fn guard(&mut self, rules: Vec<Rule>) {
        self.rules = Some(rules);
        self.connections.guard(self.rules.clone());
    }

    /// Sets the access rules of the servers from the next upgrade on.
    pub fn rule(&mut self, rules: Vec<Rule>) {
        self.rules = Some(rules);
    }

    /// Limits each service to this many connections.
    pub fn limit(&mut self, places: u64) {
        self.limit_each(PerService::each(&self.list, |_| places));
    }

    /// Limits each service to its own number of connections.
    pub fn limit_each(&mut self, places: PerService<u64>) {
        self.connections.limit(places.clone());
        self.places = Some(places);
    }

    /// Sets the time of day at the start that the next servers assume.
    pub fn set_epoch(&mut self, epoch: Span) {
        self.epoch = epoch;
    }

    /// Sets the clock of the time of day: `wall` is its time at the start.
    pub fn set_clock(&mut self, wall: Span) {
        self.wall = Some(wall);
    }

    /// Removes the rules that the next servers would read.
    pub fn lose_rules(&mut self) {
        self.rules = None;
    }

    /// Returns the settings of the services.
    pub fn settings(&self) -> &AllSettings {
        &self.settings
    }

    /// Returns the time.
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Connects a client of the pools, and returns its number: clients are counted from 0 and never forgotten.
    pub fn connect(&mut self) -> usize {
        self.connect_to("pools")
    }

    /// Connects a client of some service.
    pub fn connect_to(&mut self, service: &str) -> usize {
        self.connect_with(Link::default(), service, false)
    }

    /// Connects a client of some service from an address.
    pub fn connect_from(&mut self, ip: &str, service: &str) -> usize {
        let ip = Some(ip.parse().expect("an address"));
        self.connect_with(Link { ip, ..Link::default() }, service, false)
    }

    fn connect_with(&mut self, link: Link, service: &str, is_proxied: bool) -> usize {
        let link = Link { client: self.clients.len(), room: usize::MAX, ..link };
        let link = Rc::new(RefCell::new(link));
        let id = self.connections.named(service).expect("is in the list");
        // A connection that was closed at once has no number, and none is used.
        let id = self.connections.admit(Pipe::new(&link), id, is_proxied, self.now.get());
        let id = id.unwrap_or(ConnId::from_index(0));
        self.clients.push(Client { link, id });
        self.clients.len() - 1
    }

    /// Connects a client of the pools whose address no server finds out.
    pub fn connect_unknown(&mut self) -> usize {
        self.connect_with(Link { is_unknown: true, ..Link::default() }, "pools", false)
    }

    /// Connects a proxy to some service, which has not sent its header yet.
    pub fn connect_proxy(&mut self, service: &str) -> usize {
        self.connect_with(Link::default(), service, true)
    }

    /// Hides the address of a client from all later servers.
    pub fn forget_address(&mut self, client: usize) {
        self.clients[client].link.borrow_mut().is_unknown = true;
    }

    /// Sends bytes of the client, which the server has not read yet.
    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].link.borrow_mut().to_server.extend(bytes);
        self.mark(client, Readiness { readable: true, ..Readiness::default() });
    }

    /// Sends bytes of the client, and returns its output at once.
    pub fn ask(&mut self, client: usize, bytes: &[u8]) -> Vec<u8> {
        self.send(client, bytes);
        self.settle();
        self.take_received(client)
    }

    /// Sends a text of the client, and returns its output at once.
    pub fn tell(&mut self, client: usize, text: &str) -> String {
        self.send(client, text.as_bytes());
        self.heard(client)
    }

    /// Settles, and returns the output to the client since the last call, as text.
    pub fn heard(&mut self, client: usize) -> String {
        self.settle();
        String::from_utf8(self.take_received(client)).expect("replies are text")
    }

    /// Sends bytes of the client in chunks of these sizes, takes `room` more bytes of the output after each, and closes
    /// the client's sending side. Then takes the rest of the output.
    pub fn send_in_chunks(&mut self, client: usize, bytes: &[u8], mut sizes: impl FnMut() -> usize, room: usize) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_ended(client) {
            let (chunk, later) = rest.split_at(sizes().clamp(1, rest.len()));
            self.set_room(client, room);
            self.send(client, chunk);
            if !later.is_empty() {
                self.settle();
            }
            rest = later;
        }
        self.finish(client);
        self.settle();
        self.set_room(client, usize::MAX);
        self.settle();
    }

    /// Closes the client's sending side.
    pub fn finish(&mut self, client: usize) {
        self.clients[client].link.borrow_mut().finished = true;
        self.mark(client, Readiness { readable: true, hangup: true, ..Readiness::default() });
    }

    /// Resets the client's connection; sent and unread bytes of both sides are lost.
    pub fn reset(&mut self, client: usize) {
        self.clients[client].link.borrow_mut().reset = true;
        self.mark(client, Readiness { readable: true, writable: true, hangup: true, lost: true });
    }

    /// Sets how many more bytes the client takes before its side of the connection is full. At first there is no limit.
    pub fn set_room(&mut self, client: usize, room: usize) {
        self.clients[client].link.borrow_mut().room = room;
        self.mark(client, Readiness { writable: room > 0, ..Readiness::default() });
    }

    /// Returns the bytes that the client has received since the last call.
    pub fn take_received(&mut self, client: usize) -> Vec<u8> {
        std::mem::take(&mut self.clients[client].link.borrow_mut().to_client)
    }

    /// Returns how many bytes of the client the server has not read.
    pub fn unread(&self, client: usize) -> usize {
        self.clients[client].link.borrow().to_server.len()
    }

    /// Returns whether the client sees the end of the connection.
    pub fn is_ended(&self, client: usize) -> bool {
        let link = self.clients[client].link.borrow();
        link.pipes == 0 || link.server_finished
    }

    /// Returns whether the server has dropped the connection.
    pub fn is_closed(&self, client: usize) -> bool {
        self.clients[client].link.borrow().pipes == 0
    }

    /// Runs one tick of the loop, without the sleep before it.
    pub fn tick(&mut self) {
        self.tick_slowly(Span::ZERO);
    }

    /// Runs one tick, in which the clock advances by `step` each time it is read while clients are served.
    pub fn tick_slowly(&mut self, step: Span) {
        self.step = step;
        Connections::tick(self).expect("waits for nothing");
        self.step = Span::ZERO;
        self.connections.check();
    }

    /// Runs one tick after which nothing is compared, for crowds.
    pub fn tick_unchecked(&mut self) {
        Connections::tick(self).expect("waits for nothing");
    }

    /// Lets this time pass, then ticks once, after which nothing is compared.
    pub fn tick_unchecked_after(&mut self, span: Span) {
        self.now.set(self.now() + span);
        self.tick_unchecked();
    }

    /// Returns whether a store has woken the loop since the last tick.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) != 0
    }

    /// Ticks until the loop would sleep.
    pub fn settle(&mut self) {
        for _ in 0..TICKS_TO_SETTLE {
            if !self.is_woken() && self.connections.next_work().is_none_or(|at| at > self.now()) {
                return;
            }
            self.tick();
        }
        panic!("the loop never sleeps");
    }

    /// Lets time pass, waking the loop at each of its deadlines.
    pub fn advance(&mut self, span: Span) {
        self.settle();
        let target = self.now() + span;
        while let Some(at) = self.connections.next_work().filter(|at| *at <= target) {
            self.now.set(self.now().max(at));
            self.settle();
        }
        self.now.set(target);
        self.settle();
    }

    /// Brings the services to rest for an upgrade, and returns whether they are.
    pub fn come_to_rest(&mut self) -> bool {
        self.connections.come_to_rest(self.now())
    }

    /// Resumes the services after an abandoned upgrade.
    pub fn go_on(&mut self) {
        self.connections.go_on(self.now());
    }

    /// Starts draining: the services take nothing new.
    pub fn drain(&mut self) {
        self.connections.drain(self.now());
    }

    /// Returns the id of the client's connection, which may be another's once it is closed.
    pub fn id_of(&self, client: usize) -> ConnId {
        self.clients[client].id
    }

    /// Returns the health of the services at the last check.
    pub fn health(&self) -> Vec<HealthLine> {
        self.connections.health()
    }

    /// Returns the time at which the loop would wake by itself.
    pub fn next_work(&self) -> Option<Time> {
        self.connections.next_work()
    }

    /// Replaces the server by another that takes over from it, as an upgrade does between two ticks. The new event
    /// queue announces at once which connections are readable and which have room.
    pub fn upgrade(&mut self) {
        self.upgrade_within(Span::ZERO);
    }

    /// Finishes the work that an upgrade waits for, unless that is a store's part.
    fn quiesce(&mut self) {
        if self.connections.come_to_rest(self.now()) {
            return self.connections.pause(false);
        }
        self.connections.quiesce(self.now());
        if !self.connections.is_quiet() {
            // The end of a connection has given a service more work.
            self.connections.quiesce(self.now());
        }
        self.connections.pause(false);
    }

    /// Replaces the server by another that takes over from it after this time.
    pub fn upgrade_within(&mut self, span: Span) {
        self.quiesce();
        let saved = self.save();
        self.now.set(self.now() + span);
        self.rehearse(&saved).expect("can be taken over");
        let open: Vec<usize> = (0..self.clients.len()).filter(|client| !self.is_closed(*client)).collect();
        let link_of = |id| open.iter().map(|client| &self.clients[*client]).find(|client| client.id == id);
        let stream_of = |id| Ok(Pipe::new(&link_of(id).expect("every connection has a client").link));
        let connections = self.restored(&saved, stream_of).expect("is taken over");
        self.take(connections);
        let news_of = |client: usize| {
            let link = self.clients[client].link.borrow();
            let hangup = link.finished || link.reset;
            let readable = hangup || !link.to_server.is_empty();
            (self.clients[client].id, Readiness { readable, writable: link.room > 0, hangup, lost: link.reset })
        };
        let news = open.into_iter().map(news_of).collect();
        self.connections.mark_unordered(news);
        self.connections.check();
    }

    /// Starts a server on a handover with a wrong bit, and drops it. Unless its rehearsal fails, by an error or by an
    /// assertion, it serves the end of each client. `bit_of` chooses one of that many bits.
    pub fn try_damaged_upgrade(&mut self, bit_of: impl FnOnce(usize) -> usize) {
        self.quiesce();
        let mut saved = self.save();
        let bit = bit_of(saved.len() * 8);
        saved[bit / 8] ^= 1 << (bit % 8);
        // A rehearsal has a process of its own, and may end it.
        let rehearsed = panic::catch_unwind(AssertUnwindSafe(|| self.rehearse(&saved)));
        if !matches!(rehearsed, Ok(Ok(()))) {
            return;
        }
        let mut world = World::at(&self.list, self.settings.clone(), self.epoch);
        world.now.set(self.now());
        let mut clients = Vec::new();
        let stream_of = |id| {
            let link = Link { room: usize::MAX, client: clients.len(), ..Link::default() };
            clients.push(Client { link: Rc::new(RefCell::new(link)), id });
            Ok(Pipe::new(&clients.last().expect("was added").link))
        };
        let connections = world.restored(&saved, stream_of).expect("a rehearsal reads what a takeover reads");
        world.clients = clients;
        world.take(connections);
        world.advance(DAMAGED_FOR);
        (0..world.clients.len()).for_each(|client| world.reset(client));
        world.settle();
    }

    /// Returns what the server hands over now.
    fn save(&mut self) -> Vec<u8> {
        let (mut saved, now) = (Vec::new(), self.now());
        self.connections.save(&mut Writer::new(&mut saved), now).expect("memory takes all");
        saved
    }

    /// Returns services without state, with the settings of the next server.
    fn fresh(&self) -> Services {
        Services::of(&self.list, &self.settings)
    }

    fn rehearse(&self, mut saved: &[u8]) -> Result<(), Unreadable> {
        let open = (0..self.clients.len()).filter(|client| !self.is_closed(*client));
        let mut open: HashSet<ConnId> = open.map(|client| self.clients[client].id).collect();
        let time = (self.now(), self.epoch);
        rehearse(self.fresh(), &mut Reader::new(&mut saved), time, |id| open.remove(&id)).map(drop)
    }

    fn restored(
        &self,
        mut saved: &[u8],
        stream_of: impl FnMut(ConnId) -> io::Result<Pipe>,
    ) -> Result<Connections<Pipe>, Unreadable> {
        let (time, random) = ((self.now(), self.epoch), Random::from_seed(self.servers + 1));
        Connections::restore(self.fresh(), &mut Reader::new(&mut saved), time, random, stream_of, false)
    }

    /// Makes these the connections of the server.
    fn take(&mut self, connections: Connections<Pipe>) {
        self.connections = connections;
        self.servers += 1;
        self.connections.guard(self.rules.clone());
        self.places.iter().for_each(|places| self.connections.limit(places.clone()));
        self.attach();
        self.connections.configure(self.now());
    }

    /// Returns whether nothing is left of any connection.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    fn mark(&mut self, client: usize, news: Readiness) {
        let Client { link, id } = &self.clients[client];
        // A dropped connection gets no events, and its number may be another's.
        if link.borrow().pipes > 0 {
            self.connections.mark(*id, news);
        }
    }
}
