"""Sparse codes by L1-penalised least squares (Chen, Paiton and Olshausen 2018, equations 9 and 10).

    min over a of ½ ‖x - Φ a‖² + Σ_j λ_j |a_j|,  a >= 0 unless signed

Every solver ends at a stated relative duality gap. With r = x - Φ a, the point s r is feasible for the dual
where s is at most min_j λ_j / (φ_jᵀ r); the gap is the objective minus s xᵀr - ½ s² ‖r‖², and bounds what
the objective can still fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from smtdist.errors import ConfigurationError
from smtdist.kernels.cpu import active_set
from smtdist.kernels.cpu import l1 as cpu
from smtdist.kernels.device import array_module, is_host, like
from smtdist.kernels.generic import l1 as generic
from smtdist.kernels.products import TILE_ROWS, Ordered, ordered_bytes
from smtdist.kernels.threads import even_ranges, run_ranges, single_blas, threads
from smtdist.kernels.types import Array

Method = Literal["fista", "ista", "coordinate", "active"]
METHODS: Final = ("fista", "ista", "coordinate", "active")
GAP: Final = 1e-4
"""Relative duality gap by default: float32 rows resolve gaps down to about 1e-5, float64 rows to about 1e-12."""
MOST: Final = {"fista": 2000, "ista": 20_000, "coordinate": 20_000, "active": 20_000}
"""Iterations by default: proximal steps, sweeps over a working set, or atoms that come in."""
EVERY: Final = 10
"""Proximal steps between two looks at the gap."""
TILE_ELEMENTS: Final = 512 * 1024
"""Codes of the rows that are worked on together: what a processor's second cache holds, a few times over."""
GRAM_MOST: Final = 8192
"""Atoms up to which ΦᵀΦ is kept whole for coordinate descent."""


@dataclass(frozen=True)
class _Problem:
    """One dictionary, prepared: atoms (K, D), its transpose, penalties, and what follows from them."""

    atoms: Array
    dictionary: Array
    penalty: Array  # (K,)
    inverse: Array  # 1 / penalty, 0 for atoms of no length
    signed: bool
    gap: float
    most: int

    @property
    def xp(self) -> Any:
        return array_module(self.atoms)


