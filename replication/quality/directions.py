"""Leading directions of a cell's representations: a step of its own, of as many training images as count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.steps import Steps
from replication.quality.images import Images
from replication.quality.rows import Rows
from smtdist.evaluate.leading import Leading, evenly_spaced, leading_directions, rows_that_count

Represent = Callable[[Images, int, int], NDArray[np.float32]]


def leading_of(
    work: Steps, name: str, images: Images, represent: Represent, step: int, count: int, whiten: float
) -> Leading:
    """Return the directions that `smtdist evaluate --leading` would compare in, made once and kept."""
    said = f"{name}.json"
    if not work.done(said):
        found = leading_directions(_counting(work, name, images, represent, step), count, whiten)
        work.keep_array(f"{name}-directions.npy", found.directions)
        work.keep_array(f"{name}-mean.npy", found.mean)
        about = {"directions": count, "whiten": whiten, "variance_share": found.share, "rows": found.rows}
        work.keep(said, {**about, "variances": found.variances.tolist()})
        work.forget(f"{name}-rows-*")
    facts: dict[str, Any] = work.facts(said, dict)
    return Leading(
        np.load(work.path(f"{name}-directions.npy")),
        np.load(work.path(f"{name}-mean.npy")),
        np.array(facts["variances"]),
        facts["variance_share"],
        facts["rows"],
        whiten,
    )


def _counting(work: Steps, name: str, images: Images, represent: Represent, step: int) -> Rows:
    """Return the representations of the images that count, in files."""
    features, n = represent(images, 0, 1).shape[1], len(images.labels)
    chosen = evenly_spaced(n, rows_that_count(n, features))
    some = Images(images.array[chosen], images.labels[chosen])
    return Rows(
        [
            work.array(
                f"{name}-rows-{start}",
                lambda start=start: represent(some, start, min(start + step, len(chosen))),  # type: ignore[misc]
            )
            for start in range(0, len(chosen), step)
        ]
    )
