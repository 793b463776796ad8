//! Misbehaving clients of the members, on the real program over real sockets.

use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, raise_descriptor_limit};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::play;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;
/// Longest latency of other clients' requests while a client misbehaves. The daemon answers in well under a
/// millisecond; a busy machine may add the rest.
const PROMPT: Duration = Duration::from_secs(2);

/// First words of the daemon's lines, except for those of lists.
const WORDS: [&str; 12] = [
    "OK",
    "ERROR",
    "MEMBER",
    "MEMBERS",
    "NO_MEMBERS",
    "QUEUE_FULL",
    "LIMIT",
    "RETURNED",
    "RENEWED",
    "NOT_TAKEN",
    "BYE",
    "max",
];

fn start() -> Daemon {
    raise_descriptor_limit();
    Daemon::start_with_members(&[])
}

fn connect(daemon: &Daemon) -> Client {
    Client::to(daemon.members())
}

/// Returns an operator's connection, after it has declared the pool p with `fixed` fixed members.
fn declare(daemon: &Daemon, fixed: usize, settings: &str) -> Client {
    let mut operator = connect(daemon);
    assert_eq!(operator.ask(&format!("POOL p 0 {} queue=5000 {settings}", fixed.max(1))), "OK");
    (0..fixed).for_each(|n| assert_eq!(operator.ask(&format!("ADD p m{n}")), "OK"));
    operator
}

/// Asserts that others are served, and returns the latency of the slowest of some requests.
fn serves_promptly(operator: &mut Client) -> Duration {
    // A pool of its own, because other clients may reserve every member of the first.
    assert_eq!(operator.ask("POOL other 0 1"), "OK");
    let added = operator.ask("ADD other x");
    assert!(matches!(&*added, "OK" | "ERROR POOL_FULL" | "ERROR MEMBER_EXISTS"), "{added}");
    let asked = (0..50).map(|_| {
        let begun = Instant::now();
        let taken = operator.ask("TAKE other");
        let lease = taken.split(' ').nth(1).expect("is free").to_string();
        assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
        begun.elapsed()
    });
    let slowest = asked.max().unwrap_or_default();
    assert!(slowest < PROMPT, "others waited for {slowest:?}");
    slowest
}

/// Returns one value of the utilization of the pool p.
fn figure(operator: &mut Client, name: &str) -> u32 {
    let line = operator.ask("UTILIZATION p");
    let value = line.split(' ').skip_while(|word| *word != name).nth(1).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {line:?}"))
}

