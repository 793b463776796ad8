//! Idle times of connections, for the services that limit them.

use poolcounter_core::{ConnId, Links, List, SideTable, Span, Time};
use poolcounter_service::container::ServiceId;

/// Connections of the services that limit their idle time.
pub struct IdleQueues {
    /// By service: the limit, and its connections, the longest idle first.
    queues: Vec<(Option<Span>, List<ConnId>)>,
    links: Links,
    /// Number of connections in a queue.
    len: usize,
    /// Time of each connection's last activity, for connections in a queue.
    since: SideTable<ConnId, Time>,
}

impl IdleQueues {
    /// Returns the queues for the limits of the services, in the order of the registry.
    pub fn new(limits: impl Iterator<Item = Option<Span>>) -> Self {
        let queues = limits.map(|limit| (limit, List::default())).collect();
        IdleQueues { queues, links: Links::default(), len: 0, since: SideTable::default() }
    }

    /// Notes that a connection was active at `now`.
    #[inline]
    pub fn note_activity(&mut self, id: ConnId, service: ServiceId, now: Time) {
        if self.queues[service.index()].0.is_some() {
            self.put_last(id, service, now);
        }
    }

    fn put_last(&mut self, id: ConnId, service: ServiceId, now: Time) {
        self.remove(id, service);
        *self.since.get_mut(id) = now;
        self.queues[service.index()].1.push_back(&mut self.links, id);
        self.len += 1;
    }

    /// Removes a connection.
    pub fn remove(&mut self, id: ConnId, service: ServiceId) {
        if self.links.is_linked(id) {
            self.queues[service.index()].1.remove(&mut self.links, id);
            self.len -= 1;
        }
    }

    /// Returns true if a connection is in a queue.
    pub fn contains(&self, id: ConnId) -> bool {
        self.links.is_linked(id)
    }

    /// Returns true if no connection is in a queue.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Compares the queues with each other and with the connections. `service_of` returns the service of a connection
    /// that is served.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self, service_of: impl Fn(ConnId) -> Option<ServiceId>) {
        let mut len = 0;
        for (service, (limit, queue)) in self.queues.iter().enumerate() {
            assert!(limit.is_some() || queue.is_empty(), "only services with a limit have a queue");
            let mut last = Time::START;
            for id in queue.iter(&self.links) {
                let owner = service_of(id).map(ServiceId::index);
                assert_eq!(owner, Some(service), "{id} is in an idle queue, and is not served there");
                let since = *self.since.get(id);
                assert!(last <= since, "{id} is idle for longer than the one before it");
                last = since;
                len += 1;
            }
        }
        assert_eq!(len, self.len, "each connection in a queue is counted");
    }

    /// Returns the connection of a service that has been idle for longest.
    pub fn longest(&self, service: ServiceId) -> Option<ConnId> {
        self.queues[service.index()].1.front()
    }

    /// Returns the time at which the next connection will have been idle for too long.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.len == 0 { None } else { self.earliest() }
    }

    fn earliest(&self) -> Option<Time> {
        self.deadlines().map(|(_, end)| end).min()
    }

    /// Returns a connection that has been idle for too long.
    pub fn overdue(&self, now: Time) -> Option<ConnId> {
        self.deadlines().find(|(_, end)| *end <= now).map(|(id, _)| id)
    }

    /// Returns the first connection of each queue, and the time at which it will have been idle for too long.
    fn deadlines(&self) -> impl Iterator<Item = (ConnId, Time)> {
        self.queues.iter().filter_map(|(limit, queue)| {
            let id = queue.front()?;
            Some((id, *self.since.get(id) + (*limit)?))
        })
    }
}
