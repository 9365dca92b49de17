"""A Dask cluster of many light workers in few processes: a real scheduler, real comms, no nannies.

The scheduler has a process of its own, so that its time and memory can be told from everyone else's. Workers share
processes: each is a `distributed.Worker` with its own address and its own thread, without a profiler, a memory
monitor and a system monitor that ticks, because a thousand of those would be all that the machine does.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import dask
import psutil
from distributed import Client, Scheduler, Worker

from smtdist.engine.local_cluster import CONFIGURATION

LIGHT = {
    **CONFIGURATION,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.preload": [],
}
AT_ONCE = 50
"""Workers that a process starts at the same time."""


@dataclass(frozen=True)
class ManyWorkers:
    """Where the scheduler is, and the processes of the cluster."""

    address: str
    scheduler: psutil.Process
    hosts: list[psutil.Process]


@contextmanager
def many_workers(
    workers: int, processes: int, limit_bytes: int, configuration: dict[str, Any] | None = None
) -> Iterator[ManyWorkers]:
    """Start a scheduler and `workers` workers in `processes` processes; stop them at the end."""
    settings = LIGHT | (configuration or {})
    context = multiprocessing.get_context("spawn")
    started, ends = [], []

    def start(target: Any, *arguments: Any) -> tuple[Connection, psutil.Process]:
        here, there = context.Pipe()
        process = context.Process(target=target, args=(there, settings, *arguments), daemon=True)
        process.start()
        there.close()
        started.append(process)
        ends.append(here)
        return here, psutil.Process(process.pid)

    try:
        pipe, scheduler = start(_schedule)
        address = pipe.recv()
        shares = [workers // processes + (i < workers % processes) for i in range(processes)]
        firsts = [sum(shares[:i]) for i in range(processes)]
        hosts = [
            start(_host, address, first, share, limit_bytes)
            for first, share in zip(firsts, shares, strict=True)
        ]
        for pipe, _ in hosts:
            pipe.recv()
        yield ManyWorkers(address, scheduler, [process for _, process in hosts])
    finally:
        for end, process in zip(reversed(ends), reversed(started), strict=True):  # the scheduler last
            end.close()
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()


def connected(cluster: ManyWorkers) -> Client:
    """Return a client of the cluster that is no one's default."""
    with dask.config.set(LIGHT):
        return Client(cluster.address, set_as_default=False)


def _schedule(pipe: Connection, settings: dict[str, Any]) -> None:
    async def run() -> None:
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0"
        ) as scheduler:
            pipe.send(scheduler.address)
            await _closed(pipe)

    logging.disable(logging.CRITICAL)
    with dask.config.set(settings):
        asyncio.run(run())


def _host(
    pipe: Connection, settings: dict[str, Any], address: str, first: int, count: int, limit_bytes: int
) -> None:
    async def run() -> None:
        workers = []
        for begin in range(first, first + count, AT_ONCE):
            some = [
                Worker(
                    address,
                    name=name,
                    nthreads=1,
                    host="127.0.0.1",
                    dashboard_address=":0",
                    memory_limit=limit_bytes,
                )
                for name in range(begin, min(begin + AT_ONCE, first + count))
            ]
            workers += await asyncio.gather(*some)
        pipe.send(count)
        await _closed(pipe)
        os._exit(0)  # a thousand polite farewells take longer than some benchmarks

    logging.disable(logging.CRITICAL)
    with dask.config.set(settings):
        asyncio.run(run())


async def _closed(pipe: Connection) -> None:
    """Return when the other end of the pipe is closed."""
    done = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), done.set)
    await done.wait()
