//! The client's side of the protocol: requests to lines, lines to replies. The texts of replies are the server's own.

use super::listed::unescape;
pub use super::listed::{
    Figures, KeptOut, ListedHolder, ListedMember, ListedPool, ListedWaiter, parse_holder, parse_member, parse_pool,
    parse_utilization, parse_waiter,
};
use super::replies::{lost_of, reason_of, write, write_attributes, write_token, write_words};
use super::{
    LineWords, add_attribute, check_member, check_name, number_of, parse_attributes, parse_long, parse_token, split,
};
use crate::line::{WireSeconds, escape_key};
use crate::members::request::{
    Attributes, Condition, From, LeaseName, Lost, LostBy, Named, NoMembers, Refusal, Request, Take, Taken, Token,
};
use poolcounter_core::time::Span;
use std::borrow::Cow;
use std::sync::Arc;

/// First bytes of every line that reports a failure.
const ERROR: &[u8] = b"ERROR ";
/// First bytes of the last parameter of a member whose lease outlives its connection.
const TOKEN: &[u8] = b"token=";

const REASONS: [NoMembers; 6] = [
    NoMembers::AtCapacity,
    NoMembers::Starting,
    NoMembers::NoProvider,
    NoMembers::Timeout,
    NoMembers::Removed,
    NoMembers::Cancelled,
];
const LOSSES: [Lost; 7] =
    [Lost::Died, Lost::Withdrawn, Lost::TakenBack, Lost::HeldTooLong, Lost::ProviderLost, Lost::Removed, Lost::Expired];

/// Refusals that a user can cause, as sentences.
const REFUSALS: [(&str, &str); 11] = [
    ("BAD_COMMAND", "the server does not know this: it is older, or another service answers there"),
    ("BAD_SYNTAX", "the server cannot read this"),
    ("NO_POOL", "there is no such pool"),
    ("POOL_DIFFERS", "there is such a pool, with other settings"),
    ("POOL_FULL", "the pool has as many members as it may have"),
    ("MEMBER_EXISTS", "the pool has a member of this name"),
    ("NO_SUCH_MEMBER", "there is no such member"),
    ("TOO_MANY", "this is more than the pool or the server can have"),
    ("NOT_ADMIN", "the server allows requests of operators elsewhere, see members.admin"),
    ("DENIED", "no rule of access allows this"),
    ("LIMITED", "the rules of access allow no more of this now"),
];

/// Reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The request is done.
    Ok,
    /// The request is refused, with this text.
    Error(&'a [u8]),
    /// Member of a take.
    Member(Taken),
    /// Number of members that follow, a line each.
    Members(u32),
    /// The take has failed.
    NoMembers(NoMembers),
    /// The queue of waiters is full.
    QueueFull,
    /// The connection has reached its limit of members.
    Limit,
    /// The member is returned.
    Returned,
    /// The lease is renewed.
    Renewed,
    /// The lease does not exist, or another connection holds it.
    NotTaken,
}

/// Message that a server sends without a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Task for a provider or cleaner.
    Task(Task),
    /// Notice to a holder: it has lost the member of this lease, to this operator if one took it back.
    Lost(u64, Lost, Option<Box<LostBy>>),
}

/// Task of a provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Task {
    /// Start a member; the number identifies the start in the answer.
    Start(u64),
    /// Stop this member.
    Stop(Box<[u8]>),
    /// Check if this member is alive.
    Check(Box<[u8]>),
    /// Clean this member, which was in use.
    Clean(Box<[u8]>),
}

/// Returns the form of a name on the wire: a space becomes `%20`, and other bytes are unchanged. None: no request can
/// carry it.
pub fn escape_name(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    let escaped = escape_key(name)?;
    check_name(&escaped).is_ok().then_some(escaped)
}

/// Returns the form of a member's name on the wire, like [`escape_name`].
pub fn escape_member(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    escape_name(name).filter(|escaped| check_member(escaped).is_ok())
}

/// Reads the token of a lease, which is 32 hexadecimal digits.
pub fn read_token(text: &[u8]) -> Option<Token> {
    parse_token(text).ok()
}

