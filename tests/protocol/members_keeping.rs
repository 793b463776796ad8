//! The conversations of `tests/conversations/members_kept.txt`, whose head has the words for the ledger: replies that
//! wait for it, and restarts, after which another process reads it.

use poolcounter_core::time::Span;
use poolcounter_members::ledger::{Change, Event, Ledger, Row};
use poolcounter_members::state::{DeclaredMember, DeclaredPool};
use poolcounter_members::{self as members, Members, MembersSettings};
use poolcounter_protocol::members::pool_settings::{OnLoss, Settings};
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::{Info, Service, Wake};
use poolcounter_service::options::Opt;
use poolcounter_service::settings::{self, Configure};
use poolcounter_testkit::player::play_file;
use poolcounter_testkit::protocol::Protocol;
use poolcounter_testkit::script::Scenario;
use poolcounter_testkit::virtual_target::VirtualTarget;
use poolcounter_testkit::world::{EPOCH, World};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

thread_local! {
    /// Ledger of the services that are made on this thread: an entry of the registry has no room for one.
    static CURRENT: RefCell<Paper> = RefCell::default();
}

/// Entry of the registry: the members, with this ledger.
static INFO: Info = Info { settings: settings::defaults::<PaperSettings>, ..members::INFO };

#[derive(Clone, PartialEq, Debug, Default)]
struct PaperSettings(MembersSettings);

impl Configure for PaperSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        Box::new(Members::with_ledger(self.0.clone(), Box::new(CURRENT.with_borrow(Clone::clone))))
    }
}

/// Ledger that outlives the servers of a test.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    wake: Option<Wake>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Writes that are not durable, each with true if it replaces all rows.
    pending: VecDeque<(bool, Vec<Change>)>,
    commits: u64,
    news: VecDeque<Event>,
    /// True if every write is durable at once.
    is_quick: bool,
}

impl Paper {
    /// Returns a new ledger, which services that are made on this thread from now on use.
    fn install() -> Paper {
        let paper = Paper::default();
        CURRENT.set(paper.clone());
        paper
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no test panics while it holds it")
    }

    fn tell(&self, news: Event) {
        let mut desk = self.desk();
        desk.news.push_back(news);
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
    }

    /// Makes every write durable, and returns the number of writes.
    fn commit(&self) -> usize {
        let mut desk = self.desk();
        let pending = std::mem::take(&mut desk.pending);
        for (replaces, changes) in &pending {
            if *replaces {
                desk.rows.clear();
            }
            for Change { key, value } in changes {
                match value {
                    Some(value) => _ = desk.rows.insert(key.clone(), value.clone()),
                    None => _ = desk.rows.remove(key),
                }
            }
        }
        let commits = desk.commits;
        drop(desk);
        self.tell(Event::Committed(commits));
        pending.len()
    }

    /// Tells a process that has opened it all rows.
    fn open(&self) {
        let rows = self.desk().rows.clone().into_iter().collect();
        self.tell(Event::Rows(rows));
        self.tell(Event::Opened);
    }

    fn add(&self, replaces: bool, changes: Vec<Change>) -> u64 {
        let mut desk = self.desk();
        desk.pending.push_back((replaces, changes));
        desk.commits += 1;
        let (commits, is_quick) = (desk.commits, desk.is_quick);
        drop(desk);
        if is_quick {
            self.commit();
        }
        commits
    }
}

impl Ledger for Paper {
    fn attach(&mut self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    fn place(&self) -> String {
        "paper".into()
    }

    fn write(&mut self, changes: Vec<Change>) -> u64 {
        self.add(false, changes)
    }

    fn replace(&mut self, rows: Vec<Row>) -> u64 {
        self.add(true, rows.into_iter().map(|(key, value)| Change { key, value: Some(value) }).collect())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.desk().news.pop_front()
    }

    fn end(&mut self) {}
}

/// Returns the settings of a process whose file has a pool with these members, if there are any.
fn settings(names: &[&str]) -> AllSettings {
    let of_pool = Settings {
        max: 5,
        on_loss: OnLoss::Ok,
        clean_timeout: Span::from_secs(600),
        cull_interval: Span::ZERO,
        ..Settings::default()
    };
    let fixed: Vec<_> =
        names.iter().map(|name| DeclaredMember { name: name.as_bytes().into(), attributes: Vec::new() }).collect();
    let pool = DeclaredPool { name: b"ci"[..].into(), settings: of_pool, fixed };
    let pools = if names.is_empty() { Vec::new() } else { vec![pool] };
    let (admin, store) = (Some(true), members::StoreKind::Memory);
    AllSettings::defaults(&[&INFO]).with(PaperSettings(MembersSettings { admin, store, pools, ..Default::default() }))
}

#[test]
fn members_outlive_restarts_as_the_script_says() {
    play_file("tests/conversations/members_kept.txt", Protocol::Members, |Scenario { options, .. }| {
        let paper = Paper::install();
        let names: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut world = World::of(&[&INFO], settings(&names));
        world.begin().expect("it begins");
        let happen = move |world: &mut World, words: &str| happen(world, &paper, words);
        VirtualTarget::of(Protocol::Members, world, Box::new(happen))
    });
}

/// Lets something happen to a process or to its ledger.
fn happen(world: &mut World, paper: &Paper, words: &str) -> Result<bool, String> {
    let mut all = words.split(' ');
    let (word, rest): (&str, Vec<&str>) = (all.next().unwrap_or_default(), all.collect());
    let is_so = match word {
        "commit" => paper.commit().to_string() == rest.concat(),
        "rest" => world.come_to_rest(),
        "no" => !world.come_to_rest(),
        "reports" => {
            let health = world.health();
            let mut conditions = health.iter().flat_map(|line| &line.conditions);
            conditions.any(|on| on.condition.sentence.contains(&rest.join(" ")))
        }
        _ => true,
    };
    match word {
        "commit" | "rest" | "no" | "reports" => {}
        "rows" => paper.open(),
        "fails" => paper.tell(Event::Failing("the disk is full".into())),
        "works" => paper.tell(Event::Works),
        "clock" => {
            let seconds: i64 = rest.concat().parse().map_err(|_| "no number of seconds")?;
            world.set_clock(Span::from_micros(EPOCH.as_micros().saturating_add_signed(seconds * 1_000_000)));
        }
        "unreadable" => paper.tell(Event::Unreadable("it is a directory".into())),
        "go" => world.go_on(),
        "lost" => {
            paper.desk().rows.clear();
            paper.tell(Event::Rewrite);
        }
        "quick" | "end" => {
            if !std::mem::replace(&mut paper.desk().is_quick, true) {
                paper.open();
            }
            paper.commit();
        }
        "upgrade" => {
            world.upgrade();
            world.begin()?;
        }
        "restart" => {
            *world = World::after(world, settings(&rest));
            world.begin()?;
            if paper.desk().is_quick {
                paper.open();
            }
            return Ok(true);
        }
        _ => return Err(format!("\"{words}\" is nothing that happens to a ledger")),
    }
    if is_so { Ok(false) } else { Err("it is not so".into()) }
}
