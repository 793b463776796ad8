//! Where the database is: the URL, with what the users of libpq expect of it and of the files and variables around it.

use super::tls::{self, Verify};
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long a connection may take to be made, to each of the servers that are named.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// What a server takes if none is named.
const PORT: u16 = 5432;
/// Bits of a file's mode that let others read it: a file of passwords with them counts for nothing.
const OTHERS: u32 = 0o077;

/// Where the database is, and how it is reached.
#[derive(Clone)]
pub struct Place {
    /// What is said to connect.
    pub config: Config,
    /// What makes the connection secret.
    pub tls: MakeRustlsConnect,
}

/// What of the URL is not told to the server.
#[derive(Default)]
struct Security {
    mode: Option<String>,
    root: Option<PathBuf>,
}

impl Place {
    /// Reads a URL, `postgresql://USER@HOST/DATABASE?...`, or the words that libpq takes in its place. The password is the one in it,
    /// else that of `PGPASSWORD`, else the one that the file of passwords has.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong.
    pub fn parse(url: &str) -> Result<Place, String> {
        let (rest, security) = take_security(url);
        let mut config: Config = rest.parse().map_err(|error| format!("the URL of the database: {}", said(&error)))?;
        let mode = security.mode.as_deref().unwrap_or("prefer");
        let verify = match (mode, &security.root) {
            ("disable" | "allow" | "prefer", _) | ("require", None) => Verify::Nothing,
            ("require" | "verify-ca", _) => Verify::Authority,
            ("verify-full", _) => Verify::Name,
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
        // Of several servers, the one that takes commits.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_password().is_none()
            && let Some(password) = password_for(&config)
        {
            config.password(password);
        }
        Ok(Place { config, tls: tls::connector(verify, security.root.as_deref())? })
    }

    /// Returns what people call it, without a password.
    pub fn name(&self) -> String {
        let config = &self.config;
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
        let ports = config.get_ports().first().filter(|port| **port != PORT);
        let port = ports.map(|port| format!(":{port}")).unwrap_or_default();
        format!("postgres://{}{port}/{}", hosts.join(","), database_of(config))
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
    text
}

/// Takes out of a URL, or of words, what the server is not told.
fn take_security(url: &str) -> (String, Security) {
    let is_url = url.contains("://");
    let mut security = Security::default();
    let mut is_other = |part: &&str| match part.split_once('=') {
        Some(("sslmode", mode)) => {
            security.mode = Some(mode.trim_matches('\'').to_string());
            false
        }
        Some(("sslrootcert", path)) => {
            let path = path.trim_matches('\'');
            let bytes = if is_url { percent_decode_str(path).collect() } else { path.as_bytes().to_vec() };
            security.root = Some(OsString::from_vec(bytes).into());
            false
        }
        _ => true,
    };
    let rest = if is_url {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let query: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).filter(&mut is_other).collect();
        if query.is_empty() { base.to_string() } else { format!("{base}?{}", query.join("&")) }
    } else {
        url.split_ascii_whitespace().filter(&mut is_other).collect::<Vec<_>>().join(" ")
    };
    (rest, security)
}

/// Returns the password that the surroundings have for a database.
fn password_for(config: &Config) -> Option<String> {
    if let Ok(password) = std::env::var("PGPASSWORD") {
        return Some(password);
    }
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let path = named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pgpass")))?;
    let metadata = fs::metadata(&path).ok()?;
    if metadata.mode() & OTHERS != 0 {
        log::warn!("the passwords in {} are not used: others may read them", path.display());
        return None;
    }
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        _ => "localhost".into(),
    };
    let port = config.get_ports().first().copied().unwrap_or(PORT).to_string();
    let wanted = [&host, &port, database_of(config), config.get_user().unwrap_or_default()];
    find_password(&fs::read_to_string(&path).ok()?, wanted)
}

/// Returns the password of the first line that is for this host, port, database and user.
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
    fn a_url_says_who_where_and_how() {
        let place = Place::parse("postgresql://me:secret@db1,db2:5433/jobs?sslmode=disable&options=-csearch_path%3Dx");
        let place = place.map_err(|sentence| panic!("{sentence}")).expect("is one");
        assert_eq!(place.config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(place.config.get_options(), Some("-csearch_path=x"));
        assert!(!place.name().contains("secret"), "{}", place.name());
        assert!(place.name().starts_with("postgres://db1,db2"), "{}", place.name());
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
    fn a_file_of_passwords_is_read_as_libpq_reads_it() {
        let text = "# a comment\nother:5432:db:me:no\nh:5432:*:me:a\\:b\\\\c\n*:*:*:*:last\n";
        assert_eq!(find_password(text, ["h", "5432", "db", "me"]).as_deref(), Some("a:b\\c"));
        assert_eq!(find_password(text, ["h", "5433", "db", "me"]).as_deref(), Some("last"));
        assert_eq!(find_password("h:1:d:u", ["h", "1", "d", "u"]), None);
    }
}
