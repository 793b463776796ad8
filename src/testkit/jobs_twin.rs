//! The jobs service beside the naive model of it: both get the same requests, and must send the same replies.

use super::jobs::{Commits, Happened, Service};
use super::lately::Lately;
use super::model::jobs::Jobs;
use poolcounter_core::{Span, Time};
use poolcounter_jobs::state::{Bounds, JobId};
use std::collections::BTreeMap;

/// Time between two actions, in ms: each happens at a millisecond of its own in the second. Delays and TTRs are whole
/// seconds, so hardly anything is ever due together.
const STEP_MS: u64 = 3;

pub struct JobsTwin {
    service: Service,
    model: Jobs,
    conns: usize,
    /// Last job that each connection was given, for requests about it.
    pub held: Vec<u64>,
    pub tally: BTreeMap<String, u64>,
    done: Lately<String>,
}

impl JobsTwin {
    pub fn new(conns: usize, commits: Commits, seed: u64) -> JobsTwin {
        let service = Service::new(Bounds::default(), commits, seed);
        let model = Jobs::new(service.now.as_micros(), seed);
        let held = vec![1; conns];
        let mut twin = JobsTwin { service, model, conns, held, tally: BTreeMap::new(), done: Lately::default() };
        (0..conns).for_each(|conn| twin.say(conn, "list-tube-used"));
        twin
    }

    /// Returns whether events were due together in an unspecified order. Nothing after that is compared.
    pub fn is_tied(&self) -> bool {
        self.model.is_tied
    }

    /// Returns whether a connection waits in a reserve.
    pub fn is_waiting(&self, conn: usize) -> bool {
        self.model.is_waiting(conn)
    }

    /// Returns whether a command for this pattern has only one order of tubes, or no waiting connection that would see
    /// the order.
    pub fn is_ordered(&self, pattern: &str) -> bool {
        !self.model.somebody_waits() || self.model.matching(pattern) <= 1
    }

    /// Sends a request of a connection that does not wait.
    pub fn say(&mut self, conn: usize, text: &str) {
        self.pass(0);
        self.model.open(conn);
        let send = |service: &mut Service| service.send(conn, format!("{text}\r\n").as_bytes());
        self.act(&format!("{conn}> {text:?}"), send, |model| model.request(conn, text));
    }

    pub fn close(&mut self, conn: usize) {
        self.pass(0);
        self.act(&format!("{conn}x"), |service| service.close(conn), |model| model.close(conn));
        self.say(conn, "list-tube-used");
    }

    pub fn hang_up(&mut self, conn: usize) {
        self.act(&format!("{conn}~"), |service| service.hang_up(conn), |model| model.hang_up(conn));
    }

    pub fn take(&mut self) {
        self.act("take", Service::take, |_| {});
    }

    pub fn commit(&mut self) {
        self.pass(0);
        self.act("commit", Service::commit, |_| {});
    }

    /// Hands over to another process.
    pub fn hand_over(&mut self) {
        self.pass(0);
        self.act("upgrade", Service::hand_over, Jobs::hand_over);
    }

    /// Lets whole seconds pass, and a little more.
    pub fn pass(&mut self, seconds: u64) {
        let end = self.model.now + seconds * 1_000_000 + STEP_MS * 1_000;
        while !self.is_tied() {
            let next = self.model.next_due().filter(|next| *next <= end);
            let at = next.unwrap_or(end);
            self.model.now = at;
            let pass = |service: &mut Service| service.pass(Time::from_micros(at).since(service.now));
            self.act(&format!("at {at}"), pass, |model| {
                if next.is_some() {
                    model.expire();
                }
            });
            if next.is_none() {
                return;
            }
        }
    }

    /// Closes all connections, clears all jobs, and checks that nothing is left.
    pub fn end(&mut self) {
        (0..self.conns).for_each(|conn| self.service.close(conn));
        self.service.commit_all();
        self.service.send(0, b"clear *\r\nclear */*\r\nclear */*/*\r\n");
        self.service.close(0);
        self.service.pass(Span::from_secs(1));
        self.service.commit_all();
        self.service.state.check();
        assert!(self.service.state.is_empty(), "something is left");
        assert_eq!(self.service.wheel.len(), self.service.state.background_timers(), "a timer is left");
    }

