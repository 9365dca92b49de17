"""What a kernel fit will cost, from the data's shape and the settings alone: no sample is read."""

from __future__ import annotations

import json

import numpy as np

from smtdist.data import remote
from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.forecast import PassCost
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, option
from smtdist.kernels import feature_maps
from smtdist.kernels.feature_maps import FeatureMap, NystroemFeatures
from smtdist.kernels.gram import require_kernel
from smtdist.models import plan as planning
from smtdist.models import ways
from smtdist.models.jobs import Job, Request
from smtdist.models.kernel.encoder import FEWER_FEATURES, require_memory
from smtdist.models.kernel.model import EXACT, exact_bytes, samples_of
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.kernel.streamed import (
    LANDMARK_SQUARES,
    SOLVE_SQUARES,
    fit_model,
    given,
    require_landmarks,
    row_length,
    work_per_triplet,
)
from smtdist.models.plan import Step
from smtdist.statistics.base import Statistic
from smtdist.statistics.contrast import ContrastSums
from smtdist.statistics.gradients import AutoencoderGradient, SpectralGradient
from smtdist.statistics.rows import RowDraw, TripletMaker


def plan_kernel(source: Source, settings: KernelSettings, engine: Engine) -> list[PassCost]:
    """Return the cost of every pass of a fit and of what the driver does; what cannot fit is refused as the fit would.

    An exact model has no passes: all samples are read into the driver, which works on square matrices of
    them. In features the costs are those of placeholders as large as what the first pass will draw.
    """
    if settings.feature_map is None:
        return [planning.on_driver(EXACT, exact_bytes(source, settings))]
    if settings.model == "contrastive" and settings.feature_map != "nystroem":
        require_memory(settings.feature_count, SOLVE_SQUARES, FEWER_FEATURES)
    costs = planning.costs_of(kernel_steps(source, settings), engine)
    if settings.model == "contrastive":
        count = _placeholder(settings, source).n_features
        costs.append(planning.on_driver(ways.SOLVE, 8 * SOLVE_SQUARES * count**2))
    return costs


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
        lambda: Facts.of(source, settings.to_dict()),
        about={"configuration": json.loads(settings.to_json())},
        costs=lambda engine: plan_kernel(source, settings, engine),
        advice=lambda model: [model.unconverged()],
    )


def kernel_steps(source: Source, settings: KernelSettings) -> list[Step]:
    """Return the passes of a fit in features, with statistics that cost what the real ones will."""
    length = row_length(source, settings)
    draw = Step("draw", RowDraw(settings.negative_pool_size, length, settings.random_state), source)
    features = _placeholder(settings, source)
    if settings.model == "contrastive":
        sums = ContrastSums(features, _triplets(source, settings))
        work = work_per_triplet(features)
        return [draw, Step("contrast", sums, source, work_per_sample=work)]
    batch = chunk_subset(source, settings.batch, settings.random_state)
    # weights, their gradient and its two moments, while the next ones are made
    gradient = _gradient(source, settings, features)
    held = 6 * gradient.state_bytes()
    return [draw, Step("round", gradient, batch, settings.n_epochs, driver_bytes=held)]


def _gradient(source: Source, settings: KernelSettings, features: FeatureMap) -> Statistic:
    first = np.zeros((features.n_features, settings.n_components), np.float32)
    if settings.model == "spectral":
        return SpectralGradient(features, _triplets(source, settings), first, settings.negatives == "all")
    count = settings.n_decoder_features
    decode = feature_maps.random_features(
        settings.base_decoder(),
        settings.decoder_features,
        settings.n_components,
        count,
        settings.random_state + 1,
    )
    second = np.zeros((decode.n_features, int(np.prod(source.shape[1:]))), np.float32)
    return AutoencoderGradient(
        features, decode, first, second, settings.corruption(), settings.random_state
    )


def _triplets(source: Source, settings: KernelSettings) -> TripletMaker:
    if given(settings):
        return TripletMaker(settings.random_state)
    size = min(settings.negative_pool_size, source.n_samples)
    pool = np.zeros((size, row_length(source, settings)), np.float32)
    return TripletMaker(settings.random_state, settings.augmentation(), pool, np.arange(size))


def _placeholder(settings: KernelSettings, source: Source) -> FeatureMap:
    """Return features as many as there can be: landmarks may turn out equal, and the bandwidth is not known yet."""
    length, kernel = row_length(source, settings), settings.base_kernel()
    length = length // 3 if given(settings) else length
    if settings.feature_map != "nystroem":
        assert settings.feature_map is not None
        return feature_maps.random_features(
            kernel, settings.feature_map, length, settings.feature_count, settings.random_state
        )
    require_landmarks(settings)
    size = min(settings.feature_count, source.n_samples)
    require_memory(size, max(LANDMARK_SQUARES, SOLVE_SQUARES), FEWER_FEATURES)
    return NystroemFeatures(kernel, np.zeros((size, length)), np.zeros((size, size)))
