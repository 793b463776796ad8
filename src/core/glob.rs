//! Patterns of names, in which `*` stands for any bytes.

/// Returns whether a pattern matches a name.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let mut parts = pattern.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts.filter(|part| !part.is_empty()) {
        let Some(at) = memchr::memmem::find(rest, part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_stands_for_its_names() {
        for (pattern, names, others) in [
            ("k", &["k"][..], &["", "kk", "K"][..]),
            ("a:*", &["a:", "a:b", "a:*"], &["a", "b:a:", "A:b"]),
            ("*", &["", "a", "**"], &[]),
            ("*:user", &[":user", "a:user", "a:user:user"], &["user", "a:user:"]),
            ("a*b*c", &["abc", "aXbYc", "abbc", "abcbc"], &["ab", "acb", "aXc", "abcd"]),
            ("aba*aba", &["abaaba", "abaXaba"], &["aba", "ababa"]),
        ] {
            let matches = |name: &&str| matches(pattern.as_bytes(), name.as_bytes());
            assert_eq!(names.iter().find(|name| !matches(name)), None, "{pattern}");
            assert_eq!(others.iter().find(|name| matches(name)), None, "{pattern}");
        }
    }

    /// A pattern that matches another one as a name includes all names of that one.
    #[test]
    fn pattern_can_be_matched_as_a_name() {
        for (pattern, narrower, others) in
            [("en/*", &["en/*", "en/*x", "en/a*b"][..], &["*", "e*", "en*"][..]), ("*", &["*", "a*"], &[])]
        {
            let matches = |name: &&str| matches(pattern.as_bytes(), name.as_bytes());
            assert!(narrower.iter().all(matches) && !others.iter().any(matches), "{pattern}");
        }
    }
}
