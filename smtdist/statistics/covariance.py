"""The second moment of mean-removed patches: what whitening is made from (SMT 2023, appendix C)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smtdist.kernels import memory, mirrored, patches
from smtdist.kernels import pixels as pixel_values
from smtdist.kernels import whitening as whitening_kernels
from smtdist.kernels.device import place, to_host
from smtdist.kernels.types import Whitener
from smtdist.statistics import limbs
from smtdist.statistics.base import Layout, State, Statistic
from smtdist.statistics.patch_rows import drawn_views


@dataclass(frozen=True)
class PatchMoment(Statistic):
    """Σ m mᵀ and Σ m over the mean-removed patches m that a fit codes, in whole pixel units and therefore exact.

    Memory: 16 bytes x pixels² for the state. With `whitener.mean = "global"` nothing is removed here; the
    mean is known only at the end, and `covariance` moves the moment about it.
    """

    whitener: Whitener
    flip: bool
    IN_LIMBS = ("moment",)

    def layout(self) -> Layout:
        """Return arrays of 16 bytes a pair of pixels, and little more."""
        pixels = self.whitener.geometry.pixels
        return {
            "n_samples": ((), np.int64),
            "n_positions": ((), np.int64),
            "total": ((pixels,), np.int64),
            "moment_high": ((pixels, pixels), np.int64),
            "moment_low": ((pixels, pixels), np.int64),
        }

    def update(self, state: State, images: NDArray[np.generic], first_sample: int) -> int:
        """Add a batch of raw images."""
        whitener = self.whitener
        grid = pixel_values.pixel_grid(place(images), whitener.scale, whitener.grey)
        positions = 0
        # mirrored patches are permuted patches, so their sums are permuted sums
        both = self.flip and mirrored.is_symmetric(whitener)
        for mirror, at in drawn_views(whitener, images, self.flip and not both):
            view = pixel_values.mirrored(grid) if mirror else grid
            centred = patches.centred_patches(
                view, whitener.geometry, whitener.mean, whitener.mean_context, None, at
            )
            moment = to_host(whitening_kernels.patch_moment(centred))
            total = to_host(whitening_kernels.patch_sum(centred))
            positions += centred.shape[1]
            if both:
                order = mirrored.mirrored_pixels(whitener.geometry)
                moment, total = moment + moment[np.ix_(order, order)], total + total[order]
                positions += centred.shape[1]
            limbs.add(state["moment_high"], state["moment_low"], moment)
            state["total"] += total
            del centred  # not while the next view is made
        state["n_samples"] += len(images)
        state["n_positions"] += positions
        return positions

    def batch_bytes(self, images: int) -> int:
        """Return the workspace of a batch."""
        return memory.batch_bytes(self.whitener, 0, "labels", images).whitening

    def merge_bytes(self) -> int:
        """Return the workspace of `merge`: the limbs' carries."""
        return 2 * self.state_bytes()


def covariance(state: State, whitener: Whitener) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Return Σ in units of the pixel range [0, 1], and the global mean in pixel units where one is used.

    Σ = (1/N) Σ_i (m_i - μ)(m_i - μ)ᵀ with μ = 0 but for `mean = "global"`, where μ is the mean patch
    rounded to whole units. Everything is integer arithmetic until the one division at the end, so it is the
    same on any machine.
    """
    count = int(state["n_positions"])
    moment = limbs.exact(state["moment_high"], state["moment_low"])
    mean = None
    if whitener.mean == "global":
        total = state["total"].astype(object)
        mean_units = (2 * total + count) // (2 * count)
        moment = (
            moment
            - np.outer(mean_units, total)
            - np.outer(total, mean_units)
            + count * np.outer(mean_units, mean_units)
        )
        mean = mean_units.astype(np.int64)
    unit = whitener.scale.unit
    return moment.astype(np.float64) * (unit * unit / count), mean