def sparse_codes(
    dictionary: Array,
    x: Array,
    penalty: Array | float,
    *,
    positive: bool = True,
    method: Method = "coordinate",
    gap: float = GAP,
    max_iterations: int | None = None,
    start: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return argmin over a of ½ ‖x - Φ a‖² + Σ_j λ_j |a_j| for every row x, its relative duality gap, and its iterations.

    dictionary : Φ (D, K), atoms as columns of any length. x : (N, D). penalty : λ above 0, one or (K,); an
        atom of no length may have penalty 0. positive : a >= 0 (equation 10), else signed (9).
    method : "coordinate" (descent on a working set that grows by the worst violations), "fista" (accelerated
        proximal gradient whose momentum restarts; Beck and Teboulle 2009, O'Donoghue and Candès 2015), "ista", or
        "active" (`smtdist.kernels.cpu.active_set`: for few inputs and many atoms that are nearly alike, where the
        others take thousands of steps; in float64, on the host).
    gap : ends a row where (objective - dual) <= gap x objective. start : (N, K), a warm start.

    Returns codes (N, K) in the type of x (float32 or float64; others become float64), gaps (N,) float64, as
    reached, and iterations (N,), as `MOST` counts them. A row that reaches
    `max_iterations` shows it by its gap. A row has the same bits beside whichever others, on any processor and threads. On a
    device coordinate descent sweeps over all atoms, one launch after another; FISTA is the method there.

    Memory: the codes; for each thread three arrays of a tile of codes, 2 MiB in float32; coordinate descent
    keeps ΦᵀΦ up to 8,192 atoms where the rows are worth it. Raises ConfigurationError where shapes, penalty
    or numbers have no meaning.

    >>> codes, gaps, _ = sparse_codes(np.eye(2), np.array([[1.0, -3.0]]), 0.25)
    >>> codes.tolist(), bool(gaps[0] <= 1e-4)
    ([[0.75, 0.0]], True)
    """
    if method not in METHODS:
        raise ConfigurationError(f"method is {method!r}; choose one of {', '.join(METHODS)}.")
    xp = array_module(x)
    kind = x.dtype if x.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    x = xp.ascontiguousarray(x, dtype=kind)
    most = MOST[method] if max_iterations is None else int(max_iterations)
    problem = _prepared(like(x, dictionary), like(x, penalty), x, not positive, float(gap), most)
    codes = _start(start, x, len(problem.atoms), positive)
    gaps, iterations = xp.full(len(x), np.inf), xp.zeros(len(x), np.int64)
    if len(x) == 0:
        return codes, gaps, iterations
    if method == "active" and not is_host(x):
        raise ConfigurationError("method active works on the host; choose fista for arrays on a device.")
    solve = {"coordinate": _coordinate, "active": _active}.get(method, _proximal)
    solve(problem, x, codes, gaps, iterations, method == "fista")
    return codes, gaps, iterations


def _prepared(
    dictionary: Array,
    penalty: Array,
    x: Array,
    signed: bool,
    gap: float,
    most: int,
) -> _Problem:
    xp = array_module(x)
    if dictionary.ndim != 2 or x.ndim != 2 or dictionary.shape[0] != x.shape[1]:
        raise ConfigurationError(
            f"The dictionary has shape {dictionary.shape} and the rows {x.shape}; give (D, K) and (N, D) with one D."
        )
    if not (gap > 0 and most >= 0):
        raise ConfigurationError(
            f"gap is {gap} and max_iterations {most}; give a gap above 0 and a whole number."
        )
    dictionary = xp.ascontiguousarray(dictionary, dtype=x.dtype)
    penalty = xp.asarray(penalty, dtype=x.dtype)
    if penalty.ndim > 1 or (penalty.ndim == 1 and len(penalty) != dictionary.shape[1]):
        raise ConfigurationError(
            f"penalty has shape {penalty.shape}; give one number or {dictionary.shape[1]}."
        )
    # a copy: a view that cannot be written to would have kernels compiled once more
    penalty = xp.array(xp.broadcast_to(penalty, (dictionary.shape[1],)))
    lengths = (dictionary * dictionary).sum(axis=0)
    if not bool(xp.isfinite(lengths).all() & xp.isfinite(penalty).all() & xp.isfinite(x).all()):
        raise ConfigurationError(
            "The dictionary, the penalty or the rows hold numbers that are not finite; leave them out."
        )
    if bool(((penalty <= 0) & (lengths > 0)).any()) or bool((penalty < 0).any()):
        raise ConfigurationError(
            "penalty must be above 0 for every atom that is not zero; without it there is no duality gap."
        )
    inverse = xp.where(lengths > 0, 1 / xp.where(penalty > 0, penalty, 1), 0).astype(x.dtype)
    return _Problem(xp.ascontiguousarray(dictionary.T), dictionary, penalty, inverse, signed, gap, most)


def _start(start: Array | None, x: Array, size: int, positive: bool) -> Array:
    xp = array_module(x)
    if start is None:
        return xp.zeros((len(x), size), x.dtype)
    codes = xp.array(like(x, start), dtype=x.dtype, order="C")
    if codes.shape != (len(x), size):
        raise ConfigurationError(f"start has shape {codes.shape}; codes here have {(len(x), size)}.")
    if positive and bool((codes < 0).any()):
        raise ConfigurationError(
            "start has negative codes, but positive ones are asked for; clip them at 0."
        )
    return codes


def tile_rows(size: int) -> int:
    """Return the rows that are worked on together; of K alone, so that bits do not follow memory or threads.

    >>> tile_rows(100), tile_rows(4000), tile_rows(100_000)
    (256, 128, 32)
    """
    return max(32, min(256, TILE_ELEMENTS // max(1, size) // 32 * 32))


def solver_bytes(inputs: int, size: int) -> int:
    """Return what a solver takes at most beside its rows and codes, in float32: the dictionary, ΦᵀΦ, tiles of threads.

    >>> solver_bytes(400, 4000) > 4 * 4000**2
    True
    """
    rows = threads() * tile_rows(size)
    # each way round as it is, and ready for products
    dictionary = 8 * inputs * size + ordered_bytes(inputs, size) + ordered_bytes(size, inputs)
    gram = 4 * size * (size + threads() * TILE_ROWS) if size <= GRAM_MOST else 0
    coordinate = 3 * 4 * rows * (size + inputs) + gram
    # codes, those ahead, what pulls them, and all of these again where rows leave; the largest eigenvalue before that
    proximal = rows * (4 * (7 * size + 6 * inputs) + 32 * inputs)
    eigenvalue = 8 * inputs * size + 16 * min(inputs, size) ** 2
    return dictionary + max(coordinate, proximal, eigenvalue)


def _proximal(problem: _Problem, x: Array, codes: Array, gaps: Array, steps: Array, fast: bool) -> None:
    with single_blas():
        largest = _largest_square(problem.dictionary)
    # rows leave a tile, and those that stay must not feel it
    fits, pulled = Ordered(problem.atoms), Ordered(problem.dictionary)

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        _proximal_tile(problem, fits, pulled, largest, x[part], codes[part], gaps[part], steps[part], fast)

    run_ranges(work, even_ranges(len(x), tile_rows(codes.shape[1])))


def _largest_square(dictionary: Array) -> float:
    """Return the largest eigenvalue of ΦᵀΦ, the Lipschitz constant of the gradient, a hair above.

    It is rounded up to 16 bits, so that the last bits of LAPACK, which follow the processor, do not reach the codes.
    """
    xp = array_module(dictionary)
    wide = dictionary if dictionary.shape[0] <= dictionary.shape[1] else dictionary.T
    wide = wide.astype(np.float64)
    largest = max(float(xp.linalg.eigvalsh(Ordered(wide.T)(wide))[-1]) * (1 + 1e-6), 1e-300)
    mantissa, exponent = math.frexp(largest)
    return math.ldexp(math.ceil(math.ldexp(mantissa, 16)), exponent - 16)


def _proximal_tile(
    problem: _Problem,
    fits: Ordered,
    pulled: Ordered,
    largest: float,
    x: Array,
    codes: Array,
    gaps: Array,
    steps: Array,
    fast: bool,
) -> None:
    """Step the rows of a tile together; two products a step. Rows that have reached the gap leave the tile.

    The fit Φ a of the codes is a product; that of the point ahead follows from two fits, so the residual
    ahead, which the gradient needs and the dual point is made of, costs none.
    """
    xp, body = problem.xp, cpu if is_host(x) else generic
    number = x.dtype.type
    step = number(1 / largest)
    cuts = problem.penalty * step
    lows = cuts if problem.signed else xp.full_like(cuts, np.inf)
    penalty = problem.penalty.astype(np.float64)
    at = xp.arange(len(x))
    here, a = x, codes.copy()
    ahead = a.copy()
    momentum = xp.full(len(x), 1.0 if fast else 0.0)
    factors = xp.zeros(len(x), x.dtype)
    fit = fits(a)
    before, best = fit.copy(), xp.full(len(x), -np.inf)
    for count in range(problem.most + 1):
        rest = here - fit - factors[:, None] * (fit - before)
        pulls = pulled(rest)
        if count % EVERY == 0 or count == problem.most:
            reached, best = _gaps(problem, here, fit, rest, pulls, a, penalty, best, body)
            gaps[at], steps[at] = reached, count
            stay = xp.flatnonzero(reached > problem.gap)
            if len(stay) < len(at):
                codes[at] = a
                at, here, a, ahead, momentum, factors = (
                    each[stay] for each in (at, here, a, ahead, momentum, factors)
                )
                fit, pulls, best = (each[stay] for each in (fit, pulls, best))
            if len(at) == 0 or count == problem.most:
                break
        body.proximal_step(a, ahead, pulls, step, cuts, lows, momentum, factors)
        before, fit = fit, fits(a)
    codes[at] = a


def _gaps(
    problem: _Problem,
    x: Array,
    fit: Array,
    rest: Array,
    pulls: Array,
    codes: Array,
    penalty: Array,
    best: Array,
    body: Any,
) -> tuple[Array, Array]:
    """Return relative gaps, of the objective at the codes and the best dual value that `rest` or an earlier one gave."""
    xp = problem.xp
    reach, cost = xp.empty(len(x)), xp.empty(len(x))
    body.reach_and_cost(pulls, codes, problem.inverse, penalty, problem.signed, reach, cost)
    own, wide = (x - fit).astype(np.float64), rest.astype(np.float64)
    square, along = (wide * wide).sum(axis=1), (wide * x).sum(axis=1)
    bound = xp.where(reach > 0, 1 / xp.where(reach > 0, reach, 1), np.inf)
    scale = xp.maximum(
        xp.where(square > 0, xp.minimum(bound, along / xp.where(square > 0, square, 1)), 0), 0
    )
    best = xp.maximum(best, scale * along - 0.5 * scale * scale * square)
    primal = 0.5 * (own * own).sum(axis=1) + cost
    return xp.where(primal > 0, xp.maximum(primal - best, 0) / xp.where(primal > 0, primal, 1), 0), best


def _coordinate(problem: _Problem, x: Array, codes: Array, gaps: Array, sweeps: Array, fast: bool) -> None:
    if not is_host(x):
        _sweeps(problem, x, codes, gaps, sweeps)
        return
    size = len(problem.atoms)
    # by the atoms alone: the way must not follow the number of rows, nor must the bits
    gram = gram_matrix(problem.dictionary) if size <= GRAM_MOST else np.empty((0, 0), x.dtype)
    penalty = problem.penalty.astype(np.float64)
    multiply = Ordered(problem.dictionary)

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        cpu.coordinate_rows(
            x[part], problem.atoms, gram, problem.dictionary, multiply(x[part]), problem.inverse, penalty,
            problem.signed, problem.gap, problem.most, codes[part], gaps[part], sweeps[part],
        )  # fmt: skip

    run_ranges(work, even_ranges(len(x), tile_rows(size)))


def _active(problem: _Problem, x: Array, codes: Array, gaps: Array, steps: Array, fast: bool) -> None:
    atoms, penalty = (np.asarray(one, np.float64) for one in (problem.atoms, problem.penalty))
    size, room = len(atoms), min(atoms.shape)
    if problem.signed:  # each atom, and what it would be with a negative code
        atoms, penalty = np.concatenate([atoms, -atoms]), np.concatenate([penalty, penalty])

    def work(start: int, stop: int) -> None:
        part = slice(start, stop)
        found = codes[part].astype(np.float64)
        if room < size:  # no more can be active
            small = np.argpartition(np.abs(found), size - room, axis=1)[:, : size - room]
            np.put_along_axis(found, small, 0.0, axis=1)
        if problem.signed:
            found = np.concatenate([np.maximum(found, 0), np.maximum(-found, 0)], axis=1)
        rows = x[part].astype(np.float64)
        active_set.active_rows(
            rows, atoms, penalty, problem.gap, problem.most, found, gaps[part], steps[part]
        )
        codes[part] = found[:, :size] - found[:, size:] if problem.signed else found

    run_ranges(work, even_ranges(len(x), tile_rows(size)))


def gram_matrix(dictionary: Array) -> Array:
    """Return ΦᵀΦ (K, K) of a dictionary (D, K), in its type: the same bits on any processor.

    >>> gram_matrix(np.array([[1.0, 2.0]])).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    size = dictionary.shape[1]
    gram = array_module(dictionary).empty((size, size), dictionary.dtype)
    multiply = Ordered(dictionary)

    def panel(start: int, stop: int) -> None:
        # the other half has the same bits: both add the same products in one order
        part = multiply.behind(start)(dictionary.T[start:stop])
        gram[start:stop, start:] = part
        gram[start:, start:stop] = part.T

    run_ranges(panel, even_ranges(size, TILE_ROWS))
    return gram


def _sweeps(problem: _Problem, x: Array, codes: Array, gaps: Array, sweeps: Array) -> None:
    """Coordinate descent over all atoms and all rows together, for any array module."""
    xp = problem.xp
    penalty = problem.penalty.astype(np.float64)
    for count in range(problem.most + 1):
        fit = codes @ problem.atoms
        rest = x - fit
        none = xp.full(len(x), -np.inf)
        gaps[...], _ = _gaps(
            problem, x, fit, rest, rest @ problem.dictionary, codes, penalty, none, generic
        )
        sweeps[...] = count
        if bool((gaps <= problem.gap).all()):
            return
        if count < problem.most:
            generic.sweep(rest, codes, problem.atoms, problem.penalty, problem.signed)
