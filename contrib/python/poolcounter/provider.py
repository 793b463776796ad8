"""Providers of members, and how members are described."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from types import TracebackType
from typing import Callable, List, Mapping, Optional, Tuple, Type, Union

from ._wire import Connection, escape, number, text_of

LONGEST_NAME = 255

#: Names of options of a take, which attributes must not have.
RESERVED = {"member", "n", "pri", "lease", "token"}

#: Description of a member by its provider: a name, or a name and attributes.
Described = Union[str, Tuple[str, Mapping[str, str]]]


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
        self._process = os.getpid()
        self._is_ending = threading.Event()
        self._waker, self._wake = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for source in (connection, self._waker):
            self._selector.register(source, selectors.EVENT_READ)
        #: Names of the members that are started and not stopped yet.
        self.members: List[str] = []
        self._thread = threading.Thread(target=self._serve, name="poolcounter-provider", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes the members of this provider out of the pool, and stops them. A second call has no effect, nor has one in a fork."""
        if self._process != os.getpid():
            return
        self._is_ending.set()
        # The thread sees the end of the stream, also if a fork has a copy, unless it has ended by itself.
        with contextlib.suppress(OSError):
            self._wake.shutdown(socket.SHUT_RDWR)
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
                    answer = self._answer(line) if line.startswith(b"!") else None
                    if answer is not None:
                        self._connection.send_amid_answers(answer)
                self._selector.select()
        except OSError:
            pass
        self._selector.close()
        self._connection.close()
        for member in self.members:
            self._stop_one(member)
        self.members.clear()
        self._waker.close()

    def _answer(self, line: bytes) -> Optional[bytes]:
        """Does a task, and returns its result; None for a line that is no task."""
        words = line.split()
        if len(words) < 3 or words[0] not in (b"!START", b"!STOP", b"!CHECK", b"!CLEAN"):
            return None
        task, what = words[0], words[2]
        if task == b"!START":
            try:
                described = self._start(number(what))
                answer = description(described)
            except Exception as error:
                return b"FAILED " + what + b" " + " ".join(str(error).split()).encode(errors="replace")[:400]
            self.members.append(text_of(answer.split()[0]))
            return b"STARTED " + what + b" " + answer
        member = text_of(what)
        if task == b"!STOP":
            if member in self.members:
                self.members.remove(member)
            self._stop_one(member)
            return b"STOPPED " + what
        is_check = task == b"!CHECK"
        reason = ""
        try:
            work = self._check if is_check else self._clean
            is_well = work is None or work(member)
        except Exception as error:
            is_well, reason = False, " " + " ".join(str(error).split())
        if is_well:
            return (b"ALIVE " if is_check else b"CLEANED ") + what
        return b"DEAD " + what + reason.encode(errors="replace")[:400]

    def _stop_one(self, member: str) -> None:
        if self._stop is not None:
            with contextlib.suppress(Exception):
                self._stop(member)


def pairs(attributes: Mapping[str, str]) -> List[bytes]:
    """Returns attributes as they are sent. Raises `ValueError` for one with a wrong name or value."""
    reserved = RESERVED.intersection(attributes)
    if reserved:
        raise ValueError(f"an attribute cannot have the name of an option of a take: {', '.join(sorted(reserved))}")
    return [escape(name, LONGEST_NAME) + b"=" + escape(value, LONGEST_NAME) for name, value in attributes.items()]


def description(described: Described) -> bytes:
    """Returns a member and its attributes as they are sent. Raises `ValueError` like `pairs`."""
    name, attributes = (described, {}) if isinstance(described, str) else described
    return b" ".join([escape(name, LONGEST_NAME)] + pairs(attributes))
