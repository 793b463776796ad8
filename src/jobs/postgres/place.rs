//! Location of the database: the URL, and the password where libpq looks for it.

use super::bell::Bell;
use super::tls;
use percent_encoding::percent_decode_str;
use poolcounter_core::file::open_regular;
use poolcounter_core::text::plain;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Time limit of a connection to each of the servers that are named.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Port of servers without one in the URL.
const PORT: u16 = 5432;
/// Directory of the server's socket on Debian, if no host is named.
const SOCKETS: &str = "/var/run/postgresql";
/// Bits of a file's mode that let other users read it: a file of passwords with them is ignored.
const OTHERS: u32 = 0o077;

/// Location of the database, and the way to connect to it.
#[derive(Clone)]
pub struct Place {
    /// Text of the URL.
    url: String,
    /// Parameters of the connection.
    pub config: Config,
    /// TLS of the connection.
    pub tls: MakeRustlsConnect,
    /// Rung by orders of the loop and by news in the inbox.
    pub bell: Arc<Bell>,
    /// Address of this process in the row `owner`; empty before its thread has begun.
    pub address: String,
    /// True if the password is in the URL; if not, it is sought for each connection.
    has_password: bool,
}

/// Function that returns a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Parameters of the URL that are not sent to the server.
#[derive(Default)]
struct Security {
    mode: Option<String>,
    root: Option<PathBuf>,
}

