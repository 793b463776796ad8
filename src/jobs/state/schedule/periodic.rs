//! Periodic jobs: settings with the times at which each is put. The time of day comes from outside. Each look puts one
//! job of a schedule at most, and the note of that is in the same batch as the job.

use crate::state::background::keep_timer_at;
use crate::state::commits::Change;
use crate::state::setting::{Progress, SettingKind, Value};
use crate::state::{Body, Put, PutOptions, Refusal, Reply, State, Step, Timer};
use crate::timetable::Timetable;
use poolcounter_core::{ConnId, Metered as _, Span, Time, TimerId, Timers};
use poolcounter_protocol::jobs::commands::JobCommand;
use poolcounter_protocol::jobs::values::{Schedule, ScheduleTimes};
use poolcounter_protocol::jobs::wire::schedule;
use std::collections::BTreeMap;

/// Most schedules: all are looked at when one is due and when the clock is set, and listed at once.
const MOST_SCHEDULES: usize = 1000;
/// Time by which a job may be put late, in microseconds: longer than a restart or a take-over. Later, its time was
/// missed.
const LATE: i64 = 60_000_000;
/// Time between two attempts while no job can be put.
const AGAIN: Span = Span::from_secs(1);
/// Most jobs that one look puts: the rest follows in the next tick.
const MOST_AT_ONCE: usize = 64;
/// Bytes of a schedule beside its name and its definition, most of them for the years of its expression.
const ENTRY_BYTES: usize = 6_000;

/// A periodic job.
pub(in crate::state) struct Periodic {
    put: Put,
    timetable: Timetable,
    /// Its line, as behind its name in `schedule-put`, a line feed, and the body.
    pub definition: Box<[u8]>,
    pub progress: Progress,
    next: Option<i64>,
}

/// All periodic jobs.
#[derive(Default)]
pub(in crate::state) struct Schedules {
    pub by_name: BTreeMap<Box<[u8]>, Periodic>,
    pub bytes: usize,
    pub timer: Option<TimerId>,
    /// Time of day at [`Time::START`].
    pub wall: Span,
}

/// A periodic job for people. Times are from now on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ShownSchedule<'a> {
    /// Name.
    pub name: &'a [u8],
    /// The put, with its options.
    pub put: &'a Put,
    /// Length of the body.
    pub body_bytes: usize,
    /// Time until it is put next; None if it never is.
    pub next: Option<Span>,
    /// Time since it was put last.
    pub last: Option<Span>,
    /// Number of times at which it was not put; times that passed unseen are one together.
    pub skipped: u64,
    /// True if the configuration file has it.
    pub is_of_file: bool,
}

impl<'a> ShownSchedule<'a> {
    /// Returns the options of what is put, and the times.
    pub fn options(&self) -> Option<(&'a PutOptions, &'a Schedule)> {
        let options = self.put.options.as_ref()?;
        Some((options, options.schedule.as_ref()?))
    }
}

impl Periodic {
    /// Returns the periodic job of a definition; None if that is wrong.
    fn parse(name: &[u8], definition: &[u8], progress: Progress) -> Option<Periodic> {
        let (put, _) = schedule::parse_written(name, line_of(definition))?;
        let timetable = Timetable::new(&put.options.as_ref()?.schedule.as_ref()?.times).ok()?;
        Some(Periodic { put, timetable, definition: definition.into(), progress, next: None })
    }

    /// Returns it as the value of a setting.
    pub fn value(&self) -> Value {
        self.progress.with(&self.definition)
    }

    fn body(&self) -> &[u8] {
        &self.definition[line_of(&self.definition).len() + 1..]
    }

    fn is_made_up(&self) -> bool {
        self.put.options.as_ref().and_then(|options| options.schedule.as_ref()).is_some_and(|of| of.is_made_up)
    }

    /// Reckons the next time. What is later than now has not been, if the clock was set back, but for the last time at
    /// which a job was put.
    fn reckon(&mut self, now: i64) {
        let Progress { from, last, .. } = &mut self.progress;
        if *from > now {
            *from = self.timetable.back_to(now, *from);
        }
        self.next = self.timetable.next((*from).max(last.unwrap_or(i64::MIN)), *from);
    }
}

