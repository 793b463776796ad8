from __future__ import annotations

import asyncio
import gc
import time
import warnings
from typing import Any, Awaitable, Callable, List

from poolcounter import Lost, QueueFull, Refused, TimedOut, Unavailable, _wire
from poolcounter.aio import Pools

from .daemon import DaemonTest


class AioTest(DaemonTest):
    def play(self, scene: Callable[[Pools], Awaitable[Any]]) -> Any:
        """Runs a scene with a client."""

        async def run() -> Any:
            pools = Pools(self.daemon.pools, who="a test", retry=0.1)
            try:
                return await asyncio.wait_for(scene(pools), 60)
            finally:
                pools.close()

        return asyncio.run(run())

    def test_a_lock_is_held_up_to_the_end_of_the_with(self) -> None:
        async def scene(pools: Pools) -> None:
            async with pools.acquire("a b") as lock:
                self.assertEqual((lock.key, lock.done, lock.lost), ("a b", False, None))
                with self.assertRaises(TimedOut):
                    await pools.acquire("a b", timeout=0)
                with self.assertRaises(QueueFull):
                    await pools.acquire("a b", queue=1, timeout=0.5)
                await (await pools.acquire("a b", workers=2, timeout=0)).release()
            await (await pools.acquire("a b", timeout=0)).release()
            await lock.release()
            with self.assertRaises(Refused):
                await pools.acquire("k", workers=0)
            with self.assertRaises(ValueError):
                pools.acquire("")

        self.play(scene)

    def test_work_is_done_once_for_anyone_unless_it_fails(self) -> None:
        async def work(pools: Pools, fails: bool, done: List[bool]) -> None:
            async with pools.acquire("k", anyone=True) as lock:
                done.append(lock.done)
                if not lock.done:
                    await asyncio.sleep(0.2)
                if fails and len(done) == 1:
                    raise ZeroDivisionError

        async def scene(pools: Pools) -> None:
            for fails in (False, True):
                done: List[bool] = []
                tasks = [asyncio.ensure_future(work(pools, fails, done)) for _ in range(3)]
                results = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertEqual(sum(isinstance(result, ZeroDivisionError) for result in results), int(fails))
                self.assertEqual(sorted(done), [False, False, True] if fails else [False, True, True])

        self.play(scene)

    def test_a_cancelled_wait_is_given_up(self) -> None:
        async def scene(pools: Pools) -> None:
            async with pools.acquire("k"):
                waiter = asyncio.ensure_future(pools._acquire(pools.acquire("k")._request))
                await asyncio.sleep(0.2)
                waiter.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiter
                await asyncio.sleep(0.2)
                await (await pools.acquire("k", workers=2, queue=2, timeout=0)).release()

        self.play(scene)

    def test_a_loss_is_known_during_the_work(self) -> None:
        async def scene(pools: Pools) -> None:
            with self.assertRaises(Lost):
                async with pools.acquire("k", hold=0.05) as lock:
                    await asyncio.sleep(0.2)
                    self.assertEqual(lock.lost, "expired")
            with self.assertRaises(Lost):
                async with pools.acquire("k") as lock:
                    self.daemon.stop()
                    while lock.lost is None:
                        await asyncio.sleep(0.01)
                    self.assertEqual(lock.lost, "connection")
            with self.assertRaises(Unavailable):
                await pools.acquire("k")

        self.play(scene)

    def test_a_decorated_coroutine_function_holds_its_lock(self) -> None:
        async def scene(pools: Pools) -> None:
            @pools.locked(lambda name: f"user:{name}", timeout=0, also={"all": 1})
            async def work(name: str) -> str:
                for key in ("user:ann", "all"):
                    with self.assertRaises(TimedOut):
                        await pools.acquire(key, timeout=0)
                return name.upper()

            self.assertEqual(await work("ann"), "ANN")

        self.play(scene)

    def test_an_old_idle_connection_is_not_used(self) -> None:
        async def scene(pools: Pools) -> None:
            async with pools.acquire("k"):
                pass
            ((_, first),) = pools._idle[self.daemon.pools]
            pools._idle[self.daemon.pools] = [(time.monotonic() - _wire.IDLE_AGE - 1, first)]
            async with pools.acquire("k") as lock:
                self.assertIsNot(lock._connection, first)

        self.play(scene)

    def test_a_client_serves_one_loop_after_another(self) -> None:
        pools = Pools(self.daemon.pools)

        async def scene() -> None:
            for _ in range(2):
                async with pools.acquire("k", timeout=0):
                    pass

        with warnings.catch_warnings():
            # A transport that outlives its loop warns when it is freed.
            warnings.simplefilter("ignore", ResourceWarning)
            loops = [asyncio.new_event_loop() for _ in range(2)]
            for loop in loops * 2:
                loop.run_until_complete(scene())
            for loop in loops:
                loop.close()
            for _ in range(2):
                asyncio.run(scene())
            pools.close()
            gc.collect()
