//! Cost of TLS before the pools: through our terminator, through other terminators, and, as the limit, without any.

use super::cases::{installed, is_installed};
use super::load::Player;
use super::players::Turns;
use super::report::{Case, Figure, Values, Wanted};
use super::scraping::unused_address;
use super::server::Program;
use super::settings::Settings;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::ClockId;
use nix::unistd::Pid;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the cases; none without openssl, which makes the certificates.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    if !is_installed("openssl") {
        return Vec::new();
    }
    [1, 64].map(|clients| tls(settings.connections(clients), settings)).into()
}

fn tls(clients: usize, settings: &Settings) -> Case<'_> {
    let figure = |name, wanted| Figure { name, wanted, against: Some(Program::HaProxy) };
    Case {
        name: format!("tls, pair, {clients} clients"),
        programs: installed(&[Program::Ours, Program::Limit, Program::HaProxy, Program::Stunnel]),
        rounds: settings.rounds,
        figures: vec![
            figure("replies/s", Wanted::RatioAtLeast(1.0)),
            figure("CPU us/reply", Wanted::RatioAtMost(1.0)),
            figure("connections/s", Wanted::RatioAtLeast(1.0)),
            figure("CPU us/connection", Wanted::RatioAtMost(1.0)),
        ],
        measure: Box::new(move |program| measure(program, clients, settings)),
    }
}

/// Returns replies and connections a second, each with the terminator's processor time.
fn measure(program: Program, clients: usize, settings: &Settings) -> io::Result<Values> {
    let place = Place::new()?;
    let daemon_at = unused_address()?;
    let (proxied, plain) = (place.file("proxied.sock"), place.file("plain.sock"));
    let listen = [format!("proxy:unix:{proxied}"), format!("unix:{plain}"), daemon_at.to_string()];
    let daemon = listen.iter().flat_map(|address| ["-l", address]);
    let _daemon = Running::start(Program::Ours, &daemon.collect::<Vec<_>>(), settings)?;
    connected(daemon_at)?;
    let at = unused_address()?;
    let (certificate, key) = (place.file("server.pem"), place.file("server.key"));
    let terminator = match program {
        Program::HaProxy => {
            let both = [fs::read(&certificate)?, fs::read(&key)?].concat();
            fs::write(place.file("both.pem"), both)?;
            let text = format!(
                "global\n maxconn 4000\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
                 listen tls\n bind {at} ssl crt {}\n server s unix@{proxied} send-proxy-v2-ssl-cn\n",
                place.file("both.pem")
            );
            fs::write(place.file("conf"), text)?;
            Some(Running::start(program, &["-db", "-f", &place.file("conf")], settings)?)
        }
        Program::Stunnel => {
            // Its headers are of version 1, so it connects to the address where none are expected.
            let text = format!(
                "foreground = yes\nsyslog = no\ndebug = err\npid =\nsocket = l:TCP_NODELAY=1\n[tls]\naccept = {at}\nconnect = {plain}\n\
                 cert = {certificate}\nkey = {key}\n"
            );
            fs::write(place.file("conf"), text)?;
            Some(Running::start(program, &[&place.file("conf")], settings)?)
        }
        Program::Ours => {
            let (at, to) = (at.to_string(), format!("unix:{proxied}"));
            let words = ["tls", "-l", &at, "-t", &to, "--cert", &certificate, "--key", &key];
            Some(Running::start(program, &words, settings)?)
        }
        _ => None,
    };
    let used = || terminator.as_ref().map_or(Ok(Duration::ZERO), Running::cpu_time);
    let (at, tls) = if terminator.is_some() { (at, Some(place.client()?)) } else { (daemon_at, None) };
    connected(at)?;
    let connect = || Client::connect(at, tls.as_ref());
    let mut load = Load { clients: (0..clients).map(|_| connect()).collect::<io::Result<_>>()?, replies: 0 };
    let (speed, cost) = load.play(settings.time, &used)?;
    drop(load);

    let (before, start, mut count) = (used()?, Instant::now(), 0);
    while start.elapsed() < settings.time / 2 || count == 0 {
        let mut client = connect()?;
        client.send(b"STATS UPTIME\n")?;
        client.wait()?;
        count += 1;
    }
    let (time, spent) = (start.elapsed(), used()? - before);
    let (count, none) = (f64::from(count), if terminator.is_some() { 1.0 } else { f64::NAN });
    Ok(vec![speed, none * cost, count / time.as_secs_f64(), none * spent.as_secs_f64() * 1e6 / count])
}

/// Waits until the address accepts connections.
fn connected(address: SocketAddr) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = TcpStream::connect(address) {
        if Instant::now() > deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Program on the servers' core; dropping it kills it.
struct Running(Child);

impl Running {
    fn start(program: Program, words: &[&str], settings: &Settings) -> io::Result<Running> {
        let path = program.path().ok_or(ErrorKind::NotFound)?;
        let mut command = Command::new(path);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Running(match settings.cores {
            Some(cores) => cores.on_server_core(|| command.spawn())??,
            None => command.spawn()?,
        }))
    }
}

