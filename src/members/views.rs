//! Page of one pool: its members, and the takes that wait for them.

use super::Members;
use super::report::{history_of, history_table, name_of, series_of, standing_of, standing_table};
use super::state::{MemberRow, WaiterRow};
use super::wire::write_filter;
use poolcounter_core::text::{title_of, unescaped};
use poolcounter_core::time::{Span, Time};
use poolcounter_protocol::members::wire::replies::write_attributes;
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Report, Table, View};

/// Number of members of one pool on its page.
const MOST_MEMBERS: usize = 200;
/// Number of takes that wait on the page of a pool.
const MOST_WAITERS: usize = 100;

fn members_table() -> Table {
    Table::new(
        "members",
        "Members",
        vec![
            Column::new("name", "member", ColumnUnit::Name, "Its name."),
            Column::new("state", "state", ColumnUnit::Text, "State of the member."),
            Column::new("holder", "holder", ColumnUnit::Text, "Name or address of the holder."),
            Column::new("held", "held for", ColumnUnit::Seconds, "Time for which its holder has had it."),
            Column::new(
                "long",
                "over warn_hold",
                ColumnUnit::Seconds,
                "Time for which it is held beyond the pool's warn_hold.",
            )
            .marked(Emphasis::Alarm),
            Column::new(
                "out",
                "kept out for",
                ColumnUnit::Seconds,
                "Time for which it is kept out: in quarantine, held back by an operator, or orphaned.",
            )
            .marked(Emphasis::Alarm),
            Column::new("why", "why", ColumnUnit::Name, "Reason why it is kept out."),
            Column::new("by", "by", ColumnUnit::Name, "Peer that caused it."),
            Column::new("age", "age", ColumnUnit::Seconds, "Time since it was started or added."),
            Column::new("idle", "idle", ColumnUnit::Seconds, "Time since it was last in use."),
            Column::new("uses", "uses", ColumnUnit::Number, "Number of its leases."),
            Column::new("attributes", "attributes", ColumnUnit::Name, "Its attributes, which takes can ask for."),
            Column::new("lease", "lease", ColumnUnit::Text, "Number of its lease."),
        ],
    )
    .empty("The pool has no member.")
}

fn waiters_table() -> Table {
    Table::new(
        "waiters",
        "Waiting takes",
        vec![
            Column::new("place", "place", ColumnUnit::Number, "Its place."),
            Column::new("who", "who", ColumnUnit::Text, "Name or address."),
            Column::new("waited", "for", ColumnUnit::Seconds, "Time for which it has waited.")
                .marked(Emphasis::Caution),
            Column::new(
                "wants",
                "wants",
                ColumnUnit::Name,
                "Attributes of the members that it can use, or the only member.",
            ),
            Column::new("count", "members", ColumnUnit::Number, "Number of members that it wants."),
            Column::new("pri", "priority", ColumnUnit::Number, "Its priority."),
        ],
    )
    .help("In the order in which they are served.")
    .empty("No waiting takes.")
}

impl Members {
    /// Returns the page of one pool, `pool/NAME`, with the name as it is shown elsewhere.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let name = path.strip_prefix(b"pool/")?;
        let name = str::from_utf8(name).map_or_else(|_| name.to_vec(), unescaped);
        let pool = self.state.report_of_name(&name).ok()?;
        let members = self.state.members_after(&name, None, now, |conn| peers.peer(conn)).ok()?;
        let members: Vec<MemberRow<'_>> = members.take(MOST_MEMBERS).collect();
        let note = (members.len() == MOST_MEMBERS).then(|| format!("Only the first {MOST_MEMBERS} by name are shown."));
        let rows = members.iter().map(|row| row_of_member(row, pool.warn_hold));
        let tables = vec![
            standing_table().rows(vec![standing_of(&pool)]),
            Table { note, ..members_table().rows(rows) },
            self.waiters_of(&name, now, peers)?,
            history_table().rows(vec![history_of(&pool)]),
        ];
        let title = title_of("Pool", &name);
        let (commands, series) = (commands_for(&name, &members), series_of(&pool).into());
        Some(View { title, report: Report { tables, series, ..Report::default() }, commands, ..View::default() })
    }

    /// Returns the takes that wait for members of a pool.
    fn waiters_of(&self, name: &[u8], now: Time, peers: &dyn Peers) -> Option<Table> {
        let waiters = self.state.waiters_after(name, None, now, |conn| peers.peer(conn)).ok()?;
        let waiters: Vec<WaiterRow<'_>> = waiters.map(|(_, row)| row).take(MOST_WAITERS).collect();
        let note = (waiters.len() == MOST_WAITERS).then(|| format!("Only the first {MOST_WAITERS} are shown."));
        let rows = (1..).zip(&waiters).map(|(place, row)| row_of_waiter(place, row));
        Some(Table { note, ..waiters_table().rows(rows) })
    }
}

