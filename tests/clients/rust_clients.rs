//! The crates beanstalkc and beanstalkd, with a server on the port of the argument.

use beanstalkc::Beanstalkc;
use beanstalkd::Beanstalkd;
use std::time::Duration;

fn main() {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("a port is named");
    with_beanstalkc(port);
    with_beanstalkd(port);
}

fn with_beanstalkc(port: u16) {
    let connect = || Beanstalkc::new().host("127.0.0.1").port(port).connect().expect("connects");
    let mut client = connect();
    assert_eq!(client.use_tube("mail").expect("is used"), "mail");
    assert_eq!(client.watch("mail").expect("is watched"), 2);
    assert_eq!(client.ignore("default").expect("is ignored"), 1);
    let id = client.put(b"two\r\nlines", 3, Duration::ZERO, Duration::from_secs(60)).expect("is put");
    let mut job = client.reserve().expect("there is one");
    assert_eq!((job.id(), job.body(), job.reserved()), (id, &b"two\r\nlines"[..], true));
    assert_eq!(job.stats().expect("is told")["state"], "reserved");
    job.touch().expect("is ours");
    job.release(9, Duration::ZERO).expect("is ours");
    let mut job = client.reserve_with_timeout(Duration::from_secs(1)).expect("there is one");
    job.bury(1).expect("is ours");
    assert_eq!(client.peek_buried().expect("is buried").id(), id);
    assert_eq!(client.kick(5).expect("is kicked"), 1);
    assert_eq!(client.peek_ready().expect("is ready").body(), b"two\r\nlines");
    assert_eq!(client.stats_job(id).expect("is told")["kicks"], "1");
    assert_eq!(client.stats_tube("mail").expect("is told")["current-jobs-ready"], "1");
    client.delete(id).expect("is there");
    assert!(client.peek(id).is_err() && client.delete(id).is_err());
    assert!(client.reserve_with_timeout(Duration::ZERO).is_err());
    let later = client.put(b"later", 3, Duration::from_secs(100), Duration::from_secs(60)).expect("is put");
    assert_eq!(client.peek_delayed().expect("is delayed").id(), later);
    client.kick_job(later).expect("is delayed");
    client.pause_tube("mail", Duration::from_secs(100)).expect("is a tube");
    assert!(client.reserve_with_timeout(Duration::ZERO).is_err());
    client.pause_tube("mail", Duration::ZERO).expect("is a tube");
    let mut job = client.reserve().expect("there is one");
    job.delete().expect("is ours");
    assert_eq!(client.using().expect("is told"), "mail");
    assert_eq!(client.watching().expect("are told"), ["mail"]);
    assert_eq!(client.tubes().expect("are told"), ["default", "mail"]);
    assert_eq!(client.stats().expect("are told")["total-jobs"], "2");
}

fn with_beanstalkd(port: u16) {
    let mut client = Beanstalkd::connect("127.0.0.1", port).expect("connects");
    client.tube("news").expect("is used");
    assert_eq!(client.watch("news").expect("is watched"), 2);
    assert_eq!(client.ignore("default").expect("is ignored"), Some(1));
    let id = client.put("a job", 1, 0, 60).expect("is put");
    assert_eq!(client.reserve().expect("there is one"), (id, "a job".to_string()));
    assert_eq!(client.stats().expect("are told")["current-jobs-reserved"], "1");
    client.delete(id).expect("is ours");
    assert!(client.delete(id).is_err());
}
