//! What the tables of the members hold. It knows nothing of what is done with it.

use super::*;

/// How many members of a pool are cleaned at once, whatever its settings say: the loss of a cleaner gives all of them back in one step.
const MOST_CLEANED: u32 = 4_096;

pub(super) struct Pool {
    pub name: Arc<[u8]>,
    pub hash: Hash,
    pub settings: Settings,
    pub group: Option<GroupId>,
    /// True when it is removed as its members come back.
    pub is_leaving: bool,
    /// True when the configuration file had it when it was read last.
    pub is_from_file: bool,
    /// True when it was removed at once: it has no name any more, and no group, and is gone when its members are.
    pub is_removed: bool,
    /// True while a chore stops its members, has them timed anew, or settles it.
    pub is_retiring: bool,
    pub is_retiming: bool,
    pub is_behind: bool,
    /// How many lost providers have members about which a chore is to do something.
    pub orphaned_free: u32,
    /// True when it stands in [`State::unsettled`].
    pub is_unsettled: bool,
    /// True when a take left few members free.
    pub is_to_grow: bool,
    /// True when a member that waiters might want came free by other ways than a return.
    pub is_to_reconsider: bool,
    /// All members, by name.
    pub members: BTreeMap<Arc<[u8]>, MemberId>,
    /// Those that may be handed out, longest idle first.
    pub free: List<MemberId>,
    /// Those that are free or checked, longest idle first.
    pub idle: List<MemberId>,
    /// Those that wait to be cleaned, longest returned first, and those that are cleaned.
    pub unclean: List<MemberId>,
    pub cleaning: List<MemberId>,
    /// Armed while members wait to be cleaned and nobody can be asked: for this moment, when the first has waited for too long.
    pub unclean_until: Option<(Time, TimerId)>,
    /// How many members are in each phase.
    pub counts: [u32; PhaseKind::COUNT],
    pub fixed: u32,
    pub starts: u32,
    /// How many places may be taken: max, or more while those are left that were there when it was lowered.
    pub most_slots: u64,
    /// Replacements that are wanted and not begun.
    pub owed: u32,
    /// How many starts its waiters may have under way.
    pub need: u64,
    pub queue: WaitQueue,
    /// Waiters whose timeout is 0: they wait for a check.
    pub no_wait: u32,
    pub agents: Vec<AgentId>,
    /// Armed while nothing is started, because a start has failed.
    pub backoff: Option<TimerId>,
    /// How long the next backoff is, before its jitter.
    pub next_backoff: Span,
    pub cull: Option<TimerId>,
    pub figures: Figures<Stat>,
    pub times: Box<Times>,
}

#[derive(Default)]
pub(super) struct Group {
    pub name: Arc<[u8]>,
    pub hash: Hash,
    pub pools: Vec<PoolId>,
    pub queue: WaitQueue,
}

pub(super) struct Lease {
    pub number: u64,
    pub member: MemberId,
    /// None when it has outlived its connection.
    pub holding: Option<HoldingId>,
    pub holder: Holder,
    pub since: Time,
    pub is_reported: bool,
    pub timer: Option<TimerId>,
    pub token: Option<Box<TokenLease>>,
}

pub(super) struct TokenLease {
    pub token: Token,
    /// How long it was first.
    pub span: Span,
    pub until: Time,
    /// The name of the rule of access under which it was taken, if there was one.
    pub rule: Option<Arc<str>>,
}

pub(super) struct Start {
    /// Its number on the wire.
    pub number: u64,
    pub conn: ConnId,
    /// For a `!STOP`, when the pool may be gone.
    pub pool_name: Arc<[u8]>,
    pub since: Time,
    pub progress: Progress,
}

pub(super) enum Progress {
    UnderWay {
        agent: AgentId,
        timer: TimerId,
    },
    /// It has failed, but its answer may still come.
    Late,
}

/// A connection that provides or cleans for a pool.
pub(super) struct Agent {
    pub standing: ProviderState,
    pub pool: PoolId,
    pub provides: bool,
    pub cleans: bool,
    /// How many members it can have; None when as many as the pool.
    pub capacity: Option<u32>,
    pub members: List<MemberId>,
    pub starts: u32,
    /// How many members it is asked to clean now.
    pub cleaning: u32,
    /// How many members are still to be put out of use in the grace.
    pub to_orphan: u32,
    /// True while a chore is about its members.
    pub is_pending: bool,
}

/// Who answers for the members of a provider.
pub(super) enum ProviderState {
    /// The connection.
    Serves(ConnId),
    /// The connection, but its pool was removed.
    Dismissed(ConnId),
    /// Nobody: it is lost, and its members stay until the timer fires.
    Grace(TimerId),
    /// Nobody: it is lost, and its members are gone.
    Lost,
}

