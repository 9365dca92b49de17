"""The fit of a kernel model, and its plan: exact in memory, or in explicit features by passes over data of any size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source, sample_lengths
from smtdist.engine.forecast import PassCost
from smtdist.engine.manifest import Facts
from smtdist.engine.passes import Engine
from smtdist.errors import ConfigurationError, DataError, ModelError, equals, option
from smtdist.kernels import feature_maps
from smtdist.kernels.feature_maps import NystroemFeatures
from smtdist.kernels.gram import require_kernel, with_bandwidth
from smtdist.models import plan as planning
from smtdist.models import provenance
from smtdist.models.jobs import Job, Request
from smtdist.models.kernel.autoencoder import Autoencoder
from smtdist.models.kernel.contrastive import Contrastive, Spectral
from smtdist.models.kernel.encoder import FEWER_FEATURES, require_memory, require_rows
from smtdist.models.kernel.kind import InMemory, Kind, Ready
from smtdist.models.kernel.model import KernelModel, prepared, samples_in
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.plan import Step
from smtdist.models.provenance import Record
from smtdist.solve import positive
from smtdist.statistics.rows import RowDraw, TripletMaker

EXACT: Final = "exact"
FIRST_PAGES: Final = 8 * 2**20
"""What a process's first exact fit takes beside its matrices: SciPy's code and BLAS's workspace come into memory, up to 5 MiB as
measured."""
KINDS: Final[Mapping[str, Callable[[KernelSettings], Kind]]] = {
    "contrastive": Contrastive,
    "spectral": Spectral,
    "autoencoder": Autoencoder,
}
ALONE: Final = f"An exact model takes one process; set feature_map, or leave out {option('n_workers')} and {option('cluster')}."
LANDMARK_SQUARES: Final = 5
"""Matrices of landmarks x landmarks that the driver holds while it makes Nyström features."""


def job(request: Request) -> Job:
    """Open the samples of a fit."""
    model = request.model.removeprefix("kernel-")
    settings = KernelSettings().replace(**{"model": model, **request.settings})
    for name in (settings.kernel, settings.decoder_kernel):
        require_kernel(name)
    source = samples_in(list(request.data), request.dataset)
    return Job(
        source,
        lambda engine: fit_model(source, settings, engine),
        lambda: Facts.of(source, settings),
        about={"configuration": settings.shown()},
        costs=lambda engine: plan_kernel(source, settings, engine),
        alone=ALONE if settings.feature_map is None else "",
        advice=lambda model: [model.unconverged()],
    )


def plan_kernel(source: Source, settings: KernelSettings, engine: Engine) -> list[PassCost]:
    """Return the cost of every pass of a fit and of what the driver does; what cannot fit is refused as the fit would.

    No sample is read. An exact model has no passes: all samples are read into the driver, which works on square
    matrices of them. In features the costs are those of zeros, as many as the first pass can leave.
    """
    if settings.feature_map is None:
        return [planning.on_driver(EXACT, exact_bytes(source, settings))]
    kind = KINDS[settings.model](settings)
    if settings.feature_map != "nystroem":
        require_memory(settings.feature_count, kind.solve_squares, FEWER_FEATURES)
    draw = Step("draw", _draw(source, settings), source)
    size = min(settings.negative_pool_size, source.n_samples)
    rows = np.zeros((size, row_length(source, settings)), np.float32)
    ready = _prepared(rows, np.arange(len(rows)), source.n_samples, source, settings, planned=True)
    then, on_driver = kind.planned(source, ready)
    return [*planning.costs_of([draw, then], engine), *on_driver]


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
    kind = KINDS[settings.model](settings)
    with engine.run(("draw", *kind.passes), facts):
        drawn, record = engine.reduce("draw", _draw(source, settings), source)
        rows, numbers, n_samples = (drawn.state[name] for name in ("rows", "sample", "n_samples"))
        ready = _prepared(rows, numbers, int(n_samples), source, settings)
        model, records = kind.in_features(source, ready, engine)
    about = {"source": source.describe(), "versions": provenance.few_versions()}
    return replace(model, provenance=about), [record, *records]


def _draw(source: Source, settings: KernelSettings) -> RowDraw:
    return RowDraw(settings.negative_pool_size, row_length(source, settings), settings.random_state)


def row_length(source: Source, settings: KernelSettings) -> int:
    """Return the numbers of a sample; of given triplets they are three rows."""
    length = int(np.prod(source.shape[1:]))
    if settings.resolved_triplets == "given" and length % 3:
        raise DataError(
            f"{source.name} has {length} numbers a sample, but {equals('triplets', 'given')} takes anchor, positive and "
            f"negative, three times as many as a row; reshape it to (samples, 3, features)."
        )
    return length


def _prepared(
    rows: NDArray[Any],
    numbers: NDArray[np.int64],
    n_samples: int,
    source: Source,
    settings: KernelSettings,
    planned: bool = False,
) -> Ready:
    """Return what follows from the samples that were drawn; of a plan as much of zeros, for samples that are not."""
    shape = (1, 1, rows.shape[1])
    if settings.resolved_triplets == "given":
        rows = np.split(rows, 3, axis=1)[0]
        shape = (1, 1, rows.shape[1])
    elif len(source.shape) == 4:
        shape = sample_lengths(source.shape, source.name)
    triplets = TripletMaker(settings.random_state)
    if settings.resolved_triplets == "drawn":
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
        return Ready(features, triplets, n_samples, shape)
    if count > settings.negative_pool_size:
        raise ConfigurationError(
            f"n_features is {count}, but Nyström landmarks are drawn from a pool of {settings.negative_pool_size}; raise "
            f"negative_pool_size."
        )
    landmarks = rows[:count].astype(np.float64)
    if planned:  # none are equal, at most
        require_memory(len(landmarks), max(LANDMARK_SQUARES, Contrastive.solve_squares), FEWER_FEATURES)
        inverse = np.zeros((len(landmarks), len(landmarks)))
    else:
        landmarks = np.unique(landmarks, axis=0)
        require_memory(len(landmarks), LANDMARK_SQUARES, FEWER_FEATURES)
        # eigenvalues that float32 features cannot carry would be noise
        inverse = positive.gram_root(kernel(landmarks, landmarks), kernel.label, 1e-7).inverse
    return Ready(NystroemFeatures(kernel, landmarks, inverse), triplets, n_samples, shape)


def fit_exact(
    samples: NDArray[Any],
    settings: KernelSettings,
    *,
    triplets: tuple[Any, Any] | None = None,
    clean: NDArray[Any] | None = None,
    function: Any = None,
) -> KernelModel:
    """Fit a model on samples in memory: rows (n, d) or images (n, height, width[, channels]).

    triplets : positives and negatives of your own. clean : what a de-noising autoencoder reconstructs, of
        your own.
    function : a kernel of your own in place of the named one. Raises DataError and ConfigurationError.
    """
    rows = prepared(samples, settings)
    require_rows(rows)
    if len(rows) < 2:
        raise DataError("The data have one sample, which is like nothing else; give at least 2 samples.")
    # (height, width, channels); rows of numbers have (1, 1, d)
    height, width, *channels = samples.shape[1:] if samples.ndim > 2 else (1, 1, samples.shape[1])
    shape = int(height), int(width), math.prod(channels)
    if settings.triplets == "given" and triplets is None:
        if rows.shape[1] % 3:
            raise ModelError(
                f"{equals('triplets', 'given')} takes samples of anchor, positive and negative, but {rows.shape[1]} numbers a "
                f"sample are not three times as many; reshape them to (samples, 3, features)."
            )
        rows, *triplets = np.split(rows, 3, axis=1)  # type: ignore[assignment]
        shape = (1, 1, rows.shape[1])
    rows = rows.astype(np.float64)
    kernel = settings.base_kernel()
    if function is not None:
        kernel = type(kernel)(getattr(function, "__name__", "own"), function=function)
    kernel = with_bandwidth(kernel, settings.bandwidth, rows)
    made = KINDS[settings.model](settings).exact(kernel, InMemory(rows, shape, triplets, clean))
    return replace(made, provenance={"versions": provenance.few_versions()})


def exact_bytes(source: Source, settings: KernelSettings) -> int:
    """Return the bytes that an exact fit takes in this process; what cannot fit is refused."""
    kind = KINDS[settings.model](settings)
    rows = kind.parts * source.n_samples * (settings.copies if settings.resolved_triplets else 1)
    require_memory(rows, kind.squares)
    samples = source.n_samples * int(np.prod(source.shape[1:]))
    return (
        FIRST_PAGES + 8 * kind.squares * rows**2 + (source.dtype.itemsize + 8 * (kind.parts + 1)) * samples
    )
