"""Locks of pools: a limited number of clients hold one, a limited number wait, and further ones are refused."""

from __future__ import annotations

import ssl
import time
from types import TracebackType
from typing import Optional, Type

from ._wire import NO_LIMIT, Connection, Draining, Fleet, Garbled, Lost, QueueFull, Refused, TimedOut
from ._wire import escape, rest, seconds, shortened, text_of

DEFAULT_PORT = 7531
#: Most bytes of a name for the lists of holders.
LONGEST_WHO = 64
#: Shortest hold that can be sent, in seconds; 0 would mean none.
SHORTEST_HOLD = 0.001


class Pools:
    """Client of the pools of one or several servers, each `HOST`, `HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`.

    Keys are distributed over several servers as MediaWiki does it, so all clients must spell the servers alike. Timeouts are in
    seconds; a server that has failed is skipped for `retry` seconds. Lists of the holders of a key show the first 64 bytes of
    `who`. Threads may share a client.
    """

    def __init__(
        self,
        *servers: str,
        who: Optional[str] = None,
        connect_timeout: float = 2.0,
        answer_timeout: float = 5.0,
        retry: float = 1.0,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._fleet = Fleet(servers, DEFAULT_PORT, connect_timeout, answer_timeout, retry, tls)
        self._who = who

    def acquire(
        self,
        key: str,
        *,
        workers: int = 1,
        queue: int = NO_LIMIT,
        timeout: Optional[float] = None,
        anyone: bool = False,
        hold: Optional[float] = None,
    ) -> Lock:
        """Waits for a lock of the key, for `timeout` seconds; None: without limit.

        At most `workers` clients hold a lock of the key at a time, and at most `queue` hold or wait. With `anyone`, the lock is `done`
        and not held if another client finishes the work meanwhile. The server takes the lock back after `hold` seconds.

        Raises `QueueFull`, `TimedOut`, `Refused`, `Unavailable` if no server answers or all drain, and `ValueError` for a key that
        cannot be sent, a `hold` that is not more than 0, or a number that is none.
        """
        raw = escape(key)
        words = [b"ACQ4ANY" if anyone else b"ACQ4ME", raw, str(workers).encode(), str(queue).encode()]
        options = []
        if hold is not None:
            if not hold > 0:
                raise ValueError(f"hold is {hold}, and not more than 0; None means without limit")
            options.append(b"hold=" + seconds(max(hold, SHORTEST_HOLD)))
        if self._who is not None:
            options.append(b"who=" + shortened(self._who, LONGEST_WHO))
        # A number that is none is refused before a server is asked.
        seconds(timeout)
        begun = time.monotonic()

        def ask(connection: Connection) -> bytes:
            left = rest(timeout, begun)
            connection.send(b" ".join(words + [seconds(left)] + options), NO_LIMIT if left is None else left)
            answer = connection.line()
            if answer == b"ERROR DRAINING":
                raise Draining()
            outcomes = [b"LOCKED", b"QUEUE_FULL", b"TIMEOUT", b"LOCK_HELD"] + [b"DONE"] * anyone
            if answer not in outcomes and not answer.startswith(b"ERROR "):
                raise Garbled(answer)
            return answer

        answer, server, connection = self._fleet.ask_first(raw, ask)
        if answer == b"LOCKED":
            return Lock(self._fleet, server, connection, key, raw, None if hold is None else time.monotonic() + hold)
        self._fleet.give_back(server, connection)
        if answer == b"DONE":
            return Lock(self._fleet, server, None, key, raw)
        if answer == b"QUEUE_FULL":
            raise QueueFull(f"{key}: {queue} hold the lock or wait already")
        if answer == b"TIMEOUT":
            raise TimedOut(f"{key}: no lock was free within {timeout} s")
        raise Refused(text_of(answer[len(b"ERROR ") :] if answer.startswith(b"ERROR ") else answer))

    def close(self) -> None:
        """Closes the idle connections. Locks that are held stay held."""
        self._fleet.close()


class Lock:
    """Lock that is held until the end of its `with`. If that ends with an exception the work counts as not done, and a waiter does it."""

    def __init__(
        self,
        fleet: Fleet,
        server: str,
        connection: Optional[Connection],
        key: str,
        raw: bytes,
        until: Optional[float] = None,
    ) -> None:
        self._fleet = fleet
        self._server = server
        self._connection = connection
        self._raw = raw
        self._until = until
        self._loss: Optional[str] = None
        #: Key of the lock.
        self.key = key
        #: True if another client has done the work, so that no lock is held.
        self.done = connection is None

    @property
    def lost(self) -> Optional[str]:
        """Reason of the loss; None if no loss is known. Does not wait.

        `expired`: the time of `hold` is over; `taken_back`: by an operator or a limit of the daemon; or `connection`.
        """
        if self._connection is not None and self._loss is None:
            try:
                lines = self._connection.pending()
                if lines:
                    self._loss = "taken_back" if b"NOT_LOCKED" in lines else "connection"
            except OSError:
                self._loss = "connection"
            if self._until is not None and self._until <= time.monotonic():
                self._loss = "expired"
        return self._loss

    def release(self) -> None:
        """Releases the lock: the work is done. Raises `Lost` if it was lost before. A second call has no effect."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if self._loss is not None:
                raise Lost(f"{self.key}: {self._loss}")
            connection.send(b"RELEASE " + self._raw)
            answer = connection.line()
            if answer != b"RELEASED":
                raise Lost(f"{self.key}: an operator or a limit of the daemon took the lock")
        except OSError as error:
            connection.close()
            raise Lost(f"{self.key}: {error}") from error
        except BaseException:
            connection.close()
            raise
        self._fleet.give_back(self._server, connection)

    def abandon(self) -> None:
        """Gives the lock up: the work is not done, and the next waiter gets the lock. A second call has no effect."""
        if self._connection is not None:
            # The daemon treats the end of a connection differently from a release.
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.release()
        else:
            self.abandon()
