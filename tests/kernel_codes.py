"""What the tests of kernels share: random codes, and what a device is asked to do, be it one of silicon or of straw."""

import numpy as np

from smtdist.configuration import Configuration
from smtdist.kernels import scatter
from smtdist.kernels.gpu import scatter as gpu
from smtdist.kernels.gpu import tensor
from smtdist.kernels.types import Codes


def random_codes(seed, n, k, share):
    """Codes with `share` of the atoms active; a fifth of the patches left out, one full."""
    rng = np.random.default_rng(seed)
    active = rng.random((n, k)) < share
    active[rng.random(n) < 0.2] = False
    active[n // 2 : n // 2 + 1] = True
    indptr = np.concatenate([[0], np.cumsum(active.sum(axis=1))]).astype(np.int64)
    return Codes(indptr, np.nonzero(active)[1].astype(np.uint16), k)


def placed(codes, to_device):
    """The same codes where `to_device` brings arrays."""
    return Codes(to_device(codes.indptr), to_device(codes.indices), codes.n_atoms)


def check_ways_to_count(codes, start, to_device, to_host):
    """Both ways to count pairs, and the choice between them, add to `start` what the CPU adds."""
    expected = start.copy()
    scatter.add_second_moment(expected, codes)
    for body in (scatter.add_second_moment, gpu.add_pairs, tensor.add_products):
        found = to_device(start)
        body(found, placed(codes, to_device))
        np.testing.assert_array_equal(to_host(found), expected)


def device_settings(atoms, centroids, components):
    """Fits that take every body of a device: f_gq with `atoms`, f_vq with `centroids`."""
    gq = Configuration(patch=4, dictionary=atoms, n_components=components)
    vq = Configuration(patch=4, feature="vq", dictionary=centroids, n_components=components)
    return {
        "gq": gq.replace(threshold=0.4, flip=True),
        "gq-window": gq.replace(context=2, order=2, zero_code="activate_best"),
        "gq-deficit": gq.replace(context=3, min_contrast=12.0),
        "vq": vq.replace(context=2, constant_patch="activate_best"),
        "vq-whole": vq.replace(dictionary_method="spherical", dictionary_rounds=2),
    }
