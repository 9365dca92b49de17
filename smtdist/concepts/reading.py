"""Reading concepts: parallelism of pairs, sub-concepts of a few points, search, typical members.

Section 4 of "Unsupervised learning of categories". X is read block by block where it is needed; S is in
memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.concepts.model import ConceptModel
from smtdist.concepts.scores import leaves
from smtdist.data import hdf5
from smtdist.data.source import Source
from smtdist.data.table import as_table, read_rows
from smtdist.errors import ConfigurationError, DataError

Matrix = NDArray[np.float64]
SHOWN: Final = 20
"""Concepts that are described, at most."""
MEMBERS: Final = 8
"""Members that are named of each."""


@dataclass(frozen=True)
class Parallelism:
    """Cosines between the two difference vectors that change one concept only (Figure 4d)."""

    first: int
    second: int
    first_cosine: float  # of changing the first concept, at either value of the second
    second_cosine: float

    @property
    def score(self) -> float:
        """The mean of both."""
        return (self.first_cosine + self.second_cosine) / 2


def parallelism(
    concepts: NDArray[np.uint8],
    table: Any,
    *,
    only: NDArray[np.integer] | None = None,
    smallest: int = 10,
    count: int = 10,
) -> list[Parallelism]:
    """Return the pairs of highest parallelism score, best first.

    Two concepts part the points into four clusters with centroids c₀₀, c₀₁, c₁₀, c₁₁; the cosines are those
    of c₁₀ - c₀₀ with c₁₁ - c₀₁, and of c₀₁ - c₀₀ with c₁₁ - c₁₀. Pairs with a cluster of fewer than
    `smallest` points are left out; `only` names the concepts to pair. Memory: b² n float64 for the concepts
    paired; time p b² n.
    """
    source = as_table(table)
    _require_points(source, len(concepts))
    chosen = np.arange(concepts.shape[1]) if only is None else np.asarray(only, np.int64)
    s = concepts[:, chosen]
    b, n = s.shape[1], source.shape[1]
    sums, total = np.zeros((b, b, n)), np.zeros(n)
    for start, stop in leaves(source):
        rows = read_rows(source, start, stop).astype(np.float64)
        part = s[start:stop].astype(np.float64)
        total += rows.sum(0)
        for a in range(b):
            inside = part[:, a] > 0
            sums[a] += part[inside].T @ rows[inside]
    alone = np.einsum("aan->an", sums)
    counts = (s.astype(np.float64).T @ s).astype(np.int64)
    sizes = np.diag(counts)
    found = []
    for a in range(b):
        others = np.arange(a + 1, b)
        n11 = counts[a, others]
        n10, n01 = sizes[a] - n11, sizes[others] - n11
        n00 = len(s) - sizes[a] - n01
        fit = np.minimum(np.minimum(n11, n10), np.minimum(n01, n00)) >= max(1, smallest)
        if not fit.any():
            continue
        others, n11, n10, n01, n00 = (v[fit] for v in (others, n11, n10, n01, n00))
        c11 = sums[a, others] / n11[:, None]
        c10 = (alone[a] - sums[a, others]) / n10[:, None]
        c01 = (alone[others] - sums[a, others]) / n01[:, None]
        c00 = (total - alone[a] - alone[others] + sums[a, others]) / n00[:, None]
        one, two = _cosines(c10 - c00, c11 - c01), _cosines(c01 - c00, c11 - c10)
        best = np.argsort(-(one + two), kind="stable")[:count]
        found += [
            Parallelism(int(chosen[a]), int(chosen[others[i]]), float(one[i]), float(two[i])) for i in best
        ]
    return sorted(found, key=lambda pair: (-pair.score, pair.first, pair.second))[:count]


def _cosines(left: Matrix, right: Matrix) -> Matrix:
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    dots = np.einsum("ij,ij->i", left, right)
    return np.asarray(np.divide(dots, norms, out=np.zeros(len(dots)), where=norms > 0))


@dataclass(frozen=True)
class SubConcept:
    """Concepts that part a few chosen points alike, and how all points vary along them (Figure 4g, 4h)."""

    pattern: tuple[int, ...]  # values of the chosen points, the first one's 0
    concepts: tuple[int, ...]
    values: Matrix  # (p,) mean membership over those concepts, in [0, 1]


def sub_concepts(
    concepts: NDArray[np.uint8], subset: list[int], weights: Matrix | None = None
) -> list[SubConcept]:
    """Return the kinds of concept that part the points of a subset, most concepts first.

    Concepts are turned so that the subset's first point is outside, grouped by which other points are
    inside, and averaged over the group for every point, with `weights` (b,) if given. Those that do not
    part the subset are left out.

    >>> kinds = sub_concepts(np.array([[0, 1, 0], [1, 0, 0], [1, 1, 1]]), [0, 1])
    >>> [(kind.pattern, kind.concepts) for kind in kinds]
    [((0, 1), (0, 1))]
    """
    if len(subset) < 2 or len(set(subset)) < len(subset):
        raise ConfigurationError(f"The subset {subset} needs at least two different points.")
    s = np.asarray(concepts, np.uint8)
    turned = s ^ s[subset[0]]
    kinds: dict[tuple[int, ...], list[int]] = {}
    for a in range(s.shape[1]):
        pattern = tuple(int(v) for v in turned[subset, a])
        if any(pattern):
            kinds.setdefault(pattern, []).append(a)
    result = []
    for pattern, members in kinds.items():
        share = np.ones(len(members)) if weights is None else weights[members]
        total = float(share.sum())
        share = share / total if total > 0 else np.full(len(members), 1 / len(members))
        result.append(SubConcept(pattern, tuple(members), turned[:, members] @ share))
    return sorted(result, key=lambda kind: (-len(kind.concepts), kind.pattern))


def search(concepts: NDArray[np.uint8], query: str) -> NDArray[np.int64]:
    """Return the points for which a Boolean formula of concept numbers holds, such as "17 and not (4 or 5)".

    The words has, have, concept and concepts may stand in it. Anything but numbers, and, or, not and
    parentheses, and numbers of no concept, are a ConfigurationError.

    >>> search(np.array([[1, 0], [1, 1], [0, 1]]), "has concept 0 and not 1").tolist()
    [0]
    """
    text = re.sub(r"\b(has|have|concepts?)\b", " ", query).strip()
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(
            f"{query!r} is not a formula of concepts; write, say, 17 and not 4."
        ) from error
    held = _held(tree, np.asarray(concepts, bool), query)
    return np.asarray(np.flatnonzero(held), np.int64)


def _held(node: Any, concepts: NDArray[np.bool_], query: str) -> NDArray[np.bool_]:
    if isinstance(node, ast.BoolOp):
        parts = [_held(part, concepts, query) for part in node.values]
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return np.asarray(combine.reduce(parts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_held(node.operand, concepts, query)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        if not 0 <= node.value < concepts.shape[1]:
            raise ConfigurationError(
                f"{query!r} names concept {node.value}, but there are concepts 0 to {concepts.shape[1] - 1}."
            )
        return concepts[:, node.value]
    raise ConfigurationError(
        f"{query!r} is not a formula of concepts; use numbers, and, or, not and parentheses only."
    )


def typical_members(model: ConceptModel, table: Any, concept: int, *, count: int = 10) -> NDArray[np.int64]:
    """Return members of a concept in the order of (x - mean) · w / ‖w‖², the most typical first; X is read in blocks."""
    source = as_table(table)
    _require_points(source, model.points)
    if not 0 <= concept < model.n_concepts:
        raise ConfigurationError(f"There is no concept {concept}; there are 0 to {model.n_concepts - 1}.")
    feature = model.features[:, concept]
    norm = float(feature @ feature) or 1.0
    values = np.concatenate(
        [
            (read_rows(source, start, stop) - model.coordinates.mean) @ feature / norm
            for start, stop in leaves(source)
        ]
    )
    members = np.flatnonzero(model.concepts[:, concept])
    order = np.argsort(-values[members], kind="stable")[:count]
    return np.asarray(members[order], np.int64)


def _require_points(source: Source, points: int) -> None:
    if source.n_samples != points:
        raise DataError(
            f"{source.name} has {source.n_samples:,} rows, but the concepts are of {points:,} points; give the fitted table."
        )


def described(model: ConceptModel, source: Source) -> Iterator[str]:
    """Yield a line for each of the heaviest concepts: how many members it has, its weight, and some that are typical."""
    order = np.argsort(-model.weights * model.members * (1 - model.members / model.points), kind="stable")
    for concept in order[:SHOWN]:
        typical = ", ".join(map(str, typical_members(model, source, int(concept), count=MEMBERS)))
        yield (
            f"  {concept:>4}  {model.members[concept]:>9,} members, weight {model.weights[concept]:.3g}; typical: {typical}"
        )


def stored_names(where: str, points: int) -> list[str]:
    """Return the names of points in a dataset, FILE.h5:DATASET."""
    path, colon, dataset = where.rpartition(":")
    if not colon:
        raise ConfigurationError(f"{where!r} names no dataset; write FILE.h5:DATASET.")
    with hdf5.open_dataset(path, dataset) as stored:
        if stored.shape != (points,) or stored.dtype.kind not in "OS":
            raise DataError(f"{where} does not hold {points:,} names; give one text for each point.")
        return [str(name) for name in stored.asstr()[()]]


def numbered(word: str, names: list[str] | None, points: int) -> int:
    """Return the number of a point by its name or its number."""
    if names is not None and word in names:
        return names.index(word)
    if word.isdecimal() and int(word) < points:
        return int(word)
    raise ConfigurationError(
        f"There is no point {word!r}; give a name, or a number from 0 to {points - 1}."
    )
