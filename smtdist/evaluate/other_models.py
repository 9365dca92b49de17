"""Evaluations of models that do not see images: models of rows by their embeddings, and models of video by paths."""

from __future__ import annotations

import math
import os
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.configuration import Configuration
from smtdist.data import opening
from smtdist.data.source import Source
from smtdist.data.video import open_clips
from smtdist.engine.passes import Engine
from smtdist.evaluate import judging, run
from smtdist.evaluate.evaluations import SEEN, Asking, Evaluation, groups_of
from smtdist.evaluate.metrics import checked_labels
from smtdist.evaluate.plan import EvaluationPlan, Shape
from smtdist.models import jobs, rows, store
from smtdist.models.functional.video import VideoModel
from smtdist.models.functional.video_judge import judged_clips
from smtdist.models.kinds import KINDS

SEQUENCES: Final = 1000
"""Sequences of clips that are judged, at most, where nothing else is said."""


def of_rows(asking: Asking) -> Evaluation:
    """Classify in the embedding of a model of rows, held in memory."""
    how, (train, test) = judging.Asked(**asking.given), groups_of(asking)
    fitted, settings = store.load(asking.model), how.settings(Configuration())
    asking.require_plain(
        f"A {KINDS[fitted.STORED_AS].called} is evaluated on one file, or one of training and one of test samples, with all its "
        f"components and no second model; leave out options that change representations.",
        "train",
        "test",
        "test_data",
        "given",
        unheeded=SEEN | {"mirrored", "labels"},
    )
    places = [(asking.data[0], train), ((asking.test_data or asking.data)[0], test)]
    sources = [fitted.opened([data], name, False) for data, name in places]
    with jobs.suiting():
        run.require_neighbours(settings, sources[0].n_samples)

    def labelled() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        known, asked = (
            _samples(data, name, source) for (data, name), source in zip(places, sources, strict=True)
        )
        return known.labels, known.matched(asked).labels

    def planned(engine: Engine, y: tuple[NDArray[np.int64], NDArray[np.int64]]) -> EvaluationPlan:
        near, far = (
            Shape((source.n_samples, math.prod(fitted.feature_shape)), np.dtype(np.float32))
            for source in sources
        )
        making = max(fitted.embedding_bytes(source) for source in sources)
        return run.planned_files(run.Data(near, y[0], far, y[1]), settings, making=making)

    def judge(engine: Engine) -> Any:
        y = labelled()
        planned(engine, y).require_room()
        z = [rows.in_memory(fitted, source, engine, np.float32) for source in sources]
        z = [one.reshape(len(one), -1) for one in z]
        return run.classified(run.Data(z[0], y[0], z[1], y[1]), engine, settings)

    return Evaluation(
        sources[0],
        judge,
        lambda engine: planned(engine, labelled()),
        "samples",
        {"metric": how.metric},
    )


def _samples(data: str, dataset: str, source: Source) -> run.Labelled:
    labels, names = opening.named_labels(data, dataset, source, opening.table_labels_name)
    return run.Labelled(
        source, checked_labels(labels, source.n_samples, f"labels of {dataset}"), names=names
    )


def of_video(asking: Asking) -> Evaluation:
    """Measure how straight the paths of clips are in pixels, codes and embedding, and compare reconstruction with PCA."""
    asking.require_plain(
        "A model of video is evaluated on one file of clips, without classes; leave out other options.",
        "clip",
        "sequences",
    )
    fitted = store.load(asking.model, kind=VideoModel)
    clips = open_clips(os.path.abspath(asking.data[0]), asking.clip or None)
    return Evaluation(
        fitted.sequences(clips),
        lambda engine: judged_clips(fitted, clips, asking.sequences or SEQUENCES),
    )
