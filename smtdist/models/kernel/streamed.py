"""The fit of a kernel model, and its plan; in explicit features by passes over data of any size: one sum, or mini-batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data import remote
from smtdist.data.source import Source, sample_lengths
from smtdist.data.views import chunk_subset
from smtdist.engine.forecast import PassCost
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, equals, option
from smtdist.kernels import convergence as iterations
from smtdist.kernels import feature_maps
from smtdist.kernels.feature_maps import FeatureMap, NystroemFeatures
from smtdist.kernels.gram import require_kernel, with_bandwidth
from smtdist.models import plan as planning
from smtdist.models import provenance, solving
from smtdist.models.jobs import Job, Request
from smtdist.models.kernel.contrastive import Spectrum, bottomless, resolved_ridge, top_components
from smtdist.models.kernel.encoder import FEWER_FEATURES, require_memory
from smtdist.models.kernel.model import (
    EXACT,
    FeatureEncoder,
    KernelModel,
    exact_bytes,
    fit_exact,
    samples_of,
)
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.plan import Step
from smtdist.models.provenance import Record
from smtdist.solve import positive
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.contrast import AutoencoderGradient, ContrastSums, SpectralGradient, finish
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


def job(request: Request) -> Job:
    """Open the samples of a fit."""
    model = request.model.removeprefix("kernel-")
    settings = KernelSettings().replace(**{"model": model, **request.settings})
    for name in (settings.kernel, settings.decoder_kernel):
        require_kernel(name)
    if request.dataset is None or len(request.data) > 1:
        raise ConfigurationError(
            f"A kernel model is fitted on one dataset of one file; name it with {option('(path, dataset)')}."
        )
    source = samples_of((remote.full_path(request.data[0]), request.dataset))
    return Job(
        source,
        lambda engine: fit_model(source, settings, engine),
        lambda: Facts.of(source, settings),
        about={"configuration": json.loads(settings.to_json())},
        costs=lambda engine: plan_kernel(source, settings, engine),
        advice=lambda model: [model.unconverged()],
    )


def plan_kernel(source: Source, settings: KernelSettings, engine: Engine) -> list[PassCost]:
    """Return the cost of every pass of a fit and of what the driver does; what cannot fit is refused as the fit would.

    No sample is read. An exact model has no passes: all samples are read into the driver, which works on square
    matrices of them. In features the costs are those of zeros, as many as the first pass can leave.
    """
    if settings.feature_map is None:
        return [planning.on_driver(EXACT, exact_bytes(source, settings))]
    if settings.model == "contrastive" and settings.feature_map != "nystroem":
        require_memory(settings.feature_count, SOLVE_SQUARES, FEWER_FEATURES)
    draw = Step("draw", _draw(source, settings), source)
    size = min(settings.negative_pool_size, source.n_samples)
    rows = np.zeros((size, row_length(source, settings)), np.float32)
    ready = _prepared(rows, np.arange(len(rows)), source.n_samples, source, settings, planned=True)
    if settings.model == "contrastive":
        sums, work = ContrastSums(ready.features, ready.triplets), _work_per_triplet(ready.features)
        solve = planning.on_driver(solving.SOLVE, 8 * SOLVE_SQUARES * ready.features.n_features**2)
        steps = [draw, Step("contrast", sums, source, work_per_sample=work)]
        return [*planning.costs_of(steps, engine), solve]
    batch = chunk_subset(source, settings.batch, settings.random_state)
    start, gradient = _gradient(source, settings, ready)
    statistic = gradient(list(start.values()))
    # weights, their gradient and its two moments, while the next ones are made
    held = 6 * statistic.state_bytes()
    rounds = Step("round", statistic, batch, settings.n_epochs, driver_bytes=held)
    return planning.costs_of([draw, rounds], engine)


def fit_model(source: Source, settings: KernelSettings, engine: Engine) -> tuple[KernelModel, list[Record]]:
    """Fit a model on a source; returns it with the records of its passes.

    Without features it is fitted exactly, read whole into this process. With them the first pass draws
    `negative_pool_size` samples: negatives, landmarks of Nyström features, and what the median heuristic looks at. Then
    the contrastive model takes one pass and an eigensolve of D x D on the driver; the others take `n_epochs` passes over
    mini-batches of whole chunk rows. Memory on a worker: the plan's, stated before each pass.
    """
    facts = lambda: Facts.of(source, settings)  # noqa: E731
    if settings.feature_map is None:

        def solved() -> KernelModel:
            with source.opened() as reader:
                samples = reader.read(0, source.n_samples)
            return fit_exact(samples, settings)

        with engine.run((EXACT,), facts):
            model, record = engine.solve(EXACT, solved, exact_bytes(source, settings))
            return model, [record]
    closed = settings.model == "contrastive"
    with engine.run(("draw", *(("contrast", solving.SOLVE) if closed else ("round",))), facts):
        drawn, record = engine.reduce("draw", _draw(source, settings), source)
        rows, numbers, n_samples = (drawn.state[name] for name in ("rows", "sample", "n_samples"))
        ready = _prepared(rows, numbers, int(n_samples), source, settings)
        if closed:
            features, count = ready.features, ready.features.n_features
            require_memory(count, SOLVE_SQUARES, FEWER_FEATURES)
            sums, work = ContrastSums(features, ready.triplets), _work_per_triplet(features)
            partial, summed = engine.reduce("contrast", sums, source, work_per_sample=work)

            def found() -> tuple[Spectrum, Float64]:
                return top_components(finish(partial.state, count), settings.n_components, settings.kernel)

            (spectrum, vectors), last = engine.solve(solving.SOLVE, found, 8 * SOLVE_SQUARES * count**2)
            encoder = FeatureEncoder(features, vectors)
            model, records = KernelModel(settings, encoder, ready.shape, spectrum=spectrum), [summed, last]
        else:
            model, records = _by_batches(source, settings, engine, ready)
    about = {"source": source.describe(), "versions": provenance.few_versions()}
    return replace(model, provenance=about), [record, *records]


def _draw(source: Source, settings: KernelSettings) -> RowDraw:
    return RowDraw(settings.negative_pool_size, row_length(source, settings), settings.random_state)


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


def _prepared(
    rows: NDArray[Any],
    numbers: NDArray[np.int64],
    n_samples: int,
    source: Source,
    settings: KernelSettings,
    planned: bool = False,
) -> _Ready:
    """Return what follows from the samples that were drawn; of a plan as much of zeros, for samples that are not."""
    shape, is_given = (1, 1, rows.shape[1]), given(settings)
    if is_given:
        rows = np.split(rows, 3, axis=1)[0]
        shape = (1, 1, rows.shape[1])
    elif len(source.shape) == 4:
        shape = sample_lengths(source.shape, source.name)
    triplets = TripletMaker(settings.random_state)
    if settings.model != "autoencoder" and not is_given:
        triplets = TripletMaker(settings.random_state, settings.augmentation(), rows, numbers)
        if len(rows) < 2:
            raise DataError(
                f"{source.name} has one sample, but a negative is another one; give at least 2 samples."
            )
    kernel, count = settings.base_kernel(), settings.feature_count
    if not planned:
        kernel = with_bandwidth(kernel, settings.bandwidth, rows)
    if settings.feature_map != "nystroem":
        assert settings.feature_map is not None
        features = feature_maps.random_features(
            kernel, settings.feature_map, rows.shape[1], count, settings.random_state
        )
        return _Ready(features, triplets, n_samples, shape)
    if count > settings.negative_pool_size:
        raise ConfigurationError(
            f"n_features is {count}, but Nyström landmarks are drawn from a pool of {settings.negative_pool_size}; raise "
            f"negative_pool_size."
        )
    landmarks = rows[:count].astype(np.float64)
    if planned:  # none are equal, at most
        require_memory(len(landmarks), max(LANDMARK_SQUARES, SOLVE_SQUARES), FEWER_FEATURES)
        inverse = np.zeros((len(landmarks), len(landmarks)))
    else:
        landmarks = np.unique(landmarks, axis=0)
        require_memory(len(landmarks), LANDMARK_SQUARES, FEWER_FEATURES)
        # eigenvalues that float32 features cannot carry would be noise
        inverse = positive.gram_root(kernel(landmarks, landmarks), kernel.label, 1e-7).inverse
    return _Ready(NystroemFeatures(kernel, landmarks, inverse), triplets, n_samples, shape)


def _work_per_triplet(features: FeatureMap) -> float:
    """Return the multiplications of a triplet: projections of three rows, and the product."""
    return features.n_features * (3.0 * features.n_inputs + features.n_features)


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


def _decoder(settings: KernelSettings) -> FeatureMap:
    return feature_maps.random_features(
        settings.base_decoder(),
        settings.decoder_features,
        settings.n_components,
        settings.n_decoder_features,
        settings.random_state + 1,
    )


def _gradient(
    source: Source, settings: KernelSettings, ready: _Ready
) -> tuple[dict[str, Float64], Callable[[list[Float64]], Statistic]]:
    """Return the weights at the start, by the names of their gradients, and the statistic that sums these at others."""
    features, seed = ready.features, settings.random_state
    first = np.random.default_rng(seed).standard_normal((features.n_features, settings.n_components))
    if settings.model == "spectral":
        every = settings.negatives == "all"
        return {"gradient": START * first}, lambda weights: SpectralGradient(
            features, ready.triplets, weights[0].astype(np.float32), every
        )
    decode, noise = _decoder(settings), settings.corruption()
    second = np.zeros((decode.n_features, int(np.prod(source.shape[1:]))))

    def gradient(weights: list[Float64]) -> Statistic:
        one, other = (part.astype(np.float32) for part in weights)
        return AutoencoderGradient(features, decode, one, other, noise, seed)

    return {"first": first, "second": second}, gradient


@dataclass
class _Adam:
    """Weights with the running moments of their gradients (Kingma and Ba 2015), and the losses met so far."""

    weights: list[Float64]
    means: list[Float64]
    squares: list[Float64]
    losses: tuple[float, ...]


def _by_batches(
    source: Source, settings: KernelSettings, engine: Engine, ready: _Ready
) -> tuple[KernelModel, list[Record]]:
    """Minimise the mean loss of a sample plus penalty ‖W‖² by rounds over mini-batches; the last step is no longer.

    The step falls to zero along a cosine. Converged means that the mean loss of the last tenth of the
    rounds is within one part in a hundred of that of the tenth before.
    """
    if settings.model == "spectral":
        if given(settings) and settings.negatives == "all":
            raise ConfigurationError(
                f"Given triplets bring their negatives; set {equals('negatives', 'one')}."
            )
        ridge = _ridge_of(ready, settings)
    elif (ridge := settings.numeric_ridge()) <= 0:
        raise ConfigurationError(f"The ridge of the autoencoder is {ridge}; it must be a positive number.")
    start, gradient = _gradient(source, settings, ready)
    penalty = ridge / ready.n_samples

    def make(state: _Adam, number: int) -> tuple[Statistic, Source]:
        batch = chunk_subset(source, settings.batch, settings.random_state + number)
        return gradient(state.weights), batch

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
        weights, means, squares = list[Float64](), list[Float64](), list[Float64]()
        for name, w, mean, square in zip(start, state.weights, state.means, state.squares, strict=True):
            slope = sums[name] / n + 2 * penalty * w
            means.append(0.9 * mean + 0.1 * slope)
            squares.append(0.99 * square + 0.01 * slope**2)
            scaled = means[-1] / (1 - 0.9**number) / (np.sqrt(squares[-1] / (1 - 0.99**number)) + 1e-8)
            weights.append(w - rate * scaled)
        return _Adam(weights, means, squares, (*state.losses, loss))

    zeros = [np.zeros_like(part) for part in start.values()]
    state = _Adam(list(start.values()), zeros, zeros, ())
    end, records = engine.loop("round", state, make, update, settings.n_epochs)
    encoder = FeatureEncoder(ready.features, end.weights[0], unit=settings.model == "autoencoder")
    decoder = FeatureEncoder(_decoder(settings), end.weights[1]) if encoder.unit else None
    ended = iterations.of_rounds(end.losses)
    return KernelModel(settings, encoder, ready.shape, decoder, None, ended, ridge), records
