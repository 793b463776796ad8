"""Locks of pools: a limited number of clients hold one, a limited number wait, and further ones are refused."""

from __future__ import annotations

import functools
import ssl
from types import TracebackType
from typing import Any, Callable, Optional, Type, TypeVar, Union, cast

from ._locks import DEFAULT_PORT, Further, LockRequest, LockState, key_of
from ._wire import NO_LIMIT, Connection, Fleet, Lost

Function = TypeVar("Function", bound=Callable[..., Any])


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
        at_least: Optional[float] = None,
        also: Optional[Further] = None,
    ) -> Lock:
        """Waits for a lock of the key, for `timeout` seconds; None: without limit.

        At most `workers` clients hold a lock of the key at a time, and at most `queue` hold or wait. With `anyone`, the lock is `done`
        and not held if another client finishes the work meanwhile. The server takes the lock back after `hold` seconds. It keeps the
        key occupied for `at_least` seconds from the grant on, also after the lock is released or lost, so that the work is done at
        most once in that time. `also` has further keys, each with its number of workers, or a tuple of that and its queue: all
        locks are granted together, and none is held during the wait.

        Raises `QueueFull`, `TimedOut`, `Refused`, `Unavailable` if no server answers or all drain, `TypeError` for a key that is no
        `str`, and `ValueError` for a key that cannot be sent, a `hold` that is not more than 0, an `at_least` that is longer than
        `hold` or used with `also`, or a number that is none.
        """
        request = LockRequest(
            key,
            self._who,
            workers=workers,
            queue=queue,
            timeout=timeout,
            anyone=anyone,
            hold=hold,
            at_least=at_least,
            also=also,
        )

        def ask(connection: Connection) -> bytes:
            connection.send(*request.line())
            return request.check(connection.line())

        answer, server, connection = self._fleet.ask_first(request.raw, ask)
        if answer == b"LOCKED":
            return Lock(request, self._fleet, server, connection)
        self._fleet.give_back(server, connection)
        request.granted(answer)
        return Lock(request, self._fleet, server, None)

    def locked(self, key: Union[str, Callable[..., str]], **options: Any) -> Callable[[Function], Function]:
        """Returns a decorator: each call of the function holds a lock of the key, and raises what `acquire` with the options raises.

        A `key` that is a function gets the arguments of the call, and returns the key.
        """

        def decorate(function: Function) -> Function:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with self.acquire(key_of(key, args, kwargs), **options):
                    return function(*args, **kwargs)

            return cast(Function, call)

        return decorate

    def close(self) -> None:
        """Closes the idle connections. Locks that are held stay held."""
        self._fleet.close()


class Lock(LockState):
    """Lock that is held until the end of its `with`. If that ends with an exception the work counts as not done, and a waiter does it."""

    def __init__(self, request: LockRequest, fleet: Fleet, server: str, connection: Optional[Connection]) -> None:
        super().__init__(request, connection is not None)
        self._fleet = fleet
        self._server = server
        self._connection = connection

    @property
    def lost(self) -> Optional[str]:
        """Reason of the loss; None if no loss is known. Does not wait.

        `expired`: the time of `hold` is over; `taken_back`: by an operator or a limit of the daemon; or `connection`.
        """
        return self._loss if self._connection is None else self._note(self._connection.pending)

    def release(self) -> None:
        """Releases the lock: the work is done. Raises `Lost` if it was lost before. A second call has no effect."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.send(self._release_line())
            self._check_release(connection.line())
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
