//! Actions of pages: a POST is answered with the result.

use super::resource::PLAIN;
use super::wire::{AfterResponse, HttpRequest, ResponseHead, Status};
use super::{Http, send};
use percent_encoding::percent_decode_str;
use poolcounter_core::id::ConnId;
use poolcounter_service::contract::{Act, Acted, Asker, Context, NotDone};

/// Acts under way, each with the connection that waits for the result.
#[derive(Default)]
pub(super) struct Asking {
    /// Number of the last.
    last: u64,
    waiting: Vec<(u64, ConnId, AfterResponse)>,
}

impl Asking {
    fn begin(&mut self, conn: ConnId, connection: AfterResponse) -> u64 {
        self.last += 1;
        self.waiting.push((self.last, conn, connection));
        self.last
    }

    /// Returns the connection that waits for the act of this number; None if it is closed.
    fn end(&mut self, number: u64) -> Option<(ConnId, AfterResponse)> {
        let place = self.waiting.iter().position(|(other, ..)| *other == number)?;
        let (_, conn, connection) = self.waiting.swap_remove(place);
        Some((conn, connection))
    }

    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|(_, other, _)| *other != conn);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Http {
    /// Has a service do something with one of its things, `ACTION/KEY`, where that is allowed and a page of this server asks for
    /// it: a page from elsewhere can have a browser send a request, but not without saying where it is from. The response comes with
    /// the result.
    pub(super) fn act(
        &mut self,
        conn: ConnId,
        service: &str,
        thing: &str,
        request: &HttpRequest<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), Status> {
        let own = request.host.zip(request.origin).is_some_and(|(host, origin)| {
            let from = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            from.is_some_and(|from| from.eq_ignore_ascii_case(host))
        });
        if !self.is_admin || !own || request.site.is_some_and(|site| site != "same-origin") {
            return Err(Status::Forbidden);
        }
        let Some((action, key)) = thing.split_once('/') else { return Err(Status::NotFound) };
        if !context.others.include(service) {
            return Err(Status::NotFound);
        }
        let number = self.asking.begin(conn, request.connection);
        context.acts.push(Act {
            asker: Asker { service: context.id, conn, number },
            service: service.into(),
            action: action.into(),
            key: percent_decode_str(key).collect(),
        });
        Ok(())
    }

    /// Responds to the request that has asked for an act.
    pub(super) fn tell_result(&mut self, asker: Asker, result: &Acted, context: &mut Context<'_>) {
        let Some((conn, connection)) = self.asking.end(asker.number) else { return };
        let (status, words) = match result {
            Ok(words) => (Status::Ok, words.as_str()),
            Err(reason) => (status_of(reason), reason.text()),
        };
        let body = format!("{words}\n");
        let head = ResponseHead { status, content_type: PLAIN, length: body.len(), policy: None, connection };
        send(conn, &head, &body, context);
        match connection {
            AfterResponse::Ends => context.end(conn),
            AfterResponse::Stays | AfterResponse::StaysOnRequest => context.resume(conn),
        }
    }
}

/// Returns the status of an act that was not done.
fn status_of(reason: &NotDone) -> Status {
    match reason {
        NotDone::Malformed(_) => Status::BadRequest,
        NotDone::NotFound(_) => Status::NotFound,
        NotDone::Refused(_) => Status::Conflict,
        NotDone::Unknown(_) => Status::InternalServerError,
    }
}
