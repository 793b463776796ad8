//! Conversations: `1> line` is sent by connection 1, `1!> line` by one that is no operator's, `1< line` is what it is told next,
//! `+3s` lets time pass, `1x` closes. A word `$name` in what is told takes what stands there, and gives it back in what is sent.
//! What is told has to be written down to the last line before the next one is sent.

use super::player::Player;
use std::collections::BTreeMap;
use std::time::Duration;

const SCRIPTS: [(&str, &str); 5] = [
    ("pools", include_str!("pools.txt")),
    ("providers", include_str!("providers.txt")),
    ("consumers", include_str!("consumers.txt")),
    ("care", include_str!("care.txt")),
    ("operators", include_str!("operators.txt")),
];

pub fn play_all(with_upgrades: bool) {
    let mut faults = Vec::new();
    for (file, text) in SCRIPTS {
        for chapter in text.split("\n# ").skip(1) {
            let title = chapter.lines().next().unwrap_or_default();
            let played = std::panic::catch_unwind(|| play(chapter, with_upgrades));
            match played {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => faults.push(format!("{file}: {title}: {fault}")),
                Err(_) => faults.push(format!("{file}: {title}: panicked")),
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn play(chapter: &str, with_upgrades: bool) -> Result<(), String> {
    let mut player = Player::new(1);
    let mut words = BTreeMap::new();
    for (n, line) in chapter.lines().enumerate().skip(1) {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with("--") {
            continue;
        }
        let (who, rest) = line.split_at(line.find(['>', '<', 'x', '!', 's']).ok_or(format!("what is {line:?}"))?);
        if let Some(expected) = rest.strip_prefix('<') {
            let told = who
                .parse()
                .ok()
                .and_then(|conn| player.next_line(conn))
                .ok_or(format!("line {n}: {line:?} is not told"))?;
            compare(expected.trim_start(), &told, &mut words)
                .map_err(|()| format!("line {n}: {line:?}, but told is {told:?}"))?;
            continue;
        }
        let unread = player.unread();
        if !unread.is_empty() {
            return Err(format!("before line {n}, {line:?}: {unread:?}"));
        }
        if with_upgrades {
            player.upgrade();
        }
        if let Some(seconds) = line.strip_prefix('+') {
            let seconds = seconds.trim_end_matches('s').parse().map_err(|_| format!("line {n}: {line:?}"))?;
            player.advance(Duration::from_secs_f64(seconds));
            continue;
        }
        let conn = who.parse().map_err(|_| format!("line {n}: who is {who:?}"))?;
        match rest.split_once('>') {
            Some((mark, said)) => player.say(conn, &fill(said.trim_start(), &words), mark.is_empty()),
            None => player.close(conn),
        }
    }
    let unread = player.unread();
    if !unread.is_empty() {
        return Err(format!("at the end: {unread:?}"));
    }
    player.end();
    Ok(())
}

/// Puts in what the words with a dollar stand for.
fn fill(line: &str, words: &BTreeMap<String, String>) -> String {
    words.iter().fold(line.into(), |line: String, (name, value)| line.replace(&format!("${name}"), value))
}

fn compare(expected: &str, told: &str, words: &mut BTreeMap<String, String>) -> Result<(), ()> {
    let expected = fill(expected, words);
    let (mut wanted, mut had) = (expected.split(' '), told.split(' '));
    loop {
        match (wanted.next(), had.next()) {
            (None, None) | (Some("*"), Some(_)) => return Ok(()),
            (Some(wanted), Some(had)) => match wanted.split_once('$') {
                Some((start, name)) if had.starts_with(start) => {
                    words.insert(name.into(), had[start.len()..].into());
                }
                _ if wanted == had => {}
                _ => return Err(()),
            },
            _ => return Err(()),
        }
    }
}
