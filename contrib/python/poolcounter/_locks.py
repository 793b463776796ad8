"""Requests for locks and what their answers mean, for the client with threads and for the one of asyncio. It knows no sockets."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple, Union

from ._wire import NO_LIMIT, Draining, Garbled, Lost, Probe, QueueFull, Refused, TimedOut
from ._wire import escape, rest, seconds, shortened, text_of

DEFAULT_PORT = 7531
#: Most bytes of a name for the lists of holders.
LONGEST_WHO = 64
#: Shortest hold that can be sent, in seconds; 0 would mean none.
SHORTEST_HOLD = 0.001
#: Most further keys of a request.
MOST_FURTHER = 4
#: Probe of a server at which a request waits. The client may lack the right to it, which is an answer, too.
PROBE = Probe(b"STATS UPTIME", (b"uptime: ", b"ERROR "))

#: Limits of further keys: the number of holders, or that and the number that hold or wait.
Further = Mapping[str, Union[int, Tuple[int, int]]]


class LockRequest:
    """Request for a lock. Raises `ValueError` and `TypeError` for values that cannot be sent."""

    def __init__(
        self,
        key: str,
        who: Optional[str],
        *,
        workers: int = 1,
        queue: int = NO_LIMIT,
        timeout: Optional[float] = None,
        anyone: bool = False,
        hold: Optional[float] = None,
        at_least: Optional[float] = None,
        also: Optional[Further] = None,
    ) -> None:
        self.key = key
        self.raw = escape(key)
        self.hold = hold
        self._queue = queue
        self._timeout = timeout
        self._anyone = anyone
        self._begun = time.monotonic()
        # A number that is none is refused before a server is asked.
        seconds(timeout)
        self._words = [b"ACQ4ANY" if anyone else b"ACQ4ME", self.raw, str(workers).encode(), str(queue).encode()]
        self._options = _options(hold, at_least, also or {}, who)

    def line(self) -> Tuple[bytes, float, Probe]:
        """Returns the request with the rest of the timeout, the seconds after which the server may answer, and its probe."""
        left = rest(self._timeout, self._begun)
        return b" ".join(self._words + [seconds(left)] + self._options), NO_LIMIT if left is None else left, PROBE

    def check(self, answer: bytes) -> bytes:
        """Returns an answer. Raises `Draining` or `Garbled`: another server may be asked then."""
        if answer == b"ERROR DRAINING":
            raise Draining()
        outcomes = [b"LOCKED", b"QUEUE_FULL", b"TIMEOUT", b"LOCK_HELD"] + [b"DONE"] * self._anyone
        if answer not in outcomes and not answer.startswith(b"ERROR "):
            raise Garbled(answer)
        return answer

    def granted(self, answer: bytes) -> bool:
        """Returns True for a lock, and False if another client has done the work. Raises `QueueFull`, `TimedOut` or `Refused`."""
        if answer in (b"LOCKED", b"DONE"):
            return answer == b"LOCKED"
        if answer == b"QUEUE_FULL":
            raise QueueFull(f"{self.key}: {self._queue} hold the lock or wait already")
        if answer == b"TIMEOUT":
            raise TimedOut(f"{self.key}: no lock was free within {self._timeout} s")
        raise Refused(text_of(answer[len(b"ERROR ") :] if answer.startswith(b"ERROR ") else answer))


class LockState:
    """What is known of a lock that was granted now, or was not needed."""

    def __init__(self, request: LockRequest, granted: bool) -> None:
        self._raw = request.raw
        self._until = None if request.hold is None else time.monotonic() + request.hold
        self._loss: Optional[str] = None
        #: Key of the lock.
        self.key = request.key
        #: True if another client has done the work, so that no lock is held.
        self.done = not granted

    def _note(self, pending: Callable[[], Sequence[bytes]]) -> Optional[str]:
        """Returns the reason of the loss. `pending` returns the lines that have arrived."""
        if self._loss is None:
            try:
                lines = pending()
                if lines:
                    self._loss = "taken_back" if b"NOT_LOCKED" in lines else "connection"
            except OSError:
                self._loss = "connection"
            if self._until is not None and self._until <= time.monotonic():
                self._loss = "expired"
        return self._loss

    def _release_line(self) -> bytes:
        """Returns the request that releases the lock. Raises `Lost` if it is known to be lost."""
        if self._loss is not None:
            raise Lost(f"{self.key}: {self._loss}")
        return b"RELEASE " + self._raw

    def _check_release(self, answer: bytes) -> None:
        """Raises `Lost` unless the lock was held until now."""
        if answer != b"RELEASED":
            raise Lost(f"{self.key}: an operator or a limit of the daemon took the lock")


def key_of(key: Union[str, Callable[..., str]], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Returns the key of a call of a decorated function."""
    return key if isinstance(key, str) else key(*args, **kwargs)


def _options(hold: Optional[float], at_least: Optional[float], also: Further, who: Optional[str]) -> List[bytes]:
    options = []
    if hold is not None:
        if not hold > 0:
            raise ValueError(f"hold is {hold}, and not more than 0; None means without limit")
        options.append(b"hold=" + seconds(max(hold, SHORTEST_HOLD)))
    if at_least is not None:
        if not at_least >= 0:
            raise ValueError(f"at_least is {at_least}, and not a number from 0 on")
        if also:
            raise ValueError("at_least cannot be used with further keys")
        if at_least > (math.inf if hold is None else hold):
            raise ValueError(f"at_least is {at_least}, which is more than hold")
        options.append(b"keep=" + seconds(at_least))
    if len(also) > MOST_FURTHER:
        raise ValueError(f"there are more than {MOST_FURTHER} further keys")
    for key, limits in also.items():
        workers, queue = limits if isinstance(limits, tuple) else (limits, NO_LIMIT)
        options.append(b"also=%b:%d:%d" % (escape(key), workers, queue))
    if who is not None:
        options.append(b"who=" + shortened(who, LONGEST_WHO))
    return options