/// Reads a member's name and the rest of the line: its attributes as `name=value`.
///
/// # Errors
///
/// The rule that it breaks: `the value of an attribute is empty`.
pub fn parse_named_member(line: &[u8]) -> Result<(&[u8], Attributes), &'static str> {
    let mut words = LineWords(line);
    let member = words.member().map_err(rule_of)?;
    Ok((member, parse_attributes(&mut words).map_err(rule_of)?))
}

/// Checks an attribute of a member.
///
/// # Errors
///
/// The rule that it breaks.
pub fn check_attribute(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    let sendable = |text| escape_key(text).ok_or("it is empty, or has a line end or a NUL");
    add_attribute(&mut Attributes::new(), &[&*sendable(name)?, b"=", &*sendable(value)?].concat()).map_err(rule_of)
}

fn rule_of(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::BadSyntax(rule) => rule,
        Refusal::TooMany => "a member has at most 16 attributes, of 1 KiB together",
        _ => "it cannot be read",
    }
}

/// Returns a refusal as a sentence, with the words of the server behind it: `there is no such pool (NO_POOL)`. None for
/// refusals that no user can cause.
pub fn describe_refusal(words: &str) -> Option<String> {
    let code = words.split(' ').next()?;
    let (_, sentence) = REFUSALS.iter().find(|(known, _)| *known == code)?;
    Some(format!("{sentence} ({words})"))
}

/// Reads attributes as `name=value` with spaces between them.
///
/// # Errors
///
/// The rule that they break.
pub fn parse_attribute_list(text: &[u8]) -> Result<Attributes, &'static str> {
    parse_attributes(&mut LineWords(text)).map_err(rule_of)
}

/// Writes a request whose names went through [`escape_name`] and [`escape_member`]. Requests with settings have
/// functions of their own, and `CANCEL` and `BYE` are for clients with several requests at a time.
pub fn write_request(bytes: &mut Vec<u8>, request: &Request<'_>) {
    match request {
        Request::Take(take) => write_take(bytes, take),
        Request::Return { lease, condition } => {
            bytes.extend_from_slice(b"RETURN ");
            match lease {
                LeaseName::Number(number) => write(bytes, format_args!("{number}")),
                LeaseName::Token(token) => write_token(bytes, token),
            }
            bytes.extend_from_slice(if *condition == Condition::Ok { b" OK" } else { b" FAIL" });
        }
        Request::Renew { token, span } => {
            bytes.extend_from_slice(b"RENEW ");
            write_token(bytes, token);
            span.iter().for_each(|span| write(bytes, format_args!(" {}", WireSeconds(*span))));
        }
        Request::Identify { name } => write_words(bytes, &[b"IDENTIFY", name]),
        Request::Clean { pool } => write_words(bytes, &[b"CLEAN", pool]),
        Request::Provide { pool, capacity, session } => {
            write_words(bytes, &[b"PROVIDE", pool]);
            capacity.iter().for_each(|capacity| write(bytes, format_args!(" {capacity}")));
            if let Some(session) = session {
                bytes.extend_from_slice(b" session=");
                bytes.extend_from_slice(session);
            }
        }
        Request::Started { start, named } => {
            write(bytes, format_args!("STARTED {start} "));
            if let Ok((member, attributes)) = named {
                write_words(bytes, &[member]);
                write_attributes(bytes, attributes);
            }
        }
        Request::Failed { start, text } => {
            write(bytes, format_args!("FAILED {start} "));
            write_words(bytes, &[text]);
        }
        Request::Stopped { member } => write_words(bytes, &[b"STOPPED", member]),
        Request::Alive { member } => write_words(bytes, &[b"ALIVE", member]),
        Request::Dead { member, text: b"" } => write_words(bytes, &[b"DEAD", member]),
        Request::Dead { member, text } => write_words(bytes, &[b"DEAD", member, text]),
        Request::Cleaning { member } => write_words(bytes, &[b"CLEANING", member]),
        Request::Cleaned { member } => write_words(bytes, &[b"CLEANED", member]),
        Request::Offer { named, attributes } => {
            write_named(bytes, b"OFFER", named);
            write_attributes(bytes, attributes);
        }
        Request::Withdraw { named, now } => {
            write_named(bytes, b"WITHDRAW", named);
            bytes.extend_from_slice(if *now { b" NOW" } else { b"" });
        }
        _ => write_for_operator(bytes, request),
    }
    bytes.push(b'\n');
}

