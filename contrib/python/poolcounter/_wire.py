"""Connections, lines and the order of servers, for both protocols.

`Lines` and `Servers` know no sockets: the client with threads and the one of asyncio share them.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import socket
import ssl
import threading
import time
import weakref
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

#: Longest timeout of the protocol, in seconds (136 years).
NO_LIMIT = 2**32 - 1
#: Longest line, in bytes; the connection fails with `Garbled` if a longer one arrives.
LONGEST_LINE = 64 * 1024
#: Largest answer, in bytes with `LINE_COST` for each line: an answer without an end must not use up the memory.
LARGEST_ANSWER = 256 << 20
#: Bytes that a line costs beside its own: about what its reader keeps for it.
LINE_COST = 128
#: Bytes of an answer that extend its deadline by another answer timeout. Slower answers are given up.
PART = 1 << 20
#: Bytes that are read at once of the lines that a server sends unasked.
MOST_PENDING = 4 << 20
#: Seconds after which an idle connection is not used any more: firewalls drop idle connections without a word.
IDLE_AGE = 30.0
#: Idle connections that are kept for each server. Many threads that ask at the same moment need more for that moment only.
MOST_IDLE = 8
#: Seconds between two probes during a wait. A server that has not answered one by the time of the next hangs.
PROBE_EVERY = 10.0
#: Longest timeout, in seconds, that the system and event loops accept.
LONGEST_SLEEP = 1_000_000.0
#: Options by which the system notices in half a minute that the machine of a server is gone, as far as the system has them.
KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}

Answer = TypeVar("Answer")
Idle = TypeVar("Idle")


class PoolCounterError(Exception):
    """Base class of the exceptions of this package."""


class Unavailable(PoolCounterError, ConnectionError):
    """Failure to reach any server. Code that protects a resource from load should go on without a lock then."""


class Lost(PoolCounterError):
    """Loss of a lock or member before it was given back: another client may have had it, too."""


class QueueFull(PoolCounterError):
    """Refusal because too many clients hold or wait already."""


class TimedOut(PoolCounterError, TimeoutError):
    """End of the timeout before a lock or member was free."""


class Refused(PoolCounterError):
    """Refusal of a request that is wrong or not allowed. `code` is the error code of the protocol, such as `NO_POOL`."""

    def __init__(self, words: str) -> None:
        super().__init__("the server refuses the request: " + words)
        self.code = words.split(" ", 1)[0]


class Closed(ConnectionError):
    """End of the connection by the server."""


class Garbled(ConnectionError):
    """Answer of a server that is none of the protocol."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(f"it does not speak the protocol: {answer[:80]!r}")


class Draining(ConnectionError):
    """Refusal because the server drains."""

    def __init__(self) -> None:
        super().__init__("it drains, and grants nothing new")


def escape(name: str, longest: Optional[int] = None) -> bytes:
    """Returns a name as it is sent: in UTF-8, with `%20` for a space.

    Raises `ValueError` for an empty name, one of more than `longest` bytes, or one with a newline, a carriage return or a NUL, and
    `TypeError` for anything but a `str`.
    """
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not a str")
    raw = name.encode("utf-8", "surrogateescape").replace(b" ", b"%20")
    if not raw or any(byte in raw for byte in b"\n\r\0") or (longest is not None and len(raw) > longest):
        raise ValueError(f"{name!r} is no name: it is empty or too long, or contains a line break or NUL")
    return raw


def shortened(name: str, longest: int) -> bytes:
    """Returns a name like `escape`, without the last characters that do not fit into `longest` bytes."""
    name = name[:longest]
    while len(escape(name)) > longest:
        name = name[:-1]
    return escape(name)


def text_of(raw: bytes) -> str:
    """Returns bytes of a line as text; `escape` turns it back into the same bytes."""
    return raw.decode("utf-8", "surrogateescape")


def seconds(value: Optional[float]) -> bytes:
    """Returns a number of seconds as it is sent, rounded to milliseconds. None means without limit; a negative number is sent as 0."""
    if value is not None and math.isnan(value):
        raise ValueError("a number of seconds is not a number")
    span = NO_LIMIT if value is None else min(max(value, 0.0), NO_LIMIT)
    return (f"{span:.3f}".rstrip("0").rstrip(".")).encode()


