"""What a device is asked for, on the fake one: operations that are started, and waits of the host for what they give."""

from collections import Counter
from contextlib import contextmanager

import fake_cupy
import numpy as np
import pytest

from smtdist.kernels.gpu import source

STARTED = (
    "astype",
    "cumsum",
    "copy",
    "repeat",
    "fill",
)  # sums and the like are noted as what they reduce by
WAITED = ("tolist", "item", "__int__", "__bool__", "__float__", "__index__")


@contextmanager
def counted():
    """Yield two counters by name that fill while the block runs: operations that are started, and waits."""
    started, waited = Counter(), Counter()
    with pytest.MonkeyPatch.context() as patch:

        def note(owner, name, counter, tell=lambda *_: True):
            inner = getattr(owner, name)

            def noted(*given, **options):
                counter[name if owner is fake_cupy.DeviceArray else "call"] += tell(*given)
                return inner(*given, **options)

            patch.setattr(owner, name, noted, raising=False)

        for name in STARTED:
            note(fake_cupy.DeviceArray, name, started)
        for name in WAITED:
            note(fake_cupy.DeviceArray, name, waited)
        note(fake_cupy.DeviceArray, "__array_ufunc__", started)
        note(fake_cupy.DeviceArray, "__setitem__", started)
        note(fake_cupy.DeviceArray, "__getitem__", started, lambda _, at: _gathers(at))
        note(fake_cupy.DeviceArray, "reshape", started, lambda x, *_: not x.flags.c_contiguous)
        note(fake_cupy, "call", started, _copies)
        patch.setattr(fake_cupy.MODULE, "zeros", _noting(fake_cupy.MODULE.zeros, started, "zeros"))
        patch.setattr(fake_cupy.MODULE, "asnumpy", _noting(fake_cupy.MODULE.asnumpy, waited, "asnumpy"))
        kernel = source.kernel
        patch.setattr(source, "kernel", lambda name: (started.update([name]), kernel(name))[1])
        yield started, waited


def _noting(inner, counter, name):
    def noted(*given, **options):
        counter[name] += 1
        return inner(*given, **options)

    return noted


def _copies(function, args, _options):
    """Tell whether a function starts anything: not for an array that is in one piece already."""
    return function is not np.ascontiguousarray or not args[0].flags.c_contiguous


def _gathers(at):
    """Tell whether an index copies: slices and numbers are views."""
    return any(isinstance(one, np.ndarray | list) for one in (at if isinstance(at, tuple) else (at,)))
