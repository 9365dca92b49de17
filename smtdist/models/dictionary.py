"""Dictionaries: seeded random patches, a diverse sample of them, k-means centroids, or the user's own atoms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data.fingerprint import Digests
from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError
from smtdist.kernels import convergence, mirrored
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.types import Encoder, Whitener
from smtdist.models.provenance import best_of
from smtdist.models.random_patches import drawn_atoms, sketch_size
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.candidates import Candidates, Centroids

SPARES_PER_ROUND = 1024


@dataclass(frozen=True)
class Dictionary:
    """Atoms on the integer grid, and where they come from.

    `grid` (K, p) holds whole numbers; divided by `grid_scale(p)` they are the atoms, unit vectors up to
    rounding (Euclidean centroids are shorter). `counts` are the patches nearest to each atom in the last
    k-means round, or zeros. `source_sample` and `source_position` are -1 for atoms that are not patches of
    the data; `source_digest` is the hash of that sample, or 0. `ending` says how the rounds of k-means ended.
    """

    grid: NDArray[np.float32]
    counts: NDArray[np.int64]
    source_sample: NDArray[np.int64]
    source_position: NDArray[np.int32]
    source_view: NDArray[np.uint8]
    source_digest: Digests | None = None
    ending: convergence.Convergence | None = None

    @property
    def samples(self) -> Digests:
        """Hashes of the samples that supply atoms, once each, ascending."""
        found = np.zeros(0, np.uint64) if self.source_digest is None else np.unique(self.source_digest)
        return found[found > 0]

    def named(self, digests: Digests) -> Dictionary:
        """Return the dictionary with the hashes of the samples that its atoms come from; `digests` are those of all."""
        known = np.where(self.source_sample < 0, 0, digests[np.maximum(self.source_sample, 0)])
        return replace(self, source_digest=known.astype(np.uint64))

    @property
    def atoms(self) -> NDArray[np.float64]:
        """The atoms in whitened space, (K, p)."""
        return self.grid.astype(np.float64) / whitening_kernels.grid_scale(self.grid.shape[1])


def without_source(grid: NDArray[np.float32], counts: NDArray[np.int64] | None = None) -> Dictionary:
    """Return a dictionary of atoms that are no patches of the data."""
    size = len(grid)
    return Dictionary(
        np.ascontiguousarray(grid, np.float32),
        np.zeros(size, np.int64) if counts is None else counts,
        np.full(size, -1, np.int64),
        np.full(size, -1, np.int32),
        np.zeros(size, np.uint8),
    )


def given_dictionary(atoms: NDArray[np.floating[Any]], pixels: int) -> Dictionary:
    """Take the user's atoms (K, p) in whitened space: unit length, on the grid, equal ones once."""
    atoms = np.asarray(atoms)
    if atoms.ndim != 2 or atoms.shape[1] != pixels:
        raise ConfigurationError(
            f"The given atoms have the shape {atoms.shape}; they must be (atoms, {pixels}), whitened patches."
        )
    grid = whitening_kernels.atoms_to_grid(atoms)
    _, first = np.unique(grid, axis=0, return_index=True)
    return without_source(grid[np.sort(first)])


