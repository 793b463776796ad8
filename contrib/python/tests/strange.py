"""Servers that do not behave as the daemon does."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable, List

#: Serves one connection; called with it in a thread of its own.
Serve = Callable[[socket.socket], None]


class Strange:
    """Server that serves each of its connections with a function, in their order; the last one serves all further ones."""

    def __init__(self, *serve: Serve) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.connections: List[socket.socket] = []
        threading.Thread(target=self._accept, args=(list(serve),), daemon=True).start()

    def _accept(self, serve: List[Serve]) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            with_it = serve.pop(0) if len(serve) > 1 else serve[0]
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(with_it, connection), daemon=True).start()

    @staticmethod
    def _serve(serve: Serve, connection: socket.socket) -> None:
        try:
            serve(connection)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.close()


def answers(*lines: bytes) -> Serve:
    """Answers the requests with these lines, one each, and then waits for the end."""

    def serve(connection: socket.socket) -> None:
        for line in lines:
            if not connection.recv(65536):
                return
            connection.sendall(line)
        while connection.recv(65536):
            pass

    return serve


def endless(line: bytes, pause: float) -> Serve:
    """Answers the first request with this line over and over: as fast as it can, or with a pause."""

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        while True:
            connection.sendall(line if pause else line * 1000)
            time.sleep(pause)

    return serve
