from __future__ import annotations

import os
import tempfile
import threading
import time
import unittest
from typing import Callable, List, Tuple
from unittest import mock

from poolcounter import Lost, Member, Members, NoMembers, Refused, TimedOut, members
from poolcounter._wire import Connection

from .daemon import Daemon, DaemonTest

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]


class MembersTest(DaemonTest):
    def setUp(self) -> None:
        super().setUp()
        self.members = Members(self.daemon.members, name="a test")
        self.addCleanup(self.members.close)
        self.members.declare("acc", 0, 3, on_loss="ok")
        for name, region in [("a", "eu"), ("b", "us"), ("c", "us")]:
            self.members.add("acc", name, region=region)

    def states(self) -> str:
        return " ".join(f"{name} {state}" for name, state in self.members.states("acc").items())

    def test_a_member_is_held_up_to_the_end_of_the_with(self) -> None:
        with self.members.take("acc", region="eu") as member:
            self.assertEqual((member.name, member.pool, member.attributes), ("a", "acc", {"region": "eu"}))
            self.assertIsNone(member.token)
            self.assertEqual(self.states(), "a in_use b free c free")
            with self.assertRaises(NoMembers) as refused:
                self.members.take("acc", timeout=0, member="a")
            self.assertEqual(refused.exception.reason, "at_capacity")
            with self.assertRaises(TimedOut):
                self.members.take("acc", timeout=0.05, attributes={"region": "eu"})
        self.assertEqual(self.states(), "a free b free c free")
        self.assertEqual(self.members.utilization("acc")["free"], 3)
        with self.members.take("acc") as later:
            self.assertGreater(later.lease, member.lease)

    def test_an_exception_returns_the_member_as_failed(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.members.take("acc", member="a"):
                raise ZeroDivisionError
        self.assertEqual(self.states(), "a quarantined b free c free")
        self.members.repair("acc", "a")
        with self.assertRaises(ZeroDivisionError):
            with self.members.take("acc", member="a", fail_on=KeyError):
                raise ZeroDivisionError
        self.assertEqual(self.states(), "a free b free c free")

    def test_several_are_taken_or_none(self) -> None:
        with self.members.take_several("acc", 2, region="us") as taken:
            self.assertEqual(sorted(member.name for member in taken), ["b", "c"])
            with self.assertRaises(NoMembers):
                with self.members.take_several("acc", 2, timeout=0):
                    self.fail("there is one")
        self.assertEqual(self.states(), "a free b free c free")

    def test_a_loss_of_one_of_several_fails_no_other(self) -> None:
        with self.assertRaisesRegex(Lost, "taken_back"):
            with self.members.take_several("acc", 3) as taken:
                lost = taken[-1]
                self.members._ask("acc", f"TAKEBACK {lost.lease}".encode(), b"OK")
        returned = [self.members.states("acc")[member.name] for member in taken[:-1]]
        self.assertEqual(returned, ["free", "free"])

    def test_an_exception_returns_all_of_several_as_failed(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.members.take_several("acc", 2, fail_on=KeyError):
                raise ZeroDivisionError
        self.assertEqual(self.states(), "a free b free c free")
        with self.assertRaises(ZeroDivisionError):
            with self.members.take_several("acc", 3) as taken:
                self.members._ask("acc", f"TAKEBACK {taken[-1].lease}".encode(), b"OK")
                raise ZeroDivisionError
        returned = [self.members.states("acc")[member.name] for member in taken[:-1]]
        self.assertEqual(returned, ["quarantined", "quarantined"])

    def test_a_lease_outlives_its_connection(self) -> None:
        token = self.members.take("acc", member="a", lease=600).keep()
        self.members.close()
        self.assertEqual(self.states(), "a in_use b free c free")
        other = Members(self.daemon.members)
        other.renew("acc", token, 60)
        other.give_back("acc", token, ok=False)
        self.assertEqual(self.states(), "a quarantined b free c free")
        with self.assertRaises(Lost):
            other.renew("acc", token)
        with self.assertRaises(Lost):
            other.give_back("acc", token)
        other.close()
        with self.members.take("acc", member="b", lease=600) as member:
            held = member._held
            assert held.connection is not None
            held.connection.close()
            member.renew()
            self.assertIsNone(member.lost)
        self.assertEqual(self.states(), "a quarantined b free c free")

    def cut(self, *cut: Member) -> None:
        for member in cut:
            assert member._held.connection is not None
            member._held.connection.close()

    def test_a_lease_without_its_connection_expires(self) -> None:
        short, long = self.members.take("acc", lease=0.5), self.members.take("acc", lease=600)
        self.cut(short, long)
        self.until(lambda: short.lost == "expired")
        with self.assertRaises(Lost):
            short.renew()
        self.assertIsNone(long.lost)
        self.members.give_back("acc", str(long.token))
        with self.assertRaises(Lost):
            long.renew()
        self.assertEqual(long.lost, "expired")
        for member in (short, long):
            with self.assertRaises(Lost):
                member.give_back()

    def test_the_end_of_a_lease_moves_with_its_renewal(self) -> None:
        with self.assertRaises(Lost):
            with self.members.take_several("acc", 2, lease=600) as (first, second):
                self.cut(first)
                second.renew(0.1)
                self.until(lambda: second.lost == "expired")
                first.renew()
                self.assertIsNone(first.lost)

    def test_a_loss_is_reported(self) -> None:
        member = self.members.take("acc", member="a")
        self.assertIsNone(member.lost)
        self.members._ask("acc", f"TAKEBACK {member.lease}".encode(), b"OK")
        self.until(lambda: member.lost == "taken_back")
        with self.assertRaises(Lost):
            member.give_back()
        member = self.members.take("acc", member="b")
        self.daemon.stop()
        self.assertIsNone(member.lost, "the server may come back")
        with mock.patch.object(members, "GRACE", 0.2):
            self.until(lambda: member.lost == "connection")
        with self.assertRaises(Lost):
            with member:
                pass

    def test_a_return_after_a_restart_keeps_the_other_members(self) -> None:
        self.daemon.stop()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(lambda: self.daemon.stop())
        store = f"sqlite:{directory.name}/members.db"
        self.daemon = Daemon(store=store)
        holder, other = Members(self.daemon.members), Members(self.daemon.members)
        self.addCleanup(holder.close)
        self.addCleanup(other.close)
        other.declare("p", 0, 2)
        for name in ("x", "y"):
            other.add("p", name)

        def rows(connection: Connection, line: bytes) -> List[bytes]:
            found = []
            while line:
                found.append(line)
                line = connection.line()
            return found

        with holder.take_several("p", 2) as taken:
            self.daemon.stop()
            self.daemon = Daemon(self.daemon.pools, self.daemon.members, store)
            awaited = [b"awaits" in row for row in other._query(b"p", b"MEMBERS p", rows)]
            self.assertEqual(awaited, [True, True])
            taken[0].give_back()
            awaited = [b"awaits" in row for row in other._query(b"p", b"MEMBERS p", rows)]
            self.assertEqual(awaited, [False, False])
            self.assertIsNone(taken[1].lost)
        self.assertEqual(other.states("p"), {"x": "free", "y": "free"})

    def test_refusals_have_a_code(self) -> None:
        attempts: List[Tuple[str, Callable[[], object]]] = [
            ("NO_POOL", lambda: self.members.take("none")),
            ("NO_SUCH_MEMBER", lambda: self.members.take("acc", member="z")),
            ("MEMBER_EXISTS", lambda: self.members.add("acc", "a")),
            ("POOL_DIFFERS", lambda: self.members.declare("acc", 0, 9)),
        ]
        for code, attempt in attempts:
            if code == "MEMBER_EXISTS":
                self.members._ask("acc", b"RECONFIGURE acc max=9", b"OK")
            with self.assertRaises(Refused) as refused:
                attempt()
            self.assertEqual(refused.exception.code, code)
        with self.assertRaises(ValueError):
            self.members.take("a\n")
        with self.assertRaises(ValueError):
            self.members.take("acc", attributes={"pri": "3"})

    def test_threads_share_a_client(self) -> None:
        used: List[str] = []
        present: List[str] = []

        def work() -> None:
            for _ in range(20):
                with self.members.take("acc") as member:
                    self.assertNotIn(member.name, present)
                    present.append(member.name)
                    time.sleep(0.001)
                    present.remove(member.name)
                    used.append(member.name)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(used), 120)

    def test_a_provider_starts_and_stops_members(self) -> None:
        self.members.declare("db", 1, 2, group="dbs")
        stopped: List[str] = []

        def start(number: int) -> "tuple[str, dict[str, str]]":
            if number == 1:
                raise OSError("no room")
            return f"db {number}", {"port": str(number)}

        with self.members.provide("db", start, stopped.append) as provider:
            with self.members.take("dbs", group=True, timeout=30) as member:
                self.assertEqual((member.name, member.attributes), ("db%202", {"port": "2"}))
                self.assertEqual(provider.members, ["db%202"])
            member = self.members.take("db")
            member.give_back(ok=False)
            self.until(lambda: stopped == ["db%202"])
            self.until(lambda: provider.members == ["db%203"])
        self.assertEqual(stopped, ["db%202", "db%203"])

    def test_a_provider_checks_and_cleans(self) -> None:
        self.members.declare("db", 0, 1, clean_timeout=30, check_on_take=0.001)
        asked: List[str] = []

        def clean(name: str) -> bool:
            asked.append("clean " + name)
            return True

        def check(name: str) -> bool:
            asked.append("check " + name)
            return name != "db1"

        with self.members.provide("db", lambda number: f"db{number}", check=check, clean=clean, capacity=1):
            self.members.take("db", timeout=30).give_back()
            self.until(lambda: self.members.states("db") == {"db1": "free"})
            time.sleep(0.05)
            with self.members.take("db", timeout=30) as member:
                self.assertEqual(member.name, "db2")
        self.assertEqual(asked[:2], ["clean db1", "check db1"])

    @unittest.skipIf(resource is None, "there are no limits of descriptors")
    def test_a_provider_serves_with_many_descriptors(self) -> None:
        assert resource is not None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 <= hard < 4096 else 4096, hard))
        self.members.declare("db", 1, 1)
        descriptors: List[int] = []
        while not descriptors or descriptors[-1] < 1100:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
            self.addCleanup(os.close, descriptors[-1])
        with self.members.provide("db", lambda number: f"db{number}") as provider:
            self.members.take("db", timeout=30).give_back(ok=False)
            self.until(lambda: provider.members == ["db2"])

    def test_a_provider_is_closed_in_any_state(self) -> None:
        self.members.declare("db", 1, 1)
        stopped: List[str] = []
        provider = self.members.provide("db", lambda number: f"db{number}", stop=stopped.append)
        self.until(lambda: provider.members == ["db1"])
        closing = [threading.Thread(target=provider.close) for _ in range(4)]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        provider.close()
        self.assertEqual(stopped, ["db1"])
        # It ends by itself with its server, before it is closed.
        ended = threading.Event()
        lost = self.members.provide("db", lambda number: "lost", stop=lambda name: ended.set())
        self.until(lambda: lost.members == ["lost"])
        self.daemon.stop()
        self.assertTrue(ended.wait(30))
        lost.close()


if __name__ == "__main__":
    unittest.main()