/// What a connection holds, or held when it went.
#[derive(Default)]
pub(super) struct Holding {
    /// None when it is gone.
    pub conn: Option<ConnId>,
    /// Its address, when it is gone.
    pub address: Arc<[u8]>,
    /// True when it said `BYE`, and so returns what it held.
    pub is_bye: bool,
    pub leases: List<LeaseId>,
    /// How many members, by pool.
    pub held: Vec<(PoolId, u32)>,
    /// How many of them count for the rules under which they were taken, and not for the connection.
    pub of_rules: u32,
}

/// What a connection has.
#[derive(Default)]
pub(super) struct Client {
    /// None before its first take.
    pub holding: Option<HoldingId>,
    pub waiter: Option<WaiterId>,
    pub name: Option<Arc<[u8]>>,
    /// The name of the rule of access that is for it.
    pub rule: Option<Arc<str>>,
    pub work: Option<Box<Work>>,
}

/// What a connection has as a provider or cleaner.
#[derive(Default)]
pub(super) struct Work {
    pub agent: Option<AgentId>,
    /// What it was in pools that were removed and are not gone yet.
    pub dismissed: Vec<AgentId>,
    /// By number.
    pub starts: BTreeMap<u64, StartId>,
    pub late_starts: usize,
    pub late_stops: HashSet<Arc<[u8]>>,
}

impl Agent {
    pub fn new(conn: ConnId, pool: PoolId) -> Self {
        Agent { standing: ProviderState::Serves(conn), ..Agent::of(pool) }
    }

    /// Nobody's, of a pool.
    pub fn of(pool: PoolId) -> Self {
        Agent {
            standing: ProviderState::Lost,
            pool,
            provides: false,
            cleans: false,
            capacity: None,
            members: List::default(),
            starts: 0,
            cleaning: 0,
            to_orphan: 0,
            is_pending: false,
        }
    }

    /// The connection, if there is one.
    pub fn conn(&self) -> Option<ConnId> {
        match self.standing {
            ProviderState::Serves(conn) | ProviderState::Dismissed(conn) => Some(conn),
            ProviderState::Grace(_) | ProviderState::Lost => None,
        }
    }

    /// Whether it stands in the list of its pool: while its connection is there and, in a pool that was removed meanwhile, until that
    /// has nothing left.
    pub fn is_listed(&self) -> bool {
        match self.standing {
            ProviderState::Serves(_) | ProviderState::Dismissed(_) => true,
            ProviderState::Grace(_) => false,
            ProviderState::Lost => !self.is_pending,
        }
    }
}

impl Pool {
    /// How many of the free are to be stopped, oldest idle first, because there are too many.
    pub fn surplus(&self) -> u32 {
        let surplus = if self.is_behind { self.live().saturating_sub(u64::from(self.settings.max)) } else { 0 };
        // Lossless: a list is no longer.
        surplus.min(u64::from(self.free.len())) as u32
    }

    pub fn count(&self, kind: PhaseKind) -> u32 {
        self.counts[kind as usize]
    }

    /// How many of the places that max allows are taken.
    pub fn slots(&self) -> u64 {
        self.members.len() as u64 + u64::from(self.starts)
    }

    /// How many members there are that are not being stopped.
    pub fn live(&self) -> u64 {
        self.members.len() as u64 - u64::from(self.count(PhaseKind::Stopping))
    }

    /// How many are free, or are being checked and will be.
    pub fn idle_count(&self) -> u32 {
        self.count(PhaseKind::Free) + self.count(PhaseKind::Checking)
    }

    /// How many may be cleaned at once.
    pub fn most_cleaned(&self) -> u32 {
        self.settings.clean_parallel.min(MOST_CLEANED)
    }

    /// Whether it has more members than it may have, besides those that leave.
    pub fn is_above_max(&self) -> bool {
        self.live() > u64::from(self.settings.max)
    }

    pub fn new(name: Arc<[u8]>, hash: Hash, settings: Settings) -> Self {
        Pool {
            name,
            hash,
            most_slots: u64::from(settings.max),
            settings,
            group: None,
            is_leaving: false,
            is_from_file: false,
            is_removed: false,
            is_retiring: false,
            is_retiming: false,
            is_behind: false,
            orphaned_free: 0,
            is_unsettled: false,
            is_to_grow: false,
            is_to_reconsider: false,
            members: BTreeMap::new(),
            free: List::default(),
            idle: List::default(),
            unclean: List::default(),
            cleaning: List::default(),
            unclean_until: None,
            counts: [0; PhaseKind::COUNT],
            fixed: 0,
            starts: 0,
            owed: 0,
            need: 0,
            queue: WaitQueue::default(),
            no_wait: 0,
            agents: Vec::new(),
            backoff: None,
            next_backoff: State::first_backoff(),
            cull: None,
            figures: Figures::default(),
            times: Box::default(),
        }
    }
}