impl Place {
    /// Reads a URL, `postgresql://USER@HOST/DATABASE?...`, with or without the scheme. Without a host it is the socket of
    /// this machine. The password is the one in the URL, else for each connection that of `PGPASSWORD`, else that of the
    /// file of passwords as it is then.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong.
    pub fn parse(url: &str) -> Result<Place, String> {
        let url = if url.starts_with("//") { format!("postgresql:{url}") } else { url.to_string() };
        let (rest, security) = take_security(&url);
        let mut config: Config = rest.parse().map_err(|error| format!("the URL of the database: {}", said(&error)))?;
        // It would be overwritten: the form of libpq without a scheme, or a "?" before that of the parameters.
        if !url.contains("://") || config.get_ssl_mode() != SslMode::Prefer {
            return Err(
                "the URL of the database is postgres://USER@HOST:PORT/DATABASE?PARAMETERS; a ? in a password is %3F"
                    .into(),
            );
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host(SOCKETS);
        }
        let mode = security.mode.as_deref().unwrap_or("prefer");
        let verifies = match (mode, &security.root) {
            ("disable" | "allow" | "prefer", _) | ("require", None) => false,
            ("require" | "verify-ca" | "verify-full", _) => true,
            _ => return Err(format!("sslmode is disable, prefer, require, verify-ca or verify-full, and not {mode}")),
        };
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "allow" | "prefer" => SslMode::Prefer,
            _ => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIME);
        }
        if config.get_application_name().is_none() {
            config.application_name("poolcounter");
        }
        // The URL may name several servers; the one that takes commits is used.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let has_password = config.get_password().is_some();
        let tls = tls::connector(verifies, security.root.as_deref())?;
        Ok(Place { url, config, tls, bell: Arc::default(), address: String::new(), has_password })
    }

    /// Returns the parameters of the connection, with the password of the environment as it is now, and the reason if
    /// there is none and one may be needed.
    pub fn login(&self) -> (Config, Option<String>) {
        self.login_in(&|name| std::env::var_os(name))
    }

    fn login_in(&self, variable: Variable<'_>) -> (Config, Option<String>) {
        let mut config = self.config.clone();
        if self.has_password {
            return (config, None);
        }
        match password_for(&config, variable) {
            Ok(password) => {
                password.into_iter().for_each(|password| _ = config.password(password));
                (config, None)
            }
            Err(sentence) => (config, Some(sentence)),
        }
    }

    /// Returns its name for people, without a password: servers with their ports, database and schema.
    pub fn name(&self) -> String {
        let config = &self.config;
        let ports = config.get_ports();
        let server = |(index, host): (usize, &Host)| {
            let name = match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            };
            let port = ports.get(index).or(ports.last()).filter(|port| **port != PORT);
            port.map_or(name.clone(), |port| format!("{name}:{port}"))
        };
        let servers: Vec<String> = config.get_hosts().iter().enumerate().map(server).collect();
        self.name_at(&servers.join(","))
    }

    /// Returns its name with these servers, or none.
    pub fn name_at(&self, servers: &str) -> String {
        let schema = self.schema().map(|schema| format!("?schema={schema}")).unwrap_or_default();
        format!("postgres://{servers}/{}{schema}", database_of(&self.config))
    }

    /// Returns the schemas in which tables are sought, if the URL names them.
    fn schema(&self) -> Option<&str> {
        let (_, rest) = self.config.get_options()?.split_once("search_path=")?;
        rest.split_ascii_whitespace().next()
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for Place {}

impl fmt::Debug for Place {
    /// Writes the name, which has no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// Returns an error with its cause, as a sentence.
pub fn said(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    plain(&text).into_owned()
}

/// Splits from a URL the parameters that are not sent to the server.
fn take_security(url: &str) -> (String, Security) {
    let mut security = Security::default();
    let mut is_other = |part: &&str| match part.split_once('=') {
        Some(("sslmode", mode)) => {
            security.mode = Some(mode.to_string());
            false
        }
        Some(("sslrootcert", path)) => {
            security.root = Some(OsString::from_vec(percent_decode_str(path).collect()).into());
            false
        }
        _ => true,
    };
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let query: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).filter(&mut is_other).collect();
    let rest = if query.is_empty() { base.to_string() } else { format!("{base}?{}", query.join("&")) };
    (rest, security)
}

/// Returns the password for a database from the environment.
///
/// # Errors
///
/// One sentence that says why a file of passwords is not used.
fn password_for(config: &Config, variable: Variable<'_>) -> Result<Option<String>, String> {
    let password = variable("PGPASSWORD").and_then(|password| password.into_string().ok());
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        return Ok(Some(password));
    }
    let named = variable("PGPASSFILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let at_home = || Some(Path::new(&variable("HOME")?).join(".pgpass"));
    let Some(path) = named.or_else(at_home) else { return Ok(None) };
    let Ok(metadata) = fs::metadata(&path) else { return Ok(None) };
    if metadata.mode() & OTHERS != 0 {
        return Err(format!("the passwords in {} are not used, as others may read the file", path.display()));
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) if path != Path::new(SOCKETS) => path.display().to_string(),
        _ => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(PORT).to_string();
    let wanted = [&host, &port, database_of(config), config.get_user().unwrap_or_default()];
    let text = open_regular(&path).and_then(io::read_to_string);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok(find_password(&text, wanted))
}

/// Returns the password of the first line that matches this host, port, database and user.
fn find_password(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields_of(line);
        let [host, port, database, user, password] = fields.as_slice() else { return None };
        let given = [host, port, database, user];
        let fits = given.into_iter().zip(wanted).all(|(given, wanted)| given == "*" || given == wanted);
        fits.then(|| password.clone())
    })
}

/// Returns the fields of a line; a backslash takes the next character as it is.
fn fields_of(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("there is always one");
        match letter {
            ':' => fields.push(String::new()),
            '\\' => field.extend(letters.next()),
            other => field.push(other),
        }
    }
    fields
}