fn write_for_operator(bytes: &mut Vec<u8>, request: &Request<'_>) {
    match request {
        Request::RemovePool { name, graceful } => {
            write_words(bytes, &[b"RMPOOL", name]);
            bytes.extend_from_slice(if *graceful { b" GRACEFUL" } else { b"" });
        }
        Request::RemoveGroup { name, graceful } => {
            write_words(bytes, &[b"RMGROUP", name]);
            bytes.extend_from_slice(if *graceful { b" GRACEFUL" } else { b"" });
        }
        Request::Add { named, attributes } => {
            write_named(bytes, b"ADD", named);
            write_attributes(bytes, attributes);
        }
        Request::Delete { named, now } => {
            write_named(bytes, b"DEL", named);
            bytes.extend_from_slice(if *now { b" NOW" } else { b"" });
        }
        Request::Repair { named, as_is } => {
            write_named(bytes, b"REPAIR", named);
            bytes.extend_from_slice(if *as_is { b" as_is" } else { b"" });
        }
        Request::Hold { named, span, note } => {
            write_named(bytes, b"HOLD", named);
            write(bytes, format_args!(" {} ", WireSeconds(*span)));
            write_words(bytes, &[note]);
        }
        Request::Free(named) => write_named(bytes, b"FREE", named),
        Request::TakeBack { lease, note } => {
            write(bytes, format_args!("TAKEBACK {lease} "));
            write_words(bytes, &[note]);
        }
        _ => debug_assert!(false, "no client of this library makes this request"),
    }
}

fn write_named(bytes: &mut Vec<u8>, command: &[u8], named: &Named<'_>) {
    write_words(bytes, &[command, named.pool, named.member]);
}

/// Writes `POOL name init max` with its settings, which went through [`escape_settings`].
pub fn write_declaration(bytes: &mut Vec<u8>, pool: &[u8], init: u32, max: u32, settings: &[u8]) {
    write_words(bytes, &[b"POOL", pool]);
    write(bytes, format_args!(" {init} {max}"));
    bytes.extend_from_slice(settings);
    bytes.push(b'\n');
}

/// Writes `RECONFIGURE name` with its settings, which went through [`escape_settings`].
pub fn write_reconfiguration(bytes: &mut Vec<u8>, pool: &[u8], settings: &[u8]) {
    write_words(bytes, &[b"RECONFIGURE", pool]);
    bytes.extend_from_slice(settings);
    bytes.push(b'\n');
}

/// Returns the form of settings on the wire, each with a space before it; a value may be empty. None: no line can carry
/// them. The keys are not checked: the server may know more of them.
pub fn escape_settings(settings: &[(&str, &str)]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (key, value) in settings {
        let key = escape_name(key.as_bytes()).filter(|key| !key.contains(&b'='))?;
        let value = if value.is_empty() { Cow::Borrowed(&b""[..]) } else { escape_name(value.as_bytes())? };
        bytes.extend_from_slice(&[b" ", &*key, b"=", &*value].concat());
    }
    Some(bytes)
}

fn write_take(bytes: &mut Vec<u8>, take: &Take<'_>) {
    match take.from {
        From::Pool(pool) => write_words(bytes, &[b"TAKE", pool]),
        From::Group(group) => write_words(bytes, &[b"TAKEGROUP", group]),
    }
    write(bytes, format_args!(" {} pri={}", WireSeconds(take.timeout), take.priority));
    if let Some(filter) = &take.filter {
        filter.member.iter().for_each(|member| bytes.extend_from_slice(&[b" member=", &**member].concat()));
        write_attributes(bytes, &filter.attributes);
    }
    take.count.iter().for_each(|count| write(bytes, format_args!(" n={count}")));
    match take.lease {
        Some(Span::ZERO) => bytes.extend_from_slice(b" resume"),
        Some(lease) => write(bytes, format_args!(" lease={}", WireSeconds(lease))),
        None => {}
    }
}

