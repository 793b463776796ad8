"""Members of pools: named resources, such as accounts, phones or licences, each held by one client at a time."""

from __future__ import annotations

import contextlib
import math
import os
import ssl
import time
from types import TracebackType
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Type, TypeVar, Union

from ._wire import NO_LIMIT, Closed, Connection, Fleet, Garbled, Lost, PoolCounterError, Probe, QueueFull, Refused
from ._wire import TimedOut, escape, number, rest, seconds, text_of
from .provider import LONGEST_NAME, Described, Provider, description, pairs

DEFAULT_PORT = 7532
#: Seconds allowed for a check of the member before it is handed out; a take with timeout 0 may need them, too.
CHECK = 6.0
#: Seconds for which a member is had back after its connection was cut: the default of the server's `restart_grace`.
GRACE = 60.0
#: Seconds between two attempts.
AGAIN = 1.0
#: Probe of a server at which a take waits: the return of a lease that does not exist, which needs no right.
PROBE = Probe(b"RETURN 0", (b"NOT_TAKEN", b"ERROR LIMITED"))

Parsed = TypeVar("Parsed")


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
                _read_done(_done(connection, b"OK"), b"OK")

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
        return self._take(pool, timeout, _take_options(member, priority, lease, wanted), lease, group, 0, fail_on)[0]

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
        """Takes `count` members, all or none, as `take` does, and gives them back at the end of the `with`. Raises as `take` does.

        The loss of one does not make the others failed: they are given back first, then the end of the `with` raises `Lost`.
        """
        options = _take_options(None, priority, lease, {**(attributes or {}), **more}) + [f"n={count}".encode()]
        taken = self._take(pool, timeout, options, lease, group, count, fail_on)
        kind: Optional[Type[BaseException]] = None
        faults: List[PoolCounterError] = []

        def leave(member: Member) -> None:
            try:
                member.__exit__(kind, None, None)
            except PoolCounterError as error:
                faults.append(error)

        with contextlib.ExitStack() as stack:
            for member in taken:
                stack.callback(leave, member)
            try:
                yield taken
            except BaseException as error:
                kind = type(error)
                raise
        if faults:
            raise faults[0]

    def _take(
        self,
        pool: str,
        timeout: Optional[float],
        options: List[bytes],
        lease: Optional[float],
        group: bool,
        count: int,
        fail_on: Type[BaseException],
    ) -> List[Member]:
        raw = escape(pool, LONGEST_NAME)
        # A number that is none is refused before a server is asked.
        seconds(timeout)
        begun = time.monotonic()

        def ask(connection: Connection) -> Union[List[_Taken], bytes]:
            left = rest(timeout, begun)
            words = [b"TAKEGROUP" if group else b"TAKE", raw, seconds(left)] + options
            connection.send(b" ".join(words), (NO_LIMIT if left is None else left) + CHECK, PROBE)
            answer = _reply(connection)
            if count == 0 and answer.startswith(b"MEMBER "):
                return [_Taken.parse(answer)]
            if count > 0 and answer == f"MEMBERS {count}".encode():
                return [_Taken.parse(connection.line()) for _ in range(count)]
            if answer not in (b"QUEUE_FULL", b"LIMIT") and not answer.startswith((b"NO_MEMBERS ", b"ERROR ")):
                raise Garbled(answer)
            return answer

        answer, server, connection = self._fleet.ask_first(raw, ask)
        if isinstance(answer, list):
            tokens = {taken.lease: escape(taken.token) for taken in answer if lease is None and taken.token is not None}
            shared = _Held(self._fleet, server, connection, [taken.lease for taken in answer], tokens)
            return [Member(shared, taken, lease, fail_on) for taken in answer]
        self._fleet.give_back(server, connection)
        word, _, reason = answer.partition(b" ")
        if word == b"QUEUE_FULL":
            raise QueueFull(f"{pool}: too many wait already")
        if word == b"LIMIT":
            raise NoMembers(pool, "limit")
        if answer == b"NO_MEMBERS timeout":
            raise TimedOut(f"{pool}: no member was free in time")
        if word == b"NO_MEMBERS":
            raise NoMembers(pool, text_of(reason))
        raise _refusal(answer)

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
        self._ask(pool, b"ADD " + escape(pool, LONGEST_NAME) + b" " + description((member, attributes)), b"OK")

    def repair(self, pool: str, member: str) -> None:
        """Takes a fixed member out of quarantine. Needs the rights of an operator. Raises `Refused`."""
        self._ask(pool, b"REPAIR " + escape(pool, LONGEST_NAME) + b" " + escape(member, LONGEST_NAME), b"OK")

    def utilization(self, pool: str) -> Dict[str, int]:
        """Returns the figures of a pool by name: `max`, `in_use`, `free`, `quarantined` and so on. Raises `Refused`."""

        def parse(connection: Connection, answer: bytes) -> Dict[str, int]:
            words = answer.split()
            if not words or len(words) % 2:
                raise Garbled(answer)
            return {text_of(name): number(value) for name, value in zip(words[::2], words[1::2])}

        raw = escape(pool, LONGEST_NAME)
        return self._query(raw, b"UTILIZATION " + raw, parse)

    def states(self, pool: str) -> Dict[str, str]:
        """Returns the state of each member of a pool by name: `free`, `in_use`, `quarantined` and so on. Raises `Refused`."""

        def parse(connection: Connection, line: bytes) -> Dict[str, str]:
            found = {}
            while line:
                row = line.split(None, 2)
                if len(row) < 2:
                    raise Garbled(line)
                found[text_of(row[0])] = text_of(row[1])
                line = connection.line()
            return found

        raw = escape(pool, LONGEST_NAME)
        return self._query(raw, b"MEMBERS " + raw, parse)

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
            _read_done(_done(connection, b"OK"), b"OK")

        _, _, connection = self._fleet.ask_first(escape(pool, LONGEST_NAME), ask)
        return Provider(connection, start, stop, check, clean)

    def close(self) -> None:
        """Closes the idle connections. Members that are taken stay taken."""
        self._fleet.close()

    def _query(self, pool: bytes, line: bytes, parse: Callable[[Connection, bytes], Parsed]) -> Parsed:
        def ask(connection: Connection) -> Union[Parsed, Refused]:
            connection.send(line)
            answer = _reply(connection)
            return _refusal(answer) if answer.startswith(b"ERROR ") else parse(connection, answer)

        found, server, connection = self._fleet.ask_first(pool, ask)
        self._fleet.give_back(server, connection)
        if isinstance(found, Refused):
            raise found
        return found

    def _ask(self, pool: str, line: bytes, success: bytes) -> None:
        def ask(connection: Connection) -> bytes:
            connection.send(line)
            return _done(connection, success)

        answer, server, connection = self._fleet.ask_first(escape(pool, LONGEST_NAME), ask)
        self._fleet.give_back(server, connection)
        _read_done(answer, success)


