//! Host names of this server: check of the Host header of requests.
//!
//! A web page that a user visits can make its own name resolve to this machine, and then request the status page as its
//! own origin (DNS rebinding). The browser sends that name, so names that this server does not have are refused. An IP
//! address cannot be made to resolve elsewhere.

use nix::unistd::gethostname;
use std::net::IpAddr;

/// Names of this server, in lower case.
#[derive(Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Returns the names in the settings, with `localhost` and the machine's own.
    pub fn with(named: &[String]) -> Hosts {
        let own = gethostname().ok().and_then(|name| name.into_string().ok());
        let own = own.map(|name| name.to_ascii_lowercase()).filter(|name| !name.is_empty());
        Hosts(named.iter().cloned().chain(["localhost".into()]).chain(own).collect())
    }

    /// Returns true if a request with this Host, with or without a port, is for this server.
    pub fn include(&self, host: &str) -> bool {
        let in_brackets = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some((ip, port)) = in_brackets {
            return ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) && is_port(port);
        }
        let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_ip = name.parse::<IpAddr>().is_ok();
        is_port(port) && (is_ip || self.0.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }
}

/// Returns true if this can follow a name: nothing, or a colon and digits.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_names_and_addresses_are_included() {
        let hosts = Hosts::with(&["status.example.org".into()]);
        for host in [
            "localhost",
            "LocalHost:7580",
            "localhost.",
            "127.0.0.1",
            "192.0.2.7:80",
            "[::1]",
            "[2001:db8::7]:7580",
            "status.example.org",
            "Status.Example.Org.:7580",
        ] {
            assert!(hosts.include(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "status.example.org.evil.example",
            "evil.status.example.org",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]evil",
            "[127.0.0.1]",
            "localhost:80:80",
            "localhost:x",
            "user@localhost",
            ".",
        ] {
            assert!(!hosts.include(host), "{host}");
        }
        let own = gethostname().expect("is there").into_string().expect("is text");
        assert!(hosts.include(&own.to_uppercase()) && hosts.include(&format!("{own}:7580")), "{own}");
    }
}
