"""A client of PoolCounter daemons: locks of pools that a fleet shares, and members of pools, such as accounts, phones or licences.

Whatever a connection holds is given back when it closes, so nothing is left behind by a process that dies.
"""

from ._wire import Lost, PoolCounterError, QueueFull, Refused, TimedOut, Unavailable
from .members import Member, Members, NoMembers, Provider
from .pools import Lock, Pools

__version__ = "0.9.0"
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