/// Returns the line of a definition.
pub(in crate::state) fn line_of(definition: &[u8]) -> &[u8] {
    definition.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Returns the definition of a periodic job.
pub fn definition_of(put: &Put, body: &[u8]) -> Vec<u8> {
    [&schedule::write(put, body.len()), &b"\n"[..], body].concat()
}

/// Returns the times of a periodic job, as in its command.
pub fn text_of(times: &ScheduleTimes) -> String {
    match times {
        ScheduleTimes::Every(seconds) => format!("every {seconds} s"),
        ScheduleTimes::Cron { expression, timezone } => format!("{expression} ({timezone})"),
    }
}

impl State {
    /// `schedule-put`: sets a periodic job. One that is set already as it is goes on.
    pub fn schedule_put(&mut self, conn: ConnId, put: &Put, body: &Body, step: &mut Step<'_, '_>) {
        let Some(schedule) = put.options.as_ref().and_then(|options| options.schedule.as_ref()) else { return };
        let definition = definition_of(put, body.bytes());
        let is_known = self.schedules.by_name.contains_key(&schedule.name);
        let has_place = is_known || self.schedules.by_name.len() < MOST_SCHEDULES && self.has_room_for_settings();
        if !has_place || !self.has_memory_for(definition.len()) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        if !self.set_schedule(&schedule.name, &definition, step) {
            return step.reply(conn, Reply::Refused(Refusal::WrongForm(JobCommand::SchedulePut)));
        }
        let after = self.this_commit();
        step.reply_after(conn, Reply::Scheduled, after);
    }

    /// `schedule-delete`: ends a periodic job. Jobs that it has put stay.
    pub fn schedule_delete(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) {
        if !self.remove_schedule(name) {
            return step.reply(conn, Reply::NotFound);
        }
        let after = self.this_commit();
        step.reply_after(conn, Reply::Deleted, after);
    }

    /// Sets a periodic job, and returns false if its definition is wrong. It counts from now on.
    pub(in crate::state) fn set_schedule(&mut self, name: &[u8], definition: &[u8], step: &mut Step<'_, '_>) -> bool {
        let now = self.wall_at(step.now);
        let old = self.schedules.by_name.get(name);
        let last = old.and_then(|old| old.progress.last);
        if old.is_some_and(|old| *old.definition == *definition) && last.is_none_or(|last| last <= now) {
            return true;
        }
        let skipped = old.map_or(0, |old| old.progress.skipped);
        let progress = Progress { from: now, last: last.filter(|last| *last <= now), skipped };
        let Some(periodic) = Periodic::parse(name, definition, progress) else { return false };
        self.insert_schedule(name, periodic, step.now, step.timers);
        self.note_change(Change::Setting(SettingKind::Schedule, name.into()));
        true
    }

    fn insert_schedule(&mut self, name: &[u8], mut periodic: Periodic, now: Time, timers: &mut Timers<'_, Timer>) {
        periodic.reckon(self.wall_at(now));
        self.schedules.bytes += bytes_of(name, &periodic);
        if let Some(old) = self.schedules.by_name.insert(name.into(), periodic) {
            self.schedules.bytes -= bytes_of(name, &old);
        }
        self.arm_schedules(now, timers);
    }

    /// Restores a periodic job from the value of a setting.
    pub(in crate::state) fn restore_schedule(
        &mut self,
        name: &[u8],
        value: &[u8],
        now: Time,
        timers: &mut Timers<'_, Timer>,
    ) {
        let parse = |(progress, definition)| Periodic::parse(name, definition, progress);
        if let Some(periodic) = Progress::split(value).and_then(parse) {
            self.insert_schedule(name, periodic, now, timers);
        }
    }

    /// Removes a periodic job, and returns whether it was there.
    pub(in crate::state) fn remove_schedule(&mut self, name: &[u8]) -> bool {
        let Some(old) = self.schedules.by_name.remove(name) else { return false };
        self.schedules.bytes -= bytes_of(name, &old);
        self.note_change(Change::Setting(SettingKind::Schedule, name.into()));
        true
    }

    /// Returns the tube into which a periodic job is put.
    pub fn tube_of_schedule(&self, name: &[u8]) -> Option<&[u8]> {
        let options = self.schedules.by_name.get(name)?.put.options.as_ref()?;
        Some(&options.tube)
    }

    /// Returns whether there is a periodic job.
    pub fn has_schedules(&self) -> bool {
        !self.schedules.by_name.is_empty()
    }

    /// Sets the time of day at [`Time::START`], and returns true if that changes the times of periodic jobs.
    pub fn set_wall(&mut self, wall: Span) -> bool {
        std::mem::replace(&mut self.schedules.wall, wall) != wall && self.has_schedules()
    }

    /// Reckons the times of periodic jobs anew after the clock was set.
    pub fn reckon_schedules(&mut self, step: &mut Step<'_, '_>) {
        let now = self.wall_at(step.now);
        self.schedules.by_name.values_mut().metered().for_each(|periodic| periodic.reckon(now));
        self.arm_schedules(step.now, step.timers);
    }

    /// Returns the time of day at a moment, in microseconds since 1970.
    fn wall_at(&self, at: Time) -> i64 {
        i64::try_from(self.schedules.wall.as_micros().saturating_add(at.as_micros())).unwrap_or(i64::MAX)
    }

    fn arm_schedules(&mut self, now: Time, timers: &mut Timers<'_, Timer>) {
        let wall = self.wall_at(now);
        let next = self.schedules.by_name.values().metered().filter_map(|periodic| periodic.next).min();
        let next = next.map(|next| now + Span::from_micros(next.saturating_sub(wall).max(0).cast_unsigned()));
        keep_timer_at(&mut self.schedules.timer, next, Timer::Periodic, timers);
    }

    /// Puts the jobs whose times have come. While jobs cannot be put, they wait.
    pub fn put_periodic(&mut self, can_put: bool, step: &mut Step<'_, '_>) {
        self.schedules.timer.take().into_iter().for_each(TimerId::fired);
        if !can_put || self.is_shut {
            let again = self.has_schedules().then(|| step.now + AGAIN);
            return keep_timer_at(&mut self.schedules.timer, again, Timer::Periodic, step.timers);
        }
        let now = self.wall_at(step.now);
        let all = self.schedules.by_name.iter().metered();
        let due = all.filter_map(|(name, periodic)| Some((name.clone(), periodic.next.filter(|next| *next <= now)?)));
        for (name, first) in due.take(MOST_AT_ONCE).collect::<Vec<_>>() {
            self.put_due(&name, first, now, step);
        }
        self.arm_schedules(step.now, step.timers);
    }

    /// Puts a periodic job that is due since `first`: for the last of its times, unless that was missed.
    fn put_due(&mut self, name: &[u8], first: i64, now: i64, step: &mut Step<'_, '_>) {
        let periodic = &self.schedules.by_name[name];
        let latest = periodic.timetable.last(now, periodic.progress.from).unwrap_or(first).max(first);
        let is_missed = now.saturating_sub(latest) > LATE;
        let time = if is_missed { periodic.is_made_up().then_some(first) } else { Some(latest) };
        let (put, body) = (periodic.put.clone(), Body::Own(periodic.body().into()));
        let time = time.filter(|_| self.put_itself(&put, body, step).is_ok());
        let periodic = self.schedules.by_name.get_mut(name).expect("it is there");
        let progress = &mut periodic.progress;
        progress.from = latest;
        progress.last = time.or(progress.last);
        progress.skipped += u64::from(time.is_none() || first < latest);
        periodic.reckon(now);
        self.note_change(Change::Setting(SettingKind::Schedule, name.into()));
    }

    /// Returns the periodic jobs, by their names.
    pub fn schedules(&self, now: Time) -> impl Iterator<Item = ShownSchedule<'_>> {
        let wall = self.wall_at(now);
        let span = |micros: i64| Span::from_micros(micros.max(0).cast_unsigned());
        self.schedules.by_name.iter().metered().map(move |(name, periodic)| ShownSchedule {
            name,
            put: &periodic.put,
            body_bytes: periodic.body().len(),
            next: periodic.next.map(|next| span(next.saturating_sub(wall))),
            last: periodic.progress.last.map(|last| span(wall.saturating_sub(last))),
            skipped: periodic.progress.skipped,
            is_of_file: self.is_of_file(SettingKind::Schedule, name, &periodic.definition),
        })
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub(in crate::state) fn check_schedules(&self) {
        let Schedules { by_name, bytes, timer, .. } = &self.schedules;
        assert_eq!(*bytes, by_name.iter().map(|(name, periodic)| bytes_of(name, periodic)).sum::<usize>());
        assert!(timer.is_some() || by_name.is_empty(), "periodic jobs have a timer");
    }
}

fn bytes_of(name: &[u8], periodic: &Periodic) -> usize {
    name.len() + periodic.definition.len() + ENTRY_BYTES
}
