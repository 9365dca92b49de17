"""Kernel ridge regression on cosines of representations: exact, with all training images, in bounded memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from smtdist.data.fingerprint import array_hash
from smtdist.engine.memory import device_free
from smtdist.errors import CheckpointError, ConfigurationError, DataError
from smtdist.evaluate.cosine_rows import (
    Comparer,
    Sets,
    View,
    on_device,
    read_bytes,
    require_alike,
    scaling_bytes,
    stored_bytes,
    view_bytes,
    where,
)
from smtdist.evaluate.head_files import edge_sentence
from smtdist.evaluate.metrics import Judged, Tally, checked_labels, labels_to_judge
from smtdist.kernels import mirror_kernel
from smtdist.kernels.convergence import Convergence
from smtdist.kernels.device import array_module, is_host, like, to_host
from smtdist.kernels.products import in_pieces
from smtdist.kernels.threads import even_ranges, threads
from smtdist.solve import conjugate
from smtdist.solve.blocks import read_block, write_block

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Progress = Callable[[int, int], None]

PENALTIES: Final = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
"""Penalties that are tried, as shares of the kernel's mean diagonal, the largest first."""
DIRECT: Final = 4096
"""Images up to which the kernel is decomposed, and every penalty is judged by leaving out each image in turn."""
TILE_BYTES: Final = 2**28
"""Of a tile of the kernel, at most; its height follows from the number of images alone."""
BLOCK_BYTES: Final = 2**28
"""Of the features of a block of images, while they are made; so do the images of a block from the number of features."""
MOST_ROWS: Final = 1024
LEFT: Final = 4
"""Blocks whose features are kept while all others pass by."""
PIECE: Final = 512
"""Rows or columns of a product that one thread makes."""
DEVICE_SHARE: Final = 0.9
"""Of a device's free memory, that rows, the kernel and the solution may take."""
RANK: Final = 2000
"""Of the preconditioner, at most; of few images a quarter of them."""
HELD_OUT: Final = 1000
"""Images that choose the penalty where there are many; a tenth at most."""
COLUMNS: Final = 128
"""Right sides that are solved for together: those of all classes, for as many penalties as there is room for."""
TOLERANCE: Final = 1e-3
LOOKED: Final = 64
"""Images by whose features one kernel in a folder is told from another."""


