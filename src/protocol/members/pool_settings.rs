//! What a pool is told about its members: one table of keys, from which parsing and checking follow.

use poolcounter_core::time::Span;
use std::sync::Arc;

/// The attributes of a member: names with values, in the order given.
pub type Attributes = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Which free member is handed out first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// The one that came free last.
    Lifo,
    /// The one that came free first.
    Fifo,
}

/// What the loss of a consumer does to its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum OnLoss {
    /// Their state is unknown: they are replaced.
    Fail,
    /// They are as good as returned.
    Ok,
}

/// A value of a setting, of the kind that its key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Number(u32),
    /// A number, or none.
    Optional(Option<u32>),
    /// A length of time.
    Seconds(Span),
    /// The name of a group of pools, or none. A name of another kind needs a variant of its own: rules of access tell them apart.
    Group(Option<Arc<[u8]>>),
    /// `lifo` or `fifo`.
    Order(Order),
    /// `fail` or `ok`.
    OnLoss(OnLoss),
}

/// What kind of value a key has.
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

/// Why settings contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contradiction {
    /// A pool has room for one member at least.
    NoRoom,
    /// More members are wanted at the start than there may be.
    InitAboveMax,
    /// A lifetime could be over before it begins.
    JitterTooLong,
}

impl Contradiction {
    /// Returns the setting that contradicts another.
    pub fn key(self) -> Key {
        match self {
            Contradiction::NoRoom => Key::max,
            Contradiction::InitAboveMax => Key::init,
            Contradiction::JitterTooLong => Key::lifetime_jitter,
        }
    }
}

macro_rules! settings {
    ($($key:ident: $type:ty = $default:expr, $kind:ident, $help:literal;)*) => {
        /// The settings of a pool.
        #[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
        pub struct Settings { $(#[doc = $help] pub $key: $type,)* }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($key: $default,)* }
            }
        }

        /// A setting of a pool.
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

            /// Returns what kind of value it has.
            pub fn kind(self) -> Kind {
                match self { $(Key::$key => Kind::$kind,)* }
            }

            /// Returns one sentence about it.
            pub fn help(self) -> &'static str {
                match self { $(Key::$key => $help,)* }
            }
        }

        impl Settings {
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
    init: u32 = 0, Number, "How many members there are from the start.";
    max: u32 = 1, Number, "How many members there may be.";
    group: Option<Arc<[u8]>> = None, Group, "Pools of one group can be taken from together.";
    order: Order = Order::Lifo, Order, "Which free member is handed out first: lifo or fifo.";
    queue: u32 = 50, Number, "How many consumers may wait.";
    start_timeout: Span = Span::from_secs(60), Seconds, "A start not answered by then has failed.";
    stop_timeout: Span = Span::from_secs(10), Seconds, "A stop not answered by then counts as done.";
    max_age: Span = Span::from_secs(30), Seconds, "A free member idle for longer may be culled.";
    cull_interval: Span = Span::from_secs(60), Seconds, "How often to cull; 0 = never.";
    max_lifetime: Span = Span::ZERO, Seconds, "A member older than this is replaced, but never while in use; 0 = never.";
    lifetime_jitter: Span = Span::ZERO, Seconds, "Each member's lifetime varies by up to this, either way.";
    max_uses: u32 = 0, Number, "A member is replaced after so many takes; 0 = never.";
    grow_at: Option<u32> = None, Optional, "When a take leaves this many free or fewer, start more.";
    min_free: u32 = 0, Number, "Keep this many free while max allows.";
    max_hold: Span = Span::ZERO, Seconds, "A member held longer is taken back and replaced; 0 = never.";
    warn_hold: Span = Span::ZERO, Seconds, "A member held longer is reported; 0 = never.";
    per_client: u32 = 0, Number, "How many members one consumer may hold; 0 = unlimited.";
    on_loss: OnLoss = OnLoss::Fail, OnLoss, "What the loss of a consumer does to its members: fail or ok.";
    loss_delay: Span = Span::ZERO, Seconds, "With on_loss=ok, such a member is kept out this long.";
    check_interval: Span = Span::ZERO, Seconds, "Free members are checked when idle for this long; 0 = never.";
    check_timeout: Span = Span::from_secs(5), Seconds, "A check not answered by then means that the member is dead.";
    check_on_take: Span = Span::ZERO, Seconds, "A member idle for longer is checked before it is handed out; 0 = never.";
    clean_timeout: Span = Span::ZERO, Seconds, "A returned member is cleaned, and has failed if that takes longer; 0 = no cleaning.";
    clean_parallel: u32 = 10, Number, "How many are cleaned at once.";
    provider_grace: Span = Span::from_secs(15), Seconds, "For so long the members of a lost provider stay; 0 = they go at once.";
    repair_after: Span = Span::ZERO, Seconds, "A quarantined fixed member is free again after this; 0 = only by REPAIR.";
}

/// A key and the value that it is to have, of its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    key: Key,
    value: Value,
}

impl Change {
    /// Returns the change; None when the value is not of the key's kind.
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

    /// Returns which setting it changes.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the value that it is to have.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

impl Settings {
    /// Returns these settings with the changes made.
    ///
    /// # Errors
    ///
    /// When they would contradict each other.
    pub fn with(&self, changes: &[Change]) -> Result<Settings, Contradiction> {
        let mut settings = self.clone();
        changes.iter().for_each(|change| settings.set(change.key, change.value.clone()));
        if settings.max == 0 {
            return Err(Contradiction::NoRoom);
        }
        if settings.init > settings.max {
            return Err(Contradiction::InitAboveMax);
        }
        if settings.lifetime_jitter > Span::ZERO && settings.lifetime_jitter >= settings.max_lifetime {
            return Err(Contradiction::JitterTooLong);
        }
        Ok(settings)
    }
}

/// What members must be like.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub struct Filter {
    /// The only member that will do.
    pub member: Option<Arc<[u8]>>,
    /// The attributes that it must have.
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
