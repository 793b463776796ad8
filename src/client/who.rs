//! Name under which a client appears in the lists of servers.

use poolcounter_protocol::pools::wire::MAX_WHO;
use std::{env, fs, process};

/// File with the name of this machine.
const HOST: &str = "/proc/sys/kernel/hostname";

/// Returns the name of this process: `user@host:pid`, as far as known.
pub fn own_name() -> String {
    let user = env::var("USER").or_else(|_| env::var("LOGNAME")).unwrap_or_default();
    let host = fs::read_to_string(HOST).unwrap_or_default();
    let pid = process::id();
    let [user, host] = [user, host].map(|name| sendable(&name, (MAX_WHO - "@:4294967295".len()) / 2));
    if user.is_empty() { format!("{host}:{pid}") } else { format!("{user}@{host}:{pid}") }
}

/// Returns the visible ASCII characters of a name, at most `most`.
pub(super) fn sendable(name: &str, most: usize) -> String {
    name.chars().filter(char::is_ascii_graphic).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_can_be_sent() {
        assert_eq!(sendable(" a b\tc\u{e4}\0d\n", 3), "abc");
        let name = own_name();
        assert!(name.len() <= MAX_WHO && name.ends_with(&format!(":{}", process::id())), "{name}");
    }
}
