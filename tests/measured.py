"""Work on a number of threads, and the memory it takes: what NumPy and Python allocate while it runs."""

import contextlib
import tracemalloc

from smtdist.kernels import threads


def measured(work):
    """Return what `work` returns, and the bytes it held at most."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of(work):
    """Return the bytes that `work` held at most."""
    return measured(work)[1]


@contextlib.contextmanager
def on_threads(count):
    """Have kernels use so many threads, and as many as before at the end."""
    before = threads.threads()
    threads.set_threads(count)
    try:
        yield
    finally:
        threads.set_threads(before)
