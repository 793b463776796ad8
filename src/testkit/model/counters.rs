//! Naive model of the counters: a vector of places and one of holdings, searched from end to end at every step. Written
//! from the description of the protocol, it shares no code with the daemon.

use super::Limits;

/// Time of day at the start of the world: noon, in microseconds since 1970.
const EPOCH_US: u64 = 1_788_177_600_000_000;
/// Estimated memory of a counter and of a holding, in bytes.
const COUNTER_BYTES: u64 = 64;
const HOLDING_BYTES: u64 = 32;

/// All counters and holdings, with totals.
#[derive(Default)]
pub struct Counters {
    limits: Limits,
    /// Counters in the order of a Dump. Freed places are reused, the last one first.
    places: Vec<Option<Counter>>,
    left: Vec<usize>,
    /// Number of places that a Dump visits: all that were used since there was no counter.
    visited: usize,
    holdings: Vec<Holding>,
    /// Number of the current interval.
    interval: u64,
    total: u64,
    sweeps: u64,
    freed: u64,
    /// Number of well-formed requests by opcode.
    requests: Vec<(u8, u64)>,
}

struct Counter {
    name: Vec<u8>,
    /// Highest consumption, and its interval.
    peak: (u64, u64),
    used_in: u64,
    /// Number of counters that had become free before this one did, if it is free.
    free_since: Option<u64>,
}

struct Holding {
    client: usize,
    name: Vec<u8>,
    resources: u64,
}

/// Reply to a whole frame.
pub enum Answer {
    Reply(Vec<u8>),
    /// Every counter, and then a reply without a body.
    Dump,
}

/// Returns a reply to this frame.
pub fn reply(frame: &[u8], status: u8, body: &[u8]) -> Vec<u8> {
    let opcode = if status == 0x81 { 0x12 } else { frame[1] };
    let mut reply = vec![0x91, opcode, status, 0];
    reply.extend((body.len() as u32).to_be_bytes());
    reply.extend(&frame[8..12]);
    reply.extend(body);
    reply
}

/// Returns the reply to an invalid frame.
pub fn invalid(frame: &[u8]) -> Vec<u8> {
    reply(frame, 0x04, b"Invalid arguments")
}

impl Counters {
    pub fn new(limits: Limits) -> Self {
        Counters { limits, ..Counters::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none) && self.holdings.is_empty()
    }

    /// Returns the end of the interval, if there is a counter that might end with it.
    pub fn deadline(&self, now: u64) -> Option<u64> {
        let us = self.limits.interval_us;
        self.places.iter().any(Option::is_some).then(|| ((EPOCH_US + now) / us + 1) * us - EPOCH_US)
    }

    /// Advances to the present: in another interval, free counters are dropped.
    pub fn turn(&mut self, now: u64) {
        let interval = (EPOCH_US + now) / self.limits.interval_us;
        if interval == self.interval {
            return;
        }
        self.interval = interval;
        if self.places.iter().any(Option::is_some) {
            self.sweeps += 1;
            self.free().into_iter().for_each(|place| self.drop_if_over(place));
        }
    }

    /// Restores the state in another process: the counters keep their places, and the first free place is reused first.
    /// Free counters count as used in the order of their places.
    pub fn hand_over(&mut self) {
        let used = self.places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.places.truncate(used);
        self.visited = used;
        self.left = (0..used).rev().filter(|place| self.places[*place].is_none()).collect();
        self.freed = used as u64;
        for (place, counter) in self.places.iter_mut().enumerate() {
            let free_since = counter.as_mut().and_then(|counter| counter.free_since.as_mut());
            free_since.into_iter().for_each(|since| *since = place as u64);
        }
    }

    /// Releases all units of a client, in the order of the places.
    pub fn leave(&mut self, client: usize, now: u64) {
        self.turn(now);
        for place in 0..self.places.len() {
            let Some(counter) = &self.places[place] else { continue };
            let name = counter.name.clone();
            if self.held(client, &name) > 0 {
                self.note_peak(place);
                self.hold(client, &name, 0);
                self.drop_if_over(place);
            }
        }
    }

