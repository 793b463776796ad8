//! Protocol of the members: lines to requests, events to lines. It knows nothing of the state.

use super::commands::MemberCommand;
use super::pool_settings::{Change, Contradiction, Filter, Key, Kind, OnLoss, Order, Value};
use super::request::{Attributes, Condition, From, LeaseName, Named, Refusal, Request, Take, Token};
use crate::line::{LineWords, take_plain_word};
use poolcounter_core::decimal::{parse_number, parse_seconds};
use poolcounter_core::time::Span;
use std::sync::Arc;

pub mod client;
mod listed;
pub mod replies;

/// Longest name and longest value, in bytes.
pub const LONGEST_NAME: usize = 255;
/// Most attributes of a member.
pub const MOST_ATTRIBUTES: usize = 16;
/// Most bytes of the names and values of a member's attributes together.
pub const ATTRIBUTE_BYTES: usize = 1024;
/// Reason for which a member is not cleaned.
pub const NO_CLEANER: &str = "waits for a cleaner; none is connected";
/// Priority of a take that names none.
const PRIORITY: u8 = 5;
/// Names of a take's own options, which no attribute may have.
const OPTIONS: [&[u8]; 5] = [b"member", b"n", b"pri", b"lease", b"token"];

/// One line of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A request that changes something.
    Request(Request<'a>),
    /// A request that changes nothing.
    Query(Query<'a>),
}

/// Request that changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query<'a> {
    /// `UTILIZATION pool`.
    Utilization {
        /// Name of the pool.
        pool: &'a [u8],
    },
    /// `MEMBERS pool [after=NAME] [limit=N]`.
    Members {
        /// Name of the pool.
        pool: &'a [u8],
        /// Name after which the list begins.
        after: Option<&'a [u8]>,
        /// Most members in the list.
        limit: Option<u32>,
    },
    /// `WAITERS pool [limit=N]`.
    Waiters {
        /// Name of the pool.
        pool: &'a [u8],
        /// Most waiters in the list.
        limit: Option<u32>,
    },
    /// `HISTORY pool member`.
    History {
        /// Fixed member.
        named: Named<'a>,
    },
    /// `POOLS`.
    Pools,
}

/// Reads a line without its end.
///
/// # Errors
///
/// Fails if it is no well-formed request.
pub fn parse(line: &[u8]) -> Result<Line<'_>, Refusal> {
    if let Some(request) = parse_usual(line) {
        return Ok(Line::Request(request));
    }
    parse_any(line)
}

fn parse_any(line: &[u8]) -> Result<Line<'_>, Refusal> {
    if line.first() == Some(&b' ') {
        return Err(Refusal::BadCommand);
    }
    let mut words = LineWords(line);
    let command = words.next().and_then(MemberCommand::of_word).ok_or(Refusal::BadCommand)?;
    let line = read(command, &mut words)?;
    words.end(line)
}

/// Reads `TAKE pool seconds` and `RETURN lease` as most clients write them; None for any other line.
fn parse_usual(line: &[u8]) -> Option<Request<'_>> {
    if let Some(lease) = line.strip_prefix(b"RETURN ") {
        return Some(Request::Return { lease: parse_lease(lease).ok()?, condition: Condition::Ok });
    }
    let mut rest = line.strip_prefix(b"TAKE ")?;
    let pool = take_plain_word(&mut rest).filter(|name| name.len() <= LONGEST_NAME)?;
    let (from, timeout) = (From::Pool(pool), parse_seconds(rest)?);
    Some(Request::Take(Take { from, timeout, filter: None, count: None, priority: PRIORITY, lease: None }))
}

