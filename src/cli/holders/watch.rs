//! Who holds a lock or waits for it, looked at over and over: what has changed since the last look is told as events.

use super::state_of;
use crate::command::Failure;
use crate::exec::UNAVAILABLE;
use crate::terminal::{ascii_where_invisible, print, printable, warn};
use poolcounter_client::{Client, Error, ToldClaim};
use serde_json::json;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What is known of a pool, and where to look.
pub struct Watch<'a> {
    client: Client,
    key: &'a [u8],
    is_json: bool,
    begun: Instant,
    /// What there was at the last look.
    known: Vec<ToldClaim>,
    /// Whether the last look came to nothing.
    is_blind: bool,
}

/// What has happened to a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchEvent {
    /// It is there, and was not before.
    Came,
    /// It waited, and is held now.
    Granted,
    /// It is not there any more.
    Went,
}

impl WatchEvent {
    fn word(self) -> &'static str {
        match self {
            WatchEvent::Came => "came",
            WatchEvent::Granted => "granted",
            WatchEvent::Went => "went",
        }
    }
}

impl<'a> Watch<'a> {
    /// Nothing was looked at yet.
    pub fn new(client: Client, key: &'a [u8], is_json: bool) -> Watch<'a> {
        Watch { client, key, is_json, begun: Instant::now(), known: Vec::new(), is_blind: false }
    }

    /// Looks until it is ended, or nobody reads what it prints.
    ///
    /// # Errors
    ///
    /// When nothing can be printed, or the first look comes to nothing.
    pub fn run(mut self, interval: Duration) -> Result<ExitCode, Failure> {
        let mut is_first = true;
        loop {
            match self.client.claims(self.key) {
                Ok(claims) => {
                    self.is_blind = false;
                    let known = std::mem::replace(&mut self.known, claims);
                    for (event, claim) in changes(&known, &self.known) {
                        self.tell(event, claim)?;
                    }
                }
                Err(error @ Error::Unavailable(_)) if !is_first => {
                    if !self.is_blind {
                        warn(&format!("{error}; it is tried again"));
                    }
                    self.is_blind = true;
                }
                Err(error) => return Err(Failure { status: UNAVAILABLE, sentence: error.to_string() }),
            }
            is_first = false;
            thread::sleep(interval);
        }
    }

    fn tell(&self, event: WatchEvent, claim: &ToldClaim) -> Result<ExitCode, Failure> {
        let ToldClaim { peer, who, age, .. } = claim;
        let age = Duration::from(*age).as_secs_f64();
        if self.is_json {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            let state = state_of(claim);
            let event =
                json!({ "time": time, "event": event.word(), "state": state, "age": age, "client": peer, "who": who });
            return print(&format!("{}\n", ascii_where_invisible(&event.to_string())));
        }
        let name = if who.is_empty() { peer.clone() } else { format!("{who} at {peer}") };
        let what = match (event, claim.waits_for) {
            (WatchEvent::Came, None) => format!("holds a lock, for {age:.3} s now"),
            (WatchEvent::Came, Some(_)) => format!("waits, for {age:.3} s now"),
            (WatchEvent::Granted, _) => format!("has a lock after its wait, for {age:.3} s now"),
            (WatchEvent::Went, None) => format!("holds it no more; it did for {age:.3} s at the last look"),
            (WatchEvent::Went, Some(_)) => format!("waits no more; it did for {age:.3} s at the last look"),
        };
        let since = self.begun.elapsed().as_secs_f64();
        print(&format!("{since:.1} s: {} {what}\n", printable(name.as_bytes())))
    }
}

/// Returns what has happened between two looks, the end of old claims first.
fn changes<'c>(before: &'c [ToldClaim], now: &'c [ToldClaim]) -> Vec<(WatchEvent, &'c ToldClaim)> {
    // One that is as old as before, or older, is the same.
    let is_same = |old: &ToldClaim, new: &ToldClaim| {
        (&old.peer, &old.who, old.waits_for) == (&new.peer, &new.who, new.waits_for) && new.age >= old.age
    };
    let is_grant = |old: &ToldClaim, new: &ToldClaim| {
        (&old.peer, &old.who) == (&new.peer, &new.who) && old.waits_for.is_some() && new.waits_for.is_none()
    };
    // Each old claim stands for one of the new ones at most.
    let mut left: Vec<Option<&ToldClaim>> = before.iter().map(Some).collect();
    let mut take = |new: &ToldClaim, is_it: &dyn Fn(&ToldClaim, &ToldClaim) -> bool| {
        let found = left.iter_mut().find(|old| old.is_some_and(|old| is_it(old, new)));
        found.and_then(Option::take).is_some()
    };
    let new: Vec<&ToldClaim> = now.iter().filter(|claim| !take(claim, &is_same)).collect();
    let event = |claim: &&'c ToldClaim| match take(claim, &is_grant) {
        true => (WatchEvent::Granted, *claim),
        false => (WatchEvent::Came, *claim),
    };
    let came: Vec<_> = new.iter().map(event).collect();
    let went = left.into_iter().flatten().map(|claim| (WatchEvent::Went, claim));
    went.chain(came).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_client::Purpose;
    use poolcounter_core::time::Span;

    fn claim(peer: &str, waits_for: Option<Purpose>, age: u64) -> ToldClaim {
        ToldClaim { peer: peer.into(), who: "somebody".into(), waits_for, age: Span::from_secs(age) }
    }

    #[test]
    fn changes_are_printed_once() {
        let me = Some(Purpose::Me);
        let first = [claim("a", None, 5), claim("b", me, 4), claim("c", me, 3), claim("a", None, 2)];
        let told = |before: &[ToldClaim], now: &[ToldClaim]| {
            let changes = changes(before, now).into_iter();
            changes.map(|(event, claim)| (event, claim.peer.clone())).collect::<Vec<_>>()
        };
        assert_eq!(told(&first, &first), []);
        let later = [claim("a", None, 3), claim("b", None, 0), claim("d", me, 0)];
        let event = |event, peer: &str| (event, peer.to_string());
        assert_eq!(
            told(&first, &later),
            [
                event(WatchEvent::Went, "a"),
                event(WatchEvent::Went, "c"),
                event(WatchEvent::Granted, "b"),
                event(WatchEvent::Came, "d")
            ]
        );
        // It was given back and taken again between the looks.
        let again = [claim("a", None, 1)];
        assert_eq!(told(&later[..1], &again), [event(WatchEvent::Went, "a"), event(WatchEvent::Came, "a")]);
    }
}
