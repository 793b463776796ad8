"""Tests of the built package, of the examples in the README, and of the fixture of pytest."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any, Dict

import poolcounter
from poolcounter import Members

from .daemon import DaemonTest

ROOT = Path(__file__).resolve().parent.parent


class BuildTest(unittest.TestCase):
    def test_the_built_packages_can_be_imported(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([sys.executable, ROOT / "backend.py", directory], check=True, stdout=subprocess.DEVNULL)
            stem = f"poolcounter-{poolcounter.__version__}"
            wheel = Path(directory) / f"{stem}-py3-none-any.whl"
            with zipfile.ZipFile(wheel) as files:
                names = files.namelist()
                record = files.read(f"{stem}.dist-info/RECORD").decode()
            self.assertEqual(sorted(line.split(",")[0] for line in record.splitlines()), sorted(names))
            self.assertIn("poolcounter/py.typed", names)
            with tarfile.open(Path(directory) / f"{stem}.tar.gz") as archive:
                archive.extractall(directory)
            unpacked = Path(directory) / stem
            again = Path(directory) / "again"
            subprocess.run([sys.executable, "backend.py", again], cwd=unpacked, check=True, stdout=subprocess.DEVNULL)
            self.assertEqual((again / wheel.name).read_bytes(), wheel.read_bytes())
            program = "import poolcounter; print(poolcounter.__file__)"
            found = subprocess.check_output(
                [sys.executable, "-c", program], cwd=directory, env={**os.environ, "PYTHONPATH": str(wheel)}, text=True
            )
            self.assertTrue(found.startswith(str(wheel)), found)


class ReadmeTest(DaemonTest):
    def test_the_examples_run_as_printed(self) -> None:
        operator = Members(self.daemon.members)
        operator.declare("accounts", 0, 2)
        operator.add("accounts", "ci-11", region="us")
        operator.add("accounts", "ci-12", region="us")
        places = {"Pools": self.daemon.pools, "Members": self.daemon.members}
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        self.assertEqual(len(blocks), 4)
        names: Dict[str, Any] = {}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            for block in blocks:
                exec(re.sub(r'\b(Pools|Members)\("10.0.0.5"', lambda found: f'{found[1]}("{places[found[1]]}"', block), names)
        self.assertEqual(names["page"], "rendered")
        self.assertRegex(printed.getvalue(), r"^ci-1[12] us \d+\n5433\n$")
        self.assertEqual(operator.states("accounts"), {"ci-11": "free", "ci-12": "free"})
        operator.close()
        names["daemon"].close()
        names["pools"].close()


class RecipesTest(unittest.TestCase):
    def test_the_recipes_are_programs(self) -> None:
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "RECIPES.md").read_text(), re.DOTALL)
        self.assertGreater(len(blocks), 5)
        for block in blocks:
            compile(block, "RECIPES.md", "exec")


@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class FixtureTest(DaemonTest):
    def test_each_worker_has_an_account(self) -> None:
        members = Members(self.daemon.members)
        members.declare("accounts", 0, 2)
        for name in ("x", "y"):
            members.add("accounts", name)
        has_workers = importlib.util.find_spec("xdist") is not None
        with tempfile.TemporaryDirectory() as directory:
            test = (
                "import os, time\n"
                "import pytest\n"
                "@pytest.mark.parametrize('number', range(8))\n"
                "def test_it(pool_member, number):\n"
                "    time.sleep(0.1)\n"
                "    with open(os.environ['PYTEST_XDIST_WORKER'] if 'PYTEST_XDIST_WORKER' in os.environ else 'alone', 'a') as file:\n"
                "        print(pool_member.name, file=file)\n"
                "def test_that_fails(pool_member):\n"
                "    assert False\n"
            )
            Path(directory, "test_it.py").write_text(test)
            Path(directory, "pytest.ini").write_text(
                f"[pytest]\npoolcounter_pool = accounts\npoolcounter_servers = {self.daemon.members}\n"
            )
            words = [sys.executable, "-m", "pytest", "-q", "-p", "poolcounter.pytest_plugin", "--poolcounter-timeout=30"]
            words += ["-n", "2"] if has_workers else []
            run = subprocess.run(
                words, cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
            )
            self.assertIn("1 failed, 8 passed", run.stdout, run.stdout + run.stderr)
            used = [set(path.read_text().split()) for path in Path(directory).iterdir() if path.suffix == "" and path.is_file()]
        self.assertEqual(len(used), 2 if has_workers else 1)
        self.assertTrue(all(len(names) == 1 for names in used), used)
        self.assertEqual(len(set.union(*used)), len(used), "no two workers have the same")
        self.until(lambda: members.states("accounts") == {"x": "free", "y": "free"})
        members.close()

    def test_a_lost_account_fails_the_next_tests(self) -> None:
        members = Members(self.daemon.members)
        self.addCleanup(members.close)
        members.declare("accounts", 0, 1)
        members.add("accounts", "x")
        test = (
            "import poolcounter, pytest, time\n"
            "@pytest.fixture(scope='session')\n"
            "def login(pool_member):\n"
            "    return pool_member\n"
            "def test_that_loses_it(login):\n"
            f"    operator = poolcounter.Members('{self.daemon.members}')\n"
            "    operator._ask('accounts', f'TAKEBACK {login.lease}'.encode(), b'OK')\n"
            "    while login.lost is None:\n"
            "        time.sleep(0.01)\n"
            "def test_that_uses_it(login):\n"
            "    assert False\n"
            "def test_without():\n"
            "    pass\n"
        )
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "test_it.py").write_text(test)
            words = [sys.executable, "-m", "pytest", "-q", "-p", "poolcounter.pytest_plugin", "--poolcounter-timeout=30"]
            words += ["--poolcounter-pool=accounts", f"--poolcounter-servers={self.daemon.members}"]
            run = subprocess.run(
                words, cwd=directory, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
            )
        for place in ("setup of test_that_uses_it", "teardown of test_without"):
            self.assertRegex(run.stdout, place + r" _+\n(.*\n)*?x of the pool accounts was lost \(taken_back\)")
        self.assertIn("2 passed, 2 errors", run.stdout)


if __name__ == "__main__":
    unittest.main()
