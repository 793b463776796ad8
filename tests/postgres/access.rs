//! Access to a database: TLS as `sslmode` and `sslrootcert` demand, passwords, a role with rights to
//! its own schema alone, and tables of another format.

use super::{answer, is_serving, until};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::postgres::{Cluster, give_to_server, init_db, own, place_of, shared};
use poolcounter_testkit::running::{Ended, end_of, refusal_of_store};
use poolcounter_testkit::scratch::Scratch;
use std::process::Command;

/// A certificate of `localhost` that an authority has signed, and another authority.
struct Certificates {
    scratch: Scratch,
}

impl Certificates {
    fn new() -> Certificates {
        let certificates = Certificates { scratch: Scratch::new() };
        let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        for name in ["ca", "other"] {
            let subject = format!("/CN={name}");
            let files = [("-keyout", format!("{name}.key")), ("-out", format!("{name}.pem"))];
            certificates.openssl(&[&["req", "-x509", "-days", "2", "-subj", &subject], &new_key[..]].concat(), &files);
        }
        let files = [("-keyout", "server.key".into()), ("-out", "server.csr".into())];
        certificates.openssl(&[&["req", "-subj", "/CN=server"], &new_key[..]].concat(), &files);
        std::fs::write(certificates.scratch.file("names"), "subjectAltName=DNS:localhost\n").expect("can be written");
        let files = [
            ("-in", "server.csr".into()),
            ("-CA", "ca.pem".into()),
            ("-CAkey", "ca.key".into()),
            ("-extfile", "names".into()),
            ("-out", "server.pem".into()),
        ];
        certificates.openssl(&["x509", "-req", "-days", "2", "-CAcreateserial"], &files);
        // The server takes no key that others may read.
        give_to_server(&certificates.scratch.file("server.key"));
        certificates
    }

    fn openssl(&self, words: &[&str], files: &[(&str, String)]) {
        let mut command = Command::new("openssl");
        command.args(words);
        files.iter().for_each(|(option, file)| _ = command.arg(option).arg(self.scratch.file(file)));
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> String {
        self.scratch.file(name).to_str().expect("is UTF-8").to_string()
    }
}

/// Connects, and returns whether TLS is used.
fn connect(url: &str) -> Result<bool, String> {
    let place = place_of(url);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there is room");
    runtime.block_on(async {
        let (client, connection) =
            place.config.connect(place.tls.clone()).await.map_err(|error| format!("{error:?}"))?;
        tokio::spawn(connection);
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let row = client.query_one(sql, &[]).await.map_err(|error| format!("{error:?}"))?;
        Ok(row.get(0))
    })
}

#[test]
fn a_connection_is_as_secret_as_is_demanded() {
    let certificates = Certificates::new();
    let (cert, key) = (certificates.path("server.pem"), certificates.path("server.key"));
    let files = [format!("ssl_cert_file={cert}"), format!("ssl_key_file={key}")];
    let Some(cluster) = own(&["ssl=on", &files[0], &files[1], "fsync=off"]) else { return };
    let (authority, other) = (certificates.path("ca.pem"), certificates.path("other.pem"));
    let reach =
        |host: &str, words: &str| connect(&format!("postgres://postgres@{host}:{}/postgres?{words}", cluster.port));
    for (host, words, wanted) in [
        ("127.0.0.1", "sslmode=disable".to_string(), Ok(false)),
        ("127.0.0.1", "sslmode=prefer".into(), Ok(true)),
        ("127.0.0.1", "sslmode=require".into(), Ok(true)),
        // A given file of authorities is checked in every mode.
        ("localhost", format!("sslmode=require&sslrootcert={authority}"), Ok(true)),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={other}"), Err("UnknownIssuer")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={authority}"), Err("NotValidForName")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={other}"), Err("UnknownIssuer")),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={authority}"), Err("NotValidForName")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={authority}"), Ok(true)),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other}"), Err("UnknownIssuer")),
        // A certificate that another has signed is no authority, as in libpq.
        ("localhost", format!("sslmode=verify-full&sslrootcert={cert}"), Err("UnknownIssuer")),
    ] {
        let reached = reach(host, &words);
        match wanted {
            Ok(is_secret) => assert_eq!(reached, Ok(is_secret), "{host} {words}"),
            Err(part) => assert!(matches!(&reached, Err(error) if error.contains(part)), "{host} {words}: {reached:?}"),
        }
    }
    serves_over(&cluster, &authority);
}

/// Checks that the daemon itself serves in the strictest mode.
fn serves_over(cluster: &Cluster, authority: &str) {
    let url = cluster.url("secret").replace("127.0.0.1", "localhost");
    let url = url.replace("sslmode=disable", &format!("sslmode=verify-full&sslrootcert={authority}"));
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
    until(|| is_serving(daemon.jobs()), "the daemon serves");
    let sql = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'poolcounter'";
    assert_ne!(cluster.query("postgres", sql), ["0"]);
}