def rest(timeout: Optional[float], begun: float) -> Optional[float]:
    """Returns what is left of a timeout since `begun`. It stays in whole seconds, which is all that the C daemon supports."""
    if timeout is None:
        return None
    left = max(timeout - (time.monotonic() - begun), 0.0)
    return float(math.ceil(left)) if float(timeout).is_integer() else left


def number(word: bytes) -> int:
    """Returns a number of an answer. Raises `Garbled`."""
    if not word.isdigit() or len(word) > 20:
        raise Garbled(word)
    return int(word)


class Probe(NamedTuple):
    """Request that a server answers with one line at once, while another request waits."""

    line: bytes
    #: Beginnings of its answers, of which none begins an answer to the request that waits or to a later one.
    answers: Tuple[bytes, ...]


class Lines:
    """Bytes that a server has sent, as lines, without the answers to probes."""

    def __init__(self) -> None:
        self.unread = bytearray()
        #: Number of unread bytes that are taken already.
        self._taken = 0
        self._budget = 0
        self._probe: Optional[Probe] = None
        self._probe_at = 0.0
        #: Probe that was sent and not answered.
        self._unanswered: Optional[Probe] = None

    def begin_answer(self, probe: Optional[Probe] = None) -> None:
        """Begins an answer, which may have `LARGEST_ANSWER` bytes. The server is asked with `probe` until the answer is there."""
        self._budget = LARGEST_ANSWER
        self._probe = probe
        self._probe_at = time.monotonic() + PROBE_EVERY

    def probe(self) -> Tuple[bytes, float]:
        """Returns the bytes of the probe that is due, none if none is, and the seconds until the next one.

        Raises `TimeoutError` if the server has not answered the last one.
        """
        if self._probe is None:
            return b"", LONGEST_SLEEP
        now = time.monotonic()
        if now < self._probe_at:
            return b"", self._probe_at - now
        if self._unanswered is not None:
            raise TimeoutError("the server hangs")
        self._unanswered = self._probe
        self._probe_at = now + PROBE_EVERY
        return self._probe.line + b"\n", PROBE_EVERY

    def feed(self, chunk: bytes) -> None:
        """Adds bytes. Raises `Closed` if there are none, which is the end, and `Garbled` if a line is too long."""
        del self.unread[: self._taken]
        self._taken = 0
        if not chunk:
            raise Closed("the server has closed the connection")
        self.unread += chunk
        if len(self.unread) > LONGEST_LINE and b"\n" not in self.unread:
            raise Garbled(bytes(self.unread[:80]))

    def take(self) -> Optional[bytes]:
        """Returns the next line without its end; None if there is no whole one."""
        while True:
            end = self.unread.find(b"\n", self._taken)
            if end < 0:
                return None
            line = bytes(self.unread[self._taken : end])
            self._taken = end + 1
            if self._unanswered is None or not line.startswith(self._unanswered.answers):
                return line
            self._unanswered = None

    def take_of_answer(self) -> Optional[bytes]:
        """Returns the next line like `take`. Raises `Garbled` if the answer is too long."""
        line = self.take()
        if line is not None:
            self._budget -= len(line) + LINE_COST
            if self._budget < 0:
                raise Garbled(line)
        return line

    def check_unasked(self) -> None:
        """Raises `Garbled` if the server has answered before it was asked."""
        unread = bytes(self.unread[self._taken :])
        # Lines that a server sends unasked begin with `!`; the answer to a probe may come late.
        if unread and self._unanswered is None and not unread.startswith(b"!"):
            raise Garbled(unread)


