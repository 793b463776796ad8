//! Addresses to listen on, as text. It knows no sockets: a bind shows if an address is free.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Longest path of a local socket on Linux, in bytes.
const MAX_PATH: usize = 107;

/// Address to listen on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Address {
    /// IP address and port; port 0 lets the system choose one.
    Tcp(SocketAddr),
    /// Path in the file system.
    Unix(PathBuf),
    /// An address to which only proxies connect, each with a header about its client.
    Proxied(Box<Address>),
}

impl Address {
    /// Reads `IP`, `IP:PORT`, `[IP6]`, `[IP6]:PORT` or `unix:PATH`, each with or without `proxy:` before it; None for
    /// other text.
    pub fn parse(text: &str, default_port: u16) -> Option<Address> {
        if let Some(inner) = text.strip_prefix("proxy:") {
            let inner = Address::parse(inner, default_port).filter(|inner| !inner.is_proxied());
            return inner.map(|inner| Address::Proxied(inner.into()));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return (!path.is_empty()).then(|| Address::Unix(path.into()));
        }
        let in_brackets = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
        let with_default = |ip: IpAddr| SocketAddr::new(ip, default_port);
        let address = text.parse().ok().or_else(|| text.parse().ok().or_else(in_brackets).map(with_default));
        address.map(Address::Tcp)
    }

    /// Returns a suggestion in place of a text that is no address, if there is a likely one, else `forms`.
    pub fn wanted(text: &str, forms: &str) -> String {
        let bare = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let (host, port) = bare.split_once(':').map_or((bare, ""), |(host, _)| (host, &bare[host.len()..]));
        let is_port = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        let instead = match host {
            _ if text.starts_with('/') => format!("unix:{text}"),
            _ if is_port => format!("127.0.0.1:{bare}"),
            "localhost" => format!("127.0.0.1{port}"),
            "*" | "" if port.len() > 1 => format!("0.0.0.0{port}"),
            "*" => "0.0.0.0".into(),
            _ => bare.into(),
        };
        let is_name = host.starts_with(|c: char| c.is_ascii_alphabetic())
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            && (port.is_empty() || port[1..].bytes().all(|byte| byte.is_ascii_digit()));
        match (Address::parse(&instead, 0).is_some(), is_name) {
            (true, true) => format!("an address: names of hosts are not resolved; use {instead}"),
            (true, false) => format!("an address; use {instead}"),
            (false, true) => format!("{forms}: names of hosts are not resolved"),
            (false, false) => forms.into(),
        }
    }

    /// Returns whether only proxies connect to it.
    pub fn is_proxied(&self) -> bool {
        matches!(self, Address::Proxied(_))
    }

    /// Returns the address of the socket, without `proxy:`.
    pub fn socket(&self) -> &Address {
        match self {
            Address::Proxied(inner) => inner,
            own => own,
        }
    }

    /// Returns whether the system can bind it: paths of sockets are short.
    pub fn fits(&self) -> bool {
        match self {
            Address::Tcp(_) => true,
            Address::Unix(path) => path.as_os_str().len() <= MAX_PATH,
            Address::Proxied(inner) => inner.fits(),
        }
    }

    /// Returns whether two sockets cannot listen on these at the same time.
    pub fn overlaps(&self, other: &Address) -> bool {
        match (self.socket(), other.socket()) {
            (Address::Tcp(one), Address::Tcp(other)) => {
                let is_same_family = one.is_ipv4() == other.is_ipv4();
                let is_same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
                one.port() == other.port() && one.port() != 0 && is_same_family && is_same_ip
            }
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Proxied(inner) => write!(f, "proxy:{inner}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses() {
        for (text, want) in [
            ("127.0.0.1", "127.0.0.1:7531"),
            ("10.1.2.3:99", "10.1.2.3:99"),
            ("::1", "[::1]:7531"),
            ("[::1]", "[::1]:7531"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("unix:/run/p.sock", "unix:/run/p.sock"),
            ("proxy:unix:/run/p.sock", "proxy:unix:/run/p.sock"),
            ("proxy:10.1.2.3", "proxy:10.1.2.3:7531"),
        ] {
            assert_eq!(Address::parse(text, 7531).map(|a| a.to_string()).as_deref(), Some(want));
        }
        for text in [
            "",
            "localhost",
            "1.2.3",
            "1.2.3.4:",
            "1.2.3.4:99999",
            "[::1",
            "unix:",
            "[1.2.3.4]x",
            "proxy:",
            "proxy:proxy:::1",
        ] {
            assert_eq!(Address::parse(text, 7531), None, "{text}");
        }
    }

    #[test]
    fn wrong_address_is_answered_with_a_right_form() {
        for (text, wanted) in [
            ("localhost", "an address: names of hosts are not resolved; use 127.0.0.1"),
            ("localhost:80", "an address: names of hosts are not resolved; use 127.0.0.1:80"),
            ("http://localhost:80/", "an address: names of hosts are not resolved; use 127.0.0.1:80"),
            ("http://10.0.0.1:80", "an address; use 10.0.0.1:80"),
            ("7580", "an address; use 127.0.0.1:7580"),
            (":7580", "an address; use 0.0.0.0:7580"),
            ("*", "an address; use 0.0.0.0"),
            ("/run/p", "an address; use unix:/run/p"),
            ("db1.example.org:80", "IP: names of hosts are not resolved"),
            ("1.2.3", "IP"),
            ("", "IP"),
            ("1.2.3.4:99999", "IP"),
        ] {
            assert_eq!(Address::wanted(text, "IP"), wanted, "{text}");
        }
    }

    #[test]
    fn socket_is_the_same_for_every_user() {
        let of = |text: &str| Address::parse(text, 7531).expect("an address");
        assert!(of("proxy:unix:/p").overlaps(&of("unix:/p")) && of("proxy:0.0.0.0").overlaps(&of("127.0.0.1")));
        assert!(!of("proxy:unix:/p").overlaps(&of("unix:/q")));
    }
}