    /// Applies an action to the service, then to the model, and compares their output.
    fn act(&mut self, what: &str, act: impl FnOnce(&mut Service), follow: impl FnOnce(&mut Jobs)) {
        if self.is_tied() {
            return;
        }
        self.done.note(what.into());
        self.service.happened = Some(Vec::new());
        act(&mut self.service);
        let happened = self.service.happened.take().unwrap_or_default();
        let reserved = happened.iter().filter_map(|one| match one {
            Happened::Reserved(conn, job) => Some((*conn, *job)),
            Happened::Taken(_) | Happened::Committed(_) => None,
        });
        self.model.hint(&reserved.collect::<Vec<_>>());
        follow(&mut self.model);
        if self.model.is_tied {
            return;
        }
        for one in &happened {
            match one {
                Happened::Taken(commit) => self.model.take(Some(*commit)),
                Happened::Committed(commit) => self.model.committed(*commit),
                Happened::Reserved(conn, job) => self.held[*conn] = *job,
            }
        }
        if self.service.is_all_taken() {
            self.model.take(None);
        }
        let now = self.service.now;
        self.model.settle_passed(|job| self.service.state.job_stats(JobId(job), now).is_some());
        for conn in 0..self.conns {
            compare(&mut self.service, &mut self.model, conn, &mut self.tally);
        }
        self.service.state.check();
    }
}

fn compare(service: &mut Service, model: &mut Jobs, conn: usize, tally: &mut BTreeMap<String, u64>) {
    loop {
        let (told, predicted) = (service.next(conn), model.next(conn));
        let (Some(told), Some(predicted)) = (&told, &predicted) else {
            assert_eq!(told, predicted, "what {conn} is told");
            return;
        };
        let word = told.split([' ', '\n']).next().unwrap_or_default();
        *tally.entry(word.into()).or_default() += 1;
        compare_reply(told, predicted, conn);
    }
}

/// Compares the output of a connection with the prediction of the model.
pub fn compare_reply(told: &str, predicted: &str, conn: usize) {
    match predicted.strip_prefix("OK\n") {
        None => assert_eq!(told, predicted, "what {conn} is told"),
        Some(lines) => compare_text(told, lines, conn),
    }
}

/// Checks that the text has exactly the lines that the model knows. Only jobs have an order: tubes are listed as they
/// come.
fn compare_text(told: &str, predicted: &str, conn: usize) {
    let mut own = items_of(told.lines().skip(1));
    let mut predicted = items_of(predicted.lines().filter(|line| !line.is_empty()));
    if !told.contains("- id:") {
        own.sort_unstable();
        predicted.sort_unstable();
    }
    let heads = |items: &[Vec<&str>]| items.iter().map(|item| item[0].to_string()).collect::<Vec<_>>();
    assert_eq!(heads(&own), heads(&predicted), "{conn} is told\n{told}");
    for (own, predicted) in own.iter().zip(&predicted) {
        let mut rest = own.iter();
        for line in predicted {
            let is_told =
                rest.any(|own| own == line || is_same_age(own, line) || without_client(own) == without_client(line));
            assert!(is_told, "{conn} is told\n{told}\nwithout {line} where it should be");
        }
    }
}

/// Compares ages over several tubes, which are exact to 2^20 us.
fn is_same_age(one: &str, other: &str) -> bool {
    let age = |line: &str| line.trim_start().strip_prefix("oldest-ready: ")?.parse::<f64>().ok();
    age(one).zip(age(other)).is_some_and(|(one, other)| (one - other).abs() < 1.05)
}

/// Returns the line of an error without the number of its client, which differs between simulations.
fn without_client(line: &str) -> String {
    let (before, client) = line.split_once("client").unwrap_or((line, ""));
    before.to_string() + client.trim_start_matches([':', '-']).trim_start_matches(|c: char| c.is_ascii_digit())
}

/// Returns the items of a list, with the lines of each. The lines before the first item are one, too.
fn items_of<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
    let mut items: Vec<Vec<&str>> = Vec::new();
    for line in lines {
        match items.last_mut() {
            Some(item) if !line.starts_with("- ") => item.push(line),
            _ => items.push(vec![line]),
        }
    }
    items
}