/// Reads a line without its end. None: it is no reply of this protocol.
pub fn parse_reply(line: &[u8]) -> Option<Reply<'_>> {
    if let Some(words) = line.strip_prefix(ERROR) {
        return Some(Reply::Error(words));
    }
    let mut words = LineWords(line);
    let reply = match words.next()? {
        b"OK" => Reply::Ok,
        b"MEMBER" => Reply::Member(parse_taken(&mut words)?),
        b"MEMBERS" => Reply::Members(number_of(words.next()?).ok()?),
        b"NO_MEMBERS" => {
            let reason = words.next()?;
            Reply::NoMembers(REASONS.into_iter().find(|known| reason_of(*known).as_bytes() == reason)?)
        }
        b"QUEUE_FULL" => Reply::QueueFull,
        b"LIMIT" => Reply::Limit,
        b"RETURNED" => Reply::Returned,
        b"RENEWED" => Reply::Renewed,
        b"NOT_TAKEN" => Reply::NotTaken,
        _ => return None,
    };
    words.next().is_none().then_some(reply)
}

/// Returns whether a line is a notice, which comes without a request.
pub fn is_notice(line: &[u8]) -> bool {
    line.first() == Some(&b'!')
}

/// Reads a notice without its end, which begins with `!`. None: it is unknown.
pub fn parse_notice(line: &[u8]) -> Option<Notice> {
    let mut words = LineWords(line);
    let command = words.next()?;
    if command == b"!LOST" {
        let (lease, reason) = (parse_long(words.next()?).ok()?, words.next()?);
        let reason = LOSSES.into_iter().find(|known| lost_of(*known).as_bytes() == reason)?;
        let by = words.next().and_then(|word| word.strip_prefix(b"by="));
        let by = by.map(|name| LostBy { name: unescape(name).into(), note: words.text().into() });
        return Some(Notice::Lost(lease, reason, by.map(Box::new)));
    }
    // This is the name of the pool: a connection provides for one only.
    words.next()?;
    let what = words.next()?;
    Some(Notice::Task(match command {
        b"!START" => Task::Start(parse_long(what).ok()?),
        b"!STOP" => Task::Stop(what.into()),
        b"!CHECK" => Task::Check(what.into()),
        b"!CLEAN" => Task::Clean(what.into()),
        _ => return None,
    }))
}

/// Returns the reason of a loss, as the end of a sentence.
pub fn describe_loss(reason: Lost) -> &'static str {
    match reason {
        Lost::Died => "it died",
        Lost::Withdrawn => "it was withdrawn",
        Lost::TakenBack => "an operator took it back",
        Lost::HeldTooLong => "it was held for longer than the pool allows",
        Lost::ProviderLost => "its provider is gone",
        Lost::Removed => "its pool was removed",
        Lost::Expired => "its lease ran out",
    }
}

fn parse_taken(words: &mut LineWords<'_>) -> Option<Taken> {
    let (lease, pool, member) = (parse_long(words.next()?).ok()?, words.next()?, words.next()?);
    let (mut attributes, mut token) = (Attributes::new(), None::<Token>);
    for word in words {
        match word.strip_prefix(TOKEN) {
            Some(digits) => token = Some(parse_token(digits).ok()?),
            None => {
                let (name, value) = split(word)?;
                attributes.push((name.into(), value.into()));
            }
        }
    }
    let attributes = (!attributes.is_empty()).then(|| Arc::new(attributes));
    Some(Taken { lease, pool: pool.into(), member: member.into(), attributes, token })
}

#[cfg(test)]
mod tests {
    use super::super::replies::write_what;
    use super::super::{Line, parse};
    use super::*;
    use crate::members::pool_settings::{Change, Filter, Key, Value};
    use crate::members::request::What;

    fn attributes(pairs: &[(&str, &str)]) -> Attributes {
        pairs.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect()
    }