/// Reads the parameters of a command.
fn read<'a>(command: MemberCommand, words: &mut LineWords<'a>) -> Result<Line<'a>, Refusal> {
    Ok(Line::Request(match command {
        MemberCommand::Take => parse_take(From::Pool(words.name()?), words)?,
        MemberCommand::TakeGroup => parse_take(From::Group(words.name()?), words)?,
        MemberCommand::Return => {
            Request::Return { lease: parse_lease(words.word()?)?, condition: parse_condition(words.next())? }
        }
        MemberCommand::Renew => Request::Renew { token: parse_token(words.word()?)?, span: words.positive_seconds()? },
        MemberCommand::Cancel => Request::Cancel,
        MemberCommand::Identify => Request::Identify { name: words.name()? },
        MemberCommand::Bye => Request::Bye,
        MemberCommand::Provide => parse_provide(words)?,
        MemberCommand::Clean => Request::Clean { pool: words.name()? },
        MemberCommand::Started => {
            let start = parse_long(words.word()?)?;
            let named = words.member().and_then(|member| Ok((member, parse_attributes(words)?)));
            if named.is_err() {
                // The start is refused; the rest of the line is not needed.
                words.text();
            }
            Request::Started { start, named }
        }
        MemberCommand::Failed => Request::Failed { start: parse_long(words.word()?)?, text: words.text() },
        MemberCommand::Stopped => Request::Stopped { member: words.member()? },
        MemberCommand::Alive => Request::Alive { member: words.member()? },
        MemberCommand::Dead => Request::Dead { member: words.member()?, text: words.text() },
        MemberCommand::Cleaned => Request::Cleaned { member: words.member()? },
        MemberCommand::Cleaning => Request::Cleaning { member: words.member()? },
        MemberCommand::Offer => Request::Offer { named: words.named()?, attributes: parse_attributes(words)? },
        MemberCommand::Withdraw => Request::Withdraw { named: words.named()?, now: words.flag(b"NOW")? },
        MemberCommand::Utilization => return Ok(Line::Query(Query::Utilization { pool: words.name()? })),
        MemberCommand::Members => return parse_members(words).map(Line::Query),
        MemberCommand::Waiters => return parse_waiters(words).map(Line::Query),
        MemberCommand::History => return Ok(Line::Query(Query::History { named: words.named()? })),
        MemberCommand::Pools => return Ok(Line::Query(Query::Pools)),
        MemberCommand::Pool => {
            let name = words.name()?;
            let mut changes = Vec::new();
            for key in [Key::init, Key::max] {
                changes.push(parse_change(key, words.word()?)?);
            }
            Request::Pool { name, changes: parse_changes(changes, words)? }
        }
        MemberCommand::Reconfigure => {
            Request::Reconfigure { name: words.name()?, changes: parse_changes(Vec::new(), words)? }
        }
        MemberCommand::RemovePool => Request::RemovePool { name: words.name()?, graceful: words.flag(b"GRACEFUL")? },
        MemberCommand::RemoveGroup => Request::RemoveGroup { name: words.name()?, graceful: words.flag(b"GRACEFUL")? },
        MemberCommand::Add => Request::Add { named: words.named()?, attributes: parse_attributes(words)? },
        MemberCommand::Delete => Request::Delete { named: words.named()?, now: words.flag(b"NOW")? },
        MemberCommand::Repair => Request::Repair { named: words.named()?, as_is: words.flag(b"as_is")? },
        MemberCommand::Hold => {
            Request::Hold { named: words.named()?, span: seconds_of(words.word()?)?, note: words.text() }
        }
        MemberCommand::Free => Request::Free(words.named()?),
        MemberCommand::TakeBack => Request::TakeBack { lease: parse_long(words.word()?)?, note: words.text() },
    }))
}

fn parse_provide<'a>(words: &mut LineWords<'a>) -> Result<Request<'a>, Refusal> {
    let pool = words.name()?;
    let (mut capacity, mut session) = (None, None);
    for (n, word) in words.enumerate() {
        match split(word) {
            None if n == 0 => capacity = Some(number_of(word)?),
            Some((b"session", name)) if session.is_none() => session = Some(check_name(name)?),
            _ => return Err(Refusal::BadSyntax("a capacity and session=NAME, each once")),
        }
    }
    Ok(Request::Provide { pool, capacity, session })
}

fn parse_members<'a>(words: &mut LineWords<'a>) -> Result<Query<'a>, Refusal> {
    let pool = words.name()?;
    let (mut after, mut limit) = (None, None);
    for word in words {
        match split(word) {
            Some((b"after", name)) if after.is_none() => after = Some(check_name(name)?),
            Some((b"limit", number)) if limit.is_none() => limit = Some(number_of(number)?),
            _ => return Err(Refusal::BadSyntax("after=NAME and limit=N, each once")),
        }
    }
    Ok(Query::Members { pool, after, limit })
}

