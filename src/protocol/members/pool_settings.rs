//! Settings of a pool: one table of keys, which parsing and checking follow.

use poolcounter_core::time::Span;
use std::sync::Arc;

/// Attributes of a member: names with values, in the order given.
pub type Attributes = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Order in which free members are handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// The member that became free last is first.
    Lifo,
    /// The member that became free first is first.
    Fifo,
}

/// Effect of the loss of a consumer on its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum OnLoss {
    /// The state of the members is unknown: they are replaced.
    Fail,
    /// The members count as returned.
    Ok,
}

/// Value of a setting, of the kind that its key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Number(u32),
    /// A number, or none.
    Optional(Option<u32>),
    /// A length of time.
    Seconds(Span),
    /// Name of a group of pools, or none. A name of another kind needs a variant of its own: rules of access tell them
    /// apart.
    Group(Option<Arc<[u8]>>),
    /// `lifo` or `fifo`.
    Order(Order),
    /// `fail` or `ok`.
    OnLoss(OnLoss),
}

/// Kind of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are those of Value")]
pub enum Kind {
    Number,
    Optional,
    Seconds,
    Group,
    Order,
    OnLoss,
}

/// Reason for which settings contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contradiction {
    /// A pool must have room for at least one member.
    NoRoom,
    /// The initial number of members exceeds the maximum.
    InitAboveMax,
    /// A lifetime could be over before it begins.
    JitterTooLong,
    /// No member could ever be cleaned.
    NothingCleaned,
}

impl Contradiction {
    /// Returns the setting that contradicts another.
    pub fn key(self) -> Key {
        match self {
            Contradiction::NoRoom => Key::max,
            Contradiction::InitAboveMax => Key::init,
            Contradiction::JitterTooLong => Key::lifetime_jitter,
            Contradiction::NothingCleaned => Key::clean_parallel,
        }
    }
}

macro_rules! settings {
    ($manual:literal $($key:ident: $type:ty = $default:expr, $kind:ident, $help:literal;)*) => {
        /// Every setting, in the language of manual pages.
        pub const MANUAL: &str =
            concat!($manual, "\n.Bl -tag -width Ds -compact\n", $(".It Cm ", stringify!($key), "\n", $help, "\n",)* ".El\n");

        /// Settings of a pool.
        #[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
        pub struct Settings { $(#[doc = $help] pub $key: $type,)* }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($key: $default,)* }
            }
        }

        /// Key of a setting of a pool.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(non_camel_case_types, reason = "they are named as the protocol names them")]
        pub enum Key { $(#[doc = $help] $key,)* }

        impl Key {
            /// Every key, in the order of the protocol's table.
            pub const ALL: &'static [Key] = &[$(Key::$key,)*];

            /// Returns its name on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Key::$key => stringify!($key),)* }
            }

            /// Returns the kind of its value.
            pub fn kind(self) -> Kind {
                match self { $(Key::$key => Kind::$kind,)* }
            }

        }

        impl Settings {
            /// Returns true if a setting has another value than there.
            pub fn differs(&self, key: Key, other: &Settings) -> bool {
                match key { $(Key::$key => self.$key != other.$key,)* }
            }

            /// Sets one value, which must be of its key's kind.
            fn set(&mut self, key: Key, value: Value) {
                match (key, value) {
                    $((Key::$key, Value::$kind(value)) => self.$key = value,)*
                    _ => unreachable!("a change is made of a key and a value of its kind"),
                }
            }
        }
    };
}

settings! {
    "
    Times are in seconds.
    .Va name
    and
    .Va max
    are required.
    .Va fixed
    lists the fixed members: names, or tables of a name and attributes.
    .Pp
    The pools exist from the start.
    At a reload, a pool that differs from the file is changed as
    .Li RECONFIGURE
    does, one that the file no longer has is removed as
    .Li RMPOOL Ar name Li GRACEFUL
    does, and fixed members are added and removed.
    A change that an operator made in a pool of the file lasts until the next reload.
    A pool that has another name in the file is a new pool beside the old one.
    A fixed member is in one pool: one that is in use in the old pool joins the new one as soon as it has come back.
    Pools and fixed members that never were in the file stay as they are.
    A pool has fixed members or providers, not both.
    The log names a fixed member that a pool cannot have yet, and it is tried again each second.
    .Pp
    These are all settings, which
    .Li POOL
    and
    .Li RECONFIGURE
    take as well:"
    init: u32 = 0, Number, "Number of members to start when the pool is declared.";
    max: u32 = 1, Number, "Maximum number of members: at least 1.";
    group: Option<Arc<[u8]>> = None, Group, "Name of the pool's group; one take can ask for a member of any pool of a group.\nEmpty, the default: none.";
    order: Order = Order::Lifo, Order, "Order in which free members are handed out: the last to become free first, lifo, which is the default, or the longest free first, fifo.";
    queue: u32 = 1000, Number, "Maximum number of waiting consumers.\nDefault: 1000.";
    start_timeout: Span = Span::from_secs(60), Seconds, "A start not answered by then has failed.\nDefault: 60.";
    stop_timeout: Span = Span::from_secs(10), Seconds, "A stop not answered by then counts as done.\nDefault: 10.";
    max_age: Span = Span::from_secs(30), Seconds, "A free member idle for longer may be culled.\nDefault: 30.";
    cull_interval: Span = Span::from_secs(60), Seconds, "Time between two culls.\nA cull stops the members idle for longest while more than init exist and more than min_free are free.\nDefault: 60; 0: never.";
    max_lifetime: Span = Span::ZERO, Seconds, "A member older than this is replaced when it is free, about to be taken, or returned; never while it is in use.\nDefault: 0, never.";
    lifetime_jitter: Span = Span::ZERO, Seconds, "Each member's lifetime varies by up to this, either way.\nIt is less than max_lifetime.\nDefault: 0.";
    max_uses: u32 = 0, Number, "A member is replaced after this number of takes.\nDefault: 0, never.";
    grow_at: Option<u32> = None, Optional, "More members are started when a take leaves this number free or fewer.\nEmpty, the default: never.";
    min_free: u32 = 0, Number, "Number of members to keep free, as far as max allows.\nDefault: 0.";
    max_hold: Span = Span::ZERO, Seconds, "A member held longer is taken back and replaced.\nDefault: 0, never.";
    warn_hold: Span = Span::ZERO, Seconds, "A member held longer is logged, counted and marked in MEMBERS.\nDefault: 0, never.";
    per_client: u32 = 0, Number, "Maximum number of members that one connection may hold.\nDefault: 0, without limit.";
    on_loss: OnLoss = OnLoss::Fail, OnLoss, "Outcome for the members of a lost consumer: fail, which replaces them and is the default, or ok.";
    loss_delay: Span = Span::ZERO, Seconds, "With on_loss=ok, such a member is kept out for this time.\nDefault: 0.";
    check_interval: Span = Span::ZERO, Seconds, "Free members are checked when idle for this long.\nDefault: 0, never.";
    check_timeout: Span = Span::from_secs(5), Seconds, "A member whose check is not answered by then is dead.\nDefault: 5.";
    check_on_take: Span = Span::ZERO, Seconds, "A member idle for longer is checked before it is handed out.\nDefault: 0, never.";
    clean_timeout: Span = Span::ZERO, Seconds, "A member that was used, lost, held or in quarantine is cleaned before it is free again.\nIf that takes longer, it is kept out until its cleaner has answered or is gone.\nDefault: 0, no cleaning.";
    clean_attempts: u32 = 3, Number, "Number of failed cleanings after which a member goes into quarantine.\nBefore that they are tried again after 10 seconds, 1 minute, and then every 5 minutes.\nDefault: 3; 0: it is tried again for ever.";
    clean_parallel: u32 = 10, Number, "Maximum number of members cleaned at a time, 1024 at most.\nDefault: 10.";
    provider_grace: Span = Span::from_secs(15), Seconds, "Time for which the members of a lost provider stay: leases go on, and free members are not handed out.\nA provider of the same session gets all of them back, and one that offers a member of the same name adopts that.\nAfter this time they are removed.\nDefault: 15; 0: they are removed at once.";
    repair_after: Span = Span::ZERO, Seconds, "A fixed member in quarantine is repaired after this.\nDefault: 0, only by REPAIR.";
}

/// A key and its new value, of its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    key: Key,
    value: Value,
}