    /// Answers a frame that is complete, except for irrelevant bytes.
    pub fn answer(&mut self, client: usize, frame: &[u8], goes_on: bool, now: u64, traffic: [usize; 2]) -> Answer {
        let (resources, maximum, name) = match fields(frame) {
            Ok(fields) => fields,
            Err(0x81) => return Answer::Reply(reply(frame, 0x81, b"Unknown command")),
            Err(_) => return Answer::Reply(invalid(frame)),
        };
        let opcode = frame[1];
        self.turn(now);
        if !goes_on {
            self.count(opcode);
        }
        let result = match opcode {
            0x01 => self.find(name).map(|_| self.consumption(name).to_vec()).ok_or(0x01),
            0x02 => self.acquire(client, name, resources, maximum).map(|()| (resources as u32).to_be_bytes().to_vec()),
            0x03 => self.release(client, name, resources).map(|()| Vec::new()),
            0x10 => Ok(self.stats(traffic)),
            0x11 => return Answer::Dump,
            _ => Ok(Vec::new()),
        };
        Answer::Reply(match result {
            Ok(body) => reply(frame, 0, &body),
            Err(0x01) => reply(frame, 0x01, b"Not found"),
            Err(0x21) => reply(frame, 0x21, b"Resource not available"),
            Err(0x22) => reply(frame, 0x22, b"Not acquired"),
            Err(status) => reply(frame, status, b"OutOfMemory"),
        })
    }

    /// Returns the number of places that a Dump visits.
    pub fn places(&self) -> usize {
        self.visited
    }

    /// Returns one reply to a Dump.
    pub fn record(&self, place: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let counter = self.places[place].as_ref()?;
        let consumption = self.sum(&counter.name);
        let (peak, interval) = counter.peak;
        let peak = if interval == self.interval { peak } else { consumption };
        let mut body = self.consumption(&counter.name).to_vec();
        body.extend((peak as u32).to_be_bytes());
        body.extend((counter.name.len() as u16).to_be_bytes());
        body.extend(&counter.name);
        Some(reply(frame, 0, &body))
    }

    fn acquire(&mut self, client: usize, name: &[u8], resources: u64, maximum: u64) -> Result<(), u8> {
        if self.sum(name) + resources > maximum {
            return Err(0x21);
        }
        let known = self.find(name);
        let held = self.held(client, name);
        let counter = if known.is_none() { COUNTER_BYTES + name.len() as u64 } else { 0 };
        let holding = if held == 0 { HOLDING_BYTES } else { 0 };
        if counter + holding > 0 {
            self.make_room(counter + holding, name)?;
        }
        let place = known.unwrap_or_else(|| self.make(name));
        self.note_peak(place);
        self.hold(client, name, held + resources);
        self.use_now(place);
        Ok(())
    }

    fn release(&mut self, client: usize, name: &[u8], resources: u64) -> Result<(), u8> {
        let place = self.find(name).ok_or(0x01)?;
        let held = self.held(client, name);
        if held == 0 || held < resources {
            return Err(0x22);
        }
        self.note_peak(place);
        self.hold(client, name, held - resources);
        self.use_now(place);
        Ok(())
    }

    /// Drops free counters, the one longest free first, if that gives room for this number of bytes.
    fn make_room(&mut self, bytes: u64, wanted: &[u8]) -> Result<(), u8> {
        let is_other = |place: &usize| self.places[*place].as_ref().is_some_and(|counter| counter.name != wanted);
        let free: Vec<usize> = self.free().into_iter().filter(is_other).collect();
        let size = |place: &usize| self.places[*place].as_ref().map_or(0, |c| COUNTER_BYTES + c.name.len() as u64);
        if self.memory() - free.iter().map(size).sum::<u64>() + bytes > self.limits.max_memory {
            return Err(0x82);
        }
        for place in free {
            if self.memory() + bytes > self.limits.max_memory {
                self.drop(place);
            }
        }
        Ok(())
    }

    /// Returns the places of free counters, the one longest free first.
    fn free(&self) -> Vec<usize> {
        let since = |place: usize| self.places[place].as_ref().and_then(|counter| counter.free_since);
        let mut free: Vec<usize> = (0..self.places.len()).filter(|place| since(*place).is_some()).collect();
        free.sort_by_key(|place| since(*place));
        free
    }

    fn make(&mut self, name: &[u8]) -> usize {
        self.total += 1;
        let counter =
            Counter { name: name.to_vec(), peak: (0, self.interval), used_in: self.interval, free_since: None };
        let place = self.left.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(counter);
        self.visited = self.visited.max(place + 1);
        place
    }

    /// Notes the consumption as a possible peak, before and after it changes.
    fn note_peak(&mut self, place: usize) {
        let interval = self.interval;
        let Some(name) = self.places[place].as_ref().map(|counter| counter.name.clone()) else { return };
        let consumption = self.sum(&name);
        if let Some(counter) = &mut self.places[place] {
            let peak = if counter.peak.1 == interval { counter.peak.0 } else { 0 };
            counter.peak = (peak.max(consumption), interval);
        }
    }

    fn use_now(&mut self, place: usize) {
        self.note_peak(place);
        if let Some(counter) = &mut self.places[place] {
            counter.used_in = self.interval;
        }
    }

