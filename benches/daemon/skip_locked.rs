//! The field's usual queue in a database: a table from which each worker deletes the first row that no other has locked
//! (`SELECT ... FOR UPDATE SKIP LOCKED`). It is tuned as its users do, and in the fastest way where they differ:
//!
//! - everything is prepared, and an index has the order of the claims;
//! - a claim is a DELETE in a transaction that stays open while the job is done. That is one commit for a job. The
//!   other usual way, a column with the owner of the job, costs two, and another dead row;
//! - BEGIN is sent with the claim, so that a job is two round trips;
//! - a client that does ten jobs at a time puts, claims and ends them by one statement each;
//! - the rows have only the columns that such a queue needs. The table is logged.
//!
//! Clients share a pool of connections if the database allows fewer: each job has a connection from its claim to its
//! end.

use super::machine;
use super::settings::Settings;
use poolcounter_testkit::postgres::{Cluster, place_of};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Instant;
use tokio_postgres::{Client, Error};

/// Connections of the pool. More make it slower on two cores.
const POOL: usize = 64;
/// Work of a round.
#[derive(Clone, Copy)]
pub struct Load {
    /// True if jobs are put; else they are reserved and deleted.
    pub is_put: bool,
    pub clients: usize,
    /// Number of jobs at a time.
    pub depth: usize,
    /// Number of jobs at the start.
    pub stock: usize,
    pub body_bytes: usize,
}

pub const TABLES: &str = "
    CREATE TABLE queue (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        tube text NOT NULL,
        pri bigint NOT NULL,
        created timestamptz NOT NULL DEFAULT now(),
        body bytea NOT NULL
    );
    CREATE INDEX queue_order ON queue (tube, pri, id);";
pub const PUT: &str = "INSERT INTO queue (tube, pri, body) VALUES ('default', 1000, $1) RETURNING id";
const PUT_MANY: &str = "INSERT INTO queue (tube, pri, body) SELECT 'default', 1000, body FROM unnest($1::bytea[]) AS new (body) RETURNING id";
pub const CLAIM: &str = "DELETE FROM queue WHERE id = (SELECT id FROM queue WHERE tube = 'default' ORDER BY pri, id LIMIT 1 \
    FOR UPDATE SKIP LOCKED) RETURNING id, body";
const CLAIM_MANY: &str = "DELETE FROM queue WHERE id = ANY (ARRAY(SELECT id FROM queue WHERE tube = 'default' \
    ORDER BY pri, id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, body";

/// Returns the jobs a second, and the database's processor time for each in microseconds.
pub fn measure(cluster: &Cluster, schema: &str, load: Load, settings: &Settings) -> io::Result<[f64; 2]> {
    let say = |sql: &str| cluster.try_query(schema, sql).map_err(io::Error::other);
    say(&format!("CREATE SCHEMA {schema}"))?;
    say(TABLES)?;
    let Load { stock, body_bytes, .. } = load;
    say(&format!(
        "INSERT INTO queue (tube, pri, body) SELECT 'default', 1000, convert_to(repeat('x', {body_bytes}), 'UTF8') \
         FROM generate_series(1, {stock})"
    ))?;
    say("VACUUM ANALYZE queue")?;
    say("CHECKPOINT")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(play(cluster, schema, load, settings));
    drop(runtime);
    say(&format!("DROP SCHEMA {schema} CASCADE"))?;
    measured
}

async fn play(cluster: &Cluster, schema: &str, load: Load, settings: &Settings) -> io::Result<[f64; 2]> {
    let place = place_of(&cluster.url_at(schema, cluster.port));
    let done = Arc::new(AtomicU64::new(0));
    // Clients without a connection wait for one of the pool, which is never idle then.
    for _ in 0..load.clients.min(POOL) {
        let (client, connection) = place.config.connect(place.tls.clone()).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let done = done.clone();
        tokio::spawn(async move {
            if let Err(error) = work(&client, load, &done).await {
                eprintln!("a client of the queue ends: {error:?}");
            }
        });
    }
    tokio::time::sleep(settings.time / 4).await;
    let (before, used, start) = (done.load(Ordering::Relaxed), machine::family_time(cluster.pid())?, Instant::now());
    tokio::time::sleep(settings.time).await;
    let (time, used) = (start.elapsed(), machine::family_time(cluster.pid())?.saturating_sub(used));
    let jobs = (done.load(Ordering::Relaxed) - before) as f64;
    Ok([jobs / time.as_secs_f64(), used.as_secs_f64() * 1e6 / jobs])
}

/// Repeats the client's statements without end.
async fn work(client: &Client, load: Load, done: &AtomicU64) -> Result<(), Error> {
    let statement = match (load.is_put, load.depth) {
        (true, 1) => PUT,
        (true, _) => PUT_MANY,
        (false, 1) => CLAIM,
        (false, _) => CLAIM_MANY,
    };
    let statement = client.prepare(statement).await?;
    let body = vec![b'x'; load.body_bytes];
    let (bodies, limit) = (vec![&body[..]; load.depth], load.depth as i64);
    loop {
        let count = match (load.is_put, load.depth) {
            (true, 1) => client.query(&statement, &[&body]).await?.len(),
            (true, _) => client.query(&statement, &[&bodies]).await?.len(),
            (false, depth) => {
                let mut begun = pin!(client.batch_execute("BEGIN"));
                let first = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context))).await;
                let claimed = if depth == 1 {
                    client.query(&statement, &[]).await?
                } else {
                    client.query(&statement, &[&limit]).await?
                };
                if first.is_pending() {
                    begun.await?;
                }
                client.batch_execute("COMMIT").await?;
                claimed.len()
            }
        };
        done.fetch_add(count as u64, Ordering::Relaxed);
    }
}