/// Waits until a value of the utilization of the pool p is this one, and returns how long that took.
fn wait_for(operator: &mut Client, name: &str, value: u32) -> Duration {
    let begun = Instant::now();
    while figure(operator, name) != value {
        assert!(begun.elapsed() < PATIENCE, "{name} is {} and not {value}", figure(operator, name));
        thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

fn lease_of(line: &str) -> String {
    let lease = line.strip_prefix("MEMBER ").and_then(|rest| rest.split(' ').next());
    lease.unwrap_or_else(|| panic!("{line:?} is no member")).to_string()
}

/// Returns a line that is valid or not, and requests no list: the lines of lists begin with any name.
fn some_line(random: &mut Random) -> Vec<u8> {
    const PARTS: [&str; 48] = [
        "POOL",
        "RECONFIGURE",
        "RMPOOL",
        "GRACEFUL",
        "PROVIDE",
        "CLEAN",
        "STARTED",
        "FAILED",
        "STOPPED",
        "ALIVE",
        "DEAD",
        "CLEANED",
        "OFFER",
        "WITHDRAW",
        "NOW",
        "ADD",
        "DEL",
        "REPAIR",
        "HOLD",
        "FREE",
        "TAKEBACK",
        "TAKE",
        "TAKEGROUP",
        "RETURN",
        "RENEW",
        "CANCEL",
        "IDENTIFY",
        "UTILIZATION",
        "BYE",
        "RETURN",
        "p",
        "q",
        "m1",
        "m2",
        "a=1",
        "n=2",
        "lease=1",
        "member=m1",
        "pri=0",
        "0",
        "1",
        "2",
        "0.1",
        "1e3",
        "-1",
        "99999999999999999999",
        "%20",
        "\0",
    ];
    let words = (0..1 + random.below(6)).map(|_| random.pick(&PARTS));
    let mut line = words.collect::<Vec<_>>().join(" ").into_bytes();
    if random.once_in(8) {
        (0..random.below(300)).for_each(|_| line.push(random.below(256) as u8));
    }
    line.push(b'\n');
    line
}

/// Bytes of all kinds are answered in the protocol, and change nothing for users of another pool.
#[test]
fn random_bytes_are_answered() {
    let daemon = start();
    let mut operator = connect(&daemon);
    serves_promptly(&mut operator);
    let address = daemon.members();
    play("members-bytes", |history| {
        let mut random = Random::new(history.seed);
        let client = Client::to(address);
        let mut garbage: Vec<u8> = (0..300).flat_map(|_| some_line(&mut random)).collect();
        if random.once_in(10) {
            garbage = (0..20_000).map(|_| random.below(256) as u8).collect();
        }
        let mut writer = client.stream().try_clone().expect("a second handle");
        let sending = thread::spawn(move || {
            // The daemon may be the first to close it.
            let _ = writer.write_all(&garbage);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let mut said = Vec::new();
        let _ = client.stream().read_to_end(&mut said);
        sending.join().expect("does not panic");
        let text = String::from_utf8_lossy(&said);
        let strange = text.lines().find(|line| {
            let word = line.split(' ').next().unwrap_or_default();
            !WORDS.contains(&word) && !word.starts_with('!')
        });
        assert_eq!(strange, None, "is no reply");
    });
    serves_promptly(&mut operator);
    for pool in ["p", "q"] {
        let removed = operator.ask(&format!("RMPOOL {pool}"));
        assert!(matches!(&*removed, "OK" | "ERROR NO_POOL"), "{removed}");
    }
}

#[test]
fn members_come_back_however_their_holder_is_lost() {
    let daemon = start();
    let mut operator = declare(&daemon, 2, "on_loss=ok");
    let mut slowest = Duration::ZERO;
    let mut kept = Vec::new();
    for n in 0..200 {
        let (mut holder, mut waiter) = (connect(&daemon), connect(&daemon));
        lease_of(&holder.ask("TAKE p 0 member=m0"));
        waiter.send(b"TAKE p 600 member=m0\nTAKE p 0 member=m1\n");
        // The reply to the second request comes first, because the first waits.
        assert_eq!(waiter.line(), "ERROR WAITING");
        match n % 4 {
            // The waiter is gone before the holder.
            0 => {
                waiter.finish();
                assert_eq!(waiter.rest(), "");
                wait_for(&mut operator, "queued", 0);
                holder.reset();
            }
            1 => {
                holder.finish();
                lease_of(&waiter.line());
                kept.push(holder);
                waiter.reset();
            }
            2 => {
                holder.reset();
                lease_of(&waiter.line());
                drop(waiter);
            }
            _ => {
                // All requests are answered before the end.
                holder.send(b"TAKE p 0 member=m1\nUTILIZATION p\n");
                holder.finish();
                let rest = holder.rest();
                assert!(rest.starts_with("MEMBER ") && rest.lines().count() == 2, "{rest:?}");
                lease_of(&waiter.line());
                assert_eq!(waiter.ask("BYE"), "BYE");
                assert_eq!(waiter.rest(), "");
            }
        }
        slowest = slowest.max(wait_for(&mut operator, "free", 2));
    }
    println!("after a FIN or an RST a member came back within {slowest:?}");
    assert!(slowest < PROMPT);
    assert!(kept.iter_mut().all(|client| client.rest().is_empty()));
}

#[test]
fn a_client_that_does_not_read_costs_little() {
    const MEMBERS: usize = 2000;
    let daemon = start();
    let mut operator = declare(&daemon, MEMBERS, "on_loss=ok");
    serves_promptly(&mut operator);
    let before = daemon.memory();
    // Endless lists, and unread takes and returns of a member.
    let requests = [b"MEMBERS p\n".repeat(50_000), b"TAKE p 0 member=m7\nUTILIZATION p\n".repeat(50_000)];
    let greedy: Vec<Client> = (0..10).map(|_| connect(&daemon)).collect();
    let mut sent = [0; 10];
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(1) {
        for (n, client) in greedy.iter().enumerate() {
            let requests = &requests[n % 2];
            client.stream().set_nonblocking(true).expect("an option");
            sent[n] += client.stream().write(&requests[sent[n]..]).unwrap_or_default();
        }
        slowest = slowest.max(serves_promptly(&mut operator));
    }
    let grown = daemon.memory().saturating_sub(before);
    println!("ten clients do not read: {grown} bytes more, others waited for {slowest:?} at most");
    assert!(grown < 16 * MIB, "the daemon grew by {grown} bytes");
    drop(greedy);
    wait_for(&mut operator, "free", MEMBERS as u32);
}

/// A provider that does not read cannot act on its requests; its members are served all the same.
#[test]
fn a_provider_that_does_not_read_hinders_nobody() {
    const MEMBERS: usize = 20_000;
    let daemon = start();
    let mut operator = connect(&daemon);
    assert_eq!(operator.ask(&format!("POOL p 0 {MEMBERS} cull_interval=0 stop_timeout=1")), "OK");
    let mut provider = connect(&daemon);
    assert_eq!(provider.ask("PROVIDE p"), "OK");
    for chunk in (0..MEMBERS).collect::<Vec<_>>().chunks(500) {
        let lines: String = chunk.iter().map(|n| format!("OFFER p member-with-a-long-name-{n:0100}\n")).collect();
        provider.send(lines.as_bytes());
        chunk.iter().for_each(|_| assert_eq!(provider.line(), "OK"));
    }
    serves_promptly(&mut operator);
    let before = daemon.memory();
    // Each is to be stopped: 3 MB of lines.
    assert_eq!(operator.ask("RECONFIGURE p max=1"), "OK");
    let slowest = serves_promptly(&mut operator);
    let grown = daemon.memory().saturating_sub(before);
    println!("{MEMBERS} stops are not read: {grown} bytes more, others waited for {slowest:?} at most");
    assert!(grown < 16 * MIB, "the daemon grew by {grown} bytes");
    wait_for(&mut operator, "stopping", 0);
    assert_eq!(figure(&mut operator, "free"), 1);
    let lease = lease_of(&operator.ask("TAKE p"));
    assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    // The provider reads after all, and gets each request once.
    let stops = (1..MEMBERS).map(|_| provider.line()).filter(|line| line.starts_with("!STOP p member-")).count();
    assert_eq!(stops, MEMBERS - 1);
}

#[test]
fn a_flood_of_lines_is_served_in_order_and_disturbs_nobody() {
    const PAIRS: usize = 60_000;
    let daemon = start();
    let mut operator = declare(&daemon, 1, "");
    let mut flooding = connect(&daemon);
    let lease: u64 = lease_of(&flooding.ask("TAKE p")).parse().expect("a number");
    // Leases have consecutive numbers, so all of this can be sent at once.
    let mut lines = String::new();
    for n in 0..PAIRS as u64 {
        lines += &format!("RETURN {}\nTAKE p\n", lease + n);
    }
    let mut writer = flooding.stream().try_clone().expect("a second handle");
    let sending = thread::spawn(move || writer.write_all(lines.as_bytes()).expect("is sent in the end"));
    let slowest = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            for n in 0..PAIRS as u64 {
                assert_eq!(flooding.line(), "RETURNED");
                assert_eq!(flooding.line(), format!("MEMBER {} p m0", lease + n + 1));
            }
        });
        let mut slowest = Duration::ZERO;
        while !reading.is_finished() {
            slowest = slowest.max(serves_others(&daemon));
        }
        slowest
    });
    sending.join().expect("everything was sent");
    println!("during {PAIRS} returns and takes in one stream others waited for {slowest:?} at most");
    assert!(slowest < PROMPT);
    assert_eq!(figure(&mut operator, "in_use"), 1);
}

