"""Finished statistics: the named sums of a fit, stored with as few K x K arrays as possible, opened whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smtdist.data.spilled import forget
from smtdist.errors import DataError, TooLargeError
from smtdist.kernels.context import COARSE_BITS, FINE_BITS, whole_weights
from smtdist.kernels.scatter import mirror_upper
from smtdist.kernels.triangle import UpperTiles, tile_height
from smtdist.statistics import limbs
from smtdist.statistics.base import State
from smtdist.statistics.cooccurrence import DEVIATION, DIGITS, CodeSums, equal_sites
from smtdist.statistics.operators import require_order
from smtdist.statistics.origin import Additive, Origin

_SCALARS = {"n_samples", "n_positions", "activity", "n_views", "n_squares"}
"""What all tiles of rows of a sum have in common."""
PANEL_ROWS = 64
"""Rows at a time of what is made of a sum in passing, which is small beside a strip of it."""
_MATRICES = ("second_moment", "context_scatter", "cooccurrence")
LIMBS = ("context_scatter_high", "context_scatter_low")
Integers: TypeAlias = NDArray[np.integer]
Matrix: TypeAlias = Any
"""Whole numbers (K, K), or `UpperTiles` of them."""


@dataclass(frozen=True)
class Statistics(Additive):
    """Sums over samples of the codes A: counts, A 1, A Aᵀ, A D Dᵀ Aᵀ, A W Aᵀ; raw, not divided by N.

    `matrices` holds the independent ones, in full (both triangles), by their public names; what is missing
    follows: the second moment of one-hot codes is diag(activity), and with equal degrees everywhere
    (`equal_degree`) context_scatter = degree A Aᵀ - cooccurrence. `scatter_scale` divides context_scatter.

    At second order a whole image of n kept patches has n / (n - 1)² times the first-order matrix. Where n is the same in all
    images (`equal_sites`) that matrix is `context_scatter`, and (n - 1)² / n its scale: exact. Else the matrix is in two limbs
    (`LIMBS`), in units of 2^-`weight_bits`, and comes in float64, as that of wide windows. `n_views` and `n_squares`, Σ n², tell
    which.

    Sums that were made in tiles of rows stay in them (`UpperTiles`): half the memory, and no array of K x K
    is ever made; the properties below are tiles then too.

    Statistics add and subtract, bit for bit: `a + b` are those of the samples of both, `a - b` those of `a`
    without the samples of `b`. `origin` knows which samples are in, and refuses what has no meaning
    (ModelError). Memory: a result holds as many K x K arrays as its operands, of 8 bytes an entry.
    """

    _unnamed: ClassVar[str] = (
        "These statistics do not name their samples, so they cannot be added or subtracted; fit again to have them do."
    )

    n_samples: int
    n_positions: int
    activity: NDArray[np.int64]
    matrices: dict[str, Matrix]
    one_hot: bool
    order: int
    full_degree: int  # neighbours of a position that has all of them
    equal_degree: (
        int | None
    )  # full_degree where all positions have so many neighbours and codes are first-order "gq"
    degree_activity: NDArray[np.int64] | None  # Σ deg(i) a_i, of one-hot first-order codes
    origin: Origin | None = None  # None: read from a file that did not name its samples
    weight_bits: int = 0  # behind the point of second-order weights
    n_views: int | None = (
        None  # images of which some patch is kept; None: but for second order of whole images
    )
    n_squares: int = 0

    def _combined(self, other: Self, sign: int) -> dict[str, Any]:
        matrices: dict[str, Matrix] = {
            name: _sum(self.matrices[name], other.matrices[name], sign)
            for name in ("second_moment", "cooccurrence")
            if name in self.matrices
        }
        if self.n_views is not None and other.n_views is not None:
            return self._combined_views(other, sign, matrices)
        if LIMBS[0] in self.matrices:
            return {"matrices": matrices | self._added_limbs(other, sign)}
        equal_degree = self.equal_degree
        if "context_scatter" in self.matrices or "context_scatter" in other.matrices:
            matrices["context_scatter"] = _sum(self.context_scatter, other.context_scatter, sign)
            equal_degree = None
            if not self.second_order and _follows(matrices, self.full_degree):
                # the few positions that lacked neighbours are gone: the form that a fit of the rest has
                del matrices["context_scatter"]
                equal_degree = self.full_degree
        weighted = self.degree_activity
        if weighted is not None and other.degree_activity is not None:
            weighted = weighted + sign * other.degree_activity
        return {"matrices": matrices, "equal_degree": equal_degree, "degree_activity": weighted}

    def _combined_views(self, other: Self, sign: int, matrices: dict[str, Matrix]) -> dict[str, Any]:
        """Return the fields of second-order sums of whole images, in the form that a fit of their images has."""
        assert self.n_views is not None
        assert other.n_views is not None
        views = self.n_views + sign * other.n_views
        squares = self.n_squares + sign * other.n_squares
        sites = equal_sites(views, self.n_positions + sign * other.n_positions, squares)
        found: dict[str, Any] = {"matrices": matrices, "n_views": views, "n_squares": squares}
        if sites is None:
            matrices |= self._added_limbs(other, sign)
        activity = self.activity + sign * other.activity
        return found | _degrees(sites, activity if self.one_hot else None)

    def _added_limbs(self, other: Self, sign: int) -> dict[str, Matrix]:
        """Return 2^`weight_bits` A D Dᵀ Aᵀ of self + sign x other in two limbs."""
        both = zip(LIMBS, self._limbs(), other._limbs(), strict=True)
        found = {name: _sum(left, right, sign) for name, left, right in both}
        for high, low in zip(*(tile_views(found[name]) for name in LIMBS), strict=True):
            limbs.carry(high, low)
        return found

    def _limbs(self) -> tuple[Matrix, Matrix]:
        """Return 2^`weight_bits` A D Dᵀ Aᵀ in two limbs."""
        if LIMBS[0] in self.matrices:
            return self.matrices[LIMBS[0]], self.matrices[LIMBS[1]]
        _, weight = whole_weights(self.equal_sites or 1, self.weight_bits)
        heights, make = self.context_maker(np.int64)
        made: list[tuple[Any, Any]] = []
        for index in range(len(heights)):
            tile = make(index)
            made.append((np.zeros_like(tile), np.zeros_like(tile)))
            limbs.add_multiple(*made[-1], tile, weight)
        high, low = (UpperTiles(tiles) for tiles in zip(*made, strict=True))
        return (high, low) if self.tiled else (high.full(), low.full())

    @property
    def equal_sites(self) -> int | None:
        """The patches of each image, of second-order sums of whole images that all keep as many; else None."""
        return None if self.n_views is None else equal_sites(self.n_views, self.n_positions, self.n_squares)

    @property
    def second_order(self) -> bool:
        """Whether codes are compared with the mean of their neighbours, not with each."""
        return require_order(self.order).of_mean

    @property
    def scatter_scale(self) -> float:
        """Divide `context_scatter` by this to get A D Dᵀ Aᵀ: a whole number, or (n - 1)² / n where all images keep n patches."""
        sites = self.equal_sites
        return (1 << self.weight_bits) if sites is None else max(1, sites - 1) ** 2 / sites

    @property
    def derived(self) -> list[str]:
        """Names of the matrices that follow from the stored ones."""
        return [name for name in _MATRICES if name not in self.matrices]

    @property
    def held_bytes(self) -> int:
        """Bytes of the matrices of a sum of these and others."""
        count = len(self.matrices) if self.n_views is None else 3 + (not self.one_hot)
        return 8 * count * len(self.activity) ** 2

    @property
    def tiled(self) -> bool:
        """Whether the matrices are tiles of rows."""
        return isinstance(self.cooccurrence, UpperTiles)

    @property
    def second_moment(self) -> Matrix:
        """A Aᵀ, (K, K)."""
        return np.diag(self.activity) if self.one_hot else self.matrices["second_moment"]

    @property
    def cooccurrence(self) -> Matrix:
        """A W Aᵀ with W the symmetric 0/1 neighbour relation without self, (K, K)."""
        return self.matrices["cooccurrence"]

    @property
    def context_scatter(self) -> Matrix:
        """A D Dᵀ Aᵀ times `scatter_scale`, (K, K), of whole numbers, or float64 where these have two limbs."""
        if "context_scatter" in self.matrices:
            return self.matrices["context_scatter"]
        if isinstance(self.cooccurrence, UpperTiles):
            return self.context_tiles(np.float64 if LIMBS[0] in self.matrices else np.int64)
        if LIMBS[0] in self.matrices:
            return limbs.rounded(*(self.matrices[name] for name in LIMBS))
        result = -self.cooccurrence.astype(np.int64)
        if self.degree_activity is not None:
            result[np.diag_indices_from(result)] += self.degree_activity
        else:
            assert self.equal_degree is not None
            result += self.equal_degree * self.second_moment.astype(np.int64)
        return result

    def with_mirrored(self) -> Self:
        """Return the sums with those of all mirror images, whose codes have the halves of the atoms exchanged.

        The matrices are changed in place.
        """
        for matrix in self.matrices.values():
            add_exchanged(matrix)
        if LIMBS[0] in self.matrices:
            for high, low in zip(*(tile_views(self.matrices[name]) for name in LIMBS), strict=True):
                limbs.carry(high, low)
        weighted = self.degree_activity
        return replace(
            self,
            n_views=None if self.n_views is None else 2 * self.n_views,
            n_squares=2 * self.n_squares,
            n_positions=2 * self.n_positions,
            activity=self.activity + exchanged(self.activity),
            degree_activity=None if weighted is None else weighted + exchanged(weighted),
        )

    def whole(self) -> Self:
        """Return the sums with full matrices in place of tiles."""
        full = {
            name: one.full() if isinstance(one, UpperTiles) else one for name, one in self.matrices.items()
        }
        return replace(self, matrices=full)

    def context_tiles(self, dtype: Any) -> UpperTiles:
        """Return `context_scatter` in tiles of their own, of a type that holds it."""
        heights, make = self.context_maker(dtype)
        return UpperTiles(tuple(make(index) for index in range(len(heights))))

    def context_maker(self, dtype: Any) -> tuple[list[int], Callable[[int], NDArray[Any]]]:
        """Return the heights of tiles of `context_scatter`, and what makes each of them anew, of a type that holds it."""
        if "context_scatter" in self.matrices:
            stored = tile_views(self.matrices["context_scatter"])
            return [len(tile) for tile in stored], lambda index: stored[index].astype(dtype)
        if LIMBS[0] in self.matrices:
            parts: list[Any] = [tile_views(self.matrices[name]) for name in LIMBS]
            return [len(tile) for tile in parts[0]], lambda index: limbs.rounded(
                *(tiles[index] for tiles in parts)
            ).astype(dtype, copy=False)
        near = tile_views(self.cooccurrence)
        heights = [len(tile) for tile in near]
        weighted, degree = self.degree_activity, self.equal_degree
        if weighted is not None:
            firsts = np.cumsum([0, *heights])

            def one_hot(index: int) -> NDArray[Any]:
                made: NDArray[Any] = -near[index].astype(dtype)
                at = np.arange(len(made))
                made[at, at] += weighted[firsts[index] : firsts[index + 1]].astype(dtype)
                return made

            return heights, one_hot
        assert degree is not None
        moments = tile_views(self.matrices["second_moment"], heights)

        def tile(index: int) -> NDArray[Any]:
            made = moments[index].astype(np.int64)
            made *= degree
            made -= near[index]
            return made.astype(dtype, copy=False)

        return heights, tile


def _degrees(sites: int | None, activity: Integers | None) -> dict[str, Any]:
    """Return what context_scatter follows from where whole images all keep so many patches; activity : of one-hot codes."""
    degree = None if sites is None else sites - 1
    if activity is None:
        return {"equal_degree": degree}
    return {"degree_activity": None if degree is None else degree * activity.astype(np.int64)}


def tile_views(matrix: Matrix, heights: Sequence[int] | None = None) -> list[Integers]:
    """Return a matrix as `UpperTiles` has its tiles, without a copy where they are cut as asked; a full one can always be."""
    if isinstance(matrix, UpperTiles):
        return list((matrix if heights is None else matrix.cut(heights)).tiles)
    size, step = len(matrix), tile_height(len(matrix))
    cut = heights or [min(step, size - at) for at in range(0, size, step)]
    ends = np.cumsum(cut).tolist()
    return [matrix[end - height : end, end - height :] for height, end in zip(cut, ends, strict=True)]


def _sum(left: Matrix, right: Matrix, sign: int) -> Matrix:
    """Return left ± right in int64; what could pass 2^63 is an error, not another number."""
    if isinstance(left, UpperTiles) or isinstance(right, UpperTiles):
        return as_tiles(left).with_tiles(lambda a, b: _added(a, b, sign), as_tiles(right))
    return _added(left, right, sign)


def as_tiles(matrix: Matrix) -> UpperTiles:
    """Return a matrix in tiles."""
    return matrix if isinstance(matrix, UpperTiles) else UpperTiles.of(matrix)


def _added(left: Integers, right: Integers, sign: int) -> NDArray[np.int64]:
    if _magnitude(left) + _magnitude(right) >= 2**63:
        raise TooLargeError(
            "The sums of both exceed 64 bits, so they cannot be added; merge fewer of them."
        )
    result = left.astype(np.int64)
    (np.add if sign > 0 else np.subtract)(result, right, out=result)
    return result


def _magnitude(matrix: NDArray[np.integer]) -> int:
    return max(int(matrix.max()), -int(matrix.min()))


def _follows(matrices: dict[str, Matrix], degree: int) -> bool:
    """Tell whether context_scatter is degree A Aᵀ - cooccurrence, tile by tile to hold no third matrix."""
    scatters = tile_views(matrices["context_scatter"])
    heights = [len(tile) for tile in scatters]
    moments, nears = (tile_views(matrices[name], heights) for name in ("second_moment", "cooccurrence"))
    return all(
        np.array_equal(scatter, degree * moment.astype(np.int64) - near)
        for scatter, moment, near in zip(scatters, moments, nears, strict=True)
    )


def finish_tiles(
    tiles: Sequence[tuple[CodeSums, State]], place: Callable[[Integers], Integers] | None = None
) -> Statistics:
    """Turn the raw sums of passes over tiles of rows, in order, into named matrices of tiles; consumes the states.

    `place` puts what is kept elsewhere than in memory. Memory: the sums, those of one tile twice, and
    `CodeSums.strip_bytes`.
    """
    sums, first = tiles[0]
    for other, state in tiles[1:]:
        if any(not np.array_equal(state[name], first[name]) for name in _SCALARS & state.keys()):
            raise DataError(
                f"The passes over the rows {sums.rows} and {other.rows} of the sums have not read the same data, so the "
                f"storage "
                f"is not reliable; restore the data from a good copy and start again."
            )
    found: dict[str, list[Any]] = {}
    scalars = {name: first[name] for name in _SCALARS & first.keys()}
    if sums.encoder.form == "labels" and "deficit" in first:
        scalars["deficit"] = first["deficit"]
    whole = not sums.second_order and sums.encoder.form == "bits"
    lacking = False
    for _, state in tiles if whole else ():
        if "deficit" in state:
            lacking = lacking or bool(np.any(state["deficit"]))
            forget(state["deficit"])
    for one, state in tiles:
        low, high = one.rows or (0, one.n_atoms)
        squares = {name: state.pop(name) for name in list(state) if state[name].ndim == 2}
        if not lacking:  # only where it is needed, then in every tile
            squares.pop("deficit", None)
        step = tile_height(one.n_atoms)
        state.clear()
        # strip by strip, from the diagonal on: what lies below it is given back, and arrays made in passing are small
        for at in range(0, high - low, step):
            activity = scalars["activity"][low + at : min(low + at + step, high)]
            # nothing else holds the copies, which `finish` consumes
            part = finish(
                one,
                scalars | {name: square[at : at + step, at:].copy() for name, square in squares.items()},
                activity,
            )
            for name in list(part.matrices):
                matrix = part.matrices.pop(name)
                mirror_upper(matrix[:, : len(matrix)])
                found.setdefault(name, []).append(matrix if place is None else place(matrix))
                del matrix
            for square in squares.values():
                forget(square)
        squares.clear()
    tiled = replace(part, matrices={name: UpperTiles(tuple(parts)) for name, parts in found.items()})
    return tiled.with_mirrored() if sums.mirrored else tiled


def _add_usual(
    sites: int, activity: Integers, second: Matrix | None, cooccurrence: Matrix, scatter: Matrix
) -> None:
    """Add what 2^`COARSE_BITS` A L Aᵀ is if every image keeps so many patches, to int64 `scatter`, panel by panel.

    That is diagonal A Aᵀ - rest (s sᵀ - A Aᵀ) by the weights of L. second : A Aᵀ, or None for one-hot codes, where it is
    the diagonal matrix of `activity`.
    """
    moment, rest = whole_weights(sites, COARSE_BITS)
    for start in range(0, len(scatter), PANEL_ROWS):
        rows = slice(start, start + PANEL_ROWS)
        panel = -rest * cooccurrence[rows].astype(np.int64)
        if second is not None:
            panel += (moment - rest) * second[rows].astype(np.int64)
        else:
            at = np.arange(len(panel))
            panel[at, start + at] += (moment - rest) * activity[rows]
        scatter[rows] += panel


def _digits_to_limbs(high: Integers, low: Integers) -> None:
    """Turn sums of first and second digits of weights of windows into two limbs, in place, panel by panel."""
    for start in range(0, len(high), PANEL_ROWS):
        rows = slice(start, start + PANEL_ROWS)
        first, second = high[rows].astype(np.int64), low[rows].astype(np.int64)
        high[rows], low[rows] = 0, 0
        limbs.add(high[rows], low[rows], second)  # type: ignore[arg-type]
        limbs.add_multiple(high[rows], low[rows], first, 1 << FINE_BITS - COARSE_BITS)  # type: ignore[arg-type]


def finish(sums: CodeSums, state: State, diagonal: Integers | None = None) -> Statistics:
    """Turn the raw sums of a pass into named, full matrices; consumes `state` to save memory.

    With `diagonal`, the activity of the rows of a tile, matrices are tiles of which the upper triangle
    alone counts.
    """
    one_hot = sums.encoder.form == "labels"
    mirrored: Callable[[Any], Any] = mirror_upper if diagonal is None else lambda upper: upper
    activity, degree = state["activity"], sums.full_degree
    own = activity if diagonal is None else diagonal
    views, sites = (int(state["n_views"]) if "n_views" in state else None), None
    squares = int(state.get("n_squares", 0))
    if views is not None:
        sites = equal_sites(views, int(state["n_positions"]), squares)
        if sites is None:
            sums.add_views(state, state, own, degree + 1, 1)
    matrices: dict[str, Matrix] = {}
    second = None if one_hot else mirrored(state.pop("second_moment"))
    if "outer" in state:
        cooccurrence = mirrored(state.pop("outer"))
        if second is None:
            at = np.arange(len(cooccurrence))
            cooccurrence[at, at] -= own.astype(cooccurrence.dtype)
        else:
            cooccurrence -= second
    else:
        cooccurrence = mirrored(state.pop("windows"))
    deficit = state.pop("deficit", None)
    equal_degree: int | None = degree
    degree_activity = None
    if views is not None:
        beyond = [state.pop(name) for name in DEVIATION]
        follows = _degrees(sites, activity if one_hot else None)
        equal_degree, degree_activity = (follows.get(name) for name in ("equal_degree", "degree_activity"))
        if sites is None:
            matrices |= {name: mirrored(limb) for name, limb in zip(LIMBS, beyond, strict=True)}
    elif sums.second_order:
        if "scatter" in state:
            matrices["context_scatter"] = mirrored(state.pop("scatter"))
        elif DIGITS[0] in state:
            matrices |= {
                name: mirrored(state.pop(digit)) for name, digit in zip(LIMBS, DIGITS, strict=True)
            }
            _digits_to_limbs(*(matrices[name] for name in LIMBS))
        else:
            matrices["context_scatter"] = mirrored(state.pop("deviation"))
            _add_usual(degree + 1, own, second, cooccurrence, matrices["context_scatter"])
        equal_degree = None
    elif one_hot:
        degree_activity = degree * activity
        if deficit is not None:
            degree_activity -= deficit
        equal_degree = None
    elif deficit is not None and (diagonal is not None or np.any(deficit)):
        scatter = np.multiply(second, degree, dtype=np.int64)  # type: ignore[arg-type]
        scatter -= mirrored(deficit)
        scatter -= cooccurrence
        matrices["context_scatter"] = scatter
        equal_degree = None
    if second is not None:
        matrices["second_moment"] = second
    matrices["cooccurrence"] = cooccurrence
    found = Statistics(
        n_samples=int(state["n_samples"]),
        n_positions=int(state["n_positions"]),
        activity=activity.astype(np.int64),
        matrices=matrices,
        one_hot=one_hot,
        order=sums.order,
        full_degree=degree,
        equal_degree=equal_degree,
        degree_activity=degree_activity,
        weight_bits=sums.weight_bits if sums.second_order else 0,
        n_views=views,
        n_squares=squares,
    )
    return found.with_mirrored() if sums.mirrored and diagonal is None else found


BLOCK: Final = 1024
"""Rows and columns that are exchanged at a time: of tiles in files, whole pages are read."""


def exchanged(values: Integers) -> Integers:
    """Return values of atoms with the two halves of the atoms exchanged.

    >>> exchanged(np.array([1, 2, 3, 4])).tolist()
    [3, 4, 1, 2]
    """
    return np.concatenate(np.split(values, 2)[::-1])


def add_exchanged(matrix: Any) -> None:
    """Add a symmetric matrix (K, K) with the halves of its rows and columns exchanged to itself, in place.

    matrix : full, or `UpperTiles`. Of [[A, B], [Bᵀ, C]] it makes [[A + C, B + Bᵀ], [B + Bᵀ, A + C]]. Memory: a quarter of
    a full matrix, a few blocks of tiles.

    >>> full = np.array([[1, 5, 2, 0], [5, 1, 0, 3], [2, 0, 7, 0], [0, 3, 0, 8]])
    >>> tiles = UpperTiles.of(full, 3)
    >>> for one in (full, tiles):
    ...     add_exchanged(one)
    >>> full.tolist() == tiles.full().tolist(), full[0].tolist()
    (True, [8, 5, 4, 0])
    """
    if isinstance(matrix, UpperTiles):
        _add_to_tiles(matrix)
        return
    half = len(matrix) // 2
    own, other, between = matrix[:half, :half], matrix[half:, half:], matrix[:half, half:]
    own += other
    other[...] = own
    between += between.T.copy()
    matrix[half:, :half] = between


def _add_to_tiles(matrix: UpperTiles) -> None:
    half, starts = len(matrix) // 2, [first for first, _ in matrix.starts()]
    cuts = sorted({half, *(at for at in starts if at < half), *(at - half for at in starts if at >= half)})
    for start, stop in pairwise(cuts):
        (own,) = _views(matrix, start, stop, start, half)
        (other,) = _views(matrix, half + start, half + stop, half + start, 2 * half)
        own += other
        other[...] = own
    blocks = [(at, min(at + BLOCK, half)) for at in range(0, half, BLOCK)]
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:
            upper = list(_views(matrix, *rows, half + columns[0], half + columns[1]))
            lower = list(_views(matrix, *columns, half + rows[0], half + rows[1]))
            both = np.concatenate(upper) + np.concatenate(lower).T
            _write(upper, both)
            _write(lower, both.T)
    for tile in matrix.tiles:
        mirror_upper(tile[:, : len(tile)])
        forget(tile)


def _views(matrix: UpperTiles, start: int, stop: int, left: int, right: int) -> Iterator[Integers]:
    """Yield views of rows start to stop, columns left to right, one for each tile that has some of the rows."""
    for first, tile in matrix.starts():
        low, high = max(start, first), min(stop, first + len(tile))
        if low < high:
            yield tile[low - first : high - first, left - first : right - first]


def _write(views: Sequence[Integers], values: Integers) -> None:
    at = 0
    for view in views:
        view[...] = values[at : at + len(view)]
        at += len(view)
