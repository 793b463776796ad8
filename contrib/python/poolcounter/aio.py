"""Locks of pools for asyncio, with the same requests and exceptions as `poolcounter.Pools`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import time
from types import TracebackType
from typing import Any, Awaitable, Callable, Dict, Generator, List, Optional, Sequence, Tuple, Type, TypeVar, Union, cast

from ._locks import DEFAULT_PORT, Further, LockRequest, LockState, key_of
from ._wire import LONGEST_SLEEP, MOST_IDLE, NO_LIMIT, Closed, Lines, Lost, Probe, Servers, Unavailable
from ._wire import check_process, host_and_port, set_options, take_old, words_of

Coroutine = TypeVar("Coroutine", bound=Callable[..., Awaitable[Any]])


class Pools:
    """Client of the pools of one or several servers like `poolcounter.Pools`, for the tasks of one event loop at a time."""

    def __init__(
        self,
        *servers: str,
        who: Optional[str] = None,
        connect_timeout: float = 2.0,
        answer_timeout: float = 5.0,
        retry: float = 1.0,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self._servers = Servers(servers, retry)
        self._who = who
        self._connect_timeout = connect_timeout
        self._answer_timeout = answer_timeout
        self._tls = tls
        #: Loop of the idle connections.
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        #: Idle connections with the times since which they are idle, by server.
        self._idle: Dict[str, List[Tuple[float, _Connection]]] = {}

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
    ) -> Acquiring:
        """Waits for a lock like `poolcounter.Pools.acquire`: `async with pools.acquire("k") as lock:` or `lock = await pools.acquire("k")`.

        A wait that is cancelled is given up.
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
        return Acquiring(self, request)

    def locked(self, key: Union[str, Callable[..., str]], **options: Any) -> Callable[[Coroutine], Coroutine]:
        """Returns a decorator for coroutine functions: see `poolcounter.Pools.locked`."""

        def decorate(function: Coroutine) -> Coroutine:
            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                async with self.acquire(key_of(key, args, kwargs), **options):
                    return await function(*args, **kwargs)

            return cast(Coroutine, call)

        return decorate

    def close(self) -> None:
        """Closes the idle connections. Locks that are held stay held."""
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()
        self._idle.clear()

    async def _acquire(self, request: LockRequest) -> Lock:
        failures: List[str] = []
        for server in self._servers.alive(request.raw, failures):
            try:
                answer, connection = await self._ask(server, request)
            except (OSError, asyncio.TimeoutError) as error:
                self._servers.failed(server, error, failures)
                continue
            if answer == b"LOCKED":
                return Lock(request, self, server, connection)
            self._give_back(server, connection)
            request.granted(answer)
            return Lock(request, self, server, None)
        raise Unavailable("no server answers; " + "; ".join(failures))

    async def _ask(self, server: str, request: LockRequest) -> Tuple[bytes, _Connection]:
        """Asks one server, on an idle connection if there is one, and on a new one if that fails."""
        kept = self._kept(server)
        for connection in take_old(kept):
            connection.close()
        if kept:
            _, idle = kept.pop()
            try:
                return request.check(await idle.ask(*request.line())), idle
            except (OSError, asyncio.TimeoutError):
                idle.close()
            except BaseException:
                idle.close()
                raise
        connection = await asyncio.wait_for(self._connect(server), self._connect_timeout)
        try:
            return request.check(await connection.ask(*request.line())), connection
        except BaseException:
            connection.close()
            raise

    async def _connect(self, server: str) -> _Connection:
        loop = asyncio.get_running_loop()

        def protocol() -> _Connection:
            return _Connection(self._answer_timeout)

        if server.startswith("unix:"):
            return (await loop.create_unix_connection(protocol, server[len("unix:") :]))[1]
        has_tls = server.startswith("tls:")
        host, port = host_and_port(server[len("tls:") :] if has_tls else server, DEFAULT_PORT)
        context = (self._tls or ssl.create_default_context()) if has_tls else None
        transport, connection = await loop.create_connection(protocol, host, port, ssl=context)
        set_options(transport.get_extra_info("socket"))
        return connection

    def _kept(self, server: str) -> List[Tuple[float, _Connection]]:
        """Returns the idle connections to a server. Those of another loop than the running one are closed: they are of no use here."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.close()
            self._loop = loop
        return self._idle.setdefault(server, [])

    def _give_back(self, server: str, connection: _Connection) -> None:
        kept = self._kept(server)
        old = take_old(kept)
        if len(kept) < MOST_IDLE:
            kept.append((time.monotonic(), connection))
        else:
            old.append(connection)
        for connection in old:
            connection.close()


class Acquiring:
    """Request for a lock that is made when it is awaited, or at the begin of its `async with`."""

    def __init__(self, pools: Pools, request: LockRequest) -> None:
        self._pools = pools
        self._request = request
        self._lock: Optional[Lock] = None

    def __await__(self) -> Generator[Any, None, Lock]:
        return self._pools._acquire(self._request).__await__()

    async def __aenter__(self) -> Lock:
        self._lock = await self
        return self._lock

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._lock is not None:
            await self._lock.__aexit__(kind, error, trace)


class Lock(LockState):
    """Lock that is held until the end of its `async with`. If that ends with an exception the work counts as not done."""

    def __init__(self, request: LockRequest, pools: Pools, server: str, connection: Optional[_Connection]) -> None:
        super().__init__(request, connection is not None)
        self._pools = pools
        self._server = server
        self._connection = connection

    @property
    def lost(self) -> Optional[str]:
        """Reason of the loss; None if no loss is known: see `poolcounter.Lock.lost`. Does not wait."""
        return self._loss if self._connection is None else self._note(self._connection.pending)

    async def release(self) -> None:
        """Releases the lock: the work is done. Raises `Lost` if it was lost before. A second call has no effect."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            self._check_release(await connection.ask(self._release_line()))
        except (OSError, asyncio.TimeoutError) as error:
            connection.close()
            raise Lost(f"{self.key}: {words_of(error)}") from error
        except BaseException:
            connection.close()
            raise
        self._pools._give_back(self._server, connection)

    def abandon(self) -> None:
        """Gives the lock up: the work is not done, and the next waiter gets the lock. A second call has no effect."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            await self.release()
        else:
            self.abandon()


class _Connection(asyncio.Protocol):
    """Connection to a server. After any exception its caller closes it."""

    def __init__(self, answer_timeout: float) -> None:
        self._answer_timeout = answer_timeout
        self._process = os.getpid()
        self._lines = Lines()
        self._transport: Optional[asyncio.Transport] = None
        self._fault: Optional[OSError] = None
        #: Set while a task waits for a line.
        self._news: Optional[asyncio.Future[None]] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._lines.feed(data)
        except OSError as error:
            self._fault = error
            self.close()
        self._tell()

    def connection_lost(self, error: Optional[Exception]) -> None:
        if self._fault is None:
            self._fault = error if isinstance(error, OSError) else Closed("the server has closed the connection")
        self._transport = None
        self._tell()

    def close(self) -> None:
        """Ends the connection at once. Does nothing in a fork of the process that opened it: the loop is that of the parent."""
        if self._transport is None or self._process != os.getpid():
            return
        transport, self._transport = self._transport, None
        # A fork may have a copy, with which the connection would stay open. Not every loop lets its own socket be shut down.
        own = transport.get_extra_info("socket")
        if own is not None:
            with contextlib.suppress(OSError), own.dup() as copy:
                copy.shutdown(socket.SHUT_RDWR)
        # A loop that is closed closes no transport. Its transport then closes its socket when it is freed.
        with contextlib.suppress(RuntimeError):
            transport.abort()

    async def ask(self, line: bytes, wait: float = 0.0, probe: Optional[Probe] = None) -> bytes:
        """Sends a request, and returns the line that answers it. The server may answer after `wait` seconds.

        During the wait the server is asked with `probe` whether it hangs.
        Raises `OSError`, or `asyncio.TimeoutError` if the answer is not there in time.
        """
        check_process(self._process)
        self._lines.check_unasked()
        if self._fault is not None or self._transport is None:
            raise self._fault or Closed("the connection is closed")
        self._lines.begin_answer(probe)
        self._transport.write(line + b"\n")
        return await asyncio.wait_for(self._line(self._transport), min(wait + self._answer_timeout, LONGEST_SLEEP))

    def pending(self) -> Sequence[bytes]:
        """Returns the lines that have arrived. Raises `OSError` if the connection is lost and there are none."""
        check_process(self._process)
        lines = list(iter(self._lines.take, None))
        if self._fault is not None and not lines:
            raise self._fault
        return lines

    async def _line(self, transport: asyncio.Transport) -> bytes:
        while True:
            line = self._lines.take_of_answer()
            if line is not None:
                return line
            if self._fault is not None:
                raise self._fault
            probe, pause = self._lines.probe()
            if probe:
                transport.write(probe)
            self._news = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._news], timeout=pause)

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
