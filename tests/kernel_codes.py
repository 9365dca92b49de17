"""What the tests of kernels share: random codes, and what a device is asked to do, be it one of silicon or of straw."""

import numpy as np
import pytest
from coded import codes_of

from smtdist.configuration import Configuration
from smtdist.kernels import scatter
from smtdist.kernels.gpu import tensor
from smtdist.kernels.types import Codes


def random_codes(seed, n, k, share):
    """Codes with `share` of the atoms active; a fifth of the patches left out, one full."""
    rng = np.random.default_rng(seed)
    active = rng.random((n, k)) < share
    active[rng.random(n) < 0.2] = False
    active[n // 2 : n // 2 + 1] = True
    return codes_of(active)


def placed(codes, to_device):
    """The same codes where `to_device` brings arrays."""
    return Codes(to_device(codes.indptr), to_device(codes.indices), codes.n_atoms)


WAYS = {"float32": 0, "bits": 90, "bytes": 120}
"""Compute capabilities that take each way to multiply; a card of today can be told to take any."""


def check_ways_to_count(codes, start, to_device, to_host):
    """All ways to count pairs add to `start` what the CPU adds."""
    expected = start.copy()
    scatter.add_second_moment(expected, codes)
    for way, capability in WAYS.items():
        found = to_device(start)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tensor, "capability", lambda _, value=capability: value)
            scatter.add_second_moment(found, placed(codes, to_device))
        np.testing.assert_array_equal(to_host(found), expected, way)


def check_other_sums(codes, weights, images, dtype, to_device, to_host):
    """The sums of codes that are no pairs of a whole batch are those of the CPU, of its type; all are added to something."""
    k = codes.n_atoms

    def sums(to, codes):
        weighted, activity = to(np.full(k, 5)), to(np.full(k, 7))
        deficit, outer = to(np.ones((k // 2, k), dtype)), to(np.ones((k, k), dtype))
        known, wide = to(np.ones((k // 2, k), dtype)), to(np.zeros((k, k), np.int64))
        scatter.add_activity(activity, codes)
        scatter.add_activity(weighted, codes, to(weights))
        scatter.add_weighted_moment(deficit, codes, to(weights))
        scatter.add_weighted_moment(wide, codes, weights)
        counts = scatter.image_counts(codes, images)
        scatter.add_outer_of(outer, counts)
        scatter.add_outer_of(known, counts, most=codes.n_patches // images)
        return weighted, activity, deficit, wide, outer, known, counts

    for one, other in zip(sums(to_device, placed(codes, to_device)), sums(np.array, codes), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(to_host(one), other)


def device_settings(atoms, centroids, components):
    """Fits that take every body of a device: f_gq with `atoms`, f_vq with `centroids`."""
    gq = Configuration(patch=4, dictionary=atoms, n_components=components)
    vq = Configuration(patch=4, feature="vq", dictionary=centroids, n_components=components)
    return {
        "gq": gq.replace(threshold=0.4, flip=True),
        "gq-own": gq.replace(threshold=0.4, flip=True, whitening_covariance="image"),
        "gq-window": gq.replace(context=2, order=2, zero_code="activate_best"),
        "gq-deficit": gq.replace(context=3, min_contrast=12.0),
        "vq": vq.replace(context=2, constant_patch="activate_best"),
        "vq-whole": vq.replace(dictionary_method="spherical", dictionary_rounds=2),
    }