fn parse_waiters<'a>(words: &mut LineWords<'a>) -> Result<Query<'a>, Refusal> {
    let pool = words.name()?;
    let mut limit = None;
    for word in words {
        match split(word) {
            Some((b"limit", number)) if limit.is_none() => limit = Some(number_of(number)?),
            _ => return Err(Refusal::BadSyntax("limit=N, once")),
        }
    }
    Ok(Query::Waiters { pool, limit })
}

impl<'a> LineWords<'a> {
    fn word(&mut self) -> Result<&'a [u8], Refusal> {
        self.next().ok_or(Refusal::BadSyntax("a parameter is missing"))
    }

    fn name(&mut self) -> Result<&'a [u8], Refusal> {
        self.word().and_then(check_name)
    }

    fn member(&mut self) -> Result<&'a [u8], Refusal> {
        self.word().and_then(check_member)
    }

    fn named(&mut self) -> Result<Named<'a>, Refusal> {
        Ok(Named { pool: self.name()?, member: self.member()? })
    }

    fn positive_seconds(&mut self) -> Result<Option<Span>, Refusal> {
        self.next().map(positive_seconds_of).transpose()
    }

    fn flag(&mut self, flag: &[u8]) -> Result<bool, Refusal> {
        match self.next() {
            None => Ok(false),
            Some(word) if word == flag => Ok(true),
            Some(_) => Err(Refusal::BadSyntax("unknown parameter")),
        }
    }

    /// Takes the rest of the line, as a text for people.
    fn text(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0).trim_ascii()
    }

    fn end<T>(&mut self, value: T) -> Result<T, Refusal> {
        self.next().map_or(Ok(value), |_| Err(Refusal::BadSyntax("too many parameters")))
    }
}

/// Reason for which text is refused as a number.
pub const NO_NUMBER: &str = "a number is decimal digits";
/// Reason for which text is refused as seconds.
pub const NO_SECONDS: &str = "seconds are digits with decimals";

/// Returns the name of a pool or a group.
///
/// # Errors
///
/// Fails if it is no valid name.
pub fn check_name(name: &[u8]) -> Result<&[u8], Refusal> {
    match name {
        [] => Err(Refusal::BadSyntax("a name is empty")),
        _ if name.len() > LONGEST_NAME => Err(Refusal::BadSyntax("a name has at most 255 bytes")),
        _ if name.contains(&0) => Err(Refusal::BadSyntax("a name has no NUL")),
        _ => Ok(name),
    }
}

/// Returns the name of a member.
///
/// # Errors
///
/// Fails if it is no valid name.
pub fn check_member(name: &[u8]) -> Result<&[u8], Refusal> {
    if name.first() == Some(&b'!') {
        Err(Refusal::BadSyntax("a member's name begins with !"))
    } else {
        check_name(name)
    }
}

fn number_of(word: &[u8]) -> Result<u32, Refusal> {
    parse_number(word).ok_or_else(|| no_number(word))
}

#[cold]
fn no_number(word: &[u8]) -> Refusal {
    match word {
        [_, ..] if word.iter().all(u8::is_ascii_digit) => Refusal::BadSyntax("the number is too large"),
        _ => Refusal::BadSyntax(NO_NUMBER),
    }
}

fn seconds_of(word: &[u8]) -> Result<Span, Refusal> {
    parse_seconds(word).ok_or(Refusal::BadSyntax(NO_SECONDS))
}

fn positive_seconds_of(word: &[u8]) -> Result<Span, Refusal> {
    let span = seconds_of(word)?;
    if span == Span::ZERO { Err(Refusal::BadSyntax("lease must be more than 0")) } else { Ok(span) }
}

