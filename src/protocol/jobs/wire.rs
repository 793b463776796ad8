//! Protocol of beanstalkd 1.13 and its extensions: lines to requests, replies to bytes. It knows nothing of the state.

use super::commands::JobCommand;
use super::name::{Pattern, TubeName};
use super::request::{JobId, JobState, SummaryBy, Until};
use super::values::{
    Backoff, Failure, JobChange, JobsOf, Limit, LimitOf, Peek, Put, PutOptions, Refusal, Reserve, Scope,
};

pub mod client;
pub mod replies;
pub mod schedule;
pub mod stream;
mod words;

use words::Words;

/// Longest line of beanstalkd's commands, with its end.
pub const MAX_LINE: usize = 224;
/// Longest line of an extension.
pub const MAX_EXTENSION_LINE: usize = 1024;
/// Longest text of a `fail`.
pub const MAX_ERROR_BYTES: u32 = 4096;
/// Most puts of a put-many, and most jobs of a reserve-many.
pub const MANY: u32 = 1000;
/// Most bytes of the bodies of a put-many together.
pub const MANY_BYTES: usize = 16 << 20;

/// Longest wait in seconds.
const MAX_TIMEOUT: u64 = 0x7fff_ffff;
const MAX_KEY: usize = 200;
const MAX_GROUP: usize = 64;
const MAX_WEIGHT: u64 = 1000;