@dataclass(frozen=True, eq=False)
class KernelTiles:
    """A symmetric (n, n) float32 matrix as tiles of rows, from the tile's first row on: in memory, a device's, or files.

    A file has its name once it is whole, so that those that are there are not made again. It is read when
    its turn comes, and let go after that: pages of a mapped file would count as memory of this process.
    """

    size: int
    height: int
    tiles: list[Float32 | Path]

    @classmethod
    def made(
        cls,
        size: int,
        height: int,
        make: Callable[[int, int], Float32],
        folder: Path | None,
        called: str = "kernel",
    ) -> KernelTiles:
        """Return the tiles that `make(start, stop)` returns, (stop - start, n - start); in a folder if one is given.

        Files are `called` so, which must tell one matrix from another.
        """
        tiles = list[Float32 | Path]()
        for start, stop in even_ranges(size, height):
            if folder is None:
                tiles.append(make(start, stop))
                continue
            path = folder / f"{called}-{start}.npy"
            try:
                read_block(path)
            except OSError:  # not there yet, or not as it was written
                write_block(path, make(start, stop))
            tiles.append(path)
        return cls(size, height, tiles)

    def __iter__(self) -> Iterator[tuple[int, int, Float32]]:
        """Yield first row, last row and numbers of each tile."""
        for (start, stop), tile in zip(even_ranges(self.size, self.height), self.tiles, strict=True):
            yield start, stop, read_block(tile) if isinstance(tile, Path) else tile

    def product(self, rows: NDArray[Any]) -> Float64:
        """Return the matrix times (n, c) numbers: float32 products, summed in float64 in the order of the tiles.

        Tiles on a device multiply rows that are there.
        """
        xp: Any = array_module(rows)
        right = xp.ascontiguousarray(rows, np.float32)
        found: Float64 = xp.zeros(right.shape)
        for start, stop, tile in self:

            def across(first: int, last: int, start: int = start, tile: Float32 = tile) -> None:
                found[start + first : start + last] += tile[first:last] @ right[start:]

            def down(
                first: int, last: int, start: int = start, stop: int = stop, tile: Float32 = tile
            ) -> None:
                below = tile[:, stop - start + first : stop - start + last]
                found[stop + first : stop + last] += below.T @ right[start:stop]

            in_pieces(across, stop - start, PIECE, rows)
            if stop < self.size:
                in_pieces(down, self.size - stop, PIECE, rows)
        return found

    @property
    def near(self) -> Any:
        """A tile, or its path, which tells where vectors are to be."""
        return self.tiles[0]

    def diagonal_mean(self) -> float:
        """Return the mean of the diagonal."""
        # of a file no more is read than where the diagonal lies
        tiles = (np.load(tile, mmap_mode="r") if isinstance(tile, Path) else tile for tile in self.tiles)
        diagonals = [to_host(tile.diagonal()).copy() for tile in tiles]
        return float(np.concatenate(diagonals).mean(dtype=np.float64))

    def full(self) -> Float64:
        """Return the whole matrix in float64."""
        whole: Float64 = array_module(self.near).empty((self.size, self.size))
        for start, stop, tile in self:
            whole[start:stop, start:] = tile
            whole[start:, start:stop] = tile.T
        return whole


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """A classifier f(x) = mean + Σ_i α_i k(x, x_i) of the training images x_i, one f for each class.

    Attributes
    ----------
    classes : (c,) labels. duals : (n, c) α. mean : (c,) shares of the classes, as targets.
    comparer, known : the kernel, and the features of the training images.
    penalty : μ / mean diagonal, chosen. path : of each penalty its mean squared error and top-1 share, on images
        that were left out. how : "each image left out" or "held out". n_held : how many these are.
    heat : the factor of f in the soft-max that is called a probability, chosen on the same images.
    steps, residual : of conjugate gradients with all images; 0 for the direct solution.
    """

    classes: Int64
    duals: Float64
    mean: Float64
    comparer: Comparer
    known: Sets
    penalty: float
    path: tuple[dict[str, float], ...]
    how: str
    n_held: int
    heat: float
    steps: int = 0
    residual: float = 0.0

    @property
    def ending(self) -> Convergence | None:
        """How the conjugate gradients ended; None where the kernel was decomposed."""
        converged = self.residual <= TOLERANCE
        return Convergence(converged, self.steps, self.residual, self.residual) if self.steps else None

    def advice(self) -> str:
        """Return the sentence for conjugate gradients that had not converged; empty where they had, or were not needed."""
        if self.ending is None or self.ending.converged:
            return ""
        return (
            f"Conjugate gradients stopped after {self.steps} steps with a residual of {self.residual:.2g}, above "
            f"{TOLERANCE:.2g}; raise the smallest of penalties."
        )

    def decision(self, sets: Sets, *, progress: Progress | None = None) -> Float64:
        """Return f, (m, c), for images with the same kinds of features. Memory: `LEFT` + 1 blocks of features.

        A device that has room for the features of the training images compares.
        """
        n, m = require_alike(self.known), require_alike(sets)
        step = block_rows(sets)
        found = np.tile(self.mean, (m, 1))
        known = _placed(self.known, decision_bytes(self.known, sets, len(self.classes)))
        reference = where(known)
        duals = like(reference, self.duals.astype(np.float32))
        for top, bottom in even_ranges(m, LEFT * step):
            asked = _kept(self.comparer, sets, top, bottom, step, reference)
            for first, last in even_ranges(n, step):
                near = self.comparer.views(known, slice(first, last))
                own = duals[first:last]

                def compare(
                    start: int, stop: int, views: list[View], near: list[View] = near, own: Float32 = own
                ) -> None:
                    block = array_module(own).empty((stop - start, len(own)), np.float32)
                    found[start:stop] += to_host(self.comparer.kernel(views, near, block) @ own)

                _side_by_side(compare, asked)
            del asked  # not while the next are made
            if progress is not None:
                progress(bottom, m)
        return found

    def predict(self, sets: Sets) -> Int64:
        """Return the label of the largest f of each image."""
        return np.asarray(self.classes[self.decision(sets).argmax(axis=1)])

    def told(self) -> dict[str, Any]:
        """Return figures of the fit, with the names of `KernelEvaluation`."""
        names = ("penalty", "path", "how", "n_held", "steps", "residual")
        return {"temperature": self.comparer.temperature, **{name: getattr(self, name) for name in names}}

    def probabilities(self, decision: Float64) -> Float64:
        """Return soft-max of `heat` times f: one number is fitted on images that were left out (Guo et al. 2017)."""
        return softmax(self.heat * decision)