/// A server without TLS is refused where TLS is required.
#[test]
fn a_server_without_tls_is_refused_where_it_is_demanded() {
    let Some(cluster) = shared() else { return };
    let reach =
        |mode: &str| connect(&format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode={mode}", cluster.port));
    assert_eq!(reach("prefer"), Ok(false));
    for mode in ["require", "verify-ca"] {
        let reached = reach(mode);
        assert!(matches!(&reached, Err(error) if error.contains("TLS")), "{mode}: {reached:?}");
    }
}

/// Runs the program with these variables as its whole environment.
fn run(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    end_of(Command::new(Daemon::program()).args(words).env_clear().envs(variables.iter().copied()))
}

/// A role that may only log in and use its own schema makes the tables, and a daemon with its password serves.
#[test]
fn a_role_needs_no_more_than_its_own_schema() {
    let Some(cluster) = own(&["fsync=off", "password_encryption=scram-sha-256"]) else { return };
    let say = |sql: &str| cluster.query("postgres", sql);
    say("CREATE ROLE plain LOGIN PASSWORD 'it is secret'");
    say("REVOKE ALL ON DATABASE postgres FROM PUBLIC");
    say("REVOKE ALL ON SCHEMA public FROM PUBLIC");
    say("GRANT CONNECT ON DATABASE postgres TO plain");
    say("CREATE SCHEMA AUTHORIZATION plain");
    demand_passwords(&cluster);

    let port = cluster.port.to_string();
    let passwords = Scratch::new();
    let file = passwords.file("passwords");
    std::fs::write(&file, format!("127.0.0.1:{port}:postgres:plain:it is secret\n")).expect("can be written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is there");
    let variables = [("PGPASSFILE", file.to_str().expect("is UTF-8"))];
    let url = format!("postgres://plain@127.0.0.1:{port}/postgres?sslmode=disable");
    let init = ["jobs", "init-db", "--run", &url];
    let wrong = run(&init, &[("PGPASSWORD", "it is wrong")]);
    assert!(wrong.status != Some(0) && wrong.stderr.contains("password authentication failed"), "{wrong:?}");

    // The printed statements are the executed ones.
    let printed = run(&["jobs", "init-db", &url], &variables).stdout;
    assert!(printed.contains("CREATE TABLE job ("), "{printed}");
    let made = run(&init, &variables);
    assert_eq!(made.status, Some(0), "{}", made.stderr);
    let sql = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relkind = 'r' \
               AND relnamespace = 'plain'::regnamespace";
    assert_eq!(say_as(&cluster, sql), ["inbox job meta owner root setting"]);
    say_as(&cluster, "DROP TABLE inbox, job, meta, owner, root, setting; DROP FUNCTION tell_inbox");
    say_as(&cluster, &printed);

    let mut command = Command::new(Daemon::program());
    command.args(["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", &url]);
    let daemon = Daemon::run(command.env_clear().envs(variables));
    until(|| is_serving(daemon.jobs()), "the daemon serves");
    assert_eq!(answer(daemon.jobs(), "put 0 0 9 1\r\nx"), "INSERTED 1");
    assert_eq!(say_as(&cluster, "SELECT id FROM job"), ["1"]);

    // A changed password is read with the next connection.
    say("ALTER ROLE plain PASSWORD 'it is new'");
    std::fs::write(&file, format!("127.0.0.1:{port}:postgres:plain:it is new\n")).expect("can be written");
    say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'plain'");
    until(|| answer(daemon.jobs(), "put 0 0 9 1\r\nx") == "INSERTED 2", "the daemon has connected again");

    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("it is there");
    let refused = run(&init, &variables);
    assert!(refused.status != Some(0) && refused.stderr.contains("others may read the file"), "{refused:?}");
}

/// Requires a password of all roles but the superuser.
fn demand_passwords(cluster: &Cluster) {
    let lines = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(cluster.directory.join("data/pg_hba.conf"), lines).expect("can be written");
    cluster.query("postgres", "SELECT pg_reload_conf()");
    let is_read = || cluster.query("postgres", "SELECT count(*) FROM pg_hba_file_rules") == ["2"];
    until(is_read, "the rules are read");
}

/// Runs a statement as the role.
fn say_as(cluster: &Cluster, sql: &str) -> Vec<String> {
    cluster.query("plain", &format!("SET ROLE plain; {sql}"))
}

/// A daemon refuses tables of another version, leaves them alone, and logs the reason.
#[test]
fn tables_of_another_format_are_left_alone() {
    let Some(cluster) = shared() else { return };
    let url = cluster.url("newer");
    let there = init_db(&place_of(&url)).expect_err("they are made with the schema");
    assert_eq!(there, "the tables are there already");
    cluster.query("newer", "UPDATE meta SET format = 1000");
    let said = refusal_of_store(&url, &[]);
    assert!(said.contains("its format is 1000, and this program knows 1"), "{said}");
    assert_eq!(cluster.query("newer", "SELECT address FROM owner"), ["nobody"]);
}
