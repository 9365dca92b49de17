"""Projections of concepts onto the image of X, with which the hybrid's descent takes turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.objective import Terms, loss
from smtdist.concepts.sampling import used_rank
from smtdist.concepts.scores import Scores
from smtdist.concepts.state import Concepts, State, blocks_of, leaves, pack_rows, state_of
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.kernels.threads import single_blas

Matrix = NDArray[np.float64]


def project(
    state: State,
    scores: Scores,
    fitted: Callable[[Terms], Matrix],
    rank: int | None,
    engine: Engine,
    only_if_lower: bool,
) -> int:
    """Round the concepts' projections onto the image of X, [UUᵀs̄ + mean >= ½]; returns the members changed.

    Only concepts that lie mostly in the image are: a sparse one has little of its norm there and would
    vanish. Where asked, the projected S stays only if its loss is lower.
    """
    used = used_rank(scores, rank, len(state.members))
    p = scores.points
    inverse = 1 / (scores.grid[:used] * scores.singular[:used])
    centred = state.crossed[:used] - np.outer(state.total[:used], state.members) / p
    y = centred * inverse[:, None]
    spread = state.members - state.members**2 / p
    inside = (y**2).sum(0) > 0.5 * np.maximum(spread, 1e-9)
    if not inside.any():
        return 0
    aim = np.where(inside, y * inverse[:, None], 0.0)
    offset = 0.5 - state.members / p
    packed = pack_rows(state.concepts)
    new = state.concepts.copy()
    parts = engine.map(_project_range, (aim, offset, inside, packed), scores.source, leaves(scores.source))
    for (start, stop), part in parts:
        new[start:stop] = np.unpackbits(part, axis=1, count=len(inside))
    changed = int((new != state.concepts).sum())
    if changed:
        candidate = state_of(new, scores, engine)
        sums, before = candidate.terms(scores), state.terms(scores)
        if not only_if_lower or loss(sums, fitted(sums)) < loss(before, fitted(before)):
            vars(state).update(vars(candidate))
            return changed
    return 0


def _project_range(shared: Any, source: Source, start: int, stop: int) -> Concepts:
    aim, offset, inside, packed = shared
    parts = []
    with single_blas():
        for at, rows in blocks_of(source, start, stop):
            old = np.unpackbits(packed[at : at + len(rows)], axis=1, count=len(inside))
            value = rows[:, : len(aim)].astype(np.float64) @ aim
            parts.append(np.packbits(np.where(inside, value >= offset, old).astype(np.uint8), axis=1))
    return np.concatenate(parts)