/// A request without a body.
#[derive(Clone, PartialEq, Debug)]
pub enum Request<'a> {
    /// `use`
    Use(TubeName<'a>),
    /// `reserve`, `reserve-with-timeout`, `reserve-many`
    Reserve(Reserve),
    /// `reserve-job`
    ReserveJob(JobId),
    /// `delete`
    Delete(JobId),
    /// `release id pri delay`
    Release(JobId, u32, u32),
    /// `bury id pri`
    Bury(JobId, u32),
    /// `touch`
    Touch(JobId),
    /// `begin`
    Begin(JobId),
    /// `watch`, with the weight if the client named one
    Watch(Pattern<'a>, Option<u16>),
    /// `ignore`
    Ignore(Pattern<'a>),
    /// `peek`
    Peek(JobId),
    /// `peek-ready`, `peek-delayed`, `peek-buried`
    PeekFirst(Peek),
    /// `kick`
    Kick(u32),
    /// `kick-job`
    KickJob(JobId),
    /// `stats`
    Stats,
    /// `stats-job`
    StatsJob(JobId),
    /// `stats-tube`
    StatsTube(TubeName<'a>),
    /// `list-tubes`
    ListTubes,
    /// `list-tube-used`
    ListTubeUsed,
    /// `list-tubes-watched`
    ListTubesWatched,
    /// `pause-tube`
    PauseTube(TubeName<'a>, u32),
    /// `pause-all`
    PauseAll(Pattern<'a>, u32),
    /// `quit`
    Quit,
    /// `extensions`
    Extensions,
    /// `root tube signature timestamp`
    Root(TubeName<'a>, &'a [u8], u64),
    /// `dropped`
    Dropped(TubeName<'a>),
    /// `identify`
    Identify(&'a [u8]),
    /// `limit`
    Limit(LimitOf<'a>, Limit),
    /// `retry`
    Retry(Pattern<'a>, Backoff),
    /// `dead-letter`
    DeadLetter(Pattern<'a>, Option<TubeName<'a>>),
    /// `clear`
    Clear(Pattern<'a>, Option<JobState>),
    /// `kick-all`
    KickAll(Pattern<'a>, Option<JobState>),
    /// `move`
    Move(JobsOf<'a>, TubeName<'a>, Option<JobState>),
    /// `set-job`
    SetJob(JobId, JobChange),
    /// `cancel`
    Cancel(JobsOf<'a>),
    /// `list-jobs tube state limit after`
    ListJobs(TubeName<'a>, JobState, u32, JobId),
    /// `summary`
    Summary(SummaryBy),
    /// `list-settings`
    ListSettings(Option<Pattern<'a>>),
    /// `schedule-delete name`
    ScheduleDelete(&'a [u8]),
    /// `list-schedules`
    ListSchedules,
    /// `drain`
    Drain,
    /// `undrain`
    Undrain,
    /// `store-copy name`
    StoreCopy(&'a [u8]),
}

/// Meaning of a line.
#[derive(Clone, PartialEq, Debug)]
pub enum Line<'a> {
    /// A complete request, and its command.
    Request(JobCommand, Request<'a>),
    /// A put, whose body of this many bytes follows.
    Put(Put, u32),
    /// `put-many`: this many puts follow.
    PutMany(u32),
    /// `fail`, whose text of this many bytes follows.
    Fail(Failure, u32),
    /// A malformed line, or an unknown command.
    Refused(Refusal),
    /// A malformed line of this command that names the number of bytes that follow.
    RefusedBody(JobCommand, u32),
}

/// Commands whose words end with a space for beanstalkd, so that they are unknown to it without arguments.
const ENDING_WITH_A_SPACE: [JobCommand; 11] = [
    JobCommand::Put,
    JobCommand::Use,
    JobCommand::Delete,
    JobCommand::Release,
    JobCommand::Bury,
    JobCommand::Touch,
    JobCommand::Watch,
    JobCommand::Ignore,
    JobCommand::Peek,
    JobCommand::Kick,
    JobCommand::KickJob,
];

/// Words that beanstalkd recognizes as the beginning of a line, with any text behind them, which it then rejects.
const PREFIXES: [&str; 7] =
    ["reserve", "peek-ready", "peek-delayed", "peek-buried", "stats", "list-tubes", "list-tube-used"];

/// Reads a line without its end.
pub fn parse(line: &[u8]) -> Line<'_> {
    let (word, rest) = match line.iter().position(|byte| *byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space..])),
        None => (line, None),
    };
    match JobCommand::of_word(word) {
        Some(command) if rest.is_none() && ENDING_WITH_A_SPACE.contains(&command) => {
            Line::Refused(Refusal::UnknownCommand)
        }
        Some(command) => read(command, &mut Words::new(rest)).unwrap_or(Line::Refused(command.wrong_form())),
        // beanstalkd reads lines as strings of C.
        None if line.contains(&0) => Line::Refused(Refusal::BadFormat),
        None if PREFIXES.iter().any(|prefix| word.starts_with(prefix.as_bytes())) => Line::Refused(Refusal::BadFormat),
        None => Line::Refused(Refusal::UnknownCommand),
    }
}

/// Reads the arguments of a command.
fn read<'a>(command: JobCommand, words: &mut Words<'a>) -> Result<Line<'a>, words::Wrong> {
    let request = match command {
        JobCommand::Put => return put(words),
        JobCommand::PutJob => return put_job(words),
        JobCommand::PutMany => return put_many(words),
        JobCommand::Fail => return fail(words),
        JobCommand::SchedulePut => return schedule::read(words),
        JobCommand::ScheduleDelete => Request::ScheduleDelete(words.text(MAX_GROUP)?),
        JobCommand::ListSchedules => Request::ListSchedules,
        JobCommand::Use => Request::Use(words.tube()?),
        JobCommand::Reserve => Request::Reserve(Reserve { timeout: None, many: None }),
        JobCommand::ReserveWithTimeout => Request::Reserve(Reserve { timeout: Some(words.timeout()?), many: None }),
        JobCommand::ReserveMany => {
            let many = Some(words.count()?);
            Request::Reserve(Reserve { timeout: Some(words.timeout()?), many })
        }
        JobCommand::ReserveJob => Request::ReserveJob(words.id()?),
        JobCommand::Delete => Request::Delete(words.id()?),
        JobCommand::Release => Request::Release(words.id()?, words.u32()?, words.u32()?),
        JobCommand::Bury => Request::Bury(words.id()?, words.u32()?),
        JobCommand::Touch => Request::Touch(words.id()?),
        JobCommand::Begin => Request::Begin(words.id()?),
        JobCommand::Watch => Request::Watch(words.pattern()?, words.optional(Words::weight)?),
        JobCommand::Ignore => Request::Ignore(words.pattern()?),
        JobCommand::Peek => Request::Peek(words.id()?),
        JobCommand::PeekReady => Request::PeekFirst(Peek::Ready),
        JobCommand::PeekDelayed => Request::PeekFirst(Peek::Delayed),
        JobCommand::PeekBuried => Request::PeekFirst(Peek::Buried),
        // Lossless: numbers beyond the largest count as that.
        JobCommand::Kick => Request::Kick(words.number(0, u64::MAX)?.min(u32::MAX.into()) as u32),
        JobCommand::KickJob => Request::KickJob(words.id()?),
        JobCommand::KickAll => Request::KickAll(words.pattern()?, words.optional(Words::kicked)?),
        JobCommand::Stats => Request::Stats,
        JobCommand::StatsJob => Request::StatsJob(words.id()?),
        JobCommand::StatsTube => Request::StatsTube(words.tube()?),
        JobCommand::ListTubes => Request::ListTubes,
        JobCommand::ListTubeUsed => Request::ListTubeUsed,
        JobCommand::ListTubesWatched => Request::ListTubesWatched,
        JobCommand::ListJobs => list_jobs(words)?,
        JobCommand::Summary => Request::Summary(words.optional(Words::summary_by)?.unwrap_or(SummaryBy::Wiki)),
        JobCommand::ListSettings => Request::ListSettings(words.optional(Words::pattern)?),
        JobCommand::PauseTube => {
            // Only before this name beanstalkd accepts several spaces.
            words.skip_spaces();
            Request::PauseTube(words.tube()?, words.u32()?)
        }
        JobCommand::PauseAll => Request::PauseAll(words.pattern()?, words.u32()?),
        JobCommand::Root => Request::Root(words.tube()?, words.text(MAX_KEY)?, words.number(0, u64::MAX)?),
        JobCommand::Dropped => Request::Dropped(words.tube()?),
        JobCommand::Identify => Request::Identify(words.text(MAX_GROUP)?),
        JobCommand::Limit => limit(words)?,
        JobCommand::Retry => retry(words)?,
        JobCommand::DeadLetter => Request::DeadLetter(words.pattern()?, words.optional(Words::tube)?),
        JobCommand::Clear => Request::Clear(words.pattern()?, words.optional(Words::state)?),
        JobCommand::Move => Request::Move(words.jobs()?, words.tube()?, words.optional(Words::waiting)?),
        JobCommand::SetJob => Request::SetJob(words.id()?, words.change()?),
        JobCommand::Cancel => Request::Cancel(words.jobs()?),
        JobCommand::StoreCopy => Request::StoreCopy(words.file_name()?),
        JobCommand::Extensions => Request::Extensions,
        JobCommand::Drain => Request::Drain,
        JobCommand::Undrain => Request::Undrain,
        JobCommand::Quit => Request::Quit,
    };
    words.end(Line::Request(command, request))
}

fn retry<'a>(words: &mut Words<'a>) -> Result<Request<'a>, words::Wrong> {
    let pattern = words.pattern()?;
    let (attempts, first, factor) = (words.u32()?, words.decimal()?, words.decimal()?);
    Ok(Request::Retry(pattern, Backoff { attempts, first, factor, max: words.decimal()? }))
}

fn list_jobs<'a>(words: &mut Words<'a>) -> Result<Request<'a>, words::Wrong> {
    let (tube, state, limit) = (words.tube()?, words.state()?, words.listed()?);
    Ok(Request::ListJobs(tube, state, limit, words.optional(Words::after)?.unwrap_or(JobId(0))))
}

fn limit<'a>(words: &mut Words<'a>) -> Result<Request<'a>, words::Wrong> {
    let what = words.word()?;
    let of = match what.strip_prefix(b"group:") {
        Some(name) if words::is_text(name, MAX_GROUP) => LimitOf::Group(name),
        Some(_) => return Err(words::Wrong),
        None => LimitOf::Tubes(Pattern::parse(what).ok_or(words::Wrong)?),
    };
    let (most, per) = (words.u32()?, words.period()?);
    let scope = match (of, words.optional(Words::word)?) {
        (LimitOf::Tubes(_), Some(b"all")) if most > 0 => Scope::All,
        (LimitOf::Tubes(_), None | Some(b"each" | b"all")) => Scope::Each,
        (LimitOf::Group(_), None) => Scope::Group,
        (LimitOf::Group(_), Some(b"ordered")) if per.is_none() => Scope::Ordered,
        _ => return Err(words::Wrong),
    };
    Ok(Request::Limit(of, Limit { most, per, scope }))
}

fn put(words: &mut Words<'_>) -> Result<Line<'static>, words::Wrong> {
    let (pri, delay, ttr, bytes) = (words.u32()?, words.u32()?, words.u32()?, words.u32()?);
    words.end(Line::Put(Put { pri, delay, ttr, options: None }, bytes))
}

/// Reads a put-job. After its numbers, the length of the body is known even if the options are wrong.
fn put_job(words: &mut Words<'_>) -> Result<Line<'static>, words::Wrong> {
    let (pri, delay, ttr, bytes) = (words.u32()?, words.u32()?, words.u32()?, words.u32()?);
    Ok(match options(words) {
        Ok(options) => Line::Put(Put { pri, delay, ttr, options: Some(Box::new(options)) }, bytes),
        Err(words::Wrong) => Line::RefusedBody(JobCommand::PutJob, bytes),
    })
}

fn options(words: &mut Words<'_>) -> Result<PutOptions, words::Wrong> {
    let mut options = PutOptions::default();
    let (mut until, mut signature, mut timestamp) = (None, None, None);
    while !words.is_empty() {
        let word = words.word()?;
        let equals = word.iter().position(|byte| *byte == b'=').ok_or(words::Wrong)?;
        let (name, value) = (&word[..equals], &word[equals + 1..]);
        match name {
            b"tube" if options.tube.is_empty() => {
                options.tube = TubeName::parse(value).ok_or(words::Wrong)?.bytes().into();
            }
            b"key" if options.key.is_empty() && words::is_text(value, MAX_KEY) => options.key = value.into(),
            b"until" if until.is_none() => {
                until = Some(match value {
                    b"reserved" => Until::Reserved,
                    b"deleted" => Until::Deleted,
                    _ => return Err(words::Wrong),
                });
            }
            // Lossless: it is within the limits.
            b"for" if options.keep.is_none() => {
                options.keep = Some(words::number(value, 1, u32::MAX.into())? as u32);
            }
            b"root" if signature.is_none() && words::is_text(value, MAX_KEY) => signature = Some(value),
            b"root-ts" if timestamp.is_none() => timestamp = Some(words::number(value, 0, u64::MAX)?),
            b"group" if options.group.is_empty() && words::is_text(value, MAX_GROUP) => options.group = value.into(),
            _ => return Err(words::Wrong),
        }
    }
    options.until = until.unwrap_or_default();
    options.root = match (signature, timestamp) {
        (Some(signature), Some(timestamp)) => Some((signature.into(), timestamp)),
        (None, None) => None,
        _ => return Err(words::Wrong),
    };
    // The key of a leaf gives way to a newer root job.
    let may_keep = !options.key.is_empty() && options.root.is_none();
    if options.keep.is_some() && !may_keep { Err(words::Wrong) } else { Ok(options) }
}

fn put_many(words: &mut Words<'_>) -> Result<Line<'static>, words::Wrong> {
    let count = words.count()?;
    words.end(Line::PutMany(count))
}

fn fail(words: &mut Words<'_>) -> Result<Line<'static>, words::Wrong> {
    let (id, pri, delay, bytes) = (words.id()?, words.u32()?, words.u32()?, words.u32()?);
    let buries = words.optional(|words| if words.word()? == b"bury" { Ok(()) } else { Err(words::Wrong) })?.is_some();
    words.end(Line::Fail(Failure { id, pri, delay, buries }, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(line: &str) -> bool {
        matches!(parse(line.as_bytes()), Line::Refused(Refusal::BadFormat | Refusal::WrongForm(_)))
    }

    #[test]
    fn numbers_and_spaces_are_as_beanstalkd_wants_them() {
        assert_eq!(
            parse(b"put  4294967295 0   1  3"),
            Line::Put(Put { pri: u32::MAX, delay: 0, ttr: 1, options: None }, 3)
        );
        for line in [
            "put ",
            "put 1 2 3",
            "put 1 2 3 4 ",
            "put 1 2 3 4 5",
            "put 4294967296 0 1 1",
            "put -1 0 1 1",
            "put +1 0 1 1",
            "put 1 2 3 4\n",
            "use ",
            "use  a",
            "use a ",
            "use a*",
            "use */a",
            "reserve ",
            "reserve x",
            "reserve-with-timeout -1",
            "reserve-with-timeout 2147483648",
            "reserve-with-timeout x",
            "kick 5 ",
            "kick 5x",
            "kick 18446744073709551616",
            "reservex",
            "reserve-manyX 1 1",
            "stats\n",
            "stats-jobs 1",
            "list-tube-usedx",
            "delete x",
            "delete 18446744073709551616",
            "release 1 2",
            "bury 1",
            "touch 9 9",
            "begin",
            "begin x",
            "watch -a",
            "watch a 0",
            "watch a 1001",
            "watch a 5 5",
            "peek-ready ",
            "stats x",
            "quit x",
            "pause-tube a",
            "pause-tube a b",
            "pause-tube */a 1",
            "pause-all a b",
            "pause-all a",
            "reserve-many 0 1",
            "reserve-many 1001 1",
            "reserve-many 1",
            "put-many 0",
            "put-many 1001",
            "root a b",
            "root */a b 1",
            "identify",
            "identify a b",
            "limit a",
            "limit a 1 some",
            "limit a 1 per",
            "limit a 1 per 0",
            "limit a 1 each per 5",
            "limit group:x 1 each",
            "limit group:x 1 per 5 ordered",
            "limit a 1 ordered",
            "limit group: 1",
            "retry a 1 2 3",
            "retry a 1.5 2 3 4",
            "retry a 1 -2 3 4",
            "dead-letter a b*",
            "move a",
            "move a b*",
            "move 7 b reserved",
            "set-job 7",
            "set-job a pri=1",
            "set-job 7 pri=1 pri=2",
            "set-job 7 pri=-1",
            "set-job 7 color=1",
            "cancel",
            "cancel a b",
            "clear a held",
            "kick-all",
            "list-jobs a ready 0",
            "list-jobs a ready 1001",
            "list-jobs a waiting 5",
            "list-jobs a ready 5 after",
            "summary wikis",
            "store-copy",
            "schedule-put a 1 1",
            "schedule-delete a b",
            "list-schedules a",
            "fail 1 2 3",
            "fail 1 2 3 4 burn",
            "fail 1 2 3 4 bury now",
            "extensions ",
        ] {
            assert!(bad(line), "{line}: {:?}", parse(line.as_bytes()));
        }
        let alone = ENDING_WITH_A_SPACE.map(|command| JobCommand::ROWS[command as usize].word);
        let unknown = ["", " put 1 1 1 1", "PUT 1 1 1 1", "nothing", "put\t1", "\n", "watchx", "list-tubex"];
        for line in unknown.into_iter().chain(alone) {
            assert_eq!(parse(line.as_bytes()), Line::Refused(Refusal::UnknownCommand), "{line}");
        }
    }

    #[test]
    fn requests_have_their_arguments() {
        let of = |line: &'static str| match parse(line.as_bytes()) {
            Line::Request(_, request) => request,
            other => panic!("{line}: {other:?}"),
        };
        let pattern = |name: &'static str| Pattern::parse(name.as_bytes()).expect("is a pattern");
        assert_eq!(of("kick 9223372036854775807"), Request::Kick(u32::MAX));
        assert_eq!(of("watch */sendMail 7"), Request::Watch(pattern("*/sendMail"), Some(7)));
        assert_eq!(of("pause-tube  a/b  60"), Request::PauseTube(TubeName::parse(b"a/b").expect("a name"), 60));
        assert_eq!(of("pause-all */*  60"), Request::PauseAll(pattern("*/*"), 60));
        let tubes = |name| LimitOf::Tubes(pattern(name));
        for (line, limited, most, per, scope) in [
            ("limit */* 5", tubes("*/*"), 5, None, Scope::Each),
            ("limit a/b 2 per 5 all", tubes("a/b"), 2, Some(5), Scope::All),
            ("limit group:g 2 per 5", LimitOf::Group(b"g"), 2, Some(5), Scope::Group),
            ("limit a/b 0 all", tubes("a/b"), 0, None, Scope::Each),
            ("limit group:g 1 ordered", LimitOf::Group(b"g"), 1, None, Scope::Ordered),
            ("limit group:* 3", LimitOf::Group(b"*"), 3, None, Scope::Group),
        ] {
            let limit = Limit { most, per, scope };
            assert_eq!(of(line), Request::Limit(limited, limit));
            assert_eq!(Limit::read(&limit.to_string().split(' ').collect::<Vec<_>>()), Some(limit));
        }
        let backoff = Backoff { attempts: 5, first: 1.5, factor: 2.0, max: 60.25 };
        assert_eq!(of("retry * 5 1.5 2 60.25"), Request::Retry(pattern("*"), backoff));
        assert_eq!(of("dead-letter a/*"), Request::DeadLetter(pattern("a/*"), None));
        assert_eq!(of("kick-all a/* buried"), Request::KickAll(pattern("a/*"), Some(JobState::Buried)));
        assert_eq!(parse(b"kick-all a/* ready"), Line::Refused(JobCommand::KickAll.wrong_form()));
        assert_eq!(of("clear a/* buried"), Request::Clear(pattern("a/*"), Some(JobState::Buried)));
        let tube = TubeName::parse(b"a").expect("is a name");
        assert_eq!(of("list-jobs a ready 5 after=17"), Request::ListJobs(tube, JobState::Ready, 5, JobId(17)));
        assert_eq!(of("reserve-many 3 9"), Request::Reserve(Reserve { timeout: Some(9), many: Some(3) }));
        let failure = Failure { id: JobId(1), pri: 2, delay: 3, buries: false };
        assert_eq!(parse(b"fail 1 2 3 4"), Line::Fail(failure, 4));
        assert_eq!(parse(b"fail 1 2 3 4 bury"), Line::Fail(Failure { buries: true, ..failure }, 4));
    }

    #[test]
    fn options_are_said_once_and_make_sense() {
        let Line::Put(put, 9) =
            parse(b"put-job 1 2 3 9 tube=a/b key=k=1 until=deleted root=s root-ts=20260101 group=g")
        else {
            panic!("it is a put");
        };
        let options = put.options.expect("it has options");
        assert_eq!((&*options.tube, &*options.key, options.until), (&b"a/b"[..], &b"k=1"[..], Until::Deleted));
        assert_eq!((options.root, &*options.group), (Some((b"s"[..].into(), 20_260_101)), &b"g"[..]));
        for line in [
            "put-job 1 2 3 9 ",
            "put-job 1 2 3 9  key=a",
            "put-job 1 2 3 9 key=",
            "put-job 1 2 3 9 key=a key=b",
            "put-job 1 2 3 9 for=5",
            "put-job 1 2 3 9 key=a for=0",
            "put-job 1 2 3 9 key=a for=5 for=5",
            "put-job 1 2 3 9 key=a for=5 root=a root-ts=1",
            "put-job 1 2 3 9 root=a",
            "put-job 1 2 3 9 root-ts=1",
            "put-job 1 2 3 9 until=never",
            "put-job 1 2 3 9 color=red",
            "put-job 1 2 3 9 tube=*/a",
            "put-job 1 2 3 9 key=a\x7f",
            "put-job 1 2 3 9 x",
        ] {
            assert_eq!(parse(line.as_bytes()), Line::RefusedBody(JobCommand::PutJob, 9), "{line}");
        }
        assert!(bad("put-job 1 2 3 9x") && bad("put-job 1 2 3"));
    }

    #[test]
    fn the_words_are_those_of_the_parser() {
        for word in JobCommand::ROWS.iter().map(|row| row.word) {
            let line = format!("{word} ");
            assert_ne!(parse(line.as_bytes()), Line::Refused(Refusal::UnknownCommand), "{word}");
        }
    }
}
