"""How a dictionary is laid out in the embedding: affinity groups, and how alike neighbours are (SMT 2018, figure 4)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.errors import ConfigurationError
from smtdist.models.functional.needles import Needles, needles
from smtdist.solve.solution import Float64

NEIGHBOURS: Final = 9
BEST: Final = 500


def affinity_groups(
    columns: Float64, count: int = NEIGHBOURS, among: NDArray[np.integer] | None = None
) -> tuple[NDArray[np.int64], Float64]:
    """Return for every atom the `count` others of largest cosine, the nearest first, (K, count), and the cosines.

    columns : (d, K), the columns p_j of P for affinity groups, or atoms as pixels. `among`: the atoms that
    may be neighbours, and the only ones that have any; numbers count all K. Columns of no length are
    nobody's neighbours. Memory: 8 K² bytes.

    >>> affinity_groups(np.array([[1.0, 2.0, 0.0], [0.0, 0.1, 1.0]]), 1)[0].ravel().tolist()
    [1, 0, 1]
    """
    chosen = np.arange(columns.shape[1]) if among is None else np.asarray(among, np.int64)
    lengths = np.linalg.norm(columns[:, chosen], axis=0)
    if not 1 <= count < int((lengths > 0).sum()):
        raise ConfigurationError(
            f"{count} neighbours are asked for among {int((lengths > 0).sum())} atoms that are not zero; ask for fewer."
        )
    unit = columns[:, chosen] / np.where(lengths > 0, lengths, 1.0)
    cosines = unit.T @ unit
    cosines[:, lengths == 0] = -2.0
    np.fill_diagonal(cosines, -3.0)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return chosen[order], np.take_along_axis(cosines, order, axis=1)


def neighbour_differences(
    found: Needles, columns: Float64, best: NDArray[np.integer], count: int = NEIGHBOURS
) -> tuple[float, float]:
    """Return the mean difference in length (pixels) and orientation (degrees) of atoms and their neighbours by cosine."""
    groups, _ = affinity_groups(columns, count, best)
    own = np.asarray(best)[:, None]
    length = float(np.abs(found.length[groups] - found.length[own]).mean())
    turn = np.abs(found.orientation[groups] - found.orientation[own])
    return length, float(np.degrees(np.minimum(turn, np.pi - turn)).mean())


def figure_4b(
    dictionary: Float64,
    components: Float64,
    others: dict[str, Float64] | None = None,
    *,
    best: int = BEST,
    count: int = NEIGHBOURS,
) -> dict[str, Any]:
    """Return Δ length and Δ angle of neighbours in the embedding beside those in pixel space (SMT 2018, figure 4B).

    dictionary : atoms Φ (D, K) as pixels. components : P (L, K). others : further embeddings by name, such
    as `pooling`. Of the atoms that a Gaussian envelope fits best, at most `best`, all of which have a place
    in every embedding; neighbours are among these.
    """
    found = needles(dictionary.T)
    spaces = {"embedding": components, "pixels": dictionary, **(others or {})}
    seen = np.all([np.linalg.norm(columns, axis=0) > 0 for columns in spaces.values()], axis=0)
    order = np.argsort(np.where(seen, -found.fit, np.inf), kind="stable")
    chosen = np.sort(order[: min(best, int(seen.sum()))])
    result: dict[str, Any] = {
        "atoms": len(chosen),
        "neighbours": count,
        "worst_fit": float(found.fit[chosen].min()),
    }
    for name, columns in spaces.items():
        length, angle = neighbour_differences(found, columns, chosen, count)
        result[name] = {"length": length, "angle": angle}
    draw = np.random.default_rng(0).standard_normal((32, dictionary.shape[1]))
    length, angle = neighbour_differences(found, draw, chosen, count)
    result["chance"] = {"length": length, "angle": angle}
    return result


def pooling(covariance: Float64, n_components: int) -> Float64:
    """Return the pooling functionals of Hosoya and Hyvärinen (2016): the leading eigenvectors of the codes' covariance, (L, K).

    Strong dimension reduction by PCA of a layer's outputs: what varies together is pooled, whatever follows
    in time. Rows are scaled to variance 1, as those of P are.

    >>> pooling(np.diag([1.0, 4.0]), 1).tolist()
    [[0.0, 0.5]]
    """
    values, vectors = np.linalg.eigh(covariance)
    kept = values[::-1][:n_components]
    if not kept[-1] > 0:
        raise ConfigurationError(
            f"The codes vary in fewer than {n_components} directions; ask for fewer components."
        )
    rows = vectors[:, ::-1][:, :n_components].T / np.sqrt(kept)[:, None]
    signs = np.sign(rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)])
    result: Float64 = rows * signs[:, None]
    return result
