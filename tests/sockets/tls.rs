//! The terminator of TLS as a process, before the real daemon and before servers that misbehave.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use poolcounter_core::proxy::{Header, Tls};
use poolcounter_testkit::daemon::{
    Daemon, PATIENCE, install, install_program, install_waiting_program, raise_descriptor_limit, until, wait_for_file,
};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::{Ended, Running, end_of};
use poolcounter_testkit::seeds::play;
use poolcounter_testkit::skipped;
use poolcounter_testkit::tls::{Certificates, TlsClient};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a daemon that listens for proxies as well, and returns it with that address.
fn daemon_behind(certificates: &Certificates, program: &str) -> (Daemon, String) {
    let socket = format!("unix:{}", certificates.path("daemon.sock"));
    let listen = format!("proxy:{socket}");
    (Daemon::run(Command::new(program).args(["-l", "127.0.0.1:0", "-l", &listen])), socket)
}

/// Returns a server that does nothing by itself, and its address.
fn toy_server(certificates: &Certificates) -> (UnixListener, String) {
    let path = certificates.path("toy.sock");
    (UnixListener::bind(&path).expect("a free path"), format!("unix:{path}"))
}

/// Returns a daemon behind a terminator with these options; None, with a report, without openssl.
fn served(options: &[&str]) -> Option<(Certificates, Daemon, Daemon)> {
    let certificates = Certificates::new()?;
    let (daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let terminator = certificates.terminator(&socket, options);
    Some((certificates, daemon, terminator))
}

/// Returns a daemon behind a terminator that lets in the clients with a certificate of `ca`.
fn certified() -> Option<(Certificates, Daemon, Daemon)> {
    let certificates = Certificates::new()?;
    let (daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let terminator = certificates.terminator(&socket, &["--client-ca", &certificates.path("ca.pem")]);
    Some((certificates, daemon, terminator))
}

/// Returns a daemon behind a terminator whose program is the file `program`.
fn upgradable() -> Option<(Certificates, Daemon, Daemon)> {
    let certificates = Certificates::new()?;
    let (daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let program = certificates.path("program");
    install_program(program.as_ref());
    let terminator = certificates.terminator_of(&program, &socket, &[]);
    Some((certificates, daemon, terminator))
}

fn accept(listener: &UnixListener) -> UnixStream {
    let (stream, _) = listener.accept().expect("it connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream
}

/// Reads the header and no byte more.
fn header(stream: &mut UnixStream) -> Header {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a header comes");
        bytes.push(byte[0]);
        if let Some((header, _)) = Header::read(&bytes).expect("it is well-formed") {
            return header;
        }
    }
}

fn uptime(line: &str) -> bool {
    line.contains("uptime: ")
}

// Admission

#[test]
fn only_tls_12_and_13_are_served() {
    let Some((certificates, _daemon, terminator)) = served(&[]) else { return };
    for version in ["-tls1_3", "-tls1_2"] {
        let said = certificates.s_client(terminator.address, &[version]);
        assert!(uptime(&said), "{version}: {said}");
    }
    let said = certificates.s_client(terminator.address, &["-tls1_1", "-cipher", "DEFAULT:@SECLEVEL=0"]);
    assert!(!uptime(&said) && said.contains("alert"), "{said}");
}

#[test]
fn only_clients_with_a_valid_certificate_get_in() {
    let Some((certificates, _daemon, mut terminator)) = certified() else { return };
    certificates.authority("other");
    certificates.issue("stranger", "other", "/CN=web1.example.org", "basicConstraints=CA:FALSE");
    certificates.issue_expired("expired", "ca");
    certificates.issue("twins", "ca", "/CN=a/CN=b", "basicConstraints=CA:FALSE");
    certificates.issue("lines", "ca", "/CN=a\nb", "basicConstraints=CA:FALSE");
    certificates.issue("anonymous", "ca", "/O=Example", "basicConstraints=CA:FALSE");
    for (client, reason) in [
        (Some("stranger"), "UnknownIssuer"),
        (Some("expired"), "expired"),
        (Some("twins"), "several common names"),
        (Some("lines"), "no text"),
        (Some("anonymous"), "neither a common name nor one of a host"),
        (None, "no certificates"),
    ] {
        let refused = certificates.connect(terminator.address, "ca", client).try_ask("STATS UPTIME");
        assert!(!refused.as_ref().is_ok_and(|line| !line.is_empty()), "{client:?}: {refused:?}");
        let line = terminator.wait_for_log(" is refused: ");
        assert!(line.contains(reason), "{client:?}: {line}");
        // There is at most one such line a second.
        thread::sleep(Duration::from_millis(1_050));
    }
    let mut client = certificates.connect(terminator.address, "ca", Some("web1"));
    assert!(uptime(&client.ask("STATS UPTIME")));
}

/// Name constraints bind the names of hosts, and no library compares them with a common name.
#[test]
fn constrained_authority_gives_no_common_name() {
    let Some(certificates) = Certificates::new() else { return };
    let (listener, socket) = toy_server(&certificates);
    certificates.issue_constrained_authority("between", "ca", "DNS:partner.example");
    certificates.issue("impostor", "between", "/CN=web1.example.org", "basicConstraints=CA:FALSE");
    certificates.issue("stranger", "between", "/CN=a.partner.example", "subjectAltName=DNS:web1.example.org");
    ["impostor", "stranger"].iter().for_each(|name| certificates.append(name, "between"));
    certificates.issue("direct", "between", "/CN=web1.example.org", "basicConstraints=CA:FALSE");
    certificates.issue("partner", "between", "/CN=web1.example.org", "subjectAltName=DNS:a.partner.example");
    for (ca, client, reason) in [
        ("ca", "impostor", "has name constraints"),
        ("ca", "stranger", "NameConstraintViolation"),
        // The authority of the file has the constraints.
        ("between", "direct", "has name constraints"),
    ] {
        let options = ["--client-ca", &certificates.path(&format!("{ca}.pem"))];
        let mut terminator = certificates.terminator(&socket, &options);
        let refused = certificates.connect(terminator.address, "ca", Some(client)).try_ask("STATS UPTIME");
        assert!(!refused.as_ref().is_ok_and(|line| !line.is_empty()), "{client} is let in");
        let line = terminator.wait_for_log(" is refused: ");
        assert!(line.contains(reason), "{client}: {line}");
    }
    let terminator = certificates.terminator(&socket, &["--client-ca", &certificates.path("between.pem")]);
    let mut client = certificates.connect(terminator.address, "ca", Some("partner"));
    client.send(b"hello");
    let told = header(&mut accept(&listener)).tls.and_then(|tls| tls.common_name);
    assert_eq!(told.as_deref(), Some("a.partner.example"));
}

#[test]
fn plain_bytes_are_refused() {
    let Some((certificates, _daemon, terminator)) = served(&[]) else { return };
    for garbage in
        [&b"ACQ4ME a 1 1 1\n"[..], b"\x16\x03\x01\xff\xff", b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", &[0; 4096]]
    {
        let mut stream = TcpStream::connect(terminator.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.write_all(garbage).expect("is sent");
        if garbage.len() == 9 {
            // The bytes may be the beginning of something.
            stream.shutdown(Shutdown::Write).expect("is connected");
        }
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{garbage:?}"),
            // An alert, or nothing.
            Ok(_) => assert!(said.is_empty() || said[0] == 0x15, "{garbage:?}: {said:?}"),
        }
    }
    assert!(uptime(&certificates.connect(terminator.address, "ca", None).ask("STATS UPTIME")));
}

/// Wrong bytes of a client end its connection, and no other.
#[test]
fn random_damage_to_handshakes_harms_nobody_else() {
    let Some((certificates, _daemon, mut terminator)) = certified() else { return };
    let good = certificates.connect(terminator.address, "ca", Some("web1"));
    let connector = certificates.connector("ca", Some("web1"));
    let good = Mutex::new(good);
    play("tls-handshakes", |history| {
        let mut random = Random::new(history.seed);
        let flight = random.below(2);
        let mut flights = 0;
        connector.shake_hands(terminator.address, Duration::from_millis(50), |bytes| {
            if flights == flight && !bytes.is_empty() {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] ^= 1 << random.below(8),
                    1 => bytes.truncate(at),
                    _ => drop(bytes.splice(at..at, bytes[..at].to_vec())),
                }
            }
            flights += 1;
        });
        assert!(uptime(&good.lock().expect("no history fails with it").ask("STATS UPTIME")));
    });
    let log = terminator.new_log();
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
}

#[test]
fn stalled_handshake_ends_and_delays_no_client() {
    let Some((certificates, _daemon, terminator)) = served(&["--setup-timeout", "0.5"]) else { return };
    let begun = Instant::now();
    // One client sends nothing, and the rest a part of a hello.
    let stalled: Vec<TcpStream> = [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"]
        .into_iter()
        .map(|said| {
            let mut stream = TcpStream::connect(terminator.address).expect("it listens");
            stream.write_all(said).expect("is sent");
            stream.set_read_timeout(Some(PATIENCE)).expect("an option");
            stream
        })
        .collect();
    let mut client = certificates.connect(terminator.address, "ca", None);
    assert!(uptime(&client.ask("STATS UPTIME")));
    for mut stream in stalled {
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said);
        assert!(ended.is_ok_and(|len| len == 0), "{said:?}");
        assert!(begun.elapsed() >= Duration::from_millis(500), "it ended early");
    }
    assert!(uptime(&client.ask("STATS UPTIME")), "one that has finished its handshake has as long as it likes");
}

#[test]
fn certificates_are_read_again() {
    let Some((certificates, _daemon, mut terminator)) = certified() else { return };
    let mut old = certificates.connect(terminator.address, "ca", Some("web1"));
    assert!(uptime(&old.ask("STATS UPTIME")));

    // The new authority replaces the old one: for clients, and for the server's own certificate.
    certificates.authority("new");
    certificates.issue("server2", "new", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1");
    certificates.issue("web2", "new", "/CN=web2.example.org", "basicConstraints=CA:FALSE");
    fs::copy(certificates.path("ca.pem"), certificates.path("old.pem")).expect("can be copied");
    certificates.replace("server", "server2");
    fs::copy(certificates.path("new.pem"), certificates.path("ca.pem")).expect("can be copied");
    terminator.signal(Signal::SIGHUP);
    terminator.wait_for_log("the certificates were read again");
    assert!(uptime(&certificates.connect(terminator.address, "new", Some("web2")).ask("STATS UPTIME")));
    let refused = certificates.connect(terminator.address, "new", Some("web1")).try_ask("STATS UPTIME");
    assert!(!refused.as_ref().is_ok_and(|line| !line.is_empty()), "{refused:?}");
    let ended = old.try_ask("STATS UPTIME");
    assert!(!ended.as_ref().is_ok_and(|line| !line.is_empty()), "its authority is not trusted any more: {ended:?}");

    fs::write(certificates.path("server.pem"), "-----BEGIN CERTIFICATE-----\n").expect("can be written");
    terminator.signal(Signal::SIGHUP);
    let line = terminator.wait_for_log("the certificates stay as they were");
    assert!(line.contains("server.pem"), "{line}");
    assert!(uptime(&certificates.connect(terminator.address, "new", Some("web2")).ask("STATS UPTIME")));
}

#[test]
fn removed_authority_ends_connections_in_all_processes() {
    let Some(certificates) = Certificates::new() else { return };
    let (_daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let program = certificates.path("program");
    install_program(program.as_ref());
    fs::copy(certificates.path("ca.pem"), certificates.path("all.pem")).expect("can be copied");
    certificates.authority("other");
    certificates.append("all", "other");
    certificates.issue("partner", "other", "/CN=partner.example.org", "basicConstraints=CA:FALSE");
    let options = ["--client-ca", &certificates.path("all.pem")];
    let mut terminator = certificates.terminator_of(&program, &socket, &options);
    let address = terminator.address;
    let connect = |name| certificates.connect(address, "ca", Some(name));
    let lock = |client: &mut TlsClient, key: &str| assert_eq!(client.ask(&format!("ACQ4ME {key} 1 9 0")), "LOCKED");
    let mut older = [connect("web1"), connect("partner")];
    older.iter_mut().zip(["a", "b"]).for_each(|(client, key)| lock(client, key));
    terminator.upgrade();
    let mut newer = [connect("web1"), connect("partner")];
    newer.iter_mut().zip(["c", "d"]).for_each(|(client, key)| lock(client, key));
    // A connection in the middle of its handshake is checked when it has finished.
    let mut halfway = TcpStream::connect(address).expect("it listens");
    halfway.write_all(b"\x16\x03\x01").expect("is sent");

    fs::copy(certificates.path("ca.pem"), certificates.path("all.pem")).expect("can be copied");
    terminator.signal(Signal::SIGHUP);
    let begun = Instant::now();
    for client in [&mut older[1], &mut newer[1]] {
        assert_eq!(client.try_line().unwrap_or_default(), "", "nothing is said but the end");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "it takes {:?}", begun.elapsed());
    for (client, (own, freed)) in older.iter_mut().take(1).chain(newer.iter_mut().take(1)).zip([("a", "b"), ("c", "d")])
    {
        assert_eq!(client.ask(&format!("RELEASE {own}")), "RELEASED", "others keep what they hold");
        lock(client, freed);
    }
}

/// Clients that send nothing may have half of the connections, and then the oldest is closed.
#[test]
fn unfinished_handshakes_shut_nobody_out() {
    let Some((certificates, _daemon, terminator)) = served(&["--max-connections", "20", "--setup-timeout", "60"])
    else {
        return;
    };
    let silent = || TcpStream::connect(terminator.address).expect("it listens");
    let mut strangers: Vec<TcpStream> = (0..40).map(|_| silent()).collect();
    let mut clients = Vec::new();
    for n in 0..15 {
        let mut client = certificates.connect(terminator.address, "ca", None);
        assert!(uptime(&client.ask("STATS UPTIME")), "client {n}");
        clients.push(client);
        strangers.push(silent());
    }
    // The newest are still connected, and the oldest are not.
    let has_ended = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(200))).expect("an option");
        !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert!(strangers[..30].iter_mut().all(has_ended));
    assert!(!strangers.last_mut().is_some_and(has_ended));
}

#[test]
fn first_message_above_16_kib_is_refused_early() {
    let Some((_certificates, _daemon, mut terminator)) = served(&["--setup-timeout", "60"]) else { return };
    let mut stream = TcpStream::connect(terminator.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    // A ClientHello of 60000 bytes, in records of 4096.
    let hello = [&[1, 0, 0xea, 0x60, 3, 3][..], &[0; 60_000]].concat();
    let records: Vec<u8> = hello.chunks(4096).flat_map(|part| [&b"\x16\x03\x01\x10\0"[..], part].concat()).collect();
    stream.write_all(&records[..16_384]).expect("is sent");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("an option");
    assert!(stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "so much is waited for");
    stream.write_all(&records[16_384..16_400]).expect("is sent");
    let line = terminator.wait_for_log(" is refused: ");
    assert!(line.contains("its first message is too long"), "{line}");
}

/// The terminator keeps at most 32 MiB of unfinished handshakes.
#[test]
fn many_unfinished_messages_are_bounded() {
    const PART: usize = 15_000;
    let Some(certificates) = Certificates::new() else { return };
    let (_daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let options = ["--setup-timeout", "60", "--max-connections", "10000"];
    let mut terminator = certificates.terminator(&socket, &options);
    raise_descriptor_limit();
    let part = [&b"\x16\x03\x01\x40\0\x01\0\x3f\xfc"[..], &[0; PART]].concat();
    let strangers: Vec<TcpStream> = (0..(32 << 20) / PART + 100)
        .map(|_| {
            let mut stream = TcpStream::connect(terminator.address).expect("it listens");
            stream.write_all(&part).expect("is sent");
            stream
        })
        .collect();
    let line = terminator.wait_for_log(" is refused: ");
    assert!(line.contains("unfinished handshakes take too much memory"), "{line}");
    let mut client = certificates.connect(terminator.address, "ca", None);
    assert!(uptime(&client.ask("STATS UPTIME")), "others are served");
    drop(strangers);
}

/// Runs as another user, to whom the system would show the memory of all its processes.
#[test]
fn key_is_hidden_from_its_users_other_processes() {
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        return skipped(
            "whether other processes of its user can read the key of tls, because only root can be another",
        );
    }
    let Some(certificates) = Certificates::new() else { return };
    let (_listener, socket) = toy_server(&certificates);
    let program = certificates.path("program");
    install_program(program.as_ref());
    for name in ["", "server.pem", "server.key"] {
        fs::set_permissions(certificates.path(name), fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let (cert, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let options = ["tls", "--listen", "127.0.0.1:0", "--to", &socket, "--cert", &cert, "--key", &key];
    let mut terminator = Daemon::run(Command::new(&program).args(options).uid(NOBODY).gid(NOBODY));
    for _ in 0..2 {
        // Files of processes that the system hides belong to root.
        let memory = fs::metadata(format!("/proc/{}/mem", terminator.pid())).expect("it runs");
        assert_eq!(memory.uid(), 0);
        terminator.upgrade();
    }
}

// The header for the server

#[test]
fn server_gets_the_identity_of_the_client() {
    let Some(certificates) = Certificates::new() else { return };
    let (listener, socket) = toy_server(&certificates);
    let terminator = certificates.terminator(&socket, &["--client-ca", &certificates.path("ca.pem")]);
    certificates.issue("host", "ca", "/O=Example", "subjectAltName=DNS:web7.example.org,DNS:web8.example.org");
    certificates.issue_constrained_authority("between", "ca", "DNS:partner.example");
    certificates.issue("guest", "between", "/CN=web1.example.org", "subjectAltName=DNS:a.partner.example");
    certificates.append("guest", "between");
    for (client, name) in [("web1", "web1.example.org"), ("host", "web7.example.org"), ("guest", "a.partner.example")] {
        let mut client = certificates.connect(terminator.address, "ca", Some(client));
        client.send(b"hello");
        let mut server = accept(&listener);
        let common_name = Some(name.to_string());
        assert_eq!(
            header(&mut server),
            Header {
                source: Some(client.stream().local_addr().expect("is connected")),
                destination: Some(terminator.address),
                tls: Some(Tls { version: "TLSv1.3".into(), common_name }),
            }
        );
        let mut said = [0; 5];
        server.read_exact(&mut said).expect("it comes");
        assert_eq!(&said, b"hello");
    }
}

#[test]
fn each_end_is_passed_on() {
    let Some(certificates) = Certificates::new() else { return };
    let (listener, socket) = toy_server(&certificates);
    let terminator = certificates.terminator(&socket, &[]);
    let connect = || {
        let mut client = certificates.connect(terminator.address, "ca", None);
        client.send(b"a");
        let mut server = accept(&listener);
        header(&mut server);
        server.read_exact(&mut [0]).expect("it comes");
        (client, server)
    };
    // The client's end, while the server continues.
    let (mut client, mut server) = connect();
    client.send(b"the last words");
    client.finish();
    let mut said = String::new();
    server.read_to_string(&mut said).expect("the end comes");
    assert_eq!(said, "the last words");
    server.write_all(b"an answer\n").expect("it is taken");
    assert_eq!(client.line(), "an answer");
    drop(server);
    assert_eq!(client.rest(), "");
    // The server's end, while the client continues.
    let (mut client, mut server) = connect();
    server.write_all(b"bye\n").expect("it is taken");
    server.shutdown(Shutdown::Write).expect("is connected");
    assert_eq!(client.rest(), "bye\n");
    client.send(b"and another thing");
    client.finish();
    let mut said = String::new();
    server.read_to_string(&mut said).expect("the end comes");
    assert_eq!(said, "and another thing");
}

#[test]
fn server_that_is_not_there_ends_its_clients() {
    let Some(certificates) = Certificates::new() else { return };
    let missing = format!("unix:{}", certificates.path("nobody.sock"));
    for to in [&*missing, "127.0.0.1:1"] {
        let mut terminator = certificates.terminator(to, &[]);
        let mut client = certificates.connect(terminator.address, "ca", None);
        assert!(!client.try_ask("STATS UPTIME").is_ok_and(|line| !line.is_empty()), "nobody answers");
        let line = terminator.wait_for_log("the server cannot be reached");
        assert!(line.contains(to), "{line}");
    }
}

#[test]
fn recovered_server_is_logged_once() {
    let Some(certificates) = Certificates::new() else { return };
    let mut terminator = certificates.terminator(&format!("unix:{}", certificates.path("daemon.sock")), &[]);
    let ask = || certificates.connect(terminator.address, "ca", None).try_ask("STATS UPTIME");
    assert!(!ask().is_ok_and(|line| uptime(&line)), "nobody answers");
    let (_daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let deadline = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    while !said.iter().any(|line: &String| line.contains("takes connections again")) {
        assert!(Instant::now() < deadline, "it is never said: {said:#?}");
        let mut client = certificates.connect(terminator.address, "ca", None);
        assert!(uptime(&client.ask("STATS UPTIME")));
        thread::sleep(Duration::from_millis(50));
        said.extend(terminator.new_log());
    }
    thread::sleep(Duration::from_millis(1200));
    assert!(uptime(&certificates.connect(terminator.address, "ca", None).ask("STATS UPTIME")));
    said.extend(terminator.new_log());
    let again: Vec<_> =
        said.iter().filter(|line| line.contains(&format!("{socket} takes connections again"))).collect();
    assert_eq!(again.len(), 1, "{said:#?}");
}

// Locks

#[test]
fn disconnect_gives_everything_back_at_once() {
    let Some((certificates, daemon, terminator)) = served(&[]) else { return };
    for way in ["vanish", "reset", "close"] {
        let mut holder = certificates.connect(terminator.address, "ca", None);
        let mut waiter = certificates.connect(terminator.address, "ca", None);
        assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
        waiter.send(b"ACQ4ME k 1 9 60\n");
        daemon.connect().wait_for_stat("waiting_workers", 1);
        match way {
            "vanish" => holder.vanish(),
            "reset" => holder.reset(),
            _ => holder.finish(),
        }
        assert_eq!(waiter.line(), "LOCKED", "{way}");
        drop(waiter);
        daemon.connect().wait_for_stat("hashtable_entries", 0);
    }
}

/// The server reads nothing, so it can notice nothing but the end of its connection.
#[test]
fn slow_server_learns_of_its_clients_end() {
    let Some(certificates) = Certificates::new() else { return };
    let (listener, socket) = toy_server(&certificates);
    let terminator = certificates.terminator(&socket, &[]);
    for way in ["vanish", "reset"] {
        let mut client = certificates.connect(terminator.address, "ca", None);
        client.send(b"a");
        let server = accept(&listener);
        let memory = terminator.memory();
        for set in [TcpStream::set_write_timeout, TcpStream::set_read_timeout] {
            set(client.stream(), Some(Duration::from_millis(300))).expect("an option");
        }
        // The end of a vanished client comes behind all that it has sent, so that must leave its machine: it is more
        // than the server's socket takes, and less than the terminator's takes as well.
        let most = if way == "vanish" { 256 << 10 } else { 64 << 20 };
        let mut sent = 0;
        while sent < most && client.try_send(&[b'x'; 16384]) {
            sent += 16384;
        }
        assert!(sent < 16 << 20, "{sent} bytes were taken, although nothing reads them");
        let grown = terminator.memory().saturating_sub(memory);
        assert!(grown < 4 << 20, "{grown} bytes are kept");
        match way {
            "vanish" => client.vanish(),
            _ => client.reset(),
        }
        let mut polled = [PollFd::new(server.as_fd(), PollFlags::empty())];
        poll(&mut polled, PollTimeout::try_from(PATIENCE).expect("is short")).expect("can be polled");
        assert!(polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP)), "{way}: it is not told");
    }
}

#[test]
fn unread_output_of_a_client_is_bounded() {
    let Some(certificates) = Certificates::new() else { return };
    let (listener, socket) = toy_server(&certificates);
    let terminator = certificates.terminator(&socket, &[]);
    let mut client = certificates.connect(terminator.address, "ca", None);
    client.send(b"a");
    let mut server = accept(&listener);
    let memory = terminator.memory();
    server.set_write_timeout(Some(Duration::from_millis(300))).expect("an option");
    let mut sent = 0;
    while sent < 64 << 20 && server.write(&[b'x'; 16384]).inspect(|len| sent += len).is_ok() {}
    assert!(sent < 16 << 20, "{sent} bytes were taken, although nothing reads them");
    let grown = terminator.memory().saturating_sub(memory);
    assert!(grown < 4 << 20, "{grown} bytes are kept");
    drop(server);
    let rest = client.rest();
    assert_eq!(rest.len(), sent, "what was taken is delivered");
}

// The client library and the commands

#[test]
fn commands_speak_tls_and_show_a_certificate() {
    let Some((certificates, daemon, terminator)) = certified() else { return };
    let server = format!("tls:{}", terminator.address);
    let [ca, cert, key] = ["ca.pem", "web1.pem", "web1.key"].map(|name| certificates.path(name));
    let files = format!("{ca},{cert},{key}");
    let command = |arguments: &[&str]| {
        let mut command = Command::new(Daemon::program());
        command.args(&arguments[..1]).args(["-s", &server]).args(&arguments[1..]);
        command
    };
    let exec = ["exec", "--tls", &files, "-k", "k", "--", "sh", "-c", "echo runs"];
    assert_eq!(end_of(&mut command(&exec)), Ended { stdout: "runs\n".into(), ..Ended::silent(0) });
    assert_eq!(daemon.connect().stat("total_acquired"), 1);
    let with_environment = end_of(command(&["stats", "UPTIME"]).env("POOLCOUNTER_TLS", &files));
    assert!(with_environment.status == Some(0) && uptime(&with_environment.stdout), "{with_environment:?}");

    certificates.authority("other");
    let other = format!("{},{cert},{key}", certificates.path("other.pem"));
    for (option, reason) in
        [(&["--tls", &ca][..], "CertificateRequired"), (&["--tls", &other], "UnknownIssuer"), (&[], "trusted")]
    {
        let ended = end_of(&mut command(&[&["exec"], option, &["-k", "k", "--", "true"]].concat()));
        assert!(ended.status == Some(69) && ended.stderr.contains(reason), "{ended:?}");
    }
    assert_eq!(daemon.connect().stat("total_acquired"), 1, "nobody else has had a lock");
}

/// The lock is released when the command is killed, and the command is notified when the connection dies.
#[test]
fn lock_over_tls_hangs_on_its_connection() {
    let Some((certificates, daemon, mut terminator)) = served(&[]) else { return };
    let (server, ca) = (format!("tls:{}", terminator.address), certificates.path("ca.pem"));
    let start = |on_lost: &str| {
        let mut exec = Command::new(Daemon::program());
        exec.args(["exec", "-s", &server, "--tls", &ca, "-k", "k", "-t", "60", "--on-lost", on_lost]);
        Running::start(exec.args(["--", "sh", "-c", "echo runs; cat"]))
    };
    let mut holder = start("warn");
    assert_eq!(holder.line(), "runs");
    let mut waiter = start("kill");
    daemon.connect().wait_for_stat("waiting_workers", 1);
    holder.signal(Signal::SIGKILL);
    assert_eq!(waiter.line(), "runs");
    terminator.signal(Signal::SIGTERM);
    terminator.wait();
    let status = poolcounter_testkit::daemon::wait(&mut waiter.child);
    assert_eq!(status.code(), Some(137), "it is killed as its lock is lost");
}

/// Clients whose servers send unsolicited lines, so that they poll.
#[test]
fn every_kind_of_client_speaks_tls() {
    let Some(certificates) = Certificates::new() else { return };
    let path = |name: &str| format!("proxy:unix:{}", certificates.path(name));
    let (config, file) = (certificates.path("config"), certificates.path("file"));
    fs::write(&config, "[[members.pool]]\nname = \"phones\"\nmax = 1\nfixed = [\"phone-1\"]\n")
        .expect("can be written");
    let mut command = Command::new(Daemon::program());
    command.args(["-c", &config, "-l", "127.0.0.1:0", "--members", "--members-listen", &path("members")]);
    command.args(["--counter", "--counter-listen", &path("counter")]);
    let _daemon = Daemon::run(command.args([
        "--jobs",
        "--jobs-store",
        "memory",
        "--jobs-max-size",
        "1000000",
        "--jobs-listen",
        &path("jobs"),
    ]));
    let ca = certificates.path("ca.pem");
    let behind = |name: &str| behind_of(&certificates, name, &ca);
    let (_counter, run) = behind("counter");
    assert_eq!(run(&["counter", "acquire", "c", "1", "2", "--", "echo", "counted"]).finish().stdout, "counted\n");
    let (_jobs, run) = behind("jobs");
    assert_eq!(run(&["jobs", "put", "t", "a body"]).finish().status, Some(0));
    // The TLS of the client has room for 64 KiB at a time.
    assert_eq!(run(&["jobs", "put", "large", &"x".repeat(100_000)]).finish().stdout, "INSERTED 2\n");
    let _runner = run(&["jobs", "run", "t", "--", "sh", "-c", &format!("cat >{file}.new; mv {file}.new {file}")]);
    until("the job", || fs::read(&file).is_ok_and(|body| body == b"a body"));
    let (_members, run) = behind("members");
    assert_eq!(run(&["take", "-t", "30", "phones", "--", "echo", "taken"]).finish().stdout, "taken\n");
}

// Upgrades

#[test]
fn upgrade_of_the_terminator_loses_no_lock() {
    let Some((certificates, daemon, mut terminator)) = upgradable() else { return };
    let (pid, address) = (terminator.pid(), terminator.address);
    let mut holders = Vec::new();
    let load = Load::start(&certificates, address);
    for round in 0..3 {
        let mut holder = certificates.connect(address, "ca", None);
        assert_eq!(holder.ask(&format!("ACQ4ME held{round} 1 9 0")), "LOCKED");
        holders.push(holder);
        terminator.upgrade();
        assert_eq!(terminator.pid(), pid);
        assert!(load.goes_on(), "the load has stopped");
    }
    let mut late = certificates.connect(address, "ca", None);
    for (round, holder) in holders.iter_mut().enumerate() {
        assert_eq!(late.ask(&format!("ACQ4ME held{round} 1 1 0")), "QUEUE_FULL");
        assert_eq!(holder.ask(&format!("RELEASE held{round}")), "RELEASED");
    }
    load.finish();
    assert_eq!(copies(pid), 3, "each goes on with a holder");
    drop(holders);
    until("the end of the copies", || copies(pid) == 0);
    drop(daemon);
}

#[test]
fn program_that_fails_does_not_take_over() {
    let Some((certificates, _daemon, mut terminator)) = upgradable() else { return };
    let program = certificates.path("program");
    let mut client = certificates.connect(terminator.address, "ca", None);
    assert!(uptime(&client.ask("STATS UPTIME")));
    install(program.as_ref(), b"#!/bin/sh\necho out of order\nexit 1\n");
    terminator.signal(Signal::SIGUSR1);
    let line = terminator.wait_for_log("no upgrade");
    assert!(line.contains("out of order"), "{line}");
    // Unreadable certificates would prevent a takeover, too.
    install_program(program.as_ref());
    fs::rename(certificates.path("server.key"), certificates.path("away.key")).expect("it is there");
    terminator.signal(Signal::SIGUSR1);
    let line = terminator.wait_for_log("no upgrade");
    assert!(line.contains("server.key"), "{line}");
    assert!(uptime(&client.ask("STATS UPTIME")));
    assert!(uptime(&certificates.connect(terminator.address, "ca", None).ask("STATS UPTIME")));
    fs::rename(certificates.path("away.key"), certificates.path("server.key")).expect("it is there");
    terminator.upgrade();
    assert!(uptime(&client.ask("STATS UPTIME")));
}

/// A request for an upgrade counts, also while another one is under way, whether that takes over or fails.
#[test]
fn second_upgrade_of_the_terminator_follows_the_first() {
    let Some(certificates) = Certificates::new() else { return };
    let (_daemon, socket) = daemon_behind(&certificates, Daemon::program());
    for name in ["good", "bad"] {
        let program = certificates.directory.file(name);
        install_program(&program);
        let mut terminator = certificates.terminator_of(&certificates.path(name), &socket, &[]);
        install_waiting_program(&program);
        let mut client = certificates.connect(terminator.address, "ca", None);
        assert!(uptime(&client.ask("STATS UPTIME")));
        terminator.signal(Signal::SIGUSR1);
        wait_for_file(&program.with_extension("read"));
        terminator.signal(Signal::SIGUSR1);
        // The loop has had a turn since the signal.
        assert!(uptime(&client.ask("STATS UPTIME")));
        if name == "bad" {
            fs::write(program.with_extension("bad"), "").expect("can be written");
        }
        fs::write(program.with_extension("go"), "").expect("can be written");
        terminator.wait_for_log(if name == "bad" { "out of order" } else { "has taken over" });
        terminator.wait_for_log("has taken over");
        assert!(uptime(&client.ask("STATS UPTIME")), "its copy goes on");
    }
}

/// Certificates that are being replaced when the rehearsed program takes over cost no connection.
#[test]
fn certificates_that_are_being_replaced_are_waited_for() {
    let Some(certificates) = Certificates::new() else { return };
    let (_daemon, socket) = daemon_behind(&certificates, Daemon::program());
    let program = certificates.directory.file("program");
    install_program(&program);
    let mut terminator = certificates.terminator_of(&certificates.path("program"), &socket, &[]);
    let mut holder = certificates.connect(terminator.address, "ca", None);
    assert_eq!(holder.ask("ACQ4ME held 1 9 0"), "LOCKED");
    // The key is away when the rehearsal has ended.
    let (key, away) = (certificates.path("server.key"), certificates.path("away.key"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--check-handover*) ;; *) mv {key} {away} ;; esac\nexec {} \"$@\"\n",
        Daemon::program()
    );
    install(&program, script.as_bytes());
    terminator.signal(Signal::SIGUSR1);
    let line = terminator.wait_for_log("are read again");
    assert!(line.contains("server.key"), "{line}");
    assert_eq!(holder.ask("RELEASE held"), "RELEASED", "its copy goes on");
    fs::rename(&away, &key).expect("it is there");
    terminator.wait_for_log("has taken over");
    assert!(uptime(&certificates.connect(terminator.address, "ca", None).ask("STATS UPTIME")));
    assert!(uptime(&holder.ask("STATS UPTIME")));
}

#[test]
fn sigterm_ends_terminator_children_and_waiting_upgrade() {
    let Some((certificates, _daemon, mut terminator)) = upgradable() else { return };
    let program = certificates.path("program");
    let mut client = certificates.connect(terminator.address, "ca", None);
    assert!(uptime(&client.ask("STATS UPTIME")));
    terminator.upgrade();
    assert_eq!(copies(terminator.pid()), 1);
    install(program.as_ref(), b"#!/bin/sh\nexec sleep 60\n");
    terminator.signal(Signal::SIGUSR1);
    terminator.wait_for_log("rehearses the takeover");
    terminator.signal(Signal::SIGTERM);
    assert!(terminator.wait().success());
    // The system notifies the copy that its process has ended.
    until("the end of the copy", || !client.try_ask("STATS UPTIME").is_ok_and(|line| !line.is_empty()));
}

/// Starts a terminator before the server with this socket; returns it with a function that runs commands through it.
fn behind_of(certificates: &Certificates, name: &str, ca: &str) -> (Daemon, impl Fn(&[&str]) -> Running + use<>) {
    let terminator = certificates.terminator(&format!("unix:{}", certificates.path(name)), &[]);
    let (server, ca) = (format!("tls:{}", terminator.address), ca.to_string());
    (terminator, move |arguments: &[&str]| {
        let mut command = Command::new(Daemon::program());
        Running::start(command.args(&arguments[..1]).args(["-s", &server, "--tls", &ca]).args(&arguments[1..]))
    })
}

/// Returns the number of children of a process that have not ended.
fn copies(pid: u32) -> usize {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("the process is there");
    let is_alive = |child: &&str| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    children.split_whitespace().filter(is_alive).count()
}

/// Clients that lock and release, each on connections that it makes anew now and then.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    /// Number of clients, and of locks of each before it connects again.
    const CLIENTS: usize = 4;
    const LOCKS: usize = 20;

    fn start(certificates: &Certificates, address: std::net::SocketAddr) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let connector = certificates.connector("ca", None);
        let client = |number: usize| {
            let (stop, done, connector) = (stop.clone(), done.clone(), connector.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = connector.connect(address);
                    for _ in 0..Load::LOCKS {
                        assert_eq!(client.ask(&format!("ACQ4ME load{number} 1 1 0")), "LOCKED");
                        assert_eq!(client.ask("RELEASE"), "RELEASED");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    // The end has arrived before the next connection requests the same lock.
                    client.finish();
                    assert_eq!(client.rest(), "");
                }
            })
        };
        let threads = (0..Load::CLIENTS).map(client).collect();
        Load { stop, done, threads }
    }

    /// Returns whether all clients continue: some lock more than one round of each.
    fn goes_on(&self) -> bool {
        let before = self.done.load(Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::Relaxed) < before + 2 * (Load::CLIENTS * Load::LOCKS) as u64 {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Ends the load; no client has lost a lock.
    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("it has what it asks for"));
    }
}
