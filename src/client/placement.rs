//! Placement of keys on servers: pure functions of the configuration and the key. Independent of connections.

use super::Tls;

/// Placement of keys: the servers, and for each key the order in which they are tried. Servers do not know each other;
/// clients with the same placement find a key on the same server.
///
/// [`MediaWiki`] is the order of MediaWiki's PHP client, and [`Ring`] the consistent hashing of Wikimedia's Python
/// library (compared with the library for 600 keys on four rings). The two place keys differently, so all clients that
/// share keys must use the same one.
///
/// Number of the 10,000 keys `key 0` to `key 9999` that move when a server joins or leaves, and keys per server before:
///
/// | | servers | keys of each | one joins | fair share | the second leaves | fair share |
/// |---|---|---|---|---|---|---|
/// | `MediaWiki` | 3 | 3278 to 3377 | 2428 move | 2500 | 3377 move | 3333 |
/// | `Ring` | 3 | 3150 to 3700 | 2021 move | 2500 | 3700 move | 3333 |
/// | `MediaWiki` | 10 | 953 to 1049 | 895 move | 909 | 1002 move | 1000 |
/// | `Ring` | 10 | 860 to 1282 | 997 move | 909 | 977 move | 1000 |
///
/// In both, only the keys that the new server takes, or the keys of the server that leaves, move. MediaWiki's order
/// hashes each key with each server, and so spreads keys more evenly than the ring, whose arcs differ in length.
#[derive(Clone, Debug)]
pub enum Placement {
    /// Order of MediaWiki's PHP client.
    MediaWiki(MediaWiki),
    /// Order of Wikimedia's Python library.
    Ring(Ring),
}

/// Servers in the order of `md5(server + key)`, compared as hexadecimal text, with the server as it is configured.
#[derive(Clone, Debug)]
pub struct MediaWiki {
    servers: Vec<String>,
    /// TLS settings for servers with the prefix `tls:`.
    pub(super) tls: Option<Tls>,
}

/// Servers on a ring of the numbers below 2^128. Each has 100 points for each unit of its weight: for `i` from 0 to 99
/// and `j` below the weight, `md5("label:i:j")` as a number. A key belongs to the first point above `md5(key)`; the
/// next servers around the ring follow in order.
#[derive(Clone, Debug)]
pub struct Ring {
    servers: Vec<String>,
    /// TLS settings for servers with the prefix `tls:`.
    pub(super) tls: Option<Tls>,
    /// The points in order, each with the index of its server.
    points: Vec<(u128, usize)>,
}

/// Points on the ring for each unit of weight.
const POINTS: u32 = 100;

impl Placement {
    /// Returns the addresses of the servers.
    pub fn servers(&self) -> &[String] {
        match self {
            Placement::MediaWiki(MediaWiki { servers, .. }) | Placement::Ring(Ring { servers, .. }) => servers,
        }
    }

    /// Returns the TLS settings for servers with the prefix `tls:`, if set.
    pub(super) fn tls(&self) -> Option<&Tls> {
        match self {
            Placement::MediaWiki(MediaWiki { tls, .. }) | Placement::Ring(Ring { tls, .. }) => tls.as_ref(),
        }
    }

    /// Returns the indices of all servers, in the order in which they are tried for `key`.
    pub fn order(&self, key: &[u8]) -> Vec<usize> {
        match self {
            Placement::MediaWiki(order) => order.order(key),
            Placement::Ring(ring) => ring.order(key),
        }
    }
}

impl From<MediaWiki> for Placement {
    fn from(order: MediaWiki) -> Self {
        Placement::MediaWiki(order)
    }
}

impl From<Ring> for Placement {
    fn from(ring: Ring) -> Self {
        Placement::Ring(ring)
    }
}

impl MediaWiki {
    /// Returns the placement on these servers, each as `HOST`, `HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`, written as
    /// in the configuration of MediaWiki: `10.0.0.5` and `10.0.0.5:7531` are the same server, but give different
    /// orders.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        MediaWiki { servers: servers.into_iter().map(Into::into).collect(), tls: None }
    }

    fn order(&self, key: &[u8]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.servers.len()).collect();
        // The numbers sort like their hexadecimal text, because all have 32 digits.
        order.sort_by_cached_key(|index| digest(&[self.servers[*index].as_bytes(), key]));
        order
    }
}

impl Ring {
    /// Returns the placement on these servers, each as label, address (`HOST`, `HOST:PORT`, `tls:HOST:PORT` or
    /// `unix:PATH`) and weight. Keys are placed by labels and weights only, so a server can change its address and keep
    /// its keys.
    pub fn new(servers: impl IntoIterator<Item = (impl AsRef<str>, impl Into<String>, u8)>) -> Self {
        let mut ring = Ring { servers: Vec::new(), tls: None, points: Vec::new() };
        for (label, address, weight) in servers {
            let label = label.as_ref();
            let points = (0..POINTS).flat_map(|i| (0..weight).map(move |j| (i, j)));
            let hash = |(i, j)| digest(&[format!("{label}:{i}:{j}").as_bytes()]);
            ring.points.extend(points.map(|point| (hash(point), ring.servers.len())));
            ring.servers.push(address.into());
        }
        ring.points.sort_unstable();
        ring
    }

    fn order(&self, key: &[u8]) -> Vec<usize> {
        let hash = digest(&[key]);
        let (passed, ahead) = self.points.split_at(self.points.partition_point(|(point, _)| *point <= hash));
        let mut order = Vec::with_capacity(self.servers.len());
        for (_, server) in ahead.iter().chain(passed) {
            if order.len() == self.servers.len() {
                break;
            }
            if !order.contains(server) {
                order.push(*server);
            }
        }
        order
    }
}

