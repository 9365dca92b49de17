"""Loaded by worker processes as they start: a terminal's Ctrl-C reaches them too, and is for the driver to act on."""

from __future__ import annotations

import signal
import threading
from typing import Any

from smtdist.engine.gpus import take_gpu


def dask_setup(worker: Any) -> None:
    """Ignore SIGINT, as the driver ends its workers; keep to one of the machine's GPUs."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_gpu()
