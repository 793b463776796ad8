"""Tests of the clients with servers and networks that fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
import unittest
from typing import Any, Callable, List, Tuple
from unittest import mock

from poolcounter import Lost, Members, PoolCounterError, Pools, Unavailable
from poolcounter import _wire, aio, members

from .daemon import DaemonTest
from .strange import Serve, Strange, answers, endless


class StrangeTest(unittest.TestCase):
    def server(self, *serve: Serve) -> Strange:
        strange = Strange(*serve)
        self.addCleanup(strange.close)
        return strange

    def pools(self, *servers: Strange, **options: Any) -> Pools:
        pools = Pools(*(server.address for server in servers), **options)
        self.addCleanup(pools.close)
        return pools

    def members(self, server: Strange, **options: Any) -> Members:
        found = Members(server.address, **options)
        self.addCleanup(found.close)
        return found


class AnswersTest(StrangeTest):
    def test_an_answer_without_an_end_is_given_up(self) -> None:
        calls: List[Tuple[bytes, Callable[[Members], object]]] = [
            (b"m free - 0.000 0.000 0\n", lambda members: members.states("p")),
            (b"!LOST 1 died\n", lambda members: members.take("p", timeout=0)),
            (b"!LOST 1 died\n", lambda members: members.utilization("p")),
            (b"!LOST 1 died\n", lambda members: members.give_back("p", "t")),
            (b"!LOST 1 died\n", lambda members: members.provide("p", str)),
        ]
        for pause in (0.0, 0.02):
            for line, call in calls:
                with self.subTest(line, pause=pause):
                    found = self.members(self.server(endless(line, pause)), answer_timeout=0.3)
                    begun = time.monotonic()
                    with mock.patch.object(_wire, "LARGEST_ANSWER", 1 << 20), mock.patch.object(members, "CHECK", 0.0):
                        with self.assertRaises(Unavailable):
                            call(found)
                    self.assertLess(time.monotonic() - begun, 5)

    def test_lines_without_an_end_are_read_in_parts(self) -> None:
        def serve(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"MEMBER 1 p m\n")
            while True:
                connection.sendall(b"!LOST 2 died\n" * 1000)

        member = self.members(self.server(serve)).take("p")
        with mock.patch.object(_wire, "MOST_PENDING", 1 << 16):
            for _ in range(10):
                self.assertIsNone(member.lost)
        self.assertEqual(member._held.losses, {})
        member._held.cut()

    def test_nonsense_is_an_error_of_this_package(self) -> None:
        of_members: List[Tuple[bytes, Callable[[Members], object]]] = [
            (b"MEMBER x p m", lambda members: members.take("p")),
            (b"MEMBER -1 p m", lambda members: members.take("p")),
            (b"MEMBER 1 p", lambda members: members.take("p")),
            (b"MEMBERS 1", lambda members: members.take("p")),
            (b"MEMBERS 3\nMEMBER 1 p m", lambda members: members.take_several("p", 2).__enter__()),
            (b"MEMBERS 2\nMEMBER 1 p m\nhello", lambda members: members.take_several("p", 2).__enter__()),
            (b"hello", lambda members: members.take("p")),
            (b"", lambda members: members.take("p")),
            (b"max one", lambda members: members.utilization("p")),
            (b"max", lambda members: members.utilization("p")),
            (b"", lambda members: members.utilization("p")),
            (b"m", lambda members: members.states("p")),
            (b"hello", lambda members: members.add("p", "m")),
            (b"hello", lambda members: members.renew("p", "t")),
            (b"hello", lambda members: members.provide("p", str)),
        ]
        for answer, call in of_members:
            with self.subTest(answer):
                with self.assertRaises(Unavailable):
                    call(self.members(self.server(answers(answer + b"\n"))))
        for answer in [b"hello", b"", b"DONE", b"\xff\xfe", b"LOCKED\r", b"x" * 100_000]:
            with self.subTest(answer):
                with self.assertRaises(Unavailable):
                    self.pools(self.server(answers(answer + b"\n"))).acquire("k")

    def test_nonsense_to_a_return_is_a_loss(self) -> None:
        lock = self.pools(self.server(answers(b"LOCKED\n", b"hello\n"))).acquire("k")
        with self.assertRaises(Lost):
            lock.release()
        early = self.pools(self.server(answers(b"LOCKED\nRELEASED\n"))).acquire("k")
        self.assertEqual(early.lost, "connection")
        with self.assertRaises(Lost):
            early.release()
        for answer in (b"hello\n", b"!LOST x died\nRETURNED \n"):
            member = self.members(self.server(answers(b"MEMBER 1 p m token=\xff\n", answer))).take("p")
            with self.assertRaises(PoolCounterError):
                member.give_back()

    def test_a_provider_ignores_what_is_no_task(self) -> None:
        # The answers to its results come in pieces.
        lines = b"!START\n!STOP p\n!DANCE p m\n!LOST 1 died\n!START p x\nO"
        server = self.server(answers(b"OK\n" + lines, b"K\n!CHECK p m\nO", b"K\n"))
        checked: List[str] = []

        def check(name: str) -> bool:
            checked.append(name)
            return True

        with self.members(server).provide("p", str, check=check):
            deadline = time.monotonic() + 30
            while not checked and time.monotonic() < deadline:
                time.sleep(0.005)
        self.assertEqual(checked, ["m"])


class ConnectionsTest(StrangeTest):
    def test_a_dead_machine_is_noticed_in_half_a_minute(self) -> None:
        server = self.server(answers())
        host, port = server.address.split(":")
        connection = _wire.Connection(host, int(port), 5.0, 5.0, None)
        self.addCleanup(connection.close)
        wanted = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
        there = {name: value for name, value in wanted.items() if hasattr(socket, name)}
        set_ = {name: connection._socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in there}
        self.assertEqual(set_, there)

    def test_few_idle_connections_are_kept(self) -> None:
        server = self.server(answers(b"LOCKED\n", b"RELEASED\n"))
        pools = self.pools(server)
        for lock in [pools.acquire(f"k{number}") for number in range(30)]:
            lock.release()
        self.assertEqual(len(pools._fleet._idle[server.address]), _wire.MOST_IDLE)

    def test_a_dropped_idle_connection_is_replaced(self) -> None:
        server = self.server(answers(b"LOCKED\n", b"RELEASED\n"), answers(b"LOCKED\n"))
        pools = self.pools(server, answer_timeout=0.3)
        pools.acquire("k", timeout=0).release()
        pools.acquire("k", timeout=0).abandon()
        self.assertEqual(len(server.connections), 2)

    def test_a_wait_at_a_server_that_hangs_ends(self) -> None:
        async def wait(address: str) -> None:
            with contextlib.closing(aio.Pools(address)) as pools:
                await pools.acquire("k")

        hung = self.server(answers())
        calls: List[Callable[[], object]] = [
            lambda: self.pools(hung).acquire("k"),
            lambda: self.members(hung).take("p"),
            lambda: asyncio.run(wait(hung.address)),
        ]
        for call in calls:
            with mock.patch.object(_wire, "PROBE_EVERY", 0.2), self.assertRaisesRegex(Unavailable, "hangs"):
                call()

    def test_answers_to_probes_are_no_answers(self) -> None:
        def answer(locked: bytes, alive: bytes, released: bytes) -> List[Strange]:
            # One server answers the second probe after the grant, the other one after the next request.
            early = answers(b"", alive, locked + alive, released)
            return [self.server(early), self.server(answers(b"", locked, alive + released))]

        async def hold(address: str) -> None:
            with contextlib.closing(aio.Pools(address)) as pools:
                async with pools.acquire("k") as lock:
                    self.assertIsNone(lock.lost)

        with mock.patch.object(_wire, "PROBE_EVERY", 0.2):
            for server in answer(b"LOCKED\n", b"uptime: 0 days, 0h 0m 1s\n", b"RELEASED\n"):
                with self.pools(server).acquire("k") as lock:
                    self.assertIsNone(lock.lost)
            for server in answer(b"LOCKED\n", b"ERROR DENIED\n", b"RELEASED\n"):
                asyncio.run(hold(server.address))
            for server in answer(b"MEMBER 1 p m\n", b"NOT_TAKEN\n", b"RETURNED\n"):
                with self.members(server).take("p") as member:
                    self.assertIsNone(member.lost)

    def test_a_draining_server_is_passed_over(self) -> None:
        draining = self.server(answers(b"LOCKED\n", b"RELEASED\n", b"ERROR DRAINING\n"), answers(b"ERROR DRAINING\n"))
        other = self.server(answers(b"LOCKED\n", b"RELEASED\n", b"LOCKED\n", b"RELEASED\n"))
        pools = self.pools(draining, other)
        key = next(key for key in map(str, range(100)) if pools._fleet.order(key.encode())[0] == draining.address)
        served = []
        for _ in range(3):
            with pools.acquire(key) as lock:
                served.append(lock._server)
        self.assertEqual(served, [draining.address, other.address, other.address])
        alone = self.pools(self.server(answers(b"ERROR DRAINING\n")))
        with self.assertRaisesRegex(Unavailable, "it drains"):
            alone.acquire("k")

    def test_a_lock_that_was_taken_back_is_lost(self) -> None:
        lock = self.pools(self.server(answers(b"LOCKED\nNOT_LOCKED\n"))).acquire("k")
        deadline = time.monotonic() + 30
        while lock.lost is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertEqual(lock.lost, "taken_back")
        with self.assertRaisesRegex(Lost, "taken_back"):
            lock.release()

        def serve(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"LOCKED\nNOT_LOCKED\n")
            connection.close()

        unwatched = self.pools(self.server(serve)).acquire("k")
        with self.assertRaises(Lost):
            unwatched.release()

    def test_values_that_cannot_be_meant_are_errors(self) -> None:
        pools = Pools("127.0.0.1:1")
        for hold in (0, -1.5, float("nan")):
            with self.assertRaises(ValueError):
                pools.acquire("k", hold=hold)
        with self.assertRaises(ValueError):
            pools.acquire("k", timeout=float("nan"))
        with self.assertRaises(TypeError):
            pools.acquire(b"k")  # type: ignore[arg-type]


@unittest.skipUnless(hasattr(os, "fork"), "there are no forks")
class ForksTest(DaemonTest):
    def setUp(self) -> None:
        super().setUp()
        self.pools = Pools(self.daemon.pools)
        self.addCleanup(self.pools.close)
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)

    def fork(self, work: Callable[[], object] = lambda: None) -> None:
        """Forks a process that runs `work` and lives until the end of the test."""
        child = os.fork()
        if child == 0:
            try:
                work()
                os.close(self.writer)
                os.read(self.reader, 1)
            finally:
                os._exit(0)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.close, self.writer)

    def test_an_abandoned_lock_is_free_while_a_fork_lives(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            with self.pools.acquire("k"):
                self.fork()
                raise ZeroDivisionError
        self.pools.acquire("k", timeout=10).release()

    def test_an_interrupted_wait_is_over_while_a_fork_lives(self) -> None:
        def interrupt(number: int, frame: object) -> None:
            self.fork()
            raise ZeroDivisionError

        before = signal.signal(signal.SIGUSR1, interrupt)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        lock = self.pools.acquire("k")
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGUSR1))
        timer.start()
        with self.assertRaises(ZeroDivisionError):
            self.pools.acquire("k")
        lock.release()
        self.pools.acquire("k", timeout=10).release()

    def test_a_fork_gives_nothing_of_its_parent_back(self) -> None:
        lock, abandoned = self.pools.acquire("k"), self.pools.acquire("j")
        done, is_done = os.pipe()

        def work() -> None:
            abandoned.abandon()
            said = b"released"
            try:
                lock.release()
            except Lost:
                said = b"lost"
            os.write(is_done, said)

        self.fork(work)
        self.assertEqual(os.read(done, 100), b"lost")
        os.close(done)
        os.close(is_done)
        self.assertEqual((lock.lost, abandoned.lost), (None, None))
        lock.release()
        abandoned.release()

    def test_a_fork_waits_for_no_thread_of_its_parent(self) -> None:
        with self.pools._fleet._lock:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(10)
                    self.pools.acquire("k", timeout=0).release()
                    status = 0
                finally:
                    os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_fork_takes_no_member_away(self) -> None:
        members = Members(self.daemon.members)
        self.addCleanup(members.close)
        members.declare("p", 0, 2, on_loss="ok")
        for name in ("m", "n"):
            members.add("p", name)
        done, is_done = os.pipe()
        held = [members.take("p", member="m"), members.take("p", member="n", lease=600)]

        def work() -> None:
            said = [str(member.lost) for member in held]
            calls: List[Callable[[], None]] = [held[1].renew, held[0].give_back, held[1].give_back]
            for call in calls:
                try:
                    call()
                    said.append("done")
                except Lost:
                    said.append("lost")
            os.write(is_done, " ".join(said).encode())

        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(os.read(done, 100), b"connection connection lost lost lost")
        os.close(done)
        os.close(is_done)
        self.assertEqual([member.lost for member in held], [None, None])
        self.assertEqual(members.states("p"), {"m": "in_use", "n": "in_use"})
        held[1].renew()
        for member in held:
            member.give_back()

    def test_an_abandoned_lock_of_asyncio_is_free_while_a_fork_lives(self) -> None:
        async def scene() -> None:
            with contextlib.closing(aio.Pools(self.daemon.pools)) as pools:
                with self.assertRaises(ZeroDivisionError):
                    async with pools.acquire("k"):
                        self.fork()
                        raise ZeroDivisionError
                await (await pools.acquire("k", timeout=10)).release()

        asyncio.run(scene())

    def test_a_fork_gives_no_lock_of_asyncio_back(self) -> None:
        done, is_done = os.pipe()

        async def scene() -> None:
            with contextlib.closing(aio.Pools(self.daemon.pools)) as pools:
                lock, abandoned = await pools.acquire("k"), await pools.acquire("j")
                child = os.fork()
                if child == 0:
                    try:
                        said = f"{lock.lost} "
                        abandoned.abandon()
                        asyncio.run(give_back(lock))
                    except Lost:
                        said += "lost"
                    finally:
                        os.write(is_done, said.encode())
                        os._exit(0)
                os.waitpid(child, 0)
                self.assertEqual(os.read(done, 100), b"connection lost")
                self.assertEqual((lock.lost, abandoned.lost), (None, None))
                await lock.release()
                await abandoned.release()

        async def give_back(lock: aio.Lock) -> None:
            await lock.release()

        asyncio.run(scene())
        os.close(done)
        os.close(is_done)

    def test_a_provider_ends_while_its_member_has_a_copy(self) -> None:
        members = Members(self.daemon.members)
        self.addCleanup(members.close)
        members.declare("p", 1, 1)
        stopped: List[str] = []

        def start(number: int) -> str:
            # A fork that `stop` would end lives until the end of the test.
            self.fork()
            return "m"

        provider = members.provide("p", start, stopped.append)
        members.take("p", timeout=30).give_back()
        closing = threading.Thread(target=provider.close, daemon=True)
        closing.start()
        closing.join(30)
        self.assertEqual(stopped, ["m"])

    def test_a_fork_ends_no_provider_of_its_parent(self) -> None:
        members = Members(self.daemon.members)
        self.addCleanup(members.close)
        members.declare("p", 1, 1)
        with members.provide("p", lambda number: "m") as provider:
            child = os.fork()
            if child == 0:
                try:
                    provider.close()
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            with self.assertRaises(BlockingIOError):
                provider._waker.recv(1, socket.MSG_DONTWAIT)
            members.take("p", timeout=30).give_back()


if __name__ == "__main__":
    unittest.main()