fn database_of(config: &Config) -> &str {
    config.get_dbname().or(config.get_user()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_user_place_and_parameters() {
        let place = Place::parse("postgresql://me:secret@db1,db2:5433/jobs?sslmode=disable&options=-csearch_path%3Dx");
        let place = place.map_err(|sentence| panic!("{sentence}")).expect("is one");
        assert_eq!(place.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(place.config.get_options(), Some("-csearch_path=x"));
        assert!(!place.name().contains("secret"), "{}", place.name());
        assert_eq!(place.name(), "postgres://db1,db2:5433/jobs?schema=x");
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused_with_a_sentence() {
        let refusal = |url| Place::parse(url).err().unwrap_or_default();
        assert!(refusal("postgres://db/x?sslmode=maybe").contains("and not maybe"));
        assert!(
            refusal("postgres://db/x?nonsense=1").contains("nonsense"),
            "{}",
            refusal("postgres://db/x?nonsense=1")
        );
        assert!(refusal("postgres://db/x?sslmode=verify-full&sslrootcert=%2Fno%2Fwhere").contains("/no/where"));
    }

    #[test]
    fn without_a_host_it_is_the_socket_of_this_machine() {
        let place = Place::parse("postgres:///jobs").map_err(|sentence| panic!("{sentence}")).expect("is one");
        assert_eq!(place.config.get_hosts(), [Host::Unix(SOCKETS.into())]);
    }

    #[test]
    fn file_of_authorities_is_verified_where_tls_is_required() {
        let refusal = |mode: &str| Place::parse(&format!("postgres://db/x?{mode}")).err().unwrap_or_default();
        for mode in ["sslmode=verify-full", "sslmode=require"] {
            assert!(refusal(&format!("{mode}&sslrootcert=/no/where")).contains("/no/where"), "{mode}");
        }
        assert_eq!(refusal("sslmode=require"), "");
    }

    #[test]
    fn the_file_of_passwords_is_where_a_variable_says_else_at_home() {
        let home = std::env::temp_dir().join(format!("pgpass-{}", std::process::id()));
        fs::create_dir_all(&home).expect("can be made");
        for (name, password) in [(".pgpass", "home"), ("other", "named")] {
            fs::write(home.join(name), format!("db:*:jobs:me:{password}\n/run/pg:*:*:*:socket\n"))
                .expect("can be written");
        }
        let text = |path: &Path| path.to_str().expect("is UTF-8").to_string();
        let (home_text, named) = (text(&home), text(&home.join("other")));
        let password = |url: &str, variables: &[(&str, &str)]| {
            let place = Place::parse(url).map_err(|sentence| panic!("{sentence}")).expect("is one");
            let (config, missing) = place.login_in(&|name| {
                variables.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value))
            });
            let password = config.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            password.or(missing)
        };
        let (at_home, by_name) = ([("HOME", &*home_text)], [("HOME", &*home_text), ("PGPASSFILE", &*named)]);
        // A file that others may read is refused.
        set_mode(&home.join(".pgpass"), 0o644);
        let missing = password("postgres://me@db/jobs", &at_home).unwrap_or_default();
        assert!(missing.contains("others may read the file"), "{missing}");
        [".pgpass", "other"].iter().for_each(|name| set_mode(&home.join(name), 0o600));
        assert_eq!(password("postgres://me@db/jobs", &at_home).as_deref(), Some("home"));
        assert_eq!(password("postgres://me@db/jobs", &by_name).as_deref(), Some("named"));
        assert_eq!(password("postgres://me@db/others", &by_name), None);
        assert_eq!(password("postgres://me@%2Frun%2Fpg", &by_name).as_deref(), Some("socket"));
        fs::remove_dir_all(&home).expect("can be removed");
    }

    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is there");
    }

    #[test]
    fn a_file_of_passwords_is_read_as_libpq_reads_it() {
        let text = "# a comment\nother:5432:db:me:no\nh:5432:*:me:a\\:b\\\\c\n*:*:*:*:last\n";
        assert_eq!(find_password(text, ["h", "5432", "db", "me"]).as_deref(), Some("a:b\\c"));
        assert_eq!(find_password(text, ["h", "5433", "db", "me"]).as_deref(), Some("last"));
        assert_eq!(find_password("h:1:d:u", ["h", "1", "d", "u"]), None);
    }
}
