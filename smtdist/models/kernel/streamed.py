"""The fit of a kernel model; in explicit features by passes over data of any size: one additive sum, or mini-batch rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source, sample_lengths
from smtdist.data.views import chunk_subset
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, equals
from smtdist.kernels import convergence as iterations
from smtdist.kernels import feature_maps
from smtdist.kernels.feature_maps import FeatureMap, NystroemFeatures
from smtdist.kernels.gram import Kernel, with_bandwidth
from smtdist.models import provenance, ways
from smtdist.models.kernel.contrastive import Spectrum, top_components
from smtdist.models.kernel.encoder import FEWER_FEATURES, require_memory
from smtdist.models.kernel.model import (
    EXACT,
    FeatureDecoder,
    FeatureEncoder,
    KernelModel,
    exact_bytes,
    fit_exact,
)
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.spectral import bottomless, resolved_ridge
from smtdist.models.records import Record
from smtdist.solve import positive
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.contrast import ContrastSums, finish
from smtdist.statistics.gradients import AutoencoderGradient, SpectralGradient
from smtdist.statistics.rows import RowDraw, TripletMaker

Float64 = NDArray[np.float64]

START: Final = 0.1
"""Length of an embedded row at the random start of the spectral loss."""
DEEP: Final = 100.0
"""A minimum of the spectral loss is around -1 for each component, whatever the scale; one that falls so much deeper has
none. Steps of fixed length fall slowly, so that it is told by depth and not by speed."""
SOLVE_SQUARES: Final = 6
"""Matrices of features x features that the driver holds while it solves the contrastive model."""
LANDMARK_SQUARES: Final = 5
"""Matrices of landmarks x landmarks that it holds while it makes Nyström features."""


@dataclass(frozen=True)
class _Ready:
    """What the first pass leaves: features, and how triplets are made."""

    features: FeatureMap
    triplets: TripletMaker
    n_samples: int
    shape: tuple[int, int, int]  # of a sample


def fit_model(source: Source, settings: KernelSettings, engine: Engine) -> tuple[KernelModel, list[Record]]:
    """Fit a model on a source: in features by passes over it, or exactly, read whole into this process."""
    facts = lambda: Facts.of(source, settings.to_dict())  # noqa: E731
    if settings.feature_map is not None:
        last = ("contrast", "solve") if settings.model == "contrastive" else ("round",)
        with engine.run(("draw", *last), facts):
            return fit_streamed(source, settings, engine)

    def solved() -> KernelModel:
        with source.opened() as reader:
            samples = reader.read(0, source.n_samples)
        return fit_exact(samples, settings)

    with engine.run((EXACT,), facts):
        model, record = engine.solve(EXACT, solved, exact_bytes(source, settings))
        return model, [record]


def fit_streamed(
    source: Source, settings: KernelSettings, engine: Engine
) -> tuple[KernelModel, list[Record]]:
    """Fit a kernel model in explicit features; returns it with the records of its passes.

    The first pass draws `pool` samples: negatives, landmarks of Nyström features, and what the median
    heuristic looks at. Then the contrastive model takes one pass and an eigensolve of D x D on the driver;
    the others take `rounds` passes over mini-batches of whole chunk rows. Memory on a worker: the plan's,
    stated before each pass.
    """
    draw, record = engine.reduce(
        "draw",
        RowDraw(settings.negative_pool_size, row_length(source, settings), settings.random_state),
        source,
    )
    ready = _prepared(draw.state, source, settings)
    fits = {"contrastive": _contrastive, "spectral": _spectral, "autoencoder": _autoencoder}
    model, records = fits[settings.model](source, settings, engine, ready)
    about = {"source": source.describe(), "versions": provenance.few_versions()}
    return replace(model, provenance=about), [record, *records]


def row_length(source: Source, settings: KernelSettings) -> int:
    """Return the numbers of a sample; of given triplets they are three rows."""
    length = int(np.prod(source.shape[1:]))
    if given(settings) and length % 3:
        raise DataError(
            f"{source.name} has {length} numbers a sample, but {equals('triplets', 'given')} takes anchor, positive and "
            f"negative, three times as many as a row; reshape it to (samples, 3, features)."
        )
    return length


def given(settings: KernelSettings) -> bool:
    """Tell whether a sample is a triplet."""
    return settings.triplets == "given" and settings.model != "autoencoder"


def _prepared(state: State, source: Source, settings: KernelSettings) -> _Ready:
    rows = state["rows"]
    if given(settings):
        rows = np.split(rows, 3, axis=1)[0]
        triplets = TripletMaker(settings.random_state)
    elif settings.model == "autoencoder":
        triplets = TripletMaker(settings.random_state)
    else:
        triplets = TripletMaker(settings.random_state, settings.augmentation(), rows, state["sample"])
        if len(rows) < 2:
            raise DataError(
                f"{source.name} has one sample, but a negative is another one; give at least 2 samples."
            )
    kernel = with_bandwidth(settings.base_kernel(), settings.bandwidth, rows)
    features = _features(kernel, rows, settings)
    return _Ready(features, triplets, int(state["n_samples"]), _sample_shape(source, settings))


def _features(kernel: Kernel, rows: NDArray[np.float32], settings: KernelSettings) -> FeatureMap:
    if settings.feature_map != "nystroem":
        assert settings.feature_map is not None
        return feature_maps.random_features(
            kernel, settings.feature_map, rows.shape[1], settings.feature_count, settings.random_state
        )
    require_landmarks(settings)
    landmarks = np.unique(rows[: settings.feature_count].astype(np.float64), axis=0)
    require_memory(len(landmarks), LANDMARK_SQUARES, FEWER_FEATURES)
    # eigenvalues that float32 features cannot carry would be noise
    root = positive.gram_root(kernel(landmarks, landmarks), kernel.label, 1e-7)
    return NystroemFeatures(kernel, landmarks, root.inverse)


def require_landmarks(settings: KernelSettings) -> None:
    """Refuse more landmarks than the pool that they are drawn from has."""
    if settings.feature_count > settings.negative_pool_size:
        raise ConfigurationError(
            f"n_features is {settings.feature_count}, but Nyström landmarks are drawn from a pool of "
            f"{settings.negative_pool_size}; raise negative_pool_size."
        )


def _contrastive(
    source: Source, settings: KernelSettings, engine: Engine, ready: _Ready
) -> tuple[KernelModel, list[Record]]:
    require_memory(ready.features.n_features, SOLVE_SQUARES, FEWER_FEATURES)
    statistic = ContrastSums(ready.features, ready.triplets)
    work = work_per_triplet(ready.features)
    count = ready.features.n_features
    partial, record = engine.reduce("contrast", statistic, source, work_per_sample=work)

    def solved() -> tuple[Spectrum, Float64]:
        return top_components(finish(partial.state, count), settings.n_components, settings.kernel)

    (spectrum, vectors), last = engine.solve(ways.SOLVE, solved, 8 * SOLVE_SQUARES * count**2)
    encoder = FeatureEncoder(ready.features, vectors)
    return KernelModel(settings, encoder, ready.shape, spectrum=spectrum), [record, last]


def work_per_triplet(features: FeatureMap) -> float:
    """Return the multiplications of a triplet: projections of three rows, and the product."""
    return features.n_features * (3.0 * features.n_inputs + features.n_features)


def _spectral(
    source: Source, settings: KernelSettings, engine: Engine, ready: _Ready
) -> tuple[KernelModel, list[Record]]:
    if given(settings) and settings.negatives == "all":
        raise ConfigurationError(f"Given triplets bring their negatives; set {equals('negatives', 'one')}.")
    features, n = ready.features, ready.n_samples
    ridge = _ridge_of(ready, settings)
    shape = (features.n_features, settings.n_components)
    start = START * np.random.default_rng(settings.random_state).standard_normal(shape)

    def statistic(weights: list[Float64]) -> Statistic:
        return SpectralGradient(
            features, ready.triplets, weights[0].astype(np.float32), settings.negatives == "all"
        )

    weights, convergence, records = _descended(
        source, settings, engine, [start], statistic, ridge / n, ["gradient"]
    )
    encoder = FeatureEncoder(features, weights[0])
    found = KernelModel(settings, encoder, ready.shape, convergence=convergence, ridge=ridge)
    return found, records


def _ridge_of(ready: _Ready, settings: KernelSettings) -> float:
    """Return λ; "auto" looks at the attraction among the pool, times the samples for each row of it."""
    if not isinstance(settings.alpha, str):
        if settings.alpha <= 0:
            raise ConfigurationError(
                f"The ridge of the spectral loss is {settings.alpha}; it must be positive."
            )
        return float(settings.alpha)
    pool, maker = ready.triplets.pool, ready.triplets
    if pool is None or maker.augmentation is None:
        raise ConfigurationError('ridge "auto" needs drawn triplets; set a number for given ones.')
    changed = maker.augmentation(pool.reshape(len(pool), *ready.shape), 0, settings.random_state).reshape(
        pool.shape
    )
    half = feature_maps.map_rows(ready.features, pool).T @ feature_maps.map_rows(ready.features, changed)
    require_memory(ready.features.n_features, 4, FEWER_FEATURES)
    return (
        resolved_ridge("auto", half.astype(np.float64), settings.n_components) * ready.n_samples / len(pool)
    )


def _autoencoder(
    source: Source, settings: KernelSettings, engine: Engine, ready: _Ready
) -> tuple[KernelModel, list[Record]]:
    encode = ready.features
    kind = settings.decoder_features
    decode = feature_maps.random_features(
        settings.base_decoder(),
        kind,
        settings.n_components,
        settings.n_decoder_features,
        settings.random_state + 1,
    )
    generator = np.random.default_rng(settings.random_state)
    start = [
        generator.standard_normal((encode.n_features, settings.n_components)),
        np.zeros((decode.n_features, int(np.prod(source.shape[1:])))),
    ]
    ridge = settings.numeric_ridge()
    if ridge <= 0:
        raise ConfigurationError(f"The ridge of the autoencoder is {ridge}; it must be a positive number.")

    def statistic(weights: list[Float64]) -> Statistic:
        first, second = (part.astype(np.float32) for part in weights)
        return AutoencoderGradient(
            encode, decode, first, second, settings.corruption(), settings.random_state
        )

    weights, convergence, records = _descended(
        source, settings, engine, start, statistic, ridge / ready.n_samples, ["first", "second"]
    )
    encoder = FeatureEncoder(encode, weights[0], unit=True)
    decoder = FeatureDecoder(decode, weights[1])
    return KernelModel(settings, encoder, ready.shape, decoder, None, convergence, ridge), records


def _sample_shape(source: Source, settings: KernelSettings) -> tuple[int, int, int]:
    if given(settings) or len(source.shape) != 4:
        return 1, 1, int(np.prod(source.shape[1:])) // (3 if given(settings) else 1)
    return sample_lengths(source.shape, source.name)


@dataclass
class _Adam:
    """Weights with the running moments of their gradients (Kingma and Ba 2015), and the losses met so far."""

    weights: list[Float64]
    means: list[Float64]
    squares: list[Float64]
    losses: tuple[float, ...]


def _descended(
    source: Source,
    settings: KernelSettings,
    engine: Engine,
    start: list[Float64],
    statistic: Callable[[list[Float64]], Statistic],
    penalty: float,
    names: list[str],
) -> tuple[list[Float64], iterations.Convergence, list[Record]]:
    """Minimise the mean loss of a sample plus penalty ‖W‖² by rounds over mini-batches; the last step is no longer.

    The step falls to zero along a cosine. Converged means that the mean loss of the last tenth of the
    rounds is within one part in a hundred of that of the tenth before.
    """

    def make(state: _Adam, number: int) -> tuple[Statistic, Source]:
        batch = chunk_subset(source, settings.batch, settings.random_state + number)
        return statistic(state.weights), batch

    def update(state: _Adam, sums: State, number: int) -> _Adam:
        n = int(sums["n_samples"])
        loss = float(sums["loss"]) / n + penalty * sum(float(np.vdot(w, w)) for w in state.weights)
        if settings.model == "spectral" and loss < -DEEP * settings.n_components:
            raise DataError(bottomless(settings.kernel, penalty * source.n_samples, loss))
        if not np.isfinite(loss):
            raise DataError(
                f"The loss is {loss} in round {number}; lower learning_rate, raise ridge, or scale the data."
            )
        rate = settings.learning_rate * (1 + np.cos(np.pi * (number - 1) / settings.n_epochs)) / 2
        parts = zip(names, state.weights, state.means, state.squares, strict=True)
        moved = [_step(sums[name] / n + 2 * penalty * w, w, m, s, number, rate) for name, w, m, s in parts]
        weights, means, squares = (list(part) for part in zip(*moved, strict=True))
        return _Adam(weights, means, squares, (*state.losses, loss))

    zeros = [np.zeros_like(part) for part in start]
    end, records = engine.loop("round", _Adam(start, zeros, zeros, ()), make, update, settings.n_epochs)
    ended = iterations.of_rounds(end.losses)
    assert ended is not None
    return end.weights, ended, records


def _step(
    slope: Float64, weights: Float64, mean: Float64, square: Float64, number: int, rate: float
) -> tuple[Float64, Float64, Float64]:
    mean = 0.9 * mean + 0.1 * slope
    square = 0.99 * square + 0.01 * slope**2
    scaled = mean / (1 - 0.9**number) / (np.sqrt(square / (1 - 0.99**number)) + 1e-8)
    return weights - rate * scaled, mean, square