impl Change {
    /// Returns the change; None if the value is not of the key's kind.
    pub fn new(key: Key, value: Value) -> Option<Self> {
        let kind = match value {
            Value::Number(_) => Kind::Number,
            Value::Optional(_) => Kind::Optional,
            Value::Seconds(_) => Kind::Seconds,
            Value::Group(_) => Kind::Group,
            Value::Order(_) => Kind::Order,
            Value::OnLoss(_) => Kind::OnLoss,
        };
        (kind == key.kind()).then_some(Change { key, value })
    }

    /// Returns the key of the setting.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the new value.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Settings {
    /// Returns these settings with the changes.
    ///
    /// # Errors
    ///
    /// Fails if they would contradict each other.
    pub fn with(&self, changes: &[Change]) -> Result<Settings, Contradiction> {
        let mut settings = self.clone();
        changes.iter().for_each(|change| settings.set(change.key, change.value.clone()));
        settings.check()?;
        Ok(settings)
    }

    /// Compares the settings with each other.
    ///
    /// # Errors
    ///
    /// Fails if they contradict each other.
    pub fn check(&self) -> Result<(), Contradiction> {
        if self.max == 0 {
            return Err(Contradiction::NoRoom);
        }
        if self.init > self.max {
            return Err(Contradiction::InitAboveMax);
        }
        if self.lifetime_jitter > Span::ZERO && self.lifetime_jitter >= self.max_lifetime {
            return Err(Contradiction::JitterTooLong);
        }
        if self.clean_parallel == 0 {
            return Err(Contradiction::NothingCleaned);
        }
        Ok(())
    }
}

/// Requirements for a member.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub struct Filter {
    /// Name of the only member that matches.
    pub member: Option<Arc<[u8]>>,
    /// Attributes that it must have.
    pub attributes: Attributes,
}

impl Filter {
    /// Returns whether every member matches.
    pub fn is_empty(&self) -> bool {
        self.member.is_none() && self.attributes.is_empty()
    }

    /// Returns whether a member with this name and these attributes matches.
    pub fn matches(&self, name: &[u8], attributes: Option<&Attributes>) -> bool {
        self.member.as_ref().is_none_or(|member| **member == *name)
            && self.attributes.iter().all(|pair| attributes.is_some_and(|has| has.contains(pair)))
    }
}