def from_sketch(
    state: State, source: Source, whitener: Whitener, settings: Configuration, engine: Engine
) -> tuple[Dictionary, list[dict[str, Any]]]:
    """Choose or learn the atoms from a sketch of `sketch_size` random patches; return the records of further passes."""
    method, wanted = settings.dictionary_method, drawn_atoms(settings)

    def closed(half: Dictionary) -> Dictionary:
        """Return the atoms and, where the dictionary is mirrored, their mirror images after them."""
        if not settings.dictionary_mirrored:
            return half
        geometry, taken = whitener.geometry, half.source_sample >= 0
        places = mirrored.mirrored_positions(geometry, half.source_position)
        return Dictionary(
            np.concatenate([half.grid, half.grid[:, mirrored.mirrored_pixels(geometry)]]),
            np.tile(half.counts, 2),
            np.tile(half.source_sample, 2),
            np.concatenate([half.source_position, np.where(taken, places, -1).astype(np.int32)]),
            np.concatenate([half.source_view, 1 - half.source_view]),
        )

    if method == "diverse":
        return closed(diverse(state, wanted, settings.dictionary_cosine)), []
    start = _sampled(state, np.arange(len(state["hash"])))
    if not len(start.grid):
        raise DataError(
            f"All patches of {source.name} count as constant; set pixel_range to the (black, white) that the pixels use, or "
            f"lower min_contrast."
        )
    drawn = sketch_size(settings)
    if len(start.grid) < drawn:
        fewer = "n_atoms" if drawn == wanted else "dictionary_n_init, n_atoms"
        raise DataError(
            f"{source.name} has only {len(start.grid)} distinct patches that are not constant, fewer than the "
            f"{drawn} atoms to be drawn; lower {fewer} or min_contrast, or give more samples."
        )
    if method == "random":
        return closed(start), []

    def learned(number: int) -> tuple[Dictionary, list[dict[str, Any]]]:
        first = start.grid[number * wanted : (number + 1) * wanted]
        return _k_means(first, source, whitener, settings, engine)

    def loss(found: Dictionary) -> float:  # the mean squared distance over the last tenth of the rounds
        return 0.0 if found.ending is None else found.ending.loss

    return best_of(settings.dictionary_n_init, learned, loss, engine)


def diverse(state: State, size: int, cosine: float) -> Dictionary:
    """Take random patches in order, leaving out any whose signed cosine with a chosen one exceeds `cosine`."""
    chosen = apart(state["vector"], cosine, size)
    if len(chosen) == size:
        return _sampled(state, chosen)
    raise ConfigurationError(
        f"Only {len(chosen)} of {len(state['vector'])} random patches keep a cosine of at most {cosine} to each other, fewer "
        f"than the {size} atoms asked for; raise dictionary_cosine, choose from more patches (dictionary_samples), or lower "
        f"dictionary."
    )


