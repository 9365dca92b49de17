"""Soft nearest neighbours over representations that need not fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from smtdist.configuration import VOTES, Configuration
from smtdist.engine.memory import device_free
from smtdist.errors import ConfigurationError, DataError, MemoryBudgetError
from smtdist.evaluate.metrics import (
    Evaluation,
    Tally,
    checked_labels,
    confusion_bytes,
    labels_to_judge,
    require_alike,
)
from smtdist.kernels import neighbours
from smtdist.kernels.device import array_module, is_host, kept, place, to_host

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]

BLOCK_BYTES: Final = 512 * 2**20
TRAIN_ROWS: Final = 512  # enough rows for a fast product; the rest of the memory holds test rows
DEVICE_ROWS: Final = 4096
"""The same on a device; an estimate."""
DEVICE_SHARE: Final = 0.9
"""Of a device's free memory, that rows and a block may take."""
PACKED_ROWS: Final = 256
"""Rows on each side that are worth packing."""
PADDED_ROWS: Final = 64
"""Products of a test row that whole panels may add; a quarter of the rows that whole blocks may add."""
KEY_BYTES: Final = 24
"""Of a neighbour: its key, and what it says."""
DECODED_ROWS: Final = 1024
"""Test rows whose keys are put in order at a time."""
SAFE_SQUARE: Final = 1e-20
"""Rows whose sum of squares lies between it and its inverse have products that float32 holds."""


def nearest(
    test: Any,
    train: Any,
    k: int,
    *,
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
) -> tuple[Float32, Int64]:
    """Return the cosines (m, k), in descending order, and row numbers (m, k) of the k nearest training rows.

    `test` (m, ...) and `train` (n, ...) are anything with `shape` and `dtype` that can be sliced by rows:
    arrays, HDF5 datasets; further axes are flattened. Rows are scaled to length 1 in float32 on the way; a
    row of zeros has the cosine 0 to every other. Equal cosines go to the lowest training row. Memory:
    `block_bytes`, plus 12 bytes for each of the m k results. Training rows are read once per block of test
    rows, so more memory means fewer reads; a device keeps rows that fit there, which are read once. Rows may be there
    already. `progress` is called with the pairs of rows compared so far and in
    all. Raises ConfigurationError for k above n, MemoryBudgetError where one row of each does not fit,
    DataError for rows that do not match or are not finite.

    >>> cosines, rows = nearest(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0], [3.0, 0.0], [1.0, 0.0]]), 2)
    >>> cosines, rows
    (array([[1., 1.]], dtype=float32), array([[1, 2]]))
    """
    n_test, n_train, features = _checked(test, train, k)
    for_rows = int(DEVICE_SHARE * device_free()) - 4 * block_bytes
    train = _kept_on_device(train, for_rows, block_bytes)
    test_rows, train_rows, packed = _blocking(test, train, features, k, block_bytes)
    cosines = np.empty((n_test, k), np.float32)
    indices = np.empty((n_test, k), np.int64)
    for start in range(0, n_test, test_rows):
        stop = min(start + test_rows, n_test)
        queries = _read_rows(test, start, stop, "test", train_rows)
        best = neighbours.search(place(queries.values), place(queries.scale), train_rows, k, packed)
        room = None if _is_plain(train) else array_module(train).empty((train_rows, features), np.float32)
        for first in range(0, n_train, train_rows):
            last = min(first + train_rows, n_train)
            block = _rows(train, first, last, "training", room)
            best.offer(block.values, block.scale, first)
            if progress is not None:
                progress(start * n_train + (stop - start) * last, n_test * n_train)
        cosines[start:stop], indices[start:stop] = neighbours_of(best.keys)
        del queries, best, block, room  # before the next test rows are read
    return cosines, indices


def vote(
    cosines: Float32, neighbour_labels: Int64, n_classes: int, vote: str = "exp", temperature: float = 0.03
) -> Float64:
    """Return the score of every class (m, n_classes) from the k neighbours' cosines and labels, both (m, k).

    "linear" sums cos / k over the neighbours of a class (SMT 2023 appendix J, as printed; a softmax with any
    temperature would not change the order); "exp" sums exp(cos / T), here divided by that of the nearest
    neighbour, so that nothing overflows; "hard" counts neighbours. A class without neighbours has 0. Memory:
    8 bytes a score and 24 a neighbour. Raises ConfigurationError for another vote or a temperature that is
    not positive.

    >>> vote(np.array([[0.5, 0.25, 0.25]]), np.array([[1, 0, 0]]), 3, "hard")
    array([[2., 1., 0.]])
    """
    check_vote(vote, temperature)
    rows, k = cosines.shape
    weights = cosines.astype(np.float64)
    if vote == "exp":
        weights -= weights.max(axis=1, keepdims=True)
        weights /= temperature
        np.exp(weights, out=weights)
    elif vote == "linear":
        weights /= k
    else:
        weights[...] = 1
    bins = neighbour_labels + n_classes * np.arange(rows)[:, None]
    scores = np.bincount(bins.reshape(-1), weights.reshape(-1), minlength=rows * n_classes)
    return scores.reshape(rows, n_classes).astype(np.float64, copy=False)


