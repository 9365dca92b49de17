"""Settings of learned codes chosen by trying them: a coder is fitted once for all that share it, and so are sums."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smtdist.codes.coder import Coder
from smtdist.data.source import Source
from smtdist.engine.memory import memory_limit, readable
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, MemoryBudgetError, option
from smtdist.models import coded as learned_codes
from smtdist.models.coded import CodedSettings
from smtdist.models.coders import fit
from smtdist.models.coders.manifold import Manifold
from smtdist.models.transform import represented
from smtdist.models.tuning.grid import Changes, as_text, every
from smtdist.models.tuning.tune import Classifier, Trial, ranked
from smtdist.statistics.values import ValueStatistics


def learnt_trials(
    settings: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]
) -> list[tuple[Changes, CodedSettings]]:
    """Return every combination of a grid with the settings it makes, the last one varying fastest.

    Raises ConfigurationError, before any data are read, for what is no setting of a code.
    """
    trials = [(changes, learned_codes.coded_settings(**{**settings, **changes})) for changes in every(grid)]
    for changes, made in trials:
        with _named(changes):
            learned_codes.require_entries(made)
    return trials


@contextmanager
def _named(changes: Changes) -> Iterator[None]:
    """Put the combination before what is wrong with it."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"With {as_text(changes)}: {error.sentence}") from error


def tune_learnt(
    trials: Sequence[tuple[Changes, CodedSettings]],
    known: tuple[Source, NDArray[np.int64]],
    asked: tuple[Source, NDArray[np.int64]],
    classify: Classifier,
    engine: Engine,
) -> list[Trial]:
    """Fit every combination on the first images, judge it on the second; return trials, the best first.

    Coders, sums, solves and representations are those of separate fits. Memory: the representations of both
    groups, refused where they take more than half of it, and the sums of one coder with each context. Raises
    ConfigurationError, before any image is read, for a combination that no fit can have.
    """
    coders: dict[str, Coder] = {}
    sums: dict[str, ValueStatistics] = {}
    for changes, settings in trials:
        with _named(changes):
            learned_codes.require_pooled(known[0], settings)
    found = []
    with engine.run(["whitening", "start", "round", "statistics", "solve", "transform", "scores"]):
        for _, settings in trials:
            key = json.dumps([settings.code, settings.coder.to_dict()])
            if key not in coders:
                cls = learned_codes.code_of(settings.code).cls
                coders[key], _ = fit.fit_coder(cls, known[0], settings.coder, engine)
            model = Manifold(coders[key], settings.embedding)
            if model.basis not in sums:
                sums[model.basis], _ = model.summed(known[0], engine)
            embedding, _ = model.solved(sums[model.basis], engine)
            model = dataclasses.replace(model, embedding=embedding)
            _require_room(model, known[0], asked[0])
            z = [
                represented(model, source, engine).reshape(source.n_samples, -1)
                for source, _ in (known, asked)
            ]
            found.append(classify(z[0], known[1], z[1], asked[1]))
    return ranked(trials, found)


def _require_room(model: Manifold, known: Source, asked: Source) -> None:
    size = 4 * math.prod(model.representation_shape()) * (known.n_samples + asked.n_samples)
    if size > memory_limit() // 2:
        raise MemoryBudgetError(
            f"The representations take {readable(size)}, more than half of the {readable(memory_limit())} here; use fewer images "
            f"({option('limit')}), fewer components, or larger pooling windows."
        )
