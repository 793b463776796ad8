//! Table of connections by id, and queries of services about them.

use crate::connection::{Connection, Stream};
use poolcounter_core::{ConnId, Id};
use poolcounter_service::contract::{Credentials, GONE, Peers};
use slab::Slab;
use std::ops::{Deref, DerefMut};

/// Table of the connections by id.
pub(super) struct Table<S>(pub(super) Slab<Connection<S>>);

impl<S> Default for Table<S> {
    fn default() -> Self {
        Table(Slab::new())
    }
}

impl<S> Deref for Table<S> {
    type Target = Slab<Connection<S>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<S> DerefMut for Table<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<S: Stream> Peers for Table<S> {
    fn peer(&self, conn: ConnId) -> String {
        let peer = self.get(conn.index()).and_then(|conn| conn.address().ok());
        peer.unwrap_or_else(|| GONE.into())
    }

    fn is_local(&self, conn: ConnId) -> bool {
        self.get(conn.index()).is_some_and(Connection::is_local)
    }

    fn credentials(&self, conn: ConnId) -> Option<Credentials> {
        self.get(conn.index())?.credentials()
    }
}
