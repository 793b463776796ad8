//! Messages to connections, as lines: the part that both sides of the protocol have.

use super::text_of;
use crate::members::request::{Attributes, Lost, NoMembers, Refusal, Taken, Token, What};
use poolcounter_core::decimal::push_number;
use std::io::Write;

/// Writes a message to a connection, with its line feed.
pub fn write_what(bytes: &mut Vec<u8>, what: &What) {
    match what {
        What::Ok => bytes.extend_from_slice(b"OK"),
        What::Error(refusal) => write_refusal(bytes, *refusal),
        What::Member(taken) => write_taken(bytes, taken),
        What::Members(members) => {
            write(bytes, format_args!("MEMBERS {}", members.len()));
            for taken in members {
                bytes.push(b'\n');
                write_taken(bytes, taken);
            }
        }
        What::NoMembers(reason) => write(bytes, format_args!("NO_MEMBERS {}", reason_of(*reason))),
        What::QueueFull => bytes.extend_from_slice(b"QUEUE_FULL"),
        What::Limit => bytes.extend_from_slice(b"LIMIT"),
        What::Returned => bytes.extend_from_slice(b"RETURNED"),
        What::Renewed => bytes.extend_from_slice(b"RENEWED"),
        What::NotTaken => bytes.extend_from_slice(b"NOT_TAKEN"),
        What::Bye => bytes.extend_from_slice(b"BYE"),
        What::Start { pool, start } => {
            write_words(bytes, &[b"!START", pool]);
            write(bytes, format_args!(" {start}"));
        }
        What::Stop { pool, member } => write_words(bytes, &[b"!STOP", pool, member]),
        What::Check { pool, member } => write_words(bytes, &[b"!CHECK", pool, member]),
        What::Clean { pool, member } => write_words(bytes, &[b"!CLEAN", pool, member]),
        What::Lost { lease, reason, by } => {
            write(bytes, format_args!("!LOST {lease} {}", lost_of(*reason)));
            if let Some(by) = by {
                bytes.extend_from_slice(b" by=");
                write_escaped(bytes, &by.name);
                if !by.note.is_empty() {
                    write_words(bytes, &[b"", &by.note]);
                }
            }
        }
    }
    bytes.push(b'\n');
}

fn write_taken(bytes: &mut Vec<u8>, taken: &Taken) {
    bytes.extend_from_slice(b"MEMBER ");
    push_number(bytes, taken.lease);
    bytes.push(b' ');
    write_words(bytes, &[&taken.pool, &taken.member]);
    taken.attributes.iter().for_each(|attributes| write_attributes(bytes, attributes));
    if let Some(token) = taken.token {
        bytes.extend_from_slice(b" token=");
        write_token(bytes, &token);
    }
}

pub(super) fn write_token(bytes: &mut Vec<u8>, token: &Token) {
    token.iter().for_each(|byte| write(bytes, format_args!("{byte:02x}")));
}

/// Writes attributes with a space before each.
pub fn write_attributes(bytes: &mut Vec<u8>, attributes: &Attributes) {
    for (name, value) in attributes {
        bytes.push(b' ');
        bytes.extend_from_slice(name);
        bytes.push(b'=');
        bytes.extend_from_slice(value);
    }
}

fn write_refusal(bytes: &mut Vec<u8>, refusal: Refusal) {
    let (code, text) = match refusal {
        Refusal::BadCommand => ("BAD_COMMAND", ""),
        Refusal::BadSyntax(text) => ("BAD_SYNTAX", text),
        Refusal::BadSettings(contradiction) => ("BAD_SYNTAX", text_of(contradiction)),
        Refusal::NoPool => ("NO_POOL", ""),
        Refusal::PoolDiffers => {
            ("POOL_DIFFERS", "the pool has other settings, which RECONFIGURE changes, or it is being removed")
        }
        Refusal::PoolFull => ("POOL_FULL", ""),
        Refusal::MemberExists => ("MEMBER_EXISTS", ""),
        Refusal::TooLate => ("TOO_LATE", ""),
        Refusal::TooMany => ("TOO_MANY", ""),
        Refusal::Waiting => ("WAITING", ""),
        Refusal::NoSuchMember => ("NO_SUCH_MEMBER", ""),
        Refusal::BadStart => ("BAD_START", ""),
        Refusal::NotProvider => ("NOT_PROVIDER", ""),
        Refusal::NotWaiting => ("NOT_WAITING", ""),
        Refusal::NotAdmin => ("NOT_ADMIN", ""),
        Refusal::Denied => ("DENIED", ""),
        Refusal::Limited => ("LIMITED", ""),
        Refusal::NotKept(text) => ("NOT_KEPT", text),
    };
    write(bytes, format_args!("ERROR {code}"));
    if !text.is_empty() {
        write(bytes, format_args!(" {text}"));
    }
}

pub(super) fn reason_of(reason: NoMembers) -> &'static str {
    match reason {
        NoMembers::AtCapacity => "at_capacity",
        NoMembers::Starting => "starting",
        NoMembers::NoProvider => "no_provider",
        NoMembers::Timeout => "timeout",
        NoMembers::Removed => "removed",
        NoMembers::Cancelled => "cancelled",
    }
}

/// Returns the word of a loss.
pub fn lost_of(reason: Lost) -> &'static str {
    match reason {
        Lost::Died => "died",
        Lost::Withdrawn => "withdrawn",
        Lost::TakenBack => "taken_back",
        Lost::HeldTooLong => "held_too_long",
        Lost::ProviderLost => "provider_lost",
        Lost::Removed => "removed",
        Lost::Expired => "expired",
    }
}

/// Writes words with a space between each.
pub fn write_words(bytes: &mut Vec<u8>, words: &[&[u8]]) {
    for (n, word) in words.iter().enumerate() {
        if n > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(word);
    }
}

/// Writes text as one word, with percent escapes for all but visible ASCII.
pub fn write_escaped(bytes: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'!'..=b'~' if *byte != b'%' => bytes.push(*byte),
            _ => write(bytes, format_args!("%{byte:02X}")),
        }
    }
}

/// Writes formatted text.
pub fn write(bytes: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    bytes.write_fmt(text).expect("a vector takes every byte");
}
