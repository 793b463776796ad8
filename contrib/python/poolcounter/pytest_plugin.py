"""A fixture for pytest: each process of a test run, so each worker of xdist, has a member of a pool for itself.

It waits for one with the first test that wants it, and gives it back at the end of the run. In `pytest.ini`:

    [pytest]
    poolcounter_pool = accounts
    poolcounter_servers = ci.example.org
"""

from __future__ import annotations

import os
from typing import Iterator

import pytest

from .members import Member, Members


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("poolcounter")
    for name, about in (
        ("pool", "the pool of members of which the fixture pool_member takes one"),
        ("servers", "the servers, with spaces between them (default: localhost)"),
        ("timeout", "how long to wait for a member, in seconds (default: without limit)"),
    ):
        parser.addini(f"poolcounter_{name}", about)
        group.addoption(f"--poolcounter-{name}", help=about)


@pytest.fixture(scope="session")
def pool_member(pytestconfig: pytest.Config) -> Iterator[Member]:
    """A member of the pool that the option names, for this process alone."""

    def setting(name: str) -> str:
        return str(pytestconfig.getoption(f"--poolcounter-{name}") or pytestconfig.getini(f"poolcounter_{name}") or "")

    if not setting("pool"):
        pytest.fail("no pool is named: poolcounter_pool in pytest.ini, or --poolcounter-pool", pytrace=False)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "pytest")
    members = Members(*setting("servers").split(), name=f"{worker}:{os.getpid()}")
    timeout = float(setting("timeout")) if setting("timeout") else None
    member = members.take(setting("pool"), timeout=timeout)
    try:
        yield member
    finally:
        # A test that fails says nothing about the member.
        member.give_back()
        members.close()
