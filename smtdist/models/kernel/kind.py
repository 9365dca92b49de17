"""What a kernel model is beside its equation: how it is fitted, exactly and in explicit features, and what that takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smtdist.data.source import Source
from smtdist.data.views import chunk_subset
from smtdist.engine.forecast import PassCost
from smtdist.engine.passes import Engine
from smtdist.errors import DataError
from smtdist.kernels import convergence as iterations
from smtdist.kernels.feature_maps import FeatureMap
from smtdist.kernels.gram import Kernel
from smtdist.models.kernel.model import FeatureEncoder, KernelModel
from smtdist.models.kernel.settings import KernelSettings
from smtdist.models.plan import Step
from smtdist.models.provenance import Record
from smtdist.statistics.base import State, Statistic
from smtdist.statistics.rows import TripletMaker

Float64 = NDArray[np.float64]
Fitted = tuple[KernelModel, list[Record]]
Gradient = tuple[dict[str, Float64], Callable[[list[Float64]], Statistic]]


class InMemory(NamedTuple):
    """Rows (n, d) of samples of a shape, with positives and negatives or clean rows of your own."""

    rows: Float64
    shape: tuple[int, int, int]
    triplets: Any = None
    clean: NDArray[Any] | None = None


class Ready(NamedTuple):
    """What the first pass leaves: features, and how triplets are made."""

    features: FeatureMap
    triplets: TripletMaker
    n_samples: int
    shape: tuple[int, int, int]  # of a sample


@dataclass(frozen=True)
class Kind(ABC):
    """A kernel model that is asked for.

    squares : matrices of rows x rows that an exact fit holds. solve_squares : matrices of features x features that the driver
    holds at the end of a fit in features. passes : names of what follows the draw in such a fit.
    """

    settings: KernelSettings
    squares: ClassVar[int]
    solve_squares: ClassVar[int] = 0
    passes: ClassVar[tuple[str, ...]] = ("round",)

    @property
    def parts(self) -> int:
        """Rows of those matrices for each sample: of a pair both."""
        return 2

    @abstractmethod
    def exact(self, kernel: Kernel, samples: InMemory) -> KernelModel:
        """Fit samples in memory."""

    @abstractmethod
    def planned(self, source: Source, ready: Ready) -> tuple[Step, list[PassCost]]:
        """Return what follows the draw in features, and what the driver does then."""

    @abstractmethod
    def in_features(self, source: Source, ready: Ready, engine: Engine) -> Fitted:
        """Do that."""


@dataclass
class _Adam:
    """Weights with the running moments of their gradients (Kingma and Ba 2015), and the losses met so far."""

    weights: list[Float64]
    means: list[Float64]
    squares: list[Float64]
    losses: tuple[float, ...]


class ByBatches(Kind):
    """A kernel model that is fitted in features by rounds over mini-batches."""

    @abstractmethod
    def ridge(self, ready: Ready) -> float:
        """Return λ."""

    @abstractmethod
    def gradient(self, source: Source, ready: Ready) -> Gradient:
        """Return the weights at the start, by the names of their gradients, and the statistic that sums these at others."""

    def decoder(self) -> FeatureMap | None:
        """Return the features of its decoder, where it has one; the encoder's rows have length one then."""
        return None

    def require_bottom(self, loss: float, ridge: float) -> None:
        """Refuse a loss that falls without end."""

    def planned(self, source: Source, ready: Ready) -> tuple[Step, list[PassCost]]:
        """Return rounds; the driver does nothing then."""
        batch = chunk_subset(source, self.settings.batch, self.settings.random_state)
        start, gradient = self.gradient(source, ready)
        statistic = gradient(list(start.values()))
        # weights, their gradient and its two moments, while the next ones are made
        held = 6 * statistic.state_bytes()
        return Step("round", statistic, batch, self.settings.n_epochs, driver_bytes=held), []

    def in_features(self, source: Source, ready: Ready, engine: Engine) -> Fitted:
        """Minimise the mean loss of a sample plus penalty ‖W‖² by rounds over mini-batches; the last step is no longer.

        The step falls to zero along a cosine. Converged means that the mean loss of the last tenth of the
        rounds is within one part in a hundred of that of the tenth before.
        """
        settings, ridge, decode = self.settings, self.ridge(ready), self.decoder()
        start, gradient = self.gradient(source, ready)
        penalty = ridge / ready.n_samples

        def make(state: _Adam, number: int) -> tuple[Statistic, Source]:
            batch = chunk_subset(source, settings.batch, settings.random_state + number)
            return gradient(state.weights), batch

        def update(state: _Adam, sums: State, number: int) -> _Adam:
            n = int(sums["n_samples"])
            loss = float(sums["loss"]) / n + penalty * sum(float(np.vdot(w, w)) for w in state.weights)
            self.require_bottom(loss, penalty * source.n_samples)
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
        encoder = FeatureEncoder(ready.features, end.weights[0], unit=decode is not None)
        decoder = None if decode is None else FeatureEncoder(decode, end.weights[1])
        ended = iterations.of_rounds(end.losses)
        return KernelModel(settings, encoder, ready.shape, decoder, None, ended, ridge), records

    def drawn(self, features: FeatureMap) -> Float64:
        """Return weights of the encoder (D, h), standard normal."""
        rng = np.random.default_rng(self.settings.random_state)
        return rng.standard_normal((features.n_features, self.settings.n_components))
