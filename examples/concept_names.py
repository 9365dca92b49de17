"""Names for concepts: labels, or ancestors in a graph of is-a edges, that their members have more often than chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from smtdist.errors import DataError


@dataclass(frozen=True)
class Name:
    """A label that is enriched among a concept's members, or among its non-members."""

    concept: int
    label: str
    inside: bool  # False: among the points outside
    both: int  # points with the label on that side
    labelled: int
    p_value: float  # hypergeometric tail, times the number of tests (Bonferroni), at most 1


def names_by_enrichment(
    concepts: NDArray[np.uint8],
    labels: Sequence[Iterable[str]],
    *,
    count: int = 3,
    level: float = 0.01,
    smallest: int = 3,
) -> list[list[Name]]:
    """Return for each concept its most enriched labels, best first: those with a corrected p-value below `level`.

    `labels` holds the labels of each point (one, several or none). A label of fewer than `smallest` points
    is left out. The p-value is P(at least as many with the label among as many drawn at random). Memory: p
    x labels bits.
    """
    s = np.asarray(concepts, np.uint8)
    if len(labels) != len(s):
        raise DataError(
            f"There are labels of {len(labels)} points, but concepts of {len(s)}; give one set of labels for each point."
        )
    places: dict[str, list[int]] = {}
    for point, own in enumerate(labels):
        for label in set(own):
            places.setdefault(label, []).append(point)
    kept = sorted(label for label, points in places.items() if len(points) >= smallest)
    if not kept:
        return [[] for _ in range(s.shape[1])]
    both = np.stack([s[places[label]].sum(0, dtype=np.int64) for label in kept])
    labelled = np.array([len(places[label]) for label in kept])[:, None]
    sizes = s.sum(0, dtype=np.int64)[None]
    tests = 2 * both.size
    inside = np.asarray(hypergeom.sf(both - 1, len(s), labelled, sizes)) * tests
    outside = np.asarray(hypergeom.sf(labelled - both - 1, len(s), labelled, len(s) - sizes)) * tests
    result = []
    for a in range(s.shape[1]):
        found = [
            Name(a, label, side, int(held), int(labelled[i, 0]), float(min(1.0, values[i, a])))
            for i, label in enumerate(kept)
            for side, values, held in (
                (True, inside, both[i, a]),
                (False, outside, labelled[i, 0] - both[i, a]),
            )
            if values[i, a] < level
        ]
        found.sort(key=lambda name: (name.p_value, -name.both, name.label))
        result.append(found[:count])
    return result


def ancestors(edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return every node's ancestors along (child, parent) edges, itself included.

    >>> sorted(ancestors([("king", "ruler"), ("ruler", "person")])["king"])
    ['king', 'person', 'ruler']
    """
    parents: dict[str, set[str]] = {}
    for child, parent in edges:
        parents.setdefault(child, set()).add(parent)
        parents.setdefault(parent, set())
    closed: dict[str, set[str]] = {}
    for node in parents:
        reached, waiting = {node}, [node]
        while waiting:
            for parent in parents[waiting.pop()] - reached:
                reached.add(parent)
                waiting.append(parent)
        closed[node] = reached
    return closed


def wordnet_labels(words: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Return each word's synsets and their ancestors, where a synset's name is word.pos.number (WordNet).

    >>> [sorted(one) for one in wordnet_labels(["king", "xyz"], [("king.n.01", "ruler.n.01")])]
    [['king.n.01', 'ruler.n.01'], []]
    """
    closed = ancestors(edges)
    by_word: dict[str, set[str]] = {}
    for node, reached in closed.items():
        by_word.setdefault(node.split(".")[0].lower(), set()).update(reached)
    return [by_word.get(word.lower().replace(" ", "_"), set()) for word in words]
