//! Texts of the toy and their waiters: a state machine without bytes and without the store.

use super::wire::Reply;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::random::Random;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, TimerKey, Timers};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Duration of a wait, as a range in percent of the requested time.
const JITTER_PERCENT: (u64, u64) = (100, 150);

/// Text that is to be stored later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaterId(u32);

impl Id for LaterId {
    fn from_index(index: usize) -> Self {
        LaterId(u32::try_from(index).expect("no test has so many"))
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Purpose of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// The wait of the connection has timed out.
    Wait(ConnId),
    /// A text is to be stored.
    Later(LaterId),
}

impl TimerKey for Key {
    fn pack(self) -> (u8, u32) {
        match self {
            Key::Wait(conn) => (0, conn.index() as u32),
            Key::Later(LaterId(number)) => (1, number),
        }
    }

    fn unpack(variant: u8, index: u32) -> Self {
        match variant {
            0 => Key::Wait(ConnId::from_index(index as usize)),
            1 => Key::Later(LaterId(index)),
            _ => unreachable!("the wheel gives back only what was armed"),
        }
    }
}

/// Event of a step.
pub enum Event {
    /// Reply to be sent at once.
    Reply(ConnId, Reply),
    /// Reply to be sent after the commit with this number.
    After(ConnId, u64, Reply),
    /// The wait of the connection is over.
    Resume(ConnId),
}

/// Resources of a step.
pub struct Step<'a, 'b> {
    pub now: Time,
    pub timers: &'a mut Timers<'b, Key>,
    pub random: &'a mut Random,
    pub events: &'a mut Vec<Event>,
}

struct Wait {
    conn: ConnId,
    number: u64,
    stays: bool,
    timer: TimerId,
}

struct Later {
    text: String,
    timer: TimerId,
}

/// The whole state.
pub struct State {
    /// Committed texts.
    texts: Vec<String>,
    /// Texts that are being committed, with the numbers of the commits.
    under_way: VecDeque<(u64, Vec<String>)>,
    /// Texts of the next commit.
    collected: Vec<String>,
    /// Number of the next commit.
    commit: u64,
    /// Number of crashes of the store.
    crashes: u64,
    /// Waits in the order in which they began.
    waits: BTreeMap<u32, Wait>,
    by_conn: HashMap<ConnId, u32>,
    laters: BTreeMap<u32, Later>,
    /// Number of waits and later texts so far.
    numbers: u32,
}

/// State that another process needs to continue.
#[derive(Serialize, Deserialize)]
pub struct SavedState {
    texts: Vec<String>,
    commit: u64,
    crashes: u64,
    timers: Vec<SavedTimer>,
}

#[derive(Serialize, Deserialize)]
enum SavedTimer {
    Wait { conn: ConnId, number: u64, stays: bool, deadline: Time },
    Later { text: String, deadline: Time },
}

impl Default for State {
    fn default() -> Self {
        State {
            texts: Vec::new(),
            under_way: VecDeque::new(),
            collected: Vec::new(),
            commit: 1,
            crashes: 0,
            waits: BTreeMap::new(),
            by_conn: HashMap::new(),
            laters: BTreeMap::new(),
            numbers: 0,
        }
    }
}

impl State {
    pub fn put(&mut self, conn: ConnId, text: &str, step: &mut Step<'_, '_>) {
        let (number, commit) = self.collect(text);
        step.events.push(Event::After(conn, commit, Reply::Stored(number, text.into())));
    }

    /// Adds a text to the next commit. Returns its number, and that of the commit.
    pub fn collect(&mut self, text: &str) -> (u64, u64) {
        self.collected.push(text.into());
        let under_way: usize = self.under_way.iter().map(|(_, texts)| texts.len()).sum();
        ((self.texts.len() + under_way + self.collected.len()) as u64, self.commit)
    }

    /// Returns the number of texts that are committed.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    pub fn get(&self, number: u64) -> Reply {
        self.text(number).map_or(Reply::Missing, |text| Reply::Text(number, text))
    }

    /// Starts a wait of the connection for a text; returns false if the text is there already.
    pub fn wait(&mut self, conn: ConnId, number: u64, patience: Span, stays: bool, step: &mut Step<'_, '_>) -> bool {
        if let Some(text) = self.text(number) {
            step.events.push(Event::Reply(conn, Reply::Text(number, text)));
            return false;
        }
        let span = step.random.jitter(patience, JITTER_PERCENT.0, JITTER_PERCENT.1);
        self.begin_wait(conn, number, stays, step.timers.arm(step.now + span, Key::Wait(conn)));
        true
    }

    pub fn later(&mut self, span: Span, text: &str, step: &mut Step<'_, '_>) {
        self.begin_later(text.into(), step.now + span, step.timers);
    }

