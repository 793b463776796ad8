//! Certificates that openssl makes for a test, the terminator as a process, and a client that speaks TLS to it.

use super::daemon::{Client, Daemon, PATIENCE};
use super::scratch::Scratch;
use super::skipped;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Directory with certificates: `NAME.pem` with `NAME.key`.
pub struct Certificates {
    pub directory: Scratch,
}

/// Configuration of `openssl ca`, the only command that can make expired certificates.
const PAST: &str = "[ca]\ndefault_ca=d\n[d]\ndatabase=DIR/index\nnew_certs_dir=DIR\nserial=DIR/serial\ndefault_md=sha256\npolicy=p\n\
     x509_extensions=x\n[p]\ncommonName=optional\n[x]\nbasicConstraints=CA:FALSE\n";

impl Certificates {
    /// Creates an authority `ca`, and of it a `server` for 127.0.0.1 and a client `web1`; None, with a report, without
    /// openssl.
    pub fn new() -> Option<Certificates> {
        if Command::new("openssl").arg("version").output().is_err() {
            skipped("TLS, because openssl is not installed");
            return None;
        }
        let made = Certificates { directory: Scratch::new() };
        // Without this file, certificates get extensions that only authorities should have.
        fs::write(made.path("req.conf"), "[req]\ndistinguished_name=dn\n[dn]\n").expect("can be written");
        made.authority("ca");
        made.issue("server", "ca", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1");
        made.issue("web1", "ca", "/O=Example/CN=web1.example.org", "basicConstraints=CA:FALSE");
        Some(made)
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> String {
        self.directory.file(name).display().to_string()
    }

    /// Makes an authority.
    pub fn authority(&self, name: &str) {
        self.make(name, &["-subj", &format!("/CN={name}"), "-addext", "basicConstraints=critical,CA:TRUE"]);
    }

    /// Makes a certificate of an authority.
    pub fn issue(&self, name: &str, authority: &str, subject: &str, extension: &str) {
        let (ca, key) = (self.path(&format!("{authority}.pem")), self.path(&format!("{authority}.key")));
        self.make(name, &["-subj", subject, "-CA", &ca, "-CAkey", &key, "-addext", extension]);
    }

    /// Makes an authority between another one and its clients, with name constraints.
    pub fn issue_constrained_authority(&self, name: &str, authority: &str, permitted: &str) {
        let (ca, key) = (self.path(&format!("{authority}.pem")), self.path(&format!("{authority}.key")));
        let constraints = format!("nameConstraints=critical,permitted;{permitted}");
        let extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", &constraints];
        let signed = ["-subj", &format!("/CN={name}"), "-CA", &ca, "-CAkey", &key];
        self.make(name, &[&signed[..], &extensions].concat());
    }

    /// Appends further certificates to a file.
    pub fn append(&self, name: &str, others: &str) {
        let read = |name: &str| fs::read(self.path(&format!("{name}.pem"))).expect("it was made");
        fs::write(self.path(&format!("{name}.pem")), [read(name), read(others)].concat()).expect("can be written");
    }

    /// Makes a client's certificate that was valid for a year.
    pub fn issue_expired(&self, name: &str, authority: &str) {
        let path = |end: &str| self.path(&format!("{name}.{end}"));
        openssl(&["req", "-subj", "/CN=old", "-keyout", &path("key"), "-out", &path("csr")]);
        let directory = self.path("");
        fs::write(path("conf"), PAST.replace("DIR", directory.trim_end_matches('/'))).expect("can be written");
        fs::write(self.path("index"), "").expect("can be written");
        fs::write(self.path("serial"), "01").expect("can be written");
        let (ca, key) = (self.path(&format!("{authority}.pem")), self.path(&format!("{authority}.key")));
        let signed = ["ca", "-batch", "-notext", "-config", &path("conf"), "-cert", &ca, "-keyfile", &key];
        let dates = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z"];
        openssl(&[&signed[..], &dates, &["-in", &path("csr"), "-out", &path("pem")]].concat());
    }

    fn make(&self, name: &str, arguments: &[&str]) {
        let (key, out) = (self.path(&format!("{name}.key")), self.path(&format!("{name}.pem")));
        let config = self.path("req.conf");
        let usual = ["req", "-x509", "-config", &config, "-days", "10", "-keyout", &key, "-out", &out];
        openssl(&[&usual[..], arguments].concat());
    }

    /// Puts a certificate in the place of another.
    pub fn replace(&self, name: &str, by: &str) {
        for end in ["pem", "key"] {
            fs::rename(self.path(&format!("{by}.{end}")), self.path(&format!("{name}.{end}"))).expect("both are there");
        }
    }

    /// Starts a terminator before a server.
    pub fn terminator(&self, to: &str, options: &[&str]) -> Daemon {
        self.terminator_of(Daemon::program(), to, options)
    }

    /// Starts a terminator from this path.
    pub fn terminator_of(&self, program: &str, to: &str, options: &[&str]) -> Daemon {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        let usual = ["tls", "--listen", "127.0.0.1:0", "--to", to, "--cert", &cert, "--key", &key];
        Daemon::run(Command::new(program).args(usual).args(options))
    }

    /// Returns the configuration of clients that trust an authority, and show a certificate if one is named.
    pub fn connector(&self, ca: &str, certificate: Option<&str>) -> Connector {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("they are known");
        let mut roots = RootCertStore::empty();
        let read = |name: &str| CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).expect("it was made");
        roots.add(read(ca)).expect("is an authority");
        let builder = builder.with_root_certificates(roots);
        Connector(Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).expect("it was made");
                let chain = CertificateDer::pem_file_iter(self.path(&format!("{name}.pem"))).expect("it was made");
                let chain = chain.collect::<Result<_, _>>().expect("is PEM");
                builder.with_client_auth_cert(chain, key).expect("they belong together")
            }
        }))
    }

    /// Connects such a client.
    pub fn connect(&self, address: SocketAddr, ca: &str, certificate: Option<&str>) -> TlsClient {
        self.connector(ca, certificate).connect(address)
    }

    /// Returns the output of `openssl s_client`, which sends one line and waits for a reply.
    pub fn s_client(&self, address: SocketAddr, options: &[&str]) -> String {
        let (address, ca) = (address.to_string(), self.path("ca.pem"));
        let arguments = ["s_client", "-quiet", "-verify_return_error", "-connect", &address, "-CAfile", &ca];
        let mut command = Command::new("openssl");
        let piped = command.args(arguments).args(options).stdin(Stdio::piped());
        let mut child = piped.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it is installed");
        let mut stdin = child.stdin.take().expect("is piped");
        // The process may have ended already.
        let _ = stdin.write_all(b"STATS UPTIME\n");
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("is piped"));
        stdout.read_line(&mut said).expect("is text");
        if !said.is_empty() {
            // It would go on for as long as the server does.
            child.kill().expect("is our child");
        }
        drop(stdin);
        child.stderr.take().expect("is piped").read_to_string(&mut said).expect("is text");
        child.wait().expect("is our child");
        said
    }
}

