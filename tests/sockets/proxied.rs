//! Listeners for proxies: the header with the client's address, wrong and missing headers, and upgrades that keep the
//! address.

use poolcounter_core::proxy::Header;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install_program};
use poolcounter_testkit::scratch::Scratch;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// Starts a daemon that has one address for clients and one for proxies.
fn start(program: &str, options: &[&str]) -> (Daemon, Scratch, String) {
    let scratch = Scratch::new();
    let socket = scratch.file("proxies").display().to_string();
    let listen = format!("proxy:unix:{socket}");
    let daemon = Daemon::run(Command::new(program).args(["-l", "127.0.0.1:0", "-l", &listen]).args(options));
    (daemon, scratch, socket)
}

fn connect(socket: &str) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    stream
}

fn header(source: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let address = |text: &str| Some(text.parse().expect("an address"));
    Header { source: address(source), destination: address("192.0.2.9:7531"), tls: None }.write(&mut bytes);
    bytes
}

fn line(stream: &mut UnixStream) -> String {
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a line comes");
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("is text")
}

/// Returns the bytes until the end. A connection that is reset while a part of it is unread has ended, too.
fn rest(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn holders(daemon: &Daemon, key: &str) -> String {
    let mut client = daemon.connect();
    let mut lines = vec![client.ask(&format!("STATS HOLDERS {key}"))];
    while lines.last().is_some_and(|line| !line.is_empty()) {
        lines.push(client.line());
    }
    lines.concat()
}

#[test]
fn proxied_clients_identity_comes_from_the_header() {
    let (daemon, _scratch, socket) = start(Daemon::program(), &[]);
    for (key, source) in [("a", "192.0.2.7:40112"), ("b", "[2001:db8::7]:40112")] {
        let mut client = connect(&socket);
        client.write_all(&[&header(source)[..], format!("ACQ4ME {key} 1 1 0\n").as_bytes()].concat()).expect("is sent");
        assert_eq!(line(&mut client), "LOCKED\n");
        assert!(holders(&daemon, key).contains(source), "{}", holders(&daemon, key));
    }
    let mut client = connect(&socket);
    let request = [&header("192.0.2.8:1")[..], b"ACQ4ME c 1 1 0\n"].concat();
    for byte in request {
        client.write_all(&[byte]).expect("is sent");
    }
    assert_eq!(line(&mut client), "LOCKED\n", "a header that comes byte by byte is one");
    drop(client);
    assert_eq!(daemon.connect().ask("ACQ4ME c 1 2 10"), "LOCKED", "what it held is given back");
}

#[test]
fn proxy_that_speaks_for_itself_has_no_identity() {
    let (daemon, _scratch, socket) = start(Daemon::program(), &["--members", "--members-listen", "127.0.0.1:0"]);
    let mut client = connect(&socket);
    let mut bytes = Vec::new();
    Header::default().write(&mut bytes);
    bytes.extend(b"ACQ4ME k 1 1 0\n");
    client.write_all(&bytes).expect("is sent");
    assert_eq!(line(&mut client), "LOCKED\n");
    assert!(holders(&daemon, "k").contains("unix:"));
}

#[test]
fn only_listeners_for_proxies_trust_their_headers() {
    let (mut daemon, _scratch, _) = start(Daemon::program(), &["-v"]);
    let mut client = daemon.connect();
    client.send(&[&header("192.0.2.7:1")[..], b"ACQ4ME k 1 1 0\n"].concat());
    assert_eq!(client.line(), "ERROR BAD_COMMAND");
    daemon.wait_for_log("opened: 127.0.0.1");
    assert!(!holders(&daemon, "k").contains("192.0.2.7"), "{}", holders(&daemon, "k"));
}

#[test]
fn malformed_header_ends_the_connection() {
    let (mut daemon, _scratch, socket) = start(Daemon::program(), &["-v"]);
    let good = header("192.0.2.7:1");
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let huge = [&good[..14], &[0xff, 0xff], &[b'x'; 0xffff][..]].concat();
    for (bytes, why) in [
        (b"ACQ4ME k 1 1 0\n".to_vec(), "does not begin with a PROXY header"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nACQ4ME k 1 1 0\n".to_vec(), "does not begin with a PROXY header"),
        (with(12, 0x2f), "unknown command"),
        (with(15, 5), "contradicts itself"),
        (huge, "too long"),
    ] {
        let mut client = connect(&socket);
        // The daemon may close it before all of it is sent.
        let _ = client.write_all(&bytes);
        assert_eq!(rest(client), b"", "{why}");
        daemon.wait_for_log(why);
    }
    assert_eq!(daemon.connect().stat("connect_errors"), 5);
    let mut cut = connect(&socket);
    cut.write_all(&good[..20]).expect("is sent");
    cut.shutdown(std::net::Shutdown::Write).expect("is there");
    assert_eq!(rest(cut), b"");
    daemon.wait_for_log("it ended before its proxy said who its client is");
    assert_eq!(daemon.connect().ask("ACQ4ME k 1 1 0"), "LOCKED", "none of them has it");
}

#[test]
fn silence_ends_after_ten_seconds() {
    let (mut daemon, _scratch, socket) = start(Daemon::program(), &["-v"]);
    let silent = connect(&socket);
    let mut half = connect(&socket);
    half.write_all(&header("192.0.2.7:1")[..7]).expect("is sent");
    silent.set_read_timeout(Some(Duration::from_secs(5))).expect("is a socket");
    assert!((&silent).read(&mut [0]).is_err(), "it waits for longer than that");
    silent.set_read_timeout(Some(PATIENCE)).expect("is a socket");
    assert_eq!(rest(silent), b"");
    assert_eq!(rest(half), b"");
    daemon.wait_for_log("has not said in time");
}

#[test]
fn upgrade_keeps_identities_behind_a_proxy() {
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
    install_program(&program);
    let (mut daemon, _scratch, socket) = start(&program.display().to_string(), &[]);
    let (mut known, mut half) = (connect(&socket), connect(&socket));
    known.write_all(&[&header("192.0.2.7:40112")[..], b"ACQ4ME k 1 2 0\n"].concat()).expect("is sent");
    assert_eq!(line(&mut known), "LOCKED\n");
    let whole = header("192.0.2.8:40112");
    let (first, last) = whole.split_at(20);
    half.write_all(first).expect("is sent");
    daemon.upgrade();
    assert!(holders(&daemon, "k").contains("192.0.2.7:40112"));
    half.write_all(&[last, b"ACQ4ME k 1 2 10\n"].concat()).expect("is sent");
    drop(known);
    assert_eq!(line(&mut half), "LOCKED\n");
    assert!(holders(&daemon, "k").contains("192.0.2.8:40112"));
    let mut new = connect(&socket);
    new.write_all(&[&header("192.0.2.9:40112")[..], b"STATS UPTIME\n"].concat()).expect("is sent");
    assert!(line(&mut new).starts_with("uptime: "), "the listener is for proxies as before");
}

#[test]
fn reload_can_turn_a_socket_over_to_proxies() {
    let scratch = Scratch::new();
    let (program, config, socket) = (scratch.file("poolcounter"), scratch.file("toml"), scratch.file("socket"));
    install_program(&program);
    let listen = |prefix: &str| {
        let text = format!("listen = [\"127.0.0.1:0\", \"{prefix}unix:{}\"]\n", socket.display());
        std::fs::write(&config, text).expect("is written");
    };
    listen("");
    let mut daemon = Daemon::run(Command::new(&program).arg("-c").arg(&config));
    let path = socket.display().to_string();
    let mut before = connect(&path);
    before.write_all(b"ACQ4ME k 1 2 0\n").expect("is sent");
    assert_eq!(line(&mut before), "LOCKED\n");
    listen("proxy:");
    daemon.upgrade();
    before.write_all(b"RELEASE\n").expect("is sent");
    assert_eq!(line(&mut before), "RELEASED\n", "who was there is served as before");
    let mut plain = connect(&path);
    plain.write_all(b"STATS UPTIME\n").expect("is sent");
    assert_eq!(rest(plain), b"");
    let mut proxied = connect(&path);
    proxied.write_all(&[&header("192.0.2.9:40112")[..], b"STATS UPTIME\n"].concat()).expect("is sent");
    assert!(line(&mut proxied).starts_with("uptime: "));
    assert!(
        Client::of(TcpStream::connect(daemon.address).expect("it listens")).ask("STATS UPTIME").starts_with("uptime")
    );
}
