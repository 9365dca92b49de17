"""Evaluations of models, heads and representations, from what names them: opened and checked, ready to be judged or planned.

The row of a kind in `smtdist.models.kinds.KINDS` names the function that makes an `Evaluation` of what is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.data import hdf5
from smtdist.data.source import Source
from smtdist.data.table import as_table
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, command, counted, option
from smtdist.evaluate import judging, knn, run, stored
from smtdist.evaluate.plan import EvaluationPlan
from smtdist.models import jobs, kinds, loading, readout, store

SEEN: Final = frozenset(
    ("leading", "whiten", "features", "pool", "n_components", "drop_components", "others")
)
"""Settings that say what is seen of an image."""


class Asking(NamedTuple):
    """What an evaluation is asked: a file to judge, samples, and how.

    model : a model, training representations, or a head. data : the samples. train, test : groups in them; test_data : where the
    second is, if elsewhere. given : settings of `smtdist.evaluate.judging.Asked`. limit : training samples at most. changes :
    settings of the model that may change after its fit. clip, sequences : of a model of video.
    """

    model: Path
    data: tuple[str, ...]
    train: str | None = None
    test: str | None = None
    test_data: tuple[str, ...] = ()
    given: Annotated[Mapping[str, Any], judging.Asked] = {}  # read only
    limit: int | None = None
    changes: Mapping[str, Any] = {}
    clip: tuple[str, ...] = ()
    sequences: int | None = None

    def require_plain(self, sentence: str, *heeded: str, unheeded: Collection[str] = ()) -> None:
        """Refuse what has no meaning for what is judged: all beside one file and what is heeded, and settings that are not."""
        usual = Asking(self.model, self.data)
        idle = any(
            name not in heeded and getattr(self, name) != getattr(usual, name) for name in self._fields
        )
        if (
            idle
            or any(self.given.get(name) for name in unheeded)
            or max(len(self.data), len(self.test_data)) > 1
        ):
            raise ConfigurationError(sentence)


@dataclass(frozen=True)
class Evaluation:
    """An evaluation that is ready.

    source : what is read first. judge : judges with an engine, and returns what was found: of a classifier, of few labels (a
    list), or of clips. plan : returns what that would take; None where nothing is planned. samples : what they are called.
    about : what is said beside what was found.
    """

    source: Source
    judge: Callable[[Engine], Any]
    plan: Callable[[Engine], EvaluationPlan] | None = None
    samples: str = "images"
    about: Mapping[str, Any] = field(default_factory=dict)

    def title(self, found: run.Found) -> str:
        """Return what a classifier was judged on, in words."""
        seen, mirrored = self.about.get("directions"), self.about.get("mirrored", False)
        title = f"{found.n_test:,} test {self.samples}, {found.n_train:,} training {self.samples}, "
        title += counted(found.n_classes, "class") + (", mirrored images too" if mirrored else "")
        return title if seen is None else f"{title}, {seen.count:,} leading directions"

    def beside(self) -> dict[str, Any]:
        """Return what is said beside an accuracy, as plain JSON types."""
        seen = self.about.get("directions")
        leading = None if seen is None else {"directions": seen.count, "whiten": seen.whiten}
        return {"leading": leading, "mirrored": self.about.get("mirrored", False)}


def evaluation(asking: Asking) -> Evaluation:
    """Open and check what is asked.

    Raises ConfigurationError for what has no meaning, ModelError for a file of a kind that is not evaluated.
    """
    name = store.kind_at(asking.model)
    kind = kinds.KINDS.get(name)
    if (asking.clip or asking.sequences) and (kind is None or "clip" not in kind.takes):
        raise ConfigurationError(
            "Clips and their sequences are judged by models of video alone; leave them out."
        )
    if kind is not None:
        jobs.require_verb(name, "evaluate")
    make = of_images if kind is None or not kind.evaluated_by else kind.imported(kind.evaluated_by)
    made: Evaluation = make(asking)
    return made


def groups_of(asking: Asking) -> tuple[str, str]:
    """Return the groups of training and test samples, without which there is nothing to judge."""
    if asking.train is None or asking.test is None:
        raise ConfigurationError(
            f"An evaluation needs {option('train')} and {option('test')}, the groups of training and test images; give both, or "
            f"two files of representations without them."
        )
    return asking.train, asking.test


def of_images(asking: Asking) -> Evaluation:
    """Classify test images by training images, as a model of images represents them."""
    how, (train, test) = judging.Asked(**asking.given), groups_of(asking)
    encoder = loading.load_encoder(asking.model).with_changes(asking.changes)
    seen = how.of_images(encoder)
    known = run.Labelled.open(list(asking.data), train, seen.model.scaling)
    asked = run.Labelled.open(list(asking.test_data or asking.data), test, seen.model.scaling)
    known = known.first(asking.limit)
    with jobs.suiting():
        known, asked = seen.taken(known), known.matched(asked)

    def noted(engine: Engine) -> None:
        if asking.limit is not None:
            return
        with hdf5.open_file(str(asking.model)) as file:
            source = json.loads(file.attrs.get("provenance", "{}")).get("source", {})
        group = train.strip("/")
        named = str(source.get("dataset", "")).strip("/") in (group, f"{group}/images")
        count = source.get("first") if named else None
        if count and count < known.source.n_samples:
            engine.note(
                f"The model was fitted on the first {count:,} images of {train}, but all {known.source.n_samples:,} are learnt "
                f"from here; add {option('limit', count)} for those alone."
            )

    def judge(engine: Engine) -> Any:
        noted(engine)
        return judging.judged(seen, known, asked, engine, how)

    def plan(engine: Engine) -> EvaluationPlan:
        noted(engine)
        return seen.compared(known, asked, how).planned(engine, timed=True)

    about = {"metric": how.metric, "directions": how.directions, "mirrored": seen.mirrored}
    return Evaluation(known.source, judge, plan, about=about)


def of_representations(asking: Asking) -> Evaluation:
    """Classify representations in one file by those in another, or by few of them."""
    how, path = judging.Asked(**asking.given), Path(asking.data[0])
    asking.require_plain(
        f"Two files of representations (training and test) are classified as they are; leave out {option('train')}, "
        f"{option('test')}, other data and options that change representations.",
        "given",
        unheeded=SEEN,
    )
    with stored.opened(asking.model) as near, stored.opened(path) as far:
        near.require_like(far)
        settings, mirrored = _views(near, how, asking.model)

    @contextmanager
    def opened(engine: Engine) -> Iterator[tuple[run.Data, EvaluationPlan]]:
        with stored.opened(asking.model) as near, stored.opened(path) as far:
            far = replace(far, labels=near.named.matched(far.named).labels)
            if asking.model.samefile(path):
                engine.note(
                    f"{asking.model} is evaluated on its own samples, which says nothing about new ones; give another group as "
                    f"the second"
                )
            train: tuple[Any, NDArray[np.int64]] = near.rows, near.labels
            test: tuple[Any, NDArray[np.int64]] = far.rows, far.labels
            if not isinstance(settings, run.Kernel):
                train, test = near.views(mirrored), far.views(False)
            data = run.Data(*train, *test)
            yield data, run.planned_files(data, settings, how.labels)

    def plan(engine: Engine) -> EvaluationPlan:
        with opened(engine) as (_, costs):
            return costs

    def judge(engine: Engine) -> Any:
        with opened(engine) as (data, costs):
            costs.require_room(files=True)
            if how.labels:
                return how.swept(engine, settings, data)
            run.announce(engine, settings, near.layout, data.train_y, costs.driver_bytes)
            return run.classified(data, engine, settings)

    about = {"metric": how.metric, "mirrored": mirrored}
    return Evaluation(as_table((asking.model, "z")), judge, plan, about=about)


def _views(near: stored.StoredFeatures, how: judging.Asked, path: Path) -> tuple[run.Settings, bool]:
    """Return the settings of the classifier of rows of a file, and whether features of mirror images are used."""
    settings, mirrored = how.settings(near.votes), how.mirrored
    if how.labels and not isinstance(settings, run.Kernel):
        raise ConfigurationError(
            f"With files of representations, {option('labels')} works only with {option('metric', 'kernel')}; add that."
        )
    if mirrored and not near.has_mirrored:
        raise ConfigurationError(
            f"{path} has no features of mirror images; write it with {command('transform', 'mirrored')}."
        )
    if isinstance(settings, run.Kernel):
        mirrored = near.has_mirrored if mirrored is None else mirrored
        layout = near.layout if mirrored else readout.without_mirrored(near.layout)
        return run.Kernel(settings.temperature, layout), mirrored
    if mirrored is None:
        votes = isinstance(settings, knn.SoftNeighbours) and near.votes.mirrored_votes
        mirrored = votes and near.has_mirrored
    return settings, mirrored
