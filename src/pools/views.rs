//! Pages about one object: a key, a type of work, a client, or the names that contain a text.

use super::operations::OF_HELD;
use super::report::{
    AGE, CLIENTS, KEY, KEYS, PEER, TYPES_PATH, WAITING, WHO, WORKING, ceilings_table, types_table, who_of,
};
use super::state::{CLIENTS_LOOKED_AT, WhichKeys};
use super::{ClaimInfo, MOST_ROWS, PoolsService, Purpose};
use memchr::memmem::Finder;
use poolcounter_core::text::{escaped, title_of, unescaped};
use poolcounter_core::top_keys::KeyDetails;
use poolcounter_core::{Span, Time, top_keys};
use poolcounter_service::contract::Peers;
use poolcounter_service::health::{in_words, quoted};
use poolcounter_service::report::Emphasis::Caution;
use poolcounter_service::report::tables::client_of;
use poolcounter_service::report::{Cell, Report, Table, View, table};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most claims on a page: as many as a person reads. Each needs a system call for its address.
const MOST_CLAIMS: usize = 100;
/// Most claims of a key whose clients are summed up.
const MOST_SUMMED: usize = 1024;
/// Longest key with a button, in bytes: the address behind it is shown as well.
const LONGEST_OF_BUTTON: usize = 120;
/// Number of the first columns of claims that say more than the title of a key's page.
const COLUMNS_OF_KEY: usize = 6;

/// Returns the limits of the last request for a key, and its waits.
fn limits_table(of: Option<&KeyDetails>) -> Table {
    let number = |number: u64| (number < u64::from(u32::MAX)).then_some(number);
    table!(&KeyDetails, "limits", "Limits and waits", of;
        "workers", "workers", Number, "Locks that there may be at a time.", |of| number(of.limits[0]);
        "max_queue", "max_queue", Number, "Locks and waits that there may be.", |of| number(of.limits[1]);
        "timeout", "timeout", Seconds, "Longest wait.", |of| Span::from_micros(of.limits[2]);
        "wait", "waits", Times, "Lengths of the waits that have ended.", |of| of.waits.clone();
    )
    .help("The limits are those of the last request that waited or was refused. After an upgrade they begin anew.")
}

/// Returns the commands that help with a key or a type, if its name can be typed.
fn commands_for(kind: &[u8], name: &[u8]) -> Vec<String> {
    let ceiling = |keys: String| format!("admin CEILING {keys} max_queue=20,timeout=2");
    match kind {
        b"key" => quoted(name).map(|key| vec![format!("holders {key}"), ceiling(key)]),
        b"type" => quoted(&[name, b":*"].concat()).map(|keys| vec![ceiling(keys)]),
        _ => None,
    }
    .unwrap_or_default()
}

