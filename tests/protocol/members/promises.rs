//! Random histories of takes, returns, losses, cleaners, operators, upgrades and crashes of one pool of fixed members,
//! asserted against four promises alone: a member has one consumer at a time, is cleaned before the next one, is kept out
//! until it is repaired or freed, and all that is remembered over a restart. It is not predicted who gets what.

use super::kept::file;
use super::{OPERATOR, Player, one_of};
use poolcounter_core::slices::PER_TICK;
use poolcounter_protocol::members::pool_settings::OnLoss;
use poolcounter_testkit::seeds::{History, play, sum};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NAMES: [&str; 3] = ["a1", "a2", "a3"];
/// Clients: each takes and cleans.
const CLIENTS: usize = 4;
/// Seconds of a lease with `lease=`, and of the grace after a restart.
const LEASED: u64 = 30;
const GRACE: u64 = 60;

#[test]
fn random_histories_keep_the_promises() {
    let tally = sum(play("members-promises", |History { seed, steps }| Promises::new(seed).play(steps)));
    let told = |word: &str| tally.get(word).copied().unwrap_or(0);
    println!("{tally:?}");
    assert!(["MEMBER", "!CLEAN", "RENEWED", "!LOST expired"].iter().all(|word| told(word) > 0), "{tally:?}");
}

/// A lease that has not ended.
struct Lease {
    member: String,
    conn: Option<usize>,
    token: Option<String>,
    /// True if it outlives its connection.
    lasts: bool,
    /// End of its time.
    until: Option<u64>,
}

/// The pool, and what was promised.
struct Promises {
    player: Player,
    fails: bool,
    seconds: u64,
    leases: BTreeMap<u64, Lease>,
    /// Highest number of a lease.
    highest: u64,
    /// Members that were used since their last cleaning, that are in quarantine, and that are held.
    dirty: BTreeSet<String>,
    failed: BTreeSet<String>,
    held: BTreeSet<String>,
    /// Clients whose last take was with `lease=`.
    lasting: BTreeSet<usize>,
    /// Cleanings under way.
    cleaning: BTreeSet<(usize, String)>,
}

impl Promises {
    fn new(seed: u64) -> Promises {
        let budget = [2, 4, PER_TICK][(seed % 3) as usize];
        let mut promises = Promises {
            player: Player::new(seed, budget),
            fails: seed.is_multiple_of(2),
            seconds: 0,
            leases: BTreeMap::new(),
            highest: 0,
            dirty: BTreeSet::new(),
            failed: BTreeSet::new(),
            held: BTreeSet::new(),
            lasting: BTreeSet::new(),
            cleaning: BTreeSet::new(),
        };
        promises.restart();
        promises
    }

    fn play(mut self, steps: u64) -> BTreeMap<String, u64> {
        for _ in 0..steps {
            let conn = 1 + self.player.below(CLIENTS as u64) as usize;
            match self.player.below(24) {
                0 => self.close(conn),
                1 => self.player.upgrade(),
                2 => self.restart(),
                3 | 4 => {
                    let seconds = [1, 11, 61][self.player.below(3) as usize];
                    self.pass(seconds);
                }
                5..=7 => self.end_or_renew(conn),
                _ => self.ask(conn),
            }
            // Later ticks do the rest now.
            self.pass(0);
        }
        let tally = std::mem::take(&mut self.player.tally);
        self.player.end();
        tally
    }

    /// Ends leases as the losses of their consumers.
    fn lose(&mut self, is_lost: impl Fn(&Lease) -> bool) {
        let lost = self.leases.values().filter(|lease| self.fails && is_lost(lease));
        self.failed.extend(lost.map(|lease| lease.member.clone()));
        self.leases.retain(|_, lease| !is_lost(lease));
    }

    fn close(&mut self, conn: usize) {
        self.player.close(conn);
        self.cleaning.retain(|(by, _)| *by != conn);
        self.lose(|lease| lease.conn == Some(conn) && !lease.lasts);
    }

