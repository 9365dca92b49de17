"""What a model makes of the samples that it was fitted on, where they have labels: k-NN on some of them, beside raw pixels."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from smtdist.data import opening
from smtdist.data.locations import Location
from smtdist.data.source import Source
from smtdist.engine.passes import Engine
from smtdist.errors import DataError, MemoryBudgetError, MissingDatasetError, counted
from smtdist.evaluate import judging, knn, metrics, run
from smtdist.models import loading
from smtdist.models.tuning import split as splitting

MOST: Final = 1500
"""Samples that are looked at. A third of them is classified by the others."""
FEWEST: Final = 300
"""Of fewer samples the accuracy is not known to five points."""


class Look(NamedTuple):
    """What a first look found."""

    found: run.Found
    mirrored: bool  # whether mirrored images voted

    @property
    def title(self) -> str:
        """What was judged, by what."""
        found, also = self.found, ", mirrored images among them" if self.mirrored else ""
        first = counted(found.n_test, "image")
        return f"A first look: {first} of the fit, classified by {found.n_train:,} others of it{also}"

    @property
    def advice(self) -> str:
        """What to try where raw pixels are no worse; of the classifier nothing can be chosen here."""
        raw = self.found.raw_pixels
        return "" if raw is None else metrics.advice(self.found.top1, raw.top1, "kernel")

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as plain JSON types."""
        return {**self.found.to_dict(), "mirrored": self.mirrored}


def first_look(
    model: Any, data: Location, dataset: str, source: Source, engine: Engine, seed: int = 0
) -> Look | None:
    """Classify some samples of a source by others, by the votes of the model, and by raw pixels beside it.

    model : a fitted model of images. data, dataset : where the source was opened, for the labels. engine : one whose
        executor does the work; nothing is told of it.

    Returns None where there is nothing to say: without labels, for fewer than 300 samples, if some cannot be read, or
    if memory is too short. Mirrored images vote if the model says so; `n_train` counts them, too.
    """
    try:
        labels = opening.open_labels(data, dataset, source)
        labels = metrics.checked_labels(labels, source.n_samples, f"labels of {dataset}")
        few = source.n_samples < FEWEST or len(np.unique(labels)) < 2
        if few or any(engine.skipped.values()):
            return None
        engine.note(f"A first look at {min(MOST, source.n_samples):,} of the images")
        encoder, quiet = loading.encoder_of(model), engine.silent()
        parts = splitting.split(source, 1 / 3, MOST, seed)
        known, asked = (run.Labelled(part.source, labels[part.samples]) for part in parts)
        votes = encoder.votes
        known = known.and_mirrored() if votes.mirrored_votes else known
        settings = knn.SoftNeighbours.of(votes, k=min(votes.n_neighbors, len(known.labels)))
        compared = run.Comparison(encoder, known, asked, settings)
        found = judging.with_pixels(compared.found(quiet), compared, quiet)
        return Look(found, votes.mirrored_votes)
    except (MissingDatasetError, MemoryBudgetError):
        return None
    except DataError as error:
        engine.note(f"No first look: {error.sentence}")
        return None
