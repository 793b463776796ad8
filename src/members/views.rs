//! Pages about one pool: its members, and the takes that wait for them; one member; or the names that contain a text.

use super::Members;
use super::operations::{FREE, HOLDS, REPAIR, TAKE_BACK};
use super::report::{history_of, history_table, name_of, series_of, standing_of, standing_table};
use super::state::{MemberRow, Moment, PastLease, Viewer, WaiterRow};
use super::wire::write_filter;
use memchr::memmem::Finder;
use poolcounter_core::text::{escaped, title_of, unescaped};
use poolcounter_core::{Span, Time};
use poolcounter_protocol::members::request::Named;
use poolcounter_protocol::members::wire::replies::write_attributes;
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::tables::{Client, NAME_BYTES};
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Report, Table, View};

/// Number of members of one pool on its page.
const MOST_MEMBERS: usize = 200;
/// Number of takes that wait on the page of a pool.
const MOST_WAITERS: usize = 100;
/// Number of members that a search examines.
const MOST_SEARCHED: usize = 4096;

/// Column of members with a page about each.
fn name_column() -> Column {
    Column { unit: ColumnUnit::Address, ..Column::linked("name", "member", "/members/member/", "Its name.") }
}

/// Column of members with a button, if viewers may use it.
fn button_column(name: &'static str, actions: &'static [&'static str], help: &'static str) -> Column {
    Column { actions, ..Column::new(name, name, ColumnUnit::Key, help) }
}

fn members_table() -> Table {
    Table::new(
        "members",
        "Members",
        vec![
            name_column(),
            Column::new("state", "state", ColumnUnit::Text, "State of the member."),
            Column::new("holder", "holder", ColumnUnit::Text, "Name or address of the holder."),
            Column::new("held", "held for", ColumnUnit::Seconds, "Time for which its holder has had it."),
            Column::new("long", "over warn_hold", ColumnUnit::Seconds, "Time beyond the pool's warn_hold.")
                .marked(Emphasis::Alarm),
            Column::new("out", "kept out for", ColumnUnit::Seconds, "Time for which it is kept out.")
                .marked(Emphasis::Alarm),
            Column::new("why", "why", ColumnUnit::Name, "Reason why it is kept out."),
            Column::new("by", "by", ColumnUnit::Name, "Peer that caused it."),
            Column::new("age", "age", ColumnUnit::Seconds, "Time since it was started or added."),
            Column::new("idle", "idle", ColumnUnit::Seconds, "Time since it was last in use."),
            Column::new("uses", "uses", ColumnUnit::Number, "Number of its leases."),
            Column::new("attributes", "attributes", ColumnUnit::Name, "Its attributes, which takes can ask for."),
            Column::new("lease", "lease", ColumnUnit::Text, "Number of its lease."),
            Column::new("expires", "expires in", ColumnUnit::Seconds, "Time until its lease ends by itself."),
            Column::new("hold", "then held for", ColumnUnit::Seconds, "Time for which it is held when it is returned.")
                .marked(Emphasis::Caution),
            button_column("repair", REPAIR, "Its pool and name, if it is in quarantine."),
            button_column("takeback", TAKE_BACK, "Its pool and name, if a client holds it."),
            button_column("free", FREE, "Its pool and name, if an operator holds it back."),
            button_column("keep", HOLDS, "Its pool and name, if it can be held back."),
        ],
    )
    .empty("The pool has no member. A provider starts members (poolcounter provide), or an operator adds them (poolcounter members add).")
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
            Column::new("wants", "wants", ColumnUnit::Name, "Attributes that it asks for, or the only member."),
            Column::new("count", "members", ColumnUnit::Number, "Number of members that it wants."),
            Column::new("pri", "priority", ColumnUnit::Number, "Its priority."),
        ],
    )
    .help("In the order in which they are served.")
    .empty("No waiting takes.")
}

/// Leases of one member.
fn leases_table() -> Table {
    Table::new(
        "leases",
        "Last leases",
        vec![
            Column::new("holder", "holder", ColumnUnit::Name, "Name or address of the holder."),
            Column::new("peer", "from", ColumnUnit::Address, "Address from which it was taken."),
            Column::new("since", "taken", ColumnUnit::Seconds, "Time since the take."),
            Column::new("ended", "ended", ColumnUnit::Seconds, "Time since the end."),
            Column::new("how", "how", ColumnUnit::Text, "How the lease ended."),
            Column::new("by", "by", ColumnUnit::Name, "Peer that ended it, if that is not the holder."),
            Column::new("lease", "lease", ColumnUnit::Text, "Number of the lease."),
        ],
    )
    .help("The last 16 leases of a fixed member, the newest first.")
    .empty("No lease is kept: the member was never taken, or a provider has started it.")
}

