//! Cost to the clients of the pools of a constant scraping of the metrics and the status page.

use super::load;
use super::players::Turns;
use super::report::Values;
use super::server::{Program, Server};
use super::settings::Settings;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time between two fetches of every page.
const INTERVAL: Duration = Duration::from_secs(1);
const PAGES: [&str; 3] = ["/metrics", "/status.json", "/"];

/// Returns the replies per second without and with scraping, the decrease in percent, and the increase of the server's
/// processor time for each in percent. Both are measured twice and in turns, so that changes over time cancel out.
pub fn measure(clients: usize, settings: &Settings) -> io::Result<Values> {
    let http = unused_address()?;
    let server = Server::start_with(Program::Ours, &["--http".into(), http.to_string()], settings)?;
    let play = || load::play(&server, clients, &mut Turns::pairs(server.program, clients), settings);
    let first = [play()?, while_scraped(http, play)?];
    let second = [while_scraped(http, play)?, play()?];
    let mean = |one: &Values, other: &Values, value: usize| (one[value] + other[value]) / 2.0;
    let [speed, cost] = [0, 1].map(|value| mean(&first[0], &second[1], value));
    let [scraped_speed, scraped_cost] = [0, 1].map(|value| mean(&first[1], &second[0], value));
    let fewer = (1.0 - scraped_speed / speed) * 100.0;
    let more = (scraped_cost / cost - 1.0) * 100.0;
    Ok(vec![speed, scraped_speed, fewer, more])
}

/// Measures while another thread fetches every page, at once and then again and again.
fn while_scraped(address: SocketAddr, measure: impl Fn() -> io::Result<Values>) -> io::Result<Values> {
    let (stop, stopped) = channel::<()>();
    let scraper = thread::spawn(move || -> io::Result<()> {
        loop {
            PAGES.iter().try_for_each(|page| fetch(address, page).map(drop))?;
            if stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
        }
    });
    let values = measure();
    drop(stop);
    scraper.join().map_err(|_| io::Error::other("the scraper panics"))??;
    values
}

/// Fetches a page, and returns it with its head.
pub fn fetch(address: SocketAddr, page: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8(response).map_err(io::Error::other)?;
    if response.starts_with("HTTP/1.1 200 ") { Ok(response) } else { Err(io::Error::other("a page is missing")) }
}

/// Returns an address that was free a moment ago.
pub fn unused_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
