from __future__ import annotations

import os
import threading
import time
import unittest
from unittest import mock

from poolcounter import Lost, Members, Pools, QueueFull, Refused, TimedOut, Unavailable, _wire
from poolcounter._wire import Fleet, escape, seconds, shortened

from .daemon import Daemon, DaemonTest


class PoolsTest(DaemonTest):
    def setUp(self) -> None:
        super().setUp()
        self.pools = Pools(self.daemon.pools, who="a test", retry=0.1)
        self.addCleanup(self.pools.close)

    def test_a_lock_is_held_up_to_the_end_of_the_with(self) -> None:
        with self.pools.acquire("a b") as lock:
            self.assertEqual((lock.key, lock.done), ("a b", False))
            with self.assertRaises(TimedOut):
                self.pools.acquire("a b", timeout=0)
            with self.assertRaises(QueueFull):
                self.pools.acquire("a b", queue=1, timeout=0.5)
            self.pools.acquire("a b", workers=2, timeout=0).release()
        self.pools.acquire("a b", timeout=0).release()
        lock.release()

    def test_a_long_name_is_cut_at_a_character(self) -> None:
        for who in ["\u00e4" * 64, "a b" * 64, "x" + "\u20ac" * 64, "n" * 65]:
            with self.subTest(who):
                pools = Pools(self.daemon.pools, who=who)
                self.addCleanup(pools.close)
                pools.acquire("k", timeout=0).release()
                sent = shortened(who, 64)
                self.assertTrue(escape(who).startswith(sent) and 62 <= len(sent) <= 64)
                sent.decode()
        self.assertEqual(shortened("a b" * 64, 64), b"a%20b" * 12 + b"a%20")

    def test_work_is_done_once_for_anyone(self) -> None:
        first = self.pools.acquire("k", anyone=True)
        done = []
        waiter = threading.Thread(target=lambda: done.append(self.pools.acquire("k", anyone=True).done))
        waiter.start()
        self.until(lambda: b"waiting_workers: 1" in self.stats())
        first.release()
        waiter.join()
        self.assertEqual(done, [True])

    def test_an_exception_passes_the_work_to_the_next_waiter(self) -> None:
        done = []

        def wait() -> None:
            with self.pools.acquire("k", anyone=True) as lock:
                done.append(lock.done)

        waiter = threading.Thread(target=wait)
        with self.assertRaises(ZeroDivisionError):
            with self.pools.acquire("k", anyone=True):
                waiter.start()
                self.until(lambda: b"waiting_workers: 1" in self.stats())
                raise ZeroDivisionError
        waiter.join()
        self.assertEqual(done, [False])

    def test_a_wait_goes_on_while_the_server_answers_probes(self) -> None:
        members = Members(self.daemon.members)
        self.addCleanup(members.close)
        members.declare("p", init=0, max=1)
        members.add("p", "m")
        begun = time.monotonic()
        with mock.patch.object(_wire, "PROBE_EVERY", 0.1):
            lock, member = self.pools.acquire("k"), members.take("p")

            def free() -> None:
                lock.release()
                member.give_back()

            timer = threading.Timer(1.0, free)
            timer.start()
            with self.pools.acquire("k"), members.take("p"):
                self.assertGreater(time.monotonic() - begun, 0.9)
        timer.join()

    def stats(self) -> bytes:
        fleet = Fleet([self.daemon.pools], 1, 5.0, 5.0, 1.0, None)

        def ask(connection: object) -> bytes:
            connection.send(b"STATS waiting_workers")  # type: ignore[attr-defined]
            return connection.line()  # type: ignore[attr-defined,no-any-return]

        answer, _, connection = fleet.ask_first(b"", ask)
        connection.close()
        return answer

    def test_a_lock_is_lost_after_hold_seconds(self) -> None:
        with self.assertRaises(Lost):
            with self.pools.acquire("k", hold=0.05):
                time.sleep(0.3)

    def test_a_lock_is_lost_with_its_server_and_the_client_finds_the_next(self) -> None:
        lock = self.pools.acquire("k")
        self.pools.acquire("other").release()
        self.daemon.stop()
        with self.assertRaises(Lost):
            lock.release()
        with self.assertRaises(Unavailable):
            self.pools.acquire("k")
        self.daemon = Daemon(self.daemon.pools)
        time.sleep(0.2)
        self.pools.acquire("k", timeout=0).release()
        second = Daemon()
        self.addCleanup(second.stop)
        both = Pools(self.daemon.pools, second.pools)
        self.addCleanup(both.close)
        self.daemon.stop()
        for number in range(10):
            both.acquire(f"key {number}", timeout=0).release()

    def test_wrong_requests_raise(self) -> None:
        for name in ["", "a\nb", "a\0"]:
            with self.assertRaises(ValueError):
                self.pools.acquire(name)
        with self.assertRaises(Refused) as refused:
            self.pools.acquire("k", workers=0)
        self.assertEqual(refused.exception.code, "BAD_SYNTAX")

    def test_further_keys_are_locked_as_well(self) -> None:
        with self.pools.acquire("k", also={"user:ann": 1, "all": (2, 9)}):
            for key, workers in [("user:ann", 1), ("all", 1)]:
                with self.assertRaises(TimedOut):
                    self.pools.acquire(key, workers=workers, timeout=0)
        self.pools.acquire("user:ann", timeout=0).release()

    def test_a_key_is_occupied_for_the_least_time(self) -> None:
        with self.pools.acquire("k", at_least=0.5):
            pass
        with self.assertRaises(TimedOut):
            self.pools.acquire("k", timeout=0)
        self.pools.acquire("k", timeout=30).release()

    def test_wrong_options_raise_before_a_server_is_asked(self) -> None:
        for options in [
            {"at_least": -1},
            {"at_least": 2, "hold": 1},
            {"at_least": 1, "also": {"l": 1}},
            {"also": {str(n): 1 for n in range(5)}},
            {"hold": 0},
            {"hold": -1},
        ]:
            with self.subTest(options), self.assertRaises(ValueError):
                self.pools.acquire("k", **options)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            self.pools.acquire(b"k")  # type: ignore[arg-type]

    def test_a_decorated_function_holds_its_lock(self) -> None:
        @self.pools.locked("report", timeout=0)
        def work(number: int) -> int:
            with self.assertRaises(TimedOut):
                self.pools.acquire("report", timeout=0)
            return number + 1

        self.assertEqual(work(1), 2)
        with self.pools.acquire("report"), self.assertRaises(TimedOut):
            work(1)

    def test_an_old_idle_connection_is_not_used(self) -> None:
        self.pools.acquire("k").release()
        ((_, first),) = self.pools._fleet._idle[self.daemon.pools]
        self.pools._fleet._idle[self.daemon.pools] = [(time.monotonic() - _wire.IDLE_AGE - 1, first)]
        with self.pools.acquire("k") as lock:
            self.assertIsNot(lock._connection, first)

    def test_a_fork_has_connections_of_its_own(self) -> None:
        self.pools.acquire("k").release()
        lock = self.pools.acquire("held")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.pools.acquire("k", timeout=0).release()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        lock.release()


class WireTest(unittest.TestCase):
    def test_servers_have_the_order_of_mediawiki(self) -> None:
        fleet = Fleet(["10.0.0.5", "10.0.0.6", "10.0.0.7:7532"], 1, 1.0, 1.0, 1.0, None)
        wanted = ["10.0.0.5", "10.0.0.7:7532", "10.0.0.6"]
        self.assertEqual(fleet.order("enwiki:ArticleView:Michael Jackson".encode()), wanted)
        self.assertEqual(fleet.order(b"k"), ["10.0.0.6", "10.0.0.7:7532", "10.0.0.5"])

    def test_names_and_seconds_are_written_as_the_protocol_requires(self) -> None:
        self.assertEqual([seconds(value) for value in (0, 15, 0.25, 100, None)], [b"0", b"15", b"0.25", b"100", b"4294967295"])
        self.assertEqual(escape("a b ü"), b"a%20b%20\xc3\xbc")


if __name__ == "__main__":
    unittest.main()