    fn restart(&mut self) {
        let mut declared = file(&NAMES);
        declared[0].settings.on_loss = if self.fails { OnLoss::Fail } else { OnLoss::Ok };
        self.player.restart(declared);
        self.cleaning.clear();
        for lease in self.leases.values_mut() {
            lease.conn = None;
            lease.until = if lease.lasts { lease.until } else { Some(self.seconds + GRACE) };
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.player.advance(Duration::from_secs(seconds));
        self.seconds += seconds;
        let now = self.seconds;
        self.lose(|lease| lease.until.is_some_and(|until| until <= now));
        self.listen();
    }

    /// Returns or renews a lease: by its token over another connection, or by its number. It is known over a restart.
    fn end_or_renew(&mut self, other: usize) {
        let Some(number) = self.leases.keys().copied().nth(self.player.below(3) as usize) else { return };
        let Lease { member, conn, token, lasts, .. } = &self.leases[&number];
        let (conn, name) = match (token, conn) {
            (Some(token), _) => (other, token.clone()),
            (None, Some(conn)) => (*conn, number.to_string()),
            (None, None) => return,
        };
        let (member, until) = (member.clone(), lasts.then_some(self.seconds + LEASED));
        let (line, answer) = match self.player.below(3) {
            0 => (format!("RETURN {name}"), "RETURNED"),
            1 => (format!("RETURN {name} FAIL"), "RETURNED"),
            _ if token.is_some() => (format!("RENEW {name}"), "RENEWED"),
            _ => return,
        };
        self.player.say(conn, &line, true);
        if answer == "RENEWED" {
            let lease = self.leases.get_mut(&number).expect("it was found");
            (lease.conn, lease.until) = (Some(conn), until);
        } else {
            self.leases.remove(&number);
            self.failed.extend(line.ends_with("FAIL").then_some(member));
        }
        assert!(self.listen().contains(&(conn, answer.into())), "{line}: the lease is remembered");
    }

    /// Says a line of a client or of the operator.
    fn ask(&mut self, conn: usize) {
        let member = one_of(&mut self.player, &NAMES).to_string();
        let lease = self.leases.keys().next().copied().unwrap_or(0);
        let asked = self.cleaning.iter().next().cloned();
        let (conn, line) = match (self.player.below(12), asked) {
            (0, _) => (conn, "CLEAN ci".into()),
            (1, _) => (conn, format!("CLEANING {member}")),
            (2..=4, Some((by, member))) => (by, format!("CLEANED {member}")),
            (5, Some((by, member))) => (by, format!("DEAD {member} why")),
            (2, None) => (conn, format!("{} {member}", one_of(&mut self.player, &["CLEANED", "DEAD"]))),
            (6, _) => (OPERATOR, format!("REPAIR ci {member}{}", one_of(&mut self.player, &["", "", " as_is"]))),
            (7, _) => (OPERATOR, one_of(&mut self.player, &["HOLD ci M 99999", "FREE ci M"]).replace('M', &member)),
            (8, _) if self.player.below(4) == 0 => (OPERATOR, format!("TAKEBACK {lease}")),
            _ => {
                let named = format!(" member={member}");
                let options = ["", " resume", " lease=30", &named];
                (conn, format!("TAKE ci {}{}", 40 * self.player.below(2), one_of(&mut self.player, &options)))
            }
        };
        self.player.say(conn, &line, true);
        let is_ok = self.player.has_heard(conn, "OK");
        if line.starts_with("TAKE ") && !self.player.has_heard(conn, "ERROR WAITING") {
            self.lasting.remove(&conn);
            self.lasting.extend(line.ends_with("lease=30").then_some(conn));
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["CLEANED", member] if self.cleaning.remove(&(conn, member.into())) => _ = self.dirty.remove(member),
            ["DEAD", member, ..] if self.cleaning.remove(&(conn, member.into())) => {}
            ["DEAD", member, ..] if is_ok => {
                self.cleaning.retain(|(_, cleaned)| cleaned != member);
                self.leases.retain(|_, lease| lease.member != member);
                self.failed.insert(member.into());
            }
            ["CLEANING", member] if is_ok => _ = self.cleaning.insert((conn, member.into())),
            ["REPAIR", _, member, ref as_is @ ..] => {
                self.failed.remove(member);
                if !as_is.is_empty() {
                    self.dirty.remove(member);
                }
            }
            ["HOLD", _, member, _] => _ = self.held.insert(member.into()),
            ["FREE", _, member] => _ = self.held.remove(member),
            ["TAKEBACK", _] if is_ok => {
                let lost = self.leases.remove(&lease);
                self.failed.extend(lost.filter(|_| self.fails).map(|lease| lease.member));
            }
            _ => {}
        }
    }

    /// Reads what was told, and compares it with the promises.
    fn listen(&mut self) -> Vec<(usize, String)> {
        let heard = |conn| self.player.heard(conn).into_iter().map(move |line| (conn, line));
        let told: Vec<(usize, String)> = (0..=CLIENTS).flat_map(heard).collect();
        let mut given = BTreeMap::new();
        for (conn, line) in &told {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["!CLEAN", _, member] => _ = self.cleaning.insert((*conn, member.into())),
                ["MEMBER", lease, _, member, ref token @ ..] => {
                    let token = token.first().map(|token| token.replace("token=", ""));
                    let lease: u64 = lease.parse().expect("a number");
                    given.insert(lease, (*conn, member.to_string(), token));
                }
                _ => {}
            }
        }
        for (number, (conn, member, token)) in given {
            assert!(number > self.highest, "the numbers of leases go up");
            self.highest = number;
            assert!(self.leases.values().all(|lease| lease.member != member), "{member} has one consumer at a time");
            assert!(!self.failed.contains(&member), "{member} is kept out until it is repaired");
            assert!(!self.held.contains(&member), "{member} is kept out until it is freed");
            assert!(self.dirty.insert(member.clone()), "{member} is cleaned before the next consumer");
            let lasts = self.lasting.contains(&conn) && token.is_some();
            let until = lasts.then_some(self.seconds + LEASED);
            self.leases.insert(number, Lease { member, conn: Some(conn), token, lasts, until });
        }
        told
    }
}