def evaluation_of(
    cosines: Float32,
    indices: Int64,
    train_labels: Int64,
    asked: Int64,
    settings: SoftNeighbours,
) -> Evaluation:
    """Count what the neighbours that `nearest` found vote for; cosines and indices are (m, k)."""
    k, temperature, vote = settings.k, settings.temperature, settings.vote
    tally = Tally(train_labels, asked)
    step = _voting_rows(settings.block_bytes, tally.size, k)
    for start in range(0, len(asked), step):
        rows = slice(start, start + step)
        near = train_labels[indices[rows]]
        tally.add(_vote(cosines[rows], near, tally.size, vote, temperature), asked[rows])
    heat = temperature if vote == "exp" else None
    return Evaluation(vote=vote, k=k, temperature=heat, n_train=len(train_labels), **tally.fields())


def knn_bytes(train: Any, test: Any, k: int, n_classes: int, *, block_bytes: int = BLOCK_BYTES) -> int:
    """Return the memory that `SoftNeighbours` takes at most beside the representations, of which the shapes alone matter."""
    n_test, _, features = _checked(test, train, k)
    test_rows, train_rows, packed = _blocking(test, train, features, k, block_bytes)
    known, own, rest = _block_bytes(train_rows, features, _raw_bytes(test, train), k, packed)
    comparing = train_rows * known + test_rows * own + rest
    comparing += 32 * k * min(DECODED_ROWS, n_test)
    voting = min(n_test, _voting_rows(block_bytes, n_classes, k)) * _vote_bytes(n_classes, k)
    return 12 * n_test * k + max(comparing, voting) + confusion_bytes(n_classes)


@dataclass(frozen=True)
class SoftNeighbours:
    """The k nearest training rows vote (SMT 2023 appendix J): at once, or while training rows come block by block.

    block_bytes : of rows that are compared at a time, as in `nearest`.

    >>> z, judge = np.eye(4, dtype=np.float32), SoftNeighbours(k=1)
    >>> learner = judge.begin(z, np.arange(4), np.arange(4), 2)
    >>> learner.learn(z[:2], 0)
    >>> learner.learn(z[2:], 2)
    >>> learner.result().top1 == judge(z, np.arange(4), z, np.arange(4)).top1 == 1
    True
    """

    k: int = Configuration.n_neighbors
    temperature: float = Configuration.temperature
    vote: str = Configuration.vote
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def of(
        cls,
        settings: Configuration,
        k: int | None = None,
        temperature: float | None = None,
        vote: str | None = None,
    ) -> Self:
        """Return those that a model's settings name, but for what is given."""
        return cls(k or settings.n_neighbors, temperature or settings.temperature, vote or settings.vote)

    def __call__(
        self, train_z: Any, train_y: Any, test_z: Any, test_y: Any, progress: Progress | None = None
    ) -> Evaluation:
        """Classify test rows by training rows that are all there, and count what is right.

        `train_z` and `test_z` are as in `nearest`; `train_y` (n,) and `test_y` (m,) number the classes from 0.
        Ties go to the lowest class. Memory: as `nearest`. Raises what `nearest` and `vote` raise, before anything
        is read where that can be told.
        """
        check_vote(self.vote, self.temperature)
        train_labels = checked_labels(train_y, len(train_z), "training labels")
        asked = labels_to_judge(test_y, len(test_z))
        near = nearest(test_z, train_z, self.k, block_bytes=self.block_bytes, progress=progress)
        return evaluation_of(*near, train_labels, asked, self)

    def begin(self, test_z: Any, train_y: Any, test_y: Any, rows: int) -> GradualNeighbours:
        """Begin with test rows, kept as they are; training rows follow, at most `rows` at a time."""
        return GradualNeighbours(self, test_z, train_y, test_y, rows)