    pub fn is_waiting(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    /// Handles the half-close of a waiting connection.
    pub fn hangup(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let wait = &self.waits[&self.by_conn[&conn]];
        if !wait.stays {
            step.timers.cancel(self.end_wait(conn).expect("it waits").timer);
            step.events.extend([Event::Reply(conn, Reply::Gone), Event::Resume(conn)]);
        }
    }

    pub fn expire(&mut self, key: Key, step: &mut Step<'_, '_>) {
        match key {
            Key::Wait(conn) => {
                self.end_wait(conn).expect("its timer was armed").timer.fired();
                step.events.extend([Event::Reply(conn, Reply::Late), Event::Resume(conn)]);
            }
            Key::Later(LaterId(number)) => {
                let later = self.laters.remove(&number).expect("its timer was armed");
                later.timer.fired();
                self.collected.push(later.text);
            }
        }
    }

    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        if let Some(wait) = self.end_wait(conn) {
            step.timers.cancel(wait.timer);
        }
        let watchers: Vec<_> = self.waits.values().filter(|wait| wait.number == 0).map(|wait| wait.conn).collect();
        for conn in watchers {
            step.timers.cancel(self.end_wait(conn).expect("it waits").timer);
            step.events.extend([Event::Reply(conn, Reply::Left), Event::Resume(conn)]);
        }
    }

    /// Takes the batch for the store, with the number of the commit and of the crashes.
    pub fn take_batch(&mut self) -> Option<(u64, u64, Vec<String>)> {
        if self.collected.is_empty() {
            return None;
        }
        let texts = std::mem::take(&mut self.collected);
        self.under_way.push_back((self.commit, texts.clone()));
        self.commit += 1;
        Some((self.commit - 1, self.crashes, texts))
    }

    /// Notes that the oldest batch is committed.
    pub fn committed(&mut self, commit: u64, step: &mut Step<'_, '_>) {
        let (oldest, texts) = self.under_way.pop_front().expect("the store has it from here");
        assert_eq!(oldest, commit, "the store commits in order");
        self.texts.extend(texts);
        let there = self.texts.len() as u64;
        let is_over = |wait: &&Wait| (1..=there).contains(&wait.number);
        let over: Vec<_> = self.waits.values().filter(is_over).map(|wait| (wait.conn, wait.number)).collect();
        for (conn, number) in over {
            step.timers.cancel(self.end_wait(conn).expect("it waits").timer);
            step.events.extend([Event::Reply(conn, self.get(number)), Event::Resume(conn)]);
        }
    }

    /// Drops everything that is not committed. Returns the number of the last failed commit.
    pub fn crashed(&mut self) -> u64 {
        self.crashes += 1;
        self.under_way.clear();
        self.commit - 1
    }

    pub fn is_quiet(&self) -> bool {
        self.collected.is_empty() && self.under_way.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.is_quiet() && self.waits.is_empty() && self.laters.is_empty()
    }

    pub fn background_timers(&self) -> usize {
        self.laters.len()
    }

    pub fn save(&self, timers: &Timers<'_, Key>) -> SavedState {
        let waits = self.waits.iter().map(|(order, wait)| {
            let Wait { conn, number, stays, .. } = *wait;
            (*order, SavedTimer::Wait { conn, number, stays, deadline: timers.deadline(&wait.timer) })
        });
        let laters = self.laters.iter().map(|(order, later)| {
            (*order, SavedTimer::Later { text: later.text.clone(), deadline: timers.deadline(&later.timer) })
        });
        let all: BTreeMap<u32, SavedTimer> = waits.chain(laters).collect();
        let timers = all.into_values().collect();
        SavedState { texts: self.texts.clone(), commit: self.commit, crashes: self.crashes, timers }
    }

    pub fn restore(&mut self, saved: SavedState, timers: &mut Timers<'_, Key>) {
        (self.texts, self.commit, self.crashes) = (saved.texts, saved.commit, saved.crashes);
        for timer in saved.timers {
            match timer {
                SavedTimer::Wait { conn, number, stays, deadline } => {
                    self.begin_wait(conn, number, stays, timers.arm(deadline, Key::Wait(conn)));
                }
                SavedTimer::Later { text, deadline } => self.begin_later(text, deadline, timers),
            }
        }
    }

    pub fn check(&self) {
        assert_eq!(self.waits.len(), self.by_conn.len());
        assert!(self.by_conn.iter().all(|(conn, order)| self.waits[order].conn == *conn));
        let there = self.texts.len() as u64;
        assert!(self.waits.values().all(|wait| !(1..=there).contains(&wait.number)), "what is there is waited for");
        assert!(self.under_way.iter().map(|(commit, _)| *commit).is_sorted());
        assert!(self.under_way.back().is_none_or(|(commit, _)| *commit < self.commit));
    }

    fn text(&self, number: u64) -> Option<String> {
        self.texts.get(usize::try_from(number.checked_sub(1)?).ok()?).cloned()
    }

    fn begin_wait(&mut self, conn: ConnId, number: u64, stays: bool, timer: TimerId) {
        self.numbers += 1;
        self.waits.insert(self.numbers, Wait { conn, number, stays, timer });
        let other = self.by_conn.insert(conn, self.numbers);
        assert_eq!(other, None, "a connection waits once at a time");
    }

    fn begin_later(&mut self, text: String, at: Time, timers: &mut Timers<'_, Key>) {
        self.numbers += 1;
        let timer = timers.arm(at, Key::Later(LaterId(self.numbers)));
        self.laters.insert(self.numbers, Later { text, timer });
    }

    fn end_wait(&mut self, conn: ConnId) -> Option<Wait> {
        self.waits.remove(&self.by_conn.remove(&conn)?)
    }
}
