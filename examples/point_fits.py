"""A fit of points with features, a source or a statistic of one's own, for scripts that show what settings do not name."""

from __future__ import annotations

from typing import Any

from smtdist.data.source import Source
from smtdist.data.table import NeighbourSource, NoisePairs
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError
from smtdist.kernels.features import Features
from smtdist.models import valued
from smtdist.models.points.fit import FINE, PointModel
from smtdist.statistics import values
from smtdist.statistics.operators import Listed
from smtdist.statistics.sites import Neighbourhoods
from smtdist.statistics.values import ValueSums


def fit_points(
    source: NeighbourSource | NoisePairs,
    features: Features,
    engine: Engine,
    *,
    order: int = 1,
    n_components: int,
    moment: str = "second",
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Sum over points and their neighbours in one pass and solve; return the records of both too.

    `moment`: V is the "second" moment, or "centred" about the mean feature, in which the constant has no
    part, as in slow feature analysis. Noisy pairs count both points in V. Memory: as the pass states, on
    the driver some 6 K x K arrays.

    >>> import numpy as np
    >>> from smtdist.engine.executor import SerialExecutor
    >>> from smtdist.kernels.features import Quadratic
    >>> from smtdist.models.points.contexts import temporal_context
    >>> from smtdist.models.points.table import in_context
    >>> t = np.linspace(0, 2 * np.pi, 400)
    >>> x = np.stack([np.sin(t) + np.cos(11 * t) ** 2, np.cos(11 * t)], axis=1)
    >>> source = in_context(x, temporal_context([400]))
    >>> model, _ = fit_points(source, Quadratic(2), Engine(SerialExecutor()), n_components=1, moment="centred")
    >>> abs(np.corrcoef(model.transform(x)[:, 0], np.sin(t))[0, 1]).round(3)
    np.float64(1.0)
    """
    context = Listed(order, pairs=isinstance(source, NoisePairs))
    return fit_sums(
        ValueSums(Neighbourhoods(source.shape[2] - 1), features, context, FINE),
        source,
        engine,
        n_components,
        moment,
    )


def fit_sums(
    sums: ValueSums, source: Source, engine: Engine, n_components: int, moment: str
) -> tuple[PointModel, list[dict[str, Any]]]:
    """Make a pass with some statistic of features, and solve; return the records of both too."""
    if moment not in ("second", "centred"):
        raise ConfigurationError(f"moment is {moment!r}; choose second or centred.")
    assert isinstance(sums.encoder, Features)
    with engine.run(("statistics", "solve")):
        made, record = engine.reduce("statistics", sums, source)
        statistics = values.finish(made.state, sums)
        embedding, told = valued.solved(statistics, moment, n_components, engine)
    return PointModel(sums.encoder, None, embedding, statistics), [record, told]