impl PoolsService {
    /// Returns the page of one object: `key/KEY`, `type/NAME`, `client/CLIENT` or `find/TEXT`, with names escaped as on
    /// other pages. A client is an address with or without its port, or the name that it gave.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let at = path.iter().position(|byte| *byte == b'/')?;
        let (kind, thing) = (&path[..at], &path[at + 1..]);
        // Bytes that are no text are used as they are.
        let text = str::from_utf8(thing).unwrap_or_default();
        let mut name = if text.is_empty() { thing.to_vec() } else { unescaped(text) };
        if let Some(key) = self.completed(kind, &name, text) {
            name = key.to_vec();
        }
        let (word, tables) = match kind {
            b"key" => ("Key", self.tables_of_key(&name, now, peers)),
            b"type" => ("Keys of", self.tables_of_type(&name, now, peers)?),
            b"client" => ("Client", vec![self.claims_of_client(&name, text, now, peers)]),
            b"find" => ("Search:", self.tables_with(&name, text, now, peers)),
            _ => return None,
        };
        let title = title_of(word, &name);
        let mut commands = commands_for(kind, &name);
        if kind == b"key" {
            commands.extend(self.release_of(&name, peers));
        }
        let series = if kind == b"key" { self.series_of_key(&name).into() } else { Vec::new() };
        Some(View { title, report: Report { tables, series, ..Report::default() }, commands, ..View::default() })
    }

    /// Returns the busiest key that begins with a name which a table has cut, unless a key has just that name.
    fn completed(&self, kind: &[u8], name: &[u8], text: &str) -> Option<&[u8]> {
        let beginning = text.strip_suffix('…').filter(|_| kind == b"key" && self.state.occupancy(name) == 0)?;
        self.state.key_beginning(&unescaped(beginning))
    }

    /// Returns the tables of a key: refusals and waits, holders and waiters, and the ceiling that applies to it.
    fn tables_of_key(&self, key: &[u8], now: Time, peers: &dyn Peers) -> Vec<Table> {
        let more = self.state.occupancy(key).saturating_sub(MOST_CLAIMS);
        let note = (more > 0).then(|| format!("There are {more} more."));
        let ceiling = self.state.ceilings().iter().find(|one| one.ceiling.matches(key));
        let mut claims = listed(self.state.claims_on(key).take(MOST_CLAIMS), note, now, peers);
        claims.columns.truncate(COLUMNS_OF_KEY);
        claims.rows.iter_mut().for_each(|row| row.truncate(COLUMNS_OF_KEY));
        vec![
            self.hottest(|hot| *hot == *top_keys::truncated(key), now)
                .titled("Refused and waited")
                .empty("No request for this key was refused or had to wait recently."),
            limits_table(self.state.top_keys.details(key)),
            self.askers_of(key, now, peers),
            claims,
            ceilings_table(ceiling),
        ]
    }

    /// Returns who holds a key and waits for it, with the most claims first: by the names that clients gave, or else by
    /// their addresses without the port.
    fn askers_of(&self, key: &[u8], now: Time, peers: &dyn Peers) -> Table {
        let mut askers = BTreeMap::<Vec<u8>, ([u64; 2], Option<Time>)>::new();
        for claim in self.state.claims_on(key).take(MOST_SUMMED) {
            let peer = peers.peer(claim.conn);
            let address = peer.rsplit_once(':').map_or(&*peer, |(address, _)| address);
            let who = if claim.who.is_empty() { address.as_bytes() } else { claim.who };
            let (counts, oldest) = askers.entry(who.into()).or_default();
            counts[usize::from(claim.waits_for.is_some())] += 1;
            if claim.waits_for.is_some() {
                *oldest = Some(oldest.map_or(claim.since, |oldest| oldest.min(claim.since)));
            }
        }
        let mut askers: Vec<_> = askers.into_iter().collect();
        askers.sort_by_key(|(_, ([working, waiting], _))| Reverse(working + waiting));
        table!((Vec<u8>, ([u64; 2], Option<Time>)), "askers", "Who asks most", askers.into_iter().take(MOST_ROWS);
            "who", "who", Name to(CLIENTS), "Name that the client gave (who=), or its address.", |(who, _)| Cell::text(who);
            "working", "working", Number, WORKING, |(_, (counts, _))| counts[0];
            "waiting", "waiting", Number marked(Caution), WAITING, |(_, (counts, _))| counts[1];
            "longest", "longest wait", Seconds, "Time for which the oldest of its requests waits.",
                |(_, (_, oldest))| oldest.map(|oldest| now.since(oldest));
        )
    }

    /// Returns the command that takes a lock from its longest holder, if there is one.
    fn release_of(&self, key: &[u8], peers: &dyn Peers) -> Option<String> {
        let held = self.state.claims_on(key).take(MOST_CLAIMS).filter(|claim| claim.waits_for.is_none());
        let client = peers.peer(held.min_by_key(|claim| claim.since)?.conn);
        Some(format!("admin RELEASE-LOCK {} {}", quoted(key)?, quoted(client.as_bytes())?))
    }

    /// Returns the tables of a type of work; None if it has no counts.
    fn tables_of_type(&self, name: &[u8], now: Time, peers: &dyn Peers) -> Option<Vec<Table>> {
        let one = self.state.types_in_use().find(|one| one.name == name)?;
        let prefix = [name, b":"].concat();
        Some(vec![
            types_table([one]),
            self.busiest(WhichKeys::OfType(name), now),
            self.hottest(|key| key.starts_with(&prefix), now),
            listed(self.state.longest_holders_of(name, MOST_ROWS).into_iter(), None, now, peers),
        ])
    }

    /// Returns the claims of a client: of one connection, of all from an address, or of all with that name.
    fn claims_of_client(&self, who: &[u8], text: &str, now: Time, peers: &dyn Peers) -> Table {
        if let Some(conn) = client_of(text, peers) {
            return listed(self.state.claims_with(conn).take(MOST_CLAIMS), None, now, peers);
        }
        let address = text.rsplit_once('@').map_or(text, |(address, _)| address);
        let is_it = |claim: &ClaimInfo<'_>, peer: &str| {
            claim.who == who || peer.strip_prefix(address).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.claims_where(is_it, now, peers)
    }

    /// Returns the keys and claims with a text in their names.
    fn tables_with(&self, bytes: &[u8], text: &str, now: Time, peers: &dyn Peers) -> Vec<Table> {
        let finder = Finder::new(bytes);
        let has_it = |claim: &ClaimInfo<'_>, peer: &str| finder.find(claim.who).is_some() || peer.contains(text);
        vec![
            self.busiest(WhichKeys::With(bytes), now).titled("Keys in use").empty("No key in use matches."),
            self.hottest(|key| finder.find(key).is_some(), now).empty(""),
            self.claims_where(has_it, now, peers)
                .titled("Clients")
                .empty("No client that holds a lock or waits for one matches."),
        ]
    }

    /// Returns the claims for which `include` is true, which gets the claim and the address of its connection.
    fn claims_where(&self, include: impl Fn(&ClaimInfo<'_>, &str) -> bool, now: Time, peers: &dyn Peers) -> Table {
        let mut looked_at = 0;
        let claims = self.state.clients().inspect(|_| looked_at += 1).flat_map(|conn| {
            let peer = peers.peer(conn);
            let claims = self.state.claims_with(conn).take(MOST_CLAIMS);
            claims.filter(|claim| include(claim, &peer)).collect::<Vec<_>>()
        });
        let claims: Vec<ClaimInfo<'_>> = claims.take(MOST_CLAIMS).collect();
        let note = if claims.len() == MOST_CLAIMS {
            Some(format!("Only the first {MOST_CLAIMS} are shown."))
        } else {
            (looked_at == CLIENTS_LOOKED_AT)
                .then(|| format!("Only the first {CLIENTS_LOOKED_AT} connections are searched."))
        };
        listed(claims.into_iter(), note, now, peers)
    }
}

