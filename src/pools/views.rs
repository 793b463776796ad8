//! What the pools tell of one thing by itself: a key, a type of work, a client, or what has a text in its name.

use super::report::{AGE, KEY, PEER, TYPES, TYPES_PATH, WHO, row_of_type, who_of};
use super::state::{CLIENTS_LOOKED_AT, WhichKeys};
use super::{ClaimInfo, MOST_ROWS, PoolsService, Purpose};
use memchr::memmem::Finder;
use poolcounter_core::text::{title_of, unescaped};
use poolcounter_core::time::Time;
use poolcounter_core::top_keys;
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::tables::client_of;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Report, Table, TableInfo, View};

/// How many claims are told of: as many as a person reads. An address is asked of the system for each.
const MOST_CLAIMS: usize = 100;

static CLAIMS: TableInfo = TableInfo {
    name: "claims",
    title: "Holders and waiters",
    help: "Those that hold come first, then those that wait, in the order in which they are served.",
    empty: "Nobody holds this or waits for it now.",
    is_of_kinds: false,
    columns: &[
        Column {
            name: "place",
            title: "place",
            unit: ColumnUnit::Level,
            help: "Its place in the queue of the key or of the client.",
            ..Column::BLANK
        },
        Column {
            name: "state",
            title: "state",
            unit: ColumnUnit::Text,
            help: "Whether it works, waits for the lock itself, or for the work of another.",
            ..Column::BLANK
        },
        PEER,
        WHO,
        AGE,
        KEY,
        Column {
            name: "type",
            title: "type",
            unit: ColumnUnit::Linked(TYPES_PATH),
            help: "The type of work.",
            ..Column::BLANK
        },
    ],
};

/// Returns the commands that help with a key or a type, if its name can be typed.
fn commands_for(kind: &[u8], name: &[u8]) -> Vec<String> {
    let ceiling = |keys: String| format!("admin CEILING {keys} max_queue=20,timeout=2");
    match kind {
        b"key" => quoted(name).map(|key| vec![format!("holders {key}"), format!("watch {key}"), ceiling(key)]),
        b"type" => quoted(&[name, b":*"].concat()).map(|keys| vec![ceiling(keys)]),
        _ => None,
    }
    .unwrap_or_default()
}