class NearestSoFar:
    """The k nearest of the training rows so far, for test rows that are kept while blocks of at most `rows` pass by.

    keys : of an earlier one that took some blocks (`keys`), to go on where it was. packed : whether products are packed,
    which pays for many rows. Memory: the test rows, 16 bytes for each of them and each row of a block, and where they are
    packed half of the test rows at most.

    >>> z = np.eye(3, dtype=np.float32)
    >>> first = NearestSoFar(z, 1, 2)
    >>> first.learn(z[:2], 0)
    >>> second = NearestSoFar(z, 1, 2, first.keys)
    >>> second.learn(z[2:], 2)
    >>> second.found()[1].tolist()
    [[0], [1], [2]]
    """

    def __init__(
        self, test_z: Any, k: int, rows: int, keys: Int64 | None = None, packed: bool = False
    ) -> None:
        queries = _rows(test_z, 0, len(test_z), "test", None)
        self._best = neighbours.search(place(queries.values), place(queries.scale), rows, k, packed)
        if keys is not None:
            self._best.keys[...] = place(keys)

    @property
    def keys(self) -> Int64:
        """What is known so far, int64 (m, k)."""
        return np.asarray(to_host(self._best.keys))

    def learn(self, train_z: Any, first: int) -> None:
        """Take the training rows from number `first` on; every row once, in any order."""
        block = _rows(train_z, 0, len(train_z), "training", None, first)
        self._best.offer(block.values, block.scale, first)

    def found(self) -> tuple[Float32, Int64]:
        """Return the cosines (m, k), in descending order, and row numbers; k rows must have come."""
        return neighbours_of(self._best.keys)


class GradualNeighbours(NearestSoFar):
    """Test rows that are classified by training rows which come block by block and need not stay.

    Memory: as `NearestSoFar`. Raises what `SoftNeighbours` raises.
    """

    def __init__(self, settings: SoftNeighbours, test_z: Any, train_y: Any, test_y: Any, rows: int) -> None:
        check_vote(settings.vote, settings.temperature)
        self._settings = settings
        self._train_labels = checked_labels(train_y, len(train_y), "training labels")
        self._test_labels = checked_labels(test_y, len(test_z), "test labels")
        if not 1 <= settings.k <= len(train_y):
            raise _wrong_k(settings.k, len(train_y))
        super().__init__(test_z, settings.k, rows)

    def result(self) -> Evaluation:
        """Return what the nearest of all rows so far vote for."""
        return evaluation_of(*self.found(), self._train_labels, self._test_labels, self._settings)


def check_vote(vote: str, temperature: float) -> None:
    """Raise ConfigurationError for a vote that does not exist or a temperature that is not positive."""
    if vote not in VOTES:
        raise ConfigurationError(f"There is no vote {vote!r}; choose one of {', '.join(VOTES)}.")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ConfigurationError(f"The temperature is {temperature}; it must be a positive number.")


_vote = vote  # the function, where an argument bears its name


@dataclass(frozen=True, eq=False)
class _Rows:
    """Float32 rows (n, features), and the factors (n,) that bring them to length 1."""

    values: Float32
    scale: Float32


def neighbours_of(keys: Any) -> tuple[Float32, Int64]:
    """Return the cosines (m, k), in descending order, and row numbers of keys of `NearestSoFar`; of fewer rows the first."""
    cosines, rows = np.empty(keys.shape, np.float32), np.empty(keys.shape, np.int64)
    for start in range(0, len(rows), DECODED_ROWS):
        here = slice(start, start + DECODED_ROWS)
        cosines[here], rows[here] = map(to_host, neighbours.sorted_neighbours(keys[here]))
    return cosines, rows