/// Reads a number of 64 bits. Each return has one of sixteen digits, so eight are read at a time.
fn parse_long(word: &[u8]) -> Result<u64, Refusal> {
    let (eights, rest) = word.as_chunks();
    let digit = |byte: &u8| byte.checked_sub(b'0').filter(|digit| *digit <= 9);
    let head = |number: u64, eight| number.checked_mul(100_000_000)?.checked_add(eight_digits(eight)?);
    let tail = |number: u64, byte| number.checked_mul(10)?.checked_add(digit(byte)?.into());
    let number = eights.iter().try_fold(0, |number, eight| head(number, *eight));
    let number = number.and_then(|number| rest.iter().try_fold(number, tail));
    number.filter(|_| !word.is_empty()).ok_or_else(|| no_number(word))
}

/// Returns the number of eight decimal digits. Neighbours become one number in each step: of two, four and eight digits.
fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    let all = |byte: u8| u64::from_ne_bytes([byte; 8]);
    let bytes = u64::from_le_bytes(digits);
    let is_digit = (bytes & all(0xf0)) | (bytes.wrapping_add(all(6)) & all(0xf0)) >> 4 == all(0x33);
    let twos = (bytes & all(0x0f)).wrapping_mul(2561) >> 8;
    let fours = (twos & 0x00ff_00ff_00ff_00ff).wrapping_mul(6_553_601) >> 16;
    is_digit.then_some((fours & 0x0000_ffff_0000_ffff).wrapping_mul(42_949_672_960_001) >> 32)
}

fn parse_lease(word: &[u8]) -> Result<LeaseName, Refusal> {
    if word.len() == 2 * size_of::<Token>() {
        return parse_token(word).map(LeaseName::Token);
    }
    parse_long(word).map(LeaseName::Number)
}

fn parse_token(word: &[u8]) -> Result<Token, Refusal> {
    const WRONG: Refusal = Refusal::BadSyntax("a token is 32 hexadecimal digits");
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut token = Token::default();
    if word.len() != 2 * token.len() {
        return Err(WRONG);
    }
    for (byte, pair) in token.iter_mut().zip(word.chunks_exact(2)) {
        *byte = digit(pair[0]).ok_or(WRONG)? << 4 | digit(pair[1]).ok_or(WRONG)?;
    }
    Ok(token)
}

fn parse_condition(word: Option<&[u8]>) -> Result<Condition, Refusal> {
    match word {
        None | Some(b"OK") => Ok(Condition::Ok),
        Some(b"FAIL") => Ok(Condition::Fail),
        Some(_) => Err(Refusal::BadSyntax("the result is OK or FAIL")),
    }
}

/// Splits `key=value`.
fn split(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    Some((&word[..at], &word[at + 1..]))
}

fn parse_changes(mut changes: Vec<Change>, words: &mut LineWords<'_>) -> Result<Vec<Change>, Refusal> {
    for word in words {
        let (name, value) = split(word).ok_or(Refusal::BadSyntax("settings are key=value"))?;
        let key = Key::ALL.iter().find(|key| key.name().as_bytes() == name);
        let key = *key.ok_or(Refusal::BadSyntax("there is no such setting"))?;
        if changes.iter().any(|change| change.key() == key) {
            return Err(Refusal::BadSyntax("a setting is given twice"));
        }
        changes.push(parse_change(key, value)?);
    }
    Ok(changes)
}

/// Reads the value of a setting.
///
/// # Errors
///
/// Fails if it is no value of this setting.
pub fn parse_change(key: Key, value: &[u8]) -> Result<Change, Refusal> {
    let value = match (key.kind(), value) {
        (Kind::Group, []) => Value::Group(None),
        (Kind::Optional, []) => Value::Optional(None),
        (_, []) => return Err(Refusal::BadSyntax("a value is empty")),
        (Kind::Group, name) => Value::Group(Some(check_name(name)?.into())),
        (Kind::Optional, number) => Value::Optional(Some(number_of(number)?)),
        (Kind::Number, number) => Value::Number(number_of(number)?),
        (Kind::Seconds, seconds) => Value::Seconds(seconds_of(seconds)?),
        (Kind::Order, b"lifo") => Value::Order(Order::Lifo),
        (Kind::Order, b"fifo") => Value::Order(Order::Fifo),
        (Kind::Order, _) => return Err(Refusal::BadSyntax("order is lifo or fifo")),
        (Kind::OnLoss, b"fail") => Value::OnLoss(OnLoss::Fail),
        (Kind::OnLoss, b"ok") => Value::OnLoss(OnLoss::Ok),
        (Kind::OnLoss, _) => return Err(Refusal::BadSyntax("on_loss is fail or ok")),
    };
    Ok(Change::new(key, value).expect("the value was made for the key's kind"))
}