impl PoolsService {
    /// Returns what there is to tell of one thing: `key/KEY`, `type/NAME`, `client/CLIENT` or `find/TEXT`, in text as it is shown
    /// elsewhere. A client is an address with or without its port, or who it says to be.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let at = path.iter().position(|byte| *byte == b'/')?;
        let (kind, thing) = (&path[..at], &path[at + 1..]);
        // What is no text is taken as it is.
        let text = str::from_utf8(thing).unwrap_or_default();
        let name = if text.is_empty() { thing.to_vec() } else { unescaped(text) };
        let (word, tables) = match kind {
            b"key" => ("Key", vec![self.claims_on(&name, text, now, peers)]),
            b"type" => ("Type", self.tables_of_type(&name, now, peers)?),
            b"client" => ("Client", vec![self.claims_of_client(&name, text, now, peers)]),
            b"find" => ("Found", self.tables_with(&name, text, now, peers)),
            _ => return None,
        };
        let title = title_of(word, &name);
        let commands = commands_for(kind, &name);
        Some(View { title, report: Report { tables, ..Report::default() }, commands, ..View::default() })
    }

    /// Returns who holds a key and who waits for it. Of a name that was cut, it is the busiest key that begins so.
    fn claims_on(&self, key: &[u8], text: &str, now: Time, peers: &dyn Peers) -> Table {
        let cut = text.strip_suffix('…').filter(|_| self.state.occupancy(key) == 0);
        let key = cut.and_then(|text| self.state.key_beginning(&unescaped(text))).unwrap_or(key);
        let more = self.state.occupancy(key).saturating_sub(MOST_CLAIMS);
        let note = (more > 0).then(|| format!("There are {more} more."));
        table_of(self.state.claims_on(key).take(MOST_CLAIMS), note, now, peers)
    }

    /// Returns what there is to tell of a type of work.
    fn tables_of_type(&self, name: &[u8], now: Time, peers: &dyn Peers) -> Option<Vec<Table>> {
        let row = row_of_type(self.state.type_of_name(name)?);
        let prefix = [name, b":"].concat();
        Some(vec![
            Table { info: &TYPES, rows: vec![row], note: None },
            self.busiest(WhichKeys::OfType(name), now),
            self.hottest(|key| key.starts_with(&prefix), now),
            table_of(self.state.longest_holders_of(name, MOST_ROWS).into_iter(), None, now, peers),
        ])
    }

    /// Returns what a client holds and waits for: one connection, all of an address, or all that say to be it.
    fn claims_of_client(&self, who: &[u8], text: &str, now: Time, peers: &dyn Peers) -> Table {
        if let Some(conn) = client_of(text, peers) {
            return table_of(self.state.claims_with(conn).take(MOST_CLAIMS), None, now, peers);
        }
        let address = text.rsplit_once('@').map_or(text, |(address, _)| address);
        let is_it = |claim: &ClaimInfo<'_>, peer: &str| {
            claim.who == who || peer.strip_prefix(address).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        self.claims_where(is_it, now, peers)
    }

    /// Returns what has a text in its name.
    fn tables_with(&self, bytes: &[u8], text: &str, now: Time, peers: &dyn Peers) -> Vec<Table> {
        let finder = Finder::new(bytes);
        let has_it = |claim: &ClaimInfo<'_>, peer: &str| finder.find(claim.who).is_some() || peer.contains(text);
        vec![
            self.busiest(WhichKeys::With(bytes), now),
            self.hottest(|key| finder.find(key).is_some(), now),
            self.claims_where(has_it, now, peers),
        ]
    }

    /// Returns the claims of those connections of which this is true, of the claim and the address of its peer.
    fn claims_where(&self, include: impl Fn(&ClaimInfo<'_>, &str) -> bool, now: Time, peers: &dyn Peers) -> Table {
        let mut looked_at = 0;
        let claims = self.state.clients().inspect(|_| looked_at += 1).flat_map(|conn| {
            let peer = peers.peer(conn);
            let claims = self.state.claims_with(conn).take(MOST_CLAIMS);
            claims.filter(|claim| include(claim, &peer)).collect::<Vec<_>>()
        });
        let claims: Vec<ClaimInfo<'_>> = claims.take(MOST_CLAIMS).collect();
        let note = if claims.len() == MOST_CLAIMS {
            Some(format!("Only {MOST_CLAIMS} are told of."))
        } else {
            (looked_at == CLIENTS_LOOKED_AT).then(|| format!("Only {CLIENTS_LOOKED_AT} connections are looked at."))
        };
        table_of(claims.into_iter(), note, now, peers)
    }
}

/// Returns a table of claims. Those that wait are numbered for themselves.
fn table_of<'a>(
    claims: impl Iterator<Item = ClaimInfo<'a>>,
    note: Option<String>,
    now: Time,
    peers: &dyn Peers,
) -> Table {
    let mut places = [0, 0];
    let row = |claim: ClaimInfo<'_>| {
        let place = &mut places[usize::from(claim.waits_for.is_some())];
        *place += 1;
        let state = match claim.waits_for {
            None => "works",
            Some(Purpose::Me) => "waits for the lock",
            Some(Purpose::Anyone) => "waits for the work",
        };
        vec![
            Cell::Number(*place),
            Cell::Text(state.into()),
            Cell::client(claim.conn, peers),
            who_of(&claim),
            Cell::Time(now.since(claim.since)),
            Cell::Name(top_keys::truncated(claim.key).into()),
            Cell::Name(claim.type_name.into()),
        ]
    };
    Table { info: &CLAIMS, rows: claims.map(row).collect(), note }
}