class _Taken(NamedTuple):
    """Member as a server describes it."""

    lease: int
    pool: str
    name: str
    token: Optional[str]
    attributes: Dict[str, str]

    @staticmethod
    def parse(line: bytes) -> _Taken:
        """Parses `MEMBER lease pool member [name=value ...] [token=token]`. Raises `Garbled`."""
        words = line.split()
        if len(words) < 4 or words[0] != b"MEMBER":
            raise Garbled(line)
        pairs = [word.partition(b"=") for word in words[4:]]
        found = {text_of(name): text_of(value) for name, _, value in pairs}
        return _Taken(number(words[1]), text_of(words[2]), text_of(words[3]), found.pop("token", None), found)


class _Held:
    """Connection on which members are taken."""

    def __init__(
        self, fleet: Fleet, server: str, connection: Connection, leases: List[int], tokens: Dict[int, bytes]
    ) -> None:
        self.fleet = fleet
        #: Process that holds the members. A fork of it has a copy of this object, and holds nothing.
        self._process = os.getpid()
        #: Tokens by which leases that end with the connection move to another one, by the numbers of the leases.
        self.tokens = tokens
        self._cut_at: Optional[float] = None
        self._again_at = 0.0
        self.server = server
        self.connection: Optional[Connection] = connection
        self.leases = leases
        #: Number of members that are still taken.
        self.count = len(leases)
        #: Reasons of losses, by the numbers of the leases.
        self.losses: Dict[int, str] = {}

    def is_of_parent(self) -> bool:
        """Returns True in a fork of the process that holds the members."""
        return self._process != os.getpid()

    def note(self, line: bytes) -> None:
        words = line.split()
        for lease in self.leases:
            if len(words) >= 3 and words[:2] == [b"!LOST", b"%d" % lease]:
                self.losses[lease] = text_of(words[2])

    def ask(self, line: bytes, success: bytes) -> bytes:
        if self.connection is None:
            raise Closed("the connection is closed")
        try:
            self.connection.send(line)
            return _done(self.connection, success, self.note)
        except BaseException:
            self.cut()
            raise

    def cut(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def resume(self) -> bool:
        """Moves the leases to another connection after a cut, at most once a second. Returns False once that is too late."""
        now = time.monotonic()
        self._cut_at = now if self._cut_at is None else self._cut_at
        if not self.tokens or now - self._cut_at > GRACE:
            return False
        if now < self._again_at:
            return True
        self._again_at = now + AGAIN

        try:
            _, self.connection = self.fleet.ask(self.server, self._move)
            self._cut_at = None
        except OSError:
            pass
        return True

    def ask_anew(self, line: bytes, success: bytes) -> bytes:
        """Asks on another connection, to which the leases that end with their connection move first. Raises `OSError`."""

        def ask(connection: Connection) -> bytes:
            self._move(connection)
            connection.send(line)
            return _done(connection, success, self.note)

        answer, connection = self.fleet.ask(self.server, ask)
        if self.tokens or self.count == 1:
            self.connection = connection
            self._cut_at = None
        else:
            # The server assigns to this connection at most one of several leases that outlive theirs: it reports no loss of another.
            self.fleet.give_back(self.server, connection)
        return answer

    def _move(self, connection: Connection) -> None:
        for lease, token in self.tokens.items():
            connection.send(b"RENEW " + token)
            if _done(connection, b"RENEWED", self.note) != b"RENEWED":
                self.losses.setdefault(lease, "connection")

    def leave(self, lease: int) -> None:
        """Counts one member less. After the last one the connection is idle again."""
        self.tokens.pop(lease, None)
        self.count -= 1
        if self.count == 0 and self.connection is not None:
            self.fleet.give_back(self.server, self.connection)
            self.connection = None


class Member:
    """Member that is taken until the end of its `with`."""

    def __init__(self, held: _Held, taken: _Taken, lease: Optional[float], fail_on: Type[BaseException]) -> None:
        self._held = held
        #: Seconds of the lease, and its end unless it is renewed.
        self._span = math.inf if lease is None else lease
        self._until = time.monotonic() + self._span
        self._fail_on = fail_on
        self._is_taken = True
        #: Number of the lease, higher than that of any earlier lease: a fencing token, so that resources can refuse older leases.
        self.lease = taken.lease
        #: Name of the pool.
        self.pool = taken.pool
        #: Name of the member. A space in it is `%20`.
        self.name = taken.name
        #: Token that renews or returns the lease on any connection; None without a lease.
        self.token = None if lease is None else taken.token
        #: Attributes of the member.
        self.attributes = taken.attributes

    @property
    def lost(self) -> Optional[str]:
        """Reason of the loss: a word of the protocol, or `connection`; None if no loss is known. In a fork it is `connection`.

        After a cut of the connection, as by a restart of the server, it connects again; else it does not wait. With `lease` it
        does not connect again: the loss is `expired` once the lease is over.
        """
        held = self._held
        if self._is_taken and held.connection is not None:
            try:
                for line in held.connection.pending():
                    held.note(line)
            except OSError:
                held.cut()
        if self._is_taken and held.connection is None:
            if held.is_of_parent() or (self.token is None and not held.resume()):
                held.losses.setdefault(self.lease, "connection")
            elif self._until <= time.monotonic():
                held.losses.setdefault(self.lease, "expired")
        return held.losses.get(self.lease)

    def renew(self, span: Optional[float] = None) -> None:
        """Extends the lease to `span` seconds from now; None: to the time that it was taken for.

        Raises `Lost` if the lease has ended, and `ValueError` if the member was taken without one.
        """
        if self.token is None:
            raise ValueError(f"{self.name} was taken without lease=")
        line = b"RENEW " + escape(self.token)
        sent = time.monotonic()
        self._ask(line if span is None else line + b" " + seconds(span), b"RENEWED")
        self._until = sent + (self._span if span is None else span)
        self._held.losses.pop(self.lease, None)

    def give_back(self, ok: bool = True) -> None:
        """Gives the member back; `ok=False` marks it as failed. Raises `Lost` if it was lost before. A second call has no effect."""
        if not self._is_taken:
            return
        self._is_taken = False
        name = self._held.tokens.get(self.lease) or escape(self.token or str(self.lease))
        try:
            self._ask(b"RETURN " + name + (b" OK" if ok else b" FAIL"), b"RETURNED")
        finally:
            self._held.leave(self.lease)

    def keep(self) -> str:
        """Leaves the member taken, and returns the token that gives it back. Raises `ValueError` if it was taken without a lease."""
        if self.token is None:
            raise ValueError(f"{self.name} was taken without lease=")
        self._is_taken = False
        self._held.leave(self.lease)
        return self.token

    def _ask(self, line: bytes, success: bytes) -> None:
        try:
            answer = self._held.ask(line, success)
        except OSError as error:
            has_token = self.token is not None or self.lease in self._held.tokens
            if self._held.is_of_parent() or not has_token:
                raise Lost(f"{self.name}: {error}") from error
            try:
                answer = self._held.ask_anew(line, success)
            except OSError as failure:
                raise Lost(f"{self.name}: {failure}") from failure
        if answer == b"NOT_TAKEN":
            if self.token is not None:
                self._held.losses.setdefault(self.lease, "expired")
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


def _take_options(
    member: Optional[str], priority: int, lease: Optional[float], attributes: Mapping[str, str]
) -> List[bytes]:
    words = [f"pri={priority}".encode()]
    if member is not None:
        words.append(b"member=" + escape(member, LONGEST_NAME))
    words += pairs(attributes)
    words.append(b"resume" if lease is None else b"lease=" + seconds(lease))
    return words


def _reply(connection: Connection, note: Callable[[bytes], None] = lambda line: None) -> bytes:
    """Returns the next reply. Lines that the server sends by itself, which begin with `!`, go to `note`."""
    while True:
        line = connection.line()
        if not line.startswith(b"!"):
            return line
        note(line)


def _done(connection: Connection, success: bytes, note: Callable[[bytes], None] = lambda line: None) -> bytes:
    """Returns the reply to a request that succeeds, is refused, or names a lease that does not exist. Raises `Garbled`."""
    answer = _reply(connection, note)
    if answer not in (success, b"NOT_TAKEN") and not answer.startswith(b"ERROR "):
        raise Garbled(answer)
    return answer


def _refusal(line: bytes) -> Refused:
    return Refused(text_of(line[len(b"ERROR ") :]))


def _read_done(line: bytes, success: bytes) -> None:
    if line == b"NOT_TAKEN":
        raise Lost("there is no such lease")
    if line != success:
        raise _refusal(line)
