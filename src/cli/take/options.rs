//! The options of `take`: one table.

use crate::run_child::OnLost;
use crate::servers::{ServerOptions, Servers};
use poolcounter_client::Wanted;
use poolcounter_protocol::members::wire::client::check_attribute;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::time::Duration;

/// The longest that the protocol can wait: 136 years.
pub const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

/// Settings that the options make.
pub struct TakeSettings {
    /// Members to take, and the time to wait for them.
    pub wanted: Wanted,
    /// The group to take from, in place of a pool.
    pub group: Option<Vec<u8>>,
    /// Name of the holder, in place of its address.
    pub name: Option<Vec<u8>>,
    /// The statuses that mean that a member failed; all but 0 if there are none.
    pub fail_on: Vec<u8>,
    /// Prints the variables of a command, and leaves the members taken.
    pub keeps: bool,
    /// The form in which that is printed, if it was said.
    pub format: Option<Format>,
    /// Servers to ask.
    pub servers: Servers,
    /// Asks again while no server answers, for as long as a member is waited for.
    pub retries: bool,
    /// Fate of the command when a member is lost.
    pub on_lost: OnLost,
}

/// The options.
pub const OPTIONS: &[Opt<TakeSettings>] = &[
    Opt {
        short: "t",
        long: "timeout",
        hint: "SECONDS",
        doc_short: "how long to wait for a member; 0: not at all (default: without limit)",
        doc_long: "
            How long to wait for a member.
            With 0 nothing waits.
            Decimals are allowed.
            The default is no limit.",
        set: |settings, value| assign(&mut settings.wanted.timeout, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        short: "g",
        long: "group",
        hint: "GROUP",
        doc_short: "take from any pool of this group, in place of one pool",
        doc_long: "
            Take from any pool of this group, in place of one pool: from the one with the most free members, else from the first
            that has one.
            Where several servers share the pools, only those of the group's own server are looked at.",
        set_bytes: Some(|settings, value| assign(&mut settings.group, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        short: "a",
        long: "attr",
        hint: "NAME=VALUE",
        doc_short: "only a member that has this attribute; repeatable",
        doc_long: "
            Only a member that has this attribute.
            May be given several times.",
        repeats: true,
        set_bytes: Some(|settings, value| {
            let equals = value.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
            let at = equals.ok_or("an attribute: NAME=VALUE")?;
            let (name, value) = (&value[..at], &value[at + 1..]);
            let wrong = |rule| format!("an attribute that a member can have: {rule}");
            check_attribute(name, value).map_err(wrong)?;
            settings.wanted.attributes.push((name.to_vec(), value.to_vec()));
            Ok(())
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "member",
        hint: "NAME",
        doc_short: "only the member of this name",
        doc_long: "Only the member of this name.",
        set_bytes: Some(|settings, value| assign(&mut settings.wanted.member, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "pri",
        hint: "0..9",
        doc_short: "waiters with a lower priority number are served first (default: 5)",
        doc_long: "
            Waiters with a lower number are served first, and among equal ones who came first.
            Who has waited for a minute counts as 0.
            The default is 5.",
        set: |settings, value| assign(&mut settings.wanted.priority, number(value, 0..=9)),
        ..Opt::BLANK
    },
    Opt {
        short: "n",
        long: "count",
        hint: "N",
        doc_short: "so many members, all or none (default: 1)",
        doc_long: "
            So many members, all or none.
            The environment has
            .Ev POOL_MEMBERS
            and
            .Ev POOL_LEASES
            then, with a space between two, and for each member from 1 on its number in the names:
            .Ev POOL_MEMBER_1 , POOL_LEASE_1 , POOL_TOKEN_1
            and
            .Ev POOL_ATTR_1_ Ns Ar name .
            Those without a number are of the first.
            All are returned alike.",
        set: |settings, value| assign(&mut settings.wanted.count, number(value, 1..=u32::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "fail-on",
        hint: "STATUS",
        doc_short: "return the member as failed only if the command ends with this status; repeatable (default: all but 0)",
        doc_long: "
            The member has failed only if the command ended with this status.
            May be given several times.",
        repeats: true,
        set: |settings, value| {
            settings.fail_on.push(number(value, 0..=u8::MAX)?);
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        long: "lease",
        hint: "SECONDS",
        doc_short: "keep the member so long when the connection is lost; it is renewed while the command runs",
        doc_long: "
            Take the member for so long, whatever becomes of the connection and of
            .Nm .
            The lease is renewed three times as often while the command runs, on a new connection if need be; it ends with the command.",
        set: |settings, value| {
            let lease = seconds(value).ok().filter(|lease| !lease.is_zero());
            assign(&mut settings.wanted.lease, lease.map(Some).ok_or("a number of seconds above 0".into()))
        },
        ..Opt::BLANK
    },
    Opt {
        long: "keep",
        doc_short: "run nothing: print what a command would know, one NAME=VALUE a line, and leave the member taken",
        doc_long: "
            Run nothing: print what a command would find in its environment, a variable a line, and end.
            The member stays taken for the time of
            .Fl -lease ,
            which is needed;
            .Cm members renew
            and
            .Cm members return
            go on from there.
            The lines are for files that are read line by line, as that of
            .Ev GITHUB_ENV .
            They are not quoted for a shell: providers say what values there are.",
        set: |settings, _| assign(&mut settings.keeps, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "format",
        hint: "env|json",
        doc_short: "the form in which --keep prints: lines NAME=VALUE, or one JSON object (default: env)",
        doc_long: "
            The form in which
            .Fl -keep
            prints: lines
            .Ar name Ns = Ns Ar value ,
            which is the default, or one object of JSON.",
        set: |settings, value| assign(&mut settings.format, Format::parse(value).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "name",
        hint: "NAME",
        doc_short: "what the holder is called where members are shown (default: its address)",
        doc_long: "
            What the holder is called where members are shown, in place of its address.",
        set_bytes: Some(|settings, value| assign(&mut settings.name, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt::SERVER,
    Opt::TLS,
    Opt {
        long: "retry",
        doc_short: "while no server answers, ask again, until the time to wait for a member is over",
        doc_long: "
            While no server answers, ask again, twice a second at first and every four seconds in the end, until the time of
            .Fl -timeout
            is over.
            One that is started again does not know the place in its queue.",
        set: |settings, _| assign(&mut settings.retries, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "when a member is lost while the command runs: only say so, or also terminate or kill it (default: warn)",
        doc_long: "
            As for
            .Cm exec ,
            if a member is lost while the command runs: it has died, was withdrawn or taken back, or the connection is gone.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

/// A form in which variables are printed.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `NAME=VALUE`, one a line.
    #[default]
    Env,
    /// One object.
    Json,
}

impl TakeSettings {
    /// Returns whether a command that ended with this status has left its members as failed.
    pub fn is_failure(&self, status: u8) -> bool {
        if self.fail_on.is_empty() { status != 0 } else { self.fail_on.contains(&status) }
    }
}

impl Format {
    fn parse(text: &str) -> Result<Format, String> {
        match text {
            "env" => Ok(Format::Env),
            "json" => Ok(Format::Json),
            _ => Err("env or json".into()),
        }
    }
}

impl Default for TakeSettings {
    fn default() -> Self {
        let wanted = Wanted { timeout: NO_LIMIT, ..Wanted::default() };
        TakeSettings {
            wanted,
            group: None,
            name: None,
            fail_on: Vec::new(),
            keeps: false,
            format: None,
            servers: Servers::default(),
            retries: false,
            on_lost: OnLost::default(),
        }
    }
}

impl AsMut<Servers> for TakeSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