    fn drop_if_over(&mut self, place: usize) {
        let is_over = |counter: &Counter| self.sum(&counter.name) == 0 && counter.used_in != self.interval;
        if self.places[place].as_ref().is_some_and(is_over) {
            self.drop(place);
        }
    }

    fn drop(&mut self, place: usize) {
        self.places[place] = None;
        self.left.push(place);
        if self.places.iter().all(Option::is_none) {
            self.visited = 0;
        }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.places.iter().position(|place| place.as_ref().is_some_and(|counter| counter.name == name))
    }

    fn sum(&self, name: &[u8]) -> u64 {
        self.holdings.iter().filter(|holding| holding.name == name).map(|holding| holding.resources).sum()
    }

    fn consumption(&self, name: &[u8]) -> [u8; 4] {
        (self.sum(name) as u32).to_be_bytes()
    }

    fn held(&self, client: usize, name: &[u8]) -> u64 {
        let own = self.holdings.iter().filter(|holding| holding.client == client && holding.name == name);
        own.map(|holding| holding.resources).sum()
    }

    fn hold(&mut self, client: usize, name: &[u8], resources: u64) {
        self.holdings.retain(|holding| holding.client != client || holding.name != name);
        if resources > 0 {
            self.holdings.push(Holding { client, name: name.to_vec(), resources });
        }
        let is_free = self.sum(name) == 0;
        let freed = self.freed;
        if let Some(counter) = self.places.iter_mut().flatten().find(|counter| counter.name == name) {
            self.freed += u64::from(is_free && counter.free_since.is_none());
            counter.free_since = is_free.then(|| counter.free_since.unwrap_or(freed));
        }
    }

    fn memory(&self) -> u64 {
        let counters = self.places.iter().flatten().map(|counter| COUNTER_BYTES + counter.name.len() as u64);
        counters.sum::<u64>() + self.holdings.len() as u64 * HOLDING_BYTES
    }

    fn count(&mut self, opcode: u8) {
        match self.requests.iter_mut().find(|(of, _)| *of == opcode) {
            Some((_, count)) => *count += 1,
            None => self.requests.push((opcode, 1)),
        }
    }

    fn stats(&self, [open, opened]: [usize; 2]) -> Vec<u8> {
        let requests = |opcode| self.requests.iter().find(|(of, _)| *of == opcode).map_or(0, |(_, count)| *count);
        let items = [
            ("objects", self.places.iter().flatten().count() as u64),
            ("total_objects", self.total),
            ("used_memory", self.memory()),
            // The daemon's number is random.
            ("conflicts", 0),
            ("gc_count", self.sweeps),
            // A sweep of so few takes no time.
            ("last_gc_elapsed", 0),
            ("total_gc_elapsed", 0),
            ("curr_connections", open as u64),
            ("total_connections", opened as u64),
            ("command:noop", requests(0x00)),
            ("command:get", requests(0x01)),
            ("command:acquire", requests(0x02)),
            ("command:release", requests(0x03)),
            ("command:stats", requests(0x10)),
            ("command:dump", requests(0x11)),
        ];
        let mut body = Vec::new();
        for (name, value) in items {
            let value = value.to_string();
            body.extend((name.len() as u16).to_be_bytes());
            body.extend((value.len() as u16).to_be_bytes());
            body.extend(name.bytes().chain(value.bytes()));
        }
        body
    }
}

/// Returns the resources, the maximum and the name of a request, as far as it has them, or the status of its refusal.
pub fn fields(frame: &[u8]) -> Result<(u64, u64, &[u8]), u8> {
    let body = &frame[12..];
    let fields = match (frame[0], frame[1]) {
        (0x90, 0x00 | 0x10 | 0x11) => Some((0, 0, &b""[..])),
        (0x90, 0x01) => read(body, 0).map(|(_, name)| (0, 0, name)),
        (0x90, 0x02) => read(body, 2).map(|(numbers, name)| (numbers[0], numbers[1], name)),
        (0x90, 0x03) => read(body, 1).map(|(numbers, name)| (numbers[0], 0, name)),
        (0x90, _) => return Err(0x81),
        _ => None,
    };
    let makes_sense =
        |(resources, maximum, _): &(u64, u64, &[u8])| frame[1] != 0x02 || (1..=*maximum).contains(resources);
    fields.filter(makes_sense).ok_or(0x04)
}

/// Reads this number of numbers, and a name.
fn read(body: &[u8], numbers: usize) -> Option<(Vec<u64>, &[u8])> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum * 256 + u64::from(*byte));
    let len = number(body.get(4 * numbers..4 * numbers + 2)?) as usize;
    let name = body.get(4 * numbers + 2..4 * numbers + 2 + len).filter(|name| !name.is_empty())?;
    Some((body[..4 * numbers].chunks(4).map(number).collect(), name))
}
