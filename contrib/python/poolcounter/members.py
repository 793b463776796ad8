"""Members of pools: named resources, such as accounts, phones or licences, that one client has for itself alone."""

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
#: A member may be checked before it is handed out, even to a take that does not wait.
CHECK = 6.0

#: Names that no attribute has.
RESERVED = {"member", "n", "pri", "lease", "token"}

#: A member as a provider describes it: its name, or the name and the attributes.
Described = Union[str, Tuple[str, Mapping[str, str]]]


class NoMembers(PoolCounterError):
    """There is no member. The protocol's word is in `reason`: `at_capacity`, `starting`, `no_provider`, `removed`, `limit`."""

    def __init__(self, pool: str, reason: str) -> None:
        super().__init__(f"{pool}: no member comes ({reason})")
        self.reason = reason


class Members:
    """A client of the members of one or several servers, each `HOST`, `HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`.

    Several servers share the pools by their names. `name` is shown as the holder of what is taken. Threads may share a client.
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
        """Takes a member of the pool, or of the group of that name, and waits for it for `timeout` seconds or without limit.

        Only a member that has the `attributes` is taken; those whose names are identifiers can be written as `region="us"`. With
        `lease` it stays taken for so many seconds when the connection is lost. An exception of the kind `fail_on` that ends the
        `with` says that the member failed; any other gives it back as it was.

        Raises `NoMembers`, `TimedOut`, `QueueFull`, `Unavailable` and `Refused`.
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
        """Takes so many members, all or none, as `take` does, and gives all back at the end of the `with`."""
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
            raise TimedOut(f"{pool}: no member came free in time")
        if word == b"NO_MEMBERS":
            raise NoMembers(pool, text_of(reason))
        raise _refusal(lines[0])

    def renew(self, pool: str, token: str, span: Optional[float] = None) -> None:
        """Has a lease last for `span` seconds from now on, or as long as it was taken for. Raises `Lost` if there is no such lease."""
        line = b"RENEW " + escape(token)
        self._ask(pool, line if span is None else line + b" " + seconds(span), b"RENEWED")

    def give_back(self, pool: str, token: str, ok: bool = True) -> None:
        """Gives the member of a lease back, as it was or as failed. Raises `Lost` if there is no such lease."""
        self._ask(pool, b"RETURN " + escape(token) + (b" OK" if ok else b" FAIL"), b"RETURNED")

    def declare(self, pool: str, init: int, max: int, **settings: Union[str, int, float]) -> None:
        """Declares a pool, for operators: `init` members from the start and `max` at most, with settings as in poolcounter(8)."""
        words = [b"POOL", escape(pool, LONGEST_NAME), str(init).encode(), str(max).encode()]
        self._ask(pool, b" ".join(words + [escape(f"{key}={value}") for key, value in settings.items()]), b"OK")

    def remove(self, pool: str, graceful: bool = False) -> None:
        """Removes a pool, for operators: at once, or as its members come back."""
        self._ask(pool, b"RMPOOL " + escape(pool, LONGEST_NAME) + (b" GRACEFUL" if graceful else b""), b"OK")

    def add(self, pool: str, member: str, **attributes: str) -> None:
        """Adds a fixed member, for operators."""
        self._ask(pool, b"ADD " + escape(pool, LONGEST_NAME) + b" " + _described((member, attributes)), b"OK")

    def repair(self, pool: str, member: str) -> None:
        """Takes a fixed member out of quarantine, for operators."""
        self._ask(pool, b"REPAIR " + escape(pool, LONGEST_NAME) + b" " + escape(member, LONGEST_NAME), b"OK")

    def utilization(self, pool: str) -> Dict[str, int]:
        """Returns the figures of a pool: `max`, `in_use`, `free`, `quarantined` and so on."""
        raw = escape(pool, LONGEST_NAME)
        words = self._query(raw, b"UTILIZATION " + raw, lambda connection: [_reply(connection)])[0].split()
        return {text_of(name): int(value) for name, value in zip(words[::2], words[1::2])}

    def states(self, pool: str) -> Dict[str, str]:
        """Returns the members of a pool with what they do: `free`, `in_use`, `quarantined` and so on."""

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
        """Provides members of the pool up to the end of the `with`, on a thread of its own, which calls these functions one by one.

        `start` gets a number that no other start has, and returns the name of a member, or the name and its attributes. A start that
        raises an exception has failed. A member for which `check` or `clean` returns False, or raises, is dead. This is for tests: it
        does not connect again, and its members go with it.
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
        """Closes the idle connections. Members are not touched."""
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
    """A connection with the members that are taken on it."""

    def __init__(self, fleet: Fleet, server: str, connection: Connection, count: int) -> None:
        self.fleet = fleet
        self.server = server
        self.connection: Optional[Connection] = connection
        self.count = count
        #: The reasons of what was lost, by the numbers of the leases.
        self.losses: Dict[int, str] = {}

    def note(self, line: bytes) -> None:
        words = line.split()
        if len(words) == 3 and words[0] == b"!LOST":
            self.losses[int(words[1])] = text_of(words[2])

    def ask(self, line: bytes) -> bytes:
        if self.connection is None:
            raise Closed("the connection is gone")
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
        """One member less: the last one leaves the connection to others."""
        self.count -= 1
        if self.count == 0 and self.connection is not None:
            self.fleet.give_back(self.server, self.connection)
            self.connection = None


class Member:
    """A member that is taken, up to the end of its `with`."""

    def __init__(self, held: _Held, line: bytes, fail_on: Type[BaseException]) -> None:
        words = line.split()
        pairs = [word.partition(b"=") for word in words[4:]]
        found = {text_of(name): text_of(value) for name, _, value in pairs}
        self._held = held
        self._fail_on = fail_on
        self._is_taken = True
        #: The number of its lease, higher than that of any before: what the member works on can refuse who comes with a lower one.
        self.lease = int(words[1])
        #: The pool that it belongs to.
        self.pool = text_of(words[2])
        #: Its name. A space in it is `%20`.
        self.name = text_of(words[3])
        #: What renews or returns the lease on any connection, if it was taken with a lease.
        self.token: Optional[str] = found.pop("token", None)
        #: Its attributes.
        self.attributes: Dict[str, str] = found

    @property
    def lost(self) -> Optional[str]:
        """Why it is no longer held: the protocol's word, or `connection`. None while it is held, as far as is known. Does not wait."""
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
        """Has its lease last for `span` seconds from now on, or as long as it was taken for. Raises `Lost` if there is none."""
        if self.token is None:
            raise ValueError("it was taken without a lease")
        line = b"RENEW " + self.token.encode()
        self._ask(line if span is None else line + b" " + seconds(span), b"RENEWED")

    def give_back(self, ok: bool = True) -> None:
        """Gives it back, as it was or as failed. Raises `Lost` if it was lost before. A second time has no effect."""
        if not self._is_taken:
            return
        self._is_taken = False
        name = self.token or str(self.lease)
        try:
            self._ask(b"RETURN " + name.encode() + (b" OK" if ok else b" FAIL"), b"RETURNED")
        finally:
            self._held.leave()

    def keep(self) -> str:
        """Leaves it taken, and returns the token that gives it back. It needs a lease."""
        if self.token is None:
            raise ValueError("it was taken without a lease")
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
            # The exception that ends the `with` is the one to be seen.
            pass


class Provider:
    """A provider, up to the end of its `with`."""

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
        #: The names of the members that it has started and not stopped.
        self.members: List[str] = []
        self._thread = threading.Thread(target=self._serve, name="poolcounter-provider", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes its members out of the pool, and stops them."""
        if not self._is_ending.is_set():
            self._is_ending.set()
            self._wake.send(b"x")
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
                    # Others are answers to what was said: late ones are refused, which is no fault.
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
        self._wake.close()

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
        raise ValueError(f"no attribute has the name of an option: {', '.join(sorted(reserved))}")
    return [escape(name, LONGEST_NAME) + b"=" + escape(value, LONGEST_NAME) for name, value in attributes.items()]


def _described(described: Described) -> bytes:
    name, attributes = (described, {}) if isinstance(described, str) else described
    return b" ".join([escape(name, LONGEST_NAME)] + _pairs(attributes))


def _reply(connection: Connection, wait: float = 0.0, note: Callable[[bytes], None] = lambda line: None) -> bytes:
    """Returns the next line that answers a request."""
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