impl Running {
    /// Returns the processor time that it has used, including ended threads: stunnel has one for each connection.
    fn cpu_time(&self) -> io::Result<Duration> {
        Ok(ClockId::pid_cpu_clock_id(Pid::from_raw(self.0.id() as i32))?.now()?.into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Directory with sockets, settings and certificates.
struct Place(PathBuf);

impl Place {
    fn new() -> io::Result<Place> {
        let place = Place(std::env::temp_dir().join(format!("poolcounter-bench-tls-{}", std::process::id())));
        fs::create_dir_all(&place.0)?;
        fs::write(place.file("req.conf"), "[req]\ndistinguished_name=dn\n[dn]\n")?;
        let [ca, ca_key] = ["ca.pem", "ca.key"].map(|name| place.file(name));
        place.certify("ca", &["-addext", "basicConstraints=critical,CA:TRUE"])?;
        let signed = ["-CA", &ca, "-CAkey", &ca_key, "-addext", "subjectAltName=DNS:localhost"];
        place.certify("server", &signed)?;
        Ok(place)
    }

    fn certify(&self, name: &str, further: &[&str]) -> io::Result<()> {
        let (key, out) = (self.file(&format!("{name}.key")), self.file(&format!("{name}.pem")));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2"]);
        command.args([
            "-config",
            &self.file("req.conf"),
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &key,
            "-out",
            &out,
        ]);
        let output = command.args(further).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Returns the TLS settings of clients. They resume no sessions: each handshake is a whole one.
    fn client(&self) -> io::Result<Arc<ClientConfig>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(Path::new(&self.file("ca.pem"))).map_err(io::Error::other)?;
        roots.add(authority).map_err(io::Error::other)?;
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Connection, in TLS or not.
struct Client {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    received: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> io::Result<Client> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = || "localhost".try_into().map_err(io::Error::other);
        let new = |config: &Arc<ClientConfig>| ClientConnection::new(config.clone(), name()?).map_err(io::Error::other);
        let mut tls = tls.map(new).transpose()?;
        if let Some(tls) = &mut tls {
            while tls.is_handshaking() {
                tls.complete_io(&mut stream)?;
            }
        }
        Ok(Client { stream, tls, received: Vec::new() })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes) };
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.stream)?;
        }
        Ok(())
    }

    /// Reads once.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let Some(tls) = &mut self.tls else {
            let len = self.stream.read(&mut buffer)?;
            self.received.extend_from_slice(&buffer[..len]);
            return if len == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) };
        };
        if tls.read_tls(&mut self.stream)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        match tls.reader().read(&mut buffer) {
            Ok(len) => self.received.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits for a line.
    fn wait(&mut self) -> io::Result<()> {
        while !self.received.ends_with(b"\n") {
            self.receive()?;
        }
        Ok(())
    }
}

/// Closed loop: each client locks and releases, over and over.
struct Load {
    clients: Vec<Client>,
    replies: u64,
}

impl Load {
    /// Returns the replies a second, and the processor time of each in microseconds.
    fn play(&mut self, time: Duration, used: &dyn Fn() -> io::Result<Duration>) -> io::Result<(f64, f64)> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let mut turns = Turns::pairs(Program::Ours, self.clients.len());
        let mut requests = Vec::new();
        for (number, client) in self.clients.iter_mut().enumerate() {
            epoll.add(&client.stream, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
            requests.clear();
            turns.speak(number, &mut requests);
            client.send(&requests)?;
        }
        self.run(&epoll, &mut turns, time / 4)?;
        let (replies, before, start) = (self.replies, used()?, Instant::now());
        self.run(&epoll, &mut turns, time)?;
        let (replies, spent) = ((self.replies - replies) as f64, used()? - before);
        Ok((replies / start.elapsed().as_secs_f64(), spent.as_secs_f64() * 1e6 / replies))
    }

    fn run(&mut self, epoll: &Epoll, turns: &mut Turns, time: Duration) -> io::Result<()> {
        let (deadline, mut events) = (Instant::now() + time, vec![EpollEvent::empty(); 256]);
        let mut requests = Vec::new();
        while Instant::now() < deadline {
            let timeout = EpollTimeout::try_from(PATIENCE).map_err(io::Error::other)?;
            let count = epoll.wait(&mut events, timeout)?;
            if count == 0 {
                return Err(io::Error::other("the server is silent"));
            }
            for event in &events[..count] {
                let number = event.data() as usize;
                let client = &mut self.clients[number];
                client.receive()?;
                if !client.received.ends_with(b"\n") {
                    continue;
                }
                if !turns.hear(number, &client.received) {
                    return Err(io::Error::other(format!("unexpected reply: {}", client.received.escape_ascii())));
                }
                client.received.clear();
                self.replies += 1;
                requests.clear();
                turns.speak(number, &mut requests);
                client.send(&requests)?;
            }
        }
        Ok(())
    }
}