/// Returns the commands that help with a pool and the members of it that are kept out or held for long.
fn commands_for(pool: &[u8], members: &[MemberRow<'_>]) -> Vec<String> {
    let Some(name) = quoted(pool) else { return Vec::new() };
    let is_out = |row: &&MemberRow<'_>, state: &str| row.kept_out.is_some() && row.state == state;
    let of_member = |word: &str, option: &str, member: Option<&MemberRow<'_>>| {
        member.and_then(|row| quoted(row.name)).map(|member| format!("members {word} {name} {option}{member}"))
    };
    let quarantined = members.iter().filter(|row| is_out(row, "quarantined")).count();
    let repair = match quarantined {
        0 => None,
        1 => of_member("repair", "", members.iter().find(|row| is_out(row, "quarantined"))),
        _ => Some(format!("members repair {name} --all")),
    };
    let free = of_member("free", "", members.iter().find(|row| is_out(row, "held")));
    let longest = members.iter().filter(|row| row.is_long).max_by_key(|row| row.held.map(|(span, _)| span));
    let take_back = of_member("takeback", "--member ", longest);
    let looks = [Some(format!("members {name}")), Some(format!("members {name} --waiting"))];
    [repair, free, take_back].into_iter().chain(looks).flatten().collect()
}

fn row_of_member(row: &MemberRow<'_>, warn_hold: Span) -> Vec<Cell> {
    let holder = if row.holder == "-" { Cell::Nothing } else { Cell::text(row.holder.clone()) };
    let held = row.held.map_or(Cell::Nothing, |(span, _)| Cell::time(span));
    let lease = row.held.map_or(Cell::Nothing, |(_, lease)| Cell::text(lease.to_string()));
    let long = row.held.filter(|_| row.is_long);
    let long = long.map_or(Cell::Nothing, |(span, _)| {
        Cell::time(Span::from_micros(span.as_micros().saturating_sub(warn_hold.as_micros())))
    });
    let text = |bytes: &[u8]| if bytes.is_empty() { Cell::Nothing } else { name_of(bytes) };
    let [out, why, by] = row.kept_out.map_or([Cell::Nothing, Cell::Nothing, Cell::Nothing], |out| {
        [Cell::time(out.since), text(out.why), text(out.by)]
    });
    let [age, idle] = [row.age, row.idle].map(Cell::time);
    let uses = Cell::Number(row.uses.into());
    let mut words = Vec::new();
    row.attributes.into_iter().for_each(|attributes| write_attributes(&mut words, attributes));
    let attributes = text(words.trim_ascii());
    let state = Cell::text(row.state);
    vec![name_of(row.name), state, holder, held, long, out, why, by, age, idle, uses, attributes, lease]
}

fn row_of_waiter(place: u64, row: &WaiterRow<'_>) -> Vec<Cell> {
    let wants = row.filter.map_or(Cell::Nothing, |filter| {
        let mut words = Vec::new();
        write_filter(&mut words, filter);
        name_of(words.trim_ascii())
    });
    let [place, count, pri] = [place, row.count.into(), row.priority.into()].map(Cell::Number);
    vec![place, Cell::text(row.who.clone()), Cell::time(row.waited), wants, count, pri]
}