def softmax(scores: Float64) -> Float64:
    """Return exp(s) / Σ exp(s) along rows.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    found = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def fit_kernel_ridge(
    known: Sets,
    labels: Any,
    *,
    temperature: float = 0.5,
    comparer: Comparer | None = None,
    penalties: Sequence[float] = PENALTIES,
    held_out: int = HELD_OUT,
    direct: int = DIRECT,
    rank: int = RANK,
    seed: int = 0,
    memory_bytes: int = 2**30,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> KernelRidge:
    """Solve (K + μ I) α = Y - mean with K = exp((cosine - 1) / T) of all pairs of training images, summed over mirror images.

    Y is 1 for the class of an image and -1 for others. μ is a share of K's mean diagonal; of several the one with
    the smallest mean squared error wins, the largest of equals. Up to `direct` images K is decomposed, and each
    image is left out in turn, in closed form. Of more, `held_out` images, drawn by `seed`, judge while conjugate
    gradients solve for the others, for several penalties at a time; then all images are used. A `comparer` that
    was made of more images, whose labels are not known, has the temperature and scales features as they say.

    Memory: `planned_bytes`. K is 2 n² bytes; where that is more than half of `memory_bytes` its tiles are files, in
    `folder` (which keeps them, so that a fit that was killed goes on) or in one of temporary files; neither
    changes a bit. A device that has room for the features, K and the solution does all, and keeps no files.
    Time: n² F products, 2 n² `rank` for the preconditioner, and 2 n² c for each step.

    Raises DataError for labels that do not match the features, a single class, or features that are not finite;
    ConfigurationError for a penalty or a temperature that cannot be.
    """
    n = require_alike(known)
    y = checked_labels(labels, n, "training labels")
    require_classes(y)
    ladder = sorted(set(penalties), reverse=True)
    if not ladder or not 0 < ladder[-1] <= ladder[0] < np.inf:
        raise ConfigurationError(f"The penalties are {penalties!r}; give positive numbers, at least one.")
    classes, places = np.unique(y, return_inverse=True)
    comparer = comparer or Comparer.of(known, temperature)
    targets = np.where(places[:, None] == np.arange(len(classes)), 1.0, -1.0)
    there = _placed(known, planned_bytes(known, len(classes), 4 * n * n, rank))
    with (
        contextlib.nullcontext() if there is not known else _kernel_folder(n, memory_bytes, folder) as place
    ):
        kernel = KernelTiles.made(
            n,
            tile_height(n),
            lambda start, stop: _tile(comparer, there, start, stop, progress),
            place,
            f"kernel-{digest(comparer, known)}",
        )
        unit = kernel.diagonal_mean()
        shifts = {one: one * unit for one in ladder}
        if n <= direct:
            found = _direct(kernel, targets, places, shifts)
        else:
            drawn = np.random.default_rng([seed, 1]).permutation(n)[: max(1, min(held_out, n // 10))]
            before = conjugate.nystrom(kernel.product, n, min(rank, n // 4), seed, kernel.near)
            found = _iterated(kernel, targets, places, shifts, np.sort(drawn), before)
    return KernelRidge(
        classes=classes,
        duals=found.duals,
        mean=targets.mean(axis=0),
        comparer=comparer,
        known=known,
        penalty=found.penalty,
        path=tuple(found.path),
        how=found.how,
        n_held=len(found.places),
        heat=fitted_heat(found.decision, found.places),
        steps=found.steps,
        residual=found.residual,
    )


def _placed(sets: Sets, working: int) -> Sets:
    """Return the features on a device, if it has room for them and `working` bytes; else as they are."""
    room = DEVICE_SHARE * device_free() - working
    return on_device(sets, block_rows(sets)) if room > 0 and stored_bytes(sets) <= room else sets


def _tile(comparer: Comparer, known: Sets, start: int, stop: int, progress: Progress | None) -> Float32:
    """Return rows start to stop of the kernel, from column `start` on."""
    n = require_alike(known)
    step, reference = block_rows(known), where(known)
    tile: Float32 = array_module(reference).empty((stop - start, n - start), np.float32)
    for top, bottom in even_ranges(stop - start, LEFT * step):
        left = _kept(comparer, known, start + top, start + bottom, step, reference)
        for first, last in even_ranges(n - start - top, step):
            right = comparer.views(known, slice(start + top + first, start + top + last))
            columns = slice(top + first, top + last)

            def compare(
                above: int,
                below: int,
                views: list[View],
                right: list[View] = right,
                columns: slice = columns,
            ) -> None:
                comparer.kernel(views, right, tile[above - start : below - start, columns])

            _side_by_side(compare, left)
        del left  # not while the next are made
        tile[top:bottom, :top] = tile[:top, top:bottom].T
    if progress is not None:
        # of the triangle's entries
        progress(stop * (2 * n - stop), n * n)
    return tile


def _kept(
    comparer: Comparer, sets: Sets, start: int, stop: int, step: int, near: Float32
) -> list[tuple[int, int, list[View]]]:
    """Return the views of images start to stop in blocks, where `near` is, which stay while the blocks of others pass by.

    To scale a block takes as long as to multiply it with one.
    """

    def views(first: int, last: int) -> list[View]:
        found = comparer.views(sets, slice(first, last))
        return [(like(near, own), None if odd is None else like(near, odd)) for own, odd in found]

    ranges = [(start + first, start + last) for first, last in even_ranges(stop - start, step)]
    return [(first, last, views(first, last)) for first, last in ranges]


def _side_by_side(
    work: Callable[[int, int, list[View]], None], blocks: Sequence[tuple[int, int, list[View]]]
) -> None:
    """Work on blocks of images at the same time: one of long rows is too small to be parted among threads."""

    def several(first: int, last: int) -> None:
        for block in blocks[first:last]:
            work(*block)

    in_pieces(several, len(blocks), 1, blocks[0][2][0][0])


class _Found(NamedTuple):
    """Duals of all images, and what those that were left out of the chosen penalty's solution got."""

    duals: Float64
    penalty: float
    path: list[dict[str, float]]
    decision: Float64
    places: Int64
    how: str
    steps: int = 0
    residual: float = 0.0


