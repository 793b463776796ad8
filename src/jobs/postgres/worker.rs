//! The thread of the store: it runs the next action of the [`Owner`] on the database, and sends events to the loop.

use super::bell::Bell;
use super::link::{Link, Renewals};
use super::owner::{LEASE_SECONDS, Next, Owner, StoreEvent, StoreRequest, TRUST};
use super::place::{Place, said};
use super::session::{NO_TABLES, Trouble, check_format, new_runtime, open};
use super::{Ends, Start, schema};
use crate::store::HandedOver;
use poolcounter_core::{Random, Span, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::Duration;

/// Time for which a daemon that ends goes on to commit what is under way, and releases the queue. Its loop has awaited
/// the commit before, and serves nobody meanwhile.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Clock that the loop and the thread share.
type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// Returns the function that starts the thread.
pub fn starter(place: Place, clock: Clock) -> Start {
    Box::new(move |handed_over, ends| {
        let (place, clock) = (place.clone(), clock.clone());
        let handle =
            thread::Builder::new().name("jobs-store".into()).spawn(move || run(place, &clock, handed_over, &ends));
        handle.map(Some).map_err(|error| format!("no thread can be started: {error}"))
    })
}

fn run(mut place: Place, clock: &Clock, handed_over: Option<HandedOver>, ends: &Ends) {
    let address = own_address();
    place.address.clone_from(&address);
    let (bell, mut link) = (place.bell.clone(), Link::new(place));
    let mut owner = match handed_over {
        Some(handed_over) => Owner::going_on(address, handed_over, clock()),
        None => Owner::new(address, clock()),
    };
    let runtime = match new_runtime() {
        Ok(runtime) => runtime,
        Err(sentence) => {
            // A loop that has ended needs no event.
            let _ = ends.events.send(StoreEvent::Refused(sentence));
            return ends.wake.wake();
        }
    };
    runtime.block_on(async {
        let work = async {
            while serve(&mut owner, &mut link, &bell, clock, ends).await {}
            let until = clock() + (LAST_WORD / 2).into();
            while owner.is_committing() && clock() < until {
                if step(&mut owner, &mut link, clock, ends).await.is_some() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            if let Some(epoch) = owner.epoch() { link.release(epoch).await } else { Ok(()) }
        };
        if let Some(Ok(())) = bell.until_end(LAST_WORD, work).await {
            return;
        }
        if owner.epoch().is_some() {
            log::warn!("the database was not told that this daemon ends: another takes over in {LEASE_SECONDS} s");
        }
        // A statement that waits in the server is cancelled, if the server hears of it.
        let _ = tokio::time::timeout(LAST_WORD / 2, link.end_sessions()).await;
    });
    // A name that is being looked up is not awaited.
    runtime.shutdown_background();
}

/// Runs the next action, and returns false once the loop has ended.
async fn serve(owner: &mut Owner, link: &mut Link, bell: &Bell, clock: &Clock, ends: &Ends) -> bool {
    loop {
        match ends.orders.try_recv() {
            Ok(order) => owner.order(order, clock()),
            Err(TryRecvError::Empty) => break,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
    if bell.take_news() {
        owner.note_inbox(clock());
    }
    let waited = step(owner, link, clock, ends).await;
    // The trust is stored before the events that rely on it are sent.
    ends.trusted_until.store(owner.trusted_until().as_micros(), Ordering::Release);
    let mut has_told = false;
    while let Some(event) = owner.next_event() {
        has_told = true;
        // A loop that has ended needs no event.
        let _ = ends.events.send(event);
    }
    if has_told {
        ends.wake.wake();
    }
    if let Some(span) = waited {
        bell.wait(span.into()).await;
    }
    true
}

/// Sends the next request, or returns the time until there is one.
async fn step(owner: &mut Owner, link: &mut Link, clock: &Clock, ends: &Ends) -> Option<Span> {
    let (now, epoch) = (clock(), owner.epoch());
    let mut last = None;
    let mut renewed = |asked: Time| {
        last = Some(asked);
        let until = (asked + TRUST).as_micros();
        if ends.trusted_until.fetch_max(until, Ordering::AcqRel) < clock().as_micros() {
            ends.wake.wake();
        }
    };
    let mut renewals = Renewals { epoch, clock: &**clock, renewed: &mut renewed };
    let ask = match owner.next(now) {
        Next::Ask(ask) => ask,
        Next::Wait(until) => return Some(until.since(now)),
    };
    let is_connect = matches!(ask, StoreRequest::Connect);
    let answer = link.ask(&ask, &mut renewals).await;
    if let Some(ahead) = link.clock_ahead().filter(|_| is_connect) {
        // A loop that has ended needs no event.
        let _ = ends.events.send(StoreEvent::Clock(ahead));
    }
    let now = clock();
    last.into_iter().for_each(|asked| owner.renewed_beside(asked, now));
    owner.answer(answer, now);
    None
}

/// Returns an address that no other process has: host name, process id and a random number. It needs no quotes.
fn own_address() -> String {
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-._".contains(*letter);
    let host: String = host.chars().filter(is_plain).take(100).collect();
    let random = Random::from_system().map_or(0, |mut random| u32::from_be_bytes(random.bytes()));
    format!("{host}:{}:{random:08x}", std::process::id())
}

/// Makes the tables in a database, in one transaction.
///
/// # Errors
///
/// One sentence with the reason.
pub fn init_db(place: &Place) -> Result<(), String> {
    new_runtime()?.block_on(async {
        let said_of = |trouble| match trouble {
            Trouble::Refused(sentence) => sentence,
            Trouble::Failed(error) => said(&error),
            Trouble::TooLate => "the database does not answer".into(),
        };
        let (client, ..) = open(place).await.map_err(said_of)?;
        match check_format(&client).await {
            Ok(()) => return Err("the tables are there already".into()),
            Err(Trouble::Refused(sentence)) if sentence == NO_TABLES => {}
            Err(trouble) => return Err(said_of(trouble)),
        }
        let script = format!("BEGIN;\n{}COMMIT;", schema::script());
        client.batch_execute(&script).await.map_err(|error| said(&error))
    })
}
