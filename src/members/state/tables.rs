//! What the tables of the members hold. It knows nothing of what is done with it.

use super::*;

pub(super) struct Pool {
    pub name: Arc<[u8]>,
    pub hash: Hash,
    pub settings: Settings,
    pub group: Option<GroupId>,
    /// True when it is removed as its members come back.
    pub is_leaving: bool,
    /// True when the configuration file had it when it was read last.
    pub is_from_file: bool,
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
    /// Those that wait to be cleaned, and those that are cleaned, oldest first.
    pub unclean: List<MemberId>,
    pub cleaning: List<MemberId>,
    /// How many members are in each stage.
    pub counts: [u32; StageKind::COUNT],
    pub fixed: u32,
    pub starts: u32,
    /// Replacements that are wanted and not begun.
    pub owed: u32,
    /// How many starts its waiters may have under way.
    pub need: u64,
    pub queue: Queue,
    /// Waiters whose timeout is 0: they wait for a check.
    pub hasty: u32,
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
    pub queue: Queue,
}

pub(super) struct Lease {
    pub number: u64,
    pub member: MemberId,
    /// None when it has outlived its connection.
    pub conn: Option<ConnId>,
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
    pub conn: ConnId,
    pub pool: PoolId,
    pub provides: bool,
    pub cleans: bool,
    /// How many members it can have; None when as many as the pool.
    pub capacity: Option<u32>,
    pub members: List<MemberId>,
    pub starts: u32,
    /// How many members it is asked to clean now.
    pub cleaning: u32,
}

pub(super) struct Grace {
    pub pool: PoolId,
    pub members: List<MemberId>,
    pub timer: TimerId,
}

/// What a connection has.
#[derive(Default)]
pub(super) struct Client {
    pub leases: List<LeaseId>,
    pub waiter: Option<WaiterId>,
    pub name: Option<Arc<[u8]>>,
    /// How many members it holds, by pool.
    pub held: Vec<(PoolId, u32)>,
    pub work: Option<Box<Work>>,
}

/// What a connection has as a provider or cleaner.
#[derive(Default)]
pub(super) struct Work {
    pub agent: Option<AgentId>,
    /// By number.
    pub starts: BTreeMap<u64, StartId>,
    pub late_starts: usize,
    pub late_stops: HashSet<Arc<[u8]>>,
}

impl Pool {
    pub fn count(&self, kind: StageKind) -> u32 {
        self.counts[kind as usize]
    }

    /// How many of the places that max allows are taken.
    pub fn slots(&self) -> u64 {
        self.members.len() as u64 + u64::from(self.starts)
    }

    /// How many members there are that are not being stopped.
    pub fn live(&self) -> u64 {
        self.members.len() as u64 - u64::from(self.count(StageKind::Stopping))
    }

    /// How many are free, or are being checked and will be.
    pub fn idle_count(&self) -> u32 {
        self.count(StageKind::Free) + self.count(StageKind::Checking)
    }

    /// Whether it has more members than it may have, besides those that leave.
    pub fn is_above_max(&self) -> bool {
        self.live() > u64::from(self.settings.max)
    }

    pub fn new(name: Arc<[u8]>, hash: Hash, settings: Settings) -> Self {
        Pool {
            name,
            hash,
            settings,
            group: None,
            is_leaving: false,
            is_from_file: false,
            is_unsettled: false,
            is_to_grow: false,
            is_to_reconsider: false,
            members: BTreeMap::new(),
            free: List::default(),
            idle: List::default(),
            unclean: List::default(),
            cleaning: List::default(),
            counts: [0; StageKind::COUNT],
            fixed: 0,
            starts: 0,
            owed: 0,
            need: 0,
            queue: Queue::default(),
            hasty: 0,
            agents: Vec::new(),
            backoff: None,
            next_backoff: State::first_backoff(),
            cull: None,
            figures: Figures::default(),
            times: Box::default(),
        }
    }
}
