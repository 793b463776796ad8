//! Operations that operators run on services. One table per service describes them; pages, the administration, its help
//! and the refusal of unknown ones read it, and every way leads to
//! [`Operate::operate`](crate::contract::Operate::operate).

use super::Info;
use crate::id::ServiceId;
use poolcounter_core::ConnId;
use poolcounter_core::text::escaped;

/// Sender of a request to other services, which receives the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// The service.
    pub service: ServiceId,
    /// Connection that sent the request. By the time of the result, another connection may have its id.
    pub conn: ConnId,
    /// Number that the service gives to the request.
    pub number: u64,
}

/// Static description of an operation; its row in [`Info::operations`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Name in the paths of pages, `/SERVICE/NAME/ARGUMENT`: `kick`.
    pub name: &'static str,
    /// Words of the argument.
    pub parameters: &'static [&'static str],
    /// Description in a few words.
    pub summary: &'static str,
    /// True if pages offer it, to clients allowed by `--http-admin` and the right `http:act` for its path.
    pub is_on_pages: bool,
    /// Name as a command of the administration, which needs the right `admin:command` for that name. `None`: it is not
    /// a command.
    pub command: Option<&'static str>,
}

impl Operation {
    /// Returns the same as an operation that pages offer, too.
    pub const fn on_pages(self) -> Operation {
        Operation { is_on_pages: true, ..self }
    }
}

/// Makes a table of operations that are commands of the administration, each with the function that runs it: name,
/// command, parameters, summary, and `on_pages` if pages offer it, too.
#[macro_export]
macro_rules! operation_table {
    ($($name:literal, $command:literal, $parameters:expr, $summary:literal $(, $on_pages:ident)? => $run:expr;)*) => {
        [$(({
            let (parameters, command) = (&$parameters, Some($command));
            $crate::operations::Operation { name: $name, parameters, summary: $summary, is_on_pages: false, command }
                $(.$on_pages())?
        }, $run)),*]
    };
}
pub use operation_table;

/// Place of an operation in the table of its service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationId(u8);

/// Operation of some service.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// The service.
    pub service: ServiceId,
    /// Its place in the table of the service.
    pub id: OperationId,
    /// Its description.
    pub about: &'static Operation,
}

/// Operations of all services of a list.
#[derive(Clone, Default)]
pub struct Operations {
    services: Vec<&'static str>,
    all: Vec<Offered>,
}

/// Operation requested by an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationRequest {
    /// Receiver of the result: [`crate::contract::Inquire::operation_done`].
    pub from: Requester,
    /// Service that runs it.
    pub service: ServiceId,
    /// The operation.
    pub operation: OperationId,
    /// Argument: words separated by spaces.
    pub argument: Vec<u8>,
}

/// Result of an operation: a few words about the change, or the error.
pub type OperationResult = Result<String, OperationError>;

/// Reason for which an operation was not done, in a few words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationError {
    /// The operation does not exist, or its argument is malformed.
    Malformed(String),
    /// The thing does not exist.
    NotFound(String),
    /// The thing exists, but this change is not possible now.
    Refused(String),
    /// The store has failed during the operation: it may or may not be done.
    Unknown(String),
}

/// Operations in progress, each with its request, and the connection that waits for the result unless it is closed.
pub struct PendingOperations<T> {
    /// Number of the last one.
    last: u64,
    waiting: Vec<(u64, Option<ConnId>, T)>,
}

/// Returns the descriptions in a table whose rows have a second part, such as a function.
pub const fn descriptions<T, const N: usize>(table: &[(Operation, T); N]) -> [Operation; N] {
    let mut rows = [table[0].0; N];
    let mut row = 0;
    while row < N {
        rows[row] = table[row].0;
        row += 1;
    }
    rows
}

impl OperationId {
    /// Returns the index in the table of its service.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl Operations {
    /// Returns the operations of a list of services, in its order.
    pub fn of(list: &[&'static Info]) -> Operations {
        let of_service = |service: ServiceId| {
            let rows = (0..).zip(service.info(list).operations);
            rows.map(move |(row, about)| Offered { service, id: OperationId(row), about })
        };
        let services = list.iter().map(|info| info.name).collect();
        Operations { services, all: ServiceId::all(list).flat_map(of_service).collect() }
    }

    /// Returns a service's operation of this name that pages offer; `None` if the service does not exist.
    ///
    /// # Errors
    ///
    /// [`OperationError::Malformed`] if the service lacks the operation.
    pub fn on_page(&self, service: &str, name: &str) -> Option<Result<Offered, OperationError>> {
        let place = self.services.iter().position(|other| *other == service)?;
        let is_it = |one: &&Offered| one.service.index() == place && one.about.is_on_pages && one.about.name == name;
        let unknown = || OperationError::Malformed(format!("unknown action {}", escaped(name.as_bytes())));
        Some(self.all.iter().find(is_it).copied().ok_or_else(unknown))
    }

    /// Returns the operations that are commands of the administration, with their names.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, Offered)> {
        self.all.iter().filter_map(|one| Some((one.about.command?, *one)))
    }
}

impl Offered {
    /// Returns the request for this operation.
    pub fn request(&self, from: Requester, argument: Vec<u8>) -> OperationRequest {
        OperationRequest { from, service: self.service, operation: self.id, argument }
    }
}

impl OperationError {
    /// Returns the text of the error.
    pub fn text(&self) -> &str {
        let (OperationError::Malformed(text)
        | OperationError::NotFound(text)
        | OperationError::Refused(text)
        | OperationError::Unknown(text)) = self;
        text
    }
}

impl<T> Default for PendingOperations<T> {
    fn default() -> Self {
        PendingOperations { last: 0, waiting: Vec::new() }
    }
}

impl<T> PendingOperations<T> {
    /// Adds an operation for which a connection waits, and returns its number.
    pub fn begin(&mut self, conn: ConnId, request: T) -> u64 {
        self.last += 1;
        self.waiting.push((self.last, Some(conn), request));
        self.last
    }

    /// Removes the operation of this number, and returns its connection unless that is closed.
    pub fn end(&mut self, number: u64) -> Option<(Option<ConnId>, T)> {
        let place = self.waiting.iter().position(|(other, ..)| *other == number)?;
        let (_, conn, request) = self.waiting.swap_remove(place);
        Some((conn, request))
    }

    /// Notes that a connection is closed. Its operations go on, and their results are known to operators.
    pub fn forget(&mut self, conn: ConnId) {
        let of_conn = self.waiting.iter_mut().filter(|(_, other, _)| *other == Some(conn));
        of_conn.for_each(|(_, other, _)| *other = None);
    }

    /// Returns the number of operations in progress, also of closed connections.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no connection waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(|(_, conn, _)| conn.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;

    #[test]
    fn operation_of_a_closed_connection_keeps_its_request() {
        let mut pending = PendingOperations::default();
        let (gone, there) = (ConnId::from_index(1), ConnId::from_index(2));
        let numbers = [gone, there, gone].map(|conn| pending.begin(conn, "kick"));
        pending.forget(gone);
        assert!(!pending.is_empty());
        assert_eq!(
            numbers.map(|number| pending.end(number)),
            [None, Some(there), None].map(|conn| Some((conn, "kick")))
        );
        assert!(pending.is_empty() && pending.end(numbers[0]).is_none());
    }
}