/// Runs openssl. Keys are of the fastest kind.
fn openssl(arguments: &[&str]) {
    let mut command = Command::new("openssl");
    command.args(arguments);
    if arguments[0] == "req" {
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    }
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Trusted authority and certificate of clients.
#[derive(Clone)]
pub struct Connector(Arc<ClientConfig>);

impl Connector {
    /// Connects to a server, which must listen.
    pub fn connect(&self, address: SocketAddr) -> TlsClient {
        let stream = self.try_connect(address).expect("it listens");
        stream.sock.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.sock.set_nodelay(true).expect("an option");
        TlsClient { reader: BufReader::new(stream) }
    }

    /// Connects without a deadline.
    pub fn try_connect(&self, address: SocketAddr) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = "localhost".try_into().expect("is a name");
        let tls = ClientConnection::new(self.0.clone(), name).expect("it can be used");
        Ok(StreamOwned::new(tls, TcpStream::connect(address)?))
    }

    /// Shakes hands, with `damage` done to the bytes that are sent, until the server answers nonsense, or nothing in
    /// time.
    pub fn shake_hands(&self, address: SocketAddr, within: Duration, mut damage: impl FnMut(&mut Vec<u8>)) {
        let name = "localhost".try_into().expect("is a name");
        let mut tls = ClientConnection::new(self.0.clone(), name).expect("it can be used");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(within)).expect("an option");
        loop {
            let mut bytes = Vec::new();
            while tls.wants_write() {
                tls.write_tls(&mut bytes).expect("there is room");
            }
            damage(&mut bytes);
            let answered = stream.write_all(&bytes).and_then(|()| tls.read_tls(&mut stream));
            let goes_on = answered.is_ok_and(|len| len > 0) && tls.process_new_packets().is_ok();
            if !goes_on || !tls.is_handshaking() {
                return;
            }
        }
    }
}

/// A client's connection.
pub type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

impl TlsClient {
    /// Sends bytes, and returns whether that succeeded in time.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.reader.get_mut().write_all(bytes).is_ok()
    }

    /// Sends a request, and returns the first line of its reply; the error says why there is none.
    pub fn try_ask(&mut self, request: &str) -> std::io::Result<String> {
        self.reader.get_mut().write_all(format!("{request}\n").as_bytes())?;
        self.try_line()
    }

    /// Announces that nothing more will be sent.
    pub fn finish(&mut self) {
        let stream = self.reader.get_mut();
        stream.conn.send_close_notify();
        stream.conn.write_tls(&mut stream.sock).expect("is sent");
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        &self.reader.get_ref().sock
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        socket2::SockRef::from(self.stream()).set_linger(Some(Duration::ZERO)).expect("an option");
    }

    /// Closes the connection without a closing alert, as a killed process does.
    pub fn vanish(self) {}
}