def _kept_on_device(source: Any, room: int, block_bytes: int) -> Any:
    """Return rows on a device, copied there once, if they fit in so many bytes of it; else as they are."""
    row = math.prod(source.shape[1:]) * source.dtype.itemsize
    if not is_host(source) or len(source) * row > room:
        return source
    return kept(source, max(1, block_bytes // row))


def _is_plain(source: Any) -> bool:
    """Whether rows can be used where they lie."""
    array = isinstance(source, np.ndarray) or not is_host(source)
    return array and source.dtype == np.float32 and bool(source.flags.c_contiguous)


def _read_rows(source: Any, start: int, stop: int, name: str, step: int) -> _Rows:
    """Return rows of a source, converted `step` at a time."""
    if _is_plain(source):
        return _rows(source, start, stop, name, None)
    xp = array_module(source)
    values = xp.empty((stop - start, math.prod(source.shape[1:])), np.float32)
    scale = xp.empty(stop - start, np.float32)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        scale[first - start : last - start] = _rows(
            source, first, last, name, values[first - start : last - start]
        ).scale
    return _Rows(values, scale)


def _rows(source: Any, start: int, stop: int, name: str, room: Float32 | None, base: int = 0) -> _Rows:
    """Return rows of a source: where they lie if they are plain float32, else in `room` or memory of their own.

    `base` is the number of the source's first row, for messages.
    """
    values = source[start:stop]
    xp, given = array_module(values), room is None and _is_plain(values)
    if given:
        rows = values.reshape(stop - start, -1)
    else:
        rows = xp.empty((stop - start, math.prod(values.shape[1:])), np.float32) if room is None else room
        rows = rows[: stop - start]
        with np.errstate(over="ignore"):  # what leaves float32 becomes infinite and is refused below
            rows[...] = xp.asarray(values).reshape(rows.shape)
    squares = neighbours.squares(rows)
    if bool(((squares > SAFE_SQUARE) & (squares < 1 / SAFE_SQUARE)).all()):
        return _Rows(rows, (1 / np.sqrt(squares)).astype(np.float32))
    # rows of zeros, or so long or short that products leave float32
    if not bool(np.isfinite(squares).all()):
        bad = base + start + int(np.flatnonzero(~np.isfinite(to_host(squares)))[0])
        raise DataError(
            f"Row {bad} of the {name} representation is not finite in float32; transform that sample again."
        )
    with np.errstate(divide="ignore"):
        scale = xp.where(squares > 0, 1 / np.sqrt(squares), 0)
    out = xp.empty_like(rows) if given else rows  # what was given stays as it is
    np.multiply(rows, scale[:, None], out=out, casting="same_kind")
    return _Rows(out, xp.ones(len(rows), np.float32))


def _checked(test: Any, train: Any, k: int) -> tuple[int, int, int]:
    require_alike(train, test, "test")
    n_train = train.shape[0]
    if not 1 <= k <= n_train:
        raise _wrong_k(k, n_train)
    if n_train > neighbours.LARGEST_ROW:
        raise DataError(
            f"There are {n_train} training samples, but at most {neighbours.LARGEST_ROW} can be numbered; use fewer."
        )
    return test.shape[0], n_train, math.prod(train.shape[1:])


def _wrong_k(k: int, n_train: int) -> ConfigurationError:
    return ConfigurationError(
        f"k is {k}, but there are {n_train} training samples; choose k from 1 to {n_train}."
    )


def _blocking(test: Any, train: Any, features: int, k: int, block_bytes: int) -> tuple[int, int, bool]:
    """Return (test rows, training rows) of a block, and whether they are packed.

    As many test rows as fit beside a modest block of training rows; few rows are not worth packing.
    """
    raw, n_test = _raw_bytes(test, train), max(test.shape[0], 1)
    chunks = getattr(train, "chunks", None)
    stored = int(chunks[0]) if isinstance(chunks, tuple) and isinstance(chunks[0], int) else 1
    enough = TRAIN_ROWS if is_host(train) else DEVICE_ROWS
    train_rows = min(stored * max(1, enough // stored), train.shape[0])
    while True:
        for packed in (True, False):
            known, own, rest = _block_bytes(train_rows, features, raw, k, packed)
            test_rows = (block_bytes - rest - train_rows * known) // own
            few = train_rows < PACKED_ROWS or test_rows < min(PACKED_ROWS, n_test)
            if test_rows >= min(train_rows, n_test) and not (packed and few):
                return min(test_rows, n_test), train_rows, packed
        if train_rows == 1:
            break
        train_rows //= 2
    needed = sum(_block_bytes(1, features, raw, k, False))
    raise MemoryBudgetError(
        f"One row of {features} features on each side needs {needed} bytes, but {block_bytes} are allowed; "
        f"raise the memory limit or pool the representation more."
    )


def _raw_bytes(test: Any, train: Any) -> int:
    """Return the bytes of a stored number, of either side the more."""
    return int(max(test.dtype.itemsize, train.dtype.itemsize))


def _block_bytes(train_rows: int, features: int, raw: int, k: int, packed: bool) -> tuple[int, int, int]:
    """Return the memory of a training row of a block, of a test row, and of what is beside them.

    Numbers are float32, and those of training raw as well; packed ones come in whole blocks. Products are 4 bytes a
    pair, or 8 of rows that are not packed; then there are keys and what they say.
    """
    more = neighbours.packed_bytes(features) if packed else 0
    products = 4 * (train_rows + PADDED_ROWS) if more else 8 * train_rows
    return (
        features * (4 + raw + more) + 16,
        features * (4 + more) + products + KEY_BYTES * k,
        more * features * 4 * PADDED_ROWS,
    )


def _vote_bytes(n_classes: int, k: int) -> int:
    """Return the memory of a test row while its neighbours vote."""
    return 20 * n_classes + 40 * k


def _voting_rows(block_bytes: int, n_classes: int, k: int) -> int:
    """Return the test rows whose neighbours vote at a time."""
    return max(1, block_bytes // _vote_bytes(n_classes, k))