impl Members {
    /// Returns the page of one pool, `pool/NAME`, of one member, `member/POOL NAME`, or of a search, `find/TEXT`, with
    /// names as they are shown elsewhere.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let (kind, name) = path.split_at(path.iter().position(|byte| *byte == b'/')?);
        let name = str::from_utf8(&name[1..]).map_or_else(|_| name[1..].to_vec(), unescaped);
        let viewer = Viewer { now, peer: &|conn| peers.peer(conn) };
        match kind {
            b"pool" => self.view_of_pool(&name, viewer),
            b"member" => self.view_of_member(&name, viewer),
            b"find" => Some(self.view_of_search(&name, viewer)),
            _ => None,
        }
    }

    /// Returns the pools and members with a text in their names, and members with holders who have it.
    fn view_of_search(&self, text: &[u8], viewer: Viewer<'_>) -> View {
        let finder = Finder::new(text);
        let has = |name: &[u8]| finder.find(name).is_some();
        let pools = self.state.busiest(&has, MOST_MEMBERS);
        let names = self.state.pools_after(None).map(|pool| pool.name);
        let members = names.flat_map(|pool| {
            let members = self.state.members_after(pool, None, viewer).into_iter().flatten();
            members.map(move |row| (pool, row))
        });
        let mut examined = 0;
        let members = members
            .take(MOST_SEARCHED)
            .inspect(|_| examined += 1)
            .filter(|(_, row)| has(row.name) || has(row.holder.as_bytes()));
        let rows = members.take(MOST_MEMBERS).map(|(pool, row)| {
            let mut cells = row_of_member(pool, &row, Span::ZERO);
            cells.insert(1, name_of(pool));
            cells
        });
        let mut table = members_table().rows(rows);
        table.note =
            (examined == MOST_SEARCHED).then(|| format!("Only the first {MOST_SEARCHED} members are searched."));
        table.columns.insert(1, Column::linked("pool", "pool", "/members/pool/", "Its pool."));
        let tables = [standing_table().rows(pools.iter().map(standing_of)), table];
        let tables = tables.into_iter().map(|table| Table { empty: "".into(), ..table }).collect();
        View { title: title_of("Search:", text), report: Report { tables, ..Report::default() }, ..View::default() }
    }

    fn view_of_member(&self, name: &[u8], viewer: Viewer<'_>) -> Option<View> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let named = Named { pool: &name[..space], member: &name[space + 1..] };
        let warn_hold = self.state.report_of_name(named.pool).ok()?.warn_hold;
        let row = self.state.member_named(named, viewer).ok()?;
        let leases = self.state.history(named).ok()?.map(|lease| row_of_lease(lease, self.state.moment(viewer.now)));
        let mut commands = commands_for(named.pool, std::slice::from_ref(&row));
        commands.truncate(commands.len().saturating_sub(1));
        if let (Some(pool), Some(member)) = (quoted(named.pool), quoted(named.member)) {
            commands.push(format!("members history {pool} {member}"));
        }
        let one = members_table().rows([row_of_member(named.pool, &row, warn_hold)]);
        let tables = vec![Table { title: "Member".into(), ..one }, leases_table().rows(leases)];
        let title = format!("{} of pool {}", title_of("Member", named.member), escaped(named.pool));
        Some(View { title, report: Report { tables, ..Report::default() }, commands, ..View::default() })
    }

    fn view_of_pool(&self, name: &[u8], viewer: Viewer<'_>) -> Option<View> {
        let pool = self.state.report_of_name(name).ok()?;
        let members = self.state.members_after(name, None, viewer).ok()?;
        let members: Vec<MemberRow<'_>> = members.take(MOST_MEMBERS).collect();
        let note = (members.len() == MOST_MEMBERS).then(|| format!("Only the first {MOST_MEMBERS} by name are shown."));
        let rows = members.iter().map(|row| row_of_member(name, row, pool.warn_hold));
        let tables = vec![
            standing_table().rows(vec![standing_of(&pool)]),
            Table { note, ..members_table().rows(rows) },
            self.waiters_of(name, viewer)?,
            history_table().rows(vec![history_of(&pool)]),
        ];
        let title = title_of("Pool", name);
        let (commands, series) = (commands_for(name, &members), series_of(&pool).into());
        Some(View { title, report: Report { tables, series, ..Report::default() }, commands, ..View::default() })
    }

    /// Returns the takes that wait for members of a pool.
    fn waiters_of(&self, name: &[u8], viewer: Viewer<'_>) -> Option<Table> {
        let waiters = self.state.waiters_after(name, None, viewer).ok()?;
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

fn row_of_member(pool: &[u8], row: &MemberRow<'_>, warn_hold: Span) -> Vec<Cell> {
    let key = format!("{} {}", escaped(pool), escaped(row.name));
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
    let [expires, hold] = [row.expires, row.hold].map(|span| span.map_or(Cell::Nothing, Cell::time));
    // The operations take the name of the pool up to the first space.
    let is_held = row.kept_out.is_some() && row.state == "held";
    let can_be_held = matches!(row.state, "free" | "in_use") && row.hold.is_none();
    let buttons = [row.state == "quarantined", row.held.is_some(), is_held || row.hold.is_some(), can_be_held];
    let has_button = |is: bool| is && !pool.contains(&b' ') && key.len() < NAME_BYTES;
    let [repair, take_back, free, keep] =
        buttons.map(|is| if has_button(is) { Cell::Text(key.clone()) } else { Cell::Nothing });
    let name = Cell::text(row.name);
    let name = if let Cell::Text(address) = name { Cell::Client(Client { address, key }) } else { name };
    let of_member =
        vec![name, state, holder, held, long, out, why, by, age, idle, uses, attributes, lease, expires, hold];
    [of_member, vec![repair, take_back, free, keep]].concat()
}

fn row_of_lease(past: &PastLease, now: Moment) -> Vec<Cell> {
    let ago = |at: Moment| Cell::time(Span::from_micros(now.saturating_sub(at)));
    let [ended, how, by] = past.end.as_ref().map_or([Cell::Nothing, Cell::text("lasts"), Cell::Nothing], |end| {
        [ago(end.0), Cell::text(end.1.name()), if end.2.is_empty() { Cell::Nothing } else { name_of(&end.2) }]
    });
    let (holder, peer) = (name_of(&past.holder), Cell::text(&past.address));
    vec![holder, peer, ago(past.since), ended, how, by, Cell::text(past.lease.to_string())]
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