def apart(vectors: NDArray[Any], cosine: float, most: int) -> NDArray[np.int64]:
    """Return the first rows of which no two have a signed cosine above `cosine`, so many at most.

    Greedy, by blocks: one product of a block with the rows so far, then within the block. The cosine is
    compared as the integer dot product on the grid with floor(cosine s²).
    """
    vectors = vectors.astype(np.float32)
    scale = whitening_kernels.grid_scale(vectors.shape[1])
    limit = int(Fraction(str(cosine)) * scale * scale // 1)
    chosen: list[int] = []
    block = 512
    for start in range(0, len(vectors), block):
        fresh = vectors[start : start + block]
        free = np.ones(len(fresh), bool)
        if chosen:
            free &= (fresh @ vectors[chosen].T).max(axis=1) <= limit
        inside = fresh @ fresh.T
        for i in range(len(fresh)):
            if free[i]:
                chosen.append(start + i)
                free[i + 1 :] &= inside[i, i + 1 :] <= limit
        if len(chosen) >= most:
            break
    return np.array(chosen[:most], np.int64)


def _sampled(state: State, rows: NDArray[np.int64]) -> Dictionary:
    return Dictionary(
        np.ascontiguousarray(state["vector"][rows], np.float32),
        np.zeros(len(rows), np.int64),
        state["sample"][rows].astype(np.int64),
        state["position"][rows].astype(np.int32),
        state["view"][rows].astype(np.uint8),
    )


@dataclass(frozen=True)
class _Centres:
    """Between two rounds: centroids at full precision and on the grid, the patches each has seen, and each round's `distance`."""

    exact: NDArray[np.float64]
    grid: NDArray[np.float32]
    seen: NDArray[np.int64]
    counts: NDArray[np.int64]
    trace: tuple[float, ...] = ()


def _k_means(
    start: NDArray[np.float32], source: Source, whitener: Whitener, settings: Configuration, engine: Engine
) -> tuple[Dictionary, list[dict[str, Any]]]:
    """Run 1-sparse dictionary learning (SMT 2023, appendix D, algorithm 1) through the engine's rounds."""
    spherical = settings.dictionary_method == "spherical"
    encoder = Encoder(whitener, start, "vq", 0, not spherical, "leave_out", "leave_out")

    def make(centres: _Centres, number: int) -> tuple[Statistic, Source]:
        spares = Candidates(
            whitener, settings.augment_flip, SPARES_PER_ROUND, settings.random_state + number
        )
        batch = chunk_subset(source, settings.dictionary_samples, settings.random_state + number)
        return Centroids(replace(encoder, atoms=centres.grid), settings.augment_flip, spares), batch

    def update(centres: _Centres, state: State, number: int) -> _Centres | None:
        moved = updated(centres, state, spherical, mini_batch=settings.dictionary_samples > 0)
        return moved and replace(moved, trace=(*centres.trace, distance(centres.grid, state)))

    zeros = np.zeros(len(start), np.int64)
    first = _Centres(start.astype(np.float64), start, zeros, zeros)
    centres, records = engine.loop("dictionary", first, make, update, settings.dictionary_rounds)
    found = without_source(_as_used(centres.grid, settings), centres.counts)
    return replace(found, ending=_ended(centres.trace, len(records))), records


def distance(grid: NDArray[np.float32], state: State) -> float:
    """Return the mean squared distance of a round's patches from their atoms, of patches of unit length, from its integer sums.

    It is 1 + (Σ n ‖a‖² - 2 Σ ⟨x, a⟩) / s² over the mean of the patches, and 2 - 2 cosine for unit atoms.
    """
    squares = np.einsum("kp,kp->k", grid, grid, dtype=np.float64).astype(np.int64)
    total = int(state["counts"] @ squares) - 2 * int(state["fit"])
    scale = whitening_kernels.grid_scale(grid.shape[1])
    return 1.0 + total / (max(1, int(state["n_positions"])) * scale * scale)


def _ended(trace: tuple[float, ...], rounds: int) -> convergence.Convergence | None:
    """Return how rounds ended: the last of more rounds than `trace` has moved no atom."""
    if rounds > len(trace):
        return convergence.Convergence(True, rounds, trace[-1] if trace else 0.0, 0.0)
    return convergence.of_rounds(trace)


def _as_used(grid: NDArray[np.float32], settings: Configuration) -> NDArray[np.float32]:
    """Return centroids as a code takes them: "gq" compares cosines, which only unit atoms give."""
    unit = settings.one_hot or settings.dictionary_method == "spherical"
    return grid if unit else whitening_kernels.atoms_to_grid(grid)


def moved_once(atoms: NDArray[np.float32], state: State, settings: Configuration) -> NDArray[np.float32]:
    """Return atoms on the grid after one round of Lloyd from `atoms`, as a fit with these settings would use them."""
    spherical = settings.dictionary_method == "spherical"
    zeros = np.zeros(len(atoms), np.int64)
    start = _Centres(atoms.astype(np.float64), atoms, zeros, zeros)
    return _as_used((updated(start, state, spherical, mini_batch=False) or start).grid, settings)


def updated(centres: _Centres, state: State, spherical: bool, mini_batch: bool) -> _Centres | None:
    """Move centroids towards their patches: c += (Σ x - n c) / h; None when no atom moved on the grid.

    Lloyd takes h = n, the mean; a mini-batch takes h = the patches the atom has ever been nearest to.
    Spherical centroids return to unit length. Atoms nobody has been nearest to become fresh random patches,
    in hash order.
    """
    counts = state["counts"].astype(np.int64)
    seen = centres.seen + counts if mini_batch else counts
    weight = np.maximum(seen, 1)[:, None]
    sums = state["sums"].astype(np.float64)
    moved = (
        centres.exact + (sums - counts[:, None] * centres.exact) / weight if mini_batch else sums / weight
    )
    moved = np.where(counts[:, None] > 0, moved, centres.exact)
    scale = whitening_kernels.grid_scale(moved.shape[1])
    if spherical:
        length = np.sqrt(_ordered_sum_of_squares(moved))
        moved = moved / np.where(length > 0, length, 1)[:, None] * scale
    grid = np.rint(moved).astype(np.float32)
    empty = np.flatnonzero(seen == 0)
    fresh = state["spare_vector"][: len(empty)].astype(np.float64)
    moved[empty[: len(fresh)]] = fresh
    grid[empty[: len(fresh)]] = fresh
    return None if np.array_equal(grid, centres.grid) else _Centres(moved, grid, seen, counts)


def _ordered_sum_of_squares(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum squares in pixel order: the same bits on any machine, unlike a library's own summation."""
    total = np.zeros(len(vectors))
    for column in vectors.T:
        total += column * column
    return total