/// Returns the MD5 of the concatenated parts, as a number.
fn digest(parts: &[&[u8]]) -> u128 {
    let mut context = md5::Context::new();
    parts.iter().for_each(|part| context.consume(part));
    u128::from_be_bytes(context.finalize().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // This Python prints the expected orders:
    //
    //   import hashlib
    //   md5 = lambda text: hashlib.md5(text.encode()).hexdigest()
    //   print(sorted(servers, key=lambda server: md5(server + key)))
    #[test]
    fn media_wiki_sorts_by_digest() {
        let servers = ["10.0.0.5", "10.0.0.6", "10.0.0.7:7532"];
        let order = MediaWiki::new(servers);
        for (key, want) in [
            ("enwiki:ArticleView:Michael Jackson", ["10.0.0.5", "10.0.0.7:7532", "10.0.0.6"]),
            ("k", ["10.0.0.6", "10.0.0.7:7532", "10.0.0.5"]),
            ("", ["10.0.0.5", "10.0.0.7:7532", "10.0.0.6"]),
            ("ключ", ["10.0.0.5", "10.0.0.7:7532", "10.0.0.6"]),
        ] {
            assert_eq!(order.order(key.as_bytes()).into_iter().map(|n| servers[n]).collect::<Vec<_>>(), want, "{key}");
        }
    }

    // The same, with `md5` from above:
    //
    //   from bisect import bisect_right
    //   weights = {"a": 1, "b": 2, "c": 1}
    //   points = sorted((int(md5(f"{label}:{i}:{j}"), 16), label)
    //                   for label, weight in weights.items() for i in range(100) for j in range(weight))
    //   at = bisect_right([point for point, _ in points], int(md5(key), 16))
    //   print(list(dict.fromkeys(label for _, label in points[at:] + points[:at])))
    #[test]
    fn ring_is_walked_from_the_key_on() {
        let ring = Ring::new([("a", "host1", 1), ("b", "host2:99", 2), ("c", "host3", 1)]);
        for (key, want) in [
            ("enwiki:ArticleView:Michael Jackson", ["a", "c", "b"]),
            ("", ["b", "c", "a"]),
            ("ключ", ["b", "c", "a"]),
            ("key 0", ["c", "b", "a"]),
            ("key 2", ["a", "b", "c"]),
            // Past the last point, which belongs to a: the ring starts again.
            ("key 420", ["b", "a", "c"]),
        ] {
            let labels: Vec<_> = ring.order(key.as_bytes()).into_iter().map(|n| ["a", "b", "c"][n]).collect();
            assert_eq!(labels, want, "{key}");
        }
    }

    /// The library itself gives the expected servers.
    #[test]
    fn ring_keeps_keys_where_wikimedias_library_does() {
        let vectors = include_str!("../../tests/placement/ring.tsv").lines().filter(|line| !line.starts_with('#'));
        let mut compared = 0;
        for line in vectors {
            let [servers, key, want] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("not three fields: {line}")
            };
            let weighted = servers.split(' ').map(|server| {
                let (label, weight) = server.split_once('=').expect("label=weight");
                (label, label, weight.parse().expect("a weight"))
            });
            let ring = Ring::new(weighted);
            assert_eq!(ring.servers[ring.order(key.as_bytes())[0]], want, "{key} on {servers}");
            compared += 1;
        }
        assert_eq!(compared, 600);
    }

    #[test]
    fn servers_of_a_ring_with_points_come_once() {
        let ring = Ring::new([("a", "a", 1), ("b", "b", 0), ("c", "c", 3)]);
        for n in 0..100 {
            let mut order = ring.order(format!("key {n}").as_bytes());
            order.sort_unstable();
            assert_eq!(order, [0, 2]);
        }
        assert_eq!(Ring::new([("", "", 1); 0]).order(b"k"), [0; 0]);
        assert_eq!(MediaWiki::new([""; 0]).order(b"k"), [0; 0]);
    }

    #[test]
    fn documentation_says_how_many_keys_move() {
        let in_order = |servers: &[String]| MediaWiki::new(servers).into();
        let on_ring = |servers: &[String]| Ring::new(servers.iter().map(|server| (server, server, 1))).into();
        for count in [3, 10] {
            assert_documented(&row("MediaWiki", count, in_order));
            assert_documented(&row("Ring", count, on_ring));
        }
    }

    fn assert_documented(row: &str) {
        assert!(include_str!("placement.rs").contains(&format!("/// {row}\n")), "the table has no row {row}");
    }

    /// Returns a row of the table, measured.
    fn row(name: &str, count: usize, place: impl Fn(&[String]) -> Placement) -> String {
        let more: Vec<String> = (1..=count + 1).map(|n| format!("10.0.0.{n}")).collect();
        let fewer = [&more[..1], &more[2..count]].concat();
        let before = first_of(&place(&more[..count]));
        let moves = |servers: &[String], from_or_to: &str| {
            let after = first_of(&place(servers));
            let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
            assert!(moved.iter().all(|(before, after)| *before == from_or_to || *after == from_or_to));
            moved.len()
        };
        let keys_of = |server| before.iter().filter(|first| *first == server).count();
        let (least, most) = (more[..count].iter().map(keys_of).min(), more[..count].iter().map(keys_of).max());
        format!(
            "| `{name}` | {count} | {} to {} | {} move | {} | {} move | {} |",
            least.unwrap_or_default(),
            most.unwrap_or_default(),
            moves(&more, &more[count]),
            10_000 / (count + 1),
            moves(&fewer, &more[1]),
            10_000 / count,
        )
    }

    /// Returns the first server of each key of the table.
    fn first_of(placement: &Placement) -> Vec<String> {
        let first = |n| placement.servers()[placement.order(format!("key {n}").as_bytes())[0]].clone();
        (0..10_000).map(first).collect()
    }
}
