"""Client of PoolCounter daemons: locks that a fleet shares, and members of pools, such as accounts, phones or licences.

The daemon gives back all that a connection holds when the connection closes, so a process that dies leaves nothing behind, unless a fork
of it lives on. `poolcounter.aio` has the locks for asyncio.
"""

from ._wire import Lost, PoolCounterError, QueueFull, Refused, TimedOut, Unavailable
from .members import Member, Members, NoMembers
from .pools import Lock, Pools
from .provider import Provider

__version__ = "1.0.0"
__all__ = [
    "Lock",
    "Lost",
    "Member",
    "Members",
    "NoMembers",
    "PoolCounterError",
    "Pools",
    "Provider",
    "QueueFull",
    "Refused",
    "TimedOut",
    "Unavailable",
]