/// Returns the latency of another client.
fn serves_others(daemon: &Daemon) -> Duration {
    let mut other = connect(daemon);
    let begun = Instant::now();
    assert!(other.ask("UTILIZATION p").starts_with("max "));
    begun.elapsed()
}

/// A thousand connections, half of which hold a member while the others wait for one, are lost at the same time.
#[test]
fn a_thousand_connections_are_lost_at_once() {
    const HALF: usize = 500;
    let daemon = start();
    let mut operator = declare(&daemon, HALF, "on_loss=ok");
    for how in ["closed", "reset", "half-closed"] {
        let mut clients: Vec<Client> = (0..2 * HALF).map(|_| connect(&daemon)).collect();
        clients.iter_mut().for_each(|client| client.send(b"TAKE p 600\n"));
        let count = HALF as u32;
        wait_for(&mut operator, "in_use", count);
        wait_for(&mut operator, "queued", count);
        let begun = Instant::now();
        match how {
            "closed" => drop(clients),
            "reset" => clients.into_iter().for_each(Client::reset),
            _ => clients.iter_mut().for_each(Client::finish),
        }
        wait_for(&mut operator, "free", count);
        println!("{HALF} members were back {:?} after their holders were {how}", begun.elapsed());
        assert!(begun.elapsed() < PROMPT);
        assert_eq!((figure(&mut operator, "in_use"), figure(&mut operator, "queued")), (0, 0));
        serves_promptly(&mut operator);
    }
}