/// Returns the argument of the operations on a held lock; None if it has none, or a key that has no such form.
fn lock_of(claim: &ClaimInfo<'_>, peers: &dyn Peers) -> Option<String> {
    let is_held = claim.waits_for.is_none() && claim.kept_until.is_none();
    let is_plain = claim.key.len() < LONGEST_OF_BUTTON && claim.key.iter().all(|byte| is_plain(*byte));
    (is_held && is_plain).then(|| format!("{} {}", escaped(claim.key), peers.peer(claim.conn)))
}

/// Returns true for bytes that pages show as they are, and that an argument can have.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'\\'
}

/// Returns a table of claims. Waiters are numbered apart.
fn listed<'a>(rows: impl Iterator<Item = ClaimInfo<'a>>, note: Option<String>, now: Time, peers: &dyn Peers) -> Table {
    let mut places = [0_u64, 0];
    let placed = rows.map(|claim| {
        let place = &mut places[usize::from(claim.waits_for.is_some())];
        *place += 1;
        (*place, claim, claim.kept_until.map(|until| until.since(now)))
    });
    let claims = table!((u64, ClaimInfo<'_>, Option<Span>), "claims", "Holders and waiters", placed;
        "place", "place", Number, "Its place in the queue of the key or of the client.", |(place, ..)| *place;
        "state", "state", Text, "State: it works, waits for the lock itself, or for the work of another.",
            |(_, claim, left)| match (left, claim.waits_for) {
                (Some(left), _) => Cell::text(format!("has ended; kept for {}", in_words(*left))),
                (_, None) => Cell::text("works"),
                (_, Some(Purpose::Me)) => Cell::text("waits for the lock"),
                (_, Some(Purpose::Anyone)) => Cell::text("waits for the work"),
            };
        "peer", "client", Address to(CLIENTS), PEER,
            |(_, claim, left)| left.is_none().then(|| Cell::client(claim.conn, peers));
        "who", "who", Name to(CLIENTS), WHO, |(_, claim, _)| who_of(claim);
        "age", "for", Seconds, AGE, |(_, claim, _)| now.since(claim.since);
        "lock", "lock", Key acts(OF_HELD), "Key and address of a held lock, for its button.",
            |(_, claim, _)| lock_of(claim, peers).map(Cell::text);
        "key", "key", Name to(KEYS), KEY, |(_, claim, _)| Cell::text(top_keys::truncated(claim.key));
        "type", "first part", Name to(TYPES_PATH), "Part of the key before its first colon.",
            |(_, claim, _)| Cell::text(claim.type_name);
    );
    let claims = claims.help("Holders first, then waiters in the order in which they are served.");
    Table { note, ..claims.empty("No holders or waiters now.") }
}