/// Reads the attributes behind a member's name.
fn parse_attributes(words: &mut LineWords<'_>) -> Result<Attributes, Refusal> {
    let mut attributes = Attributes::new();
    for word in words {
        add_attribute(&mut attributes, word)?;
    }
    check_attributes(&attributes)?;
    Ok(attributes)
}

/// Adds an attribute, which is written as `name=value`.
///
/// # Errors
///
/// Fails if it is no valid attribute.
pub fn add_attribute(attributes: &mut Attributes, word: &[u8]) -> Result<(), Refusal> {
    let (name, value) = split(word).ok_or(Refusal::BadSyntax("attributes are name=value"))?;
    if OPTIONS.contains(&name) {
        return Err(Refusal::BadSyntax("an attribute has the name of an option"));
    }
    check_name(name)?;
    match value {
        [] => return Err(Refusal::BadSyntax("the value of an attribute is empty")),
        _ if value.len() > LONGEST_NAME => {
            return Err(Refusal::BadSyntax("the value of an attribute has at most 255 bytes"));
        }
        _ if value.contains(&0) => return Err(Refusal::BadSyntax("the value of an attribute has no NUL")),
        _ => {}
    }
    if attributes.iter().any(|(other, _)| **other == *name) {
        return Err(Refusal::BadSyntax("an attribute is given twice"));
    }
    attributes.push((name.into(), value.into()));
    Ok(())
}

/// Returns whether a member may have these attributes.
///
/// # Errors
///
/// Fails if there are too many, or too many bytes.
pub fn check_attributes(attributes: &Attributes) -> Result<(), Refusal> {
    let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
    let too_many = attributes.len() > MOST_ATTRIBUTES || bytes > ATTRIBUTE_BYTES;
    if too_many { Err(Refusal::TooMany) } else { Ok(()) }
}

fn parse_take<'a>(from: From<'a>, words: &mut LineWords<'a>) -> Result<Request<'a>, Refusal> {
    let (mut timeout, mut filter) = (Span::ZERO, Filter::default());
    let (mut count, mut priority, mut lease) = (None, None, None);
    for (n, word) in words.enumerate() {
        match split(word) {
            None if n == 0 && word != b"resume" => timeout = seconds_of(word)?,
            Some((b"member", name)) if filter.member.is_none() => filter.member = Some(check_member(name)?.into()),
            Some((b"n", number)) if count.is_none() => count = Some(number_of(number)?),
            Some((b"pri", number)) if priority.is_none() => priority = Some(number_of(number)?),
            Some((b"lease", seconds)) if lease.is_none() => lease = Some(positive_seconds_of(seconds)?),
            None if word == b"resume" && lease.is_none() => lease = Some(Span::ZERO),
            _ => add_attribute(&mut filter.attributes, word)?,
        }
    }
    check_attributes(&filter.attributes)?;
    let priority = u8::try_from(priority.unwrap_or(PRIORITY.into())).ok().filter(|priority| *priority <= 9);
    let priority = priority.ok_or(Refusal::BadSyntax("pri is 0 to 9"))?;
    match count {
        Some(0) => return Err(Refusal::BadSyntax("n is at least 1")),
        Some(2..) if filter.member.is_some() => return Err(Refusal::BadSyntax("n must be 1 with member=")),
        _ => {}
    }
    let filter = (!filter.is_empty()).then(|| Arc::new(filter));
    Ok(Request::Take(Take { from, timeout, filter, count, priority, lease }))
}

/// Returns the fault of the settings, for people.
pub fn text_of(contradiction: Contradiction) -> &'static str {
    match contradiction {
        Contradiction::NoRoom => "max is at least 1",
        Contradiction::InitAboveMax => "init is at most max",
        Contradiction::JitterTooLong => "lifetime_jitter is less than max_lifetime",
        Contradiction::NothingCleaned => "clean_parallel is at least 1",
    }
}

#[cfg(test)]
mod tests;
