"""Work on a number of threads, and the memory it takes: what NumPy and Python allocate while it runs."""

import contextlib
import tracemalloc

from smtdist.engine import memory
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


def taken_by(work):
    """Return the bytes by which this process grows at most while `work` is done, whoever allocates them."""
    before = memory.resident_bytes()
    memory.reset_peak()
    work()
    return memory.peak_bytes() - before


class Counting:
    """Stored rows that count how many of them are read."""

    def __init__(self, stored):
        self.stored, self.rows = stored, 0
        self.shape, self.dtype, self.chunks = stored.shape, stored.dtype, getattr(stored, "chunks", None)

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, rows):
        self.rows += rows.stop - rows.start
        return self.stored[rows]


@contextlib.contextmanager
def on_threads(count):
    """Have kernels use so many threads, and as many as before at the end."""
    before = threads.threads()
    threads.set_threads(count)
    try:
        yield
    finally:
        threads.set_threads(before)
