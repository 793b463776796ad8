//! Admission of connections, and the rules that match them: over sockets with the real program, and in virtual time.

use nix::sys::signal::Signal;
use nix::unistd::Uid;
use poolcounter_client::{Counters, Error, MediaWiki, Timeouts};
use poolcounter_core::proxy::Header;
use poolcounter_core::time::Span;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Credentials;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install_program};
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::rules;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::world::World;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const A: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const B: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A program with a configuration.
struct Stage {
    daemon: Daemon,
    scratch: Scratch,
}

impl Stage {
    /// Starts a daemon with these rules and options.
    fn start(config: &str, options: &[&str]) -> Stage {
        let scratch = Scratch::new();
        install_program(&scratch.file("poolcounter"));
        fs::write(scratch.file("toml"), config).expect("can be written");
        let mut command = Command::new(scratch.file("poolcounter"));
        command.args(["-l", "127.0.0.1:0", "-c"]).arg(scratch.file("toml")).args(options);
        Stage { daemon: Daemon::run(&mut command), scratch }
    }
}

/// A connection whose address the system has forgotten by the time of the check does not match the rule for all.
#[test]
fn client_that_resets_at_once_has_its_rule() {
    let stage = Stage::start(
        "[[access]]\nwho = [\"net:127.0.0.2\"]\nmay = [\"jobs:read:mine\"]\n\
         [[access]]\nwho = [\"all\"]\nmay = [\"jobs\"]\n",
        &["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory"],
    );
    let put = b"put 0 0 60 4\r\nEVIL\r\n";
    let put_and_reset = |ip| {
        stage.daemon.signal(Signal::SIGSTOP);
        for _ in 0..50 {
            let mut client = Client::from(ip, stage.daemon.jobs());
            client.send(put);
            client.reset();
        }
        stage.daemon.signal(Signal::SIGCONT);
    };
    put_and_reset(A);
    let mut client = Client::from(B, stage.daemon.jobs());
    assert_eq!(client.ask("put 0 0 60 4\r\nGOOD\r"), "INSERTED 1\r", "nothing was put before");
    // Requests of reset connections that are allowed are served, so the case above tests the rule.
    put_and_reset(B);
    let id = Client::from(B, stage.daemon.jobs()).ask("put 0 0 60 4\r\nGOOD\r");
    assert_ne!(id, "INSERTED 2\r");
}

/// A handover may lack the address of a connection that its peer has reset since.
#[test]
fn client_without_a_known_address_has_no_rule() {
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES));
    world.guard(rules::read("[[access]]\nwho = [\"all\"]\nmay = [\"pools\"]\n"));
    let clients = [(); 2].map(|()| world.connect());
    for (client, key) in clients.into_iter().zip(["k", "l"]) {
        world.send(client, format!("ACQ4ME {key} 1 1 0\n").as_bytes());
        world.settle();
        assert_eq!(world.take_received(client), b"LOCKED\n");
    }
    world.forget_address(clients[0]);
    world.upgrade();
    for (client, answer) in clients.into_iter().zip([&b"ERROR DENIED\n"[..], b"LOCKED\n"]) {
        world.send(client, b"RELEASE\nACQ4ME m 1 1 0\n");
        world.settle();
        assert_eq!(world.take_received(client), [b"RELEASED\n", answer].concat());
    }
    let unknown = world.connect_unknown();
    world.settle();
    assert_eq!(world.take_received(unknown), b"ERROR DENIED\n");
    world.guard(Vec::new());
    let unknown = world.connect_unknown();
    world.send(unknown, b"ACQ4ME n 1 1 0\n");
    world.settle();
    assert_eq!(world.take_received(unknown), b"LOCKED\n", "without rules everybody may");
}

#[test]
fn addresses_and_rules_go_over_an_upgrade() {
    let mut stage = Stage::start(
        "[[access]]\nwho = [\"net:127.0.0.2\"]\nmay = [\"pools\"]\n\
         [[access]]\nwho = [\"all\"]\nmay = [\"pools:stats\"]\n",
        &[],
    );
    let mut holder = Client::from(A, stage.daemon.address);
    let address = holder.stream().local_addr().expect("is connected").to_string();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let mut other = Client::from(B, stage.daemon.address);
    for _ in 0..2 {
        stage.daemon.upgrade();
        let line = other.ask("STATS HOLDERS k");
        assert!(line.starts_with(&address), "{line} is not of {address}");
        assert_eq!(other.line(), "");
        assert_eq!(other.ask("ACQ4ME l 1 9 0"), "ERROR DENIED");
        assert_eq!([holder.ask("RELEASE"), holder.ask("ACQ4ME k 1 9 0")], ["RELEASED", "LOCKED"]);
    }
}