/// A thousand lost holders, whose members are replaced: each by exactly one.
#[test]
fn members_of_a_thousand_lost_holders_are_replaced() {
    const HOLDERS: u32 = 1000;
    let daemon = start();
    let mut operator = connect(&daemon);
    assert_eq!(operator.ask(&format!("POOL p 0 {HOLDERS} queue=5000 cull_interval=0")), "OK");
    let mut provider = connect(&daemon);
    assert_eq!(provider.ask("PROVIDE p"), "OK");
    let (mut started, mut stopped) = (0, 0);
    let mut work = |provider: &mut Client, starts: u32, stops: u32| {
        while started < starts || stopped < stops {
            let line = provider.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["!START", "p", id] => {
                    started += 1;
                    provider.send(format!("STARTED {id} m{id}\n").as_bytes());
                }
                ["!STOP", "p", member] => {
                    stopped += 1;
                    provider.send(format!("STOPPED {member}\n").as_bytes());
                }
                _ => assert_eq!(line, "OK"),
            }
        }
        (started, stopped)
    };
    let mut holders: Vec<Client> = (0..HOLDERS).map(|_| connect(&daemon)).collect();
    holders.iter_mut().for_each(|client| client.send(b"TAKE p 600\n"));
    work(&mut provider, HOLDERS, 0);
    holders.iter_mut().for_each(|client| assert!(client.line().starts_with("MEMBER ")));
    // Others wait, and get the replacements of the lost members.
    let mut waiters: Vec<Client> = (0..HOLDERS / 2).map(|_| connect(&daemon)).collect();
    waiters.iter_mut().for_each(|client| client.send(b"TAKE p 600\n"));
    wait_for(&mut operator, "queued", HOLDERS / 2);
    drop(holders);
    work(&mut provider, 2 * HOLDERS, HOLDERS);
    waiters.iter_mut().for_each(|client| assert!(client.line().starts_with("MEMBER ")));
    wait_for(&mut operator, "free", HOLDERS / 2);
    assert_eq!(figure(&mut operator, "starting") + figure(&mut operator, "stopping"), 0);
    // A lost provider takes all of them with it, and each holder is notified.
    provider.reset();
    for waiter in &mut waiters {
        let told = loop {
            let line = waiter.line();
            if line != "OK" {
                break line;
            }
        };
        assert!(told.starts_with("!LOST ") && told.ends_with(" provider_lost"), "{told}");
    }
    assert_eq!(figure(&mut operator, "free") + figure(&mut operator, "in_use"), 0);
}
