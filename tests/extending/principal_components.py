"""Principal components of the rows of a table, from exact sums over them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from smtdist.kernels.products import Ordered
from smtdist.models.row_estimator import SumEstimator
from smtdist.models.summed import SumModel, array
from smtdist.settings import FLAG, Settings, setting, whole
from smtdist.statistics import limbs
from smtdist.statistics.base import Statistic


class PcaSettings(Settings):
    """Settings of principal components."""

    OF = "principal components"

    n_components: int = setting(whole(1), "dimensions that are kept.", default=2)
    whiten: bool = setting(FLAG, "give each dimension the variance 1.", default=False)
    bits: int = setting(whole(0, 30), "numbers are rounded to multiples of 2^-bits.", default=16)


@dataclass(frozen=True)
class Moments(Statistic):
    """n, Σ x and Σ x xᵀ of rows in steps of 2^-bits: whole numbers, which add and subtract exactly."""

    n_inputs: int
    bits: int
    IN_LIMBS = ("square",)

    def layout(self):
        size = self.n_inputs
        square = {f"square_{limb}": ((size, size), np.int64) for limb in ("high", "low")}
        return {"count": ((), np.int64), "total": ((size,), np.int64), **square}

    def update(self, state, images, first_sample):
        steps = np.rint(images.reshape(len(images), -1) * 2.0**self.bits).astype(np.int64)
        state["count"] += len(steps)
        state["total"] += steps.sum(axis=0)
        limbs.add(state["square_high"], state["square_low"], steps.T @ steps)
        return len(steps)

    def batch_bytes(self, images):
        return 24 * images * self.n_inputs + 32 * self.n_inputs**2


@dataclass(frozen=True, eq=False)
class Pca(SumModel, kind="pca", of=PcaSettings):
    """The directions in which rows vary most."""

    mean: Any = array("input")
    components: Any = array("component", "input", about="directions, of unit length or whitened")
    variances: Any = array("component")
    free = ("n_components", "whiten")

    @property
    def sums(self):
        return Moments(self.n_inputs, self.settings.bits)

    def solve(self, state):
        step, count = 2.0**-self.settings.bits, int(state["count"])
        mean = state["total"] * (step / count)
        moment = limbs.rounded(state["square_high"], state["square_low"]) * (step**2 / count)
        variances, vectors = np.linalg.eigh(moment - np.outer(mean, mean))
        variances, rows = (one[::-1][: self.settings.n_components] for one in (variances, vectors.T))
        scale = np.sqrt(variances)[:, None] if self.settings.whiten else 1.0
        return {"mean": mean, "components": rows / scale, "variances": variances}

    def transform(self, rows):
        return Ordered(self.components.T)(rows - self.mean)


class PCA(SumEstimator, of=PcaSettings):
    """Principal components as an estimator of scikit-learn."""

    MODEL = Pca
