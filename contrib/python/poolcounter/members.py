"""Members of pools: named resources, such as accounts, phones or licences, each held by one client at a time."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from types import TracebackType
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Type, Union

from ._wire import NO_LIMIT, Closed, Connection, Fleet, Lost, PoolCounterError, QueueFull, Refused, TimedOut
from ._wire import escape, seconds, text_of

DEFAULT_PORT = 7532
LONGEST_NAME = 255
#: Seconds allowed for a check of the member before it is handed out; a take with timeout 0 may need them, too.
CHECK = 6.0

#: Names of options of a take, which attributes must not have.
RESERVED = {"member", "n", "pri", "lease", "token"}

#: Description of a member by its provider: a name, or a name and attributes.
Described = Union[str, Tuple[str, Mapping[str, str]]]


class NoMembers(PoolCounterError):
    """Refusal because no member is free. `reason` is `at_capacity`, `starting`, `no_provider`, `removed` or `limit`."""

    def __init__(self, pool: str, reason: str) -> None:
        super().__init__(f"{pool}: no member is free ({reason})")
        self.reason = reason


class Members:
    """Client of the members of one or several servers, each `HOST`, `HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`.

    The name of a pool selects one of several servers. Lists and tables of the daemon show `name` as the holder of the members.
    Timeouts are in seconds; a server that has failed is skipped for `retry` seconds. Threads may share a client.
    """

    def __init__(
        self,
        *servers: str,
        name: Optional[str] = None,
        connect_timeout: float = 2.0,
        answer_timeout: float = 5.0,
        retry: float = 1.0,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        identify = None if name is None else b"IDENTIFY " + escape(name, LONGEST_NAME)

        def greet(connection: Connection) -> None:
            if identify is not None:
                connection.send(identify)
                _read_ok(_reply(connection))

        self._fleet = Fleet(servers, DEFAULT_PORT, connect_timeout, answer_timeout, retry, tls, greet)

    def take(
        self,
        pool: str,
        *,
        timeout: Optional[float] = None,
        member: Optional[str] = None,
        priority: int = 5,
        lease: Optional[float] = None,
        group: bool = False,
        fail_on: Type[BaseException] = BaseException,
        attributes: Optional[Mapping[str, str]] = None,
        **more: str,
    ) -> Member:
        """Takes a member of the pool, or with `group` of the group of that name. Waits for `timeout` seconds; None: without limit.

        Only a member that has the `attributes` is taken; attributes can also be written as arguments: `region="us"`. With `lease`
        the member stays taken for that many seconds, even if the connection is lost. An exception of the kind `fail_on` that ends
        the `with` returns the member as failed; after any other exception it is returned as it was.

        Raises `NoMembers`, `TimedOut`, `QueueFull`, `Unavailable` or `Refused`, and `ValueError` for a name that cannot be sent.
        """
        wanted = {**(attributes or {}), **more}
        line, wait = _take(pool, timeout, member, priority, lease, group, wanted)
        return self._take(pool, line, wait, 0, fail_on)[0]

    @contextlib.contextmanager
    def take_several(
        self,
        pool: str,
        count: int,
        *,
        timeout: Optional[float] = None,
        priority: int = 5,
        lease: Optional[float] = None,
        group: bool = False,
        fail_on: Type[BaseException] = BaseException,
        attributes: Optional[Mapping[str, str]] = None,
        **more: str,
    ) -> Iterator[List[Member]]:
        """Takes `count` members, all or none, as `take` does, and gives them back at the end of the `with`. Raises as `take` does."""
        line, wait = _take(pool, timeout, None, priority, lease, group, {**(attributes or {}), **more})
        taken = self._take(pool, line + f" n={count}".encode(), wait, count, fail_on)
        with contextlib.ExitStack() as stack:
            for member in taken:
                stack.enter_context(member)
            yield taken

    def _take(self, pool: str, line: bytes, wait: float, count: int, fail_on: Type[BaseException]) -> List[Member]:
        def ask(connection: Connection) -> List[bytes]:
            connection.send(line)
            lines = [_reply(connection, wait + CHECK)]
            if lines[0].startswith(b"MEMBERS "):
                lines = [connection.line() for _ in range(count)]
            return lines

        lines, server, connection = self._fleet.ask_first(escape(pool, LONGEST_NAME), ask)
        if lines[0].startswith(b"MEMBER "):
            shared = _Held(self._fleet, server, connection, len(lines))
            return [Member(shared, words, fail_on) for words in lines]
        self._fleet.give_back(server, connection)
        word, _, reason = lines[0].partition(b" ")
        if word == b"QUEUE_FULL":
            raise QueueFull(f"{pool}: too many wait already")
        if word == b"LIMIT":
            raise NoMembers(pool, "limit")
        if lines[0] == b"NO_MEMBERS timeout":
            raise TimedOut(f"{pool}: no member was free in time")
        if word == b"NO_MEMBERS":
            raise NoMembers(pool, text_of(reason))
        raise _refusal(lines[0])

    def renew(self, pool: str, token: str, span: Optional[float] = None) -> None:
        """Extends a lease to `span` seconds from now; None: to the time that it was taken for. Raises `Lost` if there is no such lease."""
        line = b"RENEW " + escape(token)
        self._ask(pool, line if span is None else line + b" " + seconds(span), b"RENEWED")

    def give_back(self, pool: str, token: str, ok: bool = True) -> None:
        """Gives the member of a lease back; `ok=False` marks it as failed. Raises `Lost` if there is no such lease."""
        self._ask(pool, b"RETURN " + escape(token) + (b" OK" if ok else b" FAIL"), b"RETURNED")

    def declare(self, pool: str, init: int, max: int, **settings: Union[str, int, float]) -> None:
        """Declares a pool with `init` members at the start and at most `max`. Needs the rights of an operator.

        The settings are those of `[[members.pool]]` in poolcounter.toml(5). Raises `Refused`.
        """
        words = [b"POOL", escape(pool, LONGEST_NAME), str(init).encode(), str(max).encode()]
        self._ask(pool, b" ".join(words + [escape(f"{key}={value}") for key, value in settings.items()]), b"OK")

    def remove(self, pool: str, graceful: bool = False) -> None:
        """Removes a pool: at once, or with `graceful` as its members come back. Needs the rights of an operator. Raises `Refused`."""
        self._ask(pool, b"RMPOOL " + escape(pool, LONGEST_NAME) + (b" GRACEFUL" if graceful else b""), b"OK")

    def add(self, pool: str, member: str, **attributes: str) -> None:
        """Adds a fixed member with attributes. Needs the rights of an operator. Raises `Refused`."""
        self._ask(pool, b"ADD " + escape(pool, LONGEST_NAME) + b" " + _described((member, attributes)), b"OK")

    def repair(self, pool: str, member: str) -> None:
        """Takes a fixed member out of quarantine. Needs the rights of an operator. Raises `Refused`."""
        self._ask(pool, b"REPAIR " + escape(pool, LONGEST_NAME) + b" " + escape(member, LONGEST_NAME), b"OK")

    def utilization(self, pool: str) -> Dict[str, int]:
        """Returns the figures of a pool by name: `max`, `in_use`, `free`, `quarantined` and so on. Raises `Refused`."""
        raw = escape(pool, LONGEST_NAME)
        words = self._query(raw, b"UTILIZATION " + raw, lambda connection: [_reply(connection)])[0].split()
        return {text_of(name): int(value) for name, value in zip(words[::2], words[1::2])}

    def states(self, pool: str) -> Dict[str, str]:
        """Returns the state of each member of a pool by name: `free`, `in_use`, `quarantined` and so on. Raises `Refused`."""

        def lines(connection: Connection) -> List[bytes]:
            found = [_reply(connection)]
            while found[-1] and not found[0].startswith(b"ERROR"):
                found.append(connection.line())
            return found

        raw = escape(pool, LONGEST_NAME)
        rows = [line.split() for line in self._query(raw, b"MEMBERS " + raw, lines) if line]
        return {text_of(row[0]): text_of(row[1]) for row in rows}

    def provide(
        self,
        pool: str,
        start: Callable[[int], Described],
        stop: Optional[Callable[[str], None]] = None,
        *,
        check: Optional[Callable[[str], bool]] = None,
        clean: Optional[Callable[[str], bool]] = None,
        capacity: Optional[int] = None,
    ) -> Provider:
        """Provides members of the pool until the end of the `with`. A thread calls the functions one at a time.

        `start` gets a number that no other start has, and returns the name of a member, or the name and the attributes. A start that
        raises an exception has failed. A member for which `check` or `clean` returns False, or raises, is dead. The provider has
        at most `capacity` members; None: as many as the pool allows. Made for tests: it does not reconnect, and its members end with it.

        Raises `Unavailable` or `Refused`.
        """
        line = b"PROVIDE " + escape(pool, LONGEST_NAME)
        if capacity is not None:
            line += b" " + str(capacity).encode()

        def ask(connection: Connection) -> None:
            connection.send(line)
            _read_ok(_reply(connection))

        _, _, connection = self._fleet.ask_first(escape(pool, LONGEST_NAME), ask)
        return Provider(connection, start, stop, check, clean)

    def close(self) -> None:
        """Closes the idle connections. Members that are taken stay taken."""
        self._fleet.close()

    def _query(self, pool: bytes, line: bytes, read: Callable[[Connection], List[bytes]]) -> List[bytes]:
        def ask(connection: Connection) -> List[bytes]:
            connection.send(line)
            return read(connection)

        lines, server, connection = self._fleet.ask_first(pool, ask)
        self._fleet.give_back(server, connection)
        if lines[0].startswith(b"ERROR"):
            raise _refusal(lines[0])
        return lines

    def _ask(self, pool: str, line: bytes, success: bytes) -> None:
        lines = self._query(escape(pool, LONGEST_NAME), line, lambda connection: [_reply(connection)])
        _read_done(lines[0], success)


class _Held:
    """Connection on which members are taken, and their number."""

    def __init__(self, fleet: Fleet, server: str, connection: Connection, count: int) -> None:
        self.fleet = fleet
        self.server = server
        self.connection: Optional[Connection] = connection
        self.count = count
        #: Reasons of losses, by the numbers of the leases.
        self.losses: Dict[int, str] = {}

    def note(self, line: bytes) -> None:
        words = line.split()
        if len(words) == 3 and words[0] == b"!LOST":
            self.losses[int(words[1])] = text_of(words[2])

    def ask(self, line: bytes) -> bytes:
        if self.connection is None:
            raise Closed("the connection is closed")
        try:
            self.connection.send(line)
            return _reply(self.connection, 0.0, self.note)
        except BaseException:
            self.cut()
            raise

    def cut(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def leave(self) -> None:
        """Counts one member less. After the last one the connection is idle again."""
        self.count -= 1
        if self.count == 0 and self.connection is not None:
            self.fleet.give_back(self.server, self.connection)
            self.connection = None


class Member:
    """Member that is taken until the end of its `with`."""

    def __init__(self, held: _Held, line: bytes, fail_on: Type[BaseException]) -> None:
        words = line.split()
        pairs = [word.partition(b"=") for word in words[4:]]
        found = {text_of(name): text_of(value) for name, _, value in pairs}
        self._held = held
        self._fail_on = fail_on
        self._is_taken = True
        #: Number of the lease, higher than that of any earlier lease: a fencing token, so that resources can refuse older leases.
        self.lease = int(words[1])
        #: Name of the pool.
        self.pool = text_of(words[2])
        #: Name of the member. A space in it is `%20`.
        self.name = text_of(words[3])
        #: Token that renews or returns the lease on any connection; None without a lease.
        self.token: Optional[str] = found.pop("token", None)
        #: Attributes of the member.
        self.attributes: Dict[str, str] = found

    @property
    def lost(self) -> Optional[str]:
        """Reason of the loss: a word of the protocol, or `connection`; None if no loss is known. Does not wait."""
        if self._is_taken and self._held.connection is not None:
            try:
                for line in self._held.connection.pending():
                    self._held.note(line)
            except OSError:
                self._held.cut()
        reason = self._held.losses.get(self.lease)
        if reason is None and self._is_taken and self._held.connection is None and self.token is None:
            return "connection"
        return reason

    def renew(self, span: Optional[float] = None) -> None:
        """Extends the lease to `span` seconds from now; None: to the time that it was taken for.

        Raises `Lost` if the lease has ended, and `ValueError` if the member was taken without one.
        """
        if self.token is None:
            raise ValueError(f"{self.name} was taken without lease=")
        line = b"RENEW " + self.token.encode()
        self._ask(line if span is None else line + b" " + seconds(span), b"RENEWED")

    def give_back(self, ok: bool = True) -> None:
        """Gives the member back; `ok=False` marks it as failed. Raises `Lost` if it was lost before. A second call has no effect."""
        if not self._is_taken:
            return
        self._is_taken = False
        name = self.token or str(self.lease)
        try:
            self._ask(b"RETURN " + name.encode() + (b" OK" if ok else b" FAIL"), b"RETURNED")
        finally:
            self._held.leave()

    def keep(self) -> str:
        """Leaves the member taken, and returns the token that gives it back. Raises `ValueError` if it was taken without a lease."""
        if self.token is None:
            raise ValueError(f"{self.name} was taken without lease=")
        self._is_taken = False
        self._held.leave()
        return self.token

    def _ask(self, line: bytes, success: bytes) -> None:
        try:
            answer = self._held.ask(line)
        except OSError as error:
            if self.token is None:
                raise Lost(f"{self.name}: {error}") from error

            def again(connection: Connection) -> bytes:
                connection.send(line)
                return _reply(connection)

            try:
                answer, connection = self._held.fleet.ask(self._held.server, again)
            except OSError as failure:
                raise Lost(f"{self.name}: {failure}") from failure
            self._held.connection = connection
        if answer == b"NOT_TAKEN":
            raise Lost(f"{self.name}: {self._held.losses.get(self.lease, 'there is no such lease')}")
        _read_done(answer, success)

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.give_back()
            return
        try:
            self.give_back(ok=not issubclass(kind, self._fail_on))
        except PoolCounterError:
            # Ignored, so that the exception that ends the `with` is raised.
            pass


class Provider:
    """Provider of members until the end of its `with`."""

    def __init__(
        self,
        connection: Connection,
        start: Callable[[int], Described],
        stop: Optional[Callable[[str], None]],
        check: Optional[Callable[[str], bool]],
        clean: Optional[Callable[[str], bool]],
    ) -> None:
        self._connection = connection
        self._start = start
        self._stop = stop
        self._check = check
        self._clean = clean
        self._is_ending = threading.Event()
        self._waker, self._wake = socket.socketpair()
        #: Names of the members that are started and not stopped yet.
        self.members: List[str] = []
        self._thread = threading.Thread(target=self._serve, name="poolcounter-provider", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes the members of this provider out of the pool, and stops them. A second call has no effect."""
        self._is_ending.set()
        # The thread sees the end of the stream, unless it has ended by itself.
        self._wake.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Provider:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            while not self._is_ending.is_set():
                for line in self._connection.pending():
                    # Other lines are replies to results: late results are refused, which is no fault.
                    if line.startswith(b"!"):
                        self._connection.send(self._answer(line))
                select.select([self._connection.fileno(), self._waker.fileno()], [], [])
        except OSError:
            pass
        self._connection.close()
        for member in self.members:
            self._stop_one(member)
        self.members.clear()
        self._waker.close()

    def _answer(self, line: bytes) -> bytes:
        task, _, what = line.split()[:3]
        if task == b"!START":
            try:
                described = self._start(int(what))
                answer = _described(described)
            except Exception as error:
                return b"FAILED " + what + b" " + " ".join(str(error).split()).encode()[:400]
            self.members.append(text_of(answer.split()[0]))
            return b"STARTED " + what + b" " + answer
        member = text_of(what)
        if task == b"!STOP":
            if member in self.members:
                self.members.remove(member)
            self._stop_one(member)
            return b"STOPPED " + what
        is_check = task == b"!CHECK"
        try:
            work = self._check if is_check else self._clean
            is_well = work is None or work(member)
        except Exception:
            is_well = False
        return ((b"ALIVE " if is_check else b"CLEANED ") if is_well else b"DEAD ") + what

    def _stop_one(self, member: str) -> None:
        if self._stop is not None:
            with contextlib.suppress(Exception):
                self._stop(member)