/// Address of the client in the rules of these tests, and address of a stranger.
const CLIENT: &str = "192.0.2.1";
const STRANGER: &str = "198.51.100.1";

/// Returns a world in which each service may have `places` connections, and only the client is allowed anything.
fn guarded(places: u64, limits: &str) -> World {
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES));
    let who = format!(
        "[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [\"pools\", \"jobs\", \"counters\", \"http\"]\n{limits}\n"
    );
    world.guard(rules::read(&who));
    world.limit(places);
    world
}

fn ask(world: &mut World, client: usize, bytes: &[u8]) -> String {
    String::from_utf8_lossy(&world.ask(client, bytes)).into_owned()
}

/// Returns the header of a proxy whose client is at this address.
fn header(ip: &str) -> Vec<u8> {
    let address = |ip: &str| Some(format!("{ip}:1").parse().expect("an address"));
    let mut bytes = Vec::new();
    Header { source: address(ip), destination: address("192.0.2.9"), tls: None }.write(&mut bytes);
    bytes
}

#[test]
fn strangers_do_not_close_admitted_idle_connections() {
    let mut world = guarded(3, "");
    let client = world.connect_from(CLIENT, "http");
    assert_eq!(ask(&mut world, client, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"), "");
    let behind = world.connect_proxy("http");
    let request = [&header(CLIENT)[..], b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"].concat();
    assert_eq!(ask(&mut world, behind, &request), "");
    for _ in 0..20 {
        let stranger = world.connect_from(STRANGER, "http");
        assert!(ask(&mut world, stranger, b"").starts_with("HTTP/1.1 403 "));
        let stranger = world.connect_proxy("http");
        assert!(ask(&mut world, stranger, &header(STRANGER)).starts_with("HTTP/1.1 403 "));
        assert!(world.is_ended(stranger));
    }
    for client in [client, behind] {
        assert!(ask(&mut world, client, b"\r\n").starts_with("HTTP/1.1 200 "), "it is not closed");
    }
}

#[test]
fn strangers_take_no_places_and_get_a_refusal() {
    let mut world = guarded(5, "");
    let strangers: Vec<usize> = (0..100).map(|_| world.connect_from(STRANGER, "pools")).collect();
    let client = world.connect_from(CLIENT, "pools");
    assert_eq!(ask(&mut world, client, b"ACQ4ME k 1 1 0\n"), "LOCKED\n");
    for stranger in &strangers {
        assert_eq!(world.take_received(*stranger), b"ERROR DENIED\n");
        assert!(world.is_ended(*stranger));
    }
    let lingering = |world: &World| strangers.iter().filter(|stranger| !world.is_closed(**stranger)).count();
    assert_eq!(lingering(&world), 64);
    world.upgrade();
    assert_eq!(lingering(&world), 0, "they do not go over to another process");
    let strangers: Vec<usize> = (0..100).map(|_| world.connect_from(STRANGER, "jobs")).collect();
    world.advance(Span::from_secs(5));
    assert!(strangers.iter().all(|stranger| world.is_closed(*stranger)));
    world.finish(client);
    world.settle();
    assert!(world.is_empty());
}

#[test]
fn proxy_that_says_nothing_takes_no_place() {
    let mut world = guarded(2, "");
    let silent = [(); 2].map(|()| world.connect_proxy("pools"));
    let clients = [(); 2].map(|()| world.connect_from(CLIENT, "pools"));
    for (client, key) in clients.into_iter().zip(["k", "l"]) {
        assert_eq!(ask(&mut world, client, format!("ACQ4ME {key} 1 1 0\n").as_bytes()), "LOCKED\n");
    }
    let more = [world.connect_proxy("pools"), world.connect_from(CLIENT, "pools")];
    assert!(more.iter().all(|client| world.is_closed(*client)));
    let elsewhere = world.connect_proxy("http");
    assert!(!world.is_closed(elsewhere), "each service has its own bound");
    world.upgrade();
    world.limit(2);
    assert_eq!(ask(&mut world, silent[0], &header(STRANGER)), "ERROR DENIED\n");
    assert_eq!(ask(&mut world, silent[1], &header(CLIENT)), "");
    assert!(world.is_ended(silent[1]), "there is no place for it");
    for client in [clients[0], clients[1], silent[0]] {
        world.finish(client);
    }
    world.advance(Span::from_secs(10));
    assert!(world.is_empty());
}

/// Connects a client at this address `count` times, and returns the connections.
fn connect_often(daemon: &Daemon, count: usize) -> Vec<Client> {
    (0..count).map(|_| Client::from(A, daemon.address)).collect()
}

fn administer(path: &Path) -> Client<UnixStream> {
    let mut operator = Client::at(path);
    assert_eq!(operator.ask("LOG default"), "OK");
    operator
}

/// Clients use up all descriptors but the reserved descriptors.
#[test]
fn operators_are_let_in_when_others_are_not() {
    let operator = format!("[[access]]\nwho = [\"user:{}\"]\nmay = [\"admin\"]\n", nix::unistd::geteuid());
    let clients = "[[access]]\nwho = [\"net:127.0.0.2\"]\nmay = [\"pools\"]\nmax_connections = 20\n";
    for rules in [String::new(), format!("{clients}{operator}")] {
        let scratch = Scratch::new();
        let admin = scratch.file("admin");
        fs::write(scratch.file("toml"), rules).expect("can be written");
        let mut command = Command::new("bash");
        command.args(["-c", "ulimit -n 100; exec \"$@\"", "sh", Daemon::program(), "-l", "127.0.0.1:0", "--admin"]);
        command.arg(format!("unix:{}", admin.display())).arg("-c").arg(scratch.file("toml"));
        let daemon = Daemon::run(&mut command);
        drop(administer(&admin));
        let clients = connect_often(&daemon, 150);
        let operators: Vec<_> = (0..8).map(|_| administer(&admin)).collect();
        drop(operators);
        for _ in 0..3 {
            drop(administer(&admin));
        }
        drop(clients);
        let operators: Vec<_> = (0..8).map(|_| administer(&admin)).collect();
        assert_eq!(operators.len(), 8);
    }
}

#[test]
fn largest_connections_end_at_their_rules_memory_limit() {
    let mut world = guarded(1000, "max_memory = 400000");
    let client = world.connect_from(CLIENT, "pools");
    assert_eq!(ask(&mut world, client, b"ACQ4ME precious 1 1 0\n"), "LOCKED\n");
    let greedy: Vec<usize> = (0..60).map(|_| world.connect_from(CLIENT, "pools")).collect();
    for client in &greedy {
        assert_eq!(ask(&mut world, *client, &[b'x'; 8000]), "");
    }
    let ended = greedy.iter().filter(|client| world.is_ended(**client)).count();
    assert_eq!(ended, 10, "400000 bytes fit");
    assert_eq!(ask(&mut world, client, b"RELEASE\n"), "RELEASED\n");
    let new = world.connect_from(CLIENT, "pools");
    assert_eq!(ask(&mut world, new, b"ACQ4ME precious 1 1 0\n"), "LOCKED\n");
    world.upgrade();
    assert_eq!(ask(&mut world, client, b"ACQ4ME k 1 1 0\nACQ4ME"), "LOCKED\n");
    assert_eq!(greedy.iter().filter(|client| world.is_ended(**client)).count(), 11, "an upgrade forgets no bytes");
}

#[test]
fn incomplete_bodies_count_as_memory() {
    let mut world = guarded(1000, "max_memory = 200000");
    let client = world.connect_from(CLIENT, "jobs");
    let body = vec![b'x'; 60_000];
    assert_eq!(ask(&mut world, client, &[b"put 0 0 9 60000\r\n", &body[..30_000]].concat()), "");
    assert_eq!(ask(&mut world, client, &[&body[30_000..], b"\r\n"].concat()), "INSERTED 1\r\n");
    let many = [&b"put 0 0 9 60000\r\n"[..], &body, b"\r\n"].concat().repeat(3);
    let many = [&b"put-many 1000\r\n"[..], &many].concat();
    let greedy = [(); 5].map(|()| world.connect_from(CLIENT, "jobs"));
    for client in greedy {
        ask(&mut world, client, &many);
    }
    assert_eq!(greedy.iter().filter(|client| !world.is_ended(**client)).count(), 1);
    assert_eq!(ask(&mut world, client, b"delete 1\r\n"), "DELETED\r\n", "who takes little goes on");
    // Names take memory as bodies do.
    let named = format!("put-job 0 0 9 1 group={} key={}\r\na\r\n", "g".repeat(60), "k".repeat(190)).repeat(900);
    let named = format!("put-many 1000\r\n{named}");
    ask(&mut world, greedy[0], b"");
    let greedy = [(); 3].map(|()| world.connect_from(CLIENT, "jobs"));
    for client in greedy {
        ask(&mut world, client, named.as_bytes());
    }
    assert!(greedy.iter().all(|client| world.is_ended(*client)), "each has more than the rule may");
    assert_eq!(ask(&mut world, client, b"delete 1\r\n"), "NOT_FOUND\r\n");
}

#[test]
fn incomplete_bodies_count_as_memory_of_counters() {
    let mut world = guarded(1000, "max_memory = 200000");
    // The fields and the longest name are kept, and the rest is not.
    let begun = [&[0x90, 2, 0, 0][..], &100_000_u32.to_be_bytes(), &[0; 4], &[0; 70_000]].concat();
    let greedy = [(); 5].map(|()| world.connect_from(CLIENT, "counters"));
    for client in greedy {
        world.send(client, &begun);
        world.settle();
    }
    assert_eq!(greedy.iter().filter(|client| !world.is_ended(**client)).count(), 3, "each takes 65557 bytes");
}

/// Runs `stats` as a user of this machine, and returns whether it is answered.
fn may_see(socket: &Path, uid: u32) -> bool {
    let mut command = Command::new(Daemon::program());
    command.args(["stats", "--server", &format!("unix:{}", socket.display()), "UPTIME"]).uid(uid).gid(uid);
    let output = command.output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).contains("uptime")
}

/// Script that runs a program as a user in a namespace with that user and root only, like `PrivateUsers=` of systemd.
const PRIVATE_USERS: &str = r#"
map=$'0 0 1\n65533 65533 1'
(for _ in {1..500}; do
    [ "$(readlink /proc/$$/ns/user)" = "$(readlink /proc/self/ns/user)" ] || break
    sleep 0.02
done
cat <<<"$map" >/proc/$$/uid_map
cat <<<"$map" >/proc/$$/gid_map) &
exec unshare --user bash -c 'until grep -q 65533 /proc/self/gid_map; do sleep 0.02; done
exec setpriv --reuid 65533 --regid 65533 --clear-groups "$@"' sh "$@"
"#;

/// In a user namespace, all users without an id there appear as the same user.
#[test]
fn indistinguishable_users_are_unknown() {
    const UNSHARE: [&str; 2] = ["--user", "--map-root-user"];
    let can_unshare = Command::new("unshare").args(UNSHARE).arg("true").status().is_ok_and(|status| status.success());
    if !Uid::effective().is_root() || !can_unshare {
        return poolcounter_testkit::skipped(
            "users in a namespace, because that takes root, and a system that gives new namespaces",
        );
    }
    let scratch = Scratch::new();
    let rule = |who: &str| format!("[[access]]\nwho = [\"{who}\"]\nmay = [\"pools:stats\"]\n");
    let rules = ["user:0", "user:65534", "group:65534"].map(rule).concat();
    fs::write(scratch.file("toml"), rules).expect("can be written");
    let start = |program: &[&str], socket: &Path| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(["--socket-mode", "666", "-c"]).arg(scratch.file("toml"));
        Daemon::run(command.args(["-l", &format!("unix:{}", socket.display())]))
    };
    let (plain, within) = (scratch.file("plain"), scratch.file("within"));
    let daemon = start(&[Daemon::program()], &plain);
    assert!(!daemon.lines.iter().any(|line| line.contains("user namespace")), "{:?}", daemon.lines);
    assert_eq!([0, 65_534, 1234].map(|uid| may_see(&plain, uid)), [true, true, false]);
    let own = scratch.file("own");
    fs::create_dir(&own).expect("can be made");
    chown(&own, Some(65_533), Some(65_533)).expect("root may");
    let root_alone = ["unshare", UNSHARE[0], UNSHARE[1], Daemon::program()];
    let private = ["bash", "-c", PRIVATE_USERS, "sh", Daemon::program()];
    for (program, socket) in [(&root_alone[..], within), (&private, own.join("private"))] {
        let daemon = start(program, &socket);
        let warnings = daemon.lines.iter().filter(|line| line.contains("user namespace")).count();
        assert_eq!(warnings, 1, "{:?}", daemon.lines);
        assert_eq!([0, 65_534, 1234].map(|uid| may_see(&socket, uid)), [true, false, false]);
    }
    assert_eq!(Credentials { uid: None, gid: None, pid: 7 }.to_string(), "an unknown user, pid 7");
}

#[test]
fn empty_file_does_not_take_the_rules_away() {
    let rules = "[[access]]\nwho = [\"net:127.0.0.3\"]\nmay = [\"pools\"]\n";
    let mut stage = Stage::start(rules, &[]);
    let write = |stage: &Stage, text: &str| fs::write(stage.scratch.file("toml"), text).expect("can be written");
    for empty in ["", "# soon\n\n"] {
        write(&stage, empty);
        stage.daemon.signal(Signal::SIGUSR1);
        let line = stage.daemon.wait_for_log("no upgrade: ");
        assert!(line.contains("the configuration file is empty, and there are rules of access"), "{line}");
        assert_eq!(Client::from(A, stage.daemon.address).line(), "ERROR DENIED");
        assert_eq!(Client::from(B, stage.daemon.address).ask("RELEASE"), "NOT_LOCKED");
    }
    write(&stage, "port = 7531\n");
    stage.daemon.upgrade();
    assert!(stage.daemon.lines.iter().any(|line| line.contains("there are no rules of access any more")));
    assert_eq!(Client::from(A, stage.daemon.address).ask("RELEASE"), "NOT_LOCKED");
    write(&stage, "");
    stage.daemon.upgrade();
    assert_eq!(Client::from(A, stage.daemon.address).ask("RELEASE"), "NOT_LOCKED", "there were none");
}

#[test]
fn request_with_two_origins_is_none() {
    let mut world = guarded(10, "");
    let client = world.connect_from(CLIENT, "http");
    let request = "POST /act HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://other\r\n\r\n";
    assert!(ask(&mut world, client, request.as_bytes()).starts_with("HTTP/1.1 400 "));
}

/// Units that are counted at two servers would be granted twice.
#[test]
fn refused_counters_are_asked_at_no_other_server() {
    let timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };
    let other = Embedded::start("counters");
    for (who, rest, is_admitted) in [
        ("net:10.0.0.0/8", "may = [\"counters\"]", false),
        ("all", "may = [\"pools\"]", false),
        ("all", "may = [\"counters\"]\nmax_connections = 1", false),
        ("all", "may = [\"counters:acquire:others\"]", true),
    ] {
        let config = format!("[[access]]\nwho = [\"{who}\"]\n{rest}\n");
        let stage = Stage::start(&config, &["--counter", "--counter-listen", "127.0.0.1:0"]);
        let _first = Client::from(A, stage.daemon.counters());
        let refusing = stage.daemon.counters().to_string();
        let denied = || Error::Refused("20 Access denied".into());
        let both = Counters::with(MediaWiki::new([&refusing, &other.address]), timeouts);
        let keys = (0..30).map(|n| format!("key{n}"));
        let refused = keys.filter(|key| both.acquire(key, 1, 1).err() == Some(denied())).count();
        assert!(refused > 0, "{config}: the other server has granted all");
        let one = Counters::with(MediaWiki::new([refusing]), timeouts);
        assert_eq!(one.get("key"), Err(denied()), "{config}");
        assert_eq!(one.stats().remove(0).1.err(), Some(denied()), "{config}");
        assert_eq!(one.dump().remove(0).1.err(), Some(denied()), "{config}");
        assert_eq!(one.noop().remove(0).1, if is_admitted { Ok(()) } else { Err(denied()) }, "{config}");
    }
}