def _direct(kernel: KernelTiles, targets: Float64, places: Int64, shifts: dict[float, float]) -> _Found:
    """Solve by eigenvectors: with G = (K + μ I)⁻¹, an image left out is missed by α_i / G_ii (the mean stays)."""
    whole = kernel.full()
    if is_host(whole):
        values, vectors = scipy.linalg.eigh(whole, overwrite_a=True)
    else:
        values, vectors = map(to_host, array_module(whole).linalg.eigh(whole))
    del whole
    values = np.maximum(values, 0.0)
    moved = vectors.T @ (targets - targets.mean(axis=0))
    squares = vectors**2
    path: list[dict[str, float]] = []
    found: tuple[float, Float64, Float64] | None = None
    for penalty, shift in shifts.items():
        weights = 1 / (values + shift)
        duals = vectors @ (weights[:, None] * moved)
        decision = targets - duals / (squares @ weights)[:, None]
        path.append(_judged(penalty, decision, targets, places))
        if path[-1] is min(path, key=itemgetter("error")):  # the largest penalty of equals
            found = penalty, duals, decision
    assert found is not None
    penalty, duals, decision = found
    return _Found(duals, penalty, path, decision, places, "each image left out")


def _iterated(
    kernel: KernelTiles,
    targets: Float64,
    places: Int64,
    shifts: dict[float, float],
    held: NDArray[np.intp],
    before: conjugate.Nystrom,
) -> _Found:
    """Solve by conjugate gradients; the images `held` choose the penalty, and are then used as well."""
    xp, kept = array_module(kernel.near), np.ones((kernel.size, 1))
    kept[held] = 0
    mean = (targets * kept).sum(axis=0) / kept.sum()
    kept, rest = (like(kernel.near, one) for one in (kept, (targets - mean) * kept))

    def without(rows: NDArray[Any]) -> Float64:
        # the images that are held out have no row and no column
        moved: Float64 = kernel.product(rows * kept) * kept
        return moved

    path: list[dict[str, float]] = []
    found: tuple[float, Float64, Float64] | None = None
    start, n_classes, ladder = None, targets.shape[1], list(shifts.items())
    together = max(1, COLUMNS // n_classes)
    # several penalties in one product with the kernel, which may have to be read from files
    for first in range(0, len(ladder), together):
        tried = ladder[first : first + together]
        start = None if start is None else xp.tile(start, len(tried))
        each = np.repeat([shift for _, shift in tried], n_classes)
        solved = conjugate.solve(
            without, xp.tile(rest, len(tried)), each, before, start=start, tolerance=TOLERANCE
        ).rows
        solved *= kept
        decisions = to_host(kernel.product(solved)[like(solved, held)])
        for (penalty, _), columns in zip(tried, even_ranges(solved.shape[1], n_classes), strict=True):
            start, decision = solved[:, slice(*columns)], decisions[:, slice(*columns)] + mean
            path.append(_judged(penalty, decision, targets[held], places[held]))
            if path[-1] is min(path, key=itemgetter("error")):  # the largest penalty of equals
                found = penalty, start, decision
    assert found is not None
    penalty, start, decision = found
    whole = like(kernel.near, targets - targets.mean(axis=0))
    last = conjugate.solve(kernel.product, whole, shifts[penalty], before, start=start, tolerance=TOLERANCE)
    residual = float(last.residuals.max())
    return _Found(
        to_host(last.rows), penalty, path, decision, places[held], "held out", last.steps, residual
    )


def _judged(penalty: float, decision: Float64, targets: Float64, places: Int64) -> dict[str, float]:
    return {
        "penalty": float(penalty),
        "error": float(np.mean((decision - targets) ** 2)),
        "top1": float((decision.argmax(axis=1) == places).mean()),
    }


def fitted_heat(decision: Float64, places: Int64) -> float:
    """Return the factor β with the smallest mean of -log soft-max(β f) at the true class, between 0.01 and 1000.

    >>> 0.5 < fitted_heat(np.array([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]), np.array([0, 1, 1])) < 1000
    False
    """

    import scipy.optimize  # takes half a second, which other judges need not wait for

    def loss(logarithm: float) -> float:
        chosen = softmax(np.exp(logarithm) * decision)[np.arange(len(places)), places]
        return float(-np.log(np.maximum(chosen, 1e-300)).mean())

    found = scipy.optimize.minimize_scalar(loss, bounds=(np.log(0.01), np.log(1000.0)), method="bounded")
    return float(np.exp(found.x))


def digest(comparer: Comparer, known: Sets) -> str:
    """Return a hash of the kernel: of its temperature, how features are scaled, and the views of some images."""
    n = require_alike(known)
    arrays = [np.array([n, comparer.temperature])]
    for scales in comparer.scales:
        for one in scales:
            arrays += [array for array in (one.mean, one.inverse) if array is not None]
    for start in sorted({n * part // LOOKED for part in range(LOOKED)}):
        for own, odd in comparer.views(known, slice(start, start + 1)):
            arrays += [own] if odd is None else [own, odd]
    return array_hash(*arrays)[:16]


def require_classes(labels: Int64) -> None:
    """Refuse labels of fewer than two classes."""
    if len(np.unique(labels)) < 2:
        raise DataError("The training labels have only one class; a classifier needs at least two.")


def block_rows(sets: Sets) -> int:
    """Return the images of a block, at least 64: those whose features take `BLOCK_BYTES` at most while they are made."""
    rows = MOST_ROWS
    while rows > 64 and view_bytes(sets, rows) > BLOCK_BYTES:
        rows //= 2
    return rows


def tile_height(n: int) -> int:
    """Return the rows of a tile of the kernel of n images: a multiple of 64 that takes `TILE_BYTES` at most, or 64.

    >>> tile_height(50_000), tile_height(1000)
    (1280, 1000)
    """
    return min(n, max(64, TILE_BYTES // (4 * n) // 64 * 64))


def planned_bytes(known: Sets, n_classes: int, memory_bytes: int, rank: int = RANK) -> int:
    """Return the memory that `fit_kernel_ridge` takes at most beside the features: blocks, tiles, and the solution.

    K in memory is 2 n² bytes, decomposed it is 40 n² more; the preconditioner takes 32 n r + 24 r² bytes while it is made.
    """
    n = require_alike(known)
    step, tile = block_rows(known), 4 * tile_height(n) * n
    rows = min(step, n)
    making = view_bytes(known, rows, min(LEFT * step, n)) + view_bytes(known, rows)
    making += read_bytes(known, rows) + 12 * step * rows + tile
    kernel = 2 * n * (n + tile_height(n)) if 2 * n * n <= memory_bytes // 2 else 2 * tile
    rank = min(rank, n // 4)
    columns = max(n_classes, min(COLUMNS, n_classes * len(PENALTIES)))
    steps = 32 * n * rank + 24 * rank * rank, 4 * n * rank + 112 * n * columns
    solving = 40 * n * n if n <= DIRECT else max(steps)
    return max(scaling_bytes(known), kernel + max(making, solving))


def decision_bytes(known: Sets, asked: Sets, n_classes: int) -> int:
    """Return the memory that `KernelRidge.decision` takes at most: blocks of features, a kernel, and the sums."""
    n, m = require_alike(known), require_alike(asked)
    step = block_rows(asked)
    rows, columns = min(step, m), min(step, n)
    blocks = view_bytes(asked, rows, min(LEFT * step, m)) + view_bytes(known, columns)
    blocks += read_bytes(asked, rows) + read_bytes(known, columns)
    # the products of a piece are brought to the kernel by each thread
    comparing = threads() * (4 * rows + 16 * mirror_kernel.PIECE) * columns
    return blocks + comparing + 8 * n_classes * (3 * m + 2 * n + rows)


def kernel_work(n: int, features: int, n_classes: int) -> float:
    """Return the multiplications of `fit_kernel_ridge`: the kernel with mirror images, and the solution."""
    making = float(n) * n * features
    if n <= DIRECT:
        return making + 5.0 * n**3
    rank = min(RANK, n // 4)
    return making + float(n) * n * (rank + 10 * len(PENALTIES) * n_classes) + 6.0 * n * rank**2


@contextlib.contextmanager
def _kernel_folder(n: int, memory_bytes: int, folder: Path | None) -> Iterator[Path | None]:
    if folder is not None:
        try:
            folder.mkdir(0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{folder} cannot be a folder of the kernel ({error.strerror}); name a new folder as checkpoint."
            ) from error
        yield folder
    elif 2 * n * n <= memory_bytes // 2:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="smtdist-kernel-") as made:
            yield Path(made)


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelEvaluation(Judged):
    """What kernel ridge regression found.

    Attributes
    ----------
    temperature : T of the kernel, None where there is none. penalty : share, chosen on training samples; path : of every
        penalty its squared error and top-1 on those that were left out. how, n_held : how, and how many.
    steps, residual : of conjugate gradients.
    metric : "kernel"; "landmarks" or "ridge" of a head that is one; the kind of a head of a package, which may have no penalty.
    top1, top5, interval, n_train, n_test, n_classes, confusion, raw_pixels : as in `smtdist.evaluate.metrics.Judged`.
    """

    metric: str = "kernel"
    temperature: float | None = None
    penalty: float = 0.0
    path: tuple[dict[str, float], ...] = ()
    how: str = ""
    n_held: int = 0
    steps: int = 0
    residual: float = 0.0

    def notes(self) -> list[str]:
        """Return what to say beside the accuracy, of the penalty too."""
        return [*super().notes(), edge_sentence(self.penalty, self.path)]


def evaluate_kernel_ridge(
    known: Sets, train_y: Any, asked: Sets, test_y: Any, *, memory_bytes: int = 2**30, **settings: Any
) -> KernelEvaluation:
    """Fit kernel ridge regression on training images and count how many test images it gets right.

    `settings` are those of `fit_kernel_ridge`. Test labels that training lacks count as wrong.
    """
    labels = labels_to_judge(test_y, require_alike(asked))
    fitted = fit_kernel_ridge(known, train_y, memory_bytes=memory_bytes, **settings)
    return judged(
        fitted.decision(asked), fitted.classes, labels, **fitted.told(), n_train=require_alike(known)
    )


def judged(decision: Float64, classes: Int64, labels: Int64, **about: Any) -> KernelEvaluation:
    """Return what decisions (m, c) of test images with these labels are worth, with what is known of the classifier."""
    tally = Tally(classes, labels)
    tally.add(decision, labels, classes)
    return KernelEvaluation(**tally.fields(), **about)
