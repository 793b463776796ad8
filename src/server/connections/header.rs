//! Headers of proxies about their clients: a connection has no place before its header.

use super::{Connections, LOOP};
use crate::connection::{Phase, Place, Stream};
use log::debug;
use poolcounter_core::proxy::{Header, MAX_HEADER};
use poolcounter_core::{ConnId, Id, Span, Time};
use poolcounter_service::contract::Peers as _;

/// Time that a proxy has for sending its header.
const HEADER_TIME: Span = Span::from_secs(10);

impl<S: Stream> Connections<S> {
    /// Waits for the header in which the proxy of a new connection names its client. The connection has no place until
    /// then.
    pub(super) fn await_header(&mut self, id: ConnId, now: Time) {
        let header_timer = self.dispatch.wheel.of(LOOP).arm(now + HEADER_TIME, id);
        let conn = &mut self.slab[id.index()];
        conn.phase = Phase::Unidentified { header_timer };
        conn.place = Place::Awaited;
        self.awaited[conn.service] += 1;
    }

    /// Reads the header of a proxy, before the first request of its client. The connection's first turn follows.
    #[cold]
    pub(super) fn read_header(&mut self, id: ConnId, clock: &impl Fn() -> Time) {
        let conn = &mut self.slab[id.index()];
        self.read_buffer.load(&mut conn.unserved, MAX_HEADER);
        let received = if self.read_buffer.wants_more() { conn.read(&mut self.read_buffer) } else { Ok(()) };
        let now = clock();
        let header = Header::read(self.read_buffer.bytes());
        let consumed = header.as_ref().map_or(0, |header| header.as_ref().map_or(0, |(_, len)| *len));
        conn.unserved = self.read_buffer.unserved(consumed);
        let (is_over, has_more, service) = (conn.eof, conn.readable, conn.service);
        match (received, header) {
            (Err(error), _) => self.fail(id, &error, now),
            (_, Err(malformed)) => {
                self.count_error(service);
                self.fail(id, &malformed.text(), now);
            }
            (_, Ok(Some((header, len)))) => {
                self.dispatch.services[service].traffic.received_bytes += len as u64;
                self.accept_proxy_header(id, header, now);
            }
            (_, Ok(None)) if is_over => self.fail(id, &"it ended before its proxy said who its client is", now),
            (_, Ok(None)) if has_more => self.make_ready(id),
            (_, Ok(None)) => {}
        }
    }

    /// Sets the client of a connection to that of the header, and admits it.
    fn accept_proxy_header(&mut self, id: ConnId, header: Header, now: Time) {
        let conn = &mut self.slab[id.index()];
        if let Some(timer) = conn.take_header_timer() {
            self.dispatch.wheel.of::<ConnId>(LOOP).cancel(timer);
        }
        conn.header = Some(header.into());
        debug!("{id} is for {}", self.slab.peer(id));
        self.admit_client(id, now);
    }
}
