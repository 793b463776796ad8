//! Pages about one pool: its members, and the takes that wait for them; one member; or the names that contain a text.

use super::Members;
use super::operations::{FREE, HOLDS, REPAIR, TAKE_BACK};
use super::report::{history_of, history_table, name_of, series_of, standing_of, standing_table};
use super::state::{MemberRow, Moment, PastLease, Viewer, WaiterRow};
use super::wire::write_filter;
use memchr::memmem::Finder;
use poolcounter_core::text::{escaped, title_of, unescaped, visible};
use poolcounter_core::{Span, Time};
use poolcounter_protocol::members::request::Named;
use poolcounter_protocol::members::wire::replies::write_attributes;
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::Emphasis::{Alarm, Caution};
use poolcounter_service::report::tables::{Client, NAME_BYTES};
use poolcounter_service::report::{Cell, Column, Report, Table, View, table};

/// Number of members of one pool on its page.
const MOST_MEMBERS: usize = 200;
/// Number of takes that wait on the page of a pool.
const MOST_WAITERS: usize = 100;
/// Number of members that a search examines.
const MOST_SEARCHED: usize = 4096;

/// Returns the table of members, each with the name of its pool.
fn members_table<'a>(rows: impl IntoIterator<Item = (&'a [u8], MemberRow<'a>)>, warn_hold: Span) -> Table {
    let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| name_of(bytes));
    let key = |(pool, row): &(&[u8], MemberRow<'_>)| format!("{} {}", escaped(pool), escaped(row.name));
    // The operations take the name of the pool up to the first space.
    let button = |of: &(&[u8], MemberRow<'_>), is_shown: bool| {
        let is_shown = is_shown && !of.0.contains(&b' ');
        Some(key(of)).filter(|key| is_shown && key.len() < NAME_BYTES).map(Cell::Text)
    };
    let beyond = |span: Span| Span::from_micros(span.as_micros().saturating_sub(warn_hold.as_micros()));
    let is_held = |row: &MemberRow<'_>| row.kept_out.is_some() && row.state == "held" || row.hold.is_some();
    let can_be_held = |row: &MemberRow<'_>| matches!(row.state, "free" | "in_use") && row.hold.is_none();
    table!((&[u8], MemberRow<'_>), "members", "Members", rows;
        "name", "member", Address to("/members/member/"), "Its name.",
            |of| Cell::Client(Client { address: visible(of.1.name, NAME_BYTES), key: key(of) });
        "state", "state", Text, "State of the member.", |(_, row)| Cell::text(row.state);
        "holder", "holder", Text, "Name or address of the holder.",
            |(_, row)| (row.holder != "-").then(|| Cell::text(&row.holder));
        "held", "held for", Seconds, "Time for which its holder has had it.", |(_, row)| row.held.map(|(span, _)| span);
        "long", "over warn_hold", Seconds marked(Alarm), "Time beyond the pool's warn_hold.",
            |(_, row)| row.held.filter(|_| row.is_long).map(|(span, _)| beyond(span));
        "out", "kept out for", Seconds marked(Alarm), "Time for which it is kept out.",
            |(_, row)| row.kept_out.map(|out| out.since);
        "why", "why", Name, "Reason why it is kept out.", |(_, row)| row.kept_out.and_then(|out| text(out.why));
        "by", "by", Name, "Peer that caused it.", |(_, row)| row.kept_out.and_then(|out| text(out.by));
        "age", "age", Seconds, "Time since it was started or added.", |(_, row)| row.age;
        "idle", "idle", Seconds, "Time since it was last in use.", |(_, row)| row.idle;
        "uses", "uses", Number, "Number of its leases.", |(_, row)| row.uses;
        "attributes", "attributes", Name, "Its attributes, which takes can ask for.",
            |(_, row)| row.attributes.and_then(|attributes| text(&words_of(|words| write_attributes(words, attributes))));
        "lease", "lease", Text, "Number of its lease.",
            |(_, row)| row.held.map(|(_, lease)| Cell::text(lease.to_string()));
        "expires", "expires in", Seconds, "Time until its lease ends by itself.", |(_, row)| row.expires;
        "hold", "then held for", Seconds marked(Caution), "Time for which it is held when it is returned.",
            |(_, row)| row.hold;
        "repair", "repair", Key acts(REPAIR), "Its pool and name, if it is in quarantine.",
            |of| button(of, of.1.state == "quarantined");
        "takeback", "takeback", Key acts(TAKE_BACK), "Its pool and name, if a client holds it.",
            |of| button(of, of.1.held.is_some());
        "free", "free", Key acts(FREE), "Its pool and name, if an operator holds it back.",
            |of| button(of, is_held(&of.1));
        "keep", "keep", Key acts(HOLDS), "Its pool and name, if it can be held back.",
            |of| button(of, can_be_held(&of.1));
    )
    .empty("The pool has no member. A provider starts members (poolcounter provide), or an operator adds them (poolcounter members add).")
}

/// Returns the words of a line without the space before them.
fn words_of(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut words = Vec::new();
    write(&mut words);
    words.trim_ascii().into()
}

/// Returns the table of the leases of one member.
fn leases_table<'a>(leases: impl Iterator<Item = &'a PastLease>, now: Moment) -> Table {
    let ago = |at: Moment| Span::from_micros(now.saturating_sub(at));
    table!(&PastLease, "leases", "Last leases", leases;
        "holder", "holder", Name, "Name or address of the holder.", |past| name_of(&past.holder);
        "peer", "from", Address, "Address from which it was taken.", |past| Cell::text(&past.address);
        "since", "taken", Seconds, "Time since the take.", |past| ago(past.since);
        "ended", "ended", Seconds, "Time since the end.", |past| past.end.as_ref().map(|(at, ..)| ago(*at));
        "how", "how", Text, "How the lease ended.",
            |past| Cell::text(past.end.as_ref().map_or("lasts", |(_, ending, _)| ending.name()));
        "by", "by", Name, "Peer that ended it, if that is not the holder.",
            |past| past.end.as_ref().filter(|(.., by)| !by.is_empty()).map(|(.., by)| name_of(by));
        "lease", "lease", Text, "Number of the lease.", |past| Cell::text(past.lease.to_string());
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
        let members: Vec<(&[u8], MemberRow<'_>)> = members.take(MOST_MEMBERS).collect();
        let names: Vec<Cell> = members.iter().map(|(pool, _)| name_of(pool)).collect();
        let mut table = members_table(members, Span::ZERO);
        table.rows.iter_mut().zip(names).for_each(|(row, pool)| row.insert(1, pool));
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
        let leases = leases_table(self.state.history(named).ok()?, self.state.moment(viewer.now));
        let mut commands = commands_for(named.pool, std::slice::from_ref(&row));
        commands.truncate(commands.len().saturating_sub(1));
        if let (Some(pool), Some(member)) = (quoted(named.pool), quoted(named.member)) {
            commands.push(format!("members history {pool} {member}"));
        }
        let one = members_table([(named.pool, row)], warn_hold);
        let tables = vec![Table { title: "Member".into(), ..one }, leases];
        let title = format!("{} of pool {}", title_of("Member", named.member), escaped(named.pool));
        Some(View { title, report: Report { tables, ..Report::default() }, commands, ..View::default() })
    }

    fn view_of_pool(&self, name: &[u8], viewer: Viewer<'_>) -> Option<View> {
        let pool = self.state.report_of_name(name).ok()?;
        let members = self.state.members_after(name, None, viewer).ok()?;
        let members: Vec<MemberRow<'_>> = members.take(MOST_MEMBERS).collect();
        let note = (members.len() == MOST_MEMBERS).then(|| format!("Only the first {MOST_MEMBERS} by name are shown."));
        let (commands, series) = (commands_for(name, &members), series_of(&pool).into());
        let members = members_table(members.into_iter().map(|row| (name, row)), pool.warn_hold);
        let tables = vec![
            standing_table().rows([standing_of(&pool)]),
            Table { note, ..members },
            self.waiters_of(name, viewer)?,
            history_table().rows([history_of(&pool)]),
        ];
        let (title, report) = (title_of("Pool", name), Report { tables, series, ..Report::default() });
        Some(View { title, report, commands, ..View::default() })
    }

    /// Returns the takes that wait for members of a pool.
    fn waiters_of(&self, name: &[u8], viewer: Viewer<'_>) -> Option<Table> {
        let waiters = self.state.waiters_after(name, None, viewer).ok()?;
        let waiters: Vec<WaiterRow<'_>> = waiters.map(|(_, row)| row).take(MOST_WAITERS).collect();
        let note = (waiters.len() == MOST_WAITERS).then(|| format!("Only the first {MOST_WAITERS} are shown."));
        let waiters = table!((u64, WaiterRow<'_>), "waiters", "Waiting takes", (1..).zip(waiters);
            "place", "place", Number, "Its place.", |(place, _)| *place;
            "who", "who", Text, "Name or address.", |(_, row)| Cell::text(&row.who);
            "waited", "for", Seconds marked(Caution), "Time for which it has waited.", |(_, row)| row.waited;
            "wants", "wants", Name, "Attributes that it asks for, or the only member.",
                |(_, row)| row.filter.map(|filter| name_of(&words_of(|words| write_filter(words, filter))));
            "count", "members", Number, "Number of members that it wants.", |(_, row)| row.count;
            "pri", "priority", Number, "Its priority.", |(_, row)| u32::from(row.priority);
        );
        let waiters = waiters.help("In the order in which they are served.");
        Some(Table { note, ..waiters.empty("No waiting takes.") })
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
