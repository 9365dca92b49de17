"""What a device can do, and whether it gives sums that are known: asked once a process before its kernels are trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np


def capability(xp: Any) -> int:
    """Return the compute capability of the current device of an array module, 90 for 9.0; NumPy has none, 0."""
    return 0 if xp is np else int(xp.cuda.Device().compute_capability)


_found: dict[tuple[int, Callable[..., bool]], bool] = {}


def gives(xp: Any, right: Callable[[Any, np.random.Generator], bool], instead: str) -> bool:
    """Tell whether kernels give what `right` knows on the current device; if not, say what is done instead."""
    device = 0 if xp is np else int(xp.cuda.Device().id)
    if (device, right) not in _found:
        _found[device, right] = right(xp, np.random.default_rng(device))
        if not _found[device, right]:
            logging.getLogger("smtdist").warning(
                "The tensor cores of device %d do not give the sums that they should; %s.", device, instead
            )
    return _found[device, right]