def _take(
    pool: str,
    timeout: Optional[float],
    member: Optional[str],
    priority: int,
    lease: Optional[float],
    group: bool,
    attributes: Mapping[str, str],
) -> Tuple[bytes, float]:
    words = [b"TAKEGROUP" if group else b"TAKE", escape(pool, LONGEST_NAME), seconds(timeout), f"pri={priority}".encode()]
    if member is not None:
        words.append(b"member=" + escape(member, LONGEST_NAME))
    words += _pairs(attributes)
    if lease is not None:
        words.append(b"lease=" + seconds(lease))
    return b" ".join(words), NO_LIMIT if timeout is None else timeout


def _pairs(attributes: Mapping[str, str]) -> List[bytes]:
    reserved = RESERVED.intersection(attributes)
    if reserved:
        raise ValueError(f"an attribute cannot have the name of an option of a take: {', '.join(sorted(reserved))}")
    return [escape(name, LONGEST_NAME) + b"=" + escape(value, LONGEST_NAME) for name, value in attributes.items()]


def _described(described: Described) -> bytes:
    name, attributes = (described, {}) if isinstance(described, str) else described
    return b" ".join([escape(name, LONGEST_NAME)] + _pairs(attributes))


def _reply(connection: Connection, wait: float = 0.0, note: Callable[[bytes], None] = lambda line: None) -> bytes:
    """Returns the next reply. Lines that the server sends by itself, which begin with `!`, go to `note`."""
    while True:
        line = connection.line(wait)
        if not line.startswith(b"!"):
            return line
        note(line)


def _refusal(line: bytes) -> Refused:
    return Refused(text_of(line[len(b"ERROR ") :] if line.startswith(b"ERROR ") else line))


def _read_done(line: bytes, success: bytes) -> None:
    if line == b"NOT_TAKEN":
        raise Lost("there is no such lease")
    if line != success:
        raise _refusal(line)


def _read_ok(line: bytes) -> None:
    _read_done(line, b"OK")
