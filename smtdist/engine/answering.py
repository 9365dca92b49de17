"""Whether a Dask scheduler answers at an address: asked in a bounded time, since Dask's client waits for others for ever."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed.comm import connect, get_address_host_port
from distributed.security import Security

from smtdist.errors import SmtdistError

SECONDS = 20.0
"""How long a scheduler that is busy has to answer."""
LISTENING_SECONDS = 5.0
"""How long a scheduler that is about to start has to listen at its address."""


def require_scheduler(address: str, security: Security | None = None, remedy: str = "") -> None:
    """Raise a SmtdistError where what answers at an address is no scheduler, or nothing answers."""
    try:
        # in a notebook this thread has a loop that runs already
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _asked(address, security or Security())).result()
    except Exception as error:  # what speaks another language leads to errors of any kind
        said = " ".join(str(error).split()).rstrip(".") or f"nothing that it says within {SECONDS:.0f} s"
        raise SmtdistError(
            f"No Dask scheduler answers at {address} ({said}); "
            f"{remedy or 'check that it is running, and give the address that `dask scheduler` prints'}."
        ) from error


async def _asked(address: str, security: Security) -> None:
    answer = await asyncio.wait_for(_answer(address, security), SECONDS)
    if not (isinstance(answer, dict) and answer.get("type") == "Scheduler"):
        raise ValueError("what answers there is none")


async def _answer(address: str, security: Security) -> Any:
    how: dict[str, Any] = security.get_connection_args("client")
    try:
        comm = await connect(address, timeout=LISTENING_SECONDS, **how)
    except OSError:
        if not await _listens(address):
            raise
        comm = await connect(address, timeout=SECONDS, **how)
    try:
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()
    finally:
        comm.abort()


async def _listens(address: str) -> bool:
    """Tell whether anything listens at an address."""
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(*get_address_host_port(address)), LISTENING_SECONDS
        )
    except (OSError, ValueError):
        return False
    writer.close()
    return True
