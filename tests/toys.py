"""Small statistics and sources with which the engine is tested apart from any model."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from smtdist.data.array import ArraySource
from smtdist.data.source import Source
from smtdist.kernels.features import Features
from smtdist.statistics.base import Statistic


@dataclass(frozen=True, eq=False)
class AsTheyAre(Features):
    """Rows that are codes already."""

    size: int
    sparse: bool = False

    def __call__(self, rows):
        return rows


@dataclass(frozen=True)
class Total(Statistic):
    """The sum of all pixels and of the sample numbers: integers, or float32 whose sum depends on the order."""

    exact: bool = True
    fail_at: int | None = None
    on_device: bool = True

    def zero(self):
        return {
            "total": np.zeros(3, np.int64 if self.exact else np.float32),
            "numbers": np.zeros((), np.int64),
        }

    def update(self, state, images, first_sample):
        if self.fail_at is not None and first_sample <= self.fail_at < first_sample + len(images):
            raise ArithmeticError("a bug in the statistic")
        for image in images:
            value = image.sum(dtype=np.int64) if self.exact else np.float32(image.sum()) / np.float32(3)
            state["total"] += value
        state["numbers"] += sum(range(first_sample, first_sample + len(images)))
        return len(images)

    def state_bytes(self):
        return 32

    def batch_bytes(self, images):
        return 100 * images

    def miniature(self):
        return Total(self.exact)


@dataclass(frozen=True, eq=False)
class Counted(Source):
    """An array source that writes down every read; `limit` makes it fail after so many, as a killed driver would."""

    array: np.ndarray
    reads: list
    chunk_samples: int = 4
    name: str = "counted"

    @property
    def shape(self):
        return self.array.shape

    @property
    def dtype(self):
        return self.array.dtype

    def describe(self):
        return {"kind": "counted"}

    @contextmanager
    def opened(self):
        with ArraySource(self.array).opened() as reader:
            read = reader.read

            def counted(start, stop, out=None):
                self.reads.append((start, stop))
                return read(start, stop, out)

            reader.read = counted
            yield reader


def sum_of(statistic, samples, first=0, state=None):
    """Add samples to a state, a new one unless it is given, as one batch that cannot be written to."""
    state = statistic.zero() if state is None else state
    samples = samples.view()
    samples.flags.writeable = False
    statistic.update(state, samples, first)
    return state


def assert_same_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name, strict=True)


def random_images(seed, n, side=6, channels=1):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, channels), dtype=np.uint8)
