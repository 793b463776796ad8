//! Operations from pages: a POST gets the result as its response.

use super::resource::PLAIN;
use super::wire::{HttpRequest, ResponseHead, Status};
use super::{Http, respond};
use log::info;
use percent_encoding::percent_decode_str;
use poolcounter_core::ConnId;
use poolcounter_core::text::escaped;
use poolcounter_service::contract::{Context, Effect, OperationError, OperationResult, Requester};

impl Http {
    /// Requests an operation `NAME/ARGUMENT` of a service, if it is allowed and the request comes from a page of this
    /// server: a foreign page can make a browser send a request, but not with this server's origin. The response
    /// follows with the result.
    pub(super) fn operate(
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
        let Some((name, argument)) = thing.split_once('/') else { return Err(Status::NotFound) };
        let offered = self.operations.on_page(service, name).filter(|_| service != context.called.info.name);
        let offered = offered.ok_or(Status::NotFound)?;
        let from = |number| Requester { service: context.called.id, conn, number };
        let argument: Vec<u8> = percent_decode_str(argument).collect();
        let act = format!("{}, by a button: {service} {name} {}", context.conns.peers.peer(conn), escaped(&argument));
        let number = self.pending.begin(conn, (request.connection, act));
        context.effects.push(match offered {
            Ok(offered) => Effect::Operate(offered.request(from(number), argument)),
            Err(error) => Effect::Done(from(number), Err(error)),
        });
        Ok(())
    }

    /// Responds to the request for an operation.
    pub(super) fn respond_with_result(&mut self, from: Requester, result: &OperationResult, context: &mut Context<'_>) {
        let Some((conn, (connection, act))) = self.pending.end(from.number) else { return };
        let (status, words) = match result {
            Ok(words) => {
                info!("{act}");
                context.effects.push(Effect::Acted(act));
                (Status::Ok, words.as_str())
            }
            Err(reason) => (status_of(reason), reason.text()),
        };
        let Some(conn) = conn else { return };
        let body = format!("{words}\n");
        let head = ResponseHead { status, content_type: PLAIN, length: body.len(), policy: None, connection };
        respond(conn, &head, &body, context);
    }
}

/// Returns the HTTP status for a failed operation.
fn status_of(reason: &OperationError) -> Status {
    match reason {
        OperationError::Malformed(_) => Status::BadRequest,
        OperationError::NotFound(_) => Status::NotFound,
        OperationError::Refused(_) => Status::Conflict,
        OperationError::Unknown(_) => Status::InternalServerError,
    }
}
