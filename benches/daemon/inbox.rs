//! Rows that an application commits with its own data, 1000 a second: the time from the answer to its COMMIT until a worker has
//! the job. Ours takes them from the inbox; the workers of the usual queue poll it.

use super::report::{Values, p99};
use super::settings::Settings;
use poolcounter_testkit::postgres::{Cluster, place_of};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Programs that insert.
const CLIENTS: usize = 4;
/// Workers: each waits for the commit of one job before it takes the next.
const WORKERS: usize = 32;
/// Pause of each program: together they insert 1000 rows a second.
const PAUSE: Duration = Duration::from_millis(CLIENTS as u64);
/// Pause of a worker of the usual queue that has found nothing.
const POLL: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(10);

/// Moment at which a row was committed, or taken.
type Moment = (usize, Instant);

/// Returns the median, the 99th percentile and the longest of the times, in milliseconds. `insert` has the body as its
/// parameter; `take` starts the workers.
pub fn measure(
    cluster: &Cluster,
    schema: &str,
    insert: &'static str,
    settings: &Settings,
    take: impl FnOnce(&Sender<Moment>) -> io::Result<()>,
) -> io::Result<Values> {
    let rows = (settings.time.as_secs_f64() * 1000.0).max(50.0) as usize;
    let (sender, taken) = channel();
    take(&sender)?;
    let (sender, committed) = channel();
    let producers: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (url, sender) = (cluster.url_at(schema, cluster.port), sender.clone());
            thread::spawn(move || {
                in_session(&url, async |session| {
                    let statement = session.prepare(insert).await?;
                    let start = Instant::now();
                    for (count, row) in (client..rows).step_by(CLIENTS).enumerate() {
                        tokio::time::sleep_until((start + PAUSE * count as u32).into()).await;
                        session.execute(&statement, &[&row.to_string().as_bytes()]).await?;
                        _ = sender.send((row, Instant::now()));
                    }
                    Ok(())
                })
            })
        })
        .collect();
    for producer in producers {
        producer.join().expect("it does not panic")?;
    }
    drop(sender);
    let mut moments = vec![None; rows];
    for _ in 0..rows {
        let (row, at) = taken.recv_timeout(LONGEST).map_err(io::Error::other)?;
        moments[row] = Some(at);
    }
    let waits = committed.iter().filter_map(|(row, at)| Some(moments[row]?.saturating_duration_since(at)));
    let mut waits: Vec<f64> = waits.map(|wait| wait.as_secs_f64() * 1e3).collect();
    waits.sort_unstable_by(f64::total_cmp);
    Ok(vec![waits[waits.len() / 2], p99(&waits), waits[waits.len() - 1]])
}

/// Starts runners of the daemon. They end with it.
pub fn reserve(address: SocketAddr, sender: &Sender<Moment>) -> io::Result<()> {
    for _ in 0..WORKERS {
        let mut stream = TcpStream::connect(address)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let sender = sender.clone();
        thread::spawn(move || -> io::Result<()> {
            loop {
                stream.write_all(b"reserve\r\n")?;
                let mut line = String::new();
                reader.read_line(&mut line)?;
                let at = Instant::now();
                let words: Vec<&str> = line.split_whitespace().collect();
                let [_, id, bytes] = words[..] else { return Ok(()) };
                let mut body = vec![0; bytes.parse::<usize>().map_err(io::Error::other)? + 2];
                reader.read_exact(&mut body)?;
                _ = sender.send((row_of(&body)?, at));
                stream.write_all(format!("delete {id}\r\n").as_bytes())?;
                reader.read_line(&mut String::new())?;
            }
        });
    }
    Ok(())
}

/// Starts workers that claim rows by this statement, which returns the body. They end with the schema.
pub fn poll(url: &str, claim: &'static str, sender: &Sender<Moment>) {
    for _ in 0..WORKERS {
        let (url, sender) = (url.to_string(), sender.clone());
        thread::spawn(move || {
            in_session(&url, async |session| {
                let claim = session.prepare(claim).await?;
                loop {
                    let rows = session.query(&claim, &[]).await?;
                    let at = Instant::now();
                    match rows.first() {
                        Some(row) => _ = sender.send((row_of(row.get("body")).unwrap_or_default(), at)),
                        None => tokio::time::sleep(POLL).await,
                    }
                }
            })
        });
    }
}

fn in_session(url: &str, work: impl AsyncFnOnce(&Client) -> Result<(), tokio_postgres::Error>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let place = place_of(url);
    runtime
        .block_on(async {
            let (session, connection) = place.config.connect(place.tls.clone()).await?;
            tokio::spawn(connection);
            work(&session).await
        })
        .map_err(io::Error::other)
}

fn row_of(body: &[u8]) -> io::Result<usize> {
    std::str::from_utf8(body).map_err(io::Error::other)?.trim().parse().map_err(io::Error::other)
}
