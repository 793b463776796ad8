"""Daemon of a test: the program in `POOLCOUNTER_PROGRAM`, or else `poolcounter` in the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import unittest
from typing import Callable, Optional

PROGRAM: Optional[str] = os.environ.get("POOLCOUNTER_PROGRAM") or shutil.which("poolcounter")


class Daemon:
    """Running daemon with pools and members."""

    def __init__(self, pools: str = "127.0.0.1:0", members: str = "127.0.0.1:0", store: str = "memory") -> None:
        assert PROGRAM is not None
        words = [PROGRAM, "-l", pools, "--members", "--members-listen", members, "--members-store", store]
        self._process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.pools = self.members = ""
        for line in self._process.stderr:
            there = re.search(r"the members are at ([0-9.:]+)", line)
            self.members = there.group(1) if there else self.members
            there = re.search(r" listens on ([0-9.]+:[0-9]+)", line)
            if there:
                self.pools = there.group(1)
                return
        raise AssertionError("the daemon ended before it listened")

    def stop(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


class DaemonTest(unittest.TestCase):
    """Test with a daemon of its own; skipped if there is no program."""

    def setUp(self) -> None:
        if PROGRAM is None:
            self.skipTest("no daemon: set POOLCOUNTER_PROGRAM")
        self.daemon = Daemon()
        self.addCleanup(lambda: self.daemon.stop())

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until `is_so` returns True. Fails after 30 seconds."""
        deadline = time.monotonic() + 30
        while not is_so():
            self.assertLess(time.monotonic(), deadline, "the condition is still false")
            time.sleep(0.005)
