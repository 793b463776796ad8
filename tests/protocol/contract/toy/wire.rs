//! Lines of the toy's protocol, independent of the state.

use poolcounter_core::time::Span;

/// Maximum length of a line with its end, in bytes.
pub const MAX_LINE: usize = 4096;

/// Request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// `PUT text`: stores a text; the reply comes after the commit.
    Put(&'a str),
    /// `GET n`: returns the text with this number, if it is committed.
    Get(u64),
    /// `WAIT n ms` and `STAY n ms`: returns the text as soon as it is committed. `WAIT` ends when the peer closes its
    /// side.
    Wait {
        /// Number of the text; 0 for the end of another connection.
        number: u64,
        /// Minimum of the time until the timeout.
        patience: Span,
        /// True if the wait outlasts a half-close.
        stays: bool,
    },
    /// `LATER ms text`: stores a text after some time, even if the client has disconnected.
    Later(Span, &'a str),
    /// `RISK`: returns the number of things that all other services would lose if the daemon ended now.
    Risk,
    /// `FILL n`: returns a line of `n` bytes.
    Fill(usize),
    /// `QUIT`: ends the connection.
    Quit,
    /// Anything else.
    Unknown,
}

/// Reply to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The text is committed, under this number.
    Stored(u64, String),
    /// The text with this number.
    Text(u64, String),
    /// No text has this number yet.
    Missing,
    /// Another connection has ended.
    Left,
    /// The wait has timed out.
    Late,
    /// The wait has ended because the peer closed its side.
    Gone,
    /// The request was accepted.
    Agreed,
    /// Number of things that other services would lose.
    Risk(u64),
    /// A line of this length.
    Filler(usize),
    /// The last reply.
    Bye,
    /// Unknown request.
    Unknown,
}

/// Reply in the place of a reply whose commit has failed.
pub const LOST: &[u8] = b"LOST\n";

/// Returns the first line without its end, and its length with the end.
pub fn first_line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    Some((&input[..end], end + 1))
}

/// Returns the request of a line.
pub fn parse(line: &[u8]) -> Request<'_> {
    try_parse(line).unwrap_or(Request::Unknown)
}

fn try_parse(line: &[u8]) -> Option<Request<'_>> {
    let line = str::from_utf8(line).ok()?;
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let two = || rest.split_once(' ');
    let millis = |text: &str| text.parse().ok().map(Span::from_millis);
    Some(match name {
        "PUT" => Request::Put(rest),
        "GET" => Request::Get(rest.parse().ok()?),
        "WAIT" | "STAY" => {
            let (number, patience) = two()?;
            Request::Wait { number: number.parse().ok()?, patience: millis(patience)?, stays: name == "STAY" }
        }
        "LATER" => {
            let (time, text) = two()?;
            Request::Later(millis(time)?, text)
        }
        "FILL" => Request::Fill(rest.parse().ok()?),
        "RISK" => Request::Risk,
        "QUIT" => Request::Quit,
        _ => return None,
    })
}

/// Appends a reply.
pub fn write(bytes: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Stored(number, text) => bytes.extend_from_slice(format!("STORED {number} {text}\n").as_bytes()),
        Reply::Text(number, text) => bytes.extend_from_slice(format!("TEXT {number} {text}\n").as_bytes()),
        Reply::Missing => bytes.extend_from_slice(b"NONE\n"),
        Reply::Left => bytes.extend_from_slice(b"LEFT\n"),
        Reply::Late => bytes.extend_from_slice(b"LATE\n"),
        Reply::Gone => bytes.extend_from_slice(b"GONE\n"),
        Reply::Agreed => bytes.extend_from_slice(b"OK\n"),
        Reply::Risk(count) => bytes.extend_from_slice(format!("RISK {count}\n").as_bytes()),
        Reply::Filler(len) => {
            bytes.resize(bytes.len() + len.saturating_sub(1), b'x');
            bytes.push(b'\n');
        }
        Reply::Bye => bytes.extend_from_slice(b"BYE\n"),
        Reply::Unknown => bytes.extend_from_slice(b"ERROR\n"),
    }
}