def set_options(connected: socket.socket) -> None:
    """Sets the options of a connection over TCP."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Connection:
    """Connection to a server. After any exception its caller closes it.

    `connect_timeout` and `answer_timeout` are in seconds. Raises `OSError` if it cannot connect.
    """

    def __init__(
        self, address: str, port: int, connect_timeout: float, answer_timeout: float, tls: Optional[ssl.SSLContext]
    ) -> None:
        self.answer_timeout = answer_timeout
        self._process = os.getpid()
        self._lines = Lines()
        self._deadline = 0.0
        if address.startswith("unix:"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(connect_timeout)
            self._socket.connect(address[len("unix:") :])
            return
        has_tls = address.startswith("tls:")
        host, port = host_and_port(address[len("tls:") :] if has_tls else address, port)
        self._socket = socket.create_connection((host, port), connect_timeout)
        set_options(self._socket)
        if has_tls:
            context = tls or ssl.create_default_context()
            self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Ends the connection. In a fork of the process that opened it, only the copy of the fork is closed."""
        if self._process == os.getpid():
            # A fork may have a copy, with which the connection would stay open.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, line: bytes, wait: float = 0.0, probe: Optional[Probe] = None) -> None:
        """Sends a request, given without the end of its line, to which the server may answer after `wait` seconds.

        During the wait the server is asked with `probe` whether it hangs.
        Raises `OSError` if that fails or times out, and `Garbled` if the server has answered already.
        """
        self._lines.check_unasked()
        self.send_amid_answers(line, wait, probe)

    def send_amid_answers(self, line: bytes, wait: float = 0.0, probe: Optional[Probe] = None) -> None:
        """Sends a request like `send`, while answers to earlier ones may be under way."""
        check_process(self._process)
        self._socket.settimeout(self.answer_timeout)
        self._socket.sendall(line + b"\n")
        self._deadline = time.monotonic() + min(wait, NO_LIMIT) + self.answer_timeout
        self._lines.begin_answer(probe)

    def line(self) -> bytes:
        """Returns the next line of the answer without its end.

        Raises `OSError`: `TimeoutError` or `socket.timeout` if the answer is not whole in time or the server hangs, `Closed` at the end
        of the stream, and `Garbled` if the line or the answer is too long.
        """
        while True:
            line = self._lines.take_of_answer()
            if line is not None:
                return line
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout("the server does not answer in time")
            probe, pause = self._lines.probe()
            if probe:
                self._socket.settimeout(self.answer_timeout)
                self._socket.sendall(probe)
            self._socket.settimeout(min(left, pause))
            try:
                self._deadline += self._receive() / PART * self.answer_timeout
            except socket.timeout:
                pass

    def pending(self) -> List[bytes]:
        """Returns the lines that have arrived, without waiting. Raises `OSError` if the connection is lost and there are none."""
        check_process(self._process)
        self._socket.settimeout(0.0)
        fault: Optional[OSError] = None
        try:
            while len(self._lines.unread) < MOST_PENDING:
                self._receive()
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            fault = error
        lines = list(iter(self._lines.take, None))
        if fault is not None and not lines:
            raise fault
        return lines

    def _receive(self) -> int:
        chunk = self._socket.recv(65536)
        self._lines.feed(chunk)
        return len(chunk)


def check_process(process: int) -> None:
    """Raises `Closed` in a fork of the process that opened a connection."""
    if process != os.getpid():
        raise Closed("the connection belongs to the process of which this one is a fork")


def host_and_port(address: str, port: int) -> Tuple[str, int]:
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, int(rest[1:]) if rest.startswith(":") else port
    host, colon, number = address.rpartition(":")
    return (host, int(number)) if colon and ":" not in host else (address, port)


def words_of(error: Exception) -> str:
    """Returns an error in words. The timeouts of asyncio have none."""
    return str(error) or "the server does not answer in time"


class Servers:
    """Servers in the order of each key, without the ones that have failed less than `retry` seconds ago."""

    def __init__(self, servers: Sequence[str], retry: float) -> None:
        self.servers = list(servers) or ["localhost"]
        self._retry = retry
        #: Time until which a failed server is skipped, by server.
        self._dead_until: Dict[str, float] = {}

    def order(self, key: bytes) -> List[str]:
        """Returns the servers in the same order as MediaWiki: sorted by `md5(server + key)`."""

        def digest(server: str) -> str:
            return hashlib.md5(server.encode() + key, usedforsecurity=False).hexdigest()

        return sorted(self.servers, key=digest)

    def alive(self, key: bytes, failures: List[str]) -> Iterator[str]:
        """Returns the servers to ask in turn, and adds the skipped ones to `failures`."""
        for server in self.order(key):
            if self._dead_until.get(server, 0.0) > time.monotonic():
                failures.append(f"{server}: skipped, as it failed less than {self._retry:g} s ago")
            else:
                yield server

    def failed(self, server: str, error: Exception, failures: List[str]) -> None:
        """Notes that a server has failed."""
        failures.append(f"{server}: {words_of(error)}")
        self._dead_until[server] = time.monotonic() + self._retry


