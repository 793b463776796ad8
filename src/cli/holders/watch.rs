//! Follows the holders and waiters of a key by repeated requests: prints changes between two of them as events.

use super::state_of;
use crate::command::Failure;
use crate::terminal::{ascii_where_invisible, print, printable, warn};
use poolcounter_client::{Client, Error, ListedClaim};
use serde_json::json;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pool to follow, and its last known state.
pub struct Watch<'a> {
    client: Client,
    key: &'a [u8],
    is_json: bool,
    begun: Instant,
    /// Claims in the last reply.
    known: Vec<ListedClaim>,
    /// True if the last request failed.
    is_blind: bool,
}

/// Change of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WatchEvent {
    /// New claim.
    Came,
    /// A waiting claim that became a holder.
    Granted,
    /// A claim that ended.
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
    /// Returns the state before the first request.
    pub fn new(client: Client, key: &'a [u8], is_json: bool) -> Watch<'a> {
        Watch { client, key, is_json, begun: Instant::now(), known: Vec::new(), is_blind: false }
    }

    /// Repeats the request until the process ends or its reader is gone.
    ///
    /// # Errors
    ///
    /// Fails if nothing can be printed, or the first request fails.
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
                Err(error) => return Err(Failure::of(&error, error.to_string())),
            }
            is_first = false;
            thread::sleep(interval);
        }
    }

    fn tell(&self, event: WatchEvent, claim: &ListedClaim) -> Result<ExitCode, Failure> {
        let ListedClaim { peer, who, age, .. } = claim;
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
            (WatchEvent::Came, None) if claim.kept_for.is_some() => "has ended, and its lock is kept".into(),
            (WatchEvent::Went, None) if claim.kept_for.is_some() => "has its lock kept no longer".into(),
            (WatchEvent::Came, None) => format!("holds a lock, for {age:.3} s so far"),
            (WatchEvent::Came, Some(_)) => format!("waits, for {age:.3} s so far"),
            (WatchEvent::Granted, _) => format!("was granted the lock after its wait, {age:.3} s ago"),
            (WatchEvent::Went, None) => format!("no longer holds the lock; held it for {age:.3} s at the last poll"),
            (WatchEvent::Went, Some(_)) => format!("no longer waits; had waited for {age:.3} s at the last poll"),
        };
        let since = self.begun.elapsed().as_secs_f64();
        print(&format!("{since:.1} s: {} {what}\n", printable(name.as_bytes())))
    }
}

/// Returns the changes between two replies, ends of old claims first.
fn changes<'c>(before: &'c [ListedClaim], now: &'c [ListedClaim]) -> Vec<(WatchEvent, &'c ListedClaim)> {
    // A claim of the same age as before, or older, is the same one.
    let is_same = |old: &ListedClaim, new: &ListedClaim| {
        let kind = |claim: &ListedClaim| (claim.waits_for, claim.kept_for.is_some());
        (&old.peer, &old.who, kind(old)) == (&new.peer, &new.who, kind(new)) && new.age >= old.age
    };
    let is_grant = |old: &ListedClaim, new: &ListedClaim| {
        (&old.peer, &old.who) == (&new.peer, &new.who) && old.waits_for.is_some() && new.waits_for.is_none()
    };
    // Each old claim matches at most one new one.
    let mut left: Vec<Option<&ListedClaim>> = before.iter().map(Some).collect();
    let mut take = |new: &ListedClaim, is_it: &dyn Fn(&ListedClaim, &ListedClaim) -> bool| {
        let found = left.iter_mut().find(|old| old.is_some_and(|old| is_it(old, new)));
        found.and_then(Option::take).is_some()
    };
    let new: Vec<&ListedClaim> = now.iter().filter(|claim| !take(claim, &is_same)).collect();
    let event = |claim: &&'c ListedClaim| match take(claim, &is_grant) {
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

    fn claim(peer: &str, waits_for: Option<Purpose>, age: u64) -> ListedClaim {
        ListedClaim { peer: peer.into(), who: "somebody".into(), waits_for, age: Span::from_secs(age), kept_for: None }
    }

    #[test]
    fn changes_are_printed_once() {
        let me = Some(Purpose::Me);
        let first = [claim("a", None, 5), claim("b", me, 4), claim("c", me, 3), claim("a", None, 2)];
        let told = |before: &[ListedClaim], now: &[ListedClaim]| {
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
        // The lock was released and acquired again between the requests.
        let again = [claim("a", None, 1)];
        assert_eq!(told(&later[..1], &again), [event(WatchEvent::Went, "a"), event(WatchEvent::Came, "a")]);
    }
}
