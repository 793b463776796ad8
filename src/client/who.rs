//! Name under which a client appears in the lists of servers.

use poolcounter_protocol::pools::wire::MAX_WHO;
use std::os::unix::fs::MetadataExt;
use std::{env, fs, process};

/// File with the name of this machine.
const HOST: &str = "/proc/sys/kernel/hostname";

/// Returns the name of this process: `user@host:pid`, as far as known.
pub fn own_name() -> String {
    format!("{}:{}", own_user(), process::id())
}

/// Returns the name of the user who runs this process, and of the machine: `user@host`, as far as known.
pub fn own_user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| env::var(name).ok().filter(|user| !user.is_empty()));
    let user = named.or_else(user_by_id).unwrap_or_default();
    let host = fs::read_to_string(HOST).unwrap_or_default();
    let [user, host] = [user, host].map(|name| sendable(&name, (MAX_WHO - "@:4294967295".len()) / 2));
    if user.is_empty() { host } else { format!("{user}@{host}") }
}

/// Returns the name of the user whom this process runs as, or the number of a user without a name.
fn user_by_id() -> Option<String> {
    let id = fs::metadata("/proc/self").ok()?.uid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_string())
    });
    Some(name.unwrap_or(id))
}

/// Returns a name as it is sent, of `most` bytes at most: a space is `%20`, and control characters are left out.
pub(super) fn sendable(name: &str, most: usize) -> String {
    let mut sent = String::new();
    for part in name.chars().filter(|c| !c.is_control()) {
        let part = if part == ' ' { "%20".into() } else { part.to_string() };
        if sent.len() + part.len() > most {
            break;
        }
        sent.push_str(&part);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_can_be_sent() {
        assert_eq!(sendable("a b\tc\u{e4}\0d\n", 8), "a%20bc\u{e4}");
        assert_eq!(sendable("ab ", 4), "ab");
        let name = own_name();
        assert!(name.len() <= MAX_WHO && name.ends_with(&format!(":{}", process::id())), "{name}");
        assert!(user_by_id().is_some_and(|user| !user.is_empty()));
    }
}