class Fleet(Servers):
    """Servers and their idle connections. Threads may share it; so may a process and its forks, as each has its own connections."""

    def __init__(
        self,
        servers: Sequence[str],
        port: int,
        connect_timeout: float,
        answer_timeout: float,
        retry: float,
        tls: Optional[ssl.SSLContext],
        greet: Optional[Callable[[Connection], None]] = None,
    ) -> None:
        super().__init__(servers, retry)

        def connect(address: str) -> Connection:
            return Connection(address, port, connect_timeout, answer_timeout, tls)

        self._connect = connect
        self._greet = greet
        self._lock = threading.Lock()
        _FLEETS.add(self)
        self._process = os.getpid()
        #: Idle connections with the times since which they are idle, by server.
        self._idle: Dict[str, List[Tuple[float, Connection]]] = {}

    def ask_first(self, key: bytes, ask: Callable[[Connection], Answer]) -> Tuple[Answer, str, Connection]:
        """Asks the servers in the order of the key until one answers. Returns the answer, the server and the connection.

        Raises `Unavailable` if none answers. A server that fails is skipped for the next `retry` seconds.
        """
        failures: List[str] = []
        for server in self.alive(key, failures):
            try:
                answer, connection = self.ask(server, ask)
                return answer, server, connection
            except OSError as error:
                self.failed(server, error, failures)
        raise Unavailable("no server answers; " + "; ".join(failures))

    def ask(self, server: str, ask: Callable[[Connection], Answer]) -> Tuple[Answer, Connection]:
        """Asks one server, and returns the answer and the connection. Raises `OSError` if that fails.

        Uses an idle connection if there is one, and a new one if that fails: the server may have been restarted, or the network may
        have dropped the connection.
        """
        idle = self._take_idle(server)
        if idle is not None:
            try:
                return _asked(idle, ask)
            except OSError:
                pass
        connection = self._connect(server)
        if self._greet is not None:
            _asked(connection, self._greet)
        return _asked(connection, ask)

    def give_back(self, server: str, connection: Connection) -> None:
        """Keeps an open connection, on which nothing is held, for the next request, or closes it if enough are kept."""
        with self._lock:
            self._forget_of_parent()
            kept = self._idle.setdefault(server, [])
            old = take_old(kept)
            if len(kept) < MOST_IDLE:
                kept.append((time.monotonic(), connection))
            else:
                old.append(connection)
        for connection in old:
            connection.close()

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            self._forget_of_parent()
            self._close_idle()

    def _take_idle(self, server: str) -> Optional[Connection]:
        with self._lock:
            self._forget_of_parent()
            kept = self._idle.get(server, [])
            old = take_old(kept)
            idle = kept.pop()[1] if kept else None
        for connection in old:
            connection.close()
        return idle

    def _close_idle(self) -> None:
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()
        self._idle.clear()

    def _forget_of_parent(self) -> None:
        if self._process != os.getpid():
            # The connections belong to the parent process, and stay open there.
            self._process = os.getpid()
            self._close_idle()


#: Clients of this process.
_FLEETS: weakref.WeakSet[Fleet] = weakref.WeakSet()


def _free_locks() -> None:
    for fleet in _FLEETS:
        fleet._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Another thread of the parent process may have had a lock, and will not free it in the fork.
    os.register_at_fork(after_in_child=_free_locks)


def take_old(kept: List[Tuple[float, Idle]]) -> List[Idle]:
    """Removes the connections that have been idle for too long from a list, oldest first, and returns them."""
    until = time.monotonic() - IDLE_AGE
    count = sum(1 for since, _ in kept if since < until)
    old = [connection for _, connection in kept[:count]]
    del kept[:count]
    return old


def _asked(connection: Connection, ask: Callable[[Connection], Answer]) -> Tuple[Answer, Connection]:
    try:
        return ask(connection), connection
    except BaseException:
        connection.close()
        raise
