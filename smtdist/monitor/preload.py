"""Loaded by schedulers and workers as they start: the page, and metrics. `dask scheduler --preload smtdist.monitor.preload`."""

from __future__ import annotations

import logging
from typing import Any


async def dask_setup(server: Any) -> None:
    """Add what can be added; a server starts with or without it, but not for strangers to read."""
    from smtdist.monitor import hosts

    hosts.guard(server)
    try:
        if hasattr(server, "workers") and hasattr(server, "add_plugin"):
            from smtdist.monitor.dashboard import SmtdistPage

            page = SmtdistPage()
            await page.start(server)
            server.add_plugin(page)
        else:
            from smtdist.monitor.metrics import expose_worker

            expose_worker()
    except Exception:
        logging.getLogger("smtdist").warning("views of runs are not available here", exc_info=True)