    fn take(from: From<'_>) -> Take<'_> {
        Take { from, timeout: Span::ZERO, filter: None, count: None, priority: 5, lease: None }
    }

    #[test]
    fn every_request_is_read_as_it_was_written() {
        let named = Named { pool: b"db", member: b"10.0.0.5:1" };
        let filter = Filter { member: Some(b"m"[..].into()), attributes: attributes(&[("os", "a=b")]) };
        let full = Take {
            timeout: Span::from_millis(1_500),
            filter: Some(filter.into()),
            count: Some(1),
            priority: 0,
            lease: Some(Span::from_secs(60)),
            ..take(From::Group(b"g"))
        };
        let only_attributes = Filter { member: None, attributes: attributes(&[("a", "1"), ("b", "2")]) };
        let some = Take { filter: Some(Arc::new(only_attributes)), count: Some(7), ..take(From::Pool(b"db")) };
        let token = *b"0123456789abcdef";
        for request in [
            Request::Take(take(From::Pool(b"db"))),
            Request::Take(full),
            Request::Take(some),
            Request::Return { lease: LeaseName::Number(u64::MAX), condition: Condition::Ok },
            Request::Return { lease: LeaseName::Token(token), condition: Condition::Fail },
            Request::Renew { token, span: None },
            Request::Renew { token, span: Some(Span::from_millis(250)) },
            Request::Provide { pool: b"db", capacity: None, session: None },
            Request::Provide { pool: b"db", capacity: Some(3), session: Some(b"s") },
            Request::Started { start: 7, named: Ok((b"m", attributes(&[("a", "1")]))) },
            Request::Started { start: 7, named: Ok((b"m", Attributes::new())) },
            Request::Failed { start: 7, text: b"exit status 1" },
            Request::Stopped { member: b"m" },
            Request::Alive { member: b"m" },
            Request::Dead { member: b"m", text: b"" },
            Request::Dead { member: b"m", text: b"status 1: no route" },
            Request::Cleaned { member: b"m" },
            Request::Cleaning { member: b"m" },
            Request::Offer { named, attributes: attributes(&[("a", "1")]) },
            Request::Withdraw { named, now: false },
            Request::Withdraw { named, now: true },
            Request::Identify { name: b"ci-job-7" },
            Request::Clean { pool: b"db" },
            Request::RemovePool { name: b"db", graceful: false },
            Request::RemovePool { name: b"db", graceful: true },
            Request::RemoveGroup { name: b"g", graceful: false },
            Request::RemoveGroup { name: b"g", graceful: true },
            Request::Add { named, attributes: attributes(&[("a", "1")]) },
            Request::Delete { named, now: false },
            Request::Delete { named, now: true },
            Request::Repair { named, as_is: false },
            Request::Repair { named, as_is: true },
            Request::Hold { named, span: Span::from_millis(1_500), note: b"" },
            Request::Hold { named, span: Span::from_secs(60), note: b"its battery is low" },
            Request::Free(named),
            Request::TakeBack { lease: u64::MAX, note: b"" },
            Request::TakeBack { lease: 7, note: b"for a release" },
        ] {
            let mut bytes = Vec::new();
            write_request(&mut bytes, &request);
            let line = bytes.strip_suffix(b"\n").expect("a line has an end");
            assert_eq!(parse(line), Ok(Line::Request(request)), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let settings = escape_settings(&[("group", "a b"), ("grow_at", ""), ("max_hold", "1.5")]).expect("can be sent");
        let change = |key, value| Change::new(key, value).expect("is of its kind");
        let mut changes = vec![
            change(Key::group, Value::Group(Some(b"a%20b"[..].into()))),
            change(Key::grow_at, Value::Optional(None)),
            change(Key::max_hold, Value::Seconds(Span::from_millis(1_500))),
        ];
        let mut bytes = Vec::new();
        write_reconfiguration(&mut bytes, b"db", &settings);
        let request = Request::Reconfigure { name: b"db", changes: changes.clone() };
        assert_eq!(parse(bytes.trim_ascii_end()), Ok(Line::Request(request)));
        let mut bytes = Vec::new();
        write_declaration(&mut bytes, b"db", 1, 9, &settings);
        let sizes = [(Key::init, 1), (Key::max, 9)].map(|(key, number)| change(key, Value::Number(number)));
        changes.splice(..0, sizes);
        assert_eq!(parse(bytes.trim_ascii_end()), Ok(Line::Request(Request::Pool { name: b"db", changes })));
        for pair in [("", "1"), ("a=b", "1"), ("group", "a\nb"), ("gr\noup", "1"), ("group", &"x".repeat(256))] {
            assert_eq!(escape_settings(&[pair]), None, "{pair:?}");
        }
    }

    #[test]
    fn every_reply_is_read_as_it_was_written() {
        let taken = |attributes: Option<Attributes>, token| Taken {
            lease: 12,
            pool: b"db"[..].into(),
            member: b"m"[..].into(),
            attributes: attributes.map(Arc::new),
            token,
        };
        let (bare, full) = (taken(None, None), taken(Some(attributes(&[("url", "a=b")])), Some(*b"0123456789abcdef")));
        let reasons = REASONS.map(|reason| (What::NoMembers(reason), Reply::NoMembers(reason)));
        for (what, reply) in [
            (What::Ok, Reply::Ok),
            (What::Error(Refusal::NoPool), Reply::Error(b"NO_POOL")),
            (What::Member(bare.clone()), Reply::Member(bare)),
            (What::Member(full.clone()), Reply::Member(full)),
            (What::Members(Vec::new()), Reply::Members(0)),
            (What::QueueFull, Reply::QueueFull),
            (What::Limit, Reply::Limit),
            (What::Returned, Reply::Returned),
            (What::Renewed, Reply::Renewed),
            (What::NotTaken, Reply::NotTaken),
        ]
        .into_iter()
        .chain(reasons)
        {
            assert_eq!(parse_reply(&written(&what)), Some(reply));
        }
        for line in ["", "LOCKED", "OK 1", "NO_MEMBERS", "NO_MEMBERS never", "MEMBER x db m", "MEMBER 1 db m a"] {
            assert_eq!(parse_reply(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn every_notice_is_read_as_it_was_written() {
        let (pool, member): (Arc<[u8]>, Arc<[u8]>) = (b"db"[..].into(), b"m"[..].into());
        let named = || (pool.clone(), member.clone());
        let by = |note: &[u8]| Some(Box::new(LostBy { name: b"ann%20"[..].into(), note: note.into() }));
        let losses = LOSSES.map(|reason| (reason, None)).into_iter();
        let losses = losses.chain([&b""[..], b"for a look"].map(|note| (Lost::TakenBack, by(note))));
        let losses =
            losses.map(|(reason, by)| (What::Lost { lease: 9, reason, by: by.clone() }, Notice::Lost(9, reason, by)));
        let ((a, b), (c, d), (e, f)) = (named(), named(), named());
        for (what, notice) in [
            (What::Start { pool: pool.clone(), start: 4 }, Notice::Task(Task::Start(4))),
            (What::Stop { pool: a, member: b }, Notice::Task(Task::Stop(b"m"[..].into()))),
            (What::Check { pool: c, member: d }, Notice::Task(Task::Check(b"m"[..].into()))),
            (What::Clean { pool: e, member: f }, Notice::Task(Task::Clean(b"m"[..].into()))),
        ]
        .into_iter()
        .chain(losses)
        {
            let line = written(&what);
            assert!(is_notice(&line));
            assert_eq!(parse_notice(&line), Some(notice));
        }
        for line in ["!", "!START", "!START db", "!START db x", "!LOST 1", "!LOST 1 bored", "!NEW db m"] {
            assert_eq!(parse_notice(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn names_are_sent_so_that_a_line_can_carry_them() {
        assert_eq!(escape_name(b"a b").as_deref(), Some(&b"a%20b"[..]));
        assert_eq!(escape_name(&[b' '; 86]), None, "it is too long with its spaces escaped");
        for name in [&b""[..], b"a\nb", b"a\0", &[b'x'; 256]] {
            assert_eq!(escape_name(name), None, "{}", name.escape_ascii());
        }
        assert_eq!(escape_member(b"!m"), None);
        let (name, has) = parse_named_member(b"m a=1  b=2").expect("is a member");
        assert_eq!((name, has), (&b"m"[..], attributes(&[("a", "1"), ("b", "2")])));
        for line in ["", "!m", "m a", "m a=", "m token=1", "m a=1 a=2"] {
            assert!(parse_named_member(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn refusals_are_sentences_with_the_words_of_the_server() {
        assert_eq!(describe_refusal("NO_POOL").as_deref(), Some("there is no such pool (NO_POOL)"));
        assert_eq!(describe_refusal("BAD_START"), None);
        assert_eq!(check_attribute(b"os", b"ios"), Ok(()));
        for (name, value) in [(&b"member"[..], &b"a"[..]), (b"a", b""), (b"a", b"\n"), (b"a", &[b'x'; 256])] {
            assert!(check_attribute(name, value).is_err());
        }
    }

    fn written(what: &What) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_what(&mut bytes, what);
        bytes.strip_suffix(b"\n").expect("a line has an end").to_vec()
    }
}
