"""Fixture for pytest: each process of a test run, and so each worker of xdist, has a member of a pool for itself.

The first test that uses the fixture waits for the member; it is given back at the end of the run. A member that was lost fails the
further tests that use it. In `pytest.ini`:

    [pytest]
    poolcounter_pool = accounts
    poolcounter_servers = ci.example.org
"""

from __future__ import annotations

import os
from typing import Iterator

import pytest

from ._wire import Lost
from .members import Member, Members


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("poolcounter")
    for name, about in (
        ("pool", "pool of which the fixture pool_member takes a member"),
        ("servers", "servers, separated by spaces (default: localhost)"),
        ("timeout", "seconds to wait for a member (default: without limit)"),
    ):
        parser.addini(f"poolcounter_{name}", about)
        group.addoption(f"--poolcounter-{name}", help=about)


@pytest.fixture(scope="session")
def pool_member(pytestconfig: pytest.Config) -> Iterator[Member]:
    """Member of the pool `poolcounter_pool`, for this process alone. Fails the test if that is not set."""

    def setting(name: str) -> str:
        return str(pytestconfig.getoption(f"--poolcounter-{name}") or pytestconfig.getini(f"poolcounter_{name}") or "")

    if not setting("pool"):
        pytest.fail("set the pool: poolcounter_pool in pytest.ini, or --poolcounter-pool", pytrace=False)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "pytest")
    members = Members(*setting("servers").split(), name=f"{worker}:{os.getpid()}")
    timeout = float(setting("timeout")) if setting("timeout") else None
    member = members.take(setting("pool"), timeout=timeout)
    try:
        yield member
    finally:
        try:
            # Returned as unchanged: a failed test does not mean a failed member.
            member.give_back()
        except Lost:
            _fail(member)
        finally:
            members.close()


@pytest.fixture(autouse=True)
def _pool_member_is_held(request: pytest.FixtureRequest) -> None:
    """Asks before each test that uses the member whether it is lost, by which it is had back after a restart of the server."""
    if "pool_member" in request.fixturenames:
        member: Member = request.getfixturevalue("pool_member")
        if member.lost is not None:
            _fail(member)


def _fail(member: Member) -> None:
    reason = member.lost or "connection"
    pytest.fail(f"{member.name} of the pool {member.pool} was lost ({reason}): another client may have had it", pytrace=False)
