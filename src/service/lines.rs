//! Lines of a turn, for services with line-based protocols.

use crate::contract::{Context, Input, REQUESTS_PER_TURN, Served, Then};
use log::debug;
use poolcounter_core::ConnId;
use poolcounter_core::browser::is_from_browser;
use poolcounter_protocol::line::{LINE_TOO_LONG, Line, first_line};

/// Progress of a line's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Done: the next line can be served.
    Done,
    /// Done, but the reply comes later, and no request is served before.
    Waits,
    /// To be served again: its reply is too long for one turn.
    Partly,
    /// Done, and the connection is to be closed.
    Over,
}

/// Serves the lines at the front of the input, in order, each of at most `longest` bytes without its end. Closes the
/// connections of browsers.
pub fn serve_lines(
    conn: ConnId,
    input: Input<'_>,
    longest: usize,
    context: &mut Context<'_>,
    mut serve: impl FnMut(&[u8], &mut Context<'_>) -> Progress,
) -> Served {
    let Input { bytes: input, seen, .. } = input;
    let mut consumed = 0;
    for _ in 0..REQUESTS_PER_TURN {
        if consumed > 0 && consumed == input.len() {
            return Served { consumed, then: Then::Read };
        }
        if context.output.is_full(conn) {
            break;
        }
        let seen = if consumed == 0 { seen } else { 0 };
        match first_line(&input[consumed..], seen, longest) {
            Line::Whole(line, _) if is_from_browser(line) => {
                debug!("{conn} is a browser, and is closed");
                return Served { consumed: input.len(), then: Then::Close };
            }
            Line::Whole(line, len) => match serve(line, context) {
                Progress::Done => consumed += len,
                Progress::Waits => return Served { consumed: consumed + len, then: Then::Wait },
                Progress::Partly => break,
                Progress::Over => return Served { consumed: input.len(), then: Then::Close },
            },
            Line::Partial => return Served { consumed, then: Then::Read },
            Line::TooLong => {
                context.output.reply_lines(conn, |bytes| bytes.extend_from_slice(LINE_TOO_LONG));
                return Served { consumed: input.len(), then: Then::Close };
            }
        }
    }
    Served { consumed, then: Then::Serve }
}
